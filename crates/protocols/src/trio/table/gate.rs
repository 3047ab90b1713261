//! The table gate over one tile.

use covey_kernels::{Buffer, constant_time, elementwise};
use covey_ring::{Ring, Word};

use super::super::share::Role;
use super::super::site::{Site, purpose};
use super::plan::{
    Deal, Stage, TablePlan, above, line_width, opens_index, result_width, shifted_width, slope_above, slope_width, tail,
};
use super::terms;
use crate::api::{self, Window};
use crate::machine::{Inbox, Layout, Machine, Outbox, Step};
use crate::masked::digits::Digits;
use crate::masked::fused::{bits, mask};
use crate::masked::select as loops;
use crate::masked::subsets::Reversed;

/// Draws of the gate: of each stage's masks, then of the set, then of each deal.
pub(crate) mod draws {
    use super::purpose;

    pub const INDEX: u32 = purpose::TABLE;
    pub const SLOPE: u32 = purpose::TABLE + 1;
    pub const LINE: u32 = purpose::TABLE + 2;
    pub const SET: u32 = purpose::TABLE + 3;
    pub const DEAL: u32 = purpose::TABLE + 4;
}

/// A table as the gate reads it.
pub(crate) struct Entries<W> {
    /// The values, less the lowest line rounded down to a multiple of 2^shift.
    pub values: Reversed<W>,
    /// None where all are 0.
    pub slopes: Option<Reversed<W>>,
    /// -low.
    pub start: W,
    /// What was taken off the values, shifted.
    pub base: W,
    /// Above the domain, what makes of u and the first entry the line that the function follows there.
    pub tail: W,
}

impl<W: Word> Entries<W> {
    pub fn new(table: &api::Table) -> Self {
        // In words: a table's numbers may be wider than the ring, as its lines need not be values of the program.
        let ring = Ring::Pow2(W::BITS);
        let base = table.base();
        let lowest = base << table.shift;
        let values = Reversed::new(&table.words(ring, |i| i128::from(table.values[i]) - lowest));
        let slopes = || Reversed::new(&table.words(ring, |i| table.slopes[i].into()));
        let slopes = (!table.slopes.is_empty()).then(slopes);
        let last = table.end() - 1;
        let tail = ring.wrap(i128::from(table.low) + table.at(last) - last - table.at(table.low.into()));
        Entries { values, slopes, start: ring.wrap(-i128::from(table.low)), base: ring.wrap(base), tail }
    }
}

/// A piecewise linear function.
///
/// The values may lie outside the domain ([`crate::api::Window`]): then the first and the last entry are what holds below and above.
/// Where the function rises above it, the first entry is what is read there too, and u and a constant are added.
///
/// P0 deals, m being its part of the borrow b = y ⊕ m out of the low bits, k0 = 2^step·m - R mod 2^step, ρ and R_G the masks of
/// slope and line, ε = q[R'] and σ = 1 - 2ε: m for index and line, and with δ and η its parts of the bits `inside` and
/// `above`, δ, (1 - 2δ)·(R≫step + m), δ·m and η; m and the carry of both masks' low bits for k0 (`own_hidden`), and m·ρ; k0 and m
/// times the highest bit of ρ for
/// what an opened slope wraps; its part of the shift's borrow, exclusive or with ε, and K = -σ·(R_G≫shift); for a tail instead η,
/// K - η·R, K - (1 - η)·R, and of the highest bit t of R_G (1 - ε)·t and ε·(1 - t), whichever the highest bit of C_G asks for, as
/// what lifts the shifted line to more bits; and for the extension the carry
/// of the result's masks, and the same plus the highest of those bits of their sum. Of σ, P1 and P2 have shares by the sets' sizes.
pub(crate) struct Table<'a, W> {
    layout: Layout,
    plan: TablePlan,
    entries: &'a Entries<W>,
    site: Site,
    borrow: Option<Digits>,
    shift: Option<Digits>,
    /// R at P0; C at P1 and P2, later the place J, the line's C_G, and what lies above the result.
    value: Buffer<W>,
    /// The own mask of x, at P0 that of P2; nothing for a table without slopes.
    mask: Buffer<W>,
    /// P1, P2: C where values above the domain are added.
    operand: Buffer<W>,
    /// P1, P2: J, Z and the position's public part.
    place: Buffer<W>,
    slope: Buffer<W>,
    position: Buffer<W>,
    /// P1, P2: y.
    borrowed: Buffer<W>,
    /// P1, P2: the open parts of `inside` and `above`.
    inside: Buffer<W>,
    beyond: Buffer<W>,
    set: Buffer<u64>,
    /// P1, P2: the own share of σ.
    sign: Buffer<W>,
    dealt: Vec<Buffer<W>>,
    /// P1, P2: what is sent in the round under way.
    own: Buffer<W>,
    first: Buffer<W>,
    second: Buffer<W>,
}

