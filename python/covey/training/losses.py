"""Losses: what the minibatch's outputs and labels give, and the gradient that goes back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from covey.errors import DataError, OptionError
from covey.functions import EXP, SIGMOID, SOFTPLUS
from covey.interval import Array
from covey.ir import DType, Shape, Value
from covey.ops.average_pool import SumPool
from covey.ops.bits import BitToInteger
from covey.ops.logic import Both
from covey.ops.max_pool import MaxPool
from covey.ops.reshape import Reshape
from covey.ops.scalar import Scalar
from covey.ops.softmax import LogSoftmax
from covey.ops.whole_numbers import Encode, Lookup
from covey.ops.window import Window
from covey.training.builder import Builder

LABELS = "labels"
"""What the input of labels is called."""

WEIGHTS = "class_weights"
"""What the weights of classes are called, which are secret as the model's are."""


def input_of_labels(build: Builder, shape: Shape, dtype: DType = DType.FLOAT) -> Value:
    """The input of labels, whose name no other value has."""
    build.graph.reserved.discard(LABELS)
    return build.input(LABELS, shape, dtype)


Emit = Callable[[Builder, Value, Array | None], "Loss"]
"""What makes a loss of scores and the weights of classes, if there are any."""


@dataclass(frozen=True)
class Loss:
    """What is opened of a step, and the gradient at the model's output, `mean` times which is that of the loss."""

    loss: Value
    right: Value | None
    gradient: Value
    mean: float


def cross_entropy(build: Builder, scores: Value, weights: Array | None) -> Loss:
    """The mean of -log of the softmax of scores [B, .., C] at the class of each label, times the class's weight."""
    *lead, classes = scores.shape
    labels = input_of_labels(build, tuple(lead), DType.INDEX)
    build.graph.classes[labels.name] = (classes,)
    truth = build.emit(Encode((classes,)), labels, hint="one_hot")
    logarithms = build.emit(LogSoftmax(), scores, hint="logarithms")
    powers = build.emit(Scalar(EXP), logarithms, hint="shares")
    count = truth.size // classes
    ours = build.mul(truth, logarithms)
    if weights is not None:
        weight = build.emit(Lookup(), truth, build.parameter(WEIGHTS, weights[:, None]), hint="weights")
        ours = build.mul(build.sum_over(ours, [len(lead)]), weight)
        powers = build.mul(powers, weight)
    loss = _mean(build, ours, -1.0 / count)
    # Shares of a table do not add up to 1. Less their sum at the label's class, a row of the gradient adds up to 0: a
    # shift of all scores changes no loss, so that nothing would take it back.
    whole = build.mul(truth, build.sum_over(powers, [len(lead)]))
    return Loss(loss, _right(build, scores, truth), build.sub(powers, whole), 1.0 / count)


