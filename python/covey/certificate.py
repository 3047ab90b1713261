"""The accuracy record of a program: what `covey tune` writes into its `certificate` and `covey verify` measures again.

Its numbers are counts of samples, so that they can be compared exactly. The program hash covers it, and binds weights
and sessions to it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from blake3 import blake3
from google.protobuf.message import DecodeError

from covey import reference
from covey._core import Program
from covey._proto import program_pb2 as pb
from covey.arrays import to_numpy
from covey.clear import run_clear
from covey.emit import HEADER_BYTES
from covey.errors import DataError, ModelError
from covey.inputs import Floats
from covey.ir import DType, Graph
from covey.model import Model

PART = 128
"""Samples that are run at once."""

Classes = npt.NDArray[np.int64]


def of(program: Program) -> pb.Certificate | None:
    """The certificate in a program, if it has one."""
    try:
        parsed = pb.Program.FromString(program.to_bytes()[HEADER_BYTES:])
    except DecodeError:
        raise ModelError(
            f"the accuracy record of '{program.name}' cannot be read: compile or tune the model again"
        ) from None
    return parsed.certificate if parsed.HasField("certificate") else None


def digest(inputs: Mapping[str, Floats], labels: Classes | None) -> bytes:
    """What identifies validation data: the inputs in their order and the labels, to the last bit."""
    state = blake3()
    for name, array in inputs.items():
        state.update(f"{name}\0{array.shape}\0".encode())
        state.update(np.ascontiguousarray(array, dtype="<f8").tobytes())
    if labels is not None:
        state.update(b"labels\0" + labels.astype("<i8").tobytes())
    return state.digest()


def holds(certificate: pb.Certificate) -> bool:
    """Whether the accuracy or the error it states is within the tolerance it states."""
    if of_error(certificate):
        return certificate.samples > 0 and 0 <= certificate.relative_error <= certificate.tolerance
    return good_enough(certificate.fixed_correct, certificate.float_correct, certificate.samples, certificate.tolerance)


def of_error(certificate: pb.Certificate) -> bool:
    """Whether it states how far outputs are off: that of a network without classes."""
    return certificate.HasField("relative_error")


def good_enough(fixed_correct: int, float_correct: int, samples: int, tolerance: float) -> bool:
    """Whether so many samples are enough."""
    return samples > 0 and float_correct - tolerance * samples <= fixed_correct <= samples


def read_labels(source: Any, samples: int, classes: int | None = None) -> Classes:
    """The class of each sample, from an array, a tensor, a list or a .npy file. Raises `DataError`.

    Where it is known how many `classes` there are, labels are from 0 to the last of them.
    """
    if not isinstance(source, str | os.PathLike):
        found = to_numpy(source, [], "label")
        if isinstance(found, list | tuple):
            try:
                found = np.asarray(found)
            except ValueError:  # lists of several lengths
                raise DataError(f"labels are lists: give one whole number for each of {samples} samples") from None
        return _checked_labels(found, samples, classes, "the labels array")
    path = os.fspath(source)
    try:
        labels = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise DataError(f"labels file '{path}' does not exist: check the path") from None
    except Exception:  # numpy raises many kinds for what it cannot parse
        raise DataError(f"labels file '{path}' is not a readable .npy file: save it with numpy.save") from None
    return _checked_labels(labels, samples, classes, f"labels file '{path}'")


def _checked_labels(labels: object, samples: int, classes: int | None, what: str) -> Classes:
    if not isinstance(labels, np.ndarray) or labels.dtype.kind not in "iu" or labels.shape != (samples,):
        found = type(labels).__name__
        if isinstance(labels, np.ndarray):
            found = f"{labels.dtype} {list(labels.shape)}"
        raise DataError(f"{what} holds {found}: give one whole number for each of {samples} samples")
    wrong = np.flatnonzero((labels < 0) | (labels >= classes)) if classes is not None else np.zeros(0, int)
    if len(wrong):
        place = int(wrong[0])
        raise DataError(
            f"{what} holds {labels[place]} at {place}, and the model has {classes} classes: number them from 0 to "
            f"{classes and classes - 1}"
        )
    return labels.astype(np.int64)


def classes_of(shape: Sequence[int]) -> int | None:
    """How many classes a first output has scores of; `None` where it is a class number, or no classes."""
    return shape[0] if len(shape) == 1 and shape[0] > 1 else None


def answers_classes(graph: Graph) -> bool:
    """Whether a network's first output is [N, classes] or one class number a sample."""
    value = graph.values[graph.outputs[0]]
    return _are_classes(value.dtype is DType.INDEX, (1, *value.shape))


def float_classes(graph: Graph, inputs: Mapping[str, Floats]) -> Classes:
    """The float network's answers."""
    value = graph.values[graph.outputs[0]]
    _need_classes(value.dtype is DType.INDEX, (1, *value.shape))
    parts = [np.asarray(reference.outputs(graph, part)[0]) for part in _parts(inputs)]
    return _classes(np.concatenate(parts), indices=value.dtype is DType.INDEX)


def fixed_classes(model: Model, inputs: Mapping[str, Floats]) -> Classes:
    """The program's answers, in the clear, every bound enforced."""
    name = model.program.outputs[0]["name"]
    parts = [run_clear(model, part) for part in _parts(inputs)]
    outputs = np.concatenate([part.integers[name] for part in parts])
    indices = parts[0].scales[name] == 0 and outputs.dtype.kind == "i" and outputs[0].size == 1
    return _classes(outputs, indices=indices)


def _parts(inputs: Mapping[str, Floats]) -> Iterator[dict[str, Floats]]:
    count = len(next(iter(inputs.values())))
    for start in range(0, count, PART):
        yield {name: array[start : start + PART] for name, array in inputs.items()}


def _classes(outputs: npt.NDArray[np.float64] | npt.NDArray[np.int64], *, indices: bool) -> Classes:
    if indices:
        return np.asarray(outputs, dtype=np.int64).reshape(len(outputs))
    _need_classes(False, outputs.shape)
    return np.asarray(outputs.argmax(axis=1), dtype=np.int64)


def _need_classes(indices: bool, shape: tuple[int, ...]) -> None:
    """Refuse outputs that are neither [N, classes] nor one class number a sample."""
    if not _are_classes(indices, shape):
        raise ModelError(
            f"accuracy is that of classes, and the first output has shape {['N', *shape[1:]]}: it must be [N, classes] "
            f"or class numbers"
        )


def _are_classes(indices: bool, shape: tuple[int, ...]) -> bool:
    return int(np.prod(shape[1:])) == 1 if indices else len(shape) == 2 and shape[1] > 1
