"""Write a standard network with seeded, untrained weights as ONNX, for verifying and timing Covey.

    python examples/models.py resnet18-cifar resnet18.onnx
    python examples/models.py lenet5 lenet5.onnx --samples 4 --data lenet5.npy

| model | input | layers |
|---|---|---|
| lenet5 | 1×28×28 | conv 6 and 16 (5×5), each with a 2×2 MaxPool; Gemm 400→120→84→10 |
| alexnet-cifar | 3×32×32 | conv 64 (11×11, stride 4), 192 (5×5), 384, 256, 256 (3×3); three MaxPools; Gemm 256→10 |
| vgg16-cifar | 3×32×32 | the thirteen 3×3 convolutions of VGG16 and five 2×2 MaxPools; Gemm 512→512→512→10 |
| vgg16-cifar-avgpool | 3×32×32 | the same with AveragePool |
| resnet18-cifar | 3×32×32 | 3×3 stem, four stages of two blocks, BatchNormalization after each conv; Gemm 512→10 |

ReLU follows every hidden layer. Weights are drawn as He and others propose (arXiv:1502.01852, equation 10), from PCG64
with seed 0, so that signals neither die nor explode; the usual preparation of images is folded into the first layer.
BatchNormalization gets the statistics of one batch of pseudo-images. Sample images are smooth, differ from one another
and lie in [0, 1]. NumPy and onnx are all this needs.
"""

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

Floats = npt.NDArray[np.float32]

BATCH = 32
EPSILON = 1e-5
IMAGE_MEAN, IMAGE_DEVIATION = 0.5, 0.25
WEIGHT_SEED, BATCH_SEED, SAMPLE_SEED = 0, 1, 2


def pseudo_images(count: int, shape: tuple[int, int, int], seed: int) -> Floats:
    """`count` smooth images [count, C, H, W] in [0, 1]: random grids, interpolated, each with its own contrast."""
    rng = np.random.Generator(np.random.PCG64(seed))
    channels, height, width = shape
    grid = 5
    coarse = rng.random((count, channels, grid, grid))
    fine = np.einsum("hg,ncgk,wk->nchw", interpolation(height, grid), coarse, interpolation(width, grid))
    low, high = fine.min(axis=(1, 2, 3), keepdims=True), fine.max(axis=(1, 2, 3), keepdims=True)
    contrast = rng.uniform(0.5, 1.0, (count, 1, 1, 1))
    brightness = rng.random((count, 1, 1, 1)) * (1 - contrast)
    images: Floats = (brightness + contrast * (fine - low) / (high - low)).astype(np.float32)
    return images


def interpolation(size: int, grid: int) -> npt.NDArray[np.float64]:
    """The matrix [size, grid] that interpolates linearly between `grid` points; its rows add up to one."""
    distance = np.abs(np.linspace(0, grid - 1, size)[:, None] - np.arange(grid))
    matrix: npt.NDArray[np.float64] = np.maximum(0, 1 - distance)
    return matrix


@dataclass(frozen=True)
class Value:
    """A tensor of the graph: its name, and what it holds for the batch the network is built with."""

    name: str
    batch: Floats


