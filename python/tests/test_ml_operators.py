"""The domain ai.onnx.ml but for trees: each operator against onnxruntime, labels, refusals, damaged attributes."""

from __future__ import annotations

from contextlib import suppress
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
import interpreter
from covey import reference
from covey.comparison import float_reference
from covey.importers.onnx import examine, import_model
from covey.importers.sklearn import with_largest_sizes
from covey.ir import Status
from ensembles import agree, features, operations

FLOAT, INTEGER = TensorProto.FLOAT, TensorProto.INT64


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
    compiled = agree(proto, features(2))
    assert operations(compiled) == ["dense", "truncate"]
    assert [entry["how"] for entry in compiled.report["rewrites"] if entry["op"] == "Scaler"] == [
        "moved into the weights of LinearRegressor_1"
    ]


@pytest.mark.parametrize("how", ["NONE", "LOGISTIC"])
@pytest.mark.parametrize("counts", [[3, 2], [2, 3, 1]])
def test_svm_classifier(how: str, counts: list[int]) -> None:
    agree(support_vectors(how, counts), features(3))


def support_vectors(how: str, counts: list[int]) -> onnx.ModelProto:
    """A machine with so many support vectors of each class."""
    rng = np.random.default_rng(8)
    classes, vectors = len(counts), sum(counts)
    return ensembles.single(
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


@pytest.mark.parametrize("how", ["NONE", "LOGISTIC"])
def test_the_class_of_a_svm_is_that_of_the_largest_score(how: str, tmp_path: Any) -> None:
    """By onnxruntime's convention it is that of the smaller of two, so the program gives them in the other order."""
    proto, data = support_vectors(how, [3, 2]), features(3)
    labels, scores = builders.float_results(proto, {"x": data})
    assert 0 < np.mean(labels) < 1
    graph = import_model(proto)
    assert "largest score" in graph.notes["the_node"].text
    (result,) = reference.outputs(graph, {"x": data})
    np.testing.assert_array_equal(result.argmax(axis=1), labels)
    np.testing.assert_allclose(result, scores[:, ::-1], atol=1e-5)
    onnx.save(proto, tmp_path / "svm.onnx")
    found = float_reference(tmp_path / "svm.onnx", None, {"x": data})
    assert found.source == "onnxruntime"
    np.testing.assert_allclose(next(iter(found.outputs.values())), result, atol=1e-5)


def test_scores_of_a_svm_that_are_computed_with_keep_their_order() -> None:
    """skl2onnx negates them where raw scores are asked for."""
    proto = support_vectors("NONE", [3, 2])
    proto.graph.node[0].output[1] = "s"
    proto.graph.node.append(helper.make_node("Neg", ["s"], ["y"]))
    agree(proto, features(3))


@pytest.mark.parametrize("supports", [0, 4])
def test_svm_regressor(supports: int) -> None:
    rng = np.random.default_rng(9)
    attributes: dict[str, Any] = {"coefficients": rng.normal(size=supports or 3).tolist(), "rho": [0.5]}
    if supports:
        attributes |= {"support_vectors": rng.normal(size=supports * 3).tolist(), "n_supports": supports}
    kernel = {"kernel_type": "LINEAR", "kernel_params": [1.0, 0.0, 3.0]}
    agree(ensembles.single("SVMRegressor", 3, **kernel, **attributes), features(3))


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


@pytest.mark.parametrize("norm", ["L1", "L2", "MAX"])
def test_normalizer_at_the_end_is_a_division(norm: str) -> None:
    layer = helper.make_node("Sigmoid", ["x"], ["s"])
    last = helper.make_node("Normalizer", ["s"], ["y"], name="the_node", domain=ensembles.ML, norm=norm)
    compiled = agree(ensembles.model([layer, last], {"x": ["N", 3]}, {"y": FLOAT}), features(3), tolerance=3e-3)
    assert compiled.report["outputs"][0]["postprocess"] == "nothing"


@pytest.mark.parametrize("axis", [1, 2])
def test_normalizer_before_the_largest_element(axis: int) -> None:
    """It changes which row has the largest element of a column, not which column that of a row."""
    nodes = [
        helper.make_node("LpNormalization", ["x"], ["s"], name="the_node", axis=-1),
        helper.make_node("ArgMax", ["s"], ["y"], axis=axis, keepdims=0),
    ]
    proto = builders.model(nodes, {"x": ["N", 3, 4]}, ["y"], types={"y": TensorProto.INT64})
    data = np.random.default_rng(3).normal(size=(40, 3, 4)) * np.array([[1.0], [4.0], [0.2]])
    compiled = covey.compile(proto, calibration=data)
    (got,) = interpreter.run(compiled, {"x": data})
    assert np.mean(got == builders.float_results(proto, {"x": data})[0]) > 0.98
    (how,) = [entry["how"] for entry in compiled.report["rewrites"] if entry["node"] == "the_node"]
    assert ("removed" in how) == (axis == 2)


@pytest.mark.parametrize("norm", ["L1", "L2", "MAX"])
@pytest.mark.parametrize("ring", [32, 64])
def test_normalizer_elsewhere_is_a_division(norm: str, ring: int) -> None:
    nodes = [
        helper.make_node("Normalizer", ["r" if norm == "MAX" else "x"], ["s"], domain=ensembles.ML, norm=norm),
        helper.make_node("Neg", ["s"], ["y"]),
    ]
    if norm == "MAX":
        nodes.insert(0, helper.make_node("Relu", ["x"], ["r"]))
    data = features(5)
    data[0] = 0.0
    agree(ensembles.model(nodes, {"x": ["N", 5]}, {"y": FLOAT}), data, tolerance=3e-3, ring=ring)


def test_the_largest_element_or_the_largest_size() -> None:
    """scikit-learn divides by the latter, onnxruntime by the former."""
    nodes = [
        helper.make_node("Normalizer", ["x"], ["s"], name="the_node", domain=ensembles.ML, norm="MAX"),
        helper.make_node("Neg", ["s"], ["y"]),
    ]
    proto = ensembles.model(nodes, {"x": ["N", 5]}, {"y": FLOAT})
    with pytest.raises(covey.UnsupportedError, match=r"its norm is MAX: .*; use L1 or L2, or put a Relu before it"):
        import_model(proto)
    data = features(5)
    (result,) = reference.outputs(import_model(with_largest_sizes(proto)), {"x": data})
    np.testing.assert_allclose(result, -data / np.abs(data).max(axis=1, keepdims=True))


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


def a_model(draw: st.DataObject) -> onnx.ModelProto:
    """A model of one of the operators that hold lists."""
    rng = np.random.default_rng(11)
    lists = [ensembles.grow(rng, 2, 2, 2) for _ in range(2)]
    kernel = {"kernel_type": "LINEAR", "kernel_params": [1.0, 0.0, 3.0]}
    vectors = {"support_vectors": [1.0] * 6, "coefficients": [1.0] * 3, "rho": [0.5]}
    labels = {"classlabels_ints": [0, 1]}
    return draw.draw(
        st.sampled_from(
            [
                ensembles.single("TreeEnsembleRegressor", 2, n_targets=2, **ensembles.attributes(lists, "target", 2)),
                ensembles.single(
                    "TreeEnsembleClassifier",
                    2,
                    labels=True,
                    classlabels_int64s=[0, 1],
                    **ensembles.attributes(lists, "class", 2),
                ),
                ensembles.single("SVMRegressor", 2, n_supports=3, **kernel, **vectors),
                ensembles.single(
                    "SVMClassifier", 2, labels=True, vectors_per_class=[2, 1], **kernel, **vectors, **labels
                ),
                ensembles.single(
                    "LinearClassifier", 2, labels=True, coefficients=[1.0] * 4, intercepts=[0.0] * 2, **labels
                ),
                ensembles.single("LinearRegressor", 2, coefficients=[1.0] * 4, intercepts=[0.0] * 2, targets=2),
                ensembles.single("Scaler", 2, offset=[1.0, 2.0], scale=[1.0, 2.0]),
                ensembles.single("Imputer", 2, imputed_value_floats=[1.0, 2.0], replaced_value_float=0.0),
            ]
        )
    )


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.data())
def test_damaged_attributes_give_a_program_or_an_error(draw: st.DataObject) -> None:
    """Lists cut, grown, or with another number at any place: a program, or an error of Covey's own."""
    proto = onnx.ModelProto.FromString(a_model(draw).SerializeToString())
    for _ in range(draw.draw(st.integers(1, 2))):
        attribute = draw.draw(st.sampled_from(list(proto.graph.node[0].attribute)))
        if attribute.type in (onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS):
            values = attribute.ints if attribute.type == onnx.AttributeProto.INTS else attribute.floats
            number = draw.draw(st.sampled_from([-1, 0, 1, 2, 3, 7, 2**31]))
            kind = draw.draw(st.sampled_from(["cut", "grow", "change"]))
            if kind == "grow" or not values:
                values.append(number)
            elif kind == "cut":
                del values[draw.draw(st.integers(0, len(values) - 1)) :]
            else:
                values[draw.draw(st.integers(0, len(values) - 1))] = number
        elif attribute.type == onnx.AttributeProto.INT:
            attribute.i = draw.draw(st.sampled_from([-1, 0, 1, 3, 2**40]))
    with suppress(covey.CoveyError):
        covey.compile(proto, input_range=(-1, 1))
