"""Steps of random PyTorch modules: element-wise functions, constants, reductions and moves of elements."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import nn
from torch.nn import functional as f

Tensor = Any


@dataclass
class Step:
    """One step of a module: `compute` reads the module and the results of the steps `reads`."""

    text: str
    reads: tuple[int, ...]
    compute: Callable[..., Tensor]


class Steps(nn.Module):  # type: ignore[misc]
    """A module that goes through steps; result 0 is the input."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Step] = []
        self.outputs: list[int] = []

    def forward(self, x: Tensor) -> Any:
        results = [x]
        for step in self.steps:
            results.append(step.compute(self, *(results[index] for index in step.reads)))
        chosen = [results[index] for index in self.outputs]
        return chosen[0] if len(chosen) == 1 else tuple(chosen)

    def __str__(self) -> str:
        lines = [f"{number}: {step.text} of {step.reads}" for number, step in enumerate(self.steps, start=1)]
        return "\n".join([*lines, f"outputs {self.outputs}"])


@dataclass
class Draw:
    """What the makers of steps draw from: the generator, the module and one result's shape without the batch."""

    of: random.Random
    module: Steps
    results: list[Tensor] = field(default_factory=list)

    def part(self, module: nn.Module) -> str:
        """Add a module and give its name."""
        name = f"m{len(self.module._modules)}"
        self.module.add_module(name, module.eval())
        return name

    def constant(self, shape: tuple[int, ...], *, low: float = -1.5, high: float = 1.5) -> str:
        """Add a buffer of a shape and give its name."""
        name = f"c{len(self.module._buffers)}"
        self.module.register_buffer(name, torch.rand(shape) * (high - low) + low)
        return name

    def axis(self, shape: tuple[int, ...]) -> int:
        """An axis of a result that is not the batch, counted from either end."""
        axis = self.of.randrange(1, len(shape))
        return axis if self.of.random() < 0.5 else axis - len(shape)

    def broadcast(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """A shape that broadcasts to a result's without its batch."""
        kept = shape[self.of.randrange(len(shape)) :] if self.of.random() < 0.4 else shape
        return tuple(1 if self.of.random() < 0.35 else size for size in kept)


Made: TypeAlias = "tuple[str, Callable[..., Tensor]]"
"""What a step is called, and what it computes."""

Maker: TypeAlias = "Callable[[Draw, tuple[int, ...]], Made | None]"
"""Makes a step that reads one result [B, ..] of a shape, or none where the shape does not fit."""


def by_name(texts: dict[str, Callable[[Tensor], Tensor]]) -> Maker:
    def make(draw: Draw, shape: tuple[int, ...]) -> Made:
        text = draw.of.choice(list(texts))
        function = texts[text]
        return text, lambda m, x: function(x)

    return make


SMOOTH: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": f.relu,
    "relu6": f.relu6,
    "gelu": f.gelu,
    "silu": f.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "hardtanh": f.hardtanh,
    "hardsigmoid": f.hardsigmoid,
    "hardswish": f.hardswish,
    "elu": f.elu,
    "celu": f.celu,
    "selu": f.selu,
    "softplus": f.softplus,
    "mish": f.mish,
    "softsign": f.softsign,
    "tanhshrink": f.tanhshrink,
    "logsigmoid": f.logsigmoid,
    "hardshrink": f.hardshrink,
    "softshrink": f.softshrink,
    "erf": torch.erf,
    "leaky_relu": lambda x: f.leaky_relu(x, 0.2),
    "gelu(tanh)": lambda x: f.gelu(x, approximate="tanh"),
    "elu(0.7)": lambda x: f.elu(x, 0.7),
    "hardtanh(-0.3, 0.9)": lambda x: f.hardtanh(x, -0.3, 0.9),
    "threshold(0.1, 0.5)": lambda x: f.threshold(x, 0.1, 0.5),
    "softplus(2)": lambda x: f.softplus(x, 2.0),
}

