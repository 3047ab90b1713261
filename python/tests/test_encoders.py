"""Categories among real features: ONNX's encoders, and scikit-learn's pipelines with a ColumnTransformer."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper

import builders
import covey
from covey.clear import run_clear
from covey.model import load

RNG = np.random.default_rng(0)
X = RNG.integers(0, 6, (60, 2)).astype(np.float32)


def model(*nodes: onnx.NodeProto) -> onnx.ModelProto:
    """From x, two numbers a sample, to y."""
    proto = builders.model(list(nodes), {"x": ["N", 2]}, ["y"])
    proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    if not proto.graph.output[0].type.tensor_type.HasField("shape"):  # which ONNX does not infer for all of them
        proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 2]))
    return proto


def ml(op: str, read: str = "x", output: str = "y", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, [read], [output], name=op, domain="ai.onnx.ml", **attributes)


def computed(model: Any, x: npt.NDArray[Any] = X) -> npt.NDArray[Any]:
    (y,) = run_clear(load(covey.compile(model, calibration=x)), x).outputs.values()
    return np.asarray(y)


@pytest.mark.parametrize("categories", [[0, 1, 2, 3, 4, 5], [5, 0, 3, 1, 4, 2]])
def test_every_category_is_known(categories: list[int]) -> None:
    """One comparison for two neighbours, in whatever order they are."""
    proto = model(ml("OneHotEncoder", cats_int64s=categories, zeros=0))
    np.testing.assert_array_equal(computed(proto), X[..., None] == np.array(categories))


def test_unknown_categories_are_zeros() -> None:
    cast = helper.make_node("Cast", ["x"], ["c"], name="cast", to=TensorProto.INT64)
    proto = model(cast, ml("OneHotEncoder", "c", cats_int64s=[4, 1], zeros=1))
    np.testing.assert_array_equal(computed(proto), X[..., None] == np.array([4, 1]))
    proto = model(ml("OneHotEncoder", cats_int64s=[3], zeros=1))
    np.testing.assert_array_equal(computed(proto), X[..., None] == np.array([3]))


def test_labels() -> None:
    keys, values = [0.0, 2.0, 3.0], [7, 1, -4]
    wanted = np.full(X.shape, -1.0)
    for key, value in zip(keys, values, strict=True):
        wanted[key == X] = value
    np.testing.assert_array_equal(computed(model(ml("LabelEncoder", keys_floats=keys, values_int64s=values))), wanted)
    real = ml("LabelEncoder", keys_int64s=[0, 2, 3], values_floats=[0.5, 1.5, -2.0], default_float=0.25)
    wanted = np.select([X == 0, X == 2, X == 3], [0.5, 1.5, -2.0], 0.25)
    np.testing.assert_array_equal(computed(model(real)), wanted)


def test_thresholds() -> None:
    np.testing.assert_array_equal(computed(model(ml("Binarizer", threshold=2.0))), X > 2)


def test_refusals() -> None:
    texts = ml("OneHotEncoder", cats_strings=["a", "b"])
    assert "encode texts as numbers" in str(covey.check(model(texts)).errors[0])
    texts = ml("LabelEncoder", keys_strings=["a"], values_int64s=[1])
    assert "encode texts as numbers" in str(covey.check(model(texts)).errors[0])
    double = ml("OneHotEncoder", cats_int64s=[1, 1])
    assert "not all different" in str(covey.check(model(double)).errors[0])
    # Read by another operator as well, a Cast to whole numbers takes them.
    cast = helper.make_node("Cast", ["x"], ["c"], name="cast", to=TensorProto.INT64)
    encoder, negated = ml("OneHotEncoder", "c", "e", cats_int64s=[1, 2]), helper.make_node("Neg", ["c"], ["y"])
    assert covey.check(model(cast, encoder, negated)).notes[0].text.startswith("the floors")


def pipelines() -> dict[str, Any]:
    """Pipelines of scikit-learn with categories in the first columns."""
    compose = pytest.importorskip("sklearn.compose", reason="scikit-learn is not installed")
    pytest.importorskip("skl2onnx", reason="skl2onnx is not installed")
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import Binarizer, OneHotEncoder, OrdinalEncoder, StandardScaler
    from sklearn.tree import DecisionTreeClassifier

    def of(encoder: Any, rest: Any, last: Any) -> Any:
        return make_pipeline(compose.ColumnTransformer([("c", encoder, [0, 1]), ("n", rest, [2, 3, 4])]), last)

    return {
        "one hot": of(OneHotEncoder(), StandardScaler(), LogisticRegression()),
        "unknown ones": of(OneHotEncoder(handle_unknown="ignore"), "passthrough", LogisticRegression()),
        "without the first": of(OneHotEncoder(drop="first"), StandardScaler(), LogisticRegression()),
        "ordinal": of(OrdinalEncoder(), StandardScaler(), DecisionTreeClassifier(max_depth=4, random_state=0)),
        "thresholds": make_pipeline(Binarizer(threshold=0.3), LogisticRegression()),
    }


@pytest.mark.parametrize("name", ["one hot", "unknown ones", "without the first", "ordinal", "thresholds"])
def test_pipelines(name: str) -> None:
    rng = np.random.default_rng(1)
    columns = [rng.integers(0, 4, (300, 1)), rng.choice([10, 12, 17], (300, 1)), rng.normal(size=(300, 3))]
    x = np.concatenate(columns, axis=1).astype(np.float32)
    classes = (x[:, 0] + x[:, 2] > 1.5).astype(int)
    pipeline = pipelines()[name].fit(x, classes)
    scores = computed(pipeline, x)
    chosen = scores.argmax(axis=1) if scores.ndim > 1 and scores.shape[1] > 1 else scores.ravel() > 0
    assert (chosen == pipeline.predict(x)).mean() > 0.99
