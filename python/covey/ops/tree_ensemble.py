"""TreeEnsembleClassifier and TreeEnsembleRegressor: random forests, boosted trees, single trees.

Which feature a node compares, and the shape of every tree, are part of the program; thresholds and leaves are weights.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from covey.errors import ParameterError
from covey.importers.onnx_node import ML_DOMAIN, OnnxNode, from_onnx
from covey.interval import Array
from covey.ir import DType, Value
from covey.ops import scores
from covey.ops.trees import Below, LeafSum, Leaves

MODES = {
    "BRANCH_LEQ": (True, False),
    "BRANCH_LT": (False, False),
    "BRANCH_GTE": (False, True),
    "BRANCH_GT": (True, True),
}
"""Each comparison as (whether equality counts as below, whether the true branch is that of what is not below)."""

BEYOND = 2.0**100
"""What stands for infinite thresholds, which tell missing features from all others: no feature is as large."""


@dataclass
class Forest:
    """The trees of a node by levels: what each inner node compares, and the weights [C] of every leaf.

    `constant` is the sum of the trees that are a single leaf.
    """

    constant: Array
    features: list[int] = field(default_factory=list)
    thresholds: list[float] = field(default_factory=list)
    closed: list[bool] = field(default_factory=list)
    missing: list[bool] = field(default_factory=list)
    roots: int = 0
    parents: list[tuple[int, ...]] = field(default_factory=list)
    leaves: list[int] = field(default_factory=list)
    weights: list[Array] = field(default_factory=list)
    trees: list[int] = field(default_factory=list)


@from_onnx("TreeEnsembleRegressor", domain=ML_DOMAIN)
def _tree_ensemble_regressor(node: OnnxNode) -> None:
    how, targets = scores.transform(node), int(node.attribute("n_targets", 1))
    aggregate = str(node.attribute("aggregate_function", "SUM"))
    if aggregate not in ("SUM", "AVERAGE"):
        raise node.unsupported(f"it takes the {aggregate} of its trees", "export the model with SUM or AVERAGE")
    forest, base = _forest(node, "target", targets), _base(node, targets)
    share = len({*(node.integers("nodes_treeids") or [])}) if aggregate == "AVERAGE" else 1
    name = node.outputs[0]
    raw = _emit(node, forest, base, name if how == "NONE" else f"{name}.raw", 1.0 / share)
    scores.finish(node, raw, how, name)


@from_onnx("TreeEnsembleClassifier", domain=ML_DOMAIN)
def _tree_ensemble_classifier(node: OnnxNode) -> None:
    how = scores.transform(node)
    classes, name = scores.labels(node)
    ids = set(node.integers("class_ids") or [])
    if classes == 2 and len(ids) == 1:
        # Both classes by one score. Models give it to class 0, which then stands for the other.
        bases = node.numbers("base_values")
        if ids != {0} or bases.size > 1:
            raise node.unsupported(
                f"it scores class {ids.pop()} of two alone, with {bases.size} base values",
                "score both, or class 0 alone with one base value",
            )
        share = how == "NONE" and bool((node.numbers("class_weights") >= 0).all())
        score = _emit(node, _forest(node, "class", 1), bases if bases.size else np.zeros(1), f"{name}.second")
        scores.finish_two(node, score, how, name, share=share)
        return
    forest, base = _forest(node, "class", classes), _base(node, classes)
    raw = _emit(node, forest, base, name if how == "NONE" else f"{name}.raw")
    scores.finish(node, raw, how, name)


def _base(node: OnnxNode, count: int) -> Array:
    numbers = node.numbers("base_values")
    if numbers.size not in (0, count):
        raise node.unsupported(f"it has {numbers.size} base values for {count} results", "export the model again")
    return numbers if numbers.size else np.zeros(count)


def _emit(node: OnnxNode, forest: Forest, base: Array, output: str, factor: float = 1.0) -> Value:
    """The comparisons, the leaves reached and their sum."""
    x = node.activation(0)
    if not forest.features:
        raise node.unsupported("none of its trees compares anything", "it gives a constant: remove it")
    thresholds = node.parameter(np.array(forest.thresholds), f"{output}.thresholds")
    below = Below(tuple(forest.features), tuple(forest.closed), tuple(forest.missing))
    bits = node.emit(below, [x, thresholds], output=f"{output}.below", dtype=DType.BOOL)
    structure = Leaves(forest.roots, tuple(forest.parents), tuple(forest.leaves))
    reached = node.emit(structure, [bits], output=f"{output}.reached", dtype=DType.BOOL)
    weights = node.parameter(np.array(forest.weights) * factor, f"{output}.leaves")
    bias = node.parameter(base + forest.constant * factor, f"{output}.base")
    return node.emit(LeafSum(tuple(forest.trees)), [reached, weights, bias], output=output)


def _forest(node: OnnxNode, kind: str, results: int) -> Forest:
    """The trees of a node whose leaves give `results` numbers; `kind` is what its attributes call them."""
    node.check_shape([results])
    node.ignore("nodes_hitrates", "nodes_hitrates_as_tensor")
    tree_ids, node_ids = node.integers("nodes_treeids") or [], node.integers("nodes_nodeids") or []
    yes, no = node.integers("nodes_truenodeids") or [], node.integers("nodes_falsenodeids") or []
    features, thresholds = node.integers("nodes_featureids") or [], node.numbers("nodes_values", BEYOND)
    modes = [mode.decode("utf-8", "replace") for mode in node.attribute("nodes_modes", [])]
    if not len(tree_ids) == len(node_ids) == len(yes) == len(no) == len(features) == len(thresholds) == len(modes):
        raise _damaged(node, "its lists of nodes differ in length")
    missing = node.integers("nodes_missing_value_tracks_true") or [0] * len(modes)
    if len(missing) != len(modes):
        raise _damaged(node, "its lists of nodes differ in length")
    if min(features, default=0) < 0:
        raise _damaged(node, f"it compares feature {min(features)}")
    node.check_shape([len(modes), results])
    place = {key: index for index, key in enumerate(zip(tree_ids, node_ids, strict=True))}
    inner = [index for index, mode in enumerate(modes) if mode != "LEAF"]
    for index in inner:
        if modes[index] not in MODES:
            raise node.unsupported(
                f"its node {node_ids[index]} of tree {tree_ids[index]} is a {modes[index]}",
                f"export the model with {', '.join(MODES)} alone",
            )
    try:
        children = {i: (place[tree_ids[i], yes[i]], place[tree_ids[i], no[i]]) for i in inner}
    except KeyError as error:
        raise _damaged(node, f"it has no node {error.args[0][1]} in tree {error.args[0][0]}") from None
    leaf_weights = _leaf_weights(node, kind, results, place, len(modes))
    below_others = {child for pair in children.values() for child in pair}
    roots = [index for index in range(len(modes)) if index not in below_others]
    if len(place) != len(modes) or sorted(tree_ids[root] for root in roots) != sorted(set(tree_ids)):
        raise _damaged(node, "its nodes are no trees")
    alone = [root for root in roots if root not in children]
    forest = Forest(sum((leaf_weights[root] for root in alone), np.zeros(results)))
    level = [root for root in roots if root in children]
    forest.roots, offset, seen = len(level), 0, len(roots)
    while level:
        ones, zeros = [], []
        for index in level:
            closed, swapped = MODES[modes[index]]
            forest.features.append(features[index])
            forest.thresholds.append(float(thresholds[index]))
            forest.closed.append(closed)
            forest.missing.append(bool(missing[index]) != swapped)
            first, second = children[index]
            ones.append(second if swapped else first)
            zeros.append(first if swapped else second)
        both = [*ones, *zeros]
        seen += len(both)
        if seen > len(modes):
            raise _damaged(node, "some of its nodes have two parents")
        for position, child in enumerate(both):
            if child not in children:
                forest.leaves.append(offset + position)
                forest.weights.append(leaf_weights[child])
                forest.trees.append(tree_ids[child])
        positions = tuple(position for position, child in enumerate(both) if child in children)
        level, offset = [both[position] for position in positions], offset + len(both)
        if positions:
            forest.parents.append(positions)
    if seen != len(modes):
        raise _damaged(node, "its nodes are no trees")
    # Trees by number from 0, whatever the model calls them.
    numbers = {tree: number for number, tree in enumerate(sorted(set(forest.trees)))}
    forest.trees = [numbers[tree] for tree in forest.trees]
    return forest


def _leaf_weights(node: OnnxNode, kind: str, results: int, place: dict[tuple[int, int], int], count: int) -> Array:
    """What each node adds to each result if it is the leaf reached, [nodes, results]."""
    ids, weights = node.integers(f"{kind}_ids") or [], node.numbers(f"{kind}_weights")
    trees, nodes = node.integers(f"{kind}_treeids") or [], node.integers(f"{kind}_nodeids") or []
    if not len(ids) == len(weights) == len(trees) == len(nodes):
        raise _damaged(node, "its lists of leaves differ in length")
    found = np.zeros((count, results))
    for result, weight, key in zip(ids, weights, zip(trees, nodes, strict=True), strict=True):
        # Where there is but one class, its number may be any.
        column = 0 if results == 1 and kind == "class" else result
        if key not in place or not 0 <= column < results:
            raise _damaged(node, f"it has a weight for result {result} of node {key[1]} in tree {key[0]}")
        found[place[key], column] += weight
    return found


def _damaged(node: OnnxNode, reason: str) -> ParameterError:
    return ParameterError(node.name, node.op_type, reason, "export the model again")
