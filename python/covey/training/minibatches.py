"""Data and labels for training: read, checked, and put into minibatches."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from blake3 import blake3

from covey.arguments import is_whole
from covey.errors import DataError, ModelError, OptionError
from covey.explanation import is_training
from covey.inputs import Data, arrays_in, digits_outside, load_arrays
from covey.training.losses import LABELS

if TYPE_CHECKING:
    from covey._core import Program

Arrays = dict[str, npt.NDArray[np.float64]]


@dataclass(frozen=True)
class Form:
    """What a program of training takes: an input's name, its shape for one sample, its classes if it has such."""

    name: str
    shape: tuple[int, ...]
    classes: tuple[int, ...] | None
    low: float
    high: float


@dataclass(frozen=True)
class Records:
    """Samples by input name, the labels among them; all have as many."""

    arrays: Arrays

    def __len__(self) -> int:
        return len(self.arrays[LABELS])

    def minibatches(self, batch: int, order: npt.NDArray[np.int64]) -> Iterator[Arrays]:
        """Whole minibatches in this order; what is left over at the end is left out."""
        for start in range(0, len(order) - batch + 1, batch):
            yield {name: array[order[start : start + batch]][None] for name, array in self.arrays.items()}

    def digest(self) -> str:
        """By which data are told from others."""
        state = blake3()
        for name, array in sorted(self.arrays.items()):
            state.update(json.dumps([name, array.shape]).encode())
            state.update(array.tobytes())
        return state.hexdigest()

    def run(self, session: Any, minibatches: list[Arrays], continues: bool) -> Any:
        """A run for each minibatch, one after the other."""
        return session.infer_all(minibatches, continues=continues)


def forms_of(program: Program) -> tuple[list[Form], int]:
    """What a job takes for one sample, and the samples of a minibatch. Raises `ModelError` for other programs."""
    if not is_training(program):
        raise ModelError(f"'{program.name}' is no training job: make one with covey.compile_training or covey train")
    forms = []
    for entry in program.inputs:
        classes = entry.get("classes")
        batch, *shape = entry["shape"]
        of_sample = (
            None if classes is None else tuple(classes[: len(classes) // batch] if len(classes) > 1 else classes)
        )
        low, high = entry["low"], entry["high"]
        if of_sample is not None and all(of_sample):
            low, high = 0, max(of_sample) - 1
        forms.append(Form(entry["name"], tuple(shape), of_sample, float(low), float(high)))
    return forms, int(batch)


def check_early(data: Data, labels: Any) -> None:
    """Refuse what fits no model, before one is traced, which takes long. Raises `DataError` naming what is wrong."""
    counts = {}
    for what, source in (("data", data), ("labels", labels)):
        if source is None:
            raise _missing(what)
        for array in arrays_in(source, "training"):
            if array.dtype.kind == "f":
                _check_finite(array, what)
            if array.size > 0 and array.ndim > 0:
                counts[what] = len(array)
    if len(set(counts.values())) > 1:
        raise _differing(counts)


def read(data: Data, labels: Any, forms: Sequence[Form], batch: int) -> Records:
    """The samples of a data set for inputs of these forms. Raises `DataError` naming what is wrong."""
    if labels is None:
        raise _missing("labels")
    inputs = [form for form in forms if form.name != LABELS]
    arrays = dict(load_arrays(data, [form.name for form in inputs], "training"))
    given = load_arrays(labels, [LABELS], "training")[LABELS]
    checked = {form.name: _check(_array(arrays[form.name]), form) for form in inputs}
    (of_labels,) = (form for form in forms if form.name == LABELS)
    checked[LABELS] = _check(_shaped(_array(given), of_labels), of_labels)
    counts = {name: len(array) for name, array in checked.items()}
    if len(set(counts.values())) > 1:
        raise _differing(counts)
    count = next(iter(counts.values()))
    if count < batch:
        raise DataError(f"{count} samples do not fill a minibatch of {batch}: give more, or compile a smaller --batch")
    return Records(checked)


def _missing(what: str) -> DataError:
    return DataError(f"the {what} are missing: training takes samples and the label of each")


def _differing(counts: dict[str, int]) -> DataError:
    return DataError(f"data and labels have different numbers of samples ({counts}): give the same number of each")


def steps_of_epoch(labels: Any, batch: int) -> int:
    """The whole minibatches of a data set with these labels, or 1 where they do not fill one."""
    shape = np.shape(load_arrays(labels, [LABELS], "training")[LABELS])
    return max(int(shape[0]) // max(batch, 1), 1) if shape else 1


def _array(source: Any) -> npt.NDArray[Any]:
    """What holds numbers, such as a list, as an array; of other things, and of rows that differ, one of objects."""
    try:
        return np.asarray(source)
    except ValueError:
        return np.empty(0, dtype=object)


def _shaped(array: npt.NDArray[Any], form: Form) -> npt.NDArray[Any]:
    """Labels [N] where the model has one number a sample [N, 1]: dimensions of one element may be there or not."""
    if array.ndim >= 1 and _longer_than_one(array.shape[1:]) == _longer_than_one(form.shape):
        return array.reshape(len(array), *form.shape)
    return array


def _longer_than_one(shape: tuple[int, ...]) -> list[int]:
    return [size for size in shape if size != 1]


def _check(array: npt.NDArray[Any], form: Form) -> npt.NDArray[np.float64]:
    what = "labels" if form.name == LABELS else f"data for '{form.name}'"
    if array.dtype.kind not in "fiub":
        raise DataError(f"the {what} are no array of numbers: give NumPy arrays or tensors")
    if array.ndim == 0 or len(array) == 0:
        raise DataError(f"the {what} have no samples: give at least one")
    if array.shape[1:] != form.shape:
        due = ", ".join(["N", *map(str, form.shape)])
        raise DataError(f"the {what} have shape {list(array.shape)}, expected [{due}]: reshape them")
    floats = np.ascontiguousarray(array, dtype=np.float64)
    _check_finite(floats, what)
    wrong = (floats < form.low) | (floats > form.high)
    if form.classes is not None:
        wrong |= floats != np.rint(floats)
    if wrong.any():
        place = tuple(int(index) for index in np.argwhere(wrong)[0])
        value, digits = float(floats[place]), 15
        where = f"where whole numbers from {form.low:g} to {form.high:g} go"
        if form.classes is None:
            digits = digits_outside(value, form.low, form.high)
            where = f"outside [{form.low:.{digits}g}, {form.high:.{digits}g}]"
        raise DataError(f"the {what} hold {value:.{digits}g} in sample {place[0]}, {where}: check them")
    return floats


def _check_finite(array: npt.NDArray[Any], what: str) -> None:
    finite = np.isfinite(array)
    if not finite.all():
        place = np.argwhere(~finite)[0].tolist()
        raise DataError(
            f"the {what} hold {array[tuple(place)]}" + f" in sample {place[0]}" * bool(place) + ": clean them first"
        )


def check_epochs(epochs: int) -> None:
    """Raise `OptionError` for no number of passes over the data."""
    if not is_whole(epochs) or epochs < 1:
        raise OptionError(f"{epochs!r} epochs: ask for a whole number, at least 1")


def check_seed(seed: int) -> None:
    """Raise `OptionError` for what no order of samples follows from."""
    if not is_whole(seed) or seed < 0:
        raise OptionError(f"seed {seed!r}: give a whole number from 0 on")


def shuffled(count: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    """The order of an epoch's samples, which anyone can work out of the seed."""
    return np.random.default_rng([seed, epoch]).permutation(count)
