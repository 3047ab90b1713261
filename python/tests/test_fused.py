"""Operators of onnxruntime's own domain that stand for several, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import builders
import covey
from agreement import agree

BATCH, LENGTH, HEADS, SIZE = 3, 5, 2, 4
HIDDEN = HEADS * SIZE
RNG = np.random.default_rng(0)
CAUSAL = np.where(np.tril(np.ones((LENGTH, LENGTH), dtype=bool)), 0.25, -np.inf)[None, None].repeat(BATCH, axis=0)
COUNTS = np.array([5, 2, 3])
PADDED = (np.arange(LENGTH) < COUNTS[:, None]).astype(np.int32)

Case = tuple[dict[str, np.ndarray], list[str], dict[str, np.ndarray], dict[str, Any]]
"""Inputs, operands, constants, attributes."""


def uniform(*shape: int) -> np.ndarray:
    return RNG.uniform(-1, 1, shape)


def single(op: str, case: Case, shape: list[Any], outputs: str = "y") -> onnx.ModelProto:
    inputs, operands, constants, attributes = case
    node = helper.make_node(op, operands, [*outputs], name="the_node", domain="com.microsoft", **attributes)
    types = {name: TensorProto.INT32 for name, array in inputs.items() if array.dtype.kind == "i"}
    shapes = {name: ["N", *array.shape[1:]] for name, array in inputs.items()}
    return builders.model([node], shapes, dict.fromkeys(outputs, shape), constants, types=types)


X = {"x": uniform(BATCH, LENGTH, 6)}
PACKED = {"w": uniform(6, 3 * HIDDEN), "b": uniform(3 * HIDDEN)}
UNEVEN = {"w": uniform(6, 2 * HIDDEN + 6), "b": uniform(2 * HIDDEN + 6)}
ONE_WAY = {"unidirectional": 1, "num_heads": HEADS}

ATTENTION: dict[str, Case] = {
    "plain": (X, ["x", "w", "b"], PACKED, {"num_heads": HEADS}),
    "one way, scaled": (X, ["x", "w", "b"], PACKED, {**ONE_WAY, "scale": 0.3}),
    "other values": (X, ["x", "w", "b"], UNEVEN, {"num_heads": HEADS, "qkv_hidden_sizes": [HIDDEN, HIDDEN, 6]}),
    "a mask of the model": (
        X,
        ["x", "w", "b", "m"],
        {**PACKED, "m": np.array([[1, 1, 0, 1, 0]] * BATCH, np.int32)},
        {"num_heads": HEADS},
    ),
    "how many count": (
        X,
        ["x", "w", "b", "m"],
        {**PACKED, "m": np.array([3] * BATCH, np.int32)},
        {"num_heads": HEADS},
    ),
    "a mask of the data owner": ({**X, "m": PADDED}, ["x", "w", "b", "m"], PACKED, {"num_heads": HEADS}),
    "a mask for each query": (
        {**X, "m": PADDED[:, None, :].repeat(LENGTH, axis=1)},
        ["x", "w", "b", "m"],
        PACKED,
        ONE_WAY,
    ),
    "a bias": (X, ["x", "w", "b", "", "", "a"], {**PACKED, "a": CAUSAL.clip(-1e30)}, {"num_heads": HEADS}),
    "a secret bias": (
        {**X, "a": uniform(BATCH, HEADS, LENGTH, LENGTH)},
        ["x", "w", "b", "", "", "a"],
        PACKED,
        {"num_heads": HEADS},
    ),
}


@pytest.mark.parametrize("case", ATTENTION)
def test_attention(case: str) -> None:
    width = 6 if case == "other values" else HIDDEN
    agree(single("Attention", ATTENTION[case], ["N", LENGTH, width]), ATTENTION[case][0], tolerance=4e-3)


Q, K, V = ({name: uniform(BATCH, length, HIDDEN)} for name, length in (("q", LENGTH), ("k", 7), ("v", 7)))
WIDE = {"b": uniform(3 * HIDDEN)}
SAME = {name: uniform(BATCH, LENGTH, HIDDEN) for name in "qkv"}

MULTI_HEAD: dict[str, Case] = {
    "plain": (SAME, ["q", "k", "v"], {}, {"num_heads": HEADS}),
    "across": ({**Q, **K, **V}, ["q", "k", "v"], {}, {"num_heads": HEADS}),
    "biased, one way": (SAME, ["q", "k", "v", "b"], WIDE, ONE_WAY),
    "masked": (
        {**SAME, "m": PADDED},
        ["q", "k", "v", "b", "m"],
        WIDE,
        {"num_heads": HEADS, "scale": 0.4, "mask_filter_value": -3e38},
    ),
    "added": (SAME, ["q", "k", "v", "", "", "a"], {"a": CAUSAL.clip(-1e30)}, {"num_heads": HEADS}),
    "in heads": (
        {**Q, "k": uniform(BATCH, HEADS, 7, SIZE), "v": uniform(BATCH, HEADS, 7, SIZE)},
        ["q", "k", "v"],
        {},
        {"num_heads": HEADS},
    ),
}


@pytest.mark.parametrize("case", MULTI_HEAD)
def test_multi_head_attention(case: str) -> None:
    proto = single("MultiHeadAttention", MULTI_HEAD[case], ["N", LENGTH, HIDDEN])
    agree(proto, MULTI_HEAD[case][0], tolerance=4e-3)


@pytest.mark.parametrize("parts", [3, 2])
def test_packed_operands(parts: int) -> None:
    """onnxruntime's processor has no such form: it must be the other one's result."""
    inputs = {**SAME}
    split = [inputs.pop(name).reshape(BATCH, LENGTH, HEADS, SIZE) for name in "qkv"[3 - parts :]]
    operands = [*inputs, "packed"]
    due = builders.float_results(single("MultiHeadAttention", MULTI_HEAD["plain"], ["N", LENGTH, HIDDEN]), SAME)
    case: Case = ({**inputs, "packed": np.stack(split, axis=3)}, operands, {}, {"num_heads": HEADS})
    agree(single("MultiHeadAttention", case, ["N", LENGTH, HIDDEN]), case[0], expected=due, tolerance=4e-3)


def test_earlier_keys_and_values() -> None:
    inputs = {**SAME, "i": uniform(BATCH, HEADS, 3, SIZE), "j": uniform(BATCH, HEADS, 3, SIZE)}
    case: Case = (inputs, ["q", "k", "v", "", "", "", "i", "j"], {}, ONE_WAY)
    proto = single("MultiHeadAttention", case, ["N", LENGTH, HIDDEN], "yab")
    for output in proto.graph.output[1:]:
        output.type.tensor_type.shape.dim.add()
        for dim, size in zip(output.type.tensor_type.shape.dim[1:], (HEADS, LENGTH + 3, SIZE), strict=True):
            dim.dim_value = size
    agree(proto, inputs, tolerance=4e-3)


GELU: dict[str, Case] = {
    "Gelu": ({"x": 3 * uniform(3, 4, 5)}, ["x"], {}, {}),
    "BiasGelu": ({"x": 3 * uniform(3, 4, 5)}, ["x", "b"], {"b": uniform(5)}, {}),
    "FastGelu": ({"x": 3 * uniform(3, 4, 5)}, ["x", "b"], {"b": uniform(5)}, {}),
    "QuickGelu": ({"x": 3 * uniform(3, 4, 5)}, ["x"], {}, {"alpha": 1.5}),
}


@pytest.mark.parametrize("op", GELU)
def test_gelu(op: str) -> None:
    agree(single(op, GELU[op], ["N", 4, 5]), GELU[op][0], tolerance=1e-3)


def embedding(
    *, sums: bool = False, segments: bool = True, positions: str = "", fixed: bool = False
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    rng = np.random.default_rng(1)
    inputs = {"ids": rng.integers(0, 9, (BATCH, LENGTH)).astype(np.int32)}
    constants = {"words": uniform(9, 6), "places": uniform(8, 6), "gamma": uniform(6) + 2, "beta": uniform(6)}
    operands = ["ids", "", "words", "places", "", "gamma", "beta", "", positions]
    if segments:
        operands[1], operands[4] = "parts", "kinds"
        parts = rng.integers(0, 2, (BATCH, LENGTH)).astype(np.int32)
        constants["kinds"] = uniform(2, 6)
        (constants if fixed else inputs)["parts"] = parts[:1].repeat(BATCH, axis=0) if fixed else parts
    at = rng.integers(0, 8, (BATCH, LENGTH)).astype(np.int32)
    if positions == "known":
        constants["known"] = at[:1].repeat(BATCH, axis=0)
    elif positions:
        inputs[positions] = at
    case: Case = (inputs, operands, constants, {"epsilon": 1e-3})
    node = helper.make_node(
        "EmbedLayerNormalization",
        operands,
        ["y", "", "s"] if sums else ["y", ""],
        name="the_node",
        domain="com.microsoft",
        **case[3],
    )
    types = dict.fromkeys(inputs, TensorProto.INT32)
    shapes = {name: ["N", LENGTH] for name in inputs}
    outputs = {name: ["N", LENGTH, 6] for name in ("ys" if sums else "y")}
    return builders.model([node], shapes, outputs, constants, types=types), inputs


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sums": True},
        {"segments": False},
        {"positions": "known"},
        {"positions": "at", "sums": True},
        {"fixed": True},
    ],
)
def test_embedding(options: dict[str, Any]) -> None:
    proto, inputs = embedding(**options)
    agree(proto, inputs, tolerance=4e-3, input_range=None)


@pytest.mark.parametrize("known", [False, True])
def test_attention_reads_the_mask_of_an_embedding(known: bool) -> None:
    """onnxruntime's optimiser has the embedding make an index of the mask, and Attention read that."""
    proto, inputs = embedding(segments=False)
    mask = np.array([[1, 1, 1, 0, 0]] * BATCH, np.int32) if known else PADDED
    first, outputs = proto.graph.node[0], {"y": ["N", LENGTH, HIDDEN]}
    first.input[7], first.output[:] = "m", ["e", "index"]
    node = helper.make_node(
        "Attention", ["e", "w", "b", "index"], ["y"], name="attention", domain="com.microsoft", num_heads=HEADS
    )
    constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    constants |= {name: array.astype(np.float32) for name, array in PACKED.items()} | ({"m": mask} if known else {})
    inputs = inputs if known else {**inputs, "m": mask}
    types = dict.fromkeys(inputs, TensorProto.INT32)
    shapes = {name: ["N", LENGTH] for name in inputs}
    proto = builders.model([first, node], shapes, outputs, constants, types=types)
    agree(proto, inputs, tolerance=4e-3, ring=64, input_range=None if known else {"m": (0, 1)})


