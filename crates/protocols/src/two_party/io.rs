//! Values in and out: a client's input, opening to both parties, revealing to the client. What a party brings itself needs no
//! message.

use covey_kernels::Prg;
use covey_ring::{BitTensor, Ring, Tensor, Word};
use zeroize::Zeroize;

use super::plan::programs;
use super::share::{self, Arithmetic};
use super::{Arith, Bool, PEERS, Site, TwoParty};
use crate::api::{Checked, Extended, Options, Result, Shaped};
use crate::machine::{Inbox, Layout, Machine, Outbox, Step};
use crate::scheduler::Scheduler;
use crate::served::{Client, ClientGates};

/// The number of an outside client on the parties' endpoints.
pub(super) const CLIENT: usize = 2;
const SEED_BYTES: usize = 32;

/// Numbers of the draws of one gate.
mod purpose {
    pub const MASK: u32 = 0;
    pub const PAD: u32 = 1;
    pub const SEED: u32 = 2;
}

/// A value of party `owner`, whose share of it is x - r; r, from the common key, is the other's.
pub(super) fn input<W: Word>(site: &Site, owner: usize, value: Option<&[W]>) -> Vec<W> {
    let mask = share::draw(&site.generators, 1 - site.role, site.position, purpose::MASK, site.ring, site.len);
    let arithmetic = Arithmetic::new(site.ring);
    match value {
        Some(value) if site.role == owner => value.iter().zip(&mask).map(|(&x, &r)| arithmetic.sub(x, r)).collect(),
        _ => mask,
    }
}

/// Uniform elements from a seed: what P0 and a client it gave the seed to both compute.
fn expand<W: Word>(seed: &[u8; SEED_BYTES], ring: Ring, len: usize) -> Vec<W> {
    #[cfg(test)]
    if let Some(words) = crate::randomness::script::expanded(seed, len) {
        return words;
    }
    let mut key = blake3::derive_key("covey 2026 two-party mask of a client's input", seed);
    let prg = Prg::new(key.first_chunk().expect("16 of 32 bytes"));
    key.zeroize();
    match ring {
        Ring::Pow2(_) => {
            let mut words = vec![W::ZERO; len];
            prg.fill_words(0, &mut words);
            words
        }
        Ring::Odd(_) => {
            let mut words = vec![0u64; 2 * len];
            prg.fill_words(0, &mut words);
            share::reduced(&words, ring)
        }
    }
}

/// A value of an outside client: P0 hands it the seed of P0's share, it sends x - r to P1. P0's share depends on no input. The seed
/// comes from a key that is P0's alone: with r, P1 would have x.
pub(super) struct ClientInput<W> {
    layout: Layout,
    /// `None` at the client.
    site: Option<Site>,
    ring: Ring,
    len: usize,
    /// The client's value; then a party's share.
    value: Vec<W>,
}

pub(super) fn client_input_layout(len: usize, ring: Ring) -> Layout {
    let mut layout = Layout::default();
    layout.bytes(Step::Online(0), 0, CLIENT, SEED_BYTES);
    layout.words(Step::Online(1), CLIENT, 1, len, ring);
    layout
}

impl<W: Word> ClientInput<W> {
    pub fn party(site: Site) -> Self {
        let (ring, len) = (site.ring, site.len);
        let (layout, value) = (client_input_layout(len, ring), vec![W::ZERO; len]);
        ClientInput { layout, site: Some(site), ring, len, value }
    }

    pub fn client(ring: Ring, value: Vec<W>) -> Self {
        ClientInput { layout: client_input_layout(value.len(), ring), site: None, ring, len: value.len(), value }
    }
}

impl<W: Word> Machine for ClientInput<W> {
    type Output = Vec<W>;

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        match (&self.site, step) {
            (Some(site), Step::Online(0)) if site.role == 0 => {
                let mut seed = site.generators.seed(site.role, site.position, purpose::SEED);
                out.bytes(CLIENT, &seed);
                self.value = expand(&seed, self.ring, self.len);
                seed.zeroize();
            }
            (None, Step::Online(1)) => out.words(1, &self.value, self.ring),
            _ => {}
        }
    }

    fn absorb(&mut self, _: Step, inbox: &mut Inbox) {
        if self.site.is_some() {
            return self.value = inbox.words(CLIENT, self.len, self.ring);
        }
        let seed: [u8; SEED_BYTES] = inbox.bytes(0, SEED_BYTES).try_into().expect("sized");
        let arithmetic = Arithmetic::new(self.ring);
        let mask = expand::<W>(&seed, self.ring, self.len);
        self.value.iter_mut().zip(mask).for_each(|(x, r)| *x = arithmetic.sub(*x, r));
    }

    fn finish(self) -> Vec<W> {
        self.value
    }
}

