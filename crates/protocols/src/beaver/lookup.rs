//! Public tables at a secret index: T[x] for each of some tables of 2^k entries.
//!
//! The parties open J = x + R mod 2^k, the dealer knows R. With e the planes [R = j], T[x] = Σ e[j]·T[J-j]. The dealer shares e in the
//! form that takes the fewest bits:
//!
//! - **Words.** Shares of e[j] as ring elements, j > 0; e[0] is 1 less their sum. Local sums are the result.
//! - **Signed bits**, two parties: q₀ ⊕ q₁ = e, as bits. With a_p = Σ q_p[j]·T[J-j], a₁ - a₀ = σ·T[x] for σ = q₁[R] - q₀[R], 1 or -1.
//!   Over the integers σ is |q₁| - |q₀| as well, so each party has a share of it. Z = σ·T[x] + ρ is opened, T[x] = σ·Z - σ·ρ, and with
//!   b = q₀[R] the dealer shares b·ρ modulo 2^(l-1): σ·ρ = ρ - 2·b·ρ.
//! - **Bits**, more parties: ⊕ q_p = e, so ⊕ of all a_p = ⊕ over j of q_p[j]·T[J-j] is T[x]. Z = T[x] ⊕ ρ is opened. Bit i of ρ is Σ ρ_p - 2u
//!   of the parties' bits, and the dealer shares u modulo 2^(l-1-i).
//!
//! Each party is sent its share of some planes and draws that of all others.

use std::ops::Range;
use std::sync::Arc;

use covey_kernels::bits::{and_xor_assign, expand_bits, to_planes, xor_assign};
use covey_kernels::{Buffer, constant_time, elementwise, vectorised};
use covey_ring::{Ring, Word};

use super::site::{Moves, Site, purpose, spread, table_of};
use crate::api::Options;
use crate::cost::Cost;
use crate::machine::{Inbox, Layout, Machine, Outbox, Step};
use crate::masked::digits::one_hot;
use crate::masked::subsets::{Bits, Reversed, counts, from_entries, subset_sums, subset_xors};
use crate::masked::{Table, select};

/// Of the planes of e.
pub(super) const PLANES: u32 = purpose::SECOND;

/// Tables of one gate: each of its draws has a number below 2^12.
pub(super) const MOST_TABLES: usize = 16;

/// The most bits of an index whose e is dealt as words: of more they would fill the memory.
const MOST_WORDS: u32 = 6;

/// How e is shared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Form {
    Words,
    SignedBits,
    Bits,
}

/// The shape of a gate, shared by its tiles.
#[derive(Clone)]
pub(super) struct LookupPlan {
    form: Form,
    ring: Ring,
    table: Table,
    index_bits: u32,
    tables: usize,
    /// Words: e[j] for j from 1 on. Signed bits: b·ρ of each table. Bits: u of each table's bits but the highest, the lowest first.
    deals: Vec<(Ring, usize)>,
}

impl LookupPlan {
    /// The form with the fewest bits for up to [`MOST_TABLES`] tables.
    pub fn new((index_bits, tables): (u32, usize), ring: Ring, options: &Options) -> Self {
        let table = table_of(options);
        let plan = |form| LookupPlan::of_form(form, (index_bits, tables), ring, table);
        let bits = plan(if table.parties == 2 { Form::SignedBits } else { Form::Bits });
        if index_bits > MOST_WORDS {
            return bits;
        }
        let words = plan(Form::Words);
        if words.bits() <= bits.bits() { words } else { bits }
    }

    pub fn of_form(form: Form, (index_bits, tables): (u32, usize), ring: Ring, table: Table) -> Self {
        let l = ring.bits();
        let rings: Vec<Ring> = match form {
            Form::Words => vec![ring; (1 << index_bits) - 1],
            Form::SignedBits => vec![Ring::Pow2(l - 1); tables],
            Form::Bits => (0..tables).flat_map(|_| (1..l).rev().map(Ring::Pow2)).collect(),
        };
        let mut plan = LookupPlan { form, ring, table, index_bits, tables, deals: Vec::new() };
        let mut sent: Vec<usize> = (0..table.parties).map(|party| plan.sent(party).len()).collect();
        plan.deals = spread(rings, &mut sent);
        plan
    }

