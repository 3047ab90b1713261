//! Public tables at a secret index, over Z_2^l: two-server private retrieval, the two parties as its servers.
//!
//! For a table of 2^k entries the parties draw a random R of k bits that neither knows, and compute the vector that is 1 at R and 0
//! elsewhere as q0 ⊕ q1, one of the two each. J = x + R mod 2^k is opened. With a0 and a1 the sums of T[J - j] over the j in q0 and
//! in q1, a1 - a0 = σ·T[x] for a sign σ: 1 where R is in q1, -1 where it is in q0. The sums are local, so the entries are shared for
//! nothing but their sign.
//!
//! The sign is shared for nothing, too. The sizes of q0 and q1 differ by σ, so shares of σ modulo 4 are at hand, one of them odd and
//! one even: no carry enters the upper bit, which is the exclusive or of both parties' upper bits, 1 where σ = -1. What remains is one
//! product of each party's sum with the other's sign.
//!
//! Of R's bits the `top` highest may be left out of the vector. All that they may stand for is summed up then, and selected by them:
//! a vector half as long for two selections of words.

use std::hint::black_box;
use std::sync::Arc;

use covey_kernels::bits::{and_xor_assign, from_planes, xor, xor_assign};
use covey_kernels::vectorised;
use covey_ring::{Ring, Word};

use super::comparison::{self, not};
use super::gates::{converted, expanded, selected, signed};
use super::program::{Builder, GateProgram, Plane, Words};

/// The most bits of R that are worth leaving out, at any size of tables.
pub(super) const MOST_TOP: u32 = 4;

/// Tables at the same index, or their sizes alone.
pub(super) struct Tables<W> {
    /// k.
    pub index_bits: u32,
    count: usize,
    /// Entry i is that of -i mod 2^k, for i below 2^(k+1): those of J, J - 1, … lie one after the other, whatever J is.
    entries: Arc<[Vec<W>]>,
}

impl<W: Word> Tables<W> {
    /// Of these entries, 2^k a table.
    pub fn of(tables: &[Vec<W>]) -> Self {
        let turned = |table: &Vec<W>| {
            let turn = table.iter().take(1).chain(table.iter().skip(1).rev());
            turn.clone().chain(turn).copied().collect()
        };
        let index_bits = tables.first().map_or(0, |table| table.len().max(1).ilog2());
        Tables { index_bits, count: tables.len(), entries: tables.iter().map(turned).collect() }
    }

    /// To plan with.
    pub fn sized(index_bits: u32, count: usize) -> Self {
        Tables { index_bits, count, entries: Arc::new([]) }
    }
}

/// The entries at x, 0 <= x < 2^k, in Z_2^l, `top` bits of R left out of the vector.
pub(super) fn lookup<W: Word>(l: u32, tables: &Tables<W>, top: u32) -> Arc<GateProgram<W>> {
    let (k, ring) = (tables.index_bits, Ring::Pow2(l));
    let mut builder = Builder::<W>::new();
    let x = builder.input_words();
    let bits: Vec<Plane> = (0..k).map(|_| builder.random()).collect();
    let opened = opened(&mut builder, x, &bits);
    let (low, top) = bits.split_at((k - top) as usize);
    let vector = one_hot(&mut builder, low);
    let sign = sign(&mut builder, &vector);
    let sums = sums(&mut builder, &vector, opened, tables, 1 << top.len());
    let results: Vec<Words> = sums
        .chunks_exact(1 << top.len())
        .map(|sums| match top.split_last() {
            None => unsigned(&mut builder, sign, sums[0], l),
            Some((&last, top)) => {
                let halves = top.iter().fold(sums.to_vec(), |sums, &bit| halved(&mut builder, &sums, bit, ring));
                unsigned_of_two(&mut builder, sign, last, [halves[0], halves[1]], ring)
            }
        })
        .collect();
    builder.finish(&results, &[])
}

/// J = x + R mod 2^k. R is uniform to both parties and used for this alone, so J tells nothing.
fn opened<W: Word>(builder: &mut Builder<W>, x: Words, bits: &[Plane]) -> Words {
    let k = bits.len() as u32;
    let words: Vec<Words> = (0..k)
        .zip(bits)
        .map(|(bit, &plane)| converted(builder, plane, Ring::Pow2(k - bit), bit as usize % 2))
        .collect();
    let masked = builder.local_words((&[&[x], &words[..]].concat(), &[]), move |registers, out| {
        out.copy_from_slice(registers.words(x));
        for (bit, &word) in (0..k).zip(&words) {
            out.iter_mut().zip(registers.words(word)).for_each(|(out, &word)| *out = out.add(word.shl(bit)));
        }
    });
    builder.open(masked, Ring::Pow2(k))
}

