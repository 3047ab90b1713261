"""How close outputs are to those of the float network: their error, what of the samples they still tell, the answers.

The error of a sample is taken relative to its own output or to a typical one (the root mean square over all samples),
whichever is larger: an output that happens to be near 0 is not held against the program. The worst sample's counts as
no less than the error over all. A network that compares, such as a tree, is judged by the error over all: a sample next
to a threshold may come out as its neighbours do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from covey import reference
from covey.errors import ModelError
from covey.ir import DType, Graph, Node, Postprocess
from covey.ops.arg_max import ArgMax
from covey.ops.clip import Clip
from covey.ops.relu import Relu
from covey.result import Floats, Result, softmax

RELATIVE_ERROR_LIMIT = 0.02
"""The largest relative L2 error against floating point that passes, over all samples and for each of them."""

VARIATION_LIMIT = 0.2
"""The largest part of the variation between samples that the error may be: correlations are then above 0.98."""

NEAR_TIE = 0.08
"""Answers whose scores are closer than this part of the sample's root mean square score are a near-tie.

An error at the limit is 2 % of that for a score, and four times as much between two is as good as never seen.
"""

DISAGREEING_LIMIT = 0.01
"""The largest part of the answers that may differ without being a near-tie."""

_TINY = float(np.finfo(np.float64).tiny)

Numbers: TypeAlias = npt.NDArray[np.generic]


@dataclass(frozen=True)
class FloatReference:
    """A float run: final outputs, outputs before what is done in the clear, and the fraction alive after each ReLU.

    `scores` holds, for outputs that answer with a class, what the answer is the largest of, classes last.
    `classes` names the outputs that are class numbers or truth values; `compares` says whether the network has steps,
    where the least change of an input can make a whole difference.
    """

    source: str
    outputs: dict[str, Floats]
    logits: dict[str, Floats]
    alive: dict[str, float] = field(default_factory=dict)
    note: str = ""
    scores: dict[str, Floats] = field(default_factory=dict)
    classes: frozenset[str] = frozenset()
    compares: bool = False


@dataclass(frozen=True)
class Disagreement:
    """The answer `got` where the float network's was `expected`, `lead` ahead: a near-tie or not."""

    sample: int
    got: int
    expected: int
    lead: float | None
    near_tie: bool


@dataclass(frozen=True)
class Agreement:
    """How many of the answers of one output are the float network's, and what about the others.

    `margin` is the smallest ratio of an answer's lead to twice the largest error of a score beside it: above 1 no error
    of that size can turn any answer. `None` where scores are not known, or nothing is off.
    """

    answers: int
    differing: list[Disagreement]
    margin: float | None

    @property
    def fraction(self) -> float:
        """Of the answers, those that agree."""
        return 1.0 - len(self.differing) / max(self.answers, 1)

    @property
    def near_ties(self) -> int:
        """Differing answers that were close."""
        return sum(found.near_tie for found in self.differing)

    @property
    def good(self) -> bool:
        """Whether near-ties explain the difference, but for a hundredth of the answers."""
        return len(self.differing) - self.near_ties <= DISAGREEING_LIMIT * self.answers


@dataclass(frozen=True)
class Closeness:
    """One output against floating point.

    `relative_error` is over all samples, `worst_error` that of the sample number `worst_sample`. `unexplained` is the
    error's part of the variation between samples, `None` for a single sample. `agreement` is that of answers; `None`
    where an output has no classes. Outputs that are `classes`, class numbers or truth values, have an agreement alone.
    `compares` is that of the float network.
    """

    output: str
    relative_error: float
    worst_error: float
    worst_sample: int
    unexplained: float | None
    agreement: Agreement | None
    classes: bool = False
    compares: bool = False

    @property
    def error(self) -> float:
        """What is judged: the larger of both errors, and the one over all samples for a network that compares."""
        return self.relative_error if self.compares else max(self.relative_error, self.worst_error)

    @property
    def top1(self) -> float | None:
        """The fraction of answers that agree."""
        return None if self.agreement is None else self.agreement.fraction


def float_run(graph: Graph, inputs: Mapping[str, Floats]) -> FloatReference:
    """The float network by Covey's own reference, a part of the samples at a time."""
    maxima = {node.output: node for node in graph.nodes if isinstance(node.op, ArgMax)}
    wanted = {*graph.outputs, *(maxima[name].inputs[0] for name in graph.outputs if name in maxima)}
    rectified = {node.output: node.name for node in graph.nodes if _rectifies(node)}
    parts: dict[str, list[Floats]] = {name: [] for name in wanted}
    positive: dict[str, list[int]] = {name: [0, 0] for name in rectified}
    for name, value in reference.each(graph, inputs):
        if name in parts:
            parts[name].append(value)
        if name in positive:
            positive[name][0] += int((value > 0).sum())
            positive[name][1] += value.size
    values = {name: np.concatenate(found) for name, found in parts.items()}
    alive = {rectified[name]: above / max(size, 1) for name, (above, size) in positive.items()}
    logits = {name: values[name] for name in graph.outputs}
    outputs = {
        name: softmax(value) if graph.postprocess.get(name) is Postprocess.SOFTMAX else value
        for name, value in logits.items()
    }
    scores = {name: value for name, value in logits.items() if value.ndim == 2 and value.shape[1] > 1}
    for name, node in maxima.items():
        if name in logits and isinstance(node.op, ArgMax):
            scores[name] = np.moveaxis(values[node.inputs[0]], node.op.axis, -1)
    classes = frozenset(name for name in graph.outputs if graph.values[name].dtype is not DType.FLOAT)
    compares = any(graph.values[node.output].dtype is DType.BOOL for node in graph.nodes)
    return FloatReference("Covey's float reference", outputs, logits, alive, "", scores, classes, compares)


