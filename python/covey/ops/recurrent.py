"""Recurrent layers LSTM, GRU and RNN, unrolled over their fixed length.

What the inputs contribute is one product for all steps and both directions. A step then multiplies the state before it,
of both directions at once. The length is public, and so is nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from covey.importers.onnx_node import IMPORTERS, OnnxNode, from_onnx, of_one_sample
from covey.importers.torch_node import Constant, TorchNode, from_torch
from covey.interval import Array
from covey.ir import Op, Value
from covey.ops.add import Add
from covey.ops.affine import Affine
from covey.ops.blend import Blend
from covey.ops.clip import Clip
from covey.ops.concat import Concat
from covey.ops.conv import Conv2d
from covey.ops.dense import Dense
from covey.ops.gather import Gather, pick
from covey.ops.matmul import Matmul
from covey.ops.mul import Mul
from covey.ops.reshape import Reshape
from covey.ops.window import Window

State = Value | Array | None
"""What a layer remembers: [N, directions, hidden], the same numbers for every sample, or zeros."""

GATES = {"LSTM": "iofc", "GRU": "zrh", "RNN": "h"}
"""The parts of the weights, in ONNX's order."""

USUAL = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
"""Their activations: of gates, of what is remembered, of what an LSTM gives."""

DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
"""Which directions run backwards in time."""

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


@dataclass(frozen=True)
class _Function:
    name: str
    arguments: dict[str, float]


def _functions(node: OnnxNode, kind: str, directions: int) -> list[_Function]:
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
        functions.append(_Function(known[name.lower()], arguments))
    if len(functions) != count * directions:
        raise node.unsupported(f"it has {len(functions)} activations, not {count * directions}", "repair the model")
    if functions[:count] != functions[-count:]:
        raise node.unsupported("its directions have different activations", "make it two nodes of one direction each")
    return functions[:count]


