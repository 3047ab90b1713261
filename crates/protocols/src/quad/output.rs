//! Values out: opening to all parties, revealing to the client. Each receiver is given what it lacks twice, by parties of which at
//! most one can lie, and takes neither if they differ.
//!
//! | receiver | is sent |
//! |---|---|
//! | P0 | X by P1 and by P2 |
//! | P1 | l2 by P0 and by P3 |
//! | P2 | l1 by P0 and by P3 |
//! | P3 | w by P1 and by P2 |
//! | client | l1 + l2 by P0 and X by P1: one x; w by P2 and x + w by P3: the other |
//!
//! Nothing of it goes ahead of the inputs, though masks could: a party that knew the missing mask would have the value before the
//! checks are over.

use std::ops::Range;

use covey_kernels::constant_time::equal;
use covey_kernels::{Buffer, bits as bit_words, elementwise};
use covey_ring::{BitTensor, Ring, Tensor, Word, wire};

use super::audit::Site;
use super::checks::VERIFIER;
use super::share::{Arith, Bool, Role, Wire};
use super::tampering::{Check, is_done};
use super::{CLIENT, Quad, bits, input};
use crate::api::{Checked, Extended, Result, Shaped};
use crate::machine::{Inbox, Layout, Machine, Outbox, Step};

/// Who sends a party what it lacks.
fn sources(role: Role) -> [usize; 2] {
    match role {
        Role::P0 | Role::P3 => [1, 2],
        _ => [0, VERIFIER],
    }
}

/// The parties that [`sources`] names, as an error names them.
pub(super) fn sources_of(role: Role) -> &'static str {
    match role {
        Role::P0 | Role::P3 => "P1 and P2",
        _ => "P0 and P3",
    }
}

/// Every message of an opening is `len` bytes.
fn opened(len: usize) -> Layout {
    let mut layout = Layout::default();
    for to in [Role::P0, Role::P1, Role::P2, Role::P3] {
        for from in sources(to) {
            layout.bytes(Step::Online(0), from, to as usize, len);
        }
    }
    layout
}

pub(super) fn open_layout(len: usize, ring: Ring) -> Layout {
    opened(wire::words_len(len, ring))
}

pub(super) fn open_plane_layout(len: usize) -> Layout {
    opened(wire::planes_len(len, 1))
}

/// What a party has of a value, in words or planes: l1 and l2, each where it knows it, X or nothing, and w or V.
struct Components<T> {
    l1: T,
    l2: T,
    x: T,
    extra: T,
}

impl<T: Default + Clone> Components<T> {
    /// Of the parts of a share and their sum.
    fn new(role: Role, first: T, second: T, sum: T, extra: T) -> Self {
        match role {
            Role::P1 => Components { l1: second, l2: T::default(), x: sum, extra },
            Role::P2 => Components { l1: T::default(), l2: second, x: sum, extra },
            _ => Components { l1: first, l2: second, x: T::default(), extra },
        }
    }

    /// What this party sends `to`.
    fn sent(&self, to: usize) -> &T {
        match Role::of(to) {
            Role::P0 => &self.x,
            Role::P1 => &self.l2,
            Role::P2 => &self.l1,
            _ => &self.extra,
        }
    }
}

/// Whom a party sends to.
fn receivers(role: Role) -> [usize; 2] {
    if role.is_online() { [0, VERIFIER] } else { [1, 2] }
}

/// The value to all parties. The output is it, and whether both sources agreed.
pub(super) struct Open<W> {
    layout: Layout,
    site: Site,
    parts: Components<Buffer<W>>,
    result: Vec<W>,
    agreed: bool,
}

impl<W: Word> Open<W> {
    pub fn new(site: Site, first: &[W], second: &[W], extra: &[W]) -> Self {
        let mut sum = Buffer::copy_of(first);
        elementwise::add_assign(&mut sum, second);
        let [first, second, extra] = [first, second, extra].map(Buffer::copy_of);
        let parts = Components::new(site.role, first, second, sum, extra);
        let result = vec![W::ZERO; site.len];
        Open { layout: open_layout(site.len, site.ring), site, parts, result, agreed: true }
    }
}

