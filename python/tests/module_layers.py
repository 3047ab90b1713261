"""Steps of random PyTorch modules: layers, the batch moved for a while, and steps that read two results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as f

from module_steps import Draw, Made, Tensor

Inner = Callable[[nn.Module, Tensor], Tensor]


def of_batch(draw: Draw, shape: tuple[int, ...]) -> Made | None:
    """The batch moved behind another axis, or merged with one, for a step that does not run over it."""
    if len(shape) < 3:
        return None
    if draw.of.random() < 0.5:
        return _moved(draw, shape, draw.of.choice([1, len(shape) - 1]))
    return _merged(draw, shape, draw.of.choice([shape[2:], shape[-1:]]))


def _moved(draw: Draw, shape: tuple[int, ...], place: int) -> Made:
    last = place == len(shape) - 1
    sizes = [*shape[1 : place + 1], 1, *shape[place + 1 :]]
    constant = draw.constant(tuple(sizes))
    inner: dict[str, Inner] = {
        "relu": lambda m, x: f.relu(x) * 0.7,
        "add": lambda m, x: x + getattr(m, constant),
        "mean": lambda m, x: x - x.mean(0, keepdim=True),
    }
    if not last:
        linear = draw.part(nn.Linear(shape[-1], 3))
        inner["softmax"] = lambda m, x: x.softmax(-1)
        inner["linear"] = lambda m, x: getattr(m, linear)(x)
    name = draw.of.choice(list(inner))
    run = inner[name]
    return f"batch to {place}: {name}", lambda m, x: run(m, x.movedim(0, place)).movedim(place, 0)


def _merged(draw: Draw, shape: tuple[int, ...], kept: tuple[int, ...]) -> Made:
    linear, norm = draw.part(nn.Linear(shape[-1], shape[-1])), draw.part(nn.LayerNorm(shape[-1]))
    constant = draw.constant(draw.broadcast((1, *kept)))
    inner: dict[str, Inner] = {
        "relu": lambda m, x: f.relu(x),
        "softmax": lambda m, x: x.softmax(-1),
        "linear": lambda m, x: getattr(m, linear)(x),
        "mul": lambda m, x: x * getattr(m, constant),
        "norm": lambda m, x: getattr(m, norm)(x),
    }
    if len(kept) == 2:
        conv = draw.part(nn.Conv1d(kept[0], kept[0], 3, padding=1))
        inner["bmm"] = lambda m, x: torch.bmm(torch.bmm(x, x.transpose(1, 2)) / 4, x)
        inner["conv"] = lambda m, x: getattr(m, conv)(x)
    name = draw.of.choice(list(inner))
    run = inner[name]
    return f"merged {list(kept)}: {name}", lambda m, x: run(m, x.reshape(-1, *kept)).reshape(x.shape)


def layers(draw: Draw, shape: tuple[int, ...]) -> Made | None:
    of, rank = draw.of, len(shape)
    channels = shape[1]
    kinds: list[str] = ["Linear", "LayerNorm"]
    if rank == 2:
        kinds += ["BatchNorm1d", "Linear"]
    if rank == 3:
        kinds += [
            "Conv1d",
            "BatchNorm1d",
            "MaxPool1d",
            "AvgPool1d",
            "MultiheadAttention",
            "LSTM",
            "GRU",
            "GroupNorm",
            "ConvTranspose1d",
            "AdaptiveAvgPool1d",
            "InstanceNorm1d",
            "attention",
            "Upsample1d",
            "RMSNorm",
            "RNN",
            "PReLU",
            "Encoder",
        ]
    if rank == 4:
        kinds = [
            "Conv2d",
            "Conv2d",
            "Conv2d",
            "BatchNorm2d",
            "MaxPool2d",
            "AvgPool2d",
            "AdaptiveAvgPool2d",
            "GroupNorm",
            "ConvTranspose2d",
            "Upsample",
            "PReLU",
            "InstanceNorm2d",
            "AdaptiveMaxPool2d",
            "LRN",
            "Dropout2d",
            "PixelShuffle",
            "LPPool2d",
            "GLU",
            "Bilinear",
            "ZeroPad2d",
            "attention",
        ]
    kind = of.choice(kinds)
    kernel, stride, padding, dilation = of.randint(1, 3), of.randint(1, 2), of.randint(0, 1), of.randint(1, 2)
    groups = of.choice([g for g in (1, 2, channels) if channels % g == 0])
    out = groups * of.randint(1, 3)
    bias = of.random() < 0.7
    text = f"{kind} kernel {kernel} stride {stride} padding {padding} dilation {dilation} groups {groups} bias {bias}"
    ceil, counted = of.random() < 0.4, of.random() < 0.5
    half = min(padding, kernel // 2)
    mode = of.choice(["zeros", "zeros", "reflect", "replicate", "circular"])
    heads = of.choice([h for h in (1, 2, 3) if shape[-1] % h == 0])
    try:
        if kind == "attention":
            causal = of.random() < 0.4

            def attend(m: Any, x: Tensor) -> Tensor:
                return f.scaled_dot_product_attention(x, x * 0.5, x, is_causal=causal)

            return f"attention causal {causal}", attend
        made = {
            "Linear": lambda: nn.Linear(shape[-1], of.randint(1, 6), bias=bias),
            "LayerNorm": lambda: nn.LayerNorm(shape[-of.randint(1, rank - 1) :], elementwise_affine=of.random() < 0.7),
            "RMSNorm": lambda: nn.RMSNorm(shape[-1], eps=1e-5),
            "BatchNorm1d": lambda: nn.BatchNorm1d(channels, affine=bias),
            "BatchNorm2d": lambda: nn.BatchNorm2d(channels, affine=bias),
            "Conv1d": lambda: nn.Conv1d(channels, out, kernel, stride, padding, dilation, groups, bias, mode),
            "Conv2d": lambda: nn.Conv2d(
                channels, out, (kernel, of.randint(1, 3)), stride, padding, dilation, groups, bias, mode
            ),
            "ConvTranspose1d": lambda: nn.ConvTranspose1d(
                channels, out, kernel, stride, half, 0, groups, bias, dilation
            ),
            "ConvTranspose2d": lambda: nn.ConvTranspose2d(
                channels, out, kernel, stride, half, min(of.randint(0, 1), stride - 1), groups, bias
            ),
            "MaxPool1d": lambda: nn.MaxPool1d(kernel, stride, half, ceil_mode=ceil),
            "MaxPool2d": lambda: nn.MaxPool2d(kernel, stride, half, dilation=dilation, ceil_mode=ceil),
            "AvgPool1d": lambda: nn.AvgPool1d(kernel, stride, half, ceil, counted),
            "AvgPool2d": lambda: nn.AvgPool2d(kernel, stride, half, ceil, counted, of.choice([None, None, 3])),
            "AdaptiveAvgPool1d": lambda: nn.AdaptiveAvgPool1d(of.randint(1, 4)),
            "AdaptiveAvgPool2d": lambda: nn.AdaptiveAvgPool2d((of.randint(1, 4), of.choice([None, 1, 2]))),
            "AdaptiveMaxPool2d": lambda: nn.AdaptiveMaxPool2d(of.randint(1, 3)),
            "GroupNorm": lambda: nn.GroupNorm(groups, channels),
            "InstanceNorm1d": lambda: nn.InstanceNorm1d(channels, affine=bias),
            "InstanceNorm2d": lambda: nn.InstanceNorm2d(channels, affine=bias),
            "PReLU": lambda: nn.PReLU(of.choice([1, channels])),
            "Upsample1d": lambda: nn.Upsample(scale_factor=2, mode=of.choice(["nearest", "linear"])),
            "Upsample": lambda: nn.Upsample(
                scale_factor=of.choice([2, 1.5]), mode=of.choice(["nearest", "bilinear", "bicubic"])
            ),
            "Bilinear": lambda: nn.Upsample(
                size=(of.randint(2, 6), of.randint(2, 6)), mode="bilinear", align_corners=of.random() < 0.5
            ),
            "LRN": lambda: nn.LocalResponseNorm(2),
            "Dropout2d": lambda: nn.Dropout2d(0.3),
            "PixelShuffle": lambda: nn.PixelShuffle(2),
            "LPPool2d": lambda: nn.LPPool2d(2, 2),
            "GLU": lambda: nn.GLU(1),
            "ZeroPad2d": lambda: nn.ZeroPad2d((1, 0, 2, 1)),
            "LSTM": lambda: nn.LSTM(
                shape[-1], 3, batch_first=True, bidirectional=of.random() < 0.4, num_layers=of.randint(1, 2)
            ),
            "GRU": lambda: nn.GRU(shape[-1], 3, batch_first=True, bidirectional=of.random() < 0.4),
            "RNN": lambda: nn.RNN(shape[-1], 3, batch_first=True),
            "MultiheadAttention": lambda: nn.MultiheadAttention(shape[-1], heads, batch_first=True),
            "Encoder": lambda: nn.TransformerEncoderLayer(shape[-1], heads, 8, batch_first=True, norm_first=bias),
        }[kind]()
    except (ValueError, RuntimeError, ZeroDivisionError):
        return None
    for name, tensor in [*made.named_parameters(), *made.named_buffers()]:
        if tensor.is_floating_point():
            positive = "running_var" in name
            nn.init.uniform_(tensor, 0.5, 1.5) if positive else nn.init.uniform_(tensor, -0.5, 0.7)
    part = draw.part(made)
    if kind == "MultiheadAttention":
        return text, lambda m, x: getattr(m, part)(x, x, x, need_weights=False)[0]
    if kind in ("LSTM", "GRU", "RNN"):
        return text, lambda m, x: getattr(m, part)(x)[0]
    return f"{text} {made}", lambda m, x: getattr(m, part)(x)


def two(draw: Draw, a: Tensor, b: Tensor) -> Made | None:
    """A step that reads two results."""
    of = draw.of
    left, right = tuple(a.shape), tuple(b.shape)
    kinds = []
    try:
        torch.broadcast_shapes(left[1:], right[1:])
        if len(left) == len(right):
            kinds += ["+", "-", "*", "max", "min", "where", "/", "*+", "blend", "distance"]
    except RuntimeError:
        pass
    if len(left) == len(right) > 2 and left[1:-2] == right[1:-2]:
        if left[-1] == right[-2]:
            kinds += ["@"] * 3
        if left[-1] == right[-1]:
            kinds += ["@ transposed", "einsum", "cosine"]
    if len(left) == len(right) == 2:
        kinds += ["outer"]
    axes = [
        axis
        for axis in range(1, len(left))
        if len(left) == len(right) and left[:axis] + left[axis + 1 :] == right[:axis] + right[axis + 1 :]
    ]
    if axes:
        kinds += ["cat"] * 2
    if left == right:
        kinds += ["stack", "dot"]
    if not kinds:
        return None
    kind = of.choice(kinds)
    axis = of.choice(axes) if axes else 1
    letters = "abcdef"[: len(left) - 3]
    table: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "+": lambda x, y: x + y,
        "-": lambda x, y: x - y,
        "*": lambda x, y: x * y,
        "max": torch.maximum,
        "min": torch.minimum,
        "where": lambda x, y: torch.where(x > y, x, y * 0.5),
        "/": lambda x, y: x / (1 + y.abs()),
        "*+": lambda x, y: x * y.sigmoid() + y,
        "blend": lambda x, y: x + (y - x) * (y > 0).float(),
        "distance": lambda x, y: (x - y) ** 2,
        "@": lambda x, y: x @ y / 4,
        "@ transposed": lambda x, y: x @ y.transpose(-1, -2) / 4,
        "einsum": lambda x, y: torch.einsum(f"n{letters}ij,n{letters}kj->n{letters}ki", x, y) / 4,
        "cosine": lambda x, y: f.cosine_similarity(x + 0.2, y + 0.3, dim=-1) if left == right else x[..., :1],
        "outer": lambda x, y: x.unsqueeze(2) * y.unsqueeze(1),
        "cat": lambda x, y: torch.cat([x, y], axis),
        "stack": lambda x, y: torch.stack([x, y], axis),
        "dot": lambda x, y: (x * y).sum(-1, keepdim=True),
    }
    function = table[kind]
    return f"{kind} {axis}", lambda m, x, y: function(x, y)
