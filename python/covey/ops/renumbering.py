"""Rows of a table at what a model makes of an input's whole numbers: each index comes from one number, or is constant.

So are ids that a decoder shifts to the right behind a constant, ids of which some are replaced, and ids of several
columns that read one table. The table is read at the input's numbers, and has its rows in another order. Where a truth
value decides besides, as in ids times a mask of tokens, rows of two orders are chosen between. A mask of whole numbers
is known by the model's examples, in which it is 0 and 1 alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
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
from covey.ops.where import Where
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

    @property
    def fixed(self) -> npt.NDArray[np.bool_]:
        """Which indices are the same for all numbers."""
        return np.asarray((self.values == self.values[0]).all(axis=0))

    def fits(self, rows: int) -> bool:
        """Whether each index, or that of the number 0 and some above it but not of all, is in a table."""
        functions = self.values[:, ~self.fixed]
        constants = self.values[0, self.fixed]
        inside = (functions >= 0) & (functions < rows)
        bounded = bool(inside[0].all()) and not inside.all(axis=0).any()
        return bounded and bool(((constants >= 0) & (constants < rows)).all())

    def is_of_parts(self, padding: int) -> bool:
        """Whether no index is constant, and each is the row of padding for one number at most: so it is trained."""
        return not self.fixed.any() and bool(((self.values == padding).sum(axis=0) <= 1).all())


@dataclass(frozen=True)
class Choice:
    """Indices that a truth value for each chooses between two such."""

    truths: Value
    places: Places
    """Which truth value belongs to each index; those without one have the same index in both cases."""
    otherwise: Renumbered
    chosen: Renumbered


def renumbered(graph: Graph, name: str, count: int) -> Renumbered | Choice | None:
    """What indices are for the numbers below `count` of an input, if each comes from one number at most."""
    size = graph.values[name].size
    if 2 * count * size > MOST_EVALUATED:
        return None
    nodes, sources = _behind(graph, name)
    found = _number_and_truths(graph, name, nodes, sources)
    if found is None:
        return None
    number, truths = found
    nodes, _ = _behind(graph, name, truths)
    source = graph.values[number]
    places = _all_places(graph, nodes, {number: np.arange(source.size)}, truths)
    cases = [_values(graph, nodes, name, source, count, dict.fromkeys(truths, truth)) for truth in (0.0, 1.0)]
    if places is None or any(case is None for case in cases):
        return None
    otherwise, chosen = (Renumbered(source, places[name].ravel(), case) for case in cases if case is not None)
    if not truths:
        return chosen
    first = graph.values[min(truths)]
    at = _all_places(graph, nodes, dict.fromkeys(truths, np.arange(first.size)), {number})
    return None if at is None else Choice(first, at[name].ravel(), otherwise, chosen)


def take_renumbered(node: OnnxNode, indices: Value, table: Array, shape: Shape, padding: int = NOWHERE) -> bool:
    """Emit the rows of a table [K, M] at such indices, in a shape; whether they are such.

    A number is a class if its index and those of all lower numbers are in the table. Indices that stay there for all
    numbers say of none that it is no class, so they are not such. Training moves no `padding` row.
    """
    name = node.outputs[0]
    found = renumbered(node.scope.graph, indices.name, len(table) + 1)
    if node.scope.trained and not (isinstance(found, Renumbered) and found.is_of_parts(padding)):
        return False
    if isinstance(found, Renumbered) and found.fits(len(table)) and not found.fixed.all():
        _emit_rows(node, found, table, shape, name, padding)
        node.note("one-hot rows, which the client shares, times the table's rows in another order")
        return True
    if not isinstance(found, Choice):
        return False
    cases = (found.chosen, found.otherwise)
    if all(case.fixed.all() for case in cases) or not all(case.fits(len(table)) for case in cases):
        return False
    rows = [_emit_rows(node, case, table, shape, f"{name}.case{index}") for index, case in enumerate(cases)]
    truths = found.truths
    if truths.dtype is DType.INDEX:
        truths = node.emit(Truth(), [truths], output=f"{name}.truths", dtype=DType.BOOL)
    at = flat(np.maximum(found.places, 0))
    moved = node.emit(at, [truths], output=f"{name}.truths_of_each", dtype=DType.BOOL)
    of_each = Reshape((*indices.shape, *[1] * (len(shape) - len(indices.shape))))
    condition = node.emit(of_each, [moved], output=f"{name}.condition", dtype=DType.BOOL)
    node.emit(Where(), [condition, *rows])
    node.note("a choice between the table's rows in two orders")
    return True


def check_trained(node: OnnxNode, indices: Value, rows: int) -> None:
    """Refuse in training those of such indices whose rows are no part of the table alone."""
    if node.scope.trained and renumbered(node.scope.graph, indices.name, rows + 1) is not None:
        raise node.unsupported(
            f"in training it reads numbers of an input, not '{indices.name}', which a mask or a constant is part of",
            "compute these in the data, and let the model take them",
        )


def _emit_rows(
    node: OnnxNode, found: Renumbered, table: Array, shape: Shape, name: str, padding: int = NOWHERE
) -> Value:
    """The rows of a table at indices of which some may be constant, or all: then a parameter."""
    fixed = found.fixed
    constants = np.zeros((len(fixed), table.shape[1]))
    constants[fixed] = table[found.values[0, fixed]]
    if fixed.all():
        return node.parameter(constants.reshape(shape), f"{name}.fixed")
    places = found.places[~fixed]
    functions, group = np.unique(found.values[:, ~fixed], axis=1, return_inverse=True)
    inside = (functions >= 0) & (functions < len(table))
    parts: list[Value] = []
    order = np.full(len(fixed), ABSENT)
    order[~fixed] = np.argsort(np.argsort(group.ravel(), kind="stable"), kind="stable")
    for index, (values, among) in enumerate(zip(functions.T, inside.T, strict=True)):
        numbers_of_rows = values[: int(among.argmin())]
        rows = node.parameter(table[numbers_of_rows], f"{node.inputs[0]}.renumbered{index}")
        take = Take(next(iter(np.flatnonzero(numbers_of_rows == padding).tolist()), NOWHERE))
        at = flat(places[group.ravel() == index])
        numbers = node.emit(at, [found.source], output=f"{name}.numbers{index}", dtype=DType.INDEX)
        parts.append(node.emit(take, [numbers, rows], output=f"{name}.rows{index}"))
    joined = parts[0] if len(parts) == 1 else node.emit(Concat(1), parts, output=f"{name}.joined")
    width = table.shape[1]
    positions = np.where(order[:, None] == ABSENT, ABSENT, order[:, None] * width + np.arange(width))
    spread = node.emit(flat(positions), [joined], output=f"{name}.spread")
    taken = node.emit(Reshape(shape), [spread], output=f"{name}.taken" if fixed.any() else name)
    if not fixed.any():
        return taken
    added = node.parameter(constants.reshape(shape), f"{node.inputs[0]}.fixed")
    return node.emit(Add(), [taken, added], output=name)


def _number_and_truths(
    graph: Graph, name: str, nodes: Sequence[Node], sources: set[str]
) -> tuple[str, set[str]] | None:
    """The input of numbers behind indices, and the truth values that they come from besides, which are all the same."""
    if len(sources) < 2:
        return next(((source, set()) for source in sources), None)
    behind: dict[str, set[str]] = {source: {source} for source in sources}
    for node in nodes:
        behind[node.output] = set().union(*(behind[each] for each in node.inputs if each in behind))
    found = []
    for number in sources:
        others = {each for each, inputs in behind.items() if number not in inputs}
        truths = {each for each in others if graph.values[each].dtype is DType.BOOL}
        if number not in graph.examples_of_truths:
            truths |= others & graph.examples_of_truths
        leaves = _behind(graph, name, truths)[1] - {number}
        if graph.values[number].dtype is DType.INDEX and leaves <= truths and len(_kinds(graph, leaves)) == 1:
            found.append((number, leaves))
    return found[0] if len(found) == 1 else None


def _kinds(graph: Graph, names: set[str]) -> set[object]:
    """What truth values are computed by, so that the same ones count once."""
    made = {name: graph.producer(name) for name in names}
    return {name if node is None else (node.op, *node.inputs) for name, node in made.items()}


def _behind(graph: Graph, name: str, known: Set[str] = frozenset()) -> tuple[list[Node], set[str]]:
    """The nodes that compute a value, in order, and what they read of inputs and of values that are known."""
    names, nodes = {name}, list[Node]()
    for node in reversed(graph.nodes):
        if node.output in names - known:
            nodes.insert(0, node)
            names.update(each for each in node.inputs if each not in graph.parameters)
    return nodes, names - {node.output for node in nodes}


def _all_places(
    graph: Graph, nodes: Sequence[Node], first: Mapping[str, Places], others: Iterable[str]
) -> dict[str, Places] | None:
    """The places of every value's elements among those of `first`, if each comes from one of them at most."""
    shapes = {name: graph.values[name].shape for name in (*first, *others)}
    places = {name: np.full((1, *shapes[name]), NOWHERE) for name in others}
    places |= {name: found.reshape(1, *shapes[name]) for name, found in first.items()}
    for node in nodes:
        found = _places(graph, node, places)
        if found is None:
            return None
        places[node.output] = found
    return places


def _values(
    graph: Graph, nodes: Sequence[Node], name: str, source: Value, count: int, truths: Mapping[str, float]
) -> Places | None:
    """[count, M]: the indices if all numbers of the source are 0, 1, .. and the truth values these; None if no such."""
    parts = []
    size = graph.values[name].size
    step = max(AT_ONCE // max(size, source.size), 1)
    for first in range(0, count, step):
        numbers = np.arange(first, min(first + step, count), dtype=np.float64)
        given = np.broadcast_to(numbers.reshape(-1, *[1] * len(source.shape)), (len(numbers), *source.shape))
        known: dict[str, Array] = {source.name: given}
        known |= {each: np.full((len(numbers), *graph.values[each].shape), truth) for each, truth in truths.items()}
        for node in nodes:
            known[node.output] = np.asarray(node.op.reference(*_operands(graph, node, known)))
        parts.append(known[name].reshape(len(numbers), size))
    values = np.concatenate(parts)
    return None if (values != np.rint(values)).any() else values.astype(np.int64)


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
