//! Values in and out: a party's input, the client's input, opening to all parties, revealing to the client. The dealer takes no
//! part.

use covey_kernels::bits::xor_assign;
use covey_kernels::{Buffer, elementwise};
use covey_ring::{BitTensor, Ring, Tensor, Word};
use zeroize::Zeroize;

use super::site::{Moves, Site, purpose, table, table_of};
use super::{Arith, Beaver, Bool, place_planes};
use crate::api::{Checked, Extended, Options, ProtocolError, Result, Shaped};
use crate::machine::{Inbox, Layout, Machine, Outbox, Step};
use crate::masked::Table;
use crate::masked::seed::{SEED_BYTES, expand};
use crate::scheduler::Scheduler;
use crate::served::{Client, ClientGates};

/// The client's number on the parties' endpoints: after the dealer.
fn client_of(table: Table) -> usize {
    table.dealer + 1
}

/// A value of party `owner`: the others' shares come from the keys they have with it, its own is what is left.
pub(super) fn input<W: Word>(site: &Site, owner: usize, value: Option<&[W]>) -> Buffer<W> {
    let draw = |peer: usize| {
        let mut out = Buffer::<W>::stale(site.len());
        site.seat.generators.words_into(peer, site.seat.position, purpose::OPENING, &mut out);
        out
    };
    match (site.seat.party, value) {
        (Some(me), Some(value)) if me == owner => {
            let mut own = Buffer::copy_of(value);
            site.seat.others().for_each(|peer| elementwise::sub_assign(&mut own, &draw(peer)));
            own
        }
        (Some(_), _) => draw(owner),
        (None, _) => Buffer::zeros(site.len()),
    }
}

/// A value of the client: all parties but the last hand it the seeds of their shares, it sends the last one what is left. The
/// seeds come from keys with the dealer, so they depend on no input.
pub(super) struct ClientInput<W> {
    layout: Layout,
    table: Table,
    /// None at the client.
    site: Option<Site>,
    ring: Ring,
    /// The client's value; then a party's share.
    value: Buffer<W>,
}

pub(super) fn client_input_layout(table: Table, len: usize, ring: Ring) -> Layout {
    let (mut layout, client) = (Layout::default(), client_of(table));
    let last = table.parties - 1;
    (0..last).for_each(|party| layout.bytes(Step::Online(0), party, client, SEED_BYTES));
    layout.words(Step::Online(1), client, last, len, ring);
    layout
}

impl<W: Word> ClientInput<W> {
    pub fn party(site: Site) -> Self {
        let (table, ring, len) = (site.seat.table, site.ring, site.len());
        let layout = client_input_layout(table, len, ring);
        ClientInput { layout, table, site: Some(site), ring, value: Buffer::zeros(len) }
    }

    pub fn client(table: Table, ring: Ring, value: Vec<W>) -> Self {
        let layout = client_input_layout(table, value.len(), ring);
        ClientInput { layout, table, site: None, ring, value: Buffer::copy_of(&value) }
    }

    fn is_last(&self, party: usize) -> bool {
        party + 1 == self.table.parties
    }
}

impl<W: Word> Machine for ClientInput<W> {
    type Output = Buffer<W>;

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        match (&self.site, step) {
            (Some(site), Step::Online(0)) => {
                let Some(me) = site.seat.party.filter(|&me| !self.is_last(me)) else { return };
                let mut seed =
                    site.seat.generators.seed(self.table.dealer, site.seat.position, purpose::SEED + me as u32);
                out.bytes(client_of(self.table), &seed);
                self.value = Buffer::copy_of(&expand(&seed, 0, site.len()));
                seed.zeroize();
            }
            (None, Step::Online(1)) => out.words(self.table.parties - 1, &self.value, self.ring),
            _ => {}
        }
    }

    fn absorb(&mut self, step: Step, inbox: &mut Inbox) {
        if step == Step::Online(0) {
            for party in 0..self.table.parties - 1 {
                let seed: [u8; SEED_BYTES] = inbox.bytes(party, SEED_BYTES).try_into().expect("sized");
                let mask = expand(&seed, 0, self.value.len());
                elementwise::sub_assign(&mut self.value, &mask);
            }
        } else {
            self.value = inbox.elements(client_of(self.table), self.value.len(), self.ring);
        }
    }

    fn finish(self) -> Buffer<W> {
        self.value
    }
}

