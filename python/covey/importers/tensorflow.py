"""Keras models, SavedModels and TensorFlow functions to ONNX, by tf2onnx.

TensorFlow and tf2onnx are imported only when a model of their kind is given. Every model becomes a function with fixed
shapes first; its weights are constants of that. Inputs and outputs keep TensorFlow's layout, such as NHWC.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx

from covey.errors import ModelError

OPSET = 18
"""What models are converted to: fixed, so that the same model gives the same program."""

SUFFIXES = (".keras", ".h5")
"""What Keras calls its files. A SavedModel is a folder."""

SIGNATURE = "serving_default"
"""The function of a SavedModel that is taken, where it has several."""


def is_saved_model(path: str | os.PathLike[str]) -> bool:
    """Whether it is the folder of a SavedModel."""
    return os.path.isfile(os.path.join(path, "saved_model.pb"))


def is_tensorflow(source: object) -> bool:
    """Whether it is a Keras model, a function of TensorFlow or a file of either, found out without importing them."""
    if isinstance(source, str | os.PathLike):
        return os.fspath(source).lower().endswith(SUFFIXES) or is_saved_model(source)
    return _is_keras(source) or _is_function(source)


def name_of(source: Any) -> str:
    """What to call a model: its own name, or that of its file."""
    if isinstance(source, str | os.PathLike):
        return os.path.splitext(os.path.basename(os.path.normpath(source)))[0]
    name = getattr(source, "name", None) or getattr(source, "__name__", None) or "model"
    # TensorFlow counts what it traces.
    return re.sub(r"^__inference_(.+)_\d+$", r"\1", name.decode() if isinstance(name, bytes) else str(name))


def convert(source: Any, example_inputs: Any = None) -> onnx.ModelProto:
    """A model as ONNX. `example_inputs` say the shapes of inputs that it leaves open. Raises `ModelError`."""
    tf = _tensorflow(source)
    try:
        import tf2onnx.convert
        import tf2onnx.tf_loader
        import tf2onnx.utils
    except ImportError:
        raise _missing(source, "tf2onnx") from None
    function = _function(tf, source, example_inputs)
    # What a function captures comes behind its own inputs; freezing makes constants of it.
    own = len(function.inputs) - len(function.captured_inputs)
    inputs = [tensor.name for tensor in function.inputs[:own]]
    outputs = [tensor.name for tensor in function.outputs]
    names = {name: name.split(":")[0] for name in inputs}
    for output, name in zip(outputs, _output_names(function), strict=True):
        names[output] = f"{name}.output" if name in names.values() else name
    # Counted in the names that it makes up: from 1, so that the same model gives the same program.
    tf2onnx.utils.INTERNAL_NAME = 1
    try:
        with _quiet(tf):
            frozen = tf2onnx.tf_loader.from_function(function, inputs, outputs)
            proto, _ = tf2onnx.convert.from_graph_def(
                frozen, name_of(source), inputs, outputs, opset=OPSET, tensors_to_rename=names
            )
    except Exception as error:  # TensorFlow and tf2onnx raise many kinds
        raise ModelError(
            f"tf2onnx cannot convert {_shown(source)} ({_first_line(error)}): end the model before what it fails at, "
            f"or compile an .onnx file from elsewhere"
        ) from None
    assert isinstance(proto, onnx.ModelProto)
    return proto


def runner(source: Any) -> tuple[int | None, Callable[[list[Any]], list[Any]]]:
    """How TensorFlow computes a model: the batch size it is fixed to, if any, and the call."""
    tf = _tensorflow(source)
    function = _function(tf, source, None)
    signature = function.structured_input_signature
    specs = tf.nest.flatten(signature)

    def call(arrays: list[Any]) -> list[Any]:
        tensors = [tf.cast(array, spec.dtype) for array, spec in zip(arrays, specs, strict=True)]
        positional, named = tf.nest.pack_sequence_as(signature, tensors)
        return [np.asarray(tensor) for tensor in tf.nest.flatten(function(*positional, **named))]

    return specs[0].shape[0], call


def _is_keras(source: object) -> bool:
    modules = (sys.modules.get(name) for name in ("keras", "tf_keras"))
    return any(module is not None and isinstance(source, getattr(module, "Model", ())) for module in modules)


def _is_function(source: object) -> bool:
    tf = sys.modules.get("tensorflow")
    if tf is None:
        return False
    kinds = tf.types.experimental
    return isinstance(source, kinds.PolymorphicFunction | kinds.ConcreteFunction)


def _tensorflow(source: Any) -> Any:
    # TensorFlow tells about its build when it is imported.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        import tensorflow as tf
    except ImportError:
        raise _missing(source, "tensorflow") from None
    return tf


def _missing(source: Any, package: str) -> ModelError:
    return ModelError(
        f"{_shown(source)} needs {package}, which is not installed: pip install 'covey[tensorflow]', or convert it to "
        f"ONNX elsewhere"
    )


def _function(tf: Any, source: Any, examples: Any) -> Any:
    """The model as a function whose inputs have types and shapes. Raises `ModelError`."""
    if isinstance(source, str | os.PathLike):
        source = _read(tf, os.fspath(source))
    if hasattr(source, "structured_input_signature"):
        return source
    try:
        with _quiet(tf), _inline(tf):
            if _is_keras(source):
                return _called(tf, source, examples)
            return source.get_concrete_function(*_specs(tf, examples))
    except ModelError:
        raise
    except Exception as error:  # whatever the model's own code does
        raise ModelError(
            f"TensorFlow cannot trace {_shown(source)} ({_first_line(error)}): give example inputs, "
            f"covey.compile(model, example_inputs), or a function with an input_signature"
        ) from None


def _read(tf: Any, path: str) -> Any:
    """The Keras model of a file, or the function of a SavedModel."""
    if not os.path.exists(path):
        raise ModelError(f"'{path}' does not exist: check the path")
    try:
        with _quiet(tf):
            if not is_saved_model(path):
                return tf.keras.models.load_model(path, compile=False)
            loaded = tf.saved_model.load(path)
    except Exception as error:  # Keras, h5py, protobuf and the file system each raise their own
        raise ModelError(
            f"'{path}' is not a readable model of Keras or TensorFlow ({_first_line(error)}): save it again, or load "
            f"it in Python and compile what you get"
        ) from None
    signatures = loaded.signatures
    chosen = SIGNATURE if SIGNATURE in signatures or len(signatures) != 1 else next(iter(signatures))
    if chosen in signatures:
        function = signatures[chosen]
        function.loaded = loaded  # its variables live as long as that
        return function
    found = ", ".join(sorted(signatures)) or "none"
    raise ModelError(
        f"'{path}' has the signatures {found}: save it with one named {SIGNATURE}, or load it in Python and compile one"
    )


def _called(tf: Any, model: Any, examples: Any) -> Any:
    """A Keras model's call for inference as a function."""
    declared = list(getattr(model, "inputs", None) or [])
    if declared:
        try:
            structure = model.input
        except AttributeError:  # a Sequential that was never called
            structure = declared[0]
        declared = tf.nest.flatten(structure)
        specs = [tf.TensorSpec(tensor.shape, tensor.dtype, tensor.name.split(":")[0]) for tensor in declared]
    else:
        structure, specs = None, []
    given = _specs(tf, examples)
    if given and specs and len(given) != len(specs):
        raise ModelError(f"{_shown(model)} has {len(specs)} inputs: give as many example inputs, not {len(given)}")
    if given and specs:
        specs = [tf.TensorSpec(new.shape, old.dtype, old.name) for new, old in zip(given, specs, strict=True)]
    specs = specs or given
    if not specs:
        raise ModelError(f"{_shown(model)} does not say what it takes: give example inputs, covey.compile(model, x)")
    for spec in specs:
        if spec.shape.rank is None or None in spec.shape[1:]:
            raise ModelError(
                f"input '{spec.name}' of {_shown(model)} has open sizes {spec.shape}: give example inputs of the sizes "
                f"that it is to run with"
            )

    def call(*tensors: Any) -> Any:
        arguments = tensors if structure is None else [tf.nest.pack_sequence_as(structure, tensors)]
        return model(*arguments, training=False)

    return tf.function(call, input_signature=specs).get_concrete_function()


