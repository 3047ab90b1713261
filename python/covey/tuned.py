"""What tuning found: every attempt, and what was chosen."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from covey._proto import program_pb2 as pb
from covey.compiled import Compiled
from covey.goals import Attempt
from covey.shown import Shown
from covey.tables import cell, table


@dataclass(frozen=True)
class Tuned(Shown):
    """What tuning found. `scales` were tried in the wide ring, `rings` with the scale chosen.

    `float_correct` is `None` for a network without classes.
    """

    compiled: Compiled = field(repr=False)
    scales: list[Attempt]
    rings: list[Attempt]
    samples: int
    float_correct: int | None
    record: pb.Certificate = field(repr=False)
    """The accuracy record that the program holds."""
    protocol: str = ""
    """Whose rings were tried, where that is known."""

    def rows(self) -> list[dict[str, Any]]:
        """Every attempt: what was searched, scale, bits, samples right, outputs' error, or why it could not run."""
        report = self.compiled.report
        return [
            {
                "search": search,
                "scale": attempt.scale,
                "ring_bits": attempt.ring,
                "correct": attempt.correct,
                "accuracy": None if attempt.correct is None else attempt.correct / self.samples,
                "error": attempt.error,
                "chosen": attempt.scale == report["scale"]
                and (search == "scale" or attempt.ring == report["ring_bits"]),
                "why_not": attempt.why_not,
            }
            for search, attempts in (("scale", self.scales), ("ring", self.rings))
            for attempt in attempts
        ]

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        report = self.compiled.report
        return {**{key: report[key] for key in ("program_hash", "scale", "ring_bits")}, **report["tuning"]}

    def rendered(self) -> RenderableType:
        """What was tried and chosen, for a terminal (print it with rich)."""
        report = self.compiled.report
        correct, record = self.float_correct, self.record
        columns = _errors if correct is None else _accuracies
        accuracy = "" if correct is None else f", float accuracy {correct / self.samples:.2%}"
        kept = (
            f"outputs {record.relative_error:.2%} off"
            if correct is None
            else f"accuracy {record.fixed_correct / self.samples:.2%}"
        )
        where = f"rings that {self.protocol} computes in" if self.protocol else "rings"
        return Group(
            Text(f"{report['model']}: {self.samples} validation samples{accuracy}\n"),
            columns("scales, in 64 bits", "scale", [(a.scale, a) for a in self.scales], self, report["scale"]),
            Text(),
            columns(
                f"{where}, at scale {report['scale']}",
                "bits",
                [(a.ring, a) for a in self.rings],
                self,
                report["ring_bits"],
            ),
            Text(
                f"\nchosen: scale {report['scale']} in Z_2^{report['ring_bits']}, {kept}; "
                "the program holds a record of it"
            ),
        )


def _accuracies(title: str, key: str, rows: list[tuple[int, Attempt]], tuned: Tuned, chosen: int) -> Table:
    right = "right" if tuned.record.labelled else "as the float model"
    made = table(title, [], [key, right, "accuracy", "against float"])
    made.add_column("", overflow="fold", max_width=50)
    for number, attempt in rows:
        if attempt.correct is None:
            made.add_row(str(number), "-", "-", "-", cell(attempt.why_not))
            continue
        change = (attempt.correct - (tuned.float_correct or 0)) / tuned.samples
        mark = "chosen" if number == chosen else ""
        made.add_row(
            str(number), str(attempt.correct), f"{attempt.correct / tuned.samples:.2%}", f"{100 * change:+.2f}", mark
        )
    return made


def _errors(title: str, key: str, rows: list[tuple[int, Attempt]], tuned: Tuned, chosen: int) -> Table:
    made = table(title, [], [key, "off float, relative L2"])
    made.add_column("", overflow="fold", max_width=50)
    for number, attempt in rows:
        error = "-" if attempt.error is None else f"{attempt.error:.3%}"
        mark = attempt.why_not or ("chosen" if number == chosen else "")
        made.add_row(str(number), error, cell(mark))
    return made