    /// Bits an element on all links, without the opening of the index, which all forms have.
    fn bits(&self) -> usize {
        let n = self.table.parties;
        let opened = self.results() * n * (n - 1) * self.ring.bits() as usize;
        let dealt: usize = self.deals.iter().map(|(ring, _)| ring.bits() as usize).sum();
        self.planes() + dealt + opened
    }

    fn entries(&self) -> usize {
        1 << self.index_bits
    }

    /// Planes of e that are dealt.
    fn planes(&self) -> usize {
        if self.form == Form::Words { 0 } else { self.entries() }
    }

    /// Results that are opened under a mask.
    fn results(&self) -> usize {
        if self.form == Form::Words { 0 } else { self.tables }
    }

    /// The planes of which `party` is sent its share.
    fn sent(&self, party: usize) -> Range<usize> {
        party * self.planes() / self.table.parties..(party + 1) * self.planes() / self.table.parties
    }

    fn opened(&self) -> Ring {
        Ring::Pow2(self.index_bits)
    }

    /// Number of the draw of ρ of a table.
    pub fn mask(&self, table: usize) -> u32 {
        purpose::DEAL + (self.deals.len() + table) as u32
    }

    /// Numbers of the draws of deals.
    #[cfg(test)]
    pub fn dealt_draws(&self) -> impl Iterator<Item = u32> + use<> {
        purpose::DEAL..purpose::DEAL + self.deals.len() as u32
    }

    /// Bits of a word of draw number `draw`, if it is a deal's.
    #[cfg(test)]
    pub fn width(&self, draw: u32) -> Option<u32> {
        let index = draw.checked_sub(purpose::DEAL)?;
        self.deals.get(index as usize).map(|(ring, _)| ring.bits())
    }

    pub fn layout(&self, len: usize) -> Layout {
        let mut layout = Layout::default();
        layout.open_words(self.table, 0, len, self.opened());
        for (party, peer) in self.table.peers().enumerate() {
            layout.planes(Step::Offline, self.table.dealer, peer, len, self.sent(party).len());
        }
        layout.deal_words(self.table, &self.deals, len);
        (0..self.results()).for_each(|_| layout.open_words(self.table, 1, len, self.ring));
        layout
    }

    /// Bytes an element that a party holds from the deal on, and that the tile which is computed takes besides, at a party and at the
    /// dealer.
    pub fn memory(&self, word: usize) -> [u64; 2] {
        let (planes, words) = (self.planes().div_ceil(8), 4 + 2 * self.tables);
        let held = planes.div_ceil(self.table.parties) + word * (self.deals.len().div_ceil(self.table.parties) + words);
        [held, 3 * planes + word * (words + self.table.parties)].map(|bytes| bytes as u64)
    }
}

/// How many of so many tables are in each gate.
pub(super) fn gates(tables: usize) -> impl Iterator<Item = usize> {
    (0..tables).step_by(MOST_TABLES).map(move |start| MOST_TABLES.min(tables - start))
}

/// What a lookup costs.
pub(super) fn cost(count: usize, (index_bits, tables): (u32, usize), ring: Ring, options: &Options) -> Cost {
    let mut cost = Cost::default();
    for tables in gates(tables) {
        let plan = LookupPlan::new((index_bits, tables), ring, options);
        cost += &Cost::of_gate(count, options, |len| plan.layout(len));
    }
    cost
}

/// The lookups of one tile.
pub(super) struct Lookup<W> {
    layout: Layout,
    plan: LookupPlan,
    tables: Arc<Vec<Reversed<W>>>,
    site: Site,
    /// A party's share of x, then J; at the dealer R.
    index: Buffer<W>,
    /// What the dealer sent a party of its planes and of its deals.
    planes: Buffer<u64>,
    received: Vec<Buffer<W>>,
    /// A party's share of σ.
    sign: Buffer<W>,
    /// A party's share of each table's answer, then Z, then of the result.
    values: Vec<Buffer<W>>,
}

