"""Steps of random PyTorch modules that are trained: parameters, layers, tables, and parts without gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as f

from module_steps import Draw, Made, Tensor

Own = Callable[[Tensor, Tensor], Tensor]

PUBLIC = torch.tensor([0, 2, 1, 2])
"""Indices that everybody knows."""


def parameter(draw: Draw, shape: tuple[int, ...], *, low: float = -1.0, high: float = 1.0) -> str:
    """A parameter of a shape, by its name: now and then one that is used already."""
    held = [name for name, tensor in draw.module._parameters.items() if tuple(tensor.shape) == shape]
    if held and draw.of.random() < 0.5:
        return draw.of.choice(held)
    name = f"p{len(draw.module._parameters)}"
    draw.module.register_parameter(name, nn.Parameter(torch.rand(shape) * (high - low) + low))
    return name


OPERAND: dict[str, Own] = {
    "x + p": lambda x, p: x + p,
    "x - p": lambda x, p: x - p,
    "p - x": lambda x, p: p - x,
    "x * p": lambda x, p: x * p,
    "x / (p + 2)": lambda x, p: x / (p + 2),
    "p / (|x| + 1)": lambda x, p: p / (x.abs() + 1),
    "p ** 2": lambda x, p: x * p**2,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "where": lambda x, p: torch.where(x > 0.1, x, p),
    "x > p": lambda x, p: x * (x > p),
    "addcmul": lambda x, p: torch.addcmul(x, x, p, value=0.5),
    "addcdiv": lambda x, p: torch.addcdiv(x, p, x * x + 1, value=0.5),
    "lerp": torch.lerp,
    "lerp to": lambda x, p: torch.lerp(x, p.expand_as(x), 0.3),
    "lerp by": lambda x, p: torch.lerp(x, x.abs(), p),
    "add(alpha)": lambda x, p: torch.add(x, p, alpha=0.5),
    "sub(alpha)": lambda x, p: torch.sub(p, x, alpha=0.5),
    "twice": lambda x, p: (x + p) * p,
    "in place": lambda x, p: x.clone().mul_(p).add_(p),
    "no gradient": lambda x, p: x * p.detach() + p,
    "its sigmoid": lambda x, p: x * p.sigmoid(),
    "its exponential": lambda x, p: x * p.exp(),
    "its absolute value": lambda x, p: x * p.abs(),
    "its exponential and itself": lambda x, p: x * p.exp() + p,
    "its softplus": lambda x, p: x * f.softplus(p),
    "cut": lambda x, p: x + p.clamp(-0.5, 0.5),
    "between": lambda x, p: torch.clamp(x, p, p + 0.5),
    "power of two": lambda x, p: x * torch.exp2(p),
    "half of it": lambda x, p: x * torch.where(p > 0, p, 0.5 * p),
    "normalised": lambda x, p: x * f.normalize(p, dim=-1),
    "less its mean": lambda x, p: x + (p - p.mean()),
    "p * p": lambda x, p: x + p * p,
    "over its sum": lambda x, p: x * p.softmax(-1) * 2,
    "-p": lambda x, p: x * -p,
    "half of p": lambda x, p: x + 0.5 * p,
    "clone": lambda x, p: x + p.clone(),
    "sum of both": lambda x, p: torch.stack([x, p.expand_as(x)]).sum(0),
    "remainder": lambda x, p: x + (p > 0) * p,
    "straight through": lambda x, p: (x * p) + ((x * p).round() - x * p).detach(),
    "no_grad": lambda x, p: _without(lambda y: torch.sigmoid(y), x) * p,
}
"""Of a result and a parameter that broadcasts to it."""


def _without(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    with torch.no_grad():
        return function(x)


def operand(draw: Draw, shape: tuple[int, ...]) -> Made:
    """A parameter of any shape that broadcasts."""
    small = draw.broadcast(shape[1:])
    if draw.of.random() < 0.1:
        small = draw.of.choice([(), (1,)])
    kind = draw.of.choice(list(OPERAND))
    name, function = parameter(draw, small), OPERAND[kind]
    return f"{kind}, {name} {list(small)}", lambda m, x: function(x, getattr(m, name))


def matrices(draw: Draw, shape: tuple[int, ...]) -> Made | None:
    """A product with a parameter."""
    of, last = draw.of, shape[-1]
    width = of.choice([last, 3])
    square, wide = parameter(draw, (last, width)), parameter(draw, (width, last))
    bias = parameter(draw, (width,))
    table: dict[str, Callable[[Any, Tensor], Tensor]] = {
        "x @ p": lambda m, x: x @ getattr(m, square),
        "x @ p.t()": lambda m, x: x @ getattr(m, wide).t(),
        "x @ p.T[..]": lambda m, x: x @ getattr(m, wide).transpose(0, 1),
        "linear": lambda m, x: f.linear(x, getattr(m, wide), getattr(m, bias)),
        "einsum": lambda m, x: torch.einsum("...i,ij->...j", x, getattr(m, square)),
        "matmul, both": lambda m, x: x @ getattr(m, square) @ getattr(m, wide),
        "autoencoder": lambda m, x: f.linear(torch.tanh(f.linear(x, getattr(m, wide))), getattr(m, wide).t()),
        "a part": lambda m, x: x @ getattr(m, square)[:, :2],
        "a row": lambda m, x: x * getattr(m, wide)[1],
        "a row and all": lambda m, x: f.linear(x, getattr(m, wide)) * getattr(m, square)[0],
        "in two": lambda m, x: torch.cat([x @ part for part in getattr(m, square).chunk(2, 1)], -1),
        "turned": lambda m, x: x @ getattr(m, square).flip(1),
        "rows at": lambda m, x: x @ getattr(m, square)[:, PUBLIC[: min(4, width)] % width],
        "cosine": lambda m, x: f.linear(f.normalize(x + 0.1, dim=-1), f.normalize(getattr(m, wide), dim=-1)),
        "distances": lambda m, x: (x.unsqueeze(-2) - getattr(m, wide)).square().mean(-1),
        "standardised": lambda m, x: f.linear(x, getattr(m, wide) - getattr(m, wide).mean(1, keepdim=True)),
        "product of two": lambda m, x: x @ (getattr(m, square) @ getattr(m, wide)),
        "masked": lambda m, x: x @ getattr(m, square).tril(),
        "low rank": lambda m, x: x + (x @ getattr(m, square)[:, :1]) @ getattr(m, wide)[:1] * 2,
    }
    if len(shape) == 2:
        table["addmm"] = lambda m, x: torch.addmm(getattr(m, bias), x, getattr(m, square), alpha=0.5)
        table["prelu"] = lambda m, x: f.prelu(x, getattr(m, wide)[0])
        table["batch_norm"] = lambda m, x: f.batch_norm(x, None, None, getattr(m, wide)[0], training=True)
    if len(shape) == 3:
        left = parameter(draw, (2, shape[1]))
        table["p @ x"] = lambda m, x: getattr(m, left) @ x
        table["prompt"] = lambda m, x: torch.cat([getattr(m, wide).expand(x.shape[0], -1, -1), x], 1)
        table["queries"] = lambda m, x: f.scaled_dot_product_attention(
            getattr(m, wide).expand(x.shape[0], -1, -1), x, x
        )
        table["baddbmm"] = lambda m, x: torch.baddbmm(getattr(m, bias), x, getattr(m, square).expand(len(x), -1, -1))
        table["conv1d"] = lambda m, x: f.conv1d(x.mT, getattr(m, wide).unsqueeze(-1)).mT
        table["bilinear"] = lambda m, x: x @ getattr(m, square) @ (x @ getattr(m, square)).mT / 4
    table["layer_norm"] = lambda m, x: f.layer_norm(x, (last,), getattr(m, wide)[0])
    table["rms_norm"] = lambda m, x: f.rms_norm(x, (last,), getattr(m, wide)[0], 1e-5)
    kind = of.choice(list(table))
    function = table[kind]
    return f"{kind}, {square} {wide} {bias}", lambda m, x: function(m, x)


def rows(draw: Draw, shape: tuple[int, ...]) -> Made | None:
    """Rows of a table that public indices pick, such as positions."""
    if len(shape) != 3:
        return None
    length, width = shape[1:]
    name = draw.part(nn.Embedding(length + 2, width))
    kind = draw.of.choice(["first", "listed", "last"])

    def places(x: Tensor) -> Tensor:
        if kind == "listed":
            return torch.tensor([(3 * index + 1) % (length + 2) for index in range(length)])
        return torch.arange(length) + (2 if kind == "last" else 0)

    return f"positions, {kind}, {name}", lambda m, x: x + getattr(m, name)(places(x))


class Embedded(nn.Module):
    """Words from ids."""

    def __init__(self, words: int, width: int, padding: int | None) -> None:
        super().__init__()
        self.table = nn.Embedding(words, width, padding_idx=padding)

    def forward(self, x: Tensor) -> Tensor:
        return self.table(x)
