//! The programs of the gates over Z_2^l. Every one is exact inside its bounds but those named otherwise.

use std::sync::Arc;

use covey_kernels::bits::expand_bits;
use covey_ring::{Ring, Word};

use super::comparison::{self, Bits, Shape, not, xor};
use super::program::{Builder, GateProgram, Plane, Words};
use super::share::Arithmetic;
use crate::api::{Rounding, Truncation};
use crate::circuits::CarryCircuit;

/// What a comparison reads of |x|: so many bits below the sign, and how many below those it leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Read {
    pub bits: u32,
    pub skipped: u32,
}

/// A plane as 0 and 1.
pub(super) fn expanded<W: Word>(plane: &[u64], out: &mut [W]) {
    expand_bits(plane, out);
}

/// x<0.
fn sign<W: Word>(builder: &mut Builder<W>, x: Words, read: Read, shape: Shape) -> Plane {
    let at = (read.skipped + read.bits) as usize;
    let bits = Bits::of(builder, x, at + 1);
    let (carry, _) = comparison::carry_out(builder, &bits, read.skipped as usize..at, 0, shape);
    xor(builder, bits.raw[at], carry)
}

/// One plane: 1 where x < 0.
pub(super) fn msb<W: Word>(read: Read, shape: Shape) -> Arc<GateProgram<W>> {
    let mut builder = Builder::<W>::new();
    let x = builder.input_words();
    let negative = sign(&mut builder, x, read, shape);
    builder.finish(&[], &[negative])
}

/// max(x, 0).
pub(super) fn relu<W: Word>(l: u32, read: Read, shape: Shape) -> Arc<GateProgram<W>> {
    let mut builder = Builder::<W>::new();
    let x = builder.input_words();
    let negative = sign(&mut builder, x, read, shape);
    let positive = not(&mut builder, negative);
    let out = selected(&mut builder, positive, x, Ring::Pow2(l));
    builder.finish(&[out], &[])
}

/// low where x < low, high where x >= high, else x: the signs of x - low and of x - high, which share the choices of the party
/// that is not `holder`, one selection, and the second sign in as few bits as high - low leaves room for.
pub(super) fn clip<W: Word>(
    l: u32,
    read: Read,
    (low, high): (i64, i64),
    shape: Shape,
    holder: usize,
) -> Arc<GateProgram<W>> {
    let ring = Ring::Pow2(l);
    let mut builder = Builder::<W>::new();
    let x = builder.input_words();
    let at = (read.skipped + read.bits) as usize;
    let lanes = [low, high].map(|end| {
        let own = move |me, x: u64| if me == holder { x.wrapping_sub(end as u64) } else { x };
        Bits::mapped(&mut builder, x, at + 1, own)
    });
    let carries = comparison::carries_together(&mut builder, &lanes, read.skipped as usize..at, shape, holder);
    let [below, short] = [0, 1].map(|lane| xor(&mut builder, lanes[lane].raw[at], carries[lane]));
    // low <= x < high, as below implies short.
    let within = xor(&mut builder, below, short);
    let beyond = not(&mut builder, short);
    let raised = plus_constant(&mut builder, x, low.wrapping_neg() as u64, ring);
    let chosen = selected(&mut builder, within, raised, ring);
    let span = high.wrapping_sub(low) as u64;
    let above = converted(&mut builder, beyond, Ring::Pow2(l - span.trailing_zeros().min(l - 1)), holder);
    let (low, span) = (W::from_u64(low as u64), W::from_u64(span));
    let out = builder.local_words((&[chosen, above], &[]), move |registers, out| {
        let low = if registers.me == 0 { low } else { W::ZERO };
        let parts = registers.words(chosen).iter().zip(registers.words(above));
        out.iter_mut().zip(parts).for_each(|(out, (&chosen, &above))| *out = chosen.add(above.mul(span)).add(low));
    });
    builder.finish(&[out], &[])
}

/// b · x.
pub(super) fn select<W: Word>(ring: Ring) -> Arc<GateProgram<W>> {
    let mut builder = Builder::<W>::new();
    let (b, x) = (builder.input_plane(), builder.input_words());
    let out = selected(&mut builder, b, x, ring);
    builder.finish(&[out], &[])
}

