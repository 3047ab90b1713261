//! The arithmetic of tables, element by element. Bits are words 0 and 1; all is modulo the widths that `plan.rs` gives.

use covey_kernels::vectorised;
use covey_ring::Word;

/// All ones for 1, 0 for 0.
#[inline(always)]
fn ones<W: Word>(bit: W) -> W {
    W::ZERO.sub(bit)
}

/// -x for 1, x for 0.
#[inline(always)]
fn signed<W: Word>(x: W, bit: W) -> W {
    (x ^ ones(bit)).add(bit)
}

vectorised! {
    /// (x≫shift) & mask
    pub(super) fn field<W: Word>(out: &mut [W], x: &[W], shift: u32, mask: W) {
        out.iter_mut().zip(x).for_each(|(out, &x)| *out = x.shr(shift) & mask);
    }

    /// (x & mask)·2 + bit
    pub(super) fn below<W: Word>(out: &mut [W], x: &[W], bit: &[W], mask: W) {
        out.iter_mut().zip(x).zip(bit).for_each(|((out, &x), &bit)| *out = (x & mask).shl(1) | bit);
    }

    /// The mask of the line: g + k0·ρ
    pub(super) fn line_mask<W: Word>(g: &mut [W], hidden: &[W], rho: &[W], mask: W) {
        g.iter_mut().zip(hidden).zip(rho).for_each(|((g, &hidden), &rho)| *g = g.add(hidden.mul(rho)) & mask);
    }

    /// What P1 and P2 do not know of the position in the segment: 2^step·m - R mod 2^step
    pub(super) fn hidden<W: Word>(out: &mut [W], r: &[W], borrow: &[W], step: u32, low: W) {
        out.iter_mut().zip(r).zip(borrow).for_each(|((out, &r), &m)| *out = m.shl(step).sub(r & low));
    }

    /// m + the carry of the low bits of both masks, whose sum is r
    pub(super) fn carried<W: Word>(out: &mut [W], r: &[W], second: &[W], m: &[W], step: u32, low: W) {
        for (((out, &r), &second), &m) in out.iter_mut().zip(r).zip(second).zip(m) {
            *out = (r.sub(second) & low).add(second & low).shr(step).add(m);
        }
    }

    /// A share of k0, from one of m + the carry: 2^step·share - mask mod 2^step
    pub(super) fn own_hidden<W: Word>(share: &mut [W], mask: &[W], step: u32, low: W) {
        share.iter_mut().zip(mask).for_each(|(share, &mask)| *share = share.shl(step).sub(mask & low));
    }

    /// x where the bit is set
    pub(super) fn times<W: Word>(out: &mut [W], x: &[W], bit: &[W]) {
        out.iter_mut().zip(x).zip(bit).for_each(|((out, &x), &bit)| *out = x & ones(bit));
    }

    /// x where the bit is not set
    pub(super) fn less<W: Word>(out: &mut [W], x: &[W], bit: &[W]) {
        out.iter_mut().zip(x).zip(bit).for_each(|((out, &x), &bit)| *out = x & !ones(bit));
    }

    /// (1 - 2·bit)·x
    pub(super) fn signed_by<W: Word>(out: &mut [W], x: &[W], bit: &[W]) {
        out.iter_mut().zip(x).zip(bit).for_each(|((out, &x), &bit)| *out = signed(x, bit));
    }

    /// out - (bit ⊕ not)·x
    pub(super) fn subtract_times<W: Word>(out: &mut [W], x: &[W], bit: &[W], not: W) {
        out.iter_mut().zip(x).zip(bit).for_each(|((out, &x), &bit)| *out = out.sub(x & ones(bit ^ not)));
    }

    /// `other` where the bit is set
    pub(super) fn choose<W: Word>(out: &mut [W], other: &[W], bit: &[W]) {
        for ((out, &other), &bit) in out.iter_mut().zip(other).zip(bit) {
            *out = *out ^ ((*out ^ other) & ones(bit));
        }
    }

    /// Adds this party's part of e·c, e = E ⊕ η: E ? first·c - η·c : η·c, of a share of η
    pub(super) fn add_selected<W: Word>(out: &mut [W], c: &[W], e: &[W], eta: &[W], first: W) {
        for (((out, &c), &e), &eta) in out.iter_mut().zip(c).zip(e).zip(eta) {
            *out = out.add(signed(eta.mul(c), e)).add(c & first & ones(e));
        }
    }

    /// Adds 2^shifted times the share that bit `top` of C asks for
    pub(super) fn lift<W: Word>(out: &mut [W], c: &[W], zero: &[W], one: &[W], top: u32, shifted: u32) {
        for (((out, &c), &zero), &one) in out.iter_mut().zip(c).zip(zero).zip(one) {
            let lift = zero ^ ((zero ^ one) & ones(c.shr(top)));
            *out = out.add(lift.shl(shifted));
        }
    }

    /// -σ·(R≫shift), σ = 1 - 2·bit
    pub(super) fn constant<W: Word>(out: &mut [W], r: &[W], bit: &[W], shift: u32) {
        out.iter_mut().zip(r).zip(bit).for_each(|((out, &r), &bit)| *out = signed(r.shr(shift), W::ONE.sub(bit)));
    }

    /// This party's part of i + r: first·(C≫step - y) - (1 - 2y)·m + its mask, of a share of m
    pub(super) fn index<W: Word>(
        out: &mut [W], c: &[W], borrow: &[W], dealt: &[W], mask: &[W], step: u32, first: W,
    ) {
        for ((((out, &c), &y), &m), &mask) in out.iter_mut().zip(c).zip(borrow).zip(dealt).zip(mask) {
            *out = (c.shr(step).sub(y) & first).sub(signed(m, y)).add(mask);
        }
    }

    /// This party's part of d·(i - a) + a + r, a the entry outside, but for what y multiplies, d = D ⊕ δ: with p = C≫step - y - a,
    /// first·p - δ·p - (1 - 2δ)·(R≫step + m) for D = 1, δ·p for D = 0. The mask of J has the part δ·(R≫step + m).
    pub(super) fn index_inside<W: Word>(
        out: &mut [W], c: &[W], borrow: &[W], inside: &[W], delta: &[W], place: &[W], mask: &[W], step: u32, outside: W,
        first: W,
    ) {
        let dealt = delta.iter().zip(place);
        for (((((out, &c), &y), &d), (&delta, &place)), &mask) in
            out.iter_mut().zip(c).zip(borrow).zip(inside).zip(dealt).zip(mask)
        {
            let p = c.shr(step).sub(y).sub(outside);
            let product = delta.mul(p);
            let within = (p & first).sub(product).sub(place);
            *out = product ^ ((product ^ within) & ones(d));
            *out = out.add(outside & first).add(mask);
        }
    }

    /// Adds 2·y·(D ? (1 - δ)·m : δ·m), of shares of both products
    pub(super) fn borrowed_inside<W: Word>(out: &mut [W], borrow: &[W], inside: &[W], within: &[W], without: &[W]) {
        let dealt = within.iter().zip(without);
        for (((out, &y), &d), (&within, &without)) in out.iter_mut().zip(borrow).zip(inside).zip(dealt) {
            let product = within ^ ((within ^ without) & ones(d));
            *out = out.add(product.shl(1) & ones(y));
        }
    }

    /// The public part of the position in the segment: C mod 2^step + 2^step·y
    pub(super) fn position<W: Word>(out: &mut [W], c: &[W], borrow: &[W], step: u32, low: W) {
        out.iter_mut().zip(c).zip(borrow).for_each(|((out, &c), &y)| *out = (c & low).add(y.shl(step)));
    }

    /// out + slope·position
    pub(super) fn along<W: Word>(out: &mut [W], slope: &[W], position: &[W]) {
        out.iter_mut().zip(slope).zip(position).for_each(|((out, &slope), &at)| *out = out.add(slope.mul(at)));
    }

    /// Adds (Z - bias)·(k0 - 2^(step+1)·y·m) + 2^(step+1)·y·(m·ρ), of shares of k0, m and m·ρ
    pub(super) fn hidden_part<W: Word>(
        out: &mut [W], z: &[W], borrow: &[W], hidden: &[W], bit: &[W], product: &[W], bias: W, step: u32,
    ) {
        let dealt = hidden.iter().zip(bit).zip(product);
        for (((out, &z), &y), ((&hidden, &m), &product)) in out.iter_mut().zip(z).zip(borrow).zip(dealt) {
            let z = z.sub(bias);
            let twice = m.mul(z).sub(product) & ones(y);
            *out = out.add(hidden.mul(z)).sub(twice.shl(step).shl(1));
        }
    }

    /// Where the highest bit of Z is 0, adds 2^width·(k0·msb ρ - 2^(step+1)·y·(m·msb ρ)), of shares of both products
    pub(super) fn wrapped_part<W: Word>(
        out: &mut [W], z: &[W], borrow: &[W], hidden: &[W], bit: &[W], width: u32, step: u32,
    ) {
        for ((((out, &z), &y), &hidden), &m) in out.iter_mut().zip(z).zip(borrow).zip(hidden).zip(bit) {
            let small = z.shr(width - 1).sub(W::ONE);
            let twice = (m & ones(y)).shl(step).shl(1);
            *out = out.add(hidden.sub(twice).shl(width) & small);
        }
    }

    /// σ·(C≫shift) + K, of shares of σ and K
    pub(super) fn select<W: Word>(out: &mut [W], c: &[W], sign: &[W], constant: &[W], shift: u32) {
        for (((out, &c), &sign), &constant) in out.iter_mut().zip(c).zip(sign).zip(constant) {
            *out = sign.mul(c.shr(shift)).add(constant);
        }
    }
}
