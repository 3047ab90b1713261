"""Which program of a network is fine enough: the cheapest whose outputs are near enough to floating point.

With calibration data every program is measured before it is taken. Where the first is not fine enough, small weights
get more bits, then all values, then the next ring is taken. How fine tables of functions are is known before: what
tables alone do to the network is measured in floating point.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from covey.closeness import RELATIVE_ERROR_LIMIT
from covey.errors import CoveyError, DoesNotFitError, InaccurateError, ModelError
from covey.ir import Graph
from covey.lowering import Settings
from covey.measure import Growth, Measured, Samples
from covey.ops.scalar import DrawnScalar, Scalar
from covey.passes.scale_choice import Choice, choose, scales

if TYPE_CHECKING:
    from covey.compiled import Compiled, Prepared

MAX_ERROR = RELATIVE_ERROR_LIMIT
"""The largest relative L2 error that is accepted unless told otherwise: what `verify` accepts."""

ENOUGH = 0.75
"""The part of it that ends the search: other samples may be worse than these."""

TABLES = 0.5
"""The part of it that the tables of functions may take."""

FINER = 4
"""A table of twice as many segments errs by a fourth."""

LEAST_TABLE_ERROR = 1e-6
"""The least error of a table that is tried, or little less."""

MORE_BITS = (1, 2, 4, 8)
"""Fractional bits beyond the scale Covey chooses by itself, tried in turn."""


def search(
    prepared: Prepared, settings: Settings, rings: tuple[int, ...], scale: int | None, max_error: float
) -> tuple[Choice, Measured | None]:
    """The program taken, and how it did on the calibration samples: `None` without any, or without the runtime.

    Raises `DoesNotFitError` where no bound fits and `InaccurateError` where no program is near enough.
    """
    samples = prepared.few
    aim = min(max_error, MAX_ERROR)  # what is accepted beyond that makes no program coarser
    settings = replace(settings, table_error=table_error(samples, settings.table_error, aim))
    first = choose(prepared.graph, settings, prepared.ranges, prepared.magnitudes, rings, scale)
    if samples is None or not runtime():
        return first, None
    best, compiled = first, prepared.finished(first)
    before = measured = samples.measure(compiled)
    if measured.error > ENOUGH * aim:
        for how, choice in _finer(prepared, first, rings, scale):
            finer = prepared.finished(choice)
            found = samples.measure(finer)
            if found.error < measured.error:
                best, compiled, measured = Choice(choice.lowering, _reason(choice, how, before)), finer, found
            if measured.error <= ENOUGH * aim:
                break
    measured = replace(measured, grows=[] if measured.failed else samples.growth(compiled))
    if measured.failed or measured.error > max_error:
        raise _refusal(measured, compiled, rings, scale, max_error)
    return best, measured


def table_error(samples: Samples | None, largest: float, max_error: float) -> float:
    """The largest error of a table, at most `largest`, with which tables alone leave the outputs near enough."""
    if samples is None or not any(isinstance(node.op, Scalar) for node in samples.graph.nodes):
        return largest
    error = largest
    while error > LEAST_TABLE_ERROR and samples.error_of(_drawn(samples.graph, error)) > TABLES * max_error:
        error /= FINER
    return error


def runtime() -> bool:
    """Whether the Rust runtime, which programs are measured with, is installed."""
    try:
        from covey import _core  # noqa: F401
    except ImportError:
        return False
    return True


def _drawn(graph: Graph, error: float) -> Graph:
    """The float network with its functions by tables of so large an error."""
    nodes = [
        replace(node, op=DrawnScalar(node.op.function, error)) if isinstance(node.op, Scalar) else node
        for node in graph.nodes
    ]
    return replace(graph, nodes=nodes)


def _finer(
    prepared: Prepared, first: Choice, rings: tuple[int, ...], scale: int | None
) -> Iterator[tuple[str, Choice]]:
    """Programs with more bits than the first, cheaper ones first, as far as they fit."""

    def attempt(ring: int, fractional: int | None, fine: bool) -> Choice | None:
        settings = replace(first.lowering.settings, fine_weights=fine)
        try:
            return choose(prepared.graph, settings, prepared.ranges, prepared.magnitudes, (ring,), fractional)
        except DoesNotFitError:
            return None

    narrow = first.lowering.settings.ring_bits
    for ring in (narrow, *(ring for ring in rings if ring > narrow)):
        how = f"not Z_2^{narrow}" if ring != narrow else "small weights have more bits"
        chosen = first.lowering.scale if ring == narrow else 0
        for fine in (True,) if ring == narrow else (False, True):
            choice = attempt(ring, scale, fine)
            if choice is not None:
                chosen = max(chosen, choice.lowering.scale)
                yield how, choice
        largest = scales(ring)[0]
        # Where Covey had to take a smaller scale, a larger one has no room.
        if scale is not None or chosen < largest:
            continue
        for more in MORE_BITS:
            choice = attempt(ring, largest + more, True)
            if choice is None:
                break
            reason = f"scale {largest + more} in Z_2^{ring}: more than Covey chooses by itself"
            yield f"not scale {first.lowering.scale} in Z_2^{narrow}", Choice(choice.lowering, reason)


def _reason(choice: Choice, how: str, before: Measured) -> str:
    where = "where it cannot run" if before.failed else f"where outputs would be {before.error:.1%} off"
    return f"{choice.reason}; {how}, {where}"


def _refusal(
    measured: Measured, compiled: Compiled, rings: tuple[int, ...], scale: int | None, max_error: float
) -> CoveyError:
    ways = []
    if scale is not None:
        ways.append("leave out --scale")
    if 64 not in rings:
        ways.append("use --ring auto")
    if measured.failed:
        return ModelError(f"the program cannot run on the calibration data: {measured.failed}")
    ways.append(f"accept it: covey compile --max-error {math.ceil(1000 * measured.error) / 10:g}")
    worst = max(measured.rows, key=lambda row: row.error)
    node = measured.grows[0] if measured.grows else Growth(worst.output, "output", 0.0, worst.error)
    reason = (
        f"the error grows most here, from {node.before:.2%} to {node.after:.2%}, and output '{worst.output}' is "
        f"{measured.error:.2%} off floating point on {measured.samples} calibration samples, where {max_error:.2%} is "
        f"allowed (scale {compiled.report['scale']} in Z_2^{compiled.report['ring_bits']}, the best found)"
    )
    return InaccurateError(node.node, node.op, reason, " or ".join(ways))
