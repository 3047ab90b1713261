"""Einsum, and elements at constant positions, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import builders
import covey
from agreement import agree, image

RNG = np.random.default_rng(0)

EINSUM: dict[str, list[tuple[int, ...] | np.ndarray]] = {
    "bij->bji": [(3, 4)],
    "bijk->bk": [(2, 3, 4)],
    "bij,bjk->bik": [(3, 4), (4, 5)],
    "bhid,bhjd->bhij": [(2, 3, 4), (2, 5, 4)],
    "bihd,bjhd->bhij": [(3, 2, 4), (5, 2, 4)],
    "bij,bij->bij": [(3, 4), (3, 4)],
    "bi,bi->b": [(4,), (4,)],
    "bi,bj->bij": [(3,), (4,)],
    "bijm,bjk->bki": [(2, 3, 4), (3, 5)],
    "bij,jk->bik": [(3, 4), RNG.normal(size=(4, 5))],
    "jk,bij->bki": [RNG.normal(size=(4, 5)), (3, 4)],
    "bhi,hij->bhj": [(2, 3), RNG.normal(size=(2, 3, 4))],
    "bhi,hi->bih": [(2, 3), RNG.normal(size=(2, 3))],
    "bij,bj": [(3, 4), (4,)],
    "bi,ijk,bj->bk": [(3,), RNG.normal(size=(3, 4, 5)), (4,)],
    "ij,jk,bik,bl->bkl": [RNG.normal(size=(3, 2)), RNG.normal(size=(2, 4)), (3, 4), (2,)],
    "bii->bi": [(3, 3)],
    "bijj,ii->b": [(2, 3, 3), RNG.normal(size=(2, 2))],
    "...ij,...jk": [(2, 3, 4), (2, 4, 5)],
    "b...i,ij->bj...": [(3, 2, 4), RNG.normal(size=(4, 5))],
}


def einsum(equation: str) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    operands, inputs, constants = [], {}, {}
    for index, operand in enumerate(EINSUM[equation]):
        operands.append(f"x{index}")
        if isinstance(operand, np.ndarray):
            constants[operands[-1]] = operand
        else:
            inputs[operands[-1]] = image(4, *operand, seed=index)["x"]
    node = helper.make_node("Einsum", operands, ["y"], name="the_node", equation=equation)
    shapes = {name: ["N", *array.shape[1:]] for name, array in inputs.items()}
    return builders.model([node], shapes, ["y"], constants), inputs


@pytest.mark.parametrize("equation", [equation for equation in EINSUM if equation != "bij,bj"])
def test_einsum(equation: str) -> None:
    proto, inputs = einsum(equation)
    agree(proto, inputs, tolerance=3e-3)


@pytest.mark.parametrize(
    ("equation", "saying"),
    [
        ("bij,bj", "mixes the samples"),
        ("bbi->bi", "mixes the samples"),
        ("bij->ij", "mixes the samples"),
    ],
)
def test_refused_equations(equation: str, saying: str) -> None:
    if equation in EINSUM:
        proto, _ = einsum(equation)
    else:
        node = helper.make_node("Einsum", ["x"], ["y"], name="the_node", equation=equation)
        proto = builders.model([node], {"x": [2, 3, 3]}, ["y"])
        if not proto.graph.output[0].type.tensor_type.HasField("shape"):
            proto.graph.output[0].type.tensor_type.shape.dim.add()
    with pytest.raises(covey.UnsupportedError, match=f"'the_node' .Einsum.: .*{saying}.*; use MatMul"):
        covey.compile(proto, input_range=(-1, 1))


SAMPLES = 2
ELEMENTS = np.array([[[0, 2], [1, 1], [3, 0]]] * SAMPLES)
TUPLES = np.array([[[0, 1], [2, 3]], [[0, 1], [2, 3]]])
DISTINCT = np.array([[[0, 3], [1, 2], [3, 0]]] * SAMPLES)
OF_SAMPLES = np.array([[[[n, row, place] for place in (3, 1)] for row in (2, 0, 1)] for n in range(SAMPLES)])
"""The number of the sample, a row and a place in it."""
UPDATES = np.linspace(-1, 1, 6).reshape(1, 3, 2).repeat(SAMPLES, axis=0)


def positions(op: str, indices: np.ndarray, *more: str, **attributes: Any) -> onnx.ModelProto:
    node = helper.make_node(op, ["x", "i", *more], ["y"], name="the_node", **attributes)
    shapes: dict[str, list[int]] = {"x": [SAMPLES, 3, 4]}
    constants = {"i": indices}
    if "u" in more:
        shapes["u"] = [SAMPLES, 3, 2]
    elif more:
        constants[more[0]] = UPDATES if more[0] == "c" else UPDATES[:, 0, 0]
    return builders.model([node], shapes, ["y"], constants, opset=18)


MOVES: dict[str, onnx.ModelProto] = {
    "along the last axis": positions("GatherElements", ELEMENTS, axis=2),
    "from the end": positions("GatherElements", ELEMENTS - 4, axis=-1),
    "along another": positions("GatherElements", np.array([[[0, 2, 1, 1], [2, 0, 0, 1]]] * SAMPLES), axis=1),
    "elements of tuples": positions("GatherND", TUPLES, batch_dims=1),
    "rows of tuples": positions("GatherND", TUPLES[:, :, :1], batch_dims=1),
    "side by side": positions("GatherND", np.array([[[1], [0], [-1]]] * SAMPLES), batch_dims=2),
    "scattered": positions("ScatterElements", DISTINCT, "u", axis=2),
    "scattered constants": positions("ScatterElements", DISTINCT, "c", axis=2),
    "added": positions("ScatterElements", DISTINCT, "u", axis=2, reduction="add"),
    "added constants": positions("ScatterElements", DISTINCT - 4, "c", axis=2, reduction="add"),
    "summed": positions("ScatterElements", ELEMENTS[:, :, :1].repeat(2, axis=2), "u", axis=2, reduction="add"),
    "summed constants": positions("ScatterElements", ELEMENTS, "c", axis=2, reduction="add"),
    "tuples": positions("ScatterND", OF_SAMPLES, "u"),
    "tuples, summed": positions("ScatterND", OF_SAMPLES.clip(max=1), "u", reduction="add"),
    "one tuple of each": positions("ScatterND", OF_SAMPLES[:, 0, 0], "one"),
    "tuples of constants": positions("ScatterND", OF_SAMPLES - [0, 3, 4], "c", reduction="add"),
}


@pytest.mark.parametrize("case", MOVES)
def test_moves(case: str) -> None:
    proto = MOVES[case]
    inputs = {"x": np.rint(image(SAMPLES, 3, 4)["x"] * 256) / 256}
    if len(proto.graph.input) > 1:
        inputs["u"] = np.rint(image(SAMPLES, 3, 2, seed=5)["x"] * 256) / 256
    compiled = agree(proto, inputs, tolerance=3e-4)
    assert {row["computes"] for row in compiled.rows()} <= {"Gather", "Reshape", "Add", "Concat", "SumPool"}


@pytest.mark.parametrize("how", ["max", "min", "mul"])
@pytest.mark.parametrize("updates", ["u", "c"])
def test_reductions_at_positions(how: str, updates: str) -> None:
    for op, indices, axis in (("ScatterElements", ELEMENTS, {"axis": 2}), ("ScatterND", OF_SAMPLES.clip(max=1), {})):
        inputs = image(SAMPLES, 3, 4)
        if updates == "u":
            inputs["u"] = image(SAMPLES, 3, 2, seed=5)["x"]
        agree(positions(op, indices, updates, reduction=how, **axis), inputs, tolerance=2e-3)


@pytest.mark.parametrize(
    ("proto", "saying"),
    [
        (positions("GatherElements", np.stack([ELEMENTS[0], ELEMENTS[0][::-1]]), axis=2), "differ between samples"),
        (positions("GatherElements", ELEMENTS, axis=0), "is the batch"),
        (positions("GatherND", np.array([[0, 1], [1, 2]])), "it gathers along the batch"),
        (positions("ScatterElements", ELEMENTS, "u", axis=2), "it takes one of several updates"),
        (positions("ScatterND", OF_SAMPLES[::-1], "u"), "it writes some of the samples"),
    ],
)
def test_refused_positions(proto: onnx.ModelProto, saying: str) -> None:
    with pytest.raises(covey.UnsupportedError, match=f"'the_node' .*{saying}"):
        covey.compile(proto, input_range=(-1, 1))