impl<W: Word> Machine for Open<W> {
    type Output = (Vec<W>, bool);

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        if step != Step::Offline {
            receivers(self.site.role).into_iter().for_each(|to| out.words(to, self.parts.sent(to), self.site.ring));
        }
    }

    fn absorb(&mut self, _: Step, inbox: &mut Inbox) {
        let Site { role, ring, len, .. } = self.site;
        let [one, two] = sources(role).map(|from| inbox.words::<W>(from, len, ring));
        self.agreed = equal(&one, &two);
        let Components { l1, l2, x, extra } = &self.parts;
        // x = X - l1 - l2, X or one mask of which was missing, or V - w - l1 - l2.
        let (value, masks): (&[W], [&[W]; 3]) = match role {
            Role::P0 => (&one, [l1, l2, &[]]),
            Role::P1 => (x, [l1, &one, &[]]),
            Role::P2 => (x, [&one, l2, &[]]),
            _ => (extra, [l1, l2, &one]),
        };
        let mut result = Buffer::copy_of(value);
        masks.into_iter().filter(|mask| !mask.is_empty()).for_each(|mask| elementwise::sub_assign(&mut result, mask));
        self.result = result.iter().map(|&x| ring.reduce(x)).collect();
    }

    fn finish(self) -> Self::Output {
        (self.result, self.agreed)
    }

    fn keep(&self, kept: &mut Vec<u8>) {
        [&self.parts.l1, &self.parts.l2].into_iter().for_each(|words| wire::pack_words(words, self.site.ring, kept));
    }

    fn restore(&mut self, kept: &[u8]) {
        let (l1, l2) = kept.split_at(wire::words_len(self.site.len, self.site.ring));
        let words = |bytes| Buffer::copy_of(&wire::unpack_words::<W>(bytes, self.site.len, self.site.ring));
        (self.parts.l1, self.parts.l2) = (words(l1), words(l2));
    }
}

/// One bit plane to all parties, as [`Open`].
pub(super) struct OpenPlane {
    layout: Layout,
    site: Site,
    parts: Components<Buffer<u64>>,
    result: Vec<u64>,
    agreed: bool,
}

impl OpenPlane {
    pub fn new(site: Site, wire: Wire) -> Self {
        let sum = wire.inner.sum();
        let result = vec![0; sum.len()];
        let parts = Components::new(site.role, wire.inner.first, wire.inner.second, sum, wire.extra);
        OpenPlane { layout: open_plane_layout(site.len), site, parts, result, agreed: true }
    }
}

impl Machine for OpenPlane {
    type Output = (Vec<u64>, bool);

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        if step != Step::Offline {
            receivers(self.site.role).into_iter().for_each(|to| out.plane(to, self.parts.sent(to), self.site.len));
        }
    }

    fn absorb(&mut self, _: Step, inbox: &mut Inbox) {
        let Site { role, len, .. } = self.site;
        let [one, two] = sources(role).map(|from| inbox.plane(from, len));
        self.agreed = equal(&one, &two);
        let Components { l1, l2, x, extra } = &self.parts;
        let planes: [&[u64]; 4] = match role {
            Role::P0 => [&one, l1, l2, &[]],
            Role::P1 => [x, l1, &one, &[]],
            Role::P2 => [x, &one, l2, &[]],
            _ => [extra, l1, l2, &one],
        };
        self.result.fill(0);
        planes
            .into_iter()
            .filter(|plane| !plane.is_empty())
            .for_each(|plane| bit_words::xor_assign(&mut self.result, plane));
        if let (Some(last), rest @ 1..) = (self.result.last_mut(), len % 64) {
            *last &= (1 << rest) - 1;
        }
    }

    fn finish(self) -> Self::Output {
        debug_assert_eq!(self.result.len(), BitTensor::words_per_plane(self.site.len));
        (self.result, self.agreed)
    }

    fn keep(&self, kept: &mut Vec<u8>) {
        [&self.parts.l1, &self.parts.l2].into_iter().for_each(|plane| wire::pack_plane(plane, self.site.len, kept));
    }

    fn restore(&mut self, kept: &[u8]) {
        let (l1, l2) = kept.split_at(wire::planes_len(self.site.len, 1));
        let plane = |bytes| Buffer::copy_of(wire::unpack_planes(bytes, self.site.len, 1).words());
        (self.parts.l1, self.parts.l2) = (plane(l1), plane(l2));
    }
}

