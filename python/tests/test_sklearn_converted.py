"""Models of scikit-learn that Covey converts to ONNX itself, with scikit-learn's own predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import covey
import ensembles
from covey import reference
from covey.importers.onnx import import_model

sklearn = pytest.importorskip("sklearn", reason="scikit-learn is not installed")
skl2onnx = pytest.importorskip("skl2onnx", reason="skl2onnx, which converts scikit-learn's models, is not installed")

from sklearn import (  # noqa: E402
    calibration,
    datasets,
    discriminant_analysis,
    ensemble,
    linear_model,
    naive_bayes,
    neighbors,
    svm,
    tree,
)
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402

Data = tuple[np.ndarray, np.ndarray, np.ndarray]


def halves(load: Any) -> Data:
    """Training data and targets, and 50 other samples at most."""
    data, targets = load(return_X_y=True)
    data = data.astype(np.float32)
    order = np.random.default_rng(0).permutation(len(data))
    train, test = order[: len(data) // 2], order[len(data) // 2 :]
    return data[train], targets[train], np.clip(data[test[:50]], data[train].min(), data[train].max())


def scores(compiled: covey.Compiled, data: np.ndarray, protocol: str = "clear") -> np.ndarray:
    with covey.local(protocol=protocol) as parties:
        (result,) = parties.run(compiled, data).outputs.values()
    return np.asarray(result)


# Gradient boosting on histograms


@pytest.mark.parametrize("load", [datasets.load_breast_cancer, datasets.load_iris])
def test_histogram_classifiers(load: Any) -> None:
    train, targets, test = halves(load)
    names = np.array(["a", "b", "c"])[targets]
    model = ensemble.HistGradientBoostingClassifier(max_iter=8, max_leaf_nodes=8).fit(train, names)
    # Features of very different sizes: Z_2^32 has no room for the digits of the small ones.
    got = scores(covey.compile(model, calibration=train, ring=64), test)
    np.testing.assert_allclose(got, model.predict_proba(test), atol=1e-3)


def test_histograms_compare_float64() -> None:
    """Amounts in cents that float32 does not tell apart."""
    rng = np.random.default_rng(0)
    data = rng.integers(10**7, 10**8, (600, 2)) / 100
    model = ensemble.HistGradientBoostingClassifier(max_iter=5).fit(data, data[:, 0] * 0.7 + data[:, 1] > 8e5)
    got = scores(covey.compile(model, calibration=data, ring=64), data)
    np.testing.assert_allclose(got, model.predict_proba(data), atol=1e-3)


@pytest.mark.parametrize("loss", ["squared_error", "poisson"])
def test_histogram_regressors(loss: str) -> None:
    train, targets, test = halves(datasets.load_diabetes)
    model = ensemble.HistGradientBoostingRegressor(loss=loss, max_iter=8, max_leaf_nodes=8).fit(train, targets)
    got = scores(covey.compile(model, calibration=train), test)
    # A sample may lie nearer to a threshold than the input's digits tell.
    assert np.mean(np.abs(got[:, 0] / model.predict(test) - 1) < 2e-3) >= 0.96


def test_histograms_trained_on_missing_values() -> None:
    """A threshold that tells missing values from all others is infinite."""
    train, targets, test = halves(datasets.load_iris)
    holed = train.copy()
    holed[targets == 2, 0] = np.nan
    model = ensemble.HistGradientBoostingClassifier(max_iter=4).fit(holed, targets)
    assert any(np.isinf(tree.nodes["num_threshold"]).any() for trees in model._predictors for tree in trees)
    got = scores(covey.compile(model, calibration=train), test, "trio")
    np.testing.assert_allclose(got, model.predict_proba(test), atol=1e-3)


def test_infinite_thresholds_of_a_file() -> None:
    tree = ensembles.Branch(0, "BRANCH_LEQ", np.inf, np.array([1.0]), np.array([2.0]))
    other = ensembles.Branch(1, "BRANCH_LT", -np.inf, np.array([4.0]), np.array([8.0]))
    attributes = ensembles.attributes([tree, other], "target", 1)
    proto = ensembles.single("TreeEnsembleRegressor", 2, n_targets=1, **attributes)
    (found,) = reference.outputs(import_model(proto), {"x": np.array([[3.0, 1e9], [-1e9, -5.0]])})
    np.testing.assert_array_equal(found, [[9.0], [9.0]])
    np.testing.assert_array_equal(scores(covey.compile(proto, input_range=(-1e4, 1e4)), np.full((1, 2), 1e4)), [[9.0]])


def test_sets_of_categories_are_refused() -> None:
    train, targets, _ = halves(datasets.load_iris)
    model = ensemble.HistGradientBoostingClassifier(max_iter=2, categorical_features=[0])
    model.fit(np.floor(train), targets)
    with pytest.raises(covey.ModelError, match=r"splits categories into sets.*categorical_features=None") as caught:
        covey.compile(model, calibration=np.floor(train))
    assert "\n" not in str(caught.value)


# Densities

DENSITIES: dict[str, tuple[Any, Any]] = {
    "bayes": (datasets.load_breast_cancer, naive_bayes.GaussianNB()),
    "scaled bayes": (datasets.load_iris, make_pipeline(StandardScaler(), naive_bayes.GaussianNB())),
    "discriminant": (
        datasets.load_breast_cancer,
        make_pipeline(StandardScaler(), discriminant_analysis.QuadraticDiscriminantAnalysis(reg_param=0.1)),
    ),
}


@pytest.mark.parametrize("name", DENSITIES)
def test_densities(name: str) -> None:
    load, model = DENSITIES[name]
    train, targets, test = halves(load)
    model = sklearn.base.clone(model).fit(train, targets)
    got = scores(covey.compile(model, calibration=train), test)
    np.testing.assert_allclose(got, model.predict_proba(test), atol=0.01)


@pytest.mark.parametrize("model", [naive_bayes.GaussianNB(), naive_bayes.MultinomialNB()])
def test_a_file_whose_softmax_is_written_out(model: Any) -> None:
    """It is skl2onnx's own: what Covey converts is converted for it alone."""
    train, targets, test = halves(datasets.load_iris)
    model.fit(train, targets)
    covey.check(model)
    proto = skl2onnx.to_onnx(model, train[:1], target_opset={"": 18, "ai.onnx.ml": 3})
    assert "ReduceLogSumExp" in {node.op_type for node in proto.graph.node}
    compiled = covey.compile(proto, calibration=train)
    assert not compiled.report["tables"]
    np.testing.assert_allclose(scores(compiled, test, "trio"), model.predict_proba(test), atol=0.01)


