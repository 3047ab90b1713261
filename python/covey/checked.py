"""What Covey would make of a model: node by node, and what stands in the way, by cause."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from covey.errors import NodeError
from covey.importers.source import Source, examine
from covey.ir import Graph, Note, Status
from covey.ops.quotient import Quotient
from covey.ops.scalar import Scalar
from covey.passes import rewrite
from covey.shown import Shown
from covey.tables import cell, table

NAMED = 3
"""Nodes of a cause that are named."""


@dataclass(frozen=True)
class Cause:
    """One reason why nodes cannot run privately, and the way out, in the words of the first of them.

    `nodes` are all of one operator; `behind` counts the nodes that were not checked because they read what these
    compute.
    """

    op: str
    reason: str
    way_out: str
    nodes: list[str]
    behind: int = 0


@dataclass(frozen=True)
class Checked(Shown):
    """What `check` found: a note on every node of the model, in order, and the errors in the way of compiling.

    Printed, a model that cannot run privately shows its causes, any other all of its nodes.
    """

    notes: list[Note]
    errors: list[NodeError] = field(repr=False)
    unbounded: list[str] = field(default_factory=list)
    """The nodes whose function has a table only where its input's range is known: by proof, or by calibration data."""

    @property
    def ok(self) -> bool:
        """Whether every node can be computed securely."""
        return not self.errors

    @property
    def causes(self) -> list[Cause]:
        """What stands in the way: the errors, those of one operator and kind as one, in the order of the nodes."""
        first: dict[tuple[str, str], NodeError] = {}
        nodes: dict[tuple[str, str], list[str]] = {}
        for error in self.errors:
            key = (error.op, _kind(error.reason))
            first.setdefault(key, error)
            nodes.setdefault(key, []).append(error.node)
        behind = [note.behind for note in self.notes if note.status is Status.UNCHECKED]
        return [
            Cause(error.op, error.reason, error.way_out, nodes[key], sum(name in nodes[key] for name in behind))
            for key, error in first.items()
        ]

    @property
    def summary(self) -> str:
        """How many nodes can run privately, how many cannot, and how many could not be checked."""
        counts = {status: sum(note.status is status for note in self.notes) for status in Status}
        total = len(self.notes)
        if self.ok:
            known = (
                f", where compile knows the range of what {len(self.unbounded)} of them read" if self.unbounded else ""
            )
            return f"{total} nodes: all can run privately{known}"
        causes = len(self.causes)
        parts = [
            f"{counts[Status.OK] + counts[Status.REWRITTEN]} of {total} nodes can run privately",
            f"{counts[Status.UNSUPPORTED]} cannot, for {causes} reason{'s' * (causes > 1)}",
        ]
        if counts[Status.UNCHECKED]:
            parts.append(f"{counts[Status.UNCHECKED]} were not checked, because they read what those compute")
        return "; ".join(parts)

    def rows(self) -> list[dict[str, Any]]:
        """Every node: its name, operator, status and why."""
        return [{"node": n.node, "op": n.op, "status": n.status.value, "text": n.text} for n in self.notes]

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        causes = [
            {"op": c.op, "reason": c.reason, "way_out": c.way_out, "nodes": c.nodes, "not_checked_behind": c.behind}
            for c in self.causes
        ]
        found = {"ok": self.ok, "summary": self.summary, "causes": causes, "needs_range": self.unbounded}
        return {**found, "nodes": self.rows()}

    def rendered(self, *, every_node: bool = False) -> RenderableType:
        """The nodes, or where some cannot run privately and not `every_node` is asked for, the causes; the counts."""
        shown = self._nodes() if self.ok or every_node else self._causes()
        return Group(shown, Text(f"\n{self.summary}"))

    def _nodes(self) -> RenderableType:
        made = table("", ["node", "operator", "status", "why"], [])
        for note in self.notes:
            made.add_row(cell(note.node), cell(note.op), note.status.value, cell(note.text))
        return made

    def _causes(self) -> RenderableType:
        made = table("what stands in the way", ["operator", "nodes", "why, and the way out"], [])
        made.columns[2].max_width = 60
        for cause in self.causes:
            more = len(cause.nodes) - NAMED
            names = ", ".join(cause.nodes[:NAMED]) + (f" and {more} more" if more > 0 else "")
            behind = f" ({cause.behind} nodes behind are not checked)" if cause.behind else ""
            made.add_row(cell(cause.op), cell(names), cell(f"{cause.reason}; {cause.way_out}{behind}"))
        return made


def check(path_or_model: Source, example_inputs: Any = None) -> Checked:
    """Say of every node of a model whether it is supported, rewritten or not supported and why.

    `example_inputs` are what a PyTorch module is exported with. Raises `ModelError` when the file as a whole cannot be
    used.
    """
    graph, errors = examine(path_or_model, example_inputs=example_inputs)
    order = list(graph.notes)
    later = rewrite(graph, complete=not errors)
    for error in later:
        graph.notes[error.node] = Note(error.node, error.op, Status.UNSUPPORTED, f"{error.reason}; {error.way_out}")
    unbounded = _unbounded(graph)
    return Checked([graph.notes[name] for name in order], [*errors, *later], unbounded)


def _unbounded(graph: Graph) -> list[str]:
    """Note the nodes that compile refuses unless it knows where their input lies."""
    found: dict[str, None] = {}
    for node in graph.nodes:
        function = node.op.function if isinstance(node.op, Scalar) or type(node.op) is Quotient else None
        note = graph.notes.get(node.name)
        if function is None or not function.needs_range or note is None or node.name in found:
            continue
        text = f"{function} needs the range of its input: compile it with calibration data, or with a small input range"
        graph.notes[node.name] = replace(note, text="; ".join(filter(None, (note.text, text))))
        found[node.name] = None
    return list(found)


def _kind(reason: str) -> str:
    """A reason without names, shapes, numbers and lines of source, in which nodes of one cause differ."""
    without_source = re.sub(r" \([^()]+ line \d+: .*\)$", "", reason)
    return re.sub(r"'[^']*'|\S*\[[^\]]*\]|\d+", "…", without_source)
