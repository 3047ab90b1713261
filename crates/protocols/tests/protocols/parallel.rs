//! Parallel linear layers: the bytes of all, in the rounds of one.

use covey_kernels::ConvGeometry;
use covey_protocols::beaver::Beaver;
use covey_protocols::cost::{Cost, CostModel, Gate};
use covey_protocols::quad::Quad;
use covey_protocols::trio::Trio;
use covey_protocols::{Comparison, Geometry, NetworkProfile, Options, Rounding, Truncation, WeightKind};
use covey_ring::Ring;

const FAR: NetworkProfile = NetworkProfile { latency_us: 35_000, bits_per_second: 1_000_000_000 };

/// A convolution of an image of 16 × 12, whose shift and ReLU are those of `bits`.
fn layer(channels: [usize; 2], size: usize, bits: u32) -> Gate {
    let [in_channels, out_channels] = channels;
    let (kernel, pads) = ([size; 2], [size / 2; 4]);
    let input = [16, 12];
    let map =
        ConvGeometry { in_channels, out_channels, groups: 1, input, kernel, strides: [1; 2], pads, dilations: [1; 2] };
    Gate::Linear {
        geometry: Geometry::Conv2d(map.checked().unwrap()),
        other_inputs: 0,
        batch: 1,
        weight: WeightKind::Stored { bits: 8 },
        truncate: Some(Truncation { bits, rounding: Rounding::Exact, bound: 30 }),
        relu: Some(Comparison::new(30 - bits, true)),
    }
}

#[test]
fn parallel_layers_send_the_bytes_of_all_in_the_rounds_of_one() {
    let ring = Ring::Pow2(32);
    let options = Options { network: FAR, window: FAR.window(), ..Options::default() };
    // Quad checks what the first two open by combinations, and what the last opens by element.
    let layers = [layer([192, 192], 1, 8), layer([192, 192], 3, 10), layer([16, 8], 3, 9)];
    for model in [CostModel::of::<Trio<u32>>(), CostModel::of::<Quad<u32>>(), CostModel::of::<Beaver<u32>>()] {
        assert!((model.joins_layers)(&options) && !(model.joins_layers)(&Options::default()), "{}", model.name);
        let apart: Vec<Cost> = layers.iter().map(|layer| (model.plan)(layer, ring, &options)).collect();
        let mut all = Cost::default();
        apart.iter().for_each(|cost| all += cost);
        let joined = (model.plan_parallel)(&layers, ring, &options);
        assert_eq!(joined.links, all.links, "{}", model.name);
        assert!(joined.rounds > 0 && apart.iter().all(|cost| cost.rounds == joined.rounds), "{}", model.name);
        // Where their tiles are not all in flight at once, layers stay apart.
        let narrow = Options { window: 4, ..options };
        let apart: u64 = layers.iter().map(|layer| (model.plan)(layer, ring, &narrow).rounds).sum();
        let joined = (model.plan_parallel)(&layers, ring, &narrow).rounds;
        assert!(joined > apart / 2 && joined <= apart, "{}: {joined} rounds, apart {apart}", model.name);
    }
}
