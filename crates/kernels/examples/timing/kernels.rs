//! The kernels that run on secrets, each with a few kilobytes of one.

use std::hint::black_box;

use covey_kernels::dispatch::{Aes, Isa};
use covey_kernels::hash::tree::{TreeHash, add_to_pair};
use covey_kernels::hash::{HashKey, Output, hash, hash_pair};
use covey_kernels::{Block, Chunk, ConvGeometry, LinearWeight, Part, Positions, Prg};
use covey_kernels::{bits, compress, conv2d, elementwise, gemm, lowest_bits, lpn, packing};
use covey_ring::{Ring, Word, wire};

use crate::measure::time;

/// A kernel, or a few that are alike one after the other.
pub struct Kernel {
    pub name: &'static str,
    pub paths: &'static [Path],
    /// Measured so many times less often than others: it takes longer.
    pub rarely: usize,
    /// With the instruction set in use at the time.
    pub prepare: fn() -> Prepared,
}

/// What a run of measurements calls.
pub struct Prepared {
    /// Of the secret.
    pub words: usize,
    pub run: Box<Call>,
}

/// The time of one call on a secret, which it may overwrite.
pub type Call = dyn FnMut(&mut [u64]) -> u64;

/// What a kernel has code of its own for.
#[derive(Clone, Copy)]
pub enum Path {
    Isa(Isa),
    /// The portable one is the crate `aes`, which chooses for itself.
    Aes(Aes),
}

const PORTABLE_PATH: Path = Path::Isa(Isa::Portable);
const AVX2: Path = Path::Isa(Isa::Avx2);
const AVX512: Path = Path::Isa(Isa::Avx512);
const AMX: Path = Path::Isa(Isa::Amx);

const AES: &[Path] =
    &[Path::Aes(Aes::Portable), Path::Aes(Aes::AesNi), Path::Aes(Aes::Vaes256), Path::Aes(Aes::Vaes512)];
pub const PORTABLE: &[Path] = &[PORTABLE_PATH];
const WIDE: &[Path] = &[PORTABLE_PATH, AVX512];
const VECTORS: &[Path] = &[PORTABLE_PATH, AVX2, AVX512];
const TILES: &[Path] = &[PORTABLE_PATH, AVX2, AVX512, AMX];
const ONLY_TILES: &[Path] = &[AMX];

macro_rules! kernels {
    ($($name:literal $paths:expr, $prepare:expr $(, $rarely:literal times less)?;)*) => {
        vec![$(Kernel { name: $name, paths: $paths, prepare: || $prepare, rarely: 1 $( * $rarely)? },)*]
    };
}

