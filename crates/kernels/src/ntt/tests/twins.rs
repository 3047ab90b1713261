//! Every twin of this processor, and the generic code on vectors that check themselves, against the portable transforms.

use proptest::prelude::*;

use super::super::lanes::{Residues, Small};
use super::super::{elements, vector};
use super::checked::Checked;
use super::*;

/// What the tests call of a twin.
struct Kernels {
    name: String,
    forward: Box<dyn Fn(&mut [u64])>,
    forward_small: Box<dyn Fn(&[i32], &mut [u64])>,
    inverse: Box<dyn Fn(&mut [u64])>,
    multiply: Box<dyn Fn(&mut [u64], &[u64])>,
    scale: Box<dyn Fn(&mut [u64], u64)>,
    add_products: Box<dyn Fn(&[(&[u64], &[u64])], &mut [u64])>,
    residues: Box<dyn Fn(&[i64], &mut [u64])>,
    residues_wide: Box<dyn Fn(&[i128], &mut [u64])>,
}

impl Kernels {
    fn of(isa: Isa, degree: usize, prime: u64) -> Self {
        let ntt = std::rc::Rc::new(Ntt { degree, prime, twin: Twin::new(isa, degree, prime) });
        macro_rules! call {
            ($name:ident($($argument:ident),*)) => {{
                let ntt = ntt.clone();
                Box::new(move |$($argument),*| ntt.$name($($argument),*))
            }};
        }
        Kernels {
            name: format!("{isa:?}"),
            forward: call!(forward(values)),
            forward_small: call!(forward_small(small, out)),
            inverse: call!(inverse(values)),
            multiply: call!(multiply(a, b)),
            scale: call!(scale(a, factor)),
            add_products: call!(add_products(pairs, sum)),
            residues: call!(residues(values, out)),
            residues_wide: call!(residues(values, out)),
        }
    }

    /// The generic code on [`Checked`], for degrees that it takes; all lengths are whole vectors there.
    fn checked<const N: usize>(degree: usize, prime: u64) -> Option<Self> {
        let tables = std::rc::Rc::new(vector::Tables::new::<Checked<N>>(degree, prime)?);
        let [forward, small, inverse] = [0; 3].map(|_| tables.clone());
        let powers = portable::Residue::<i64>::new(prime).powers;
        // SAFETY: the vectors need no instruction set; slices are as long as the degree, which is whole vectors.
        unsafe {
            Some(Kernels {
                name: format!("{N} checked lanes"),
                forward: Box::new(move |values| {
                    vector::forward::<Checked<N>>(&forward, Residues(values.as_ptr()), values);
                }),
                forward_small: Box::new(move |values, out| {
                    vector::forward::<Checked<N>>(&small, Small(values.as_ptr()), out);
                }),
                inverse: Box::new(move |values| vector::inverse::<Checked<N>>(&inverse, values)),
                multiply: Box::new(move |a, b| assert_eq!(elements::multiply::<Checked<N>>(prime, a, b), degree)),
                scale: Box::new(move |a, factor| assert_eq!(elements::scale::<Checked<N>>(prime, a, factor), degree)),
                add_products: Box::new(move |pairs, sum| {
                    assert_eq!(elements::add_products::<Checked<N>>(prime, pairs, sum), degree);
                }),
                residues: Box::new(move |values, out| {
                    assert_eq!(elements::residues::<Checked<N>, _>(prime, powers, values, out), degree);
                }),
                residues_wide: Box::new(move |values, out| {
                    assert_eq!(elements::residues::<Checked<N>, _>(prime, powers, values, out), degree);
                }),
            })
        }
    }
}

/// Words of a fixed sequence.
struct Words(u64);

impl Words {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// Residues: random ones, the largest, the largest and 0 in turn or at random, or those around q/2.
    fn residues(&mut self, len: usize, prime: u64, kind: u8) -> Vec<u64> {
        let residue = |index| match kind {
            0 => self.next() % prime,
            1 => prime - 1,
            2 => (index as u64 % 2) * (prime - 1),
            3 => (self.next() >> 63) * (prime - 1),
            _ => prime / 2 + (self.next() >> 63),
        };
        (0..len).map(residue).collect()
    }
}

