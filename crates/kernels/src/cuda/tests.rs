//! What needs no device: the layout of the kernels' parameters, the moduli, where pieces lie, and sets of chunks. The kernels themselves run
//! in python/tests/test_gpu_kernels.py.

use std::mem::{offset_of, size_of};

use proptest::prelude::*;

use super::build::SOURCE;
use super::launch::{
    Channels, Drawn, MOST_PARTS, MOST_RESIDUES, Map, Piece, Plain, Recombined, Residues, Rows, pieces,
};
use super::moduli::{LONGEST, MODULI, Recombination, residues, residues_of_words};
use super::running::{SET, sets};
use super::weight::{matrix_pieces, patch_pieces};
use crate::ConvGeometry;
use crate::linear::Chunk;

/// The fields of a structure as C lays them out, with their offsets, and its size.
fn laid_out(name: &str) -> (Vec<(String, usize)>, usize) {
    let start = SOURCE.find(&format!("struct {name} {{")).expect("the kernels declare it");
    let body = &SOURCE[start..start + SOURCE[start..].find("};").expect("its end")];
    let lines = body.lines().skip(1).map(|line| line.split("//").next().unwrap_or_default().trim());
    let (mut fields, mut at, mut widest) = (Vec::new(), 0usize, 1);
    for declaration in lines.filter(|line| !line.is_empty()) {
        let (of, names) = declaration.trim_start_matches("const ").split_once(' ').expect("a type and names");
        let (size, align) = match of {
            "int" | "u32" => (4, 4),
            "i64" | "u64" => (8, 8),
            "Residues" => (laid_out("Residues").1, 4),
            pointer => {
                assert!(pointer.ends_with('*'), "an unknown type: {pointer}");
                (8, 8)
            }
        };
        for field in names.trim_end_matches(';').split(',') {
            let (field, count) = match field.trim().split_once('[') {
                Some((field, "MOST_RESIDUES]")) => (field, MOST_RESIDUES),
                Some((field, "MOST_PARTS]")) => (field, MOST_PARTS),
                Some(_) => panic!("an unknown length: {field}"),
                None => (field.trim(), 1),
            };
            at = at.next_multiple_of(align);
            fields.push((field.to_owned(), at));
            at += count * size;
            widest = widest.max(align);
        }
    }
    (fields, at.next_multiple_of(widest))
}

/// Compares a structure with what the kernels declare: pairs are a field here and there.
macro_rules! assert_laid_out {
    ($name:ident: $($field:ident = $there:ident),* $(,)?) => {
        let (there, size) = laid_out(stringify!($name));
        let mut named = there.iter().map(|(field, _)| field.as_str());
        $(
            // In their order, so that none is left out; of two that are one array here, the first has a name.
            assert!(named.any(|field| field == stringify!($there)), "{}", stringify!($there));
            let offset = there.iter().find(|(field, _)| field == stringify!($there)).map(|(_, offset)| *offset);
            assert_eq!(Some(offset_of!($name, $field)), offset, "{}.{}", stringify!($name), stringify!($field));
        )*
        assert_eq!(size_of::<$name>(), size, "{}", stringify!($name));
    };
}

#[test]
fn parameters_lie_as_the_kernels_expect() {
    for (name, value) in [("MOST_RESIDUES", MOST_RESIDUES), ("MOST_PARTS", MOST_PARTS)] {
        assert!(SOURCE.contains(&format!("#define {name} {value}\n")), "{name}");
    }
    assert_laid_out!(Piece: down = down, right = right, ahead = ahead, unused = unused);
    assert_laid_out!(Map: a = a, b = b, out = out, pieces = pieces, a_plane = a_plane, b_plane = b_plane,
        out_plane = out_plane, out_row = out_row, rows = rows, columns = columns, count = count, a_row = a_row,
        image = image, place = place, group = group, height = height, width = width, first = first, start = start,
        run = run, across = across, strides = stride_down, pads = pad_top, slices = slices, planes = planes,
        modulus = modulus, reciprocal = reciprocal, offset = offset, factor = factor);
    assert_laid_out!(Residues: modulus = modulus, reciprocal = reciprocal, high = high, sign = sign);
    assert_laid_out!(Channels: words = words, out = out, plane = plane, images = images, places = places,
        groups = groups, channels = channels, image = image, place = place, planes = planes, residues = residues);
    assert_laid_out!(Rows: words = words, out = out, plane = plane, rows = rows, channels = channels,
        elements = elements, row = row, planes = planes, residues = residues);
    assert_laid_out!(Recombined: residues = residues, out = out, plane = plane, count = count, planes = planes,
        product = product, cofactor = cofactor, fraction = fraction);
    assert_laid_out!(Plain: a = a, b = b, out = out, out_row = out_row, parts = parts, groups = groups, rows = rows,
        columns = columns, channels = channels, kernel = kernel_down, dilations = dilation_down, height = height,
        width = width, first = first, start = start, run = run, across = across, strides = stride_down,
        pads = pad_top);
    assert_laid_out!(Drawn: keys = keys, out = out, nonce = nonce, start = start, count = count, adds = adds,
        wide = wide);
}