/// A bit as a ring element.
pub(super) fn bit2a<W: Word>(ring: Ring) -> Arc<GateProgram<W>> {
    let mut builder = Builder::<W>::new();
    let bit = builder.input_plane();
    let out = converted(&mut builder, bit, ring, 0);
    builder.finish(&[out], &[])
}

/// x ∧ y over so many planes each.
pub(super) fn and<W: Word>(planes: usize) -> Arc<GateProgram<W>> {
    let mut builder = Builder::<W>::new();
    let x: Vec<Plane> = (0..planes).map(|_| builder.input_plane()).collect();
    let y: Vec<Plane> = (0..planes).map(|_| builder.input_plane()).collect();
    let out: Vec<Plane> = x.iter().zip(&y).flat_map(|(&x, &y)| comparison::and(&mut builder, x, &[y])).collect();
    builder.finish(&[], &out)
}

/// All l bits.
pub(super) fn a2b<W: Word>(l: u32, circuit: &CarryCircuit) -> Arc<GateProgram<W>> {
    let mut builder = Builder::<W>::new();
    let x = builder.input_words();
    let bits = Bits::of(&mut builder, x, l as usize);
    let carries = comparison::carries(&mut builder, &bits, l as usize - 1, circuit);
    let mut out = vec![bits.raw[0]];
    out.extend(bits.raw[1..].iter().zip(carries).map(|(&bit, carry)| xor(&mut builder, bit, carry)));
    builder.finish(&[], &out)
}

/// x · y: of x0·y1 and x1·y0, one product for each bit of the first factor, of as many bits as reach the result.
pub(super) fn mul<W: Word>(ring: Ring) -> Arc<GateProgram<W>> {
    let arithmetic = Arithmetic::new(ring);
    let mut builder = Builder::<W>::new();
    let (x, y) = (builder.input_words(), builder.input_words());
    let bits = Bits::of(&mut builder, x, ring.bits() as usize);
    let mut crossed = Vec::new();
    for (bit, &plane) in (0..).zip(&bits.raw) {
        let narrow = match ring {
            Ring::Pow2(l) => Ring::Pow2(l - bit),
            odd => odd,
        };
        crossed.extend([0, 1].map(|sender| (bit, builder.words(sender, plane, y, narrow))));
    }
    let shares: Vec<Words> = crossed.iter().map(|&(_, share)| share).collect();
    let out = builder.local_words((&[&[x, y], &shares[..]].concat(), &[]), move |registers, out| {
        let own = registers.words(x).iter().zip(registers.words(y));
        out.iter_mut().zip(own).for_each(|(out, (&x, &y))| *out = arithmetic.mul(x, y));
        for &(bit, share) in &crossed {
            let power = arithmetic.power(bit);
            let add = |(out, &share): (&mut W, &W)| *out = arithmetic.add(*out, arithmetic.mul(share, power));
            out.iter_mut().zip(registers.words(share)).for_each(add);
        }
    });
    builder.finish(&[out], &[])
}

/// b · x = b0·x0 + b1·x1 + b1·(1 - 2·b0)·x0 + b0·(1 - 2·b1)·x1.
pub(super) fn selected<W: Word>(builder: &mut Builder<W>, b: Plane, x: Words, ring: Ring) -> Words {
    let arithmetic = Arithmetic::new(ring);
    let signed = signed(builder, b, x, ring);
    let crossed = [0, 1].map(|sender| builder.words(sender, b, signed, ring));
    builder.local_words((&[x, crossed[0], crossed[1]], &[b]), move |registers, out| {
        expanded(registers.plane(b), out);
        let shares = registers.words(crossed[0]).iter().zip(registers.words(crossed[1]));
        out.iter_mut().zip(registers.words(x)).zip(shares).for_each(|((out, &x), (&a, &b))| {
            *out = arithmetic.add(x & out.neg(), arithmetic.add(a, b));
        });
    })
}

