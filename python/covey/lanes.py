"""How many lanes a session has, and whether its parties take all roles in turn, where nobody says so.

Roles send different amounts. With roles in turn every party sends as much as every other, and the busiest interface
carries less. That pays where links take longer than computation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from covey import _core
from covey.computation import RATES
from covey.cost_comparison import multiplications
from covey.portions import AT_ONCE_BYTES, PLANNED_WITH, computes_samples_apart
from covey.protocols import PROTOCOLS

GAIN = 1.1
"""How many times as fast roles in turn are estimated to be where they are chosen."""

FORMS = 5
"""Times that a party holds each weight then, at most."""

MOST = 64
"""Samples that are planned for, at most."""


def chosen(
    program: _core.Program, protocol: str, samples: int | None, options: Mapping[str, Any]
) -> dict[str, int | str]:
    """`lanes` and `roles` for requests of so many samples, of those that `options` leaves open.

    Roles turn if the options say what connects the parties, and by the plan and `RATES` it pays.
    """
    info = PROTOCOLS[protocol]
    lanes = options.get("lanes") or (min(info.computing) if samples is not None else 1)
    if (
        not info.roles_turn
        or options.get("roles") is not None
        or options.get("bandwidth") is None
        or lanes < 2
        or (samples is not None and samples < lanes)
        or not computes_samples_apart(program)
        or FORMS * program.parameters * program.ring_bits // 8 > AT_ONCE_BYTES
        or gain(program, protocol, min(MOST, samples or lanes), options) < GAIN
    ):
        return {}
    return {"lanes": lanes, "roles": "turned"}


def gain(program: _core.Program, protocol: str, batch: int, options: Mapping[str, Any]) -> float:
    """How many times as fast `batch` samples are with roles in turn, as estimated.

    Either the busiest interface decides or the computation of a party on one core; rounds come on top.
    """
    given = {name: value for name, value in options.items() if name in PLANNED_WITH}
    total = json.loads(_core.plan(program, protocol, batch, **given))["total"]
    parties = range(min(PROTOCOLS[protocol].computing))
    carried = [
        [sum(link["bytes"] for link in total["links"] if link[end] == party) for party in parties]
        for end in ("from", "to")
    ]
    sent = sum(link["bytes"] for link in total["links"])
    computing = RATES[protocol].seconds(batch * multiplications(program), 0, sent)
    waiting, bandwidth = int(total["rounds"]) * int(options.get("latency_us", 0)) / 1e6, int(options["bandwidth"])

    def seconds(most: float) -> float:
        return waiting + max(computing, most * 8 / bandwidth)

    return seconds(max(map(max, carried))) / seconds(max(sum(of) / len(parties) for of in carried))
