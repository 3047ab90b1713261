"""Chooses which convolutions take Winograd's form: those that then send fewer bytes, as the planner counts them.

What counts is two parties who multiply by oblivious transfer. Nobody else sends less for fewer products.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from covey.errors import DoesNotFitError, OptionError
from covey.lowering import Settings
from covey.passes.scale_choice import choose
from covey.passes.winograd import candidates

if TYPE_CHECKING:
    from covey.compiled import Compiled, Prepared

PROTOCOL, METHOD = "two-party", "ot"
"""Who the bytes are counted for."""

Prepare = Callable[[Collection[str]], "Prepared"]


def send_less(plain: Compiled, prepare: Prepare, settings: Settings) -> list[str]:
    """The convolutions of a compiled network that send fewer bytes in Winograd's form, in its ring and at its scale.

    `prepare` makes the network with convolutions of these names written so. Those that have no room are left as they
    are. Raises `OptionError` without the runtime, which counts.
    """
    names = candidates(plain.graph)
    ring, scale = plain.report["ring_bits"], plain.report["scale"]
    while names:
        prepared = prepare(names)
        try:
            choice = choose(
                prepared.graph, replace(settings, ring_bits=ring), prepared.ranges, prepared.magnitudes, (ring,), scale
            )
        except DoesNotFitError as error:
            names.remove(_at_fault(prepared, names, error.node))
            continue
        before, after = _bytes(plain, names), _bytes(prepared.finished(choice, carrying=True), names)
        return [name for name in names if after[name] < before[name]]
    return []


def _at_fault(prepared: Prepared, names: list[str], node: str) -> str:
    """The node itself, or the last of the convolutions before it."""
    before: list[str] = []
    for each in prepared.graph.nodes:
        if each.name in names:
            before.append(each.name)
        if each.name == node and before:
            break
    return before[-1]


def _bytes(compiled: Compiled, names: list[str]) -> dict[str, int]:
    """What the steps of these nodes send, with what is fused behind them."""
    try:
        from covey import _core
    except ImportError:
        raise OptionError(
            "winograd 'auto' counts bytes by the runtime, which is not installed: use all, or names of convolutions"
        ) from None
    program = _core.Program(compiled.program_bytes)
    plan: dict[str, Any] = json.loads(_core.plan(program, PROTOCOL, 1, 0, None, linear=METHOD))
    found = dict.fromkeys(names, 0)
    for row in plan["nodes"]:
        called = next((name for name in names if row["name"] == name or row["name"].startswith(f"{name}+")), None)
        if called is not None:
            found[called] += sum(link["bytes"] for link in row["links"])
    return found
