"""Cross-entropy of each sample's scores, and the negative logarithms of its classes' probabilities. PyTorch alone."""

from __future__ import annotations

import numpy as np

from covey.importers.torch_node import Operand, TorchNode, from_torch
from covey.interval import Array
from covey.ir import DType, Value

NONE = 0
"""The `reduction` that leaves the losses of samples apart."""


@from_torch("aten.cross_entropy_loss.default")
def _cross_entropy_aten(node: TorchNode) -> None:
    _check(node)
    scores, count = node.activation("self"), node.activation("self").shape[0]
    logarithms = node.apply("LogSoftmax", scores, axis=1, suffix="logarithms")
    smoothing = node.number("label_smoothing")
    target = node.argument("target")
    if isinstance(target, Value) and target.dtype is DType.FLOAT and target.shape == scores.shape:
        smoothed = node.apply("Mul", target, 1.0 - smoothing, suffix="target")
        smoothed = node.apply("Add", smoothed, smoothing / count, suffix="smoothed")
        of_classes = _weights(node, count).reshape(-1, *[1] * (scores.rank - 2))
        shares = node.apply("Mul", smoothed, of_classes, suffix="shares")
        node.ignore("ignore_index")
        _become(node, _last(node, logarithms, "logarithms"), _last(node, shares, "shares"))
        return
    _of_classes(node, logarithms, smoothing)


@from_torch("aten.nll_loss_nd.default", "aten.nll_loss.default", "aten.nll_loss2d.default")
def _negative_logarithms_aten(node: TorchNode) -> None:
    _check(node)
    _of_classes(node, node.activation("self"), 0.0)


def _of_classes(node: TorchNode, logarithms: Value, smoothing: float) -> None:
    """The logarithms at the classes, which are whole numbers, and smoothed with those of all classes."""
    count = logarithms.shape[0]
    weights = _weights(node, count)
    # What each class takes of each class's logarithm.
    shares = (1.0 - smoothing) * np.diag(weights) + smoothing / count * weights
    (ignored,) = node.integers("ignore_index")
    if 0 <= ignored < count:
        shares[ignored] = 0.0
    rows = node.apply("Gather", shares, node.activation("target"), axis=0, suffix="shares")
    _become(node, _last(node, logarithms, "logarithms"), rows)


def _check(node: TorchNode) -> None:
    if node.integers("reduction") != [NONE]:
        raise node.unsupported("its sum runs over the batch", "give reduction='none', and average what opens")


def _weights(node: TorchNode, count: int) -> Array:
    return node.constant("weight").astype(np.float64) if node.has("weight") else np.ones(count)


def _last(node: TorchNode, x: Value, suffix: str) -> Value:
    """x with the dimension of its classes last."""
    if x.rank == 2:
        return x
    order = [0, *range(2, x.rank), 1]
    return node.apply("Transpose", x, perm=order, suffix=f"{suffix}_last")


def _become(node: TorchNode, logarithms: Value, shares: Operand) -> None:
    """-1 times the sum of products along the last dimension."""
    row = node.apply("Unsqueeze", shares, np.array([-2]), suffix="row")
    column = node.apply("Unsqueeze", logarithms, np.array([-1]), suffix="column")
    product = node.apply("MatMul", row, column, suffix="product")
    node.become("Neg", node.apply("Squeeze", product, np.array([-2, -1]), suffix="sum"))
