"""Constants of a PyTorch program that repeat something for every sample, known without the number of samples.

Models that merge the batch with windows or heads repeat a mask, or what belongs to positions, as often as there are
samples. Such a constant is kept as for one sample (`Constant.repeated`): its first dimension stands for that of all
samples, one behind another. What keeps that dimension first is evaluated for one sample as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from covey.importers.onnx_node import BATCH
from covey.importers.torch_node import Constant

ELEMENTWISE = ("aten.add.Tensor", "aten.mul.Tensor", "aten.sub.Tensor", "aten.div.Tensor")

SAME = ("aten.clone.default", "aten._to_copy.default", "aten.neg.default")


def repeats(target: str, operands: Any) -> bool:
    """Whether the result of a node on constants is to be evaluated for one sample, and is repeated."""
    arguments = operands[0]
    source = arguments[0] if arguments else None
    if not isinstance(source, Constant):
        return False
    if target in ("aten.expand.default", "aten.repeat.default"):
        sizes, shape = arguments[1], source.array.shape
        stretched = len(sizes) > len(shape) or shape[0] == 1 or target == "aten.repeat.default"
        return stretched and len(sizes) > 0 and _of_batch(sizes[0]) and not source.repeated
    if target in ELEMENTWISE:
        others = [each for each in arguments[:2] if isinstance(each, Constant)]
        return any(each.repeated for each in others) and all(_beside(each, others) for each in others)
    return source.repeated and (target in SAME or _keeps_first(target, source.array.ndim, arguments))


def of_one(operands: Any) -> Any:
    """A node's operands for one sample: sizes without the factor that is the batch."""
    if isinstance(operands, list | tuple):
        return [of_one(part) for part in operands]
    if isinstance(operands, dict):
        return {key: of_one(part) for key, part in operands.items()}
    return operands // BATCH if _of_batch(operands) else operands


def of_all(constant: Constant) -> Constant:
    """A repeated constant as it is for the batch that stands for any."""
    if not constant.repeated:
        return constant
    array = np.tile(constant.array, (BATCH, *(1,) * (constant.array.ndim - 1)))
    return replace(constant, array=array, repeated=False)


def constants(operands: Any) -> Iterator[Constant]:
    """The constants among a node's operands."""
    if isinstance(operands, list | tuple | dict):
        for part in operands.values() if isinstance(operands, dict) else operands:
            yield from constants(part)
    elif isinstance(operands, Constant):
        yield operands


def _of_batch(size: Any) -> bool:
    return isinstance(size, int) and not isinstance(size, bool) and size > 0 and size % BATCH == 0


def _beside(constant: Constant, others: list[Constant]) -> bool:
    """Whether a constant is the same for all rows that another repeats, or repeated like it."""
    rank = max(other.array.ndim for other in others)
    same = constant.array.ndim < rank or constant.array.shape[0] == 1
    return same or constant.repeated


def _keeps_first(target: str, rank: int, arguments: list[Any]) -> bool:
    """Whether a move leaves the first dimension where it is."""
    if target in ("aten.view.default", "aten._unsafe_view.default", "aten.reshape.default"):
        sizes = arguments[1]
        return len(sizes) > 0 and (_of_batch(sizes[0]) or sizes[0] == -1) and not any(map(_of_batch, sizes[1:]))
    if target == "aten.transpose.int":
        return all(axis % rank != 0 for axis in arguments[1:3])
    if target == "aten.permute.default":
        return bool(arguments[1][0] % rank == 0)
    return target == "aten.unsqueeze.default" and bool(arguments[1] % (rank + 1) != 0)
