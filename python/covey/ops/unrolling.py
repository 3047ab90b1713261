"""A recurrent layer's steps, one after the other, as nodes of the graph.

What the inputs contribute is one product for all steps and both directions. A step then multiplies the state before it,
of both directions at once. Where the model merges the batch with others, such as the rows of an image, these are
dimensions in front of the length, and all their sequences take a step at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from covey.importers.onnx_node import IMPORTERS, OnnxNode
from covey.interval import Array
from covey.ir import Op, Shape, Value
from covey.ops.add import Add
from covey.ops.affine import Affine
from covey.ops.blend import Blend
from covey.ops.clip import Clip
from covey.ops.concat import Concat
from covey.ops.conv import Conv2d
from covey.ops.dense import Dense
from covey.ops.gather import Gather, pick, strides
from covey.ops.matmul import Matmul
from covey.ops.mul import Mul
from covey.ops.reshape import Reshape
from covey.ops.transpose import Transpose
from covey.ops.window import Window

State = Value | Array | None
"""What a layer remembers: [N, .., directions, hidden], the same numbers for every sample, or zeros."""

GATES = {"LSTM": "iofc", "GRU": "zrh", "RNN": "h"}
"""The parts of the weights, in ONNX's order."""


@dataclass(frozen=True)
class Function:
    name: str
    arguments: dict[str, float]