/// The value to the client alone.
pub(super) struct Reveal<W> {
    layout: Layout,
    ring: Ring,
    len: usize,
    /// What this party sends; x at the client.
    words: Buffer<W>,
    agreed: bool,
    is_client: bool,
}

pub(super) fn reveal_layout(len: usize, ring: Ring) -> Layout {
    let mut layout = Layout::default();
    (0..CLIENT).for_each(|from| layout.words(Step::Online(0), from, CLIENT, len, ring));
    layout
}

impl<W: Word> Reveal<W> {
    /// `sum`: X or l1 + l2. `extra`: w or V.
    pub fn party(site: &Site, sum: Buffer<W>, extra: &[W]) -> Self {
        let words = match site.role {
            Role::P0 | Role::P1 => sum,
            Role::P2 => Buffer::copy_of(extra),
            _ => {
                let mut words = Buffer::copy_of(extra);
                elementwise::sub_assign(&mut words, &sum);
                words
            }
        };
        let (ring, len) = (site.ring, site.len);
        Reveal { layout: reveal_layout(len, ring), ring, len, words, agreed: true, is_client: false }
    }

    pub fn client(ring: Ring, len: usize) -> Self {
        Reveal { layout: reveal_layout(len, ring), ring, len, words: Buffer::zeros(len), agreed: true, is_client: true }
    }
}

impl<W: Word> Machine for Reveal<W> {
    type Output = (Vec<W>, bool);

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        if step != Step::Offline && !self.is_client {
            out.words(CLIENT, &self.words, self.ring);
        }
    }

    fn absorb(&mut self, _: Step, inbox: &mut Inbox) {
        let mut from = |party| inbox.words::<W>(party, self.len, self.ring);
        let (masks, masked, mask, other) = (from(0), from(1), from(2), from(3));
        let difference =
            |x: &[W], y: &[W]| -> Vec<W> { x.iter().zip(y).map(|(&x, &y)| self.ring.reduce(x.sub(y))).collect() };
        let (one, two) = (difference(&masked, &masks), difference(&other, &mask));
        self.agreed = equal(&one, &two) || !is_done(Check::ClientOutput);
        self.words = Buffer::copy_of(&one);
    }

    fn finish(self) -> Self::Output {
        (self.words.to_vec(), self.agreed)
    }

    fn keep(&self, kept: &mut Vec<u8>) {
        wire::pack_words(&self.words, self.ring, kept);
    }

    fn restore(&mut self, kept: &[u8]) {
        self.words = Buffer::copy_of(&wire::unpack_words::<W>(kept, self.len, self.ring));
    }
}

impl<W: Word> Extended for Quad<W> {
    fn input(&mut self, owner: usize, shape: &[usize], value: Option<&Tensor<W>>) -> Result<Arith<W>> {
        let owner = self.party.owner(owner, shape, value)?;
        let machine =
            |site, range: Range<usize>| input::Input::new(site, owner, value.map(|v| v.data()[range].to_vec()));
        self.joined(shape, machine, |((a, b), extra, digests)| ([a, b, extra], digests))
    }

    fn open(&mut self, x: &Arith<W>, _: &Checked) -> Result<Tensor<W>> {
        let words = self.opened(x.len(), |site, range| {
            let [first, second, extra] =
                [&x.inner.first, &x.inner.second, &x.extra].map(|part| &part.data()[range.clone()]);
            Open::new(site, first, second, extra)
        })?;
        Ok(Tensor::new(x.shape(), words))
    }

    fn open_bits(&mut self, x: &Bool, _: &Checked) -> Result<BitTensor> {
        let mut words = Vec::with_capacity(x.extra.words().len());
        for plane in 0..x.planes() {
            words.extend(self.opened(x.len(), |site, range| OpenPlane::new(site, x.tile(plane, range)))?);
        }
        Ok(BitTensor::new(x.len(), x.planes(), words))
    }

    fn a2b(&mut self, x: &Arith<W>) -> Result<Bool> {
        let plan =
            bits::AllBitsPlan::new(crate::trio::bits::AllBitsPlan::new(self.party.ring, self.party.options.adder));
        self.planes(x.len(), self.party.ring.bits() as usize, |site, range| {
            bits::All::new(site, plan.clone(), x.sum(range))
        })
    }
}