/// Numbers of 256 bits, the lowest limb first.
fn times(number: [u64; 4], factor: u64) -> [u64; 4] {
    let mut carry = 0;
    let product = number.map(|limb| {
        let sum = u128::from(limb) * u128::from(factor) + carry;
        carry = sum >> 64;
        sum as u64
    });
    assert_eq!(carry, 0, "256 bits");
    product
}

#[test]
fn moduli_are_coprime_and_the_longest_sums_are_below_half_of_their_product() {
    let gcd = |mut a: u32, mut b: u32| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    for (i, &m) in MODULI.iter().enumerate() {
        assert!(m <= 256 && MODULI[..i].iter().all(|&other| gcd(m, other) == 1), "{m}");
    }
    for (count, terms) in LONGEST {
        let product = MODULI[..count].iter().fold([1, 0, 0, 0], |product, &m| times(product, m.into()));
        // terms · 2^126 against half of the product, less a 512th of that: both times 1,024.
        let (sum, most) = (times([0, 0, 1 << 8, 0], terms as u64), times(product, 511));
        assert!(sum.iter().rev().le(most.iter().rev()), "{count} residues");
        // Accumulators of 32 bits: bytes are from -128 to 127, and an offset makes sums positive.
        let sum = terms as u64 * 128 * 128;
        assert!(sum < 1 << 31 && MODULI.iter().all(|&m| sum + (1u64 << 31).next_multiple_of(m.into()) < 1 << 32));
        assert_eq!((residues(terms), residues(1)), (Some(count), Some(17)));
        assert_ne!(residues(terms + 1), Some(count));
    }
    assert_eq!(residues(100_001), None);
}

/// As linear.cu has it.
fn reduced(value: u32, m: u32, reciprocal: u32) -> u32 {
    let rest = value.wrapping_sub(((u64::from(value) * u64::from(reciprocal)) >> 32) as u32 * m);
    rest.min(rest.wrapping_sub(m))
}

/// As operands.cu has it: the byte of residue `i`.
fn signed_residue(word: u64, of: &Residues, i: usize) -> i8 {
    let (m, reciprocal) = (of.modulus[i], of.reciprocal[i]);
    let [low, high] = [word as u32, (word >> 32) as u32].map(|half| reduced(half, m, reciprocal));
    let rest = reduced(low + high * of.high[i] + (word >> 63) as u32 * of.sign[i], m, reciprocal);
    rest.wrapping_sub(if rest > (m - 1) / 2 { m } else { 0 }) as i8
}

/// As operands.cu has it: the word from residues that were multiplied by the inverses.
fn recombined(ys: &[u32], of: &Recombination) -> u64 {
    let (mut sum, mut quotient) = (0u64, 0u64);
    for (i, &y) in ys.iter().enumerate() {
        sum = sum.wrapping_add(u64::from(y).wrapping_mul(of.cofactor[i]));
        quotient += u64::from(y) * of.fraction[i];
    }
    sum.wrapping_sub(((quotient + (1 << 55)) >> 56).wrapping_mul(of.product))
}

