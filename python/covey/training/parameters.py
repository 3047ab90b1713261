"""The tensors of a model that training may change, and how the imported network has each: turned, or reshaped."""

from __future__ import annotations

import copy
import itertools
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from covey.errors import OptionError, UnsupportedError
from covey.importers import onnx as onnx_models
from covey.importers import sklearn, tensorflow, torch_export
from covey.importers.source import Source, is_torch
from covey.inputs import listed
from covey.interval import Array
from covey.ir import Graph, Value
from covey.training.builder import Builder

WEIGHTS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("Conv", "ConvTranspose", "Gemm", "BatchNormalization"), (1, 2)),
    **dict.fromkeys(("LayerNormalization", "InstanceNormalization", "GroupNormalization"), (1, 2)),
    **dict.fromkeys(("RMSNormalization", "SimplifiedLayerNormalization", "PRelu"), (1,)),
    **dict.fromkeys(("MatMul", "Add", "Sub", "Mul", "Div"), (0, 1)),
    **dict.fromkeys(("Gather", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Identity", "Cast"), (0,)),
}
"""The operands of ONNX operators that are weights where they are constants: others say how an operator works."""


@dataclass(frozen=True)
class Tensor:
    """A tensor as the model has it, and whether it is one to train."""

    array: Array
    trained: bool


@dataclass(frozen=True)
class View:
    """What a parameter of the graph is of a tensor: its dimensions in another order, then in another shape."""

    tensor: str
    order: tuple[int, ...]
    shape: tuple[int, ...]

    def of(self, build: Builder, value: Value) -> Value:
        """The same of a value."""
        return build.reshape(build.transpose(value, self.order), self.shape)


@dataclass(frozen=True)
class Model:
    """A model whose tensors are known and can be replaced."""

    source: Any
    tensors: dict[str, Tensor]
    replaced: Callable[[Mapping[str, Array]], Any]
    """The model with others in the place of some tensors."""

    def probe(self, names: Iterable[str]) -> tuple[Any, dict[str, Array]]:
        """The model with random numbers in the place of these tensors, and the numbers.

        No pass takes them for a 0 or a 1 that changes nothing, and what importers make of each tensor is plain to see.
        """
        rng = np.random.default_rng(0)
        drawn = {
            name: rng.uniform(0.5, 1.5, self.tensors[name].array.shape).astype(np.float32).astype(np.float64)
            for name in names
        }
        return self.replaced(drawn), drawn


def model_of(source: Source) -> Model:
    """A model that can be trained. Raises `OptionError` for others."""
    if is_torch(source):
        return _of_torch(source)
    if sklearn.is_sklearn(source):
        raise OptionError("a fitted scikit-learn model is trained already: give a PyTorch or an ONNX model")
    return _of_onnx(tensorflow.convert(source) if tensorflow.is_tensorflow(source) else source)


def _of_torch(source: Any) -> Model:
    import torch

    again = source
    if isinstance(source, torch.nn.Module):
        state, parameters = source.state_dict(), dict(source.named_parameters())
        trained = {name for name, parameter in parameters.items() if parameter.requires_grad}
    else:
        source = torch_export.read(source)
        state, trained = source.state_dict, set(source.graph_signature.parameters)

    def replaced(arrays: Mapping[str, Array]) -> Any:
        # A copied program cannot be saved: a file is read once more.
        from_file = isinstance(again, str | os.PathLike)
        other = torch_export.read(again) if from_file else copy.deepcopy(source)
        tensors = other.state_dict() if isinstance(other, torch.nn.Module) else other.state_dict
        with torch.no_grad():
            for name, array in arrays.items():
                tensors[name].copy_(torch.from_numpy(array))
        return other

    found = {
        name: Tensor(tensor.detach().cpu().double().numpy().copy(), name in trained)
        for name, tensor in state.items()
        if tensor.is_floating_point()
    }
    return Model(source, found, replaced)


def _of_onnx(source: Any) -> Model:
    model = onnx_models.load(source)
    found = {}
    elsewhere = {
        name
        for node in model.graph.node
        for place, name in enumerate(node.input)
        if place not in WEIGHTS.get(node.op_type, ())
    }
    for entry in model.graph.initializer:
        array = numpy_helper.to_array(entry)
        if array.dtype.kind == "f":
            trained = array.ndim > 0 and entry.name not in elsewhere and not _is_constant(entry.name)
            found[entry.name] = Tensor(array.astype(np.float64), trained)

    def replaced(arrays: Mapping[str, Array]) -> Any:
        other = onnx.ModelProto()
        other.CopyFrom(model)
        for entry in other.graph.initializer:
            if entry.name in arrays:
                dtype = numpy_helper.to_array(entry).dtype
                entry.CopyFrom(numpy_helper.from_array(arrays[entry.name].astype(dtype), entry.name))
        return other

    return Model(model, found, replaced)


def _is_constant(name: str) -> bool:
    """Whether an exporter made up the name: of constants that are part of the network's form."""
    return bool(re.match(r"(onnx::)?(_?[vV]al_|Constant|/.*Constant|onnx::(Add|Sub|Div|Mul|Pow)_)", name))


def chosen(found: Mapping[str, Tensor], freeze: Sequence[str]) -> dict[str, Array]:
    """What is trained: all tensors that may be but those whose names match a pattern of `freeze`."""
    names = [name for name, tensor in found.items() if tensor.trained]
    for pattern in freeze:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise OptionError(f"freeze '{pattern}' matches no parameter: the model trains {listed(names)}")
    kept = [name for name in names if not any(fnmatchcase(name, pattern) for pattern in freeze)]
    if not kept:
        raise OptionError("every parameter is frozen and none is left to train: freeze fewer")
    return {name: found[name].array for name in kept}


def views(graph: Graph, found: Mapping[str, Array]) -> dict[str, View]:
    """Which parameters of the graph are views of these tensors, which hold no number twice.

    Raises `UnsupportedError` where a parameter is a tensor's in name, but not as a whole.
    """
    used: dict[str, View] = {}
    holders = {_content(array): name for name, array in found.items()}
    for name, array in graph.parameters.items():
        tensor = holders.get(_content(array)) or _owner(name, found)
        if tensor is None:
            continue
        view = _view(tensor, found[tensor], array)
        if view is not None:
            used[name] = view
        elif any(name in node.inputs for node in graph.nodes):
            reader = next(node for node in graph.nodes if name in node.inputs)
            reason = f"it reads a part of '{tensor}', or something computed from it"
            raise UnsupportedError(reader.name, reader.source_op, reason, f"freeze it (freeze=['{tensor}'])")
    return used


def _content(array: Array) -> bytes:
    """The numbers of an array, in whatever order."""
    return np.sort(array, axis=None).tobytes()


def _owner(name: str, found: Mapping[str, Array]) -> str | None:
    """The tensor that a parameter is named after: importers add what they made of it."""
    while name not in found and "." in name:
        name = name.rpartition(".")[0]
    return name if name in found else None


def _view(name: str, tensor: Array, array: Array) -> View | None:
    if tensor.size != array.size:
        return None
    fits = []
    for order in itertools.permutations(range(tensor.ndim)) if tensor.ndim <= 5 else [tuple(range(tensor.ndim))]:
        turned = tensor.transpose(order)
        if np.array_equal(turned.reshape(array.shape), array):
            fits.append((turned.shape == array.shape, order))
    if not fits:
        return None
    return View(name, max(fits, key=lambda fit: fit[0])[1], array.shape)
