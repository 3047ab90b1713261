"""Resizing to the nearest neighbours, or by linear and cubic interpolation: Resize and Upsample."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from covey.importers.onnx_node import OnnxNode, from_onnx
from covey.importers.torch_node import TorchNode, from_torch
from covey.interval import Array
from covey.ir import Value
from covey.ops.gather import ABSENT, MOST_INDICES, emit_pick
from covey.ops.resample import Resample, Taps

WAY_OUT = "only resizing of the data is supported, mode nearest, linear or cubic"

CUBIC = -0.75
"""The operator's default coefficient (Keys, Cubic convolution interpolation for digital image processing, 1981)."""

PILLOW_CUBIC = -0.5
"""What PyTorch takes where it antialiases, as Pillow does."""

CROP = "tf_crop_and_resize"

Region = tuple[float, float]
WHOLE: Region = (0.0, 1.0)
"""Of a dimension, the part that is resized."""


@from_onnx("Resize")
def _resize(node: OnnxNode) -> None:
    x = node.activation(0)
    if node.opset < 11:
        scales = _finite(node, node.constant(1, "scales"))
        _emit(node, x, scales, list(map(_size, (1, *x.shape), scales)), "asymmetric")
        return
    mode = node.attribute("coordinate_transformation_mode", "half_pixel")
    axes = node.places(node.integers("axes") or range(x.rank), x.rank)
    dims = (1, *x.shape)
    scales, sizes = [1.0] * x.rank, list(dims)
    regions = _regions(node, x, axes) if mode == CROP else [WHOLE] * x.rank
    if node.has(3) and node.constant(3, "sizes", sizes=True).size:
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
        given_scales = _finite(node, node.constant(2, "scales"))
        if len(given_scales) != len(axes):
            raise node.unsupported(f"its scales {given_scales} do not fit {x}", "repair the model")
        for axis, scale in zip(axes, given_scales, strict=True):
            first, last = regions[axis]
            scales[axis], sizes[axis] = scale, _size(dims[axis] * (last - first), scale)
    _emit(node, x, scales, sizes, mode, regions)


def _type_of(scale: float) -> type[np.floating[Any]]:
    """What a scale is computed with: numbers of its own type."""
    return np.float32 if np.float32(scale) == scale else np.float64


def _size(size: float, scale: float) -> int:
    """What a dimension becomes."""
    number = _type_of(scale)
    return int(np.floor(number(size) * number(scale)))


def _finite(node: OnnxNode, given: Array) -> list[float]:
    numbers = [float(number) for number in given.ravel()]
    if not np.isfinite(numbers).all():
        raise node.unsupported(f"it resizes by {numbers}", "repair the model")
    return numbers


def _regions(node: OnnxNode, x: Value, axes: Sequence[int]) -> list[Region]:
    roi = _finite(node, node.constant(1, "roi"))
    if len(roi) != 2 * len(axes):
        raise node.unsupported(f"its region {roi} does not fit {x}", "repair the model")
    regions = [WHOLE] * x.rank
    for axis, first, last in zip(axes, roi[: len(axes)], roi[len(axes) :], strict=True):
        regions[axis] = (first, last)
    if regions[0] != WHOLE:
        raise node.unsupported(f"its region {roi} crops the batch", WAY_OUT)
    return regions


@from_onnx("Upsample")
def _upsample(node: OnnxNode) -> None:
    x = node.activation(0)
    scales = _finite(node, node.constant(1, "scales") if node.has(1) else np.array(node.attribute("scales", [])))
    _emit(node, x, scales, list(map(_size, (1, *x.shape), scales)), "asymmetric")


def _emit(
    node: OnnxNode,
    x: Value,
    scales: list[float],
    sizes: list[int],
    coordinates: str,
    regions: Sequence[Region] | None = None,
) -> None:
    regions = regions or [WHOLE] * x.rank
    if len(scales) != x.rank or scales[0] != 1.0 or min(sizes) < 1:
        raise node.unsupported(f"its scales {scales} resize the batch or do not fit {x}", WAY_OUT)
    node.check_shape(sizes[1:])
    mode = node.attribute("mode", "nearest")
    mode = "linear" if mode == "bilinear" else mode
    if mode not in ("nearest", "linear", "cubic"):
        raise node.unsupported(f"its mode is '{mode}'", WAY_OUT)
    changed = {
        axis: _region_places(region, size, result)
        if coordinates == CROP
        else _places(node, size, result, scale, coordinates, _type_of(scale) if mode == "nearest" else np.float64)
        for axis, (size, result, scale, region) in enumerate(
            zip(x.shape, sizes[1:], scales[1:], regions[1:], strict=True)
        )
        if size != result or scale != 1.0 or region != WHOLE
    }
    outside = {axis: (at < 0) | (at > x.shape[axis] - 1) for axis, at in changed.items() if coordinates == CROP}
    if any(map(np.any, outside.values())) and node.attribute("extrapolation_value", 0.0) != 0.0:
        raise node.unsupported("it puts a number other than 0 outside the image", "leave extrapolation_value out")
    node.ignore("extrapolation_value")
    if mode == "nearest":
        node.ignore("antialias", "cubic_coeff_a", "exclude_outside")
        along = [list(range(size)) for size in x.shape]
        for axis, places in changed.items():
            if node.opset < 11 and scales[axis + 1] < 1 and (places != np.floor(places)).any():
                raise node.unsupported(
                    f"it takes elements of {x} at places that runtimes round in two ways",
                    "export the model with opset 11 or newer",
                )
            nearest = _nearest(node, places, x.shape[axis])
            gone = outside.get(axis, np.zeros(len(nearest), dtype=bool))
            along[axis] = [ABSENT if absent else place for place, absent in zip(nearest, gone, strict=True)]
        emit_pick(node, x, along)
        return
    node.ignore("nearest_mode")
    antialias, exclude = node.flag("antialias"), node.flag("exclude_outside")
    kernel = _triangle if mode == "linear" else _keys(float(node.attribute("cubic_coeff_a", CUBIC)))
    radius = 1 if mode == "linear" else 2
    if not changed:
        node.alias(x)
        node.note("removed: the size is that already")
        return
    steps = []
    for axis, places in changed.items():
        # A filter that is to keep what its samples cannot show out of the result is as wide as they are apart.
        stretch = min(scales[axis + 1], 1.0) if antialias else 1.0
        if 2 * len(places) * radius / stretch > MOST_INDICES:
            raise node.unsupported(f"it reads elements at more than {MOST_INDICES} indices", "check the model's shapes")
        taps = _weigh(places, x.shape[axis], kernel, radius, stretch, exclude)
        steps.append(_taps(axis, *taps, x.shape[axis], outside.get(axis)))
    node.emit(Resample(tuple(steps)), [x])


