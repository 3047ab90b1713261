"""What each of Covey's ideas brings: a model with all of them, without each one, and without any.

Three ideas are how the kernels work rather than options of a session: all of a party's terms of a product as one
accumulation, weights that stay packed, and fewer products for convolutions of 3 x 3 taps. Those are measured on the
kernels alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from covey import _core
from covey.bench.model import Outcome, Setting, measure
from covey.client import Progress


@dataclass(frozen=True)
class Switch:
    """An idea, and the session options that do without it."""

    name: str
    off: Mapping[str, Any]


SWITCHES: list[Switch] = [
    Switch("fused ReLU", {"adder": "digits"}),
    Switch("fused ReLU and digit trees", {"adder": "log-depth"}),
    Switch("tiles in flight", {"window": 1}),
]
"""All that can be switched off, by a session's options. Of two that set the same option the later one goes further."""


@dataclass(frozen=True)
class Row:
    """A run with some switches off, and its figures over those of the run with all on."""

    name: str
    outcome: Outcome
    wall_ratio: float
    cpu_ratio: float | None
    bytes_ratio: float

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "name": self.name,
            "wall_ratio": self.wall_ratio,
            "cpu_ratio": self.cpu_ratio,
            "bytes_ratio": self.bytes_ratio,
            "outcome": self.outcome.to_json(),
        }


def measure_gains(
    setting: Setting, folder: Path, progress: Progress, switches: list[Switch] | None = None
) -> list[Row]:
    """The model with everything on, with each switch off, and with all off where there are several."""
    chosen = SWITCHES if switches is None else switches
    variants = [("all on", {}), *((f"without {switch.name}", dict(switch.off)) for switch in chosen)]
    if len(chosen) > 1:
        variants.append(("all off", {name: value for switch in chosen for name, value in switch.off.items()}))
    rows: list[Row] = []
    for name, off in variants:
        progress(len(rows), len(variants), name)
        # The float yardstick is the same for all, and `clear` checks each.
        outcome = measure(replace(setting, options={**setting.options, **off}, plaintext=False), folder, progress)
        rows.append(_row(name, outcome, rows[0].outcome if rows else outcome))
    return rows


@dataclass(frozen=True)
class KernelGain:
    """An idea within the kernels: billions of multiplications a second on one thread with and without it."""

    name: str
    with_it: float
    without_it: float

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {"name": self.name, "gmac_per_second": self.with_it, "gmac_per_second_without": self.without_it}


def measure_kernel_gains(progress: Progress, layers: int = 5) -> list[KernelGain]:
    """The fused product, the packed weights and fewer products for 3 x 3 taps, on layers of up to five sizes."""
    progress(0, 0, "kernels")
    rows = json.loads(_core.measure_gains(layers))
    return [KernelGain(row["name"], row["with"], row["without"]) for row in rows]


def _row(name: str, outcome: Outcome, first: Outcome) -> Row:
    mine, theirs = outcome.runs.total_cpu_seconds, first.runs.total_cpu_seconds
    return Row(
        name=name,
        outcome=outcome,
        wall_ratio=outcome.runs.wall.median / first.runs.wall.median,
        cpu_ratio=mine / theirs if mine is not None and theirs else None,
        bytes_ratio=outcome.bytes / first.bytes,
    )
