"""The layers of the zoo's networks, as their authors published them, on images of three sizes.

LeNet-5: LeCun and others, Gradient-based learning applied to document recognition, 1998, with ReLU. AlexNet:
Krizhevsky, One weird trick for parallelizing convolutional neural networks (arXiv:1404.5997). VGG11, VGG16 and VGG19:
arXiv:1409.1556, configurations A, D and E. ResNet18, 34, 50, 101 and 152: arXiv:1512.03385, tables 1 and 6, ResNet32:
its section 4.2; the stride of a bottleneck is in its 3 × 3 convolution. SqueezeNet: arXiv:1602.07360, in its authors'
version 1.1, which CrypTFlow2 measures. DenseNet121: arXiv:1608.06993, table 1. MiniONN: Liu and others, Oblivious
neural network predictions via MiniONN transformations, 2017, figure 13. On small images stems and classifiers are cut
down the way that is usual for CIFAR-10. Where a plan names another operator (`forms`), it replaces the convolutions of
bottlenecks; ResNet18 and ResNet34 have no bottlenecks, and there it replaces every K × K convolution. Where it names a
width, ResNets of four stages have that part of their channels in every layer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from covey.models.forms import Operator, convolution, point, spatial
from covey.models.network import Network, Value

Pool = Literal["max", "avg"]


@dataclass(frozen=True)
class Plan:
    """What layers are built with: the network under construction, its kinds of pooling and convolutions, its width."""

    net: Network
    pool: Pool
    operator: Operator = "dense"
    width: float = 1.0
    shape: str = "imagenet"

    @property
    def cifar(self) -> bool:
        """Whether a network for large images takes its form for CIFAR's; otherwise it keeps its layers at any size."""
        return self.shape == "cifar"

    @property
    def small(self) -> bool:
        """Whether images are as small as CIFAR's."""
        return self.net.input_shape[1] < 64

    def wide(self, channels: int) -> int:
        """As many channels as the width leaves of those published: a multiple of four, so that halves are even."""
        return max(4, round(channels * self.width / 4) * 4)

    def pooled(self, name: str, x: Value, kernel: int = 2, stride: int = 2, pad: int = 0) -> Value:
        """A pooling layer of the chosen kind."""
        pool = self.net.max_pool if self.pool == "max" else self.net.average_pool
        return pool(name, x, kernel, stride, pad)

    def classifier(self, x: Value, sizes: list[int], first: int) -> Value:
        """Fully connected layers numbered from `first` with ReLU between them, down to the classes."""
        net = self.net
        x = net.flatten("flatten", x)
        for index, size in enumerate(sizes, first):
            x = net.relu(f"relu{index}", net.gemm(f"fc{index}", x, size))
        return net.gemm(f"fc{first + len(sizes)}", x, net.classes, gain=1)


def lenet5(plan: Plan) -> Value:
    """LeNet-5 with ReLU: two convolutions, each pooled, and three fully connected layers."""
    net = plan.net
    padding = 2 if net.input_shape[1] == 28 else 0  # the original takes images of 32 x 32
    x = net.relu("relu1", net.conv("conv1", net.input(), 6, 5, pad=padding))
    x = net.relu("relu2", net.conv("conv2", plan.pooled("pool1", x), 16, 5))
    x = net.flatten("flatten", plan.pooled("pool2", x))
    x = net.relu("relu3", net.gemm("fc1", x, 120))
    x = net.relu("relu4", net.gemm("fc2", x, 84))
    return net.gemm("fc3", x, net.classes, gain=1)


def alexnet(plan: Plan) -> Value:
    """AlexNet's five convolutions and three fully connected layers; one of these on small images."""
    net = plan.net
    window = (2, 2) if plan.small else (3, 2)
    x = net.relu("relu1", net.conv("conv1", net.input(), 64, 11, stride=4, pad=5 if plan.small else 2))
    x = net.relu("relu2", net.conv("conv2", plan.pooled("pool1", x, *window), 192, 5, pad=2))
    x = net.relu("relu3", net.conv("conv3", plan.pooled("pool2", x, *window), 384, 3, pad=1))
    x = net.relu("relu4", net.conv("conv4", x, 256, 3, pad=1))
    x = net.relu("relu5", net.conv("conv5", x, 256, 3, pad=1))
    return plan.classifier(plan.pooled("pool3", x, *window), [] if plan.small else [4096, 4096], 6)


def vgg11(plan: Plan) -> Value:
    """Eight 3 × 3 convolutions in five stages, and three fully connected layers."""
    return _vgg(plan, (1, 1, 2, 2, 2))


