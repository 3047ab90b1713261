"""Rotary embedding: ONNX's, onnxruntime's and written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import builders
import covey
import interpreter
from agreement import agree, image

LENGTH, HEADS, SIZE, TABLE = 5, 3, 8, 16
POSITIONS = np.array([[0, 1, 2, 7, 3]])
ANGLES = np.outer(np.arange(TABLE), 10.0 ** -np.arange(SIZE // 2))


def rotary(
    shape: tuple[int, ...],
    *,
    size: int = SIZE,
    positions: np.ndarray | None = POSITIONS,
    ms: bool = False,
    **attributes: Any,
) -> onnx.ModelProto:
    angles = ANGLES[:, : size // 2]
    if positions is None:
        angles = np.broadcast_to(angles[None, :LENGTH], (2, LENGTH, size // 2))
    constants = {"cos": np.cos(angles), "sin": np.sin(angles)}
    if positions is not None:
        constants["at"] = positions
    order = ["x", "at", "cos", "sin"] if ms else ["x", "cos", "sin"] + (["at"] if positions is not None else [])
    node = helper.make_node(
        "RotaryEmbedding", order, ["y"], name="the_node", domain="com.microsoft" if ms else "", **attributes
    )
    return builders.model([node], {"x": shape}, {"y": shape}, constants, opset=23)


HEADED, PACKED = (2, HEADS, LENGTH, SIZE), (2, LENGTH, HEADS * SIZE)

CASES: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "halves": (HEADED, {}),
    "neighbours": (HEADED, {"interleaved": 1}),
    "packed": (PACKED, {"num_heads": HEADS}),
    "a part": (HEADED, {"rotary_embedding_dim": 4, "size": 4, "num_heads": HEADS}),
    "a part, packed neighbours": (
        PACKED,
        {"rotary_embedding_dim": 4, "size": 4, "num_heads": HEADS, "interleaved": 1},
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("given", [True, False])
def test_onnx(case: str, given: bool) -> None:
    shape, options = CASES[case]
    positions = np.repeat(POSITIONS, 2, axis=0) if given else None
    agree(rotary(shape, positions=positions, **options), image(*shape), tolerance=1e-3)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("positions", [np.repeat(POSITIONS, 2, axis=0), np.array([3])])
def test_onnxruntime(case: str, positions: np.ndarray) -> None:
    shape, options = CASES[case]
    agree(rotary(shape, positions=positions, ms=True, **options), image(*shape), tolerance=1e-3)


def written_out() -> onnx.ModelProto:
    angles = np.tile(ANGLES[:LENGTH], 2)
    half, axis = np.array([SIZE // 2]), np.array([3])
    constants = {"cos": np.cos(angles), "sin": np.sin(angles), "zero": np.array([0]), "half": half, "axis": axis}
    nodes = [
        helper.make_node("Slice", ["x", "zero", "half", "axis"], ["a"]),
        helper.make_node("Slice", ["x", "half", "all", "axis"], ["b"]),
        helper.make_node("Neg", ["b"], ["n"]),
        helper.make_node("Concat", ["n", "a"], ["t"], axis=-1),
        helper.make_node("Mul", ["t", "sin"], ["p"]),
        helper.make_node("Mul", ["x", "cos"], ["q"]),
        helper.make_node("Add", ["q", "p"], ["y"]),
    ]
    return builders.model(nodes, {"x": HEADED}, ["y"], {**constants, "all": np.array([2**62])})


@pytest.mark.parametrize("form", ["operator", "written out"])
def test_the_proved_range_grows_by_the_root_of_two_alone(form: str) -> None:
    proto = written_out() if form == "written out" else rotary(HEADED, positions=np.arange(LENGTH)[None])
    agree(written_out(), image(*HEADED), tolerance=1e-3)
    compiled = covey.compile(proto, input_range=(-8, 8), ring=32, scale=12)
    program = interpreter.program_of(compiled)
    (output,) = program.outputs
    bound = program.values[output].bound
    assert (bound.bits, bound.source) == (12 + 4, bound.PROVED)
    assert compiled.rows()[-1]["largest"] <= 8 * 2**0.5 + 2e-3


REFUSED: dict[str, tuple[onnx.ModelProto, str]] = {
    "positions": (rotary(HEADED, positions=np.array([[0, 1, 2, 3, 4], [0, 1, 2, 3, 5]])), "its positions of shape"),
    "beyond": (rotary(HEADED, positions=np.array([[0, 1, 2, 3, 16]])), "its positions of shape"),
    "scale": (rotary(HEADED, ms=True, scale=0.5), "it scales, or packs several sequences; leave"),
    "sizes": (rotary(HEADED, size=6), "do not turn 8 elements"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str) -> None:
    proto, saying = REFUSED[case]
    with pytest.raises(covey.UnsupportedError, match="'the_node' .RotaryEmbedding.: .*" + saying):
        covey.compile(proto, input_range=(-1, 1))
