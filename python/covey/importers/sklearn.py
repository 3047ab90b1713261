"""Fitted scikit-learn models to ONNX, by skl2onnx. Both are imported only when a model of this kind is given."""

from __future__ import annotations

import copy
import sys
import warnings
from typing import Any

import onnx

from covey.errors import ModelError
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
    model = _with_decisions(model)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            proto = skl2onnx.to_onnx(
                model,
                initial_types=[(INPUT, FloatTensorType([None, features]))],
                options=_options(model),
                target_opset=OPSETS,
            )
    except Exception as error:  # it raises kinds of its own for what it has no converter of, and whatever NumPy does
        text = str(error.__cause__ or error).strip() or type(error).__name__
        raise ModelError(
            f"skl2onnx cannot convert the {name_of(model)} ({text.splitlines()[0][:160]}): take a model that it "
            f"supports, or compile an .onnx file from elsewhere"
        ) from None
    assert isinstance(proto, onnx.ModelProto)
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
    if count is None:
        raise ModelError(
            f"the {name_of(model)} does not say how many features it takes: convert it with skl2onnx and compile that"
        )
    return int(count)


def _is_svc(model: Any) -> bool:
    from sklearn.svm import SVC, NuSVC

    return isinstance(model, SVC | NuSVC)


def _with_decisions(model: Any) -> Any:
    """The model; a support vector machine of several classes gives its decision between each two of them.

    What it gives otherwise, a score for each class, divides by secrets.
    """
    last = _last(model)
    if not _is_svc(last) or len(last.classes_) < 3 or last.decision_function_shape == "ovo":
        return model
    model = copy.deepcopy(model)
    _last(model).decision_function_shape = "ovo"
    return model


def _options(model: Any) -> dict[int, dict[str, bool]] | None:
    """Scores as the model itself gives them, the larger being that of the class it predicts."""
    from sklearn.svm import LinearSVC

    last = _last(model)
    raw = isinstance(last, LinearSVC) or (_is_svc(last) and len(last.classes_) == 2)
    return {id(last): {"raw_scores": True}} if raw else None
