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

MOST = 60
"""Samples that are planned for, at most: a multiple of the numbers of parties."""

LOCAL_LATENCY_US = 100
"""One way, which sessions assume where their options say nothing of it (`NetworkProfile` in crates/protocols)."""


def chosen(
    program: _core.Program, protocol: str, samples: int | None, options: Mapping[str, Any]
) -> dict[str, int | str]:
    """Lanes and roles for requests of so many samples, where `options` says no roles; lanes that it says stay.

    Roles turn if the options say what connects the parties, and by the plan and `RATES` it pays.
    """
    info = PROTOCOLS.get(protocol)
    if samples is None or info is None or not info.roles_turn:
        return {}
    lanes = min(info.computing) if options.get("lanes") is None else options["lanes"]
    if (
        options.get("roles") is not None
        or options.get("bandwidth") is None
        or not 2 <= lanes <= samples
        or not computes_samples_apart(program)
        or FORMS * program.parameters * program.ring_bits // 8 > AT_ONCE_BYTES
        or gain(program, protocol, samples, lanes, options) < GAIN
    ):
        return {}
    return {"lanes": lanes, "roles": "turned"}


def gain(program: _core.Program, protocol: str, samples: int, lanes: int, options: Mapping[str, Any]) -> float:
    """How many times as fast so many samples are with roles in turn, as estimated.

    Samples that do not go into the lanes evenly are a run of their own, which is counted as with fixed roles.
    """
    # Of many samples the last few have no weight.
    samples = min(samples, MOST)
    left = samples % lanes
    fixed, _ = _seconds(program, protocol, samples, options)
    _, turned = _seconds(program, protocol, samples - left, options)
    return fixed / (turned + (_seconds(program, protocol, left, options)[0] if left else 0.0))


def _seconds(program: _core.Program, protocol: str, samples: int, options: Mapping[str, Any]) -> tuple[float, float]:
    """Of a run with fixed roles, and with roles in turn.

    Either the busiest interface decides or the computation of a party on one core; rounds come on top.
    """
    given = {name: value for name, value in options.items() if name in PLANNED_WITH}
    total = json.loads(_core.plan(program, protocol, samples, **given))["total"]
    parties = range(min(PROTOCOLS[protocol].computing))
    carried = [
        [sum(link["bytes"] for link in total["links"] if link[end] == party) for party in parties]
        for end in ("from", "to")
    ]
    sent = sum(link["bytes"] for link in total["links"])
    computing = RATES[protocol].seconds(samples * multiplications(program), 0, sent)
    latency, bandwidth = int(options.get("latency_us", LOCAL_LATENCY_US)), int(options["bandwidth"])

    def seconds(most: float) -> float:
        return int(total["rounds"]) * latency / 1e6 + max(computing, most * 8 / bandwidth)

    return seconds(max(map(max, carried))), seconds(max(sum(of) / len(parties) for of in carried))
