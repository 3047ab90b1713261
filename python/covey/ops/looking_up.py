"""Rows of tables, and one-hot rows, at secret whole numbers: those of an input, or such as the network counts."""

from __future__ import annotations

import numpy as np

from covey.importers.onnx_node import IMPORTERS, OnnxNode, from_onnx
from covey.importers.torch_node import Constant, TorchNode, from_torch
from covey.ir import DType, Op, Value
from covey.ops.affine import Affine
from covey.ops.counting import take_for_truths
from covey.ops.gather import ABSENT, data_axis, pick
from covey.ops.number import Number
from covey.ops.renumbering import check_trained, take_renumbered
from covey.ops.reshape import Reshape
from covey.ops.selection import Indices, indices_of, is_index, one_hot, rows_of
from covey.ops.transpose import Transpose
from covey.ops.whole_numbers import Lookup, OneHot, Take

SUM, MEAN, MAXIMUM = range(3)
"""The modes of an EmbeddingBag."""

PADDING, BY_FREQUENCY = "covey_padding", "covey_by_frequency"
"""Attributes that Gather has here alone, where it is imported from an embedding for training."""


def look_up(node: OnnxNode) -> None:
    """Gather with a constant table and secret indices."""
    given, table = node.activation(1, "indices", index_allowed=True), node.weights(0, "table")
    if node.places([int(node.attribute("axis", 0))], table.ndim) != [0]:
        raise node.unsupported(
            "it takes columns of a table by secret indices", "transpose the table and gather along its axis 0"
        )
    size, *rest = table.shape
    rows, output = table.reshape(size, -1), None if table.ndim == 2 else f"{node.outputs[0]}.rows"
    padding, by_frequency = int(node.attribute(PADDING, -1)), bool(node.attribute(BY_FREQUENCY, 0))
    if not is_index(node, given):
        if not by_frequency and take_renumbered(node, given, rows, (*given.shape, *rest), padding):
            return
        take_for_truths(node.scope.graph, given.name)
        if not is_index(node, given):
            check_trained(node, given, size)
    indices = indices_of(node, given)
    if indices.span is None:
        weight = node.parameter(rows, node.inputs[0])
        taken = node.emit(Take(padding, by_frequency), [indices.numbers, weight], output=output)
        node.note("one-hot rows, which the client shares, times the table")
    else:
        places, among = one_hot(node, indices, size, f"{node.outputs[0]}.one_hot")
        weight = node.parameter(rows[among], f"{node.inputs[0]}.counted")
        padding = among.index(padding) if padding in among else -1
        taken = node.emit(Lookup(padding, by_frequency), [places, weight], output=output)
        node.note("a comparison with every number there may be, and one-hot rows times the table")
    if output is not None:
        node.emit(Reshape((*indices.numbers.shape, *rest)), [taken])


@from_onnx("Hardmax")
def _hardmax(node: OnnxNode) -> None:
    """One-hot rows at the place of the largest element, which is the first of equal ones."""
    x, name = node.activation(0), node.outputs[0]
    place = data_axis(node, x, int(node.attribute("axis", -1 if node.opset >= 13 else 1)))
    if node.opset < 13 and place != len(x.shape) - 1:
        raise node.unsupported("it takes all dimensions behind its axis for one", "use opset 13, or its last axis")
    arguments = [f"{name}.places", f"{name}.depth", f"{name}.values"]
    node.scope.constants[arguments[1]] = np.array(x.shape[place])
    node.scope.constants[arguments[2]] = np.array([0.0, 1.0])
    options = {"axis": place + 1, "keepdims": 0}
    IMPORTERS["ArgMax"](OnnxNode(node.scope, node.name, node.op_type, [x.name], arguments[:1], options))
    one_hot_rows = OnnxNode(node.scope, node.name, node.op_type, arguments, node.outputs, {"axis": place + 1})
    IMPORTERS["OneHot"](one_hot_rows)
    node.note("ArgMax, and a comparison with every place")


@from_onnx("OneHot")
def _one_hot(node: OnnxNode) -> None:
    indices = indices_of(node, node.activation(0, "indices", index_allowed=True))
    numbers = indices.numbers
    depth, values = node.one_number(1, "depth"), node.constant(2, "values").ravel()
    if len(values) != 2:
        raise node.unsupported(f"it has {len(values)} values", "give it one for off and one for on")
    off, on = (float(value) for value in values)
    rank = numbers.rank + 1
    (axis,) = node.places([int(node.attribute("axis", -1))], rank)
    if axis == 0:
        raise node.unsupported("it puts the classes before the batch", "keep the batch first")
    if depth < 1:
        raise node.unsupported(f"its depth is {depth}", "repair the model")
    order = tuple(range(rank - 1))
    moved = (*order[:axis], rank - 1, *order[axis:])
    steps: list[Op] = [OneHot(int(depth))] if indices.span is None else [Number()]
    steps += [Transpose(moved)] if axis != rank - 1 else []
    steps += [Affine(on - off, off)] if (off, on) != (0.0, 1.0) else []
    value = numbers if indices.span is None else _counted_rows(node, indices, int(depth))
    for index, step in enumerate(steps):
        last = index == len(steps) - 1
        value = node.emit(step, [value], output=None if last else f"{node.outputs[0]}.step{index}")
    node.note("one-hot rows, which the client shares" if indices.span is None else "a comparison with every number")


