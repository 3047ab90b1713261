"""Values whose batch may be in several places: a model exported with one sample leaves open which size of 1 it is.

A node that reads such a value is imported for each place. Places that some node refuses are dropped, so the layers
behind decide: those that would compute across samples refuse. Of the places that stay, the first counts. Their choice
changes no result: the program says what becomes of one sample, and a graph computes each sample by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, islice, product
from typing import Any

from covey.errors import NodeError
from covey.importers.layouts import Layout, Place, layout_of
from covey.importers.onnx_node import OnnxNode, Scope
from covey.ir import Value

MOVE_BACK = "transpose or reshape its input so that the batch is first and alone again before it"
"""The way out of nodes that read a batch that is elsewhere."""

WAY_OUT = "export the model with two samples or a dynamic batch: one sample does not show where its batch is"
"""The way out where every place of the batch is refused."""

OF_ATTENTION = "make modules of attention with batch_first=True, or "
"""Begins the way out of attention that computes across samples."""

_MOST = 8
"""Most places of a value that are followed."""

_MOST_TRIED = 64
"""Most combinations of places that a node is tried with."""

_OTHERWISE = ".otherwise"
"""Follows a value's name in those it has with the batch elsewhere."""


@dataclass(frozen=True)
class Way:
    """A way to import a node: the names of its operands, and where a Reshape puts the batch."""

    inputs: tuple[str, ...]
    place: Place | None = None


def operands(node: OnnxNode) -> list[tuple[str, ...]]:
    """The node's operands, and the same with the batch elsewhere, in one place in all of them."""
    names: list[dict[Layout | None, list[str]]] = []
    for name in node.inputs:
        value = value_of(node.scope, name)
        places: dict[Layout | None, list[str]] = {}
        for each in [name] if value is None else [name, *node.scope.otherwise.get(value.name, [])]:
            its = value_of(node.scope, each)
            places.setdefault(None if its is None else layout_of(its), []).append(each)
        names.append(places)
    layouts = dict.fromkeys(layout for places in names for layout in places if layout is not None)
    every = (product(*(places.get(layout) or places.get(None, []) for places in names)) for layout in layouts)
    return list(islice(chain.from_iterable(every), _MOST_TRIED)) or [tuple(node.inputs)]


def value_of(scope: Scope, name: str) -> Value | None:
    """The activation of a name, if it is one."""
    return scope.activation(name) if name and name not in scope.constants else None


def doubted(node: OnnxNode) -> bool:
    """Whether the place of an operand's batch is or was in doubt."""
    return any(value.name in node.scope.otherwise for value in _values(node))


def _moved(node: OnnxNode) -> bool:
    return any(not value.batch_first for value in _values(node))


def _values(node: OnnxNode) -> list[Value]:
    return [value for name in node.inputs if (value := value_of(node.scope, name)) is not None]


def run(node: OnnxNode, ways: Sequence[Way], run_one: Callable[[OnnxNode, Place | None], None]) -> None:
    """Import a node in every way that nothing refuses, the one with the batch first under the node's own names."""
    scope, graph = node.scope, node.scope.graph
    refusals: list[NodeError] = []
    kept: dict[object, tuple[bool, Way]] = {}
    for way in ways:
        with _undone(scope):
            try:
                run_one(_attempt(node, way, node.outputs), way.place)
            except NodeError as error:
                refusals.append(error)
                continue
            results = [value for name in node.outputs if (value := value_of(scope, name)) is not None]
            found = tuple((layout_of(value), value.shape) for value in results)
            kept.setdefault(found, (all(value.batch_first for value in results), way))
    if not kept:
        raise _advised(refusals[0]) if _moved(node) else refusals[0]
    ordered = [way for _, way in sorted(kept.values(), key=lambda entry: not entry[0])][:_MOST]
    mark, parameters = len(graph.nodes), len(graph.parameters)
    names = []
    for index, way in enumerate(ordered):
        names.append(_names(node) if index else node.outputs)
        attempt = _attempt(node, way, names[-1])
        run_one(attempt, way.place)
        if index == 0:
            node.read, node.rewritten, node.emitted = attempt.read, attempt.rewritten, attempt.emitted
    scope.tentative.update(graph_node.output for graph_node in graph.nodes[mark:])
    scope.tentative.update(list(graph.parameters)[parameters:])
    for several in zip(*names, strict=True):
        first, *others = (value_of(scope, name) for name in several)
        rest = [value.name for value in others if value is not None]
        if first is not None and (rest or not first.batch_first):
            scope.otherwise[first.name] = [name for name in dict.fromkeys(rest) if name != first.name]


def clear(scope: Scope) -> None:
    """At the end: drop what places were computed for that were refused later."""
    graph = scope.graph
    read = {*graph.outputs}
    nodes = []
    for node in reversed(graph.nodes):
        if node.output in read or node.output not in scope.tentative:
            nodes.append(node)
            read.update(node.inputs)
        else:
            del graph.values[node.output]
    graph.nodes = nodes[::-1]
    for name in scope.tentative & set(graph.parameters) - read:
        del graph.parameters[name], graph.values[name]


def _attempt(node: OnnxNode, way: Way, outputs: list[str]) -> OnnxNode:
    return replace(node, inputs=list(way.inputs), outputs=list(outputs), read=set(node.read))


def _names(node: OnnxNode) -> list[str]:
    """Names for the node's results with the batch elsewhere."""
    scope, names = node.scope, []
    for output in node.outputs:
        name = f"{output}{_OTHERWISE}" if output else ""
        count = 1
        while name and (name in scope.graph.values or name in scope.constants or name in scope.aliases):
            count += 1
            name = f"{output}{_OTHERWISE}.{count}"
        if output in scope.used:
            scope.used.add(name)
        if name:
            scope.originals[name] = output
        names.append(name)
    return names


def _advised(error: NodeError) -> NodeError:
    """The same error, with the way out of a batch in doubt."""
    way_out = f"{error.way_out.removesuffix(MOVE_BACK).removesuffix(', or ')}, or {WAY_OUT}".removeprefix(", or ")
    return type(error)(error.node, error.op, error.reason, way_out)


@contextmanager
def _undone(scope: Scope) -> Iterator[None]:
    """Nothing that is added to the graph in between stays."""
    graph = scope.graph
    tables: list[dict[str, Any]] = [graph.values, graph.parameters]
    tables += [scope.constants, scope.aliases, scope.moved, scope.movers]
    lengths, nodes = [len(table) for table in tables], len(graph.nodes)
    try:
        yield
    finally:
        del graph.nodes[nodes:]
        for table, length in zip(tables, lengths, strict=True):
            while len(table) > length:
                table.popitem()
