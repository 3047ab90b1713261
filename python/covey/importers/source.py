"""What a model can come as, and the importer for it."""

from __future__ import annotations

import os
from collections.abc import Container, Mapping
from typing import Any, TypeAlias

import onnx

from covey.errors import ModelError, NodeError
from covey.importers import boosting, sklearn, tensorflow, torch_export, torch_programs
from covey.importers import onnx as onnx_models
from covey.ir import Graph, plain

Source: TypeAlias = "str | os.PathLike[str] | onnx.ModelProto | Any"
"""An `.onnx`, `.pt2`, `.keras` or `.h5` file, the folder of a SavedModel, a loaded ONNX model, a PyTorch module or
exported program, a Keras model, a TensorFlow function, or a fitted model of scikit-learn, XGBoost or
LightGBM.
"""

EXAMPLES = 16
"""Samples that a module is exported with where no example inputs are given."""

SUFFIXES = (".onnx", torch_programs.SUFFIX, *tensorflow.SUFFIXES)
"""What the names of model files end in."""


def is_model_file(path: str | os.PathLike[str]) -> bool:
    """Whether a file, or a SavedModel's folder, is a model that has yet to be compiled."""
    return os.fspath(path).lower().endswith(SUFFIXES) or tensorflow.is_saved_model(path)


def is_torch(source: Source) -> bool:
    """Whether the model is PyTorch's: a `.pt2` file, a module or an exported program."""
    if isinstance(source, str | os.PathLike):
        return os.fspath(source).lower().endswith(torch_programs.SUFFIX)
    return torch_programs.is_torch(source)


def examples_of(source: Source, example_inputs: Any, samples: Any) -> Any:
    """The example inputs; for a PyTorch module without any, the first samples of data that are all floats.

    Whole numbers do not say whether the module takes them as floats.
    """
    if example_inputs is not None or isinstance(source, str | os.PathLike) or not torch_programs.needs_examples(source):
        return example_inputs
    several = list(samples.values()) if isinstance(samples, Mapping) else samples
    parts = several if isinstance(several, list | tuple) else [several]
    if not parts or not all("float" in str(getattr(part, "dtype", "")) and getattr(part, "ndim", 0) for part in parts):
        return None
    if isinstance(samples, Mapping):
        return {name: part[:EXAMPLES] for name, part in samples.items()}
    return tuple(part[:EXAMPLES] for part in parts)


def examine(
    source: Source,
    name: str | None = None,
    example_inputs: Any = None,
    *,
    dropout: bool = False,
    trained: Container[str] | None = None,
) -> tuple[Graph, list[NodeError]]:
    """The graph of a model as far as it can be imported, with a note on every node, and what stands in the way.

    Its inputs and outputs have names that a program may hold, so that data and results go by the model's own names.

    `example_inputs` are what a PyTorch module is exported with, and say the sizes of inputs that a Keras model leaves
    open. With `dropout` the nodes of that operator stay, whatever the mode of the model; with `trained`, the names of
    tensors, no importer adds weights up or scales them. Raises `ModelError` when the model as a whole cannot be used.
    """
    graph, errors = _examine(source, name, example_inputs, dropout=dropout, trained=trained)
    for kind, names in (("input", graph.inputs), ("output", graph.outputs)):
        for each in names:
            if plain(each) != each:
                shown = each if len(each) <= 50 else f"{each[:50]}…"
                raise ModelError(
                    f"{kind} {shown!r} has control characters in its name, or more than 1,000 bytes: rename it in the "
                    f"model"
                )
    return graph, errors


def _examine(
    source: Source, name: str | None, example_inputs: Any, *, dropout: bool, trained: Container[str] | None
) -> tuple[Graph, list[NodeError]]:
    if isinstance(source, str | os.PathLike) and os.fspath(source).lower().endswith(".covey"):
        raise ModelError(f"'{os.fspath(source)}' is compiled already: run it, or compile the model that it was made of")
    if is_torch(source):
        return torch_export.examine(source, name, example_inputs, dropout=dropout, trained=trained)
    if sklearn.is_sklearn(source):
        return onnx_models.examine(sklearn.convert(source), name or sklearn.name_of(source))
    if boosting.is_booster(source):
        return onnx_models.examine(boosting.convert_booster(source), name or type(source).__name__)
    if tensorflow.is_tensorflow(source):
        if dropout:
            raise ModelError(
                "TensorFlow's dropout is left out where models are converted: leave out the option dropout"
            )
        converted = tensorflow.convert(source, example_inputs)
        return onnx_models.examine(converted, name or tensorflow.name_of(source), trained=trained)
    if not isinstance(source, str | os.PathLike | onnx.ModelProto):
        raise ModelError(
            f"an object of type {type(source).__name__} is no model that can be compiled: give a file, an ONNX, "
            f"PyTorch, Keras, scikit-learn, XGBoost or LightGBM model, or one of the signatures of a loaded SavedModel"
        )
    return onnx_models.examine(source, name, dropout=dropout, trained=trained)
