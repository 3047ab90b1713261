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
    count = len(numbers)
    shape = encoded_shape(classes, numbers.shape[1:])
    rows = numbers.reshape(count, -1)
    columns = [
        rows[:, [place]] if not many else (rows[:, [place]] == np.arange(many)).astype(np.float64)
        for place, many in enumerate(each(classes, numbers.shape[1:]).tolist())
    ]
    return np.concatenate(columns, axis=1).reshape(count, *shape)


def check(numbers: Array, classes: Sequence[int], low: float, high: float, what: str) -> None:
    """Refuse what is not whole, negative, not below its classes, or, without classes, outside [low, high].

    `numbers` is [N, ..]; `what` names them. Raises `DataError` with the sample, the place in it and the number.
    """
    counts = each(classes, numbers.shape[1:]).reshape(numbers.shape[1:])
    least, most = np.where(counts > 0, 0.0, low), np.where(counts > 0, counts - 1.0, high)
    wrong = (numbers != np.rint(numbers)) | (numbers < least) | (numbers > most)
    if not wrong.any():
        return
    sample, *place = (int(index) for index in np.argwhere(wrong)[0])
    inside = tuple(place)
    where = f"in sample {sample}" + (f" at {place}" if place else "")
    of = f", its {counts[inside]} classes" if counts[inside] else ""
    raise DataError(
        f"{what} holds {numbers[(sample, *place)]:.15g} {where}: give whole numbers from {least[inside]:.15g} to "
        f"{most[inside]:.15g}{of}"
    )


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
