"""Pseudo-images: smooth, all different, in [0, 1], the same for the same seed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Shape = tuple[int, int, int]

GRID = 5
"""An image is interpolated from so many random points in either direction."""


def pseudo_images(count: int, shape: Shape, seed: int) -> Floats:
    """`count` smooth images [count, C, H, W] in [0, 1]: random grids, interpolated, each with its own contrast."""
    rng = np.random.Generator(np.random.PCG64(seed))
    channels, height, width = shape
    coarse = rng.random((count, channels, GRID, GRID))
    fine = _interpolation(height) @ coarse @ _interpolation(width).T
    low, high = fine.min(axis=(1, 2, 3), keepdims=True), fine.max(axis=(1, 2, 3), keepdims=True)
    contrast = rng.uniform(0.5, 1.0, (count, 1, 1, 1))
    brightness = rng.random((count, 1, 1, 1)) * (1 - contrast)
    images: Floats = (brightness + contrast * (fine - low) / (high - low)).astype(np.float32)
    return images.clip(0, 1)


def _interpolation(size: int) -> npt.NDArray[np.float64]:
    """The matrix [size, GRID] that interpolates linearly between the points; its rows add up to one."""
    distance = np.abs(np.linspace(0, GRID - 1, size)[:, None] - np.arange(GRID))
    matrix: npt.NDArray[np.float64] = np.maximum(0, 1 - distance)
    return matrix
