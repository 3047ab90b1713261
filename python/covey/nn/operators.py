"""Operators with few multiplications, as PyTorch modules.

The factorised convolution, the shuffle and the X-operator are those of arXiv:2209.00411. C, O and C' count channels,
K × K is the kernel and P the positions of the output:

| module | multiplications |
|---|---|
| `FactorisedConv2d` | P·C·(K² + O) |
| `ShuffleBlock` | P·K²·C/2 |
| `ShuffleConv2d` | P·C·(K²/2 + O) |
| `ParallelShuffle` | P·K²·C |
| `GroupedPointwiseConv2d` | P·C·O/2 |
| `XConv2d` | P·C·(K² + O/2) |
| `XOperator` | P·(C·C'/2 + K²·C' + C'·O/2), the first term at the input's positions |

Kernels are odd and padded so that their windows are centred on every `stride`-th position. Wrong sizes raise
`OptionError`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from covey.errors import OptionError

Pair = int | tuple[int, int]
"""One number for rows and columns, or one for each."""


class ChannelShuffle(nn.Module):  # type: ignore[misc]
    """A fixed random permutation of the channels of x [N, C, H, W], at every `stride`-th row and column.

    The order is drawn from `seed` and kept in the buffer `order`, so saved weights bring it along.
    """

    def __init__(self, channels: int, stride: Pair = 1, seed: int = 0) -> None:
        super().__init__()
        self.stride = _pair(stride)
        self.register_buffer("order", torch.randperm(channels, generator=torch.Generator().manual_seed(seed)))

    def forward(self, x: Any) -> Any:
        """[N, C, H, W] to [N, C, ceil(H / stride), ceil(W / stride)]."""
        taken = x.index_select(1, self.order)
        return taken if self.stride == (1, 1) else taken[:, :, :: self.stride[0], :: self.stride[1]]


class ShuffleBlock(nn.Module):  # type: ignore[misc]
    """Half of the channels filtered by a K × K kernel each, the others permuted; of an odd number, one more filtered.

    x [N, C, H, W] to [N, C, ceil(H / stride), ceil(W / stride)].
    """

    def __init__(
        self,
        channels: int,
        kernel_size: Pair = 3,
        stride: Pair = 1,
        dilation: Pair = 1,
        bias: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.filtered = channels - channels // 2
        self.depthwise = _depthwise(self.filtered, kernel_size, stride, dilation, bias)
        self.shuffle = ChannelShuffle(channels // 2, stride, seed)

    def forward(self, input: Any) -> Any:  # noqa: A002  (as nn.Conv2d calls it)
        """The filtered channels, then the permuted ones."""
        filtered, permuted = input[:, : self.filtered], input[:, self.filtered :]
        return torch.cat([self.depthwise(filtered), self.shuffle(permuted)], dim=1)


class ParallelShuffle(nn.Module):  # type: ignore[misc]
    """Every channel filtered by a K × K kernel of its own, plus another channel: the sum of a filter and a permutation.

    x [N, C, H, W] to [N, C, ceil(H / stride), ceil(W / stride)].
    """

    def __init__(
        self,
        channels: int,
        kernel_size: Pair = 3,
        stride: Pair = 1,
        dilation: Pair = 1,
        bias: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.depthwise = _depthwise(channels, kernel_size, stride, dilation, bias)
        self.shuffle = ChannelShuffle(channels, stride, seed)

    def forward(self, input: Any) -> Any:  # noqa: A002  (as nn.Conv2d calls it)
        """The filtered channels plus the permuted ones."""
        return self.depthwise(input) + self.shuffle(input)


class GroupedPointwiseConv2d(nn.Conv2d):  # type: ignore[misc]
    """A 1 × 1 convolution in two groups: each half of the outputs reads half of the inputs."""

    def __init__(self, in_channels: int, out_channels: int, bias: bool = False) -> None:
        if in_channels % 2 or out_channels % 2:
            raise OptionError(
                f"two groups do not divide {in_channels} input and {out_channels} output channels: use even numbers"
            )
        super().__init__(in_channels, out_channels, 1, groups=2, bias=bias)


class _Separable(nn.Module):  # type: ignore[misc]
    """A filter within channels, then a 1 × 1 convolution that mixes them."""

    def __init__(self, spatial: nn.Module, point: nn.Module) -> None:
        super().__init__()
        self.spatial = spatial
        self.point = point

    def forward(self, input: Any) -> Any:  # noqa: A002  (as nn.Conv2d calls it)
        """[N, C, H, W] to [N, O, H', W']."""
        return self.point(self.spatial(input))


class FactorisedConv2d(_Separable):
    """A depthwise separable convolution: a K × K kernel for each channel, then a 1 × 1 convolution."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Pair = 3,
        stride: Pair = 1,
        dilation: Pair = 1,
        bias: bool = False,
        padding: Pair | None = None,
    ) -> None:
        """`padding` centres the kernel unless given."""
        depthwise = _depthwise(in_channels, kernel_size, stride, dilation, False, padding)
        super().__init__(depthwise, nn.Conv2d(in_channels, out_channels, 1, bias=bias))


