//! Programs wrong in one node: each is refused with its own message.

use super::*;
use covey_operators::wire::node::Op as WireOp;

/// The fields of the operation of the first node called `$name`.
macro_rules! op {
    ($program:expr, $name:expr, $variant:ident) => {
        match &mut node($program, $name).op {
            Some(WireOp::$variant(op)) => op,
            _ => unreachable!("{} is a {}", $name, stringify!($variant)),
        }
    };
}

/// The window of the first node called `$name`.
macro_rules! window {
    ($program:expr, $name:expr, $variant:ident) => {
        op!($program, $name, $variant).window.as_mut().expect("a window")
    };
}

#[test]
fn wiring() {
    refuses_each(&[
        (|p| node(p, "relu").name.clear(), "node '' (Relu): its name is empty"),
        (|p| node(p, "relu").name = "a\rb".into(), "node 'ab' (Relu): its name holds control characters"),
        (
            |p| node(p, "relu").source_op = "\t".into(),
            "node 'relu' (Relu): its model operator holds control characters",
        ),
        (
            |p| node(p, "relu").op = None,
            "node 'relu' (Relu): its operation is not known to this Covey: upgrade, or compile the model again",
        ),
        (|p| node(p, "relu").inputs = vec![99], "node 'relu' (Relu): refers to value 99 where there are 28"),
        (|p| node(p, "relu").outputs = vec![99], "node 'relu' (Relu): refers to value 99 where there are 28"),
        (|p| p.nodes.swap(0, 1), "node 'conv' (Truncate): reads 'conv:0' before any node has computed it"),
        (
            |p| node(p, "relu").inputs = node(p, "relu").outputs.clone(),
            "node 'relu' (Relu): reads 'relu:2' before any node has computed it",
        ),
        (|p| node(p, "relu").outputs.clear(), "node 'relu' (Relu): writes 0 values and not one"),
        (
            |p| node(p, "relu").outputs = vec![0],
            "node 'relu' (Relu): writes 'image', which is an input, constant or parameter",
        ),
        (
            |p| node(p, "relu").outputs = vec![id(p, "conv:0")],
            "node 'relu' (Relu): writes 'conv:0', which an earlier node has computed",
        ),
        (|p| node(p, "relu").inputs.push(0), "node 'relu' (Relu): takes 1 operands, not 2"),
        (|p| node(p, "shift").inputs.truncate(1), "node 'shift' (Add): takes 2 operands, not 1"),
        (
            |p| node(p, "dense").inputs.truncate(1),
            "node 'dense' (Dense): takes an input, a weight and optionally a bias, not 1 operands",
        ),
        (|p| node(p, "join").inputs.clear(), "node 'join' (Concat): takes at least one operand"),
        (
            |p| value(p, "relu:2").shape = vec![4, 8, 7],
            "node 'relu' (Relu): computes shape [N, 4, 8, 8] but 'relu:2' declares [N, 4, 8, 7]",
        ),
        (
            |p| value(p, "relu:2").batched = false,
            "node 'relu' (Relu): computes shape [N, 4, 8, 8] but 'relu:2' declares [4, 8, 8]",
        ),
        (
            |p| value(p, "relu:2").visibility = 1,
            "node 'relu' (Relu): its operands make the result secret but 'relu:2' is declared public",
        ),
        (
            |p| {
                node(p, "shift").inputs = vec![id(p, "shift"), id(p, "shift")];
                let result = value(p, "shift:7");
                (result.shape, result.batched) = (vec![8, 1, 1], false);
            },
            "node 'shift' (Add): its operands make the result public but 'shift:7' is declared secret",
        ),
    ]);
}

