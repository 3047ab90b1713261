"""Builds the graph of a training step: what operators call to write their forms for minibatches and their gradients.

A training step runs on one sample, which is a whole minibatch: every activation has the minibatch as its first
dimension. What is trained is an activation too, without that dimension, and whatever depends on it has been *learned*.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from covey.errors import UnsupportedError
from covey.interval import Array
from covey.ir import DType, Graph, Node, Op, Shape, Value
from covey.ops.add import Add
from covey.ops.affine import Affine
from covey.ops.average_pool import SumPool
from covey.ops.bits import IsNegative, Select
from covey.ops.concat import Concat
from covey.ops.gather import ABSENT, Gather, pick
from covey.ops.matmul import Matmul
from covey.ops.mul import Mul
from covey.ops.pad import Pad
from covey.ops.reshape import Reshape
from covey.ops.sub import Sub
from covey.ops.transpose import Transpose
from covey.ops.window import MOST_STEPS, Window
from covey.training.coins import seed_of

MOVES = (Reshape, Transpose, Gather, Pad)
"""Operators that compute nothing: one result serves all that ask for it, and parameters are moved at once."""

WAY_OUT = "freeze the parameters before it, or replace it"


@dataclass(frozen=True)
class Running:
    """A statistic that is kept: `(1 - momentum)` of what it was and `momentum` of the minibatch's."""

    parameter: str
    statistic: Value
    momentum: float
    name: str = ""
    """What the model calls the parameter."""


