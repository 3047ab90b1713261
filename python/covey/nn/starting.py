"""Weights that a replaced convolution starts from, so that training goes on rather than anew.

`from_weights` needs nothing but the convolution: it takes the kernels that are nearest to its own (the least squares of
their difference), which for a factorised convolution is one singular value of each channel's kernels (Jaderberg and
others, arXiv:1405.3866, decompose filters so). `from_activations` then goes through the layers in the order in which
they run and solves for each one's weights, so that on calibration data its result is nearest to the original one's. Its
input comes from the layers already replaced, and so later layers make up for earlier ones (Zhang and others,
arXiv:1505.06798).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from covey.nn.counting import SeenError, run
from covey.nn.operators import FactorisedConv2d, ParallelShuffle, ShuffleBlock, ShuffleConv2d, XConv2d

RIDGE = 3e-2
"""How strongly weights are held near those of `from_weights`, in parts of the mean square of a layer's inputs."""

FILTERED = 4.0
"""How much more a filtered channel counts at first than the permuted one that is added to it."""

MOST_POSITIONS = 1 << 14
"""Positions of a layer's output that are fitted to: more change nothing but the time."""


def from_weights(new: nn.Module, old: nn.Conv2d) -> None:
    """Set the weights of a replacement to the nearest of the convolution's; its bias is kept."""
    with torch.no_grad():
        weight = old.weight
        if isinstance(new, FactorisedConv2d | ShuffleConv2d | XConv2d):
            _separate(new, weight)
            target = new.point
        elif isinstance(new, ShuffleBlock):
            new.depthwise.weight.copy_(_own(weight)[: new.filtered])
            target = None  # only its first half has a bias
            if old.bias is not None:
                new.depthwise.bias.copy_(old.bias[: new.filtered])
        else:
            target = new.depthwise if isinstance(new, ParallelShuffle) else new
            target.weight.copy_(
                _own(weight) if 1 < target.groups == target.in_channels else _blocks(weight, target.groups)
            )
        if target is not None and old.bias is not None:
            target.bias.copy_(old.bias)


def from_activations(original: nn.Module, model: nn.Module, paths: list[str], samples: list[Any]) -> None:
    """Fit the replacements at these paths, in the order in which they run, to what the original computes."""
    due = _results(original, paths, samples)
    for path in due:
        new = model.get_submodule(path)
        with torch.no_grad():
            x = _input(model, new, samples)
            if isinstance(new, FactorisedConv2d | ShuffleConv2d | XConv2d):
                x, new = new.spatial(x), new.point
            y = due[path]
            if isinstance(new, ShuffleBlock):
                _fit(new.depthwise, x[:, : new.filtered], y[:, : new.filtered])
            elif isinstance(new, ParallelShuffle):
                _fit(new.depthwise, x, y - new.shuffle(x))
            else:
                _fit(new, x, y)


def _own(weight: Any) -> Any:
    """[C, 1, K, K]: what each output takes from the input of its own number, of [C, C, K, K] or a depthwise weight."""
    return weight if weight.shape[1] == 1 else weight.diagonal().permute(2, 0, 1)[:, None]


def _blocks(weight: Any, groups: int) -> Any:
    """[O, C / groups, ..] of [O, C, ..]: the blocks on the diagonal."""
    outputs, inputs = (size // groups for size in weight.shape[:2])
    return torch.cat([weight[g * outputs : (g + 1) * outputs, g * inputs : (g + 1) * inputs] for g in range(groups)])


def _separate(new: Any, weight: Any) -> None:
    """Kernels and 1 × 1 weights whose products are nearest to [O, C, K, K], one channel of the input at a time."""
    outputs, channels, *kernel = weight.shape
    matrices = weight.float().permute(1, 0, 2, 3).reshape(channels, outputs, -1)
    u, s, v = torch.linalg.svd(matrices, full_matrices=False)
    kernels, points = v[:, 0], (u[:, :, 0] * s[:, :1]).T
    if isinstance(new.spatial, ShuffleBlock):
        taken = new.spatial.filtered + new.spatial.shuffle.order
        centre = weight[:, taken, kernel[0] // 2, kernel[1] // 2]
        kernels, points = kernels[: new.spatial.filtered], torch.cat([points[:, : new.spatial.filtered], centre], dim=1)
    if isinstance(new.spatial, ParallelShuffle):
        kernels, points = kernels * FILTERED, points / FILTERED
    depthwise = new.spatial if isinstance(new.spatial, nn.Conv2d) else new.spatial.depthwise
    depthwise.weight.copy_(kernels.reshape(depthwise.weight.shape))
    new.point.weight.copy_(_blocks(points, new.point.groups)[..., None, None])


def _results(model: nn.Module, paths: list[str], samples: list[Any]) -> dict[str, Any]:
    """What the modules at these paths give, in the order in which they first run."""
    found: dict[str, Any] = {}

    def keeper(path: str) -> Any:
        return lambda module, inputs, output: found.setdefault(path, output.detach().clone())

    handles = [model.get_submodule(path).register_forward_hook(keeper(path)) for path in paths]
    try:
        run(model, samples)
    finally:
        for handle in handles:
            handle.remove()
    return found


def _input(model: nn.Module, module: nn.Module, samples: list[Any]) -> Any:
    """What a module is given when it first runs."""
    found: list[Any] = []

    def stop(_: Any, inputs: Any, named: Any) -> None:
        found.append((inputs or tuple(named.values()))[0].detach().clone())
        raise SeenError

    handle = module.register_forward_pre_hook(stop, with_kwargs=True)
    try:
        run(model, samples)
    except SeenError:
        pass
    finally:
        handle.remove()
    return found[0]


def _fit(conv: nn.Conv2d, x: Any, y: Any) -> None:
    """Set a convolution's weight to the least squares of conv(x) - y, held near what it is."""
    if conv.bias is not None:
        y = y - conv.bias[:, None, None]
    groups, size = conv.groups, conv.weight[0].numel()
    rows = functional.unfold(x, conv.kernel_size, conv.dilation, conv.padding, conv.stride)  # [N, C·K·K, P]
    rows = rows.reshape(len(x), groups, size, -1).permute(1, 0, 3, 2).reshape(groups, -1, size)
    due = (
        y.reshape(len(y), groups, len(conv.weight) // groups, -1).permute(1, 0, 3, 2).reshape(groups, rows.shape[1], -1)
    )
    if rows.shape[1] > MOST_POSITIONS:
        step = -(-rows.shape[1] // MOST_POSITIONS)
        rows, due = rows[:, ::step], due[:, ::step]
    rows, due = rows.double(), due.double()
    weight = conv.weight.double().reshape(groups, -1, size).transpose(1, 2)  # [G, C·K·K, O]
    square = rows.transpose(1, 2) @ rows
    # Of all groups: a channel that is almost always zero here says little about its weights.
    mean = square.diagonal(dim1=1, dim2=2).mean().clamp(min=1e-12)
    square = square + RIDGE * mean * torch.eye(size, dtype=square.dtype, device=square.device)
    change = torch.linalg.solve(square, rows.transpose(1, 2) @ (due - rows @ weight))
    conv.weight.copy_((weight + change).transpose(1, 2).reshape(conv.weight.shape))