/// (1 - 2·b)·x of what a party has of b and x.
pub(super) fn signed<W: Word>(builder: &mut Builder<W>, b: Plane, x: Words, ring: Ring) -> Words {
    let arithmetic = Arithmetic::new(ring);
    builder.local_words((&[x], &[b]), move |registers, out| {
        expanded(registers.plane(b), out);
        // Without a product: x, or -x.
        out.iter_mut().zip(registers.words(x)).for_each(|(out, &x)| {
            let (minus, mask) = (arithmetic.neg(x), out.neg());
            *out = x ^ (x ^ minus) & mask;
        });
    })
}

/// b = b0 + b1 - 2·b0·b1, the last product known to half of the ring suffices.
pub(super) fn converted<W: Word>(builder: &mut Builder<W>, b: Plane, ring: Ring, sender: usize) -> Words {
    let arithmetic = Arithmetic::new(ring);
    let narrow = match ring {
        Ring::Pow2(1) => {
            return builder.local_words((&[], &[b]), move |registers, out| expanded(registers.plane(b), out));
        }
        Ring::Pow2(l) => Ring::Pow2(l - 1),
        odd => odd,
    };
    let own = builder.local_words((&[], &[b]), move |registers, out| expanded(registers.plane(b), out));
    let product = builder.words(sender, b, own, narrow);
    builder.local_words((&[own, product], &[]), move |registers, out| {
        let shares = registers.words(own).iter().zip(registers.words(product));
        out.iter_mut().zip(shares).for_each(|(out, (&own, &product))| {
            *out = arithmetic.sub(own, arithmetic.add(product, product));
        });
    })
}

/// Whether x0 + x1 wraps around the ring, x known not to be negative: it does where either summand is. Shares in `ring` of the
/// *complement*, ¬msb(x0)·¬msb(x1): one product of `sender`'s and the other's bit.
pub(super) fn not_wrapped<W: Word>(builder: &mut Builder<W>, x: Words, l: u32, ring: Ring, sender: usize) -> Words {
    let plus = builder.local_planes((&[x], &[]), 1, move |registers, to| {
        let high: Vec<W> = registers.words(x).iter().map(|x| x.shr(l - 1)).collect();
        let mut plane = vec![0; registers.len.div_ceil(64)];
        covey_kernels::bits::pack_bits(&high, &mut plane);
        covey_kernels::bits::not_assign(&mut plane);
        registers.set_plane(to[0], plane);
    })[0];
    let value = builder.local_words((&[], &[plus]), move |registers, out| expanded(registers.plane(plus), out));
    builder.words(sender, plus, value, ring)
}

/// Shares of x≫f with x known not to be negative, from shares of the carry out of the low f bits; without them, of that or one
/// more. x≫f = (x0≫f) + (x1≫f) + carry - wrap·2^(l-f), wrap = 1 - not_wrapped.
fn shifted<W: Word>(builder: &mut Builder<W>, x: Words, carry: Option<Plane>, f: u32, l: u32) -> Words {
    let not_wrapped = not_wrapped(builder, x, l, Ring::Pow2(f), 1);
    let carry = carry.map(|carry| converted(builder, carry, Ring::Pow2(l), 0));
    let needed: Vec<Words> = [x, not_wrapped].into_iter().chain(carry).collect();
    builder.local_words((&needed, &[]), move |registers, out| {
        let (first, mask) = (registers.me == 0, ring_mask::<W>(l));
        // P0 takes the 1 of 1 - not_wrapped, and the 1 that stands for a carry nobody computed.
        let one = if first { W::ONE } else { W::ZERO };
        let constant = if carry.is_none() { one } else { W::ZERO };
        let parts = registers.words(x).iter().zip(registers.words(not_wrapped));
        out.iter_mut().zip(parts).for_each(|(out, (&x, &whole))| {
            *out = (x & mask).shr(f).add(constant).sub(one.sub(whole).shl(l - f));
        });
        if let Some(carry) = carry {
            covey_kernels::elementwise::add_assign(out, registers.words(carry));
        }
    })
}

pub(super) fn ring_mask<W: Word>(l: u32) -> W {
    Ring::Pow2(l).reduce(W::ZERO.sub(W::ONE))
}