def _rectifies(node: Node) -> bool:
    return isinstance(node.op, Relu) or (isinstance(node.op, Clip) and node.op.low == 0)


def closeness(actual: Result, expected: FloatReference) -> list[Closeness]:
    """Every output against the float model: the larger error of the final outputs and of those before Softmax."""
    rows = []
    for name, due in expected.outputs.items():
        if name not in actual.outputs:
            raise ModelError(
                f"the float model has an output '{name}' that the program lacks: give the model it came from"
            )
        got = actual.outputs[name]
        if got.shape != due.shape:
            raise ModelError(
                f"output '{name}' has shape {list(got.shape)}, in the float model {list(due.shape)}: give the model "
                f"it came from"
            )
        scores = expected.scores.get(name)
        if name in expected.classes:
            rows.append(Closeness(name, 0.0, 0.0, 0, None, _classes_agree(got, due, scores), classes=True))
            continue
        logits, before = actual.logits[name], expected.logits[name]
        errors = [_errors(got, due), _errors(logits, before)]
        worst, sample = max(error[1:] for error in errors)
        agreement = None if scores is None else _scores_agree(logits, scores)
        overall, varies = max(error[0] for error in errors), _varies(logits, before)
        rows.append(Closeness(name, overall, worst, sample, varies, agreement, compares=expected.compares))
    return rows


def relative_error(actual: Floats, expected: Floats) -> float:
    """Norm of the difference over the norm of what was expected."""
    error = float(np.linalg.norm(actual - expected))
    return 0.0 if error == 0 else error / float(np.linalg.norm(expected) or _TINY)


def _errors(actual: Floats, expected: Floats) -> tuple[float, float, int]:
    """The relative error over all samples, the largest of a sample, and which that is."""
    off, sizes = _norms(actual - expected), _norms(expected)
    typical = float(np.sqrt(np.mean(sizes**2)))
    each = np.where(off == 0, 0.0, off / np.maximum(np.maximum(sizes, typical), _TINY))
    worst = int(each.argmax())
    overall = relative_error(actual, expected)
    return overall, max(overall, float(each[worst])), worst


def _varies(actual: Floats, expected: Floats) -> float | None:
    """The error over the variation between samples, both without their means; infinite where nothing varies."""
    if len(expected) < 2:
        return None
    variation = float(np.linalg.norm(expected - expected.mean(axis=0)))
    difference = actual - expected
    error = float(np.linalg.norm(difference - difference.mean(axis=0)))
    # What float64 itself makes of equal samples is no variation.
    if variation <= 1e-9 * float(np.linalg.norm(expected)):
        return float("inf")
    return error / variation


def _norms(values: Floats) -> Floats:
    return np.asarray(np.linalg.norm(values.reshape(len(values), -1), axis=1))


def _scores_agree(actual: Floats, scores: Floats) -> Agreement:
    """Whether the largest score of every sample is the same one."""
    error = np.abs(actual - scores).max(axis=1)
    return _agree(actual.argmax(axis=1), scores.argmax(axis=1), scores, error)


def _classes_agree(actual: Floats, expected: Floats, scores: Floats | None) -> Agreement:
    """Whether all class numbers or truth values are the same."""
    flat = None if scores is None else scores.reshape(-1, scores.shape[-1])
    return _agree(actual.ravel(), expected.ravel(), flat, None, len(actual))


def _agree(
    got: Numbers, due: Numbers, scores: Floats | None, error: Floats | None, samples: int | None = None
) -> Agreement:
    each = max(1, len(got) // (samples or len(got) or 1))  # answers a sample
    leads = None
    if scores is not None and scores.shape[-1] > 1:
        best = np.partition(scores, -2, axis=-1)
        leads = best[:, -1] - best[:, -2]
        near = leads <= NEAR_TIE * np.sqrt(np.mean(scores**2, axis=-1))
    differing = [
        Disagreement(
            int(place) // each,
            int(got[place]),
            int(due[place]),
            None if leads is None else float(leads[place]),
            leads is not None and bool(near[place]),
        )
        for place in np.flatnonzero(got != due)
    ]
    margin = None
    if leads is not None and error is not None and (error > 0).any():
        margin = float((leads[error > 0] / (2 * error[error > 0])).min())
    return Agreement(len(got), differing, margin)
