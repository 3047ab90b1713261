"""LinearRegressor and LinearClassifier: each is one dense layer."""

from __future__ import annotations

import numpy as np

from covey.errors import ParameterError
from covey.importers.onnx_node import ML_DOMAIN, OnnxNode, from_onnx
from covey.interval import Array
from covey.ir import Value
from covey.ops import scores
from covey.ops.dense import Dense


@from_onnx("LinearRegressor", domain=ML_DOMAIN)
def _linear_regressor(node: OnnxNode) -> None:
    x, targets = features(node), int(node.attribute("targets", 1))
    if scores.transform(node) != "NONE":
        raise node.unsupported("it transforms its result", "export the model with the post-transformation NONE")
    dense(node, x, matrix(node, x, targets), biases(node, "intercepts", targets), node.outputs[0])


@from_onnx("LinearClassifier", domain=ML_DOMAIN)
def _linear_classifier(node: OnnxNode) -> None:
    node.ignore("multi_class")
    x, how = features(node), scores.transform(node)
    classes, name = scores.labels(node, "classlabels_ints")
    rows = node.numbers("coefficients").size // x.shape[0]
    weight, bias = matrix(node, x, rows), biases(node, "intercepts", rows)
    if rows != classes and (rows, classes) != (1, 2):
        raise ParameterError(node.name, node.op_type, f"it has {rows} scores for {classes} classes", "export it again")
    mirrored = rows == 2 and np.array_equal(weight[:, 0], -weight[:, 1]) and bias[0] == -bias[1]
    if (rows == 1 and classes == 2) or (mirrored and how == "LOGISTIC"):
        score = dense(node, x, weight[:, -1:], bias[-1:], f"{name}.second")
        scores.finish_two(node, score, how, name, share=rows == 1 and how == "NONE")
        return
    raw = dense(node, x, weight, bias, name if how == "NONE" else f"{name}.raw")
    scores.finish(node, raw, how, name)


def features(node: OnnxNode) -> Value:
    """The row of features that a model of this domain reads."""
    x = node.activation(0)
    if len(x.shape) != 1:
        raise node.unsupported(f"its input {x} is not one row of features a sample", "flatten it first")
    return x


def matrix(node: OnnxNode, x: Value, outputs: int) -> Array:
    """The coefficients as a weight [F, outputs]."""
    numbers = node.numbers("coefficients")
    if outputs < 1 or numbers.size != outputs * x.shape[0]:
        raise ParameterError(
            node.name, node.op_type, f"it has {numbers.size} coefficients for {x}", "export the model again"
        )
    return np.ascontiguousarray(numbers.reshape(outputs, x.shape[0]).T)


def biases(node: OnnxNode, name: str, count: int) -> Array:
    """The numbers that scores begin with, by default 0."""
    numbers = node.numbers(name)
    if numbers.size not in (0, count):
        raise ParameterError(
            node.name, node.op_type, f"it has {numbers.size} numbers '{name}' for {count} scores", "export it again"
        )
    return numbers if numbers.size else np.zeros(count)


def dense(node: OnnxNode, x: Value, weight: Array, bias: Array, output: str) -> Value:
    """A dense layer with these weights."""
    parameters = [node.parameter(np.ascontiguousarray(weight), f"{output}.weight")]
    parameters.append(node.parameter(np.array(bias), f"{output}.bias"))
    return node.emit(Dense(), [x, *parameters], output=output)
