"""SVMClassifier and SVMRegressor: a kernel of the features and each support vector, then one dense layer.

With a linear kernel, vectors and coefficients add up to the weights of one dense layer.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from covey.errors import ParameterError
from covey.importers.onnx_node import ML_DOMAIN, OnnxNode, from_onnx
from covey.interval import Array
from covey.ir import Value
from covey.ops import scores
from covey.ops.kernels import KERNELS, emit_kernel
from covey.ops.linear_models import biases, dense, features, matrix


@from_onnx("SVMRegressor", domain=ML_DOMAIN)
def _svm_regressor(node: OnnxNode) -> None:
    x = features(node)
    if node.flag("one_class") or scores.transform(node) != "NONE":
        raise node.unsupported("it gives classes", "export its decision function")
    count, name = int(node.attribute("n_supports", 0)), node.outputs[0]
    weight, bias = node.numbers("coefficients")[:, None], biases(node, "rho", 1)
    if count and len(weight) == count:
        _dense_of_kernel(node, x, _support_vectors(node, x, count), weight, bias, name)
    else:
        _linear_alone(node)
        dense(node, x, matrix(node, x, 1), bias, name)


@from_onnx("SVMClassifier", domain=ML_DOMAIN)
def _svm_classifier(node: OnnxNode) -> None:
    x, how = features(node), scores.transform(node)
    counts = node.integers("vectors_per_class") or []
    slopes, shifts = node.numbers("prob_a"), node.numbers("prob_b")
    classes, name = scores.labels(node, "classlabels_ints", _rule(len(counts)))
    if slopes.size and (len(counts), slopes.size, shifts.size) != (2, 1, 1):
        raise node.unsupported(
            f"it estimates probabilities of {classes} classes, which divides by secrets",
            "train it with probability=False: it predicts the same classes",
        )
    if not counts:
        _linear_alone(node)
        weight = matrix(node, x, node.numbers("coefficients").size // x.shape[0])
        # By onnxruntime's convention all scores share the first number.
        bias = np.full(weight.shape[1], node.numbers("rho")[0] if node.numbers("rho").size else 0.0)
        vectors = None
    else:
        vectors = _support_vectors(node, x, sum(counts))
        weight, bias = _one_against_one(node, len(vectors), counts)

    def decisions(output: str) -> Value:
        if vectors is None:
            return dense(node, x, weight, bias, output)
        return _dense_of_kernel(node, x, vectors, weight, bias, output)

    if slopes.size:  # the logistic function of a multiple of the decision
        weight, bias = slopes * weight, slopes * bias + shifts
        scores.finish_two(node, decisions(f"{name}.second"), "LOGISTIC", name)
        return
    if weight.shape[1] == 1 and classes == 2:
        # By onnxruntime's convention the decision for the first class stands second.
        scores.finish_two(node, decisions(f"{name}.second"), how, name)
        if counts:
            node.scope.first_last.add(name)
        return
    scores.finish(node, decisions(name if how == "NONE" else f"{name}.raw"), how, name)


def _dense_of_kernel(node: OnnxNode, x: Value, vectors: Array, weight: Array, bias: Array, output: str) -> Value:
    """The sums of the kernel's values times `weight` [K, M], and a bias."""
    kernel, parameters = _kernel(node), node.numbers("kernel_params")
    if kernel == "LINEAR":
        return dense(node, x, vectors.T @ weight, bias, output)
    if parameters.size != 3:
        reason = f"it has {parameters.size} numbers 'kernel_params' in place of 3"
        raise ParameterError(node.name, node.op_type, reason, "export it again")
    used = weight.any(axis=1) if weight.any() else np.ones(len(vectors), dtype=bool)
    values = emit_kernel(node, x, vectors[used], kernel, parameters, f"{output}.kernel")
    return dense(node, values, weight[used], bias, output)


def _kernel(node: OnnxNode) -> str:
    kernel = str(node.attribute("kernel_type", "LINEAR"))
    if kernel not in KERNELS:
        raise node.unsupported(f"its kernel is {kernel}", f"train it with one of {', '.join(KERNELS)}")
    return kernel


def _linear_alone(node: OnnxNode) -> None:
    """Refuse other kernels where there are no support vectors."""
    node.ignore("kernel_params")
    kernel = _kernel(node)
    if kernel != "LINEAR":
        raise ParameterError(node.name, node.op_type, f"its {kernel} kernel has no support vectors", "export it again")


def _one_against_one(node: OnnxNode, vectors: int, counts: list[int]) -> tuple[Array, Array]:
    """Weight [vectors, pairs] and bias [pairs] of the decision between each two classes, in order.

    Row r of the coefficients holds, for the vectors of a class, those against the r-th of the other classes.
    """
    numbers = node.numbers("coefficients")
    if min(counts) < 0 or len(counts) < 2 or numbers.size != (len(counts) - 1) * vectors:
        raise ParameterError(
            node.name, node.op_type, f"its {numbers.size} coefficients do not fit {counts} vectors", "export it again"
        )
    coefficients = numbers.reshape(len(counts) - 1, -1)
    starts = np.cumsum([0, *counts])
    pairs = list(combinations(range(len(counts)), 2))
    weight = np.zeros((vectors, len(pairs)))
    for column, (first, second) in enumerate(pairs):
        ours = slice(starts[first], starts[first + 1])
        theirs = slice(starts[second], starts[second + 1])
        weight[ours, column] = coefficients[second - 1, ours]
        weight[theirs, column] = coefficients[first, theirs]
    return weight, biases(node, "rho", len(pairs))


def _rule(classes: int) -> str:
    """How labels follow from the scores of a machine with support vectors of so many classes."""
    if classes == 0:
        return scores.LARGEST
    if classes == 2:
        return scores.SMALLER
    return "that of most votes, where each score above 0 is a vote for the first of two classes, else for the second"


def _support_vectors(node: OnnxNode, x: Value, count: int) -> Array:
    numbers = node.numbers("support_vectors")
    if numbers.size != count * x.shape[0]:
        raise ParameterError(
            node.name, node.op_type, f"its support vectors are not {count} of {x.shape[0]} features", "export it again"
        )
    return numbers.reshape(count, x.shape[0])
