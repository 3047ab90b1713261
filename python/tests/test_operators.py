"""Each operator: the float reference equals onnxruntime, and the program comes near it inside its bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import builders
import covey
import interpreter
from agreement import agree, image
from covey import reference
from covey.clear import run_clear
from covey.importers.onnx import import_model
from covey.model import load

QUICK = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)


@st.composite
def geometry(draw: st.DrawFn) -> dict[str, Any]:
    """Window attributes that fit a 7 x 9 image."""
    kernel = [draw(st.integers(1, 3)), draw(st.integers(1, 3))]
    dilations = [draw(st.integers(1, 2)), draw(st.integers(1, 2))]
    extent = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    pads = [draw(st.integers(0, min(2, extent[i % 2] - 1))) for i in range(4)]
    return {
        "kernel_shape": kernel,
        "strides": [draw(st.integers(1, 3)), draw(st.integers(1, 3))],
        "dilations": dilations,
        "pads": pads,
    }


@QUICK
@given(geometry(), st.sampled_from([1, 2, 4]), st.booleans())
def test_conv(window: dict[str, Any], groups: int, with_bias: bool) -> None:
    rng = np.random.default_rng(0)
    constants = {"w": builders.weights(rng, 8, 4 // groups, *window["kernel_shape"])}
    if with_bias:
        constants["b"] = rng.normal(size=8)
    agree(builders.single("Conv", ["N", 4, 7, 9], constants, group=groups, **window), image(2, 4, 7, 9))


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("strides", [[1, 1], [2, 3]])
def test_auto_pad(auto_pad: str, strides: list[int]) -> None:
    rng = np.random.default_rng(0)
    weight = {"w": builders.weights(rng, 3, 2, 2, 3)}
    agree(builders.single("Conv", ["N", 2, 7, 8], weight, auto_pad=auto_pad, strides=strides), image(2, 2, 7, 8))
    pool = builders.single("MaxPool", ["N", 2, 7, 8], auto_pad=auto_pad, strides=strides, kernel_shape=[2, 3])
    agree(pool, image(2, 2, 7, 8))


@QUICK
@given(geometry(), st.booleans())
def test_max_pool(window: dict[str, Any], ceil: bool) -> None:
    # onnxruntime refuses padding as large as the kernel, even where dilation makes the window larger.
    window["pads"] = [min(pad, window["kernel_shape"][i % 2] - 1) for i, pad in enumerate(window["pads"])]
    proto = builders.single("MaxPool", ["N", 3, 7, 9], ceil_mode=int(ceil), **window)
    agree(proto, image(2, 3, 7, 9))


@QUICK
@given(geometry(), st.booleans(), st.booleans())
def test_average_pool(window: dict[str, Any], ceil: bool, include: bool) -> None:
    window = {key: value for key, value in window.items() if key != "dilations"}
    window["pads"] = [min(pad, window["kernel_shape"][i % 2] - 1) for i, pad in enumerate(window["pads"])]
    proto = builders.single(
        "AveragePool", ["N", 3, 7, 9], opset=19, ceil_mode=int(ceil), count_include_pad=int(include), **window
    )
    agree(proto, image(2, 3, 7, 9))


def test_average_pool_exact_division() -> None:
    compiled = agree(
        builders.single("AveragePool", ["N", 1, 6, 6], kernel_shape=[3, 3]), image(2, 1, 6, 6), division="exact"
    )
    assert interpreter.program_of(compiled).nodes[1].div_exact.divisor == 9


def test_average_pool_of_a_power_of_two_is_a_plain_shift() -> None:
    compiled = agree(builders.single("AveragePool", ["N", 1, 4, 4], kernel_shape=[2, 2]), image(2, 1, 4, 4))
    division = interpreter.program_of(compiled).nodes[1].mul_shift
    assert (list(division.multipliers), division.shift) == ([1], 2)


@pytest.mark.parametrize("op", ["GlobalAveragePool", "GlobalMaxPool"])
def test_global_pools(op: str) -> None:
    agree(builders.single(op, ["N", 3, 7, 7]), image(2, 3, 7, 7))


@pytest.mark.parametrize("keep", [0, 1])
def test_reduce_mean(keep: int) -> None:
    agree(builders.single("ReduceMean", ["N", 3, 5, 5], axes=[-1, -2], keepdims=keep), image(2, 3, 5, 5))


@pytest.mark.parametrize("trans_b", [0, 1])
@pytest.mark.parametrize("bias", [None, (), (1,), (5,), (1, 5)])
def test_gemm(trans_b: int, bias: tuple[int, ...] | None) -> None:
    rng = np.random.default_rng(0)
    constants = {"w": rng.normal(size=(5, 6) if trans_b else (6, 5))}
    if bias is not None:
        constants["c"] = np.asarray(rng.normal(size=bias))
    proto = builders.single("Gemm", ["N", 6], constants, transB=trans_b, alpha=0.5, beta=2.0)
    agree(proto, image(3, 6))


def test_gemm_with_an_activation_as_summand() -> None:
    rng = np.random.default_rng(0)
    node = helper.make_node("Gemm", ["x", "w", "z"], ["y"], name="gemm")
    proto = builders.model([node], {"x": ["N", 6], "z": ["N", 4]}, ["y"], {"w": rng.normal(size=(6, 4))})
    agree(proto, {"x": rng.uniform(-1, 1, (3, 6)), "z": rng.uniform(-1, 1, (3, 4))})


@pytest.mark.parametrize("shape", [(6, 4), (1, 6, 4), (6,)])
def test_matmul_with_a_constant_on_the_right(shape: tuple[int, ...]) -> None:
    weight = np.random.default_rng(0).normal(size=shape)
    agree(builders.single("MatMul", ["N", 3, 6], {"w": weight}), image(2, 3, 6))


@pytest.mark.parametrize("shape", [(4, 3), (3,)])
def test_matmul_with_a_constant_on_the_left(shape: tuple[int, ...]) -> None:
    weight = np.random.default_rng(0).normal(size=shape)
    node = helper.make_node("MatMul", ["w", "x"], ["y"], name="product")
    agree(builders.model([node], {"x": ["N", 3, 6]}, ["y"], {"w": weight}), image(2, 3, 6))


def test_matmul_of_two_activations() -> None:
    node = helper.make_node("MatMul", ["a", "b"], ["y"], name="product")
    proto = builders.model([node], {"a": ["N", 2, 3, 5], "b": ["N", 2, 5, 4]}, ["y"])
    rng = np.random.default_rng(0)
    agree(proto, {"a": rng.uniform(-1, 1, (2, 2, 3, 5)), "b": rng.uniform(-1, 1, (2, 2, 5, 4))})


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div"])
@pytest.mark.parametrize("shape", [(), (1,), (5,), (4, 1), (3, 4, 5), (1, 3, 1, 1)])
def test_arithmetic_with_a_constant(op: str, shape: tuple[int, ...]) -> None:
    constant = np.asarray(np.random.default_rng(0).uniform(0.5, 2, shape))
    agree(builders.single(op, ["N", 3, 4, 5], {"k": constant}), image(2, 3, 4, 5))


ONE = np.full((1, 1, 1), 0.5)


def compared(op: str, constant: np.ndarray) -> onnx.ModelProto:
    nodes = [
        helper.make_node(op, ["x", "k"], ["b"], name="the_node"),
        helper.make_node("Cast", ["b"], ["y"], to=TensorProto.FLOAT),
    ]
    return builders.model(nodes, {"x": ["N", 4]}, ["y"], {"k": constant})


def chosen(condition: np.ndarray) -> onnx.ModelProto:
    nodes = [
        helper.make_node("Neg", ["x"], ["n"]),
        helper.make_node("Where", ["k", "x", "n"], ["y"], name="the_node"),
    ]
    return builders.model(nodes, {"x": ["N", 4]}, ["y"], {"k": condition})


@pytest.mark.parametrize(
    "proto",
    [
        *(builders.single(op, ["N", 4], {"k": ONE}) for op in ("Add", "Sub", "Mul", "Div", "Max", "Min", "PRelu")),
        *(builders.single("MatMul", ["N", 4], {"k": np.ones(shape)}) for shape in ((1, 4, 5), (1, 1, 4, 5))),
        builders.model(
            [helper.make_node("MatMul", ["k", "x"], ["y"], name="the_node")],
            {"x": ["N", 3, 4]},
            ["y"],
            {"k": np.ones((1, 1, 2, 3))},
        ),
        *(compared(op, ONE) for op in ("Less", "Greater", "Equal", "LessOrEqual")),
        chosen(np.ones((1, 1, 4), dtype=bool)),
        builders.single("Pow", ["N", 4], {"k": ONE * 4}),
    ],
    ids=lambda proto: proto.graph.node[-1].op_type if isinstance(proto, onnx.ModelProto) else None,
)
def test_constants_that_raise_the_rank_are_refused(proto: onnx.ModelProto) -> None:
    """Their dimensions would stand in front of the batch."""
    with pytest.raises(covey.UnsupportedError, match=r"has more dimensions than x|differs between samples"):
        import_model(proto)


@pytest.mark.parametrize("exponent", [1.0, 2.0, 3.0, 0.5])
@pytest.mark.parametrize("shape", [(1, 4, 1), (4, 1), (1,), ()])
def test_the_shape_of_an_exponent_counts(shape: tuple[int, ...], exponent: float) -> None:
    nodes = [helper.make_node("Pow", ["x", "k"], ["p"]), helper.make_node("Neg", ["p"], ["y"])]
    proto = builders.model(nodes, {"x": ["N", 1, 3]}, ["y"], {"k": np.full(shape, exponent)})
    agree(proto, {"x": np.abs(image(2, 1, 3)["x"]) + 0.25})


@pytest.mark.parametrize("base", [2.0, [[0.5], [1.0], [3.0]]])
def test_powers_of_constants(base: Any) -> None:
    proto = builders.single("Pow", ["N", 3, 4], {"k": np.array(base)})
    proto.graph.node[0].input[:] = ["k", "x"]
    agree(proto, image(2, 3, 4))


@pytest.mark.parametrize("shape", [(3, 4), (3,)])
def test_an_exponent_that_does_not_fit_is_refused(shape: tuple[int, ...]) -> None:
    node = helper.make_node("Pow", ["x", "k"], ["y"], name="the_node")
    proto = builders.model([node], {"x": ["N", 4]}, {"y": ["N", 4]}, {"k": np.full(shape, 2.0)})
    with pytest.raises(covey.UnsupportedError, match=r"its exponent of shape .* does not fit x"):
        import_model(proto)


def test_constant_minus_activation_and_negation() -> None:
    nodes = [
        helper.make_node("Sub", ["k", "x"], ["d"], name="difference"),
        helper.make_node("Neg", ["d"], ["y"], name="negation"),
    ]
    agree(builders.model(nodes, {"x": ["N", 4]}, ["y"], {"k": np.array([1.0, 2.0, 3.0, 4.0])}), image(2, 4))


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Sum"])
def test_arithmetic_of_two_activations(op: str) -> None:
    node = helper.make_node(op, ["a", "b"], ["y"], name="both")
    proto = builders.model([node], {"a": ["N", 3, 4], "b": ["N", 1, 4] if op != "Sum" else ["N", 3, 4]}, ["y"])
    rng = np.random.default_rng(0)
    other = (2, 1, 4) if op != "Sum" else (2, 3, 4)
    agree(proto, {"a": rng.uniform(-1, 1, (2, 3, 4)), "b": rng.uniform(-1, 1, other)})


def test_a_small_constant_keeps_its_digits() -> None:
    data = {"x": np.random.default_rng(0).uniform(0, 255, (2, 8)).round()}
    agree(builders.single("Mul", ["N", 8], {"k": np.array(1 / 255)}), data, tolerance=0.002)


@pytest.mark.parametrize("opset", [7, 11, 17])
@pytest.mark.parametrize("bounds", [(0.0, 0.5), (-0.25, None), (None, 0.25), (-1e9, 0.5)])
def test_clip(opset: int, bounds: tuple[float | None, float | None]) -> None:
    low, high = bounds
    if opset < 11:
        attributes = {key: value for key, value in (("min", low), ("max", high)) if value is not None}
        agree(builders.single("Clip", ["N", 6], opset=opset, **attributes), image(2, 6))
        return
    names = ["low" if low is not None else "", "high" if high is not None else ""]
    node = helper.make_node("Clip", ["x", *names], ["y"], name="clip")
    constants = {name: np.array(value) for name, value in zip(names, bounds, strict=True) if value is not None}
    agree(builders.model([node], {"x": ["N", 6]}, ["y"], constants, opset=opset), image(2, 6))


@pytest.mark.parametrize("rank", [1, 3])
def test_batch_normalization_alone(rank: int) -> None:
    rng = np.random.default_rng(0)
    constants = {name: rng.uniform(0.5, 1.5, 3) for name in ("s", "b", "m", "v")}
    shape = [3, 4, 5][:rank]
    compiled = agree(builders.single("BatchNormalization", ["N", *shape], constants, epsilon=0.1), image(2, *shape))
    assert [node.WhichOneof("op") for node in interpreter.program_of(compiled).nodes] == ["mul", "add", "truncate"]


@pytest.mark.parametrize("target", [[0, -1], [-1, 60], [0, 3, 20], [0, 0, 20], [-1, 5, 12]])
def test_reshape(target: list[int]) -> None:
    agree(builders.single("Reshape", ["N", 3, 4, 5], {"t": np.array(target)}), image(2, 3, 4, 5))


def test_reshape_by_the_shape_of_an_activation() -> None:
    """What PyTorch exports for x.view(x.size(0), -1)."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"], name="shape"),
        helper.make_node("Gather", ["shape", "zero"], ["batch"], name="gather"),
        helper.make_node("Unsqueeze", ["batch", "axes"], ["batches"], name="unsqueeze"),
        helper.make_node("Concat", ["batches", "rest"], ["target"], name="concat", axis=0),
        helper.make_node("Reshape", ["x", "target"], ["y"], name="reshape"),
    ]
    constants = {"zero": np.array(0), "axes": np.array([0]), "rest": np.array([-1])}
    agree(builders.model(nodes, {"x": ["N", 3, 4]}, ["y"], constants), image(2, 3, 4))


