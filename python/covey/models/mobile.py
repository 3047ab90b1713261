"""MobileNets, ShuffleNetV2 and EfficientNet-B0, which are built from factorised convolutions.

MobileNetV2: Sandler and others (arXiv:1801.04381), table 2. MobileNetV3: Howard and others, Searching for MobileNetV3
(arXiv:1905.02244), tables 1 and 2. ShuffleNetV2: Ma and others (arXiv:1807.11164), table 5 with the width 1×, figure 3
(c) and (d). EfficientNet-B0: Tan and Le (arXiv:1905.11946), table 1. Published is the form *factorised*. The form
*dense* undoes the factorisation: one dense K × K convolution in place of a depthwise one and the 1 × 1 convolution
behind it. arXiv:2209.00411 does not define its dense baselines; the costs in its table 2 are in proportion to these.
Where a plan names a width, ShuffleNetV2 has that part of its channels in every layer. For CIFAR's images the first two
strides are one, and ShuffleNetV2 pools nothing in its stem.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from covey.models.architectures import BRANCH_GAIN, Plan
from covey.models.forms import convolution, point, spatial
from covey.models.network import Network, Value

Activation = Callable[[str, Value], Value]


@dataclass(frozen=True)
class Excite:
    """How a block weighs its channels: by so many numbers, an activation of these, and what makes them weights."""

    channels: int
    activation: Activation
    gate: Activation


# Expansion, kernel, channels, blocks, stride of the first.
MOBILENETV2_STAGES = (
    (1, 3, 16, 1, 1),
    (6, 3, 24, 2, 2),
    (6, 3, 32, 3, 2),
    (6, 3, 64, 4, 2),
    (6, 3, 96, 3, 1),
    (6, 3, 160, 3, 2),
    (6, 3, 320, 1, 1),
)

EFFICIENTNET_STAGES = (
    (1, 3, 16, 1, 1),
    (6, 3, 24, 2, 2),
    (6, 5, 40, 2, 2),
    (6, 3, 80, 3, 2),
    (6, 5, 112, 3, 1),
    (6, 5, 192, 4, 2),
    (6, 3, 320, 1, 1),
)

# Kernel, expanded channels, channels, whether it squeezes and excites, whether it takes the hard swish, stride.
MOBILENETV3_LARGE = (
    (3, 16, 16, False, False, 1),
    (3, 64, 24, False, False, 2),
    (3, 72, 24, False, False, 1),
    (5, 72, 40, True, False, 2),
    (5, 120, 40, True, False, 1),
    (5, 120, 40, True, False, 1),
    (3, 240, 80, False, True, 2),
    (3, 200, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 480, 112, True, True, 1),
    (3, 672, 112, True, True, 1),
    (5, 672, 160, True, True, 2),
    (5, 960, 160, True, True, 1),
    (5, 960, 160, True, True, 1),
)

MOBILENETV3_SMALL = (
    (3, 16, 16, True, False, 2),
    (3, 72, 24, False, False, 2),
    (3, 88, 24, False, False, 1),
    (5, 96, 40, True, True, 2),
    (5, 240, 40, True, True, 1),
    (5, 240, 40, True, True, 1),
    (5, 120, 48, True, True, 1),
    (5, 144, 48, True, True, 1),
    (5, 288, 96, True, True, 2),
    (5, 576, 96, True, True, 1),
    (5, 576, 96, True, True, 1),
)

SHUFFLENET_STAGES = ((4, 116), (8, 232), (4, 464))
"""Units and channels of each stage."""


def mobilenetv2(plan: Plan) -> Value:
    """Seventeen blocks that expand the channels, filter each one and project them, and a fully connected layer."""
    net = plan.net
    x = _stages(plan, _stem(plan, 32, net.relu6, "relu"), MOBILENETV2_STAGES, net.relu6, excites=False)
    x = net.relu6("last.relu", net.batch_norm("last.bn", net.conv("last.conv", x, 1280, 1, bias=False)))
    return net.gemm("fc", net.flatten("flatten", net.global_average_pool("pool", x)), net.classes, gain=1)


def efficientnet_b0(plan: Plan) -> Value:
    """Sixteen such blocks with swish, which weigh their channels, and a fully connected layer."""
    net = plan.net
    x = _stages(plan, _stem(plan, 32, net.swish, "swish"), EFFICIENTNET_STAGES, net.swish, excites=True)
    x = net.swish("last.swish", net.batch_norm("last.bn", net.conv("last.conv", x, 1280, 1, bias=False)))
    return net.gemm("fc", net.flatten("flatten", net.global_average_pool("pool", x)), net.classes, gain=1)


def mobilenetv3_large(plan: Plan) -> Value:
    """Fifteen blocks that expand the channels, filter each one and project them, and two fully connected layers."""
    return _mobilenetv3(plan, MOBILENETV3_LARGE, 960, 1280)


def mobilenetv3_small(plan: Plan) -> Value:
    """Eleven such blocks, and two fully connected layers."""
    return _mobilenetv3(plan, MOBILENETV3_SMALL, 576, 1024)


def _mobilenetv3(plan: Plan, blocks: tuple[tuple[int, int, int, bool, bool, int], ...], last: int, wide: int) -> Value:
    net = plan.net
    x = _stem(plan, 16, net.hard_swish, "swish")
    strides = _strides(plan, [block[-1] for block in blocks])
    for index, ((kernel, expanded, channels, excites, swish, _), stride) in enumerate(
        zip(blocks, strides, strict=True), 1
    ):
        activation: Activation = net.hard_swish if swish else net.relu
        excite = Excite(_rounded(expanded // 4), net.relu, net.hard_sigmoid) if excites else None
        x = _inverted(plan, f"block{index}", x, kernel, expanded, channels, excite, activation, stride)
    x = net.hard_swish("last.swish", net.batch_norm("last.bn", net.conv("last.conv", x, last, 1, bias=False)))
    x = net.flatten("flatten", net.global_average_pool("pool", x))
    return net.gemm("fc2", net.hard_swish("fc1.swish", net.gemm("fc1", x, wide)), net.classes, gain=1)


def shufflenetv2(plan: Plan) -> Value:
    """Three stages of units that work on half of the channels and interleave them with the other half."""
    net = plan.net
    x = _stem(plan, plan.wide(24), net.relu, "relu")
    x = x if plan.cifar else plan.pooled("stem.pool", x, 3, 2, 1)
    for stage, (units, channels) in enumerate(SHUFFLENET_STAGES, 2):
        for index in range(1, units + 1):
            x = _unit(plan, f"stage{stage}.unit{index}", x, plan.wide(channels) // 2, 2 if index == 1 else 1)
    x = net.relu("last.relu", net.batch_norm("last.bn", net.conv("last.conv", x, plan.wide(1024), 1, bias=False)))
    return net.gemm("fc", net.flatten("flatten", net.global_average_pool("pool", x)), net.classes, gain=1)


def _stem(plan: Plan, channels: int, activation: Activation, kind: str) -> Value:
    net = plan.net
    x = net.conv("stem.conv", net.input(), channels, 3, 1 if plan.cifar else 2, pad=1, bias=False)
    return activation(f"stem.{kind}", net.batch_norm("stem.bn", x))


def _strides(plan: Plan, published: list[int]) -> list[int]:
    """Of the blocks behind the stem."""
    first = published.index(2)
    return [1 if plan.cifar and index == first else stride for index, stride in enumerate(published)]


def _stages(
    plan: Plan, x: Value, stages: tuple[tuple[int, int, int, int, int], ...], activation: Activation, excites: bool
) -> Value:
    net = plan.net
    blocks = [
        (expansion, kernel, channels, stride if block == 0 else 1)
        for expansion, kernel, channels, repeats, stride in stages
        for block in range(repeats)
    ]
    strides = _strides(plan, [block[-1] for block in blocks])
    for index, ((expansion, kernel, channels, _), stride) in enumerate(zip(blocks, strides, strict=True), 1):
        given = x.batch.shape[1]
        excite = Excite(given // 4, net.swish, net.sigmoid) if excites else None
        x = _inverted(plan, f"block{index}", x, kernel, expansion * given, channels, excite, activation, stride)
    return x


def _inverted(
    plan: Plan,
    name: str,
    x: Value,
    kernel: int,
    expanded: int,
    channels: int,
    excite: Excite | None,
    activation: Activation,
    stride: int,
) -> Value:
    net, operator = plan.net, plan.operator
    y, residual = x, stride == 1 and x.batch.shape[1] == channels
    if expanded != x.batch.shape[1]:
        y = net.batch_norm(f"{name}.expand.bn", point(net, f"{name}.expand", x, expanded, operator))
        y = activation(f"{name}.expand.activation", y)
    if operator == "dense":
        # The weights of channels go ahead of the convolution, which leaves no map of the expanded channels.
        y = _excited(net, f"{name}.excite", y, excite) if excite else y
        y = convolution(net, f"{name}.conv", y, channels, kernel, stride, operator)
    else:
        y = net.batch_norm(f"{name}.spatial.bn", spatial(net, f"{name}.spatial", y, kernel, stride, operator))
        y = activation(f"{name}.spatial.activation", y)
        y = _excited(net, f"{name}.excite", y, excite) if excite else y
        y = point(net, f"{name}.project", y, channels, operator)
    y = net.batch_norm(f"{name}.project.bn", y, BRANCH_GAIN if residual else 1.0)
    return net.add(f"{name}.add", y, x) if residual else y


def _excited(net: Network, name: str, x: Value, excite: Excite) -> Value:
    """Each channel times a number between 0 and 1 that depends on the means of all (arXiv:1709.01507)."""
    means = net.global_average_pool(f"{name}.pool", x)
    y = excite.activation(f"{name}.relu", net.conv(f"{name}.squeeze", means, excite.channels, 1))
    y = excite.gate(f"{name}.sigmoid", net.conv(f"{name}.weigh", y, x.batch.shape[1], 1, gain=1))
    return net.mul(f"{name}.scale", x, y)


def _rounded(channels: int) -> int:
    """The nearest multiple of 8, as the paper's authors round channels, and no less than nine tenths."""
    near = max(8, (channels + 4) // 8 * 8)
    return near + 8 if near < 0.9 * channels else near


def _unit(plan: Plan, name: str, x: Value, half: int, stride: int) -> Value:
    net = plan.net
    if stride == 1:
        kept, worked = (net.channels(f"{name}.{part}", x, range(start, start + half))
                        for part, start in (("kept", 0), ("worked", half)))  # fmt: skip
    else:
        kept, worked = _filtered(plan, f"{name}.1", x, half, stride), x
    worked = net.batch_norm(f"{name}.2.first.bn", point(net, f"{name}.2.first", worked, half, plan.operator))
    worked = _filtered(plan, f"{name}.2", net.relu(f"{name}.2.first.relu", worked), half, stride)
    joined = net.concat(f"{name}.concat", [kept, worked], 1)
    return net.channels(f"{name}.shuffle", joined, [place for pair in range(half) for place in (pair, half + pair)])


def _filtered(plan: Plan, name: str, x: Value, channels: int, stride: int) -> Value:
    """A 3 × 3 filter of each channel and a 1 × 1 convolution, or one dense convolution in place of both."""
    net, operator = plan.net, plan.operator
    if operator == "dense":
        x = convolution(net, f"{name}.conv", x, channels, 3, stride, operator)
    else:
        x = net.batch_norm(f"{name}.spatial.bn", spatial(net, f"{name}.spatial", x, 3, stride, operator))
        x = point(net, f"{name}.last", x, channels, operator)
    return net.relu(f"{name}.relu", net.batch_norm(f"{name}.bn", x))