PLAIN: dict[str, Callable[[Tensor], Tensor]] = {
    "abs": torch.abs,
    "neg": torch.neg,
    "square": torch.square,
    "x ** 2": lambda x: x**2,
    "x ** 3": lambda x: x**3,
    "x * x": lambda x: x * x,
    "x + x": lambda x: x + x,
    "x - 0.25": lambda x: x - 0.25,
    "3 - x": lambda x: 3 - x,
    "x / 4": lambda x: x / 4,
    "0.5 * x": lambda x: 0.5 * x,
    "1 / (1.5 + |x|)": lambda x: 1 / (1.5 + x.abs()),
    "sqrt(x * x + 0.5)": lambda x: torch.sqrt(x * x + 0.5),
    "rsqrt(x * x + 0.5)": lambda x: torch.rsqrt(x * x + 0.5),
    "exp of a clip": lambda x: torch.exp(x.clamp(-2, 2)),
    "log(1 + |x|)": lambda x: torch.log(1 + x.abs()),
    "log1p|x|": lambda x: torch.log1p(x.abs()),
    "expm1 of a clip": lambda x: torch.expm1(x.clamp(-2, 1)),
    "clamp(-0.5, 1)": lambda x: x.clamp(-0.5, 1),
    "clamp(min)": lambda x: x.clamp(min=-0.2),
    "clamp(max)": lambda x: x.clamp(max=0.7),
    "sin": torch.sin,
    "cos": torch.cos,
    "clone": lambda x: x.clone(),
    "contiguous": lambda x: x.contiguous(),
    "float": lambda x: x.float(),
    "detach": lambda x: x.detach(),
    "max with a number": lambda x: torch.maximum(x, torch.tensor(0.1)),
    "positive": lambda x: +x,
    "x where x > 0.2": lambda x: torch.where(x > 0.2, x, 0.1 * x),
    "x * (x > 0)": lambda x: x * (x > 0),
    "masked_fill": lambda x: x.masked_fill(x < -0.3, 0.4),
    "(x > 0).float()": lambda x: (x > 0).float(),
    "(x >= 0.5) * 2": lambda x: (x >= 0.5) * 2.0,
    "and": lambda x: ((x > -0.5) & (x < 0.5)).float(),
    "not": lambda x: torch.where(~(x > 0), x, -x),
    "0 of x": lambda x: torch.zeros_like(x) + x * 0.5,
    "ones_like": lambda x: torch.ones_like(x) - x,
    "x - x.mean()": lambda x: x - x.mean(-1, keepdim=True),
    "floor of x": lambda x: x - 0.3 * torch.sign(x),
    "rsub": lambda x: torch.rsub(x, 1, alpha=2),
    "add(alpha)": lambda x: torch.add(x, x.abs(), alpha=0.5),
    "addcmul": lambda x: torch.addcmul(x, x, x, value=0.3),
    "lerp": lambda x: torch.lerp(x, x.abs(), 0.25),
    "nan_to_num": lambda x: torch.nan_to_num(x),
    "heaviside by where": lambda x: torch.where(x > 0, torch.tensor(1.0), torch.tensor(-1.0)) * x.abs(),
    "dropout": lambda x: f.dropout(x, 0.3, training=False),
    "logit of sigmoid": lambda x: x.sigmoid() * x.tanh(),
    "pow(1.5)": lambda x: (x.abs() + 0.1) ** 1.5,
    "sqrt|x|": lambda x: (x.abs() + 0.01).sqrt(),
    "true division": lambda x: x / (2 + x.abs()),
    "div_": lambda x: x.clone().div_(3),
    "fmod": lambda x: x.trunc() + 0 * x,
    "add_": lambda x: x.clone().add_(1),
    "int scalar": lambda x: x * 2 + 1,
    "masks": lambda x: x * ((x > 0) | (x < -1)),
    "xor": lambda x: x * ((x > 0) ^ (x > 1)).float(),
    "amax clip": lambda x: torch.minimum(x, x.amax(-1, keepdim=True) - 0.1),
}


def constant_operand(draw: Draw, shape: tuple[int, ...]) -> Made:
    small = draw.broadcast(shape[1:])
    kind = draw.of.choice(["+", "-", "r-", "*", "/", "max", "min", "where", ">", "masked", "pow"])
    low = 0.5 if kind in ("/", "pow") else -1.5
    name = draw.constant(small, low=low)
    if kind in ("where", "masked"):
        draw.module._buffers[name] = torch.rand(small) > 0.4
    table: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "+": lambda x, c: x + c,
        "-": lambda x, c: x - c,
        "r-": lambda x, c: c - x,
        "*": lambda x, c: x * c,
        "/": lambda x, c: x / c,
        "max": torch.maximum,
        "min": torch.minimum,
        "where": lambda x, c: torch.where(c, x, -0.5),
        ">": lambda x, c: (x > c) * x,
        "masked": lambda x, c: x.masked_fill(c, 0.25),
        "pow": lambda x, c: x * c**2,
    }
    function = table[kind]
    return f"{kind} constant {list(small)}", lambda m, x: function(x, getattr(m, name))