#[test]
fn scales() {
    let computes = |cases: &[(&str, &str)]| {
        for (name, expected) in cases {
            let error = changed(|p| value(p, name).scale += 1).unwrap_err();
            assert_eq!(error.to_string(), *expected);
        }
    };
    computes(&[
        ("conv:0", "node 'conv' (Conv2d): computes scale 16 but 'conv:0' declares 17"),
        ("conv:1", "node 'conv' (Truncate): computes scale 8 but 'conv:1' declares 9"),
        ("relu:2", "node 'relu' (Relu): computes scale 8 but 'relu:2' declares 9"),
        ("mean:3", "node 'mean' (SumPool): computes scale 8 but 'mean:3' declares 9"),
        ("top:5", "node 'top' (MaxPool): computes scale 8 but 'top:5' declares 9"),
        ("join:6", "node 'join' (Concat): computes scale 8 but 'join:6' declares 9"),
        ("shift:7", "node 'shift' (Add): computes scale 8 but 'shift:7' declares 9"),
        ("gain:8", "node 'gain' (Mul): computes scale 8 but 'gain:8' declares 9"),
        ("less:9", "node 'less' (Sub): computes scale 8 but 'less:9' declares 9"),
        ("part:10", "node 'part' (DivExact): computes scale 8 but 'part:10' declares 9"),
        ("pad:11", "node 'pad' (Pad): computes scale 8 but 'pad:11' declares 9"),
        ("turn:12", "node 'turn' (Transpose): computes scale 8 but 'turn:12' declares 9"),
        ("square:13", "node 'square' (Matmul): computes scale 16 but 'square:13' declares 17"),
        ("clip:15", "node 'clip' (Clip): computes scale 8 but 'clip:15' declares 9"),
        ("flat:16", "node 'flat' (Reshape): computes scale 8 but 'flat:16' declares 9"),
        ("dense:17", "node 'dense' (Dense): computes scale 16 but 'dense:17' declares 17"),
        ("lift:18", "node 'lift' (ShiftLeft): computes scale 17 but 'lift:18' declares 18"),
        ("class:19", "node 'class' (ArgMax): computes scale 0 but 'class:19' declares 1"),
        ("bias", "node 'conv' (Conv2d): bias 'bias' has scale 17 and not the product's 16"),
        ("shift", "node 'shift' (Add): 'join:6' has scale 8 and 'shift' 9: shift one left or truncate the other first"),
        (
            "mean:4",
            "node 'join' (Concat): 'mean:4' has scale 9 and 'top:5' 8: shift one left or truncate the other first",
        ),
    ]);
    refuses_each(&[
        (
            |p| value(p, "mean:4").scale = 19,
            "node 'mean' (MulShift): 'mean:4' has scale 19, above the 8 of 'mean:3' plus the shift 10",
        ),
        (|p| op!(p, "conv", Conv2d).window = None, "node 'conv' (Conv2d): has no window"),
    ]);
}

