//! Values in: a party's input, the client's input. Masks come from the keys, so that they do not depend on x. Both P1 and P2 end up
//! with X, and P3 with V: they compare X with each other and V with P3, so that nobody can give them values that do not fit.

use covey_kernels::constant_time::equal_bytes;
use covey_kernels::{Buffer, elementwise, packing};
use covey_ring::{Ring, Word};
use zeroize::Zeroize;

use super::audit::Site;
use super::checks::{ONLINE_KEY, TileChecks, VERIFIER};
use super::share::Role;
use super::tampering::{Check, is_done};
use super::transcript::{Digests, Line};
use super::{CLIENT, Parts};
use crate::machine::{Inbox, Layout, Machine, Outbox, Step};
use crate::masked::seed::{SEED_BYTES, expand};
use crate::trio::site::purpose;

/// The components of a mask.
struct Masks<W> {
    l1: Buffer<W>,
    l2: Buffer<W>,
    w: Buffer<W>,
}

/// What has come of an input, at any party.
struct Received<W> {
    masks: Masks<W>,
    /// X at P1 and P2, V at P3.
    value: Buffer<W>,
}

impl<W: Word> Received<W> {
    fn new(len: usize) -> Self {
        let masks = Masks { l1: Buffer::zeros(len), l2: Buffer::zeros(len), w: Buffer::zeros(len) };
        Received { masks, value: Buffer::zeros(len) }
    }

    /// The share, and what the others compare.
    fn finish(self, mut checks: TileChecks, ring: Ring, online: bool) -> (Parts<W>, Buffer<W>, Digests) {
        let Received { masks: Masks { l1, l2, w }, value } = self;
        let less = |x: &[W], mask: &[W]| {
            let mut out = Buffer::copy_of(x);
            elementwise::sub_assign(&mut out, mask);
            out
        };
        if online {
            match checks.role {
                Role::P1 | Role::P2 => {
                    if is_done(Check::InputMasked) {
                        checks.note(Line::P1ToP2, packing::packed(&value, ring, &mut Vec::new()));
                    }
                    let mut masked = value.clone();
                    elementwise::add_assign(&mut masked, &w);
                    checks.note_words(&masked, ring, Check::InputValue);
                }
                Role::P3 => checks.note_words(&value, ring, Check::InputValue),
                _ => {}
            }
        }
        let (inner, extra) = match checks.role {
            Role::P0 => ((l1, l2), w),
            Role::P3 => ((l1, l2), value),
            Role::P1 => ((less(&value, &l1), l1), w),
            _ => ((less(&value, &l2), l2), w),
        };
        (inner, extra, checks.close().digests())
    }
}

/// A value known to party `owner`. P0 knows all masks; P1 and P2 leave out the one mask that they do not know, and P3 w.
pub(super) struct Input<W> {
    layout: Layout,
    site: Site,
    checks: TileChecks,
    owner: Role,
    value: Option<Vec<W>>,
    received: Received<W>,
    online: bool,
}

pub(super) fn input_layout(owner: Role, len: usize, ring: Ring) -> Layout {
    let mut layout = Layout::default();
    let owner = owner as usize;
    [1, 2, VERIFIER].into_iter().filter(|&to| to != owner).for_each(|to| {
        layout.words(Step::Online(0), owner, to, len, ring);
    });
    layout
}

impl<W: Word> Input<W> {
    pub fn new(site: Site, owner: Role, value: Option<Vec<W>>) -> Self {
        Input {
            layout: input_layout(owner, site.len, site.ring),
            checks: site.checks(),
            received: Received::new(site.len),
            site,
            owner,
            value,
            online: false,
        }
    }

    /// The masks in use that this role knows.
    fn draw(&mut self) {
        let Site { role, ref generators, position, .. } = self.site;
        let draw = |slot: usize, purpose: u32, out: &mut [W]| generators.words_into(slot, position, purpose, out);
        let masks = &mut self.received.masks;
        let is_dealer = matches!(role, Role::P0 | Role::P3);
        if self.owner != Role::P2 && (is_dealer || role == Role::P1) {
            draw(if is_dealer { 1 } else { 0 }, purpose::MASK, &mut masks.l1);
        }
        if self.owner != Role::P1 && (is_dealer || role == Role::P2) {
            draw(if is_dealer { 2 } else { 0 }, purpose::MASK, &mut masks.l2);
        }
        if self.owner != Role::P3 && role != Role::P3 {
            draw(ONLINE_KEY, purpose::MASK, &mut masks.w);
        }
    }
}

impl<W: Word> Machine for Input<W> {
    type Output = (Parts<W>, Buffer<W>, Digests);

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        if step == Step::Offline {
            return self.draw();
        }
        self.online = true;
        if self.owner != self.site.role {
            return;
        }
        if self.owner == Role::P0 {
            // Online, P0 draws again what it knew.
            self.draw();
        }
        let Masks { l1, l2, w } = &self.received.masks;
        let mut masked = self.value.take().map_or_else(|| Buffer::zeros(self.site.len), |x| Buffer::copy_of(&x));
        elementwise::add_assign(&mut masked, l1);
        elementwise::add_assign(&mut masked, l2);
        for to in [1, 2].into_iter().filter(|&to| to != self.owner as usize) {
            out.words(to, &masked, self.site.ring);
        }
        if self.owner != Role::P3 {
            let mut both = masked.clone();
            elementwise::add_assign(&mut both, w);
            out.words(VERIFIER, &both, self.site.ring);
        }
        self.received.value = masked;
    }

    fn absorb(&mut self, _: Step, inbox: &mut Inbox) {
        self.received.value = inbox.elements(self.owner as usize, self.site.len, self.site.ring);
    }

    fn finish(self) -> Self::Output {
        self.received.finish(self.checks, self.site.ring, self.online)
    }
}

