//! Millionaires: the carries of x0 + x1, each party knowing one summand.
//!
//! The carry out of the low k bits is 1{v0 > v1} with v0 = x0 mod 2^k and v1 = 2^k - 1 - x1 mod 2^k. v0 and v1 are cut into
//! digits of m bits; one lookup a digit gives shares of gt = 1{v0 > v1} and eq = 1{v0 = v1} of the digit (CrypTFlow2, algorithm
//! 1), and a tree joins them: gt = gt_high ⊕ eq_high·gt_low, eq = eq_high·eq_low, both products with one OT in each
//! direction. Of a digit of one bit, gt = x0·x1 is one product and eq = x0 ⊕ x1 is shared already.
//!
//! The parties take turns in holding the tables, so that both directions carry about the same.
//!
//! Several numbers of one party compared with the same number of the other share the other's choices: a lookup a digit answers for
//! all of them ([`carries_together`]). That party then holds all tables; which party it is changes from tile to tile.

use std::ops::Range;

use covey_kernels::bits::to_planes;
use covey_ring::{BitTensor, Word};

use super::program::{Builder, Plane, Registers, Words};
use crate::circuits::CarryCircuit;

/// The widest digit: a table's pads come from one hash.
pub(super) const WIDEST: usize = 4;

/// Bits of a shared word.
pub(super) struct Bits {
    /// The party's own: x0 at P0, x1 at P1.
    pub raw: Vec<Plane>,
    /// What is compared: v0 at P0, v1 at P1.
    compared: Vec<Plane>,
}

impl Bits {
    /// The low `count` bits of both summands.
    pub fn of<W: Word>(builder: &mut Builder<W>, x: Words, count: usize) -> Self {
        Bits::by(builder, x, count, move |registers, planes| to_planes(registers.words(x), count, planes))
    }

    /// The low `count` bits of a number that each party makes of its summand.
    pub fn mapped<W: Word>(
        builder: &mut Builder<W>,
        x: Words,
        count: usize,
        map: impl Fn(usize, u64) -> u64 + Send + Sync + 'static,
    ) -> Self {
        Bits::by(builder, x, count, move |registers, planes| {
            let values: Vec<u64> = registers.words(x).iter().map(|x| map(registers.me, x.to_u64())).collect();
            to_planes(&values, count, planes);
        })
    }

    fn by<W: Word>(
        builder: &mut Builder<W>,
        x: Words,
        count: usize,
        write: impl Fn(&Registers<W>, &mut [u64]) + Send + Sync + 'static,
    ) -> Self {
        let planes = builder.local_planes((&[x], &[]), 2 * count, move |registers, to| {
            let mut planes = vec![0; count * BitTensor::words_per_plane(registers.len)];
            write(registers, &mut planes);
            registers.set_planes(&to[..count], &planes);
            if registers.me == 1 {
                planes.iter_mut().for_each(|word| *word = !*word);
            }
            registers.set_planes(&to[count..], &planes);
        });
        Bits { raw: planes[..count].to_vec(), compared: planes[count..].to_vec() }
    }
}

/// gt and eq of a range of bits.
#[derive(Clone, Copy)]
struct Shared {
    gt: Plane,
    eq: Option<Plane>,
}

/// Shares of the carries that `circuit` asks for, out of each of `lanes`; its leaves are the `digits`. `holder` has all tables,
/// or the parties in turn.
fn run<W: Word>(
    builder: &mut Builder<W>,
    lanes: &[Bits],
    digits: &[Range<usize>],
    circuit: &CarryCircuit,
    holder: Option<usize>,
) -> Vec<Vec<Plane>> {
    let mut has_eq = vec![false; circuit.ranges];
    for combine in circuit.levels.iter().flatten() {
        has_eq[combine.high] = true;
        has_eq[combine.low] |= combine.propagate;
    }
    let mut ranges: Vec<Vec<Option<Shared>>> = vec![vec![None; circuit.ranges]; lanes.len()];
    for (number, digit) in digits.iter().enumerate() {
        let shared = leaf(builder, lanes, digit.clone(), has_eq[number], holder.unwrap_or(number % 2));
        ranges.iter_mut().zip(shared).for_each(|(ranges, shared)| ranges[number] = Some(shared));
    }
    ranges.into_iter().map(|ranges| join(builder, ranges, circuit)).collect()
}

