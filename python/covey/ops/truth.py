"""Numbers as truth values: whether they are not 0, and whether they are numbers, which all are."""

from __future__ import annotations

import numpy as np

from covey.importers.onnx_node import OnnxNode, from_onnx
from covey.importers.torch_node import TorchNode, from_torch
from covey.ir import DType, Value
from covey.ops.comparison import Equal, Not
from covey.ops.number import Number
from covey.ops.two_cases import decided
from covey.ops.whole_numbers import Truth


def unlike_zero(node: OnnxNode, x: Value) -> None:
    """Whether numbers are not 0. Nothing is compared where they come from truth values, or are those of an input."""
    graph, name = node.scope.graph, node.outputs[0]
    if decided(node, x, lambda numbers: numbers != 0.0):
        return
    made = graph.producer(x.name)
    if made is not None and isinstance(made.op, Number) and graph.holds_input(made.inputs[0]):
        node.emit(Truth(), [graph.values[made.inputs[0]]], dtype=DType.BOOL)
        return
    zero = node.parameter(np.zeros(()), f"{name}.zero")
    equal = node.emit(Equal(), [x, zero], output=f"{name}.equal", dtype=DType.BOOL)
    node.emit(Not(), [equal], dtype=DType.BOOL)


@from_onnx("IsInf", "IsNaN")
def _is_no_number(node: OnnxNode) -> None:
    """No value of a program is either, and no client shares one."""
    node.ignore("detect_negative", "detect_positive")
    node.scope.constants[node.outputs[0]] = np.zeros((1, *node.activation(0).shape), dtype=bool)
    node.note("constant: all values are finite")


@from_torch(
    "aten.isfinite.default",
    "aten.isinf.default",
    "aten.isnan.default",
    "aten.isneginf.default",
    "aten.isposinf.default",
)
def _is_number_aten(node: TorchNode) -> None:
    x = node.argument("self")
    node.constant_result(np.full((1, *x.shape), node.op_type == "aten.isfinite"), repeated=0 if x.batch_first else None)
