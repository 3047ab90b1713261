"""Tensors of PyTorch and TensorFlow, PyTorch's datasets and data loaders, as NumPy arrays.

Needs neither package: without it there are none of them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from covey.errors import DataError


def to_numpy(source: Any, names: Sequence[str], what: str) -> Any:
    """What users give as data, with everything of these turned into NumPy arrays; other things as they are.

    `names` are the network's inputs. A dataset's sample is a tensor, a tuple that begins with one tensor for each input
    (labels may follow), or a dict by input name. A tuple or list has an array or tensor for each input, in their order.
    Raises `DataError`.
    """
    if isinstance(source, Mapping):
        return {name: _array(value) for name, value in source.items()}
    if isinstance(source, tuple | list) and names and len(source) == len(names):
        arrays = [_array(value) for value in source]
        if all(isinstance(array, np.ndarray) and array.ndim for array in arrays):
            return dict(zip(names, arrays, strict=True))
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(source, torch.utils.data.DataLoader):
        return _collect(source, names, what, np.concatenate)
    if torch is not None and isinstance(source, torch.utils.data.Dataset):
        samples = source if hasattr(source, "__iter__") else (source[index] for index in range(len(source)))
        return _collect(samples, names, what, np.stack)
    return _array(source)


def _collect(parts: Any, names: Sequence[str], what: str, join: Any) -> dict[str, npt.NDArray[Any]]:
    columns: dict[str, list[Any]] = {name: [] for name in names}
    for part in parts:
        if isinstance(part, Mapping):
            found = dict(part)
        else:
            found = dict(zip(names, part if isinstance(part, tuple | list) else (part,), strict=False))
        for name in names:
            value = _array(found.get(name))
            if not isinstance(value, np.ndarray):
                raise DataError(
                    f"{what} data's samples lack the input '{name}': a sample is a tensor, a tuple that begins with "
                    f"one for each input, or a dict by input name"
                )
            columns[name].append(value)
    if not all(columns.values()):
        raise DataError(f"{what} data has no samples: give at least one")
    try:
        return {name: join(values) for name, values in columns.items()}
    except ValueError:
        raise DataError(f"{what} data's samples differ in shape: bring them to one size first") from None


def _array(value: Any) -> Any:
    if isinstance(value, np.ma.MaskedArray):
        if np.ma.is_masked(value):
            raise DataError("a masked array lacks the values under its mask: say what they are first (x.filled(0))")
        return value.data
    torch, tensorflow = sys.modules.get("torch"), sys.modules.get("tensorflow")
    if tensorflow is not None and isinstance(value, tensorflow.Tensor):
        return value.numpy()
    if torch is None or not isinstance(value, torch.Tensor):
        return value
    try:
        tensor = value.detach().cpu().resolve_conj().resolve_neg()
        # NumPy lacks bfloat16 and narrower ones; every such number is a float32 too.
        known = not tensor.is_floating_point() or tensor.dtype in (torch.float16, torch.float32, torch.float64)
        return (tensor if known else tensor.float()).numpy()
    except (NotImplementedError, RuntimeError, TypeError):
        kind = f"{value.layout}, {value.dtype}, on {value.device}".replace("torch.", "")
        raise DataError(f"a tensor ({kind}) has no array of numbers: give a dense one of floating point") from None
