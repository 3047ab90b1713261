"""Passes that save products, truncations and divisions: the float result stays, and what `explain` counts falls with
three parties and with two."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from onnx import helper

import builders
import covey
import interpreter
from covey import _core, layers
from covey.compiled import Compiled
from covey.model import Model
from covey.passes import scale_choice
from rewriting import ops, same_function

PADS = [1, 1, 1, 1]


def costs(compiled: Compiled) -> np.ndarray:
    """Bytes and rounds of an inference, a row for each protocol."""
    program = _core.Program(compiled.program_bytes)
    totals = [json.loads(_core.plan(program, protocol))["total"] for protocol in ("trio", "quad", "two-party")]
    return np.array([[sum(link["bytes"] for link in total["links"]), total["rounds"]] for total in totals])


def conv(name: str, source: str, weight: str, output: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node("Conv", [source, weight], [output], name=name, **attributes)


def average(source: str, output: str, size: int) -> onnx.NodeProto:
    return helper.make_node(
        "AveragePool", [source], [output], name="pool", kernel_shape=[size, size], strides=[size, size]
    )


@pytest.mark.parametrize("bias", ["", "first", "second", "both"])
def test_linear_layers_in_a_row_merge_where_that_saves_products(bias: str) -> None:
    rng = np.random.default_rng(0)
    inputs = [["x", "w1"], ["t", "w2"]]
    constants = {"w1": rng.normal(size=(6, 2, 3, 3)), "w2": rng.normal(size=(4, 6, 1, 1))}
    for index, name in enumerate(("first", "second")):
        if bias in (name, "both"):
            inputs[index].append(f"b{index}")
            constants[f"b{index}"] = rng.normal(size=(6, 4)[index])
    nodes = [
        helper.make_node("Conv", inputs[0], ["t"], name="wide", pads=[1, 1, 1, 1], strides=[2, 1]),
        helper.make_node("Conv", inputs[1], ["y"], name="point"),
    ]
    after = same_function(builders.model(nodes, {"x": ["N", 2, 5, 5]}, ["y"], constants), 2, 2, 5, 5)
    assert ops(after) == ["Conv2d"]
    assert after.notes["point"].text == "merged into wide"
    # From few channels to many more, one layer would take more products.
    constants = {"w1": rng.normal(size=(2, 8, 1, 1)), "w2": rng.normal(size=(8, 2, 1, 1))}
    nodes = [helper.make_node("Conv", ["x", "w1"], ["t"]), helper.make_node("Conv", ["t", "w2"], ["y"])]
    assert (
        ops(same_function(builders.model(nodes, {"x": ["N", 8, 3, 3]}, ["y"], constants), 2, 8, 3, 3)) == ["Conv2d"] * 2
    )


def test_dense_layers_merge() -> None:
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["t"], name="one"),
        helper.make_node("MatMul", ["t", "w2"], ["y"], name="two"),
    ]
    constants = {"w1": rng.normal(size=(5, 8)), "b1": rng.normal(size=8), "w2": rng.normal(size=(8, 3))}
    assert ops(same_function(builders.model(nodes, {"x": ["N", 5]}, ["y"], constants), 2, 5)) == ["Dense"]


@pytest.mark.parametrize(("kernel", "shifts"), [([2, 2], 1), ([3, 3], 2)])
def test_an_average_over_a_power_of_two_shifts_the_product_too(kernel: list[int], shifts: int) -> None:
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["t"], name="square"),
        helper.make_node("AveragePool", ["t"], ["y"], name="pool", kernel_shape=kernel, strides=kernel),
    ]
    proto = builders.model(nodes, {"x": ["N", 2, 8, 8]}, ["y"])
    data = {"x": rng.uniform(-1, 1, (3, 2, 8, 8))}
    compiled = covey.compile(proto, input_range=(-1, 1), ring=32)
    kinds = [node.WhichOneof("op") for node in interpreter.program_of(compiled).nodes]
    assert kinds.count("truncate") + kinds.count("mul_shift") == shifts
    (found,), (due,) = interpreter.run(compiled, data), builders.float_results(proto, data)
    np.testing.assert_allclose(found, due, atol=0.01)


def blocks(rng: np.random.Generator, ending: list[onnx.NodeProto], *outputs: str) -> onnx.ModelProto:
    """Two convolutions a and b of x, of eight channels each, and what comes behind them."""
    constants = {
        "wa": builders.weights(rng, 8, 4, 3, 3),
        "wb": builders.weights(rng, 8, 4, 3, 3),
        "wc": builders.weights(rng, 8, 8, 1, 1),
        "from": np.array([0]),
        "to": np.array([4]),
        "axis": np.array([1]),
    }
    nodes = [conv("conv a", "x", "wa", "a", pads=PADS), conv("conv b", "x", "wb", "b", pads=PADS), *ending]
    return builders.model(nodes, {"x": ["N", 4, 16, 16]}, outputs or ["y"], constants)


SHARED_TRUNCATIONS = {
    "sum": [helper.make_node("Add", ["a", "b"], ["y"], name="sum")],
    "sum and relu": [
        helper.make_node("Add", ["a", "b"], ["s"], name="sum"),
        helper.make_node("Relu", ["s"], ["y"], name="relu"),
    ],
    "chain of sums": [
        helper.make_node("Add", ["a", "b"], ["s"], name="sum"),
        conv("conv c", "x", "wb", "c", pads=PADS),
        helper.make_node("Sub", ["s", "c"], ["y"], name="difference"),
    ],
    "maximum pool": [
        helper.make_node("Add", ["a", "b"], ["s"], name="sum"),
        helper.make_node("MaxPool", ["s"], ["y"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
    ],
    "slices": [
        helper.make_node("Slice", ["a", "from", "to", "axis"], ["c"], name="slice a"),
        helper.make_node("Slice", ["b", "from", "to", "axis"], ["d"], name="slice b"),
        helper.make_node("Concat", ["c", "d"], ["y"], name="join", axis=1),
    ],
}


@pytest.mark.parametrize("what", SHARED_TRUNCATIONS)
def test_a_truncation_goes_where_it_costs_least(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    proto = blocks(rng, SHARED_TRUNCATIONS[what])
    data = {"x": rng.uniform(-1, 1, (4, 4, 16, 16))}
    placed = covey.compile(proto, calibration=data["x"], input_range=(-1, 1))
    monkeypatch.setattr(scale_choice, "place_truncations", lambda graph, averages=True: frozenset())
    everywhere = covey.compile(proto, calibration=data["x"], input_range=(-1, 1))
    assert (costs(placed) <= costs(everywhere)).all()
    assert (costs(placed) < costs(everywhere))[:, 0].all()
    (found,), (due,) = interpreter.run(placed, data), builders.float_results(proto, data)
    np.testing.assert_allclose(found, due, atol=0.02)


@pytest.mark.parametrize(
    ("ending", "behind"),
    [
        (helper.make_node("Relu", ["a"], ["y"], name="relu"), {"a"}),
        (helper.make_node("Concat", ["a", "b"], ["y"], name="join", axis=1), {"a", "b"}),
    ],
    ids=["relu", "concat"],
)
def test_a_truncation_behind_relu_or_concat_would_send_no_less(
    ending: onnx.NodeProto, behind: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Product, truncation and Relu are one gate of either protocol: nothing is gained by moving the truncation."""
    rng = np.random.default_rng(0)
    proto, data = blocks(rng, [ending]), rng.uniform(-1, 1, (4, 4, 16, 16))
    placed = covey.compile(proto, calibration=data, input_range=(-1, 1))
    monkeypatch.setattr(scale_choice, "place_truncations", lambda graph, averages=True: frozenset(behind))
    moved = covey.compile(proto, calibration=data, input_range=(-1, 1))
    assert (costs(placed)[:, 0] <= costs(moved)[:, 0]).all()
    assert costs(placed)[0, 0] < costs(moved)[0, 0]


