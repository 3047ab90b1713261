"""Convolution over one, two and three dimensions. Programs know the two-dimensional one; the others become it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from covey._proto import program_pb2 as pb
from covey.importers.onnx_node import OnnxNode, from_onnx
from covey.importers.torch_node import TorchNode, from_torch
from covey.interval import Array, Interval, of_centre
from covey.ir import Node, Op, Shape, Value, spatial
from covey.linear import emit_linear
from covey.lowering import Lowered, Lowering
from covey.ops.conv_of_secrets import ConvOfSecrets
from covey.ops.gather import ABSENT
from covey.ops.window import Steps, Window, image_window, read_steps

if TYPE_CHECKING:
    from covey.training.builder import Builder


@dataclass(frozen=True)
class Conv2d(Op):
    """x [N, .., C, H, W] with weight [O, C / groups, KH, KW] and optional bias [O] to [N, .., O, OH, OW]."""

    window: Window
    groups: int = 1
    widens = True

    def shape(self, *inputs: Value) -> Shape:
        lead, channels, height, width = spatial(inputs[0])
        check_weight(inputs[1:], channels, self.groups, 2)
        return (*lead, inputs[1].shape[0], *self.window.output(height, width))

    def reference(self, *inputs: Array) -> Array:
        x, weight = inputs[:2]
        bias = inputs[2] if len(inputs) > 2 else np.zeros(weight.shape[0])
        images = x.reshape(-1, *x.shape[-3:])
        results = np.concatenate([self._one(image[None], weight) for image in images]) + bias[:, None, None]
        return results.reshape(*x.shape[:-3], *results.shape[1:])

    def _one(self, x: Array, weight: Array) -> Array:
        views = self.window.slide(x, 0.0)[0]
        _, rows, columns, *_ = views.shape
        outputs = weight.shape[0]
        patches = views.transpose(0, 3, 4, 1, 2).reshape(self.groups, -1, rows * columns)
        flat = weight.reshape(self.groups, outputs // self.groups, -1)
        return np.asarray(np.matmul(flat, patches)).reshape(1, outputs, rows, columns)

    def interval(self, *inputs: Interval) -> Interval:
        if not all(each.is_constant for each in inputs[1:]):
            kernels = (Interval(each.low[None], each.high[None]) for each in inputs[1:])
            return ConvOfSecrets(self.window, self.groups).interval(inputs[0], *kernels)
        x, weight = inputs[0], inputs[1].low
        bias = [inputs[2].low] if len(inputs) > 2 else []
        return of_centre(
            self.reference(x.centre, weight, *bias),
            self.reference(x.radius, np.abs(weight)),
            terms=weight[0].size,
            products=float(np.abs(weight).max()) * x.magnitude,
            more=float(np.abs(bias).max(initial=0.0)),
        )

    def of_secrets(self, build: Builder, *inputs: Value) -> Value:
        x, weight, *bias = inputs
        if not weight.batched:
            y = build.emit(self, x, weight, *(each for each in bias if not each.batched), hint="product")
            secret = [build.reshape(each, (*each.shape, 1, 1)) for each in bias if each.batched]
            return build.total([y, *secret])
        beside = [each for each in bias if each.batched]
        y = build.emit(ConvOfSecrets(self.window, self.groups), x, weight, *beside, hint="product")
        return build.total([y, *(build.reshape(each, (*each.shape, 1, 1)) for each in bias if not each.batched)])

    def _back(self, build: Builder, x: Value, weight: Value, gradient: Value) -> Value:
        """A convolution of the gradient, its elements as far apart as the strides, with the kernels turned about."""
        outputs, inner, *kernel = weight.shape
        along: list[Sequence[int]] = [range(size) for size in gradient.shape]
        for axis, (size, taps) in enumerate(zip(x.shape[-2:], kernel, strict=True)):
            stride, reach = self.window.strides[axis], (taps - 1) * self.window.dilations[axis]
            last = (gradient.shape[axis - 2] - 1) * stride
            places = (place - reach + self.window.pads[axis] for place in range(size + reach))
            along[axis - 2] = [p // stride if 0 <= p <= last and p % stride == 0 else ABSENT for p in places]
        spread = build.pick(gradient, along, "spread")
        grouped = build.reshape(weight, (self.groups, outputs // self.groups, inner, *kernel))
        turned = build.reshape(
            build.transpose(grouped, (0, 2, 1, 3, 4)), (self.groups * inner, outputs // self.groups, *kernel)
        )
        about = [range(size) for size in turned.shape[:2]] + [range(size)[::-1] for size in kernel]
        turned = build.pick(turned, about, "about")
        window = Window(self.window.kernel, (1, 1), (0, 0, 0, 0), self.window.dilations)
        return build.emit(Conv2d(window, self.groups), spread, turned, hint="back")

    def _of_weight(self, build: Builder, x: Value, weight: Value, gradient: Value) -> Value:
        """The input, its images as channels, with the gradient as kernels: strides and dilations change places."""
        outputs, inner, *kernel = weight.shape
        (_, rows, columns), count = gradient.shape[-3:], math.prod(gradient.shape[:-3])
        images = build.reshape(x, (count, self.groups, inner, *x.shape[-2:]))
        turned = build.transpose(images, (2, 1, 0, 3, 4))
        turned = build.reshape(turned, (inner, self.groups * count, *x.shape[-2:]))
        kernels = build.transpose(build.reshape(gradient, (count, outputs, rows, columns)), (1, 0, 2, 3))
        window = Window((rows, columns), self.window.dilations, self.window.pads, self.window.strides)
        found = build.emit(Conv2d(window, self.groups), turned, kernels, hint="of_weight")
        if list(found.shape[-2:]) != kernel:
            # What the last window does not reach takes part in more places than the kernel has.
            found = build.pick(found, [range(size) for size in (*found.shape[:2], *kernel)], "within")
        return build.transpose(found, (1, 0, 2, 3))

    def gradient(
        self, build: Builder, inputs: Sequence[Value], result: Value, gradient: Value
    ) -> Sequence[Value | None]:
        x, weight, *bias = inputs
        channel = len(gradient.shape) - 3
        others = [axis for axis in range(len(gradient.shape)) if axis != channel]
        return [
            build.part(x, lambda: self._back(build, x, weight, gradient)),
            build.part(weight, lambda: self._of_weight(build, x, weight, gradient)),
            *(
                build.reshape(build.sum_over(gradient, others), each.shape) if build.learns(each) else None
                for each in bias
            ),
        ]

    def lower(self, low: Lowering, node: Node) -> Lowered:
        return emit_linear(low, node, pb.Conv2d(window=self.window.proto(), groups=self.groups))


@dataclass(frozen=True)
class ConvNd(Op):
    """x [N, C, ..] with weight [O, C / groups, ..] and optional bias [O], over as many dimensions as `steps` has.

    `passes.conv_expansion` writes it with Conv2d.
    """

    steps: tuple[Steps, ...]
    groups: int = 1

    def shape(self, *inputs: Value) -> Shape:
        x = inputs[0]
        if not x.batched or len(x.shape) != len(self.steps) + 1:
            raise ValueError(f"needs an input of {len(self.steps)} dimensions beside batch and channels, got {x}")
        check_weight(inputs[1:], x.shape[0], self.groups, len(self.steps))
        sizes = zip(self.steps, x.shape[1:], strict=True)
        return (inputs[1].shape[0], *(steps.output(size) for steps, size in sizes))

    def reference(self, *inputs: Array) -> Array:
        x, weight = inputs[:2]
        counts = [steps.output(size) for steps, size in zip(self.steps, x.shape[2:], strict=True)]
        padded = np.pad(x, [(0, 0), (0, 0), *((steps.before, steps.after) for steps in self.steps)])
        batch, channels, outputs = len(x), x.shape[1], weight.shape[0]
        grouped = weight.reshape(self.groups, outputs // self.groups, channels // self.groups, *weight.shape[2:])
        result = np.zeros((batch, self.groups, outputs // self.groups, *counts))
        for tap in itertools.product(*(range(steps.kernel) for steps in self.steps)):
            view = padded[last(*map(_reads, self.steps, tap, counts))].reshape(
                batch, self.groups, channels // self.groups, *counts
            )
            result += np.einsum("ngc...,goc->ngo...", view, grouped[last(*tap)])
        bias = inputs[2] if len(inputs) > 2 else np.zeros(outputs)
        return result.reshape(batch, outputs, *counts) + bias.reshape(-1, *(1,) * len(counts))

    def lower(self, low: Lowering, node: Node) -> Lowered:
        raise NotImplementedError("a pass writes it with Conv2d")


def last(*indices: int | slice) -> Any:
    """Indexes the last dimensions."""
    return (Ellipsis, *indices)


def _reads(steps: Steps, tap: int, count: int) -> slice:
    """What one tap of a window reads, over all its positions."""
    first = tap * steps.dilation
    return slice(first, first + (count - 1) * steps.stride + 1, steps.stride)


def check_weight(parameters: Sequence[Value], channels: int, groups: int, rank: int) -> None:
    """Raise `ValueError` unless the weight [O, C / groups, ..] and the bias [O] fit the channels."""
    weight = parameters[0].shape
    if len(weight) != rank + 2:
        raise ValueError(f"needs a weight of {rank + 2} dimensions (O, C/groups and the kernel), got {list(weight)}")
    if groups < 1 or channels % groups or weight[0] % groups:
        raise ValueError(f"{groups} groups do not divide {channels} input and {weight[0]} output channels")
    if weight[1] * groups != channels:
        raise ValueError(f"a weight of shape {list(weight)} in {groups} groups does not fit {channels} channels")
    if len(parameters) > 1 and parameters[1].shape != (weight[0],):
        raise ValueError(f"its bias has shape {list(parameters[1].shape)} instead of [{weight[0]}]")


def convolution(steps: Sequence[Steps], groups: int) -> Op:
    """The convolution over as many dimensions as there are steps."""
    return Conv2d(image_window(*steps), groups) if len(steps) == 2 else ConvNd(tuple(steps), groups)


def weight_and_kernel(node: OnnxNode, x: Value) -> tuple[Value, list[int]]:
    """The weight of a (transposed) convolution of x, and the sizes of its kernel."""
    rank = len(x.shape) - 1
    if not 1 <= rank <= 3:
        raise node.unsupported(f"its input {x} is no image", "1-D, 2-D and 3-D convolution are supported")
    weight = node.parameter(node.weights(1, "weight"), node.inputs[1])
    if len(weight.shape) != rank + 2:
        raise node.unsupported(f"its weight has shape {list(weight.shape)} for {x}", "repair the model")
    kernel = list(weight.shape[2:])
    declared = node.integers("kernel_shape")
    if declared is not None and declared != kernel:
        raise node.unsupported(f"its kernel_shape {declared} is not the weight's {kernel}", "repair the model")
    return weight, kernel


@from_onnx("Conv")
def _conv(node: OnnxNode) -> None:
    x = node.activation(0)
    weight, kernel = weight_and_kernel(node, x)
    steps, _ = read_steps(node, kernel, x.shape[1:])
    inputs = [x, weight]
    if node.has(2):
        inputs.append(node.parameter(node.weights(2, "bias"), node.inputs[2]))
    node.emit(convolution(steps, int(node.attribute("group", 1))), inputs)


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
