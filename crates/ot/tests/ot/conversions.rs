//! What gates make of correlated OTs, both sides, against its meaning.

use crate::common::{Planes, words};
use covey_kernels::dispatch::{self, Isa};
use covey_ot::bits::{BitReceiver, BitSender};
use covey_ot::ideal::Dealer;
use covey_ot::table::{TableReceiver, TableSender, TableShape};
use covey_ot::words::{WordReceiver, WordSender};
use covey_ot::{ReceivedBlocks, SentBlocks, random};
use covey_ring::{Ring, Word};
use proptest::prelude::*;

fn dealt(count: usize, skip: usize) -> (SentBlocks, ReceivedBlocks) {
    let mut dealer = Dealer::new(count as u64);
    dealer.deal(skip);
    dealer.deal(count)
}

fn rings(bits: u32) -> Vec<Ring> {
    let odd = [3, 5, 127, (1 << 31) - 1, 4_293_918_721, 2_198_100_901_889, (1 << 61) - 1, (1 << 63) - 25];
    (1..=bits)
        .map(Ring::Pow2)
        .chain(odd.into_iter().filter(|n| *n < 1 << (bits - 1) || bits == 64).map(Ring::Odd))
        .collect()
}

fn products<W: Word>(ring: Ring, count: usize, width: usize, skip: usize) {
    let (sent, received) = dealt(count, skip);
    let values: Vec<W> = words::<W>(count * width, 1).into_iter().map(|w| ring.reduce(w)).collect();
    let choice = Planes::random(count, 1, 2);
    let mut correction = vec![0; count.div_ceil(64)];
    let sender = WordSender::<W>::new(sent.view(), width, ring);
    let receiver = WordReceiver::<W>::new(received.view(), width, ring);
    receiver.correction(choice.words(), &mut correction);
    let mut message = values.clone();
    sender.message(&mut message);
    // What crosses the wire has the ring's width.
    message.iter_mut().for_each(|y| *y = ring.reduce(*y));
    let (ours, theirs) = (sender.share(&correction), receiver.share(choice.words(), &message));
    for index in 0..count * width {
        let product = if choice.get(0, index / width) { values[index] } else { W::ZERO };
        let sum = match ring {
            Ring::Pow2(_) => ring.reduce(ours[index].add(theirs[index])),
            Ring::Odd(n) => {
                assert!(ours[index].to_u64() < n && theirs[index].to_u64() < n && message[index].to_u64() < n);
                ring.wrap(i128::from(ours[index].to_u64()) + i128::from(theirs[index].to_u64()))
            }
        };
        assert!(sum == product, "{ring}, {count} rows of {width}, word {index}");
    }
}

#[test]
fn words_of_every_ring_and_width() {
    for isa in [Isa::Portable, Isa::Avx2, Isa::Avx512] {
        dispatch::cap(isa);
        for ring in rings(32) {
            products::<u32>(ring, 70, 1, 3);
        }
        for ring in rings(64) {
            products::<u64>(ring, 70, 1, 3);
            products::<u64>(ring, 5, 3, 0);
        }
        for (count, width) in [(0, 1), (0, 4), (1, 1), (1, 300), (64, 2), (255, 5), (257, 4), (600, 7)] {
            products::<u32>(Ring::Pow2(32), count, width, 9);
            products::<u64>(Ring::Pow2(37), count, width, 9);
            products::<u64>(Ring::Odd(2_198_100_901_889), count, width, 9);
        }
    }
    dispatch::cap(Isa::Amx);
}

#[test]
fn bits_of_every_width() {
    for count in [0, 1, 63, 64, 65, 200, 1000] {
        for width in [1, 2, 3, 7, 32, 33, 64, 65, 127, 128] {
            let (sent, received) = dealt(count, width);
            let values = Planes::random(count, width, 3);
            let choice = Planes::random(count, 1, 4);
            let sender = BitSender::new(sent.view(), width);
            let receiver = BitReceiver::new(received.view(), width);
            let mut correction = vec![0; count.div_ceil(64)];
            receiver.correction(choice.words(), &mut correction);
            let mut message = values.words().to_vec();
            sender.message(&mut message);
            let share = sender.share(values.words(), &correction);
            let product = Planes::new(count, share).xor(receiver.share(&message));
            for (plane, index) in (0..width).flat_map(|plane| (0..count).map(move |index| (plane, index))) {
                let expected = values.get(plane, index) && choice.get(0, index);
                assert_eq!(product.get(plane, index), expected, "{count} of {width}, plane {plane}, bit {index}");
            }
        }
    }
}

