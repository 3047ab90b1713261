"""Attention and small Transformers: against onnxruntime and float64, in rings of 32 and 64 bits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import builders
import covey
import interpreter
from agreement import agree
from covey.ops.affine import Affine
from covey.ops.mul import Mul
from covey.ops.scalar import Scalar
from covey.ops.softmax import Softmax

RNG = np.random.default_rng(0)


def secrets(*shapes: tuple[int, ...], seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.uniform(-2, 2, shape) for name, shape in zip("qkv", shapes, strict=True)}


def attention(
    inputs: dict[str, np.ndarray], mask: np.ndarray | None = None, names: str = "y", **attributes: Any
) -> onnx.ModelProto:
    operands = [*"qkv"] + (["m"] if mask is not None else [])
    node = helper.make_node("Attention", operands, [*names], name="the_node", **attributes)
    constants = {} if mask is None else {"m": mask}
    shapes = {name: ["N", *array.shape[1:]] for name, array in inputs.items()}
    return builders.model([node], shapes, [*names], constants, opset=23)


CAUSAL = np.tril(np.ones((5, 5), dtype=bool))

CASES: dict[str, tuple[tuple[tuple[int, ...], ...], np.ndarray | None, dict[str, Any]]] = {
    "heads": (((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 4)), None, {}),
    "causal": (((2, 3, 5, 8),) * 3, None, {"is_causal": 1}),
    "scale": (((2, 3, 5, 8),) * 3, None, {"scale": 0.1}),
    "grouped queries": (((2, 6, 5, 8), (2, 2, 5, 8), (2, 2, 5, 8)), None, {"is_causal": 1}),
    "packed": (((2, 5, 24), (2, 5, 8), (2, 5, 8)), None, {"q_num_heads": 3, "kv_num_heads": 1}),
    "truth mask": (((2, 3, 5, 8),) * 3, CAUSAL, {}),
    "a mask for each head": (((2, 3, 5, 8),) * 3, np.stack([CAUSAL, CAUSAL.T, ~CAUSAL | np.eye(5, dtype=bool)]), {}),
    "added mask": (((2, 3, 5, 8),) * 3, np.where(CAUSAL, np.linspace(0, 1, 5), -np.inf), {}),
    "cap": (((2, 3, 5, 8),) * 3, None, {"softcap": 1.5}),
}


@pytest.mark.parametrize("case", CASES)
def test_attention(case: str) -> None:
    shapes, mask, attributes = CASES[case]
    inputs = secrets(*shapes)
    proto = attention(inputs, mask, **attributes)
    single = {name: array.astype(np.float32) for name, array in inputs.items()}
    due = ReferenceEvaluator(proto).run(None, single)
    agree(proto, inputs, expected=due, tolerance=4e-3)


def test_truth_values_of_an_input_mask() -> None:
    """A secret mask as Attention takes it, which counts where it is 1."""
    inputs = secrets(*((2, 3, 5, 8),) * 3)
    mask = np.array([[1, 1, 1, 0, 0], [1, 0, 1, 1, 1]], dtype=bool)[:, None, None]
    shapes = {name: ["N", *array.shape[1:]] for name, array in {**inputs, "m": mask}.items()}
    node = helper.make_node("Attention", [*"qkvm"], ["y"], name="the_node")
    proto = builders.model([node], shapes, ["y"], {}, types={"m": onnx.TensorProto.BOOL}, opset=23)
    (due,) = ReferenceEvaluator(proto).run(None, {**{k: v.astype(np.float32) for k, v in inputs.items()}, "m": mask})
    compiled = covey.compile(proto, input_range={**dict.fromkeys("qkv", (-2, 2)), "m": (0, 1)})
    (got,) = interpreter.run(compiled, {**inputs, "m": mask.astype(np.float64)})
    np.testing.assert_allclose(got, due, atol=4e-3)


@pytest.mark.parametrize("heads", [2, 4])
@pytest.mark.parametrize("causal", [0, 1])
def test_rows_of_which_a_secret_mask_leaves_nothing(heads: int, causal: int) -> None:
    """Zeros from opset 25 on: of the result, and of the weights where these are asked for."""
    inputs = secrets((2, heads, 4, 8), (2, 2, 4, 8), (2, 2, 4, 8))
    mask = np.ones((2, heads, 4, 4), dtype=bool)
    mask[0, 0, 1] = mask[1, 1, :, 0] = False
    names = {"is_causal": causal, "qk_matmul_output_mode": 3}
    node = helper.make_node("Attention", [*"qkvm"], ["y", "", "", "w"], name="the_node", **names)
    shapes = {name: ["N", *array.shape[1:]] for name, array in {**inputs, "m": mask}.items()}
    proto = builders.model([node], shapes, ["y", "w"], {}, types={"m": onnx.TensorProto.BOOL}, opset=25)
    kept = mask & np.tril(np.ones((4, 4), dtype=bool)) if causal else mask
    repeated = {name: np.repeat(inputs[name], heads // 2, axis=1) for name in "kv"}
    powers = np.exp(inputs["q"] @ repeated["k"].swapaxes(2, 3) / math.sqrt(8)) * kept
    weights = powers / np.maximum(powers.sum(axis=-1, keepdims=True), 1e-9)
    compiled = covey.compile(proto, input_range={**dict.fromkeys("qkv", (-2, 2)), "m": (0, 1)})
    got = interpreter.run(compiled, {**inputs, "m": mask.astype(np.float64)})
    for result, due in zip(got, [weights @ repeated["v"], weights], strict=True):
        assert not result[~np.broadcast_to(kept.any(axis=-1, keepdims=True), result.shape)].any()
        np.testing.assert_allclose(result, due, atol=4e-3)


def test_keys_and_values_are_not_repeated() -> None:
    inputs = secrets((2, 6, 5, 8), (2, 2, 5, 8), (2, 2, 5, 8))
    compiled = covey.compile(attention(inputs), input_range=(-2, 2))
    program = interpreter.program_of(compiled)
    for node in program.nodes:
        if node.WhichOneof("op") == "matmul":
            assert program.values[node.inputs[1]].shape[0] == 2


@pytest.mark.parametrize(
    ("attributes", "mask", "saying"),
    [
        ({}, ~np.ones((5, 5), dtype=bool), "its mask leaves nothing of a row"),
        ({"is_causal": 1}, np.triu(np.ones((5, 5), dtype=bool), 1), "its mask leaves nothing of a row"),
    ],
)
def test_refusals(attributes: dict[str, Any], mask: np.ndarray, saying: str) -> None:
    proto = attention(secrets(*((2, 3, 5, 8),) * 3), mask)
    proto.graph.node[0].attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
    with pytest.raises(covey.CoveyError, match=saying):
        covey.compile(proto, input_range=(-1, 1))


HIDDEN, HEADS, LENGTH, WIDE = 32, 2, 8, 64


def encoder(layers: int, *, mask: bool, fused: bool = True) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A BERT in plain nodes, its normalisations written out where not `fused`; and inputs that are normalised."""
    rng = np.random.default_rng(1)
    constants: dict[str, np.ndarray] = {
        "to_heads": np.array([0, LENGTH, HEADS, HIDDEN // HEADS]),
        "from_heads": np.array([0, LENGTH, HIDDEN]),
        "root": np.array(math.sqrt(HIDDEN // HEADS)),
        "mask": np.where(np.tril(np.ones((LENGTH, LENGTH), dtype=bool)), 0.0, -np.inf),
        "two": np.array(2.0),
        "eps": np.array(1e-12),
    }
    nodes: list[onnx.NodeProto] = []

    def node(op: str, *inputs: str, to: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(op, [*inputs], [to], name=to, **attributes))
        return to

    def dense(x: str, inner: int, outer: int, to: str) -> str:
        constants[f"{to}.w"] = rng.normal(size=(inner, outer)) / math.sqrt(inner)
        constants[f"{to}.b"] = rng.normal(size=outer) * 0.1
        return node("Add", f"{to}.b", node("MatMul", x, f"{to}.w", to=f"{to}.p"), to=to)

    def norm(x: str, to: str) -> str:
        constants[f"{to}.g"], constants[f"{to}.s"] = rng.uniform(0.5, 1.5, HIDDEN), rng.normal(size=HIDDEN) * 0.1
        if fused:
            return node("LayerNormalization", x, f"{to}.g", f"{to}.s", to=to, epsilon=1e-12)
        d = node("Sub", x, node("ReduceMean", x, to=f"{to}.m", axes=[-1]), to=f"{to}.d")
        v = node("ReduceMean", node("Pow", d, "two", to=f"{to}.q"), to=f"{to}.v", axes=[-1])
        root = node("Sqrt", node("Add", v, "eps", to=f"{to}.e"), to=f"{to}.r")
        return node("Add", node("Mul", node("Div", d, root, to=f"{to}.n"), f"{to}.g", to=f"{to}.c"), f"{to}.s", to=to)

    x = "x"
    for layer in range(layers):
        at = f"l{layer}."
        q, k, v = (
            node("Transpose", node("Reshape", dense(x, HIDDEN, HIDDEN, at + n), "to_heads", to=at + n + "r"),
                 to=at + n + "t", perm=[0, 2, 3, 1] if n == "k" else [0, 2, 1, 3])
            for n in "qkv"
        )  # fmt: skip
        scores = node("Div", node("MatMul", q, k, to=at + "scores"), "root", to=at + "scaled")
        scores = node("Add", scores, "mask", to=at + "masked") if mask else scores
        mixed = node("MatMul", node("Softmax", scores, to=at + "weights", axis=-1), v, to=at + "mixed")
        mixed = node("Transpose", mixed, to=at + "back", perm=[0, 2, 1, 3])
        mixed = dense(node("Reshape", mixed, "from_heads", to=at + "joined"), HIDDEN, HIDDEN, at + "out")
        x = norm(node("Add", mixed, x, to=at + "first"), at + "n1")
        wide = node("Gelu", dense(x, HIDDEN, WIDE, at + "up"), to=at + "gelu")
        down = dense(wide, WIDE, HIDDEN, at + "down")
        x = norm(node("Add", down, x, to=at + "second"), "y" if layer + 1 == layers else at + "n2")
    used = {name for each in nodes for name in each.input}
    proto = builders.model(
        nodes, {"x": ["N", LENGTH, HIDDEN]}, ["y"], {k: v for k, v in constants.items() if k in used}, opset=20
    )
    x = rng.normal(size=(16, LENGTH, HIDDEN))
    return proto, {"x": x / np.sqrt((x**2).mean(axis=-1, keepdims=True))}


def modern(proto: onnx.ModelProto) -> onnx.ModelProto:
    """ReduceMean has had its axes as an operand since opset 18."""
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array([-1]), "last"))
    for node in proto.graph.node:
        if node.op_type == "ReduceMean":
            del node.attribute[:]
            node.input.append("last")
    return proto


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("mask", [True, False])
@pytest.mark.parametrize(("ring", "most"), [(32, 1e-2), (64, 1e-3)])
def test_an_encoder_of_two_layers(ring: int, most: float, mask: bool, fused: bool) -> None:
    proto, x = encoder(2, mask=mask, fused=fused)
    proto = proto if fused else modern(proto)
    compiled = covey.compile(proto, calibration=x, input_range=(-6, 6), ring=ring)
    due = builders.float_results(proto, x)[0]
    (y,) = interpreter.run(compiled, x)
    assert np.linalg.norm(y - due) <= most * np.linalg.norm(due)
    ops = [node.op for node in compiled.graph.nodes]
    # The scale is in the queries' weights, and masks are no sums.
    assert sum(isinstance(op, Softmax) and (op.mask is not None) == mask for op in ops) == 2
    assert not any(isinstance(op, Affine) for op in ops)
    # Of the normalisations' scales only the last stays: the others are in the weights behind them.
    assert sum(isinstance(op, Mul) for op in ops) == 1
    assert sum(isinstance(op, Scalar) for op in ops) == 2
    assert compiled.report["scale"] == (12 if ring == 32 else 16)


@pytest.mark.parametrize("how", ["numbers", "truth", "opposite"])
@pytest.mark.parametrize(("ring", "scale"), [(32, 12), (64, 16)])
def test_padding_that_the_data_owner_masks(how: str, ring: int, scale: int) -> None:
    """As BERT has it: an input says which tokens count, and (1 - mask) times the least float32 is added."""
    least = np.array(np.finfo(np.float32).min)
    constants = {"one": np.array(1.0), "least": least, "axes": np.array([1, 2]), "zero": np.array(0.0)}
    texts = {
        "numbers": "Unsqueeze m axes u; Cast u f; Sub one f o; Mul o least z",
        "truth": "Unsqueeze m axes u; Where u zero least z",
        "opposite": "Mul m least f; Unsqueeze f axes z",
    }
    nodes = []
    for step in (texts[how] + "; Add s z a; Softmax a p; MatMul p v y; Neg s n").split("; "):
        op, *operands, result = step.split()
        more = {"to": onnx.TensorProto.FLOAT} if op == "Cast" else {}
        nodes.append(helper.make_node(op, operands, [result], **more))
    used = {name for node in nodes for name in node.input}
    types = {"numbers": onnx.TensorProto.INT64, "truth": onnx.TensorProto.BOOL}
    proto = builders.model(
        nodes,
        {"s": ["N", 2, 4, 6], "v": ["N", 2, 6, 3], "m": ["N", 6]},
        ["y", "n"],
        {name: array for name, array in constants.items() if name in used},
        types={"m": types.get(how, onnx.TensorProto.FLOAT)},
    )
    rng = np.random.default_rng(0)
    counts = rng.integers(1, 7, 12)
    mask = np.arange(6) < counts[:, None]
    x = {"s": rng.uniform(-8, 8, (12, 2, 4, 6)), "v": rng.uniform(-1, 1, (12, 2, 6, 3))}
    x["m"] = (~mask if how == "opposite" else mask).astype(np.float64)
    compiled = covey.compile(proto, input_range={"s": (-8, 8), "v": (-1, 1), "m": (0, 1)}, ring=ring, scale=scale)
    powers = np.exp(x["s"]) * mask[:, None, None]
    due = (powers / powers.sum(axis=-1, keepdims=True)) @ x["v"]
    y, _ = interpreter.run(compiled, x)
    np.testing.assert_allclose(y, due, atol=1.5e-3)
    # No value of a masked token has any bearing.
    x["v"] = np.where(mask[:, None, :, None], x["v"], 1.0)
    assert np.array_equal(interpreter.run(compiled, x)[0], y)


def test_scores_that_a_secret_mask_changes_are_no_output() -> None:
    inputs = secrets((2, 2, 4, 8), (2, 2, 4, 8), (2, 2, 4, 8))
    node = helper.make_node("Attention", [*"qkvm"], ["y", "", "", "s"], name="the_node", qk_matmul_output_mode=2)
    shapes = {**{name: ["N", *array.shape[1:]] for name, array in inputs.items()}, "m": ["N", 2, 4, 4]}
    proto = builders.model([node], shapes, ["y", "s"], {}, types={"m": onnx.TensorProto.BOOL}, opset=24)
    with pytest.raises(covey.UnsupportedError, match="its masked scores are asked for"):
        covey.compile(proto, input_range={**dict.fromkeys("qkv", (-2, 2)), "m": (0, 1)})
