//! The parties' side: sums of shares that public bits select, opened round by round.

use covey_kernels::Buffer;
use covey_kernels::bits::{and, and_xor_assign, not_assign, xor, xor_assign};
use covey_kernels::vectorised;
use covey_ring::Word;

use super::circuit::{Block, Digit, DigitCircuit, Field, Mask, Node, Opening, Propagate, Slot, Target};
use super::lanes::{LANES, load, store};
use super::{Output, Seat, bits_of, draw};
use crate::machine::{Inbox, Outbox};

/// State over one tile; planes one after the other in each field.
#[derive(Default)]
pub(super) struct Online {
    /// What the dealer sent.
    pub dealt: Buffer<u64>,
    c: Buffer<u64>,
    /// X of every wire, and the own share of its mask.
    public: Buffer<u64>,
    mask: Buffer<u64>,
    kept: Buffer<u64>,
    /// Draws and masked sums of the round under way.
    drawn: Buffer<u64>,
    sums: Buffer<u64>,
}

impl Online {
    pub fn set_public<W: Word>(&mut self, circuit: &DigitCircuit, seat: &Seat, c: &[&[W]]) {
        let width = seat.plane_words();
        self.c = bits_of(circuit, width, c);
        self.public = Buffer::stale(width * circuit.wires);
        self.mask = Buffer::stale(width * circuit.wires);
        self.kept = Buffer::stale(width * circuit.kept);
    }

    pub fn local(&mut self, circuit: &DigitCircuit, (seat, me): (&Seat, usize), index: usize, out: &mut Outbox) {
        let width = seat.plane_words();
        let level = &circuit.levels[index];
        self.drawn = draw(circuit, seat, me, index);
        self.sums = Buffer::stale(width * level.opened.len());
        let mut worker = Worker { width, me, opened: level.opened.len(), state: self };
        for block in &level.blocks {
            match block {
                Block::Digit(digit) => worker.digit(digit),
                Block::Field(field) => worker.field(field),
                Block::Node(node) => worker.node(node),
            }
        }
        seat.others().for_each(|to| out.planes(to, &self.sums, seat.len));
    }

    pub fn absorb(&mut self, circuit: &DigitCircuit, seat: &Seat, index: usize, inbox: &mut Inbox) {
        let width = seat.plane_words();
        let opened = &circuit.levels[index].opened;
        for from in seat.others() {
            xor_assign(&mut self.sums, &inbox.bit_planes(from, seat.len, opened.len()));
        }
        for (i, wire) in opened.iter().enumerate() {
            self.public[wire * width..][..width].copy_from_slice(&self.sums[i * width..][..width]);
            self.mask[wire * width..][..width].copy_from_slice(&self.drawn[i * width..][..width]);
        }
        if index + 1 == circuit.levels.len() {
            self.drawn = Buffer::new();
            self.sums = Buffer::new();
            self.dealt = Buffer::new();
        }
    }

    pub fn opened(&self) -> (&[u64], &[u64]) {
        (&self.c, &self.public)
    }

    pub fn outputs(&self, circuit: &DigitCircuit, seat: &Seat) -> Vec<Output> {
        let width = seat.plane_words();
        let output = |wire: &usize| Output {
            value: Buffer::copy_of(&self.public[wire * width..][..width]),
            mask: Buffer::copy_of(&self.mask[wire * width..][..width]),
        };
        circuit.outputs.iter().map(output).collect()
    }
}

struct Worker<'a> {
    width: usize,
    /// The party; the first adds what is public.
    me: usize,
    /// Planes of masks before the drawn shares.
    opened: usize,
    state: &'a mut Online,
}

