"""Which tiles, window and lanes suit this machine and a network, and where communication equals computation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from covey.bench.networks import NETWORKS, NetworkProfile
from covey.bench.pipelines import NONE, TWO, Bed, Row, Variant, balanced, need_balanced
from covey.client import Progress

TILES = (1 << 12, 1 << 14, 1 << 16, 1 << 18)
"""Elements. Gates of up to one tile overlap with nothing: this is also the threshold of the inner-layer pipeline."""

WINDOWS = (4, 16, 64, 256)

IN_FLIGHT = 1 << 24
"""Elements of a gate that may be in flight."""

LANES = (1, 2, 3)

MARGIN = 0.03
"""A choice other than the usual one has to be so much faster: less is how much runs differ anyway."""


@dataclass(frozen=True)
class Trial:
    """One setting and what it gave: seconds of an inference by itself, or of one of several at a time."""

    option: str
    value: int
    seconds: float
    chosen: bool = False

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {"option": self.option, "value": self.value, "seconds": self.seconds, "chosen": self.chosen}


@dataclass(frozen=True)
class Calibration:
    """What was tried, what is best, and the rate at which an inference without pipelines computes half of its time."""

    network: NetworkProfile
    balanced: NetworkProfile | None
    unpipelined: Row
    """On loopback: what `balanced` follows from."""
    trials: list[Trial]

    @property
    def options(self) -> dict[str, int]:
        """Of a session on this machine and network."""
        return {trial.option: trial.value for trial in self.trials if trial.chosen}

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "network": str(self.network),
            "balanced_megabits": None if self.balanced is None else self.balanced.megabits,
            "unpipelined_on_loopback": self.unpipelined.to_json(),
            "options": self.options,
            "trials": [trial.to_json() for trial in self.trials],
        }


def calibrate(bed: Bed, network: NetworkProfile | None, repetitions: int, progress: Progress) -> Calibration:
    """Try tiles, windows and lanes, each with the best of those before; on the balanced network if none is given."""
    unpipelined = bed.measure(NONE, NETWORKS["loopback"], repetitions, progress)
    rate = balanced(unpipelined)
    chosen = network or need_balanced(unpipelined)
    usual = {"tile": 1 << 14, "window": 16 if chosen.round_trip_ms <= 2 else 256, "lanes": 1}
    best: dict[str, int] = {}
    trials: list[Trial] = []

    def attempt(option: str, values: Sequence[int]) -> None:
        def seconds(value: int) -> float:
            given: Mapping[str, int] = {**best, option: value}
            variant = Variant(f"{option} {value}", TWO.inter_linear, TWO.inner_layer, given.get("lanes", 1))
            row = bed.measure(variant, chosen, repetitions, progress, given)
            return row.seconds_each if option == "lanes" else row.latency.least

        tried = {value: seconds(value) for value in values}
        fastest = min(tried, key=lambda value: tried[value])
        least = usual[option] if tried[usual[option]] <= tried[fastest] * (1 + MARGIN) else fastest
        best[option] = least
        trials.extend(Trial(option, value, took, value == least) for value, took in tried.items())

    attempt("tile", TILES)
    attempt("window", [window for window in WINDOWS if window * best["tile"] <= IN_FLIGHT])
    attempt("lanes", LANES)
    return Calibration(chosen, rate, unpipelined, trials)
