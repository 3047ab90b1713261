"""What a tuned program must keep: a classifier its accuracy, another network the values of its outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from covey import certificate, closeness
from covey._proto import program_pb2 as pb
from covey.certificate import Classes
from covey.closeness import FloatReference
from covey.errors import OptionError
from covey.inputs import Floats
from covey.ir import Graph
from covey.measure import run
from covey.model import Model

ACCURACY_TOLERANCE = 0.002
"""How much accuracy a classifier may lose unless told otherwise, as a fraction."""

ERROR_TOLERANCE = 0.01
"""How far other networks' outputs may be off, relative L2: half of what `verify` accepts."""


@dataclass(frozen=True)
class Attempt:
    """One scale in one ring: how many samples came out right, how far outputs are off, or why it could not be run."""

    scale: int
    ring: int
    correct: int | None = None
    error: float | None = None
    why_not: str = ""


@dataclass(frozen=True)
class Validation:
    """Validation data: inputs [N, ..] by name, the class of each sample if known, and what the data are called."""

    inputs: Mapping[str, Floats]
    labels: Classes | None
    name: str

    @property
    def samples(self) -> int:
        """How many there are."""
        return len(next(iter(self.inputs.values())))


class Goal(Protocol):
    """How programs are judged while scale and ring are searched."""

    @property
    def tolerance(self) -> float:
        """What may be lost, as a fraction."""

    @property
    def max_error(self) -> float:
        """How far from floating point outputs may be, relative L2, as far as that is a goal."""

    @property
    def float_correct(self) -> int | None:
        """Samples that the float network has right; `None` where there are no classes."""

    def score(self, scale: int, ring: int, model: Model) -> Attempt:
        """Run a program in the clear. Raises `CoveyError` when a value leaves its bound."""

    def enough(self, attempt: Attempt) -> bool:
        """Whether this is within the tolerance."""

    def record(self, attempt: Attempt) -> pb.Certificate:
        """The accuracy record of a program that did so well."""

    def missed(self, attempts: Sequence[Attempt]) -> str:
        """Why no program that ran is enough."""


@dataclass(frozen=True)
class Accuracy:
    """A classifier's: without labels, right is what the float network answers."""

    graph: Graph
    validation: Validation
    tolerance: float = ACCURACY_TOLERANCE

    @property
    def max_error(self) -> float:
        """What `verify` accepts."""
        return closeness.RELATIVE_ERROR_LIMIT

    @cached_property
    def answers(self) -> Classes:
        """The float network's."""
        return certificate.float_classes(self.graph, self.validation.inputs)

    @property
    def labels(self) -> Classes:
        """What is right."""
        return self.answers if self.validation.labels is None else self.validation.labels

    @property
    def float_correct(self) -> int:
        """Samples that the float network has right."""
        return int((self.answers == self.labels).sum())

    def score(self, scale: int, ring: int, model: Model) -> Attempt:
        """Count the right answers."""
        answers = certificate.fixed_classes(model, self.validation.inputs)
        return Attempt(scale, ring, correct=int((answers == self.labels).sum()))

    def enough(self, attempt: Attempt) -> bool:
        """Whether as many are right, but for the tolerance."""
        if attempt.correct is None:
            return False
        return certificate.good_enough(attempt.correct, self.float_correct, self.validation.samples, self.tolerance)

    def record(self, attempt: Attempt) -> pb.Certificate:
        """States how many are right."""
        return pb.Certificate(
            data=self.validation.name,
            digest=certificate.digest(self.validation.inputs, self.validation.labels),
            samples=self.validation.samples,
            labelled=self.validation.labels is not None,
            float_correct=self.float_correct,
            fixed_correct=attempt.correct or 0,
            tolerance=self.tolerance,
        )

    def missed(self, attempts: Sequence[Attempt]) -> str:
        """The best accuracy there was."""
        samples = self.validation.samples
        best = max(attempts, key=lambda attempt: attempt.correct or 0)
        return (
            f"no scale keeps the accuracy within {100 * self.tolerance:g} points of the float model's "
            f"{self.float_correct / samples:.2%}: the best is {(best.correct or 0) / samples:.2%} at scale "
            f"{best.scale}; allow more with --tolerance"
        )


@dataclass(frozen=True)
class Nearness:
    """Of a network without classes: its outputs stay near those of the float network."""

    graph: Graph
    validation: Validation
    tolerance: float = ERROR_TOLERANCE

    def __post_init__(self) -> None:
        if self.validation.labels is not None:
            shape = ["N", *self.graph.values[self.graph.outputs[0]].shape]
            raise OptionError(
                f"labels are classes, and the first output {shape} is numbers: leave labels out, the float model's "
                f"outputs are what is right"
            )

    @property
    def max_error(self) -> float:
        """The tolerance."""
        return self.tolerance

    @property
    def float_correct(self) -> None:
        """There are no classes to be right about."""

    @cached_property
    def expected(self) -> FloatReference:
        """The float network's outputs."""
        return closeness.float_run(self.graph, self.validation.inputs)

    def score(self, scale: int, ring: int, model: Model) -> Attempt:
        """Measure how far the outputs are off."""
        return Attempt(scale, ring, error=output_error(model, self.expected, self.validation.inputs))

    def enough(self, attempt: Attempt) -> bool:
        """Whether the outputs are near enough."""
        return attempt.error is not None and attempt.error <= self.tolerance

    def record(self, attempt: Attempt) -> pb.Certificate:
        """States how far the outputs are off."""
        return pb.Certificate(
            data=self.validation.name,
            digest=certificate.digest(self.validation.inputs, None),
            samples=self.validation.samples,
            relative_error=attempt.error,
            tolerance=self.tolerance,
        )

    def missed(self, attempts: Sequence[Attempt]) -> str:
        """The smallest error there was."""
        best = min(attempts, key=lambda attempt: attempt.error if attempt.error is not None else float("inf"))
        return (
            f"no scale keeps the outputs within {self.tolerance:.2%} of the float model's: the nearest are "
            f"{best.error or 0.0:.2%} off at scale {best.scale}; allow more with --tolerance"
        )


def goal(
    graph: Graph, validation: Validation, tolerance: float | None, *, regression: bool = False
) -> Accuracy | Nearness:
    """What to tune a network for: accuracy where its first output is classes, else the values of its outputs."""
    if certificate.answers_classes(graph) and not regression:
        return Accuracy(graph, validation, ACCURACY_TOLERANCE if tolerance is None else tolerance)
    return Nearness(graph, validation, ERROR_TOLERANCE if tolerance is None else tolerance)


def output_error(model: Model, expected: FloatReference, inputs: Mapping[str, Floats]) -> float:
    """The largest relative L2 error of an output, over all samples and of the worst, in the clear."""
    return max(row.error for row in closeness.closeness(run(model, inputs), expected))
