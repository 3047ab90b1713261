"""Building an ONNX graph while evaluating it on one batch, so that statistics come from real activations.

Weights are drawn as He and others propose (arXiv:1502.01852, equation 10), so that signals neither die nor explode.
BatchNormalization gets the statistics of the batch the network is built with.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from covey.models.images import Floats, Shape, pseudo_images

EPSILON = 1e-5
IMAGE_MEAN, IMAGE_DEVIATION = 0.5, 0.25
WEIGHT_SEED, BATCH_SEED = 0, 1

BATCH_ELEMENTS = 32 * 3 * 32 * 32
"""A network is built with so many pixels: 32 small images, or two large ones."""

DRAWN_AT_ONCE = 1 << 20
"""Weights are drawn in double precision so many at a time."""


@dataclass(frozen=True)
class Value:
    """A tensor of the graph: its name, and what it holds for the batch the network is built with."""

    name: str
    batch: npt.NDArray[Any]


@dataclass
class Construction:
    """An ONNX graph under construction; `largest` and `least_alive` say what its activations did."""

    name: str
    rng: np.random.Generator = field(init=False)
    proto: onnx.ModelProto = field(init=False, repr=False)
    largest: float = field(init=False, default=0.0)
    least_alive: float = field(init=False, default=1.0)

    VERSIONS: ClassVar[tuple[int, int]] = (8, 17)
    """Of the format and of the operators: one goes with the other, and older runtimes read the file too."""

    PRODUCER: ClassVar[str] = "covey.models"
    """What files say of where they come from."""

    def __post_init__(self) -> None:
        self.rng = np.random.Generator(np.random.PCG64(WEIGHT_SEED))
        form, opset = self.VERSIONS
        self.proto = onnx.ModelProto(ir_version=form, producer_name=self.PRODUCER)
        self.proto.opset_import.append(helper.make_opsetid("", opset))
        self.proto.graph.name = self.name

    def conv(
        self,
        name: str,
        x: Value,
        channels: int,
        kernel: int,
        stride: int = 1,
        pad: int = 0,
        bias: bool = True,
        gain: float = math.sqrt(2),
        groups: int = 1,
    ) -> Value:
        """A square convolution from x [N, C, H, W] to [N, channels, H', W']; `groups` divides both channel counts."""
        # (image - mean) / deviation, the usual preparation of images, is folded into the first layer.
        mean, deviation = (0.0, 1.0) if self.proto.graph.node else (IMAGE_MEAN, IMAGE_DEVIATION)
        weight = self.he(channels, x.batch.shape[1] // groups, kernel, kernel, gain=gain) / np.float32(deviation)
        inputs = [x.name, self.tensor(f"{name}.weight", weight)]
        y = convolution(x.batch, weight, stride, pad, groups)
        if bias:
            offset = self.small(channels) - np.float32(mean) * weight.sum(axis=(1, 2, 3))
            inputs.append(self.tensor(f"{name}.bias", offset))
            y += offset[:, None, None]
        attributes = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pad] * 4}
        if groups > 1:
            return self.add_node("Conv", name, inputs, y, **attributes, group=groups)
        return self.add_node("Conv", name, inputs, y, **attributes)

    def relu(self, name: str, x: Value) -> Value:
        """max(x, 0)."""
        y = np.maximum(x.batch, 0)
        self.least_alive = min(self.least_alive, float((y > 0).mean()))
        return self.add_node("Relu", name, [x.name], y)

    def relu6(self, name: str, x: Value) -> Value:
        """x clipped to 0..6."""
        ends = {f"{name}.low": 0, f"{name}.high": 6}
        self.proto.graph.initializer.extend(
            numpy_helper.from_array(np.array(end, np.float32), part) for part, end in ends.items()
        )
        return self.add_node("Clip", name, [x.name, *ends], np.clip(x.batch, 0, 6))

    def sigmoid(self, name: str, x: Value) -> Value:
        """1 / (1 + exp(-x))."""
        return self.add_node("Sigmoid", name, [x.name], 1 / (1 + np.exp(-x.batch)))

    def swish(self, name: str, x: Value) -> Value:
        """x times the sigmoid of x."""
        return self.mul(name, x, self.sigmoid(f"{name}.sigmoid", x))

    def add(self, name: str, x: Value, y: Value) -> Value:
        """x + y."""
        return self.add_node("Add", name, [x.name, y.name], x.batch + y.batch)

    def mul(self, name: str, x: Value, y: Value) -> Value:
        """x · y, each element with its own or by broadcasting."""
        return self.add_node("Mul", name, [x.name, y.name], x.batch * y.batch)

    def hard_sigmoid(self, name: str, x: Value) -> Value:
        """x / 6 + 1/2, clipped to 0..1."""
        return self.add_node("HardSigmoid", name, [x.name], np.clip(x.batch / 6 + 0.5, 0, 1), alpha=1 / 6, beta=0.5)

    def hard_swish(self, name: str, x: Value) -> Value:
        """x times the hard sigmoid of x."""
        return self.add_node("HardSwish", name, [x.name], x.batch * np.clip(x.batch / 6 + 0.5, 0, 1))

    def channels(self, name: str, x: Value, order: Sequence[int]) -> Value:
        """The channels of x [N, C, H, W] at these indices."""
        indices = self.indices(f"{name}.order", order)
        return self.add_node("Gather", name, [x.name, indices], x.batch[:, list(order)], axis=1)

    def every(self, name: str, x: Value, stride: int) -> Value:
        """Every `stride`-th row and column of x [N, C, H, W], from the first one on."""
        limits = {"starts": [0, 0], "ends": list(x.batch.shape[2:]), "axes": [2, 3], "steps": [stride] * 2}
        inputs = [x.name, *(self.indices(f"{name}.{part}", values) for part, values in limits.items())]
        return self.add_node("Slice", name, inputs, x.batch[:, :, ::stride, ::stride])

    def concat(self, name: str, parts: Sequence[Value], axis: int) -> Value:
        """Side by side along an axis."""
        joined = np.concatenate([part.batch for part in parts], axis=axis)
        return self.add_node("Concat", name, [part.name for part in parts], joined, axis=axis)

    def he(self, *shape: int, gain: float = math.sqrt(2)) -> Floats:
        """Normal weights of standard deviation gain / sqrt(fan-in); the first dimension is the output."""
        return self.normal(shape, gain / math.sqrt(math.prod(shape[1:])))

    def normal(self, shape: Sequence[int], deviation: float) -> Floats:
        """Normal weights of mean 0."""
        weight = np.empty(math.prod(shape), np.float32)
        for start in range(0, weight.size, DRAWN_AT_ONCE):
            part = weight[start : start + DRAWN_AT_ONCE]
            part[:] = self.rng.standard_normal(part.size) * deviation
        return weight.reshape(shape)

    def small(self, size: int) -> Floats:
        """Normal values of standard deviation 0.05, for biases and the like."""
        values: Floats = (0.05 * self.rng.standard_normal(size)).astype(np.float32)
        return values

    def tensor(self, name: str, values: Floats) -> str:
        """Store a parameter; returns its name."""
        # Filled in its place: the largest of these takes 400 MB, and every copy as much again.
        self.proto.graph.initializer.add().CopyFrom(
            numpy_helper.from_array(np.ascontiguousarray(values, np.float32), name)
        )
        return name

    def indices(self, name: str, values: Sequence[int]) -> str:
        """Store whole numbers that the graph's structure needs; returns their name."""
        self.proto.graph.initializer.append(numpy_helper.from_array(np.array(values, np.int64), name))
        return name

    def add_node(self, op: str, name: str, inputs: list[str], batch: Floats, **attributes: Any) -> Value:
        """Append a node with one output, named after it."""
        output = f"{name}_out"
        self.proto.graph.node.append(helper.make_node(op, inputs, [output], name=name, **attributes))
        self.largest = max(self.largest, float(batch.max()), -float(batch.min()))
        return Value(output, np.asarray(batch, np.float32))


