"""The smallest scale and ring that keep a classifier as accurate as in floating point, or other networks as near.

For every scale the bit-exact program runs on validation data in 64 bits, where it hardly ever runs out of room. The
smallest scale within the tolerance is taken, and then the smallest ring that holds its bounds, where it is run again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace

from covey._core import Program, Weights
from covey.compiled import Prepared
from covey.errors import CoveyError, DoesNotFitError, OptionError
from covey.goals import Attempt, Goal, Validation, goal
from covey.lowering import Lowering, Settings
from covey.measure import Measured
from covey.model import Model
from covey.passes.scale_choice import Choice
from covey.passes.truncation_placement import place_truncations
from covey.search import table_error
from covey.tuned import Tuned

SCALES = range(8, 25)
"""Fractional bits that are tried."""

WIDE = 64
"""The ring in which scales are compared."""

Progress = Callable[[int, int, str], None]


def tune(
    prepared: Prepared,
    validation: Validation,
    *,
    rings: Sequence[int],
    tolerance: float | None = None,
    regression: bool = False,
    settings: Settings | None = None,
    progress: Progress = lambda done, total, what: None,
) -> Tuned:
    """Search scale and ring. Without labels, right is what the float network answers.

    `tolerance` is how much lower than the float network's the accuracy may be, as a fraction, 0.002 unless told
    otherwise. Of a `regression`, which every network is whose first output is no classes, it is the relative L2 error
    of the outputs, 0.01 unless told otherwise. Raises `OptionError` when no scale is good enough.
    """
    progress(0, len(SCALES), "in floating point")
    wanted = goal(prepared.graph, validation, tolerance, regression=regression)
    search = _Search(prepared, wanted, settings or Settings(WIDE, 0))
    samples, float_correct = validation.samples, wanted.float_correct

    scales = []
    for index, scale in enumerate(SCALES):
        progress(index, len(SCALES), f"scale {scale}")
        scales.append(search.attempt(scale, WIDE)[0])
    chosen = next((attempt.scale for attempt in scales if wanted.enough(attempt)), None)
    if chosen is None:
        ran = [attempt for attempt in scales if not attempt.why_not]
        if not ran and search.failed is not None:
            raise search.failed
        raise OptionError(
            wanted.missed(ran)
            if ran
            else f"no scale from {SCALES[0]} to {SCALES[-1]} fits {WIDE} bits: {scales[0].why_not}"
        )

    tried = []
    for ring in rings:
        progress(len(SCALES), len(SCALES), f"{ring} bits")
        found, choice = search.attempt(chosen, ring)
        tried.append(found)
        if choice is not None and wanted.enough(found):
            made = wanted.record(found)
            compiled = prepared.finished(choice, made, search.measured(choice))
            compiled.report["tuning"] = {
                "samples": samples,
                "float_correct": float_correct,
                "tolerance": wanted.tolerance,
                "scales": [asdict(attempt) for attempt in scales],
                "rings": [asdict(attempt) for attempt in tried],
            }
            return Tuned(compiled, scales, tried, samples, float_correct, made)
    raise OptionError(
        f"scale {chosen} is accurate enough, but no ring holds it ({tried[-1].why_not}): use a smaller model"
    )


class _Search:
    """Programs of one network, each judged by the same goal."""

    def __init__(self, prepared: Prepared, wanted: Goal, settings: Settings) -> None:
        self.prepared = prepared
        self.wanted = wanted
        error = table_error(prepared.few, settings.table_error, wanted.max_error)
        self.settings = replace(settings, table_error=error)
        self.left_wide = place_truncations(prepared.graph)
        self.failed: CoveyError | None = None
        """Why the first program failed that fits and could not run."""

    def attempt(self, scale: int, ring: int) -> tuple[Attempt, Choice | None]:
        """Lower and run the network once."""
        settings = replace(self.settings, ring_bits=ring, scale=scale)
        known = self.prepared
        lowering = Lowering(known.graph, settings, known.ranges, known.magnitudes, self.left_wide)
        try:
            lowering.run()
        except DoesNotFitError as error:
            why_not = f"{error.node} takes {error.needed} bits of {error.available}"
            return Attempt(scale, ring, why_not=why_not), None
        choice = Choice(lowering, f"scale {scale} in Z_2^{ring}, tuned on validation data")
        compiled = known.finished(choice)
        program = Program(compiled.program_bytes)
        model = Model(program, Weights(compiled.weights_bytes, program))
        try:
            return self.wanted.score(scale, ring, model), choice
        except CoveyError as error:  # a value left its bound
            self.failed = self.failed or error.with_traceback(None)
            return Attempt(scale, ring, why_not=str(error)), None

    def measured(self, choice: Choice) -> Measured | None:
        """The program on the calibration data, as `compile` reports it; `None` without any."""
        samples = self.prepared.few
        if samples is None:
            return None
        compiled = self.prepared.finished(choice)
        return replace(samples.measure(compiled), grows=samples.growth(compiled))
