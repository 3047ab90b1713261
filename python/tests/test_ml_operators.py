"""The domain ai.onnx.ml: each operator against onnxruntime, trees against exact comparisons, refusals."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import builders
import covey
import ensembles
import exact
import interpreter
from covey import reference
from covey._proto import program_pb2 as pb
from covey.importers.onnx import examine, import_model
from covey.ir import Status
from covey.verify import float_reference

QUICK = settings(max_examples=25, deadline=None, derandomize=True)
FLOAT, INTEGER = TensorProto.FLOAT, TensorProto.INT64


def features(count: int, samples: int = 40, seed: int = 1) -> np.ndarray:
    """Multiples of an eighth in [-3, 3], which meet thresholds."""
    return np.random.default_rng(seed).integers(-24, 25, (samples, count)) / 8


def agree(proto: onnx.ModelProto, data: np.ndarray, tolerance: float = 0.02, **options: Any) -> covey.Compiled:
    """Float reference and program against what onnxruntime gives for the outputs that are no labels."""
    graph = import_model(proto)
    names = [output.name for output in proto.graph.output]
    due = dict(zip(names, builders.float_results(proto, {"x": data}), strict=True))
    expected = [np.asarray(due[name]) for name in graph.exported]
    assert expected
    for result, wanted in zip(reference.outputs(graph, {"x": data}), expected, strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-4)
    compiled = covey.compile(proto, **{"calibration": data, **options})
    for name, result, wanted in zip(
        compiled.graph.outputs, interpreter.run(compiled, {"x": data}), expected, strict=True
    ):
        powers = np.exp(result) if name in compiled.graph.postprocess else None
        got = result if powers is None else powers / powers.sum(axis=-1, keepdims=True)
        np.testing.assert_allclose(got, wanted, atol=tolerance)
    return compiled


def operations(compiled: covey.Compiled) -> list[str]:
    return [str(node.WhichOneof("op")) for node in interpreter.program_of(compiled).nodes]


# Trees


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


@pytest.mark.parametrize("how", ["NONE", "LOGISTIC"])
@pytest.mark.parametrize("positive", [True, False])
def test_two_classes_with_one_score(how: str, positive: bool) -> None:
    if positive and how == "LOGISTIC":
        pytest.skip("onnxruntime leaves the logistic function out where all weights are positive")
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
    compiled = covey.compile(proto, calibration=data, input_range=(-3, 3), ring=ring, scale=5)
    program = interpreter.program_of(compiled)
    (given,) = (program.values[index] for index in program.inputs)
    assert given.scale <= bits
    (output,) = program.outputs
    got = exact.run(compiled, {"x": data})[output]
    assert program.values[output].scale == 5
    for row, x in zip(got, data, strict=True):
        numbers = [Fraction(float(value)) for value in x]
        assert row[0] == sum(int(np.rint(ensembles.reached(tree, numbers)[0] * 2**5)) for tree in trees)


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
    done = operations(agree(proto, features(3)))
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


# Linear models


@pytest.mark.parametrize("how", ["NONE", "SOFTMAX", "LOGISTIC"])
@pytest.mark.parametrize("classes", [2, 4])
def test_linear_classifier(how: str, classes: int) -> None:
    rng = np.random.default_rng(7)
    weights = rng.normal(size=(classes, 3))
    proto = ensembles.single(
        "LinearClassifier",
        3,
        labels=True,
        coefficients=weights.ravel().tolist(),
        intercepts=rng.normal(size=classes).tolist(),
        classlabels_ints=list(range(classes)),
        post_transform=how,
    )
    agree(proto, features(3))


@pytest.mark.parametrize("how", ["NONE", "LOGISTIC"])
def test_linear_classifier_of_one_row(how: str) -> None:
    proto = ensembles.single(
        "LinearClassifier",
        2,
        labels=True,
        coefficients=[1.0, -2.0],
        intercepts=[0.5],
        classlabels_strings=["no", "yes"],
        post_transform=how,
    )
    graph, errors = examine(proto)
    assert errors == []
    assert "no, yes" in graph.notes["the_node"].text
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.STRING
    agree(proto, features(2))


def test_mirrored_logistic_rows_need_no_sigmoid() -> None:
    proto = ensembles.single(
        "LinearClassifier",
        2,
        labels=True,
        coefficients=[-1.0, 2.0, 1.0, -2.0],
        intercepts=[0.5, -0.5],
        classlabels_ints=[0, 1],
        post_transform="LOGISTIC",
    )
    done = operations(agree(proto, features(2)))
    assert done == ["dense", "truncate", "gather"]


def test_linear_regressor_takes_the_scaling_before_it() -> None:
    scaler = helper.make_node("Scaler", ["x"], ["s"], domain=ensembles.ML, offset=[1.0, -2.0], scale=[3.0, 0.01])
    layer = helper.make_node(
        "LinearRegressor",
        ["s"],
        ["y"],
        domain=ensembles.ML,
        targets=2,
        coefficients=[1.0, 2.0, 3.0, -4.0],
        intercepts=[0.5, 1],
    )
    proto = ensembles.model([scaler, layer], {"x": ["N", 2]}, {"y": FLOAT})
    assert operations(agree(proto, features(2))) == ["dense", "truncate"]


@pytest.mark.parametrize("how", ["NONE", "LOGISTIC"])
@pytest.mark.parametrize("counts", [[3, 2], [2, 3, 1]])
def test_svm_classifier(how: str, counts: list[int]) -> None:
    rng = np.random.default_rng(8)
    classes, vectors = len(counts), sum(counts)
    proto = ensembles.single(
        "SVMClassifier",
        3,
        labels=True,
        kernel_type="LINEAR",
        kernel_params=[1.0, 0.0, 3.0],
        vectors_per_class=counts,
        support_vectors=rng.normal(size=vectors * 3).tolist(),
        coefficients=rng.normal(size=vectors * (classes - 1)).tolist(),
        rho=rng.normal(size=classes * (classes - 1) // 2).tolist(),
        classlabels_ints=list(range(classes)),
        post_transform=how,
    )
    agree(proto, features(3))


@pytest.mark.parametrize("supports", [0, 4])
def test_svm_regressor(supports: int) -> None:
    rng = np.random.default_rng(9)
    attributes: dict[str, Any] = {"coefficients": rng.normal(size=supports or 3).tolist(), "rho": [0.5]}
    if supports:
        attributes |= {"support_vectors": rng.normal(size=supports * 3).tolist(), "n_supports": supports}
    kernel = {"kernel_type": "LINEAR", "kernel_params": [1.0, 0.0, 3.0]}
    agree(ensembles.single("SVMRegressor", 3, **kernel, **attributes), features(3))


@pytest.mark.parametrize("kernel", ["RBF", "POLY", "SIGMOID"])
def test_other_kernels_name_the_way_out(kernel: str) -> None:
    proto = ensembles.single(
        "SVMRegressor", 1, kernel_type=kernel, coefficients=[1.0], support_vectors=[1.0], n_supports=1, rho=[0.0]
    )
    with pytest.raises(covey.UnsupportedError, match=f"kernel is {kernel}.*kernel='linear'"):
        covey.compile(proto, input_range=(-1, 1))


# Features


def test_scaler_by_itself() -> None:
    agree(ensembles.single("Scaler", 2, offset=[0.5, -0.25], scale=[2.0, 0.5]), features(2))
    agree(ensembles.single("Scaler", 2, offset=[0.5], scale=[2.0]), features(2))


def test_imputer() -> None:
    data = features(3)
    data[::3, 1] = -1.0
    proto = ensembles.single("Imputer", 3, imputed_value_floats=[0.5, 1.5, 2.5], replaced_value_float=-1.0)
    agree(proto, data)
    absent = ensembles.single("Imputer", 3, imputed_value_floats=[0.5], replaced_value_float=float("nan"))
    layer = helper.make_node("Relu", ["y"], ["z"])
    absent.graph.node.append(layer)
    del absent.graph.output[:]
    absent.graph.output.append(helper.make_tensor_value_info("z", FLOAT, ["N", 3]))
    agree(absent, data)
    assert "no NaN" in import_model(absent).notes["the_node"].text


def test_columns_are_taken_and_joined() -> None:
    nodes = [
        helper.make_node("ArrayFeatureExtractor", ["x", "first"], ["a"], domain=ensembles.ML),
        helper.make_node("ArrayFeatureExtractor", ["x", "second"], ["b"], domain=ensembles.ML),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("FeatureVectorizer", ["a", "c"], ["y"], domain=ensembles.ML, inputdimensions=[2, 1]),
    ]
    columns = {"first": np.array([3, 0]), "second": np.array([2])}
    agree(ensembles.model(nodes, {"x": ["N", 4]}, {"y": FLOAT}, columns), features(4))


def test_normalizer_at_the_end_is_left_to_the_owner() -> None:
    layer = helper.make_node("Sigmoid", ["x"], ["s"])
    last = helper.make_node("Normalizer", ["s"], ["y"], name="the_node", domain=ensembles.ML, norm="L1")
    proto = ensembles.model([layer, last], {"x": ["N", 3]}, {"y": FLOAT})
    data = features(3)
    (due,) = reference.outputs(import_model(proto), {"x": data})
    np.testing.assert_allclose(due, builders.float_results(proto, {"x": data})[0], atol=1e-5)
    compiled = covey.compile(proto, calibration=data)
    (got,) = interpreter.run(compiled, {"x": data})
    np.testing.assert_allclose(got / np.abs(got).sum(axis=1, keepdims=True), due, atol=0.02)
    (how,) = [entry["how"] for entry in compiled.report["rewrites"] if entry["node"] == "the_node"]
    assert "result's owner" in how


def test_normalizer_elsewhere_names_the_way_out() -> None:
    first = helper.make_node("Normalizer", ["x"], ["s"], name="the_node", domain=ensembles.ML, norm="L2")
    last = helper.make_node("Relu", ["s"], ["y"])
    with pytest.raises(covey.UnsupportedError, match=r"the_node.*data's owner apply it"):
        covey.compile(ensembles.model([first, last], {"x": ["N", 3]}, {"y": FLOAT}), input_range=(-1, 1))
    between = [
        helper.make_node("Sigmoid", ["x"], ["z"]),
        helper.make_node("Normalizer", ["z"], ["s"], domain="ai.onnx.ml"),
    ]
    with pytest.raises(covey.UnsupportedError, match="StandardScaler"):
        covey.compile(ensembles.model([*between, last], {"x": ["N", 3]}, {"y": FLOAT}), input_range=(-1, 1))


# Labels


def labelled(*more: onnx.NodeProto, outputs: dict[str, int]) -> onnx.ModelProto:
    """Scores, their ArgMax, and the label looked up."""
    nodes = [
        helper.make_node("Sigmoid", ["x"], ["scores"]),
        helper.make_node("ArgMax", ["scores"], ["index"], axis=1),
        helper.make_node("ArrayFeatureExtractor", ["classes", "index"], ["found"], name="look_up", domain=ensembles.ML),
        helper.make_node("Cast", ["found"], ["label"], name="cast", to=INTEGER),
        *more,
    ]
    return ensembles.model(nodes, {"x": ["N", 3]}, outputs, {"classes": np.array([[7, 8, 9]])})


def test_label_branches_are_dropped_with_a_note() -> None:
    maps = helper.make_node(
        "ZipMap", ["scores"], ["map"], name="map", domain=ensembles.ML, classlabels_int64s=[7, 8, 9]
    )
    proto = labelled(maps, outputs={"label": INTEGER, "map": FLOAT})
    compiled = covey.compile(proto, input_range=(-3, 3))
    assert compiled.graph.outputs == ["scores"]
    assert compiled.graph.exported == ["map"]
    assert "arg_max" not in operations(compiled)
    notes = {entry["node"]: entry["how"] for entry in compiled.report["rewrites"]}
    assert "dropped" in notes["look_up"]
    assert "dropped" in notes["cast"]
    assert "7, 8, 9" in notes["map"]
    assert covey.check(proto).ok


def test_a_model_of_labels_alone_is_refused() -> None:
    with pytest.raises(covey.ModelError, match="nothing but class labels"):
        covey.compile(labelled(outputs={"label": INTEGER}), input_range=(-3, 3))


def test_arithmetic_on_labels_is_refused() -> None:
    more = helper.make_node("Mul", ["label", "label"], ["square"], name="square")
    checked = covey.check(labelled(more, outputs={"square": INTEGER, "scores": FLOAT}))
    assert [note.node for note in checked.notes if note.status is Status.UNSUPPORTED] == ["square"]


def test_softmax_of_two_within_a_network_is_a_sigmoid() -> None:
    nodes = [
        helper.make_node("Softmax", ["x"], ["p"], axis=-1),
        helper.make_node("ArrayFeatureExtractor", ["p", "second"], ["y"], domain=ensembles.ML),
    ]
    proto = ensembles.model(nodes, {"x": ["N", 2]}, {"y": FLOAT}, {"second": np.array([1])})
    agree(proto, features(2))


def test_verify_finds_the_outputs_that_stay(tmp_path: Any) -> None:
    maps = helper.make_node("ZipMap", ["scores"], ["map"], domain=ensembles.ML, classlabels_int64s=[7, 8, 9])
    path = tmp_path / "labelled.onnx"
    proto = labelled(maps, outputs={"label": INTEGER, "map": FLOAT})
    # What ZipMap gives is no tensor.
    key = helper.make_map_type_proto(INTEGER, helper.make_tensor_type_proto(FLOAT, []))
    proto.graph.output[1].type.CopyFrom(helper.make_sequence_type_proto(key))
    onnx.save(proto, path)
    found = float_reference(path, None, {"x": features(3)})
    assert found.source == "onnxruntime"
    np.testing.assert_allclose(found.outputs["scores"], 1 / (1 + np.exp(-features(3))), atol=1e-5)


def test_programs_hold_thresholds_and_leaves_as_secret_weights() -> None:
    rng = np.random.default_rng(10)
    lists = ensembles.attributes([ensembles.grow(rng, 3, 3, 1) for _ in range(3)], "target", 1)
    program = interpreter.program_of(
        covey.compile(ensembles.single("TreeEnsembleRegressor", 3, n_targets=1, **lists), input_range=(-3, 3))
    )
    public = {value.name for value in program.values if value.kind == pb.Value.CONSTANT}
    assert public == {"y.reached.one"}
