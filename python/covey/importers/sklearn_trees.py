"""Trees of scikit-learn as the tree ensembles of ONNX, whose thresholds are of double precision."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import TensorProto, numpy_helper

from covey.errors import ModelError
from covey.importers.sklearn_nodes import Nodes
from covey.interval import Array

LOGARITHMIC = ("gamma", "poisson")
"""Losses whose models sum up the logarithm of their result."""


def convert_histogram_classifier(scope: Any, operator: Any, container: Any) -> None:
    """HistGradientBoostingClassifier: a sum for each class, but that of the first of two is 0."""
    nodes = Nodes(scope, operator, container)
    nodes.scores(_histograms(nodes, len(nodes.model.classes_)))


def convert_histogram_regressor(scope: Any, operator: Any, container: Any) -> None:
    """HistGradientBoostingRegressor: the exponential of the sum for losses of counts and the like."""
    nodes = Nodes(scope, operator, container)
    if nodes.model.loss in LOGARITHMIC:
        nodes.add("Exp", [_histograms(nodes, 1)], nodes.output())
    else:
        _histograms(nodes, 1, nodes.output())


def convert_boosted_classifier(scope: Any, operator: Any, container: Any) -> None:
    """AdaBoostClassifier of trees: each has a vote for one class, which is against all others."""
    nodes = Nodes(scope, operator, container)
    model = nodes.model
    classes, total = model.n_classes_, model.estimator_weights_[: len(model.estimators_)].sum()
    trees = []
    for weight, part in zip(model.estimator_weights_, model.estimators_, strict=False):
        if not hasattr(part, "tree_"):
            raise ModelError(
                f"the AdaBoostClassifier votes by {type(part).__name__}, whose votes are secret classes: take trees, "
                f"or a VotingClassifier with voting='soft'"
            )
        votes = np.full((part.tree_.node_count, classes), -1.0 / (classes - 1))
        places = np.searchsorted(model.classes_, part.classes_[part.tree_.value[:, 0].argmax(axis=1)])
        votes[range(len(votes)), places] = 1.0
        trees.append(_tree(part.tree_, votes * weight / total / (classes - 1)))
    nodes.scores(_ensemble(nodes, trees, classes))


def convert_isolation_forest(scope: Any, operator: Any, container: Any) -> None:
    """IsolationForest: its decision function, -2^(-mean depth of a sample's leaves / that of any sample) - offset."""
    nodes = Nodes(scope, operator, container)
    model = nodes.model
    usual = len(model.estimators_) * _usual_depth(model._max_samples)
    trees = []
    for number, (part, features) in enumerate(zip(model.estimators_, model.estimators_features_, strict=True)):
        depths = model._decision_path_lengths[number] + model._average_path_length_per_tree[number] - 1.0
        trees.append(_tree(part.tree_, -np.log(2.0) * depths[:, None] / usual, features))
    power = nodes.add("Exp", [_ensemble(nodes, trees, 1)])
    offset = nodes.constant(np.array([-model.offset_]), "offset")
    nodes.add("Sub", [offset, power], nodes.output())
    nodes.add("Cast", [nodes.add("Sign", [nodes.output()])], nodes.output(0), to=TensorProto.INT64)


def _histograms(nodes: Nodes, columns: int, output: str | None = None) -> str:
    """The sums of all iterations' trees, each of which adds to one column; there may be columns before theirs."""
    model = nodes.model
    if model.is_categorical_ is not None:
        raise ModelError(
            f"the {type(model).__name__} splits categories into sets, which has no secure form: fit it with "
            f"categorical_features=None, on categories that an OneHotEncoder or OrdinalEncoder makes numbers"
        )
    first = columns - model.n_trees_per_iteration_
    trees = []
    for iteration in model._predictors:
        for column, tree in enumerate(iteration, first):
            rows = tree.nodes
            values = np.zeros((len(rows), columns))
            values[:, column] = rows["value"]
            children = np.where(rows["is_leaf"], -1, rows["left"].astype(np.int64)), rows["right"].astype(np.int64)
            trees.append(
                _Tree(*children, rows["feature_idx"], rows["num_threshold"], rows["missing_go_to_left"], values)
            )
    base = np.concatenate([np.zeros(first), np.ravel(model._baseline_prediction)])
    return _ensemble(nodes, trees, columns, base, output)


def _usual_depth(samples: int) -> float:
    """That of a leaf in a random tree of so many samples."""
    if samples <= 2:
        return max(0.0, samples - 1.0)
    return 2.0 * (math.log(samples - 1.0) + float(np.euler_gamma)) - 2.0 * (samples - 1.0) / samples


@dataclass(frozen=True)
class _Tree:
    """Of each node: its children, the left one -1 in a leaf, what it compares, and what it adds [.., results]."""

    left: Any
    right: Any
    features: Any
    thresholds: Any
    missing_left: Any
    values: Array


def _tree(tree: Any, values: Array, features: Any = None) -> _Tree:
    """A tree of scikit-learn with other values, whose features are those of a sample that it was given."""
    found = tree.feature if features is None else np.asarray(features)[np.maximum(tree.feature, 0)]
    return _Tree(tree.children_left, tree.children_right, found, tree.threshold, tree.missing_go_to_left, values)


def _ensemble(nodes: Nodes, trees: list[_Tree], results: int, base: Any = (), output: str | None = None) -> str:
    """The sums of the trees' leaves [N, results], and of `base`."""
    counts = [len(tree.left) for tree in trees]
    left, right, features, thresholds, missing = (
        np.concatenate([getattr(tree, name) for tree in trees])
        for name in ("left", "right", "features", "thresholds", "missing_left")
    )
    values = np.concatenate([tree.values for tree in trees])
    owners, numbers = np.repeat(range(len(trees)), counts), np.concatenate([np.arange(count) for count in counts])
    leaf = left < 0
    given = leaf[:, None] & (values != 0.0)
    given[leaf.argmax(), 0] |= not given.any()  # ONNX has no ensemble that gives nothing
    places, columns = np.nonzero(given)
    lists = {
        "nodes_treeids": owners,
        "nodes_nodeids": numbers,
        "nodes_featureids": np.where(leaf, 0, features),
        "nodes_truenodeids": np.where(leaf, 0, left),
        "nodes_falsenodeids": np.where(leaf, 0, right),
        "nodes_missing_value_tracks_true": np.where(leaf, 0, missing),
        "target_treeids": owners[places],
        "target_nodeids": numbers[places],
        "target_ids": columns,
    }
    doubles = {
        "nodes_values_as_tensor": np.where(leaf, 0.0, thresholds),
        "target_weights_as_tensor": values[places, columns],
        **({"base_values_as_tensor": np.asarray(base)} if len(base) else {}),
    }
    return nodes.add(
        "TreeEnsembleRegressor",
        [nodes.x],
        output,
        domain="ai.onnx.ml",
        n_targets=results,
        nodes_modes=["LEAF" if each else "BRANCH_LEQ" for each in leaf],
        **{name: [int(each) for each in array] for name, array in lists.items()},
        **{name: numpy_helper.from_array(array.astype(np.float64)) for name, array in doubles.items()},
    )


def with_missing(proto: Any, model: Any) -> None:
    """Say which way trees and forests send missing features, which skl2onnx leaves out."""
    forests = list(_forests(model))
    for node in proto.graph.node:
        if not node.op_type.startswith("TreeEnsemble"):
            continue
        attributes = {attribute.name: attribute for attribute in node.attribute}
        keys = list(zip(attributes["nodes_treeids"].ints, attributes["nodes_nodeids"].ints, strict=True))
        features = attributes["nodes_featureids"].ints
        found = next((trees for trees in forests if _are(trees, keys, features)), None)
        if found is not None:
            forests.remove(found)  # another may be like it but for where missing features go
            tracks = attributes["nodes_missing_value_tracks_true"].ints
            tracks[:] = [int(found[tree].missing_go_to_left[number]) for tree, number in keys]


def _forests(model: Any) -> Iterator[list[Any]]:
    """The trees of each forest in a model, in the order of their conversion; a single one is a forest too."""
    if hasattr(model, "tree_"):
        yield [model.tree_]
        return
    parts = getattr(model, "estimators_", [])
    parts = list(parts.ravel() if isinstance(parts, np.ndarray) else parts)
    trees = [part.tree_ for part in parts if hasattr(part, "tree_")]
    if len(trees) > 1:
        yield trees
    parts += [part for _, part in getattr(model, "steps", [])]
    parts += [part.estimator for part in getattr(model, "calibrated_classifiers_", [])]
    parts += [getattr(model, name) for name in ("final_estimator_", "best_estimator_") if hasattr(model, name)]
    for part in parts:
        yield from _forests(part)


def _are(trees: list[Any], keys: list[tuple[int, int]], features: Any) -> bool:
    """Whether an ensemble of ONNX has these trees: nodes of the same numbers, which read the same features."""
    if len(keys) != sum(tree.node_count for tree in trees) or max(keys)[0] >= len(trees):
        return False
    return all(
        number < trees[tree].node_count and trees[tree].feature[number] in (feature, -2)
        for (tree, number), feature in zip(keys, features, strict=True)
    )
