"""LinearRegressor, LinearClassifier, and support vector machines with a linear kernel: each is one dense layer."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from covey.errors import ParameterError
from covey.importers.onnx_node import ML_DOMAIN, OnnxNode, from_onnx
from covey.interval import Array
from covey.ir import Value
from covey.ops import scores
from covey.ops.dense import Dense


@from_onnx("LinearRegressor", domain=ML_DOMAIN)
def _linear_regressor(node: OnnxNode) -> None:
    x, targets = _features(node), int(node.attribute("targets", 1))
    if scores.transform(node) != "NONE":
        raise node.unsupported("it transforms its result", "export the model with the post-transformation NONE")
    _dense(node, x, _matrix(node, x, targets), _biases(node, "intercepts", targets), node.outputs[0])


@from_onnx("LinearClassifier", domain=ML_DOMAIN)
def _linear_classifier(node: OnnxNode) -> None:
    node.ignore("multi_class")
    x, how = _features(node), scores.transform(node)
    classes, name = scores.labels(node, "classlabels_ints")
    rows = node.numbers("coefficients").size // x.shape[0]
    weight, bias = _matrix(node, x, rows), _biases(node, "intercepts", rows)
    if rows != classes and (rows, classes) != (1, 2):
        raise ParameterError(node.name, node.op_type, f"it has {rows} scores for {classes} classes", "export it again")
    mirrored = rows == 2 and np.array_equal(weight[:, 0], -weight[:, 1]) and bias[0] == -bias[1]
    if (rows == 1 and classes == 2) or (mirrored and how == "LOGISTIC"):
        score = _dense(node, x, weight[:, -1:], bias[-1:], f"{name}.second")
        scores.finish_two(node, score, how, name, share=rows == 1 and how == "NONE")
        return
    raw = _dense(node, x, weight, bias, name if how == "NONE" else f"{name}.raw")
    scores.finish(node, raw, how, name)


@from_onnx("SVMRegressor", domain=ML_DOMAIN)
def _svm_regressor(node: OnnxNode) -> None:
    x = _features(node)
    _only_linear(node)
    if node.flag("one_class") or scores.transform(node) != "NONE":
        raise node.unsupported("it gives classes", "export its decision function")
    vectors = int(node.attribute("n_supports", 0))
    coefficients = node.numbers("coefficients")
    if vectors and coefficients.size == vectors:
        weight = (coefficients @ _support_vectors(node, x, vectors))[:, None]
    else:
        weight = _matrix(node, x, 1)
    _dense(node, x, weight, _biases(node, "rho", 1), node.outputs[0])


@from_onnx("SVMClassifier", domain=ML_DOMAIN)
def _svm_classifier(node: OnnxNode) -> None:
    x, how = _features(node), scores.transform(node)
    _only_linear(node)
    if node.numbers("prob_a").size or node.numbers("prob_b").size:
        node.read.update(("prob_a", "prob_b"))
        raise node.unsupported(
            "it estimates probabilities, which divides by secrets", "train it with probability=False: scores rank alike"
        )
    counts = node.integers("vectors_per_class") or []
    classes, name = scores.labels(node, "classlabels_ints", _rule(len(counts)))
    if not counts:
        weight = _matrix(node, x, node.numbers("coefficients").size // x.shape[0])
        # By onnxruntime's convention all scores share the first number.
        bias = np.full(weight.shape[1], node.numbers("rho")[0] if node.numbers("rho").size else 0.0)
    else:
        weight, bias = _one_against_one(node, x, counts)
    if weight.shape[1] == 1 and classes == 2:
        # By onnxruntime's convention the decision for the first class stands second.
        scores.finish_two(node, _dense(node, x, weight, bias, f"{name}.second"), how, name)
        if counts:
            node.scope.first_last.add(name)
        return
    raw = _dense(node, x, weight, bias, name if how == "NONE" else f"{name}.raw")
    scores.finish(node, raw, how, name)


def _one_against_one(node: OnnxNode, x: Value, counts: list[int]) -> tuple[Array, Array]:
    """Weight [F, pairs] and bias [pairs] of the decision between each two classes, in order.

    Row r of the coefficients holds, for the vectors of a class, those against the r-th of the other classes.
    """
    vectors = _support_vectors(node, x, sum(counts))
    numbers = node.numbers("coefficients")
    if min(counts) < 0 or len(counts) < 2 or numbers.size != (len(counts) - 1) * len(vectors):
        raise ParameterError(
            node.name, node.op_type, f"its {numbers.size} coefficients do not fit {counts} vectors", "export it again"
        )
    coefficients = numbers.reshape(len(counts) - 1, -1)
    starts = np.cumsum([0, *counts])
    columns = []
    for first, second in combinations(range(len(counts)), 2):
        ours = slice(starts[first], starts[first + 1])
        theirs = slice(starts[second], starts[second + 1])
        columns.append(coefficients[second - 1, ours] @ vectors[ours] + coefficients[first, theirs] @ vectors[theirs])
    return np.stack(columns, axis=1), _biases(node, "rho", len(columns))


def _rule(classes: int) -> str:
    """How labels follow from the scores of a machine with support vectors of so many classes."""
    if classes == 0:
        return scores.LARGEST
    if classes == 2:
        return scores.SMALLER
    return "that of most votes, where each score above 0 is a vote for the first of two classes, else for the second"


def _features(node: OnnxNode) -> Value:
    x = node.activation(0)
    if len(x.shape) != 1:
        raise node.unsupported(f"its input {x} is not one row of features a sample", "flatten it first")
    return x


def _only_linear(node: OnnxNode) -> None:
    node.ignore("kernel_params")
    kernel = str(node.attribute("kernel_type", "LINEAR"))
    if kernel != "LINEAR":
        raise node.unsupported(
            f"its kernel is {kernel}, which costs a secret product for each support vector and feature",
            "train it with kernel='linear', or take a MLP or trees where that is not accurate enough",
        )


def _support_vectors(node: OnnxNode, x: Value, count: int) -> Array:
    numbers = node.numbers("support_vectors")
    if numbers.size != count * x.shape[0]:
        raise ParameterError(
            node.name, node.op_type, f"its support vectors are not {count} of {x.shape[0]} features", "export it again"
        )
    return numbers.reshape(count, x.shape[0])


def _matrix(node: OnnxNode, x: Value, outputs: int) -> Array:
    """The coefficients as a weight [F, outputs]."""
    numbers = node.numbers("coefficients")
    if outputs < 1 or numbers.size != outputs * x.shape[0]:
        raise ParameterError(
            node.name, node.op_type, f"it has {numbers.size} coefficients for {x}", "export the model again"
        )
    return np.ascontiguousarray(numbers.reshape(outputs, x.shape[0]).T)


def _biases(node: OnnxNode, name: str, count: int) -> Array:
    numbers = node.numbers(name)
    if numbers.size not in (0, count):
        raise ParameterError(
            node.name, node.op_type, f"it has {numbers.size} numbers '{name}' for {count} scores", "export it again"
        )
    return numbers if numbers.size else np.zeros(count)


def _dense(node: OnnxNode, x: Value, weight: Array, bias: Array, output: str) -> Value:
    parameters = [node.parameter(np.ascontiguousarray(weight), f"{output}.weight")]
    parameters.append(node.parameter(np.array(bias), f"{output}.bias"))
    return node.emit(Dense(), [x, *parameters], output=output)