def _right(build: Builder, scores: Value, truth: Value) -> Value:
    """How many labels have the largest score, or one as large."""
    *lead, classes = scores.shape
    rows = build.reshape(scores, (1, truth.size // classes, classes))
    largest = build.emit(MaxPool(Window((1, classes))), rows, hint="largest")
    ours = build.sum_over(build.mul(truth, scores), [len(lead)])
    short = build.sub(build.reshape(ours, largest.shape), largest)
    wrong = _count(build, build.emit(BitToInteger(), build.negative(short), hint="wrong"))
    return build.affine(wrong, -1.0, float(truth.size // classes))


def binary_cross_entropy(build: Builder, scores: Value, weights: Array | None) -> Loss:
    """The mean of log(1 + exp(z)) - y z over scores z [B, ..] and labels y, 0 or 1, each times the label's weight."""
    labels = input_of_labels(build, scores.shape, DType.INDEX)
    build.graph.classes[labels.name] = (0,)
    build.graph.truths.add(labels.name)
    truth = build.emit(Encode((0,)), labels, hint="truth")
    rising = build.emit(Scalar(SOFTPLUS), scores, hint="rising")
    losses = build.sub(rising, build.mul(truth, scores))
    shares = build.emit(Scalar(SIGMOID), scores, hint="shares")
    gradient = build.sub(shares, truth)
    if weights is not None:
        of_zero, more = (
            build.parameter(WEIGHTS, np.atleast_1d(each)) for each in (weights[0], weights[1] - weights[0])
        )
        weight = build.add(build.mul(truth, more), of_zero)
        losses, gradient = build.mul(losses, weight), build.mul(gradient, weight)
    loss = _mean(build, losses, 1.0 / scores.size)
    below = build.emit(BitToInteger(), build.negative(scores), hint="below")
    # A score from 0 on says 1.
    right = build.emit(Both(1, -2), below, truth, hint="right", dtype=DType.BOOL)
    return Loss(loss, _count(build, right), gradient, 1.0 / scores.size)


def mean_squared_error(build: Builder, scores: Value, weights: Array | None) -> Loss:
    """The mean of the squares of what outputs are off their targets, which are no classes."""
    target = input_of_labels(build, scores.shape)
    off = build.sub(scores, target)
    loss = _mean(build, build.mul(off, off), 1.0 / scores.size)
    return Loss(loss, None, off, 2.0 / scores.size)


LOSSES: dict[str, Emit] = {
    "cross-entropy": cross_entropy,
    "binary-cross-entropy": binary_cross_entropy,
    "mse": mean_squared_error,
}
"""By the names that users give."""


def loss_of(name: str) -> Emit:
    """The loss of this name. Raises `OptionError`."""
    if not isinstance(name, str) or name not in LOSSES:
        raise OptionError(f"loss {name!r} is unknown: use one of {', '.join(LOSSES)}")
    return LOSSES[name]


def weights_of(name: str, given: Any, outputs: Shape) -> Array | None:
    """The weights of the classes of a loss of this name, for one sample's outputs. Raises `OptionError`."""
    if given is None:
        return None
    if name == "mse":
        raise OptionError("class_weights are for cross-entropy and binary-cross-entropy: mse has no classes")
    try:
        weights = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise OptionError(f"class_weights is {given!r}: give a number for each class, such as [1.0, 4.0]") from None
    due = [(outputs[-1],)] if name == "cross-entropy" else [(2,), (2, *outputs)]
    if weights.shape not in due:
        shapes = " or ".join(str(list(shape)) for shape in due)
        raise OptionError(f"class_weights have shape {list(weights.shape)}: {name} on this model takes {shapes}")
    if not (np.isfinite(weights).all() and weights.min() >= 0 and weights.max() > 0):
        raise OptionError("class_weights: give finite numbers from 0 on that are not all 0")
    return weights


def check_labels(name: str, given: Any, labels: Array) -> None:
    """That what calibration data say of gradients holds for all classes. Raises `DataError`."""
    if given is None:
        return
    weights = np.asarray(given, dtype=np.float64)
    of_labels = (
        weights[labels.astype(np.int64)] if name == "cross-entropy" else np.where(labels, weights[1], weights[0])
    )
    if of_labels.max() < weights.max():
        raise DataError(
            f"none of the {len(labels)} samples that calibration takes has the largest of class_weights, "
            f"{weights.max():g}: give it more samples of that class"
        )


def _mean(build: Builder, x: Value, factor: float) -> Value:
    total = build.sum_over(x, list(range(len(x.shape))))
    return build.affine(build.reshape(total, (1,)), factor)


def _count(build: Builder, x: Value) -> Value:
    """The sum of truth values."""
    rows = build.reshape(x, (1, 1, x.size))
    total = build.emit(SumPool(Window((1, x.size))), rows, hint="count")
    return build.emit(Reshape((1,)), total, hint="counted")


def shape_of_labels(name: str, outputs: Shape) -> Shape:
    """The shape of one sample's labels for outputs of this shape."""
    return outputs[:-1] if name == "cross-entropy" else outputs
