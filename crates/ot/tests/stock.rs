//! Stocks in memory and on disk, both parties, and what is left of them when a process dies.

mod common;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use common::both;
use covey_ot::silent::Parameters;
use covey_ot::stock::{self, Opened, Stock};
use covey_ot::store::{Contents, Material};
use covey_ot::{Block, Channel};

/// 576 OTs an iteration: 64 · 16 outputs, 64 · 4 + 64 of them for the next.
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
        let (from, to) = stock.take(sent, received).unwrap();
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

/// Opens, or says why not.
fn open(directory: &Path, me: usize, channel: &mut dyn Channel) -> Result<Stock, String> {
    match Stock::open(directory, me, channel).unwrap() {
        Opened::Stock(stock) => Ok(*stock),
        Opened::Nothing(why) => Err(why),
    }
}

#[test]
fn sessions_go_on_where_the_last_one_stopped() {
    let places = [directory("sessions-0"), directory("sessions-1")];
    let (mut all, mut bytes) = ([Taken::default(), Taken::default()], Vec::new());
    for session in 0..5 {
        let [zero, one] = &mut all;
        let places = &places;
        let run = |me: usize, taken: &mut Taken, channel: &mut dyn Channel| {
            let mut stock = match session {
                0 => fresh(me),
                _ => open(&places[me], me, channel).unwrap(),
            };
            stock.fill([700, 300], channel).unwrap();
            let take = [200 + 5 * session, 100];
            taken.take(&mut stock, take[me], take[1 - me]);
            // The third session ends without being saved: nothing was extended, and its marks are on the disk.
            if session != 3 {
                stock.save(&places[me]).unwrap();
            }
        };
        let (.., sent) = both(|channel| run(0, zero, channel), |channel| run(1, one, channel));
        bytes.push(sent[0] + sent[1]);
    }
    assert!(bytes[1..].iter().all(|&sent| sent < bytes[0] / 2), "only the first session has base OTs: {bytes:?}");
    assert!(all[0].fits(&all[1]) > 1000);
}

/// Sessions end without saving, P0 having used more than P1: both skip what either may have used. The second dies after it took the
/// state from the disk: then there is a new set-up for that direction.
#[test]
fn parties_agree_after_one_died() {
    // Larger than what is read at once.
    const LARGE: Parameters = Parameters::insecure(1500, 9, 9);
    let places = [directory("died-0"), directory("died-1")];
    let places = &places;
    let prepare = |me: usize| {
        move |channel: &mut dyn Channel| {
            let mut stock = Stock::new(me, [9; 32], [LARGE, LARGE]);
            stock.fill([700_000, 700_000], channel).unwrap();
            stock.save(&places[me]).unwrap();
        }
    };
    both(prepare(0), prepare(1));
    let mut all = [Taken::default(), Taken::default()];
    for session in 0..3 {
        let [zero, one] = &mut all;
        let run = |me: usize, taken: &mut Taken, channel: &mut dyn Channel| {
            let mut stock = open(&places[me], me, channel).unwrap();
            let left = stock.left();
            match session {
                // P0 reads 270,000, P1 as many as are read at once.
                0 => [270_000, 7][me..].iter().take(1).for_each(|&count| taken.take(&mut stock, count, count)),
                1 => {
                    assert_eq!(left, [LARGE.added() as u64 - 270_000; 2]);
                    taken.take(&mut stock, 5, 5);
                    stock.fill([left[0] + 1, 0], channel).unwrap();
                    taken.take(&mut stock, 10, 10);
                }
                _ => {
                    assert_eq!(left[0], 0);
                    stock.fill([100, left[1]], channel).unwrap();
                    taken.take(&mut stock, if me == 0 { 50 } else { 20 }, if me == 0 { 20 } else { 50 });
                }
            }
        };
        both(|channel| run(0, zero, channel), |channel| run(1, one, channel));
    }
    assert_eq!(all[0].fits(&all[1]), 2 * 7 + 2 * 15 + 70);
    let keys: HashSet<u128> = all[0].sent.iter().map(|taken| taken.0).collect();
    assert_eq!(keys.len(), 2, "a new set-up has a new hash");
}

/// Copies the files of a stock, for an attempt on the copy.
fn copy(from: &Path, to: &Path) {
    let _ = std::fs::remove_dir_all(to);
    std::fs::create_dir_all(to.join("correlated-ots")).unwrap();
    for entry in std::fs::read_dir(from.join("correlated-ots")).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join("correlated-ots").join(entry.file_name())).unwrap();
    }
}

#[test]
fn damaged_missing_and_foreign_stocks_are_refused_by_both() {
    let places =
        [directory("damaged-0"), directory("damaged-1"), directory("damaged-copy"), directory("damaged-other")];
    let places = &places;
    let prepare = |me: usize, place: usize| {
        move |channel: &mut dyn Channel| {
            let mut stock = fresh(me);
            stock.fill([1000, 1000], channel).unwrap();
            stock.save(&places[place]).unwrap();
        }
    };
    both(prepare(0, 0), prepare(1, 1));
    both(prepare(0, 3), |channel| {
        let mut stock = fresh(1);
        stock.fill([1000, 1000], channel).unwrap();
    });
    let attempt = |place: &Path| {
        let (zero, one, _) =
            both(|channel| open(place, 0, channel).map(|_| ()), |channel| open(&places[1], 1, channel).map(|_| ()));
        [zero, one].map(|result| result.err())
    };
    assert!(attempt(&places[0]).iter().all(Option::is_none));
    let files = ["sent.material", "received.material", "sent-next.material", "sent.journal", "received-next.journal"];
    for file in files {
        let path = places[2].join("correlated-ots").join(file);
        for damage in 0..4 {
            copy(&places[0], &places[2]);
            let mut bytes = std::fs::read(&path).unwrap();
            let last = bytes.len() - 1;
            match damage {
                0 => bytes.truncate(last),
                1 => bytes.push(0),
                2 => bytes[60] ^= 1,
                _ => bytes.clear(),
            }
            std::fs::write(&path, &bytes).unwrap();
            let [zero, one] = attempt(&places[2]);
            let (zero, one) = (zero.expect(file), one.expect(file));
            assert!(zero.contains(&places[2].display().to_string()), "{file}: {zero}");
            assert!(one.contains("the other party has no stock"), "{file}: {one}");
        }
        copy(&places[0], &places[2]);
        std::fs::remove_file(&path).unwrap();
        assert!(attempt(&places[2]).iter().all(Option::is_some), "without {file}");
    }
    let [zero, one] = attempt(&places[3]);
    assert!(zero.unwrap().contains("not the other half") && one.unwrap().contains("not the other half"));
    assert!(attempt(&places[0]).iter().all(Option::is_none), "still whole");
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
