"""Nodes of the ONNX graph that a converter of a scikit-learn model adds, with constants of double precision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import TensorProto


class Nodes:
    """What one operator of skl2onnx becomes: `scope` has names, `container` takes nodes."""

    def __init__(self, scope: Any, operator: Any, container: Any) -> None:
        self.scope, self.operator, self.container = scope, operator, container
        self.model = operator.raw_operator

    @property
    def x(self) -> str:
        """The operator's input."""
        return str(self.operator.inputs[0].full_name)

    def output(self, index: int = -1) -> str:
        """An output of the operator, by default its scores."""
        return str(self.operator.outputs[index].full_name)

    def constant(self, array: Any, hint: str) -> str:
        """An initialiser."""
        array = np.asarray(array)
        kind = {"f": TensorProto.DOUBLE, "i": TensorProto.INT64}.get(array.dtype.kind, TensorProto.STRING)
        values = (
            [str(each).encode() for each in array.ravel()] if kind == TensorProto.STRING else array.ravel().tolist()
        )
        name = str(self.scope.get_unique_variable_name(hint))
        self.container.add_initializer(name, kind, list(array.shape), values)
        return name

    def add(
        self, op: str, inputs: Sequence[str], output: str | None = None, *, domain: str = "", **attributes: Any
    ) -> str:
        """A node, and the name of its result."""
        name = output or str(self.scope.get_unique_variable_name(op.lower()))
        version = {"": 18, "ai.onnx.ml": 3}.get(domain, 1)
        self.container.add_node(
            op,
            list(inputs),
            [name],
            op_domain=domain,
            op_version=version,
            name=self.scope.get_unique_operator_name(op),
            **attributes,
        )
        return name

    def dense(self, x: str, weight: Any, bias: Any, output: str | None = None) -> str:
        """x times a matrix, and a bias."""
        product = self.add("MatMul", [x, self.constant(weight, "weight")])
        return self.add("Add", [product, self.constant(bias, "bias")], output)

    def scores(self, raw: str) -> None:
        """The probabilities that are the Softmax of raw scores, and labels, which Covey drops.

        CalibratedClassifierCV asks some models for the raw scores.
        """
        known = self.container.has_options(self.model, "raw_scores")
        if known and self.container.get_options(self.model, {"raw_scores": False})["raw_scores"]:
            self.add("Identity", [raw], self.output())
        else:
            self.add("Softmax", [raw], self.output(), axis=-1)
        self.labels()

    def labels(self) -> None:
        """The labels of the largest scores."""
        classes = np.asarray(self.model.classes_)
        classes = classes if classes.dtype.kind in "US" else classes.astype(np.int64)
        place = self.add("ArgMax", [self.output()], axis=1, keepdims=0)
        found = self.add("ArrayFeatureExtractor", [self.constant(classes, "classes"), place], domain="ai.onnx.ml")
        self.add("Reshape", [found, self.constant(np.array([-1]), "shape")], self.output(0))