@pytest.mark.parametrize(("axis", "shape"), [(1, [3, 4]), (-2, [3, 4]), (2, [1, 4])])
def test_flatten(axis: int, shape: list[int]) -> None:
    proto = builders.single("Flatten", ["N", *shape], axis=axis)
    data = image(1 if axis == 2 else 2, *shape)
    agree(proto, data)


def test_squeeze_and_unsqueeze() -> None:
    agree(builders.single("Squeeze", ["N", 3, 1, 1], {"axes": np.zeros(0, dtype=np.int64)}), image(2, 3, 1, 1))
    agree(builders.single("Squeeze", ["N", 3, 1, 1], {"axes": np.array([2, 3])}), image(2, 3, 1, 1))
    agree(builders.single("Unsqueeze", ["N", 3], {"axes": np.array([1, -1])}), image(2, 3))


def test_transpose_concat_pad() -> None:
    agree(builders.single("Transpose", ["N", 3, 4, 5], perm=[0, 2, 3, 1]), image(2, 3, 4, 5))
    concat = helper.make_node("Concat", ["x", "x", "x"], ["y"], name="concat", axis=-1)
    agree(builders.model([concat], {"x": ["N", 3, 4]}, ["y"]), image(2, 3, 4))
    pads = {"p": np.array([0, 0, 1, 2, 0, 1, 0, 3]), "v": np.array(0.5)}
    agree(builders.single("Pad", ["N", 2, 3, 4], pads), image(2, 2, 3, 4))
    some = {"p": np.array([1, 2]), "v": np.array(0.0), "axes": np.array([-1])}
    agree(builders.single("Pad", ["N", 2, 3], some, opset=18), image(2, 2, 3))
    agree(builders.single("Pad", ["N", 2, 3], opset=7, pads=[0, 1, 0, 0, 0, 2], value=0.25), image(2, 2, 3))


