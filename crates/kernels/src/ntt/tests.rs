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