fn tables(shape: TableShape) {
    let TableShape { index_bits, width, count } = shape;
    let table = Planes::random(count, shape.entries() * width, 5);
    let index = Planes::random(count, index_bits, 6);
    let entry = |bit: usize, i: usize| {
        let number = (0..index_bits).fold(0, |number, j| number | usize::from(index.get(j, i)) << j);
        table.get(number * width + bit, i)
    };
    let sides = |skip| {
        let (sent, received) = dealt(shape.ots(), skip);
        (TableSender::new(sent.view(), shape), TableReceiver::new(received.view(), shape))
    };
    let mut correction = vec![0; index_bits * count.div_ceil(64)];

    let (sender, receiver) = sides(1);
    receiver.correction(index.words(), &mut correction);
    let mut message = Vec::new();
    let share = sender.lookup(&correction, &mut table.words().to_vec(), &mut message);
    assert_eq!(message.len(), shape.lookup_planes() * count.div_ceil(64));
    let looked_up = Planes::new(count, share).xor(receiver.lookup(&message));

    let (sender, receiver) = sides(2);
    receiver.correction(index.words(), &mut correction);
    let mut message = table.words().to_vec();
    sender.chosen(&correction, &mut message);
    assert_eq!(message.len(), shape.chosen_planes() * count.div_ceil(64));
    let chosen = Planes::new(count, receiver.chosen(message));

    for (bit, i) in (0..width).flat_map(|bit| (0..count).map(move |i| (bit, i))) {
        assert_eq!(looked_up.get(bit, i), entry(bit, i), "lookup, {shape:?}, bit {bit} of {i}");
        assert_eq!(chosen.get(bit, i), entry(bit, i), "chosen, {shape:?}, bit {bit} of {i}");
    }
}

#[test]
fn tables_of_every_shape() {
    for index_bits in 1..=8 {
        let most = 128 >> (index_bits - 1);
        for width in [1, 2, 3, 4, 5, 16, 33, 64, 65, 128].into_iter().filter(|width| *width <= most) {
            for count in [1, 64, 77] {
                tables(TableShape { index_bits, width, count });
            }
        }
        tables(TableShape { index_bits, width: 1, count: 0 });
        tables(TableShape { index_bits, width: 1, count: 2000 });
    }
}

#[test]
fn triples_multiply() {
    for (count, width) in [(0, 1), (1, 1), (64, 2), (100, 2), (1000, 1), (70, 128)] {
        let (sent, received) = dealt(count, 0);
        let mut other = Dealer::new(99);
        let (sent_back, received_back) = other.deal(count);
        let ours = random::bit_triples(sent.view(), received_back.view(), width);
        let theirs = random::bit_triples(sent_back.view(), received.view(), width);
        let a = Planes::new(count, ours.a).xor(theirs.a);
        let b = Planes::new(count, ours.b).xor(theirs.b);
        let c = Planes::new(count, ours.c).xor(theirs.c);
        for (plane, i) in (0..width).flat_map(|plane| (0..count).map(move |i| (plane, i))) {
            assert_eq!(c.get(plane, i), a.get(0, i) && b.get(plane, i), "{count} of {width}: plane {plane}, bit {i}");
        }
    }
}

#[test]
fn strings_match_the_choices_and_differ() {
    let (sent, received) = dealt(500, 7);
    let (mut zero, mut one) = (vec![Default::default(); 500], vec![Default::default(); 500]);
    random::strings_sent(sent.view(), &mut zero, &mut one);
    let mut held = vec![Default::default(); 500];
    random::strings_received(received.view(), &mut held);
    let mut choices = vec![0; 8];
    received.view().choices(&mut choices);
    for i in 0..500 {
        let chosen = choices[i / 64] >> (i % 64) & 1 == 1;
        assert!(held[i] == if chosen { one[i] } else { zero[i] } && zero[i] != one[i]);
    }
}

