"""Operators on inputs of whole numbers, and on what they give: exactly what PyTorch and onnxruntime compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import builders
import covey
import interpreter
from covey.clear import run_clear
from covey.importers.element_types import element_types
from covey.importers.onnx import import_model
from covey.model import load
from covey.ops.counting import is_whole

RNG = np.random.default_rng(0)
X = np.concatenate([[[0, 1, 0, -1], [-6, 6, 5, -5], [3, 3, 3, 3]], RNG.integers(-6, 7, (30, 4))])
MATRIX = np.array([[1, 2, 3, 4], [0, -1, 2, 1], [4, 0, 1, 0], [2, 2, -5, 1]])
BOUNDS = np.array([3, -2, 0, 5])


def modules() -> dict[str, Callable[[Any], Any]]:
    """Functions of whole numbers [N, 4], by name; each gives whole numbers [N, k], or truth values."""
    import torch
    from torch.nn import functional

    matrix, bounds = torch.tensor(MATRIX), torch.tensor(BOUNDS)
    table = torch.arange(12).reshape(6, 2)
    return {
        "abs": lambda x: x.abs(),
        "neg": lambda x: -x,
        "relu": lambda x: x.relu(),
        "sign": lambda x: x.sign(),
        "clamp": lambda x: x.clamp(-2, 3),
        "clamp to tensors": lambda x: x.clamp(bounds - 5, bounds),
        "relu6": lambda x: functional.relu6(x),
        "where": lambda x: torch.where(x > 0, x, 0),
        "where of both": lambda x: torch.where(x > 0, x * 2, -x),
        "masked_fill": lambda x: x.masked_fill(x > 2, -7),
        "cat": lambda x: torch.cat([x, x + 1], 1),
        "cat with a constant": lambda x: torch.cat([x, torch.ones(len(x), 2, dtype=torch.int64)], 1),
        "stack": lambda x: torch.stack([x, x.flip(1)], 1).flatten(1),
        "maximum": lambda x: torch.maximum(x, bounds),
        "minimum": lambda x: torch.minimum(x, x.flip(1)),
        "fmax": lambda x: torch.fmax(x, bounds),
        "sort": lambda x: x.sort(descending=True).values,
        "stable argsort": lambda x: x.sort(stable=True).indices,
        "topk": lambda x: x.topk(2).values,
        "median": lambda x: x.median(1, keepdim=True).values,
        "kthvalue": lambda x: x.kthvalue(2, 1, keepdim=True).values,
        "matmul": lambda x: x @ matrix,
        "matmul of secrets": lambda x: (x.unsqueeze(2) @ x.unsqueeze(1)).flatten(1),
        "linear": lambda x: functional.linear(x, matrix, bounds),
        "einsum": lambda x: torch.einsum("ni,ij,nj->n", x, matrix, x)[:, None],
        "conv1d": lambda x: functional.conv1d(x.unsqueeze(1), torch.tensor([[[1, -2]]])).flatten(1),
        "square": lambda x: x.square(),
        "pow": lambda x: x**3,
        "pad": lambda x: functional.pad(x, (1, 2), value=2),
        "tril": lambda x: x.unsqueeze(1).expand(-1, 4, 4).tril().flatten(1),
        "scatter_reduce": lambda x: x.scatter_reduce(
            1, torch.tensor([[1, 1, 3, 1]]).expand(len(x), 4), x, "amax", include_self=False
        ),
        "products at places": lambda x: x.scatter_reduce(1, torch.tensor([[1, 1, 3, 1]]).expand(len(x), 4), x, "prod"),
        "round": lambda x: x.round() + x.ceil() + x.trunc(),
        "the lowest bits": lambda x: (x & 3) + (1 & x),
        "other bits": lambda x: ~x,
        "bits further": lambda x: (x << 3) + (x >> 1),
        "32 bits": lambda x: x.int().abs() * 2,
        "8 bits": lambda x: x.to(torch.int8).neg().long(),
        "places": lambda x: torch.maximum(x.argmax(1), x.argmin(1))[:, None],
        "rows of a table": lambda x: table[x[:, 0].clamp(0, 4).relu() + 1],
    }


def test_modules() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    functions = modules()

    class All(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return torch.cat([function(x).float() for function in functions.values()], dim=1)

    x = torch.tensor(X)
    program = load(covey.compile(All().eval(), x, calibration=X))
    (y,) = run_clear(program, X).outputs.values()
    at = 0
    for name, function in functions.items():
        due = function(x).numpy()
        np.testing.assert_array_equal(np.asarray(y)[:, at : at + due.shape[1]], due, err_msg=name)
        at += due.shape[1]


FRACTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "pad": lambda torch, x: torch.nn.functional.pad(x, (1, 1), value=0.5),
    "masked_fill": lambda torch, x: x.masked_fill(x > 0, 0.5),
    "hardtanh": lambda torch, x: torch.nn.functional.hardtanh(x, -0.5, 1.5),
    "scatter": lambda torch, x: x.scatter(1, torch.zeros(len(x), 1, dtype=torch.int64), 0.5),
    "avg_pool1d": lambda torch, x: torch.nn.functional.avg_pool1d(x.unsqueeze(1), 2),
    "pow": lambda torch, x: x.pow(5),
}
"""What PyTorch cuts to whole numbers, or computes exactly where a program does not."""


@pytest.mark.parametrize("case", FRACTIONS)
def test_what_pytorch_rounds_is_refused(case: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

    class One(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return FRACTIONS[case](torch, x) * 2

    with pytest.raises(covey.UnsupportedError, match=rf"aten\.{case}.*may have fractions, which int64 .*cast to float"):
        covey.compile(One().eval(), torch.tensor(X[:4]), calibration=X)


NODES: dict[str, tuple[list[str], dict[str, Any]]] = {
    "Abs": (["x"], {}),
    "Neg": (["x"], {}),
    "Sign": (["x"], {}),
    "Clip": (["x", "low", "high"], {}),
    "Where": (["c", "x", "bounds"], {}),
    "Concat": (["x", "twice"], {"axis": 1}),
    "Max": (["x", "bounds"], {}),
    "Min": (["x", "twice"], {}),
    "TopK": (["x", "two"], {}),
    "MatMul": (["x", "matrix"], {}),
    "Einsum": (["x", "x"], {"equation": "ni,ni->n"}),
    "Pow": (["x", "two"], {}),
    "Pad": (["x", "pads", "low"], {}),
    "CumSum": (["x", "one"], {}),
    "ReduceSum": (["x", "axis"], {}),
    "ReduceMax": (["x"], {"axes": [1]}),
    "ReduceProd": (["x"], {"axes": [1]}),
    "ReduceL1": (["x"], {"axes": [1]}),
    "Div": (["x", "three"], {}),
    "Mod": (["x", "three"], {}),
}
"""Operators of ONNX on whole numbers: operands and attributes."""

CONSTANTS = {
    "low": np.array(-2),
    "high": np.array(3),
    "one": np.array(1),
    "three": np.array(3),
    "two": np.array([2]),
    "axis": np.array([1]),
    "bounds": BOUNDS,
    "matrix": MATRIX,
    "pads": np.array([0, 1, 0, 2]),
}


def whole_model(nodes: list[onnx.NodeProto], outputs: list[str]) -> onnx.ModelProto:
    """A model whose numbers are all int64; `twice` and `c` are there to be read."""
    first = [helper.make_node("Add", ["x", "x"], ["twice"]), helper.make_node("Less", ["x", "one"], ["c"])]
    return builders.model([*first, *nodes], {"x": ["N", 4]}, outputs, CONSTANTS, dtype=TensorProto.INT64)


def test_onnx() -> None:
    nodes = [
        helper.make_node(op, inputs, [op, "places"] if op == "TopK" else [op], name=op, **attributes)
        for op, (inputs, attributes) in NODES.items()
    ]
    proto = whole_model(nodes, [*NODES, "places"])
    compiled = covey.compile(proto, input_range=(-6, 6))
    due = builders.float_results(proto, {"x": X})
    results = interpreter.run(compiled, {"x": X.astype(np.float64)})
    for name, got, expected in zip([*NODES, "places"], results, due, strict=True):
        np.testing.assert_array_equal(got, expected, err_msg=name)


ROUNDED: dict[str, tuple[list[str], dict[str, Any]]] = {
    "ReduceMean": (["x"], {"axes": [1]}),
    "ReduceL2": (["x"], {"axes": [1]}),
    "Pow": (["x", "half"], {}),
}


@pytest.mark.parametrize("op", ROUNDED)
def test_what_onnx_rounds_is_refused(op: str) -> None:
    inputs, attributes = ROUNDED[op]
    proto = whole_model([helper.make_node(op, inputs, ["y"], name="it", **attributes)], ["y"])
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array(0.5, np.float32), "half"))
    with pytest.raises(
        covey.UnsupportedError, match=r"'it' \(\w+\): it rounds its results to whole numbers; put a Cast"
    ):
        covey.compile(proto, input_range=(1, 6))


TABLE = np.array([[3, -1], [0, 4], [7, 2]])


def test_rows_of_whole_numbers_are_whole() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    table, one_hot = torch.tensor(TABLE), torch.nn.functional.one_hot

    class Rows(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            rows = [table[x].sum(1), table.int()[x].sum(1), torch.nn.functional.embedding(x, table)[:, 0]]
            return torch.cat([*rows, one_hot(x, 3).sum(1), one_hot(x, 3).float().mean(1)], dim=1)

    x = np.array([[0, 1, 2, 2], [1, 1, 0, 2]])
    program = load(covey.compile(Rows().eval(), torch.tensor(x), calibration=x))
    (y,) = run_clear(program, x).outputs.values()
    np.testing.assert_array_equal(y, Rows()(torch.tensor(x)).numpy())


def test_rows_of_whole_numbers_are_whole_in_onnx() -> None:
    nodes = [
        helper.make_node("Gather", ["table", "x"], ["row"]),
        helper.make_node("OneHot", ["x", "depth", "values"], ["h"]),
        helper.make_node("Concat", ["row", "h"], ["both"], axis=2),
        helper.make_node("ReduceSumSquare", ["both"], ["squares"], axes=[1], keepdims=0),
        helper.make_node("Cast", ["squares"], ["y"], to=TensorProto.FLOAT),
    ]
    constants = {"table": TABLE, "depth": np.array([3]), "values": np.array([-2, 5])}
    x = np.array([[0, 1, 2, 2], [1, 1, 0, 2]])
    proto = builders.model(
        nodes, {"x": ["N", 4]}, ["y"], constants, dtype=TensorProto.INT64, output_dtype=TensorProto.FLOAT
    )
    (y,) = run_clear(load(covey.compile(proto, calibration=x)), x).outputs.values()
    np.testing.assert_array_equal(y, builders.float_results(proto, {"x": x})[0])


def test_long_chains_of_whole_numbers() -> None:
    """Deeper than Python's recursion; each step reads the one before twice."""
    nodes, last = [], "x"
    for step in range(600):
        nodes.append(helper.make_node("Max" if step % 2 else "Add", [last, last if step % 2 else "one"], [f"v{step}"]))
        last = f"v{step}"
    graph = import_model(builders.model(nodes, {"x": ["N", 1]}, [last], CONSTANTS, dtype=TensorProto.INT32))
    assert is_whole(graph, graph.outputs[0])