impl<W: Word> Lookup<W> {
    pub fn new(site: Site, plan: LookupPlan, tables: Arc<Vec<Reversed<W>>>, index: Buffer<W>) -> Self {
        Lookup {
            layout: plan.layout(site.len()),
            plan,
            tables,
            site,
            index,
            planes: Buffer::new(),
            received: Vec::new(),
            sign: Buffer::new(),
            values: Vec::new(),
        }
    }

    // The dealer

    fn deal(&mut self, out: &mut Outbox) {
        elementwise::add_assign(&mut self.index, &self.site.draw(purpose::OPENING));
        if self.plan.form == Form::Words {
            let mut entry = Buffer::stale(self.site.len());
            for (j, &deal) in (1..).zip(&self.plan.deals) {
                is_entry(&mut entry, &self.index, W::from_u64(j), W::from_u64(self.plan.entries() as u64 - 1));
                self.deal_word(deal, j as usize - 1, &entry, out);
            }
            return;
        }
        let b = self.deal_planes(out);
        for table in 0..self.plan.tables {
            match self.plan.form {
                Form::SignedBits => self.deal_sign(table, &b, out),
                _ => self.deal_carries(table, out),
            }
        }
    }

    fn deal_word(&self, deal: (Ring, usize), index: usize, value: &[W], out: &mut Outbox) {
        let purpose = purpose::DEAL + index as u32;
        self.site.deal(deal, purpose, |share| elementwise::sub_from_assign(share, value), out);
    }

    /// Shares of e. Returns b of signed bits.
    fn deal_planes(&self, out: &mut Outbox) -> Buffer<u64> {
        let (site, plan) = (&self.site, &self.plan);
        let (width, k) = (site.seat.plane_words(), plan.index_bits as usize);
        let mut r = Buffer::stale(width * k);
        to_planes(&self.index, k, &mut r);
        let mut entries = Buffer::stale(width * plan.entries());
        one_hot(&mut entries, &r, k, width);
        let mut shares = entries.clone();
        for party in 0..plan.table.parties {
            let drawn = site.seat.draw_planes(party, PLANES, plan.entries());
            let own = plan.sent(party);
            for others in [0..own.start * width, own.end * width..drawn.len()] {
                xor_assign(&mut shares[others.clone()], &drawn[others]);
            }
        }
        for (party, peer) in plan.table.peers().enumerate() {
            let range = plan.sent(party);
            out.planes(peer, &shares[range.start * width..range.end * width], site.len());
        }
        if plan.form == Form::Bits {
            return Buffer::new();
        }
        // What was sent at R: to P0, whose bit it is, where R is in the lower half, else to P1.
        let mut b = Buffer::copy_of(&r[(k - 1) * width..]);
        for (entry, share) in entries.chunks_exact(width.max(1)).zip(shares.chunks_exact(width.max(1))) {
            and_xor_assign(&mut b, entry, share);
        }
        b
    }

    fn deal_sign(&self, table: usize, b: &[u64], out: &mut Outbox) {
        let mut bit = Buffer::<W>::stale(self.site.len());
        expand_bits(b, &mut bit);
        let mut product = Buffer::stale(self.site.len());
        elementwise::mul(&mut product, &bit, &self.site.draw(self.plan.mask(table)));
        self.deal_word(self.plan.deals[table], table, &product, out);
    }

    fn deal_carries(&self, table: usize, out: &mut Outbox) {
        let (site, plan) = (&self.site, &self.plan);
        let masks: Vec<Buffer<W>> =
            (0..plan.table.parties).map(|party| site.seat.draw(party, plan.mask(table))).collect();
        let mut carry = Buffer::stale(site.len());
        let bits = plan.ring.bits() - 1;
        for bit in 0..bits {
            carry.fill(W::ZERO);
            masks.iter().for_each(|mask| add_bit(&mut carry, mask, bit));
            elementwise::shr_assign(&mut carry, 1);
            let index = table * bits as usize + bit as usize;
            self.deal_word(plan.deals[index], index, &carry, out);
        }
    }