proptest! {
    /// Tiles work on parts of a gate's run: pads follow the OT, not the slice.
    #[test]
    fn parts_of_a_run_fit_together(cut in 0usize..=130) {
        let (sent, received) = dealt(130, 5);
        let mut strings = vec![Default::default(); 130];
        random::strings_received(received.view(), &mut strings);
        let mut tail = vec![Default::default(); 130 - cut];
        random::strings_received(received.view().range(cut..130), &mut tail);
        prop_assert!(tail == strings[cut..]);
        let mut both = (vec![Default::default(); cut], vec![Default::default(); cut]);
        random::strings_sent(sent.view().range(0..cut), &mut both.0, &mut both.1);
        prop_assert!((0..cut).all(|i| both.0[i] == strings[i] || both.1[i] == strings[i]));
    }
}

/// Everything a party receives, and each share, is balanced: 2^16 bits of each kind, within six standard deviations.
#[test]
fn messages_and_shares_are_balanced() {
    const COUNT: usize = 1 << 16;
    let balanced = |what: &str, words: &[u64]| {
        let ones: u32 = words.iter().map(|word| word.count_ones()).sum();
        let bits = 64.0 * words.len() as f64;
        let deviation = (f64::from(ones) - bits / 2.0).abs() / (bits / 4.0).sqrt();
        assert!(deviation < 6.0, "{what}: {ones} of {bits}");
    };
    let shape = TableShape { index_bits: 3, width: 2, count: COUNT };
    let (sent, received) = dealt(shape.ots(), 0);
    let (sender, receiver) = (TableSender::new(sent.view(), shape), TableReceiver::new(received.view(), shape));
    let index = vec![0; 3 * COUNT / 64];
    let mut correction = index.clone();
    receiver.correction(&index, &mut correction);
    let mut message = Vec::new();
    let share = sender.lookup(&correction, &mut vec![0; 16 * COUNT / 64], &mut message);
    correction.chunks_exact(COUNT / 64).for_each(|plane| balanced("choices", plane));
    message.chunks_exact(COUNT / 64).for_each(|plane| balanced("messages", plane));
    share.chunks_exact(COUNT / 64).for_each(|plane| balanced("shares", plane));

    // Fresh OTs: another run.
    let (sent, received) = dealt(COUNT, 1);
    let (sender, receiver) = (BitSender::new(sent.view(), 2), BitReceiver::new(received.view(), 2));
    let mut message = vec![0; 2 * COUNT / 64];
    sender.message(&mut message);
    message.chunks_exact(COUNT / 64).for_each(|plane| balanced("products", plane));
    let share = receiver.share(&message);
    share.chunks_exact(COUNT / 64).for_each(|plane| balanced("shares of products", plane));
    balanced(
        "two planes together",
        &share[..COUNT / 64].iter().zip(&share[COUNT / 64..]).map(|(a, b)| a ^ b).collect::<Vec<_>>(),
    );
}

/// All pads but the chosen one are jointly uniform to the receiver: over random OTs, every nonzero combination of the entries
/// of one message is balanced once the receiver's own entry is taken out.
#[test]
fn pads_of_other_entries_are_independent() {
    const COUNT: usize = 1 << 14;
    for index_bits in 1..=3 {
        let shape = TableShape { index_bits, width: 1, count: COUNT };
        let (sent, _) = dealt(shape.ots(), index_bits);
        let sender = TableSender::new(sent.view(), shape);
        let mut pads = vec![0; shape.entries() * COUNT / 64];
        sender.chosen(&vec![0; index_bits * COUNT / 64], &mut pads);
        for combination in 1..1usize << shape.entries() {
            let ones: u32 = (0..COUNT / 64)
                .map(|word| {
                    let chosen = (0..shape.entries()).filter(|entry| combination >> entry & 1 == 1);
                    chosen.fold(0, |sum, entry| sum ^ pads[entry * COUNT / 64 + word]).count_ones()
                })
                .sum();
            let deviation = (f64::from(ones) - COUNT as f64 / 2.0).abs() / (COUNT as f64 / 4.0).sqrt();
            assert!(deviation < 6.0, "{index_bits} bits, combination {combination:b}: {ones} of {COUNT}");
        }
    }
}