@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_arg_max(op: str, keep: int, last: int) -> None:
    data = {"x": np.random.default_rng(0).integers(-2, 3, (4, 3, 7)).astype(np.float64)}
    proto = builders.single(
        op, ["N", 3, 7], axis=2, keepdims=keep, select_last_index=last, output_dtype=TensorProto.INT64
    )
    agree(proto, data, tolerance=0)


def test_nothing_but_identities() -> None:
    nodes = [
        helper.make_node("Identity", ["x"], ["a"], name="identity"),
        helper.make_node("Dropout", ["a"], ["b"], name="dropout"),
        helper.make_node("Cast", ["b"], ["c"], name="cast", to=TensorProto.FLOAT),
        helper.make_node("Relu", ["c"], ["y"], name="relu"),
    ]
    compiled = agree(builders.model(nodes, {"x": ["N", 4]}, ["y"]), image(2, 4))
    assert len(interpreter.program_of(compiled).nodes) == 1
    assert {entry["node"] for entry in compiled.report["rewrites"]} == {"identity", "dropout", "cast"}


@pytest.mark.parametrize(("opset", "axis"), [(11, 1), (13, -1)])
def test_trailing_softmax(opset: int, axis: int) -> None:
    proto = builders.single("Softmax", ["N", 5], opset=opset, axis=axis)
    nodes = [helper.make_node("Relu", ["x"], ["r"], name="relu"), *proto.graph.node]
    nodes[1].input[0] = "r"
    proto = builders.model(nodes, {"x": ["N", 5]}, ["y"], opset=opset)
    data = image(2, 5)
    np.testing.assert_allclose(
        reference.outputs(import_model(proto), data)[0], builders.float_results(proto, data)[0], atol=1e-6
    )
    compiled = covey.compile(proto, input_range=(-1, 1))
    assert compiled.report["outputs"][0]["postprocess"] == "softmax"
    np.testing.assert_allclose(
        reference.outputs(compiled.graph, data)[0], builders.float_results(proto, data)[0], atol=1e-6
    )


