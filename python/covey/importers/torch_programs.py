"""PyTorch models as programs of `torch.export` in the core form."""

from __future__ import annotations

import copy
import importlib.util
import inspect
import io
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from typing import Any

import numpy as np

from covey.errors import ModelError
from covey.importers import dropping
from covey.importers.decomposed import decomposed, without_wrong_rules
from covey.importers.detaching import detach_parts
from covey.importers.modules import cannot_export, check_module, fixed_batch, with_modes
from covey.importers.quantised_programs import dequantised, register_operators

SUFFIX = ".pt2"
"""What `torch.export.save` calls its files."""


def is_torch(source: object) -> bool:
    """Whether it is a PyTorch module or an exported program, found out without importing PyTorch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(source, torch.nn.Module | torch.export.ExportedProgram)


def needs_examples(source: object) -> bool:
    """Whether it is exported with example inputs: a PyTorch module."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(source, torch.nn.Module)


def as_written(source: Any) -> Any:
    """A module as it is before `torch.compile`, which would build kernels for each run of it; others as they are."""
    return getattr(source, "_orig_mod", source) if needs_examples(source) else source


def load(
    source: Any, example_inputs: Any = None, *, dropout: bool = False, trained: bool = False
) -> tuple[Any, str | None]:
    """The program of a .pt2 file, a module with example inputs, or an exported program. Raises `ModelError`.

    The second result says why a module is exported for one number of samples alone, if it is. With `dropout` all
    Dropout nodes are in training mode, and others that drop are refused. With `trained` parts under `torch.no_grad` are
    detached.
    """
    source = as_written(source)
    torch, fixed = pytorch(source), None
    if isinstance(source, torch.export.ExportedProgram):
        program = copy.deepcopy(source) if dropout else source
    elif isinstance(source, torch.nn.Module):
        if dropout:
            source = copy.deepcopy(source).eval()
            dropping.check_modules(torch, source)
        program, fixed = _export(torch, source, example_inputs)
    else:
        program = _read(torch, os.fspath(source))
    if dropout:
        dropping.drop(torch, program)
    if trained:
        program = detach_parts(torch, program)
    try:
        with quiet(), without_wrong_rules(torch):
            return decomposed(torch, dequantised(torch, program.run_decompositions({}))), fixed
    except Exception as error:  # PyTorch raises many kinds
        raise ModelError(f"the model cannot be brought to PyTorch's core form ({first_line(error)})") from None


def read(source: Any) -> Any:
    """The program of a .pt2 file, or an exported program as it is. Raises `ModelError`."""
    torch = pytorch(source)
    return source if isinstance(source, torch.export.ExportedProgram) else _read(torch, os.fspath(source))


def runner(source: Any) -> tuple[int | None, Callable[[list[Any]], list[Any]]]:
    """How PyTorch computes a .pt2 file or exported program: the batch size it is fixed to, if any, and the call."""
    torch = pytorch(source)
    program = _read(torch, os.fspath(source)) if isinstance(source, str | os.PathLike) else source
    fakes = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    inputs = [fakes[name] for name in program.graph_signature.user_inputs if isinstance(name, str)]
    batch = inputs[0].shape[0] if inputs and len(inputs[0].shape) else None
    module = program.module()

    def call(arrays: list[Any]) -> list[Any]:
        tensors = [torch.from_numpy(np.ascontiguousarray(array)) for array in arrays]
        with torch.no_grad():
            # Copies: a module may change its inputs.
            outputs = module(*(tensor.to(fake.dtype, copy=True) for tensor, fake in zip(tensors, inputs, strict=True)))
        flat, _ = torch.utils._pytree.tree_flatten(outputs)
        return [tensor.double().numpy() for tensor in flat]

    return batch if isinstance(batch, int) else None, call


def pytorch(source: object) -> Any:
    # Both have an LLVM with the same options, and the second one that registers them ends the process.
    if "tensorflow" in sys.modules and "triton" not in sys.modules and importlib.util.find_spec("triton") is not None:
        raise ModelError(
            "PyTorch's Triton ends a process in which TensorFlow was loaded before it: compile PyTorch models in a "
            "process of their own, or import triton first"
        )
    try:
        import torch
        import torch.export
    except ImportError:
        shown = f"'{os.fspath(source)}'" if isinstance(source, str | os.PathLike) else "the model"
        raise ModelError(
            f"{shown} needs PyTorch, which is not installed: pip install 'covey[torch]', or export the model to ONNX"
        ) from None
    return torch