SQUARE = uniform(LENGTH, LENGTH, 6)
"""As many samples as there are keys."""

REFUSED: dict[str, tuple[str, Case, str]] = {
    "rotary": ("Attention", (X, ["x", "w", "b"], PACKED, {"num_heads": HEADS, "do_rotary": 1}), "use RotaryEmbedding"),
    "lengths": (
        "Attention",
        ({**X, "m": np.array([[1], [2], [3]], np.int32)}, ["x", "w", "b", "m"], PACKED, {"num_heads": HEADS}),
        "its mask m.N, 1. has another form; give it as .batch, keys.",
    ),
    "heads": ("Attention", (X, ["x", "w", "b"], PACKED, {"num_heads": 3}), "are not of 3 heads"),
    "past": (
        "Attention",
        ({**X, "p": uniform(BATCH, 2)}, ["x", "w", "b", "", "p"], PACKED, {"num_heads": HEADS}),
        "it takes earlier keys; export the model without its past",
    ),
    "different masks": (
        "MultiHeadAttention",
        (SAME, ["q", "k", "v", "", "m"], {"m": PADDED}, {"num_heads": HEADS}),
        "is not the same for every sample",
    ),
    "a mask for each of as many samples as there are keys": (
        "MultiHeadAttention",
        ({"q": SQUARE}, ["q", "q", "q", "", "m"], {"m": np.tri(LENGTH, dtype=np.int32)}, {"num_heads": HEADS}),
        "is not the same for every sample",
    ),
    "lengths of as many samples as there are keys": (
        "Attention",
        (
            {"x": SQUARE},
            ["x", "w", "b", "m"],
            {**PACKED, "m": np.arange(1, LENGTH + 1, dtype=np.int32)},
            {"num_heads": HEADS},
        ),
        "is not the same for every sample",
    ),
    "weak mask": (
        "MultiHeadAttention",
        (SAME, ["q", "k", "v"], {}, {"num_heads": HEADS, "mask_filter_value": -5.0}),
        "its mask_filter_value is above",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str) -> None:
    op, parts, saying = REFUSED[case]
    ranges = {name: (0, 1) if array.dtype.kind == "i" else (-1, 1) for name, array in parts[0].items()}
    with pytest.raises(covey.UnsupportedError, match=f"'the_node' .{op}.: .*{saying}"):
        covey.compile(single(op, parts, ["N", LENGTH, HIDDEN]), input_range=ranges)
