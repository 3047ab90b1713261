"""Comparing a private run with the specification and with floating point."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from covey._core import Program
from covey._proto import program_pb2 as pb
from covey.closeness import FloatReference, float_run, relative_error
from covey.emit import HEADER_BYTES
from covey.errors import CoveyError, ModelError
from covey.importers import tensorflow, torch_programs
from covey.importers.onnx import load
from covey.importers.source import examine, is_torch
from covey.ir import Graph
from covey.passes import rewrite
from covey.result import Floats, Integers, Result

Call = Callable[[list[npt.NDArray[Any]]], list[npt.NDArray[Any]]]

APPROXIMATE_LIMIT = 0.01
"""The largest relative L2 error against clear that passes where a program's shifts are inexact."""

ALIVE_LIMIT = 0.10
"""The smallest fraction of values above zero after a ReLU that passes."""


@dataclass(frozen=True)
class Difference:
    """One output of two runs: elements compared, elements that differ, and where the first does."""

    output: str
    elements: int
    differing: int
    first: str = ""
    rows_differing: int = 0


def rounding_of(program: Program) -> tuple[str, int]:
    """How the shifts of a program round, by the least exact of them, and how many are not exact."""
    parsed = pb.Program.FromString(program.to_bytes()[HEADER_BYTES:])
    kinds = [getattr(node, node.WhichOneof("op")) for node in parsed.nodes]
    roundings = [op.rounding for op in kinds if isinstance(op, pb.Truncate | pb.MulShift)]
    inexact = [rounding for rounding in roundings if rounding != pb.Rounding.EXACT]
    if not inexact:
        return "exact", 0
    return ("probabilistic" if pb.Rounding.PROBABILISTIC in inexact else "ulp"), len(inexact)


def decides(program: Program) -> bool:
    """Whether a program compares, so that samples of different values may rightly have the same result."""
    parsed = pb.Program.FromString(program.to_bytes()[HEADER_BYTES:])
    return any(node.WhichOneof("op") in ("less_than_zero", "is_negative") for node in parsed.nodes)


def within_budget(expected: Integers, actual: Integers | None, shifts: int) -> tuple[str, bool]:
    """How far an output of inexact shifts is from clear, and whether that is what so many roundings explain.

    Each is off by a unit of the last place: in all a relative error of `APPROXIMATE_LIMIT`, or a unit a shift where the
    numbers themselves are small.
    """
    if actual is None or actual.shape != expected.shape:
        return "missing or of another shape", False
    difference = actual.astype(np.float64) - expected.astype(np.float64)
    largest = float(np.abs(difference).max(initial=0.0))
    error = relative_error(actual.astype(np.float64), expected.astype(np.float64))
    found = f"{error:.3%} relative L2 error, {largest:.0f} units at most"
    return found, error <= APPROXIMATE_LIMIT or largest <= shifts


def compare(expected: Mapping[str, Integers], actual: Mapping[str, Integers]) -> list[Difference]:
    """Integer outputs, element by element. Outputs that are missing or of another shape differ in every element."""
    differences = []
    for name, due in expected.items():
        got = actual.get(name)
        if got is None or got.shape != due.shape:
            shape = "missing" if got is None else f"of shape {list(got.shape)}"
            differences.append(Difference(name, due.size, due.size, f"{shape}, expected {list(due.shape)}", len(due)))
            continue
        unequal = got != due
        first = ""
        if unequal.any():
            place = tuple(int(index) for index in np.argwhere(unequal)[0])
            first = f"at {list(place)}: {got[place]}, expected {due[place]}"
        rows = int(unequal.reshape(len(due), -1).any(axis=1).sum()) if due.ndim else int(unequal.any())
        differences.append(Difference(name, due.size, int(unequal.sum()), first, rows))
    return differences


def float_graph(model: str | Path) -> Graph:
    """The float network of a model file, as it is compiled."""
    graph, errors = examine(model)
    errors = [*errors, *rewrite(graph)]
    if errors:
        raise errors[0]
    return graph


def origin(model: str | Path, program: Program) -> Graph:
    """The float network of the model file that a program is said to come from. Raises `ModelError`."""
    graph = float_graph(model)
    _need_inputs(graph, {entry["name"]: entry["shape"] for entry in program.inputs})
    return graph


def _need_inputs(graph: Graph, shapes: Mapping[str, Sequence[int]]) -> None:
    """Refuse a float network with other inputs than these, of such shapes without the batch."""
    for name in graph.inputs:
        if name not in shapes:
            raise ModelError(
                f"the float model has an input '{name}' that the program lacks: give the model it came from"
            )
        got, due = ("[" + ", ".join(["N", *map(str, each)]) + "]" for each in (shapes[name], graph.values[name].shape))
        if got != due:
            raise ModelError(f"input '{name}' has shape {got}, in the float model {due}: give the model it came from")