class ShuffleConv2d(_Separable):
    """A shuffle block, then a 1 × 1 convolution."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Pair = 3,
        stride: Pair = 1,
        dilation: Pair = 1,
        bias: bool = False,
        seed: int = 0,
    ) -> None:
        block = ShuffleBlock(in_channels, kernel_size, stride, dilation, seed=seed)
        super().__init__(block, nn.Conv2d(in_channels, out_channels, 1, bias=bias))


class XConv2d(_Separable):
    """The X-operator without its first 1 × 1 convolution; the last has one group where a number of channels is odd."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Pair = 3,
        stride: Pair = 1,
        dilation: Pair = 1,
        bias: bool = False,
        seed: int = 0,
    ) -> None:
        groups = 1 if in_channels % 2 or out_channels % 2 else 2
        mixed = ParallelShuffle(in_channels, kernel_size, stride, dilation, seed=seed)
        super().__init__(mixed, nn.Conv2d(in_channels, out_channels, 1, groups=groups, bias=bias))


class XOperator(nn.Module):  # type: ignore[misc]
    """In place of a bottleneck: two grouped 1 × 1 convolutions around the sum of a depthwise filter and a permutation.

    x [N, in_channels, H, W] to [N, out_channels, H', W'] by way of `channels` ones. Nothing stands between the three
    layers; `rewrite` keeps what a bottleneck has there.
    """

    def __init__(
        self,
        in_channels: int,
        channels: int,
        out_channels: int,
        kernel_size: Pair = 3,
        stride: Pair = 1,
        dilation: Pair = 1,
        bias: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.first = GroupedPointwiseConv2d(in_channels, channels, bias)
        self.spatial = ParallelShuffle(channels, kernel_size, stride, dilation, bias, seed)
        self.last = GroupedPointwiseConv2d(channels, out_channels, bias)

    def forward(self, x: Any) -> Any:
        """[N, in_channels, H, W] to [N, out_channels, H', W']."""
        return self.last(self.spatial(self.first(x)))


def _depthwise(
    channels: int, kernel_size: Pair, stride: Pair, dilation: Pair, bias: bool, padding: Pair | None = None
) -> nn.Conv2d:
    kernel, steps = _pair(kernel_size), _pair(dilation)
    if padding is None and not all(size % 2 for size in kernel):
        raise OptionError(f"a kernel of {kernel[0]} × {kernel[1]} has no centre: use odd sizes")
    centred = tuple(step * (size // 2) for size, step in zip(kernel, steps, strict=True))
    pads = centred if padding is None else _pair(padding)
    return nn.Conv2d(channels, channels, kernel, stride, pads, steps, groups=channels, bias=bias)


def _pair(sizes: Pair) -> tuple[int, int]:
    return (sizes, sizes) if isinstance(sizes, int) else sizes
