"""Constants of a PyTorch program that repeat something for every sample, known without the number of samples.

Models repeat queries, class tokens or masks as often as there are samples, and may then move or split them. Such a
constant is kept as for one sample: `Constant.repeated` is the dimension in which all samples' ones follow each other.
A node that computes constants is evaluated for one sample and for two: what repeats, and where, shows in the results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from covey.importers.onnx_node import BATCH
from covey.importers.torch_node import is_batch


def for_samples(arguments: Any, samples: int) -> Any:
    """Arguments whose sizes have so many samples for the batch."""
    if isinstance(arguments, list):
        return [for_samples(argument, samples) for argument in arguments]
    if isinstance(arguments, dict):
        return {key: for_samples(argument, samples) for key, argument in arguments.items()}
    return arguments // BATCH * samples if is_batch(arguments) else arguments


def same_for_all(torch: Any, run: Callable[[int], Any]) -> tuple[Any, list[int | None]] | None:
    """What a node gives for one sample, and the dimension of each result in which that for two repeats it.

    The dimension is None where the number of samples has no bearing on the result. There is none of it where one
    differs in another way.
    """
    try:
        one, two = run(1), run(2)
    except Exception:  # what it reads besides is for all samples
        return None
    axes: list[int | None] = []
    singles, doubles = _several(one), _several(two)
    if len(singles) != len(doubles):
        return None
    for single, double in zip(singles, doubles, strict=True):
        if not isinstance(single, torch.Tensor) or single.dim() != double.dim():
            return None
        sizes = zip(single.shape, double.shape, strict=True)
        grown = [axis for axis, (size, other) in enumerate(sizes) if size != other]
        axis = grown[0] if grown else None
        due = single if axis is None else torch.cat([single, single], axis)
        if due.shape != double.shape or not _alike(torch, due, double):
            return None
        axes.append(axis)
    return one, axes


def _several(results: Any) -> list[Any]:
    return list(results) if isinstance(results, tuple | list) else [results]


def _alike(torch: Any, due: Any, found: Any) -> bool:
    """Whether two results are equal; products of more rows may round in another way."""
    if not due.is_floating_point():
        return bool(torch.equal(due, found))
    finite = due[torch.isfinite(due)]
    largest = float(finite.abs().max()) if finite.numel() else 0.0
    return bool(torch.allclose(due, found, rtol=0.0, atol=1e-6 * largest, equal_nan=True))


def computes_with_batch(target: str, operands: Any) -> bool:
    """Whether a node on constants computes with the number of samples as a number."""
    name = target.split(".")[1]
    scalars = [*operands[0], *operands[1].values()]
    return name in ("add", "sub", "rsub", "mul", "div", "pow", "remainder", "floor_divide") and any(
        is_batch(scalar) for scalar in scalars
    )
