"""What a figure or table of a paper consists of, measured here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from covey.client import Progress


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

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


@dataclass(frozen=True)
class Preset:
    """A figure or table of a paper."""

    title: str
    note: str
    measure: Callable[[int, Progress], list[Cell]]
    """The cells, from so many repetitions."""
