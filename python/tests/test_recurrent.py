"""LSTM, GRU and RNN: against onnxruntime and PyTorch, wherever the batch is."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import builders
import covey
import interpreter
from agreement import agree
from covey.importers.onnx import import_model
from covey.ops.dense import Dense

LENGTH, SIZE, HIDDEN = 5, 3, 4
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def constants(kind: str, directions: int, *, bias: bool = True, peepholes: bool = False) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(len(kind) + directions)
    rows = GATES[kind] * HIDDEN
    found = {
        "w": rng.normal(size=(directions, rows, SIZE)) * 0.5,
        "r": rng.normal(size=(directions, rows, HIDDEN)) * 0.5,
    }
    if bias:
        found["b"] = rng.normal(size=(directions, 2 * rows)) * 0.3
    if peepholes:
        found["p"] = rng.normal(size=(directions, 3 * HIDDEN)) * 0.5
    return found


def layer(
    kind: str,
    *,
    outputs: str = "y",
    states: tuple[str, ...] = (),
    fixed: tuple[str, ...] = (),
    lengths: np.ndarray | None = None,
    bias: bool = True,
    peepholes: bool = False,
    direction: str = "forward",
    lead: tuple[int, ...] = (),
    **attributes: Any,
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """x [N, *lead, length, size] through a layer of layout 0 between transpositions; states are inputs or `fixed`.

    Results are y [N, *lead, length, directions, hidden], the last state a and the last cell e [N, *lead, directions,
    hidden]. What leads is merged with the batch.
    """
    rng = np.random.default_rng(7)
    directions = 2 if direction == "bidirectional" else 1
    known = constants(kind, directions, bias=bias, peepholes=peepholes)
    nodes, inputs = [], {"x": rng.uniform(-2, 2, (6, *lead, LENGTH, SIZE))}

    def front(name: str, source: str, sizes: tuple[int, ...]) -> None:
        if lead:
            known[f"{name}_sizes"] = np.array([-1, *sizes])
            nodes.append(helper.make_node("Reshape", [source, f"{name}_sizes"], [f"{name}m"], name=f"{name}_merged"))
        merged = f"{name}m" if lead else source
        nodes.append(helper.make_node("Transpose", [merged], [name], name=f"{name}_front", perm=[1, 0, 2]))

    front("t", "x", (LENGTH, SIZE))
    operands = ["t", "w", "r", "b" if bias else "", "", "", "", "p" if peepholes else ""]
    if lengths is not None:
        known["lengths"] = lengths
        operands[4] = "lengths"
    for place, name in ((5, "h"), (6, "c")):
        if name in fixed:
            known[name] = rng.uniform(-1, 1, (directions, 1, HIDDEN)).repeat(6 * math.prod(lead), axis=1)
            operands[place] = name
        elif name in states:
            inputs[name] = rng.uniform(-1, 1, (6, *lead, directions, HIDDEN))
            front(f"{name}t", name, (directions, HIDDEN))
            operands[place] = f"{name}t"
    while not operands[-1]:
        operands.pop()
    inner = [f"inner_{name}" if name in outputs else "" for name in ("y", "a", "e")][: 3 if kind == "LSTM" else 2]
    nodes.append(
        helper.make_node(kind, operands, inner, name="the_node", hidden_size=HIDDEN, direction=direction, **attributes)
    )
    for name in outputs:
        perm = [2, 0, 1, 3] if name == "y" else [1, 0, 2]
        back = f"back_{name}" if lead else name
        nodes.append(helper.make_node("Transpose", [f"inner_{name}"], [back], name=f"{name}_back", perm=perm))
        if lead:
            known[f"{name}_apart"] = np.array([-1, *lead, *([LENGTH] if name == "y" else []), directions, HIDDEN])
            nodes.append(helper.make_node("Reshape", [back, f"{name}_apart"], [name], name=f"{name}_parted"))
    shapes = {name: ["N", *array.shape[1:]] for name, array in inputs.items()}
    return builders.model(nodes, shapes, list(outputs), known), inputs


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "LSTM": ("LSTM", {}),
    "LSTM, reverse, no bias": ("LSTM", {"direction": "reverse", "bias": False}),
    "LSTM, both ways, all results": ("LSTM", {"direction": "bidirectional", "outputs": "yae"}),
    "LSTM, states of inputs": ("LSTM", {"direction": "bidirectional", "states": ("h", "c"), "outputs": "ae"}),
    "LSTM, fixed states": ("LSTM", {"fixed": ("h", "c"), "outputs": "e", "lengths": np.full(6, LENGTH, np.int32)}),
    "LSTM, peepholes": ("LSTM", {"peepholes": True, "fixed": ("c",), "states": ("h",), "outputs": "ya"}),
    "LSTM, coupled": ("LSTM", {"input_forget": 1}),
    "LSTM, clipped": ("LSTM", {"clip": 0.5}),
    "LSTM, other activations": ("LSTM", {"activations": ["HardSigmoid", "Softsign", "Relu"]}),
    "GRU": ("GRU", {"outputs": "ya"}),
    "GRU, both ways": ("GRU", {"direction": "bidirectional", "states": ("h",)}),
    "GRU, reset after": ("GRU", {"linear_before_reset": 1, "direction": "reverse", "outputs": "ya"}),
    "GRU, reset after, fixed state": ("GRU", {"linear_before_reset": 1, "fixed": ("h",), "direction": "bidirectional"}),
    "GRU, fixed state": ("GRU", {"fixed": ("h",)}),
    "GRU, reset after, state of an input": ("GRU", {"linear_before_reset": 1, "states": ("h",)}),
    "RNN": ("RNN", {"outputs": "ya"}),
    "RNN, both ways": ("RNN", {"direction": "bidirectional", "states": ("h",), "activations": ["Relu", "Relu"]}),
    "LSTM of rows": ("LSTM", {"lead": (3,), "states": ("h",), "fixed": ("c",), "outputs": "yae", "peepholes": True}),
    "LSTM of rows, both ways": ("LSTM", {"lead": (3,), "direction": "bidirectional", "outputs": "yae"}),
    "GRU of rows": ("GRU", {"lead": (2, 2), "direction": "bidirectional", "states": ("h",), "outputs": "ya"}),
    "GRU of rows, reset after": ("GRU", {"lead": (3,), "linear_before_reset": 1, "fixed": ("h",)}),
    "RNN of rows": ("RNN", {"lead": (3,), "outputs": "ya", "direction": "reverse"}),
    "RNN, fixed state": (
        "RNN",
        {"fixed": ("h",), "activations": ["LeakyRelu"], "activation_alpha": [0.2], "outputs": "a"},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_agrees_with_onnxruntime(case: str) -> None:
    kind, options = CASES[case]
    proto, inputs = layer(kind, **options)
    agree(proto, inputs, tolerance=4e-3)
    graph = import_model(proto)
    sizes = (math.prod(options["lead"]), LENGTH) if "lead" in options else (LENGTH,)
    made = [graph.values[node.output].shape for node in graph.nodes if isinstance(node.op, Dense)]
    assert sum(shape[: len(sizes)] == sizes for shape in made) == 1


@pytest.mark.parametrize("kind", GATES)
def test_layout_with_the_batch_in_front(kind: str) -> None:
    """onnxruntime has none of layout 1: it must be the other one's result."""
    outputs = "yae" if kind == "LSTM" else "ya"
    proto, inputs = layer(kind, direction="bidirectional", states=("h",), outputs=outputs)
    due = builders.float_results(proto, inputs)
    node = next(node for node in proto.graph.node if node.name == "the_node")
    node.attribute.append(helper.make_attribute("layout", 1))
    node.input[0], node.input[5] = "x", "h"
    node.output[:] = [*outputs]
    del proto.graph.node[:]
    proto.graph.node.append(node)
    agree(proto, inputs, expected=due, tolerance=4e-3)


