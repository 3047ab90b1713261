"""Finds functions that a model has written out, such as x · 0.5 · (1 + Erf(x / 1.414)), and makes each one table.

A function is known by its values, not by how it is written: whatever element-wise nodes make of a value and of single
constants is compared with the functions that Covey has a table for.
"""

from __future__ import annotations

import numpy as np

from covey import functions
from covey.functions import Function
from covey.interval import Array
from covey.ir import Graph, Node
from covey.ops.add import Add
from covey.ops.affine import Affine
from covey.ops.clip import Clip
from covey.ops.leaky_relu import TwoSlopes
from covey.ops.maximum import Extreme
from covey.ops.mul import Mul
from covey.ops.relu import Relu
from covey.ops.scalar import Scalar
from covey.ops.sub import Sub

ELEMENTWISE = (Add, Affine, Clip, Extreme, Mul, Relu, Scalar, Sub, TwoSlopes)

MOST_NODES = 16
"""Functions are written out in no more nodes."""

_FAR = 2.0 ** np.arange(4, 21)
PLACES = np.concatenate([-_FAR[::-1], np.linspace(-12.0, 12.0, 481), _FAR])
"""Where functions are compared: densely where they bend, and far out, where a Clip may bend them."""

TOLERANCE = 2e-6
"""What float32 constants may be off by."""

KNOWN = (
    functions.SIGMOID,
    functions.FALLING_SIGMOID,
    functions.TANH,
    functions.ERF,
    functions.GELU,
    functions.GELU_TANH,
    functions.swish(),
    functions.SOFTPLUS,
    functions.MISH,
    functions.SOFTSIGN,
)


def fuse_scalar_functions(graph: Graph) -> None:
    """Replace every such group of nodes, from the network's end on."""
    if not any(isinstance(node.op, Scalar) for node in graph.nodes):
        return
    for node in reversed(list(graph.nodes)):
        if isinstance(node.op, ELEMENTWISE) and any(node is other for other in graph.nodes):
            _fuse(graph, node)


def _fuse(graph: Graph, last: Node) -> None:
    """The fewest nodes before `last`, and with it, that are a known function of one value.

    A falling sigmoid is looked past: of what is negated before, it is a sigmoid.
    """
    order = {node.output: index for index, node in enumerate(graph.nodes)}
    group: list[Node] = []
    frontier = {last.output}
    found: tuple[Function, list[Node], str] | None = None
    while len(group) < MOST_NODES:
        # What is computed last is taken apart first: the others may be what it reads.
        latest = max(frontier, key=lambda name: order.get(name, -1))
        node = graph.nodes[order[latest]] if latest in order else None
        if node is None or not isinstance(node.op, ELEMENTWISE) or not _single_constants(graph, node):
            break
        if node is not last and (
            latest in graph.outputs
            or any(all(reader is not each for each in group) for reader in graph.consumers(latest))
        ):
            break
        group.append(node)
        frontier = (frontier - {latest}) | {name for name in node.inputs if name not in graph.parameters}
        if len(frontier) == 1 and len(group) > 1 and any(isinstance(each.op, Scalar) for each in group):
            (root,) = frontier
            function = _known(_values(graph, group, root))
            if function is not None and graph.values[root].shape == graph.values[last.output].shape:
                found = (function, list(group), root)
                if function != functions.FALLING_SIGMOID:
                    break
    if found is None:
        return
    function, group, root = found
    graph.remove(group)
    made = Node(last.name, last.source_op, Scalar(function), [root], last.output)
    graph.nodes.insert(order[last.output] + 1 - len(group), made)
    for each in group:
        graph.note(each, str(function) if each is last else f"part of {last.name}: {function}")


def _single_constants(graph: Graph, node: Node) -> bool:
    """Whether the node's constants are the same for all elements."""
    constants = [graph.parameters[name] for name in node.inputs if name in graph.parameters]
    return all((constant == constant.flat[0]).all() for constant in constants)


def _values(graph: Graph, group: list[Node], root: str) -> Array:
    """What the group makes of `root` at the places that are compared."""
    values = {root: PLACES}
    with np.errstate(all="ignore"):
        for node in reversed(group):
            operands = (
                np.asarray(graph.parameters[name].flat[0]) if name in graph.parameters else values[name]
                for name in node.inputs
            )
            values[node.output] = np.asarray(node.op.reference(*operands))
    return values[group[0].output]


def _known(values: Array) -> Function | None:
    """The function with these values."""
    alpha = _alpha(values)
    candidates = (*KNOWN, functions.swish(alpha)) if alpha else KNOWN
    for function in candidates:
        due = function(PLACES)
        # Far out an exponential that is written out passes all numbers.
        passes = (np.abs(PLACES) > 12.0) & ~np.isfinite(values)
        if (passes | (np.abs(values - due) <= TOLERANCE * (1 + np.abs(due)))).all():
            return function
    return None


def _alpha(values: Array) -> float:
    """That of x · Sigmoid(alpha · x) if this is what they are, else anything, or 0."""
    at_one = float(np.interp(1.0, PLACES, values))
    if not 0.0 < at_one < 1.0:
        return 0.0
    return float(np.round(np.log(at_one / (1 - at_one)), 6))