def body(
    op: str, kind: int, inputs: list[str], attributes: dict[str, Any], states: list[onnx.ValueInfoProto]
) -> onnx.GraphProto:
    """A body that gives floats of what an operator makes of whole numbers, and those numbers."""
    nodes = [
        helper.make_node(op, inputs, ["q"], name="it", **attributes),
        helper.make_node("Cast", ["q"], ["f"], to=TensorProto.FLOAT),
    ]
    results = [("q", kind), ("f", TensorProto.FLOAT)]
    outputs = [helper.make_tensor_value_info(name, dtype, None) for name, dtype in results]
    if states:
        nodes.append(helper.make_node("Identity", ["on"], ["goes_on"]))
        outputs.insert(0, helper.make_tensor_value_info("goes_on", TensorProto.BOOL, []))
    return helper.make_graph(nodes, "body", states, outputs)


def in_control_flow(
    operator: str, op: str, kind: int, inputs: list[str], output: str, **attributes: Any
) -> onnx.ModelProto:
    """A model of whole numbers x [N, 4] whose If or Loop gives the operator's result, or floats of it."""
    names = ["whole", "float"]
    if operator == "If":
        branch = body(op, kind, inputs, attributes, [])
        node = helper.make_node("If", ["true"], names, then_branch=branch, else_branch=branch)
    else:
        given = [
            helper.make_tensor_value_info("run", TensorProto.INT64, []),
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", kind, None),
        ]
        inner = body(op, kind, ["state", *inputs[1:]], attributes, given)
        node = helper.make_node("Loop", ["two", "true", "x"], [names[0], "floats"], body=inner)
    last = [] if operator == "If" else [helper.make_node("ReduceSum", ["floats", "zero"], ["float"], keepdims=0)]
    dtype = TensorProto.INT32 if kind == TensorProto.INT32 else TensorProto.INT64
    numbers = helper.tensor_dtype_to_np_dtype(dtype)
    constants = {
        "true": np.array(True), "two": np.array(2), "zero": np.array([0]), "three": np.array(3, numbers),
        "large": np.array(1 << 30, numbers),
    }  # fmt: skip
    outputs = {"whole": kind, "float": TensorProto.FLOAT}
    return builders.model(
        [node, *last], {"x": ["N", 4]}, [output], constants, dtype=dtype, output_dtype=outputs[output], opset=17
    )


