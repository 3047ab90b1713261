"""Norms of neighbours and points of a grid: LRN, LpPool, GlobalLpPool, GridSample, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import builders
import covey
from agreement import agree, image

NORMS: dict[str, tuple[str, tuple[int, ...], dict[str, Any]]] = {
    "LRN": ("LRN", (5, 3, 2), {"size": 3, "alpha": 0.8, "beta": 0.6, "bias": 2.0}),
    "sizes": ("LpPool", (2, 5, 6), {"p": 1, "kernel_shape": [2, 3], "strides": [2, 1], "pads": [0, 1, 1, 1]}),
    "roots of squares": ("LpPool", (2, 5, 6), {"kernel_shape": [2, 3], "dilations": [2, 1]}),
    "of rows": ("LpPool", (2, 7), {"kernel_shape": [3]}),
    "of volumes": ("LpPool", (1, 3, 4, 4), {"p": 1, "kernel_shape": [2, 2, 3]}),
    "of all": ("GlobalLpPool", (3, 4, 5), {}),
    "sizes of all": ("GlobalLpPool", (3, 4), {"p": 1}),
}


@pytest.mark.parametrize("case", NORMS)
def test_norms(case: str) -> None:
    operator, shape, attributes = NORMS[case]
    agree(builders.single(operator, ["N", *shape], opset=18, **attributes), image(3, *shape))


def grid(samples: int = 1) -> np.ndarray:
    """Points of an image turned a little, of which some are beyond it."""
    down, across = np.meshgrid(np.linspace(-1.1, 1.3, 4), np.linspace(-1.2, 1, 5), indexing="ij")
    return np.tile(np.stack([0.9 * across + 0.2 * down, down - 0.3 * across], axis=-1), (samples, 1, 1, 1))


@pytest.mark.parametrize("mode", ["linear", "nearest"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("aligned", [0, 1])
def test_grid_sample(mode: str, padding: str, aligned: int) -> None:
    options: dict[str, Any] = {"mode": mode, "padding_mode": padding, "align_corners": aligned}
    proto = builders.single("GridSample", [3, 2, 6, 7], {"grid": grid(3)}, opset=20, **options)
    agree(proto, image(3, 2, 6, 7), tolerance=2e-3)


def test_grids_that_differ_between_samples() -> None:
    grids = grid(2) * np.array([1, 0.5]).reshape(2, 1, 1, 1)
    proto = builders.single("GridSample", [2, 2, 6, 7], {"grid": grids}, opset=20)
    with pytest.raises(covey.UnsupportedError, match="is of each sample, or none of images"):
        covey.compile(proto, input_range=(-1, 1))
