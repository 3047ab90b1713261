"""Fitted scikit-learn models to ONNX, by skl2onnx. Both are imported only when a model of this kind is given."""

from __future__ import annotations

import copy
import sys
import warnings
from itertools import combinations
from typing import Any

import numpy as np
import onnx
from onnx import helper

from covey.errors import ModelError
from covey.importers import boosting, sklearn_converters, sklearn_trees
from covey.ops.normalizer import LARGEST_SIZE

OPSETS = {"": 18, "ai.onnx.ml": 3}
"""What models are converted to: fixed, so that the same model gives the same program."""

INPUT = "input"
"""What the one input, a row of features for each sample, is called."""


def is_sklearn(source: object) -> bool:
    """Whether it is a scikit-learn model or pipeline, found out without importing scikit-learn."""
    base = sys.modules.get("sklearn.base")
    return base is not None and isinstance(source, base.BaseEstimator)


def name_of(model: Any) -> str:
    """What to call a model: the class of the last step."""
    return type(_last(model)).__name__


def convert(model: Any) -> onnx.ModelProto:
    """A fitted model as ONNX, with float32 features. Raises `ModelError`."""
    try:
        import skl2onnx
        from skl2onnx.common.data_types import FloatTensorType
    except ImportError:
        raise ModelError(
            "a scikit-learn model needs skl2onnx, which is not installed: pip install 'covey[sklearn]'"
        ) from None
    features = _features(model)
    model = _with_linear(with_decisions(_with_votes(model)))
    boosting.register(model)
    try:
        with warnings.catch_warnings(), sklearn_converters.registered():
            warnings.simplefilter("ignore")
            proto = skl2onnx.to_onnx(
                model,
                initial_types=[(INPUT, FloatTensorType([None, features]))],
                options=_options(model),
                target_opset=OPSETS,
            )
    except ModelError:
        raise
    except Exception as error:  # it raises kinds of its own for what it has no converter of, and whatever NumPy does
        text = str(error.__cause__ or error).strip() or type(error).__name__
        raise ModelError(
            f"skl2onnx cannot convert the {name_of(model)} ({text.splitlines()[0][:160]}): take a model that it "
            f"supports, or compile an .onnx file from elsewhere"
        ) from None
    assert isinstance(proto, onnx.ModelProto)
    _with_weights(proto, _last(model))
    sklearn_trees.with_missing(proto, model)
    return with_largest_sizes(proto)


