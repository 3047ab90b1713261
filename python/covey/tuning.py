"""The smallest scale and ring that keep a classifier as accurate as it is in floating point.

For every scale the bit-exact program runs on validation data in 64 bits, where it hardly ever runs out of room. The
smallest scale within the tolerance is taken, and then the smallest ring that holds its bounds, where it is run again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from covey import certificate
from covey._core import Program, Weights
from covey._proto import program_pb2 as pb
from covey.certificate import Classes, good_enough
from covey.compile import Prepared
from covey.errors import CoveyError, DoesNotFitError, OptionError
from covey.inputs import Floats
from covey.lowering import Lowering, Settings
from covey.model import Model
from covey.passes.scale_choice import Choice
from covey.passes.truncation_placement import place_truncations
from covey.tuned import Attempt, Tuned

SCALES = range(8, 25)
"""Fractional bits that are tried."""

WIDE = 64
"""The ring in which scales are compared."""

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Validation:
    """Validation data: inputs [N, ..] by name, the class of each sample if known, and what the data are called."""

    inputs: Mapping[str, Floats]
    labels: Classes | None
    name: str


def tune(
    prepared: Prepared,
    validation: Validation,
    *,
    rings: Sequence[int],
    tolerance: float = 0.002,
    settings: Settings | None = None,
    progress: Progress = lambda done, total, what: None,
) -> Tuned:
    """Search scale and ring. Without labels, right is what the float network answers.

    `tolerance` is how much lower than the float network's the accuracy may be, as a fraction. Raises `OptionError` when
    no scale is good enough.
    """
    search = _Search(prepared, validation, settings or Settings(WIDE, 0))
    progress(0, len(SCALES), "in floating point")
    answers = certificate.float_classes(prepared.graph, validation.inputs)
    labels = answers if validation.labels is None else validation.labels
    float_correct, samples = int((answers == labels).sum()), len(labels)

    def enough(attempt: Attempt) -> bool:
        return attempt.correct is not None and good_enough(attempt.correct, float_correct, samples, tolerance)

    scales = []
    for index, scale in enumerate(SCALES):
        progress(index, len(SCALES), f"scale {scale}")
        scales.append(search.attempt(scale, WIDE, labels)[0])
    chosen = next((attempt.scale for attempt in scales if enough(attempt)), None)
    if chosen is None:
        raise OptionError(_no_scale(scales, float_correct, samples, tolerance))

    tried = []
    for ring in rings:
        progress(len(SCALES), len(SCALES), f"{ring} bits")
        found, choice = search.attempt(chosen, ring, labels)
        tried.append(found)
        if choice is not None and enough(found):
            made = pb.Certificate(
                data=validation.name,
                digest=certificate.digest(validation.inputs, validation.labels),
                samples=samples,
                labelled=validation.labels is not None,
                float_correct=float_correct,
                fixed_correct=found.correct,
                tolerance=tolerance,
            )
            compiled = prepared.finished(choice, made)
            compiled.report["tuning"] = {
                "samples": samples,
                "float_correct": float_correct,
                "tolerance": tolerance,
                "scales": [asdict(attempt) for attempt in scales],
                "rings": [asdict(attempt) for attempt in tried],
            }
            return Tuned(compiled, scales, tried, samples, float_correct, made)
    raise OptionError(
        f"scale {chosen} is accurate enough, but no ring holds it ({tried[-1].why_not}): use a smaller model"
    )


class _Search:
    def __init__(self, prepared: Prepared, validation: Validation, settings: Settings) -> None:
        self.prepared = prepared
        self.validation = validation
        self.settings = settings
        self.left_wide = place_truncations(prepared.graph)

    def attempt(self, scale: int, ring: int, labels: Classes) -> tuple[Attempt, Choice | None]:
        """Lower and run the network once."""
        settings = Settings(ring, scale, self.settings.truncation, self.settings.division, self.settings.public_weights)
        known = self.prepared
        lowering = Lowering(known.graph, settings, known.ranges, known.magnitudes, self.left_wide)
        try:
            lowering.run()
        except DoesNotFitError as error:
            return Attempt(scale, ring, None, f"{error.node} takes {error.needed} bits of {error.available}"), None
        choice = Choice(lowering, f"scale {scale} in Z_2^{ring}, tuned on {len(labels)} samples")
        compiled = known.finished(choice)
        program = Program(compiled.program_bytes)
        model = Model(program, Weights(compiled.weights_bytes, program))
        try:
            correct = int((certificate.fixed_classes(model, self.validation.inputs) == labels).sum())
        except CoveyError as error:  # a value left its bound
            return Attempt(scale, ring, None, str(error)), None
        return Attempt(scale, ring, correct), choice


def _no_scale(scales: Sequence[Attempt], float_correct: int, samples: int, tolerance: float) -> str:
    ran = [attempt for attempt in scales if attempt.correct is not None]
    if not ran:
        return f"no scale from {SCALES[0]} to {SCALES[-1]} fits {WIDE} bits: {scales[0].why_not}"
    best = max(ran, key=lambda attempt: attempt.correct or 0)
    return (
        f"no scale keeps the accuracy within {100 * tolerance:g} points of the float model's "
        f"{float_correct / samples:.2%}: the best is {(best.correct or 0) / samples:.2%} at scale {best.scale}; allow "
        f"more with --tolerance"
    )