def _specs(tf: Any, examples: Any) -> list[Any]:
    """Types and shapes of example inputs, with any number of samples."""
    if examples is None:
        return []
    if isinstance(examples, Mapping):
        named = {str(name): value for name, value in examples.items()}
    else:
        several = examples if isinstance(examples, tuple | list) else (examples,)
        named = {f"input_{index}": value for index, value in enumerate(several)}
    specs = []
    for name, value in named.items():
        array = np.asarray(value)
        if array.dtype.kind not in "fiub" or array.ndim == 0:
            raise ModelError(f"example input '{name}' is no array of numbers [N, ..]: give NumPy arrays or tensors")
        dtype = np.dtype(np.float32) if array.dtype.kind == "f" else array.dtype
        specs.append(tf.TensorSpec((None, *array.shape[1:]), dtype, name))
    return specs


def _output_names(function: Any) -> list[str]:
    """The keys of a dict of outputs; else the names that a SavedModel would give them."""
    structure = function.structured_outputs
    if isinstance(structure, Mapping) and len(structure) == len(function.outputs):
        return sorted(map(str, structure))
    return [f"output_{index}" for index in range(len(function.outputs))]


@contextmanager
def _inline(tf: Any) -> Iterator[None]:
    """Functions that a model calls become part of it: tf2onnx takes no call of one that asks for XLA."""
    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(before)


@contextmanager
def _quiet(tf: Any) -> Iterator[None]:
    """Without warnings; what matters of them the importer finds in the model."""
    loggers = [tf.get_logger(), *(logging.getLogger(name) for name in ("tf2onnx", "absl"))]
    levels = [logger.level for logger in loggers]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for logger in loggers:
                logger.setLevel(logging.CRITICAL)
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _shown(source: Any) -> str:
    return f"'{os.fspath(source)}'" if isinstance(source, str | os.PathLike) else f"the model '{name_of(source)}'"


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0][:160] if text else type(error).__name__
