"""Models of XGBoost and LightGBM: their own predictions, and a refusal where onnxmltools converts them wrongly."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import covey
from covey import reference
from covey.importers import boosting
from covey.importers.source import examine
from covey.passes import rewrite

datasets = pytest.importorskip("sklearn.datasets", reason="scikit-learn is not installed")
pytest.importorskip("skl2onnx", reason="skl2onnx, which converts scikit-learn's models, is not installed")
pytest.importorskip(
    "onnxmltools", reason="onnxmltools, which converts XGBoost's and LightGBM's models, is not installed"
)

from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402

LIBRARIES = ("xgboost", "lightgbm")
KINDS = {"xgboost": "XGB", "lightgbm": "LGBM"}
LOADERS = {"two": datasets.load_breast_cancer, "three": datasets.load_iris, "numbers": datasets.load_diabetes}


def data_of(name: str) -> tuple[np.ndarray, np.ndarray]:
    data, targets = LOADERS[name](return_X_y=True)
    return data.astype(np.float32), targets


def module_of(library: str) -> Any:
    return pytest.importorskip(library, reason=f"{library} is not installed")


def model_of(library: str, task: str, **options: Any) -> Any:
    kind = KINDS[library] + ("Regressor" if task == "numbers" else "Classifier")
    quiet = {"verbose": -1} if library == "lightgbm" else {"verbosity": 0}
    return getattr(module_of(library), kind)(n_estimators=8, max_depth=4, random_state=0, **quiet, **options)


def trained(library: str, task: str, **options: Any) -> Any:
    """A booster, without scikit-learn's interface."""
    module, (data, targets) = module_of(library), data_of(task)
    if library == "xgboost":
        return module.train({"max_depth": 3, **options}, module.DMatrix(data, targets), 5)
    return module.train({"verbose": -1, **options}, module.Dataset(data, targets), 5)


def due_of(model: Any, data: np.ndarray) -> np.ndarray:
    """The model's own scores, a column for each class or target."""
    if hasattr(model, "predict_proba"):
        return np.asarray(model.predict_proba(data))
    library = boosting.library_of(model)
    given = module_of("xgboost").DMatrix(data) if library == "xgboost" and boosting.is_booster(model) else data
    return np.asarray(model.predict(given))


def floats(model: Any, data: np.ndarray) -> np.ndarray:
    graph, errors = examine(model)
    assert [*errors, *rewrite(graph)] == []
    (got,) = reference.outputs(graph, {next(iter(graph.inputs)): data})
    return np.asarray(got)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("task", LOADERS)
def test_predictions_are_the_models(library: str, task: str) -> None:
    data, targets = data_of(task)
    model = model_of(library, task).fit(data[::2], targets[::2])
    compiled = covey.compile(model, calibration=data)
    with covey.local(protocol="clear") as parties:
        (got,) = parties.run(compiled, data[:100]).outputs.values()
    due = due_of(model, data[:100]).reshape(got.shape)
    # A sample may lie on a threshold, which is a value of the training data: the input's digits then decide.
    same = np.abs(got - due).max(axis=1) <= 2e-3 * np.abs(due).max()
    assert same.mean() >= 0.97


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_protocol_equals_the_specification(library: str) -> None:
    data, targets = data_of("two")
    compiled = covey.compile(model_of(library, "two").fit(data, targets), calibration=data)
    integers = {}
    for protocol in ("clear", "trio"):
        with covey.local(protocol=protocol) as parties:
            (integers[protocol],) = parties.run(compiled, data[:4]).integers.values()
    np.testing.assert_array_equal(integers["trio"], integers["clear"])


@pytest.mark.parametrize(
    ("library", "options"),
    [
        ("xgboost", {"objective": "count:poisson"}),
        ("xgboost", {"objective": "reg:gamma"}),
        ("xgboost", {"objective": "reg:absoluteerror"}),
        ("xgboost", {"num_parallel_tree": 3, "subsample": 0.5}),
        ("lightgbm", {"objective": "poisson"}),
        ("lightgbm", {"objective": "tweedie"}),
        ("lightgbm", {"objective": "huber"}),
        ("lightgbm", {"boosting_type": "dart"}),
    ],
)
def test_other_objectives_are_the_models(library: str, options: dict[str, Any]) -> None:
    data, targets = data_of("numbers")
    model = model_of(library, "numbers", **options).fit(data, targets)
    np.testing.assert_allclose(floats(model, data)[:, 0], due_of(model, data), rtol=1e-5)


