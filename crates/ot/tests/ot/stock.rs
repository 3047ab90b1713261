//! Stocks in memory and on disk, of both parties: filled, used by several sessions, after a crash, damaged, put back.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use crate::common::both;
use covey_ot::silent::{self, Parameters};
use covey_ot::stock::{self, BatchName, DiskStock, Portion, Reserved, Stock};
use covey_ot::{Block, Channel, OtError, Received, Sent};
use covey_store::{Contents, Material};

/// 704 OTs an iteration: 64 · 16 outputs, less 64 · 4 + 64 for the next.
const SMALL: Parameters = Parameters::insecure(64, 6, 4);

fn directory(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("covey-stock-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// What a party took: for each direction the Δ of its OTs as sender, their numbers, and blocks.
#[derive(Default)]
struct Taken {
    sent: Vec<(u128, u64, Block)>,
    delta: Vec<Block>,
    received: Vec<(u128, u64, Block)>,
}

impl Taken {
    fn take(&mut self, stock: &mut Stock, sent: usize, received: usize) {
        self.add(stock.take(sent, received).unwrap(), sent, received);
    }

    fn take_reserved(&mut self, reserved: &mut Reserved, sent: usize, received: usize) {
        self.add(reserved.take(sent, received).unwrap(), sent, received);
    }

    fn add(&mut self, (from, to): (Sent, Received), sent: usize, received: usize) {
        assert!(from.len() == sent && to.len() == received);
        for (index, &block) in from.blocks.iter().enumerate() {
            self.sent.push((from.key.0, from.first + index as u64, block));
            self.delta.push(from.delta);
        }
        self.received.extend(to.blocks.iter().enumerate().map(|(i, &block)| (to.key.0, to.first + i as u64, block)));
    }

    /// The blocks of both sides fit wherever both took the same OT; nobody took one twice.
    fn fits(&self, other: &Taken) -> usize {
        let mut common = 0;
        for (sender, receiver) in [(self, other), (other, self)] {
            let held: std::collections::HashMap<_, _> =
                receiver.received.iter().map(|&(key, number, block)| ((key, number), block)).collect();
            assert_eq!(held.len(), receiver.received.len(), "an OT was taken twice");
            let names: HashSet<_> = sender.sent.iter().map(|&(key, number, _)| (key, number)).collect();
            assert_eq!(names.len(), sender.sent.len(), "an OT was taken twice");
            for (&(key, number, k), &delta) in sender.sent.iter().zip(&sender.delta) {
                if let Some(&t) = held.get(&(key, number)) {
                    assert!(t == k ^ delta.times(t.low()), "OT {number}");
                    common += 1;
                }
            }
        }
        common
    }
}

fn fresh(me: usize) -> Stock {
    Stock::new(me, [9; 32], [SMALL, SMALL])
}

#[test]
fn filled_in_steps_taken_in_order_counted_and_metered() {
    let steps: [([u64; 2], [usize; 2]); 5] =
        [([10, 0], [3, 0]), ([10, 5], [9, 5]), ([700, 2000], [700, 1]), ([0, 0], [0, 1999]), ([577, 1], [577, 1])];
    let run = |me: usize| {
        move |channel: &mut dyn Channel| {
            let (mut stock, mut taken, mut planned) = (fresh(me), Taken::default(), [0; 2]);
            for (wanted, take) in steps {
                let before = stock.left();
                let bytes = stock.fill_bytes(wanted);
                planned = [planned[0] + bytes[0], planned[1] + bytes[1]];
                stock.fill(wanted, channel).unwrap();
                let left = stock.left();
                assert!((0..2).all(|d| left[d] >= wanted[d].max(before[d])));
                taken.take(&mut stock, take[me], take[1 - me]);
                assert_eq!(stock.left(), [0, 1].map(|d| left[d] - take[d] as u64));
            }
            let left = stock.left();
            assert!(stock.take(left[me] as usize + 1, 0).is_err(), "more than there are");
            assert_eq!(stock.left(), left);
            (taken, planned)
        }
    };
    let (zero, one, sent) = both(run(0), run(1));
    assert_eq!(zero.1, one.1);
    assert_eq!(sent, zero.1, "as planned");
    let used = [0, 1].map(|d| steps.iter().map(|step| step.1[d] as u64).sum::<u64>());
    assert_eq!(sent, stock::cold_bytes([SMALL, SMALL], used), "in steps as at once");
    assert_eq!(zero.0.fits(&one.0) as u64, used[0] + used[1]);
}

/// Few OTs are made without an extension, all that are expected at once, until they sent as much as an extension's start.
#[test]
fn few_that_are_expected_are_made_without_an_extension() {
    let most = silent::few_at_most(&SMALL) as u64;
    assert!((200..5000).contains(&most), "{most}");
    // What is expected, wanted, and taken at once; by P1 as the sender of a third.
    assert_eq!((most % 24, stock::FEW_TIMES), (0, 2), "numbers that serve this test");
    let rest = most - 120;
    let steps: [(u64, u64, usize); 7] = [
        (96, 10, 72),
        (0, 24, 24),
        (24, 24, 24),
        (most, 6, most as usize),
        (rest, 6, 6),
        (1, most, 600),
        (most, most + 900, 900),
    ];
    let run = |me: usize| {
        move |channel: &mut dyn Channel| {
            let (mut stock, mut taken, mut planned, mut left) = (fresh(me), Taken::default(), Vec::new(), Vec::new());
            for (expected, wanted, take) in steps {
                if expected > 0 {
                    stock.expect([expected, expected / 3]);
                }
                let wanted = [wanted, wanted / 3];
                planned.push(stock.fill_bytes(wanted));
                stock.fill(wanted, channel).unwrap();
                left.push(stock.left()[0]);
                let take = [take, take / 3];
                taken.take(&mut stock, take[me], take[1 - me]);
            }
            (taken, planned, left)
        }
    };
    let (zero, one, sent) = both(run(0), run(1));
    assert_eq!((&zero.1, &zero.2), (&one.1, &one.2));
    assert_eq!(sent, [0, 1].map(|party| zero.1.iter().map(|bytes| bytes[party]).sum::<u64>()), "as planned");
    assert_eq!(zero.1[0], stock::expected_bytes([SMALL; 2], [96, 32]));
    assert_eq!(zero.2[..5], [96, 24, 24, most, rest], "as many as were expected");
    assert!(zero.2[5] >= most + 500, "an extension");
    let used = steps.iter().map(|step| step.2 + step.2 / 3).sum::<usize>();
    assert_eq!(zero.0.fits(&one.0), used);
    // A stock that expects nothing, or much, begins with an extension.
    for many in [[most + 1, 0], [0, 10 * most]] {
        assert_eq!(stock::expected_bytes([SMALL; 2], many), stock::cold_bytes([SMALL; 2], many));
    }
}

/// A channel that notes what is sent and received.
struct Noted<'a> {
    channel: &'a mut dyn Channel,
    calls: String,
}

impl Channel for Noted<'_> {
    fn send(&mut self, message: Vec<u8>) -> Result<(), OtError> {
        self.calls.push('s');
        self.channel.send(message)
    }

    fn recv(&mut self, len: usize) -> Result<Vec<u8>, OtError> {
        self.calls.push('r');
        self.channel.recv(len)
    }

    fn refuse(&self, detail: String) -> OtError {
        self.channel.refuse(detail)
    }
}

