"""Gradients by reverse differentiation of a training step's graph.

Every operator has its rule beside its forward form (`Op.gradient`), which adds nodes to the same graph. Gradients are
computed where something that is trained depends on them, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping

from covey.ir import Value
from covey.training.builder import Builder


def differentiate(build: Builder, seeds: Mapping[str, Value]) -> dict[str, Value]:
    """The gradient at every value that `seeds`, gradients at some values, lead to.

    Raises the `UnsupportedError` of an operator without a gradient between a seed and what is trained.
    """
    graph = build.graph
    parts: dict[str, list[Value]] = {name: [seed] for name, seed in seeds.items()}
    found: dict[str, Value] = {}
    for node in list(reversed(graph.nodes)):
        name = node.output
        if name not in parts or name not in build.learned:
            continue
        with build.at(node.name, node.source_op, f"{name}.gradient"):
            gradient = found[name] = build.total(parts.pop(name))
            inputs = graph.operands(node)
            given = node.op.gradient(build, inputs, graph.values[name], gradient)
            for x, part in zip(inputs, given, strict=True):
                if part is not None and x.name in build.learned:
                    parts.setdefault(x.name, []).append(part)
    for name, left in parts.items():
        with build.at(name, "", f"{name}.gradient"):
            found[name] = build.total(left)
    return found