impl<'a, W: Word> Table<'a, W> {
    /// Of the share of x: `value` is first + second, `second` the second.
    pub fn new(site: Site, plan: TablePlan, entries: &'a Entries<W>, mut value: Buffer<W>, second: &[W]) -> Self {
        let mask = if plan.shape.slope_bits.is_some() { Buffer::copy_of(second) } else { Buffer::new() };
        if site.role.is_online() {
            loops::offset(&mut value, entries.start);
        }
        let digits = |circuit: &Option<_>| circuit.clone().map(|circuit| Digits::new(site.seat(), circuit));
        Table {
            layout: plan.layout(site.len),
            borrow: digits(&plan.borrow),
            shift: digits(&plan.shift),
            dealt: plan.deals.iter().map(|_| Buffer::new()).collect(),
            plan,
            entries,
            site,
            value,
            mask,
            operand: Buffer::new(),
            place: Buffer::new(),
            slope: Buffer::new(),
            position: Buffer::new(),
            borrowed: Buffer::new(),
            inside: Buffer::new(),
            beyond: Buffer::new(),
            set: Buffer::new(),
            sign: Buffer::new(),
            own: Buffer::new(),
            first: Buffer::new(),
            second: Buffer::new(),
        }
    }

    fn field(&self, x: &[W], shift: u32, width: u32) -> Buffer<W> {
        let mut out = Buffer::stale(x.len());
        terms::field(&mut out, x, shift, mask(Ring::Pow2(width)));
        out
    }

    /// The sum of P1's and P2's draws, at P0.
    fn both(&self, purpose: u32) -> Buffer<W> {
        let mut sum = self.site.draw(1, purpose);
        elementwise::add_assign(&mut sum, &self.site.draw(2, purpose));
        sum
    }