/// A value of the client. Two of the parties that have a key of three hand it a seed of that mask, and the client sees that they are
/// the same; it sends X to P1 and P2 and V to P3.
pub(super) struct ClientInput<W> {
    layout: Layout,
    site: Option<(Site, TileChecks)>,
    ring: Ring,
    len: usize,
    /// The client's value.
    value: Vec<W>,
    received: Received<W>,
    online: bool,
    agreed: bool,
}

/// Who hands the client the seeds of l1, l2 and w, and from which of its keys.
const SEEDS: [[(usize, usize); 2]; 3] =
    [[(1, 0), (VERIFIER, 1)], [(2, 0), (VERIFIER, 2)], [(1, ONLINE_KEY), (2, ONLINE_KEY)]];

pub(super) fn client_input_layout(len: usize, ring: Ring) -> Layout {
    let mut layout = Layout::default();
    for (party, _) in SEEDS.into_iter().flatten() {
        layout.bytes(Step::Online(0), party, CLIENT, SEED_BYTES);
    }
    for party in [1, 2, VERIFIER] {
        layout.words(Step::Online(1), CLIENT, party, len, ring);
    }
    layout
}

impl<W: Word> ClientInput<W> {
    pub fn party(site: Site) -> Self {
        let (ring, len, checks) = (site.ring, site.len, site.checks());
        Self::new(Some((site, checks)), ring, len, Vec::new())
    }

    pub fn client(ring: Ring, value: Vec<W>) -> Self {
        Self::new(None, ring, value.len(), value)
    }

    fn new(site: Option<(Site, TileChecks)>, ring: Ring, len: usize, value: Vec<W>) -> Self {
        let layout = client_input_layout(len, ring);
        ClientInput { layout, site, ring, len, value, received: Received::new(len), online: false, agreed: true }
    }
}

impl<W: Word> Machine for ClientInput<W> {
    /// At the client nothing but whether the seeds agreed.
    type Output = (Parts<W>, Buffer<W>, Digests, bool);

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        self.online |= step != Step::Offline;
        match (&self.site, step) {
            (Some((site, _)), Step::Offline) => {
                let words = |slot: usize| {
                    let mut seed = site.generators.seed(slot, site.position, purpose::SEED);
                    let words = Buffer::copy_of(&expand(&seed, 0, site.len));
                    seed.zeroize();
                    words
                };
                let masks = &mut self.received.masks;
                match site.role {
                    Role::P0 => *masks = Masks { l1: words(1), l2: words(2), w: words(ONLINE_KEY) },
                    Role::P1 => (masks.l1, masks.w) = (words(0), words(ONLINE_KEY)),
                    Role::P2 => (masks.l2, masks.w) = (words(0), words(ONLINE_KEY)),
                    _ => (masks.l1, masks.l2) = (words(1), words(2)),
                }
            }
            (Some((site, _)), Step::Online(0)) => {
                for (_, slot) in SEEDS.into_iter().flatten().filter(|(party, _)| *party == site.role as usize) {
                    out.bytes(CLIENT, &site.generators.seed(slot, site.position, purpose::SEED));
                }
            }
            (None, Step::Online(1)) => {
                let Masks { l1, l2, w } = &self.received.masks;
                // What one party made up must not mask anything: then it is no value that is sent, and something else to each party, so
                // that whichever made it up the two others find that it does not fit.
                let (mut masked, step) = match self.agreed {
                    true => (Buffer::copy_of(&self.value), W::ZERO),
                    false => (Buffer::zeros(self.len), W::ONE),
                };
                let another = |words: &mut [W]| words.iter_mut().for_each(|word| *word = word.add(step));
                elementwise::add_assign(&mut masked, l1);
                elementwise::add_assign(&mut masked, l2);
                out.words(1, &masked, self.ring);
                another(&mut masked);
                out.words(2, &masked, self.ring);
                another(&mut masked);
                elementwise::add_assign(&mut masked, w);
                out.words(VERIFIER, &masked, self.ring);
            }
            _ => {}
        }
    }

    fn absorb(&mut self, step: Step, inbox: &mut Inbox) {
        if step == Step::Online(0) {
            let len = self.len;
            let mut masks = SEEDS.map(|sources| {
                let [one, two] = sources.map(|(party, _)| -> [u8; SEED_BYTES] {
                    inbox.bytes(party, SEED_BYTES).try_into().expect("sized")
                });
                self.agreed &= equal_bytes(&one, &two) || !is_done(Check::ClientSeeds);
                Buffer::copy_of(&expand(&one, 0, len))
            });
            let [l1, l2, w] = masks.each_mut().map(std::mem::take);
            self.received.masks = Masks { l1, l2, w };
        } else {
            self.received.value = inbox.elements(CLIENT, self.len, self.ring);
        }
    }

    fn finish(self) -> Self::Output {
        match self.site {
            Some((_, checks)) => {
                let (inner, extra, digests) = self.received.finish(checks, self.ring, self.online);
                (inner, extra, digests, true)
            }
            None => ((Buffer::new(), Buffer::new()), Buffer::new(), Digests::default(), self.agreed),
        }
    }
}
