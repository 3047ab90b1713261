"""Files, ring and scale choice, bounds and report."""

from __future__ import annotations

import io
import json
import stat
from pathlib import Path

import numpy as np
import onnx
import pytest
from blake3 import blake3
from onnx import TensorProto, helper
from rich.console import Console
from safetensors import safe_open

import builders
import covey
import interpreter
from covey._proto import program_pb2 as pb
from covey.compiled import prepare
from covey.lowering import Settings


@pytest.fixture(scope="module")
def proto() -> onnx.ModelProto:
    return builders.small_cnn(np.random.default_rng(0))


def test_files(proto: onnx.ModelProto, tmp_path: Path) -> None:
    model = tmp_path / "digits.onnx"
    onnx.save(proto, model)
    compiled = covey.compile(model, input_range=(0, 1))
    program, weights, summary = compiled.save(tmp_path / "out" / "digits.covey")
    assert [path.name for path in (program, weights, summary)] == [
        "digits.covey",
        "digits.weights.safetensors",
        "digits.report.json",
    ]
    content = program.read_bytes()
    assert content[:8] == b"COVEY\0\x01\0"
    assert content[8:40] == blake3(content[40:]).digest()
    parsed = pb.Program.FromString(content[40:])
    assert (parsed.name, parsed.format_version, parsed.ring.pow2) == ("digits", 1, 32)
    assert stat.S_IMODE(weights.stat().st_mode) == 0o600
    assert json.loads(summary.read_text()) == compiled.report

    with safe_open(weights, framework="numpy") as stored:
        metadata = stored.metadata()
        tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118  (no mapping)
    checksum = blake3()
    for name in sorted(tensors):
        shape = ",".join(map(str, tensors[name].shape))
        checksum.update(f"{name}\0I32\0{shape}\0".encode() + tensors[name].tobytes())
    assert metadata == {
        "format": "covey-weights",
        "version": "1",
        "program": blake3(content[40:]).hexdigest(),
        "checksum": checksum.hexdigest(),
    }
    parameters = {value.name: value for value in parsed.values if value.kind == pb.Value.PARAMETER}
    assert parameters.keys() == tensors.keys()
    assert all(tuple(parameters[name].shape) == tensor.shape for name, tensor in tensors.items())


def test_compiling_is_deterministic(proto: onnx.ModelProto) -> None:
    one, two = (covey.compile(proto, input_range=(0, 1)) for _ in range(2))
    assert one.program_bytes == two.program_bytes
    assert one.weights_bytes == two.weights_bytes


def test_nothing_secret_is_printed(proto: onnx.ModelProto) -> None:
    compiled = covey.compile(proto, input_range=(0, 1))
    assert repr(compiled) == f"Compiled(program_hash='{compiled.program_hash}')"
    assert "array" not in repr(compiled.graph)


def test_weights_round_half_to_even() -> None:
    weight = np.array([[0.5], [1.5], [2.5], [-0.5], [12288]]) / 2**12
    compiled = covey.compile(builders.single("MatMul", ["N", 5], {"w": weight}), input_range=(-1, 1), scale=12)
    assert compiled.weights["w"].ravel().tolist() == [0, 2, 2, 0, 12288]


def test_small_weights_are_given_more_bits() -> None:
    weight = np.array([[0.3], [-0.7], [1.1]]) / 32
    proto = builders.single("Gemm", ["N", 3], {"w": weight, "b": np.array([0.25])})
    ready = prepare(proto, input_range=(-1, 1))
    compiled = ready.compiled(Settings(32, 12, fine_weights=True), (32,), 12)
    assert compiled.weights["w"].ravel().tolist() == np.rint(weight.ravel() * 2**17).tolist()
    (truncate,) = (node for node in interpreter.program_of(compiled).nodes if node.HasField("truncate"))
    assert truncate.truncate.bits == 17
    # Where the ring has no room for them there are fewer.
    tight = ready.compiled(Settings(28, 12, fine_weights=True), (28,), 12)
    assert interpreter.program_of(tight).nodes[1].truncate.bits == 14