def test_a_mask_that_nobody_reads_is_no_obstacle() -> None:
    nodes = [helper.make_node("Dropout", ["x"], ["t", "mask"]), helper.make_node("Relu", ["t"], ["y"])]
    agree(builders.model(nodes, {"x": ["N", 3]}, ["y"]), image(2, 3))


def test_mean_and_sign() -> None:
    nodes = [
        helper.make_node("Sign", ["x"], ["a"], name="sign"),
        helper.make_node("Mean", ["x", "a", "x"], ["y"], name="mean"),
    ]
    data = {"x": np.array([[-0.75, -0.25, 0.0, 0.25, 1.0]])}
    agree(builders.model(nodes, {"x": ["N", 5]}, ["y"]), data, tolerance=1e-3)
    agree(builders.single("Mean", ["N", 5]), data, tolerance=1e-3)


def test_a_ring_without_room_for_the_least_inverse_is_refused() -> None:
    """x over y would be 0 for large y."""
    proto = builders.model([helper.make_node("Div", ["a", "b"], ["y"])], {"a": ["N", 1], "b": ["N", 1]}, ["y"], {})
    ranges = {"a": (0, 1000), "b": (1, 1000)}
    with pytest.raises(covey.CoveyError, match=r"Z_2.32 has no room for inverses as small as 0.001"):
        covey.compile(proto, input_range=ranges, ring=32, scale=12)
    inputs = {"a": np.array([[1000.0], [1000.0], [600.0]]), "b": np.array([[1000.0], [700.0], [600.0]])}
    result = run_clear(load(covey.compile(proto, input_range=ranges)), inputs).outputs["y"]
    np.testing.assert_allclose(result, inputs["a"] / inputs["b"], rtol=2e-3)


