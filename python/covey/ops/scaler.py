"""Scaler: each feature less an offset, times a factor. Imputer: what stands in for missing features."""

from __future__ import annotations

import numpy as np

from covey.errors import ParameterError
from covey.importers.onnx_node import ML_DOMAIN, OnnxNode, from_onnx
from covey.interval import Array
from covey.ir import DType, Op, Value
from covey.ops.comparison import Equal
from covey.ops.missing import FillIn
from covey.ops.mul import Mul
from covey.ops.sub import Sub
from covey.ops.where import Where


@from_onnx("Scaler", domain=ML_DOMAIN)
def _scaler(node: OnnxNode) -> None:
    x = node.activation(0)
    offset, factor = _per_feature(node, x, "offset", 0.0), _per_feature(node, x, "scale", 1.0)
    steps: list[tuple[Op, str, Array]] = [(Sub(), "offset", offset)] if offset.any() else []
    steps += [(Mul(), "factor", factor)] if (factor != 1.0).any() else []
    if not steps:
        node.alias(x)
        node.note("removed: it changes nothing")
        return
    for index, (op, what, numbers) in enumerate(steps):
        last = index + 1 == len(steps)
        name = node.outputs[0]
        constant = node.parameter(numbers, f"{name}.{what}")
        x = node.emit(op, [x, constant], output=None if last else f"{name}.shifted")


def _per_feature(node: OnnxNode, x: Value, name: str, absent: float) -> Array:
    """One number for each feature of x, or one for all."""
    numbers = node.numbers(name)
    if numbers.size == 0:
        return np.array([absent])
    if numbers.size not in (1, x.shape[-1] if x.shape else 1):
        raise ParameterError(
            node.name, node.op_type, f"it has {numbers.size} numbers '{name}' for {x}", "export the model again"
        )
    return numbers


@from_onnx("Imputer", domain=ML_DOMAIN)
def _imputer(node: OnnxNode) -> None:
    x = node.activation(0)
    if node.has_attribute("imputed_value_int64s") or node.has_attribute("replaced_value_int64"):
        raise node.unsupported("it imputes whole numbers", "train the imputer on floating-point numbers")
    values, missing = node.numbers("imputed_value_floats"), float(node.attribute("replaced_value_float", 0.0))
    if values.size not in (1, x.shape[-1] if x.shape else 1):
        raise ParameterError(
            node.name, node.op_type, f"it has {values.size} values to impute for {x}", "export the model again"
        )
    name = node.outputs[0]
    if np.isnan(missing):
        node.emit(FillIn(), [x, node.parameter(values, f"{name}.imputed")])
        node.note("removed: an input holds no NaN; the data's owner fills in what is missing")
        return
    given = node.parameter(np.array(missing), f"{name}.missing")
    is_missing = node.emit(Equal(), [x, given], output=f"{name}.is_missing", dtype=DType.BOOL)
    node.emit(Where(), [is_missing, node.parameter(values, f"{name}.imputed"), x])
