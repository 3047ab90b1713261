"""Trees of scikit-learn as the tree ensembles of ONNX: gradient boosting on histograms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from onnx import numpy_helper

from covey.errors import ModelError

OPSET = 3
"""Of the domain ai.onnx.ml, whose version has thresholds of double precision."""

LOGARITHMIC = ("gamma", "poisson")
"""Losses whose models sum up the logarithm of their result."""


def convert_histogram_classifier(scope: Any, operator: Any, container: Any) -> None:
    """HistGradientBoostingClassifier: one sum for two classes, else one for each."""
    model = operator.raw_operator
    columns = model.n_trees_per_iteration_
    _add(
        operator,
        container,
        "TreeEnsembleClassifier",
        scope.get_unique_operator_name("TreeEnsembleClassifier"),
        post_transform="LOGISTIC" if columns == 1 else "SOFTMAX",
        **_class_labels(model.classes_),
        **_ensemble(model, "class"),
    )


def convert_histogram_regressor(scope: Any, operator: Any, container: Any) -> None:
    """HistGradientBoostingRegressor: the exponential of the sum for losses of counts and the like."""
    model, name = operator.raw_operator, scope.get_unique_operator_name("TreeEnsembleRegressor")
    attributes = {"n_targets": 1, **_ensemble(model, "target")}
    if model.loss not in LOGARITHMIC:
        _add(operator, container, "TreeEnsembleRegressor", name, **attributes)
        return
    raw = scope.get_unique_variable_name("raw")
    _add(operator, container, "TreeEnsembleRegressor", name, output=raw, **attributes)
    container.add_node("Exp", [raw], [operator.outputs[0].full_name], name=scope.get_unique_operator_name("Exp"))


def _add(operator: Any, container: Any, op: str, name: str, output: str | None = None, **attributes: Any) -> None:
    outputs = [variable.full_name for variable in operator.outputs] if output is None else [output]
    container.add_node(
        op, [operator.inputs[0].full_name], outputs, op_domain="ai.onnx.ml", op_version=OPSET, name=name, **attributes
    )


def _class_labels(classes: Any) -> dict[str, Any]:
    if np.asarray(classes).dtype.kind in "US":
        return {"classlabels_strings": [str(label) for label in classes]}
    return {"classlabels_int64s": [int(label) for label in classes]}


def _ensemble(model: Any, kind: str) -> dict[str, Any]:
    """The trees of all iterations, each of which adds to one column; `kind` is 'class' or 'target'."""
    if model.is_categorical_ is not None:
        raise ModelError(
            f"the {type(model).__name__} splits categories into sets, which has no secure form: fit it with "
            f"categorical_features=None, on categories that an OneHotEncoder or OrdinalEncoder makes numbers"
        )
    trees = [(column, tree.nodes) for iteration in model._predictors for column, tree in enumerate(iteration)]
    rows = list(_rows(trees))
    leaves = [row for row in rows if row["modes"] == "LEAF"]
    names = ("treeids", "nodeids", "featureids", "modes", "truenodeids", "falsenodeids", "missing_value_tracks_true")
    return {
        **{f"nodes_{name}": [row[name] for row in rows] for name in names},
        "nodes_values_as_tensor": _doubles([row["values"] for row in rows]),
        f"{kind}_treeids": [row["treeids"] for row in leaves],
        f"{kind}_nodeids": [row["nodeids"] for row in leaves],
        f"{kind}_ids": [row["column"] for row in leaves],
        f"{kind}_weights_as_tensor": _doubles([row["weight"] for row in leaves]),
        "base_values_as_tensor": _doubles(np.ravel(model._baseline_prediction)),
    }


def _rows(trees: Sequence[tuple[int, Any]]) -> Iterator[dict[str, Any]]:
    for tree, (column, nodes) in enumerate(trees):
        for number, node in enumerate(nodes):
            leaf = bool(node["is_leaf"])
            yield {
                "treeids": tree,
                "nodeids": number,
                "featureids": 0 if leaf else int(node["feature_idx"]),
                "modes": "LEAF" if leaf else "BRANCH_LEQ",
                "values": 0.0 if leaf else float(node["num_threshold"]),
                "truenodeids": 0 if leaf else int(node["left"]),
                "falsenodeids": 0 if leaf else int(node["right"]),
                "missing_value_tracks_true": 0 if leaf else int(node["missing_go_to_left"]),
                "column": column,
                "weight": float(node["value"]),
            }


def _doubles(numbers: Any) -> Any:
    return numpy_helper.from_array(np.asarray(numbers, dtype=np.float64))


def with_missing(proto: Any, model: Any) -> None:
    """Say which way trees and forests send missing features, which skl2onnx leaves out."""
    trees = [part.tree_ for part in np.ravel(getattr(model, "estimators_", [model])) if hasattr(part, "tree_")]
    nodes = [node for node in proto.graph.node if node.op_type.startswith("TreeEnsemble")]
    if not trees or len(nodes) != 1:
        return
    attributes = {attribute.name: attribute for attribute in nodes[0].attribute}
    keys = list(zip(attributes["nodes_treeids"].ints, attributes["nodes_nodeids"].ints, strict=True))
    if len(keys) != sum(tree.node_count for tree in trees) or max(keys)[0] >= len(trees):
        return
    tracks = attributes["nodes_missing_value_tracks_true"].ints
    tracks[:] = [int(trees[tree].missing_go_to_left[number]) for tree, number in keys]
