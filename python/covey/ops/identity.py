"""Operators that change nothing: Identity, a Cast between floating types, random ones in evaluation mode.

Casts of truth values and of whole numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from covey.importers.onnx_node import OnnxNode, from_onnx
from covey.importers.torch_node import RANDOM, Constant, TorchNode, from_torch
from covey.ir import DType, Value
from covey.ops.counting import counted, is_whole
from covey.ops.detached import DETACHED, Detached
from covey.ops.floor import toward_zero
from covey.ops.number import Number
from covey.ops.truth import unlike_zero
from covey.ops.whole_numbers import Truth

_FLOATS = {onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16}
_NARROW = {onnx.TensorProto.INT8, onnx.TensorProto.INT16, onnx.TensorProto.UINT8, onnx.TensorProto.UINT16}
_INTEGERS = {onnx.TensorProto.INT64, onnx.TensorProto.INT32, onnx.TensorProto.UINT32, *_NARROW}


@from_onnx("Identity")
def _identity(node: OnnxNode) -> None:
    x = node.activation(0, index_allowed=True)
    if node.attribute(DETACHED, 0):
        node.emit(Detached(), [x], dtype=x.dtype)
        return
    node.alias(x)
    node.note("removed")


@from_onnx("Cast")
def _cast(node: OnnxNode) -> None:
    node.ignore("saturate", "round_mode")
    x = node.activation(0, index_allowed=True)
    target = node.attribute("to")
    whole = node.scope.graph.holds_input(x.name)
    if (x.dtype is not DType.FLOAT and target in _FLOATS) or (x.dtype is DType.BOOL and target in _INTEGERS):
        node.emit(Number(), [x])
        return
    if whole and target == onnx.TensorProto.BOOL:
        node.emit(Truth(), [x], dtype=DType.BOOL)
        return
    if x.dtype is DType.BOOL and target == onnx.TensorProto.BOOL:
        node.alias(x)
        node.note("removed: it changes nothing")
        return
    if x.dtype is DType.FLOAT and target in _INTEGERS and node.outputs[0] in node.scope.categories:
        node.alias(x)
        node.note("removed: categories are whole numbers")
        return
    producer = node.scope.graph.producer(x.name)
    if target in _INTEGERS and producer is not None and producer.source_op == "Sign":
        node.drop_label()
        node.note("dropped: the result's owner takes the sign of the score")
        return
    if x.dtype is DType.FLOAT and target == onnx.TensorProto.BOOL:
        unlike_zero(node, x)
        return
    if x.dtype is DType.FLOAT and target in _INTEGERS and not is_whole(node.scope.graph, x.name):
        toward_zero(node, x)
        return
    if target not in (_FLOATS | _INTEGERS if x.dtype is DType.FLOAT else _INTEGERS):
        way_out = "cast to float, to integers of at most 64 bits or to bool"
        raise node.unsupported(f"it casts to {onnx.TensorProto.DataType.Name(target)}", way_out)
    node.alias(x)
    node.note("removed: every value is fixed-point")


@from_onnx("CastLike")
def _cast_like(node: OnnxNode) -> None:
    """To the type of another operand, whose values have no bearing."""
    node.ignore("saturate", "round_mode")
    if node.is_constant(0):  # the other is an activation, which is a number: constants are such already
        node.scope.constants[node.outputs[0]] = np.asarray(node.constant(0, "input"), dtype=np.float64)
        node.note("constant, evaluated at compile time")
        return
    x = node.activation(0)
    other = node.scope.constants.get(node.inputs[1]) if node.is_constant(1) else None
    value = node.scope.activation(node.inputs[1])
    if (other is not None and other.dtype.kind in "iub") or (value is not None and value.dtype is not DType.FLOAT):
        raise node.unsupported("it casts to another type", "only casts between floating types are supported")
    node.alias(x)
    node.note("removed: every value is fixed-point")


@from_torch("aten.alpha_dropout.default", "aten.feature_dropout.default")
def _other_dropout_aten(node: TorchNode) -> None:
    node.ignore("p")
    if node.flag("train"):
        raise node.unsupported("it is in training mode", "call eval() on the module before exporting it")
    node.alias(node.activation("input"))
    node.note("removed: it does nothing at inference")


@from_torch("aten.bernoulli.p", "aten.rand_like.default", "aten.randn_like.default")
def _random_aten(node: TorchNode) -> None:
    raise node.unsupported(*RANDOM)


@from_torch(
    "aten.alias.default",
    "aten.clone.default",
    "aten.contiguous.default",
    "aten.dequantize.self",
    "aten.lift_fresh_copy.default",
)
def _copy_aten(node: TorchNode) -> None:
    node.ignore("memory_format")
    node.alias(node.activation("self"))
    node.note("removed")


@from_torch("aten.detach.default")
def _detach_aten(node: TorchNode) -> None:
    x = node.activation("self")
    if node.scope.trained and x.dtype is DType.FLOAT:
        node.become("Identity", x, **{DETACHED: 1})
        return
    node.alias(x)
    node.note("removed")


@from_torch("aten._to_copy.default", "aten.to.dtype", "aten.to.dtype_layout", "aten.to.device")
def _to_aten(node: TorchNode) -> None:
    node.ignore("layout", "device", "pin_memory", "non_blocking", "memory_format", "copy", "dtype")
    dtype, x = node.argument("dtype"), node.activation("self")
    target = _kind(dtype) if dtype is not None else x.dtype
    if x.dtype is not DType.FLOAT and target is not x.dtype and not node.scope.graph.holds_input(x.name):
        target = DType.FLOAT if target is DType.INDEX else target  # whole numbers that the network counts
    if x.dtype is not DType.FLOAT and target is not DType.INDEX and dtype is not None:
        node.become("Cast", x, to=onnx.TensorProto.FLOAT if target is DType.FLOAT else onnx.TensorProto.BOOL)
        return
    if target is DType.INDEX and x.dtype is DType.FLOAT and not is_whole(node.scope.graph, x.name):
        kind = str(dtype).removeprefix("torch.")
        if kind == "int64":
            node.become("Cast", x, to=onnx.TensorProto.INT64)
        else:
            node.become("Within", node.apply("Cast", x, to=onnx.TensorProto.INT64, suffix="whole"), x, kind=kind)
        return
    if target is not x.dtype and target is not DType.INDEX:
        node.become("Cast", x, to=onnx.TensorProto.BOOL)
        return
    node.alias(x)
    node.note("removed: every value is fixed-point")


@from_torch("aten.type_as.default")
def _type_as_aten(node: TorchNode) -> None:
    given, other = node.argument("self"), node.argument("other")
    if isinstance(given, Constant):  # the other is an activation, of which the type alone counts
        kinds = {DType.FLOAT: np.float32, DType.INDEX: np.int64, DType.BOOL: np.bool_}
        floats = other.dtype is DType.FLOAT and given.array.dtype.kind == "f"
        node.constant_result(given.array if floats else given.array.astype(kinds[other.dtype]), repeated=given.repeated)
        return
    x = node.activation("self")
    kind = other.dtype if isinstance(other, Value) else DType.FLOAT if other.array.dtype.kind == "f" else DType.INDEX
    if kind is DType.FLOAT and x.dtype is not kind:
        node.become("Cast", x, to=onnx.TensorProto.FLOAT)
        return
    if kind is not x.dtype and not (kind is DType.INDEX and counted(node.scope.graph, x.name) is not None):
        raise node.unsupported("it casts to another type", "only casts between floating types are supported")
    node.alias(x)
    node.note("removed: every value is fixed-point")


def _kind(dtype: Any) -> DType:
    """What the numbers of a PyTorch type mean."""
    return DType.FLOAT if dtype.is_floating_point else DType.BOOL if str(dtype) == "torch.bool" else DType.INDEX


@from_torch("aten.nan_to_num.default")
def _finite_aten(node: TorchNode) -> None:
    node.ignore("nan", "posinf", "neginf")
    node.alias(node.activation("self"))
    node.note("removed: values are always finite")
