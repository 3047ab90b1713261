"""ONNX files as tf2onnx writes them, compared with what TensorFlow computed. TensorFlow itself is not needed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import covey
from covey.errors import CoveyError
from covey.parties import Parties
from keras_models import GOLDEN, KEPT

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def samples(name: str) -> tuple[np.ndarray, np.ndarray]:
    """TensorFlow's inputs and outputs."""
    with np.load(GOLDEN / f"{name}.npz") as arrays:
        return arrays["input"], arrays["output"]


def run(model: str | Path | onnx.ModelProto, x: np.ndarray, protocol: str = "clear") -> np.ndarray:
    with covey.local(protocol=protocol) as parties:
        (found,) = parties.run(covey.compile(model, calibration=x), x).outputs.values()
    return np.asarray(found)


@pytest.mark.parametrize("name", KEPT)
def test_files_of_tf2onnx_compute_what_tensorflow_does(name: str) -> None:
    x, due = samples(name)
    found = run(GOLDEN / f"{name}.onnx", x)
    assert found.shape == due.shape
    assert np.linalg.norm(found - due) <= 0.015 * np.linalg.norm(due)


@pytest.mark.parametrize("name", ["residual", "images_out"])
def test_images_keep_their_layout_and_turning_them_costs_nothing(name: str, parties: Parties) -> None:
    x, _ = samples(name)
    compiled = covey.compile(GOLDEN / f"{name}.onnx", calibration=x, input_range=(0, 1))
    (entry,) = compiled.report["inputs"]
    assert entry["shape"] == ["N", 8, 8, 3]
    turns = [row for row in covey.explain(compiled, "trio").rows() if row["op"] in ("Transpose", "Reshape")]
    assert turns
    assert all(row["offline_bytes"] + row["online_bytes"] + row["rounds"] == 0 for row in turns)
    with covey.local(protocol="clear") as clear:
        (due,) = clear.run(compiled, x).integers.values()
    (found,) = parties.run(compiled, x).integers.values()
    np.testing.assert_array_equal(found, due)


def test_gelu_by_erfc_is_one_table() -> None:
    x, _ = samples("gelu")
    report = covey.compile(GOLDEN / "gelu.onnx", calibration=x).report
    assert len(report["tables"]) == 1


def test_loops_become_their_runs() -> None:
    notes = {note.op: note.text for note in covey.check(GOLDEN / "gru_of_words.onnx").notes}
    assert notes["Loop"] == "its body 5 times"


def of_tf2onnx(
    nodes: list[onnx.NodeProto], shape: list[int], constants: dict[str, np.ndarray] | None = None, dtype: int = FLOAT
) -> onnx.ModelProto:
    """A model from `x` [N, ..] to `y`, as if tf2onnx had written it."""
    x = helper.make_tensor_value_info("x", dtype, ["N", *shape])
    y = helper.make_tensor_value_info("y", FLOAT, ["N", "M"])
    weights = [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(nodes, "net", [x], [y], weights)
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, producer_name="tf2onnx", opset_imports=opsets, ir_version=8)


def test_operators_of_tensorflow_are_written_out() -> None:
    nodes = [helper.make_node("Erfc", ["x"], ["a"], "erfc"), helper.make_node("Expm1", ["a"], ["y"], "expm1")]
    x = np.linspace(-2, 2, 40, dtype=np.float32).reshape(10, 4)
    erfc = run(of_tf2onnx([nodes[0], helper.make_node("Identity", ["a"], ["y"])], [4]), x)
    known = {-2.0: 1.995322, -1.0: 1.842701, 0.0: 1.0, 1.0: 0.157299, 2.0: 0.004678}
    np.testing.assert_allclose(np.interp(list(known), x.ravel(), erfc.ravel()), list(known.values()), atol=3e-3)
    np.testing.assert_allclose(run(of_tf2onnx(nodes, [4]), x), np.expm1(erfc), atol=5e-3)


@pytest.mark.parametrize(
    ("operator", "way_out"),
    [("StatefulPartitionedCall", "compile the Keras model or the .keras file"), ("MatrixInverse", "end the model")],
)
def test_what_tf2onnx_cannot_convert_is_named(operator: str, way_out: str) -> None:
    model = of_tf2onnx([helper.make_node(operator, ["x"], ["y"], "net/inner")], [4])
    with pytest.raises(CoveyError, match=rf"node 'net/inner' \({operator}\): .*'tensorflow'; {way_out}") as caught:
        covey.compile(model, input_range=(0, 1))
    assert "\n" not in str(caught.value)
    assert [cause.op for cause in covey.check(model).causes] == [operator]