@pytest.mark.parametrize("text", ["Log x y", "Exp x e; Sqrt e y", "Reciprocal x y", "Pow x half y"])
def test_outputs_have_the_names_of_the_model(text: str) -> None:
    nodes = []
    for step in text.split("; "):
        op, *operands, result = step.split()
        nodes.append(helper.make_node(op, operands, [result]))
    proto = builders.model(nodes, {"x": ["N", 2]}, ["y"], {"half": np.array(-0.5)} if "half" in text else {})
    compiled = covey.compile(proto, input_range=(0.01, 10), ring=64)
    assert list(run_clear(load(compiled), {"x": np.ones((2, 2))}).outputs) == ["y"]


def test_numbers_beyond_any_word_are_refused() -> None:
    proto = builders.model([helper.make_node("Log", ["x"], ["y"])], {"x": ["N", 1]}, ["y"])
    with pytest.raises(covey.CoveyError, match="bits"):
        covey.compile(proto, calibration=np.random.default_rng(0).uniform(1, 1e20, (9, 1)))


@pytest.mark.parametrize("domain", ["", "com.microsoft"])
def test_outputs_need_no_shape(domain: str) -> None:
    """Of the other domain ONNX infers nothing."""
    proto = builders.single("Gelu", ["N", 4])
    proto.graph.node[0].domain = domain
    proto.opset_import[0].version = 20
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, None))
    agree(proto, image(5, 4))


@pytest.mark.parametrize(("lambd", "bias"), [(0.25, 0.25), (0.5, 0.0), (0.0, 0.75)])
def test_shrink(lambd: float, bias: float) -> None:
    agree(builders.single("Shrink", ["N", 9], lambd=lambd, bias=bias), image(4, 9), tolerance=1e-3)


@pytest.mark.parametrize(("opset", "axis"), [(13, 1), (13, -1), (11, 2), (11, 1)])
def test_hardmax(opset: int, axis: int) -> None:
    proto = builders.single("Hardmax", ["N", 3, 4], axis=axis, opset=opset)
    if (opset, axis) == (11, 1):
        with pytest.raises(covey.UnsupportedError, match="takes all dimensions behind its axis for one; use opset 13"):
            covey.compile(proto, input_range=(-1, 1))
        return
    ties = np.random.default_rng(0).integers(-2, 3, (5, 3, 4)) / 4
    agree(proto, {"x": ties}, tolerance=0)
