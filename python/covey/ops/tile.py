"""Repeating activations: Tile and Expand. The batch is not repeated."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from covey.importers.onnx_node import BATCH, OnnxNode, from_onnx
from covey.importers.torch_node import TorchNode, from_torch
from covey.ir import Shape, Value
from covey.ops.gather import emit_pick, pick
from covey.ops.reshape import Reshape


@from_onnx("Tile")
def _tile(node: OnnxNode) -> None:
    x = node.activation(0, index_allowed=True)
    repeats = node.constant_integers(1, "repeats")
    if len(repeats) != x.rank or min(repeats) < 1:
        raise node.unsupported(f"its repeats {repeats} do not fit {x}", "repair the model")
    if repeats[0] != 1:
        raise node.unsupported(f"it repeats the batch {repeats[0]} times", "repeat the inputs instead")
    if any(count % BATCH == 0 for count in repeats):
        raise node.unsupported(f"it repeats {x} as often as there are samples", "use a constant size")
    emit_pick(node, x, [list(range(size)) * count for size, count in zip(x.shape, repeats[1:], strict=True)])


@from_onnx("Expand")
def _expand(node: OnnxNode) -> None:
    x = node.activation(0, index_allowed=True)
    wanted = node.constant_integers(1, "shape")
    if len(wanted) > x.rank or (len(wanted) == x.rank and wanted[0] not in (1, BATCH, node.scope.exported_batch)):
        raise node.unsupported(f"its shape {wanted} would repeat or move the batch of {x}", "keep the batch first")
    rest = wanted[1:] if len(wanted) == x.rank else wanted
    if any(size > 0 and size % BATCH == 0 for size in rest):
        raise node.unsupported(f"its shape {wanted} repeats {x} as often as there are samples", "use a constant size")
    if min(rest, default=1) < 1:
        raise node.unsupported(f"its shape {wanted} has a size under 1", "repair the model")
    rest = [1] * (len(x.shape) - len(rest)) + rest
    target = tuple(max(size, want) for size, want in zip(x.shape, rest, strict=True))
    if any(want not in (1, size) and size != 1 for size, want in zip(x.shape, rest, strict=True)):
        raise node.unsupported(f"{x} does not broadcast to its shape {wanted}", "repair the model")
    emit_pick(node, x, stretched(x.shape, target))


def stretched(shape: Shape, target: Shape) -> list[Sequence[int]]:
    """What to take along each dimension so that sizes of 1 become those of `target`."""
    return [range(size) if size == want else [0] * want for size, want in zip(shape, target, strict=True)]


def expand_to(node: OnnxNode, x: Value, target: Shape, output: str) -> Value:
    """x stretched to `target`, which may have more dimensions."""
    if x.shape == target:
        return x
    shape = (*(1,) * (len(target) - len(x.shape)), *x.shape)
    if shape != x.shape:
        x = node.emit(Reshape(shape), [x], output=f"{output}.reshaped", dtype=x.dtype)
    return x if shape == target else node.emit(pick(shape, stretched(shape, target)), [x], output=output, dtype=x.dtype)


@from_torch("aten.repeat.default")
def _repeat_aten(node: TorchNode) -> None:
    node.become("Tile", node.activation("self"), np.array(node.integers("repeats")))


@from_torch("aten.expand.default")
def _expand_aten(node: TorchNode) -> None:
    x = node.activation("self")
    # Both -1 and, in front, the batch keep what is there.
    sizes = [1 if size == -1 else size for size in node.integers("size")]
    node.become("Expand", x, np.array(sizes))
