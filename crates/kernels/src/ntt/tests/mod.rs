//! Twins against the portable transforms, those against products as in school, residues against division.

#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
mod checked;
#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
mod twins;

use super::*;

/// Modulo X^N + 1, as in school.
fn product(a: &[u64], b: &[u64], q: u64) -> Vec<u64> {
    let degree = a.len();
    let mut out = vec![0; degree];
    for (i, &a) in a.iter().enumerate() {
        for (j, &b) in b.iter().enumerate() {
            let term = portable::multiply(a, b, q);
            let at = &mut out[(i + j) % degree];
            *at = portable::add(*at, if i + j < degree { term } else { (q - term) % q }, q);
        }
    }
    out
}

#[test]
fn products_are_those_modulo_the_polynomial() {
    for (degree, bits) in [(2, 20), (16, 20), (64, 36), (256, 50)] {
        for prime in primes(bits, degree, 3) {
            let ntt = Ntt::new(degree, prime).unwrap();
            let mut state = prime;
            let mut draw = || {
                state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                (state >> 13) % prime
            };
            let mut polynomial = |end| (0..degree).map(|_| if end { prime - 1 } else { draw() }).collect::<Vec<_>>();
            for (a, b) in [(polynomial(false), polynomial(false)), (polynomial(true), polynomial(true))] {
                let due = product(&a, &b, prime);
                let (mut x, mut y) = (a.clone(), b);
                ntt.forward(&mut x);
                ntt.forward(&mut y);
                let mut sum = vec![0; degree];
                ntt.add_products(&[(&x, &y)], &mut sum);
                ntt.multiply(&mut y, &x);
                assert_eq!(sum, y);
                ntt.inverse(&mut y);
                assert_eq!(y, due);
                ntt.inverse(&mut x);
                assert_eq!(x, a);
            }
        }
    }
}

#[test]
fn primes_are_found_and_others_refused() {
    assert_eq!(primes(50, 4096, 2).len(), 2);
    for prime in primes(36, 8192, 4) {
        assert!((2..1 << 18).all(|divisor| prime % divisor != 0) && prime % 16384 == 1);
    }
    let [prime] = primes(30, 64, 1)[..] else { panic!("one was asked for") };
    assert!(Ntt::new(64, prime).is_some());
    assert!(Ntt::new(63, prime).is_none());
    assert!(Ntt::new(1 << 40, prime).is_none());
    assert!(Ntt::new(64, prime + 128).is_none() || is_prime(prime + 128));
    assert!(Ntt::new(64, (1 << 50) + 1).is_none());
}

#[test]
fn small_coefficients_are_transformed_as_their_residues() {
    for (degree, bits) in [(8, 20), (64, 20), (64, 36), (256, 50)] {
        let ntt = Ntt::new(degree, primes(bits, degree, 1)[0]).unwrap();
        let small: Vec<i32> = (0..degree).map(|i| [i32::MIN, -1, 0, i32::MAX, 5][i % 5]).collect();
        let mut due: Vec<u64> = small.iter().map(|&v| i64::from(v).rem_euclid(ntt.prime() as i64) as u64).collect();
        ntt.forward(&mut due);
        let mut out = vec![7; degree];
        ntt.forward_small(&small, &mut out);
        assert_eq!(out, due);
    }
    for (degree, few) in [(64, 5), (1024, 0), (1024, 16), (4096, 64), (4096, 127), (4096, 129), (8192, 32)] {
        let ntt = Ntt::new(degree, primes(50, degree, 1)[0]).unwrap();
        let mut small: Vec<i32> = (0..degree).map(|i| [i32::MIN, -1, 7, i32::MAX, 5][i % 5]).collect();
        small[few..].fill(0);
        let [mut due, mut out] = [(); 2].map(|()| vec![7; degree]);
        ntt.forward_small(&small, &mut due);
        ntt.forward_small(&small[..few], &mut out);
        assert_eq!(out, due, "{few} coefficients of {degree}");
    }
}

#[test]
fn residues_are_those_of_division() {
    for (degree, bits) in [(8, 20), (64, 20), (64, 36), (256, 50)] {
        let ntt = Ntt::new(degree, primes(bits, degree, 1)[0]).unwrap();
        let q = i128::from(ntt.prime());
        let words: Vec<u64> = (0..50_u64)
            .map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15))
            .chain([0, 1, u64::MAX, 1 << 63, (1 << 63) - 1, 1 << 32, u64::MAX << 32, ntt.prime(), ntt.prime() - 1])
            .collect();
        let signed: Vec<i64> = words.iter().map(|&word| word as i64).collect();
        let wide: Vec<u128> = words
            .iter()
            .flat_map(|&high| [0, u64::MAX, high].map(|low| u128::from(high) << 64 | u128::from(low)))
            .collect();
        let signed_wide: Vec<i128> = wide.iter().map(|&word| word as i128).collect();
        let mut out = vec![0; words.len()];
        ntt.residues(&words, &mut out);
        assert!(out.iter().zip(&words).all(|(&out, &word)| u128::from(out) == u128::from(word) % q as u128));
        ntt.residues(&signed, &mut out);
        assert!(out.iter().zip(&signed).all(|(&out, &word)| i128::from(out) == i128::from(word).rem_euclid(q)));
        let mut out = vec![0; wide.len()];
        ntt.residues(&wide, &mut out);
        assert!(out.iter().zip(&wide).all(|(&out, &word)| u128::from(out) == word % q as u128));
        ntt.residues(&signed_wide, &mut out);
        assert!(out.iter().zip(&signed_wide).all(|(&out, &word)| i128::from(out) == word.rem_euclid(q)));
    }
}