def embedding(nodes: list[onnx.NodeProto], **constants: np.ndarray) -> onnx.ModelProto:
    """Rows of a table of three at numbers that some nodes make of `x`."""
    table = np.arange(6, dtype=np.float32).reshape(3, 2)
    gather = helper.make_node("Gather", ["table", "i"], ["y"], "rows", axis=0)
    return of_tf2onnx([*nodes, gather], [4], {"table": table, **constants}, INT64)


def test_arithmetic_that_changes_no_index_goes_away() -> None:
    nodes = [
        helper.make_node("Less", ["x", "zero"], ["negative"]),
        helper.make_node("Add", ["x", "rows_of_it"], ["from_behind"]),
        helper.make_node("Where", ["negative", "from_behind", "x"], ["wrapped"]),
        helper.make_node("Min", ["wrapped", "last"], ["i"]),
    ]
    numbers = {"zero": np.array(0), "rows_of_it": np.array(3), "last": np.array(2)}
    x = np.array([[0, 1, 2, 0], [2, 2, 1, 0]])
    np.testing.assert_allclose(run(embedding(nodes, **numbers), x), np.arange(6.0).reshape(3, 2)[x])
    # With less than the last row at most, two rows are one: the arithmetic stays, and is refused.
    with pytest.raises(CoveyError, match="are no whole numbers of an input, and none that the network counts"):
        covey.compile(embedding(nodes, **{**numbers, "last": np.array(1)}))


def loop(body: list[onnx.NodeProto], condition: str = "go") -> onnx.ModelProto:
    """Three runs of a body that makes `after` of `before`, and gives `row`."""
    scalar = helper.make_tensor_value_info("run", INT64, [])
    go = helper.make_tensor_value_info("go", TensorProto.BOOL, [])
    state = helper.make_tensor_value_info("before", FLOAT, None)
    outputs = [helper.make_tensor_value_info(condition, TensorProto.BOOL, [])]
    outputs += [helper.make_tensor_value_info(name, FLOAT, None) for name in ("after", "row")]
    graph = helper.make_graph(body, "body", [scalar, go, state], outputs)
    nodes = [
        helper.make_node("Loop", ["runs", "", "x"], ["last", "rows"], "loop", body=graph),
        helper.make_node("ReduceSum", ["rows", "axes"], ["y"], keepdims=0),
    ]
    return of_tf2onnx(nodes, [4], {"runs": np.array(3), "axes": np.array([0]), "two": np.array(2, np.float32)})


DOUBLE = [
    helper.make_node("Mul", ["before", "two"], ["after"], "double"),
    helper.make_node("Identity", ["after"], ["row"], "keep"),
]


def test_loops_carry_states_and_give_rows() -> None:
    x = np.random.default_rng(0).random((3, 4), dtype=np.float32)
    np.testing.assert_allclose(run(loop(DOUBLE), x), 14 * x, atol=0.01)
    one_number = loop(DOUBLE)
    one_number.graph.input[0].type.tensor_type.shape.dim.pop()
    np.testing.assert_allclose(run(one_number, x[:, 0]), 14 * x[:, 0], atol=0.01)
    # A condition that is known ends the loop: before run 2 here.
    counted = [*DOUBLE, helper.make_node("Cast", ["run"], ["float"], to=FLOAT),
               helper.make_node("Less", ["float", "one"], ["goes_on"])]  # fmt: skip
    early = loop(counted, "goes_on")
    early.graph.initializer.append(numpy_helper.from_array(np.array(1, np.float32), "one"))
    np.testing.assert_allclose(run(early, x), 6 * x, atol=0.01)


def test_loops_that_depend_on_secrets_are_refused() -> None:
    nodes = [*DOUBLE, helper.make_node("Less", ["before", "two"], ["goes_on"], "secret")]
    with pytest.raises(CoveyError, match=r"'loop' .*whether it runs on depends on the network's input.*unroll=True"):
        covey.compile(loop(nodes, "goes_on"), input_range=(0, 1))


@pytest.mark.parametrize(("runs", "message"), [(2000, "it runs more than 1024 times"), (0, "it never runs")])
def test_loops_run_a_number_of_times(runs: int, message: str) -> None:
    model = loop([helper.make_node("Identity", ["before"], [name]) for name in ("after", "row")])
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.array(runs), "runs"))
    with pytest.raises(CoveyError, match=rf"'loop' \(Loop\): {message}"):
        covey.compile(model, input_range=(0, 1))