    /// P0, all it ever does.
    fn deal(&mut self, out: &mut Outbox) {
        let (shape, len) = (self.plan.shape, self.site.len);
        let r = std::mem::take(&mut self.value);
        if let Some(borrow) = &mut self.borrow {
            borrow.deal(&r, out);
        }
        let [m, delta, eta] = self.wires();
        // R≫step + m, then R'.
        let mut hidden_place = self.field(&r, shape.step, shape.index_bits);
        let mut place = hidden_place.clone();
        if shape.window.is_some() {
            elementwise::add_assign(&mut hidden_place, &m);
            terms::times(&mut place, &hidden_place, &delta);
        }
        if opens_index(&shape) {
            elementwise::add_assign(&mut place, &self.both(draws::INDEX));
        }
        let mut set = self.site.draw_sets(3 - TablePlan::SET_TO, draws::SET, self.plan.sets);
        let epsilon: Buffer<W> = self.plan.sets.toggle(&mut set, &place);
        let (mut hidden, mut rho) = (Buffer::zeros(len), Buffer::zeros(len));
        if shape.slope_bits.is_some() {
            terms::hidden(&mut hidden, &r, &m, shape.step, mask(Ring::Pow2(shape.step)));
            rho = self.both(draws::SLOPE);
            loops::reduce(&mut rho, mask(Ring::Pow2(slope_width(&shape))));
        }
        let mut line = self.both(draws::LINE);
        terms::line_mask(&mut line, &hidden, &rho, mask(Ring::Pow2(line_width(&shape))));
        let mut alpha = Buffer::zeros(len);
        if let Some(shift) = &mut self.shift {
            let mut low = Buffer::stale(len);
            terms::below(&mut low, &line, &epsilon, mask(Ring::Pow2(shape.shift)));
            shift.deal(&low, out);
            alpha = bits::<W>(shift, 0, len);
            alpha.iter_mut().zip(epsilon.iter()).for_each(|(alpha, &epsilon)| *alpha = *alpha ^ epsilon);
        }
        (self.first, self.second) = self.site.masks(purpose::MASK);
        let top = self.field(&rho, slope_width(&shape).max(1) - 1, 1);
        let lifted = self.field(&line, line_width(&shape) - 1, 1);
        let result = result_width(&shape);
        let low = mask(Ring::Pow2(result));
        for (number, dealt) in self.plan.deals.iter().enumerate() {
            let mut value = Buffer::stale(len);
            match dealt.deal {
                Deal::Bit => value.copy_from_slice(&m),
                Deal::Inside => value.copy_from_slice(&delta),
                Deal::Place => terms::signed_by(&mut value, &hidden_place, &delta),
                Deal::InsideBorrow => terms::times(&mut value, &m, &delta),
                Deal::Above => value.copy_from_slice(&eta),
                Deal::Hidden => {
                    let low = mask(Ring::Pow2(shape.step));
                    terms::carried(&mut value, &r, &self.mask, &m, shape.step, low);
                }
                Deal::BitMask => terms::times(&mut value, &rho, &m),
                Deal::HiddenWrap => terms::times(&mut value, &hidden, &top),
                Deal::BitWrap => terms::times(&mut value, &m, &top),
                Deal::ShiftBorrow => value.copy_from_slice(&alpha),
                Deal::Constant | Deal::TailConstant => {
                    terms::constant(&mut value, &line, &epsilon, shape.shift);
                    if tail(&shape).is_some() {
                        let not = if dealt.deal == Deal::Constant { W::ZERO } else { W::ONE };
                        terms::subtract_times(&mut value, &r, &eta, not);
                    }
                }
                Deal::Tail => value.copy_from_slice(&eta),
                Deal::Lift => terms::less(&mut value, &lifted, &epsilon),
                Deal::NegativeLift => terms::less(&mut value, &epsilon, &lifted),
                // These subtract what they are given.
                Deal::Carry | Deal::CarryWrapped => {
                    let top = if dealt.deal == Deal::Carry { W::ZERO } else { W::ONE };
                    value.fill(W::ZERO);
                    loops::carry(&mut value, &self.first, &self.second, low, result, top);
                }
            }
            self.site.deal(dealt.to, draws::DEAL + number as u32, &value, dealt.ring, out);
        }
        out.words(TablePlan::SET_TO, &set, self.plan.sets.ring());
    }

    /// P1, P2: the own share of a deal.
    fn share(&self, deal: Deal) -> Buffer<W> {
        let Some(number) = self.plan.deals.iter().position(|dealt| dealt.deal == deal) else {
            return Buffer::zeros(self.site.len);
        };
        match self.plan.deals[number].to == self.site.role as usize {
            true => self.dealt[number].clone(),
            false => self.site.draw(0, draws::DEAL + number as u32),
        }
    }

    /// P1, P2: the own share of k0 = 2^step·(m + κ) - l1 mod 2^step - l2 mod 2^step, κ the carry of the masks' low bits.
    fn own_hidden(&self) -> Buffer<W> {
        let step = self.plan.shape.step;
        let mut hidden = self.share(Deal::Hidden);
        terms::own_hidden(&mut hidden, &self.mask, step, mask(Ring::Pow2(step)));
        hidden
    }

