"""Moves multiplication by one constant up into the linear layers that its operand comes from.

Attention divides its scores by the root of the heads' size. In weights that costs nothing, where it would take a
product and a shift for each pair of positions. Queries and keys share it, so that neither has much fewer digits than
the other; their weights have more fractional bits, where there is room.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from covey.ir import Graph, Node
from covey.ops.add import Add
from covey.ops.affine import Affine
from covey.ops.concat import Concat
from covey.ops.conv import Conv2d, ConvNd
from covey.ops.dense import Dense
from covey.ops.gather import Gather
from covey.ops.matmul import Matmul
from covey.ops.mul import Mul
from covey.ops.reshape import Reshape
from covey.ops.transpose import Transpose

LEAST, MOST = 2.0**-6, 2.0**6
"""Factors that may move: beyond, operands would lose digits."""

NESTED = 3
"""How many products of two values, one in the other, are searched for layers."""


@dataclass
class _Constant:
    """An operand that takes a factor: all of it, or what is `mine` along the last dimension."""

    node: Node
    index: int
    mine: npt.NDArray[np.bool_] | None = None

    @property
    def is_weight(self) -> bool:
        """Whether a layer multiplies by it."""
        return self.index == 1 and isinstance(self.node.op, Dense | Conv2d | ConvNd)

    def multiply(self, graph: Graph, factor: float) -> None:
        """Let the node read the product, a layer's weight with as many more fractional bits as it gets smaller."""
        name = self.node.inputs[self.index]
        factors = factor if self.mine is None else np.where(self.mine, factor, 1.0)
        self.node.inputs[self.index] = graph.add_parameter(f"{name}.scaled", graph.parameters[name] * factors).name
        if isinstance(self.node.op, Dense) and self.is_weight:
            lost, before = max(0, math.ceil(-math.log2(abs(factor)))), self.node.op.finer
            self.node.op = replace(self.node.op, finer=lost + before if self.mine is None else max(lost, before))

    def square(self, graph: Graph) -> float:
        """About the mean square of what it makes of numbers around 1."""
        with np.errstate(over="ignore"):
            squares = graph.parameters[self.node.inputs[self.index]] ** 2
        if self.is_weight:
            inputs = 0 if isinstance(self.node.op, Dense) else tuple(range(1, squares.ndim))
            squares = squares.sum(axis=inputs)
        of_columns = self.mine is not None and squares.shape[-1:] == self.mine.shape
        return float(np.mean(squares[..., self.mine] if of_columns else squares))


def raise_factors(graph: Graph) -> None:
    """Rewrite every multiplication that has such a layer before it."""
    for node in list(graph.nodes):
        found = _factor(graph, node)
        if found is None:
            continue
        source, factor = found
        ways = _ways(graph, node, source) if LEAST <= abs(factor) <= MOST else []
        if not ways:
            continue
        for way, part in zip(ways, _parts(graph, ways, factor), strict=True):
            for constant in way:
                constant.multiply(graph, part)
        for reader in graph.consumers(node.output):
            reader.inputs = [source if name == node.output else name for name in reader.inputs]
        graph.remove([node])
        graph.note_more(node, f"its factor moved into {ways[0][-1].node.name}")


def _factor(graph: Graph, node: Node) -> tuple[str, float] | None:
    """What a node multiplies by one number, and the number."""
    if graph.keeps(node.output):
        return None
    if isinstance(node.op, Affine):
        return (node.inputs[0], node.op.factor) if node.op.summand == 0.0 else None
    if not isinstance(node.op, Mul):
        return None
    constants = _fixed(graph, node)
    if len(constants) != 1:
        return None
    array = graph.parameters[node.inputs[constants[0]]]
    source = node.inputs[1 - constants[0]]
    single = (
        array.size > 0
        and bool((array == array.flat[0]).all())
        and graph.values[source].shape == graph.values[node.output].shape
    )
    return (source, float(array.flat[0])) if single else None


def _fixed(graph: Graph, node: Node) -> list[int]:
    """Which operands are constants."""
    return [index for index, name in enumerate(node.inputs) if name in graph.parameters]


def _ways(graph: Graph, node: Node, source: str) -> list[list[_Constant]]:
    """What may take the factor of a node: two that share it where both operands of a product can.

    Moves alone lead from the node to the product, or from the product to the node.
    """
    name, reader = node.output, graph.only_consumer(node.output)
    while reader is not None and isinstance(reader.op, Reshape | Transpose):
        name, reader = reader.output, graph.only_consumer(reader.output)
    before = graph.producer(source)
    while before is not None and isinstance(before.op, Reshape | Transpose):
        before = graph.producer(before.inputs[0])
    operands = [(source, node)]
    if reader is not None and isinstance(reader.op, Matmul) and reader.inputs.count(name) == 1:
        operands.append((reader.inputs[1 - reader.inputs.index(name)], reader))
    elif before is not None and isinstance(before.op, Matmul) and _search(graph, source, node):
        operands = [(operand, before) for operand in before.inputs]
    return [way for operand in operands if (way := _search(graph, *operand))]


