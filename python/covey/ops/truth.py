"""Numbers as truth values: whether they are not 0, and whether they are numbers, which all are."""

from __future__ import annotations

import numpy as np

from covey.importers.onnx_node import OnnxNode, from_onnx
from covey.importers.torch_node import TorchNode, from_torch
from covey.ir import DType, Graph, Value
from covey.ops.add import Add
from covey.ops.comparison import Equal, Not
from covey.ops.mul import Mul
from covey.ops.number import Number
from covey.ops.sub import Sub
from covey.ops.whole_numbers import Truth


def unlike_zero(node: OnnxNode, x: Value) -> None:
    """Whether numbers are not 0. Nothing is compared where that is known of truth values which they come from."""
    graph, name = node.scope.graph, node.outputs[0]
    source, opposite = _truth_behind(graph, x.name)
    if source is None:
        zero = node.parameter(np.zeros(()), f"{name}.zero")
        equal = node.emit(Equal(), [x, zero], output=f"{name}.equal", dtype=DType.BOOL)
        node.emit(Not(), [equal], dtype=DType.BOOL)
        return
    if source.dtype is DType.INDEX:
        source = node.emit(Truth(), [source], output=f"{name}.truth" if opposite else None, dtype=DType.BOOL)
        if not opposite:
            return
    if opposite:
        node.emit(Not(), [source], dtype=DType.BOOL)
    else:
        node.alias(source)
        node.note("removed: it changes nothing")


def _truth_behind(graph: Graph, name: str) -> tuple[Value | None, bool]:
    """The truth value, or number of an input, that is not 0 where a value is not 0; or where that is 0."""
    made = graph.producer(name)
    if made is None:
        return None, False
    if isinstance(made.op, Number):
        source = graph.values[made.inputs[0]]
        return (source if source.dtype is DType.BOOL or graph.holds_input(source.name) else None), False
    constants = [graph.parameters.get(each) for each in made.inputs]
    if isinstance(made.op, Sub) and constants[0] is not None:
        behind, opposite = _truth_behind(graph, made.inputs[1])
        truth = behind is not None and behind.dtype is DType.BOOL and not opposite and bool((constants[0] == 1).all())
        return (behind, True) if truth else (None, False)
    chosen = graph.producer(made.inputs[0])
    if not isinstance(made.op, Add) or constants[1] is None or chosen is None or not isinstance(chosen.op, Mul):
        return None, False
    condition, gap = graph.values[chosen.inputs[0]], graph.parameters.get(chosen.inputs[1])
    if condition.dtype is not DType.BOOL or gap is None or condition.shape != graph.values[name].shape:
        return None, False
    # A choice between two constants.
    taken, otherwise = constants[1] + gap != 0, constants[1] != 0
    if taken.all() and not otherwise.any():
        return condition, False
    return (condition, True) if otherwise.all() and not taken.any() else (None, False)


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
    node.constant_result(np.full((1, *x.shape), node.op_type == "aten.isfinite"), repeated=x.batch_first)
