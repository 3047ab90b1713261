//! Every twin of this processor, and the generic code on vectors that check themselves, against the portable transforms.

use proptest::prelude::*;

use super::super::lanes::{Residues, Small};
use super::super::{elements, inverse, vector};
use super::checked::Checked;
use super::*;

/// What the kernels are called with.
struct Data {
    prime: u64,
    residues: [Vec<u64>; 3],
    small: Vec<i32>,
    narrow: Vec<i64>,
    wide: Vec<i128>,
    /// Times four pairs.
    repeats: usize,
}

/// What they give, in the order of `KERNELS`.
type Results = [Vec<u64>; 9];

const KERNELS: [&str; 9] = [
    "forward",
    "inverse",
    "multiply",
    "scale",
    "add_products",
    "forward_small",
    "residues",
    "residues of i128",
    "forward_small of few",
];

impl Data {
    /// Random data for kind 0, data at the ends of what is allowed for others.
    fn new(degree: usize, prime: u64, seed: u64, kind: u8) -> Self {
        let mut words = Words(seed);
        let residues = [0; 3].map(|_| {
            let residue = |index| match kind {
                0 => words.next() % prime,
                1 => prime - 1,
                2 => (index as u64 % 2) * (prime - 1),
                3 => (words.next() >> 63) * (prime - 1),
                _ => prime / 2 + (words.next() >> 63),
            };
            (0..degree).map(residue).collect()
        });
        let small = |_| match kind {
            0 => words.next() as i32,
            1 => i32::MIN,
            _ => i32::MAX ^ -((words.next() >> 63) as i32),
        };
        let small = (0..degree).map(small).collect();
        let wide = |_| match kind {
            0 => (i128::from(words.next() as i64) << 64) | i128::from(words.next()),
            1 => i128::MIN,
            2 => -1,
            _ => i128::MAX ^ -i128::from(words.next() >> 63),
        };
        let wide: Vec<i128> = (0..degree).map(wide).collect();
        let narrow = wide.iter().map(|&word| (word >> 64) as i64).collect();
        Data { prime, residues, small, narrow, wide, repeats: seed as usize % 8 }
    }

    fn pairs(&self) -> Vec<(&[u64], &[u64])> {
        let [a, b, c] = &self.residues;
        [(&a[..], &b[..]), (b, c), (c, a), (a, a)].repeat(self.repeats)
    }

    /// Fewer small coefficients than the degree, in most cases as few as short transforms take.
    fn few(&self) -> &[i32] {
        let most = if self.repeats == 7 { self.small.len() } else { vector::SHORT.min(self.small.len()) };
        &self.small[..(most >> (self.repeats / 2)).saturating_sub(self.repeats % 2)]
    }

    /// With the twin of an instruction set.
    fn run(&self, isa: Isa) -> Results {
        let [a, b, _] = &self.residues;
        let degree = a.len();
        let ntt = Ntt { degree, prime: self.prime, twin: Twin::new(isa, degree, self.prime) };
        let mut out = KERNELS.map(|_| a.clone());
        ntt.forward(&mut out[0]);
        ntt.inverse(&mut out[1]);
        ntt.multiply(&mut out[2], b);
        ntt.scale(&mut out[3], b[0]);
        ntt.add_products(&self.pairs(), &mut out[4]);
        ntt.forward_small(&self.small, &mut out[5]);
        ntt.residues(&self.narrow, &mut out[6]);
        ntt.residues(&self.wide, &mut out[7]);
        ntt.forward_small(self.few(), &mut out[8]);
        out
    }

    /// With [`Checked`], for degrees that the generic code takes.
    fn run_checked<const N: usize>(&self) -> Option<Results> {
        let [a, b, _] = &self.residues;
        let (degree, prime) = (a.len(), self.prime);
        let tables = vector::Tables::new::<Checked<N>>(degree, prime)?;
        let powers = portable::Residue::<i64>::new(prime).powers;
        let mut out = KERNELS.map(|_| a.clone());
        // SAFETY: the vectors need no instruction set; slices are as long as the degree.
        let done = unsafe {
            let to = out[0].as_mut_ptr();
            vector::forward::<Checked<N>>(&tables, Residues(to), to, degree);
            inverse::inverse::<Checked<N>>(&tables, &mut out[1]);
            vector::forward::<Checked<N>>(&tables, Small(self.small.as_ptr()), out[5].as_mut_ptr(), degree);
            [
                elements::multiply::<Checked<N>>(prime, &mut out[2], b),
                elements::scale::<Checked<N>>(prime, &mut out[3], b[0]),
                elements::add_products::<Checked<N>>(prime, &self.pairs(), &mut out[4]),
                elements::residues::<Checked<N>, _>(prime, powers, &self.narrow, &mut out[6]),
                elements::residues::<Checked<N>, _>(prime, powers, &self.wide, &mut out[7]),
            ]
        };
        if degree >= vector::CHUNK && self.few().len() <= vector::SHORT {
            // SAFETY: as above, with whole chunks.
            unsafe { vector::forward_short::<Checked<N>>(&tables, self.few(), out[8].as_mut_ptr(), degree) };
        } else {
            out[8] = self.run(Isa::Portable)[8].clone();
        }
        // There is no rest: the degree is whole vectors.
        assert_eq!(done, [degree; 5]);
        Some(out)
    }
}

/// Words of a fixed sequence.
struct Words(u64);

impl Words {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 ^ (self.0 >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

fn compare(due: &Results, got: &Results, case: &str) {
    for ((name, due), got) in KERNELS.iter().zip(due).zip(got) {
        assert!(due == got, "{name}, {case}");
    }
}

fn compare_twins(degree: usize, prime: u64, seed: u64, kind: u8) {
    let data = Data::new(degree, prime, seed, kind);
    let due = data.run(Isa::Portable);
    for isa in [Isa::Avx2, Isa::Avx512].into_iter().filter(|&isa| isa <= dispatch::best()) {
        compare(&due, &data.run(isa), &format!("degree {degree}, modulo {prime}, kind {kind}, {isa:?}"));
    }
}

#[test]
fn twins_agree_at_extremes() {
    for log in 1..=14 {
        for bits in [20, 36, 49, 50] {
            for prime in primes(bits, 1 << log, 1) {
                (0..5).for_each(|kind| compare_twins(1 << log, prime, 7, kind));
            }
        }
    }
}

#[test]
fn every_intermediate_is_exact() {
    for (log, bits) in (5..=13).flat_map(|log| [(log, 20), (log, 50)]) {
        for (prime, kind) in
            primes(bits, 1 << log, 1).into_iter().flat_map(|prime| (0..5).map(move |kind| (prime, kind)))
        {
            let data = Data::new(1 << log, prime, 5 + u64::from(kind), kind);
            let due = data.run(Isa::Portable);
            for got in [data.run_checked::<4>(), data.run_checked::<8>()].into_iter().flatten() {
                compare(&due, &got, &format!("degree 2^{log}, modulo {prime}, kind {kind}, checked"));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn twins_agree(log in 1_u32..=14, bits in prop::sample::select(vec![20, 36, 49, 50]), seed: u64, kind in 0_u8..5) {
        if let Some(&prime) = primes(bits, 1 << log, 3).get(seed as usize % 3) {
            compare_twins(1 << log, prime, seed, kind);
        }
    }
}