/// All of them.
#[rustfmt::skip]
pub fn all() -> Vec<Kernel> {
    kernels! {
        "prg fill" AES, prg_fill();
        "prg add u32" AES, prg_combine(Prg::add_words::<u32>);
        "prg add u64" AES, prg_combine(Prg::add_words::<u64>);
        "prg sub u32" AES, prg_combine(Prg::sub_words::<u32>);
        "prg sub u64" AES, prg_combine(Prg::sub_words::<u64>);
        "hash u32" AES, hash_of::<u32>();
        "hash u64" AES, hash_of::<u64>();
        "hash block" AES, hash_of::<Block>();
        "hash pair u32" AES, hash_pair_of::<u32>();
        "hash pair u64" AES, hash_pair_of::<u64>();
        "hash pair block" AES, hash_pair_of::<Block>();
        "tree double" AES, tree_double();
        "tree add to pair" VECTORS, tree_add_to_pair();
        "lpn encode" PORTABLE, lpn_encode(), 4 times less;
        "universal hash" VECTORS, universal_hash();
        "lowest bits" VECTORS, lowest_bits_of_blocks();
        "to planes u32" VECTORS, to_planes::<u32>();
        "to planes u64" VECTORS, to_planes::<u64>();
        "from planes u32" VECTORS, from_planes::<u32>();
        "from planes u64" VECTORS, from_planes::<u64>();
        "pack bits u32" VECTORS, pack_bits::<u32>();
        "pack bits u64" VECTORS, pack_bits::<u64>();
        "expand bits u32" VECTORS, expand_bits::<u32>();
        "expand bits u64" VECTORS, expand_bits::<u64>();
        "gates on planes" VECTORS, gates();
        "pack 20 bits u32" WIDE, pack::<u32>(Ring::Pow2(20));
        "pack 41 bits u64" WIDE, pack::<u64>(Ring::Pow2(41));
        "pack Z_n u64" PORTABLE, pack::<u64>(ODD);
        "unpack 20 bits u32" WIDE, unpack::<u32>(Ring::Pow2(20));
        "unpack 41 bits u64" WIDE, unpack::<u64>(Ring::Pow2(41));
        "unpack Z_n u64" PORTABLE, unpack::<u64>(ODD);
        "sums u32" VECTORS, sums::<u32>();
        "sums u64" VECTORS, sums::<u64>();
        "products u32" VECTORS, products::<u32>();
        "products u64" VECTORS, products::<u64>();
        "shifts u32" VECTORS, shifts::<u32>();
        "shifts u64" VECTORS, shifts::<u64>();
        "gather u32" VECTORS, gather::<u32>();
        "gather u64" VECTORS, gather::<u64>();
        "gemm blocked u32" TILES, product::<u32>(7, 20, 33);
        "gemm blocked u64" TILES, product::<u64>(7, 20, 33);
        "gemm few rows u32" VECTORS, product::<u32>(3, 40, 33);
        "gemm few rows u64" VECTORS, product::<u64>(3, 40, 33);
        "gemm few columns u32" VECTORS, product::<u32>(9, 5, 70);
        "gemm few columns u64" VECTORS, product::<u64>(9, 5, 70);
        "conv2d u32" VECTORS, convolution::<u32>(1), 4 times less;
        "conv2d u64" VECTORS, convolution::<u64>(1), 4 times less;
        "conv2d depthwise u32" VECTORS, convolution::<u32>(4);
        "conv2d depthwise u64" VECTORS, convolution::<u64>(4);
        "conv2d packed u32" TILES, packed_convolution::<u32>(&square(4, 6, 5, 1)), 4 times less;
        "conv2d packed u64" TILES, packed_convolution::<u64>(&square(4, 6, 5, 1)), 4 times less;
        "conv2d in tiles u32" ONLY_TILES, packed_convolution::<u32>(&square(64, 128, 18, 1)), 100 times less;
        "conv2d in tiles u64" ONLY_TILES, packed_convolution::<u64>(&square(64, 128, 18, 1)), 100 times less;
        "combine outputs u32" TILES, combine_outputs::<u32>(), 4 times less;
        "combine outputs u64" TILES, combine_outputs::<u64>(), 4 times less;
        "combine inputs u32" TILES, combine_inputs::<u32>(), 20 times less;
        "combine inputs u64" TILES, combine_inputs::<u64>(), 20 times less;
    }
}

/// Finds what the test has to find: a comparison that ends at the first word that differs.
pub fn leaky() -> Kernel {
    Kernel { name: "early-exit comparison", paths: PORTABLE, rarely: 10, prepare: early_exit }
}

/// Finds what the test must not find: additions that do not read the secret.
pub fn blind() -> Kernel {
    Kernel { name: "secret not read", paths: PORTABLE, rarely: 1, prepare: unread }
}

fn unread() -> Prepared {
    let mut public = vec![7u64; 3 * WORDS];
    prepared::<u64>(3 * WORDS, move |secret| {
        black_box(secret);
        let (out, inputs) = public.split_at_mut(WORDS);
        let (a, b) = inputs.split_at(WORDS);
        time(|| all_sums(out, a, b))
    })
}

fn early_exit() -> Prepared {
    let expected = vec![0; 256];
    prepared::<u64>(256, move |secret| {
        let secret = &*secret;
        time(|| secret.iter().zip(&expected).all(|(a, b)| black_box(a) == b))
    })
}

const ODD: Ring = Ring::Odd(2_198_100_901_889);

