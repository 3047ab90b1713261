"""Whether the graph of a scikit-learn model computes what the model itself does: converters make mistakes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from covey import reference
from covey.errors import ModelError
from covey.importers.sklearn import name_of, with_decisions
from covey.interval import Array
from covey.ir import Graph

HOLES = 0.2
"""What part of features is missing in samples that are made for that."""

MOST_SAMPLES = 256
"""Samples that both compute."""

TOLERANCE = 1e-2
"""The difference, over the largest result of all samples, from which on a sample counts as another."""

MOST_OTHERS = 0.02
"""The fraction of samples that may be others: a tree's threshold may lie between float32 and float64."""


def check_results(model: Any, graph: Graph, samples: Mapping[str, Array], missing: int | None = None) -> None:
    """Refuse an imported model whose results on these samples are not scikit-learn's. Raises `ModelError`.

    `missing` stands for NaN in the samples, and in some that are made of them.
    """
    (given,) = (samples[name][:MOST_SAMPLES].astype(np.float32) for name in graph.inputs)
    _check(model, graph, given, missing)
    if missing is not None:
        holes = np.random.default_rng(0).random(given.shape) < HOLES
        _check(model, graph, np.where(holes, np.float32(missing), given), missing)


def _check(model: Any, graph: Graph, given: npt.NDArray[np.float32], missing: int | None) -> None:
    found = reference.outputs(graph, {graph.inputs[0]: given.astype(np.float64)})[-1]
    if missing is not None:
        given = np.where(given == missing, np.float32(np.nan), given)
    results = _results(with_decisions(model), given)
    compared = [(method, others) for method, due in results if (others := _others(found, due)) is not None]
    if not results or (compared and np.mean(compared[0][1]) <= MOST_OTHERS):
        return
    how = (
        f"another result to {compared[0][1].sum()} of {len(given)} samples" if compared else "results of another shape"
    )
    raise ModelError(
        f"the {name_of(model)} that skl2onnx converts gives {how} than its own {(compared or results)[0][0]}: take "
        f"another model, or compile an .onnx file from elsewhere"
    )


def _results(model: Any, given: npt.NDArray[Any]) -> list[tuple[str, npt.NDArray[Any]]]:
    """What the model gives, by its methods, the first that have the form of the graph's result counting."""
    results = []
    classes = hasattr(model, "classes_")
    methods = ("predict_proba", "decision_function") if classes else ("decision_function", "predict", "transform")
    for method in methods:
        try:
            result = getattr(model, method)(given)
        except Exception:  # it lacks the method, or takes no such samples: there is nothing to compare with
            continue
        if isinstance(result, np.ndarray) and result.dtype.kind == "f":
            results.append((method, result))
    return results


def _others(found: Array, due: npt.NDArray[Any]) -> npt.NDArray[np.bool_] | None:
    """Which samples have another result; None where the two have not one form."""
    if due.ndim == 1 and found.ndim == 2 and found.shape[1] == 2:
        due = np.stack([-due, due], axis=1)
    due = due.reshape(len(due), -1)
    if found.shape != due.shape:
        return None
    off = np.abs(found - due).max(axis=1)
    return np.asarray(off > TOLERANCE * np.abs(due).max(initial=0.0))