    // A party

    /// Its share of deal `index`, to be asked for in their order.
    fn dealt(&mut self, index: usize) -> Buffer<W> {
        match self.site.is_dealt(self.plan.deals[index].1) {
            true => self.received.pop().unwrap_or_default(),
            false => self.site.draw(purpose::DEAL + index as u32),
        }
    }

    /// J is complete.
    fn answer(&mut self, party: usize) {
        match self.plan.form {
            Form::Words => self.add_words(),
            _ => self.add_chosen(party),
        }
    }

    fn add_words(&mut self) {
        let (len, first) = (self.site.len(), self.site.first::<W>());
        let mut base: Vec<Buffer<W>> = Vec::with_capacity(self.tables.len());
        for table in self.tables.iter() {
            let mut entry = Buffer::stale(len);
            table.at(&mut entry, &self.index, 0);
            let mut value = Buffer::stale(len);
            value.iter_mut().zip(&entry).for_each(|(value, &entry)| *value = first.mul(entry));
            self.values.push(value);
            base.push(entry);
        }
        let mut entry = Buffer::stale(len);
        for j in 1..self.plan.entries() {
            let share = self.dealt(j - 1);
            for ((table, base), value) in self.tables.iter().zip(&base).zip(&mut self.values) {
                table.at(&mut entry, &self.index, j);
                add_product(value, &share, &entry, base);
            }
        }
    }

    fn add_chosen(&mut self, party: usize) {
        let (site, plan) = (&self.site, &self.plan);
        let (len, entries, width) = (site.len(), plan.entries(), site.seat.plane_words());
        let mut planes = site.draw_planes(PLANES, entries);
        let sent = plan.sent(party);
        planes[sent.start * width..sent.end * width].copy_from_slice(&self.planes);
        self.planes = Buffer::new();
        let words = from_entries(&planes, entries, len);
        let bits = Bits::by_group(&words, len);
        drop(planes);
        for table in self.tables.iter() {
            let mut value = Buffer::stale(len);
            match plan.form {
                Form::Bits => subset_xors(&mut value, bits, &self.index, table),
                _ => subset_sums(&mut value, bits, &self.index, table),
            }
            self.values.push(value);
        }
        if plan.form == Form::SignedBits {
            self.sign = Buffer::stale(len);
            counts(&mut self.sign, &words);
            if site.is_first() {
                self.values.iter_mut().chain([&mut self.sign]).for_each(|value| elementwise::neg_assign(value));
            }
        }
    }

    fn send_results(&mut self, out: &mut Outbox) {
        let (site, plan) = (&self.site, &self.plan);
        for (table, value) in self.values.iter_mut().enumerate() {
            let mask = site.draw(plan.mask(table));
            match plan.form {
                Form::Bits => join(value, &mask),
                _ => elementwise::add_assign(value, &mask),
            }
            site.send(value, plan.ring, out);
        }
    }

    fn receive_results(&mut self, inbox: &mut Inbox) {
        for value in &mut self.values {
            for from in self.site.seat.others() {
                let part = inbox.elements(from, self.site.len(), self.plan.ring);
                match self.plan.form {
                    Form::Bits => join(value, &part),
                    _ => elementwise::add_assign(value, &part),
                }
            }
        }
    }

    /// Every Z is open.
    fn share(&mut self) {
        let first = self.site.first::<W>();
        for table in 0..self.plan.tables {
            let z = std::mem::take(&mut self.values[table]);
            let mask = self.site.draw(self.plan.mask(table));
            let mut share = Buffer::stale(self.site.len());
            if self.plan.form == Form::SignedBits {
                let product = self.dealt(table);
                signed(&mut share, &z, &self.sign, &mask, &product);
            } else {
                unmasked(&mut share, &z, &mask, first);
                let bits = self.plan.ring.bits() - 1;
                for bit in 0..bits {
                    let carry = self.dealt(table * bits as usize + bit as usize);
                    take_carry(&mut share, &z, &carry, bit);
                }
            }
            self.values[table] = share;
        }
    }
}