def reductions(draw: Draw, shape: tuple[int, ...]) -> Made | None:
    if len(shape) < 2:
        return None
    axes = draw.of.sample(range(1, len(shape)), draw.of.randint(1, len(shape) - 1))
    if draw.of.random() < 0.5:
        axes = [axis - len(shape) for axis in axes]
    keep = draw.of.random() < 0.6
    if len(axes) == len(shape) - 1 and not keep:
        axes = axes[1:] or axes
        keep = keep or len(shape) == 2
    kind = draw.of.choice(
        [
            "sum",
            "mean",
            "amax",
            "amin",
            "var",
            "std",
            "norm",
            "logsumexp",
            "max",
            "min",
            "softmax",
            "log_softmax",
            "cumsum",
            "argmax",
            "all",
            "l1",
            "softmin",
            "prod",
            "var0",
            "normalize",
            "topk",
            "sort",
            "std_mean",
        ]
    )
    axis = axes[0]
    size = shape[axis]
    table: dict[str, Callable[[Tensor], Tensor]] = {
        "sum": lambda x: x.sum(axes, keepdim=keep) / 4,
        "mean": lambda x: x.mean(axes, keepdim=keep),
        "amax": lambda x: x.amax(axes, keepdim=keep),
        "amin": lambda x: x.amin(axes, keepdim=keep),
        "var": lambda x: x.var(axes, keepdim=keep),
        "std": lambda x: x.std(axes, keepdim=keep) if size > 1 else x,
        "var0": lambda x: x.var(axes, correction=0, keepdim=keep),
        "norm": lambda x: (x + 0.1).norm(dim=axis, keepdim=keep),
        "logsumexp": lambda x: torch.logsumexp(x, axes, keepdim=keep),
        "max": lambda x: x.max(axis, keepdim=keep)[0],
        "min": lambda x: x.min(axis, keepdim=keep).values,
        "softmax": lambda x: x.softmax(axis),
        "log_softmax": lambda x: x.log_softmax(axis),
        "cumsum": lambda x: x.cumsum(axis) / 2,
        "argmax": lambda x: f.one_hot(x.argmax(axis), size).float() if size > 1 else x,
        "all": lambda x: ((x > -1.2).all(axis, keepdim=keep)).float(),
        "l1": lambda x: x.norm(1, axis, keepdim=keep) / 4,
        "softmin": lambda x: f.softmin(x, axis),
        "prod": lambda x: x.prod(axis, keepdim=keep) if size < 5 else x,
        "normalize": lambda x: f.normalize(x + 0.2, dim=axis),
        "topk": lambda x: x.topk(max(1, size // 2), axis).values,
        "sort": lambda x: x.sort(axis)[0],
        "std_mean": lambda x: torch.var_mean(x, axes, keepdim=keep)[1],
    }
    function = table[kind]
    return f"{kind} over {axes} keepdim {keep}", lambda m, x: function(x)


def factors(draw: Draw, count: int) -> list[int]:
    sizes = []
    while count > 1 and len(sizes) < 3:
        choices = [d for d in range(2, count + 1) if count % d == 0]
        sizes.append(draw.of.choice(choices))
        count //= sizes[-1]
    if count > 1 or not sizes:
        sizes.append(count)
    draw.of.shuffle(sizes)
    return sizes


def moves(draw: Draw, shape: tuple[int, ...]) -> Made | None:
    of, rank = draw.of, len(shape)
    if rank < 2:
        return None
    axis = draw.axis(shape)
    size = shape[axis]
    count = 1
    for each in shape[1:]:
        count *= each
    kind = of.choice(
        [
            "reshape",
            "view",
            "flatten",
            "permute",
            "transpose",
            "unsqueeze",
            "slice",
            "select",
            "index",
            "flip",
            "roll",
            "pad",
            "expand",
            "repeat",
            "chunk",
            "split",
            "unbind",
            "tril",
            "index_select",
            "gather",
            "repeat_interleave",
            "squeeze",
            "movedim",
            "shuffle",
            "unfold",
            "narrow",
            "tile",
            "stack",
            "cat itself",
            "negative pad",
            "unflatten",
            "list index",
            "step",
            "diagonal",
            "pixel_unshuffle",
            "rot90",
            "last of",
            "ellipsis",
            "cat constant",
            "take two",
            "unfold2",
            "swap halves",
            "mT",
            "as batch",
        ]
    )
    first, other = of.randrange(1, rank), of.randrange(1, rank)
    low = of.randrange(size)
    high = of.randrange(low + 1, size + 1)
    order = [0, *of.sample(range(1, rank), rank - 1)]
    if kind in ("reshape", "view"):
        sizes = factors(draw, count)
        if of.random() < 0.3:
            sizes[of.randrange(len(sizes))] = -1
            return f"reshape(x.shape[0], {sizes})", lambda m, x: x.reshape(x.shape[0], *sizes)
        batch = of.choice(["size", "-1"])
        return f"reshape({batch}, {sizes})", lambda m, x: x.reshape(x.size(0) if batch == "size" else -1, *sizes)
    picked = [of.randrange(size) for _ in range(of.randint(1, 4))]
    index = torch.randint(
        0, size, tuple(draw.of.randint(1, s) if i + 1 != axis % rank else 3 for i, s in enumerate(shape[1:]))
    )
    name = f"c{len(draw.module._buffers)}"
    pads = [of.randint(0, 2) for _ in range(2 * of.randint(1, rank - 1))]
    mode = of.choice(["constant", "reflect", "replicate", "circular"])
    shift = of.randint(-size, size)
    times = [1] + [of.randint(1, 2) for _ in range(rank - 1)]
    if kind == "gather":
        draw.module.register_buffer(name, index)
        return f"gather({axis}, {list(index.shape)})", lambda m, x: x.gather(
            axis, getattr(m, name).unsqueeze(0).expand(x.shape[0], *index.shape)
        )
    if kind == "cat constant":
        own = list(shape[1:])
        own[axis % rank - 1] = 2
        c = draw.constant((1, *own))
        return f"cat with a constant at {axis}", lambda m, x: torch.cat(
            [x, getattr(m, c).expand(x.shape[0], *own)], axis
        )
    if kind == "pad":
        spatial = rank - 2
        if mode == "constant" or spatial not in (1, 2, 3) or any(shape[2 + i] < 4 for i in range(spatial)):
            value = of.choice([0.0, 0.5, -1.0])
            return f"pad {pads} of {value}", lambda m, x: f.pad(x, pads, value=value)
        those = [of.randint(0, 2) for _ in range(2 * spatial)]
        return f"pad {those} {mode}", lambda m, x: f.pad(x, those, mode=mode)
    table: dict[str, Callable[[Tensor], Tensor]] = {
        "flatten": lambda x: x.flatten(1),
        "permute": lambda x: x.permute(*order),
        "transpose": lambda x: x.transpose(first, other),
        "unsqueeze": lambda x: x.unsqueeze(axis),
        "slice": lambda x: x[(slice(None),) * (axis % rank) + (slice(low, high),)],
        "step": lambda x: x[(slice(None),) * (axis % rank) + (slice(low, None, 2),)],
        "select": lambda x: x.select(axis, low - size if size % 2 else low),
        "flip": lambda x: x.flip(axis),
        "index": lambda x: x[(slice(None),) * (axis % rank) + (low,)],
        "roll": lambda x: x.roll(shift, axis),
        "list index": lambda x: x[(slice(None),) * (axis % rank) + (picked,)],
        "expand": lambda x: x.unsqueeze(first).expand(*(-1,) * first, 3, *(-1,) * (rank - first)),
        "repeat": lambda x: x.repeat(*times),
        "tile": lambda x: x.tile(*times[-max(1, rank - 1) :]) if rank > 1 else x,
        "chunk": lambda x: x.chunk(2, axis)[0],
        "split": lambda x: x.split([low, size - low], axis)[1],
        "unbind": lambda x: x.unbind(axis)[low],
        "tril": lambda x: x.tril(of_diagonal) if rank > 2 else x,
        "index_select": lambda x: x.index_select(axis, torch.tensor(picked)),
        "repeat_interleave": lambda x: x.repeat_interleave(2, axis),
        "squeeze": lambda x: x.squeeze(axis),
        "movedim": lambda x: x.movedim(first, other),
        "narrow": lambda x: x.narrow(axis, low, high - low),
        "shuffle": lambda x: f.channel_shuffle(x, 2) if rank == 4 and shape[1] % 2 == 0 else x,
        "unfold": lambda x: x.unfold(axis, high - low, max(1, low)),
        "stack": lambda x: torch.stack([x, -x, x], axis),
        "cat itself": lambda x: torch.cat([x, x.abs()], axis),
        "negative pad": lambda x: f.pad(x, (-1, 1)) if shape[-1] > 2 else x,
        "unflatten": lambda x: x.unflatten(axis, (size // 2, 2)) if size % 2 == 0 and size else x,
        "diagonal": lambda x: torch.diagonal(x, 0, 1, 2) if rank > 2 else x,
        "pixel_unshuffle": lambda x: (
            f.pixel_unshuffle(x, 2) if rank == 4 and shape[2] % 2 == 0 and shape[3] % 2 == 0 else x
        ),
        "rot90": lambda x: x.rot90(1, (1, 2)) if rank > 2 else x,
        "last of": lambda x: x[..., -1:],
        "ellipsis": lambda x: x[..., None],
        "take two": lambda x: x[..., [0, -1]],
        "unfold2": lambda x: f.unfold(x, 2, padding=1, stride=2) if rank == 4 else x,
        "swap halves": lambda x: torch.cat([-x[..., shape[-1] // 2 :], x[..., : shape[-1] // 2]], -1),
        "mT": lambda x: x.mT if rank > 2 else x,
        "as batch": lambda x: x.view(x.shape),
    }
    of_diagonal = of.randint(-1, 1)
    function = table[kind]
    text = f"{kind} axis {axis} low {low} high {high} picked {picked} order {order} times {times} shift {shift}"
    return text, lambda m, x: function(x)