@pytest.mark.parametrize("kind", ["GRU", "LSTM"])
def test_bounds_do_not_grow_with_the_length(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.LENGTH", 20)
    proto, _ = layer(kind)
    compiled = covey.compile(proto, input_range=(-2, 2), ring=32, scale=12)
    for value in interpreter.program_of(compiled).values:
        assert value.bound.source == value.bound.PROVED
        # A cell may gain 1 at each step; nothing else grows.
        assert value.bound.bits <= value.scale + 6


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "lengths": ({"lengths": np.array([5, 5, 4, 5, 5, 5], np.int32)}, "its sequences have lengths of their own"),
    "an activation": ({"activations": ["Sigmoid", "Tanh", "Mish"]}, "its activation is Mish; use one of"),
    "two ways, two functions": (
        {"direction": "bidirectional", "activations": ["Sigmoid", "Tanh", "Tanh", "Sigmoid", "Tanh", "Relu"]},
        "its directions have different activations",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str) -> None:
    options, saying = REFUSED[case]
    proto, _ = layer("LSTM", **options)
    with pytest.raises(covey.UnsupportedError, match="'the_node' .LSTM.: .*" + saying):
        covey.compile(proto, input_range=(-2, 2))


def test_a_sequence_in_front_is_refused() -> None:
    proto = builders.model(
        [helper.make_node("GRU", ["x", "w", "r"], ["", "y"], name="the_node", hidden_size=HIDDEN)],
        {"x": ["N", 2, SIZE]},
        ["y"],
        constants("GRU", 1, bias=False),
    )
    with pytest.raises(covey.UnsupportedError, match=r"the batch would be its length.*batch_first=True"):
        covey.compile(proto, input_range=(-2, 2))


def test_lengths_that_are_an_input() -> None:
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
        helper.make_node("GRU", ["t", "w", "r", "", "lengths"], ["s"], name="the_node", hidden_size=2),
        helper.make_node("Transpose", ["s"], ["y"], perm=[2, 0, 1, 3]),
    ]
    constants = {"w": np.full((1, 6, 3), 0.5), "r": np.full((1, 6, 2), 0.25)}
    shapes = {"x": ["N", 4, 3], "lengths": ["N"]}
    proto = builders.model(nodes, shapes, ["y"], constants, types={"lengths": onnx.TensorProto.INT32})
    with pytest.raises(covey.UnsupportedError, match=r"'the_node' .*its sequences have lengths of their own"):
        covey.compile(proto, input_range=(-1, 1))
