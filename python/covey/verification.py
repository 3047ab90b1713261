"""The verdict on a program: does the private run compute what it should?"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from covey import certificate, closeness
from covey import comparison as compare_with
from covey._proto import program_pb2 as pb
from covey.certificate import Classes
from covey.closeness import Agreement, Closeness, Disagreement
from covey.goals import output_error
from covey.layers import Layer
from covey.model import Model
from covey.result import Floats, Result
from covey.shown import Shown
from covey.tables import cell, table

SHOWN_DISAGREEMENTS = 3
"""Answers that differ from the float model's and are told one by one."""


@dataclass(frozen=True)
class Check:
    """One line of the verdict; `passed` is `None` for what is only told."""

    what: str
    found: str
    required: str
    passed: bool | None


@dataclass(frozen=True)
class Verification(Shown):
    """The checks of a program on some samples, `notes` on what could not be checked, and `layers` if asked for."""

    program: str
    program_hash: str
    protocol: str
    samples: int
    source: str
    """Where the samples come from: `given` or `random`."""
    checks: list[Check]
    notes: list[str]
    layers: list[Layer] | None = field(default=None, repr=False)

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return all(check.passed is not False for check in self.checks)

    @property
    def failure(self) -> str | None:
        """The first check that failed, in one line."""
        failed = next((check for check in self.checks if check.passed is False), None)
        if failed is None:
            return None
        return f"{self.program} fails verification: {failed.what}: {failed.found} (required: {failed.required})"

    def rows(self) -> list[dict[str, Any]]:
        """Every check: what was found, what is required and whether it passed (`None` for what is only told)."""
        return [{"check": c.what, "found": c.found, "required": c.required, "passed": c.passed} for c in self.checks]

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        plain = {"program_hash": self.program_hash, "samples": self.samples, "passed": self.passed}
        layers = {} if self.layers is None else {"layers": [asdict(row) for row in self.layers]}
        return {**plain, "checks": self.rows(), "notes": self.notes, **layers}

    def rendered(self) -> RenderableType:
        """The verdict for a terminal (print it with rich)."""
        marks: dict[bool | None, Text] = {True: Text("ok", "green"), False: Text("FAILED", "bold red"), None: Text("")}
        title = f"{self.program} on {self.protocol}, {self.samples} {self.source} samples"
        made = table(title, ["check", "found", "required"], [""])
        for check in self.checks:
            made.add_row(cell(check.what), cell(check.found), cell(check.required), marks[check.passed])
        layers = [] if self.layers is None else [_layers_table(self.layers, self.protocol)]
        return Group(*layers, made, *(Text(line) for line in self.notes))


def _layers_table(rows: list[Layer], protocol: str) -> Table:
    private = [] if protocol == "clear" else [f"{protocol} against clear"]
    made = table(
        "layer by layer, the specification (clear) against floating point",
        ["node", "operator"],
        ["scale", "largest", "error", "relative", *private],
    )
    for row in rows:
        differing = f"{row.differing} of {row.elements:,}" if row.differing is not None else ""
        made.add_row(
            *(cell(row.node), cell(row.op), str(row.scale), f"{row.largest:.4g}"),
            *(f"{row.largest_error:.2g}", f"{row.relative_error:.3%}", *([differing] if private else [])),
        )
    return made


def judge(
    loaded: Model,
    float_model: Path | None,
    inputs: Mapping[str, Floats],
    clear: Result,
    private: Result,
    protocol: str,
    *,
    approximate: bool = False,
) -> tuple[list[Check], list[str]]:
    """Every check, and what could not be checked. An `approximate` run may differ from clear."""
    checks: list[Check] = []
    notes: list[str] = []
    rounding, shifts = compare_with.rounding_of(loaded.program)
    differences = [] if protocol == "clear" else compare_with.compare(clear.integers, private.integers)
    if protocol == "clear":
        notes.append("clear is the specification itself: nothing was run privately, so nothing private was compared")
    for difference in differences:
        if shifts and clear.scales[difference.output]:
            expected_integers, got = clear.integers[difference.output], private.integers.get(difference.output)
            found, within = compare_with.within_budget(expected_integers, got, shifts)
            most = f"at most {compare_with.APPROXIMATE_LIMIT:.0%}, or {shifts} units ({rounding} shifts)"
            checks.append(Check(f"{difference.output}: {protocol} against clear", found, most, within))
            continue
        found = f"{difference.differing:,} of {difference.elements:,} elements differ"
        if difference.first:
            found += f", the first {difference.first}"
        what, equal = f"{difference.output}: {protocol} against clear", difference.differing == 0
        told = approximate or shifts > 0  # a class number tells of any difference before it
        checks.append(Check(what, found, "approximate", None) if told else Check(what, found, "0", equal))

    if float_model is None and loaded.graph is None:
        checks += _distinct(loaded, inputs, private)
        notes.append("not compared with floating point: name the model it came from with --model (float_model)")
        return checks, notes
    expected = compare_with.float_reference(float_model, loaded.graph, inputs)
    if expected.note:
        notes.append(expected.note)
    several = compare_with.distinct_samples(inputs) > 1
    for row in closeness.closeness(private, expected):
        judged, remarks = judge_closeness(row, expected.source, several=several)
        checks += judged
        notes += remarks
    for name, fraction in expected.alive.items():
        limit = compare_with.ALIVE_LIMIT
        checks.append(
            Check(f"{name}: values above zero", f"{fraction:.1%}", f"at least {limit:.0%}", fraction >= limit)
        )
    return checks, notes