def _read(torch: Any, path: str) -> Any:
    if not os.path.exists(path):
        raise ModelError(f"'{path}' does not exist: check the path")
    said: list[str] = []
    try:
        with quiet(), _heard("torch.export", said):
            register_operators()
            return torch.export.load(path)
    except Exception as error:  # zipfile, pickle and PyTorch each raise their own
        lacking = re.search(r"failed to resolve torch\.ops\.(\S+)", " ".join(said))
        if lacking:
            raise ModelError(
                f"'{path}' has the operator {plain_name(lacking[1])} of a package that is not imported: write the "
                f"model with PyTorch's own operators"
            ) from None
        raise ModelError(
            f"'{path}' is not a readable PyTorch export ({first_line(error)}): write it with torch.export.save"
        ) from None


def _export(torch: Any, module: Any, example_inputs: Any) -> tuple[Any, str | None]:
    check_module(torch, module)
    training = next((path or "the model" for path, part in with_modes(torch, module) if part.training), None)
    if training is not None:
        raise ModelError(f"'{training}' is in training mode: call eval() on the module first")
    examples = example_tensors(torch, module, example_inputs)
    wide = {name: torch.cat([tensor, tensor]) if len(tensor) == 1 else tensor for name, tensor in examples.items()}
    named = isinstance(example_inputs, Mapping)

    def arguments(tensors: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return ((), dict(tensors)) if named else (tuple(tensors.values()), {})

    batch = torch.export.Dim("batch")
    args, kwargs = arguments(wide)
    try:
        # In the form of the signature, which may gather several in one parameter.
        given = dict(inspect.signature(module.forward).bind(*args, **kwargs).arguments)
        shapes = torch.utils._pytree.tree_map(lambda _: {0: batch}, given)
        with quiet():
            return torch.export.export(module, args, kwargs, dynamic_shapes=shapes), None
    except Exception as error:
        # Some modules fix the batch size in their code: they are exported with that of the examples.
        fixed = fixed_batch(error, first_line(error))
    try:
        with quiet():
            return torch.export.export(module, *arguments(examples)), fixed
    except Exception as error:
        raise cannot_export(torch, module, error, first_line(error)) from None


def example_tensors(torch: Any, module: Any, example_inputs: Any) -> dict[str, Any]:
    """A tensor for each argument, by its name or its number."""
    if example_inputs is None:
        raise ModelError(
            "a module needs example inputs to be exported: give example_inputs, [N, ..] for each input, or arrays or "
            "tensors of floats as calibration data"
        )
    if isinstance(example_inputs, Mapping):
        values = dict(example_inputs)
    else:
        several = example_inputs if isinstance(example_inputs, tuple | list) else (example_inputs,)
        values = {str(index): value for index, value in enumerate(several)}
    kinds = {parameter.dtype for parameter in module.parameters() if parameter.is_floating_point()}
    kind = kinds.pop() if len(kinds) == 1 else torch.float32
    tensors = {}
    for name, value in values.items():
        tensor = torch.from_numpy(value) if isinstance(value, np.ndarray) else value
        if not isinstance(tensor, torch.Tensor):
            raise ModelError(f"example input {name} is a {type(value).__name__}: give tensors or NumPy arrays")
        if tensor.dim() == 0 or len(tensor) == 0:
            raise ModelError(f"example input {name} has no batch dimension or no samples: give [N, ..]")
        tensors[name] = (
            tensor.to(kind) if torch.float64 in (tensor.dtype, kind) and tensor.is_floating_point() else tensor
        )
    if not tensors:
        raise ModelError("the model has no inputs: give example inputs [N, ..]")
    return tensors


@contextmanager
def quiet() -> Iterator[None]:
    """PyTorch's own remarks while it exports are not the user's concern."""
    import logging

    loggers = [logging.getLogger(name) for name in ("torch", "torch.export", "torch._export", "torch.fx")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):  # it prints graphs that it gives up on
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextmanager
def _heard(name: str, said: list[str]) -> Iterator[None]:
    """Adds the errors that a logger tells of to a list, where PyTorch raises another one that does not say why."""
    import logging

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(str(record.exc_info[1]) if record.exc_info else record.getMessage())

    logger, listener = logging.getLogger(name), Listener()
    level, spreads = logger.level, logger.propagate
    logger.setLevel(logging.WARNING)
    logger.propagate = False
    logger.addHandler(listener)
    try:
        yield
    finally:
        logger.removeHandler(listener)
        logger.propagate = spreads
        logger.setLevel(level)


def first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0][:200] if text else type(error).__name__


def plain_name(target: str) -> str:
    """`aten.relu` for `aten.relu.default`, and overloads as they are."""
    return target.removesuffix(".default")