def _places(
    node: OnnxNode, size: int, result: int, scale: float, mode: str, number: type[np.floating[Any]] = np.float64
) -> Array:
    """Where each of `result` positions lies among `size` (the operator's formulas, in its order of operations)."""
    at, half, factor = np.arange(result, dtype=number), number(0.5), number(scale)
    exact = scale * size
    if mode == "half_pixel":
        return np.asarray((at + half) / factor - half, dtype=np.float64)
    if mode == "half_pixel_symmetric":
        return size / 2 * (1 - result / exact) + (np.arange(result, dtype=np.float64) + 0.5) / scale - 0.5
    if mode == "pytorch_half_pixel":
        return np.asarray((at + half) / factor - half, dtype=np.float64) if result > 1 else np.zeros(1)
    if mode == "align_corners":
        if abs(exact - result) > 1e-6 * result:
            raise node.unsupported(
                f"it makes {size} elements {exact:g}, whose corners runtimes align in two ways",
                "export the model with sizes in the place of scales",
            )
        return np.arange(result, dtype=np.float64) * (size - 1) / max(1, result - 1)
    if mode == "asymmetric":
        return np.asarray(at / factor, dtype=np.float64)
    raise node.unsupported(f"its coordinate_transformation_mode is '{mode}'", WAY_OUT)


def _region_places(region: Region, size: int, result: int) -> Array:
    first, last = region
    if result == 1:
        return np.array([0.5 * (first + last) * (size - 1)])
    return first * (size - 1) + np.arange(result) * (last - first) * (size - 1) / (result - 1)


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


def _weigh(
    places: Array, size: int, kernel: Callable[[Array], Array], radius: int, stretch: float, exclude_outside: bool
) -> tuple[Array, Array]:
    """What each place reads, and with which weights."""
    reach = int(np.ceil(radius / stretch))
    reads = np.floor(places) + np.arange(1.0 - reach, 1.0 + reach)[:, None]
    weights = kernel(np.abs(places - reads) * stretch)
    if exclude_outside:
        weights = np.where((reads >= 0) & (reads < size), weights, 0.0)
    if exclude_outside or stretch < 1.0:
        weights = weights / weights.sum(axis=0)
    return reads, weights


def _triangle(distance: Array) -> Array:
    return np.maximum(0.0, 1.0 - distance)


def _keys(a: float) -> Callable[[Array], Array]:
    def kernel(distance: Array) -> Array:
        near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
        far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
        return np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))

    return kernel


def _taps(axis: int, reads: Array, weights: Array, size: int, outside: npt.NDArray[np.bool_] | None) -> Taps:
    """Beyond the ends, the elements there go on; positions that lie outside a region's image are 0."""
    whole = reads.clip(0, size - 1).astype(int)
    if outside is not None:
        weights = np.where(outside, 0.0, weights)
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


@from_torch("aten._upsample_bilinear2d_aa.vec", "aten._upsample_bilinear2d_aa.default")
def _upsample_linear_antialias_aten(node: TorchNode) -> None:
    _resize_aten(node, coordinate_transformation_mode=_corners(node), mode="linear", antialias=1, exclude_outside=1)


@from_torch("aten._upsample_bicubic2d_aa.vec", "aten._upsample_bicubic2d_aa.default")
def _upsample_cubic_antialias_aten(node: TorchNode) -> None:
    how = {"antialias": 1, "exclude_outside": 1, "cubic_coeff_a": PILLOW_CUBIC}
    _resize_aten(node, coordinate_transformation_mode=_corners(node), mode="cubic", **how)


def _corners(node: TorchNode) -> str:
    return "align_corners" if node.flag("align_corners") else "half_pixel"


def _resize_aten(node: TorchNode, **how: str | float) -> None:
    x = node.activation("input")
    if node.has("output_size"):
        node.ignore("scale_factors")
        sizes = np.array([1, x.shape[0], *node.integers("output_size")])
        node.become("Resize", x, None, None, sizes, **how)
    else:
        factors = [float(factor) for factor in node.argument("scale_factors")]
        if how["coordinate_transformation_mode"] == "align_corners":  # of whole sizes, in PyTorch
            whole = [int(size * factor) for size, factor in zip(x.shape[1:], factors, strict=True)]
            node.become("Resize", x, None, None, np.array([1, x.shape[0], *whole]), **how)
            return
        node.become("Resize", x, None, np.array([1.0, 1.0, *factors]), **how)