def _distinct(loaded: Model, inputs: Mapping[str, Floats], private: Result) -> list[Check]:
    """What is left to judge without the float model: only that tells whether a tree's equal results are right."""
    counts = compare_with.distinct(inputs, private)
    if counts is None:
        return []
    samples, outputs = counts
    judged = None if compare_with.decides(loaded.program) else outputs >= samples
    return [Check("distinct outputs", f"{outputs} for {samples} distinct samples", str(samples), judged)]


def judge_closeness(row: Closeness, source: str, *, several: bool) -> tuple[list[Check], list[str]]:
    """An output against floating point: its error, its answers, and whether it tells `several` samples apart.

    A network that compares may rightly give all samples the same.
    """
    checks, notes = [], []
    if not row.classes:
        limit = closeness.RELATIVE_ERROR_LIMIT
        found = f"{row.relative_error:.4%}, worst sample {row.worst_error:.4%} (number {row.worst_sample})"
        checks.append(Check(f"{row.output}: relative L2 error", found, f"at most {limit:.0%}", row.error <= limit))
    if row.unexplained is not None and several:
        most = f"at most {closeness.VARIATION_LIMIT:.0%} of it is error"
        what, same = f"{row.output}: variation between samples", math.isinf(row.unexplained)
        found = "none: the float model gives all samples the same" if same else f"{row.unexplained:.2%} of it is error"
        good = None if same and row.compares else row.unexplained <= closeness.VARIATION_LIMIT
        checks.append(Check(what, found, most, good))
        if good is False:
            notes.append(
                f"{row.output}: samples hardly change this output, so its error says little of what the network "
                f"computes: verify with samples that differ more, or with a trained network"
            )
    if row.agreement is not None:
        checks.append(_top1(row, row.agreement, source))
        notes += [f"{row.output}: {_told(other)}" for other in row.agreement.differing[:SHOWN_DISAGREEMENTS]]
    return checks, notes


def _top1(row: Closeness, agreement: Agreement, source: str) -> Check:
    found = f"{agreement.fraction:.2%}"
    if agreement.differing:
        found += f", {agreement.near_ties} of {len(agreement.differing)} others a near-tie"
    if agreement.margin is not None and not agreement.differing:
        found += f", the smallest lead is {agreement.margin:,.1f} times what the error could turn"
    most = f"at least {1 - closeness.DISAGREEING_LIMIT:.0%}, near-ties aside"
    return Check(f"{row.output}: top-1 agreement with {source}", found, most, agreement.good)


def _told(found: Disagreement) -> str:
    answer = f"sample {found.sample} is {found.got} and in floating point {found.expected}"
    if found.lead is None:
        return answer
    close = "a near-tie" if found.near_tie else "no near-tie"
    return f"{answer}, {close}: the float model's best two are {found.lead:.3g} apart"


def check_certificate(
    loaded: Model,
    given: Mapping[str, Floats] | None,
    labels: str | os.PathLike[str] | Classes | None,
) -> tuple[list[Check], list[str]]:
    """The accuracy record in the program, measured again where the data it was made with are given."""
    found = certificate.of(loaded.program)
    if found is None:
        return [], ["the program has no accuracy record: covey tune makes one"] if labels is not None else []
    if certificate.of_error(found):
        checks, notes = _check_error(loaded, given, found)
        return checks, [
            *notes,
            "accuracy record: of numbers, for which labels say nothing",
        ] if labels is not None else notes
    right = found.fixed_correct
    states = f"{right} of {found.samples} right on '{found.data}', the float model {found.float_correct}"
    limit = f"at most {100 * found.tolerance:g} points lower"
    checks = [Check("accuracy record: accuracy", states, limit, certificate.holds(found))]
    again = f"not measured again: give --data '{found.data}'" + (" and its --labels" if found.labelled else "")
    if given is None or (found.labelled and labels is None):
        return checks, [f"accuracy record: {again}"]
    classes = certificate.read_labels(labels, len(next(iter(given.values())))) if labels is not None else None
    if certificate.digest(given, classes if found.labelled else None) != found.digest:
        return checks, [f"accuracy record: these are other data than it was made with; {again}"]
    answers = certificate.fixed_classes(loaded, given)
    if classes is None or not found.labelled:
        if loaded.graph is None:
            return checks, [
                "accuracy record: without labels it is measured against the float model: name that with --model "
                "(float_model)"
            ]
        classes = certificate.float_classes(loaded.graph, given)
    measured = int((answers == classes).sum())
    checks.append(Check("accuracy record: measured again", f"{measured} right", str(right), measured == right))
    return checks, []


def _check_error(
    loaded: Model, given: Mapping[str, Floats] | None, found: pb.Certificate
) -> tuple[list[Check], list[str]]:
    """The accuracy record of a network without classes."""
    stated = found.relative_error
    states = f"{stated:.4%} off on {found.samples} samples of '{found.data}'"
    limit = f"at most {found.tolerance:.2%}"
    checks = [Check("accuracy record: relative L2 error", states, limit, certificate.holds(found))]
    again = f"not measured again: give --data '{found.data}'"
    if given is None:
        return checks, [f"accuracy record: {again}"]
    if certificate.digest(given, None) != found.digest:
        return checks, [f"accuracy record: these are other data than it was made with; {again}"]
    if loaded.graph is None:
        return checks, ["accuracy record: not measured again: name the float model with --model (float_model)"]
    measured = output_error(loaded, closeness.float_run(loaded.graph, given), given)
    same = math.isclose(measured, stated, rel_tol=1e-6)
    return [*checks, Check("accuracy record: measured again", f"{measured:.4%} off", f"{stated:.4%}", same)], []