vectorised! {
    /// 1 where the low bits of R are j
    fn is_entry<W: Word>(out: &mut [W], r: &[W], j: W, low: W) {
        for (out, &r) in out.iter_mut().zip(r) {
            let differs = (r ^ j) & low;
            // The highest bit is 1 only where 0 is decremented.
            *out = (differs.sub(W::ONE) & !differs).shr(W::BITS - 1);
        }
    }

    /// Adds bit `bit` of each mask.
    fn add_bit<W: Word>(out: &mut [W], mask: &[W], bit: u32) {
        out.iter_mut().zip(mask).for_each(|(out, &mask)| *out = out.add(mask.shr(bit) & W::ONE));
    }

    /// `out = out + share·(entry - base)`
    fn add_product<W: Word>(out: &mut [W], share: &[W], entry: &[W], base: &[W]) {
        for ((out, &share), (&entry, &base)) in out.iter_mut().zip(share).zip(entry.iter().zip(base)) {
            *out = out.add(share.mul(entry.sub(base)));
        }
    }

    /// `out = out ⊕ a`
    fn join<W: Word>(out: &mut [W], a: &[W]) {
        out.iter_mut().zip(a).for_each(|(out, &a)| *out = *out ^ a);
    }

    /// σ·Z - (ρ - 2·b·ρ)
    fn signed<W: Word>(out: &mut [W], z: &[W], sign: &[W], mask: &[W], product: &[W]) {
        for ((out, (&z, &sign)), (&mask, &product)) in out.iter_mut().zip(z.iter().zip(sign)).zip(mask.iter().zip(product)) {
            *out = sign.mul(z).sub(mask).add(product.shl(1));
        }
    }

    /// `first·Z + ρ - 2·(Z ∧ ρ)`: Z ⊕ ρ of one party's ρ, Z itself counted once
    fn unmasked<W: Word>(out: &mut [W], z: &[W], mask: &[W], first: W) {
        for ((out, &z), &mask) in out.iter_mut().zip(z).zip(mask) {
            *out = first.mul(z).add(mask).sub((z & mask).shl(1));
        }
    }

    /// Less 2^(bit+1)·(1-2z)·u, z bit `bit` of Z
    fn take_carry<W: Word>(out: &mut [W], z: &[W], carry: &[W], bit: u32) {
        for ((out, &z), &carry) in out.iter_mut().zip(z).zip(carry) {
            let negative = (z.shr(bit) & W::ONE).neg();
            *out = out.sub((carry ^ negative).sub(negative).shl(bit + 1));
        }
    }
}

impl<W: Word> Machine for Lookup<W> {
    /// Of each table.
    type Output = Vec<Buffer<W>>;

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        match (self.site.seat.party, step) {
            (None, Step::Offline) => self.deal(out),
            (Some(_), Step::Online(0)) => {
                self.site.open_send(&mut self.index, purpose::OPENING, self.plan.opened(), out);
            }
            (Some(_), Step::Online(_)) => self.send_results(out),
            _ => {}
        }
    }

    fn absorb(&mut self, step: Step, inbox: &mut Inbox) {
        let Some(party) = self.site.seat.party else { return };
        match step {
            Step::Offline => {
                let sent = self.plan.sent(party);
                self.planes = inbox.bit_planes(self.plan.table.dealer, self.site.len(), sent.len());
                self.received = self.site.receive_dealt(&self.plan.deals, inbox);
                // The first is taken first.
                self.received.reverse();
            }
            Step::Online(0) => {
                self.site.open_receive(&mut self.index, self.plan.opened(), inbox);
                // Above its low bits is what the own share has there.
                select::reduce(&mut self.index, W::from_u64(self.plan.entries() as u64 - 1));
                constant_time::public(&self.index);
                self.answer(party);
            }
            Step::Online(_) => {
                self.receive_results(inbox);
                self.share();
            }
        }
    }

    fn finish(mut self) -> Vec<Buffer<W>> {
        self.values.resize_with(self.plan.tables, Buffer::new);
        self.values.into_iter().map(|value| self.site.output(value)).collect()
    }
}
