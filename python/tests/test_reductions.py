"""Reductions, norms and cumulative sums against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import builders
import covey
from agreement import agree, image

SHAPE = (3, 4, 5)


def reduction(op: str, axes: list[int], keep: int) -> onnx.ModelProto:
    return builders.single(op, ["N", *SHAPE], {"axes": np.array(axes)}, opset=18, keepdims=keep)


@pytest.mark.parametrize(("axes", "keep"), [([3], 1), ([1], 0), ([-1, 1], 1), ([1, 2, 3], 0)])
@pytest.mark.parametrize("op", ["ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp", "ReduceLogSum"])
def test_reductions(op: str, axes: list[int], keep: int) -> None:
    x = image(6, *SHAPE)
    x["x"][0] = 0.5
    if op == "ReduceLogSum":
        x["x"] = np.abs(x["x"]) + 0.25
    agree(reduction(op, axes, keep), x, tolerance=4e-3)


@pytest.mark.parametrize("ring", [32, 64])
def test_a_norm_of_zeros_and_of_large_numbers(ring: int) -> None:
    x = {"x": image(12, *SHAPE)["x"] * np.repeat([0.0, 0.01, 1.0, 8.0], 3)[:, None, None, None]}
    agree(reduction("ReduceL2", [3], 1), x, tolerance=1e-2 if ring == 32 else 4e-3, ring=ring)


@pytest.mark.parametrize(("axes", "keep"), [([3], 1), ([1], 0), ([2], 0)])
def test_products(axes: list[int], keep: int) -> None:
    agree(reduction("ReduceProd", axes, keep), image(6, *SHAPE), tolerance=2e-3)


@pytest.mark.parametrize("axis", [1, 2, -1])
@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("ring", [32, 64])
def test_lp_normalization_within_a_network(norm: int, axis: int, ring: int) -> None:
    nodes = [
        helper.make_node("LpNormalization", ["x"], ["z"], name="the_node", p=norm, axis=axis),
        helper.make_node("Neg", ["z"], ["y"]),
    ]
    x = {"x": np.rint(image(12, *SHAPE)["x"] * 256) / 256}
    x["x"][0], x["x"][1], x["x"][2] = 0.0, 1.0, np.rint(x["x"][2] * 8) / 256
    tolerance = 4e-3 if ring == 32 else 1e-3
    agree(builders.model(nodes, {"x": ["N", *SHAPE]}, ["y"]), x, tolerance=tolerance, ring=ring)


@pytest.mark.parametrize("options", [{}, {"exclusive": 1}, {"reverse": 1}, {"exclusive": 1, "reverse": 1}])
@pytest.mark.parametrize("axis", [1, 2, -1])
def test_cumulative_sums(axis: int, options: dict[str, Any]) -> None:
    x = {"x": np.rint(image(2, *SHAPE)["x"] * 256) / 256}
    compiled = agree(builders.single("CumSum", ["N", *SHAPE], {"axis": np.array(axis)}, **options), x, tolerance=0)
    (largest,) = (row["largest"] for row in compiled.rows()[-1:])
    assert largest <= (SHAPE[axis - 1] if axis > 0 else SHAPE[-1])


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("diagonal", [None, -1, 2])
def test_triangles(upper: int, diagonal: int | None) -> None:
    constants = {} if diagonal is None else {"k": np.array(diagonal)}
    agree(builders.single("Trilu", ["N", *SHAPE], constants, upper=upper), image(2, *SHAPE), tolerance=1e-3)


def test_refusals() -> None:
    with pytest.raises(covey.UnsupportedError, match="it runs over the batch"):
        covey.compile(reduction("ReduceL2", [0], 1), input_range=(-1, 1))
    with pytest.raises(covey.UnsupportedError, match="is the batch"):
        covey.compile(builders.single("CumSum", ["N", 3], {"axis": np.array(0)}), input_range=(-1, 1))
    with pytest.raises(covey.UnsupportedError, match="is the batch"):
        covey.compile(builders.single("Trilu", ["N", 3]), input_range=(-1, 1))
    long = builders.single("ReduceProd", ["N", 65], {"axes": np.array([1])}, opset=18)
    with pytest.raises(covey.UnsupportedError, match="at most 64 are supported"):
        covey.compile(long, input_range=(-1, 1))
