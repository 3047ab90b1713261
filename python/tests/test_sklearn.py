"""scikit-learn's models: compiled as they are, computed privately, with scikit-learn's own predictions."""

from __future__ import annotations

import subprocess
import sys
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import covey
from covey import reference
from covey.importers.source import examine
from covey.passes import rewrite

sklearn = pytest.importorskip("sklearn", reason="scikit-learn is not installed")
pytest.importorskip("skl2onnx", reason="skl2onnx, which converts scikit-learn's models, is not installed")

from sklearn import (  # noqa: E402
    compose,
    datasets,
    discriminant_analysis,
    ensemble,
    feature_extraction,
    impute,
    linear_model,
    multiclass,
    neighbors,
    neural_network,
    svm,
)
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import MinMaxScaler, Normalizer, StandardScaler  # noqa: E402

EXAMPLE = Path(__file__).parents[2] / "examples" / "sklearn_models.py"

LOADERS = {
    "breast_cancer": datasets.load_breast_cancer,
    "digits": datasets.load_digits,
    "diabetes": datasets.load_diabetes,
    "iris": datasets.load_iris,
}


def halves(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Training data and targets, and 100 other samples at most."""
    data, targets = LOADERS[name](return_X_y=True)
    order = np.random.default_rng(0).permutation(len(data))
    train, test = order[: len(data) // 2], order[len(data) // 2 :]
    # scikit-learn's trees compare float32: a sample that lies on a threshold is decided by how it was rounded to that.
    return data[train], targets[train], data[test[:100]].astype(np.float32)


def scores(compiled: covey.Compiled, data: np.ndarray, protocol: str = "clear") -> np.ndarray:
    with covey.local(protocol=protocol) as parties:
        (result,) = parties.run(compiled, data).outputs.values()
    return np.asarray(result)


CLASSIFIERS: dict[str, Any] = {
    "random_forest": ensemble.RandomForestClassifier(15, max_depth=6, random_state=0),
    "extra_trees": ensemble.ExtraTreesClassifier(15, max_depth=6, random_state=0),
    "gradient_boosting": ensemble.GradientBoostingClassifier(n_estimators=8, max_depth=4, random_state=0),
    "logistic_regression": make_pipeline(StandardScaler(), linear_model.LogisticRegression(max_iter=1000)),
    "linear_svc": make_pipeline(StandardScaler(), svm.LinearSVC(random_state=0)),
    "svc": make_pipeline(StandardScaler(), svm.SVC(kernel="linear")),
    "mlp": make_pipeline(StandardScaler(), neural_network.MLPClassifier((8,), max_iter=150, random_state=0)),
    "one_vs_rest": make_pipeline(
        StandardScaler(), multiclass.OneVsRestClassifier(linear_model.LogisticRegression(max_iter=200))
    ),
    "normalizer": make_pipeline(Normalizer(), linear_model.LogisticRegression(C=1000.0, max_iter=1000)),
    "columns": make_pipeline(
        compose.ColumnTransformer([("a", StandardScaler(), [0, 1, 2]), ("b", MinMaxScaler(), list(range(3, 30)))]),
        linear_model.LogisticRegression(max_iter=1000),
    ),
    "imputed": make_pipeline(
        impute.SimpleImputer(), StandardScaler(), ensemble.RandomForestClassifier(5, max_depth=4, random_state=0)
    ),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("data", ["breast_cancer", "digits"])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers_predict_as_scikit_learn_does(name: str, data: str) -> None:
    train, targets, test = halves(data)
    model = sklearn.base.clone(CLASSIFIERS[name]).fit(train, targets)
    compiled = covey.compile(model, calibration=train)
    got = scores(compiled, test)
    if name == "svc" and data == "digits":
        votes = np.zeros((len(test), 10))
        for column, (first, second) in enumerate(combinations(range(10), 2)):
            votes[np.arange(len(test)), np.where(got[:, column] > 0, first, second)] += 1
        got = votes
    assert got.shape == (len(test), len(model.classes_))
    assert np.mean(model.classes_[got.argmax(axis=1)] == model.predict(test)) >= 0.98


@pytest.mark.parametrize("name", ["random_forest", "gradient_boosting", "logistic_regression"])
def test_probabilities_are_scikit_learns(name: str) -> None:
    train, targets, test = halves("breast_cancer")
    model = sklearn.base.clone(CLASSIFIERS[name]).fit(train, targets)
    # A sample may lie nearer to a threshold than the input's digits tell: one tree of fifteen then differs.
    off = np.abs(scores(covey.compile(model, calibration=train), test) - model.predict_proba(test))
    assert np.median(off) < 1e-3
    assert off.max() < 0.1


LINEAR: dict[str, Any] = {
    "lda": discriminant_analysis.LinearDiscriminantAnalysis(),
    "lda_pipeline": make_pipeline(StandardScaler(), discriminant_analysis.LinearDiscriminantAnalysis()),
    "svc": svm.SVC(kernel="linear", decision_function_shape="ovo"),
    "nu_svc": svm.NuSVC(kernel="linear", nu=0.05, decision_function_shape="ovo"),
    "ridge": linear_model.RidgeClassifier(),
    "rest_of_svc": multiclass.OneVsRestClassifier(svm.LinearSVC()),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("data", ["breast_cancer", "digits"])
@pytest.mark.parametrize("name", LINEAR)
def test_linear_models_have_scikit_learns_own_scores(name: str, data: str) -> None:
    train, targets, test = halves(data)
    if data == "breast_cancer":  # features of few sizes, on which all of these converge
        train, test = train[:, :8], test[:, :8]
    model = sklearn.base.clone(LINEAR[name]).fit(train, targets)
    graph, errors = examine(model)
    assert not errors
    rewrite(graph)
    (got,) = reference.outputs(graph, {graph.inputs[0]: test})
    due = model.predict_proba(test) if name.startswith("lda") else model.decision_function(test)
    if due.ndim == 1:
        due = np.stack([-due, due], axis=1)
        np.testing.assert_array_equal(model.classes_[got.argmax(axis=1)], model.predict(test))
    np.testing.assert_allclose(got, due, atol=1e-5 * np.abs(due).max())


def test_a_conversion_that_is_wrong_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """What skl2onnx made of a linear discriminant analysis itself."""
    train, targets, _ = halves("breast_cancer")
    model = discriminant_analysis.LinearDiscriminantAnalysis().fit(train, targets)
    monkeypatch.setattr("covey.importers.sklearn_converters.MODELS", ())
    with pytest.raises(
        covey.ModelError, match=r"gives another result to \d+ of 256 samples than its own predict_proba"
    ):
        covey.compile(model, calibration=train)


def test_the_norm_at_the_end_of_a_pipeline() -> None:
    train, _, test = halves("iris")
    model = make_pipeline(StandardScaler(), Normalizer()).fit(train)
    np.testing.assert_allclose(scores(covey.compile(model, calibration=train), test), model.transform(test), atol=0.01)


REGRESSORS: dict[str, Any] = {
    "random_forest": ensemble.RandomForestRegressor(10, max_depth=5, random_state=0),
    "gradient_boosting": ensemble.GradientBoostingRegressor(n_estimators=20, random_state=0),
    "ridge": make_pipeline(StandardScaler(), linear_model.Ridge()),
    "linear_svr": svm.SVR(kernel="linear", C=100.0),
    "mlp": make_pipeline(
        StandardScaler(), neural_network.MLPRegressor(hidden_layer_sizes=(8,), max_iter=200, random_state=0)
    ),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", REGRESSORS)
def test_regressors_come_near_scikit_learn(name: str) -> None:
    train, targets, test = halves("diabetes")
    model = sklearn.base.clone(REGRESSORS[name]).fit(train, targets)
    got, due = scores(covey.compile(model, calibration=train), test), model.predict(test)
    assert np.linalg.norm(got[:, 0] - due) <= 0.015 * np.linalg.norm(due)


@pytest.mark.parametrize("protocol", ["trio", "quad", "two-party", "beaver"])
@pytest.mark.parametrize("name", ["random_forest", "gradient_boosting"])
def test_protocols_equal_the_specification(name: str, protocol: str) -> None:
    train, targets, test = halves("breast_cancer")
    model = sklearn.base.clone(CLASSIFIERS[name]).fit(train, targets)
    compiled = covey.compile(model, calibration=train)
    integers = {}
    for each in ("clear", protocol):
        with covey.local(protocol=each) as parties:
            (integers[each],) = parties.run(compiled, test[:10]).integers.values()
    np.testing.assert_array_equal(integers[protocol], integers["clear"])


def test_the_table_of_the_example() -> None:
    command = [sys.executable, str(EXAMPLE), "RandomForest", "LogisticRegression", "--samples", "20", "--trees", "5"]
    done = subprocess.run([*command, "--protocols", "trio"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 5
    assert all(" 0 (" in line for line in lines[1:])


def test_the_same_model_gives_the_same_program() -> None:
    train, targets, _ = halves("iris")
    model = ensemble.RandomForestClassifier(3, random_state=0).fit(train, targets)
    first, second = (covey.compile(model, calibration=train) for _ in range(2))
    assert first.program_hash == second.program_hash
    assert first.report["model"] == "RandomForestClassifier"


def test_check_takes_models_too() -> None:
    train, targets, _ = halves("iris")
    checked = covey.check(make_pipeline(StandardScaler(), linear_model.LogisticRegression()).fit(train, targets))
    assert checked.ok
    assert any("0, 1, 2" in note.text for note in checked.notes)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (ensemble.RandomForestClassifier(), "not fitted: call fit"),
        (neighbors.NearestCentroid(), "skl2onnx cannot convert the NearestCentroid"),
    ],
)
def test_refusals_are_one_line_with_a_way_out(model: Any, message: str) -> None:
    train, targets, _ = halves("iris")
    if "not fitted" not in message:
        model = sklearn.base.clone(model).fit(train, targets)
    with pytest.raises(covey.CoveyError, match=message) as caught:
        covey.compile(model, calibration=train)
    assert "\n" not in str(caught.value)


def test_a_pipeline_of_texts_names_the_way_out() -> None:
    model = make_pipeline(feature_extraction.text.TfidfVectorizer(), linear_model.LogisticRegression())
    model.fit(["a good day", "a bad day", "good", "bad"], [1, 0, 1, 0])
    with pytest.raises(
        covey.ModelError, match="begins with TfidfVectorizer, which reads texts: compile the steps behind"
    ):
        covey.compile(model, input_range=(0, 1))


def test_without_skl2onnx_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    train, targets, _ = halves("iris")
    model = linear_model.LogisticRegression().fit(train, targets)
    monkeypatch.setitem(sys.modules, "skl2onnx", None)
    with pytest.raises(covey.ModelError, match=r"pip install 'covey\[sklearn\]'"):
        covey.compile(model, calibration=train)
