"""The four forms of a network's convolutions, as the efficient-models paper defines them.

Ganesan and others, Efficient ML Models for Practical Secure Inference (arXiv:2209.00411): a product costs messages
there, while sums and moves of channels are local. The multiplications of a K × K convolution from C to O channels, at
each position of its output:

| form | alone | within a bottleneck of C channels, where O = C |
|---|---|---|
| dense | K²·C·O | K²·C² |
| factorised | C·(K² + O): depthwise K × K, then 1 × 1 | K²·C: the bottleneck's own 1 × 1 layers mix the channels |
| shuffle | C·(K²/2 + O): half of the channels are permuted instead | K²·C/2 |
| x | C·(K² + O/2): depthwise plus all channels permuted, then 1 × 1 in two groups | K²·C |

A bottleneck's 1 × 1 layers have two groups in the form x, and so half the multiplications. Where a convolution has a
stride, a permuted channel is read at the positions that are the centres of the kernel's windows.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from covey.models.network import Network, Value

Operator = Literal["dense", "factorised", "shuffle", "x"]
"""What stands in place of dense convolutions."""

OPERATORS: tuple[Operator, ...] = get_args(Operator)


def convolution(
    net: Network, name: str, x: Value, channels: int, kernel: int, stride: int, operator: Operator
) -> Value:
    """A K × K convolution of its own, of an odd K and padded by K // 2, without a bias."""
    if operator == "dense":
        return net.conv(name, x, channels, kernel, stride, pad=kernel // 2, bias=False)
    mixed = spatial(net, f"{name}.spatial", x, kernel, stride, operator)
    return point(net, f"{name}.point", mixed, channels, operator)


def spatial(net: Network, name: str, x: Value, kernel: int, stride: int, operator: Operator) -> Value:
    """What stands between two 1 × 1 convolutions: as many channels as it is given."""
    channels = x.batch.shape[1]
    if operator == "dense":
        return net.conv(name, x, channels, kernel, stride, pad=kernel // 2, bias=False)
    if operator == "factorised":
        return _depthwise(net, name, x, kernel, stride)
    if operator == "shuffle":
        kept = channels - channels // 2
        first = _depthwise(net, name, net.channels(f"{name}.half", x, range(kept)), kernel, stride)
        order = kept + net.rng.permutation(channels // 2)
        return net.concat(f"{name}.concat", [first, _shuffled(net, name, x, order, stride)], 1)
    along = _shuffled(net, name, x, net.rng.permutation(channels), stride)
    return net.add(f"{name}.add", _depthwise(net, name, x, kernel, stride), along)


def point(net: Network, name: str, x: Value, channels: int, operator: Operator, gain: float = 1.0) -> Value:
    """A 1 × 1 convolution without a bias, in the form x in two groups where both numbers of channels are even."""
    halves = operator == "x" and x.batch.shape[1] % 2 == channels % 2 == 0
    return net.conv(name, x, channels, 1, bias=False, gain=gain, groups=2 if halves else 1)


def _depthwise(net: Network, name: str, x: Value, kernel: int, stride: int) -> Value:
    channels = x.batch.shape[1]
    return net.conv(name, x, channels, kernel, stride, pad=kernel // 2, bias=False, gain=1.0, groups=channels)


def _shuffled(net: Network, name: str, x: Value, order: np.ndarray, stride: int) -> Value:
    taken = net.channels(f"{name}.shuffle", x, order.tolist())
    return taken if stride == 1 else net.every(f"{name}.step", taken, stride)
