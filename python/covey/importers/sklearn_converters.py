"""Which of scikit-learn's models are converted to ONNX by Covey itself: skl2onnx lacks them, or is wrong about them.

They take part in skl2onnx's conversion like its own, so pipelines and ensembles may hold them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from covey.importers import sklearn_densities, sklearn_kernels, sklearn_neighbours, sklearn_trees

Converter = Callable[[Any, Any, Any], None]
"""Adds the nodes of an operator of skl2onnx to a container, with names from its scope."""

CLASSIFIER = {"nocl": [True, False], "zipmap": [True, False, "columns"]}
"""Options of models with labels and scores; others have a column a target."""

DECIDER = {**CLASSIFIER, "raw_scores": [True, False]}
"""Those of models whose scores before the Softmax are their decision functions, 0 for the first of two classes."""


@dataclass(frozen=True)
class _Model:
    """How a class of models is converted, and which options of skl2onnx it must know."""

    module: str
    name: str
    convert: Converter
    options: dict[str, Any] | None = None


MODELS = (
    _Model("sklearn.ensemble", "HistGradientBoostingClassifier", sklearn_trees.convert_histogram_classifier, DECIDER),
    _Model("sklearn.ensemble", "HistGradientBoostingRegressor", sklearn_trees.convert_histogram_regressor),
    _Model("sklearn.ensemble", "AdaBoostClassifier", sklearn_trees.convert_boosted_classifier, CLASSIFIER),
    _Model(
        "sklearn.ensemble", "IsolationForest", sklearn_trees.convert_isolation_forest, {"score_samples": [True, False]}
    ),
    _Model("sklearn.kernel_ridge", "KernelRidge", sklearn_kernels.convert_ridge),
    _Model("sklearn.kernel_approximation", "Nystroem", sklearn_kernels.convert_nystroem),
    _Model("sklearn.kernel_approximation", "RBFSampler", sklearn_kernels.convert_sampler),
    _Model("sklearn.neighbors", "KNeighborsClassifier", sklearn_neighbours.convert_classifier, CLASSIFIER),
    _Model("sklearn.neighbors", "KNeighborsRegressor", sklearn_neighbours.convert_regressor),
    _Model("sklearn.naive_bayes", "GaussianNB", sklearn_densities.convert_naive_bayes, CLASSIFIER),
    _Model(
        "sklearn.discriminant_analysis",
        "LinearDiscriminantAnalysis",
        sklearn_densities.convert_linear_discriminant,
        DECIDER,
    ),
    _Model(
        "sklearn.discriminant_analysis",
        "QuadraticDiscriminantAnalysis",
        sklearn_densities.convert_discriminant,
        CLASSIFIER,
    ),
)


@contextmanager
def registered() -> Iterator[None]:
    """skl2onnx converts the models that are loaded by these functions, until it is left to its own again."""
    from skl2onnx import update_registered_converter
    from skl2onnx._parse import sklearn_parsers_map
    from skl2onnx._supported_operators import sklearn_operator_name_map
    from skl2onnx.common import shape_calculator

    tables = (sklearn_operator_name_map, sklearn_parsers_map)
    before = [dict(table) for table in tables]
    for model in MODELS:
        kind = getattr(sys.modules.get(model.module), model.name, None)
        if kind is None:
            continue
        update_registered_converter(
            kind,
            f"Covey{model.name}",
            shape_calculator.calculate_linear_classifier_output_shapes
            if model.options in (CLASSIFIER, DECIDER)
            else _columns,
            model.convert,
            options=model.options,
            overwrite=True,
        )
    try:
        yield
    finally:
        for table, entries in zip(tables, before, strict=True):
            table.clear()
            table.update(entries)


def _columns(operator: Any) -> None:
    """The types of a model's numbers, which may stand behind labels of outliers."""
    from skl2onnx.common.data_types import FloatTensorType, Int64TensorType

    rows = operator.inputs[0].get_first_dimension()
    operator.outputs[0].type = Int64TensorType([rows, 1])
    operator.outputs[-1].type = FloatTensorType([rows, None])