@pytest.mark.parametrize("output", ["whole", "float"])
@pytest.mark.parametrize("kind", [TensorProto.INT64, TensorProto.INT32])
@pytest.mark.parametrize("operator", ["If", "Loop"])
def test_quotients_in_control_flow(operator: str, kind: int, output: str) -> None:
    proto = in_control_flow(operator, "Div", kind, ["x", "three"], output)
    x = X.astype(helper.tensor_dtype_to_np_dtype(kind))
    (y,) = run_clear(load(covey.compile(proto, input_range=(-6, 6))), X).outputs.values()
    np.testing.assert_array_equal(y, builders.float_results(proto, {"x": x})[0])


REFUSED: dict[str, tuple[str, int, list[str], dict[str, Any], str]] = {
    "ReduceMean": ("ReduceMean", TensorProto.INT64, ["x"], {"axes": [1]}, "rounds its results"),
    "int32": ("Mul", TensorProto.INT32, ["x", "large"], {}, "int32 wraps around"),
    "uint8": ("Cast", TensorProto.UINT8, ["x"], {"to": TensorProto.UINT8}, "uint8 wraps around"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_control_flow_rounds_is_refused(case: str) -> None:
    op, kind, inputs, attributes, reason = REFUSED[case]
    for operator in ("If",) if case == "uint8" else ("If", "Loop"):
        proto = in_control_flow(operator, op, kind, inputs, "float", **attributes)
        with pytest.raises(covey.CoveyError, match=rf"/it\.0' \({op}\): .*{reason}"):
            covey.compile(proto, input_range=(-6, 6))


def test_whole_numbers_that_only_constants_show() -> None:
    """The quotient of numbers that a Where takes from constants."""
    nodes = [
        helper.make_node("Greater", ["x", "limit"], ["c"]),
        helper.make_node("Where", ["c", "two", "seven"], ["w"]),
        helper.make_node("Div", ["w", "three"], ["y"]),
    ]
    constants = {"limit": np.array(0.5), "two": np.array(2), "seven": np.array(-7), "three": np.array(3)}
    proto = builders.model(nodes, {"x": ["N", 2]}, ["y"], constants, output_dtype=TensorProto.INT64)
    x = np.array([[0.0, 1.0]], np.float32)
    (y,) = run_clear(load(covey.compile(proto, input_range=(-1, 1))), x).outputs.values()
    np.testing.assert_array_equal(y, [[-2, 0]])


def test_types_need_no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX infers nothing of more than 2 GB."""
    infer, sizes = onnx.shape_inference.infer_shapes, []

    def measured(model: onnx.ModelProto) -> onnx.ModelProto:
        sizes.append(model.ByteSize())
        return infer(model)

    nodes = [
        helper.make_node("Constant", [], ["b"], value=onnx.numpy_helper.from_array(np.ones((900, 8), np.float32))),
        helper.make_node("MatMul", ["x", "a"], ["h"]),
        helper.make_node("MatMul", ["h", "b"], ["s"]),
        helper.make_node("Cast", ["s"], ["i"], to=TensorProto.INT32),
        helper.make_node("Cast", ["i"], ["y"], to=TensorProto.FLOAT),
    ]
    proto = builders.model(nodes, {"x": ["N", 8]}, ["y"], {"a": np.ones((8, 900))})
    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", measured)
    types, _ = element_types(proto)
    assert (types["i"], types["s"], types["y"]) == (TensorProto.INT32, TensorProto.FLOAT, TensorProto.FLOAT)
    assert sizes[0] < 2000


@pytest.mark.parametrize("dividend", ["x", "three"])
def test_quotients_of_secret_whole_numbers_are_refused(dividend: str) -> None:
    proto = whole_model([helper.make_node("Div", [dividend, "twice"], ["y"], name="it")], ["y"])
    with pytest.raises(covey.UnsupportedError, match=r"'it' \(Div\): .* no constant; put a Cast to float before it"):
        covey.compile(proto, input_range=(1, 6))