/// Adds a share of 0 to the words of a share: what a party draws from its key with another, that one takes off.
fn randomise<W: Word>(site: &Site, share: &mut [W]) {
    for peer in site.seat.others() {
        let generators = &site.seat.generators;
        match site.seat.party < Some(peer) {
            true => generators.add_words(peer, site.seat.position, purpose::ZERO, share),
            false => generators.sub_words(peer, site.seat.position, purpose::ZERO, share),
        }
    }
}

/// The value to all parties, from shares that are made afresh.
pub(super) struct Open<W> {
    layout: Layout,
    site: Site,
    value: Buffer<W>,
}

impl<W: Word> Open<W> {
    pub fn new(site: Site, value: Buffer<W>) -> Self {
        Open { layout: super::open::layout(site.seat.table, site.len(), site.ring), site, value }
    }
}

impl<W: Word> Machine for Open<W> {
    type Output = Vec<W>;

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        if let (Some(_), Step::Online(_)) = (self.site.seat.party, step) {
            randomise(&self.site, &mut self.value);
            self.site.send(&self.value, self.site.ring, out);
        }
    }

    fn absorb(&mut self, _: Step, inbox: &mut Inbox) {
        self.site.open_receive(&mut self.value, self.site.ring, inbox);
        self.value.iter_mut().for_each(|value| *value = self.site.ring.reduce(*value));
    }

    fn finish(self) -> Vec<W> {
        self.value.to_vec()
    }
}

/// Bit planes to all parties, likewise.
pub(super) struct OpenPlanes {
    layout: Layout,
    site: Site,
    planes: usize,
    value: Buffer<u64>,
}

pub(super) fn open_planes_layout(table: Table, len: usize, planes: usize) -> Layout {
    let mut layout = Layout::default();
    layout.open_planes(table, 0, len, planes);
    layout
}

impl OpenPlanes {
    pub fn new(site: Site, planes: usize, value: Buffer<u64>) -> Self {
        OpenPlanes { layout: open_planes_layout(site.seat.table, site.len(), planes), site, planes, value }
    }
}

impl Machine for OpenPlanes {
    type Output = Vec<u64>;

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        let seat = &self.site.seat;
        if let (Some(_), Step::Online(_)) = (seat.party, step) {
            for peer in seat.others() {
                let mut zero = Buffer::stale(self.value.len());
                seat.generators.planes_into(peer, seat.position, purpose::ZERO, seat.len, &mut zero);
                xor_assign(&mut self.value, &zero);
            }
            seat.others().for_each(|to| out.planes(to, &self.value, seat.len));
        }
    }

    fn absorb(&mut self, _: Step, inbox: &mut Inbox) {
        self.site.open_planes_receive(&mut self.value, self.planes, inbox);
    }

    fn finish(mut self) -> Vec<u64> {
        let width = BitTensor::words_per_plane(self.site.len());
        if let rest @ 1.. = self.site.len() % 64 {
            self.value.chunks_exact_mut(width).for_each(|plane| plane[width - 1] &= (1 << rest) - 1);
        }
        self.value.to_vec()
    }
}

/// The value to the client alone, from shares that are made afresh.
pub(super) struct Reveal<W> {
    layout: Layout,
    table: Table,
    /// None at the client.
    site: Option<Site>,
    ring: Ring,
    value: Buffer<W>,
}

