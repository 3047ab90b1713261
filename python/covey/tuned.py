"""What tuning found: every attempt, and what was chosen."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from covey._proto import program_pb2 as pb
from covey.compile import Compiled
from covey.shown import Shown
from covey.tables import cell, table


@dataclass(frozen=True)
class Attempt:
    """One scale in one ring: how many samples came out right, or why it could not be run."""

    scale: int
    ring: int
    correct: int | None
    why_not: str = ""


@dataclass(frozen=True)
class Tuned(Shown):
    """What tuning found. `scales` were tried in the wide ring, `rings` with the scale chosen."""

    compiled: Compiled = field(repr=False)
    scales: list[Attempt]
    rings: list[Attempt]
    samples: int
    float_correct: int
    record: pb.Certificate = field(repr=False)
    """The accuracy record that the program holds."""
    protocol: str = ""
    """Whose rings were tried, where that is known."""

    def rows(self) -> list[dict[str, Any]]:
        """Every attempt: what was searched, scale, bits, how many samples were right, or why it could not run."""
        report = self.compiled.report
        return [
            {
                "search": search,
                "scale": attempt.scale,
                "ring_bits": attempt.ring,
                "correct": attempt.correct,
                "accuracy": None if attempt.correct is None else attempt.correct / self.samples,
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
        accuracy = self.float_correct / self.samples
        where = f"rings that {self.protocol} computes in" if self.protocol else "rings"
        return Group(
            Text(f"{report['model']}: {self.samples} validation samples, float accuracy {accuracy:.2%}\n"),
            _table("scales, in 64 bits", "scale", [(a.scale, a) for a in self.scales], self, report["scale"]),
            Text(),
            _table(
                f"{where}, at scale {report['scale']}",
                "bits",
                [(a.ring, a) for a in self.rings],
                self,
                report["ring_bits"],
            ),
            Text(
                f"\nchosen: scale {report['scale']} in Z_2^{report['ring_bits']}, accuracy "
                f"{self.record.fixed_correct / self.samples:.2%}; the program holds a record of it"
            ),
        )


def _table(title: str, key: str, rows: list[tuple[int, Attempt]], tuned: Tuned, chosen: int) -> Table:
    right = "right" if tuned.record.labelled else "as the float model"
    made = table(title, [], [key, right, "accuracy", "against float"])
    made.add_column("", overflow="fold", max_width=50)
    for number, attempt in rows:
        if attempt.correct is None:
            made.add_row(str(number), "-", "-", "-", cell(attempt.why_not))
            continue
        change = (attempt.correct - tuned.float_correct) / tuned.samples
        mark = "chosen" if number == chosen else ""
        made.add_row(
            str(number), str(attempt.correct), f"{attempt.correct / tuned.samples:.2%}", f"{100 * change:+.2f}", mark
        )
    return made
