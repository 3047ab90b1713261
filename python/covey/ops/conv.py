"""Two-dimensional convolution."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from covey._proto import program_pb2 as pb
from covey.importers.onnx_node import OnnxNode, from_onnx
from covey.importers.torch_node import TorchNode, from_torch
from covey.interval import Array, Interval, of_centre
from covey.ir import Node, Op, Shape, Value, spatial
from covey.lowering import Lowered, Lowering
from covey.ops.window import Window, read_window


@dataclass(frozen=True)
class Conv2d(Op):
    """x [N, C, H, W] with weight [O, C / groups, KH, KW] and optional bias [O] to [N, O, OH, OW]."""

    window: Window
    groups: int = 1
    widens = True

    def shape(self, *inputs: Value) -> Shape:
        channels, height, width = spatial(inputs[0])
        weight = inputs[1].shape
        if len(weight) != 4:
            raise ValueError(f"needs a weight of shape [O, C/groups, KH, KW], got {list(weight)}")
        if self.groups < 1 or channels % self.groups or weight[0] % self.groups:
            raise ValueError(f"{self.groups} groups do not divide {channels} input and {weight[0]} output channels")
        if weight[1] * self.groups != channels:
            raise ValueError(
                f"a weight of shape {list(weight)} in {self.groups} groups does not fit {channels} channels"
            )
        if len(inputs) > 2 and inputs[2].shape != (weight[0],):
            raise ValueError(f"its bias has shape {list(inputs[2].shape)} instead of [{weight[0]}]")
        return (weight[0], *self.window.output(height, width))

    def reference(self, *inputs: Array) -> Array:
        x, weight = inputs[:2]
        bias = inputs[2] if len(inputs) > 2 else np.zeros(weight.shape[0])
        return np.concatenate([self._one(sample[None], weight) for sample in x]) + bias[:, None, None]

    def _one(self, x: Array, weight: Array) -> Array:
        views = self.window.slide(x, 0.0)[0]
        _, rows, columns, *_ = views.shape
        outputs = weight.shape[0]
        patches = views.transpose(0, 3, 4, 1, 2).reshape(self.groups, -1, rows * columns)
        flat = weight.reshape(self.groups, outputs // self.groups, -1)
        return np.asarray(np.matmul(flat, patches)).reshape(1, outputs, rows, columns)

    def interval(self, *inputs: Interval) -> Interval:
        x, weight = inputs[0], inputs[1].low
        bias = [inputs[2].low] if len(inputs) > 2 else []
        return of_centre(
            self.reference(x.centre, weight, *bias),
            self.reference(x.radius, np.abs(weight)),
            terms=weight[0].size + 1,
            products=float(np.abs(weight).max()) * x.magnitude,
        )

    def lower(self, low: Lowering, node: Node) -> Lowered:
        x = low.value(node.inputs[0])
        operands = [x, low.parameter(node, node.inputs[1], low.scale)]
        wide = x.scale + low.scale
        if len(node.inputs) > 2:
            operands.append(low.parameter(node, node.inputs[2], wide))
        return low.emit(
            node,
            pb.Conv2d(window=self.window.proto(), groups=self.groups),
            operands,
            shape=low.graph.values[node.output].shape,
            scale=wide,
            interval=self.interval(*(operand.interval for operand in operands)),
        )


@from_onnx("Conv")
def _conv(node: OnnxNode) -> None:
    x = node.activation(0)
    if len(x.shape) != 3:
        raise node.unsupported(f"its input {x} is not [N, C, H, W]", "only 2-D convolution is supported")
    weight = node.parameter(node.weights(1, "weight"), node.inputs[1])
    if len(weight.shape) != 4:
        raise node.unsupported(f"its weight has shape {list(weight.shape)}", "only 2-D convolution is supported")
    kernel = (weight.shape[2], weight.shape[3])
    declared = node.integers("kernel_shape")
    if declared is not None and tuple(declared) != kernel:
        raise node.unsupported(f"its kernel_shape {declared} is not the weight's {list(kernel)}", "repair the model")
    window, _ = read_window(node, kernel, x.shape[1], x.shape[2])
    inputs = [x, weight]
    if node.has(2):
        inputs.append(node.parameter(node.weights(2, "bias"), node.inputs[2]))
    node.emit(Conv2d(window, int(node.attribute("group", 1))), inputs)


@from_torch(
    "aten.conv1d.default",
    "aten.conv2d.default",
    "aten.conv3d.default",
    "aten.conv1d.padding",
    "aten.conv2d.padding",
    "aten.conv3d.padding",
)
def _conv_aten(node: TorchNode) -> None:
    x, rank = node.activation("input"), node.constant("weight").ndim - 2
    kernel, dilations = node.constant("weight").shape[2:], node.integers("dilation", rank)
    padding = node.argument("padding")
    if padding == "valid":
        pads = [0] * 2 * rank
    elif padding == "same":
        # PyTorch puts the odd element of padding behind.
        total = [(size - 1) * step for size, step in zip(kernel, dilations, strict=True)]
        pads = [size // 2 for size in total] + [size - size // 2 for size in total]
    else:
        pads = node.integers("padding", rank) * 2
    attributes = {"strides": node.integers("stride", rank), "dilations": dilations, "pads": pads}
    bias = node.operand("bias") if node.has("bias") else None
    node.become("Conv", x, node.operand("weight"), bias, **attributes, group=node.integers("groups")[0])
