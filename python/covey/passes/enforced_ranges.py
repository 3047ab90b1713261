"""Enforcing the declared ranges of inputs among the parties, where the data owner is not trusted to keep them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from covey.errors import OptionError
from covey.ir import DType, Graph, Node
from covey.ops.enforced_range import EnforcedRange


def enforce_ranges(graph: Graph, ranges: Mapping[str, tuple[float, float]]) -> None:
    """Put each input into its range before anything reads it. Raises `OptionError` for ids, which are one-hot rows."""
    for name in graph.inputs:
        if any(graph.classes.get(name, ())):
            raise OptionError(
                f"input '{name}' takes ids, shared as one-hot rows, which the parties cannot enforce: leave out "
                "enforce_ranges (--enforce-ranges)"
            )
        if name in graph.carried:
            continue
        value = graph.values[name]
        low, high = (0.0, 1.0) if value.dtype is DType.BOOL else ranges[name]
        enforced = graph.add_value(replace(value, name=graph.fresh(f"{name}.enforced"))).name
        graph.redirect(name, enforced)
        graph.nodes.insert(0, Node(f"{name}.range", EnforcedRange.__name__, EnforcedRange(low, high), [name], enforced))
        graph.enforced.add(name)
