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

    /// `out = out ⊕ a · b`
    pub fn and_xor_assign(out: &mut [u64], a: &[u64], b: &[u64]) {
        assert!(out.len() == a.len() && out.len() == b.len(), "lengths differ");
        out.iter_mut().zip(a).zip(b).for_each(|((out, a), b)| *out ^= a & b);
    }

    /// `out = ¬out`
    pub fn not_assign(out: &mut [u64]) {
        out.iter_mut().for_each(|out| *out = !*out);
    }
}
