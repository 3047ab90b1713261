"""A model ready to run: its program, and its weights where they are at hand; compiled before or on the fly."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, TypeAlias, runtime_checkable

from covey._core import Program, Weights
from covey.compiled import Compiled
from covey.compiled import compile as compile_model
from covey.data import CLASSES, TRUTHS, Ranges
from covey.errors import ModelError, OptionError
from covey.importers.source import is_model_file
from covey.inputs import Data
from covey.ir import Graph


@dataclass(frozen=True)
class Model:
    """A program with what belongs to it. `graph` is the rewritten float network, if it was compiled just now."""

    program: Program
    weights: Weights | None = field(default=None, repr=False)
    graph: Graph | None = field(default=None, repr=False)
    note: str | None = None
    """What was decided on the way, for the user to know."""

    def need_weights(self) -> Weights:
        """The weights. Raises `ModelError` when there are none."""
        if self.weights is None:
            raise ModelError(
                f"the weights of '{self.program.name}' are missing: keep its .weights.safetensors file beside the "
                f".covey file, or name it with --weights"
            )
        return self.weights


@runtime_checkable
class Holding(Protocol):
    """What holds a compiled program, as a training job does, and what `tune` found."""

    @property
    def compiled(self) -> Compiled:
        """The program."""


Source: TypeAlias = str | os.PathLike[str] | Compiled | Holding | Program | Model
"""A `.covey` file, a trained model's file, what `compile`, `compile_training` or `tune` returned, a program, or a
loaded model.
"""


def load(
    source: Source,
    *,
    weights: str | os.PathLike[str] | Weights | None = None,
    data: Data | None = None,
    calibration: Data | None = None,
    input_range: Ranges | None = None,
) -> Model:
    """Load a model. An ONNX file or PyTorch export is compiled on the fly: its inputs' range is `input_range`, or else
    that of `calibration`, or else that of `data`, the inputs it is about to run on.
    """
    path = Path(source) if isinstance(source, str | os.PathLike) else None
    if (calibration is not None or input_range is not None) and not is_compiled_here(source):
        raise OptionError("calibration data and input ranges are for models yet to be compiled: leave them out")
    if isinstance(source, Model):
        return source if weights is None else replace(source, weights=_weights(weights, source.program))
    if isinstance(source, Program):
        return Model(source, _weights(weights, source))
    if isinstance(source, Holding):
        source = source.compiled
    if isinstance(source, Compiled):
        if weights is not None:
            raise OptionError("a model that was just compiled carries its weights: leave weights out")
        program = Program(source.program_bytes)
        return Model(program, Weights(source.weights_bytes, program), source.graph)
    if path is None:
        raise ModelError(
            f"an object of type {type(source).__name__} cannot be run as it is: compile it first with covey.compile, "
            f"or with covey.from_pretrained if it is of transformers"
        )
    if is_model_file(path):
        return _compile(path, weights, data, calibration, input_range)
    if not path.exists():
        raise ModelError(f"model '{path}' does not exist: check the path")
    program = Program(path)
    beside = weights_path(path)
    if weights is None and beside.exists():
        weights = beside
    return Model(program, _weights(weights, program))


def is_compiled_here(source: Source) -> bool:
    """Whether `load` compiles it: a trained model's file."""
    return isinstance(source, str | os.PathLike) and is_model_file(source)


def weights_path(program: Path) -> Path:
    """Where the weights of a program file are looked for: `model.weights.safetensors` beside `model.covey`."""
    stem = program.name.removesuffix(".covey")
    return program.with_name(f"{stem}.weights.safetensors")


def _weights(source: str | os.PathLike[str] | Weights | None, program: Program) -> Weights | None:
    if source is None or isinstance(source, Weights):
        return source
    return Weights(Path(source), program)


def _compile(
    path: Path,
    weights: str | os.PathLike[str] | Weights | None,
    data: Data | None,
    calibration: Data | None,
    input_range: Ranges | None,
) -> Model:
    if weights is not None:
        raise ModelError(f"'{path}' carries its own weights: leave --weights out, or give the compiled .covey file")
    chosen = calibration
    if input_range is not None:
        source = "as declared"
    elif calibration is not None:
        source = "that of the calibration data"
    else:
        chosen, source = data, "that of the given inputs, for want of --calibration or --input-range"
    compiled = compile_model(path, calibration=chosen, input_range=input_range)
    report = compiled.report
    if all(entry["range_from"] in (CLASSES, TRUTHS) for entry in report["inputs"]):
        source = "that of its whole numbers"
    note = (
        f"compiled {path.name} on the fly: Z_2^{report['ring_bits']}, {report['scale']} fractional bits, input range "
        f"{source}"
    )
    program = Program(compiled.program_bytes)
    return Model(program, Weights(compiled.weights_bytes, program), compiled.graph, note)