@dataclass
class Layer:
    """A layer while it is unrolled. Values of a step are [N, *lead, directions, K], such as K = hidden."""

    node: OnnxNode
    kind: str
    backwards: tuple[bool, ...]
    hidden: int
    lead: Shape
    """The dimensions that the model merges with the batch."""
    length: int
    functions: list[Function]
    weights: Array
    """Of the state: [directions, gates · hidden, state]."""
    bias: Array | None = None
    """What is added to the product with the state: [directions, gates · hidden]."""
    peepholes: Array | None = None
    """Of an LSTM's gates i, o and f: [directions, 3 · hidden]."""
    coupled: bool = False
    limit: float | None = None
    after: bool = False
    """Whether a GRU's reset gate applies to the product with the state, not to the state."""
    projection: Array | None = None
    """Makes an LSTM's state of what it gives: [directions, state, hidden]. Without it the two are the same."""
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
        """x [N, *lead, length, directions, K] with time running as each direction does, or back."""
        if not any(self.backwards):
            return x
        halves = []
        for index, backwards in enumerate(self.backwards):
            times = range(self.length)[:: -1 if backwards else 1]
            name = output if self.directions == 1 and output else f"{self.node.name}.direction{index}"
            op = pick(x.shape, [*map(range, self.lead), times, [index], range(x.shape[-1])])
            halves.append(self.node.emit(op, [x], output=name))
        if self.directions == 1:
            return halves[0]
        return self.node.emit(Concat(2 + len(self.lead)), halves, output=output or f"{self.node.name}.in_turn")

    def projected(self, x: Value, weights: Array, bias: Array | None) -> Value:
        """What the inputs contribute to every step: x [N, *lead, length, size] times the weights of all gates."""
        rows = weights.shape[0] * weights.shape[1]
        operands = [x, self.parameter(weights.reshape(rows, -1).T, "input_weights")]
        if bias is not None:
            operands.append(self.parameter(bias.reshape(rows), "input_bias"))
        product = self.emit(Dense(), operands, "inputs")
        shape = (*self.lead, self.length, self.directions, rows // self.directions)
        return self.in_turn(self.emit(Reshape(shape), [product], "of_steps"))

    def step_of(self, x: Value, step: int) -> Value:
        """One step of x [N, *lead, length, directions, K]."""
        *lead, at_step, at_direction, one = strides(x.shape)
        axes = [range(0, size * stride, stride) for size, stride in zip(self.lead, lead, strict=True)]
        first = step * at_step
        axes += [range(first, first + at_step, at_direction), range(0, at_direction, one)]
        return self.emit(Gather(tuple(map(tuple, axes))), [x], f"input{step}")

    # Parts of a step

    def part(self, x: Value, gates: str) -> Value:
        """The parts of x [N, *lead, directions, gates · hidden] of these gates, in the order of the weights."""
        columns = [
            column
            for gate in sorted(gates, key=lambda each: self.parts[each])
            for column in range(self.parts[gate] * self.hidden, (self.parts[gate] + 1) * self.hidden)
        ]
        return self.within(x, columns, f"gates_{gates}")

    def within(self, x: Value, columns: Sequence[int], hint: str) -> Value:
        """Columns of x [N, *lead, directions, K]."""
        if list(columns) == list(range(x.shape[-1])):
            return x
        return self.emit(pick(x.shape, [*map(range, x.shape[:-1]), columns]), [x], hint)

    def product(self, state: State, gates: str) -> Value | None:
        """The state times the weights of these gates, and the bias; a parameter for a state that is known."""
        rows = [self.parts[gate] * self.hidden + row for gate in gates for row in range(self.hidden)]
        weights = self.weights[:, rows]
        bias = None if self.bias is None else self.bias[:, rows]
        if not isinstance(state, Value):
            known = np.zeros(weights.shape[:2]) if state is None else np.einsum("dkh,...dh->...dk", weights, state)
            known = known if bias is None else known + bias
            return self.parameter(known, f"first_{gates}") if known.any() else None
        return self.multiplied(state, weights, bias, f"state_weights_{gates}")

    def multiplied(self, state: Value, weights: Array, bias: Array | None, hint: str) -> Value:
        """x [N, *lead, directions, K] times the weights [directions, M, K] of its direction, plus [directions, M]."""
        shifts = [] if bias is None else [self.parameter(bias.ravel(), f"{hint}_bias")]
        if self.directions == 1:
            return self.emit(Dense(), [state, self.parameter(weights[0].T, hint), *shifts], "state_product")
        _, rows, size = weights.shape
        channels, outputs, copies = self.directions * size, self.directions * rows, prod(self.lead)
        if copies > 1:
            state = self.turned(self.emit(Reshape((copies, channels)), [state], "states"), "turned_states")
        image = self.emit(Reshape((channels, copies, 1)), [state], "state_image")
        kernels = self.parameter(weights.reshape(outputs, size, 1, 1), hint)
        window = Window((1, 1), (1, 1), (0, 0, 0, 0), (1, 1))
        product = self.emit(Conv2d(window, self.directions), [image, kernels, *shifts], "state_product")
        if copies > 1:
            product = self.turned(self.emit(Reshape((outputs, copies)), [product], "products"), "turned_products")
        return self.emit(Reshape((*self.lead, self.directions, rows)), [product], "of_gates")

    def turned(self, x: Value, hint: str) -> Value:
        return self.emit(Transpose((0, 2, 1)), [x], hint)

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
        state = self.emit(Mul(), [o, self.activated(new, 2, limited=False)], "state")
        if self.projection is not None:
            state = self.multiplied(state, self.projection, None, "projection")
        return state, new

    def mixed(self, f: Value, cell: State, i: Value, g: Value) -> Value:
        """f · cell + i · g: one product of pairs, where both are activations."""
        if not isinstance(cell, Value):
            return self.plus(self.emit(Mul(), [i, g], "cell"), self.times(f, cell, "kept"))
        shape = (*self.lead, self.directions, self.hidden)
        count = prod(shape)
        rows = [self.emit(Reshape((count, 1, 1)), [x], "gate_of_pair") for x in (f, i)]
        columns = [self.emit(Reshape((count, 1, 1)), [x], "part_of_pair") for x in (cell, g)]
        left, right = self.emit(Concat(3), rows, "gates_of_pairs"), self.emit(Concat(2), columns, "pairs")
        product = self.emit(Matmul(), [left, right], "cell_column")
        return self.emit(Reshape(shape), [product], "cell")

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
        return self.parameter(self.node.scope.graph.parameters[x.name][..., slice(*ends)], f"known{first}")

    def rnn(self, inputs: Value, state: State) -> Value:
        return self.activated(self.plus(inputs, self.product(state, "h")), 0)
