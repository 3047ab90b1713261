"""Inputs of whole numbers: token ids and categories. How many classes each number has, and how it is shared.

Of a number with n classes its owner's client shares n elements, 1 at the number's place and 0 elsewhere (one-hot); of a
number with 0 classes the number itself. `classes` gives one count for all numbers of a sample, or one each, row-major.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from covey.errors import DataError

Array = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


def each(classes: Sequence[int], shape: Sequence[int]) -> Counts:
    """The number of classes of each number of a sample of this shape, row-major."""
    return np.array(np.broadcast_to(np.array(classes, dtype=np.int64), (prod(shape),)))


def encoded_shape(classes: Sequence[int], shape: Sequence[int]) -> tuple[int, ...]:
    """The shape of one sample as it is shared."""
    if len(classes) > 1:
        return (int(np.maximum(np.array(classes, dtype=np.int64), 1).sum()),)
    return (*shape, classes[0]) if classes[0] else tuple(shape)


def encode(numbers: Array, classes: Sequence[int]) -> Array:
    """Numbers [N, ..] as they are shared."""
    if len(classes) == 1:
        return _one_hot(numbers[..., None], classes[0]) if classes[0] else numbers
    columns = np.split(numbers.reshape(len(numbers), -1), len(classes), axis=1)
    parts = [_one_hot(column, many) if many else column for column, many in zip(columns, classes, strict=True)]
    return np.concatenate(parts, axis=1)


def _one_hot(column: Array, many: int) -> Array:
    return np.asarray(column == np.arange(many), dtype=np.float64)


def spans(
    classes: Sequence[int], shape: Sequence[int], span: tuple[float, float]
) -> tuple[Array, Array, tuple[float, float]]:
    """The least and the largest that each element of a sample can be as it is shared, and the range of all of them.

    `span` is that of numbers without classes.
    """
    counts = each(classes, shape)
    low, high = span
    if counts.any():
        low, high = (0.0, 1.0) if counts.all() else (min(low, 0.0), max(high, 1.0))
    one_hot = np.repeat(counts > 0, np.maximum(counts, 1)).reshape(encoded_shape(classes, shape))
    return np.where(one_hot, 0.0, low), np.where(one_hot, 1.0, high), (low, high)


def check(numbers: Array, classes: Sequence[int], low: float, high: float, what: str) -> None:
    """Refuse what is not whole, negative, not below its classes, or, without classes, outside [low, high].

    `numbers` is [N, ..]; `what` names them. Raises `DataError` with the sample, the place in it and the number.
    """
    counts = each(classes, numbers.shape[1:]).reshape(numbers.shape[1:])
    least, most = np.where(counts > 0, 0.0, low), np.where(counts > 0, counts - 1.0, high)
    wrong = (numbers != np.rint(numbers)) | (numbers < least) | (numbers > most)
    if not wrong.any():
        return
    at = tuple(int(index) for index in np.argwhere(wrong)[0])
    inside = at[1:]
    where = f"in sample {at[0]}" + (f" at {list(inside)}" if inside else "")
    due = f"from {least[inside]:.15g} to {most[inside]:.15g}"
    of = f", its {counts[inside]} classes" if counts[inside] else ""
    raise DataError(f"{what} holds {numbers[at]:.15g} {where}: give whole numbers {due}{of}")


def draw(rng: np.random.Generator, classes: Sequence[int], low: float, high: float, shape: Sequence[int]) -> Array:
    """Random numbers of this shape [N, ..]."""
    counts = each(classes, shape[1:]).reshape(tuple(shape[1:]))
    least, most = np.where(counts > 0, 0, int(low)), np.where(counts > 0, counts - 1, int(high))
    return np.asarray(rng.integers(least, most, tuple(shape), endpoint=True), dtype=np.float64)


def describe(classes: Sequence[int]) -> str:
    """How such an input is shared, for a listing."""
    if not any(classes):
        return "whole numbers"
    if len(classes) == 1 or len(set(classes)) == 1:
        return f"whole numbers below {classes[0]}, one-hot"
    counts: list[Any] = list(classes) if len(classes) <= 8 else [*classes[:7], ".."]
    return f"whole numbers of {', '.join(str(count) if count else 'no' for count in counts)} classes, one-hot"