/// A kernel on `len` secret words, padded to whole ones of 64 bits.
fn prepared<T: Element>(len: usize, mut run: impl FnMut(&mut [T]) -> u64 + 'static) -> Prepared {
    let run = move |secret: &mut [u64]| run(&mut elements(secret)[..len]);
    Prepared { words: (len * size_of::<T>()).div_ceil(8), run: Box::new(run) }
}

/// What secrets are read as.
///
/// # Safety
/// Every bit pattern is valid, and there is no padding.
unsafe trait Element: 'static {}
// SAFETY: an integer.
unsafe impl Element for u8 {}
// SAFETY: an integer.
unsafe impl Element for u32 {}
// SAFETY: an integer.
unsafe impl Element for u64 {}
// SAFETY: a transparent u128.
unsafe impl Element for Block {}

fn elements<T: Element>(words: &mut [u64]) -> &mut [T] {
    // SAFETY: as `Element` promises, both ways.
    let (before, elements, _) = unsafe { words.align_to_mut() };
    assert!(before.is_empty(), "secrets are aligned to cache lines");
    elements
}

/// The first block, as the key or the difference that it stands for, and what follows.
fn first(blocks: &mut [Block]) -> (Block, &mut [Block]) {
    let (first, rest) = blocks.split_first_mut().expect("a secret");
    (*first, rest)
}

fn prg_fill() -> Prepared {
    let mut out = vec![0; 2000];
    prepared::<u8>(16, move |key| {
        let key: &[u8; 16] = (&*key).try_into().expect("16 bytes");
        time(|| Prg::new(key).fill(1, 0, &mut out))
    })
}

fn prg_combine<W: Word + Element>(combine: fn(&Prg, u64, u64, &mut [W])) -> Prepared {
    prepared::<Block>(101, move |secret| {
        let (key, out) = first(secret);
        // SAFETY: blocks are as much plain memory as words are.
        let out = unsafe { out.align_to_mut().1 };
        time(|| combine(&Prg::new(&key.to_bytes()), 1, 0, out))
    })
}

const KEY: HashKey = HashKey(0x0123_4567_89AB_CDEF_0F1E_2D3C_4B5A_6978);

/// Whole groups of 32 and parts of one at either end.
fn hash_of<O: Output + 'static>() -> Prepared {
    let mut out = vec![O::ZERO; 70];
    prepared::<Block>(70, move |blocks| time(|| hash(KEY, 0, 30, blocks, &mut out)))
}

fn hash_pair_of<O: Output + 'static>() -> Prepared {
    let (mut zero, mut one) = (vec![O::ZERO; 70], vec![O::ZERO; 70]);
    prepared::<Block>(71, move |secret| {
        let (delta, blocks) = first(secret);
        time(|| hash_pair(KEY, 0, 30, blocks, delta, &mut zero, &mut one))
    })
}

fn tree_double() -> Prepared {
    let tree = TreeHash::new(KEY.0);
    prepared::<Block>(2 * 72, move |nodes| time(|| tree.double(nodes)))
}

/// Which pair is secret too.
fn tree_add_to_pair() -> Prepared {
    prepared::<Block>(256 + 3, move |secret| {
        let (pair, secret) = first(secret);
        let (values, nodes) = secret.split_at_mut(2);
        let pair = pair.low() as usize % (nodes.len() / 2);
        time(|| add_to_pair(nodes, pair, [values[0], values[1]], true))
    })
}

/// Matrix and rows are public.
fn lpn_encode() -> Prepared {
    let matrix = Prg::new(&KEY.0.to_le_bytes());
    let mut out = Vec::with_capacity(64);
    prepared::<Block>(256 + 64, move |secret| {
        let (secret, noise) = secret.split_at(256);
        let secret = lpn::Secret::new(secret);
        out.clear();
        time(|| lpn::encode(&matrix, 0, &secret, noise, &mut out))
    })
}