def vgg16(plan: Plan) -> Value:
    """Thirteen 3 × 3 convolutions in five stages, and three fully connected layers."""
    return _vgg(plan, (2, 2, 3, 3, 3))


def vgg19(plan: Plan) -> Value:
    """Sixteen 3 × 3 convolutions in five stages, and three fully connected layers."""
    return _vgg(plan, (2, 2, 4, 4, 4))


def _vgg(plan: Plan, repeated: tuple[int, ...]) -> Value:
    """So many convolutions a stage; classifiers are 512 wide on small images."""
    net = plan.net
    x = net.input()
    for stage, (repeats, channels) in enumerate(zip(repeated, (64, 128, 256, 512, 512), strict=True), 1):
        for layer in range(1, repeats + 1):
            x = net.relu(f"relu{stage}_{layer}", net.conv(f"conv{stage}_{layer}", x, channels, 3, pad=1))
        x = plan.pooled(f"pool{stage}", x)
    return plan.classifier(x, [512, 512] if plan.small else [4096, 4096], 6)


def resnet18(plan: Plan) -> Value:
    """Four stages of two basic blocks."""
    return _resnet(plan, [2, 2, 2, 2], _basic_block, stem=plan.operator)


def resnet34(plan: Plan) -> Value:
    """Four stages of three, four, six and three basic blocks."""
    return _resnet(plan, [3, 4, 6, 3], _basic_block, stem=plan.operator)


def resnet50(plan: Plan) -> Value:
    """Four stages of three, four, six and three bottlenecks."""
    return _resnet(plan, [3, 4, 6, 3], _bottleneck)


def resnet101(plan: Plan) -> Value:
    """Four stages of three, four, 23 and three bottlenecks."""
    return _resnet(plan, [3, 4, 23, 3], _bottleneck)


def resnet152(plan: Plan) -> Value:
    """Four stages of three, eight, 36 and three bottlenecks."""
    return _resnet(plan, [3, 8, 36, 3], _bottleneck)


def resnet32(plan: Plan) -> Value:
    """Three stages of five basic blocks of 16, 32 and 64 channels, for small images."""
    net = plan.net
    x = net.relu("stem.relu", _conv_bn(net, "stem", net.input(), 16, 3))
    for stage, channels in enumerate((16, 32, 64), 1):
        for index in range(1, 6):
            stride = 2 if stage > 1 and index == 1 else 1
            x = _basic_block(plan, f"stage{stage}.block{index}", x, channels, stride)
    x = net.flatten("flatten", net.global_average_pool("pool", x))
    return net.gemm("fc", x, net.classes, gain=1)


