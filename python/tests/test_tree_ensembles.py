"""Tree ensembles: against onnxruntime, against exact comparisons, what they cost, what is refused."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import covey
import ensembles
import exact
import interpreter
from covey._proto import program_pb2 as pb
from covey.compiled import prepare
from covey.lowering import Settings
from covey.passes.scale_choice import choose
from ensembles import agree, features, operations

QUICK = settings(max_examples=25, deadline=None, derandomize=True)
FLOAT = TensorProto.FLOAT


@QUICK
@given(st.integers(0, 10**6), st.sampled_from(["SUM", "AVERAGE"]), st.integers(1, 3))
def test_tree_ensemble_regressor(seed: int, aggregate: str, targets: int) -> None:
    rng = np.random.default_rng(seed)
    trees = [ensembles.Branch(0, "BRANCH_LT", 0.5, *(ensembles.grow(rng, 2, 3, targets) for _ in range(2)))]
    trees += [ensembles.grow(rng, 3, 3, targets) for _ in range(4)]
    lists = ensembles.attributes(trees, "target", targets)
    base = [float(np.float32(value)) for value in rng.normal(size=targets)]
    proto = ensembles.single(
        "TreeEnsembleRegressor", 3, n_targets=targets, aggregate_function=aggregate, base_values=base, **lists
    )
    agree(proto, features(3))


@pytest.mark.parametrize("how", ["NONE", "SOFTMAX", "LOGISTIC"])
@pytest.mark.parametrize("classes", [2, 3])
def test_tree_ensemble_classifier(how: str, classes: int) -> None:
    rng = np.random.default_rng(3)
    trees = [ensembles.grow(rng, 4, 3, classes, ["BRANCH_LEQ"]) for _ in range(5)]
    lists = ensembles.attributes(trees, "class", classes)
    labels = list(range(classes))
    proto = ensembles.single(
        "TreeEnsembleClassifier", 3, labels=True, classlabels_int64s=labels, post_transform=how, **lists
    )
    agree(proto, features(3))


# onnxruntime leaves the logistic function out where all weights are positive.
@pytest.mark.parametrize(("how", "positive"), [("NONE", True), ("NONE", False), ("LOGISTIC", False)])
def test_two_classes_with_one_score(how: str, positive: bool) -> None:
    rng = np.random.default_rng(4)
    lists = ensembles.attributes([ensembles.grow(rng, 3, 3, 1) for _ in range(5)], "class", 1)
    lists["class_weights"] = [abs(weight) / 5 if positive else weight for weight in lists["class_weights"]]
    proto = ensembles.single(
        "TreeEnsembleClassifier", 3, labels=True, classlabels_int64s=[0, 1], post_transform=how, **lists
    )
    compiled = agree(proto, features(3))
    if how == "LOGISTIC":
        # The owner's Softmax of (0, z): no sigmoid is computed by the parties.
        assert "relu" not in operations(compiled)


@pytest.mark.parametrize("how", ["NONE", "LOGISTIC"])
def test_one_base_value_for_one_score(how: str) -> None:
    """As scikit-learn's and XGBoost's models of two classes have it."""
    lists = ensembles.attributes(
        [ensembles.Branch(0, "BRANCH_LEQ", 0.5, np.array([-0.3]), np.array([0.7]))], "class", 1
    )
    proto = ensembles.single(
        "TreeEnsembleClassifier",
        3,
        labels=True,
        classlabels_int64s=[0, 1],
        post_transform=how,
        **lists,
        base_values=[0.2],
    )
    agree(proto, features(3))


@pytest.mark.parametrize("changed", [{"class_ids": [1, 1]}, {"base_values": [0.2, 0.3]}, {"class_ids": [5, 5]}])
@pytest.mark.parametrize("how", ["NONE", "LOGISTIC"])
def test_other_scores_of_one_class_are_refused(how: str, changed: dict[str, Any]) -> None:
    """What they mean for the other class, ONNX does not say."""
    lists = ensembles.attributes([ensembles.Branch(0, "BRANCH_LEQ", 0.5, np.array([0.3]), np.array([0.7]))], "class", 1)
    proto = ensembles.single(
        "TreeEnsembleClassifier",
        3,
        labels=True,
        classlabels_int64s=[0, 1],
        post_transform=how,
        **{**lists, **changed},
    )
    with pytest.raises(
        covey.UnsupportedError, match=r"it scores class \d of two alone, with \d base values; score both"
    ):
        covey.compile(proto, input_range=(0, 1))


@QUICK
@given(st.integers(0, 10**6), st.integers(0, 6), st.sampled_from([16, 24, 32, 64]))
def test_thresholds_are_exact_on_fixed_point_numbers(seed: int, bits: int, ring: int) -> None:
    """Each node decides as exact arithmetic does, at, beside and between the numbers that inputs can take."""
    rng = np.random.default_rng(seed)
    trees = [ensembles.Branch(0, "BRANCH_GT", 0.25, *(ensembles.grow(rng, 3, 2, 1) for _ in range(2)))]
    trees += [ensembles.grow(rng, 4, 2, 1) for _ in range(3)]
    proto = ensembles.single("TreeEnsembleRegressor", 2, n_targets=1, **ensembles.attributes(trees, "target", 1))
    data = rng.integers(-3 * 2**bits, 3 * 2**bits + 1, (60, 2)) / 2.0**bits
    data[0] = 1 / 2**bits  # what the samples need is just this scale
    ready = prepare(proto, calibration=data, input_range=(-3, 3))
    # The first program that fits: at this scale leaves are coarse, and `compile` would look for a finer one.
    choice = choose(ready.graph, Settings(ring, 5), ready.ranges, ready.magnitudes, (ring,), 5)
    compiled = ready.finished(choice)
    program = interpreter.program_of(compiled)
    (given,) = (program.values[index] for index in program.inputs)
    assert given.scale <= bits
    (output,) = program.outputs
    got = exact.run(compiled, {"x": data})[output]
    assert program.values[output].scale == 5
    for row, x in zip(got, data, strict=True):
        numbers = [Fraction(float(value)) for value in x]
        assert row[0] == sum(int(np.rint(ensembles.reached(tree, numbers)[0] * 2**5)) for tree in trees)


@pytest.mark.parametrize("calibrated", [np.float32, np.float64])
@pytest.mark.parametrize("mode", ["BRANCH_LT", "BRANCH_LEQ", "BRANCH_GT", "BRANCH_GTE"])
def test_equal_numbers_stay_equal_where_inputs_are_rounded(mode: str, calibrated: Any) -> None:
    """Thresholds that are values of the data, which no scale holds."""
    rng = np.random.default_rng(9)
    data = (rng.integers(-300, 300, (40, 2)) / 100).astype(np.float32)
    trees = [ensembles.Branch(i % 2, mode, float(data[i, i % 2]), *rng.normal(size=(2, 1))) for i in range(24)]
    lists = ensembles.attributes(trees, "target", 1)
    proto = ensembles.single("TreeEnsembleRegressor", 2, n_targets=1, **lists)
    compiled = covey.compile(proto, calibration=np.round(data.astype(calibrated), 2))
    (got,) = interpreter.run(compiled, {"x": data})
    expected = [sum(ensembles.reached(tree, list(row))[0] for tree in trees) for row in data]
    np.testing.assert_allclose(got[:, 0], expected, atol=1e-2)
    if calibrated is np.float64:  # so few bits decide as all do
        program = interpreter.program_of(compiled)
        assert program.values[program.inputs[0]].scale < 16


def test_whole_numbers_next_to_others_keep_their_thresholds() -> None:
    """A threshold just below a whole number stays there, at a scale that is too coarse for the other feature."""
    rng = np.random.default_rng(4)
    data = np.stack([rng.integers(0, 6, 200), rng.integers(0, 10**8, 200) / 100], 1)
    leaves = np.array([1.0]), np.array([2.0])
    trees = [ensembles.Branch(0, "BRANCH_LEQ", 2.9995, *leaves), ensembles.Branch(1, "BRANCH_LEQ", data[7, 1], *leaves)]
    proto = ensembles.single("TreeEnsembleRegressor", 2, n_targets=1, **ensembles.attributes(trees, "target", 1))
    (got,) = interpreter.run(covey.compile(proto, calibration=data, ring=32), {"x": data})
    single = data.astype(np.float32)
    expected = np.where(single[:, 0] <= 2.9995, 1, 2) + np.where(single[:, 1] <= np.float32(data[7, 1]), 1, 2)
    np.testing.assert_array_equal(got[:, 0], expected)


@pytest.mark.parametrize("threshold", [1.7e9, 1e7])
def test_large_numbers_equal_their_thresholds(threshold: float) -> None:
    trees = [ensembles.Branch(0, "BRANCH_LEQ", threshold, np.array([1.0]), np.array([2.0]))]
    proto = ensembles.single("TreeEnsembleRegressor", 1, n_targets=1, **ensembles.attributes(trees, "target", 1))
    compiled = covey.compile(proto, input_range=(0, 2e9), ring=64)
    (result,) = interpreter.run(compiled, {"x": np.array([[threshold], [threshold + 128]])})
    np.testing.assert_array_equal(result, [[1.0], [2.0]])


def test_thresholds_out_of_reach_stay_in_the_ring() -> None:
    trees = [ensembles.Branch(0, "BRANCH_LEQ", 1e30, np.array([1.0]), np.array([2.0]))]
    trees += [ensembles.Branch(0, "BRANCH_GT", -1e30, np.array([4.0]), np.array([8.0]))]
    proto = ensembles.single("TreeEnsembleRegressor", 1, n_targets=1, **ensembles.attributes(trees, "target", 1))
    compiled = covey.compile(proto, input_range=(-1, 1))
    (result,) = interpreter.run(compiled, {"x": np.array([[-1.0], [0.0], [1.0]])})
    np.testing.assert_array_equal(result, [[5.0], [5.0], [5.0]])


def test_all_nodes_are_compared_at_once_and_levels_take_one_product_each() -> None:
    rng = np.random.default_rng(0)

    def full(depth: int) -> Any:
        if depth == 0:
            return rng.normal(size=2)
        return ensembles.Branch(int(rng.integers(3)), "BRANCH_LEQ", 0.0, full(depth - 1), full(depth - 1))

    lists = ensembles.attributes([full(4) for _ in range(7)], "class", 2)
    proto = ensembles.single("TreeEnsembleClassifier", 3, labels=True, classlabels_int64s=[0, 1], **lists)
    done = operations(covey.compile(proto, input_range=(-3, 3)))
    assert done.count("less_than_zero") == 1
    assert done.count("mul") == 3
    assert done.count("dense") == 1
    assert "truncate" not in done


def test_scaling_moves_into_thresholds() -> None:
    rng = np.random.default_rng(5)
    lists = ensembles.attributes([ensembles.grow(rng, 3, 3, 1) for _ in range(4)], "target", 1)
    scaler = helper.make_node("Scaler", ["x"], ["s"], domain=ensembles.ML, offset=[0.5, -1, 2], scale=[2, 0.5, 0.25])
    trees = helper.make_node("TreeEnsembleRegressor", ["s"], ["y"], domain=ensembles.ML, n_targets=1, **lists)
    proto = ensembles.model([scaler, trees], {"x": ["N", 3]}, {"y": FLOAT})
    compiled = agree(proto, features(3))
    assert [entry["how"] for entry in compiled.report["rewrites"] if entry["op"] == "Scaler"] == [
        "moved into the thresholds of TreeEnsembleRegressor_1"
    ]
    done = operations(compiled)
    assert done[0] == "gather"
    assert "truncate" not in done


def test_compared_inputs_have_the_digits_that_samples_need() -> None:
    rng = np.random.default_rng(6)
    lists = ensembles.attributes(
        [ensembles.Branch(i % 2, "BRANCH_LEQ", float(i + 0.5), *rng.normal(size=(2, 1))) for i in range(6)], "target", 1
    )
    proto = ensembles.single("TreeEnsembleRegressor", 2, n_targets=1, **lists)
    whole = rng.integers(0, 8, (30, 2)).astype(float)

    def scale(data: np.ndarray) -> int:
        program = interpreter.program_of(covey.compile(proto, calibration=data))
        return int(program.values[program.inputs[0]].scale)

    assert scale(whole) == 0
    near = whole.copy()
    near[0] = 2.5 + 2.0**-17  # off by so little, and to be told apart
    assert scale(near) >= 17
    program = interpreter.program_of(covey.compile(proto, input_range=(0, 4000)))
    assert program.values[program.inputs[0]].scale > program.values[program.outputs[0]].scale


def test_hidden_features_stay_out_of_the_program() -> None:
    def forest(*compared: int) -> onnx.ModelProto:
        leaves = [np.array([float(value)]) for value in range(4)]
        left, right = (
            ensembles.Branch(compared[i + 1], "BRANCH_LEQ", 0.25 * i, *leaves[2 * i : 2 * i + 2]) for i in range(2)
        )
        trees = [ensembles.Branch(compared[0], "BRANCH_GT", 0.5, left, right)]
        return ensembles.single("TreeEnsembleRegressor", 3, n_targets=1, **ensembles.attributes(trees, "target", 1))

    one, two = (
        covey.compile(forest(*compared), input_range=(-3, 3), hide_features=True) for compared in ((0, 1, 2), (2, 0, 0))
    )
    assert one.program_bytes == two.program_bytes
    shown = (covey.compile(forest(*compared), input_range=(-3, 3)) for compared in ((0, 1, 2), (2, 0, 0)))
    assert next(shown).program_bytes != next(shown).program_bytes
    for line in one.report["reveals"]:
        assert "feature" not in line
    agree(forest(0, 1, 2), features(3), hide_features=True)
    agree(forest(2, 0, 0), features(3), hide_features=True)


def test_models_of_that_domain_alone_are_taken() -> None:
    trees = [ensembles.Branch(0, "BRANCH_LEQ", 0.5, np.array([1.0]), np.array([2.0]))]
    proto = ensembles.single("TreeEnsembleRegressor", 1, n_targets=1, **ensembles.attributes(trees, "target", 1))
    del proto.opset_import[0]
    assert [entry.domain for entry in proto.opset_import] == [ensembles.ML]
    (result,) = interpreter.run(covey.compile(proto, input_range=(0, 1)), {"x": np.array([[0.5], [0.6]])})
    np.testing.assert_array_equal(result, [[1.0], [2.0]])


def test_what_a_run_reveals_names_the_trees() -> None:
    trees = [ensembles.Branch(0, "BRANCH_LEQ", 0.5, np.array([1.0]), np.array([2.0]))]
    proto = ensembles.single("TreeEnsembleRegressor", 1, n_targets=1, **ensembles.attributes(trees, "target", 1))
    compiled = covey.compile(proto, input_range=(0, 1))
    assert any("every tree" in line for line in compiled.report["reveals"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nodes_modes": ["BRANCH_EQ", "LEAF", "LEAF"]}, "BRANCH_EQ"),
        ({"nodes_truenodeids": [7, 0, 0]}, "no node 7 in tree 0"),
        ({"nodes_truenodeids": [0, 0, 0]}, "no trees"),
        ({"nodes_truenodeids": [2, 0, 0]}, "no trees"),
        ({"nodes_nodeids": [0, 1, 1]}, "no trees|no node"),
        ({"nodes_featureids": [5, 0, 0]}, "features"),
        ({"target_nodeids": [1, 9]}, "node 9 in tree 0"),
        ({"target_ids": [0]}, "differ in length"),
        ({"nodes_values": [float("nan"), 0.0, 0.0]}, "nan"),
        ({"post_transform": "PROBIT"}, "PROBIT"),
        ({"aggregate_function": "MIN"}, "MIN"),
        ({"base_values": [1.0, 2.0]}, "base values"),
    ],
)
def test_trees_that_are_refused(change: dict[str, Any], message: str) -> None:
    trees = [ensembles.Branch(0, "BRANCH_LEQ", 0.5, np.array([1.0]), np.array([2.0]))]
    lists = ensembles.attributes(trees, "target", 1)
    proto = ensembles.single("TreeEnsembleRegressor", 1, n_targets=1, **{**lists, **change})
    with pytest.raises(covey.NodeError, match=message) as caught:
        covey.compile(proto, input_range=(0, 1))
    assert "\n" not in str(caught.value)


def test_programs_hold_thresholds_and_leaves_as_secret_weights() -> None:
    rng = np.random.default_rng(10)
    lists = ensembles.attributes([ensembles.grow(rng, 3, 3, 1) for _ in range(3)], "target", 1)
    program = interpreter.program_of(
        covey.compile(ensembles.single("TreeEnsembleRegressor", 3, n_targets=1, **lists), input_range=(-3, 3))
    )
    public = {value.name for value in program.values if value.kind == pb.Value.CONSTANT}
    assert public == {"y.reached.one"}