/// 2^n planes, of which that of the number in `bits` is 1: the products of those of the lower and of the upper half of the bits.
fn one_hot<W: Word>(builder: &mut Builder<W>, bits: &[Plane]) -> Vec<Plane> {
    if let [bit] = *bits {
        return vec![not(builder, bit), bit];
    }
    let (low, high) = bits.split_at(bits.len().div_ceil(2));
    let (low, high) = (one_hot(builder, low), one_hot(builder, high));
    products(builder, &high, &low)
}

/// All products of one of `high` and one of `low`. Each of the two adds up to 1, so those with a first one follow from the others.
fn products<W: Word>(builder: &mut Builder<W>, high: &[Plane], low: &[Plane]) -> Vec<Plane> {
    let mut crossed = Vec::with_capacity(2 * (high.len() - 1));
    for &choice in &high[1..] {
        crossed.push([0, 1].map(|sender| builder.bits(sender, choice, &low[1..])));
    }
    let (high, low) = (high.to_vec(), low.to_vec());
    let inputs = [&high[..], &low, &crossed.concat().concat()].concat();
    builder.local_planes((&[], &inputs), high.len() * low.len(), move |registers, to| {
        let mut first_row: Vec<Vec<u64>> = low.iter().map(|&plane| registers.plane(plane).to_vec()).collect();
        for (i, [a, b]) in (1..).zip(&crossed) {
            let factor = registers.plane(high[i]);
            let mut first = factor.to_vec();
            let mut row = Vec::with_capacity(low.len() - 1);
            for (j, (&a, &b)) in (1..).zip(a.iter().zip(b)) {
                let mut product = vec![0; first.len()];
                xor(&mut product, registers.plane(a), registers.plane(b));
                and_xor_assign(&mut product, factor, registers.plane(low[j]));
                xor_assign(&mut first, &product);
                xor_assign(&mut first_row[j], &product);
                row.push(product);
            }
            xor_assign(&mut first_row[0], &first);
            let row = std::iter::once(first).chain(row);
            to[i * low.len()..].iter().zip(row).for_each(|(&to, product)| registers.set_plane(to, product));
        }
        to.iter().zip(first_row).for_each(|(&to, product)| registers.set_plane(to, product));
    })
}

/// Shares of 1 where σ = -1: the upper bit of |q1| - |q0| mod 4.
fn sign<W: Word>(builder: &mut Builder<W>, vector: &[Plane]) -> Plane {
    let planes = vector.to_vec();
    builder.local_plane(vector, move |registers, twos| {
        let mut ones = vec![0; twos.len()];
        for &plane in &planes {
            and_xor_assign(twos, &ones, registers.plane(plane));
            xor_assign(&mut ones, registers.plane(plane));
        }
        if registers.me == 0 {
            xor_assign(twos, &ones);
        }
    })
}

/// σ·T[J - j - c·n] for each table and every c below `choices`, where j is what the vector of n planes is 1 at.
fn sums<W: Word>(
    builder: &mut Builder<W>,
    vector: &[Plane],
    opened: Words,
    tables: &Tables<W>,
    choices: usize,
) -> Vec<Words> {
    let (planes, entries) = (vector.to_vec(), tables.entries.clone());
    let modulus = 1usize << tables.index_bits;
    builder.local_registers((&[opened], vector), tables.count * choices, move |registers, to| {
        let mut out = vec![vec![W::ZERO; registers.len]; to.len()];
        let mut chosen = vec![0u64; registers.len];
        for (number, group) in planes.chunks(64).enumerate() {
            from_planes(&registers.joined(group), group.len(), &mut chosen);
            let window = Window { start: modulus + 64 * number, width: group.len(), choices, apart: planes.len() };
            add_chosen(&mut out, &chosen, registers.words(opened), &entries, window);
        }
        for (&to, mut out) in to.iter().zip(out) {
            if registers.me == 0 {
                out.iter_mut().for_each(|sum| *sum = sum.neg());
            }
            registers.set_words(to, out);
        }
    })
}

