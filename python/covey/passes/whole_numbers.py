"""Decides how inputs of whole numbers are shared, and writes what reads them as products of one-hot rows.

A number that picks a row of a table, or becomes one-hot, is shared one-hot; one that is only computed with is shared as
it is. What moves numbers, such as a Slice that takes one category of several, moves their one-hot rows instead.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from covey.ir import DType, Graph, Node, Op, Shape, Value
from covey.ops.comparison import Equal, Not
from covey.ops.concat import Concat
from covey.ops.dense import Dense
from covey.ops.gather import ABSENT, Gather, flat
from covey.ops.number import Number
from covey.ops.reshape import Reshape
from covey.ops.selection import Selector
from covey.ops.transpose import Transpose
from covey.ops.whole_numbers import Encode, Is, Lookup, OneHot, Take, Truth

Places = npt.NDArray[np.int64]


def encode_whole_numbers(graph: Graph) -> None:
    """Give every input of whole numbers its classes, and let all its readers read what is shared."""
    for name in graph.inputs:
        if graph.values[name].dtype is DType.INDEX:
            _Input(graph, graph.values[name]).rewrite()


class _Input:
    """One input, and for each number of a sample how many classes it has and where it begins in what is shared."""

    def __init__(self, graph: Graph, value: Value) -> None:
        self.graph = graph
        self.value = value
        places = np.arange(value.size).reshape(value.shape)
        self.readers = list(self._readers(value.name, places))
        self.counts = self._classes()
        uniform = len(set(self.counts.tolist())) == 1
        self.classes = tuple(self.counts[:1].tolist() if uniform else self.counts.tolist())
        widths = np.maximum(self.counts, 1)
        self.starts = np.cumsum(widths) - widths
        self.total = int(widths.sum())

    def _readers(self, name: str, places: Places) -> Iterator[tuple[Node, Places]]:
        """What computes with the numbers, and which of the sample's numbers each reads."""
        for node in self.graph.consumers(name):
            if isinstance(node.op, Reshape | Transpose | Gather):
                moved = node.op.reference(places[None].astype(np.float64))[0]
                yield from self._readers(node.output, moved.astype(np.int64))
            else:
                yield node, places

    def _classes(self) -> Places:
        """As many as the smallest table or dimension has that a number picks from; else the greatest one-hot depth."""
        tables = np.zeros(self.value.size, dtype=np.int64)
        depths = np.zeros(self.value.size, dtype=np.int64)
        for node, places in self.readers:
            at = places.ravel()
            if isinstance(node.op, Take):
                rows = self.graph.values[node.inputs[1]].shape[0]
                tables[at] = np.where(tables[at] == 0, rows, np.minimum(tables[at], rows))
            elif isinstance(node.op, Selector):
                tables[at] = np.where(tables[at] == 0, node.op.count, np.minimum(tables[at], node.op.count))
            elif isinstance(node.op, OneHot):
                depths[at] = np.maximum(depths[at], node.op.depth)
        counts = np.where(tables > 0, tables, depths)
        return np.minimum(counts, 2) if self.value.name in self.graph.truths else counts

    def rewrite(self) -> None:
        graph = self.graph
        graph.classes[self.value.name] = self.classes
        encode = Encode(self.classes)
        self.encoded = graph.add_value(Value(graph.fresh(f"{self.value.name}.shared"), encode.shape(self.value)))
        graph.nodes.insert(0, Node(self.value.name, "Input", encode, [self.value.name], self.encoded.name))
        for node, places in self.readers:
            if isinstance(node.op, Take):
                self._take(node, node.op, places)
            elif isinstance(node.op, Selector):
                rows = self._rows(node, places, node.op.count)
                node.op, node.inputs = Reshape(rows.shape), [rows.name]
            elif isinstance(node.op, OneHot):
                self._one_hot(node, places, node.op.depth)
            elif isinstance(node.op, Truth):
                self._is(node, places, 0, opposite=True)
            elif isinstance(node.op, Is):
                self._is(node, places, node.op.number, opposite=False)
            else:
                self._number(node, places)

    def _take(self, node: Node, take: Take, places: Places) -> None:
        name = node.inputs[1]
        width = int(self.counts[places.ravel()].max())
        if width < len(self.graph.parameters[name]):
            name = self.graph.add_parameter(f"{name}.first", self.graph.parameters[name][:width]).name
        lookup = Lookup(take.padding, take.by_frequency)
        node.op, node.inputs = lookup, [self._rows(node, places, width).name, name]

    def _one_hot(self, node: Node, places: Places, depth: int) -> None:
        rows = self._rows(node, places, depth)
        node.op, node.inputs = Number(), [rows.name]
        if self.counts[places.ravel()].max() > depth:
            return  # a row may be empty
        for reader in self.graph.consumers(node.output):
            if type(reader.op) is Dense and reader.inputs[0] == node.output:
                reader.op, reader.inputs[0] = Lookup(), rows.name

    def _is(self, node: Node, places: Places, number: int, *, opposite: bool) -> None:
        """Whether numbers are `number`, or are not: elements of one-hot rows, numbers that are 0 or 1, a comparison."""
        at = places.ravel()
        counts = self.counts[at]
        if (counts > 0).all():
            found = self._picked(
                node, places.shape, np.where((number >= 0) & (number < counts), self.starts[at] + number, ABSENT)
            )
        elif opposite and not counts.any():
            self.graph.truths.add(self.value.name)
            found, opposite = self._picked(node, places.shape, self.starts[at]), False
        else:
            self._number(node, places)
            compared = self.graph.add_parameter(f"{node.output}.compared", np.array(float(number)))
            numbers = self.graph.values[node.inputs[0]]
            found = self._emit(node, Equal(), [numbers, compared], "equal", dtype=DType.BOOL)
        node.op, node.inputs = (Not() if opposite else Reshape(places.shape)), [found.name]

    def _number(self, node: Node, places: Places) -> None:
        """Let a node read numbers where it read such: those that are shared one-hot are looked up."""
        old = next(name for name in node.inputs if self.graph.values[name].dtype is DType.INDEX)
        at = places.ravel()
        plain, one_hot = at[self.counts[at] == 0], at[self.counts[at] > 0]
        if one_hot.size == 0:
            new = self._picked(node, places.shape, self.starts[at])
        elif plain.size == 0:
            new = self._looked_up(node, places)
        else:
            parts = [self._picked(node, plain.shape, self.starts[plain]), self._looked_up(node, one_hot)]
            joined = self._emit(node, Concat(1), parts, "joined")
            order = np.concatenate([np.flatnonzero(self.counts[at] == 0), np.flatnonzero(self.counts[at] > 0)])
            in_order = self._emit(node, flat(np.argsort(order)), [joined], "in_order")
            new = self._reshaped(node, in_order, places.shape)
        node.inputs = [new.name if name == old else name for name in node.inputs]

    def _looked_up(self, node: Node, places: Places) -> Value:
        """Numbers that are shared one-hot."""
        width = int(self.counts[places.ravel()].max())
        rows = self._rows(node, places, width)
        numbers = self.graph.add_parameter(f"{rows.name}.numbers", np.arange(float(width))[:, None])
        return self._reshaped(node, self._emit(node, Lookup(whole=True), [rows, numbers], "looked_up"), places.shape)

    def _rows(self, node: Node, places: Places, width: int) -> Value:
        """The one-hot rows of these numbers, of `width` elements."""
        at = places.ravel()
        counts, starts = self.counts[at], self.starts[at]
        if (counts == width).all():
            shape = (*places.shape, width)
            if np.array_equal(at, np.arange(self.value.size)):
                return self._reshaped(node, self.encoded, shape)
            op = Gather((tuple(starts.tolist()), tuple(range(width))))
            return self._reshaped(node, self._emit(node, op, [self.encoded], "rows"), shape)
        along = np.arange(width)
        positions = np.where(along < counts[:, None], starts[:, None] + along, ABSENT)
        return self._picked(node, (*places.shape, width), positions)

    def _picked(self, node: Node, shape: Shape, positions: Places) -> Value:
        """Elements of what is shared, in this shape."""
        if np.array_equal(positions.ravel(), np.arange(self.total)):
            return self._reshaped(node, self.encoded, shape)
        return self._reshaped(node, self._emit(node, flat(positions), [self.encoded], "picked"), shape)

    def _reshaped(self, node: Node, value: Value, shape: Shape) -> Value:
        return value if value.shape == shape else self._emit(node, Reshape(shape), [value], "shaped")

    def _emit(self, before: Node, op: Op, operands: list[Value], suffix: str, *, dtype: DType = DType.FLOAT) -> Value:
        """A new node in front of another, of the same node of the model."""
        graph = self.graph
        value = graph.add_value(Value(graph.fresh(f"{before.output}.{suffix}"), op.shape(*operands), dtype=dtype))
        made = Node(before.name, before.source_op, op, [operand.name for operand in operands], value.name)
        graph.nodes.insert(next(i for i, node in enumerate(graph.nodes) if node is before), made)
        return value
