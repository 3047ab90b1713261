"""Categories among real features: OneHotEncoder, LabelEncoder, Binarizer of ai.onnx.ml.

Each number is compared with every category; all comparisons run side by side.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import numpy_helper

from covey.importers.onnx_node import ML_DOMAIN, OnnxNode, from_onnx
from covey.interval import Array
from covey.ir import DType, Value
from covey.ops.add import Add
from covey.ops.comparison import Equal, Less
from covey.ops.dense import Dense
from covey.ops.gather import ABSENT, pick
from covey.ops.number import Number
from covey.ops.reshape import Reshape
from covey.ops.sub import Sub


@from_onnx("Binarizer", domain=ML_DOMAIN)
def _binarizer(node: OnnxNode) -> None:
    threshold = node.parameter(np.array(float(node.attribute("threshold", 0.0))), f"{node.outputs[0]}.threshold")
    above = node.emit(Less(), [threshold, node.activation(0)], output=f"{node.outputs[0]}.above", dtype=DType.BOOL)
    node.emit(Number(), [above])


@from_onnx("OneHotEncoder", domain=ML_DOMAIN)
def _one_hot_encoder(node: OnnxNode) -> None:
    """Where all else is an error (`zeros` 0), a number is the nearest category: one comparison for two neighbours."""
    if node.has_attribute("cats_strings"):
        raise _strings(node)
    categories = np.asarray(node.integers("cats_int64s") or [], dtype=np.float64)
    if categories.size == 0 or len(set(categories)) < categories.size:
        raise node.unsupported("its categories are none, or not all different", "fit the encoder again")
    if node.flag("zeros", 1) or categories.size == 1:
        node.emit(Number(), [_equal(node, node.activation(0), categories)])
    else:
        _nearest(node, node.activation(0), categories)


@from_onnx("LabelEncoder", domain=ML_DOMAIN)
def _label_encoder(node: OnnxNode) -> None:
    """One-hot rows times the values; a number that is no key has the default value."""
    keys, values = _table(node, "keys"), _table(node, "values")
    if keys.size == 0 or keys.size != values.size or not (np.isfinite(keys).all() and np.isfinite(values).all()):
        raise node.unsupported(f"it has {keys.size} keys and {values.size} values", "fit the encoder again")
    default = _default(node)
    x, name = node.activation(0), node.outputs[0]
    one_hot = node.emit(Number(), [_equal(node, x, keys)], output=f"{name}.one_hot")
    weights = node.parameter((values - default)[:, None], f"{name}.values")
    bias = node.parameter(np.array([default]), f"{name}.default")
    column = node.emit(Dense(), [one_hot, weights, bias], output=f"{name}.column")
    node.emit(Reshape(x.shape), [column])


def _equal(node: OnnxNode, x: Value, categories: Array) -> Value:
    """[..., K]: whether x is each of the categories."""
    name = node.outputs[0]
    column = node.emit(Reshape((*x.shape, 1)), [x], output=f"{name}.column_of_x")
    row = node.parameter(categories, f"{name}.categories")
    return node.emit(Equal(), [column, row], output=f"{name}.equal", dtype=DType.BOOL)


def _nearest(node: OnnxNode, x: Value, categories: Array) -> None:
    """[..., K], 1 at the nearest category: the difference of being below its upper and its lower neighbour's border."""
    name, ranks = node.outputs[0], np.argsort(np.argsort(categories)).tolist()
    ascending = np.sort(categories)
    borders = node.parameter((ascending[1:] + ascending[:-1]) / 2, f"{name}.borders")
    column = node.emit(Reshape((*x.shape, 1)), [x], output=f"{name}.column_of_x")
    below = node.emit(Less(), [column, borders], output=f"{name}.below", dtype=DType.BOOL)
    numbers = node.emit(Number(), [below], output=f"{name}.numbers")
    last = len(ranks) - 1
    upper = _picked(node, numbers, [rank if rank < last else ABSENT for rank in ranks], "upper")
    lower = _picked(node, numbers, [rank - 1 if rank > 0 else ABSENT for rank in ranks], "lower")
    between = node.emit(Sub(), [upper, lower], output=f"{name}.between")
    # Everything is below the border above the last.
    highest = node.parameter(np.array([float(rank == last) for rank in ranks]), f"{name}.highest")
    node.emit(Add(), [between, highest])


def _picked(node: OnnxNode, x: Value, indices: list[int], hint: str) -> Value:
    along = [list(range(size)) for size in x.shape[:-1]]
    return node.emit(pick(x.shape, [*along, indices]), [x], output=f"{node.outputs[0]}.{hint}")


def _table(node: OnnxNode, kind: str) -> Array:
    """The keys or the values, whichever attribute holds them."""
    found: list[Any] = []
    if node.has_attribute(f"{kind}_tensor"):
        found = [numpy_helper.to_array(node.attribute(f"{kind}_tensor"))]
    names = [f"{kind}_floats", f"{kind}_int64s"]
    found += [node.attribute(name) for name in names if node.has_attribute(name)]
    if len(found) != 1 or np.asarray(found[0]).dtype.kind not in "fiu":
        raise _strings(node)
    return np.asarray(found[0], dtype=np.float64).ravel()


def _default(node: OnnxNode) -> float:
    """What a number that is no key becomes, of the values' type."""
    node.ignore("default_string")
    whole, real = float(node.attribute("default_int64", -1)), float(node.attribute("default_float", 0.0))
    if node.has_attribute("default_tensor"):
        return float(numpy_helper.to_array(node.attribute("default_tensor")).ravel()[0])
    return whole if node.has_attribute("values_int64s") else real


def _strings(node: OnnxNode) -> Exception:
    return node.unsupported("its categories are no numbers", "encode texts as numbers before the model")
