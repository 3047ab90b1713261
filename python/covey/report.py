"""The compile report: what was chosen, what each node's numbers can be, what a run reveals."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from covey import whole
from covey.drawing import Drawn
from covey.ir import Graph, Note, Status
from covey.lowering import Lowering, Row, Truncation
from covey.ops.enforced_range import EnforcedRange
from covey.ops.trees import Below
from covey.passes.scale_choice import Choice

RangeSources = dict[str, str]
"""Where each input's range comes from, in words."""


def build(
    graph: Graph, choice: Choice, sources: RangeSources, samples: int, program_hash: str, serves: str | None = None
) -> dict[str, Any]:
    """The report as plain data, ready for JSON. `serves` is the hash of the program that this one makes weights for."""
    lowering = choice.lowering
    settings = lowering.settings
    return {
        "model": graph.name,
        "program_hash": program_hash,
        "ring_bits": settings.ring_bits,
        "scale": settings.scale,
        "why": choice.reason,
        "truncation": settings.truncation.value,
        "division": settings.division.value,
        "weights": "public" if settings.public_weights else "secret",
        "parameters": int(sum(array.size for array in lowering.weights.values())),
        "calibration_samples": samples,
        "tables": [_table(drawn) for drawn in lowering.drawn],
        "inputs": [
            {
                "name": name,
                "shape": ["N", *graph.values[name].shape],
                "low": lowering.ranges[name][0],
                "high": lowering.ranges[name][1],
                "range_from": sources[name],
                "whole": whole.describe(graph.classes[name]) if name in graph.classes else "",
                "enforced": name in graph.enforced,
            }
            for name in graph.inputs
        ],
        "outputs": [
            {
                "name": name,
                "shape": ["N", *graph.values[name].shape],
                "postprocess": graph.postprocess[name].name.lower() if name in graph.postprocess else "nothing",
            }
            for name in graph.outputs
        ],
        "carried": [
            {"name": name, "next": output, "shape": ["N", *graph.values[name].shape]}
            for name, output in graph.carried.items()
        ],
        "serves": serves,
        "nodes": [_row(row) for row in lowering.rows],
        "rewrites": [_note(note) for note in graph.notes.values() if note.status is Status.REWRITTEN],
        "reveals": _reveals(lowering),
        "rounding_errors": _rounding_errors(lowering),
    }


def render(report: dict[str, Any]) -> RenderableType:
    """The report as a terminal shows it."""
    head = Text.from_markup("")
    head.append(f"{report['model']}: ", style="bold")
    head.append(f"{report['why']}\n")
    for entry in report["inputs"]:
        head.append(
            f"input {entry['name']} {_shape(entry['shape'])} in [{entry['low']:g}, {entry['high']:g}] "
            f"({entry['range_from']}){', ' * bool(entry['whole'])}{entry['whole']}"
            f"{', enforced by the parties' * entry['enforced']}\n"
        )
    for entry in report["outputs"]:
        after = (
            "" if entry["postprocess"] == "nothing" else f", {entry['postprocess']} by the result's owner in the clear"
        )
        head.append(f"output {entry['name']} {_shape(entry['shape'])}{after}\n")
    for entry in report["carried"]:
        head.append(f"carried {entry['name']} {_shape(entry['shape'])}, {entry['next']} of the run before, in shares\n")
    if report.get("serves"):
        head.append(f"{serving(report['serves'])}\n")
    head.append(_tables(report))
    head.append(_measured(report))
    table = Table(title="values, node by node", title_justify="left")
    for heading in ("node", "operator", "computes"):
        table.add_column(heading, overflow="fold")
    for heading in ("scale", "largest", "bits"):
        table.add_column(heading, justify="right")
    table.add_column("bound")
    for row in report["nodes"]:
        table.add_row(
            Text(row["node"]),
            Text(row["op"]),
            row["computes"],
            str(row["scale"]),
            f"{row['largest']:.4g}",
            str(row["bits"]),
            row["bound"],
        )
    tail = Text()
    for entry in report["rewrites"]:
        tail.append(f"rewritten  {entry['node']} ({entry['op']}): {entry['how']}\n")
    tail.append("a run reveals: " + "; ".join(report["reveals"]) + "\n")
    for line in report["rounding_errors"]:
        tail.append(line + "\n")
    return Group(head, table, tail)


def serving(program_hash: str) -> str:
    """That trained weights may serve a program, in a line."""
    return (
        f"trained weights may serve program {program_hash[:12]}, after any number of steps: they stay in shares, and "
        f"its clients learn what their results tell of them"
    )


