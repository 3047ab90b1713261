//! The arithmetic of shifts and clamps fused with a comparison, element by element. Bits are words 0 and 1; masks are words of
//! zeros or ones.

use covey_kernels::vectorised;
use covey_ring::Word;

/// -x where `sign` is all ones, x where it is 0.
#[inline(always)]
fn signed<W: Word>(x: W, sign: W) -> W {
    (x ^ sign).sub(sign)
}

/// All ones for 1, 0 for 0.
#[inline(always)]
fn ones<W: Word>(bit: W) -> W {
    W::ZERO.sub(bit)
}

/// S ? first - x : x: the share of 1 - τ for a share of τ, `s` all ones where S.
#[inline(always)]
fn flip<W: Word>(x: W, s: W, first: W) -> W {
    signed(x, s).add(first & s)
}

vectorised! {
    /// `out = out + a`
    pub(crate) fn add<W: Word>(out: &mut [W], a: &[W]) {
        out.iter_mut().zip(a).for_each(|(out, &a)| *out = out.add(a));
    }

    /// `out = out + a + b`, reduced
    pub(crate) fn sum<W: Word>(out: &mut [W], a: &[W], b: &[W], mask: W) {
        out.iter_mut().zip(a).zip(b).for_each(|((out, &a), &b)| *out = out.add(a).add(b) & mask);
    }

    pub(crate) fn reduce<W: Word>(out: &mut [W], mask: W) {
        out.iter_mut().for_each(|out| *out = *out & mask);
    }

    /// `out = out + by`
    pub(crate) fn offset<W: Word>(out: &mut [W], by: W) {
        out.iter_mut().for_each(|out| *out = out.add(by));
    }

    /// Cuts `count` bits out, from bit `low` on; those above move down.
    pub(crate) fn without<W: Word>(out: &mut [W], low: u32, count: u32) {
        let below = W::ONE.shl(low).sub(W::ONE);
        out.iter_mut().for_each(|out| *out = (*out & below) | out.shr(low + count).shl(low));
    }

    /// `out = drawn ± out`
    pub(crate) fn open<W: Word>(out: &mut [W], drawn: &[W], negate: W) {
        out.iter_mut().zip(drawn).for_each(|(out, &drawn)| *out = drawn.add(signed(*out, negate)));
    }

    // What the dealer sends: a value less the drawn share.

    /// 1 - bit
    pub(crate) fn one_less<W: Word>(share: &mut [W], bit: &[W]) {
        share.iter_mut().zip(bit).for_each(|(share, &bit)| *share = W::ONE.sub(bit).sub(*share));
    }

    /// value≫shift
    pub(crate) fn whole<W: Word>(share: &mut [W], value: &[W], shift: u32) {
        share.iter_mut().zip(value).for_each(|(share, &value)| *share = value.shr(shift).sub(*share));
    }

    /// ±(bit ⊕ not)·(value≫shift)
    pub(crate) fn product<W: Word>(share: &mut [W], value: &[W], bit: &[W], shift: u32, not: W, sign: W) {
        for ((share, &value), &bit) in share.iter_mut().zip(value).zip(bit) {
            *share = signed(value.shr(shift) & (ones(bit) ^ not), sign).sub(*share);
        }
    }

    /// The carry out of the low bits of a + b, and added to it `top` times the highest of those bits of the sum
    pub(crate) fn carry<W: Word>(share: &mut [W], a: &[W], b: &[W], low: W, bits: u32, top: W) {
        for ((share, &a), &b) in share.iter_mut().zip(a).zip(b) {
            let sum = (a & low).add(b & low);
            let highest = (sum & low).shr(bits - 1) & top;
            *share = sum.shr(bits).add(highest).sub(*share);
        }
    }

    // What the parties add up.

    /// T·(C≫f) + K_S, T = S ? 1 - τ : τ
    pub(crate) fn select<W: Word>(
        out: &mut [W], c: &[W], sign: &[W], tau: &[W], zero: &[W], one: &[W], first: W, f: u32,
    ) {
        for (((((out, &c), &s), &tau), &zero), &one) in out.iter_mut().zip(c).zip(sign).zip(tau).zip(zero).zip(one) {
            let s = ones(s);
            *out = flip(tau, s, first).mul(c.shr(f)).add(zero ^ ((zero ^ one) & s));
        }
    }

    /// Less U + (1-2U)·υ
    pub(crate) fn subtract_bit<W: Word>(out: &mut [W], rest: &[W], upsilon: &[W], first: W) {
        for ((out, &u), &upsilon) in out.iter_mut().zip(rest).zip(upsilon) {
            let u = ones(u);
            *out = out.sub(first & u).sub(signed(upsilon, u));
        }
    }

    /// T·(C≫f - B) - (τ·A)_S, (τ·A)_S = S ? A - τ·A : τ·A
    pub(crate) fn select_flat<W: Word>(
        out: &mut [W], c: &[W], sign: &[W], rest: &[W], tau: &[W], product: &[W], whole: &[W], first: W, f: u32,
    ) {
        let dealt = tau.iter().zip(product).zip(whole);
        for ((((out, &c), &s), &b), ((&tau, &product), &whole)) in out.iter_mut().zip(c).zip(sign).zip(rest).zip(dealt) {
            let s = ones(s);
            *out = flip(tau, s, first).mul(c.shr(f).sub(b)).sub(flip(product, s, whole));
        }
    }

    /// Less (1-2B)·(τ·b)_S
    pub(crate) fn subtract_flat<W: Word>(out: &mut [W], sign: &[W], rest: &[W], product: &[W], whole: &[W]) {
        for ((((out, &s), &b), &product), &whole) in out.iter_mut().zip(sign).zip(rest).zip(product).zip(whole) {
            *out = out.sub(signed(flip(product, ones(s), whole), ones(b)));
        }
    }

    /// 2^shifted·W_S where bit `top` of C is 0; flat: W_1 is the second less the first
    pub(crate) fn wrap<W: Word>(
        out: &mut [W], c: &[W], sign: &[W], zero: &[W], other: &[W], flat: W, top: u32, shifted: u32,
    ) {
        for ((((out, &c), &s), &zero), &other) in out.iter_mut().zip(c).zip(sign).zip(zero).zip(other) {
            let one = other.sub(zero & flat);
            let share = zero ^ ((zero ^ one) & ones(s));
            *out = out.add(share.shl(shifted) & c.shr(top).sub(W::ONE));
        }
    }

    /// Y, reduced, in `y`, and the share of what lies above it in `out`
    pub(crate) fn extend<W: Word>(
        out: &mut [W], y: &mut [W], carry: &[W], wrapped: &[W], mask: &[W], ring: W, low: W, shifted: u32,
    ) {
        let dealt = carry.iter().zip(wrapped).zip(mask);
        for ((out, y), ((&carry, &wrapped), &mask)) in out.iter_mut().zip(y).zip(dealt) {
            *y = *y & low;
            // All ones where the highest bit is 0.
            let small = y.shr(shifted - 1).sub(W::ONE);
            *out = (carry ^ ((carry ^ wrapped) & small)).add((mask & ring).shr(shifted));
        }
    }

    /// `y = y + 2^shifted·q - mask`
    pub(crate) fn join<W: Word>(y: &mut [W], q: &[W], mask: &[W], shifted: u32) {
        y.iter_mut().zip(q).zip(mask).for_each(|((y, &q), &mask)| *y = y.add(q.shl(shifted)).sub(mask));
    }
}