/// Compares all kernels on data of one kind.
fn compare(degree: usize, prime: u64, twins: &[Kernels], seed: u64, kind: u8) {
    let due = Kernels::of(Isa::Portable, degree, prime);
    let mut words = Words(seed);
    let [a, b, c] = [0; 3].map(|_| words.residues(degree, prime, kind));
    let small: Vec<i32> = (0..degree)
        .map(|_| match kind {
            0 => words.next() as i32,
            1 => i32::MIN,
            _ => i32::MAX ^ -((words.next() >> 63) as i32),
        })
        .collect();
    let wide: Vec<i128> = (0..degree)
        .map(|_| match kind {
            0 => i128::from(words.next() as i64) << 64 | i128::from(words.next()),
            1 => i128::MIN,
            2 => -1,
            _ => i128::MAX ^ -i128::from(words.next() >> 63),
        })
        .collect();
    let narrow: Vec<i64> = wide.iter().map(|&word| (word >> 64) as i64).collect();
    let pairs = [(&a[..], &b[..]), (&b, &c), (&c, &a), (&a, &a)].repeat(seed as usize % 8);
    let run = |kernels: &Kernels| {
        let [mut forward, mut inverse, mut product, mut scaled, mut sum] = [0; 5].map(|_| a.clone());
        let [mut transformed, mut residues, mut residues_wide] = [0; 3].map(|_| vec![1; degree]);
        (kernels.forward)(&mut forward);
        (kernels.inverse)(&mut inverse);
        (kernels.multiply)(&mut product, &b);
        (kernels.scale)(&mut scaled, b[0]);
        (kernels.add_products)(&pairs, &mut sum);
        (kernels.forward_small)(&small, &mut transformed);
        (kernels.residues)(&narrow, &mut residues);
        (kernels.residues_wide)(&wide, &mut residues_wide);
        [forward, inverse, product, scaled, sum, transformed, residues, residues_wide]
    };
    let due = run(&due);
    let names =
        ["forward", "inverse", "multiply", "scale", "add_products", "forward_small", "residues", "residues of i128"];
    for twin in twins {
        for ((name, due), got) in names.iter().zip(&due).zip(run(twin)) {
            assert!(*due == got, "{name} of {degree} modulo {prime}, kind {kind}, {}", twin.name);
        }
    }
}

/// The twins of this processor.
fn twins(degree: usize, prime: u64) -> Vec<Kernels> {
    let isas = [Isa::Avx2, Isa::Avx512].into_iter().filter(|&isa| isa <= dispatch::best());
    isas.map(|isa| Kernels::of(isa, degree, prime)).collect()
}

#[test]
fn twins_agree_at_extremes() {
    for log in 1..=14 {
        for bits in [20, 36, 49, 50] {
            for prime in primes(bits, 1 << log, 1) {
                let twins = twins(1 << log, prime);
                (0..5).for_each(|kind| compare(1 << log, prime, &twins, 7, kind));
            }
        }
    }
}

#[test]
fn every_intermediate_is_exact() {
    for log in 5..=13 {
        for bits in [20, 50] {
            for prime in primes(bits, 1 << log, 1) {
                let checked = [Kernels::checked::<4>(1 << log, prime), Kernels::checked::<8>(1 << log, prime)];
                let checked: Vec<Kernels> = checked.into_iter().flatten().collect();
                (0..5).for_each(|kind| compare(1 << log, prime, &checked, 5, kind));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn twins_agree(log in 1_u32..=14, bits in prop::sample::select(vec![20, 36, 49, 50]), seed: u64, kind in 0_u8..5) {
        let primes = primes(bits, 1 << log, 3);
        if let Some(&prime) = primes.get(seed as usize % 3) {
            compare(1 << log, prime, &twins(1 << log, prime), seed, kind);
        }
    }
}