def _counted_rows(node: OnnxNode, indices: Indices, depth: int) -> Value:
    """The one-hot rows of numbers that the network counts; those that are no class have none."""
    assert indices.span is not None
    low, high = indices.span
    if low < 0:
        raise node.unsupported(f"its indices are from {low} to {high}", "add what makes the least of them 0")
    columns = range(low, min(depth - 1, high) + 1)
    if not columns:
        raise node.unsupported(f"its indices are from {low} to {high}, none below its depth", "repair the model")
    rows = rows_of(node, indices, columns, f"{node.outputs[0]}.one_hot")
    if len(columns) == depth:
        return rows
    along = [
        *(range(size) for size in rows.shape[:-1]),
        [k - columns.start if k in columns else ABSENT for k in range(depth)],
    ]
    return node.emit(pick(rows.shape, along), [rows], output=f"{node.outputs[0]}.rows", dtype=DType.BOOL)


@from_torch("aten.embedding.default")
def _embedding_aten(node: TorchNode) -> None:
    node.ignore("padding_idx", "scale_grad_by_freq", "sparse")
    training: dict[str, int] = {}
    if node.scope.trained:
        if node.has("padding_idx"):
            (training[PADDING],) = node.integers("padding_idx")
        training[BY_FREQUENCY] = int(bool(node.argument("scale_grad_by_freq")))
    node.become("Gather", node.operand("weight"), node.activation("indices"), axis=0, **training)


@from_torch("aten.embedding_bag.padding_idx", "aten._embedding_bag_forward_only.default", "aten._embedding_bag.default")
def _embedding_bag_aten(node: TorchNode) -> None:
    """Of bags of one length: the sum, mean or largest of the rows of each. What is padding does not count."""
    node.ignore("scale_grad_by_freq", "sparse", "include_last_offset")
    given, weight = node.activation("indices"), node.operand("weight")
    ids = _of_each(node, given)
    (mode,) = node.integers("mode")
    padding = node.integers("padding_idx")[0] if node.has("padding_idx") else -1
    table = np.asarray(weight.array if isinstance(weight, Constant) else weight)
    padding = padding % len(table) if node.has("padding_idx") and padding != -1 else -1
    if mode == MAXIMUM and padding >= 0:
        raise node.unsupported("its largest rows leave padding out", "use mode='sum' or 'mean', or no padding_idx")
    if padding >= 0:
        table = np.where(np.arange(len(table))[:, None] == padding, 0.0, table)
        weight = Constant(f"{node.name}.without_padding", table)
    rows = node.apply("Gather", weight, ids, axis=0, suffix="rows")
    if node.has("per_sample_weights"):
        factors = _of_each(node, node.activation("per_sample_weights"))
        rows = node.apply("Mul", rows, node.apply("Unsqueeze", factors, np.array([-1])), suffix="weighted")
    operator = ("ReduceSum", "ReduceMean", "ReduceMax")[mode]
    if mode != MEAN or padding < 0:
        node.first_of(operator, rows, np.array([1]), keepdims=0)
        return
    total = node.apply("ReduceSum", rows, np.array([1]), keepdims=0, suffix="total")
    counted = node.apply("Not", node.apply("Equal", ids, float(padding), suffix="padding"), suffix="counted")
    ones = node.apply("Cast", counted, to=1, suffix="ones")
    count = node.apply("ReduceSum", ones, np.array([1]), keepdims=1, suffix="count")
    inverses = 1 / np.arange(ids.shape[0] + 1).clip(min=1)
    node.first_of("Mul", total, node.apply("Gather", inverses, count, axis=0, suffix="inverse"))


def _of_each(node: TorchNode, x: Value) -> Value:
    """What PyTorch has as one row for all samples, as one for each of them: bags of one length."""
    behind = node.scope.activation(node.scope.moved.get(x.name, ""))
    offsets = node.argument("offsets")
    starts = offsets.array if isinstance(offsets, Constant) else None
    if behind is None or starts is None or x.merged != 2 or x.place != 0 or x.at != 0:
        raise node.unsupported("its bags have no common length", "give it indices [batch, length], without offsets")
    if not np.array_equal(starts, np.arange(len(starts)) * behind.shape[0]):
        raise node.unsupported("its bags begin elsewhere than its samples", "give it indices [batch, length]")
    return behind


@from_torch("aten.one_hot.default")
def _one_hot_aten(node: TorchNode) -> None:
    (count,) = node.integers("num_classes")
    if count < 1:
        raise node.unsupported("its number of classes depends on the data", "name it: one_hot(x, num_classes)")
    node.become("OneHot", node.activation("self"), np.array(count), np.array([0.0, 1.0]), axis=-1)