@pytest.mark.parametrize("library", LIBRARIES)
def test_models_that_stop_early_or_missed_values_are_the_models(library: str) -> None:
    data, targets = data_of("two")
    module = module_of(library)
    early = {"early_stopping_rounds": 2} if library == "xgboost" else {}
    stop = {"callbacks": [module.early_stopping(2, verbose=False)]} if library == "lightgbm" else {"verbose": False}
    model = model_of(library, "two", learning_rate=0.9, **early).set_params(n_estimators=60)
    model.fit(data[::2], targets[::2], eval_set=[(data[1::2], targets[1::2])], **stop)
    np.testing.assert_allclose(floats(model, data), due_of(model, data), atol=1e-5)
    missing = np.where(np.random.default_rng(0).random(data.shape) < 0.2, np.nan, data)
    model = model_of(library, "two").fit(missing, targets)
    np.testing.assert_allclose(floats(model, data), due_of(model, data), atol=1e-5)


@pytest.mark.parametrize("library", LIBRARIES)
def test_pipelines_hold_them(library: str) -> None:
    data, targets = data_of("two")
    targets = targets if library == "xgboost" else np.array(["no", "yes"])[targets]
    model = make_pipeline(StandardScaler(), model_of(library, "two")).fit(data, targets)
    same = np.abs(floats(model, data) - due_of(model, data)).max(axis=1) < 1e-4
    # XGBoost's thresholds are values of the training data: the scaler's rounding decides which side these are on.
    assert same.mean() > (0.95 if library == "xgboost" else 0.999)


@pytest.mark.parametrize(
    ("library", "task", "options"),
    [
        ("xgboost", "two", {"objective": "binary:logistic"}),
        ("xgboost", "three", {"objective": "multi:softprob", "num_class": 3}),
        ("xgboost", "numbers", {}),
        ("lightgbm", "two", {"objective": "binary"}),
        ("lightgbm", "three", {"objective": "softmax", "num_class": 3}),
        ("lightgbm", "numbers", {"objective": "mae"}),
    ],
)
def test_boosters_are_themselves(library: str, task: str, options: dict[str, Any]) -> None:
    booster, (data, _) = trained(library, task, **options), data_of(task)
    got, due = floats(booster, data), due_of(booster, data)
    np.testing.assert_allclose(got[:, -1] if due.ndim == 1 else got, due, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("library", "task", "options", "message"),
    [
        ("xgboost", "two", {"num_parallel_tree": 2}, "is a forest for classes.*num_parallel_tree=1"),
        ("xgboost", "three", {"objective": "multi:softmax"}, "the objective 'multi:softmax'.*multi:softprob"),
        ("xgboost", "numbers", {"booster": "gblinear"}, "the booster 'gblinear'.*booster='gbtree'"),
        ("xgboost", "both", {}, "has several targets.*fit a model for each"),
        ("lightgbm", "three", {"objective": "multiclassova"}, "the objective 'multiclassova.*multiclass"),
        ("lightgbm", "two", {"sigmoid": 2.0}, "the objective 'binary sigmoid:2'"),
        ("lightgbm", "numbers", {"reg_sqrt": True}, "the objective 'regression sqrt'"),
        ("lightgbm", "numbers", {"linear_tree": True}, "linear models in its leaves.*without linear_tree"),
        ("lightgbm", "numbers", {"zero_as_missing": True}, "takes 0 for a missing value.*without zero_as_missing"),
        (
            "lightgbm",
            "two",
            {"boosting_type": "rf", "bagging_freq": 1, "bagging_fraction": 0.6},
            "averages its trees.*boosting_type='gbdt'",
        ),
    ],
)
def test_what_is_converted_wrongly_is_refused(library: str, task: str, options: dict[str, Any], message: str) -> None:
    data, targets = data_of("numbers" if task == "both" else task)
    data = np.where(data < 0, np.float32(0), data) if "zero_as_missing" in options else data
    targets = np.stack([targets, -targets], axis=1) if task == "both" else targets
    model = model_of(library, "numbers" if task == "both" else task, **options).fit(data, targets)
    with pytest.raises(covey.ModelError, match=message) as caught:
        covey.compile(model, calibration=data)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("library", LIBRARIES)
def test_without_onnxmltools_the_way_out_is_named(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data, targets = data_of("numbers")
    model, booster = model_of(library, "numbers").fit(data, targets), trained(library, "numbers")
    pipeline = make_pipeline(StandardScaler(), model_of(library, "numbers")).fit(data, targets)
    monkeypatch.setitem(sys.modules, boosting.CONVERTERS[library][0], None)
    for source in (model, pipeline, booster):
        with pytest.raises(covey.ModelError, match=rf"a model of {library} needs onnxmltools.*covey\[boosting\]"):
            covey.compile(source, calibration=data)