/// The tree over one number's digits.
fn join<W: Word>(builder: &mut Builder<W>, mut ranges: Vec<Option<Shared>>, circuit: &CarryCircuit) -> Vec<Plane> {
    for combine in circuit.levels.iter().flatten() {
        let (Some(high), Some(low)) = (ranges[combine.high], ranges[combine.low]) else { continue };
        let Some(eq_high) = high.eq else { continue };
        let others = match (combine.propagate, low.eq) {
            (true, Some(eq)) => vec![low.gt, eq],
            _ => vec![low.gt],
        };
        let products = and(builder, eq_high, &others);
        let gt = xor(builder, high.gt, products[0]);
        ranges[combine.out] = Some(Shared { gt, eq: products.get(1).copied() });
    }
    circuit.outputs.iter().filter_map(|&output| ranges[output].map(|range| range.gt)).collect()
}

/// gt and eq of one digit of each of `lanes`, whose `compared` are the same at the party that is not `sender`.
fn leaf<W: Word>(
    builder: &mut Builder<W>,
    lanes: &[Bits],
    digit: Range<usize>,
    eq: bool,
    sender: usize,
) -> Vec<Shared> {
    if digit.len() == 1 {
        let raw: Vec<Plane> = lanes.iter().map(|bits| bits.raw[digit.start]).collect();
        let products = builder.bits(sender, raw[0], &raw);
        return products.into_iter().zip(raw).map(|(gt, raw)| Shared { gt, eq: Some(raw) }).collect();
    }
    let own: Vec<Vec<Plane>> = lanes.iter().map(|bits| bits.compared[digit.clone()].to_vec()).collect();
    let (index, inputs, each) = (own[0].clone(), own.concat(), 1 + usize::from(eq));
    let width = each * lanes.len();
    let shares = builder.lookup(sender, &index, &inputs, width, move |registers, table| {
        for (lane, planes) in own.iter().enumerate() {
            let values: Vec<&[u64]> = planes.iter().map(|&plane| registers.plane(plane)).collect();
            let place = Columns { first: lane * each, width };
            match registers.me {
                0 => compare::<true>(&values, eq, place, table),
                _ => compare::<false>(&values, eq, place, table),
            }
        }
    });
    shares.chunks_exact(each).map(|share| Shared { gt: share[0], eq: share.get(1).copied() }).collect()
}

/// Where the bits of one comparison stand in an entry.
#[derive(Clone, Copy)]
struct Columns {
    first: usize,
    width: usize,
}

/// For every number i, the planes of v > i, or of i > v, and of v = i, if those are asked for.
fn compare<const OWN_IS_GREATER: bool>(values: &[&[u64]], eq: bool, place: Columns, table: &mut [u64]) {
    let words = values[0].len();
    let entries = 1usize << values.len();
    for word in 0..words {
        // One-hot: equal[i] is v = i.
        let mut equal = [!0u64; 1 << WIDEST];
        for (bit, plane) in values.iter().enumerate() {
            let plane = plane[word];
            for (number, equal) in equal[..entries].iter_mut().enumerate() {
                *equal &= if number >> bit & 1 == 1 { plane } else { !plane };
            }
        }
        let mut beyond = 0;
        for step in 0..entries {
            let number = if OWN_IS_GREATER { entries - 1 - step } else { step };
            let at = number * place.width + place.first;
            table[at * words + word] = beyond;
            if eq {
                table[(at + 1) * words + word] = equal[number];
            }
            beyond |= equal[number];
        }
    }
}