def _parts(graph: Graph, ways: list[list[_Constant]], factor: float) -> list[float]:
    """The factor, shared by size: most of one below 1 goes to what is larger, so that neither has much fewer digits."""
    if len(ways) == 1:
        return [factor]
    whole, squares = abs(factor), [sum(constant.square(graph) for constant in way) for way in ways]
    known = min(squares) > 0.0 and max(squares) < math.inf
    part = math.sqrt(whole * math.sqrt(squares[1] / squares[0])) if known else math.sqrt(whole)
    part = min(max(part, min(whole, 1.0)), max(whole, 1.0))
    return [math.copysign(part, factor), whole / part]


def _search(graph: Graph, name: str, reader: Node, nested: int = NESTED) -> list[_Constant] | None:
    """The constants whose multiples make a multiple of a value that `reader` alone reads; `None` where there are none.

    Between them and the value are moves, sums and products. What is computed on the way is read there alone.
    """
    constants: list[_Constant] = []
    values, passed = [name], [reader]
    for value in values:  # which grow on the way
        node = graph.producer(value)
        if node is None:
            return None
        if (ends := _ends(graph, node, nested)) is not None:
            constants += ends
            continue
        fixed = _fixed(graph, node)
        finite = all(np.isfinite(graph.parameters[node.inputs[index]]).all() for index in fixed)
        sums = isinstance(node.op, Add) and finite
        moves = isinstance(node.op, Reshape | Transpose | Gather | Concat) and not fixed
        if not (sums or moves or (isinstance(node.op, Mul) and fixed)):
            return None
        if sums:
            constants += [_Constant(node, index) for index in fixed]
        passed.append(node)
        values += [each for each in dict.fromkeys(node.inputs) if each not in graph.parameters and each not in values]
    readers = {value: [id(node) for node in graph.consumers(value)] for value in values}
    known = {id(node) for node in passed}
    alone = all(known.issuperset(readers[value]) and not graph.keeps(value) for value in values)
    once = reader.inputs.count(name) == 1 and not any(id(reader) in readers[value] for value in values[1:])
    return constants if alone and once else None


def _is_layer(graph: Graph, node: Node, *kinds: type) -> bool:
    """Whether it is a layer of one of these kinds, or of any, whose weight is a constant that nothing else reads."""
    if not isinstance(node.op, kinds or (Dense, Conv2d, ConvNd)):
        return False
    return len(_fixed(graph, node)) == len(node.inputs) - 1 and graph.consumers(node.inputs[1]) == [node]


def _ends(graph: Graph, node: Node, nested: int) -> list[_Constant] | None:
    """The constants of a node whose multiples make a multiple of its result, if no operand need be a multiple."""
    fixed = _fixed(graph, node)
    if _is_layer(graph, node):
        return [_Constant(node, index) for index in reversed(fixed)]
    if isinstance(node.op, Gather):
        return _part(graph, node)
    if isinstance(node.op, Mul) and fixed:
        # Whole numbers add no digits, which their multiples may.
        name = node.inputs[fixed[0]]
        array = graph.parameters[name]
        alone = graph.consumers(name) == [node]
        return [_Constant(node, fixed[0])] if alone and (array != np.rint(array)).any() else None
    if isinstance(node.op, Matmul) and not fixed and nested:
        found = (_search(graph, operand, node, nested - 1) for operand in node.inputs)
        return next((way for way in found if way), None)
    return None


def _part(graph: Graph, reader: Node) -> list[_Constant] | None:
    """The columns of a dense layer and of its bias that one pick of several takes, if others take none of them."""
    others = [node for node in graph.consumers(reader.inputs[0]) if node is not reader]
    if not others or graph.keeps(reader.inputs[0]) or not all(isinstance(node.op, Gather) for node in others):
        return None
    chain = _from_layer(graph, reader.inputs[0])
    if chain is None:
        return None
    layer, *between = chain
    constants = [(layer, index) for index in _fixed(graph, layer)]
    shape = graph.values[layer.output].shape
    columns = np.arange(1.0, shape[-1] + 1)
    places = np.broadcast_to(columns, (1, *shape))
    for node in between:
        if not isinstance(node.op, Add):
            places = node.op.reference(places)
        elif graph.values[node.output].shape != places.shape[1:]:
            return None
        elif places.shape[-1] == columns.size and (places == columns).all():
            constants += [(node, index) for index in _fixed(graph, node)]
        else:
            return None
    mine, *theirs = (np.isin(columns, node.op.reference(places)) for node in (reader, *others))
    if any((mine & other).any() for other in theirs):
        return None
    return [_Constant(node, index, mine) for node, index in reversed(constants)]


def _from_layer(graph: Graph, name: str) -> list[Node] | None:
    """A dense layer and what leads from it to a value: moves, and sums with constants, each read by the next alone."""
    chain: list[Node] = []
    node = graph.producer(name)
    while node is not None and isinstance(node.op, Reshape | Transpose | Add):
        chain.append(node)
        operands = [each for each in node.inputs if each not in graph.parameters]
        alone = len(operands) == 1 and graph.only_consumer(operands[0]) is node
        node = graph.producer(operands[0]) if alone else None
    return None if node is None or not _is_layer(graph, node, Dense) else [node, *reversed(chain)]