def test_a_layer_with_a_bias_rounds_to_the_nearest() -> None:
    proto = builders.single("Gemm", ["N", 2], {"w": np.array([[1.0], [0.5]]), "b": np.array([0.0])})
    compiled = covey.compile(proto, input_range=(-4, 4), scale=4)
    x = np.array([[0, 1], [0, 3], [0, -1], [1, -3]]) / 16
    (got,) = interpreter.run(compiled, {"x": x})
    assert (16 * got.ravel()).tolist() == [1, 2, 0, 0]
    # Rounding that is not exact finds the mean by itself.
    assert covey.compile(proto, input_range=(-4, 4), scale=4, truncation="ulp").weights["b"].tolist() == [0]


def test_a_sum_of_two_layers_carries_half_a_unit_once() -> None:
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b1"], ["l"], name="left"),
        helper.make_node("Gemm", ["x", "w", "b2"], ["r"], name="right"),
        helper.make_node("Add", ["l", "r"], ["y"], name="sum"),
    ]
    constants = {"w": np.array([[1.0]]), "b1": np.array([0.0]), "b2": np.array([0.0])}
    proto = builders.model(nodes, {"x": ["N", 1]}, ["y"], constants)
    compiled = covey.compile(proto, input_range=(-1, 1), scale=8)
    assert sorted(int(compiled.weights[name][0]) for name in ("b1", "b2")) == [0, 2**7]


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_other_float_types(dtype: type) -> None:
    kind = {np.float16: TensorProto.FLOAT16, np.float64: TensorProto.DOUBLE}[dtype]
    weight = np.array([[0.5, -0.25], [1.0, 2.0]], dtype=dtype)
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="fc")
    compiled = covey.compile(
        builders.model([node], {"x": ["N", 2]}, ["y"], {"w": weight}, dtype=kind), input_range=(-1, 1)
    )
    assert (compiled.weights["w"] == weight.astype(np.float64) * 2**12).all()


def test_sixty_four_bits(proto: onnx.ModelProto) -> None:
    compiled = covey.compile(proto, input_range=(0, 1), ring=64)
    assert (compiled.report["ring_bits"], compiled.report["scale"]) == (64, 16)
    assert {array.dtype for array in compiled.weights.values()} == {np.dtype(np.int64)}
    data = np.random.default_rng(1).random((2, 1, 8, 8))
    logits = interpreter.run(compiled, {"x": data})[0]
    powers = np.exp(logits)
    expected = builders.float_results(proto, {"x": data})[0]
    np.testing.assert_allclose(powers / powers.sum(axis=1, keepdims=True), expected, atol=1e-3)


def test_public_weights(proto: onnx.ModelProto) -> None:
    program = interpreter.program_of(covey.compile(proto, input_range=(0, 1), public_weights=True))
    kinds = {(value.kind, value.visibility) for value in program.values}
    assert (pb.Value.PARAMETER, pb.Value.PUBLIC) in kinds
    assert (pb.Value.PARAMETER, pb.Value.SECRET) not in kinds


@pytest.mark.parametrize(("truncation", "rounding"), [("ulp", pb.ULP), ("probabilistic", pb.PROBABILISTIC)])
def test_inexact_truncation_comes_with_its_error_budget(
    proto: onnx.ModelProto, truncation: str, rounding: pb.Rounding
) -> None:
    compiled = covey.compile(proto, input_range=(0, 1), truncation=truncation)
    program = interpreter.program_of(compiled)
    assert {node.truncate.rounding for node in program.nodes if node.HasField("truncate")} == {rounding}
    assert compiled.report["rounding_errors"][0].startswith(f"{truncation} truncation: each of 2 roundings")
    assert any("thresholds" in line for line in compiled.report["reveals"])
    assert covey.compile(proto, input_range=(0, 1)).report["rounding_errors"] == []


def deep() -> onnx.ModelProto:
    """Layers whose intervals explode although the values stay small."""
    rng = np.random.default_rng(0)
    nodes = []
    constants = {}
    name = "x"
    for layer in range(8):
        constants[f"w{layer}"] = rng.normal(size=(64, 64)) / 8
        nodes.append(helper.make_node("MatMul", [name, f"w{layer}"], [f"a{layer}"], name=f"fc{layer}"))
        nodes.append(helper.make_node("Relu", [f"a{layer}"], [f"r{layer}"], name=f"relu{layer}"))
        name = f"r{layer}"
    return builders.model(nodes, {"x": ["N", 64]}, [name], constants)


