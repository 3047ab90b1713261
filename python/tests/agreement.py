"""The check every operator passes: float reference, fixed-point program and onnxruntime agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

import builders
import covey
import interpreter
from covey import reference
from covey.importers.onnx import import_model


def agree(
    proto: onnx.ModelProto,
    inputs: dict[str, np.ndarray],
    *,
    tolerance: float = 0.02,
    expected: list[np.ndarray] | None = None,
    **options: Any,
) -> covey.Compiled:
    """Float reference and fixed-point program both match onnxruntime."""
    expected = builders.float_results(proto, inputs) if expected is None else expected
    results = reference.outputs(import_model(proto), inputs)
    for result, wanted in zip(results, expected, strict=True):
        assert result.shape == wanted.shape
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-4)
    ranges = {name: (float(a.min()), float(a.max())) for name, a in inputs.items()}
    compiled = covey.compile(proto, **{"input_range": ranges, **options})
    for result, wanted in zip(interpreter.run(compiled, inputs), expected, strict=True):
        assert result.shape == wanted.shape
        np.testing.assert_allclose(result, wanted, atol=tolerance)
    return compiled


def image(*shape: int, seed: int = 1) -> dict[str, np.ndarray]:
    """Uniform in [-1, 1), float32 values."""
    data = np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)
    return {"x": data.astype(np.float64)}