@dataclass
class Network:
    """An ONNX graph that is evaluated on one batch while it is built, so that statistics come from real activations."""

    name: str
    input_shape: tuple[int, int, int]
    rng: np.random.Generator = field(init=False)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    tensors: list[onnx.TensorProto] = field(default_factory=list)
    largest: float = 0.0
    least_alive: float = 1.0

    def __post_init__(self) -> None:
        self.rng = np.random.Generator(np.random.PCG64(WEIGHT_SEED))

    def input(self) -> Value:
        """The network's input, holding a batch of pseudo-images."""
        return Value("image", pseudo_images(BATCH, self.input_shape, BATCH_SEED))

    def conv(
        self, name: str, x: Value, channels: int, kernel: int, stride: int = 1, pad: int = 0, bias: bool = True
    ) -> Value:
        """A square convolution from x [N, C, H, W] to [N, channels, H', W']."""
        # (image - mean) / deviation, the usual preparation of images, is folded into the first layer.
        mean, deviation = (0.0, 1.0) if self.nodes else (IMAGE_MEAN, IMAGE_DEVIATION)
        weight = self.he(channels, x.batch.shape[1], kernel, kernel) / np.float32(deviation)
        inputs = [x.name, self.tensor(f"{name}.weight", weight)]
        y = np.einsum("nchwij,ocij->nohw", windows(x.batch, kernel, stride, pad), weight, optimize=True)
        if bias:
            offset = self.small(channels) - np.float32(mean) * weight.sum(axis=(1, 2, 3))
            inputs.append(self.tensor(f"{name}.bias", offset))
            y = y + offset[:, None, None]
        return self.add_node("Conv", name, inputs, y, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4)

    def gemm(self, name: str, x: Value, size: int, gain: float = math.sqrt(2)) -> Value:
        """A fully connected layer from x [N, K] to [N, size]."""
        weight, bias = self.he(size, x.batch.shape[1], gain=gain), self.small(size)
        inputs = [x.name, self.tensor(f"{name}.weight", weight), self.tensor(f"{name}.bias", bias)]
        return self.add_node("Gemm", name, inputs, x.batch @ weight.T + bias, transB=1)

    def batch_norm(self, name: str, x: Value) -> Value:
        """Normalisation with the statistics of the batch, a scale near one and an offset near zero."""
        channels = x.batch.shape[1]
        scale, bias = (1 + self.small(channels)).astype(np.float32), self.small(channels)
        mean, variance = x.batch.mean(axis=(0, 2, 3)), x.batch.var(axis=(0, 2, 3))
        parts = {"scale": scale, "bias": bias, "mean": mean, "variance": variance}
        factor = scale / np.sqrt(variance + EPSILON)
        y = (x.batch - mean[:, None, None]) * factor[:, None, None] + bias[:, None, None]
        inputs = [x.name, *(self.tensor(f"{name}.{part}", tensor) for part, tensor in parts.items())]
        return self.add_node("BatchNormalization", name, inputs, y, epsilon=EPSILON)

    def relu(self, name: str, x: Value) -> Value:
        """max(x, 0)."""
        y = np.maximum(x.batch, 0)
        self.least_alive = min(self.least_alive, float((y > 0).mean()))
        return self.add_node("Relu", name, [x.name], y)

    def max_pool(self, name: str, x: Value) -> Value:
        """The largest of every 2 × 2 window."""
        y = windows(x.batch, 2, 2, 0).max(axis=(4, 5))
        return self.add_node("MaxPool", name, [x.name], y, kernel_shape=[2, 2], strides=[2, 2])

    def average_pool(self, name: str, x: Value) -> Value:
        """The mean of every 2 × 2 window."""
        y = windows(x.batch, 2, 2, 0).mean(axis=(4, 5))
        return self.add_node("AveragePool", name, [x.name], y, kernel_shape=[2, 2], strides=[2, 2])

    def global_average_pool(self, name: str, x: Value) -> Value:
        """The mean of every channel, [N, C, 1, 1]."""
        return self.add_node("GlobalAveragePool", name, [x.name], x.batch.mean(axis=(2, 3), keepdims=True))

    def add(self, name: str, x: Value, y: Value) -> Value:
        """x + y."""
        return self.add_node("Add", name, [x.name, y.name], x.batch + y.batch)

    def flatten(self, name: str, x: Value) -> Value:
        """[N, C, H, W] to [N, C·H·W]."""
        return self.add_node("Flatten", name, [x.name], x.batch.reshape(len(x.batch), -1), axis=1)

    def he(self, *shape: int, gain: float = math.sqrt(2)) -> Floats:
        """Normal weights of standard deviation gain / sqrt(fan-in); the first dimension is the output."""
        weight: Floats = (self.rng.standard_normal(shape) * (gain / math.sqrt(math.prod(shape[1:])))).astype(np.float32)
        return weight

    def small(self, size: int) -> Floats:
        """Normal values of standard deviation 0.05, for biases and the like."""
        values: Floats = (0.05 * self.rng.standard_normal(size)).astype(np.float32)
        return values

    def tensor(self, name: str, values: Floats) -> str:
        """Store a parameter; returns its name."""
        self.tensors.append(numpy_helper.from_array(np.ascontiguousarray(values, np.float32), name))
        return name

    def add_node(self, op: str, name: str, inputs: list[str], batch: Floats, **attributes: Any) -> Value:
        """Append a node with one output, named after it."""
        output = f"{name}_out"
        self.nodes.append(helper.make_node(op, inputs, [output], name=name, **attributes))
        self.largest = max(self.largest, float(np.abs(batch).max()))
        return Value(output, np.asarray(batch, np.float32))

    def model(self, output: Value) -> onnx.ModelProto:
        """The finished model: input `image` [batch, C, H, W], output `logits` [batch, classes]."""
        self.nodes[-1].output[0] = "logits"
        graph = helper.make_graph(
            self.nodes,
            self.name,
            [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", *self.input_shape])],
            [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", output.batch.shape[1]])],
            self.tensors,
        )
        # IR version 8 goes with opset 17, so that older runtimes read the file too.
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        model.producer_name = "covey examples/models.py"
        onnx.checker.check_model(model, full_check=True)
        return model


def windows(x: Floats, kernel: int, stride: int, pad: int) -> Floats:
    """Every window of x [N, C, H, W] as a view [N, C, H', W', kernel, kernel]; padding is zero."""
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    return np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), axis=(2, 3))[:, :, ::stride, ::stride]


def lenet5(net: Network) -> Value:
    """LeNet-5 with ReLU and MaxPool."""
    x = net.relu("relu1", net.conv("conv1", net.input(), 6, 5, pad=2))
    x = net.relu("relu2", net.conv("conv2", net.max_pool("pool1", x), 16, 5))
    x = net.flatten("flatten", net.max_pool("pool2", x))
    x = net.relu("relu3", net.gemm("fc1", x, 120))
    x = net.relu("relu4", net.gemm("fc2", x, 84))
    return net.gemm("fc3", x, 10, gain=1)