    /// P1 adds what is public.
    fn is_first(&self) -> bool {
        self.site.role == Role::P1
    }

    /// What this party sends of a word that is opened, in place.
    fn send(&mut self, stage: Stage, out: &mut Outbox) {
        let Some(ring) = self.plan.opened(stage) else { return };
        out.words(self.site.other(), &self.own, ring);
    }

    /// The results of the first circuit, or at P0 their masks: the borrow, `inside` and `above`; 0 where there is none.
    fn wires(&self) -> [Buffer<W>; 3] {
        let len = self.site.len;
        let shape = &self.plan.shape;
        let mut next = 0;
        let mut wire = |exists: bool| match &self.borrow {
            Some(borrow) if exists => {
                next += 1;
                bits::<W>(borrow, next - 1, len)
            }
            _ => Buffer::zeros(len),
        };
        let ends = shape.window.map_or(0, Window::ends);
        [wire(shape.step > 0), wire(ends > 0), wire(ends > 1)]
    }

    /// This party's part of J.
    fn index(&mut self) {
        let shape = self.plan.shape;
        let mask = self.site.draw(0, draws::INDEX);
        self.own = Buffer::stale(self.site.len);
        let first = if self.is_first() { !W::ZERO } else { W::ZERO };
        let Some(window) = shape.window else {
            let dealt = self.share(Deal::Bit);
            return terms::index(&mut self.own, &self.value, &self.borrowed, &dealt, &mask, shape.step, first);
        };
        let (inside, place) = (self.share(Deal::Inside), self.share(Deal::Place));
        // Outside the first entry is read, or where values lie above only, the last.
        let outside = if window.below { W::ZERO } else { !W::ZERO };
        let (own, c, y) = (&mut self.own, &self.value, &self.borrowed);
        terms::index_inside(own, c, y, &self.inside, &inside, &place, &mask, shape.step, outside, first);
        if shape.step > 0 {
            let within = self.share(Deal::InsideBorrow);
            let mut without = self.share(Deal::Bit);
            elementwise::sub_assign(&mut without, &within);
            terms::borrowed_inside(&mut self.own, &self.borrowed, &self.inside, &within, &without);
        }
        if window.ends() > 1 && window.tail.is_none() {
            // From the first entry to the last is one step back.
            let dealt = self.share(Deal::Above);
            loops::subtract_bit(&mut self.own, &self.beyond, &dealt, first & W::ONE);
        }
    }

    /// The sums of a table over this party's set, at the place: a2 at P2, -a1 at P1.
    fn sums(&self, table: &Reversed<W>) -> Buffer<W> {
        let mut sums = Buffer::stale(self.site.len);
        self.plan.sets.sums(&mut sums, &self.set, &self.place, table);
        if self.is_first() {
            elementwise::neg_assign(&mut sums);
        }
        sums
    }

    /// J is known: the set is read from here on.
    fn set_place(&mut self) {
        self.place = match opens_index(&self.plan.shape) {
            false => self.value.clone(),
            true => std::mem::take(&mut self.own),
        };
        // It decides where tables are read.
        constant_time::public(&self.place);
        if self.site.role as usize != TablePlan::SET_TO {
            self.set = self.site.draw_sets(0, draws::SET, self.plan.sets);
        }
        self.sign = self.plan.sets.sizes(&self.set, self.site.len);
        if self.is_first() {
            elementwise::neg_assign(&mut self.sign);
        }
    }

    /// -a1 + ρ1 and a2 + ρ2 of the slopes, with half of the wrap's room added.
    fn open_slope(&mut self) {
        self.set_place();
        let Some(slopes) = &self.entries.slopes else { return };
        self.own = self.sums(slopes);
        self.position = Buffer::stale(self.site.len);
        let step = self.plan.shape.step;
        terms::position(&mut self.position, &self.value, &self.borrowed, step, mask(Ring::Pow2(step)));
        // The part of the line that the slopes' sums make.
        self.slope = self.own.clone();
        elementwise::add_assign(&mut self.own, &self.site.draw(0, draws::SLOPE));
        if self.is_first() {
            let bias = self.bias();
            loops::offset(&mut self.own, bias);
        }
    }

