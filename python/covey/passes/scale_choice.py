"""Chooses ring and scale: the largest scale whose every bound fits, in 32 bits if that is fine enough."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from covey.errors import DoesNotFitError
from covey.ir import Graph
from covey.lowering import INPUT, Division, Lowering, Settings
from covey.ops.affine import Affine
from covey.ops.maximum import BEYOND
from covey.passes.truncation_placement import place_truncations


def scales(ring: int) -> range:
    """Fractional bits tried in a ring of so many bits, best first."""
    return range(12 if ring <= 32 else 16, 7, -1)


LEAST_SCALE = 4
"""The smallest scale an error message suggests."""


@dataclass(frozen=True)
class Choice:
    """The lowering that fits, and why its ring and scale were taken."""

    lowering: Lowering
    reason: str


@dataclass(frozen=True)
class Failure:
    """An attempt that did not fit."""

    ring: int
    scale: int
    error: DoesNotFitError

    def rules_out(self, ring: int, scale: int) -> bool:
        """Whether another attempt must fail at the same value, whose bits fall with the scale, or twice as fast.

        One bit is allowed for what rounding the weights differently may change.
        """
        steps = max(1, round(self.error.scale / self.scale)) * (self.scale - scale)
        return self.error.needed - steps - 1 > self.error.available + ring - self.ring


def lowered(
    graph: Graph,
    settings: Settings,
    ranges: Mapping[str, tuple[float, float]],
    magnitudes: Mapping[str, float] | None,
    places: Sequence[frozenset[str]] | None = None,
) -> Lowering:
    """The graph at the settings' ring and scale. Raises `DoesNotFitError` where one of its bounds does not fit."""
    places = _places(graph, settings) if places is None else places
    for index, left_wide in enumerate(places):
        lowering = Lowering(graph, settings, ranges, magnitudes, left_wide)
        try:
            lowering.run()
        except DoesNotFitError:
            if index + 1 == len(places):
                raise
        else:
            break
    return lowering


def _places(graph: Graph, settings: Settings) -> list[frozenset[str]]:
    """Where truncations go: fewest first; the sums of average pools may have no room at a product's scale."""
    averages = settings.division is Division.MUL_SHIFT
    return list(dict.fromkeys([place_truncations(graph, averages=averages), place_truncations(graph, averages=False)]))


def choose(
    graph: Graph,
    settings: Settings,
    ranges: Mapping[str, tuple[float, float]],
    magnitudes: Mapping[str, float] | None,
    rings: tuple[int, ...],
    scale: int | None,
) -> Choice:
    """Lower the graph in the first of `rings` with the largest scale that fits, or with `scale` if it is given.

    Raises `DoesNotFitError` with the smallest ring or the largest scale that would do.
    """
    places = _places(graph, settings)

    def attempt(ring: int, fractional: int) -> Lowering:
        return lowered(graph, replace(settings, ring_bits=ring, scale=fractional), ranges, magnitudes, places)

    failures: list[Failure] = []
    for ring in rings:
        for fractional in [scale] if scale is not None else scales(ring):
            if failures and failures[-1].rules_out(ring, fractional):
                continue
            try:
                lowering = attempt(ring, fractional)
            except DoesNotFitError as error:
                # Its traceback would keep all that the attempt has computed.
                failures.append(Failure(ring, fractional, error.with_traceback(None)))
            else:
                return Choice(lowering, _reason(ring, fractional, rings, scale, failures))
    refusal = failures[-1].error
    if (constant := _beyond_all_rings(graph, refusal.node)) is not None:
        raise refusal.advise(
            f"its constant {constant:.4g} fits no ring: if it belongs to a mask, add it times 1 - mask to what a "
            f"Softmax over the last axis reads next, the mask being 0 and 1; else use a finite number such as -1e4"
        )
    remedies = []
    latest = failures[-1]
    for ring, fractional in _alternatives(rings, scale):
        if latest.rules_out(ring, fractional):
            continue
        try:
            attempt(ring, fractional)
        except DoesNotFitError as error:
            latest = Failure(ring, fractional, error.with_traceback(None))
            continue
        remedies.append(f"--scale {fractional}" if ring in rings else f"--ring {ring} --scale {fractional}")
        break
    if refusal.op == INPUT:  # which stays declared, whatever samples there are
        remedies.append("a smaller --input-range")
    elif magnitudes is None:
        remedies.append("--calibration data.npy, which usually gives far tighter bounds")
    elif not remedies:
        remedies.append("a smaller --input-range, or rescale the model")
    raise refusal.advise("it would fit with " + " or with ".join(remedies) if remedies else "use a smaller model")


def _beyond_all_rings(graph: Graph, name: str) -> float | None:
    """A constant of a node that not even 64 bits hold."""
    for node in graph.nodes:
        if node.name == name:
            affine = [node.op.factor, node.op.summand] if isinstance(node.op, Affine) else []
            constants = [graph.parameters[each].ravel() for each in node.inputs if each in graph.parameters]
            together = np.concatenate([affine, *constants])
            if (huge := np.abs(together) >= BEYOND).any():
                return float(together[huge][0])
    return None


def _alternatives(rings: tuple[int, ...], scale: int | None) -> Iterator[tuple[int, int]]:
    """What to try when nothing asked for fits: the widest ring asked for at lower scales, then the 64-bit ring."""
    first = scale - 1 if scale is not None else scales(rings[-1])[-1] - 1
    for fractional in range(first, LEAST_SCALE - 1, -1):
        yield rings[-1], fractional
    if 64 not in rings:
        for fractional in [scale] if scale is not None else scales(64):
            yield 64, fractional


def _reason(ring: int, fractional: int, rings: tuple[int, ...], scale: int | None, failures: list[Failure]) -> str:
    text = f"scale {fractional} in Z_2^{ring}"
    if scale is not None:
        text += ", as asked for" if len(rings) == 1 else ": the scale asked for, in the smallest ring that holds it"
    elif fractional == scales(ring)[0]:
        text += ": the largest scale Covey chooses in this ring"
    else:
        text += ": the largest scale whose bounds all fit"
    if failures:
        last = failures[-1]
        text += (
            f" (at scale {last.scale} in Z_2^{last.ring} node '{last.error.node}' would need {last.error.needed} bits)"
        )
    return text