def alexnet(net: Network) -> Value:
    """AlexNet's five convolutions, cut down to 32 × 32 images."""
    x = net.relu("relu1", net.conv("conv1", net.input(), 64, 11, stride=4, pad=5))
    x = net.relu("relu2", net.conv("conv2", net.max_pool("pool1", x), 192, 5, pad=2))
    x = net.relu("relu3", net.conv("conv3", net.max_pool("pool2", x), 384, 3, pad=1))
    x = net.relu("relu4", net.conv("conv4", x, 256, 3, pad=1))
    x = net.relu("relu5", net.conv("conv5", x, 256, 3, pad=1))
    return net.gemm("fc", net.flatten("flatten", net.max_pool("pool3", x)), 10, gain=1)


def vgg16(net: Network, average: bool = False) -> Value:
    """VGG16 for 32 × 32 images."""
    pool = net.average_pool if average else net.max_pool
    x = net.input()
    for stage, (repeats, channels) in enumerate([(2, 64), (2, 128), (3, 256), (3, 512), (3, 512)], 1):
        for layer in range(1, repeats + 1):
            x = net.relu(f"relu{stage}_{layer}", net.conv(f"conv{stage}_{layer}", x, channels, 3, pad=1))
        x = pool(f"pool{stage}", x)
    x = net.flatten("flatten", x)
    x = net.relu("relu6", net.gemm("fc6", x, 512))
    x = net.relu("relu7", net.gemm("fc7", x, 512))
    return net.gemm("fc8", x, 10, gain=1)


def resnet18(net: Network) -> Value:
    """ResNet18 for 32 × 32 images: a 3 × 3 stem with stride 1, no pooling before the stages."""

    def conv_bn(name: str, x: Value, channels: int, kernel: int, stride: int = 1) -> Value:
        y = net.conv(f"{name}.conv", x, channels, kernel, stride, pad=kernel // 2, bias=False)
        return net.batch_norm(f"{name}.bn", y)

    def block(name: str, x: Value, channels: int, stride: int) -> Value:
        y = net.relu(f"{name}.relu1", conv_bn(f"{name}.1", x, channels, 3, stride))
        y = conv_bn(f"{name}.2", y, channels, 3)
        if stride != 1:
            x = conv_bn(f"{name}.shortcut", x, channels, 1, stride)
        return net.relu(f"{name}.relu2", net.add(f"{name}.add", y, x))

    x = net.relu("stem.relu", conv_bn("stem", net.input(), 64, 3))
    for stage, (channels, stride) in enumerate([(64, 1), (128, 2), (256, 2), (512, 2)], 1):
        x = block(f"stage{stage}.block1", x, channels, stride)
        x = block(f"stage{stage}.block2", x, channels, 1)
    x = net.flatten("flatten", net.global_average_pool("pool", x))
    return net.gemm("fc", x, 10, gain=1)


Shape = tuple[int, int, int]
MODELS: dict[str, tuple[Shape, Callable[[Network], Value]]] = {
    "lenet5": ((1, 28, 28), lenet5),
    "alexnet-cifar": ((3, 32, 32), alexnet),
    "vgg16-cifar": ((3, 32, 32), vgg16),
    "vgg16-cifar-avgpool": ((3, 32, 32), lambda net: vgg16(net, average=True)),
    "resnet18-cifar": ((3, 32, 32), resnet18),
}


def build(name: str) -> tuple[onnx.ModelProto, Network]:
    """The model of that name, and the network it was built from, with its ranges. Raises KeyError for another name."""
    shape, layers = MODELS[name]
    net = Network(name, shape)
    return net.model(layers(net)), net


def samples(name: str, count: int) -> Floats:
    """`count` pseudo-images for that model, none of them from the batch it was built with."""
    return pseudo_images(count, MODELS[name][0], SAMPLE_SEED)


def main() -> None:
    """Write a model, and sample images if asked."""
    parser = argparse.ArgumentParser(description="Write a standard network with seeded weights as ONNX.")
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("out", type=Path, help="the ONNX file to write")
    parser.add_argument("--data", type=Path, help="also write sample images, float32 .npy")
    parser.add_argument("--samples", type=int, default=4, help="how many sample images (default 4)")
    arguments = parser.parse_args()
    if arguments.samples < 1:
        parser.error("--samples must be at least 1")
    model, net = build(arguments.model)
    onnx.save(model, arguments.out)
    print(f"wrote {arguments.out}, {arguments.out.stat().st_size:,} bytes")
    print(f"largest |activation| {net.largest:.2f}; at least {net.least_alive:.0%} of values alive after every ReLU")
    if arguments.data:
        np.save(arguments.data, samples(arguments.model, arguments.samples))
        print(f"wrote {arguments.data}, {arguments.samples} images")


if __name__ == "__main__":
    main()
