"""What a figure or table of a paper consists of, measured here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from covey.client import Progress
from covey.errors import OptionError
from covey.tables import amount, duration

LONGEST = 600.0
"""Seconds on the wire beyond which a cell is planned and not measured."""

MOST = 20e9
"""The same of bytes."""


@dataclass(frozen=True)
class Cell:
    """One figure: seconds measured, or planned from rounds and bytes where measuring would take too long."""

    what: str
    domain: str
    network: str
    seconds: float
    bytes: float
    rounds: int
    planned: bool
    paper: str
    """What the paper gives for it."""
    here: str = ""
    """What was measured, in the same terms."""
    figures: dict[str, float | None] = field(default_factory=dict)
    """Numbers by name that a preset's own columns show, the paper's among them; None where it has none."""

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


@dataclass(frozen=True)
class Column:
    """A column of a table: its heading, and what it has for a cell."""

    heading: str
    text: Callable[[Cell], str]


COLUMNS = (
    Column("time", lambda cell: duration(cell.seconds)),
    Column("sent", lambda cell: amount(cell.bytes)),
    Column("rounds", lambda cell: f"{cell.rounds:,}"),
    Column("here", lambda cell: cell.here.replace("; ", "\n")),
    Column("the paper's", lambda cell: cell.paper.replace("; ", "\n")),
)
"""Of tables of one domain each, on one network, whose words stand on a line each."""


@dataclass(frozen=True)
class Preset:
    """A figure or table of a paper."""

    title: str
    note: str
    measure: Callable[..., Iterable[Cell]]
    """The cells one by one, from so many repetitions, with the given `options` as keyword arguments."""
    options: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    """Of the tables, one for each domain, where these are others than usual."""

    def cells(self, repetitions: int, progress: Progress, options: dict[str, Any]) -> Iterator[Cell]:
        """Its cells as they are made, with the options that are not None. Raises `OptionError` for one it lacks."""
        given = {name: value for name, value in options.items() if value is not None}
        for name in given:
            if name not in self.options:
                has = ", ".join(f"--{each}" for each in self.options) or "no options but --repetitions"
                raise OptionError(f"--{name} is not for '{self.title}': it takes {has}")
        return iter(self.measure(repetitions, progress, **given))


def selected(table: str, kind: str, known: Collection[str], asked: Collection[str] | None) -> list[str]:
    """Those asked for, each once, or all: rows of a table, or its protocols. Raises `OptionError` for what it lacks."""
    for name in asked or ():
        if name not in known:
            raise OptionError(f"{table} has no {kind} '{name}': use {', '.join(known)}")
    return list(dict.fromkeys(known if asked is None else asked))