#[test]
fn shifts_and_divisions() {
    // The first node called "mean" pools, and the second scales.
    fn mean(p: &mut wire::Program) -> &mut wire::MulShift {
        match &mut p.nodes[4].op {
            Some(WireOp::MulShift(op)) => op,
            _ => unreachable!(),
        }
    }
    fn truncate(p: &mut wire::Program) -> &mut wire::Truncate {
        match &mut p.nodes[1].op {
            Some(WireOp::Truncate(op)) => op,
            _ => unreachable!(),
        }
    }
    refuses_each(&[
        (|p| truncate(p).bits = 0, "node 'conv' (Truncate): shifts by 0 bits where 1 to 31 are allowed in Z_2^32"),
        (|p| truncate(p).bits = 32, "node 'conv' (Truncate): shifts by 32 bits where 1 to 31 are allowed in Z_2^32"),
        (
            |p| truncate(p).bits = 17,
            "node 'conv' (Truncate): drops 17 bits but 'conv:0' has scale 16: truncate by at most its scale",
        ),
        (|p| truncate(p).rounding = 3, "node 'conv' (Truncate): rounding 3 is not known to this Covey: upgrade"),
        (
            |p| op!(p, "lift", ShiftLeft).bits = 32,
            "node 'lift' (ShiftLeft): shifts by 32 bits where 1 to 31 are allowed in Z_2^32",
        ),
        (|p| mean(p).shift = 0, "node 'mean' (MulShift): shifts by 0 bits where 1 to 31 are allowed in Z_2^32"),
        (|p| mean(p).rounding = -1, "node 'mean' (MulShift): rounding -1 is not known to this Covey: upgrade"),
        (
            |p| mean(p).multipliers.clear(),
            "node 'mean' (MulShift): holds 0 multipliers: give one, or one per element of the last two \
             dimensions of 'mean:3' [N, 4, 4, 4]",
        ),
        (
            |p| mean(p).multipliers = vec![1; 15],
            "node 'mean' (MulShift): holds 15 multipliers: give one, or one per element of the last two \
             dimensions of 'mean:3' [N, 4, 4, 4]",
        ),
        (
            |p| mean(p).multipliers = vec![1 << 18],
            "node 'mean' (MulShift): 'mean:3' is bounded by 2^14 and times 262144 leaves Z_2^32: compile with a \
             larger ring or a smaller scale",
        ),
        (
            |p| mean(p).multipliers = vec![i64::MIN],
            "node 'mean' (MulShift): multiplies by -9223372036854775808, outside Z_2^32",
        ),
        (
            |p| op!(p, "part", DivExact).divisor = 0,
            "node 'part' (DivExact): divisor 0 is not between 1 and the largest integer of Z_2^32",
        ),
        (
            |p| op!(p, "part", DivExact).divisor = 1 << 31,
            "node 'part' (DivExact): divisor 2147483648 is not between 1 and the largest integer of Z_2^32",
        ),
    ]);
    assert!(changed(|p| mean(p).multipliers = vec![1; 16]).is_ok());
}

#[test]
fn linear_layers() {
    refuses_each(&[
        (
            |p| window!(p, "conv", Conv2d).kernel = vec![3],
            "node 'conv' (Conv2d): its kernel sides hold 1 numbers and not 2",
        ),
        (
            |p| window!(p, "conv", Conv2d).kernel = vec![0, 3],
            "node 'conv' (Conv2d): its kernel sides hold 0, outside 1..=65535",
        ),
        (
            |p| window!(p, "conv", Conv2d).strides = vec![1, 0],
            "node 'conv' (Conv2d): its strides hold 0, outside 1..=65535",
        ),
        (
            |p| window!(p, "conv", Conv2d).dilations = vec![65536, 1],
            "node 'conv' (Conv2d): its dilations hold 65536, outside 1..=65535",
        ),
        (
            |p| window!(p, "conv", Conv2d).pads = vec![1, 1, 1, u32::MAX],
            "node 'conv' (Conv2d): its pads hold 4294967295, outside 0..=65535",
        ),
        (
            |p| window!(p, "conv", Conv2d).kernel = vec![1, 3],
            "node 'conv' (Conv2d): weight 'kernel' has shape [4, 1, 3, 3] but the kernel [1, 3]",
        ),
        (
            |p| window!(p, "conv", Conv2d).dilations = vec![5, 1],
            "node 'conv' (Conv2d): the window spans [11, 3] and 'image' of shape [N, 2, 8, 8] is smaller even when \
             padded",
        ),
        (
            |p| op!(p, "conv", Conv2d).groups = 0,
            "node 'conv' (Conv2d): 0 groups do not divide 2 input and 4 output channels",
        ),
        (
            |p| op!(p, "conv", Conv2d).groups = 4,
            "node 'conv' (Conv2d): 4 groups do not divide 2 input and 4 output channels",
        ),
        (
            |p| op!(p, "conv", Conv2d).groups = 1,
            "node 'conv' (Conv2d): weight 'kernel' reads 1 channels where 'image' has 2 in 1 groups",
        ),
        (
            |p| value(p, "image").shape = vec![2, 64],
            "node 'conv' (Conv2d): 'image' has shape [N, 2, 64] and not [N, .., C, H, W]",
        ),
        (
            |p| value(p, "kernel").shape = vec![4, 9],
            "node 'conv' (Conv2d): weight 'kernel' has shape [4, 9] and not [O, C/groups, KH, KW]",
        ),
        (|p| value(p, "bias").shape = vec![4, 1], "node 'conv' (Conv2d): bias 'bias' has shape [4, 1] and not [4]"),
        (
            |p| node(p, "conv").inputs[1] = 0,
            "node 'conv' (Conv2d): weight 'image' has shape [2, 8, 8] and not [O, C/groups, KH, KW]",
        ),
        (
            |p| node(p, "dense").inputs[1] = id(p, "relu:2"),
            "node 'dense' (Dense): weight 'relu:2' has shape [4, 8, 8] and not [K, M]",
        ),
        (
            |p| value(p, "weight").shape = vec![2000],
            "node 'dense' (Dense): weight 'weight' has shape [2000] and not [K, M]",
        ),
        (
            |p| value(p, "weight").shape = vec![100, 10],
            "node 'dense' (Dense): 'flat:16' of shape [N, 200] does not end in the 100 rows of weight 'weight'",
        ),
        (
            |p| node(p, "square").inputs[1] = id(p, "kernel"),
            "node 'square' (Matmul): 'kernel' comes with the model or is public: use Dense",
        ),
        (
            |p| node(p, "square").inputs[1] = id(p, "relu:2"),
            "node 'square' (Matmul): 'pad:11' of shape [N, 8, 5, 5] and 'relu:2' of shape [N, 4, 8, 8] do not \
             multiply: give [N,..,M,K] and [N,..,K,P]",
        ),
    ]);
}

