"""Drops nodes and values that no output depends on."""

from __future__ import annotations

from covey.ir import Graph


def remove_dead_nodes(graph: Graph) -> None:
    """Keep what the outputs need, and the inputs."""
    needed = {*graph.outputs, *graph.opened.values(), *graph.served}
    kept = []
    for node in reversed(graph.nodes):
        if node.output in needed:
            needed.update(node.inputs)
            kept.append(node)
    dead = [node for node in graph.nodes if node.output not in needed]
    alive = {node.name for node in kept}
    graph.nodes = kept[::-1]
    for node in dead:
        if node.name not in alive:
            graph.note(node, "removed: no output depends on it")
    needed.update(graph.inputs)
    graph.values = {name: value for name, value in graph.values.items() if name in needed}
    graph.parameters = {name: array for name, array in graph.parameters.items() if name in needed}