    /// Added to the slope under its sign so that it is not negative, unless it is opened in all bits of the line.
    fn bias(&self) -> W {
        let shape = &self.plan.shape;
        if slope_above(shape) > 0 { W::ONE.shl(slope_width(shape) - 2) } else { W::ZERO }
    }

    /// This party's part of C_G.
    fn open_line(&mut self) {
        let shape = self.plan.shape;
        if shape.slope_bits.is_none() {
            self.set_place();
        }
        let mut line = self.sums(&self.entries.values);
        if shape.slope_bits.is_some() {
            // `own` is Z by now.
            let z = std::mem::take(&mut self.own);
            terms::along(&mut line, &self.slope, &self.position);
            let (hidden, bit, product) = (self.own_hidden(), self.share(Deal::Bit), self.share(Deal::BitMask));
            terms::hidden_part(&mut line, &z, &self.borrowed, &hidden, &bit, &product, self.bias(), shape.step);
            if slope_above(&shape) > 0 {
                let (hidden, bit) = (self.share(Deal::HiddenWrap), self.share(Deal::BitWrap));
                let width = slope_width(&shape);
                terms::wrapped_part(&mut line, &z, &self.borrowed, &hidden, &bit, width, shape.step);
            }
        }
        elementwise::add_assign(&mut line, &self.site.draw(0, draws::LINE));
        self.own = line;
        (self.set, self.slope, self.position) = (Buffer::new(), Buffer::new(), Buffer::new());
        self.mask = Buffer::new();
    }

    /// C_G is known.
    fn set_line(&mut self) {
        let shape = self.plan.shape;
        self.value = std::mem::take(&mut self.own);
        loops::reduce(&mut self.value, mask(Ring::Pow2(line_width(&shape))));
        if let Some(shift) = &mut self.shift {
            let mut low = Buffer::stale(self.site.len);
            terms::below(&mut low, &self.value, &Buffer::zeros(self.site.len), mask(Ring::Pow2(shape.shift)));
            shift.set_public(&low);
        }
    }

    /// This party's share of the shifted line, under its mask of the result.
    fn select(&mut self) {
        let shape = self.plan.shape;
        let mut constant = self.share(Deal::Constant);
        let tail = tail(&shape).map(|_| self.share(Deal::Tail));
        if tail.is_some() {
            terms::choose(&mut constant, &self.share(Deal::TailConstant), &self.beyond);
        }
        self.own = Buffer::stale(self.site.len);
        terms::select(&mut self.own, &self.value, &self.sign, &constant, shape.shift);
        if let Some(tail) = tail {
            let first = if self.is_first() { !W::ZERO } else { W::ZERO };
            loops::offset(&mut self.operand, self.entries.tail);
            terms::add_selected(&mut self.own, &self.operand, &self.beyond, &tail, first);
            let (lift, negative) = (self.share(Deal::Lift), self.share(Deal::NegativeLift));
            terms::lift(&mut self.own, &self.value, &lift, &negative, line_width(&shape) - 1, shifted_width(&shape));
        }
        if let Some(shift) = &self.shift {
            let borrow = bits::<W>(shift, 0, self.site.len);
            let first = if self.is_first() { W::ONE } else { W::ZERO };
            let dealt = self.share(Deal::ShiftBorrow);
            loops::subtract_bit(&mut self.own, &borrow, &dealt, first);
        }
        self.second = self.site.draw(0, purpose::MASK);
    }

    /// Y = y + z mod 2^width is known; this party's share of what lies above it in the result's public sum.
    fn extend(&mut self) {
        let (result, ring) = (result_width(&self.plan.shape), self.plan.ring);
        let (carry, wrapped) = (self.share(Deal::Carry), self.share(Deal::CarryWrapped));
        let mut above = Buffer::stale(self.site.len);
        let low = mask(Ring::Pow2(result));
        loops::extend(&mut above, &mut self.own, &carry, &wrapped, &self.second, mask(ring), low, result);
        self.value = above;
    }

