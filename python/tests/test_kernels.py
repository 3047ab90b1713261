"""Kernels of support vector machines: against onnxruntime, and scikit-learn's models with its own predictions."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import builders
import covey
import ensembles
from covey import reference
from covey.importers.onnx import examine, import_model
from ensembles import agree, features

PARAMETERS = {"RBF": [0.3, 0.0, 3.0], "POLY": [0.3, 0.5, 3.0], "SIGMOID": [0.2, 0.25, 3.0]}


def classifier(kernel: str, counts: list[int], **attributes: Any) -> onnx.ModelProto:
    """A machine with so many support vectors of each class."""
    rng = np.random.default_rng(8)
    classes, vectors = len(counts), sum(counts)
    return ensembles.single(
        "SVMClassifier",
        3,
        labels=True,
        kernel_type=kernel,
        kernel_params=PARAMETERS[kernel],
        vectors_per_class=counts,
        support_vectors=rng.normal(size=vectors * 3).tolist(),
        coefficients=rng.normal(size=vectors * (classes - 1)).tolist(),
        rho=rng.normal(size=classes * (classes - 1) // 2).tolist(),
        classlabels_ints=list(range(classes)),
        **attributes,
    )


def regressor(kernel: str, parameters: list[float], vectors: np.ndarray, coefficients: list[float]) -> onnx.ModelProto:
    return ensembles.single(
        "SVMRegressor",
        vectors.shape[1],
        kernel_type=kernel,
        kernel_params=parameters,
        support_vectors=vectors.ravel().tolist(),
        coefficients=coefficients,
        n_supports=len(vectors),
        rho=[0.5],
    )


def scores(compiled: covey.Compiled, data: np.ndarray) -> np.ndarray:
    with covey.local(protocol="clear") as parties:
        (result,) = parties.run(compiled, data).outputs.values()
    return np.asarray(result)


@pytest.mark.parametrize("kernel", PARAMETERS)
@pytest.mark.parametrize("counts", [[3, 2], [2, 3, 1]])
def test_classifiers(kernel: str, counts: list[int]) -> None:
    agree(classifier(kernel, counts), features(3), tolerance=0.05)


@pytest.mark.parametrize("degree", [1, 2, 5])
def test_polynomials_of_every_degree(degree: int) -> None:
    vectors = np.random.default_rng(9).normal(size=(4, 3))
    agree(regressor("POLY", [0.1, 1.0, degree], vectors, [1.0, -0.5, 0.25, 0.5]), features(3), tolerance=0.05)


def test_probabilities_of_two_classes() -> None:
    """onnxruntime ends an iteration as soon as it is near enough."""
    proto, data = classifier("RBF", [3, 2], prob_a=[-1.5], prob_b=[0.3]), features(3)
    (found,) = reference.outputs(import_model(proto), {"x": data})
    _, due = builders.float_results(proto, {"x": data})
    np.testing.assert_allclose(found, due, atol=5e-3)
    np.testing.assert_allclose(scores(covey.compile(proto, calibration=data), data), found, atol=5e-3)


def test_a_kernel_is_1_at_its_vector_and_0_far_from_it() -> None:
    """Distances are exact on fixed-point numbers: one clip, at the far end alone."""
    vectors = np.array([[2.0, -1.0], [-40.0, 30.0]])
    proto = regressor("RBF", [0.5, 0.0, 3.0], vectors, [1.0, 2.0])
    data = np.array([[2.0, -1.0], [-40.0, 30.0], [60.0, -60.0], [2.25, -1.0]])
    compiled = agree(proto, data, tolerance=2e-3)
    assert [row["computes"] for row in compiled.rows()].count("Clip") == 1
    with covey.local(protocol="clear") as parties:
        (found,) = parties.run(compiled, data).outputs.values()
    np.testing.assert_allclose(found[:3, 0], [1.5, 2.5, 0.5], atol=1e-3)


def test_refusals() -> None:
    three = classifier("RBF", [2, 3, 1], prob_a=[-1.0] * 3, prob_b=[0.0] * 3)
    high = regressor("POLY", [1.0, 0.0, 17.0], np.ones((2, 1)), [1.0, 1.0])
    none = ensembles.single("SVMRegressor", 1, kernel_type="RBF", coefficients=[1.0], rho=[0.0])
    short = regressor("RBF", [1.0], np.ones((2, 1)), [1.0, 1.0])
    for proto, message in (
        (three, "probabilities of 3 classes, which divides by secrets; train it with probability=False"),
        (high, "of degree 17; train it with a degree of 1 to 16"),
        (none, "its RBF kernel has no support vectors"),
        (short, "it has 1 numbers 'kernel_params'"),
    ):
        (error,) = examine(proto)[1]
        assert message in str(error)


# scikit-learn

sklearn = pytest.importorskip("sklearn", reason="scikit-learn is not installed")
skl2onnx = pytest.importorskip("skl2onnx", reason="skl2onnx, which converts scikit-learn's models, is not installed")

from sklearn import datasets, kernel_approximation, kernel_ridge, linear_model, svm  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import MinMaxScaler, StandardScaler  # noqa: E402

MODELS: dict[str, tuple[Any, Any]] = {
    "svc": (datasets.load_breast_cancer, make_pipeline(StandardScaler(), svm.SVC())),
    "unscaled": (datasets.load_breast_cancer, svm.SVC()),
    "many": (datasets.load_digits, svm.SVC()),
    "several": (datasets.load_iris, svm.NuSVC(kernel="poly", nu=0.1)),
    "sigmoid": (datasets.load_iris, make_pipeline(StandardScaler(), svm.SVC(kernel="sigmoid", gamma=0.1))),
    "one class": (datasets.load_breast_cancer, make_pipeline(MinMaxScaler(), svm.OneClassSVM(nu=0.1))),
    "svr": (datasets.load_diabetes, svm.SVR(C=100.0)),
    "nu svr": (datasets.load_diabetes, make_pipeline(StandardScaler(), svm.NuSVR(kernel="poly", degree=2, coef0=1.0))),
}


def fitted(name: str) -> tuple[Any, np.ndarray, np.ndarray]:
    """The model, what it was trained on, and 50 other samples at most."""
    load, model = MODELS[name]
    data, targets = load(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(data))
    train, test = order[: len(data) // 2], order[len(data) // 2 :]
    model = sklearn.base.clone(model).fit(data[train], targets[train])
    return model, data[train], np.clip(data[test[:50]], data[train].min(), data[train].max()).astype(np.float32)


@pytest.mark.parametrize("name", MODELS)
def test_machines_predict_as_scikit_learn_does(name: str) -> None:
    model, train, test = fitted(name)
    got, predicted = scores(covey.compile(model, calibration=train), test), model.predict(test)
    if name in ("svr", "nu svr", "one class"):
        due = model.decision_function(test) if name == "one class" else predicted
        assert np.linalg.norm(got[:, 0] - due) <= 0.01 * np.linalg.norm(due)
        return
    classes = len(model.classes_)
    votes = got
    if classes > 2:
        votes = np.zeros((len(test), classes))
        for column, (first, second) in enumerate(combinations(range(classes), 2)):
            votes[np.arange(len(test)), np.where(got[:, column] > 0, first, second)] += 1
    np.testing.assert_array_equal(model.classes_[votes.argmax(axis=1)], predicted)


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("classes", [2, 3])
def test_probabilities_of_two_classes_and_decisions_of_more(classes: int) -> None:
    data, targets = datasets.load_iris(return_X_y=True)
    data, targets = data[50 * (3 - classes) :], targets[50 * (3 - classes) :]
    model = svm.SVC(probability=True, random_state=0).fit(data, targets)
    got = scores(covey.compile(model, calibration=data), data.astype(np.float32))
    due = model.predict_proba(data)
    if classes == 3:
        due = model.set_params(decision_function_shape="ovo").decision_function(data)
    np.testing.assert_allclose(got, due, atol=0.02)


def test_a_file_without_its_label_and_protocols() -> None:
    model, train, test = fitted("one class")
    proto = skl2onnx.to_onnx(model, train[:1].astype(np.float32), target_opset={"": 18, "ai.onnx.ml": 3})
    assert proto.graph.output[0].type.tensor_type.elem_type == TensorProto.INT64
    compiled = covey.compile(proto, calibration=train)
    integers = {}
    for protocol in ("clear", "trio", "two-party"):
        with covey.local(protocol=protocol) as parties:
            (integers[protocol],) = parties.run(compiled, test[:5]).integers.values()
    np.testing.assert_array_equal(integers["trio"], integers["clear"])
    np.testing.assert_array_equal(integers["two-party"], integers["clear"])


@pytest.mark.parametrize("kernel", ["rbf", "poly", "linear"])
def test_kernel_ridge(kernel: str) -> None:
    data, targets = datasets.load_diabetes(return_X_y=True)
    ridge = kernel_ridge.KernelRidge(kernel=kernel, degree=2, alpha=1.0)
    model = make_pipeline(StandardScaler(), ridge).fit(data[:200], np.stack([targets, -targets], axis=1)[:200])
    got, due = scores(covey.compile(model, calibration=data[:200]), data[200:250]), model.predict(data[200:250])
    assert np.linalg.norm(got - due) <= 0.01 * np.linalg.norm(due)


@pytest.mark.parametrize(
    "features",
    [
        kernel_approximation.Nystroem(n_components=12, gamma=0.02, random_state=0),
        kernel_approximation.RBFSampler(n_components=12, gamma=0.02, random_state=0),
    ],
    ids=lambda features: type(features).__name__,
)
def test_features_of_kernels(features: Any) -> None:
    data, targets = datasets.load_breast_cancer(return_X_y=True)
    model = make_pipeline(StandardScaler(), features, linear_model.LogisticRegression()).fit(data[:300], targets[:300])
    got = scores(covey.compile(model, calibration=data), data[300:350])
    np.testing.assert_allclose(got, model.predict_proba(data[300:350]), atol=0.02)


def test_other_kernels_are_refused() -> None:
    data, targets = datasets.load_iris(return_X_y=True)
    model = kernel_ridge.KernelRidge(kernel="laplacian").fit(data, targets)
    with pytest.raises(covey.ModelError, match="the kernel 'laplacian', which has no secure form: take one of rbf"):
        covey.compile(model, calibration=data)