impl Worker<'_> {
    fn share(&self, slot: Slot) -> &[u64] {
        if slot.to != self.me {
            &self.state.drawn[(self.opened + usize::from(slot.drawn[self.me])) * self.width..][..self.width]
        } else {
            &self.state.dealt[slot.sent * self.width..][..self.width]
        }
    }

    /// Masks and stores the sum for a wire.
    fn open(&mut self, opening: &Opening, sum: &[u64]) {
        let width = self.width;
        let mut out = std::mem::take(&mut self.state.sums);
        let own = &mut out[opening.index * width..][..width];
        let mask = &self.state.drawn[opening.index * width..][..width];
        xor(own, sum, mask);
        if let Mask::Shared(slot) = opening.mask {
            xor_assign(own, self.share(slot));
        }
        if let Some(sign) = opening.sign.filter(|_| self.me == 0) {
            xor_assign(own, &self.state.c[sign * width..][..width]);
        }
        self.state.sums = out;
    }

    fn store(&mut self, target: &Target, sum: &[u64]) {
        match target {
            Target::Kept(kept) => self.state.kept[kept * self.width..][..self.width].copy_from_slice(sum),
            Target::Opened(opening) => self.open(opening, sum),
        }
    }

    fn digit(&mut self, digit: &Digit) {
        let width = self.width;
        let (mut generate, mut propagate) = (Buffer::stale(width), Buffer::stale(width));
        let c = &self.state.c[digit.low * width..(digit.low + digit.bits) * width];
        let shares: Vec<&[u64]> = digit.slots.iter().map(|&slot| self.share(slot)).collect();
        look_up(c, &shares, self.me == 0, &mut generate, &mut propagate);
        match &digit.propagate {
            Some(Propagate::Public(wire)) => {
                let wire = wire * width..(wire + 1) * width;
                let mask = self.share(digit.slots[0]).to_vec();
                self.state.mask[wire.clone()].copy_from_slice(&mask);
                self.state.public[wire].copy_from_slice(&self.state.c[digit.low * width..][..width]);
            }
            Some(Propagate::Opened(opening)) => self.open(opening, &propagate),
            None => {}
        }
        self.store(&digit.generate, &generate);
    }

    fn field(&mut self, field: &Field) {
        let width = self.width;
        let mut answers = [(); 4].map(|()| Buffer::stale(width));
        let c = &self.state.c[field.low * width..(field.low + field.bits) * width];
        let shares: Vec<&[u64]> = field.slots.iter().map(|&slot| self.share(slot)).collect();
        compare_with_zero(c, &shares, self.me == 0, &mut answers);
        for ((kept, opening), answer) in field.answers.iter().zip(answers.chunks_exact(2)) {
            self.state.kept[kept * width..][..width].copy_from_slice(&answer[0]);
            self.open(opening, &answer[1]);
        }
    }

    fn node(&mut self, node: &Node) {
        let width = self.width;
        let mut products = Buffer::stale(width * node.publics.list.len());
        for (index, (parent, wire)) in node.publics.list.iter().enumerate() {
            let (before, product) = products.split_at_mut(index * width);
            let public = &self.state.public[wire * width..][..width];
            match parent {
                None => product[..width].copy_from_slice(public),
                Some(parent) => {
                    let parent = &before[parent * width..][..width];
                    and(&mut product[..width], parent, public);
                }
            }
        }
        let (mut sum, mut inner) = (Buffer::stale(width), Buffer::stale(width));
        for result in &node.sums {
            match result.kept {
                Some(kept) => sum.copy_from_slice(&self.state.kept[kept * width..][..width]),
                None => sum.fill(0),
            }
            if result.one && self.me == 0 {
                not_assign(&mut sum);
            }
            for wire in &result.linear {
                xor_assign(&mut sum, &self.state.mask[wire * width..][..width]);
            }
            for term in &result.terms {
                match term.share {
                    Some(share) => inner.copy_from_slice(self.share(node.shares[share].0)),
                    None => inner.fill(0),
                }
                for wire in &term.linear {
                    xor_assign(&mut inner, &self.state.mask[wire * width..][..width]);
                }
                if term.one && self.me == 0 {
                    not_assign(&mut inner);
                }
                let product = &products[term.public * width..][..width];
                and_xor_assign(&mut sum, product, &inner);
            }
            self.store(&result.target, &sum);
        }
    }
}

