"""Rows of a table at what a model makes of an input's whole numbers: each index comes from one number, or is constant.

So are ids that a decoder shifts to the right behind a constant, ids of which some are replaced, and ids of several
columns that read one table. The table is read at the input's numbers, and has its rows in another order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt

from covey.importers.onnx_node import OnnxNode
from covey.interval import Array
from covey.ir import DType, Graph, Node, Shape, Value
from covey.ops.add import Add
from covey.ops.affine import Affine
from covey.ops.clip import Clip
from covey.ops.comparison import Not
from covey.ops.concat import Concat
from covey.ops.gather import ABSENT, Gather, flat
from covey.ops.maximum import Extreme
from covey.ops.number import Number
from covey.ops.relu import Relu
from covey.ops.reshape import Reshape
from covey.ops.transpose import Transpose
from covey.ops.whole_numbers import Is, Take, Truth

Places = npt.NDArray[np.int64]

_MOVES = Concat | Gather | Reshape | Transpose
_BY_ELEMENT = Affine | Clip | Extreme | Is | Not | Number | Relu | Truth

NOWHERE = -1
"""The place of an index that comes from no number."""

MOST_EVALUATED = 1 << 26
"""Indices are evaluated for no more numbers, all together."""

AT_ONCE = 1 << 20


@dataclass(frozen=True)
class Renumbered:
    """Indices of a sample in a row: which number of the input each comes from, and what it is for each number."""

    source: Value
    places: Places
    values: Places
    """[K, M]: the indices if all numbers of the input are 0, 1, .. K - 1."""


def renumbered(graph: Graph, name: str, count: int) -> Renumbered | None:
    """What indices are for the numbers below `count` of an input, if each comes from one number at most."""
    size = graph.values[name].size
    nodes, sources = _behind(graph, name)
    if len(sources) != 1 or count * size > MOST_EVALUATED:
        return None
    source = graph.values[sources.pop()]
    places: dict[str, Places] = {source.name: np.arange(source.size).reshape(1, *source.shape)}
    for node in nodes:
        found = _places(graph, node, places)
        if found is None:
            return None
        places[node.output] = found
    parts = []
    step = max(AT_ONCE // max(size, source.size), 1)
    for first in range(0, count, step):
        numbers = np.arange(first, min(first + step, count), dtype=np.float64)
        given = np.broadcast_to(numbers.reshape(-1, *[1] * len(source.shape)), (len(numbers), *source.shape))
        known: dict[str, Array] = {source.name: given}
        for node in nodes:
            known[node.output] = np.asarray(node.op.reference(*_operands(graph, node, known)))
        parts.append(known[name].reshape(len(numbers), size))
    values = np.concatenate(parts)
    if (values != np.rint(values)).any():
        return None
    return Renumbered(source, places[name].ravel(), values.astype(np.int64))


def take_renumbered(node: OnnxNode, indices: Value, table: Array, shape: Shape) -> bool:
    """Emit the rows of a table [K, M] at such indices, in a shape; whether they are such.

    A number is a class if its index and those of all lower numbers are in the table. Indices that stay there for all
    numbers say of none that it is no class, so they are not such.
    """
    found = None if node.scope.trained else renumbered(node.scope.graph, indices.name, len(table) + 1)
    if found is None:
        return False
    places, name = found.places, node.outputs[0]
    fixed = places == NOWHERE
    functions, group = np.unique(found.values[:, ~fixed], axis=1, return_inverse=True)
    inside = (functions >= 0) & (functions < len(table))
    constants = found.values[0, fixed]
    if inside.all(axis=0).any() or not inside[0].all() or ((constants < 0) | (constants >= len(table))).any():
        return False
    parts: list[Value] = []
    order = np.full(len(places), ABSENT)
    order[~fixed] = np.argsort(np.argsort(group.ravel(), kind="stable"), kind="stable")
    for index, (values, among) in enumerate(zip(functions.T, inside.T, strict=True)):
        rows = node.parameter(table[values[: int(among.argmin())]], f"{node.inputs[0]}.renumbered{index}")
        at = flat(places[~fixed][group.ravel() == index])
        numbers = node.emit(at, [found.source], output=f"{name}.numbers{index}", dtype=DType.INDEX)
        parts.append(node.emit(Take(), [numbers, rows], output=f"{name}.rows{index}"))
    joined = parts[0] if len(parts) == 1 else node.emit(Concat(1), parts, output=f"{name}.joined")
    width = table.shape[1]
    positions = np.where(order[:, None] == ABSENT, ABSENT, order[:, None] * width + np.arange(width))
    spread = node.emit(flat(positions), [joined], output=f"{name}.spread")
    rows_of_all = node.emit(Reshape(shape), [spread], output=f"{name}.taken" if fixed.any() else None)
    if fixed.any():
        added = np.zeros((len(places), width))
        added[fixed] = table[constants]
        node.emit(Add(), [rows_of_all, node.parameter(added.reshape(shape), f"{node.inputs[0]}.fixed")])
    node.note("one-hot rows, which the client shares, times the table's rows in another order")
    return True


def _behind(graph: Graph, name: str) -> tuple[list[Node], set[str]]:
    """The nodes that compute a value, in order, and the inputs that they read."""
    names, nodes = {name}, list[Node]()
    for node in reversed(graph.nodes):
        if node.output in names:
            nodes.insert(0, node)
            names.update(each for each in node.inputs if each not in graph.parameters)
    return nodes, names - {node.output for node in nodes}


def _places(graph: Graph, node: Node, places: Mapping[str, Places]) -> Places | None:
    """The places of a node's result, if each of its elements comes from one number at most."""
    operands = _operands(graph, node, {name: (found + 1).astype(np.float64) for name, found in places.items()}, 0.0)
    if isinstance(node.op, _MOVES):
        return node.op.reference(*operands).astype(np.int64) - 1
    if not (node.op.elementwise or isinstance(node.op, _BY_ELEMENT)):
        return None
    of_each = [np.asarray(each) for each in np.broadcast_arrays(*operands)]
    joined = reduce(np.maximum, of_each)
    differ = any(((each > 0) & (each != joined)).any() for each in of_each)
    return None if differ else joined.astype(np.int64) - 1


def _operands(graph: Graph, node: Node, known: Mapping[str, Array], of_constants: float | None = None) -> list[Array]:
    """A node's operands: those that are known, and constants, or one number in place of theirs."""
    found = []
    for name in node.inputs:
        if name in known:
            found.append(known[name])
        else:
            constant = graph.parameters[name]
            found.append(constant if of_constants is None else np.full_like(constant, of_constants))
    return found
