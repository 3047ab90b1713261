"""Factors that move into layers, on random graphs of layers, sums, moves and products: the function stays the same."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import helper

import builders
import covey
import interpreter
from covey import reference
from covey.errors import CoveyError
from covey.importers.onnx import import_model
from covey.ir import Graph
from covey.passes import rewrite
from covey.passes.factor_raising import raise_factors
from rewriting import same_function

SIZE = 4
GRAPHS = 400


class Network:
    """A graph of values [N, SIZE, SIZE] that grows by random nodes."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}
        self.values = ["x"]
        if rng.random() < 0.5:
            self.columns()
        for _ in range(rng.integers(3, 12)):
            self.grow()

    def constant(self, array: np.ndarray | float) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name

    def emit(self, op: str, inputs: Sequence[str], outputs: int = 1, **attributes: object) -> list[str]:
        names = [f"v{len(self.nodes)}.{index}" for index in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, name=f"node{len(self.nodes)}", **attributes))
        return names

    def columns(self) -> None:
        """Three values from columns of one layer: side by side, in turn, or any, which may be the same."""
        (value,) = self.emit("MatMul", ["x", self.constant(self.rng.normal(size=(SIZE, 3 * SIZE)))])
        shapes = [(3 * SIZE,), (1,), (), (SIZE, 3 * SIZE), (1, 1, 3 * SIZE)]
        if self.rng.random() < 0.6:
            bias = self.rng.normal(size=shapes[self.rng.integers(len(shapes))])
            (value,) = self.emit("Add", [value, self.constant(bias)])
        how = self.rng.integers(3)
        for part in range(3):
            apart = np.arange(SIZE) + SIZE * part if how == 0 else np.arange(SIZE) * 3 + part
            places = self.rng.permutation(3 * SIZE)[:SIZE] if how == 2 else apart
            self.values += self.emit("Gather", [value, self.constant(places.astype(np.int64))], axis=2)

    def value(self) -> str:
        """One that there is, most likely a late one."""
        return self.values[max(0, len(self.values) - int(self.rng.geometric(0.55)))]

    def grow(self) -> None:
        rng, x = self.rng, self.value()
        kinds = ["layer", "bias", "turn", "halves", "factor", "factors", "product", "sum", "relu", "whole", "square"]
        kind = rng.choice(kinds, p=[0.2, 0.1, 0.1, 0.06, 0.22, 0.07, 0.12, 0.06, 0.03, 0.02, 0.02])
        match kind:
            case "layer":
                made = self.emit("MatMul", [x, self.constant(rng.normal(size=(SIZE, SIZE)))])
            case "bias":
                shapes = [(SIZE,), (1,), (), (SIZE, SIZE)]
                made = self.emit("Add", [x, self.constant(rng.normal(size=shapes[rng.integers(4)]))])
            case "turn":
                made = self.emit("Transpose", [x], perm=[0, 2, 1])
            case "halves":
                axis = int(rng.integers(1, 3))
                halves = self.emit("Split", [x, self.constant(np.array([SIZE // 2] * 2))], 2, axis=axis)
                made = self.emit("Concat", [halves[rng.integers(2)], halves[rng.integers(2)]], axis=axis)
            case "factor":
                made = self.emit("Mul", [x, self.constant(rng.choice([0.25, 0.177, -0.37, 3.0, -1.0, 0.0, 1e-9]))])
            case "factors" | "whole":
                factors = rng.normal(size=SIZE)
                made = self.emit("Mul", [x, self.constant(np.rint(factors) if kind == "whole" else factors)])
            case "relu":
                made = self.emit("Relu", [x])
            case _:
                ops = {"product": "MatMul", "sum": "Add", "square": "Mul"}
                made = self.emit(ops[kind], [x, self.value()])
        self.values += made

    def model(self) -> onnx.ModelProto:
        outputs = [self.values[-1], *([self.value()] if self.rng.random() < 0.25 else [])]
        outputs = [name for name in dict.fromkeys(outputs) if name != "x"]
        if not outputs:
            outputs = self.emit("Relu", ["x"])
        return builders.model(self.nodes, {"x": ["N", SIZE, SIZE]}, outputs, self.constants, opset=20)


def moved(graph: Graph) -> int:
    return sum("its factor moved into" in note.text for note in graph.notes.values())


def test_random_graphs_compute_the_same() -> None:
    changed = 0
    for seed in range(GRAPHS):
        rng = np.random.default_rng(seed)
        proto = Network(rng).model()
        try:
            before, alone, rewritten = (import_model(proto) for _ in range(3))
        except CoveyError:
            continue
        raise_factors(alone)
        rewrite(rewritten)
        changed += moved(alone) > 0
        data = {"x": rng.normal(size=(2, SIZE, SIZE))}
        due = reference.outputs(before, data)
        for after in (alone, rewritten):
            for left, right in zip(due, reference.outputs(after, data), strict=True):
                most = max(1.0, float(np.abs(left).max()))
                np.testing.assert_allclose(left, right, rtol=1e-7, atol=1e-7 * most, err_msg=f"seed {seed}")
    assert changed > GRAPHS // 10


def test_a_sum_that_widens_a_layer_s_result_keeps_the_factor_behind_it() -> None:
    """Columns that one pick takes are not told apart where a constant of more rows is added."""
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], name="layer"),
        helper.make_node("Add", ["p", "b"], ["q"], name="bias"),
        helper.make_node("Transpose", ["q"], ["t"], name="turn", perm=[0, 2, 1]),
        helper.make_node("Gather", ["t", "first"], ["a"], name="first", axis=1),
        helper.make_node("Gather", ["t", "second"], ["c"], name="second", axis=1),
        helper.make_node("Mul", ["a", "k"], ["m"], name="factor"),
        helper.make_node("Add", ["m", "c"], ["s"], name="sum"),
        helper.make_node("Relu", ["s"], ["y"], name="last"),
    ]
    constants = {"w": rng.normal(size=(SIZE, 8)), "b": rng.normal(size=(SIZE, 8)), "k": np.array(0.25)}
    constants |= {"first": np.array([0]), "second": np.array([1])}
    after = same_function(builders.model(nodes, {"x": ["N", 1, SIZE]}, ["y"], constants, opset=20), 2, 1, SIZE)
    assert moved(after) == 0


def test_a_shared_weight_is_not_copied() -> None:
    """A leaky sum over steps whose inputs one weight multiplies."""
    rng = np.random.default_rng(0)
    nodes, state = [], "x"
    for step in range(4):
        nodes += [
            helper.make_node("Mul", [state, "k"], [f"kept{step}"], name=f"factor{step}"),
            helper.make_node("MatMul", ["x", "w"], [f"input{step}"], name=f"layer{step}"),
            helper.make_node("Add", [f"kept{step}", f"input{step}"], [f"h{step}"], name=f"sum{step}"),
        ]
        state = f"h{step}"
    constants = {"w": rng.normal(size=(SIZE, SIZE)), "k": np.array(0.9)}
    after = same_function(builders.model(nodes, {"x": ["N", SIZE, SIZE]}, [state], constants, opset=20), 2, SIZE, SIZE)
    assert moved(after) == 0


def test_finer_weights_leave_room_for_the_bias() -> None:
    """One that cancels inputs far from 0: it takes more bits than the result."""
    rng = np.random.default_rng(0)
    x = 100 + rng.integers(-4, 5, size=(16, 8)) / 64
    weight = np.rint(rng.normal(size=(8, 8)) * 32) / 32
    constants = {"w": weight, "b": -(100 * weight.sum(axis=0)), "k": np.array(1 / 16)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], name="layer"),
        helper.make_node("Add", ["p", "b"], ["q"], name="bias"),
        helper.make_node("Mul", ["q", "k"], ["a"], name="factor"),
        helper.make_node("Relu", ["a"], ["y"], name="last"),
    ]
    proto = builders.model(nodes, {"x": ["N", 8]}, ["y"], constants, opset=20)
    compiled = covey.compile(proto, calibration=x, ring=32)
    assert moved(compiled.graph) == 1
    (y,) = interpreter.run(compiled, {"x": x})
    np.testing.assert_allclose(y, builders.float_results(proto, {"x": x})[0], atol=1e-3)