/// The value to both parties: each sends its share.
pub(super) struct Open<W> {
    layout: Layout,
    site: Site,
    share: Vec<W>,
}

pub(super) fn open_layout(len: usize, ring: Ring) -> Layout {
    let mut layout = Layout::default();
    layout.words(Step::Online(0), 0, 1, len, ring);
    layout.words(Step::Online(0), 1, 0, len, ring);
    layout
}

impl<W: Word> Open<W> {
    pub fn new(site: Site, share: Vec<W>) -> Self {
        Open { layout: open_layout(site.len, site.ring), site, share }
    }
}

impl<W: Word> Machine for Open<W> {
    type Output = Vec<W>;

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        if step == Step::Online(0) {
            out.words(1 - self.site.role, &self.share, self.site.ring);
        }
    }

    fn absorb(&mut self, _: Step, inbox: &mut Inbox) {
        let (ring, arithmetic) = (self.site.ring, Arithmetic::new(self.site.ring));
        let received: Vec<W> = inbox.words(1 - self.site.role, self.site.len, ring);
        self.share.iter_mut().zip(received).for_each(|(x, y)| *x = ring.reduce(arithmetic.add(*x, y)));
    }

    fn finish(self) -> Vec<W> {
        self.share
    }
}

/// Bit planes to both parties.
pub(super) struct OpenPlanes {
    layout: Layout,
    site: Site,
    /// One after the other.
    planes: Vec<u64>,
}

pub(super) fn open_planes_layout(len: usize, planes: usize) -> Layout {
    let mut layout = Layout::default();
    layout.planes(Step::Online(0), 0, 1, len, planes);
    layout.planes(Step::Online(0), 1, 0, len, planes);
    layout
}

impl OpenPlanes {
    pub fn new(site: Site, planes: Vec<u64>) -> Self {
        let count = planes.len() / BitTensor::words_per_plane(site.len).max(1);
        OpenPlanes { layout: open_planes_layout(site.len, count), site, planes }
    }
}

impl Machine for OpenPlanes {
    type Output = Vec<u64>;

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        if step == Step::Online(0) {
            out.planes(1 - self.site.role, &self.planes, self.site.len);
        }
    }

    fn absorb(&mut self, _: Step, inbox: &mut Inbox) {
        let count = self.planes.len() / BitTensor::words_per_plane(self.site.len).max(1);
        let received = inbox.planes(1 - self.site.role, self.site.len, count);
        self.planes.iter_mut().zip(received).for_each(|(x, y)| *x ^= y);
    }

    fn finish(mut self) -> Vec<u64> {
        let rest = self.site.len % 64;
        if rest > 0 {
            let width = BitTensor::words_per_plane(self.site.len);
            self.planes.chunks_exact_mut(width).for_each(|plane| plane[width - 1] &= (1 << rest) - 1);
        }
        self.planes
    }
}

/// The value to the client alone: P0 sends x0 + ρ, P1 sends x1 - ρ, with a fresh pad ρ from the common key, so that the client
/// learns x and of the shares nothing.
pub(super) struct Reveal<W> {
    layout: Layout,
    /// `None` at the client.
    site: Option<Site>,
    ring: Ring,
    len: usize,
    /// The share at a party, x at the client.
    value: Vec<W>,
}

pub(super) fn reveal_layout(len: usize, ring: Ring) -> Layout {
    let mut layout = Layout::default();
    layout.words(Step::Online(0), 0, CLIENT, len, ring);
    layout.words(Step::Online(0), 1, CLIENT, len, ring);
    layout
}