/// Both parties send their points before they wait for the other's, so that the base OTs of both directions take one round trip.
#[test]
fn base_ots_of_both_directions_are_done_at_once() {
    let run = |me: usize| {
        move |channel: &mut dyn Channel| {
            let (mut stock, mut taken) = (fresh(me), Taken::default());
            stock.expect([64, 64]);
            let planned = stock.fill_bytes([8, 8]);
            let mut noted = Noted { channel, calls: String::new() };
            stock.fill([8, 8], &mut noted).unwrap();
            taken.take(&mut stock, 64, 64);
            (taken, planned, noted.calls)
        }
    };
    let (zero, one, sent) = both(run(0), run(1));
    assert_eq!(zero.0.fits(&one.0), 128);
    assert_eq!(sent, zero.1, "as planned");
    // Points out, the others' in; the answer and the trees out, theirs in; then the extensions, P0's as sender first.
    assert_eq!([&zero.2[..], &one.2[..]], ["srssrrrs", "srssrrsr"]);
}

fn open(directory: &Path, me: usize) -> DiskStock {
    let (stock, problems) = DiskStock::open(directory, me).unwrap();
    assert!(problems.is_empty(), "{problems:?}");
    stock
}

fn names(stock: &DiskStock) -> Vec<BatchName> {
    stock.left().iter().map(|(name, _)| *name).collect()
}

fn fill(stocks: [&DiskStock; 2], wanted: [u64; 2]) -> [u64; 2] {
    let [zero, one] = stocks;
    let run = |stock: &DiskStock, channel: &mut dyn Channel| stock.fill_with(wanted, [SMALL; 2], channel).unwrap();
    both(|channel| run(zero, channel), |channel| run(one, channel)).2
}

/// Both stocks of a test, filled.
fn filled(name: &str, wanted: [u64; 2]) -> ([PathBuf; 2], [DiskStock; 2]) {
    let places = [0, 1].map(|me| directory(&format!("{name}-{me}")));
    let stocks = [0, 1].map(|me| open(&places[me], me));
    fill(stocks.each_ref(), wanted);
    (places, stocks)
}

