"""Trained weights as files: arrays by name, or the model itself with these weights."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from covey.errors import OptionError
from covey.files import write_whole
from covey.importers.source import Source
from covey.training.parameters import model_of

Weights = Mapping[str, npt.NDArray[np.float64]]


def write(path: str | os.PathLike[str], weights: Weights, model: Source | None = None) -> None:
    """Write trained weights: .npz and .safetensors by name, .onnx and .pt2 as the `model` they were trained from."""
    target = Path(path)
    suffix = target.suffix.lower()
    if suffix == ".npz":
        _whole(target, partial(_npz, weights=weights))
    elif suffix == ".safetensors":
        _whole(target, partial(_safetensors, weights=weights))
    elif suffix in (".onnx", ".pt2") and model is not None:
        trained = model_of(model).replaced(weights)
        _whole(target, partial(_onnx if suffix == ".onnx" else _torch, model=trained))
    else:
        raise OptionError(
            f"'{target}' is no file for weights: end its name in .npz, .safetensors or as the model's does"
        )


def _whole(path: Path, writer: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole({path: writer}, {path: 0o600})


def _npz(stream: BinaryIO, weights: Weights) -> None:
    arrays: dict[str, Any] = {name: array.astype(np.float32) for name, array in weights.items()}
    np.savez(stream, **arrays)


def _safetensors(stream: BinaryIO, weights: Weights) -> None:
    header: dict[str, Any] = {}
    blobs: list[bytes] = []
    offset = 0
    for name in sorted(weights):
        blob = np.ascontiguousarray(weights[name], dtype="<f4").tobytes()
        header[name] = {
            "dtype": "F32",
            "shape": list(weights[name].shape),
            "data_offsets": [offset, offset + len(blob)],
        }
        blobs.append(blob)
        offset += len(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    stream.write(struct.pack("<Q", len(text)) + text)
    for blob in blobs:
        stream.write(blob)


def _onnx(stream: BinaryIO, model: Any) -> None:
    stream.write(model.SerializeToString())


def _torch(stream: BinaryIO, model: Any) -> None:
    import torch

    torch.export.save(model, stream)