@dataclass
class _Layer:
    """A layer while it is unrolled. Values of a step are [N, directions, .., hidden]."""

    node: OnnxNode
    kind: str
    backwards: tuple[bool, ...]
    hidden: int
    length: int
    functions: list[_Function]
    weights: Array
    """Of the state: [directions, gates · hidden, hidden]."""
    bias: Array | None = None
    """What is added to the product with the state: [directions, gates · hidden]."""
    peepholes: Array | None = None
    """Of an LSTM's gates i, o and f: [directions, 3 · hidden]."""
    coupled: bool = False
    limit: float | None = None
    after: bool = False
    """Whether a GRU's reset gate applies to the product with the state, not to the state."""
    parts: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.parts = {gate: index for index, gate in enumerate(GATES[self.kind])}

    @property
    def directions(self) -> int:
        return len(self.backwards)

    def emit(self, op: Op, inputs: Sequence[Value], hint: str) -> Value:
        return self.node.emit(op, inputs, output=f"{self.node.name}.{hint}")

    def parameter(self, array: Array, hint: str) -> Value:
        return self.node.parameter(np.ascontiguousarray(array), f"{self.node.name}.{hint}")

    # Time

    def in_turn(self, x: Value, output: str | None = None) -> Value:
        """x [N, length, directions, K] with time running as each direction does, or back; perhaps as an output."""
        if not any(self.backwards):
            return x
        halves = []
        for index, backwards in enumerate(self.backwards):
            times = range(self.length)[:: -1 if backwards else 1]
            name = output if self.directions == 1 and output else f"{self.node.name}.direction{index}"
            op = pick(x.shape, [times, [index], range(x.shape[2])])
            halves.append(self.node.emit(op, [x], output=name))
        if self.directions == 1:
            return halves[0]
        return self.node.emit(Concat(2), halves, output=output or f"{self.node.name}.in_turn")

    def projected(self, x: Value, weights: Array, bias: Array | None) -> Value:
        """What the inputs contribute to every step: x [N, length, size] times the weights of all gates."""
        rows = weights.shape[0] * weights.shape[1]
        operands = [x, self.parameter(weights.reshape(rows, -1).T, "input_weights")]
        if bias is not None:
            operands.append(self.parameter(bias.reshape(rows), "input_bias"))
        product = self.emit(Dense(), operands, "inputs")
        shape = (self.length, self.directions, rows // self.directions)
        return self.in_turn(self.emit(Reshape(shape), [product], "of_steps"))

    def step_of(self, x: Value, step: int) -> Value:
        """One step of x [N, length, directions, K]."""
        _, directions, size = x.shape
        offsets = tuple(step * directions * size + index * size for index in range(directions))
        return self.emit(Gather((offsets, tuple(range(size)))), [x], f"input{step}")

    # Parts of a step

    def part(self, x: Value, gates: str) -> Value:
        """The parts of x [N, directions, gates · hidden] that belong to these gates, in the order of the weights."""
        columns = [
            column
            for gate in sorted(gates, key=lambda each: self.parts[each])
            for column in range(self.parts[gate] * self.hidden, (self.parts[gate] + 1) * self.hidden)
        ]
        return self.within(x, columns, f"gates_{gates}")

    def within(self, x: Value, columns: Sequence[int], hint: str) -> Value:
        """Columns of x [N, directions, K]."""
        if list(columns) == list(range(x.shape[1])):
            return x
        return self.emit(pick(x.shape, [range(self.directions), columns]), [x], hint)

    def product(self, state: State, gates: str) -> Value | None:
        """The state times the weights of these gates, and the bias; a parameter for a state that is known."""
        rows = [self.parts[gate] * self.hidden + row for gate in gates for row in range(self.hidden)]
        weights = self.weights[:, rows]
        bias = None if self.bias is None else self.bias[:, rows]
        if not isinstance(state, Value):
            known = np.zeros(weights.shape[:2]) if state is None else np.einsum("dkh,dh->dk", weights, state)
            known = known if bias is None else known + bias
            return self.parameter(known, f"first_{gates}") if known.any() else None
        hint = f"state_weights_{gates}"
        shifts = [] if bias is None else [self.parameter(bias.ravel(), f"state_bias_{gates}")]
        if self.directions == 1:
            return self.emit(Dense(), [state, self.parameter(weights[0].T, hint), *shifts], "state_product")
        channels, outputs = self.directions * self.hidden, self.directions * len(rows)
        image = self.emit(Reshape((channels, 1, 1)), [state], "state_image")
        kernels = self.parameter(weights.reshape(outputs, self.hidden, 1, 1), hint)
        window = Window((1, 1), (1, 1), (0, 0, 0, 0), (1, 1))
        product = self.emit(Conv2d(window, self.directions), [image, kernels, *shifts], "state_product")
        return self.emit(Reshape((self.directions, len(rows))), [product], "of_gates")

    def plus(self, x: Value, y: Value | None) -> Value:
        return x if y is None else self.emit(Add(), [x, y], "sum")

    def times(self, x: Value, state: State, hint: str) -> Value | None:
        if state is None:
            return None
        return self.emit(
            Mul(), [x, state if isinstance(state, Value) else self.parameter(state, f"{hint}.first")], hint
        )

    def peeped(self, x: Value, gate: str, state: State) -> Value:
        """x and what the gate sees of the cell."""
        if self.peepholes is None or state is None:
            return x
        weights = self.peepholes[:, self.parts[gate] * self.hidden :][:, : self.hidden]
        if isinstance(state, Value):
            return self.plus(x, self.emit(Mul(), [state, self.parameter(weights, f"peephole_{gate}")], "peephole"))
        return self.plus(x, self.parameter(weights * state, f"first_peephole_{gate}"))

    def activated(self, x: Value, index: int, *, limited: bool = True) -> Value:
        function = self.functions[index]
        if self.limit is not None and limited:
            x = self.emit(Clip(-self.limit, self.limit), [x], "clipped")
        if function.name == "Affine":
            return self.emit(Affine(function.arguments["alpha"], function.arguments["beta"]), [x], "affine")
        if function.name == "ScaledTanh":
            x = self.emit(Affine(function.arguments["beta"]), [x], "scaled")
            return self.emit(Affine(function.arguments["alpha"]), [self.called("Tanh", x, {})], "scaled_tanh")
        return self.called(function.name, x, function.arguments)

    def called(self, operator: str, x: Value, attributes: dict[str, float]) -> Value:
        node, scope = self.node, self.node.scope
        name = scope.graph.fresh(f"{node.name}.{operator.lower()}")
        IMPORTERS[operator](OnnxNode(scope, node.name, node.op_type, [x.name], [name], dict(attributes)))
        result = scope.activation(name)
        assert result is not None
        return result

    # Steps

    @property
    def one_table(self) -> bool:
        """Whether an LSTM's Tanh is taken from the table of the gates: tanh(x) = 2 sigmoid(2 x) - 1."""
        usual = [function.name for function in self.functions[:2]] == ["Sigmoid", "Tanh"]
        merged = not self.node.scope.trained  # the table takes twice the weights of a part
        return self.kind == "LSTM" and usual and merged and self.peepholes is None and self.limit is None

    def lstm(self, inputs: Value, state: State, cell: State) -> tuple[Value, Value]:
        before = self.plus(inputs, self.product(state, "iofc"))
        if self.one_table:
            values = self.activated(before, 0)
            i, o, f = (self.part(values, gate) for gate in "iof")
            g = self.emit(Affine(2.0, -1.0), [self.part(values, "c")], "candidate")
        else:
            g = self.activated(self.part(before, "c"), 1)
            i = self.activated(self.peeped(self.part(before, "i"), "i", cell), 0)
            f = i if self.coupled else self.activated(self.peeped(self.part(before, "f"), "f", cell), 0)
        if self.coupled:
            f = self.emit(Affine(-1.0, 1.0), [i], "forget")
        new = self.mixed(f, cell, i, g)
        if not self.one_table:
            o = self.activated(self.peeped(self.part(before, "o"), "o", new), 0)
        return self.emit(Mul(), [o, self.activated(new, 2, limited=False)], "state"), new

    def mixed(self, f: Value, cell: State, i: Value, g: Value) -> Value:
        """f · cell + i · g: one product of pairs, where both are activations."""
        if not isinstance(cell, Value):
            return self.plus(self.emit(Mul(), [i, g], "cell"), self.times(f, cell, "kept"))
        count = self.directions * self.hidden
        rows = [self.emit(Reshape((count, 1, 1)), [x], "gate_of_pair") for x in (f, i)]
        columns = [self.emit(Reshape((count, 1, 1)), [x], "part_of_pair") for x in (cell, g)]
        left, right = self.emit(Concat(3), rows, "gates_of_pairs"), self.emit(Concat(2), columns, "pairs")
        product = self.emit(Matmul(), [left, right], "cell_column")
        return self.emit(Reshape((self.directions, self.hidden)), [product], "cell")

    def gru(self, inputs: Value, state: State) -> Value:
        if self.after:
            product = self.product(state, "zrh")
            of_gates, of_state = (
                (None, None) if product is None else (self.columns(product, 0, 2), self.columns(product, 2, 3))
            )
        else:
            of_gates, of_state = self.product(state, "zr"), None
        gates = self.activated(self.plus(self.part(inputs, "zr"), of_gates), 0)
        z, r = (self.within(gates, range(at, at + self.hidden), f"gate{at}") for at in (0, self.hidden))
        if self.after:
            reset = None if of_state is None else self.emit(Mul(), [r, of_state], "reset")
        else:
            reset = self.product(self.times(r, state, "reset"), "h")
        new = self.activated(self.plus(self.part(inputs, "h"), reset), 1)
        if isinstance(state, Value):
            return self.emit(Blend(), [z, state, new], "state")
        rest = self.emit(Affine(-1.0, 1.0), [z], "rest")
        return self.plus(self.emit(Mul(), [rest, new], "state"), self.times(z, state, "kept"))

    def columns(self, x: Value, first: int, end: int) -> Value:
        """Gates of a product, which may be a parameter."""
        ends = (first * self.hidden, end * self.hidden)
        if x.batched:
            return self.within(x, range(*ends), f"product{first}")
        return self.parameter(self.node.scope.graph.parameters[x.name][:, slice(*ends)], f"known{first}")

    def rnn(self, inputs: Value, state: State) -> Value:
        return self.activated(self.plus(inputs, self.product(state, "h")), 0)


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
    if len(x.shape) != 2:
        raise node.unsupported(f"its input {x} is not [batch, length, size]", "repair the model")
    length = x.shape[0]
    _check_lengths(node, length)
    layer, weights, bias = _read(node, kind, length, x.shape[1])
    state = _initial(node, layer, 5)
    cell = _initial(node, layer, 6) if kind == "LSTM" else None
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


def _read(node: OnnxNode, kind: str, length: int, size: int) -> tuple[_Layer, Array, Array | None]:
    """The layer, and what belongs to its inputs: the weights [directions, gates · hidden, size] and the bias."""
    direction = str(node.attribute("direction", "forward"))
    if direction not in DIRECTIONS:
        raise node.unsupported(f"its direction is '{direction}'", f"use one of {', '.join(DIRECTIONS)}")
    backwards = DIRECTIONS[direction]
    weights, of_state = node.weights(1, "weights W"), node.weights(2, "weights R")
    hidden, gates, count = of_state.shape[-1] if of_state.ndim else 0, len(GATES[kind]), len(backwards)
    rows = gates * hidden
    bias = node.weights(3, "bias") if node.has(3) else None
    shapes = [weights.shape == (count, rows, size), of_state.shape == (count, rows, hidden)]
    if not all(shapes) or (bias is not None and bias.shape != (count, 2 * rows)):
        raise node.unsupported(
            f"its weights of shapes {list(weights.shape)} and {list(of_state.shape)} do not fit", "repair the model"
        )
    if int(node.attribute("hidden_size", hidden)) != hidden:
        raise node.unsupported(f"its hidden_size is not the weights' {hidden}", "repair the model")
    clip = node.attribute("clip")
    layer = _Layer(
        node,
        kind,
        backwards,
        hidden,
        length,
        _functions(node, kind, count),
        of_state,
        peepholes=node.weights(7, "peepholes") if kind == "LSTM" and node.has(7) else None,
        coupled=kind == "LSTM" and node.flag("input_forget"),
        limit=float(clip) if clip else None,
        after=kind == "GRU" and node.flag("linear_before_reset"),
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


def _initial(node: OnnxNode, layer: _Layer, index: int) -> State:
    """The state before the first step: an operand [N, directions, hidden], or zeros."""
    if not node.has(index):
        return None
    shape = (layer.directions, layer.hidden)
    if not node.is_constant(index):
        state = node.activation(index, "initial state")
        if state.shape != shape:
            raise node.unsupported(f"its initial state {state} is not [batch, {shape[0]}, {shape[1]}]", "repair it")
        return state
    array = of_one_sample(node.weights(index, "initial state"), 3)
    if array.ndim > 2:
        raise node.unsupported("its constant initial state differs between samples", "give it as an input")
    return np.broadcast_to(array, shape).copy() if array.any() else None


def _give(node: OnnxNode, layer: _Layer, states: list[Value], cell: State) -> None:
    """The results that are read: all states [N, length, directions, hidden], the last one, the last cell."""
    names = {index: name for index, name in enumerate(node.outputs) if name and name in node.scope.used}
    if 0 in names:
        shape = (1, layer.directions, layer.hidden)
        rows = [layer.emit(Reshape(shape), [state], "row") for state in states]
        first = f"{node.name}.states" if any(layer.backwards) else names[0]
        joined = rows[0] if len(rows) == 1 else node.emit(Concat(1), rows, output=first)
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
    each = 4 if node.flag("has_biases") else 2
    if len(parameters) != layers * directions * each or not all(isinstance(p, Constant) for p in parameters):
        raise node.unsupported("its parameters are none of a plain layer", "use it without proj_size")
    initial = node.argument("hx")
    initial = list(initial) if isinstance(initial, list | tuple) else [initial]
    batch_first = node.flag("batch_first")
    x = node.activation("input")
    if (x.at, x.merged) != (0 if batch_first else 1, 1):
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
            weights = [np.stack([_reordered(array, order) for array in own[part::each]]) for part in range(each)]
            bias = np.concatenate(weights[2:], axis=1) if each == 4 else None
            states = [_initial_aten(node, state, first, count) for state in initial]
            operands = [x, *weights[:2], bias, None, *states]
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
