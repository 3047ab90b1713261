"""Kernels of support vector machines: a function of a row of features and each of some vectors, which are weights."""

from __future__ import annotations

import numpy as np

from covey.functions import DECAY, TANH
from covey.importers.onnx_node import OWN_DOMAIN, OnnxNode, from_onnx
from covey.interval import Array
from covey.ir import Value
from covey.ops.dense import Dense
from covey.ops.distances import SquaredDistances
from covey.ops.mul import Mul
from covey.ops.scalar import Scalar
from covey.ops.sub import Sub

KERNELS = ("LINEAR", "RBF", "POLY", "SIGMOID")

MOST_DEGREE = 16
"""Polynomials beyond it hardly have values that a ring holds."""


@from_onnx("Kernel", domain=OWN_DOMAIN)
def _kernel(node: OnnxNode) -> None:
    x, vectors, kernel = node.activation(0), node.weights(1, "vectors"), str(node.attribute("kernel"))
    parameters = np.array([float(node.attribute(name, 0.0)) for name in ("gamma", "summand", "degree")])
    if kernel not in KERNELS[1:] or vectors.ndim != 2 or x.shape != vectors.shape[1:]:
        raise node.unsupported(f"it is no kernel of {x} and vectors {list(vectors.shape)}", "export the model again")
    node.alias(emit_kernel(node, x, vectors, kernel, parameters, node.outputs[0]))


def emit_kernel(node: OnnxNode, x: Value, vectors: Array, kernel: str, parameters: Array, hint: str) -> Value:
    """[N, K] for x [N, F] and vectors [K, F]; the parameters are gamma, the summand and the degree."""
    gamma, summand, degree = parameters
    if kernel == "RBF":
        return _gaussian(node, x, vectors, gamma, hint)
    products = [node.parameter(np.ascontiguousarray(gamma * vectors.T), f"{hint}.vectors")]
    products.append(node.parameter(np.full(len(vectors), summand), f"{hint}.summand"))
    y = node.emit(Dense(), [x, *products], output=f"{hint}.products")
    if kernel == "SIGMOID":
        return node.emit(Scalar(TANH), [y], output=f"{hint}.values")
    if not (float(degree).is_integer() and 1 <= degree <= MOST_DEGREE):
        raise node.unsupported(f"its kernel is of degree {degree:g}", f"train it with a degree of 1 to {MOST_DEGREE}")
    return _power(node, y, int(degree), hint)


def _gaussian(node: OnnxNode, x: Value, vectors: Array, gamma: float, hint: str) -> Value:
    """Exp of -gamma · |x - v|², with features that are moved and scaled so that distances are what Exp is given.

    Numbers are smallest around the vectors' centre, and fixed-point numbers have the more digits.
    """
    if not gamma > 0:
        raise node.unsupported(f"its gamma is {gamma:g}", "train it with a gamma above 0")
    centre = vectors.mean(axis=0)
    moved = node.emit(Sub(), [x, node.parameter(centre, f"{hint}.centre")], output=f"{hint}.moved")
    factor = np.full(len(centre), np.sqrt(gamma))
    scaled = node.emit(Mul(), [moved, node.parameter(factor, f"{hint}.factor")], output=f"{hint}.scaled")
    points = node.parameter(np.ascontiguousarray(((vectors - centre) * factor).T), f"{hint}.points")
    distances = node.emit(SquaredDistances(), [scaled, points], output=f"{hint}.distances")
    return node.emit(Scalar(DECAY), [distances], output=f"{hint}.values")


def _power(node: OnnxNode, x: Value, exponent: int, hint: str) -> Value:
    """x to a whole power, by squares of squares."""
    result, square, name = None, x, f"{hint}.power"
    while True:
        if exponent & 1:
            result = square if result is None else node.emit(Mul(), [square, result], output=name)
        exponent >>= 1
        if not exponent:
            assert result is not None
            return result
        square = node.emit(Mul(), [square, square], output=f"{hint}.square")
