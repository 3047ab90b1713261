//! Generator, transposes, packing, planes and element-wise kernels on buffers of a tile, which stay in the second-level cache.

use std::hint::black_box;
use std::time::Duration;

use covey_ring::{Ring, Word};

use super::{Row, fastest};
use crate::{Prg, bits, compress, elementwise, packing};

/// Elements of a tile.
const TILE: usize = 1 << 14;
/// Time for one figure.
const BUDGET: Duration = Duration::from_millis(40);
/// Calls in one timed run.
const CALLS: usize = 16;

/// Every figure of this file.
pub fn rows() -> Vec<Row> {
    let mut rows = generator();
    rows.extend(planes());
    rows.extend(of_words::<u32>());
    rows.extend(of_words::<u64>());
    rows
}

/// Billions of `amount` a second: `amount` is what one call does.
fn rate(name: impl Into<String>, unit: &'static str, amount: usize, mut call: impl FnMut()) -> Row {
    let seconds = fastest(BUDGET, || (0..CALLS).for_each(|_| call()));
    Row::new(name, unit, (amount * CALLS) as f64 / seconds / 1e9)
}

fn words<W: Word>(len: usize) -> Vec<W> {
    let mut out = vec![W::ZERO; len];
    Prg::new(&[1; 16]).fill_words(len as u64, &mut out); // public constant: what is measured is no secret
    out
}

fn generator() -> Vec<Row> {
    let prg = Prg::new(&[7; 16]); // public constant: what is measured is no secret
    let mut buffer = vec![0u8; 1 << 16];
    let fill = |len: usize, buffer: &mut [u8]| {
        rate(format!("AES-128-CTR, {len} B"), "GB/s", len, || prg.fill(3, 0, black_box(&mut buffer[..len])))
    };
    let mut rows: Vec<Row> = [1 << 16, 1 << 11, 64].map(|len| fill(len, &mut buffer)).into();
    let mut words = words::<u32>(TILE);
    let (key, mut hashed) =
        (self::words::<u64>(compress::KEY), vec![0; buffer.len() / compress::BLOCK * compress::HASHED]);
    rows.push(rate("universal hash", "GB/s", buffer.len(), || {
        compress::compress(&mut hashed, black_box(&buffer), &key);
    }));
    rows.push(rate("AES-128-CTR added to u32", "GB/s", 4 * TILE, || prg.add_words(3, 0, black_box(&mut words))));
    rows
}

fn planes() -> Vec<Row> {
    let [a, b] = [0; 2].map(|_| words::<u64>(TILE / 64));
    let mut out = words::<u64>(TILE / 64);
    let bytes = size_of_val(&out[..]);
    vec![
        rate("plane xor_assign", "GB/s", bytes, || bits::xor_assign(black_box(&mut out), &a)),
        rate("plane and_xor_assign", "GB/s", bytes, || bits::and_xor_assign(black_box(&mut out), &a, &b)),
    ]
}

fn of_words<W: Word>() -> Vec<Row> {
    let width = W::BITS as usize;
    let values = words::<W>(TILE);
    let (other, mut out) = (words::<W>(TILE), words::<W>(TILE));
    let mut planes = words::<u64>(TILE / 64 * width);
    let mut rows = Vec::new();
    for count in [width, width - width / 4, width / 3] {
        let planes = &mut planes[..TILE / 64 * count];
        let bits = TILE * count;
        rows.push(rate(format!("u{width} to {count} planes"), "Gbit/s", bits, || {
            bits::to_planes(black_box(&values), count, planes);
        }));
        rows.push(rate(format!("u{width} from {count} planes"), "Gbit/s", bits, || {
            bits::from_planes(black_box(planes), count, &mut out);
        }));
    }
    let mut packed = Vec::new();
    for bits in [10, 22, 28, 32, 44].into_iter().filter(|&bits| bits <= W::BITS) {
        let (ring, len) = (Ring::Pow2(bits), TILE * bits as usize / 8);
        rows.push(rate(format!("u{width} packed to {bits} bits"), "GB/s", len, || {
            packed.clear();
            packing::pack_words(black_box(&values), ring, &mut packed);
        }));
        rows.push(rate(format!("u{width} unpacked from {bits} bits"), "GB/s", len, || {
            packing::unpack_words_into(black_box(&packed), ring, &mut out);
        }));
    }
    let plane = words::<u64>(TILE / 64);
    let bytes = size_of_val(&out[..]);
    type Kernel<'a, W> = (&'static str, Box<dyn Fn(&mut [W]) + 'a>);
    let kernels: [Kernel<W>; 4] = [
        ("add", Box::new(|out| elementwise::add(out, &values, &other))),
        ("add_assign", Box::new(|out| elementwise::add_assign(out, &values))),
        ("mul", Box::new(|out| elementwise::mul(out, &values, &other))),
        ("expand_bits", Box::new(|out| bits::expand_bits(&plane, out))),
    ];
    for (name, kernel) in kernels {
        rows.push(rate(format!("u{width} {name}"), "GB/s", bytes, || kernel(black_box(&mut out))));
    }
    rows
}
