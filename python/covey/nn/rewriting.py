"""Putting the operators in place of a model's convolutions, and saying what that saves."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import torch
from rich.console import Group, RenderableType
from rich.text import Text
from torch import nn

from covey.errors import OptionError
from covey.nn import bottlenecks, starting
from covey.nn.bottlenecks import Bottleneck
from covey.nn.counting import multiplications
from covey.nn.operators import (
    FactorisedConv2d,
    GroupedPointwiseConv2d,
    ParallelShuffle,
    ShuffleBlock,
    ShuffleConv2d,
    XConv2d,
)
from covey.shown import Shown
from covey.tables import cell, table

Operator = Literal["factorised", "shuffle", "x"]
Start = Literal["trained", "random"]


@dataclass(frozen=True)
class Change:
    """A module that was replaced: its path, what it was and is, and the multiplications of a sample, where counted."""

    path: str
    was: str
    now: str
    before: int | None = None
    after: int | None = None


@dataclass(frozen=True)
class Rewritten(Shown):
    """A rewritten copy of a model, and what was done. Its text is a table."""

    model: nn.Module = field(repr=False)
    operator: str
    changes: list[Change]
    kept: dict[str, str]
    """Convolutions that were left, and why."""
    before: int | None = None
    """Multiplications of one sample in all convolutions and linear layers of the model, where counted."""
    after: int | None = None
    note: str | None = None

    def rows(self) -> list[dict[str, Any]]:
        """Every module that was replaced."""
        return [
            {"module": each.path, "was": each.was, "is": each.now, "before": each.before, "after": each.after}
            for each in self.changes
        ]

    def rendered(self) -> RenderableType:
        """The table for a terminal (print it with rich)."""
        made = table(
            f"operator {self.operator}: multiplications of a sample", ["module", "was", "is"], ["before", "after"]
        )
        for each in self.changes:
            made.add_row(cell(each.path), each.was, each.now, _number(each.before), _number(each.after))
        made.add_section()
        made.add_row("the whole model", "", "", _number(self.before), _number(self.after))
        lines = [f"{path} was left: {reason}" for path, reason in self.kept.items()]
        if self.before is None:
            lines.append("multiplications are counted if example_inputs are given")
        if self.note:
            lines.append(self.note)
        return Group(made, *(Text(line) for line in lines))


def rewrite(
    model: nn.Module,
    operator: Operator = "x",
    *,
    example_inputs: Any = None,
    calibration: Any = None,
    start: Start = "trained",
    keep: Sequence[str] = (),
    seed: int = 0,
) -> Rewritten:
    """A copy of a model with an operator of arXiv:2209.00411 in place of its convolutions; the model stays as it is.

    A bottleneck's K × K convolution becomes a depthwise one ("factorised"), a shuffle block ("shuffle"), or a depthwise
    one plus a shuffle ("x"), and with "x" its 1 × 1 convolutions have two groups. Normalisations, activations and
    shortcuts stay. A K × K convolution elsewhere is followed by a 1 × 1 convolution, because nothing else would mix its
    channels. `keep` names modules to leave, each with all below it.

    `start` is "trained" for weights near the model's, or "random" for PyTorch's own; either needs training afterwards.
    Give `calibration`, a tensor of samples [N, ..], for a start that computes about what the model does: layer by
    layer, weights are then the least squares for its results. `example_inputs`, a tensor or one for each argument of
    `forward`, are for counting multiplications; by default those of `calibration`. Permutations are drawn from `seed`.
    Raises `OptionError` for wrong arguments, and where there is nothing to replace.
    """
    if not isinstance(model, nn.Module):
        raise OptionError(f"rewrite takes a torch.nn.Module, not a {type(model).__name__}")
    _one_of("operator", operator, get_args(Operator))
    _one_of("start", start, get_args(Start))
    if start == "random" and calibration is not None:
        raise OptionError("calibration brings trained weights nearer: leave it out, or use start='trained'")
    paths = {path for path, _ in model.named_modules()}
    for name in keep:
        if name not in paths:
            raise OptionError(f"keep names '{name}', which the model has not: use a path of named_modules()")
    samples = None if calibration is None else _tensors("calibration", calibration)
    examples = samples if example_inputs is None else _tensors("example_inputs", example_inputs)

    try:
        rewritten = copy.deepcopy(model)
    except Exception as error:  # PyTorch copies no results of computations
        line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise OptionError(
            f"{type(model).__name__} cannot be copied ({line}): give a module of plain parameters"
        ) from None
    structure = bottlenecks.find(rewritten)
    roles = _roles(structure.bottlenecks.values(), operator)
    counts = _counted(rewritten, examples)
    replaced: dict[str, nn.Module] = {}
    kept: dict[str, str] = {}
    for path, old in rewritten.named_modules():
        if not isinstance(old, nn.modules.conv._ConvNd):
            continue
        named = any(path == name or path.startswith(f"{name}.") for name in keep)
        made = "it is named in keep" if named else _replacement(old, operator, roles.get(path), seed + len(replaced))
        if isinstance(made, nn.Module):
            replaced[path] = made.to(old.weight.device, old.weight.dtype)
        elif made is not None:
            kept[path] = made
    if not replaced:
        why = "; ".join(f"{path}: {reason}" for path, reason in list(kept.items())[:3])
        raise OptionError(
            f"{type(model).__name__} has no convolution that operator '{operator}' replaces"
            + (f" ({why})" if why else "")
        )
    olds = {path: rewritten.get_submodule(path) for path in replaced}
    if start == "trained":
        for path, made in replaced.items():
            starting.from_weights(made, olds[path])
    _put(rewritten, olds, replaced)
    if samples is not None:
        # What mixes a bottleneck's channels behind the filters makes up for what these lack.
        mixing = [each.last for each in structure.bottlenecks.values() if each.spatial in replaced and each.last]
        starting.from_activations(model, rewritten, list({**replaced, **dict.fromkeys(mixing)}), samples)
    now = _counted(rewritten, examples)
    changes = [
        Change(path, described(olds[path]), described(made), _sum(counts, path), _sum(now, path))
        for path, made in replaced.items()
    ]
    note = None
    if structure.untraced is not None:
        note = f"no bottleneck was looked for, because torch.fx cannot trace the model ({structure.untraced})"
    return Rewritten(rewritten, operator, changes, kept, _sum(counts, ""), _sum(now, ""), note)


def described(module: nn.Module) -> str:
    """A module in a few words."""
    if isinstance(module, FactorisedConv2d | ShuffleConv2d | XConv2d):
        return f"{described(module.spatial)}, {described(module.point)}"
    if isinstance(module, ShuffleBlock):
        return f"half {described(module.depthwise)}, half shuffled"
    if isinstance(module, ParallelShuffle):
        return f"{described(module.depthwise)} + shuffle"
    kernel, sizes = "×".join(map(str, module.kernel_size)), f"{module.in_channels} → {module.out_channels}"
    step = "" if set(module.stride) == {1} else f" / {module.stride[0]}"
    if 1 < module.groups == module.in_channels:
        return f"depthwise {kernel}{step}"
    groups = f" in {module.groups} groups" if module.groups > 1 else ""
    return f"{kernel}{step}, {sizes}{groups}"


def _roles(found: Any, operator: str) -> dict[str, Bottleneck]:
    """The bottleneck of each convolution in one; 1 × 1 ones only where the operator changes them."""
    roles = {}
    for each in found:
        roles[each.spatial] = each
        if operator == "x":
            roles |= {path: each for path in (each.first, each.last) if path}
    return roles


def _replacement(conv: nn.Module, operator: str, role: Bottleneck | None, seed: int) -> nn.Module | str | None:
    """What stands in place of a convolution; why nothing does; or None for one that is not of interest."""
    if type(conv) is not nn.Conv2d:
        return f"it is a {type(conv).__name__}"
    if set(conv.kernel_size) == {1}:
        if operator != "x" or role is None or conv.groups > 1 or set(conv.stride) != {1}:
            return None
        if conv.in_channels % 2 or conv.out_channels % 2:
            return "two groups need even numbers of channels"
        return GroupedPointwiseConv2d(conv.in_channels, conv.out_channels, conv.bias is not None)
    depthwise = 1 < conv.groups == conv.in_channels == conv.out_channels
    if depthwise and operator == "factorised":
        return None
    if conv.groups > 1 and not depthwise:
        return f"it has {conv.groups} groups already"
    if conv.padding_mode != "zeros":
        return f"its padding is {conv.padding_mode}, not zeros"
    made = _spatial(conv, operator, depthwise or (role is not None and role.last is not None), seed)
    if not depthwise and isinstance(made, nn.Module) and _weights(made) >= conv.weight.numel():
        return "its replacement would have no fewer multiplications"
    return made


def _spatial(conv: nn.Conv2d, operator: str, mixed_behind: bool, seed: int) -> nn.Module | str:
    """In place of a K × K convolution whose channels are mixed behind it, or not; or why nothing is."""
    channels, kernel, stride, dilation = conv.in_channels, conv.kernel_size, conv.stride, conv.dilation
    pads, bias, alone = _pads(conv), conv.bias is not None, mixed_behind and channels == conv.out_channels
    if pads is None:
        return "its padding is not the same on both sides"
    if operator == "factorised":
        if alone:
            return nn.Conv2d(channels, channels, kernel, stride, pads, dilation, groups=channels, bias=bias)
        return FactorisedConv2d(channels, conv.out_channels, kernel, stride, dilation, bias, pads)
    centred = tuple(step * (size // 2) for size, step in zip(kernel, dilation, strict=True))
    if pads != centred or not all(size % 2 for size in kernel):
        return "its kernel is not centred: shuffled channels would be out of place"
    if channels == 1:
        return "it reads one channel: there is nothing to shuffle"
    if alone:
        block = ShuffleBlock if operator == "shuffle" else ParallelShuffle
        return block(channels, kernel, stride, dilation, bias, seed)
    whole = ShuffleConv2d if operator == "shuffle" else XConv2d
    return whole(channels, conv.out_channels, kernel, stride, dilation, bias, seed)


def _pads(conv: nn.Conv2d) -> tuple[int, int] | None:
    """Rows and columns of padding on either side; `None` where the sides differ."""
    if conv.padding == "valid":
        return (0, 0)
    if conv.padding == "same":
        totals = [step * (size - 1) for size, step in zip(conv.kernel_size, conv.dilation, strict=True)]
        return None if any(total % 2 for total in totals) else (totals[0] // 2, totals[1] // 2)
    rows, columns = conv.padding
    return rows, columns


def _put(model: nn.Module, olds: dict[str, nn.Module], replaced: dict[str, nn.Module]) -> None:
    """Set the new modules, each at every path of the one that it replaces."""
    places: dict[int, list[str]] = defaultdict(list)
    for path, module in model.named_modules(remove_duplicate=False):
        places[id(module)].append(path)
    for path, made in replaced.items():
        made.train(olds[path].training)
        for place in places[id(olds[path])]:
            parent, _, name = place.rpartition(".")
            model.get_submodule(parent)._modules[name] = made


def _weights(module: nn.Module) -> int:
    return sum(each.weight.numel() for each in module.modules() if isinstance(each, nn.Conv2d))


def _counted(model: nn.Module, examples: list[Any] | None) -> dict[str, int] | None:
    return None if examples is None else multiplications(model, examples)


def _sum(counts: dict[str, int] | None, path: str) -> int | None:
    """The multiplications of a module and of all below it."""
    if counts is None:
        return None
    return sum(count for name, count in counts.items() if not path or name == path or name.startswith(f"{path}."))


def _tensors(name: str, given: Any) -> list[Any]:
    """A tensor for each argument of `forward`."""
    several = list(given) if isinstance(given, tuple | list) else [given]
    tensors = [torch.from_numpy(each) if isinstance(each, np.ndarray) else each for each in several]
    for each in tensors:
        if not isinstance(each, torch.Tensor) or each.dim() == 0 or len(each) == 0:
            raise OptionError(f"{name} holds a {type(each).__name__}: give tensors or NumPy arrays [N, ..]")
    if not tensors:
        raise OptionError(f"{name} is empty: give tensors or NumPy arrays [N, ..]")
    return [each.float() if each.dtype == torch.float64 else each for each in tensors]


def _one_of(name: str, value: object, known: Sequence[str]) -> None:
    if value not in known:
        raise OptionError(f"{name} '{value}' is unknown: use {' or '.join(known)}")


def _number(count: int | None) -> str:
    return "" if count is None else f"{count:,}"
