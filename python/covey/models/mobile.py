"""MobileNetV3-Large and ShuffleNetV2, which are built from factorised convolutions.

MobileNetV3-Large: Howard and others, Searching for MobileNetV3 (arXiv:1905.02244), table 1. ShuffleNetV2: Ma and others
(arXiv:1807.11164), table 5 with the width 1×, figure 3 (c) and (d). Published is the form *factorised*. The form
*dense* undoes the factorisation: one dense K × K convolution in place of a depthwise one and the 1 × 1 convolution
behind it. arXiv:2209.00411 does not define its dense baselines; the costs in its table 2 are in proportion to these.
Where a plan names a width, ShuffleNetV2 has that part of its channels in every layer.
"""

from __future__ import annotations

from collections.abc import Callable

from covey.models.architectures import BRANCH_GAIN, Plan
from covey.models.forms import convolution, point, spatial
from covey.models.network import Network, Value

Activation = Callable[[str, Value], Value]

# Kernel, expanded channels, channels, whether it squeezes and excites, whether it takes the hard swish, stride.
MOBILENET_BLOCKS = (
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

SHUFFLENET_STAGES = ((4, 116), (8, 232), (4, 464))
"""Units and channels of each stage."""


def mobilenetv3_large(plan: Plan) -> Value:
    """Fifteen blocks that expand the channels, filter each one and project them, and two fully connected layers."""
    net = plan.net
    x = net.conv("stem.conv", net.input(), 16, 3, 2, pad=1, bias=False)
    x = net.hard_swish("stem.swish", net.batch_norm("stem.bn", x))
    for index, (kernel, expanded, channels, excites, swish, stride) in enumerate(MOBILENET_BLOCKS, 1):
        activation: Activation = net.hard_swish if swish else net.relu
        x = _inverted(plan, f"block{index}", x, kernel, expanded, channels, excites, activation, stride)
    x = net.hard_swish("last.swish", net.batch_norm("last.bn", net.conv("last.conv", x, 960, 1, bias=False)))
    x = net.flatten("flatten", net.global_average_pool("pool", x))
    return net.gemm("fc2", net.hard_swish("fc1.swish", net.gemm("fc1", x, 1280)), net.classes, gain=1)


def shufflenetv2(plan: Plan) -> Value:
    """Three stages of units that work on half of the channels and interleave them with the other half."""
    net = plan.net
    x = net.conv("stem.conv", net.input(), plan.wide(24), 3, 2, pad=1, bias=False)
    x = plan.pooled("stem.pool", net.relu("stem.relu", net.batch_norm("stem.bn", x)), 3, 2, 1)
    for stage, (units, channels) in enumerate(SHUFFLENET_STAGES, 2):
        for index in range(1, units + 1):
            x = _unit(plan, f"stage{stage}.unit{index}", x, plan.wide(channels) // 2, 2 if index == 1 else 1)
    x = net.relu("last.relu", net.batch_norm("last.bn", net.conv("last.conv", x, plan.wide(1024), 1, bias=False)))
    return net.gemm("fc", net.flatten("flatten", net.global_average_pool("pool", x)), net.classes, gain=1)


def _inverted(
    plan: Plan,
    name: str,
    x: Value,
    kernel: int,
    expanded: int,
    channels: int,
    excites: bool,
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
        y = _excited(net, f"{name}.excite", y) if excites else y
        y = convolution(net, f"{name}.conv", y, channels, kernel, stride, operator)
    else:
        y = net.batch_norm(f"{name}.spatial.bn", spatial(net, f"{name}.spatial", y, kernel, stride, operator))
        y = activation(f"{name}.spatial.activation", y)
        y = _excited(net, f"{name}.excite", y) if excites else y
        y = point(net, f"{name}.project", y, channels, operator)
    y = net.batch_norm(f"{name}.project.bn", y, BRANCH_GAIN if residual else 1.0)
    return net.add(f"{name}.add", y, x) if residual else y


def _excited(net: Network, name: str, x: Value) -> Value:
    """Each channel times a number between 0 and 1 that depends on the means of all (arXiv:1709.01507)."""
    channels = x.batch.shape[1]
    means = net.global_average_pool(f"{name}.pool", x)
    y = net.relu(f"{name}.relu", net.conv(f"{name}.squeeze", means, _rounded(channels // 4), 1))
    y = net.hard_sigmoid(f"{name}.sigmoid", net.conv(f"{name}.weigh", y, channels, 1, gain=1))
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
