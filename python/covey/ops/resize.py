"""Nearest-neighbour resizing: Resize and Upsample."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from covey.importers.onnx_node import OnnxNode, from_onnx
from covey.importers.torch_node import TorchNode, from_torch
from covey.ir import Value
from covey.ops.gather import emit_pick

WAY_OUT = "only nearest-neighbour resizing of the data is supported"


@from_onnx("Resize")
def _resize(node: OnnxNode) -> None:
    node.ignore("antialias", "cubic_coeff_a", "exclude_outside", "extrapolation_value")
    x = node.activation(0)
    if node.attribute("mode", "nearest") != "nearest":
        raise node.unsupported(f"its mode is '{node.attribute('mode')}'", WAY_OUT)
    if node.opset < 11:
        scales = [float(scale) for scale in node.constant(1, "scales").ravel()]
        _emit(
            node,
            x,
            scales,
            [int(np.floor(s * k)) for s, k in zip((1, *x.shape), scales, strict=False)],
            "asymmetric",
            "floor",
        )
        return
    mode = node.attribute("coordinate_transformation_mode", "half_pixel")
    rounding = node.attribute("nearest_mode", "round_prefer_floor")
    if mode == "tf_crop_and_resize":
        raise node.unsupported("it crops while resizing (tf_crop_and_resize)", "put a Slice before it")
    axes = [axis % x.rank for axis in node.integers("axes") or range(x.rank)]
    dims = (1, *x.shape)
    scales, sizes = [1.0] * x.rank, list(dims)
    if node.has(3) and node.constant(3, "sizes").size:
        given = node.constant_integers(3, "sizes")
        if len(given) != len(axes):
            raise node.unsupported(f"its sizes {given} do not fit {x}", "repair the model")
        for axis, size in zip(axes, given, strict=True):
            sizes[axis], scales[axis] = size, size / (dims[axis] if axis else size)
        policy = node.attribute("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            chosen = (min if policy == "not_larger" else max)(scales[axis] for axis in axes if axis)
            for axis in axes:
                scales[axis], sizes[axis] = chosen, int(np.floor(chosen * dims[axis] + 0.5))
    else:
        node.ignore("keep_aspect_ratio_policy")
        given_scales = [float(scale) for scale in node.constant(2, "scales").ravel()]
        if len(given_scales) != len(axes):
            raise node.unsupported(f"its scales {given_scales} do not fit {x}", "repair the model")
        for axis, scale in zip(axes, given_scales, strict=True):
            scales[axis], sizes[axis] = scale, int(np.floor(dims[axis] * scale))
    _emit(node, x, scales, sizes, mode, rounding)


@from_onnx("Upsample")
def _upsample(node: OnnxNode) -> None:
    x = node.activation(0)
    if node.attribute("mode", "nearest") != "nearest":
        raise node.unsupported(f"its mode is '{node.attribute('mode')}'", WAY_OUT)
    given = node.constant(1, "scales").ravel() if node.has(1) else node.attribute("scales", [])
    scales = [float(scale) for scale in given]
    _emit(
        node,
        x,
        scales,
        [int(np.floor(s * k)) for s, k in zip((1, *x.shape), scales, strict=False)],
        "asymmetric",
        "floor",
    )


def _emit(node: OnnxNode, x: Value, scales: list[float], sizes: list[int], mode: str, rounding: str) -> None:
    if len(scales) != x.rank or scales[0] != 1.0 or min(sizes) < 1:
        raise node.unsupported(f"its scales {scales} resize the batch or do not fit {x}", WAY_OUT)
    along = [
        _nearest(node, size, result, scale, mode, rounding).tolist()
        for size, result, scale in zip(x.shape, sizes[1:], scales[1:], strict=True)
    ]
    emit_pick(node, x, along)


def _nearest(node: OnnxNode, size: int, result: int, scale: float, mode: str, rounding: str) -> npt.NDArray[np.int64]:
    """Which of `size` elements each of `result` takes (the operator's formulas, in its order of operations)."""
    if size == result and scale == 1.0:
        return np.arange(size)
    at = np.arange(result, dtype=np.float64)
    exact = scale * size
    if mode == "half_pixel":
        places = (at + 0.5) / scale - 0.5
    elif mode == "half_pixel_symmetric":
        places = size / 2 * (1 - result / exact) + (at + 0.5) / scale - 0.5
    elif mode == "pytorch_half_pixel":
        places = (at + 0.5) / scale - 0.5 if result > 1 else np.zeros(1)
    elif mode == "align_corners":
        places = at * (size - 1) / (exact - 1) if exact != 1 else np.zeros_like(at)
    elif mode == "asymmetric":
        places = at / scale
    else:
        raise node.unsupported(f"its coordinate_transformation_mode is '{mode}'", WAY_OUT)
    if rounding == "round_prefer_floor":
        nearest = np.ceil(places - 0.5)
    elif rounding == "round_prefer_ceil":
        nearest = np.floor(places + 0.5)
    elif rounding in ("floor", "ceil"):
        nearest = np.floor(places) if rounding == "floor" else np.ceil(places)
    else:
        raise node.unsupported(f"its nearest_mode is '{rounding}'", WAY_OUT)
    return nearest.clip(0, size - 1).astype(np.int64)


@from_torch("aten.upsample_nearest1d.vec", "aten.upsample_nearest2d.vec", "aten.upsample_nearest3d.vec")
def _upsample_aten(node: TorchNode) -> None:
    x = node.activation("input")
    how = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    if node.has("output_size"):
        node.ignore("scale_factors")
        sizes = np.array([1, x.shape[0], *node.integers("output_size")])
        node.become("Resize", x, None, None, sizes, **how)
    else:
        factors = [float(factor) for factor in node.argument("scale_factors")]
        node.become("Resize", x, None, np.array([1.0, 1.0, *factors]), **how)
