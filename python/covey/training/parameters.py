"""The tensors of a model that training may change, and how the imported network has each: turned, or in parts."""

from __future__ import annotations

import copy
import itertools
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper

from covey.errors import ModelError, OptionError, UnsupportedError
from covey.importers import boosting, sklearn, tensorflow, torch_programs
from covey.importers import onnx as onnx_models
from covey.importers.source import Source, is_torch
from covey.inputs import listed
from covey.interval import Array
from covey.ir import Graph, Shape, Value
from covey.ops.gather import Gather
from covey.training.builder import Builder

WEIGHTS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("Conv", "ConvTranspose", "Gemm", "BatchNormalization"), (1, 2)),
    **dict.fromkeys(("LayerNormalization", "InstanceNormalization", "GroupNormalization"), (1, 2)),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), (1, 2, 3, 7)),
    **dict.fromkeys(("RMSNormalization", "SimplifiedLayerNormalization", "PRelu"), (1,)),
    **dict.fromkeys(("MatMul", "Add", "Sub", "Mul", "Div"), (0, 1)),
    **dict.fromkeys(("Gather", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Identity", "Cast"), (0,)),
}
"""The operands of ONNX operators that are weights where they are constants: others say how an operator works."""


DRAWN_BITS = 23
DRAWN = 1 << DRAWN_BITS
"""Numbers from 0.5 to 1.5 that a float of 32 bits holds exactly and that are equally far apart."""

MOST_DISTINCT = DRAWN // 2
"""So many numbers are drawn without a repetition."""


@dataclass(frozen=True)
class Tensor:
    """A tensor as the model has it, and whether it is one to train."""

    array: Array
    trained: bool
    dtype: str
    """What the model calls the type of its numbers."""
    others: tuple[str, ...] = ()
    """Further names of the same tensor."""

    def matches(self, name: str, pattern: str) -> bool:
        """Whether a pattern names it."""
        return any(fnmatchcase(each, pattern) for each in (name, *self.others))


@dataclass(frozen=True)
class View:
    """What a parameter of the graph is of a tensor: its dimensions in another order, then in another shape."""

    tensor: str
    order: tuple[int, ...]
    shape: tuple[int, ...]

    def of(self, build: Builder, value: Value) -> Value:
        """The same of a value."""
        return build.reshape(build.transpose(value, self.order), self.shape)

    def of_array(self, array: Array) -> Array:
        """The same of the tensor's numbers."""
        return np.asarray(array.transpose(self.order).reshape(self.shape))


@dataclass(frozen=True)
class Part:
    """What a parameter of the graph is of a tensor whose numbers it has in other places, or not all of them."""

    tensor: str
    taken: Gather

    def of(self, build: Builder, value: Value) -> Value:
        """The same of a value."""
        return build.emit(self.taken, value, hint="part")

    def of_array(self, array: Array) -> Array:
        """The same of the tensor's numbers."""
        return np.asarray(self.taken.reference(array[None])[0])


@dataclass(frozen=True)
class Computed:
    """What a network computes of its tensors alone: a network whose one sample they are, and whose outputs it reads."""

    graph: Graph
    tensors: list[str]
    """The names of its inputs."""
    names: list[str]
    """The names of its outputs."""


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
        The numbers of all tensors together differ unless there are too many.
        """
        names = list(names)
        for name in names:
            if self.tensors[name].dtype not in ("float32", "float64"):
                raise OptionError(
                    f"'{name}' has numbers of {self.tensors[name].dtype}, too coarse to train: give the model in "
                    f"float32 (module.float() in PyTorch), or freeze it (freeze=['{name}'])"
                )
        rng = np.random.default_rng(0)
        shapes = {name: self.tensors[name].array.shape for name in names}
        sizes = [int(np.prod(shape)) for shape in shapes.values()]
        numbers = 0.5 + np.ldexp(rng.choice(DRAWN, sum(sizes), replace=sum(sizes) > MOST_DISTINCT), -DRAWN_BITS)
        parts = np.split(numbers, np.cumsum(sizes)[:-1])
        drawn = {name: part.reshape(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}
        return self.replaced(drawn), drawn


def model_of(source: Source) -> Model:
    """A model that can be trained. Raises `OptionError` for others."""
    if is_torch(source):
        return _of_torch(source)
    if sklearn.is_sklearn(source) or boosting.is_booster(source):
        raise OptionError(
            "a fitted model of scikit-learn, XGBoost or LightGBM is trained already: give a PyTorch or an ONNX model"
        )
    return _of_onnx(tensorflow.convert(source) if tensorflow.is_tensorflow(source) else source)


def _of_torch(source: Any) -> Model:
    import torch

    again = source = torch_programs.as_written(source)
    names: dict[object, list[str]] = {}
    if isinstance(source, torch.nn.Module):
        state, parameters = source.state_dict(), dict(source.named_parameters(remove_duplicate=False))
        _check_hooks(source, parameters)
    else:
        source = torch_programs.read(source)
        state = source.state_dict
        parameters = {name: state[name] for name in source.graph_signature.parameters}
    for name, parameter in parameters.items():
        # A file keeps no more of a parameter with two names than where its numbers are; parameters of a module that
        # share their numbers are one as well.
        place = (parameter.data_ptr(), parameter.shape, parameter.stride()) if parameter.numel() else name
        names.setdefault(place, []).append(name)
    first = {alike[0]: alike for alike in names.values()}
    trained = {name for name, alike in first.items() if all(parameters[each].requires_grad for each in alike)}

    def replaced(arrays: Mapping[str, Array]) -> Any:
        # A copied program cannot be saved: a file is read once more.
        from_file = isinstance(again, str | os.PathLike)
        try:
            other = torch_programs.read(again) if from_file else copy.deepcopy(source)
        except RuntimeError as error:  # as of tensors that are computed from others
            raise ModelError(
                f"the module cannot be copied ({str(error).split('.')[0]}): undo what computes weights, such as "
                f"torch.nn.utils.remove_weight_norm"
            ) from None
        load_trained(other, {each: array for name, array in arrays.items() for each in (name, *found[name].others)})
        return other

    # A single number is a row of one here: a sample of a step has dimensions.
    found = {
        name: Tensor(
            np.atleast_1d(tensor.detach().cpu().double().numpy().copy()),
            name in trained,
            str(tensor.dtype).removeprefix("torch."),
            tuple(first.get(name, [])[1:]),
        )
        for name, tensor in state.items()
        if tensor.is_floating_point()
    }
    return Model(source, found, replaced)


def _check_hooks(module: Any, parameters: Mapping[str, Any]) -> None:
    """Refuse what changes gradients as they come to a parameter or go through a part."""
    hooked = [name for name, each in parameters.items() if each._backward_hooks or each._post_accumulate_grad_hooks]
    parts = module.named_modules()
    hooked += [name or "the module" for name, part in parts if part._backward_hooks or part._backward_pre_hooks]
    if hooked:
        raise OptionError(f"'{hooked[0]}' has a hook on its gradient, which a program has not: remove the hook")


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
            found[entry.name] = Tensor(array.astype(np.float64), trained, array.dtype.name)

    def replaced(arrays: Mapping[str, Array]) -> Any:
        other = onnx.ModelProto()
        other.CopyFrom(model)
        load_trained(other, arrays)
        return other

    return Model(model, found, replaced)


def _is_constant(name: str) -> bool:
    """Whether an exporter made up the name: of constants that are part of the network's form."""
    return bool(re.match(r"(onnx::)?(_?[vV]al_|Constant|/.*Constant|onnx::(Add|Sub|Div|Mul|Pow)_)", name))


def chosen(found: Mapping[str, Tensor], freeze: Sequence[str]) -> dict[str, Array]:
    """What is trained: all tensors that may be but those whose names match a pattern of `freeze`."""
    names = [name for name, tensor in found.items() if tensor.trained]
    freeze = [freeze] if isinstance(freeze, str) else freeze
    if not isinstance(freeze, Iterable) or not all(isinstance(pattern, str) for pattern in freeze):
        raise OptionError(f"freeze is {freeze!r}: give names or patterns of parameters, such as ['features.*']")
    for pattern in freeze:
        if not any(found[name].matches(name, pattern) for name in names):
            raise OptionError(f"freeze '{pattern}' matches no parameter: the model trains {listed(names)}")
    kept = [name for name in names if not any(found[name].matches(name, pattern) for pattern in freeze)]
    if not kept:
        raise OptionError("every parameter is frozen and none is left to train: freeze fewer")
    return {name: found[name].array for name in kept}


def views(graph: Graph, found: Mapping[str, Array], sources: Mapping[str, str] | None = None) -> dict[str, View | Part]:
    """Which parameters of the graph are views of these tensors, of which no two hold the same numbers.

    `sources` are the tensors that others are computed of. Raises `UnsupportedError` where a parameter is a tensor's in
    name, but not as a whole.
    """
    used: dict[str, View | Part] = {}
    holders = {_content(array): name for name, array in found.items()}
    numbers = _Numbers(found)
    for name, array in graph.parameters.items():
        tensor = holders.get(_content(array)) or numbers.holder(array) or _owner(name, found)
        if tensor is None:
            continue
        view = _view(tensor, found[tensor], array) or numbers.part(tensor, array)
        if view is not None:
            used[name] = view
        elif any(name in node.inputs for node in graph.nodes):
            reader = next(node for node in graph.nodes if name in node.inputs)
            tensor = (sources or {}).get(tensor, tensor)
            reason = f"it reads a part of '{tensor}', or something computed from it"
            raise UnsupportedError(reader.name, reader.source_op, reason, f"freeze it (freeze=['{tensor}'])")
    return used


class _Numbers:
    """Where each number of these tensors is, if no number is there twice."""

    def __init__(self, found: Mapping[str, Array]) -> None:
        self.found = found
        self.names = list(found)
        self.ends = np.cumsum([array.size for array in found.values()])
        self.distinct = 0 < self.ends[-1] <= MOST_DISTINCT if self.names else False
        self.all = np.concatenate([array.ravel() for array in found.values()]) if self.distinct else np.zeros(0)
        self.order = self.all.argsort()

    def _places(self, array: Array) -> npt.NDArray[np.int64] | None:
        """The places of an array's numbers among those of all tensors; None where one is in no tensor."""
        if not self.distinct or not array.size:
            return None
        order = self.order[np.searchsorted(self.all, array, sorter=self.order).clip(max=self.all.size - 1)]
        return order if np.array_equal(self.all[order], array) else None

    def holder(self, array: Array) -> str | None:
        """The tensor that holds all numbers of an array."""
        places = self._places(array)
        if places is None:
            return None
        first, last = np.searchsorted(self.ends, [places.min(), places.max()], side="right")
        return self.names[first] if first == last else None

    def part(self, tensor: str, array: Array) -> Part | None:
        """What an array is of a tensor that holds its numbers."""
        places = self._places(array)
        if places is None or not array.ndim or self.holder(array) != tensor:
            return None
        index = self.names.index(tensor)
        places = places - (self.ends[index] - self.found[tensor].size)
        # Offsets that add up along the dimensions, as a turned tensor or one with its rows in another order has them.
        axes = []
        for axis in range(places.ndim):
            along = places[tuple(slice(None) if other == axis else 0 for other in range(places.ndim))]
            axes.append(along - along.min())
        axes[0] = axes[0] + places.min()
        if not np.array_equal(sum(np.ix_(*axes)), places):
            return None
        return Part(tensor, Gather(tuple(tuple(offsets.tolist()) for offsets in axes)))


def _content(array: Array) -> tuple[int, int]:
    """Of arrays with the same numbers, in whatever order, the same, and hardly ever of others: a sum of hashes."""
    bits = np.ascontiguousarray(array, dtype=np.float64).reshape(-1).view(np.uint64)
    mixed = (bits ^ (bits >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return array.size, int((mixed ^ (mixed >> np.uint64(32))).sum())


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


def load_trained(model: Any, weights: Mapping[str, npt.NDArray[Any]]) -> None:
    """Put trained tensors, such as `Trainer.weights()`, into the model that the job was compiled from.

    It is a PyTorch module, an exported program or a loaded ONNX model (`onnx.ModelProto`). Tensors that the job did
    not train stay as they are, and tied ones are trained under one of their names. Raises `ModelError` where the model
    has no tensor of a name, or one of another shape.
    """
    tensors = _tensors_of(model)
    for name, array in weights.items():
        # A job has a single number as a row of one.
        if name not in tensors or np.atleast_1d(array).shape != (tensors[name][0] or (1,)):
            kind = f"no '{name}'" if name not in tensors else f"a '{name}' of another shape"
            raise ModelError(f"the model has {kind}: give the model that the job was compiled from")
    for name, array in weights.items():
        shape, put = tensors[name]
        put(np.asarray(array).reshape(shape))


def _tensors_of(model: Any) -> dict[str, tuple[Shape, Callable[[Array], object]]]:
    """The shapes of a model's tensors by name, and what sets each."""
    if isinstance(model, onnx.ModelProto):
        return {each.name: (tuple(each.dims), partial(_set_initializer, each)) for each in model.graph.initializer}
    if not torch_programs.is_torch(model):
        raise ModelError(
            f"an object of type {type(model).__name__} is no model to load into: give a PyTorch module, an exported "
            f"program or an onnx.ModelProto"
        )
    import torch

    model = torch_programs.as_written(model)
    state = model.state_dict() if isinstance(model, torch.nn.Module) else model.state_dict
    return {name: (tuple(tensor.shape), partial(_set_tensor, tensor)) for name, tensor in state.items()}


def _set_initializer(entry: onnx.TensorProto, array: Array) -> None:
    dtype = numpy_helper.to_array(entry).dtype
    entry.CopyFrom(numpy_helper.from_array(array.astype(dtype), entry.name))


def _set_tensor(tensor: Any, array: Array) -> None:
    import torch

    with torch.no_grad():
        tensor.copy_(torch.from_numpy(array))