@dataclass
class Network(Construction):
    """A network of images [N, C, H, W], which gives `classes` logits."""

    input_shape: Shape
    classes: int = 10

    @property
    def batch(self) -> int:
        """Images the network is built with."""
        return max(2, min(32, BATCH_ELEMENTS // math.prod(self.input_shape)))

    def input(self) -> Value:
        """The network's input, holding a batch of pseudo-images."""
        return Value("image", pseudo_images(self.batch, self.input_shape, BATCH_SEED))

    def gemm(self, name: str, x: Value, size: int, gain: float = math.sqrt(2)) -> Value:
        """A fully connected layer from x [N, K] to [N, size]."""
        weight, bias = self.he(size, x.batch.shape[1], gain=gain), self.small(size)
        inputs = [x.name, self.tensor(f"{name}.weight", weight), self.tensor(f"{name}.bias", bias)]
        return self.add_node("Gemm", name, inputs, x.batch @ weight.T + bias, transB=1)

    def batch_norm(self, name: str, x: Value, gain: float = 1.0) -> Value:
        """Normalisation with the statistics of the batch, a scale near `gain` and an offset near zero."""
        channels = x.batch.shape[1]
        scale, bias = (gain * (1 + self.small(channels))).astype(np.float32), self.small(channels)
        mean, variance = x.batch.mean(axis=(0, 2, 3)), x.batch.var(axis=(0, 2, 3))
        parts = {"scale": scale, "bias": bias, "mean": mean, "variance": variance}
        factor = scale / np.sqrt(variance + EPSILON)
        y = (x.batch - mean[:, None, None]) * factor[:, None, None] + bias[:, None, None]
        inputs = [x.name, *(self.tensor(f"{name}.{part}", tensor) for part, tensor in parts.items())]
        return self.add_node("BatchNormalization", name, inputs, y, epsilon=EPSILON)

    def max_pool(self, name: str, x: Value, kernel: int = 2, stride: int = 2, pad: int = 0) -> Value:
        """The largest of every window; padding never wins."""
        y = windows(x.batch, kernel, stride, pad, -np.inf).max(axis=(4, 5))
        return self.add_node(
            "MaxPool", name, [x.name], y, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4
        )

    def average_pool(self, name: str, x: Value, kernel: int = 2, stride: int = 2, pad: int = 0) -> Value:
        """The mean of every window, zeros of the padding included."""
        y = windows(x.batch, kernel, stride, pad).mean(axis=(4, 5))
        attributes = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pad] * 4}
        return self.add_node("AveragePool", name, [x.name], y, **attributes, count_include_pad=1)

    def global_average_pool(self, name: str, x: Value) -> Value:
        """The mean of every channel, [N, C, 1, 1]."""
        return self.add_node("GlobalAveragePool", name, [x.name], x.batch.mean(axis=(2, 3), keepdims=True))

    def flatten(self, name: str, x: Value) -> Value:
        """[N, C, H, W] to [N, C·H·W]."""
        return self.add_node("Flatten", name, [x.name], x.batch.reshape(len(x.batch), -1), axis=1)

    def model(self, output: Value) -> onnx.ModelProto:
        """The finished model: input `image` [batch, C, H, W], output `logits` [batch, classes]."""
        graph = self.proto.graph
        graph.node[-1].output[0] = "logits"
        graph.input.append(helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", *self.input_shape]))
        graph.output.append(
            helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", output.batch.shape[1]])
        )
        return self.proto


def windows(x: Floats, kernel: int, stride: int, pad: int, fill: float = 0.0) -> Floats:
    """Every window of x [N, C, H, W] as a view [N, C, H', W', kernel, kernel]."""
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)), constant_values=fill)
    return np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), axis=(2, 3))[:, :, ::stride, ::stride]