/// `bits` bits in digits of `radix`, the last of what is left.
fn digits(bits: Range<usize>, radix: usize) -> impl Iterator<Item = Range<usize>> {
    let end = bits.end;
    bits.step_by(radix).map(move |start| start..end.min(start + radix))
}

/// Shares of the carry out of the bits in `range` alone, and of that out of the low `tap` of them, if it is above 0.
pub(super) fn carry_out<W: Word>(
    builder: &mut Builder<W>,
    bits: &Bits,
    range: Range<usize>,
    tap: usize,
    shape: Shape,
) -> (Plane, Option<Plane>) {
    let middle = range.start + tap;
    let digits: Vec<_> =
        digits(range.start..middle, shape.radix).chain(digits(middle..range.end, shape.radix)).collect();
    let low = tap.div_ceil(shape.radix);
    let circuit = match shape.ripples {
        true => CarryCircuit::carry_out_rippled(digits.len(), low),
        false => CarryCircuit::carry_out_above(digits.len(), low),
    };
    let outputs = run(builder, std::slice::from_ref(bits), &digits, &circuit, None).concat();
    (outputs[outputs.len() - 1], (tap > 0).then(|| outputs[0]))
}

/// Shares of the carry out of the bits in `range` of each of `lanes`, which differ at `holder` only: the other party's choices
/// serve all of them.
pub(super) fn carries_together<W: Word>(
    builder: &mut Builder<W>,
    lanes: &[Bits],
    range: Range<usize>,
    shape: Shape,
    holder: usize,
) -> Vec<Plane> {
    let digits: Vec<_> = digits(range, shape.radix).collect();
    let circuit = match shape.ripples {
        true => CarryCircuit::carry_out_rippled(digits.len(), 0),
        false => CarryCircuit::carry_out_above(digits.len(), 0),
    };
    // One number shares nothing: the parties take turns.
    let holder = (lanes.len() > 1).then_some(holder);
    run(builder, lanes, &digits, &circuit, holder).into_iter().map(|outputs| outputs[outputs.len() - 1]).collect()
}

/// Shares of the carries out of bits `0..=i` for every i below `count`.
pub(super) fn carries<W: Word>(
    builder: &mut Builder<W>,
    bits: &Bits,
    count: usize,
    circuit: &CarryCircuit,
) -> Vec<Plane> {
    let digits: Vec<_> = digits(0..count, 1).collect();
    run(builder, std::slice::from_ref(bits), &digits, circuit, None).concat()
}

/// How a comparison is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Shape {
    /// Bits a digit.
    pub radix: usize,
    /// Digit after digit instead of a tree.
    pub ripples: bool,
}

/// Shares of x ⊕ y.
pub(super) fn xor<W: Word>(builder: &mut Builder<W>, x: Plane, y: Plane) -> Plane {
    builder.local_plane(&[x, y], move |registers, out| {
        covey_kernels::bits::xor(out, registers.plane(x), registers.plane(y));
    })
}

/// Shares of ¬x.
pub(super) fn not<W: Word>(builder: &mut Builder<W>, x: Plane) -> Plane {
    builder.local_plane(&[x], move |registers, out| {
        out.copy_from_slice(registers.plane(x));
        if registers.me == 0 {
            covey_kernels::bits::not_assign(out);
        }
    })
}

/// Shares of x·y for each y: x0·y1 and x1·y0 by an OT each, the rest known to one party.
pub(super) fn and<W: Word>(builder: &mut Builder<W>, x: Plane, others: &[Plane]) -> Vec<Plane> {
    let crossed = [0, 1].map(|sender| builder.bits(sender, x, others));
    others
        .iter()
        .enumerate()
        .map(|(number, &y)| {
            let (a, b) = (crossed[0][number], crossed[1][number]);
            builder.local_plane(&[x, y, a, b], move |registers, out| {
                covey_kernels::bits::xor(out, registers.plane(a), registers.plane(b));
                covey_kernels::bits::and_xor_assign(out, registers.plane(x), registers.plane(y));
            })
        })
        .collect()
}
