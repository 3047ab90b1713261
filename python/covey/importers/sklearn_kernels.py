"""Models of scikit-learn that read kernels: ridge regression, and the features that stand for a kernel."""

from __future__ import annotations

from typing import Any

import numpy as np

from covey.errors import ModelError
from covey.importers.onnx_node import OWN_DOMAIN
from covey.importers.sklearn_nodes import Nodes
from covey.interval import Array

KERNELS = {"rbf": "RBF", "poly": "POLY", "polynomial": "POLY", "sigmoid": "SIGMOID"}
"""What ONNX calls scikit-learn's kernels, but the linear one."""


def convert_ridge(scope: Any, operator: Any, container: Any) -> None:
    """KernelRidge: sums of the kernel's values for what it was trained on."""
    nodes = Nodes(scope, operator, container)
    coefficients = np.asarray(nodes.model.dual_coef_)
    _times(nodes, nodes.model.X_fit_, coefficients.reshape(len(coefficients), -1))


def convert_nystroem(scope: Any, operator: Any, container: Any) -> None:
    """Nystroem: a linear map of the kernel's values for some samples."""
    nodes = Nodes(scope, operator, container)
    _times(nodes, nodes.model.components_, nodes.model.normalization_.T)


def convert_sampler(scope: Any, operator: Any, container: Any) -> None:
    """RBFSampler: cosines of random products."""
    nodes = Nodes(scope, operator, container)
    model = nodes.model
    cosines = nodes.add("Cos", [nodes.dense(nodes.x, model.random_weights_, model.random_offset_)])
    nodes.add("Mul", [cosines, nodes.constant(np.array(np.sqrt(2.0 / model.n_components)), "factor")], nodes.output())


def _times(nodes: Nodes, vectors: Any, weight: Array) -> None:
    """The kernel's values for some vectors, times a matrix."""
    model = nodes.model
    vectors = np.asarray(vectors.toarray() if hasattr(vectors, "toarray") else vectors, dtype=np.float64)
    if model.kernel == "linear":
        nodes.add("MatMul", [nodes.x, nodes.constant(vectors.T @ weight, "weight")], nodes.output())
        return
    if not isinstance(model.kernel, str) or model.kernel not in KERNELS or getattr(model, "kernel_params", None):
        raise ModelError(
            f"the {type(model).__name__} has the kernel {model.kernel!r}, which has no secure form: take one of "
            f"{', '.join(KERNELS)} or linear, without kernel_params"
        )
    values = nodes.add(
        "Kernel",
        [nodes.x, nodes.constant(vectors, "vectors")],
        domain=OWN_DOMAIN,
        kernel=KERNELS[model.kernel],
        gamma=float(1.0 / vectors.shape[1] if model.gamma is None else model.gamma),
        summand=float(1.0 if model.coef0 is None else model.coef0),
        degree=float(3.0 if model.degree is None else model.degree),
    )
    nodes.add("MatMul", [values, nodes.constant(weight, "weight")], nodes.output())
