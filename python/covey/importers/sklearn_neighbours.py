"""Nearest neighbours of scikit-learn: means over those samples of the training data that are nearest."""

from __future__ import annotations

from typing import Any

import numpy as np

from covey.errors import ModelError
from covey.importers.onnx_node import OWN_DOMAIN
from covey.importers.sklearn_nodes import Nodes
from covey.interval import Array


def convert_classifier(scope: Any, operator: Any, container: Any) -> None:
    """KNeighborsClassifier: the part of each class."""
    nodes = Nodes(scope, operator, container)
    model = nodes.model
    if model.outputs_2d_:
        raise ModelError("the KNeighborsClassifier has several outputs: fit a model for each")
    _add(nodes, np.eye(len(model.classes_))[model._y])
    nodes.labels()


def convert_regressor(scope: Any, operator: Any, container: Any) -> None:
    """KNeighborsRegressor: the mean target."""
    nodes = Nodes(scope, operator, container)
    _add(nodes, np.asarray(nodes.model._y, dtype=np.float64).reshape(len(nodes.model._fit_X), -1))


def _add(nodes: Nodes, values: Array) -> None:
    """The mean of the values of the nearest samples."""
    model = nodes.model
    if model.weights not in ("uniform", None) or model.effective_metric_ != "euclidean":
        raise ModelError(
            f"the {type(model).__name__} weighs neighbours by '{model.weights}' in the metric "
            f"'{model.effective_metric_}': take weights='uniform' and the Euclidean metric"
        )
    points = model._fit_X.toarray() if hasattr(model._fit_X, "toarray") else model._fit_X
    near = nodes.add(
        "Neighbours",
        [nodes.x, nodes.constant(np.asarray(points, dtype=np.float64), "points")],
        domain=OWN_DOMAIN,
        count=int(model.n_neighbors),
    )
    nodes.add("MatMul", [near, nodes.constant(values / model.n_neighbors, "values")], nodes.output())