#[test]
fn pooling_and_clipping() {
    refuses_each(&[
        (|p| op!(p, "top", MaxPool).window = None, "node 'top' (MaxPool): has no window"),
        (
            |p| window!(p, "mean", SumPool).strides = vec![],
            "node 'mean' (SumPool): its strides hold 0 numbers and not 2",
        ),
        (
            |p| window!(p, "top", MaxPool).pads = vec![3, 0, 0, 0],
            "node 'top' (MaxPool): pads [3, 0, 0, 0] reach past the window, which spans [3, 3]",
        ),
        (
            // Taps at rows -1 and 9 of an image of 8 rows: nothing to take the maximum of.
            |p| {
                let window = window!(p, "top", MaxPool);
                window.kernel = vec![2, 3];
                window.dilations = vec![10, 1];
                window.pads = vec![1, 1, 9, 1];
            },
            "node 'top' (MaxPool): a window lies wholly in the padding of 'relu:2' [N, 4, 8, 8]",
        ),
        (
            |p| node(p, "top").inputs = vec![id(p, "flat:16")],
            "node 'top' (MaxPool): reads 'flat:16' before any node has computed it",
        ),
        (
            |p| (op!(p, "clip", Clip).low, op!(p, "clip", Clip).high) = (None, None),
            "node 'clip' (Clip): clips at neither end: leave the node out",
        ),
        (|p| op!(p, "clip", Clip).high = Some(-257), "node 'clip' (Clip): clips from -256 to -257, which is empty"),
        (|p| op!(p, "clip", Clip).high = Some(1 << 31), "node 'clip' (Clip): clips at 2147483648, outside Z_2^32"),
    ]);
}

