"""Which convolutions of a module form a bottleneck: 1 × 1, K × K, 1 × 1, and nothing between them mixes channels.

The module is traced symbolically (`torch.fx`), so its code decides, not the names or the order of its parts.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional

APART = (
    nn.BatchNorm2d,
    nn.Dropout,
    nn.Dropout2d,
    nn.Identity,
    nn.ReLU,
    nn.ReLU6,
    nn.LeakyReLU,
    nn.ELU,
    nn.GELU,
    nn.SiLU,
    nn.Mish,
    nn.Hardswish,
    nn.Hardsigmoid,
    nn.Hardtanh,
    nn.Sigmoid,
    nn.Tanh,
    nn.Softplus,
)
"""Modules that leave channels apart."""

FUNCTIONS = (
    torch.relu,
    torch.sigmoid,
    torch.tanh,
    functional.relu,
    functional.relu6,
    functional.leaky_relu,
    functional.elu,
    functional.gelu,
    functional.silu,
    functional.hardswish,
    functional.dropout,
)
METHODS = ("relu", "relu_", "sigmoid", "tanh", "contiguous")
PRODUCTS = (operator.mul, operator.imul, torch.mul)


@dataclass
class Bottleneck:
    """The paths of a K × K convolution and of the 1 × 1 ones before and behind it, where there are such."""

    spatial: str
    first: str | None = None
    last: str | None = None


@dataclass
class Structure:
    """The bottlenecks of a model by the path of their K × K convolution, and why it was not looked for them, if so."""

    bottlenecks: dict[str, Bottleneck] = field(default_factory=dict)
    untraced: str | None = None


def find(model: nn.Module) -> Structure:
    """The bottlenecks of a module: none, with the reason, where it cannot be traced."""
    try:
        graph = fx.Tracer().trace(model)
    except Exception as error:  # a module's own code runs
        line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        return Structure(untraced=line)
    modules = dict(model.named_modules())
    found = {}
    for node in graph.nodes:
        conv = _convolution(modules, node)
        if conv is None or _pointwise(conv) or conv.groups not in (1, conv.in_channels):
            continue
        first, last = _before(modules, node), _behind(modules, node)
        if first or last:
            found[str(node.target)] = Bottleneck(str(node.target), first, last)
    return Structure(found)


def _before(modules: dict[str, Any], node: Any) -> str | None:
    """The 1 × 1 convolution whose result, and nothing else, the node reads."""
    at = _operand(node)
    while at is not None and len(_users(at)) == 1:
        conv = _convolution(modules, at)
        if conv is not None:
            return str(at.target) if _pointwise(conv) and conv.groups == 1 else None
        at = _operand(at) if _leaves_channels_apart(modules, at) else None
    return None


def _behind(modules: dict[str, Any], node: Any) -> str | None:
    """The 1 × 1 convolution that alone reads the node's result, also as channels weighed by numbers from them."""
    at = node
    while True:
        reader = _only_reader(at)
        if reader is None:
            return None
        conv = _convolution(modules, reader)
        if conv is not None:
            return str(reader.target) if _pointwise(conv) and conv.groups == 1 else None
        if not _leaves_channels_apart(modules, reader) and reader.target not in PRODUCTS:
            return None
        at = reader


def _only_reader(node: Any) -> Any:
    """What reads a node: its one reader, or the product of the node with what follows from it, as in squeeze-excite."""
    readers = _users(node)
    if len(readers) == 1:
        # A product of one reader is with something else, which may mix channels.
        return None if readers[0].target in PRODUCTS else readers[0]
    product = next((each for each in readers if each.target in PRODUCTS), None)
    if product is None or len(readers) != 2:
        return None
    at = next((each for each in product.all_input_nodes if each is not node), None)
    while at is not None and len(_users(at)) == 1:
        at = _operand(at)
        if at is node:
            return product
    return None


def _operand(node: Any) -> Any:
    """The one value that a node reads; `None` where it reads none or several."""
    operands = node.all_input_nodes
    return operands[0] if len(operands) == 1 else None


def _users(node: Any) -> list[Any]:
    return list(node.users)


def _leaves_channels_apart(modules: dict[str, Any], node: Any) -> bool:
    if node.op == "call_module":
        return isinstance(modules[node.target], APART)
    return node.target in (FUNCTIONS if node.op == "call_function" else METHODS)


def _convolution(modules: dict[str, Any], node: Any) -> nn.Conv2d | None:
    if node.op != "call_module":
        return None
    module = modules[node.target]
    return module if isinstance(module, nn.Conv2d) else None


def _pointwise(conv: nn.Conv2d) -> bool:
    return tuple(conv.kernel_size) == (1, 1) and tuple(conv.stride) == (1, 1)
