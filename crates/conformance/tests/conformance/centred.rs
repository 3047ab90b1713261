//! Products of secrets that are shifted to the nearest, as programs: the half and the shift join the product.

use covey_conformance::program::{Case, conform};
use covey_conformance::trio::TrioHarness;
use covey_conformance::{Session, Transport, programs};
use covey_program::{ProgramBuilder, Rounding, op};
use covey_protocols::circuits::Adder;
use covey_protocols::{Options, Phase};
use covey_ring::Ring;
use covey_runtime::{Fusions, Schedule};

#[test]
fn products_to_the_nearest() {
    let ring = Ring::Pow2(32);
    for reshaped in [false, true] {
        let mut b = ProgramBuilder::new("centred", ring);
        let (x, y) = (b.input("x", &[6], 8), b.input("y", &[6], 8));
        [x, y].into_iter().for_each(|input| b.bound(input, 13));
        let product = b.node("product", op::Mul, &[x, y]);
        b.bound(product, 28);
        let half = b.constant("half", &[], 16, vec![1 << 7]);
        let mut centred = b.node("centred", op::Add, &[product, half]);
        b.bound(centred, 29);
        if reshaped {
            centred = b.reshape("rows", centred, &[2, 3]);
            b.bound(centred, 29);
        }
        let truncate = op::Truncate { bits: 8, rounding: Rounding::Exact };
        let short = b.node("short", truncate, &[centred]);
        b.bound(short, 21);
        b.output(short);
        let program = std::sync::Arc::new(b.build().unwrap());
        assert_eq!(Schedule::new(&program, Fusions { relu: true, ..Fusions::default() }).steps().len(), 1);
        let weights = programs::weights(&program).unwrap();
        let inputs = (0..2).map(|number| programs::inputs(&program, 3, number)).collect();
        let case = Case { program, weights, inputs };
        let runs = [(Phase::Joint, 1), (Phase::Preprocess, 2), (Phase::Online, 2)];
        for adder in [Adder::Auto, Adder::FewestBytes, Adder::Ripple] {
            let options = Options { adder, ..Options::default() };
            let session = Session::<TrioHarness<u32>>::new(Transport::Memory, ring, options);
            conform(&session, &case, &runs).unwrap_or_else(|failure| panic!("{adder:?}: {failure}"));
        }
    }
}
