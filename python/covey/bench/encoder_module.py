"""Encoder layers of the zoo as a PyTorch module that is trained: the yardstick beside private steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx
import torch
from onnx import helper, numpy_helper
from torch import nn
from torch.nn import functional

from covey.errors import OptionError

OPERATORS: dict[str, Callable[..., Any]] = {
    "Add": torch.add,
    "Mul": torch.mul,
    "MatMul": torch.matmul,
    "Relu": torch.relu,
    "Gelu": lambda x, approximate: functional.gelu(x, approximate=approximate.decode()),
    "Softmax": lambda x, axis: x.softmax(axis),
    "Transpose": lambda x, perm: x.permute(perm),
    "Reshape": lambda x, shape: x.reshape([size or x.shape[axis] for axis, size in enumerate(shape.tolist())]),
    "LayerNormalization": lambda x, weight, bias, axis, epsilon: functional.layer_norm(
        x, x.shape[axis:], weight, bias, epsilon
    ),
}


class EncoderModule(nn.Module):  # type: ignore[misc]
    """What the nodes of a graph compute of one input. Raises `OptionError` for a graph with other nodes.

    Weights and biases are trained, under the names that `plain` makes of theirs, other constants are not.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        super().__init__()
        self._nodes = [
            (node, {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute})
            for node in model.graph.node
        ]
        for node, _ in self._nodes:
            if node.op_type not in OPERATORS:
                raise OptionError(f"node '{node.name}' is a {node.op_type}, which encoder layers do not have")
        self._source, self._target = model.graph.input[0].name, model.graph.output[0].name
        self._constants = [tensor.name for tensor in model.graph.initializer]
        for tensor in model.graph.initializer:
            values = torch.from_numpy(numpy_helper.to_array(tensor).copy())
            if tensor.name.endswith((".weight", ".bias")):
                self.register_parameter(plain(tensor.name), nn.Parameter(values))
            else:
                self.register_buffer(plain(tensor.name), values)

    def forward(self, x: Any) -> Any:
        """The graph's output."""
        values = {name: getattr(self, plain(name)) for name in self._constants} | {self._source: x}
        for node, attributes in self._nodes:
            operands = [values[name] for name in node.input]
            values[node.output[0]] = OPERATORS[node.op_type](*operands, **attributes)
        return values[self._target]


def plain(name: str) -> str:
    """A tensor's name as PyTorch takes it."""
    return name.replace(".", "_")