def minionn(plan: Plan) -> Value:
    """MiniONN's network for CIFAR-10: seven convolutions, two poolings, one fully connected layer."""
    net = plan.net
    x = net.input()
    for index, (channels, kernel) in enumerate([(64, 3), (64, 3), (64, 3), (64, 3), (64, 3), (64, 1), (16, 1)], 1):
        x = net.relu(f"relu{index}", net.conv(f"conv{index}", x, channels, kernel, pad=kernel // 2))
        if index in (2, 4):
            x = plan.pooled(f"pool{index // 2}", x)
    return net.gemm("fc", net.flatten("flatten", x), net.classes, gain=1)


def squeezenet(plan: Plan) -> Value:
    """Eight modules that squeeze channels and expand them twice, and a convolution that gives the classes."""
    net = plan.net
    x = net.conv("conv1", net.input(), 64, 3, pad=1) if plan.cifar else net.conv("conv1", net.input(), 64, 3, stride=2)
    x = plan.pooled("pool1", net.relu("relu1", x), 3)
    for index, channels in enumerate((16, 16, 32, 32, 48, 48, 64, 64), 2):
        x = _fire(net, f"fire{index}", x, channels)
        if index in (3, 5):
            x = plan.pooled(f"pool{index}", x, 3)
    x = net.relu("relu10", net.conv("conv10", x, net.classes, 1, gain=1))
    return net.flatten("flatten", net.global_average_pool("pool10", x))


def densenet121(plan: Plan) -> Value:
    """Four blocks of 6, 12, 24 and 16 layers, each of which adds 32 channels to all before it."""
    net = plan.net
    if plan.cifar:
        x = net.relu("stem.relu", _conv_bn(net, "stem", net.input(), 64, 3))
    else:
        x = net.relu("stem.relu", _conv_bn(net, "stem", net.input(), 64, 7, stride=2))
        x = plan.pooled("stem.pool", x, 3, 2, 1)
    for block, layers in enumerate((6, 12, 24, 16), 1):
        for layer in range(1, layers + 1):
            name = f"block{block}.layer{layer}"
            y = point(net, f"{name}.conv1", _bn_relu(net, f"{name}.1", x), 128, plan.operator, gain=math.sqrt(2))
            y = convolution(net, f"{name}.conv2", _bn_relu(net, f"{name}.2", y), 32, 3, 1, plan.operator)
            x = net.concat(f"{name}.concat", [x, y], 1)
        if block < 4:
            name = f"transition{block}"
            x = net.conv(f"{name}.conv", _bn_relu(net, name, x), x.batch.shape[1] // 2, 1, bias=False)
            # Published with an average, whatever other layers pool by.
            x = net.average_pool(f"{name}.pool", x)
    x = net.flatten("flatten", net.global_average_pool("pool", _bn_relu(net, "last", x)))
    return net.gemm("fc", x, net.classes, gain=1)


def _fire(net: Network, name: str, x: Value, channels: int) -> Value:
    x = net.relu(f"{name}.squeeze.relu", net.conv(f"{name}.squeeze", x, channels, 1))
    parts = [
        net.relu(
            f"{name}.expand{kernel}.relu", net.conv(f"{name}.expand{kernel}", x, 4 * channels, kernel, pad=kernel // 2)
        )
        for kernel in (1, 3)
    ]
    return net.concat(f"{name}.concat", parts, 1)


def _bn_relu(net: Network, name: str, x: Value) -> Value:
    return net.relu(f"{name}.relu", net.batch_norm(f"{name}.bn", x))


BRANCH_GAIN = 0.25
"""Scale of the last normalisation of a block: small, so that sums do not grow with depth (arXiv:1706.02677, 5.1)."""

Block = Callable[[Plan, str, Value, int, int], Value]


def _resnet(plan: Plan, blocks: list[int], block: Block, stem: Operator = "dense") -> Value:
    net, first = plan.net, plan.wide(64)
    if plan.small:
        x = net.relu("stem.relu", _conv_bn(net, "stem", net.input(), first, 3, operator=stem))
    else:
        x = net.relu("stem.relu", _conv_bn(net, "stem", net.input(), first, 7, stride=2, operator=stem))
        x = plan.pooled("stem.pool", x, 3, 2, 1)
    for stage, count in enumerate(blocks, 1):
        for index in range(1, count + 1):
            stride = 2 if stage > 1 and index == 1 else 1
            x = block(plan, f"stage{stage}.block{index}", x, plan.wide(64 << (stage - 1)), stride)
    x = net.flatten("flatten", net.global_average_pool("pool", x))
    return net.gemm("fc", x, net.classes, gain=1)


def _conv_bn(
    net: Network,
    name: str,
    x: Value,
    channels: int,
    kernel: int,
    stride: int = 1,
    gain: float = 1.0,
    operator: Operator = "dense",
) -> Value:
    return net.batch_norm(f"{name}.bn", convolution(net, f"{name}.conv", x, channels, kernel, stride, operator), gain)


def _basic_block(plan: Plan, name: str, x: Value, channels: int, stride: int) -> Value:
    net, operator = plan.net, plan.operator
    y = net.relu(f"{name}.relu1", _conv_bn(net, f"{name}.1", x, channels, 3, stride, operator=operator))
    y = _conv_bn(net, f"{name}.2", y, channels, 3, gain=BRANCH_GAIN, operator=operator)
    if stride != 1:
        x = _conv_bn(net, f"{name}.shortcut", x, channels, 1, stride)
    return net.relu(f"{name}.relu2", net.add(f"{name}.add", y, x))


def _bottleneck(plan: Plan, name: str, x: Value, channels: int, stride: int) -> Value:
    net, operator = plan.net, plan.operator
    y = net.batch_norm(f"{name}.1.bn", point(net, f"{name}.1.conv", x, channels, operator, gain=math.sqrt(2)))
    y = net.relu(f"{name}.relu1", y)
    y = net.batch_norm(f"{name}.2.bn", spatial(net, f"{name}.2.conv", y, 3, stride, operator))
    y = net.relu(f"{name}.relu2", y)
    y = point(net, f"{name}.3.conv", y, 4 * channels, operator, gain=math.sqrt(2))
    y = net.batch_norm(f"{name}.3.bn", y, BRANCH_GAIN)
    if x.batch.shape[1] != 4 * channels:
        x = _conv_bn(net, f"{name}.shortcut", x, 4 * channels, 1, stride)
    return net.relu(f"{name}.relu3", net.add(f"{name}.add", y, x))