#[test]
fn moving_elements() {
    refuses_each(&[
        (
            |p| value(p, "flat:16").shape = vec![100],
            "node 'flat' (Reshape): 'clip:15' of shape [N, 8, 5, 5] cannot become 'flat:16' of shape [N, 100]: the \
             batch and the number of elements must stay",
        ),
        (
            |p| value(p, "flat:16").batched = false,
            "node 'flat' (Reshape): 'clip:15' of shape [N, 8, 5, 5] cannot become 'flat:16' of shape [200]: the \
             batch and the number of elements must stay",
        ),
        (
            |p| op!(p, "turn", Transpose).permutation = vec![0, 1, 2, 2],
            "node 'turn' (Transpose): [0, 1, 2, 2] does not permute the 4 dimensions of 'pad:11'",
        ),
        (
            |p| op!(p, "turn", Transpose).permutation = vec![0, 1, 2],
            "node 'turn' (Transpose): [0, 1, 2] does not permute the 4 dimensions of 'pad:11'",
        ),
        (
            |p| op!(p, "turn", Transpose).permutation = vec![1, 0, 2, 3],
            "node 'turn' (Transpose): moves the batch dimension, which must stay first",
        ),
        (
            |p| op!(p, "join", Concat).axis = 0,
            "node 'join' (Concat): axis 0 is the batch or past the end of 'mean:4' of shape [N, 4, 4, 4]",
        ),
        (
            |p| op!(p, "join", Concat).axis = 4,
            "node 'join' (Concat): axis 4 is the batch or past the end of 'mean:4' of shape [N, 4, 4, 4]",
        ),
        (
            |p| node(p, "join").inputs[1] = id(p, "relu:2"),
            "node 'join' (Concat): 'mean:4' of shape [N, 4, 4, 4] and 'relu:2' of shape [N, 4, 8, 8] differ outside \
             axis 1",
        ),
        (
            |p| value(p, "shift").shape = vec![1, 8, 1],
            "node 'shift' (Add): 'join:6' of shape [N, 8, 4, 4] and 'shift' of shape [1, 8, 1] do not broadcast",
        ),
        (
            |p| op!(p, "pad", Pad).before = vec![0, 0, 1],
            "node 'pad' (Pad): pads 3 dimensions before and 4 after where 'part:10' has 4",
        ),
        (
            |p| op!(p, "pad", Pad).after = vec![1, 0, 0, 0],
            "node 'pad' (Pad): pads the batch dimension of 'part:10', which must stay as it is",
        ),
        (
            |p| op!(p, "pad", Pad).value = -(1 << 30),
            "node 'pad' (Pad): puts 1073741824 into 'pad:11', outside its bound 2^30",
        ),
        (
            |p| op!(p, "class", ArgMax).axis = 0,
            "node 'class' (ArgMax): axis 0 is the batch or past the end of 'lift:18' of shape [N, 10]",
        ),
        (
            |p| value(p, "class:19").bound = Some(wire::Bound { bits: 3, source: 0 }),
            "node 'class' (ArgMax): puts 9 into 'class:19', outside its bound 2^3",
        ),
        (
            |p| op!(p, "pick", Gather).sizes = vec![5, 0],
            "node 'pick' (Gather): takes no elements along dimension 1 of the result",
        ),
        (
            |p| op!(p, "pick", Gather).sizes = vec![2, 4],
            "node 'pick' (Gather): holds 5 offsets where its sizes [2, 4] need 6",
        ),
        (
            |p| op!(p, "pick", Gather).offsets[0] = 200,
            "node 'pick' (Gather): takes the element at offset 202 where 'flat:16' has 200 in a sample",
        ),
        (
            |p| op!(p, "pick", Gather).sizes = vec![3, 2],
            "node 'pick' (Gather): computes shape [N, 3, 2] but 'pick:20' declares [N, 2, 3]",
        ),
        (
            |p| value(p, "sign:21").bound = Some(wire::Bound { bits: 0, source: 0 }),
            "node 'sign' (LessThanZero): puts 1 into 'sign:21', outside its bound 2^0",
        ),
        (|p| value(p, "sign:21").scale = 8, "node 'sign' (LessThanZero): computes scale 0 but 'sign:21' declares 8"),
    ]);
}

#[test]
fn the_first_of_several_problems_is_reported() {
    let error = changed(|p| {
        value(p, "bias").scale = 63;
        value(p, "weight").scale = 63;
        op!(p, "part", DivExact).divisor = 0;
        p.outputs.push(99);
        p.postprocess.push(0);
    });
    assert!(error.unwrap_err().to_string().starts_with("value 'bias'"));
}
