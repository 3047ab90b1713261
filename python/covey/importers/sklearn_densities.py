"""Classes by normal densities: each is a sum of squares of linear functions, whose Softmax the owner computes."""

from __future__ import annotations

from typing import Any

import numpy as np

from covey.importers.sklearn_nodes import Nodes
from covey.interval import Array


def convert_naive_bayes(scope: Any, operator: Any, container: Any) -> None:
    """GaussianNB."""
    nodes = Nodes(scope, operator, container)
    model = nodes.model
    constants = np.log(model.class_prior_) - 0.5 * np.log(2 * np.pi * model.var_).sum(axis=1)
    _add(nodes, model.theta_, [np.diag(1 / np.sqrt(variances)) for variances in model.var_], constants)


def convert_discriminant(scope: Any, operator: Any, container: Any) -> None:
    """QuadraticDiscriminantAnalysis."""
    nodes = Nodes(scope, operator, container)
    model = nodes.model
    scales = [np.asarray(each) for each in model.scalings_]
    linear = [rotation / np.sqrt(scale) for rotation, scale in zip(model.rotations_, scales, strict=True)]
    constants = np.log(model.priors_) - 0.5 * np.array([np.log(scale).sum() for scale in scales])
    _add(nodes, np.asarray(model.means_), linear, constants)


def _add(nodes: Nodes, means: Array, linear: list[Array], constants: Array) -> None:
    """Of each class: a constant less half the square of (x - mean) times a matrix. Softmax heeds differences alone."""
    weight = np.concatenate(linear, axis=1)
    bias = np.concatenate([-mean @ matrix for mean, matrix in zip(means, linear, strict=True)])
    z = nodes.dense(nodes.x, weight, bias)
    squares = nodes.add("Mul", [z, z])
    owners = np.repeat(np.arange(len(linear)), [matrix.shape[1] for matrix in linear])
    halves = np.where(owners[:, None] == np.arange(len(linear)), -0.5, 0.0)
    nodes.scores(nodes.dense(squares, halves, constants - constants[0]))


def convert_linear_discriminant(scope: Any, operator: Any, container: Any) -> None:
    """LinearDiscriminantAnalysis: the Softmax of its decisions. skl2onnx doubles those between two classes."""
    nodes = Nodes(scope, operator, container)
    weight, bias = nodes.model.coef_.T, nodes.model.intercept_
    if len(nodes.model.classes_) == 2:
        weight, bias = np.pad(weight, ((0, 0), (1, 0))), np.pad(bias, (1, 0))
    nodes.scores(nodes.dense(nodes.x, weight, bias))
