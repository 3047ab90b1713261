"""Resizing to the nearest neighbours, or by linear and cubic interpolation: Resize and Upsample."""

from __future__ import annotations

import numpy as np

from covey.importers.onnx_node import OnnxNode, from_onnx
from covey.importers.torch_node import TorchNode, from_torch
from covey.interval import Array
from covey.ir import Value
from covey.ops.gather import emit_pick
from covey.ops.resample import Resample, Taps

WAY_OUT = "only resizing of the data is supported, mode nearest, linear or cubic"

CUBIC = -0.75
"""The operator's default coefficient (Keys, Cubic convolution interpolation for digital image processing, 1981)."""


@from_onnx("Resize")
def _resize(node: OnnxNode) -> None:
    node.ignore("extrapolation_value")
    x = node.activation(0)
    if node.opset < 11:
        scales = [float(scale) for scale in node.constant(1, "scales").ravel()]
        _emit(
            node,
            x,
            scales,
            [int(np.floor(s * k)) for s, k in zip((1, *x.shape), scales, strict=False)],
            "asymmetric",
        )
        return
    mode = node.attribute("coordinate_transformation_mode", "half_pixel")
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
    _emit(node, x, scales, sizes, mode)


@from_onnx("Upsample")
def _upsample(node: OnnxNode) -> None:
    x = node.activation(0)
    given = node.constant(1, "scales").ravel() if node.has(1) else node.attribute("scales", [])
    scales = [float(scale) for scale in given]
    _emit(
        node,
        x,
        scales,
        [int(np.floor(s * k)) for s, k in zip((1, *x.shape), scales, strict=False)],
        "asymmetric",
    )


def _emit(node: OnnxNode, x: Value, scales: list[float], sizes: list[int], coordinates: str) -> None:
    if len(scales) != x.rank or scales[0] != 1.0 or min(sizes) < 1:
        raise node.unsupported(f"its scales {scales} resize the batch or do not fit {x}", WAY_OUT)
    mode = node.attribute("mode", "nearest")
    mode = "linear" if mode == "bilinear" else mode
    if mode not in ("nearest", "linear", "cubic"):
        raise node.unsupported(f"its mode is '{mode}'", WAY_OUT)
    changed = {
        axis: _places(node, size, result, scale, coordinates)
        for axis, (size, result, scale) in enumerate(zip(x.shape, sizes[1:], scales[1:], strict=True))
        if size != result or scale != 1.0
    }
    if mode == "nearest":
        node.ignore("antialias", "cubic_coeff_a", "exclude_outside")
        along = [
            _nearest(node, changed[axis], size) if axis in changed else list(range(size))
            for axis, size in enumerate(x.shape)
        ]
        emit_pick(node, x, along)
        return
    if node.flag("antialias") and any(scale < 1.0 for scale in scales):
        raise node.unsupported("it widens its filter to shrink (antialias)", "leave antialias off, or pool instead")
    if not changed:
        node.alias(x)
        node.note("removed: the size is that already")
        return
    outside = node.flag("exclude_outside")
    coefficient = float(node.attribute("cubic_coeff_a", CUBIC))
    steps = tuple(
        _linear(axis, places, x.shape[axis])
        if mode == "linear"
        else _cubic(axis, places, x.shape[axis], coefficient, outside)
        for axis, places in changed.items()
    )
    node.emit(Resample(steps), [x])


def _places(node: OnnxNode, size: int, result: int, scale: float, mode: str) -> Array:
    """Where each of `result` positions lies among `size` (the operator's formulas, in its order of operations)."""
    at = np.arange(result, dtype=np.float64)
    exact = scale * size
    if mode == "half_pixel":
        return (at + 0.5) / scale - 0.5
    if mode == "half_pixel_symmetric":
        return size / 2 * (1 - result / exact) + (at + 0.5) / scale - 0.5
    if mode == "pytorch_half_pixel":
        return (at + 0.5) / scale - 0.5 if result > 1 else np.zeros(1)
    if mode == "align_corners":
        return at * (size - 1) / (exact - 1) if exact != 1 else np.zeros_like(at)
    if mode == "asymmetric":
        return at / scale
    raise node.unsupported(f"its coordinate_transformation_mode is '{mode}'", WAY_OUT)


def _nearest(node: OnnxNode, places: Array, size: int) -> list[int]:
    rounding = node.attribute("nearest_mode", "round_prefer_floor" if node.opset >= 11 else "floor")
    if rounding == "round_prefer_floor":
        nearest = np.ceil(places - 0.5)
    elif rounding == "round_prefer_ceil":
        nearest = np.floor(places + 0.5)
    elif rounding in ("floor", "ceil"):
        nearest = np.floor(places) if rounding == "floor" else np.ceil(places)
    else:
        raise node.unsupported(f"its nearest_mode is '{rounding}'", WAY_OUT)
    return [int(place) for place in nearest.clip(0, size - 1)]


def _linear(axis: int, places: Array, size: int) -> Taps:
    left = np.floor(places)
    return _taps(axis, left + np.arange(2.0)[:, None], np.array([1 - (places - left), places - left]), size)


def _cubic(axis: int, places: Array, size: int, a: float, exclude_outside: bool) -> Taps:
    left = np.floor(places)
    reads = left + np.arange(-1.0, 3.0)[:, None]
    distance = np.abs(places - reads)
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    weights = np.where(distance <= 1, near, far)
    if exclude_outside:
        weights = np.where((reads >= 0) & (reads < size), weights, 0.0)
        weights = weights / weights.sum(axis=0)
    return _taps(axis, reads, weights, size)


def _taps(axis: int, reads: Array, weights: Array, size: int) -> Taps:
    """Beyond the ends, the elements there go on."""
    whole = reads.clip(0, size - 1).astype(int)
    return Taps(axis, tuple(map(tuple, whole.tolist())), tuple(map(tuple, weights.tolist())))


@from_torch("aten.upsample_nearest1d.vec", "aten.upsample_nearest2d.vec", "aten.upsample_nearest3d.vec")
def _upsample_nearest_aten(node: TorchNode) -> None:
    _resize_aten(node, coordinate_transformation_mode="asymmetric", nearest_mode="floor")


@from_torch("aten.upsample_linear1d.vec", "aten.upsample_bilinear2d.vec", "aten.upsample_trilinear3d.vec")
def _upsample_linear_aten(node: TorchNode) -> None:
    _resize_aten(node, coordinate_transformation_mode=_corners(node), mode="linear")


@from_torch("aten.upsample_bicubic2d.vec")
def _upsample_cubic_aten(node: TorchNode) -> None:
    _resize_aten(node, coordinate_transformation_mode=_corners(node), mode="cubic")


def _corners(node: TorchNode) -> str:
    return "align_corners" if node.flag("align_corners") else "half_pixel"


def _resize_aten(node: TorchNode, **how: str) -> None:
    x = node.activation("input")
    if node.has("output_size"):
        node.ignore("scale_factors")
        sizes = np.array([1, x.shape[0], *node.integers("output_size")])
        node.become("Resize", x, None, None, sizes, **how)
    else:
        factors = [float(factor) for factor in node.argument("scale_factors")]
        node.become("Resize", x, None, np.array([1.0, 1.0, *factors]), **how)
