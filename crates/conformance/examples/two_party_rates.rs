//! Rates of two-party gates with the correlated OTs in stock, both parties as threads of this process:
//! `cargo run --release -p covey-conformance --example two_party_rates [elements [row]]`, where rows have `row` in their name.
//! `COVEY_MAX_ISA` caps the instruction set.

use std::thread;
use std::time::{Duration, Instant};

use covey_conformance::two_party::DealtStock;
use covey_kernels::ConvGeometry;
use covey_protocols::cost::{Cost, Gate, OtCount};
use covey_protocols::parts::*;
use covey_protocols::randomness::SessionKeys;
use covey_protocols::two_party::{Arith, Stock, StoredShare, TwoParty};
use covey_protocols::{
    Comparison, Epilogue, Geometry, Options, Phase, Placement, Rounding, Truncation, WeightKind, WeightSource,
};
use covey_ring::{Ring, Tensor, Word};
use covey_transport::{Network, memory};

/// A gate at party `me`.
type Run<W> = fn(&mut TwoParty<W>, &Arith<W>, usize);

/// What is measured, element by element.
fn gates<W: Word>(count: usize) -> Vec<(&'static str, Gate, Run<W>)> {
    const SHIFT: Truncation = Truncation { bits: 12, rounding: Rounding::Exact, bound: 30 };
    const WIDE: Comparison = Comparison::new(31, false);
    vec![
        ("relu", Gate::Relu { count, truncate: None, comparison: WIDE }, |p, x, _| drop(p.relu(x, WIDE).unwrap())),
        ("truncate", Gate::Truncate { count, truncation: SHIFT }, |p, x, _| drop(p.truncate(x, SHIFT).unwrap())),
        ("truncate and relu", Gate::Relu { count, truncate: Some(SHIFT), comparison: WIDE }, |p, x, _| {
            drop(p.truncate_relu(x, SHIFT, WIDE).unwrap());
        }),
        ("divide by 49", Gate::DivExact { count, divisor: 49, bound: 24 }, |p, x, _| {
            drop(p.div_exact(x, 49, 24).unwrap())
        }),
        ("look up one of 128", Gate::Lookup { count, index_bits: 7, tables: 1 }, |p, x, _| {
            let table = (0..128).map(|i| W::from_u64(i * 0x9E37_79B9)).collect();
            drop(p.lookup(x, &[table]).unwrap());
        }),
    ]
}

/// The best of some runs at both parties.
fn measure<W: Word>(ring: Ring, count: usize, demand: OtCount, run: Run<W>) -> Duration {
    let networks = memory::network(2, Duration::from_secs(600));
    let options = Options::default();
    thread::scope(|scope| {
        let parties: Vec<_> = networks
            .iter()
            .map(|network| {
                scope.spawn(move || {
                    let me = network.me();
                    let mut endpoint = network.endpoint(1).unwrap();
                    let mut keys = vec![Some([7; 32]); 2];
                    keys[me] = (me == 0).then_some([8; 32]);
                    let mut stock = DealtStock::new(me);
                    const RUNS: u64 = 4;
                    stock.fill(demand.times(RUNS + 1), &mut *endpoint).unwrap();
                    let keys = SessionKeys::new(keys);
                    let mut party = TwoParty::<W>::new(endpoint, keys, Box::new(stock), ring, options, 0).unwrap();
                    let values: Vec<W> = (0..count as u64).map(|i| ring.reduce(W::from_u64(i * 0x9E37_79B9))).collect();
                    let x = Tensor::new([count], values);
                    party.begin(Phase::Joint, 1).unwrap();
                    let x = party.input(0, &[count], (me == 0).then_some(&x)).unwrap();
                    let once = |party: &mut TwoParty<W>| {
                        let start = Instant::now();
                        run(party, &x, me);
                        start.elapsed()
                    };
                    once(&mut party);
                    (0..RUNS).map(|_| once(&mut party)).min().unwrap()
                })
            })
            .collect();
        parties.into_iter().map(|party| party.join().unwrap()).max().unwrap()
    })
}

/// A convolution of 64 to 64 channels, 3 x 3, 14 x 14, with weights of 13 bits that P0 owns.
const CONVOLUTION: ConvGeometry = ConvGeometry {
    in_channels: 64,
    out_channels: 64,
    groups: 1,
    input: [14, 14],
    kernel: [3, 3],
    strides: [1, 1],
    pads: [1; 4],
    dilations: [1, 1],
};

fn convolution<W: Word>(ring: Ring, wanted: &str) {
    if !format!("{ring} convolution").contains(wanted) {
        return;
    }
    let (geometry, weight) = (Geometry::Conv2d(CONVOLUTION), WeightKind::Stored { bits: 12 });
    let gate = Gate::Linear { geometry, other_inputs: 0, batch: 1, weight, truncate: None, relu: None };
    let cost = TwoParty::<W>::plan(&gate, ring, &Options::default());
    let time = measure::<W>(ring, CONVOLUTION.input_len(), cost.ot_count, |party, x, me| {
        let shape = [64, 64, 3, 3];
        let weights = (0..64 * 64 * 9).map(|i: i64| party.ring().wrap(i128::from(i * 2_654_435_761 % 8191 - 4095)));
        let owned = StoredShare::owned(Tensor::new(shape, weights.collect()), 12);
        let stored = if me == 0 { owned } else { StoredShare::absent(&shape, 12) };
        let weight =
            party.prepare(WeightSource::Stored(stored), Geometry::Conv2d(CONVOLUTION), Placement::Cpu).unwrap();
        let x = party.reshape(x, &[1, 64, 14, 14]);
        drop(party.linear(&x, &weight, &Epilogue::default()).unwrap());
    });
    let multiplications = CONVOLUTION.macs() as f64;
    println!(
        "{ring} convolution 64 to 64, 3 x 3, 14 x 14, 13-bit weights: {:.2} s, {:.1} M products/s, {:.1} bits each, {:.0} MB",
        time.as_secs_f64(),
        multiplications / time.as_secs_f64() / 1e6,
        cost.total_bytes() as f64 * 8.0 / multiplications,
        cost.total_bytes() as f64 / 1e6
    );
}

fn report<W: Word>(ring: Ring, count: usize, wanted: &str) {
    for (name, gate, run) in gates::<W>(count) {
        if !format!("{ring} {name}").contains(wanted) {
            continue;
        }
        let cost: Cost = TwoParty::<W>::plan(&gate, ring, &Options::default());
        let time = measure::<W>(ring, count, cost.ot_count, run);
        let transfers: u64 = cost.ot_count.by_sender.iter().sum();
        println!(
            "{ring} {name}: {:.0} k/s, {:.1} bits and {:.1} OTs an element, {} rounds",
            count as f64 / time.as_secs_f64() / 1e3,
            cost.total_bytes() as f64 * 8.0 / count as f64,
            transfers as f64 / count as f64,
            cost.rounds
        );
    }
}

fn main() {
    covey_kernels::dispatch::cap_from_environment();
    covey_kernels::keep_freed_memory();
    let mut arguments = std::env::args().skip(1);
    let count = arguments.next().and_then(|count| count.parse().ok()).unwrap_or(1 << 17);
    let wanted = arguments.next().unwrap_or_default();
    convolution::<u32>(Ring::Pow2(32), &wanted);
    convolution::<u64>(Ring::Pow2(37), &wanted);
    report::<u32>(Ring::Pow2(32), count, &wanted);
    report::<u64>(Ring::Pow2(37), count, &wanted);
    report::<u64>(Ring::Pow2(64), count, &wanted);
}