def with_largest_sizes(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Name the norm that scikit-learn divides by where ONNX has MAX, which runtimes read in two ways."""
    for node in proto.graph.node:
        if node.op_type == "Normalizer":
            for attribute in node.attribute:
                if attribute.name == "norm" and attribute.s == b"MAX":
                    attribute.s = LARGEST_SIZE.encode()
    return proto


def _last(model: Any) -> Any:
    steps = getattr(model, "steps", None)
    return steps[-1][1] if steps else model


def _features(model: Any) -> int:
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    try:
        check_is_fitted(model)
    except NotFittedError:
        raise ModelError(f"the {name_of(model)} is not fitted: call fit before compiling it") from None
    except TypeError:  # it has no fit
        raise ModelError(f"the {name_of(model)} is no model that scikit-learn fits: give a fitted one") from None
    count = getattr(model, "n_features_in_", None)
    if count is None and hasattr(model, "steps") and hasattr(model.steps[0][1], "vocabulary_"):
        first = type(model.steps[0][1]).__name__
        raise ModelError(
            f"the pipeline begins with {first}, which reads texts: compile the steps behind it, and let the data owner "
            f"call its transform"
        )
    if count is None:
        raise ModelError(
            f"the {name_of(model)} does not say how many features it takes: convert it with skl2onnx and compile that"
        )
    return int(count)


def _is_svc(model: Any) -> bool:
    from sklearn.svm import SVC, NuSVC

    return isinstance(model, SVC | NuSVC)


def with_decisions(model: Any) -> Any:
    """The model; a support vector machine of several classes gives its decision between each two of them.

    What it gives otherwise, a score or a probability for each class, divides by secrets. It predicts the class of most
    decisions all the same.
    """
    last = _last(model)
    if not _is_svc(last) or len(last.classes_) < 3:
        return model
    model = copy.deepcopy(model)
    last = _last(model)
    last.decision_function_shape, last.probability = "ovo", False
    last._probA = last._probB = np.empty(0)  # which say what was fitted
    return model


def _with_votes(model: Any) -> Any:
    """The model; a VotingClassifier has the form of `transform` that skl2onnx converts, and gives probabilities."""
    from sklearn.ensemble import VotingClassifier

    last = _last(model)
    if not isinstance(last, VotingClassifier):
        return model
    if last.voting != "soft":
        raise ModelError(
            "the VotingClassifier counts labels, which are secret: take voting='soft', which adds up probabilities"
        )
    model = copy.deepcopy(model)
    last = _last(model)
    last.flatten_transform = False
    last.weights = None if last.weights is None else np.asarray(last.weights, dtype=np.float64)
    return model


def _options(model: Any) -> dict[int, dict[str, bool]] | None:
    """Scores as the model itself gives them, the larger being that of the class it predicts."""
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.svm import LinearSVC

    last = _last(model)
    raw = isinstance(last, OneVsRestClassifier) and not hasattr(last, "predict_proba")
    return {id(last): {"raw_scores": True}} if raw or isinstance(last, LinearSVC) else None


def _with_linear(model: Any) -> Any:
    """The model; where skl2onnx is wrong about the last step, another linear model with the same scores in its place.

    It gives two scores for each class of OneVsRestClassifier(LinearSVC()), and one for the two of RidgeClassifier.
    """
    from sklearn.linear_model import RidgeClassifier, RidgeClassifierCV
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.svm import LinearSVC

    last = _last(model)
    parts, other = [last], LinearSVC()
    if isinstance(last, OneVsRestClassifier) and all(isinstance(part, LinearSVC) for part in last.estimators_):
        parts = last.estimators_
    elif not isinstance(last, RidgeClassifier | RidgeClassifierCV) or len(np.atleast_2d(last.coef_)) > 1:
        return model
    other.coef_ = np.concatenate([np.atleast_2d(part.coef_) for part in parts])
    other.intercept_ = np.concatenate([np.atleast_1d(part.intercept_) for part in parts])
    other.classes_, other.n_features_in_ = last.classes_, parts[0].n_features_in_
    if last is model:
        return other
    model = copy.copy(model)
    model.steps = [*model.steps[:-1], (model.steps[-1][0], other)]
    return model


def _with_weights(proto: onnx.ModelProto, last: Any) -> None:
    """Give a support vector machine with a linear kernel its weights in place of vectors and coefficients.

    These add up to the weights, but as float32 they do so with the error of the largest among them.
    """
    from sklearn.svm import SVR, NuSVR

    regressor = isinstance(last, SVR | NuSVR)
    node = next((node for node in proto.graph.node if node.op_type.startswith("SVM")), None)
    if node is None or not (regressor or _is_svc(last)) or last.kernel != "linear":
        return
    weights, biases = np.atleast_2d(_dense(last.coef_)), np.ravel(last.intercept_)
    if regressor:
        replaced = {"coefficients": weights.ravel(), "rho": biases, "support_vectors": (), "n_supports": 0}
    else:
        classes = len(last.classes_)
        if classes == 2:  # decisions are for the second class, those of the node for the first
            weights, biases = -weights, -biases
        # The decision between two classes has one vector, of the first of them.
        pairs = list(combinations(range(classes), 2))
        coefficients = np.zeros((classes - 1, len(pairs)))
        coefficients[[second - 1 for _, second in pairs], range(len(pairs))] = 1
        replaced = {"coefficients": coefficients.ravel(), "rho": biases, "support_vectors": weights.ravel()}
        replaced["vectors_per_class"] = range(classes - 1, -1, -1)
    kept = [attribute for attribute in node.attribute if attribute.name not in replaced]
    made = [helper.make_attribute(name, value) for name, value in _plain(replaced).items()]
    del node.attribute[:]
    node.attribute.extend([*kept, *made])


def _dense(matrix: Any) -> Any:
    """A matrix that may be sparse."""
    return matrix.toarray() if hasattr(matrix, "toarray") else matrix


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """Attributes as ONNX takes them, without empty lists."""
    lists = {name: value if isinstance(value, int) else list(value) for name, value in values.items()}
    return {name: value for name, value in lists.items() if value != []}