#[test]
fn ranges_are_set_aside_for_several_sessions() {
    let (places, stocks) = filled("sessions", [2000, 700]);
    let left = stocks[0].left();
    assert!(left.len() == 1 && left[0].1[0] >= 2000 && left[0].1[1] >= 700, "{left:?}");
    assert_eq!(left, stocks[1].left());
    let has = names(&stocks[1]);
    assert!(stocks[0].reserve(&[[7; 16]], [1, 1]).unwrap().is_none(), "a batch the peer lacks");
    assert!(stocks[0].reserve(&has, [left[0].1[0] + 1, 1]).unwrap().is_none(), "more than there is");
    let mut reserved: Vec<_> = [[100, 50], [1, 0], [0, 7], [300, 300]]
        .iter()
        .map(|&count| stocks[0].reserve(&has, count).unwrap().unwrap())
        .collect();
    // The other party hears of them in another order.
    let mut all = [Taken::default(), Taken::default()];
    for index in [3, 0, 2, 1] {
        let (portion, zero) = &mut reserved[index];
        let mut one = stocks[1].claim(portion).unwrap();
        assert!(stocks[1].claim(portion).is_err() || portion.count == [0; 2], "claimed twice");
        let [a, b] = portion.count.map(|count| count as usize);
        assert_eq!((zero.left(), one.left()), (portion.count, portion.count));
        for part in [[a / 3, b / 2], [a - a / 3, b - b / 2]] {
            all[0].take_reserved(zero, part[0], part[1]);
            all[1].take_reserved(&mut one, part[1], part[0]);
        }
        assert!(zero.take(1, 0).is_err() && one.take(0, 1).is_err(), "what is others'");
    }
    assert_eq!(all[0].fits(&all[1]), 401 + 357);
    let left = stocks[0].left();
    assert_eq!(left, stocks[1].left());
    drop((stocks, reserved));
    let stocks = [0, 1].map(|me| open(&places[me], me));
    assert_eq!([stocks[0].left(), stocks[1].left()], [left.clone(), left]);
}

#[test]
fn a_fill_goes_on_from_the_last_and_sends_what_was_planned() {
    let places = [0, 1].map(|me| directory(&format!("fills-{me}")));
    let stocks = [0, 1].map(|me| open(&places[me], me));
    let [a, b] = stock::cold_bytes([SMALL; 2], [600, 600]);
    let first = fill(stocks.each_ref(), [600, 600]);
    assert_eq!(first, [a + 97, b + 97], "the greeting and the end beside");
    drop(stocks);
    let stocks = [0, 1].map(|me| open(&places[me], me));
    let second = fill(stocks.each_ref(), [600, 600]);
    assert!(second[0] + second[1] < (first[0] + first[1]) / 2, "no base OTs: {first:?}, {second:?}");
    // One side's files are lost: both start anew.
    drop(stocks);
    std::fs::remove_dir_all(&places[1]).unwrap();
    let stocks = [0, 1].map(|me| open(&places[me], me));
    assert_eq!(fill(stocks.each_ref(), [600, 600]), first);
    assert_eq!((stocks[0].left().len(), stocks[1].left().len()), (3, 1));
    let (portion, mut zero) = stocks[0].reserve(&names(&stocks[1]), [9, 9]).unwrap().unwrap();
    let mut one = stocks[1].claim(&portion).unwrap();
    let mut all = [Taken::default(), Taken::default()];
    all[0].take_reserved(&mut zero, 9, 9);
    all[1].take_reserved(&mut one, 9, 9);
    assert_eq!(all[0].fits(&all[1]), 18);
    assert_eq!(
        DiskStock::fill_bytes([1 << 24, 1])[1],
        stock::cold_bytes(stock::parameters_for([1 << 24, 1]), [1 << 24, 1])[1] + 97
    );
}

/// Copies the files of a stock.
fn copy(from: &Path, to: &Path) {
    let _ = std::fs::remove_dir_all(to);
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        match entry.path().is_dir() {
            true => copy(&entry.path(), &to.join(entry.file_name())),
            false => drop(std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap()),
        }
    }
}

