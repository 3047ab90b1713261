//! Number-theoretic transforms and products of evaluations, one thread.

use std::hint::black_box;
use std::time::Duration;

use super::{Row, fastest};
use crate::Prg;
use crate::ntt::{Ntt, primes};

/// Time for one figure.
const BUDGET: Duration = Duration::from_millis(40);
/// Products that are summed.
const PAIRS: usize = 16;

/// Every figure of this file.
pub fn rows() -> Vec<Row> {
    [4096, 8192].into_iter().flat_map(of_degree).collect()
}

fn of_degree(degree: usize) -> Vec<Row> {
    let Some(ntt) = primes(50, degree, 1).first().and_then(|&prime| Ntt::new(degree, prime)) else { return Vec::new() };
    let mut random = vec![0; (2 * PAIRS + 1) * degree];
    Prg::new(&[3; 16]).fill_words(0, &mut random); // public constant: what is measured is no secret
    let small: Vec<i32> = random[..degree].iter().map(|&word| word as i32).collect();
    let wide: Vec<i64> = random[..degree].iter().map(|&word| word as i64).collect();
    let words = random.clone();
    ntt.residues(&words, &mut random);
    let (sum, factors) = random.split_at_mut(degree);
    let vectors: Vec<&[u64]> = factors.chunks_exact(degree).collect();
    let pairs: Vec<(&[u64], &[u64])> = vectors.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
    let mut rows = Vec::new();
    let mut time = |name: &str, count: usize, call: &mut dyn FnMut()| {
        let name = format!("{name}, N = {degree}");
        rows.push(Row::new(name, "us", fastest(BUDGET, call) * 1e6 / count as f64));
    };
    time("transform", 1, &mut || ntt.forward(black_box(sum)));
    time("transform of i32", 1, &mut || ntt.forward_small(black_box(&small), sum));
    time("inverse transform", 1, &mut || ntt.inverse(black_box(sum)));
    time("product of evaluations", 1, &mut || ntt.multiply(black_box(sum), pairs[0].0));
    time("products summed, each", PAIRS, &mut || ntt.add_products(black_box(&pairs), sum));
    time("residues of i64", 1, &mut || ntt.residues(black_box(&wide), sum));
    rows
}