# Ensembles

LOGISTIC = make_pipeline(StandardScaler(), linear_model.LogisticRegression(max_iter=500))
TREE = tree.DecisionTreeClassifier(max_depth=3, random_state=0)
DISCRIMINANT = make_pipeline(StandardScaler(), discriminant_analysis.LinearDiscriminantAnalysis())
CALIBRATED = calibration.CalibratedClassifierCV(svm.LinearSVC(), cv=2)
PARTS = [("logistic", LOGISTIC), ("tree", TREE), ("forest", ensemble.RandomForestClassifier(3, random_state=0))]

ENSEMBLES: dict[str, tuple[Any, Any]] = {
    "votes of stumps": (datasets.load_breast_cancer, ensemble.AdaBoostClassifier(n_estimators=10, random_state=0)),
    "votes of trees": (datasets.load_iris, ensemble.AdaBoostClassifier(TREE, n_estimators=5, random_state=0)),
    "voting": (datasets.load_breast_cancer, ensemble.VotingClassifier(PARTS, voting="soft", weights=[1, 2, 3])),
    "calibrated": (datasets.load_breast_cancer, make_pipeline(StandardScaler(), CALIBRATED)),
    "discriminants": (
        datasets.load_breast_cancer,
        ensemble.VotingClassifier([("a", DISCRIMINANT), ("b", LOGISTIC)], voting="soft"),
    ),
    "calibrated discriminants": (
        datasets.load_iris,
        calibration.CalibratedClassifierCV(discriminant_analysis.LinearDiscriminantAnalysis(), cv=2),
    ),
    "calibrated histograms": (
        datasets.load_breast_cancer,
        calibration.CalibratedClassifierCV(ensemble.HistGradientBoostingClassifier(max_iter=3), cv=2),
    ),
    "several calibrated histograms": (
        datasets.load_iris,
        calibration.CalibratedClassifierCV(
            ensemble.HistGradientBoostingClassifier(max_iter=3, min_samples_leaf=5), cv=2
        ),
    ),
    "several calibrated": (datasets.load_iris, make_pipeline(StandardScaler(), CALIBRATED)),
}


