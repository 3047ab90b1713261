"""Accuracy against cost: points from a table, and those of them that no other point beats (the Pareto front)."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from covey.errors import DataError
from covey.shown import Shown
from covey.tables import cell, table

if TYPE_CHECKING:
    from covey.plot import Plot


@dataclass(frozen=True)
class Point:
    """A model with its accuracy, of which more is better, and its cost, of which less is better."""

    name: str
    accuracy: float
    cost: float

    def beats(self, other: Point) -> bool:
        """Whether it is at least as good in both and better in one."""
        no_worse = self.accuracy >= other.accuracy and self.cost <= other.cost
        return no_worse and (self.accuracy, self.cost) != (other.accuracy, other.cost)


@dataclass(frozen=True)
class TradeOff(Shown):
    """Points by rising cost, and what their two numbers are called."""

    points: list[Point] = field(repr=False)
    accuracy: str = "accuracy"
    cost: str = "cost"

    @property
    def front(self) -> list[Point]:
        """The points that no other beats, by rising cost; of equal points all."""
        found: list[Point] = []
        # By rising cost, the better one of equal cost first: only the last of the front can beat a later point.
        for point in self.points:
            if not found or not found[-1].beats(point):
                found.append(point)
        return found

    def rows(self) -> list[dict[str, Any]]:
        """Every point: name, accuracy, cost, and whether it is on the front."""
        front = set(self.front)
        return [
            {"name": point.name, "accuracy": point.accuracy, "cost": point.cost, "front": point in front}
            for point in self.points
        ]

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {"columns": {"accuracy": self.accuracy, "cost": self.cost}, "points": self.rows()}

    def rendered(self) -> RenderableType:
        """The table for a terminal (print it with rich)."""
        made = table("by rising cost", ["name", "front"], [self.accuracy, self.cost])
        front = set(self.front)
        for point in self.points:
            mark = "yes" if point in front else ""
            made.add_row(cell(point.name), mark, f"{point.accuracy:,.10g}", f"{point.cost:,.10g}")
        return Group(made, Text(f"front: {len(self.front)} of {len(self.points)} points; no other point beats these"))

    def plot(self, path: str | os.PathLike[str] | None = None) -> Plot:
        """Draw accuracy against cost, and save the picture at `path` if there is one.

        Raises `OptionError` where matplotlib is not installed or the path is none that a picture can go to.
        """
        from covey.plot import draw_trade_off, drawn

        return drawn(lambda: draw_trade_off(self), path)


def pareto(
    source: str | os.PathLike[str], *, name: str = "name", accuracy: str = "accuracy", cost: str = "cost"
) -> TradeOff:
    """Read points from a .csv file and find those that no other point beats in accuracy and cost.

    `name`, `accuracy` and `cost` are columns of its first line; all others are ignored. Raises `DataError`.
    """
    path = Path(source)
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            points = list(_points(path, stream, [name, accuracy, cost]))
    except OSError as error:
        raise DataError(f"cannot read points '{path}': {error.strerror}") from None
    except UnicodeDecodeError:
        raise DataError(f"points '{path}' are not text in UTF-8: save them as a .csv file of this encoding") from None
    if not points:
        raise DataError(f"points '{path}' have no line below the first: add one for each model")
    return TradeOff(sorted(points, key=lambda point: (point.cost, -point.accuracy, point.name)), accuracy, cost)


def _points(path: Path, stream: Any, wanted: Sequence[str]) -> Iterator[Point]:
    reader = csv.reader(stream, strict=True)
    try:
        header = [text.strip() for text in next(reader, [])]
        places = [_place(path, header, column) for column in wanted]
        for row in reader:
            if not row:
                continue
            cells = []
            for column, place in zip(wanted, places, strict=True):
                if place >= len(row) or not row[place].strip():
                    raise DataError(f"points '{path}', line {reader.line_num}, column '{column}': the cell is empty")
                cells.append(row[place].strip())
            numbers = (_number(path, reader.line_num, *each) for each in zip(wanted[1:], cells[1:], strict=True))
            yield Point(cells[0], *numbers)
    except csv.Error as error:
        raise DataError(f"points '{path}', line {reader.line_num}: {error}") from None


def _place(path: Path, header: list[str], column: str) -> int:
    if header.count(column) == 1:
        return header.index(column)
    found = "two columns are called" if column in header else "no column is called"
    listed = ", ".join(header) or "none"
    raise DataError(f"points '{path}', line 1: {found} '{column}', the columns are {listed}: rename or choose another")


def _number(path: Path, line: int, column: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise DataError(f"points '{path}', line {line}, column '{column}': '{text}' is not a finite number")
    return value