/// A party dies after it set something aside; then older copies are put back, of either side.
#[test]
fn nothing_is_used_twice_after_a_crash_or_an_older_copy() {
    let (places, mut stocks) = filled("older", [4000, 4000]);
    let copies = [0, 1].map(|me| directory(&format!("older-copy-{me}")));
    let mut all = [Taken::default(), Taken::default()];
    let mut use_some = |stocks: &[DiskStock; 2], count: u64| {
        let (portion, mut zero) = stocks[0].reserve(&names(&stocks[1]), [count, count]).unwrap().unwrap();
        let mut one = stocks[1].claim(&portion).map_err(|error| (error.to_string(), portion))?;
        all[0].take_reserved(&mut zero, count as usize, count as usize);
        all[1].take_reserved(&mut one, count as usize, count as usize);
        Ok::<usize, (String, Portion)>(all[0].fits(&all[1]))
    };
    assert_eq!(use_some(&stocks, 10), Ok(20));
    drop(stocks[0].reserve(&names(&stocks[1]), [77, 5]).unwrap().unwrap());
    drop(stocks);
    stocks = [0, 1].map(|me| open(&places[me], me));
    assert_eq!(use_some(&stocks, 10), Ok(40), "the claiming party skips what the other lost");
    drop(stocks);
    (0..2).for_each(|me| copy(&places[me], &copies[me]));
    stocks = [0, 1].map(|me| open(&places[me], me));
    assert_eq!(use_some(&stocks, 100), Ok(240));
    drop(stocks);
    stocks = [open(&places[0], 0), open(&copies[1], 1)];
    assert_eq!(use_some(&stocks, 20), Ok(280), "the claiming party's copy is older: it skips");
    drop(stocks);
    stocks = [open(&copies[0], 0), open(&places[1], 1)];
    let (error, portion) = use_some(&stocks, 20).unwrap_err();
    assert!(error.contains("older one, put back"), "{error}");
    stocks.iter().for_each(|stock| stock.discard(portion.batch).unwrap());
    assert!(stocks.iter().all(|stock| stock.left().is_empty()));
    fill(stocks.each_ref(), [100, 100]);
    assert_eq!(use_some(&stocks, 10), Ok(300));
}

#[test]
fn damaged_and_missing_files_are_refused_and_the_rest_goes_on() {
    let (places, stocks) = filled("damaged", [600, 600]);
    let place = directory("damaged-copy");
    drop(stocks);
    for file in ["sent.material", "received.material", "sent.journal", "received.journal"] {
        for damage in 0..5 {
            copy(&places[0], &place);
            let batch =
                std::fs::read_dir(&place).unwrap().map(|e| e.unwrap().path()).find(|path| path.is_dir()).unwrap();
            let path = batch.join(file);
            let mut bytes = std::fs::read(&path).unwrap();
            let last = bytes.len() - 1;
            match damage {
                0 => bytes.truncate(last),
                1 => bytes.push(0),
                2 => bytes[60] ^= 1,
                _ => bytes.clear(),
            }
            match damage {
                4 => std::fs::remove_file(&path).unwrap(),
                _ => std::fs::write(&path, &bytes).unwrap(),
            }
            let (stock, problems) = DiskStock::open(&place, 0).unwrap();
            assert!(stock.left().is_empty() && problems.len() == 1, "{file} {damage}");
            let problem = problems[0].to_string();
            assert!(
                problem.contains(batch.file_name().unwrap().to_str().unwrap()) && !problem.contains('\n'),
                "{problem}"
            );
        }
    }
    // Opened as the other role.
    assert_eq!(DiskStock::open(&places[0], 1).unwrap().1.len(), 1);
    let stock = open(&places[0], 0);
    assert!(DiskStock::open(&places[0], 0).err().unwrap().to_string().contains("another process uses this stock"));
    drop(stock);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let batch =
            std::fs::read_dir(&places[0]).unwrap().map(|e| e.unwrap().path()).find(|path| path.is_dir()).unwrap();
        assert_eq!(mode(&batch), 0o700);
        assert!(std::fs::read_dir(&batch).unwrap().all(|entry| mode(&entry.unwrap().path()) == 0o600));
    }
}

#[test]
fn damaged_ots_are_refused_when_they_are_read() {
    let path = directory("part").join("items.material");
    let items: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
    let contents = Contents { kind: b"test    ", id: [3; 32], item: 3, count: 1_000_000, about: b"about" };
    let mut pieces = items.chunks(700_001);
    Material::create(&path, &contents, |out| out.extend_from_slice(pieces.next().unwrap_or_default())).unwrap();
    let mut material = Material::open(&path, b"test    ").unwrap();
    assert_eq!(material.about(), b"about");
    let mut read = Vec::new();
    for count in [1, 349_524, 2, 0, 400_000] {
        read.extend_from_slice(&material.take(count).unwrap());
    }
    assert!(read == items[..read.len()]);
    drop(material);
    let mut bytes = std::fs::read(&path).unwrap();
    let place = bytes.len() - 100_000;
    bytes[place] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let mut material = Material::open(&path, b"test    ").unwrap();
    assert!(material.take(250_473).unwrap_err().to_string().contains("does not verify"));
    #[cfg(unix)]
    for file in [&path, &path.with_extension("journal")] {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
