"""Transposed convolution over one, two and three dimensions: the adjoint of a convolution's map."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from covey.importers.onnx_node import OnnxNode, from_onnx
from covey.importers.torch_node import TorchNode, from_torch
from covey.interval import Array
from covey.ir import Node, Op, Shape, Value
from covey.lowering import Lowered, Lowering
from covey.ops.conv import Conv2d, last, weight_and_kernel
from covey.ops.gather import ABSENT
from covey.ops.window import STILL, Steps, image_window

if TYPE_CHECKING:
    from covey.training.builder import Builder


@dataclass(frozen=True)
class ConvTranspose(Op):
    """x [N, C, ..] with weight [C, O / groups, ..] and optional bias [O]; along each dimension `sizes` results.

    Input i and tap k add to result i * stride + k * dilation - before. `passes.conv_expansion` writes it with a
    convolution at the input's size, whose channels are put between one another.
    """

    steps: tuple[Steps, ...]
    sizes: tuple[int, ...]
    groups: int = 1

    def shape(self, *inputs: Value) -> Shape:
        x, weight = inputs[:2]
        if not x.batched or len(x.shape) != len(self.steps) + 1:
            raise ValueError(f"needs an input of {len(self.steps)} dimensions beside batch and channels, got {x}")
        if self.groups < 1 or x.shape[0] % self.groups or weight.shape[0] != x.shape[0]:
            raise ValueError(f"a weight of shape {list(weight.shape)} in {self.groups} groups does not fit {x}")
        outputs = weight.shape[1] * self.groups
        if len(inputs) > 2 and inputs[2].shape != (outputs,):
            raise ValueError(f"its bias has shape {list(inputs[2].shape)} instead of [{outputs}]")
        return (outputs, *self.sizes)

    def reference(self, *inputs: Array) -> Array:
        x, weight = inputs[:2]
        batch, channels, *sizes = x.shape
        per_group = weight.shape[1]
        grouped = weight.reshape(self.groups, channels // self.groups, per_group, *weight.shape[2:])
        # With room for every tap; the wanted part is cut out.
        room = [
            max((size - 1) * steps.stride + steps.extent, steps.before + wanted)
            for size, steps, wanted in zip(sizes, self.steps, self.sizes, strict=True)
        ]
        result = np.zeros((batch, self.groups, per_group, *room))
        split = x.reshape(batch, self.groups, channels // self.groups, *sizes)
        for tap in itertools.product(*(range(steps.kernel) for steps in self.steps)):
            places = tuple(
                slice(k * steps.dilation, k * steps.dilation + (size - 1) * steps.stride + 1, steps.stride)
                for k, size, steps in zip(tap, sizes, self.steps, strict=True)
            )
            result[last(*places)] += np.einsum("ngc...,gco->ngo...", split, grouped[last(*tap)])
        wanted = tuple(slice(s.before, s.before + size) for s, size in zip(self.steps, self.sizes, strict=True))
        result = result[last(*wanted)].reshape(batch, self.groups * per_group, *self.sizes)
        bias = inputs[2] if len(inputs) > 2 else np.zeros(result.shape[1])
        return np.asarray(result + bias.reshape(-1, *(1,) * len(sizes)))

    def stacked(self, build: Builder, *inputs: Value) -> Value:
        """A convolution of the input, its elements as far apart as the strides, with the kernels turned about."""
        x, weight, *bias = inputs
        if len(self.steps) > 2:
            raise build.unsupported("transposed convolutions of volumes have no gradient")
        steps, sizes = ((STILL, *self.steps)[-2:], (1, *self.sizes)[-2:])
        count, channels = x.shape[:2]
        x = build.reshape(x, (count, channels, *(1, *x.shape[2:])[-2:]))
        along: list[Sequence[int]] = [range(count), range(channels)]
        for step, size, wanted in zip(steps, x.shape[2:], sizes, strict=True):
            reach, last = step.extent - 1, (size - 1) * step.stride
            places = (place - reach + step.before for place in range(wanted + reach))
            along.append([p // step.stride if 0 <= p <= last and p % step.stride == 0 else ABSENT for p in places])
        kernel = tuple(step.kernel for step in steps)
        grouped = build.reshape(weight, (self.groups, channels // self.groups, weight.shape[1], *kernel))
        shape = (self.groups * weight.shape[1], channels // self.groups, *kernel)
        turned = build.reshape(build.transpose(grouped, (0, 2, 1, 3, 4)), shape)
        about = [range(size) for size in shape[:2]] + [range(size)[::-1] for size in kernel]
        window = image_window(*(replace(step, stride=1, before=0, after=0) for step in steps))
        spread = build.pick(x, along, "spread")
        y = build.emit(Conv2d(window, self.groups), spread, build.pick(turned, about, "about"), *bias)
        return build.reshape(y, (count, shape[0], *self.sizes))

    def lower(self, low: Lowering, node: Node) -> Lowered:
        raise NotImplementedError("a pass writes it with a convolution")


@from_onnx("ConvTranspose")
def _conv_transpose(node: OnnxNode) -> None:
    x = node.activation(0)
    weight, kernel = weight_and_kernel(node, x)
    rank = len(kernel)
    strides = node.integers("strides") or [1] * rank
    dilations = node.integers("dilations") or [1] * rank
    extra = node.integers("output_padding") or [0] * rank
    pads = node.integers("pads") or [0] * (2 * rank)
    auto = node.attribute("auto_pad", "NOTSET") or "NOTSET"
    wanted = node.integers("output_shape")
    wanted = wanted[-rank:] if wanted is not None else None
    if len(strides) != rank or len(dilations) != rank or len(extra) != rank or len(pads) != 2 * rank:
        raise node.unsupported("its attributes do not fit its kernel", "repair the model")
    if min(strides + dilations) < 1 or min(extra + pads) < 0:
        raise node.unsupported(f"its strides {strides}, dilations {dilations} or pads {pads} are negative", "repair it")
    steps, sizes = [], []
    for axis in range(rank):
        step = Steps(kernel[axis], strides[axis], pads[axis], pads[axis + rank], dilations[axis])
        full = (x.shape[axis + 1] - 1) * step.stride + extra[axis] + step.extent
        size = full - step.before - step.after
        if wanted is not None:
            size = wanted[axis]
        elif auto in ("SAME_UPPER", "SAME_LOWER"):
            size = x.shape[axis + 1] * step.stride
            if size > full:
                raise node.unsupported(
                    f"its auto_pad {auto} gives {size} elements where its windows reach {full}",
                    "export the model with pads in the place of auto_pad",
                )
        elif auto == "VALID":
            size = full
        if wanted is not None or auto != "NOTSET":
            # ONNX: what is too much is cut off at both ends, the odd one behind for SAME_UPPER, else in front.
            total = max(0, full - size)
            before = total // 2 if auto == "SAME_UPPER" else total - total // 2
            step = Steps(step.kernel, step.stride, before, total - before, step.dilation)
        if size < 1:
            raise node.unsupported(f"its result has size {size} along dimension {axis + 2}", "repair the model")
        steps.append(step)
        sizes.append(size)
    inputs = [x, weight]
    if node.has(2):
        inputs.append(node.parameter(node.weights(2, "bias"), node.inputs[2]))
    node.emit(ConvTranspose(tuple(steps), tuple(sizes), int(node.attribute("group", 1))), inputs)


@from_torch("aten.conv_transpose1d.default", "aten.conv_transpose2d.input", "aten.conv_transpose3d.input")
def _conv_transpose_aten(node: TorchNode) -> None:
    x, rank = node.activation("input"), node.constant("weight").ndim - 2
    attributes = {
        "strides": node.integers("stride", rank),
        "dilations": node.integers("dilation", rank),
        "pads": node.integers("padding", rank) * 2,
        "output_padding": node.integers("output_padding", rank),
    }
    bias = node.operand("bias") if node.has("bias") else None
    node.become("ConvTranspose", x, node.operand("weight"), bias, **attributes, group=node.integers("groups")[0])
