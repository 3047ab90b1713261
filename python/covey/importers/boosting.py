"""Models of XGBoost and LightGBM to ONNX, by onnxmltools: alone, within what scikit-learn fits, and boosters.

onnxmltools converts some of them to a network that computes something else. A model is converted only where it is of a
kind whose conversion is known to be right.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import onnx

from covey.errors import ModelError

CONVERTERS = {
    "xgboost": ("onnxmltools.convert.xgboost.operator_converters.XGBoost", "convert_xgboost"),
    "lightgbm": ("onnxmltools.convert.lightgbm.operator_converters.LightGbm", "convert_lightgbm"),
}
"""By library: the module of onnxmltools and its function that convert a model."""

CLASSIFIERS = ("XGBClassifier", "XGBRFClassifier", "LGBMClassifier")
REGRESSORS = ("XGBRegressor", "XGBRFRegressor", "LGBMRegressor")

OBJECTIVES = {
    "xgboost": (
        "binary:logistic", "multi:softprob", "reg:squarederror", "reg:squaredlogerror", "reg:absoluteerror",
        "reg:pseudohubererror", "count:poisson", "reg:gamma", "reg:tweedie",
    ),
    "lightgbm": (
        "binary sigmoid:1", "multiclass", "regression", "regression_l1", "huber", "quantile", "poisson", "gamma",
        "tweedie",
    ),
}  # fmt: skip
"""By library: what a model may be trained for."""

OPSET = 15
"""What boosters are converted to: fixed, so that the same model gives the same program."""


def library_of(model: object) -> str | None:
    """The library that a model is of, if it is XGBoost or LightGBM."""
    root = type(model).__module__.partition(".")[0]
    return root if root in CONVERTERS else None


def is_booster(source: object) -> bool:
    """Whether it is what these libraries train without scikit-learn's interface."""
    return type(source).__name__ == "Booster" and library_of(source) is not None


def register(model: Any) -> None:
    """Let skl2onnx convert the models of these libraries that `model` is, or holds. Raises `ModelError`."""
    held = [model, *(model.get_params() if hasattr(model, "get_params") else {}).values()]
    for library in sorted({found for each in held if (found := library_of(each)) is not None}):
        from skl2onnx import update_registered_converter
        from skl2onnx.common import shape_calculator

        convert = _converter(library)
        for name, classifies in ((name, name in CLASSIFIERS) for name in (*CLASSIFIERS, *REGRESSORS)):
            kind = getattr(sys.modules[library], name, None)
            if kind is not None:
                update_registered_converter(
                    kind,
                    f"Covey{name}",
                    shape_calculator.calculate_linear_classifier_output_shapes
                    if classifies
                    else shape_calculator.calculate_linear_regressor_output_shapes,
                    convert,
                    options={"nocl": [True, False], "zipmap": [True, False, "columns"]} if classifies else None,
                    overwrite=True,
                )


def convert_booster(booster: Any) -> onnx.ModelProto:
    """A booster as ONNX, with float32 features. Raises `ModelError`."""
    library = library_of(booster)
    assert library is not None
    _converter(library)
    check_booster(library, booster)
    if library == "lightgbm":
        booster = type(booster)(model_str=booster.model_to_string())  # which has the objective by its own name
    features = booster.num_features() if library == "xgboost" else booster.num_feature()
    import onnxmltools
    from onnxmltools.convert.common.data_types import FloatTensorType

    convert = onnxmltools.convert_xgboost if library == "xgboost" else onnxmltools.convert_lightgbm
    try:
        proto = convert(booster, initial_types=[("input", FloatTensorType([None, features]))], target_opset=OPSET)
    except Exception as error:  # it raises kinds of its own for what it has no converter of
        text = (str(error).strip() or type(error).__name__).splitlines()[0][:160]
        raise ModelError(
            f"onnxmltools cannot convert the Booster of {library} ({text}): fit it with scikit-learn's interface, or "
            f"compile an .onnx file from elsewhere"
        ) from None
    assert isinstance(proto, onnx.ModelProto)
    return proto


def check_booster(library: str, booster: Any) -> None:
    """Raises `ModelError` for a booster that onnxmltools converts to something else, or not at all."""
    reason = next(_wrong_in_xgboost(booster) if library == "xgboost" else _wrong_in_lightgbm(booster), None)
    if reason is not None:
        raise ModelError(f"the {library} model {reason}")


def _converter(library: str) -> Callable[[Any, Any, Any], None]:
    """What skl2onnx calls for each model: onnxmltools' converter behind the check. Raises `ModelError`."""
    module, name = CONVERTERS[library]
    try:
        convert = getattr(importlib.import_module(module), name)
    except ImportError:
        raise ModelError(
            f"a model of {library} needs onnxmltools, which is not installed: pip install 'covey[boosting]'"
        ) from None

    def checked(scope: Any, operator: Any, container: Any) -> None:
        model = operator.raw_operator
        check_booster(library, model.get_booster() if library == "xgboost" else model.booster_)
        convert(scope, operator, container)

    return checked


def _wrong_in_xgboost(booster: Any) -> Iterator[str]:
    learner = json.loads(booster.save_config())["learner"]
    kind, objective = learner["gradient_booster"]["name"], learner["objective"]["name"]
    if kind != "gbtree":
        yield f"has the booster '{kind}', which onnxmltools does not convert: train it with booster='gbtree'"
    yield from _wrong_objective("xgboost", objective)
    if objective.startswith(("binary", "multi")) and _parallel(learner) > 1:
        yield "is a forest for classes, which onnxmltools converts wrongly: train it with num_parallel_tree=1"
    if int(learner["learner_model_param"].get("num_target", 1)) > 1:
        yield "has several targets, of which onnxmltools converts one: fit a model for each"
    if "c" in (booster.feature_types or []):
        yield "has categorical features, which onnxmltools does not convert: encode them as numbers first"


def _parallel(learner: dict[str, Any]) -> int:
    """Trees in each round."""
    return int(learner["gradient_booster"]["gbtree_model_param"].get("num_parallel_tree", 1))


def _wrong_in_lightgbm(booster: Any) -> Iterator[str]:
    dump = booster.dump_model()
    yield from _wrong_objective("lightgbm", str(dump.get("objective", "custom")))
    if dump.get("average_output"):
        yield "averages its trees, which onnxmltools converts wrongly: train it with boosting_type='gbdt'"
    for tree in dump["tree_info"]:
        for node in _nodes(tree["tree_structure"]):
            if "leaf_coeff" in node:
                yield "has linear models in its leaves, which onnxmltools leaves out: train it without linear_tree"
            if node.get("missing_type") == "Zero":
                yield "takes 0 for a missing value, which onnxmltools does not: train it without zero_as_missing"


def _wrong_objective(library: str, objective: str) -> Iterator[str]:
    known = OBJECTIVES[library]
    # LightGBM writes options behind the name: the number of classes, or of which power, but `sqrt` changes the result.
    name = objective if objective.startswith("binary") or "sqrt" in objective else objective.partition(" ")[0]
    if name not in known:
        yield (
            f"has the objective '{objective}', whose results onnxmltools does not convert rightly: train it for one of "
            f"{', '.join(each.partition(' ')[0] for each in known)}"
        )


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    waiting = [node]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += [node[side] for side in ("left_child", "right_child") if side in node]
