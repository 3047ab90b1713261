"""Requests of many samples, as runs of fewer that fit the parties' memory."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from covey import _core
from covey.errors import OptionError

AT_ONCE_BYTES = 4_000_000_000
"""Memory of a party, as planned, that a run takes at most where nobody says how many samples it has."""

SMALL = 1 << 16
"""Elements of inputs below which a request is one run, and nothing is planned."""

PLANNED_WITH = frozenset({"adder", "latency_us", "bandwidth", "tile", "window", "key_bits", "linear"})
"""Options of a session that a plan takes."""


def portions(
    program: _core.Program,
    protocol: str,
    samples: int,
    at_once: int | None = None,
    *,
    lanes: int = 1,
    options: Mapping[str, Any] | None = None,
) -> list[int]:
    """Samples of each run of a request: at most `at_once` in all lanes, or as many as are planned to fit a party.

    Samples that do not go into the lanes evenly are the last run. Of the others, runs differ by one sample in each lane
    at most. Raises `OptionError` where `at_once` cannot be met.
    """
    if at_once is not None and at_once < lanes:
        raise OptionError(f"{at_once} samples at once: give at least {lanes}, one for each lane")
    if not computes_samples_apart(program):
        if at_once is not None and at_once < samples:
            raise OptionError(
                f"'{program.name}' does not compute each sample by itself, so its {samples} samples are one run: give "
                f"no other number of samples at once"
            )
        return [samples]
    most = _fitting(program, protocol, samples, options or {}) if at_once is None else at_once
    each, left = divmod(samples, lanes)
    runs = 1 if samples <= most else math.ceil(each / max(1, most // lanes))
    sizes = [lanes * (each // runs + (index < each % runs)) for index in range(runs)] if each else []
    return [*sizes, left] if left else sizes


def computes_samples_apart(program: _core.Program) -> bool:
    """Whether a request of several samples may be several runs."""
    return not program.carried and all(entry["batched"] for entry in program.outputs)


def _fitting(program: _core.Program, protocol: str, samples: int, options: Mapping[str, Any]) -> int:
    """How many samples of `samples` are planned to take at most `AT_ONCE_BYTES` of each party."""
    elements = sum(math.prod(entry["shape"]) for entry in program.inputs if entry["batched"])
    if samples == 1 or samples * elements < SMALL:
        return samples
    given = {name: value for name, value in options.items() if name in PLANNED_WITH}

    def peak(batch: int) -> int:
        plan = json.loads(_core.plan(program, protocol, batch, **given))
        return max(int(bytes_) for bytes_ in plan["memory"])

    few = min(samples, 8)
    one, more = peak(1), peak(few)
    each = (more - one) / (few - 1)
    return samples if each <= 0 else max(1, min(samples, 1 + int((AT_ONCE_BYTES - one) / each)))
