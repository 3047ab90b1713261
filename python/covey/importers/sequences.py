"""Recurrent layers where the batch has moved, or is merged with others: as on one dimension more, in front."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from covey.importers.doubts import value_of
from covey.importers.layouts import BEHIND
from covey.importers.merged import emit
from covey.importers.onnx_node import IMPORTERS, OnnxNode

if TYPE_CHECKING:
    from covey.importers.moved import Frame

KINDS = ("GRU", "LSTM", "RNN")


def recurrent(frame: Frame) -> None:
    """Sequences [N * copies, length, size], or [length, N * copies, size] in layout 0: of [N, copies, length, size].

    States before and behind are [N * copies, directions, hidden], or [directions, N * copies, hidden].
    """
    node, x = frame.node, frame.x
    before = 0 if node.flag("layout") else 1
    if x.place != before or node.inputs[0] != x.name:
        raise frame.refused("it takes other dimensions than those")
    inputs = list(node.inputs)
    for index in filter(node.has, (0, 5, 6)):
        value = value_of(node.scope, inputs[index])
        if value is None:
            inputs[index] = frame.constant(_state(frame, node.constant(index, "initial state"), before))
        else:
            order = _lead(frame, len(value.shape), before)
            inputs[index] = _transposed(frame, node.scope.moved[value.name], order)
    results = [node.scope.graph.fresh(f"{name}{BEHIND}") if name else "" for name in node.outputs]
    pairs = list(zip(node.outputs, results, strict=True))
    node.scope.used.update(result for name, result in pairs if name in node.scope.used)
    inner = OnnxNode(node.scope, node.name, node.op_type, inputs, results, {**node.attributes, "layout": 1})
    IMPORTERS[frame.operator](inner)
    node.read |= inner.read
    # Layout 0 has all states as [length, directions, N * copies, hidden].
    for (name, result), behind in zip(pairs, (2 * before, before, before), strict=False):
        value = node.scope.activation(result)
        if name in node.scope.used and value is not None:
            order = np.argsort(_lead(frame, len(value.shape), behind)).tolist()
            source = _transposed(frame, result, order)
            own = replace(frame, node=replace(node, outputs=[name], attributes={}))
            own.become([source], frame.layout.shifted(behind - before), operator="Identity")


def _transposed(frame: Frame, name: str, order: list[int]) -> str:
    return name if order == sorted(order) else emit(frame, "Transpose", [name], {"perm": order})


def _state(frame: Frame, array: npt.NDArray[Any], before: int) -> npt.NDArray[Any]:
    """One sample's part of a constant state: the same for all sequences, or a state for each sequence of a sample."""
    rows: npt.NDArray[Any] = np.moveaxis(array, before, 0)
    lead = frame.x.shape[before : before + frame.x.merged - 1]
    first: npt.NDArray[Any] = rows[0]
    if (rows == first).all():
        return first
    if len(rows) != prod(lead) or frame.x.at != frame.x.first:
        raise frame.refused("its constant initial state differs between the rows")
    return rows.reshape(*lead, *rows.shape[1:])


def _lead(frame: Frame, rank: int, before: int) -> list[int]:
    """The order of dimensions that brings what is merged with the batch in front of so many that stand before it."""
    count = frame.x.merged - 1
    order = [*range(before, before + count), *range(before), *range(before + count, rank)]
    return [0, *(axis + 1 for axis in order)]