fn universal_hash() -> Prepared {
    let (blocks, mut out) = (3, [0; 3 * compress::HASHED]);
    prepared::<u64>(compress::KEY + blocks * compress::BLOCK / 8, move |secret| {
        let (key, message) = secret.split_at_mut(compress::KEY);
        let message = elements::<u8>(message);
        time(|| compress::compress(&mut out, message, key))
    })
}

fn lowest_bits_of_blocks() -> Prepared {
    let mut plane = vec![0; 5];
    prepared::<Block>(300, move |blocks| time(|| lowest_bits(&mut plane, blocks)))
}

/// Elements of bit planes: a whole group of 512, and part of one.
const PLANE: usize = 600;

fn to_planes<W: Word + Element>() -> Prepared {
    let mut out = vec![0; W::BITS as usize * PLANE.div_ceil(64)];
    prepared::<W>(PLANE, move |values| time(|| bits::to_planes(values, W::BITS as usize, &mut out)))
}

fn from_planes<W: Word + Element>() -> Prepared {
    let mut out = vec![W::ZERO; PLANE];
    let words = W::BITS as usize * PLANE.div_ceil(64);
    prepared::<u64>(words, move |words| time(|| bits::from_planes(words, W::BITS as usize, &mut out)))
}

fn pack_bits<W: Word + Element>() -> Prepared {
    let mut plane = vec![0; PLANE.div_ceil(64)];
    prepared::<W>(PLANE, move |values| time(|| bits::pack_bits(values, &mut plane)))
}

fn expand_bits<W: Word + Element>() -> Prepared {
    let mut out = vec![W::ZERO; PLANE];
    prepared::<u64>(PLANE.div_ceil(64), move |plane| time(|| bits::expand_bits(plane, &mut out)))
}

fn gates() -> Prepared {
    prepared::<u64>(3 * 150, move |secret| {
        let (out, inputs) = secret.split_at_mut(150);
        let (a, b) = inputs.split_at(150);
        time(|| {
            bits::and_xor_assign(out, a, b);
            bits::not_assign(out);
            bits::xor_assign(out, a);
            black_box(&mut *out);
            bits::xor(out, a, b);
            black_box(&mut *out);
            bits::and(out, a, b);
        })
    })
}

/// Elements on the wire: whole groups of eight, and part of one.
const PACKED: usize = 205;

fn pack<W: Word + Element>(ring: Ring) -> Prepared {
    let mut out = vec![0; wire::words_len(PACKED, ring)];
    prepared::<W>(PACKED, move |values| time(|| packing::pack_words_into(values, ring, &mut out)))
}

fn unpack<W: Word + Element>(ring: Ring) -> Prepared {
    let mut out = vec![W::ZERO; PACKED];
    let len = wire::words_len(PACKED, ring);
    prepared::<u8>(len, move |packed| time(|| packing::unpack_words_into(packed, ring, &mut out)))
}

/// Words of each operand of element-wise kernels.
const WORDS: usize = 250;

/// `kernels` on an output that is an input too, and two inputs.
fn by_elements<W: Word + Element>(kernels: fn(&mut [W], &[W], &[W])) -> Prepared {
    prepared::<W>(3 * WORDS, move |secret| {
        let (out, inputs) = secret.split_at_mut(WORDS);
        let (a, b) = inputs.split_at(WORDS);
        time(|| kernels(out, a, b))
    })
}

fn sums<W: Word + Element>() -> Prepared {
    by_elements::<W>(all_sums)
}

fn all_sums<W: Word>(out: &mut [W], a: &[W], b: &[W]) {
    elementwise::add_assign(out, a);
    elementwise::sub_assign(out, b);
    elementwise::sub_from_assign(out, a);
    elementwise::neg_assign(out);
    black_box(&mut *out);
    elementwise::add(out, a, b);
    black_box(&mut *out);
    elementwise::sub(out, a, b);
}

fn products<W: Word + Element>() -> Prepared {
    by_elements::<W>(elementwise::mul)
}

fn shifts<W: Word + Element>() -> Prepared {
    by_elements::<W>(|out, _, _| {
        elementwise::shr_assign(out, 5);
        elementwise::shl_assign(out, 7);
    })
}

