"""Networks of the zoo as PyTorch modules: trained there, they are written as the same graph with other weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx
import torch
from onnx import helper, numpy_helper
from torch import nn
from torch.nn import functional

from covey.errors import OptionError
from covey.models.network import Network


class ZooNetwork(nn.Module):  # type: ignore[misc]
    """A convolutional network that `covey.models` built, with the weights that it has.

        network = covey.nn.ZooNetwork(covey.models.build("resnet18", operator="x", classes=14))
        train(network)
        onnx.save(network.to_onnx(), "trained.onnx")

    Convolutions, dense layers and normalisations are submodules, named after their nodes with `_` for each dot.
    Raises `OptionError` for a model from elsewhere, and for one that is no convolutional network.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        super().__init__()
        if model.producer_name != Network.PRODUCER:
            raise OptionError("the model is none of covey.models: train it where it comes from, then compile its ONNX")
        self._model = model
        constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
        self._steps: list[tuple[str, list[str], str]] = []
        for node in model.graph.node:
            name = node.name.replace(".", "_")
            self.add_module(name, _module(node, [constants[each] for each in node.input if each in constants]))
            self._steps.append((name, [each for each in node.input if each not in constants], node.output[0]))
        self._source, self._target = model.graph.input[0].name, model.graph.output[0].name

    def forward(self, x: Any) -> Any:
        """The network's output for its input, both with the samples in front."""
        values = {self._source: x}
        for name, operands, output in self._steps:
            values[output] = getattr(self, name)(*(values[each] for each in operands))
        return values[self._target]

    def to_onnx(self) -> onnx.ModelProto:
        """The graph that the module was made from, with the weights and statistics that it has now."""
        made = onnx.ModelProto()
        made.CopyFrom(self._model)
        constants = {tensor.name: tensor for tensor in made.graph.initializer}
        for node, (name, _, _) in zip(made.graph.node, self._steps, strict=True):
            stored = [each for each in node.input if each in constants]
            for tensor, values in zip(stored, _weights(getattr(self, name)), strict=False):
                array = values.detach().cpu().float().numpy()
                constants[tensor].CopyFrom(numpy_helper.from_array(array, tensor))
        return made


class _Call(nn.Module):  # type: ignore[misc]
    """A function without weights."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *operands: Any) -> Any:
        return self.function(*operands)


class _Take(nn.Module):  # type: ignore[misc]
    """The channels at constant places."""

    def __init__(self, places: Any) -> None:
        super().__init__()
        self.register_buffer("places", torch.from_numpy(places.copy()))

    def forward(self, x: Any) -> Any:
        return x.index_select(1, self.places)


def _weights(module: nn.Module) -> list[Any]:
    """Tensors in the order of the ONNX node's inputs."""
    if isinstance(module, nn.BatchNorm2d):
        return [module.weight, module.bias, module.running_mean, module.running_var]
    if isinstance(module, nn.Conv2d | nn.Linear):
        return [module.weight] if module.bias is None else [module.weight, module.bias]
    return []


def _module(node: onnx.NodeProto, constants: list[Any]) -> nn.Module:
    """What computes a node, with its constants."""
    given = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    if node.op_type in ("Conv", "Gemm", "BatchNormalization"):
        made = _layer(node.op_type, given, constants)
        with torch.no_grad():
            for parameter, values in zip(_weights(made), constants, strict=True):
                parameter.copy_(torch.from_numpy(values.copy()))
        return made
    if node.op_type == "Gather" and given.get("axis") == 1 and len(constants) == 1:
        return _Take(constants[0])
    if node.op_type == "Slice" and len(constants) == 4:
        return _Call(_slicing(*constants))
    function = _function(node.op_type, given)
    if constants or function is None:
        raise OptionError(f"node '{node.name}' is a {node.op_type}, which no convolutional network of covey.models has")
    return _Call(function)


def _layer(kind: str, given: dict[str, Any], constants: list[Any]) -> nn.Module:
    """A layer of the sizes that its constants have; its weights are set by the caller."""
    first = constants[0]
    if kind == "BatchNormalization":
        return nn.BatchNorm2d(len(first), given.get("epsilon", 1e-5))
    if kind == "Gemm":
        return nn.Linear(first.shape[1], first.shape[0])
    groups, pads = given.get("group", 1), given.get("pads", [0] * 4)
    return nn.Conv2d(
        first.shape[1] * groups, first.shape[0], first.shape[2:], given.get("strides", 1), pads[:2],
        groups=groups, bias=len(constants) > 1,
    )  # fmt: skip


def _slicing(starts: Any, ends: Any, axes: Any, steps: Any) -> Callable[[Any], Any]:
    places = {int(axis): slice(*map(int, each)) for axis, *each in zip(axes, starts, ends, steps, strict=True)}
    return lambda x: x[tuple(places.get(axis, slice(None)) for axis in range(x.dim()))]


def _function(kind: str, given: dict[str, Any]) -> Callable[..., Any] | None:
    """What the operators without weights compute, in the forms that the zoo's networks have."""
    window = (given.get("kernel_shape"), given.get("strides"), list(given.get("pads", [0, 0]))[:2])
    return {
        "Relu": functional.relu,
        "HardSwish": functional.hardswish,
        "HardSigmoid": functional.hardsigmoid,
        "Add": torch.add,
        "Mul": torch.mul,
        "Concat": lambda *parts: torch.cat(parts, given["axis"]),
        "MaxPool": lambda x: functional.max_pool2d(x, *window),
        "AveragePool": lambda x: functional.avg_pool2d(x, *window),
        "GlobalAveragePool": lambda x: x.mean(dim=(2, 3), keepdim=True),
        "Flatten": lambda x: x.flatten(1),
    }.get(kind)