/// x + c at P0, for a public c.
pub(super) fn plus_constant<W: Word>(builder: &mut Builder<W>, x: Words, c: u64, ring: Ring) -> Words {
    let arithmetic = Arithmetic::new(ring);
    builder.local_words((&[x], &[]), move |registers, out| {
        let c = if registers.me == 0 { W::from_u64(c) } else { W::ZERO };
        out.iter_mut().zip(registers.words(x)).for_each(|(out, &x)| *out = arithmetic.add(x, c));
    })
}

/// x≫f. Where the bound leaves a bit free, 2^(l-2) is added first and its shift taken off, so that the sign is known; over the
/// whole ring, 2^(l-1), and the wrap is the carry out of all bits.
pub(super) fn truncate<W: Word>(l: u32, truncation: Truncation, shape: Shape) -> Arc<GateProgram<W>> {
    let (f, ring) = (truncation.bits, Ring::Pow2(l));
    let mut builder = Builder::<W>::new();
    let x = builder.input_words();
    let known = truncation.bound <= l - 2;
    let offset = if known { l - 2 } else { l - 1 };
    let raised = plus_constant(&mut builder, x, 1 << offset, ring);
    let out = if known {
        let carry = (truncation.rounding == Rounding::Exact).then(|| {
            let bits = Bits::of(&mut builder, raised, f as usize);
            comparison::carry_out(&mut builder, &bits, 0..f as usize, 0, shape).0
        });
        shifted(&mut builder, raised, carry, f, l)
    } else {
        let bits = Bits::of(&mut builder, raised, l as usize);
        let (wrap, carry) = comparison::carry_out(&mut builder, &bits, 0..l as usize, f as usize, shape);
        let wrap = converted(&mut builder, wrap, Ring::Pow2(f), 1);
        let carry = converted(&mut builder, carry.unwrap_or(bits.raw[0]), ring, 0);
        builder.local_words((&[raised, wrap, carry], &[]), move |registers, out| {
            let mask = ring_mask::<W>(l);
            let parts = registers.words(wrap).iter().zip(registers.words(carry));
            out.iter_mut().zip(registers.words(raised)).zip(parts).for_each(|((out, &x), (&wrap, &carry))| {
                *out = (x & mask).shr(f).add(carry).sub(wrap.shl(l - f));
            });
        })
    };
    let lowered = plus_constant(&mut builder, out, (1u64 << (offset - f)).wrapping_neg(), ring);
    builder.finish(&[lowered], &[])
}

/// max(x≫f, 0), `read` of what is shifted. One tree gives the sign and, out of its lowest f bits, the carry of the shift; the
/// shift is done as if x were not negative, and selected where it is not. Where the comparison leaves bits out, so that x just
/// below 0 may be taken for positive, x is raised until it is, and lowered afterwards.
pub(super) fn truncate_relu<W: Word>(l: u32, truncation: Truncation, read: Read, shape: Shape) -> Arc<GateProgram<W>> {
    let (f, ring) = (truncation.bits, Ring::Pow2(l));
    let exact = truncation.rounding == Rounding::Exact;
    let mut builder = Builder::<W>::new();
    let x = builder.input_words();
    let (start, at) = ((f + read.skipped) as usize, (f + read.skipped + read.bits) as usize);
    let bits = Bits::of(&mut builder, x, at + 1);
    let (sign, carry) = if read.skipped > 0 {
        let (sign, _) = comparison::carry_out(&mut builder, &bits, start..at, 0, shape);
        (sign, exact.then(|| comparison::carry_out(&mut builder, &bits, 0..f as usize, 0, shape).0))
    } else {
        comparison::carry_out(&mut builder, &bits, 0..at, if exact { f as usize } else { 0 }, shape)
    };
    let negative = xor(&mut builder, bits.raw[at], sign);
    let positive = not(&mut builder, negative);
    let shift = if read.skipped > 0 {
        let raised = plus_constant(&mut builder, x, 1 << (f + read.skipped), ring);
        let shift = shifted(&mut builder, raised, carry, f, l);
        plus_constant(&mut builder, shift, (1u64 << read.skipped).wrapping_neg(), ring)
    } else {
        shifted(&mut builder, x, carry, f, l)
    };
    let out = selected(&mut builder, positive, shift, ring);
    builder.finish(&[out], &[])
}