/// Indices are public, one in eight of nothing.
fn gather<W: Word + Element>() -> Prepared {
    let index = |at: u32| if at % 8 == 5 { u32::MAX } else { at * 77 % WORDS as u32 };
    let indices: Vec<u32> = (0..WORDS as u32).map(index).collect();
    let mut out = vec![W::ZERO; WORDS];
    prepared::<W>(WORDS, move |x| time(|| elementwise::gather(&mut out, x, &indices)))
}

fn product<W: Word + Element>(m: usize, n: usize, k: usize) -> Prepared {
    prepared::<W>(m * k + k * n + m * n, move |secret| {
        let (a, secret) = secret.split_at_mut(m * k);
        let (b, c) = secret.split_at_mut(k * n);
        time(|| gemm(m, n, k, a, b, c))
    })
}

/// Inputs, kernels of 3 × 3, no steps.
fn square(inputs: usize, outputs: usize, side: usize, groups: usize) -> ConvGeometry {
    let geometry = ConvGeometry {
        in_channels: inputs,
        out_channels: outputs,
        groups,
        input: [side; 2],
        kernel: [3; 2],
        strides: [1; 2],
        pads: [1; 4],
        dilations: [1; 2],
    };
    geometry.checked().expect("sizes that fit")
}

fn convolution<W: Word + Element>(groups: usize) -> Prepared {
    let geometry = square(4, 8, 5, groups);
    let [x, w, out] = [geometry.input_len(), geometry.weights_len(), geometry.output_len()];
    prepared::<W>(x + w + out, move |secret| {
        let (x, secret) = secret.split_at_mut(x);
        let (w, out) = secret.split_at_mut(w);
        time(|| conv2d(&geometry, 1, x, w, out))
    })
}

/// Weights are packed and multiplied.
fn packed_convolution<W: Word + Element>(geometry: &ConvGeometry) -> Prepared {
    let geometry = *geometry;
    let chunks = Chunk::of_conv2d(&geometry, 1, 1 << 18);
    let [chunk] = <[Chunk; 1]>::try_from(chunks.to_vec()).expect("one chunk");
    let mut out = vec![W::ZERO; chunk.len()];
    prepared::<W>(geometry.input_len() + geometry.weights_len(), move |secret| {
        let (x, weights) = secret.split_at(geometry.input_len());
        let parts = vec![Part::Words(weights.to_vec())];
        time(|| {
            let weight = LinearWeight::conv2d(&geometry, parts);
            weight.product(1, &[x], &chunk, &mut out);
            weight
        })
    })
}

/// Combinations of a small convolution, which are secret until the other side has answered, and a secret tensor of `len` words.
fn combinations<W: Word + Element>(
    len: fn(&ConvGeometry) -> usize,
    mut run: impl FnMut(&Positions, &[W]) -> u64 + 'static,
) -> Prepared {
    let geometry = square(2, 2, 5, 1);
    let bytes = Positions::drawn(&geometry, 1).next_multiple_of(8);
    let len = len(&geometry);
    prepared::<u64>(bytes / 8 + (len * W::BYTES).div_ceil(8), move |secret| {
        let (bytes, tensor) = secret.split_at_mut(bytes / 8);
        let positions = Positions::new(&geometry, 1, |words| words.copy_from_slice(&elements(bytes)[..words.len()]));
        run(&positions, &elements(tensor)[..len])
    })
}

fn combine_outputs<W: Word + Element>() -> Prepared {
    let [chunk] =
        <[Chunk; 1]>::try_from(Chunk::of_conv2d(&square(2, 2, 5, 1), 1, 1 << 18).to_vec()).expect("one chunk");
    let mut out = vec![W::ZERO; 2 * Positions::COUNT];
    combinations::<W>(ConvGeometry::output_len, move |positions, words| {
        time(|| positions.add_outputs(&chunk, words, &mut out))
    })
}

fn combine_inputs<W: Word + Element>() -> Prepared {
    combinations::<W>(ConvGeometry::input_len, |positions, x| time(|| positions.of_inputs(x)))
}