impl<W: Word> Reveal<W> {
    pub fn party(site: Site, value: Vec<W>) -> Self {
        let (ring, len) = (site.ring, site.len);
        Reveal { layout: reveal_layout(len, ring), site: Some(site), ring, len, value }
    }

    pub fn client(ring: Ring, len: usize) -> Self {
        Reveal { layout: reveal_layout(len, ring), site: None, ring, len, value: vec![W::ZERO; len] }
    }
}

impl<W: Word> Machine for Reveal<W> {
    type Output = Vec<W>;

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        let (Some(site), Step::Online(_)) = (&self.site, step) else { return };
        let pad: Vec<W> =
            share::draw(&site.generators, 1 - site.role, site.position, purpose::PAD, self.ring, self.len);
        let arithmetic = Arithmetic::new(self.ring);
        let padded =
            |(&x, &pad): (&W, &W)| if site.role == 0 { arithmetic.add(x, pad) } else { arithmetic.sub(x, pad) };
        let padded: Vec<W> = self.value.iter().zip(&pad).map(padded).collect();
        out.words(CLIENT, &padded, self.ring);
    }

    fn absorb(&mut self, _: Step, inbox: &mut Inbox) {
        let (ring, arithmetic) = (self.ring, Arithmetic::new(self.ring));
        let [x0, x1]: [Vec<W>; 2] = [0, 1].map(|party| inbox.words(party, self.len, ring));
        self.value = x0.iter().zip(&x1).map(|(&x, &y)| ring.reduce(arithmetic.add(x, y))).collect();
    }

    fn finish(self) -> Vec<W> {
        self.value
    }
}

/// An outside data owner's end of a session.
pub type TwoPartyClient<W> = Client<TwoParty<W>>;

impl<W: Word> ClientGates<W> for TwoParty<W> {
    fn peers(_: &Options) -> usize {
        PEERS
    }

    fn share(scheduler: &mut Scheduler, ring: Ring, tiles: impl ExactSizeIterator<Item = Vec<W>>) -> Result<()> {
        scheduler.run(tiles.map(|tile| ClientInput::client(ring, tile))).map(|_| ())
    }

    fn receive(
        scheduler: &mut Scheduler,
        ring: Ring,
        lens: impl ExactSizeIterator<Item = usize>,
    ) -> Result<Vec<Vec<W>>> {
        scheduler.run(lens.map(|len| Reveal::client(ring, len)))
    }
}

impl<W: Word> Extended for TwoParty<W> {
    fn input(&mut self, owner: usize, shape: &[usize], value: Option<&Tensor<W>>) -> Result<Arith<W>> {
        let owner = self.party.owner(owner, shape, value)?;
        let site = self.party.sites()?(0, shape.iter().product());
        Ok(Arith(Tensor::new(shape, input(&site, owner, value.map(Tensor::data)))))
    }

    fn open(&mut self, x: &Arith<W>, _: &Checked) -> Result<Tensor<W>> {
        let parts = self.party.tiles(x.len(), |site, range| Open::new(site, x.0.data()[range].to_vec()))?;
        Ok(Tensor::new(x.shape(), parts.concat()))
    }

    fn open_bits(&mut self, x: &Bool, _: &Checked) -> Result<BitTensor> {
        let tiles = self.party.tiles(x.len(), |site, range| {
            let words = range.start / 64..range.end.div_ceil(64);
            let planes = (0..x.planes()).flat_map(|plane| &x.0.plane(plane)[words.clone()]).copied().collect();
            OpenPlanes::new(site, planes)
        })?;
        let mut out = BitTensor::zeros(x.len(), x.planes());
        let mut start = 0;
        for tile in tiles {
            let width = tile.len() / x.planes().max(1);
            for plane in 0..x.planes() {
                out.plane_mut(plane)[start..start + width].copy_from_slice(&tile[plane * width..][..width]);
            }
            start += width;
        }
        Ok(out)
    }

    fn a2b(&mut self, x: &Arith<W>) -> Result<Bool> {
        match self.party.ring {
            Ring::Pow2(l) => self.planes(programs::a2b(l, &self.party.options), x.len(), (&[x.0.data()], &[])),
            Ring::Odd(_) => self.unsupported(format!("the bits of elements of {}; use a ring Z_2^l", self.party.ring)),
        }
    }
}