pub(super) fn reveal_layout(table: Table, len: usize, ring: Ring) -> Layout {
    let mut layout = Layout::default();
    table.peers().for_each(|party| layout.words(Step::Online(0), party, client_of(table), len, ring));
    layout
}

impl<W: Word> Reveal<W> {
    pub fn party(site: Site, value: Buffer<W>) -> Self {
        let (table, ring) = (site.seat.table, site.ring);
        Reveal { layout: reveal_layout(table, site.len(), ring), table, site: Some(site), ring, value }
    }

    pub fn client(table: Table, ring: Ring, len: usize) -> Self {
        Reveal { layout: reveal_layout(table, len, ring), table, site: None, ring, value: Buffer::zeros(len) }
    }
}

impl<W: Word> Machine for Reveal<W> {
    type Output = Vec<W>;

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        let Some(site) = self.site.as_ref().filter(|site| site.seat.party.is_some()) else { return };
        if let Step::Online(_) = step {
            randomise(site, &mut self.value);
            out.words(client_of(self.table), &self.value, self.ring);
        }
    }

    fn absorb(&mut self, _: Step, inbox: &mut Inbox) {
        for party in self.table.peers() {
            let share = inbox.elements(party, self.value.len(), self.ring);
            elementwise::add_assign(&mut self.value, &share);
        }
        self.value.iter_mut().for_each(|value| *value = self.ring.reduce(*value));
    }

    fn finish(self) -> Vec<W> {
        self.value.to_vec()
    }
}

/// An outside data owner's end of a session.
pub type BeaverClient<W> = Client<Beaver<W>>;

impl<W: Word> ClientGates<W> for Beaver<W> {
    fn peers(options: &Options) -> usize {
        client_of(table_of(options)) + 1
    }

    fn share(scheduler: &mut Scheduler, ring: Ring, tiles: impl ExactSizeIterator<Item = Vec<W>>) -> Result<()> {
        let table = of_client(scheduler);
        scheduler.run(tiles.map(|tile| ClientInput::client(table, ring, tile))).map(|_| ())
    }

    fn receive(
        scheduler: &mut Scheduler,
        ring: Ring,
        lens: impl ExactSizeIterator<Item = usize>,
    ) -> Result<Vec<Vec<W>>> {
        let table = of_client(scheduler);
        scheduler.run(lens.map(|len| Reveal::client(table, ring, len)))
    }
}

/// The table of the session whose client this is.
fn of_client(scheduler: &Scheduler) -> Table {
    table(scheduler.me() - 1)
}

impl<W: Word> Extended for Beaver<W> {
    fn input(&mut self, owner: usize, shape: &[usize], value: Option<&Tensor<W>>) -> Result<Arith<W>> {
        let owner = self.party.owner(owner, shape, value)?.party;
        let owner = owner.ok_or(ProtocolError::Internal("an input of the dealer"))?;
        let site = self.party.sites()?(0, shape.iter().product()).into();
        let share = input(&site, owner, value.map(Tensor::data));
        Ok(Arith::new(Tensor::new(shape, share.to_vec())))
    }

    fn open(&mut self, x: &Arith<W>, _: &Checked) -> Result<Tensor<W>> {
        let mut out = Tensor::zeros(x.shape());
        self.each_tile(
            x.len(),
            |site, range| Open::new(site, x.tile(range)),
            |range, words| out.data_mut()[range].copy_from_slice(&words),
        )?;
        Ok(out)
    }

    fn open_bits(&mut self, x: &Bool, _: &Checked) -> Result<BitTensor> {
        let (planes, mut out) = (x.planes(), BitTensor::zeros(x.len(), x.planes()));
        self.each_tile(
            x.len(),
            |site, range| OpenPlanes::new(site, planes, x.tile(range)),
            |range, bits| place_planes(&mut out, range, &bits),
        )?;
        Ok(out)
    }

    fn a2b(&mut self, x: &Arith<W>) -> Result<Bool> {
        self.bits_of(x)
    }
}