def float_reference(model: str | Path | None, graph: Graph | None, inputs: Mapping[str, Floats]) -> FloatReference:
    """Run the float model: onnxruntime, PyTorch or TensorFlow where installed, and Covey's own reference for what is
    inside.
    """
    graph = graph if graph is not None else float_graph(_need(model))
    _need_inputs(graph, {name: array.shape[1:] for name, array in inputs.items()})
    found = float_run(graph, inputs)
    source, outputs, note = found.source, found.outputs, ""
    if model is not None:
        engine, package, runner = _engine(model, graph)
        try:
            batch, call = runner(model)
            final = _in_parts([inputs[name] for name in graph.inputs], batch, call)
            source, outputs = engine, dict(zip(graph.outputs, final, strict=True))
        except ImportError:
            note = f"{engine} is not installed, so Covey's own float reference stands in: pip install {package}"
        except CoveyError:
            raise
        except Exception as error:  # kinds of its own: it lacks an operator of a model which is imported, so readable
            reason = " ".join(str(error).split())[:120]
            note = f"{engine} cannot run the model ({reason}): Covey's float reference stands in"
    return replace(found, source=source, outputs=outputs, note=note)


def distinct(inputs: Mapping[str, Floats], result: Result) -> tuple[int, int] | None:
    """Distinct samples, and distinct outputs among them; `None` where only class numbers come out, which may agree."""
    if all(scale == 0 for scale in result.scales.values()):
        return None
    return distinct_samples(inputs), _distinct_rows(result.integers)


def distinct_samples(inputs: Mapping[str, Floats]) -> int:
    """How many different samples there are."""
    return _distinct_rows(inputs)


def _distinct_rows(named: Mapping[str, npt.NDArray[Any]]) -> int:
    """How many samples differ from all before them, in any of the arrays [N, ..]."""
    rows = zip(*(array.reshape(len(array), -1) for array in named.values()), strict=True)
    return len({tuple(part.tobytes() for part in row) for row in rows})


def _need(model: str | Path | None) -> str | Path:
    if model is None:
        raise ModelError("the float model is not at hand: name it with --model model.onnx or model.pt2")
    return model


def _engine(model: str | Path, graph: Graph) -> tuple[str, str, Callable[[str | Path], tuple[int | None, Call]]]:
    """What computes a model file in floating point: its name, its package, and how it is had."""
    if is_torch(model):
        return "PyTorch", "torch", torch_programs.runner
    if tensorflow.is_tensorflow(model):
        return "TensorFlow", "tensorflow", tensorflow.runner
    return "onnxruntime", "onnxruntime", lambda path: _onnxruntime(Path(path), graph)


def _onnxruntime(path: Path, graph: Graph) -> tuple[int | None, Call]:
    """How onnxruntime computes the model's own outputs: the batch size it is fixed to, if any, and the call."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(3)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    types: dict[str, npt.DTypeLike] = {
        "tensor(float)": np.float32,
        "tensor(double)": np.float64,
        "tensor(float16)": np.float16,
        "tensor(int64)": np.int64,
        "tensor(int32)": np.int32,
        "tensor(bool)": np.bool_,
    }
    declared = {entry.name: entry for entry in session.get_inputs()}
    fixed = {entry.shape[0] for entry in declared.values() if isinstance(entry.shape[0], int)}
    # All but class labels, which the result's owner finds.
    names = graph.exported or [output.name for output in load(path).graph.output]

    def call(arrays: list[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
        pairs = zip(graph.inputs, arrays, strict=True)
        feeds = {name: array.astype(types[declared[name].type]) for name, array in pairs}
        results = [_table(values) for values in session.run(names, feeds)]
        return [
            values[:, ::-1] if name in graph.exchanged else values for name, values in zip(names, results, strict=True)
        ]

    return fixed.pop() if fixed else None, call


def _table(values: Any) -> npt.NDArray[Any]:
    """An output as an array; ZipMap gives a dict of the classes' scores for each sample."""
    rows = [list(row.values()) for row in values] if isinstance(values, list) else values
    return np.asarray(rows)


def _in_parts(arrays: list[Floats], batch: int | None, call: Call) -> list[Floats]:
    """A model's outputs, run as many samples at a time as it was exported for; the last part is filled up."""
    count = len(arrays[0])
    step = batch or count
    parts = []
    for start in range(0, count, step):
        part = [array[start : start + step] for array in arrays]
        missing = step - len(part[0])
        if missing:
            part = [np.concatenate([array, np.repeat(array[-1:], missing, axis=0)]) for array in part]
        parts.append([np.asarray(values)[: step - missing] for values in call(part)])
    return [np.concatenate(outputs).astype(np.float64) for outputs in zip(*parts, strict=True)]
