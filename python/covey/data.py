"""Calibration data and input ranges: read, checked, and turned into what range analysis needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from covey import whole
from covey.errors import DataError, OptionError
from covey.inputs import Data, digits_outside, infinite, listed, load_arrays
from covey.interval import Array
from covey.ir import Graph, Value

WIDENING = 0.1
"""How much of its span an input range taken from data is widened on either side."""

CLASSES = "its classes"
TRUTHS = "its truth values"
"""What says the range of an input of whole numbers, as reports have it."""

Ranges: TypeAlias = "tuple[float, float] | Sequence[float] | Mapping[str, tuple[float, float]]"
"""One range for all inputs, or ranges by input name."""


def read_samples(
    source: Data, graph: Graph, what: str = "calibration", missing: int | None = None, *, heeds: bool = False
) -> dict[str, Array]:
    """Samples for every input of a graph as float64 [N, ..]. Raises `DataError` naming what is wrong.

    `missing` takes the place of NaN; `heeds` says that the network would make use of such a number.
    """
    arrays = load_arrays(source, graph.inputs, what)
    if missing is not None:
        arrays = {name: _filled(array, missing, name, what) for name, array in arrays.items()}
    checked = {name: _check(arrays[name], graph, graph.values[name], what, heeds) for name in graph.inputs}
    counts = {name: len(array) for name, array in checked.items()}
    if len(set(counts.values())) > 1:
        raise DataError(f"{what} data has different numbers of samples ({counts}): give the same number for each input")
    return checked


def ranges_of_classes(graph: Graph) -> dict[str, tuple[float, float]]:
    """The inputs whose numbers all have classes, each with 0 and its largest class; and those of 0 and 1."""
    found = {name: (0.0, max(classes) - 1.0) for name, classes in graph.classes.items() if all(classes)}
    return {**found, **dict.fromkeys(graph.truths, (0.0, 1.0))}


def said_by(graph: Graph, name: str) -> str:
    """What says the range of such an input."""
    return TRUTHS if name in graph.truths else CLASSES


def read_ranges(source: Ranges, graph: Graph, names: Sequence[str]) -> dict[str, tuple[float, float]]:
    """The declared interval of the inputs `names`, within which whole numbers stay whole. Raises `OptionError`."""
    pairs: dict[str, Any]
    if isinstance(source, Mapping):
        pairs = dict(source)
        for name in graph.truths & pairs.keys():
            if tuple(pairs[name]) == (0, 1):
                del pairs[name]
        for name in (*pairs, *names):
            if name in graph.inputs and name not in names:
                raise OptionError(f"input range for '{name}': {said_by(graph, name)} already say it, leave it out")
            if name not in names or name not in pairs:
                raise OptionError(f"input range for '{name}': give one for each of the inputs {listed(names)}")
    else:
        pairs = dict.fromkeys(names, source)
    ranges = {}
    for name, pair in pairs.items():
        try:
            low, high = (float(bound) for bound in pair)
        except (TypeError, ValueError):
            raise OptionError(f"input range {pair!r} is not two numbers: write it as low,high") from None
        if not (np.isfinite(low) and np.isfinite(high) and low <= high):
            raise OptionError(
                f"input range {low:g},{high:g} is not an interval of finite numbers: write it as low,high"
            )
        if name in graph.classes:
            low, high = float(np.ceil(low)), float(np.floor(high))
            if low > high:
                raise OptionError(f"input range {pair!r} holds no whole number, of which the input '{name}' is made")
        ranges[name] = (low, high)
    return ranges


def check_narrow(graph: Graph, ranges: Mapping[str, tuple[float, float]]) -> None:
    """Refuse ranges of inputs whose numbers the model would wrap around. Raises `OptionError`."""
    limits = np.iinfo(np.int32)
    for name in sorted(graph.narrow_inputs & ranges.keys()):
        low, high = ranges[name]
        if low < limits.min or high > limits.max:
            raise OptionError(
                f"input '{name}' may be from {low:.10g} to {high:.10g}, and the model takes it as int32, which wraps "
                f"around: declare a range that int32 holds, or cast it to int64"
            )


def ranges_of_samples(graph: Graph, samples: Mapping[str, Array]) -> dict[str, tuple[float, float]]:
    """Minimum to maximum of each input, widened; of whole numbers to the next ones outside."""
    ranges = {}
    for name, array in samples.items():
        low, high = float(array.min()), float(array.max())
        margin = WIDENING * ((high - low) or max(abs(high), 1.0))
        low, high = low - margin, high + margin
        ranges[name] = (float(np.floor(low)), float(np.ceil(high))) if name in graph.classes else (low, high)
    return ranges


def drawn(graph: Graph, ranges: Mapping[str, tuple[float, float]], count: int = 64) -> dict[str, Array]:
    """So many samples of floating-point inputs, evenly from their ranges."""
    rng = np.random.default_rng(0)
    return {name: rng.uniform(*span, (count, *graph.values[name].shape)) for name, span in ranges.items()}


def with_missing(
    missing: int, ranges: dict[str, tuple[float, float]], sources: dict[str, str]
) -> tuple[dict[str, tuple[float, float]], dict[str, str]]:
    """Ranges that reach up to what stands for missing features, and what says so. Raises `OptionError`."""
    for name, (_, high) in ranges.items():
        if sources[name] == "declared" and high > missing:
            raise OptionError(
                f"missing is {missing}, and input '{name}' may be up to {high:g}: let a larger number stand for "
                f"missing features"
            )
    return (
        {name: (low, float(missing)) for name, (low, _) in ranges.items()},
        {name: f"{source}; {missing} stands for a missing feature" for name, source in sources.items()},
    )


def _filled(array: Any, missing: int, name: str, what: str) -> Any:
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiub":
        return array
    if (array >= missing).any():
        raise DataError(
            f"{what} data for '{name}' holds {np.nanmax(array):g}, and missing is {missing}: let a larger number stand "
            f"for missing features"
        )
    return np.where(np.isnan(array), float(missing), array) if array.dtype.kind == "f" else array


def check_within(samples: Mapping[str, Array], ranges: Mapping[str, tuple[float, float]]) -> None:
    """Refuse calibration data outside the declared input range."""
    for name, (low, high) in ranges.items():
        least, most = float(samples[name].min()), float(samples[name].max())
        if least < low or most > high:
            digits = digits_outside(least if least < low else most, low, high)
            raise DataError(
                f"calibration data for '{name}' spans [{least:.{digits}g}, {most:.{digits}g}], outside the declared "
                f"range [{low:.{digits}g}, {high:.{digits}g}]: widen --input-range or scale the data"
            )


def _check(array: Any, graph: Graph, value: Value, what: str, heeds: bool) -> Array:
    if not isinstance(array, np.ndarray):
        raise DataError(f"{what} data for '{value.name}' is a {type(array).__name__}: give a NumPy array")
    if array.dtype.kind not in "fiub":
        raise DataError(f"{what} data for '{value.name}' has dtype {array.dtype}: give floating-point numbers")
    expected = ", ".join(["N", *map(str, value.shape)])
    if array.ndim != value.rank or array.shape[1:] != value.shape:
        raise DataError(f"{what} data for '{value.name}' has shape {list(array.shape)}, expected [{expected}]")
    if len(array) == 0:
        raise DataError(f"{what} data for '{value.name}' has no samples: give at least one")
    floats = array.astype(np.float64)
    if not np.isfinite(floats).all():
        place = np.argwhere(~np.isfinite(floats))[0]
        number = floats[tuple(place)]
        way_out = infinite(number)
        if np.isnan(number) and heeds:
            way_out += ", or name a number that stands for it with `covey compile --missing`"
        raise DataError(f"{what} data for '{value.name}' holds {number} at {place.tolist()}: {way_out}")
    classes = graph.classes.get(value.name)
    if classes is not None:
        whole.check(floats, classes, -np.inf, np.inf, f"{what} data for '{value.name}'")
    return floats
