//! Logic on planes, or on any run of their words. All slices have the length of the first.

use crate::vectorised;

vectorised! {
    /// `out = a ⊕ b`
    pub fn xor(out: &mut [u64], a: &[u64], b: &[u64]) {
        assert!(out.len() == a.len() && out.len() == b.len(), "lengths differ");
        out.iter_mut().zip(a).zip(b).for_each(|((out, a), b)| *out = a ^ b);
    }

    /// `out = out ⊕ a`
    pub fn xor_assign(out: &mut [u64], a: &[u64]) {
        assert!(out.len() == a.len(), "lengths differ");
        out.iter_mut().zip(a).for_each(|(out, a)| *out ^= a);
    }

    /// `out = a · b`
    pub fn and(out: &mut [u64], a: &[u64], b: &[u64]) {
        assert!(out.len() == a.len() && out.len() == b.len(), "lengths differ");
        out.iter_mut().zip(a).zip(b).for_each(|((out, a), b)| *out = a & b);
    }

    /// `out = out · a`
    pub fn and_assign(out: &mut [u64], a: &[u64]) {
        assert!(out.len() == a.len(), "lengths differ");
        out.iter_mut().zip(a).for_each(|(out, a)| *out &= a);
    }

    /// `out = out ⊕ a · b`
    pub fn and_xor_assign(out: &mut [u64], a: &[u64], b: &[u64]) {
        assert!(out.len() == a.len() && out.len() == b.len(), "lengths differ");
        out.iter_mut().zip(a).zip(b).for_each(|((out, a), b)| *out ^= a & b);
    }

    /// `out = out ⊕ a · b ⊕ c · d`
    pub fn and_pair_xor_assign(out: &mut [u64], a: &[u64], b: &[u64], c: &[u64], d: &[u64]) {
        let len = out.len();
        assert!(len == a.len() && len == b.len() && len == c.len() && len == d.len(), "lengths differ");
        out.iter_mut().zip(a).zip(b).zip(c).zip(d).for_each(|((((out, a), b), c), d)| *out ^= (a & b) ^ (c & d));
    }

    /// `out = ¬out`
    pub fn not_assign(out: &mut [u64]) {
        out.iter_mut().for_each(|out| *out = !*out);
    }

    /// `out = ¬a`
    pub fn not(out: &mut [u64], a: &[u64]) {
        assert!(out.len() == a.len(), "lengths differ");
        out.iter_mut().zip(a).for_each(|(out, a)| *out = !a);
    }

    /// `out = s ? a : b`
    pub fn select(out: &mut [u64], s: &[u64], a: &[u64], b: &[u64]) {
        assert!(out.len() == s.len() && out.len() == a.len() && out.len() == b.len(), "lengths differ");
        out.iter_mut().zip(s).zip(a).zip(b).for_each(|(((out, s), a), b)| *out = b ^ s & (a ^ b));
    }
}