/// The sum of `times` each of these products modulo 2^64, by as many residues as so many terms take.
fn sum_by_residues(pairs: &[(u64, u64)], times: usize) -> u64 {
    let count = residues(pairs.len() * times).expect("a sum that is not too long");
    let (words, back) = (residues_of_words(), Recombination::new(count));
    let ys: Vec<u32> = (0..count)
        .map(|i| {
            let m = MODULI[i];
            let products = pairs.iter().map(|&(x, y)| {
                i64::from(signed_residue(x, &words, i)) * i64::from(signed_residue(y, &words, i)) * times as i64
            });
            let accumulated = i32::try_from(products.sum::<i64>()).expect("an accumulator of 32 bits");
            let offset = (1u32 << 31).div_ceil(m) * m;
            let rest = reduced((accumulated as u32).wrapping_add(offset), m, words.reciprocal[i]);
            reduced(rest * back.inverse[i], m, words.reciprocal[i])
        })
        .collect();
    recombined(&ys, &back)
}

const ENDS: [u64; 10] =
    [0, 1, 2, u64::MAX, u64::MAX - 1, 1 << 63, (1 << 63) - 1, u32::MAX as u64, 1 << 32, 0x8080_8080_8080_8080];

#[test]
fn words_at_the_ends_of_their_range_have_residues_and_come_back() {
    for a in ENDS {
        assert_residues(a);
        for b in ENDS {
            for (_, terms) in LONGEST {
                let sum = a.wrapping_mul(b).wrapping_mul(terms as u64);
                assert_eq!(sum_by_residues(&[(a, b)], terms), sum, "{terms} times {a} · {b}");
            }
        }
    }
}

/// Every residue of a word that is taken for signed is right and in its range.
fn assert_residues(word: u64) {
    let of = residues_of_words();
    for (i, &m) in MODULI.iter().enumerate() {
        let (residue, m) = (i64::from(signed_residue(word, &of, i)), i64::from(m));
        assert_eq!(residue.rem_euclid(m), (word as i64).rem_euclid(m), "{word} modulo {m}");
        assert!((-m / 2..=(m - 1) / 2).contains(&residue), "{word} modulo {m}");
    }
}

proptest! {
    #[test]
    fn sums_of_products_equal_those_of_words(pairs in prop::collection::vec(any::<(u64, u64)>(), 1..80)) {
        pairs.iter().for_each(|&(x, _)| assert_residues(x));
        let sum = pairs.iter().fold(0u64, |sum, &(x, y)| sum.wrapping_add(x.wrapping_mul(y)));
        prop_assert_eq!(sum_by_residues(&pairs, 1), sum);
    }

    #[test]
    fn numbers_of_32_bits_are_reduced(value: u32) {
        for m in MODULI {
            let reciprocal = ((1u64 << 32) / u64::from(m)) as u32;
            for value in [value, 0, m - 1, m, u32::MAX, u32::MAX / m * m, (u32::MAX / m * m).wrapping_sub(1)] {
                prop_assert_eq!(reduced(value, m, reciprocal), value % m);
            }
        }
    }
}

/// Sizes that divide by nothing.
const UNEVEN: ConvGeometry = ConvGeometry {
    in_channels: 40,
    out_channels: 6,
    groups: 2,
    input: [9, 11],
    kernel: [3, 2],
    strides: [2, 1],
    pads: [1, 0, 1, 2],
    dilations: [1, 2],
};