vectorised! {
    /// Shares of [digit of R > digit of C] and [digits equal], from the digit of C, lowest bit first, and shares of [digit of R =
    /// j] for all j but the last, which is 1 and the others' sum. The table is halved bit by bit: of two neighbours, the bit of C
    /// keeps one, and if it keeps the lower one then R in the upper one is greater.
    fn look_up(c: &[u64], shares: &[&[u64]], adds_one: bool, greater: &mut [u64], equal: &mut [u64]) {
        let entries = shares.len() + 1;
        let width = greater.len();
        // In each entry: [R greater than C], [R equal to C], [R among the entry's values].
        let mut table = vec![[[0u64; LANES]; 3]; entries];
        for start in (0..width).step_by(LANES) {
            let mut last = if adds_one { [u64::MAX; LANES] } else { [0; LANES] };
            for (entry, share) in table.iter_mut().zip(shares) {
                let value = load(share, start);
                (0..LANES).for_each(|lane| last[lane] ^= value[lane]);
                *entry = [[0; LANES], value, value];
            }
            table[entries - 1] = [[0; LANES], last, last];
            let mut half = entries;
            for bit in c.chunks_exact(width) {
                let b = load(bit, start);
                half /= 2;
                for j in 0..half {
                    let ([g0, e0, m0], [g1, e1, m1]) = (table[2 * j], table[2 * j + 1]);
                    let out = &mut table[j];
                    for lane in 0..LANES {
                        let g = g0[lane] ^ m1[lane];
                        out[0][lane] = g ^ (b[lane] & (g ^ g1[lane]));
                        out[1][lane] = e0[lane] ^ (b[lane] & (e0[lane] ^ e1[lane]));
                        out[2][lane] = m0[lane] ^ m1[lane];
                    }
                }
            }
            store(greater, start, &table[0][0]);
            store(equal, start, &table[0][1]);
        }
    }

    /// Shares of [v = 0] and of what v - 1 in the place of v changes of it, then of [v > 0] and of the same, v being the digit of C less
    /// that of R in two's complement. The table is turned bit by bit of C.
    fn compare_with_zero(c: &[u64], shares: &[&[u64]], adds_one: bool, answers: &mut [Buffer<u64>; 4]) {
        let entries = shares.len() + 1;
        let half = entries / 2;
        let width = answers[0].len();
        // In entry v: [C - R = v], for what has been read of C.
        let mut table = vec![[0u64; LANES]; entries];
        let mut turned = table.clone();
        for start in (0..width).step_by(LANES) {
            let mut last = if adds_one { [u64::MAX; LANES] } else { [0; LANES] };
            for (j, share) in shares.iter().enumerate() {
                let value = load(share, start);
                (0..LANES).for_each(|lane| last[lane] ^= value[lane]);
                table[(entries - j) % entries] = value;
            }
            table[1] = last;
            for (number, bit) in c.chunks_exact(width).enumerate() {
                let b = load(bit, start);
                for (v, turned) in turned.iter_mut().enumerate() {
                    let (stays, comes) = (&table[v], &table[(v + entries - (1 << number)) % entries]);
                    for lane in 0..LANES {
                        turned[lane] = stays[lane] ^ (b[lane] & (stays[lane] ^ comes[lane]));
                    }
                }
                std::mem::swap(&mut table, &mut turned);
            }
            let mut positive = [0; LANES];
            for entry in table.iter().take(half).skip(1) {
                (0..LANES).for_each(|lane| positive[lane] ^= entry[lane]);
            }
            let (mut zero, mut above) = (table[0], table[1]);
            for lane in 0..LANES {
                zero[lane] ^= table[1][lane];
                above[lane] ^= table[half][lane];
            }
            for (answer, value) in answers.iter_mut().zip([table[0], zero, positive, above]) {
                store(answer, start, &value);
            }
        }
    }
}
