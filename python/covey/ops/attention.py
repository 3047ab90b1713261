"""Attention: products of queries with keys, Softmax, products with values. Masks are public, heads share no copies."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from covey.functions import TANH
from covey.importers.onnx_node import BATCH, OnnxNode, from_onnx, of_one_sample
from covey.importers.torch_node import Constant, TorchNode, from_torch
from covey.interval import Array
from covey.ir import DType, Op, Shape, Value
from covey.ops.add import Add
from covey.ops.affine import Affine
from covey.ops.average_pool import SumPool
from covey.ops.comparison import Less
from covey.ops.concat import Concat
from covey.ops.logic import keep
from covey.ops.matmul import Matmul
from covey.ops.mul import Mul
from covey.ops.reduce import reduce
from covey.ops.reshape import Reshape
from covey.ops.scalar import Scalar
from covey.ops.softmax import MASKING, Mask, Softmax
from covey.ops.transpose import Transpose

ZERO_ROWS = 25
"""From this opset on, a row of which a mask leaves nothing gives zeros."""

MODES = ("scores", "capped", "biased", "weights")
"""What the fourth output may be, in the order of `qk_matmul_output_mode`."""


@dataclass
class Masks:
    """Which scores are left out, by constants or where the secret `kept` is 0, and what is added to the others."""

    mask: Mask | None = None
    bias: Array | None = None
    added: Value | None = None
    kept: Value | None = None

    def leave_out(self, mask: Mask) -> None:
        if mask.any():
            self.mask = mask if self.mask is None else self.mask | mask

    def add(self, constant: Array) -> None:
        """A constant that is added to scores: where it is far below zero, it leaves them out."""
        out = constant <= MASKING
        rest = np.where(out, 0.0, constant)
        self.leave_out(out)
        self.bias = rest if rest.any() else None

    def keep_near(self, length: int, keys: int, past: int, left: int, right: int) -> None:
        """Let each of `length` queries behind `past` keys see `left` keys before it and `right` behind; -1 is all."""
        gaps = np.arange(length)[:, None] + past - np.arange(keys)
        if left >= 0:
            self.leave_out(gaps > left)
        if right >= 0:
            self.leave_out(-gaps > right)


@from_onnx("Attention")
def _attention(node: OnnxNode) -> None:
    node.ignore("softmax_precision")
    name = node.outputs[0]
    q, k, v = (node.activation(index, what) for index, what in enumerate(("query", "key", "value")))
    packed = len(q.shape) == 2
    if packed:
        q = in_heads(node, q, int(node.attribute("q_num_heads", 0)), f"{name}.query")
        heads = int(node.attribute("kv_num_heads", 0))
        k, v = (in_heads(node, each, heads, f"{name}.{what}") for each, what in ((k, "key"), (v, "value")))
    else:
        node.ignore("q_num_heads", "kv_num_heads")
    if any(len(each.shape) != 3 for each in (q, k, v)):
        raise node.unsupported(f"its operands {q}, {k} and {v} have no heads", "give them as [N, heads, length, size]")
    if node.has(6):
        raise node.unsupported("its keys have lengths of their own", "mask them")
    k, v, past = behind_past(node, k, v, 4)
    masks = _masks(node, q, k, past)
    scale = node.attribute("scale")
    steps = attend(node, q, k, v, masks, float(scale) if scale else 1 / math.sqrt(q.shape[-1]), packed=packed)
    if given_output(node, 3, ""):
        mode = MODES[int(node.attribute("qk_matmul_output_mode", 0))]
        if mode == "biased" and (masks.mask is not None or masks.kept is not None):
            raise node.unsupported("its masked scores are asked for", "leave them out of the outputs")
        node.scope.aliases[node.outputs[3]] = steps[mode].name
    node.ignore("qk_matmul_output_mode")
    node.note("two products of matrices and Softmax")


def attend(
    node: OnnxNode, q: Value, k: Value, v: Value, masks: Masks, scale: float, *, packed: bool = False
) -> dict[str, Value]:
    """The node's result, and the steps before it: q [N, heads, M, E], k [N, groups, K, E], v [N, groups, K, F]."""
    name = node.outputs[0]
    (heads, length, size), (groups, keys, _) = q.shape, k.shape
    if heads % groups or v.shape[:2] != k.shape[:2]:
        raise node.unsupported(f"its {heads} heads do not share the keys {k} and values {v}", "repair the model")

    def step(op: Op, inputs: list[Value], hint: str) -> Value:
        return node.emit(op, inputs, output=f"{name}.{hint}")

    # The heads of a group stand in one matrix: keys and values are not repeated.
    rows = (groups, heads // groups * length)
    if heads != groups:
        q = step(Reshape((*rows, size)), [q], "grouped")
    if scale != 1.0:
        q = step(Affine(scale), [q], "scaled_query")
    turned = step(Transpose((0, 1, 3, 2)), [k], "turned_key")
    scores = step(Matmul(), [q, turned], "scores")
    if heads != groups:
        scores = step(Reshape((heads, length, keys)), [scores], "of_heads")
    steps = {"scores": scores}
    cap = float(node.attribute("softcap", 0.0) or 0.0)
    if cap > 0:
        scores = step(Affine(1 / cap), [scores], "share")
        scores = step(Affine(cap), [step(Scalar(TANH), [scores], "tanh")], "capped")
    steps["capped"] = scores
    if masks.added is not None:
        scores = step(Add(), [scores, masks.added], "masked")
    if masks.bias is not None:
        scores = step(Add(), [scores, node.parameter(masks.bias, f"{name}.bias")], "biased")
    steps["biased"] = scores
    operands = [scores] if masks.kept is None else [scores, masks.kept]
    weights = steps["weights"] = step(Softmax(masks.mask), operands, "weights")
    if heads != groups:
        weights = step(Reshape((*rows, keys)), [weights], "grouped_weights")
    last = f"{name}.mixed" if heads != groups or packed else None
    if empties := masks.kept is not None and node.opset >= ZERO_ROWS:
        last = f"{name}.averages"
    result = node.emit(Matmul(), [weights, v], output=last)
    shape = (heads, length, v.shape[-1])
    if heads != groups:
        result = node.emit(Reshape(shape), [result], output=f"{name}.heads" if packed or empties else None)
    if empties:
        seen = _rows_with_any(node, masks, (heads, length, keys))
        result = node.emit(Mul(), [result, seen], output=f"{name}.rows" if packed else None)
        if given_output(node, 3, ""):
            steps["weights"] = step(Mul(), [steps["weights"], seen], "weights_of_rows")
    if packed:
        result = step(Transpose((0, 2, 1, 3)), [result], "turned_back")
        node.emit(Reshape((length, heads * v.shape[-1])), [result])
    return steps


def _rows_with_any(node: OnnxNode, masks: Masks, shape: Shape) -> Value:
    """1 for rows [heads, length, 1] of the scores in which a key counts, else 0; fewer where the mask has fewer."""
    kept, name = masks.kept, node.outputs[0]
    assert kept is not None
    if masks.mask is not None:
        allowed = np.broadcast_to(~masks.mask, np.broadcast_shapes(masks.mask.shape, (1, 1, shape[-1])))
        kept = keep(node, kept, allowed, f"{name}.counting")
    count = reduce(node, kept, [3], SumPool, True, output=f"{name}.counts")
    half = node.parameter(np.array(0.5), f"{name}.half")
    return node.emit(Less(), [half, count], output=f"{name}.rows_with_any", dtype=DType.BOOL)


def behind_past(node: OnnxNode, k: Value, v: Value, first: int) -> tuple[Value, Value, int]:
    """Keys and values behind earlier ones, if the operands `first` and the next are these, and how many they are.

    They are the node's second and third result, where anything reads those.
    """
    past = 0
    if node.has(first) and node.has(first + 1):
        old_k, old_v = node.activation(first, "past key"), node.activation(first + 1, "past value")
        past = old_k.shape[1]
        k = node.emit(Concat(2), [old_k, k], output=given_output(node, 1, f"{node.outputs[0]}.keys"))
        v = node.emit(Concat(2), [old_v, v], output=given_output(node, 2, f"{node.outputs[0]}.values"))
    for index, value in ((1, k), (2, v)):
        if given_output(node, index, "") not in ("", value.name):
            node.scope.aliases[node.outputs[index]] = value.name
    return k, v, past


def given_output(node: OnnxNode, index: int, default: str) -> str:
    """The name of a further output, if anything reads it."""
    used = index < len(node.outputs) and node.outputs[index] in node.scope.used
    return node.outputs[index] if used else default


def in_heads(node: OnnxNode, x: Value, heads: int, hint: str) -> Value:
    """x [N, length, heads · size] as [N, heads, length, size]."""
    if heads < 1 or len(x.shape) != 2 or x.shape[1] % heads:
        raise node.unsupported(f"{heads} heads do not divide {x}", "repair the model")
    parted = node.emit(Reshape((x.shape[0], heads, x.shape[1] // heads)), [x], output=f"{hint}.parted")
    return node.emit(Transpose((0, 2, 1, 3)), [parted], output=f"{hint}.heads")


def _masks(node: OnnxNode, q: Value, k: Value, past: int) -> Masks:
    """What the constant mask, causality and a window say of each pair of positions."""
    masks = Masks()
    length, keys = q.shape[1], k.shape[1]
    if node.is_constant(3):
        array = of_one_sample(node.constant(3, "mask"), 4)
        if array.ndim > 3:
            raise node.unsupported("its mask differs between samples", "give it as an input")
        if array.dtype == np.bool_:
            array = np.where(array, 0.0, MASKING)
        added = added_mask(node, array, 3)
        short = keys - added.shape[-1]
        if short > 0:
            added = np.pad(added, [(0, 0)] * (added.ndim - 1) + [(0, short)], constant_values=MASKING)
        masks.add(added)
    elif node.has(3):
        mask = node.activation(3, "mask", index_allowed=True)
        if mask.dtype is DType.INDEX or len(mask.shape) != 3 or mask.shape[-1] != keys:
            way_out = "let it add numbers, or say which positions count"
            raise node.unsupported(f"its secret mask {mask} is not [N, heads, {length}, {keys}]", way_out)
        masks.added, masks.kept = (None, mask) if mask.dtype is DType.BOOL else (mask, None)
    if node.flag("is_causal"):
        masks.keep_near(length, keys, past, -1, 0)
    left, right = (int(node.attribute(f"{side}_window_size", -1)) for side in ("left", "right"))
    masks.keep_near(length, keys, past, left, right)
    return masks


def added_mask(node: OnnxNode, array: npt.NDArray[Any], index: int) -> Array:
    """A constant that is added to scores, where minus infinity is a number that leaves them out."""
    known = np.where(np.isneginf(array), MASKING, array.astype(np.float64))
    return node.finite(known, "mask", node.inputs[index])


@from_torch("aten.scaled_dot_product_attention.default", "aten._scaled_dot_product_flash_attention_for_cpu.default")
def _attention_aten(node: TorchNode) -> None:
    node.ignore("enable_gqa", "return_debug_mask")
    if node.number("dropout_p") != 0.0:
        raise node.unsupported("it is in training mode", "call eval() on the module before exporting it")
    operands = [node.argument(name) for name in ("query", "key", "value")]
    if any(isinstance(operand, Constant) for operand in operands):
        _in_steps(node, *operands)
        return
    mask = node.argument("attn_mask")
    q, k, _ = operands
    public = not node.flag("is_causal") and not isinstance(mask, Value)
    merged = all(operand.merged > 1 for operand in operands) and q.dims(BATCH)[1] == k.dims(BATCH)[1]
    if (public and merged) or q.rank > 4:
        _in_steps(node, *operands)
        return
    options = {"is_causal": int(node.flag("is_causal"))}
    scale = {"scale": node.number("scale")} if node.has("scale") else {}
    if operands[0].rank == 4:
        node.give("Attention", *operands, mask, **options, **scale)
        return
    # Without heads: as of one.
    one = np.array([1])
    of_one = [node.apply("Unsqueeze", operand, one, suffix=f"operand{i}") for i, operand in enumerate(operands)]
    if isinstance(mask, Value):
        mask = node.apply("Unsqueeze", mask, one, suffix="mask")
    result = node.apply("Attention", *of_one, mask, suffix="of_one_head", **options, **scale)
    node.give("Squeeze", result, one)


def _in_steps(node: TorchNode, q: Value | Constant, k: Value | Constant, v: Value | Constant) -> None:
    """Of more dimensions than heads, of learned queries or keys, or where the batch is merged with windows, whose
    masks may differ: products, sums and Softmax.
    """
    if isinstance(q, Constant) and isinstance(k, Constant):
        raise node.unsupported(
            "its query and key do not depend on the network's input", "multiply its value with the weights themselves"
        )
    mask = node.argument("attn_mask")
    (length, size), (keys, _) = ((x.dims(1) if isinstance(x, Value) else x.array.shape)[-2:] for x in (q, k))
    if node.flag("is_causal"):
        mask = Constant(f"{node.output}.causal", np.tri(length, keys, dtype=np.bool_))
    scale = node.number("scale") if node.has("scale") else size**-0.5
    if isinstance(k, Constant):
        turned: Value | Constant = replace(k, name=f"{k.name}.turned", array=k.array.swapaxes(-1, -2))
    else:
        order = [*range(k.rank - 2), k.rank - 1, k.rank - 2]
        turned = node.apply("Transpose", k, perm=order, suffix="turned_key")
    product = node.apply("MatMul", q, turned, suffix="product")
    scores = node.apply("Mul", product, scale, suffix="scores")
    if isinstance(mask, Constant):
        array = np.where(mask.array, 0.0, MASKING) if mask.array.dtype == np.bool_ else mask.array
        scores = node.apply("Add", scores, replace(mask, array=array), suffix="masked")
    elif isinstance(mask, Value) and mask.dtype is DType.BOOL:
        scores = node.apply("Where", mask, scores, MASKING, suffix="masked")
    elif mask is not None:
        scores = node.apply("Add", scores, mask, suffix="masked")
    node.give("MatMul", node.apply("Softmax", scores, axis=-1, suffix="weights"), v)
