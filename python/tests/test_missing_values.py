"""A number that stands for missing features: trees of every kind against onnxruntime on NaN, imputers, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import builders
import covey
import ensembles
import interpreter

MISSING = 100


def holed(samples: int = 60, seed: int = 1) -> np.ndarray:
    """Features that meet thresholds, a quarter of which are missing."""
    data = ensembles.features(4, samples, seed)
    data[np.random.default_rng(seed).random(data.shape) < 0.25] = np.nan
    return data


def forest() -> onnx.ModelProto:
    """Random trees whose nodes send missing features either way."""
    rng = np.random.default_rng(3)
    attributes = ensembles.attributes([ensembles.grow(rng, 4, 4, 1) for _ in range(6)], "target", 1)
    attributes["nodes_missing_value_tracks_true"] = rng.integers(0, 2, len(attributes["nodes_modes"])).tolist()
    return ensembles.single("TreeEnsembleRegressor", 4, n_targets=1, **attributes)


@pytest.mark.parametrize("hidden", [False, True])
def test_trees_take_it_as_they_take_nan(hidden: bool) -> None:
    proto, data = forest(), holed()
    (due,) = builders.float_results(proto, {"x": data})
    compiled = covey.compile(proto, calibration=data, missing=MISSING, hide_features=hidden)
    filled = np.nan_to_num(data, nan=MISSING)
    (got,) = interpreter.run(compiled, {"x": filled})
    np.testing.assert_allclose(got, due, atol=5e-3)
    plain = covey.compile(proto, input_range=(-MISSING, MISSING), hide_features=hidden)
    assert np.abs(interpreter.run(plain, {"x": filled})[0] - due).max() > 0.1
    (entry,) = compiled.report["inputs"]
    assert "100 stands for a missing feature" in str(entry)
    assert entry["high"] == MISSING


def test_hidden_nodes_do_not_say_how_they_take_it() -> None:
    """Forests of one shape, of other features and sides, have one program."""
    programs = []
    for turn in range(2):
        proto = forest()
        features, sides = (
            next(each for each in proto.graph.node[0].attribute if each.name == name).ints
            for name in ("nodes_featureids", "nodes_missing_value_tracks_true")
        )
        for index in range(len(features)):
            features[index] = (features[index] + turn) % 4
            sides[index] = (sides[index] + turn) % 2
        programs.append(
            [
                covey.compile(proto, calibration=holed(), missing=MISSING, hide_features=hidden).program_bytes
                for hidden in (False, True)
            ]
        )
    (plain, hidden), (other_plain, other_hidden) = programs
    assert plain != other_plain and hidden == other_hidden


def test_a_scaler_before_trees() -> None:
    proto, data = forest(), holed()
    scaler = helper.make_node("Scaler", ["x"], ["s"], name="s", domain=ensembles.ML, offset=[0.5], scale=[2.0])
    proto.graph.node[0].input[0] = "s"
    proto.graph.node.insert(0, scaler)
    (due,) = builders.float_results(proto, {"x": data})
    compiled = covey.compile(proto, calibration=data, missing=MISSING)
    (got,) = interpreter.run(compiled, {"x": np.nan_to_num(data, nan=MISSING)})
    np.testing.assert_allclose(got, due, atol=5e-3)


def imputed(*behind: onnx.NodeProto) -> onnx.ModelProto:
    values = {"imputed_value_floats": [0.5, -1.0, 2.0, 0.0], "replaced_value_float": float("nan")}
    node = helper.make_node("Imputer", ["x"], ["f"], name="imputer", domain=ensembles.ML, **values)
    return ensembles.model([node, *behind], {"x": ["N", 4]}, {"y": onnx.TensorProto.FLOAT})


LAYER = {"coefficients": [1.0, 2.0, -1.0, 0.5], "intercepts": [1.0]}


def test_imputers_fill_it_in() -> None:
    layer = helper.make_node("LinearRegressor", ["f"], ["y"], name="layer", domain=ensembles.ML, **LAYER)
    proto, data = imputed(layer), holed()
    (due,) = builders.float_results(proto, {"x": data})
    compiled = covey.compile(proto, calibration=data, missing=MISSING)
    with covey.local(protocol="trio") as parties:
        (got,) = parties.run(compiled, np.nan_to_num(data[:9], nan=MISSING)).outputs.values()
    np.testing.assert_allclose(got, due[:9], atol=5e-3)


def test_refusals() -> None:
    proto, data = forest(), holed()
    layer = ensembles.single("LinearRegressor", 4, **LAYER)
    cases: list[tuple[onnx.ModelProto, dict[str, Any], str]] = [
        (layer, {"calibration": data, "missing": MISSING}, "it would take 100 for a feature; put a SimpleImputer"),
        (proto, {"calibration": data, "missing": 2}, "holds 3, and missing is 2: let a larger number"),
        (proto, {"input_range": (-200, 200), "missing": MISSING}, "may be up to 200: let a larger number"),
        (proto, {"calibration": data, "missing": 100.5}, "missing is 100.5: give a whole number"),
        (proto, {"calibration": data}, "holds nan.*with `covey compile --missing`"),
    ]
    for model, options, message in cases:
        with pytest.raises(covey.CoveyError, match=message) as caught:
            covey.compile(model, **options)
        assert "\n" not in str(caught.value)
    with pytest.raises(covey.DataError, match=r"holds nan at \[0, 0\]: clean the data first$"):
        covey.compile(layer, calibration=np.full((2, 4), np.nan))


# scikit-learn

sklearn = pytest.importorskip("sklearn", reason="scikit-learn is not installed")
pytest.importorskip("skl2onnx", reason="skl2onnx, which converts scikit-learn's models, is not installed")

from sklearn import calibration, datasets, ensemble, tree  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402

FOREST = ensemble.RandomForestClassifier(3, max_depth=4, random_state=0)


@pytest.mark.parametrize(
    "model",
    [
        ensemble.HistGradientBoostingClassifier(max_iter=5, max_leaf_nodes=8),
        ensemble.RandomForestClassifier(6, max_depth=5, random_state=0),
        tree.DecisionTreeClassifier(max_depth=5, random_state=0),
        ensemble.BaggingClassifier(tree.DecisionTreeClassifier(max_depth=4), 4, max_features=0.5, random_state=0),
        ensemble.VotingClassifier([("a", FOREST), ("b", make_pipeline(FOREST))], voting="soft"),
        calibration.CalibratedClassifierCV(FOREST, cv=2),
    ],
    ids=lambda model: type(model).__name__,
)
def test_models_predict_as_scikit_learn_does(model: Any) -> None:
    data, targets = datasets.load_breast_cancer(return_X_y=True)
    data = data.astype(np.float32)
    data[np.random.default_rng(0).random(data.shape) < 0.2] = np.nan
    model.fit(data[:300], targets[:300])
    compiled = covey.compile(model, calibration=data[:300], missing=10_000)
    with covey.local(protocol="clear") as parties:
        (got,) = parties.run(compiled, np.nan_to_num(data[300:400], nan=10_000)).outputs.values()
    np.testing.assert_allclose(got, model.predict_proba(data[300:400]), atol=2e-3)


def test_trees_whose_sides_are_lost_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where calibration data hold no NaN, or there are none."""
    data, targets = datasets.load_breast_cancer(return_X_y=True)
    holes = np.where(np.random.default_rng(0).random(data.shape) < 0.3, np.nan, data)
    model = tree.DecisionTreeClassifier(max_depth=4, random_state=0).fit(holes, targets)
    monkeypatch.setattr("covey.importers.sklearn_trees.with_missing", lambda proto, model: None)
    for options in ({"calibration": data}, {"input_range": (0, 5000)}):
        with pytest.raises(covey.ModelError, match="that skl2onnx converts gives another result"):
            covey.compile(model, missing=10_000, **options)
