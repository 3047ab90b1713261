"""Numbers that a truth value decides: element-wise operators with constants make one of two numbers of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from covey.importers.onnx_node import IMPORTERS, OnnxNode
from covey.interval import Array
from covey.ir import DType, Graph, Node, Op, Value
from covey.ops.affine import Affine
from covey.ops.gather import Gather
from covey.ops.number import Number
from covey.ops.reshape import Reshape
from covey.ops.transpose import Transpose

_MOVES = Gather | Reshape | Transpose


def decided(node: OnnxNode, x: Value, condition: Callable[[Array], npt.NDArray[Any]]) -> bool:
    """Let a node whose result is a condition on numbers have it without a comparison, where a truth value decides them.

    The condition holds in both cases, in one, or in none, element by element. Returns whether a truth value decides.
    """
    cases = _cases(node.scope.graph, x.name)
    if cases is None:
        return False
    truth, moves, *numbers = cases
    for move in moves:
        truth = node.emit(move, [truth], output=f"{node.outputs[0]}.moved", dtype=DType.BOOL)
    otherwise, then = np.broadcast_arrays(*(np.asarray(condition(each), dtype=bool) for each in numbers))
    differ = otherwise != then
    steps = [("Xor", otherwise & differ), ("And", differ)]
    if (otherwise & then).any():
        steps.append(("Or", otherwise & then))
    name = truth.name
    for index, (operator, constant) in enumerate(steps):
        hint = f"{node.outputs[0]}.{operator}"
        output = node.outputs[0] if index + 1 == len(steps) else node.scope.graph.fresh(hint)
        node.scope.constants[f"{hint}.constant"] = constant[None]
        IMPORTERS[operator](OnnxNode(node.scope, node.name, node.op_type, [name, f"{hint}.constant"], [output], {}))
        name = output
    node.note("known from a truth value")
    return True


def _cases(graph: Graph, name: str) -> tuple[Value, list[Op], Array, Array] | None:
    """The truth value behind a value, the moves between, and a sample's numbers where it is 0 and where it is 1."""
    result, steps = graph.values[name], list[Node]()
    while graph.values[name].dtype is not DType.BOOL:
        made = graph.producer(name)
        if made is None or not (made.op.elementwise or isinstance(made.op, Affine | Number | _MOVES)):
            return None
        operands = [each for each in made.inputs if each not in graph.parameters]
        if len(operands) != 1:
            return None
        steps.insert(0, made)
        (name,) = operands
    truth, moves = graph.values[name], list[Op]()
    shape, zero, one = truth.shape, np.zeros((1, *truth.shape)), np.ones((1, *truth.shape))
    for made in steps:
        if isinstance(made.op, _MOVES):
            if zero.shape[1:] != shape:  # constants have made more elements of a truth value
                return None
            moves.append(made.op)
            shape = graph.values[made.output].shape
        constants = {each: graph.parameters[each] for each in made.inputs if each in graph.parameters}
        zero, one = (
            np.asarray(made.op.reference(*(constants.get(each, case) for each in made.inputs))) for case in (zero, one)
        )
    return truth, moves, *(np.broadcast_to(case, (1, *result.shape))[0] for case in (zero, one))