def test_proved_bounds_are_preferred_and_calibrated_ones_stand_in() -> None:
    data = np.random.default_rng(1).uniform(-1, 1, (16, 64))
    compiled = covey.compile(deep(), input_range=(-1, 1), calibration=data)
    sources = [row["bound"] for row in compiled.report["nodes"]]
    assert (compiled.report["ring_bits"], compiled.report["scale"]) == (32, 12)
    assert sources[0] == "proved"
    assert sources[-1] == "calibrated"
    assert sources == sorted(sources, reverse=True), "what follows a calibrated bound is calibrated"
    program = interpreter.program_of(compiled)
    assert {value.bound.source for value in program.values} == {pb.Bound.PROVED, pb.Bound.CALIBRATED}
    interpreter.run(compiled, {"x": np.random.default_rng(2).uniform(-1, 1, (64, 64))})
    without = covey.compile(deep(), input_range=(-1, 1))
    assert without.report["ring_bits"] == 64
    assert {row["bound"] for row in without.report["nodes"]} == {"proved"}


def test_an_index_is_bounded_by_the_number_of_classes_not_by_the_calibration_data() -> None:
    proto = deep()
    label = helper.make_node("ArgMax", [proto.graph.output[0].name], ["label"], name="label", axis=1)
    proto = builders.model(
        [*proto.graph.node, label],
        {"x": ["N", 64]},
        ["label"],
        {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in proto.graph.initializer},
        output_dtype=TensorProto.INT64,
    )
    data = np.random.default_rng(1).uniform(-1, 1, (1, 64))
    compiled = covey.compile(proto, input_range=(-1, 1), calibration=data, ring=32)
    program = interpreter.program_of(compiled)
    bound = program.values[program.outputs[0]].bound
    assert (bound.bits, bound.source) == (6, pb.Bound.PROVED)


def test_a_declared_range_that_does_not_fit_is_at_fault_itself() -> None:
    with pytest.raises(covey.DoesNotFitError, match=r"it would fit with a smaller --input-range$"):
        covey.compile(builders.single("Relu", ["N", 4], {}), input_range=(0, 1e300))


def test_the_input_range_of_calibration_data_is_widened(proto: onnx.ModelProto) -> None:
    data = np.random.default_rng(1).random((8, 1, 8, 8))
    entry = covey.compile(proto, calibration=data).report["inputs"][0]
    assert entry["low"] < data.min() < data.max() < entry["high"]
    assert "widened" in entry["range_from"]
    constant = covey.compile(proto, calibration=np.zeros((1, 1, 8, 8))).report["inputs"][0]
    assert constant["low"] < 0 < constant["high"]


def test_several_inputs_and_outputs() -> None:
    nodes = [
        helper.make_node("Add", ["a", "b"], ["sum"], name="add"),
        helper.make_node("Mul", ["a", "b"], ["product"], name="mul"),
    ]
    proto = builders.model(nodes, {"a": ["N", 3], "b": ["N", 3]}, ["product", "sum"])
    rng = np.random.default_rng(0)
    data = {"a": rng.uniform(0, 1, (4, 3)), "b": rng.uniform(-2, 2, (4, 3))}
    compiled = covey.compile(proto, calibration=data, input_range={"a": (0, 1), "b": (-2, 2)})
    product, total = interpreter.run(compiled, data)
    np.testing.assert_allclose(product, data["a"] * data["b"], atol=1e-3)
    np.testing.assert_allclose(total, data["a"] + data["b"], atol=1e-3)


def test_the_report_can_be_shown(proto: onnx.ModelProto) -> None:
    compiled = covey.compile(proto, input_range=(0, 1))
    stream = io.StringIO()
    Console(file=stream, width=100).print(compiled.rendered())
    text = stream.getvalue()
    for expected in (
        "conv",
        "Truncate",
        "proved",
        "softmax by the result's owner",
        "a run reveals",
        "folded into conv",
    ):
        assert expected in text


def test_check(proto: onnx.ModelProto) -> None:
    checked = covey.check(proto)
    assert checked.ok
    assert {note.node: note.status.value for note in checked.notes} == {
        "conv": "ok",
        "norm": "rewritten",
        "relu": "rewritten",
        "pool": "ok",
        "drop": "rewritten",
        "flatten": "ok",
        "fc": "ok",
        "softmax": "rewritten",
    }