/// The entries that 64 bits of an element choose from, in a table that lies twice: `width` of them from `start` less what was opened,
/// and again `apart` entries further for each of `choices`.
#[derive(Clone, Copy)]
struct Window {
    start: usize,
    width: usize,
    choices: usize,
    apart: usize,
}

vectorised! {
    /// Adds to each element of the sums, which are table by table, the entries that its bits choose. What was opened says where they
    /// lie and is no secret; of the bits, each is used alike.
    fn add_chosen<W: Word>(
        sums: &mut [Vec<W>], chosen: &[u64], opened: &[W], entries: &[Vec<W>], window: Window,
    ) {
        let mut masks = [W::ZERO; 64];
        for (element, (&chosen, opened)) in chosen.iter().zip(opened).enumerate() {
            for (bit, mask) in masks[..window.width].iter_mut().enumerate() {
                *mask = W::from_u64(chosen >> bit & 1).neg();
            }
            // Out of the compiler's sight: it branches on a bit where it sees a mask being made of one.
            let masks = &black_box(&masks)[..window.width];
            let start = window.start - opened.to_u64() as usize;
            for (sums, table) in sums.chunks_exact_mut(window.choices).zip(entries) {
                for (choice, sums) in sums.iter_mut().enumerate() {
                    let table = &table[start + choice * window.apart..];
                    let masked = table.iter().zip(masks).map(|(&entry, &mask)| entry & mask);
                    sums[element] = masked.fold(sums[element], W::add);
                }
            }
        }
    }
}

/// Of each two of `sums` the one that `bit` says.
fn halved<W: Word>(builder: &mut Builder<W>, sums: &[Words], bit: Plane, ring: Ring) -> Vec<Words> {
    let pairs = sums.chunks_exact(2);
    pairs
        .map(|pair| {
            let (zero, one) = (pair[0], pair[1]);
            let difference = combined(builder, one, zero, W::sub);
            let chosen = selected(builder, bit, difference, ring);
            combined(builder, chosen, zero, W::add)
        })
        .collect()
}

fn combined<W: Word>(builder: &mut Builder<W>, a: Words, b: Words, of: fn(W, W) -> W) -> Words {
    builder.local_words((&[a, b], &[]), move |registers, out| {
        let parts = registers.words(a).iter().zip(registers.words(b));
        out.iter_mut().zip(parts).for_each(|(out, (&a, &b))| *out = of(a, b));
    })
}

/// σ·z. Each party has σ_p·z_p; of that and the other's sign, (1 - 2s)·u, the product 2·s·u takes one bit less than the ring has.
fn unsigned<W: Word>(builder: &mut Builder<W>, sign: Plane, z: Words, l: u32) -> Words {
    let own = signed(builder, sign, z, Ring::Pow2(l));
    let [a, b] = [0, 1].map(|sender| builder.words(sender, sign, own, Ring::Pow2(l - 1)));
    let crossed = combined(builder, a, b, W::add);
    combined(builder, own, crossed, |own, crossed| own.sub(crossed.shl(1)))
}

/// σ·z[b], in one round: with w[c] = σ_p·z_p[b_p ⊕ c] of one party and s and b the other's bits, (1 - 2s)·w[b] is
/// w[0] - s·(w[0] + w[1]) - (s ⊕ b)·(w[0] - w[1]).
fn unsigned_of_two<W: Word>(builder: &mut Builder<W>, sign: Plane, b: Plane, z: [Words; 2], ring: Ring) -> Words {
    let [zero, one] = z.map(|z| signed(builder, sign, z, ring));
    let own = builder.local_words((&[zero, one], &[b]), move |registers, out| {
        expanded(registers.plane(b), out);
        let parts = registers.words(zero).iter().zip(registers.words(one));
        out.iter_mut().zip(parts).for_each(|(out, (&zero, &one))| *out = zero ^ (zero ^ one) & out.neg());
    });
    let sum = combined(builder, zero, one, W::add);
    let difference = combined(builder, zero, one, W::sub);
    let difference = signed(builder, b, difference, ring);
    let differs = comparison::xor(builder, sign, b);
    [0, 1].into_iter().flat_map(|sender| [(sender, sign, sum), (sender, differs, difference)]).fold(
        own,
        |rest, (sender, choice, value)| {
            let product = builder.words(sender, choice, value, ring);
            combined(builder, rest, product, W::sub)
        },
    )
}