@pytest.mark.parametrize(("size", "flat"), [(2, False), (4, True), (3, False)])
def test_a_mean_is_divided_by_the_weights_of_the_layer_behind(
    size: int, flat: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    side = 16 // size
    constants = {
        "w": builders.weights(rng, 4, 2, 3, 3),
        "v": builders.weights(rng, 3, 4, 1, 1),
        "c": rng.normal(size=3),
        "m": builders.weights(rng, 3, 4 * side**2),
    }
    layer = (
        [helper.make_node("Flatten", ["p"], ["f"]), helper.make_node("Gemm", ["f", "m", "c"], ["y"], transB=1)]
        if flat
        else [helper.make_node("Conv", ["p", "v", "c"], ["y"], name="layer")]
    )
    nodes = [conv("conv", "x", "w", "t", pads=PADS), helper.make_node("Relu", ["t"], ["r"], name="relu")]
    proto = builders.model([*nodes, average("r", "p", size), *layer], {"x": ["N", 2, 16, 16]}, ["y"], constants)
    data = {"x": rng.uniform(-1, 1, (4, 2, 16, 16))}

    def compiled(ring: int) -> tuple[Compiled, bool]:
        made = covey.compile(proto, calibration=data["x"], input_range=(-1, 1), ring=ring, scale=12)
        (found,), (due,) = interpreter.run(made, data), builders.float_results(proto, data)
        np.testing.assert_allclose(found, due, atol=0.01)
        kinds = [node.WhichOneof("op") for node in interpreter.program_of(made).nodes]
        return made, "mul_shift" not in kinds

    free, without_shift = compiled(64)
    assert without_shift
    # Where the product has no room for the further bits, the mean is shifted as ever.
    narrow = next(ring for ring in range(28, 35) if _fits(proto, data["x"], ring))
    assert not compiled(narrow)[1]
    monkeypatch.setattr("covey.ops.average_pool.can_divide", lambda *_: False)
    shifted, without_shift = compiled(64)
    assert not without_shift
    assert (costs(free) < costs(shifted)).all()


def _fits(proto: onnx.ModelProto, images: np.ndarray, ring: int) -> bool:
    try:
        covey.compile(proto, calibration=images, input_range=(-1, 1), ring=ring, scale=12)
    except covey.DoesNotFitError:
        return False
    return True


@pytest.mark.parametrize("groups", [1, 2])
def test_an_average_pool_moves_before_a_convolution_of_single_elements(
    groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    constants = {"w": builders.weights(rng, 6, 8 // groups, 1, 1), "c": rng.normal(size=6)}
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], name="relu"),
        helper.make_node("Conv", ["r", "w", "c"], ["t"], name="point", group=groups),
        average("t", "y", 2),
    ]
    proto = builders.model(nodes, {"x": ["N", 8, 9, 8]}, ["y"], constants)
    after = same_function(proto, 2, 8, 9, 8)
    assert ops(after) == ["Relu", "AveragePool", "Conv2d"]
    assert after.notes["pool"].text == "moved before point: fewer products, the same result"
    data = {"x": rng.uniform(-1, 1, (4, 8, 9, 8))}
    moved = covey.compile(proto, calibration=data["x"], input_range=(-1, 1))
    (found,), (due,) = interpreter.run(moved, data), builders.float_results(proto, data)
    np.testing.assert_allclose(found, due, atol=0.01)
    # A report knows that the sums stand for means.
    program = _core.Program(moved.program_bytes)
    model = Model(program, _core.Weights(moved.weights_bytes, program), moved.graph)
    found_layers = layers.compare(layers.opened(model), moved.graph, data)
    assert [layer.op for layer in found_layers] == ["Relu", "AveragePool", "Conv"]
    assert all(layer.relative_error < 0.01 for layer in found_layers)
    for rewriting in ("average_before_point", "merge_linear_layers"):
        monkeypatch.setattr(f"covey.passes.{rewriting}", lambda graph: None)
    assert (costs(moved)[:, 0] < costs(covey.compile(proto, calibration=data["x"], input_range=(-1, 1)))[:, 0]).all()


@pytest.mark.parametrize("why", ["padded", "few products", "read twice", "strided"])
def test_an_average_pool_stays_behind_a_convolution(why: str) -> None:
    rng = np.random.default_rng(0)
    outputs = 1 if why == "few products" else 6
    border: dict[str, object] = {"pads": PADS, "strides": [2, 2]} if why == "padded" else {}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["t"], name="point", strides=[2, 2] if why == "strided" else [1, 1]),
        helper.make_node("AveragePool", ["t"], ["y"], name="pool", kernel_shape=[2, 2], **border),
    ]
    constants = {"w": builders.weights(rng, outputs, 8, 1, 1)}
    proto = builders.model(nodes, {"x": ["N", 8, 8, 8]}, ["y", "t"] if why == "read twice" else ["y"], constants)
    assert ops(same_function(proto, 2, 8, 8, 8)) == ["Conv2d", "AveragePool"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"kernel": 1, "outputs": 12}, {"kernel": 3, "outputs": 4}),
        ({"kernel": 1, "outputs": 12, "bias": False}, {"kernel": 3, "outputs": 4, "pads": PADS}),
        ({"kernel": 3, "outputs": 12, "pads": [0, 1, 2, 1]}, {"kernel": 2, "outputs": 4, "strides": [2, 1]}),
        ({"kernel": 2, "outputs": 12, "strides": [1, 2]}, {"kernel": 2, "outputs": 4, "strides": [2, 2]}),
        ({"kernel": 2, "outputs": 16, "dilations": [1, 2]}, {"kernel": 2, "outputs": 4, "dilations": [2, 1]}),
        ({"kernel": 3, "outputs": 16, "group": 2, "pads": PADS}, {"kernel": 3, "outputs": 4, "group": 2}),
    ],
    ids=["then 3x3", "padded without bias", "padded first", "strided", "dilated", "grouped"],
)
def test_two_convolutions_become_one(
    first: dict[str, object], second: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    constants: dict[str, np.ndarray] = {}
    nodes, source, channels = [], "x", 2
    for name, layer in (("one", dict(first)), ("two", dict(second))):
        size, outputs = layer.pop("kernel"), layer.pop("outputs")
        constants[f"{name} w"] = builders.weights(rng, outputs, channels // layer.get("group", 1), size, size)
        inputs = [source, f"{name} w"]
        if layer.pop("bias", True):
            constants[f"{name} b"] = rng.normal(size=outputs)
            inputs.append(f"{name} b")
        source = "y" if name == "two" else name
        nodes.append(helper.make_node("Conv", inputs, [source], name=name, **layer))
        channels = outputs
    proto = builders.model(nodes, {"x": ["N", 2, 11, 12]}, ["y"], constants)
    after = same_function(proto, 2, 2, 11, 12)
    assert ops(after) == ["Conv2d"]
    data = rng.uniform(-1, 1, (4, 2, 11, 12))
    merged = covey.compile(proto, calibration=data, input_range=(-1, 1), ring=32)
    monkeypatch.setattr("covey.passes.merge_linear_layers", lambda graph: None)
    apart = covey.compile(proto, calibration=data, input_range=(-1, 1), ring=32)
    assert (costs(merged) < costs(apart)).all()


def test_a_convolution_takes_in_the_average_pool_behind_it() -> None:
    rng = np.random.default_rng(0)
    constants = {"w": builders.weights(rng, 6, 2, 3, 3), "c": rng.normal(size=6)}
    nodes = [
        helper.make_node("Conv", ["x", "w", "c"], ["t"], name="conv", pads=PADS, group=2),
        average("t", "y", 2),
    ]
    after = same_function(builders.model(nodes, {"x": ["N", 4, 9, 8]}, ["y"], constants), 2, 4, 9, 8)
    assert ops(after) == ["Conv2d"]
    assert after.nodes[0].op.window.kernel == (4, 4)
    # Over windows that overlap, one layer would take more products.
    nodes[1] = helper.make_node("AveragePool", ["t"], ["y"], name="pool", kernel_shape=[2, 2])
    proto = builders.model(nodes, {"x": ["N", 4, 9, 8]}, ["y"], constants)
    assert ops(same_function(proto, 2, 4, 9, 8)) == ["Conv2d", "AveragePool"]


@pytest.mark.parametrize("why", ["padding meets a bias", "padding meets a window", "groups differ", "read twice"])
def test_two_convolutions_stay_apart_where_one_would_be_another_function(why: str) -> None:
    rng = np.random.default_rng(0)
    size = 3 if why == "padding meets a window" else 1
    constants = {"w": rng.normal(size=(12, 2, size, size)), "v": rng.normal(size=(4, 12, 3, 3))}
    inputs = ["x", "w"]
    if why == "padding meets a bias":
        constants["c"] = rng.normal(size=12)
        inputs.append("c")
    second: dict[str, object] = {"pads": PADS} if why.startswith("padding") else {}
    if why == "groups differ":
        constants["v"], second = rng.normal(size=(4, 3, 3, 3)), {"group": 4}
    nodes = [helper.make_node("Conv", inputs, ["t"], name="one"), conv("two", "t", "v", "y", **second)]
    outputs = ["y", "t"] if why == "read twice" else ["y"]
    proto = builders.model(nodes, {"x": ["N", 2, 9, 9]}, outputs, constants)
    assert ops(same_function(proto, 2, 2, 9, 9)) == ["Conv2d"] * 2
