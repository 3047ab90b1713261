"""Repeated measurements summed up."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Summary:
    """The median of repetitions, and the least and the most of them."""

    median: float
    least: float
    most: float

    @staticmethod
    def of(values: Sequence[float]) -> Summary:
        """From at least one measurement."""
        return Summary(statistics.median(values), min(values), max(values))

    @property
    def spread(self) -> float:
        """Most minus least, over the median."""
        return (self.most - self.least) / self.median if self.median else 0.0

    def to_json(self) -> dict[str, float]:
        """As plain data."""
        return {"median": self.median, "least": self.least, "most": self.most, "spread": self.spread}