#[test]
fn pieces_of_patches_are_where_the_channels_are() {
    const PARTS: usize = 3;
    let geometries = [
        UNEVEN,
        ConvGeometry { in_channels: 3, groups: 1, ..UNEVEN },
        ConvGeometry { in_channels: 6, out_channels: 12, groups: 6, pads: [4; 4], ..UNEVEN },
    ];
    for geometry in geometries.map(|geometry| geometry.checked().unwrap()) {
        let table = patch_pieces(&geometry, PARTS);
        let (channels, [height, width]) = (geometry.in_channels / geometry.groups, geometry.input);
        let (per_group, place) = (pieces(channels), pieces(channels) * geometry.groups);
        let inner = |part: usize, i: usize, j: usize, piece: usize| {
            ((part * geometry.kernel[0] + i) * geometry.kernel[1] + j) * per_group + piece
        };
        assert_eq!(table.len(), inner(PARTS, 0, 0, 0));
        // Every position, as linear.cu finds its pieces, against where they are: [part][row][column][group][piece].
        for (position, group) in (0..geometry.positions()).flat_map(|at| (0..geometry.groups).map(move |g| (at, g))) {
            let across = geometry.output()[1];
            let down = (position / across * geometry.strides[0]) as i32 - geometry.pads[0] as i32;
            let right = (position % across * geometry.strides[1]) as i32 - geometry.pads[1] as i32;
            let start = (down * width as i32 + right) * place as i32 + (group * per_group) as i32;
            for (part, i, j, piece) in (0..PARTS).flat_map(|part| {
                (0..geometry.kernel[0])
                    .flat_map(move |i| (0..geometry.kernel[1]).map(move |j| (i, j)))
                    .flat_map(move |(i, j)| (0..per_group).map(move |piece| (part, i, j, piece)))
            }) {
                let of = table[inner(part, i, j, piece)];
                let row = down + (i * geometry.dilations[0]) as i32;
                let column = right + (j * geometry.dilations[1]) as i32;
                assert_eq!((down + of.down, right + of.right), (row, column));
                if (0..height as i32).contains(&row) && (0..width as i32).contains(&column) {
                    let at = (part * height + row as usize) * width + column as usize;
                    assert_eq!((start + of.ahead) as usize, at * place + group * per_group + piece);
                }
            }
        }
    }
}

#[test]
fn pieces_of_a_matrix_follow_one_another() {
    let table = matrix_pieces(37, 2);
    assert_eq!(table.len(), 6);
    for (piece, of) in table.into_iter().enumerate() {
        assert_eq!(of, Piece { down: 0, right: 0, ahead: piece as i32, unused: 0 });
    }
}

/// Every chunk is in one set, a set's chunks are all of its samples, and it has no more samples than it has room for.
fn assert_sets(chunks: &[Chunk], batch: usize, outputs: usize, sample: usize) -> Result<(), TestCaseError> {
    let sets = sets(chunks, sample);
    let (mut chunk, mut first) = (0, 0);
    for set in &sets {
        prop_assert_eq!((set.chunks.start, set.samples.start), (chunk, first));
        (chunk, first) = (set.chunks.end, set.samples.end);
        let chunks = &chunks[set.chunks.clone()];
        for samples in chunks.iter().map(Chunk::samples) {
            prop_assert!(set.samples.start <= samples.start && samples.end <= set.samples.end);
        }
        prop_assert_eq!(chunks.iter().map(Chunk::len).sum::<usize>(), set.samples.len() * outputs);
        prop_assert!(set.samples.len() * sample <= SET || set.samples == chunks[0].samples());
    }
    // As few sets as that allows: what two neighbours hold has no room in one.
    for pair in sets.windows(2) {
        let next = chunks[pair[1].chunks.start].samples();
        prop_assert!((pair[0].samples.len() + next.len()) * sample > SET);
    }
    prop_assert_eq!((chunk, first), (chunks.len(), batch));
    Ok(())
}

proptest! {
    #[test]
    fn sets_hold_all_chunks(batch in 1..70usize, elements in 1..5000usize, outputs in 1..300usize, room in 0..100usize) {
        // Samples of which as many fit, and one that is too large.
        let sample = SET.checked_div(room).unwrap_or(SET + 1);
        assert_sets(&Chunk::of_dense(outputs, batch, elements), batch, outputs, sample)?;
        let shapes = [UNEVEN, ConvGeometry { in_channels: 5, out_channels: 5, groups: 5, ..UNEVEN }];
        for geometry in shapes {
            let chunks = Chunk::of_conv2d(&geometry, batch, elements);
            assert_sets(&chunks, batch, geometry.output_len(), sample)?;
            // They are copied from the device as rectangles: several images are whole ones.
            prop_assert!(chunks.iter().all(|chunk| chunk.images.len() == 1 || chunk.run == (0..geometry.positions())));
        }
    }
}

#[test]
fn machine_code_is_compiled_where_nvrtc_is() {
    for capability in [80, 90] {
        match super::build::compiled(super::build::Target { capability }) {
            Ok(code) => assert!(code.starts_with(b"\x7FELF"), "machine code for {capability}"),
            Err(reason) if reason.contains("was not found") => eprintln!("skipped: {reason}"),
            Err(reason) => panic!("{reason}"),
        }
    }
}
