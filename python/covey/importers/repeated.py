"""Constants of a PyTorch program that repeat something for every sample, known without the number of samples.

Models that merge the batch with windows or heads repeat a mask, or what belongs to positions, as often as there are
samples. Such a constant is kept as for one sample (`Constant.repeated`): its first dimension stands for that of all
samples, one behind another. What keeps that dimension first is evaluated for one sample as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from covey.importers.onnx_node import BATCH
from covey.importers.torch_node import Constant, is_batch

ELEMENTWISE = ("aten.add.Tensor", "aten.mul.Tensor", "aten.sub.Tensor", "aten.div.Tensor")

SAME = ("aten.clone.default", "aten._to_copy.default", "aten.neg.default")

STRETCHING = ("aten.expand.default", "aten.repeat.default")

FILLING = ("aten.zeros.default", "aten.ones.default", "aten.full.default")

VIEWS = ("aten.view.default", "aten._unsafe_view.default", "aten.reshape.default")


def repeats(target: str, operands: Any) -> bool:
    """Whether the result of a node on constants is to be evaluated for one sample, and is repeated."""
    arguments = operands[0]
    if target in FILLING:
        sizes = arguments[0]
        return len(sizes) > 0 and sizes[0] == BATCH and not any(map(is_batch, sizes[1:]))
    source = arguments[0] if arguments else None
    if not isinstance(source, Constant):
        return False
    if target in STRETCHING:
        return _begins(target, source, arguments[1])
    if target in ELEMENTWISE:
        terms = [each for each in arguments[:2] if isinstance(each, Constant)]
        return any(term.repeated for term in terms) and all(_beside(term, terms) for term in terms)
    return source.repeated and (target in SAME or _keeps_first(target, source.array.ndim, arguments))


def of_one(target: str, arguments: list[Any]) -> list[Any]:
    """The arguments of such a node for one sample: the first of its sizes without the factor that is the batch."""
    if target in FILLING:
        return [[1, *arguments[0][1:]], *arguments[1:]]
    if target not in (*STRETCHING, *VIEWS):
        return arguments
    source, sizes, *rest = arguments
    first = sizes[0] // BATCH if is_batch(sizes[0]) else sizes[0]
    return [source, [first, *sizes[1:]], *rest]


def same_for_all(torch: Any, run: Callable[[int], Any]) -> Any:
    """The result for one sample, if that for two repeats it; products of more rows may round in another way."""
    try:
        one, two = run(1), run(2)
    except Exception:  # what it reads besides is for all samples
        return None
    if not isinstance(one, torch.Tensor) or one.dim() == 0 or two.shape != (2 * one.shape[0], *one.shape[1:]):
        return None
    twice = torch.cat([one, one])
    if not one.is_floating_point():
        return one if torch.equal(twice, two) else None
    finite = one[torch.isfinite(one)]
    largest = float(finite.abs().max()) if finite.numel() else 0.0
    return one if torch.allclose(twice, two, rtol=0.0, atol=1e-6 * largest, equal_nan=True) else None


def computes_with_batch(target: str, operands: Any) -> bool:
    """Whether a node on constants computes with the number of samples as a number."""
    name = target.split(".")[1]
    scalars = [*operands[0], *operands[1].values()]
    return name in ("add", "sub", "rsub", "mul", "div", "pow", "remainder", "floor_divide") and any(
        is_batch(scalar) for scalar in scalars
    )


def _begins(target: str, source: Constant, sizes: list[int]) -> bool:
    """Whether this repeats a constant along its first dimension alone, as often as there are samples."""
    if source.repeated or not sizes or not is_batch(sizes[0]) or any(map(is_batch, sizes[1:])):
        return False
    shape = source.array.shape
    return target == "aten.repeat.default" or len(sizes) > len(shape) or shape[0] == 1


def _beside(constant: Constant, terms: list[Constant]) -> bool:
    """Whether a constant is the same for all rows that another repeats, or repeated along the same dimension."""
    rank = max(term.array.ndim for term in terms)
    if constant.repeated:
        return constant.array.ndim == rank
    return constant.array.ndim < rank or constant.array.shape[0] == 1


def _keeps_first(target: str, rank: int, arguments: list[Any]) -> bool:
    """Whether a move leaves the first dimension where it is."""
    if target in VIEWS:
        sizes = arguments[1]
        return len(sizes) > 0 and (is_batch(sizes[0]) or sizes[0] == -1) and not any(map(is_batch, sizes[1:]))
    if target == "aten.transpose.int":
        return all(axis % rank != 0 for axis in arguments[1:3])
    if target == "aten.permute.default":
        return bool(arguments[1][0] % rank == 0)
    return target == "aten.unsqueeze.default" and bool(arguments[1] % (rank + 1) != 0)
