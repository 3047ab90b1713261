"""Data for a program's inputs: read, checked, named. Errors name the tensor, the place and the way out."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from covey import whole
from covey.arrays import to_numpy
from covey.errors import DataError

if TYPE_CHECKING:
    from covey._core import Program

Floats = npt.NDArray[np.float64]

Data: TypeAlias = "str | os.PathLike[str] | npt.NDArray[Any] | Mapping[str, npt.NDArray[Any]] | Any"
"""A .npy or .npz file, an array or a tensor of PyTorch or TensorFlow for a single input, arrays or tensors by input
name or as a tuple in the inputs' order, or a PyTorch dataset or data loader.
"""


def load_arrays(source: Data, names: Sequence[str], what: str = "input") -> dict[str, npt.NDArray[Any]]:
    """The arrays of a source by input name; `names` are the inputs. Raises `DataError`."""
    if isinstance(source, str | os.PathLike):
        source = _read(os.fspath(source), what)
    source = to_numpy(source, names, what)
    if isinstance(source, Mapping):
        arrays = dict(source)
        for name in arrays:
            if name not in names:
                raise DataError(f"{what} data names '{name}', which is no input: the inputs are {listed(names)}")
        for name in names:
            if name not in arrays:
                raise DataError(f"{what} data lacks the input '{name}': give arrays for {listed(names)}")
        return arrays
    if len(names) != 1:
        kind = "one array" if isinstance(source, np.ndarray) else f"a {type(source).__name__}"
        form = ", ".join(f"'{name}': .." for name in names)
        raise DataError(
            f"{what} data is {kind} but the model has the inputs {listed(names)}: give a dict {{{form}}} (.npz in "
            f"files), or a tuple of {len(names)} arrays in this order"
        )
    return {names[0]: source}


def arrays_in(source: Data, what: str) -> list[npt.NDArray[Any]]:
    """The arrays of a source that are at hand without a model: of a file, or in memory. Raises `DataError`."""
    if isinstance(source, str | os.PathLike):
        source = _read(os.fspath(source), what)
    found = source.values() if isinstance(source, Mapping) else [source]
    return [array for array in found if isinstance(array, np.ndarray)]


def read_inputs(source: Data, program: Program) -> dict[str, Floats]:
    """Values for every input of a program as float64 [N, ..], within the ranges it declares. Raises `DataError`."""
    declared = program.inputs
    arrays = load_arrays(source, [entry["name"] for entry in declared])
    checked = {entry["name"]: _check(arrays[entry["name"]], entry) for entry in declared}
    counts = {name: len(checked[name]) for name in checked if _entry(declared, name)["batched"]}
    if len(set(counts.values())) > 1:
        raise DataError(f"the inputs have different numbers of samples ({counts}): give the same number for each")
    return checked


def batch_of(inputs: Mapping[str, Floats], program: Program) -> int:
    """Samples in checked inputs; 1 if no input has a batch dimension."""
    sizes = [len(inputs[entry["name"]]) for entry in program.inputs if entry["batched"]]
    return sizes[0] if sizes else 1


def random_inputs(program: Program, samples: int, seed: int = 0) -> dict[str, Floats]:
    """`samples` samples spread evenly over the ranges the program declares, the same for the same seed."""
    rng = np.random.default_rng(seed)
    inputs = {}
    for entry in program.inputs:
        shape = ([samples] if entry["batched"] else []) + list(entry["shape"])
        low, high, classes = entry["low"], entry["high"], entry.get("classes")
        drawn = rng.uniform(low, high, shape) if classes is None else whole.draw(rng, classes, low, high, shape)
        inputs[entry["name"]] = drawn
    return inputs


def _entry(declared: Sequence[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(entry for entry in declared if entry["name"] == name)


def _read(path: str, what: str) -> npt.NDArray[Any] | Mapping[str, npt.NDArray[Any]]:
    try:
        loaded = np.load(path, allow_pickle=False)
        return loaded if isinstance(loaded, np.ndarray) else {name: loaded[name] for name in loaded.files}
    except FileNotFoundError:
        raise DataError(f"{what} file '{path}' does not exist: check the path") from None
    except IsADirectoryError:
        raise DataError(f"{what} file '{path}' is a folder: give a .npy or .npz file") from None
    except PermissionError:
        raise DataError(f"{what} file '{path}' may not be read: check its permissions") from None
    except MemoryError:
        raise DataError(f"{what} file '{path}' does not fit the memory of this machine: split it") from None
    except Exception:  # numpy and zipfile raise many kinds for what they cannot parse
        raise DataError(f"{what} file '{path}' is not a readable .npy or .npz file: save it with numpy.save") from None


def _check(array: Any, entry: Mapping[str, Any]) -> Floats:
    name, shape = entry["name"], list(entry["shape"])
    floats = numbers(array, name)
    actual = list(array.shape)
    if entry["batched"]:
        due = "[" + ", ".join(["N", *map(str, shape)]) + "]"
        if actual == shape:
            raise DataError(f"input '{name}' has shape {actual}, expected {due}: add the batch dimension (x[None])")
        if actual[1:] != shape or not actual:
            raise DataError(f"input '{name}' has shape {actual}, expected {due}: reshape the data")
        if actual[0] == 0:
            raise DataError(f"input '{name}' has no samples: give at least one")
    elif actual != shape:
        raise DataError(f"input '{name}' has shape {actual}, expected {shape}: reshape the data")
    _check_values(name, floats, entry)
    return floats


def numbers(array: Any, name: str) -> Floats:
    """What an input is given as float64, in the order of its elements. Raises `DataError` for what is no numbers."""
    if not isinstance(array, np.ndarray):
        raise DataError(f"input '{name}' is a {type(array).__name__}: give a NumPy array")
    if array.dtype.kind not in "fiub":
        raise DataError(f"input '{name}' has dtype {array.dtype}: give floating-point numbers (x.astype('float32'))")
    return np.require(array, dtype=np.float64, requirements="C")


def infinite(number: float) -> str:
    """The way out where data hold NaN or an infinite number."""
    return "clean the data first" + ("; let a mask be an input of bool, or of 0 and 1" if number == -np.inf else "")


def _check_values(name: str, values: Floats, entry: Mapping[str, Any]) -> None:
    finite = np.isfinite(values)
    if not finite.all():
        place = np.argwhere(~finite)[0]
        number = values[tuple(place)]
        raise DataError(
            f"input '{name}' holds {number} at {place.tolist()}: only finite numbers can be shared; {infinite(number)}"
        )
    low, high, classes = entry["low"], entry["high"], entry.get("classes")
    if classes is not None:
        whole.check(values if entry["batched"] else values[None], classes, low, high, f"input '{name}'")
        return
    if low is None or high is None:
        return
    outside = (values < low) | (values > high)
    if outside.any():
        place = np.argwhere(outside)[0]
        value = float(values[tuple(place)])
        digits = digits_outside(value, low, high)
        raise DataError(
            f"input '{name}' holds {value:.{digits}g} at {place.tolist()}, outside its declared range "
            f"[{low:.{digits}g}, {high:.{digits}g}]: scale the data, or compile with a wider --input-range"
        )


def digits_outside(value: float, low: float, high: float) -> int:
    """How many digits show that a number is outside a range: six, or more where it is next to a bound."""
    for digits in range(6, 17):
        least, shown, most = (float(f"{each:.{digits}g}") for each in (low, value, high))
        if not least <= shown <= most:
            return digits
    return 17  # these tell any two numbers apart


def listed(names: Sequence[str]) -> str:
    """Names for an error message."""
    return ", ".join(f"'{name}'" for name in names)
