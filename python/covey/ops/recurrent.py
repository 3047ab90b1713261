"""Recurrent layers LSTM, GRU and RNN, unrolled over their length, which is public, and so is nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from covey.importers.onnx_node import OnnxNode, from_onnx, of_one_sample
from covey.importers.torch_node import Constant, TorchNode, from_torch
from covey.interval import Array
from covey.ir import Shape, Value
from covey.ops.add import Add
from covey.ops.concat import Concat
from covey.ops.gather import ABSENT, Gather
from covey.ops.reshape import Reshape
from covey.ops.unrolling import GATES, Function, Layer, State

USUAL = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
"""Their activations: of gates, of what is remembered, of what an LSTM gives."""

DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
"""Which directions run backwards in time."""

PROJECTION = 8
"""The operand of an LSTM with the weights [directions, state, hidden] that make its state. ONNX has none."""

BATCH_FIRST = "give the model's input the batch first (batch_first=True), or transpose it before the node"

_ARGUMENTS = {
    "Affine": {"alpha": 1.0, "beta": 0.0},
    "Elu": {"alpha": 1.0},
    "HardSigmoid": {"alpha": 0.2, "beta": 0.5},
    "LeakyRelu": {"alpha": 0.01},
    "Relu": {},
    "ScaledTanh": {"alpha": 1.0, "beta": 1.0},
    "Sigmoid": {},
    "Softplus": {},
    "Softsign": {},
    "Tanh": {},
    "ThresholdedRelu": {"alpha": 1.0},
}
"""The arguments of every activation, and what they are where none are given."""


def _functions(node: OnnxNode, kind: str, directions: int) -> list[Function]:
    """The activations, which all directions share."""
    count = len(USUAL[kind])
    names = [str(name.decode() if isinstance(name, bytes) else name) for name in node.attribute("activations", [])]
    names = names or list(USUAL[kind]) * directions
    known = {name.lower(): name for name in _ARGUMENTS}
    given = {side: list(node.attribute(f"activation_{side}", [])) for side in ("alpha", "beta")}
    functions = []
    for name in names:
        if name.lower() not in known:
            raise node.unsupported(f"its activation is {name}", f"use one of {', '.join(_ARGUMENTS)}")
        usual = _ARGUMENTS[known[name.lower()]]
        arguments = {side: float(given[side].pop(0)) if given[side] else value for side, value in usual.items()}
        functions.append(Function(known[name.lower()], arguments))
    if len(functions) != count * directions:
        raise node.unsupported(f"it has {len(functions)} activations, not {count * directions}", "repair the model")
    if functions[:count] != functions[-count:]:
        raise node.unsupported("its directions have different activations", "make it two nodes of one direction each")
    return functions[:count]


@from_onnx("LSTM")
def _lstm(node: OnnxNode) -> None:
    _unroll(node, "LSTM")


@from_onnx("GRU")
def _gru(node: OnnxNode) -> None:
    _unroll(node, "GRU")


@from_onnx("RNN")
def _rnn(node: OnnxNode) -> None:
    _unroll(node, "RNN")


def _unroll(node: OnnxNode, kind: str) -> None:
    x = node.activation(0)
    if not node.flag("layout"):
        raise node.unsupported(
            f"its layout reads {x} as [length, batch, size], so the batch would be its length",
            BATCH_FIRST,
        )
    if len(x.shape) < 2:
        raise node.unsupported(f"its input {x} is not [batch, length, size]", "repair the model")
    *_, length, _ = x.shape
    _check_lengths(node, length)
    layer, weights, bias = _read(node, kind, x.shape)
    state = _initial(node, layer, 5, layer.weights.shape[-1])
    cell = _initial(node, layer, 6, layer.hidden) if kind == "LSTM" else None
    inputs = layer.projected(x, weights, bias)
    states = []
    for step in range(length):
        now = layer.step_of(inputs, step)
        if kind == "LSTM":
            state, cell = layer.lstm(now, state, cell)
        else:
            state = layer.gru(now, state) if kind == "GRU" else layer.rnn(now, state)
        states.append(state)
    _give(node, layer, states, cell)
    node.note(f"{length} steps, one after the other")


def _check_lengths(node: OnnxNode, length: int) -> None:
    if node.has(4):
        known = node.is_constant(4) and bool((node.constant(4, "sequence lengths") == length).all())
        if not known:
            raise node.unsupported(
                "its sequences have lengths of their own", f"let all have the length {length}, and pad them outside"
            )


def _read(node: OnnxNode, kind: str, shape: Shape) -> tuple[Layer, Array, Array | None]:
    """The layer, and what belongs to its inputs: the weights [directions, gates · hidden, size] and the bias."""
    *lead, length, size = shape
    direction = str(node.attribute("direction", "forward"))
    if direction not in DIRECTIONS:
        raise node.unsupported(f"its direction is '{direction}'", f"use one of {', '.join(DIRECTIONS)}")
    backwards = DIRECTIONS[direction]
    weights, of_state = node.weights(1, "weights W"), node.weights(2, "weights R")
    projection = node.weights(PROJECTION, "projection") if node.has(PROJECTION) else None
    state = of_state.shape[-1] if of_state.ndim else 0
    hidden = state if projection is None else projection.shape[-1]
    gates, count = len(GATES[kind]), len(backwards)
    rows = gates * hidden
    bias = node.weights(3, "bias") if node.has(3) else None
    shapes = [weights.shape == (count, rows, size), of_state.shape == (count, rows, state)]
    if not all(shapes) or (bias is not None and bias.shape != (count, 2 * rows)):
        raise node.unsupported(
            f"its weights of shapes {list(weights.shape)} and {list(of_state.shape)} do not fit", "repair the model"
        )
    if int(node.attribute("hidden_size", hidden)) != hidden:
        raise node.unsupported(f"its hidden_size is not the weights' {hidden}", "repair the model")
    clip = node.attribute("clip")
    layer = Layer(
        node,
        kind,
        backwards,
        hidden,
        tuple(lead),
        length,
        _functions(node, kind, count),
        of_state,
        peepholes=node.weights(7, "peepholes") if kind == "LSTM" and node.has(7) else None,
        coupled=kind == "LSTM" and node.flag("input_forget"),
        limit=float(clip) if clip else None,
        after=kind == "GRU" and node.flag("linear_before_reset"),
        projection=projection,
    )
    if bias is not None:
        own, of_product = bias[:, :rows], bias[:, rows:]
        if node.scope.trained:
            layer.bias, of_product = of_product, np.zeros(())
        elif layer.after:  # that of the reset state is reset with it
            layer.bias = np.where(np.arange(rows) >= 2 * hidden, of_product, 0.0)
            of_product = of_product - layer.bias
        bias = own + of_product
    if layer.one_table:
        factors = np.where(np.arange(rows) >= 3 * hidden, 2.0, 1.0)
        weights, layer.weights = (array * factors[:, None] for array in (weights, of_state))
        bias = None if bias is None else bias * factors
    return layer, weights, bias


def _initial(node: OnnxNode, layer: Layer, index: int, size: int) -> State:
    """What is remembered before the first step: an operand [N, *lead, directions, size], or zeros."""
    if not node.has(index):
        return None
    shape = (layer.directions, size)
    if not node.is_constant(index):
        state = node.activation(index, "initial state")
        if state.shape != (*layer.lead, *shape):
            raise node.unsupported(f"its initial state {state} is not [batch, {shape[0]}, {shape[1]}]", "repair it")
        return state
    rank = 3 + len(layer.lead)
    array = of_one_sample(node.weights(index, "initial state"), rank)
    if array.ndim >= rank:
        raise node.unsupported("its constant initial state differs between samples", "give it as an input")
    if not array.any():
        return None
    if not node.scope.trained:
        widened: Array = np.broadcast_to(array, np.broadcast_shapes(array.shape, shape)).copy()
        return widened
    # What is known of a state makes nothing known of its product with weights that are trained.
    name = f"{node.name}.initial{index}"
    zeros = Gather(tuple((ABSENT,) * count for count in (*layer.lead, *shape)))
    operands = [node.emit(zeros, [node.activation(0)], output=f"{name}.zeros"), node.parameter(array, name)]
    known: Value = node.emit(Add(), operands, output=f"{name}.state")
    return known


def _give(node: OnnxNode, layer: Layer, states: list[Value], cell: State) -> None:
    """The results that are read: all states [N, *lead, length, directions, state], the last one, the last cell."""
    names = {index: name for index, name in enumerate(node.outputs) if name and name in node.scope.used}
    if 0 in names:
        shape = (*layer.lead, 1, *states[0].shape[-2:])
        rows = [layer.emit(Reshape(shape), [state], "row") for state in states]
        first = f"{node.name}.states" if any(layer.backwards) else names[0]
        joined = rows[0] if len(rows) == 1 else node.emit(Concat(1 + len(layer.lead)), rows, output=first)
        result = layer.in_turn(joined, names[0])
        if result.name != names[0]:
            node.scope.aliases[names[0]] = result.name
    for index, value in ((1, states[-1]), (2, cell)):
        if index in names and isinstance(value, Value):
            node.scope.aliases[names[index]] = value.name


@from_torch("aten.lstm.input")
def _lstm_aten(node: TorchNode) -> None:
    _layers(node, "LSTM", [0, 3, 1, 2])


@from_torch("aten.gru.input")
def _gru_aten(node: TorchNode) -> None:
    _layers(node, "GRU", [1, 0, 2], linear_before_reset=1)


@from_torch("aten.rnn_tanh.input")
def _rnn_tanh_aten(node: TorchNode) -> None:
    _layers(node, "RNN", [0])


@from_torch("aten.rnn_relu.input")
def _rnn_relu_aten(node: TorchNode) -> None:
    _layers(node, "RNN", [0], activation="Relu")


def _layers(node: TorchNode, kind: str, order: Sequence[int], activation: str | None = None, **options: Any) -> None:
    """Layer on layer. `order` says where the gates of ONNX stand among PyTorch's."""
    if node.flag("train") and node.number("dropout") != 0.0:
        raise node.unsupported("it is in training mode", "call eval() on the module before exporting it")
    node.ignore("dropout")
    (layers,) = node.integers("num_layers")
    directions = 2 if node.flag("bidirectional") else 1
    parameters = node.argument("params")
    each, biases = len(parameters) // (layers * directions), node.flag("has_biases")
    if not all(isinstance(parameter, Constant) for parameter in parameters):
        raise node.unsupported("its weights are computed", "let the layer have weights of its own")
    initial = node.argument("hx")
    initial = list(initial) if isinstance(initial, list | tuple) else [initial]
    batch_first = node.flag("batch_first")
    x = node.activation("input")
    if x.place != (0 if batch_first else 1):
        raise node.unsupported(f"it reads {x}, where the batch is in another dimension than it says", BATCH_FIRST)
    x = x if batch_first else node.apply("Transpose", x, suffix="batch_first", perm=[1, 0, 2])
    # Where weights stay apart, as each direction has tensors of its own, so do the directions.
    together = ["forward", "reverse"] if node.scope.trained else ["bidirectional"]
    runs = together if directions == 2 else ["forward"]
    count = directions // len(runs)
    if activation is not None:
        options["activations"] = [activation] * count
    last: list[list[Value]] = [[] for _ in initial]
    for index in range(layers):
        results = []
        for run, direction in enumerate(runs):
            first = index * directions + run
            own = [parameter.array for parameter in parameters[first * each :][: count * each]]
            parts = range(4 if biases else 2)
            weights = [np.stack([_reordered(array, order) for array in own[part::each]]) for part in parts]
            bias = np.concatenate(weights[2:4], axis=1) if biases else None
            projection = [None, np.stack(own[each - 1 :: each])] if each % 2 else []
            states = [_initial_aten(node, state, first, count) for state in initial]
            operands = [x, *weights[:2], bias, None, *states, *projection]
            results.append(
                node.apply_several(kind, 1 + len(initial), *operands, layout=1, direction=direction, **options)
            )
        x, *ends = results[0] if len(runs) == 1 else [
            node.apply("Concat", *parts, suffix="directions", axis=2 if place == 0 else 1)
            for place, parts in enumerate(zip(*results, strict=True))
        ]  # fmt: skip
        x = node.apply("Reshape", x, np.array([0, 0, -1]), suffix="joined")
        for kept, end in zip(last, ends, strict=True):
            kept.append(node.apply("Transpose", end, suffix="turned", perm=[1, 0, 2]))
    y = x if batch_first else node.apply("Transpose", x, suffix="turned_back", perm=[1, 0, 2])
    joined = [kept[0] if layers == 1 else node.apply("Concat", *kept, suffix="ends", axis=0) for kept in last]
    node.results = [y, *joined]


def _reordered(array: Array, order: Sequence[int]) -> Array:
    return np.concatenate([np.split(array, len(order))[gate] for gate in order])


def _initial_aten(node: TorchNode, state: Any, first: int, count: int) -> Value | Array:
    """The states of `count` directions from `first` on, with the batch in front, out of [all of them, N, hidden]."""
    if isinstance(state, Constant):
        return np.ascontiguousarray(state.array[first : first + count].swapaxes(0, 1))
    bounds = (np.array([bound]) for bound in (first, first + count, 0))
    own = node.apply("Slice", state, *bounds, suffix="own_states")
    return node.apply("Transpose", own, suffix="states", perm=[1, 0, 2])