def _measured(report: dict[str, Any]) -> str:
    """What the program is off by, in words."""
    found = report["measured"]
    if found is None:
        return f"{report['not_measured']}\n"
    samples = found["samples"]
    of = f"{samples}" if samples == found["of"] else f"{samples} of {found['of']}"
    lines = [f"measured in the clear on {of} calibration samples, against floating point:"]
    for entry in found["outputs"]:
        lines.append(f"  output {entry['output']}: {_error(entry)}")
    if found["grows_at"]:
        grows = (
            f"{g['node']} ({g['op']}) {_percent(g['before'])} to {_percent(g['after'])}" for g in found["grows_at"]
        )
        lines.append(f"  the error grows most at {', '.join(grows)}")
    return "\n".join(lines) + "\n"


def _error(entry: dict[str, Any]) -> str:
    top1 = entry["top1_agreement"]
    answers = "" if top1 is None else f"{top1:.2%} of the answers agree"
    if entry["near_ties"]:
        answers += f", {entry['near_ties']} of the others a near-tie"
    if entry["relative_error"] is None:
        return answers
    error = f"{_percent(entry['relative_error'])} off (relative L2)"
    worst = f"{_percent(entry['worst_error'])} for the worst sample (number {entry['worst_sample']})"
    return f"{error}, {worst}" + (f"; {answers}" if answers else "")


def _percent(part: float) -> str:
    return f"{100 * part:.3g}%"


def _table(drawn: Drawn) -> dict[str, Any]:
    return {
        "node": drawn.node,
        "function": drawn.function,
        "segments": drawn.segments,
        "low": drawn.low,
        "high": drawn.high,
        "error": drawn.error,
        "every_integer": drawn.every,
        "below": drawn.beyond[0],
        "above": drawn.beyond[1],
    }


def _tables(report: dict[str, Any]) -> str:
    """Each function's table in a line: where it holds, what it is off by, what holds beyond."""
    lines = []
    for entry in report["tables"]:
        text = (
            f"table {entry['node']}: {entry['function']} by {entry['segments']} segments on [{entry['low']:.6g}, "
            f"{entry['high']:.6g}), off by at most {entry['error']:.2g}"
        )
        beyond = [f"{side} {entry[side]}" for side in ("below", "above") if entry[side] != "proved"]
        lines.append(text + "".join(f"; {what}" for what in beyond))
    return "".join(f"{line}\n" for line in lines)


def _row(row: Row) -> dict[str, Any]:
    return {
        "node": row.node,
        "op": row.source_op,
        "computes": row.program_op,
        "scale": row.scale,
        "bits": row.bits,
        "bound": _bound(row),
        "largest": row.magnitude,
    }


def _bound(row: Row) -> str:
    if row.source_op == EnforcedRange.__name__:
        return "enforced"
    return "calibrated" if row.calibrated else "proved"


def _note(note: Note) -> dict[str, str]:
    return {"node": note.node, "op": note.op, "how": note.text}


def _shape(shape: list[Any]) -> str:
    return "[" + ", ".join(str(size) for size in shape) + "]"


def _reveals(lowering: Lowering) -> list[str]:
    """What the program file tells every party."""
    reveals = [
        "the architecture with node and value names, shapes, scales and the ring",
        "declared input ranges",
        "a power-of-two bound for each tensor, which derives from the weights"
        + ("" if lowering.magnitudes is None else " and the calibration data"),
    ]
    attributes = sorted({row.program_op for row in lowering.rows} & {"Clip", "Pad", "Table"})
    if attributes:
        reveals.append(f"the constants of {' and '.join(attributes)}")
    comparisons = [node for node in lowering.graph.nodes if isinstance(node.op, Below)]
    if comparisons:
        hidden = all(len(node.inputs) > 2 for node in comparisons)
        reveals.append(
            "the shape of every tree" + ("" if hidden else " and the feature that each of its nodes compares")
        )
    if lowering.settings.public_weights:
        reveals.append("the weights, to whoever gets the weights file: they are shared as public values")
    if lowering.settings.truncation is not Truncation.EXACT:
        reveals.append("to the parties, the rounding thresholds of inexact truncation (see SECURITY.md)")
    return reveals


def _rounding_errors(lowering: Lowering) -> list[str]:
    """The error budget of inexact truncation, node by node; empty when it is exact."""
    truncation = lowering.settings.truncation
    if truncation is Truncation.EXACT:
        return []
    places = [row for row in lowering.rows if row.program_op in ("Truncate", "MulShift")]
    unit = 2.0**-lowering.scale
    lines = [f"{truncation.value} truncation: each of {len(places)} roundings may be off by {unit:.3g} per element"]
    if truncation is Truncation.PROBABILISTIC:
        before = {row.node: row for row in lowering.rows if row.program_op not in ("Truncate", "MulShift")}
        for row in places:
            wide = before.get(row.node, row)
            chance = min(1.0, 2.0 ** (wide.bits - lowering.settings.ring_bits))
            lines.append(
                f"  {row.node}: an element is wrong by 2^{lowering.settings.ring_bits - lowering.scale} units with "
                f"probability up to {chance:.2g}; {chance * row.elements:.2g} of {row.elements} elements expected"
            )
    return lines