@pytest.mark.parametrize("name", ENSEMBLES)
def test_ensembles(name: str) -> None:
    load, model = ENSEMBLES[name]
    train, targets, test = halves(load)
    model = sklearn.base.clone(model).fit(train, targets)
    off = np.abs(scores(covey.compile(model, calibration=train), test) - model.predict_proba(test))
    # A sample may lie nearer to a threshold than the input's digits tell.
    assert np.mean(off.max(axis=1) < 5e-3) >= 0.96


def test_an_isolation_forest_of_some_features() -> None:
    train, _, test = halves(datasets.load_breast_cancer)
    model = ensemble.IsolationForest(n_estimators=8, max_samples=32, max_features=4, random_state=0).fit(train)
    compiled = covey.compile(model, calibration=train)
    got = scores(compiled, test, "trio")
    np.testing.assert_allclose(got[:, 0], model.decision_function(test), atol=2e-3)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (ensemble.AdaBoostClassifier(linear_model.LogisticRegression(), n_estimators=2), "take trees, or a Voting"),
        (ensemble.VotingClassifier(PARTS), "counts labels, which are secret: take voting='soft'"),
    ],
)
def test_votes_that_are_secret_classes_are_refused(model: Any, message: str) -> None:
    train, targets, _ = halves(datasets.load_iris)
    with pytest.raises(covey.ModelError, match=message) as caught:
        covey.compile(sklearn.base.clone(model).fit(train, targets), calibration=train)
    assert "\n" not in str(caught.value)


# Nearest neighbours


@pytest.mark.parametrize("count", [1, 4])
def test_neighbours(count: int) -> None:
    train, targets, test = halves(datasets.load_iris)
    model = neighbors.KNeighborsClassifier(count).fit(train, targets)
    compiled = covey.compile(model, calibration=train)
    np.testing.assert_allclose(scores(compiled, test), model.predict_proba(test), atol=1e-3)
    np.testing.assert_array_equal(scores(compiled, test[:3], "trio"), scores(compiled, test[:3]))


def test_equal_distances_count_once() -> None:
    train = np.array([[0.0], [0.0], [0.0], [2.0]])
    model = neighbors.KNeighborsRegressor(2).fit(train, np.array([1.0, 3.0, 9.0, 7.0]))
    got = scores(covey.compile(model, input_range=(-4, 4)), np.array([[0.0], [1.5]]))
    np.testing.assert_allclose(got, [[2.0], [4.0]], atol=1e-3)


def test_neighbours_of_several_targets_behind_a_scaler() -> None:
    train, targets, test = halves(datasets.load_diabetes)
    both = np.stack([targets, 1 - targets], axis=1)
    model = make_pipeline(StandardScaler(), neighbors.KNeighborsRegressor(3)).fit(train[:60], both[:60])
    got = scores(covey.compile(model, calibration=train), test)
    np.testing.assert_allclose(got, model.predict(test), rtol=1e-3)


@pytest.mark.parametrize("options", [{"weights": "distance"}, {"metric": "manhattan"}])
def test_other_neighbours_are_refused(options: dict[str, str]) -> None:
    train, targets, _ = halves(datasets.load_iris)
    model = neighbors.KNeighborsClassifier(3, **options).fit(train, targets)
    with pytest.raises(covey.ModelError, match=r"take weights='uniform' and the Euclidean metric") as caught:
        covey.compile(model, calibration=train)
    assert "\n" not in str(caught.value)


def test_what_is_converted_wrongly_is_refused_without_calibration_too() -> None:
    data = np.random.default_rng(0).normal(size=(200, 4))
    targets = (data[:, 0] + data[:, 1] * data[:, 2] > 0).astype(int)
    model = calibration.CalibratedClassifierCV(ensemble.AdaBoostClassifier(n_estimators=3), cv=2)
    with pytest.raises(covey.ModelError, match="gives another result"):
        covey.compile(model.fit(data, targets), input_range=(-3, 3))