class Builder:
    """A graph under construction. Nodes are named after the node of the model that is `at` hand."""

    def __init__(self, name: str, count: int, seed: int = 0) -> None:
        self.graph = Graph(name)
        self.seed = seed
        """Of the public coins of all nodes."""
        self.count = count
        """Samples of a minibatch."""
        self.learned: set[str] = set()
        self.producers: dict[str, Node] = {}
        self.beginnings: dict[str, Value] = {}
        """The parameters that changes add to, by the carried values' names."""
        self.running: list[Running] = []
        self.growing: dict[str, float] = {}
        """Values that may become so many times as large over many steps as in one."""
        self.reach: dict[str, float] = {}
        """Absolute values that may be reached, whatever the calibration data say."""
        self.spans: dict[str, tuple[float, float]] = {}
        """Where values lie at least, whatever the calibration data say."""
        self.batch_statistics = True
        """Whether batch normalisation takes the minibatch's statistics, and keeps running ones."""
        self.stochastic_rounding = False
        """Whether weights are rounded up or down by public coins."""
        self._node, self._source_op, self._prefix = name, "", "step"
        self._coins = itertools.count()
        self._moved: dict[tuple[Op, str], Value] = {}

    @contextmanager
    def at(self, name: str, source_op: str, prefix: str) -> Iterator[None]:
        """Nodes are the named one's of the model, and values begin with `prefix`."""
        before = self._node, self._source_op, self._prefix
        self._node, self._source_op, self._prefix = name, source_op, prefix
        try:
            yield
        finally:
            self._node, self._source_op, self._prefix = before

    @contextmanager
    def samples(self, count: int) -> Iterator[None]:
        """Activations have so many samples in the place of a minibatch's."""
        before, self.count = self.count, count
        try:
            yield
        finally:
            self.count = before

    def unsupported(self, reason: str, way_out: str = WAY_OUT) -> UnsupportedError:
        """The error that refuses the node at hand."""
        return UnsupportedError(self._node, self._source_op, reason, way_out)

    # Values

    def input(self, name: str, shape: Shape, dtype: DType = DType.FLOAT) -> Value:
        """An input of the step."""
        value = self.graph.add_value(Value(self.graph.fresh(name), shape, dtype=dtype))
        self.graph.inputs.append(value.name)
        return value

    def emit(self, op: Op, *inputs: Value, hint: str = "", dtype: DType = DType.FLOAT) -> Value:
        """The result of an operator. Moves of parameters are parameters."""
        moves = isinstance(op, MOVES) and len(inputs) == 1
        if moves and not inputs[0].batched:
            return self._moved_parameter(op, inputs[0])
        key = (op, inputs[0].name) if moves else None
        if key is not None and key in self._moved:
            return self._moved[key]
        try:
            shape = op.shape(*inputs)
        except ValueError as error:
            raise self.unsupported(str(error), "repair the model") from None
        name = self.graph.fresh(f"{self._prefix}.{hint}" if hint else self._prefix)
        value = self.graph.add_value(Value(name, shape, dtype=dtype))
        node = Node(self._node, self._source_op, op, [each.name for each in inputs], name)
        self.graph.nodes.append(node)
        self.producers[name] = node
        if any(each.name in self.learned for each in inputs):
            self.learned.add(name)
        if (moves or isinstance(op, Concat)) and all(each.name in self.graph.finer for each in inputs):
            self.graph.finer.add(name)
        if key is not None:
            self._moved[key] = value
        return value

    def _moved_parameter(self, op: Op, x: Value) -> Value:
        array = op.reference(self.graph.parameters[x.name][None])[0]
        return self.graph.add_parameter(f"{x.name}.moved", array)

    def parameter(self, hint: str, array: Array) -> Value:
        """A parameter of the graph that is not trained."""
        return self.graph.add_parameter(hint, array)

    def variable(self, name: str, initial: Array | None, shape: Shape) -> Value:
        """A value that is carried from step to step, beginning as zeros: what it has become of `initial`, if given."""
        carried = self.input(f"{name}.change" if initial is not None else name, shape)
        self.graph.finer.add(carried.name)
        if initial is None:
            return carried
        beginning = self.beginnings[carried.name] = self.parameter(name, initial)
        value = self.emit(Add(), beginning, carried, hint="now")
        self.graph.finer.add(value.name)
        return value

    def keep(self, parameter: Value, statistic: Value, momentum: float) -> None:
        """Have a parameter of the model follow a statistic of the minibatches."""
        if any(running.parameter == parameter.name for running in self.running):
            raise self.unsupported(
                "two layers share its running statistics",
                "give each its own, or take the model's (batch_norm='frozen')",
            )
        self.running.append(Running(parameter.name, statistic, momentum))

    def learns(self, value: Value) -> bool:
        """Whether a value depends on what is trained."""
        return value.name in self.learned

    def coins(self) -> int:
        """The seed of coins that no node has yet."""
        return seed_of(self.seed, next(self._coins))

    # Moves

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        """x in another shape."""
        return x if x.shape == tuple(shape) else self.emit(Reshape(tuple(shape)), x, hint="shaped")

    def transpose(self, x: Value, order: Sequence[int]) -> Value:
        """The dimensions of x, without the run's, in another order."""
        if list(order) == list(range(len(x.shape))):
            return x
        return self.emit(Transpose((0, *(place + 1 for place in order))), x, hint="turned")

    def swapped(self, x: Value) -> Value:
        """The last two dimensions change places."""
        rank = len(x.shape)
        return self.transpose(x, (*range(rank - 2), rank - 1, rank - 2))

    def pick(self, x: Value, along: Sequence[Sequence[int]], hint: str = "picked") -> Value:
        """The elements at these indices along each dimension; `ABSENT` is 0."""
        if all(list(indices) == list(range(size)) for indices, size in zip(along, x.shape, strict=True)):
            return x
        return self.emit(pick(x.shape, along), x, hint=hint)

    def pick_along(self, x: Value, axis: int, indices: Sequence[int]) -> Value:
        """The elements at these indices along one dimension."""
        along: list[Sequence[int]] = [range(size) for size in x.shape]
        along[axis] = indices
        return self.pick(x, along)

    def expand(self, x: Value, shape: Shape) -> Value:
        """x repeated to `shape`, to which it broadcasts."""
        x = self.reshape(x, (*(1,) * (len(shape) - len(x.shape)), *x.shape))
        along = [range(want) if size == want else [0] * want for size, want in zip(x.shape, shape, strict=True)]
        return self.pick(x, along, "expanded")

    def zeros_like(self, x: Value) -> Value:
        """Zeros of the shape and scale of x."""
        zeros = self.emit(Gather(tuple((ABSENT,) * size for size in x.shape)), x, hint="zeros")
        self.learned.discard(zeros.name)
        return zeros

    def aligned(self, *inputs: Value) -> list[Value]:
        """Operands with as many dimensions, those that are missing in front."""
        rank = max((len(value.shape) for value in inputs if value.batched), default=0)
        return [
            self.reshape(value, (*(1,) * (rank - len(value.shape)), *value.shape)) if value.batched else value
            for value in inputs
        ]

    def scatter(self, gradient: Value, along: Sequence[Sequence[int]], shape: Shape) -> Value:
        """The gradient of x of `shape`, of which elements were picked `along` each dimension: each adds to its own."""
        x = gradient
        for axis, (indices, size) in enumerate(zip(along, shape, strict=True)):
            if list(indices) == list(range(size)):
                continue
            places = _places(indices, size)
            most = len(places[0]) if places else 0
            if most <= 1:
                x = self.pick_along(x, axis, [found[0] if found else ABSENT for found in places])
                continue
            flat = self.pick_along(x, axis, [place for found in places for place in found])
            parts = self.reshape(flat, (*x.shape[:axis], size, most, *x.shape[axis + 1 :]))
            x = self.reshape(self.sum_over(parts, [axis + 1]), (*x.shape[:axis], size, *x.shape[axis + 1 :]))
        return x

    # Arithmetic

    def part(self, x: Value, gradient: Callable[[], Value]) -> Value | None:
        """What an operand is given of a gradient in the result's shape, if it depends on what is trained."""
        return self.sum_to(gradient(), x.shape) if self.learns(x) else None

    def add(self, x: Value, y: Value) -> Value:
        """The sum, broadcasting."""
        return self.emit(Add(), *self.aligned(x, y), hint="sum")

    def sub(self, x: Value, y: Value) -> Value:
        """The difference, broadcasting."""
        return self.emit(Sub(), *self.aligned(x, y), hint="difference")

    def mul(self, x: Value, y: Value) -> Value:
        """The product, broadcasting."""
        return self.emit(Mul(), *self.aligned(x, y), hint="product")

    def affine(self, x: Value, factor: float = 1.0, summand: float = 0.0) -> Value:
        """x times a public number, and another added."""
        return x if (factor, summand) == (1.0, 0.0) else self.emit(Affine(factor, summand), x, hint="scaled")

    def matmul(self, x: Value, y: Value) -> Value:
        """The product of matrices of activations."""
        return self.emit(Matmul(), x, y, hint="matmul")

    def layer(self, rows: Value, weight: Value, bias: Sequence[Value]) -> Value:
        """Rows [.., M, K] times a weight [.., K, P], and perhaps a bias [.., 1, P].

        A bias that is trained is the weight of a column of ones: product and shift are then one gate, as without it.
        """
        if not bias or not bias[0].batched:
            return self.total([self.matmul(rows, weight), *bias])
        axis = len(rows.shape) - 1
        ones = self.affine(self.zeros_like(self.pick_along(rows, axis, [0])), 1.0, 1.0)
        wide = self.emit(Concat(axis + 1), rows, ones, hint="with_ones")
        return self.matmul(wide, self.emit(Concat(axis), weight, bias[0], hint="with_bias"))

    def total(self, parts: Sequence[Value]) -> Value:
        """The sum of all."""
        result = parts[0]
        for part in parts[1:]:
            result = self.add(result, part)
        return result

    def sum_over(self, x: Value, axes: Sequence[int]) -> Value:
        """The sum over these dimensions, which stay with size 1."""
        axes = [axis for axis in axes if x.shape[axis] > 1]
        if not axes:
            return x
        kept = [axis for axis in range(len(x.shape)) if axis not in axes]
        sizes = [x.shape[axis] for axis in axes]
        rows = math.prod(x.shape[axis] for axis in kept)
        result = self.reshape(self.transpose(x, (*kept, *axes)), (1, rows, math.prod(sizes)))
        while result.shape[-1] > 1:
            # Longer rows than a window takes are summed in parts.
            count = result.shape[-1]
            width = count if count <= MOST_STEPS else next(w for w in range(MOST_STEPS, 0, -1) if count % w == 0)
            if width == 1:
                raise self.unsupported(f"it sums {count} elements", "use another size of minibatches")
            result = self.emit(SumPool(Window((1, width), (1, width))), result, hint="total")
        return self.reshape(result, tuple(1 if axis in axes else size for axis, size in enumerate(x.shape)))

    def sum_to(self, x: Value, shape: Shape) -> Value:
        """What a value of `shape`, broadcast to that of x, is given of a gradient at x."""
        padded = (*(1,) * (len(x.shape) - len(shape)), *shape)
        axes = [axis for axis, (size, want) in enumerate(zip(x.shape, padded, strict=True)) if size != want]
        return self.reshape(self.sum_over(x, axes), shape)

    def products_to(self, x: Value, y: Value, shape: Shape) -> Value:
        """The products of two values of one shape, summed to `shape`, which broadcasts to it: as products of rows."""
        padded = (*(1,) * (len(x.shape) - len(shape)), *shape)
        axes = [axis for axis, (size, want) in enumerate(zip(x.shape, padded, strict=True)) if size != want]
        if not axes:
            return self.reshape(self.mul(x, y), shape)
        kept = [axis for axis in range(len(x.shape)) if axis not in axes]
        rows, count = math.prod(x.shape[axis] for axis in kept), math.prod(x.shape[axis] for axis in axes)
        x, y = (self.transpose(each, (*kept, *axes)) for each in (x, y))
        return self.reshape(self.matmul(self.reshape(x, (rows, 1, count)), self.reshape(y, (rows, count, 1))), shape)

    def of_rows(self, first: tuple[Value, Value], second: tuple[Value, Value]) -> Value:
        """The sum of two products: of a value [.., rows, count] with one number for each of its rows [.., rows, 1]."""
        lead, count = first[0].shape[:-1], first[0].shape[-1]
        rows = math.prod(lead)
        values = [self.reshape(value, (rows, 1, count)) for value, _ in (first, second)]
        factors = [self.reshape(factor, (rows, 1, 1)) for _, factor in (first, second)]
        product = self.matmul(
            self.emit(Concat(3), *factors, hint="factors"), self.emit(Concat(2), *values, hint="stacked")
        )
        return self.reshape(product, (*lead, count))

    # Choices

    def negative(self, x: Value) -> Value:
        """The bit of x < 0."""
        return self.emit(IsNegative(), x, hint="negative", dtype=DType.BOOL)

    def positive(self, x: Value) -> Value:
        """The bit of x > 0."""
        return self.negative(self.affine(x, -1.0))

    def select(self, bit: Value, x: Value, y: Value) -> Value:
        """x where the bit is 1, else y."""
        return self.emit(Select(), bit, x, y, hint="chosen")

    def where_set(self, bit: Value, x: Value) -> Value:
        """x where the bit is 1, else 0."""
        return self.select(bit, x, self.zeros_like(x))

    def where_not_set(self, bit: Value, x: Value) -> Value:
        """x where the bit is 0, else 0."""
        return self.select(bit, self.zeros_like(x), x)

    def positive_part(self, x: Value) -> Value:
        """max(x, 0), whose gradient reuses the bit; at 0 it is 0."""
        return self.where_set(self.positive(x), x)


def _places(indices: Sequence[int], size: int) -> list[list[int]]:
    """For each of `size` elements along a dimension, where a pick of `indices` puts it: lists of one length."""
    places: list[list[int]] = [[] for _ in range(size)]
    for place, index in enumerate(indices):
        if index != ABSENT:
            places[index].append(place)
    most = max(map(len, places), default=0)
    return [found + [ABSENT] * (most - len(found)) for found in places]
