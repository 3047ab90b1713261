"""Operators that onnxruntime's optimiser and exporters of Transformers put in the place of several."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from covey import functions
from covey.importers.onnx_node import IMPORTERS, MS_DOMAIN, OnnxNode, from_onnx, of_one_sample
from covey.ir import DType, Value
from covey.ops.add import Add
from covey.ops.attention import Masks, added_mask, attend, behind_past, given_output, in_heads
from covey.ops.dense import Dense
from covey.ops.gather import pick
from covey.ops.layer_norm import finish
from covey.ops.number import Number
from covey.ops.reshape import Reshape
from covey.ops.scalar import Scalar
from covey.ops.softmax import MASKING, Mask

RAW_MASK = "give it as [batch, keys], 1 where a key counts and 0 elsewhere"


@from_onnx("Attention", domain=MS_DOMAIN)
def _attention(node: OnnxNode) -> None:
    """Of the products of x [N, length, size] with packed weights of queries, keys and values."""
    for index, what in ((4, "earlier keys"), (6, "a length of earlier keys")):
        if node.has(index):
            raise node.unsupported(f"it takes {what}", "export the model without its past")
    if node.flag("do_rotary"):
        raise node.unsupported("it turns queries and keys", "use RotaryEmbedding before MultiHeadAttention")
    if given_output(node, 1, ""):
        raise node.unsupported("its keys and values are asked for", "export the model without its present")
    node.ignore("past_present_share_buffer", "rotary_embedding_dim")
    x, weights = node.activation(0), node.weights(1, "weights")
    heads, name = int(node.attribute("num_heads", 0)), node.outputs[0]
    sizes = node.integers("qkv_hidden_sizes") or [weights.shape[-1] // 3] * 3
    bias = node.weights(2, "bias") if node.has(2) else None
    if weights.ndim != 2 or sum(sizes) != weights.shape[1] or len(sizes) != 3 or heads < 1 or sizes[0] % heads:
        raise node.unsupported(
            f"its weights of shape {list(weights.shape)} are not of {heads} heads", "repair the model"
        )
    # The scores' factor, in the weights of queries: one product serves all three.
    factors = np.where(np.arange(sum(sizes)) < sizes[0], _scale(node, sizes[0] // heads), 1.0)
    operands = [x, node.parameter(weights * factors, f"{node.inputs[1]}.scaled")]
    if bias is not None:
        operands.append(node.parameter(bias * factors, f"{node.inputs[2]}.scaled"))
    packed = node.emit(Dense(), operands, output=f"{name}.packed")
    parts, end = [], 0
    for size, what in zip(sizes, ("query", "key", "value"), strict=True):
        start, end = end, end + size
        part = node.emit(pick(packed.shape, [range(x.shape[0]), range(start, end)]), [packed], output=f"{name}.{what}")
        parts.append(in_heads(node, part, heads, part.name))
    q, k, v = parts
    attend(node, q, k, v, _masks(node, 3, 5, x.shape[0], x.shape[0], 0), 1.0, packed=True)
    node.note("three products of matrices and Softmax")


@from_onnx("MultiHeadAttention", domain=MS_DOMAIN)
def _multi_head_attention(node: OnnxNode) -> None:
    """Of queries, keys and values [N, length, heads · size], which may be packed, or keys and values in heads."""
    for index in (8, 9):
        if node.has(index):
            raise node.unsupported("it writes into a buffer of keys", "export the model without its past")
    heads = int(node.attribute("num_heads", 0))
    q, k, v = _queries_keys_values(node, heads)
    k, v, past = behind_past(node, k, v, 6)
    masks = _masks(node, 4, 5, q.shape[1], k.shape[1], past)
    steps = attend(node, q, k, v, masks, _scale(node, q.shape[2]), packed=True)
    if given_output(node, 3, ""):
        node.scope.aliases[node.outputs[3]] = steps["scores"].name
    node.note("two products of matrices and Softmax")


def _queries_keys_values(node: OnnxNode, heads: int) -> list[Value]:
    """All three as [N, heads, length, size]."""
    operands = [
        node.activation(index, what) if node.has(index) else None
        for index, what in enumerate(("query", "key", "value"))
    ]
    name, bias = node.outputs[0], node.weights(3, "bias") if node.has(3) else None
    query = operands[0]
    packed = query if operands[1] is None else operands[1]
    if query is None or packed is None or heads < 1:
        raise node.unsupported("it has no queries, or no heads", "repair the model")
    if operands[2] is None:
        # [N, length, heads, 3 or 2, size]: queries, keys and values, or the last two.
        count = 3 if operands[1] is None else 2
        if len(packed.shape) != 4 or packed.shape[2] != count:
            raise node.unsupported(f"{packed} does not hold {count} parts", "repair the model")
        for index in range(count):
            along = [range(size) for size in packed.shape]
            along[2] = range(index, index + 1)
            part = node.emit(pick(packed.shape, along), [packed], output=f"{name}.part{index}")
            joined = (packed.shape[0], packed.shape[1] * packed.shape[3])
            operands[3 - count + index] = node.emit(Reshape(joined), [part], output=f"{name}.unpacked{index}")
    results, first = [], 0
    for value, what in zip(operands, ("query", "key", "value"), strict=True):
        assert value is not None
        if len(value.shape) == 3:  # keys and values of another sequence, in heads already
            results.append(value)
            continue
        if bias is not None:
            own = bias[first : first + value.shape[-1]]
            if own.shape != value.shape[-1:]:
                raise node.unsupported(f"its bias of shape {list(bias.shape)} does not fit {value}", "repair the model")
            shift = node.parameter(own, f"{node.inputs[3]}.{what}")
            first += value.shape[-1]
            value = node.emit(Add(), [value, shift], output=f"{name}.{what}")
        results.append(in_heads(node, value, heads, f"{name}.{what}"))
    return results


def _scale(node: OnnxNode, size: int) -> float:
    return float(node.attribute("scale", 0.0)) or 1 / math.sqrt(size)


def _masks(node: OnnxNode, mask: int, bias: int, length: int, keys: int, past: int) -> Masks:
    """What the operands `mask`, which counts keys, and `bias`, which is added, and causality say of the scores."""
    if float(node.attribute("mask_filter_value", MASKING)) > MASKING:
        raise node.unsupported(f"its mask_filter_value is above {MASKING:g}", "leave it at its default")
    masks = Masks()
    if node.is_constant(bias):
        added = of_one_sample(node.constant(bias, "attention bias"), 4)
        if added.ndim > 3:
            raise node.unsupported("its attention bias differs between samples", "give it as an input")
        masks.add(added_mask(node, added, bias))
    elif node.has(bias):
        masks.added = node.activation(bias, "attention bias")
    if node.is_constant(mask):
        masks.leave_out(_left_out(node, mask, length, keys))
    elif node.has(mask):
        masks.kept = _kept(node, mask, length, keys)
    if node.flag("unidirectional"):
        masks.keep_near(length, keys, past, -1, 0)
    return masks


def _left_out(node: OnnxNode, index: int, length: int, keys: int) -> Mask:
    """The keys that a constant mask leaves out: of numbers for each, or how many count."""
    array = node.constant(index, "mask")
    if array.ndim == 1:
        if array.size and (array == array[:1]).all():
            return np.asarray(np.arange(keys) >= array[0])
    else:
        # [batch, keys], or [batch, length, keys].
        of_sample = of_one_sample(array, array.ndim)
        if of_sample.shape == ((keys,) if array.ndim == 2 else (length, keys)):
            return np.asarray(of_sample == 0)
    raise node.unsupported(f"its mask of shape {list(array.shape)} is not the same for every sample", RAW_MASK)


def _kept(node: OnnxNode, index: int, length: int, keys: int) -> Value:
    """An input of 0 and 1 as it meets the scores [N, heads, length, keys]."""
    mask = node.activation(index, "mask", index_allowed=True)
    if mask.dtype is DType.INDEX:
        mask = node.whole_numbers(index, "mask")
    if mask.shape not in ((keys,), (length, keys)):
        raise node.unsupported(f"its mask {mask} has another form", RAW_MASK)
    name = f"{node.outputs[0]}.mask"
    number = node.emit(Number(), [mask], output=name) if mask.dtype is not DType.FLOAT else mask
    return node.emit(Reshape((1, *(1,) * (2 - len(mask.shape)), *mask.shape)), [number], output=f"{name}.of_scores")


@from_onnx("Gelu", "BiasGelu", "FastGelu", domain=MS_DOMAIN)
def _gelu(node: OnnxNode) -> None:
    """Of a sum with a bias, where there is one."""
    x = node.activation(0)
    if node.has(1):
        operands = [x, node.beside(1, "bias", x) if node.is_constant(1) else node.activation(1, "bias")]
        x = node.emit(Add(), operands, output=f"{node.outputs[0]}.biased")
    node.emit(Scalar(functions.GELU_TANH if node.op_type == "FastGelu" else functions.GELU), [x])


@from_onnx("QuickGelu", domain=MS_DOMAIN)
def _quick_gelu(node: OnnxNode) -> None:
    node.emit(Scalar(functions.swish(float(node.attribute("alpha", 1.702)))), [node.activation(0)])


@from_onnx("EmbedLayerNormalization", domain=MS_DOMAIN)
def _embed_layer_normalization(node: OnnxNode) -> None:
    """The sum of rows of tables for words, positions and segments, then LayerNormalization."""
    node.ignore("mask_index_type")
    name = node.outputs[0]
    total = _rows(node, 2, node.whole_numbers(0, "token ids"), "words")
    places: Value | npt.NDArray[Any] = np.arange(total.shape[0])
    if node.has(1) and node.has(4):
        total = node.emit(
            Add(), [total, _rows(node, 4, _numbers(node, 1, "segments"), "segments")], output=f"{name}.parts"
        )
    if node.has(8):
        places = _numbers(node, 8, "positions")
    output = given_output(node, 2, f"{name}.sum")
    total = node.emit(Add(), [total, _rows(node, 3, places, "positions")], output=output)
    if output != total.name and given_output(node, 2, ""):
        node.scope.aliases[output] = total.name
    _hand_on_mask(node)
    options = {"epsilon": node.attribute("epsilon", 1e-12)}
    inner = OnnxNode(node.scope, node.name, node.op_type, node.inputs[5:7], [name], options)
    finish(inner, total, 0, total.shape[-1:], centred=True)
    node.note("rows of tables, a sum and a normalisation")


def _hand_on_mask(node: OnnxNode) -> None:
    """The mask itself in the place of the index that onnxruntime makes of it: Attention reads both."""
    output = given_output(node, 1, "")
    if not output:
        return
    if not node.has(7):
        raise node.unsupported(
            "its mask_index is asked for, and it has no mask", "give it the mask, or let nothing read it"
        )
    if node.is_constant(7):
        node.scope.constants[output] = node.constant(7, "mask")
    else:
        node.scope.aliases[output] = node.whole_numbers(7, "mask").name


def _numbers(node: OnnxNode, index: int, what: str) -> Value | npt.NDArray[Any]:
    """Whole numbers of an input, or constants [length] that are the same for every sample."""
    if not node.is_constant(index):
        return node.whole_numbers(index, what)
    array = of_one_sample(node.constant(index, what), 2)
    if array.ndim != 1:
        raise node.unsupported(f"its constant {what} differ between samples", "give them as an input")
    return array


def _rows(node: OnnxNode, table: int, numbers: Value | npt.NDArray[Any], hint: str) -> Value:
    """The rows of a constant table at these numbers."""
    scope, name = node.scope, node.scope.graph.fresh(f"{node.outputs[0]}.{hint}")
    if not isinstance(numbers, Value):
        rows = node.weights(table, f"embedding of {hint}")
        if numbers.min() < 0 or numbers.max() >= len(rows):
            raise node.unsupported(f"its {hint} reach beyond their table of {len(rows)} rows", "repair the model")
        return node.parameter(rows[numbers], name)
    operands = [node.inputs[table], numbers.name]
    IMPORTERS["Gather"](OnnxNode(scope, node.name, node.op_type, operands, [name], {"axis": 0}))
    value = scope.activation(name)
    assert value is not None
    return value