    fn extends(&self) -> bool {
        above(&self.plan.shape, self.plan.ring) > 0
    }
}

impl<W: Word> Machine for Table<'_, W> {
    type Output = (Buffer<W>, Buffer<W>);

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        let round = match (self.site.role, step) {
            (Role::P0, Step::Offline) => return self.deal(out),
            (Role::P1 | Role::P2, Step::Online(round)) => round,
            _ => return,
        };
        if round == 0 {
            if tail(&self.plan.shape).is_some() {
                self.operand = self.value.clone();
            }
            self.borrowed = Buffer::zeros(self.site.len);
            if let Some(borrow) = &mut self.borrow {
                borrow.set_public(&self.value);
            }
        }
        let stage = self.plan.stages[round];
        match stage {
            Stage::Borrow(round) => self.borrow.iter_mut().for_each(|digits| digits.local(round, out)),
            Stage::Shift(round) => self.shift.iter_mut().for_each(|digits| digits.local(round, out)),
            Stage::Index => self.index(),
            Stage::Slope => self.open_slope(),
            Stage::Line => self.open_line(),
            Stage::Select => {
                self.select();
                let mut masked = self.own.clone();
                elementwise::add_assign(&mut masked, &self.second);
                out.words(self.site.other(), &masked, Ring::Pow2(result_width(&self.plan.shape)));
                if self.extends() {
                    self.own = masked;
                }
                return;
            }
            Stage::Extend => {
                self.extend();
                out.words(self.site.other(), &self.value, Ring::Pow2(above(&self.plan.shape, self.plan.ring)));
                return;
            }
        }
        self.send(stage, out);
    }

    fn absorb(&mut self, step: Step, inbox: &mut Inbox) {
        let (len, other) = (self.site.len, self.site.other());
        let Step::Online(round) = step else {
            let me = self.site.role as usize;
            [&mut self.borrow, &mut self.shift].into_iter().flatten().for_each(|digits| digits.absorb_deal(inbox));
            for (dealt, buffer) in self.plan.deals.iter().zip(&mut self.dealt) {
                if dealt.to == me {
                    *buffer = inbox.elements(0, len, dealt.ring);
                }
            }
            if me == TablePlan::SET_TO {
                self.set = inbox.elements(0, len * self.plan.sets.words(), self.plan.sets.ring());
            }
            return;
        };
        let stage = self.plan.stages[round];
        match stage {
            Stage::Borrow(round) => {
                self.borrow.iter_mut().for_each(|digits| digits.absorb(round, inbox));
                if self.plan.stages.get(round + 1) == Some(&Stage::Index) {
                    [self.borrowed, self.inside, self.beyond] = self.wires();
                }
            }
            Stage::Shift(round) => self.shift.iter_mut().for_each(|digits| digits.absorb(round, inbox)),
            Stage::Extend => {
                let ring = Ring::Pow2(above(&self.plan.shape, self.plan.ring));
                elementwise::add_assign(&mut self.value, &inbox.elements(other, len, ring));
                loops::join(&mut self.own, &self.value, &self.second, result_width(&self.plan.shape));
                loops::offset(&mut self.own, self.entries.base);
            }
            _ => {
                let Some(ring) = self.plan.opened(stage) else { return };
                elementwise::add_assign(&mut self.own, &inbox.elements(other, len, ring));
                match stage {
                    Stage::Slope => loops::reduce(&mut self.own, mask(Ring::Pow2(slope_width(&self.plan.shape)))),
                    Stage::Line => self.set_line(),
                    Stage::Select if !self.extends() => loops::offset(&mut self.own, self.entries.base),
                    _ => {}
                }
            }
        }
    }

    fn finish(mut self) -> Self::Output {
        if self.site.role.is_online() {
            self.first = self.own;
        }
        self.site.output(self.first, self.second)
    }
}
