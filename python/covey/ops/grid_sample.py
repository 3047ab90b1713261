"""GridSample at constant points: each pixel of the result is a sum of neighbours of its point, by public weights."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from covey.importers.onnx_node import OnnxNode, from_onnx, of_one_sample
from covey.importers.torch_node import TorchNode, from_torch
from covey.ops.gather import ABSENT, emit_pick
from covey.ops.resample import Resample, Taps
from covey.ops.reshape import Reshape

Coordinates = npt.NDArray[np.floating]
Places = npt.NDArray[np.int64]

MODES = ("bilinear", "nearest", "bicubic")
PADDINGS = ("zeros", "border", "reflection")
"""PyTorch's numbers stand for these."""


@from_onnx("GridSample")
def _grid_sample(node: OnnxNode) -> None:
    x, name = node.activation(0), node.outputs[0]
    mode, padding = str(node.attribute("mode", "bilinear")), str(node.attribute("padding_mode", "zeros"))
    if mode not in ("linear", "bilinear", "nearest") or padding not in PADDINGS:
        raise node.unsupported(f"its mode is '{mode}' and its padding '{padding}'", "use linear or nearest")
    grid = of_one_sample(node.constant(1, "grid"), 4)
    if len(x.shape) != 3 or grid.ndim != 3 or grid.shape[-1] != 2:
        raise node.unsupported(
            f"its grid of shape {list(grid.shape)} is of each sample, or none of images {x}", "use one grid for all"
        )
    channels, height, width = x.shape
    aligned = node.flag("align_corners")
    across, down = (_coordinates(grid[..., axis], size, aligned, padding) for axis, size in ((0, width), (1, height)))
    pixels = node.emit(Reshape((channels, height * width)), [x], output=f"{name}.pixels")
    if mode == "nearest":
        inside, places = _places(np.rint(down), np.rint(across), height, width)
        along = np.where(inside, places, ABSENT).ravel().tolist()
        found = emit_pick(node, pixels, [range(channels), along], output=f"{name}.points")
    else:
        found = node.emit(Resample((_taps(node, across, down, height, width),)), [pixels], output=f"{name}.points")
    node.emit(Reshape((channels, *grid.shape[:2])), [found])
    node.note("sums of neighbours by public weights")


def _taps(node: OnnxNode, across: Coordinates, down: Coordinates, height: int, width: int) -> Taps:
    """The four neighbours of each point; those beyond the image have no weight."""
    left, above = np.floor(across), np.floor(down)
    reads, weights = [], []
    for row in (0, 1):
        for column in (0, 1):
            inside, places = _places(above + row, left + column, height, width)
            part = np.abs(1 - row - (down - above)) * np.abs(1 - column - (across - left))
            reads.append(np.where(inside, places, 0).ravel())
            weights.append(np.where(inside, part, 0.0).ravel())
    if not np.any(weights):
        raise node.unsupported("all points of its grid are beyond the image", "repair the model")
    return Taps(1, tuple(tuple(each.tolist()) for each in reads), tuple(tuple(each.tolist()) for each in weights))


def _places(rows: Coordinates, columns: Coordinates, height: int, width: int) -> tuple[npt.NDArray[np.bool_], Places]:
    """Which pixels are in the image, and where."""
    inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
    return inside, (np.where(inside, rows, 0) * width + np.where(inside, columns, 0)).astype(np.int64)


def _coordinates(points: Coordinates, size: int, aligned: bool, padding: str) -> Coordinates:
    """Points from -1 to 1 as pixels: the outermost are at the ends, or half a pixel within."""
    pixels = (points + 1) / 2 * (size - 1) if aligned else ((points + 1) * size - 1) / 2
    if padding == "zeros":
        return np.asarray(pixels)
    if padding == "reflection":
        low, span = (0.0, size - 1) if aligned else (-0.5, size)
        beyond = np.abs(pixels - low) % (2 * span) if span else np.zeros_like(pixels)
        pixels = low + np.where(beyond <= span, beyond, 2 * span - beyond)
    return np.asarray(np.clip(pixels, 0, size - 1))


@from_torch("aten.grid_sampler_2d.default")
def _grid_sample_aten(node: TorchNode) -> None:
    (mode,), (padding,) = node.integers("interpolation_mode"), node.integers("padding_mode")
    node.become(
        "GridSample",
        node.activation("input"),
        node.constant("grid"),
        mode=MODES[mode],
        padding_mode=PADDINGS[padding],
        align_corners=int(node.flag("align_corners")),
    )