def convolution(x: Floats, weight: Floats, stride: int, pad: int, groups: int = 1) -> Floats:
    """x [N, C, H, W] with weight [O, C / groups, K, K], sample by sample: its windows as a matrix, times the weight."""
    if groups == x.shape[1] == len(weight):
        return _depthwise(x, weight, stride, pad)
    if groups > 1:
        parts = zip(np.split(x, groups, axis=1), np.split(weight, groups), strict=True)
        return np.concatenate([convolution(part, own, stride, pad) for part, own in parts], axis=1)
    views = windows(x, weight.shape[2], stride, pad)
    count, _, rows, columns = views.shape[:4]
    y = np.empty((count, weight.shape[0], rows, columns), np.float32)
    matrix = weight.reshape(weight.shape[0], -1)
    for sample, view in zip(y, views, strict=True):
        patches = view.transpose(0, 3, 4, 1, 2).reshape(matrix.shape[1], -1)
        np.matmul(matrix, patches, out=sample.reshape(weight.shape[0], -1))
    return y


def _depthwise(x: Floats, weight: Floats, stride: int, pad: int) -> Floats:
    """A kernel [C, 1, K, K] for each channel: tap by tap, as a product for each channel would be mostly overhead."""
    views = windows(x, weight.shape[2], stride, pad)
    y = np.zeros(views.shape[:4], np.float32)
    for row, column in np.ndindex(*weight.shape[2:]):
        y += views[..., row, column] * weight[:, 0, row, column, None, None]
    return y
