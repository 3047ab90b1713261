"""Evaluating the nodes of a model that do not depend on its input: shape arithmetic, constants, weight transforms."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from covey.errors import UnsupportedError
from covey.importers.onnx_node import Scope
from covey.ir import Value


def evaluate(node: onnx.NodeProto, name: str, opset: int, operands: dict[str, npt.NDArray[Any]]) -> list[Any]:
    """The node's outputs for constant operands, by ONNX's own reference implementation."""
    if node.op_type in ("Softmax", "LogSoftmax", "Hardmax") and opset < 13:
        return _of_rows(node, name, operands)
    if node.op_type == "DequantizeLinear" and opset < 21:
        return [_dequantized(node, name, *(operands[key] for key in node.input if key))]
    inputs = [
        helper.make_tensor_value_info(key, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for key, value in operands.items()
    ]
    outputs = [onnx.ValueInfoProto(name=output) for output in node.output if output]
    graph = helper.make_graph([node], name, inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    try:
        return list(ReferenceEvaluator(model).run(None, dict(operands)))
    except Exception as error:  # the evaluator raises whatever its operators do
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UnsupportedError(
            name, node.op_type, f"it could not be evaluated at compile time ({reason})", "simplify the model first"
        ) from None


def _dequantized(
    node: onnx.NodeProto,
    name: str,
    x: npt.NDArray[Any],
    scale: npt.NDArray[Any],
    zero: npt.NDArray[Any] | None = None,
) -> npt.NDArray[Any]:
    """Weights that are stored as integers; the reference implementation knows later versions of the operator alone."""
    axis = next((int(each.i) for each in node.attribute if each.name == "axis"), 1)
    try:
        return real(x, scale, np.zeros(()) if zero is None else zero, axis).astype(scale.dtype)
    except ValueError as error:
        raise UnsupportedError(name, node.op_type, str(error), "repair the model") from None


def real(
    integers: npt.NDArray[Any], scale: npt.NDArray[Any], zero: npt.NDArray[Any], axis: int
) -> npt.NDArray[np.float64]:
    """(integers - zero) * scale, where scales and zero points are one, or one a place of an axis. Else `ValueError`."""
    along = [1] * integers.ndim
    for each, what in ((scale, "scale"), (zero, "zero point")):
        if each.size > 1:
            if not (-integers.ndim <= axis < integers.ndim and each.shape == (integers.shape[axis],)):
                shapes = (
                    f"of shape {list(each.shape)} does not fit axis {axis} of its operand of {list(integers.shape)}"
                )
                raise ValueError(f"its {what} {shapes}")
            along[axis] = each.size
    factor, offset = (each.astype(np.float64).reshape(along if each.size > 1 else ()) for each in (scale, zero))
    return np.asarray((integers.astype(np.float64) - offset) * factor)


def _of_rows(node: onnx.NodeProto, name: str, operands: dict[str, npt.NDArray[Any]]) -> list[Any]:
    """Before opset 13 all dimensions from the axis on are one row; the reference implementation has the later rule."""
    ((key, array),) = operands.items()
    axis = next((int(each.i) for each in node.attribute if each.name == "axis"), 1)
    if not -array.ndim <= axis <= array.ndim:
        raise UnsupportedError(name, node.op_type, f"its axis {axis} is none of its operand's", "repair the model")
    first = prod(array.shape[: axis + array.ndim if axis < 0 else axis])
    of_rows = helper.make_node(node.op_type, node.input, node.output, axis=1)
    (result,) = evaluate(of_rows, name, 13, {key: array.reshape(first, -1) if first else array.reshape(0, 0)})
    return [np.asarray(result).reshape(array.shape)]


def shape_of(scope: Scope, value: Value, start: int, end: int | None, batch: int) -> npt.NDArray[np.int64]:
    """What `Shape` gives for an activation; `batch` stands for the number of samples."""
    return np.array(scope.dims(value, batch), dtype=np.int64)[start:end]
