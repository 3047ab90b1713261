"""Puts a batch of one in front of a model of one operator: what that changes in its attributes and constants.

Covey's activations have the batch first, ONNX's test vectors mostly have none. An operator applied to each sample alone
is the same operator with every axis one further on; where that is not so (Flatten, Gemm, a dot product of vectors), the
model cannot be read so.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import helper, numpy_helper

ELEMENTWISE_TEXT = """
    Abs Acos Acosh Add And Asin Asinh Atan Atanh Cast CastLike Celu Clip Cos Cosh Div Dropout Elu Equal Erf Exp Gelu
    Greater GreaterOrEqual HardSigmoid HardSwish Identity LeakyRelu Less LessOrEqual Log Max Mean Min Mish Mul Neg Not
    Or Pow PRelu Reciprocal Relu Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Sum Swish Tan Tanh
    ThresholdedRelu Where Xor
"""
ELEMENTWISE = frozenset(ELEMENTWISE_TEXT.split())
"""Operators that broadcast: dimensions align at the end, so inputs of fewer dimensions get ones behind the batch."""

DEFAULT_AXIS = {
    **dict.fromkeys(
        ("Hardmax", "LayerNormalization", "LogSoftmax", "LpNormalization", "RMSNormalization", "Softmax", "TopK"), -1
    ),
    **dict.fromkeys(("ArgMax", "ArgMin", "Gather", "GatherElements", "ScatterElements", "Split"), 0),
    "Concat": None,
}
"""Operators with an `axis`, and what it is where it is not given."""

REDUCTIONS_TEXT = """
    ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare
"""
REDUCTIONS = frozenset(REDUCTIONS_TEXT.split())


RECURRENT = {"GRU", "LSTM", "RNN"}
"""Operators that know a batch themselves: behind the sequence, where their layout is 0."""


Reading = tuple[onnx.ModelProto, dict[str, np.ndarray], list[np.ndarray]]


class NotBatchableError(Exception):
    """The model has no such reading."""


def with_batch_of_one(model: onnx.ModelProto, inputs: dict[str, np.ndarray], outputs: list[np.ndarray]) -> Reading:
    """Model, inputs and outputs with one more dimension in front. Raises `NotBatchableError`."""
    if len(model.graph.node) != 1 or model.functions:
        raise NotBatchableError("a batch of one is only put in front of single operators")
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    node = changed.graph.node[0]
    change = _CHANGES.get(node.op_type)
    if change is None and node.op_type not in ELEMENTWISE and node.op_type not in DEFAULT_AXIS:
        raise NotBatchableError(f"a batch of one cannot be put in front of {node.op_type}")
    ranks = [inputs[name].ndim for name in node.input if name in inputs]
    rank = max(ranks, default=0)
    view = _View(changed, node, rank, inputs)
    if node.op_type in ELEMENTWISE:
        # A constant of more dimensions would stretch the activations.
        rank = max([rank, *(view.constant(i).ndim for i in range(len(node.input)) if view.is_constant(i))])
    elif node.op_type == "Expand":
        rank = max(rank, view.constant(1).size)
    elif node.op_type in DEFAULT_AXIS:
        view.shift_axis(DEFAULT_AXIS[node.op_type])
    if change is not None:
        change(view)
    batched = {name: array.reshape(1, *(1,) * (rank - array.ndim), *array.shape) for name, array in inputs.items()}
    for value in changed.graph.input:
        if value.name in batched:
            _reshape(value, batched[value.name].shape)
    for value, output in zip(changed.graph.output, outputs, strict=True):
        _reshape(value, (1, *output.shape))
    del changed.graph.value_info[:]
    return changed, batched, [output[None] for output in outputs]


def with_batch_brought_first(
    model: onnx.ModelProto, inputs: dict[str, np.ndarray], outputs: list[np.ndarray]
) -> Reading:
    """A recurrent operator whose batch the model moves behind the sequence, and back. Raises `NotBatchableError`."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    (node,) = changed.graph.node
    if any(entry.name == "layout" and entry.i for entry in node.attribute):
        raise NotBatchableError("the batch is in front")
    turned, back = {name: array.swapaxes(0, 1) for name, array in inputs.items()}, []
    before, after = [], []
    for value in changed.graph.input:
        if value.name in turned:
            _reshape(value, turned[value.name].shape)
            before.append(helper.make_node("Transpose", [value.name], [f"{value.name}.inside"], perm=[1, 0, 2]))
    node.input[:] = [f"{name}.inside" if name in turned else name for name in node.input]
    for value, output in zip(changed.graph.output, outputs, strict=True):
        order = [2, 0, 1, 3] if output.ndim == 4 else [1, 0, 2]
        back.append(output.transpose(order))
        _reshape(value, back[-1].shape)
        after.append(helper.make_node("Transpose", [f"{value.name}.inside"], [value.name], perm=order))
    node.output[:] = [f"{name}.inside" if name else "" for name in node.output]
    inner = onnx.NodeProto()
    inner.CopyFrom(node)
    del changed.graph.node[:]
    changed.graph.node.extend([*before, inner, *after])
    return changed, turned, back


def _reshape(value: onnx.ValueInfoProto, shape: tuple[int, ...]) -> None:
    value.type.tensor_type.ClearField("shape")
    for size in shape:
        value.type.tensor_type.shape.dim.add().dim_value = size


class _View:
    """The one node, with its constants and attributes to change."""

    def __init__(self, model: onnx.ModelProto, node: onnx.NodeProto, rank: int, inputs: dict[str, np.ndarray]) -> None:
        self.model, self.node, self.rank, self.inputs = model, node, rank, inputs
        self.opset = next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))

    def is_constant(self, index: int) -> bool:
        names = {tensor.name for tensor in self.model.graph.initializer}
        return index < len(self.node.input) and self.node.input[index] in names

    def constant(self, index: int) -> np.ndarray:
        name = self.node.input[index]
        for tensor in self.model.graph.initializer:
            if tensor.name == name:
                return np.asarray(numpy_helper.to_array(tensor))
        raise NotBatchableError(f"its operand {index} is secret")

    def replace(self, index: int, array: np.ndarray, name: str = "changed") -> None:
        """Give the node another constant; operands in between are left out."""
        while len(self.node.input) <= index:
            self.node.input.append("")
        self.node.input[index] = f"{name}.{index}"
        self.model.graph.initializer.append(numpy_helper.from_array(array, self.node.input[index]))

    def attribute(self, name: str) -> object:
        found = next((entry for entry in self.node.attribute if entry.name == name), None)
        return None if found is None else helper.get_attribute_value(found)

    def set(self, name: str, value: object) -> None:
        kept = [entry for entry in self.node.attribute if entry.name != name]
        del self.node.attribute[:]
        self.node.attribute.extend([*kept, helper.make_attribute(name, value)])

    def shift_axis(self, default: int | None) -> None:
        axis = self.attribute("axis")
        axis = default if axis is None else axis
        if isinstance(axis, int):
            self.set("axis", axis + 1 if axis >= 0 else axis)

    def shift_axes(self, index: int, default: list[int] | None) -> None:
        """Axes in operand `index` or in the attribute `axes`; `default` is what no axes mean, without a batch."""
        shifted = [axis + 1 for axis in default] if default is not None else None
        if index < len(self.node.input) and self.node.input[index]:
            given = self.constant(index).astype(np.int64)
            if given.size or shifted is None:
                shifted = [int(axis) + 1 if axis >= 0 else int(axis) for axis in given.ravel()]
            self.replace(index, np.array(shifted, dtype=np.int64))
            return
        axes = self.attribute("axes")
        if isinstance(axes, list):
            self.set("axes", [axis + 1 if axis >= 0 else axis for axis in axes])
        elif shifted is not None and self._takes_attribute(index):
            self.set("axes", shifted)
        elif shifted is not None:
            self.replace(index, np.array(shifted, dtype=np.int64))

    def _takes_attribute(self, index: int) -> bool:
        schema = onnx.defs.get_schema(self.node.op_type, self.opset)
        return len(schema.inputs) <= index

    def prefix(self, index: int, value: float) -> None:
        array = self.constant(index)
        if array.size:
            self.replace(index, np.concatenate([np.array([value], dtype=array.dtype), array.ravel()]))


def _reduce(view: _View) -> None:
    if view.attribute("noop_with_empty_axes"):
        raise NotBatchableError("it runs over no axes")
    view.shift_axes(1, list(range(view.rank)))


def _squeeze(view: _View) -> None:
    (array,) = view.inputs.values()
    view.shift_axes(1, [axis for axis, size in enumerate(array.shape) if size == 1])


def _slice(view: _View) -> None:
    starts = view.attribute("starts") if view.opset < 10 else view.constant(1)
    view.shift_axes(3, list(range(len(starts))))  # type: ignore[arg-type]


def _pad(view: _View) -> None:
    if len(view.node.input) > 3 and view.node.input[3]:
        view.shift_axes(3, None)
        return
    pads = view.constant(1) if view.opset >= 11 else np.array(view.attribute("pads"))
    half = pads.size // 2
    longer = np.concatenate([[0], pads[:half], [0], pads[half:]]).astype(np.int64)
    if view.opset >= 11:
        view.replace(1, longer)
    else:
        view.set("pads", longer.tolist())


def _transpose(view: _View) -> None:
    order = view.attribute("perm") or list(reversed(range(view.rank)))
    view.set("perm", [0, *(axis + 1 for axis in order)])  # type: ignore[attr-defined]


def _resize(view: _View) -> None:
    if isinstance(view.attribute("axes"), list):
        view.shift_axes(9, None)
        return
    for index, filling in ((1, 1.0), (2, 1.0), (3, 1)) if view.opset >= 11 else ((1, 1.0),):
        if index == 1 and view.opset >= 11:
            continue
        if view.is_constant(index):
            view.prefix(index, filling)


def _cumulative_sum(view: _View) -> None:
    axis = int(view.constant(1).ravel()[0])
    view.replace(1, np.array(axis + 1 if axis >= 0 else axis))


def _constant_first(view: _View) -> None:
    """The constant operands of one sample, as they are of a batch of one."""
    for index in (1, 2):
        if view.is_constant(index):
            view.replace(index, view.constant(index)[None])


def _gather_nd(view: _View) -> None:
    _constant_first(view)
    view.set("batch_dims", (view.attribute("batch_dims") or 0) + 1)  # type: ignore[operator]


def _einsum(view: _View) -> None:
    """A label for the batch of every secret operand and of the result."""
    equation = bytes(view.attribute("equation")).decode().replace(" ", "")  # type: ignore[call-overload]
    terms, arrow, result = equation.partition("->")
    if not arrow or "." in equation:
        raise NotBatchableError("its equation does not name the result's dimensions")
    names = zip(terms.split(","), view.node.input, strict=True)
    batched = ",".join(f"Z{term}" if name in view.inputs else term for term, name in names)
    view.set("equation", f"{batched}->Z{result}")


def _matmul(view: _View) -> None:
    if any(array.ndim < 2 for array in view.inputs.values()):
        raise NotBatchableError("a vector would become a matrix")


_CHANGES: dict[str, Callable[[_View], None]] = {
    **dict.fromkeys(REDUCTIONS, _reduce),
    **dict.fromkeys(("GatherElements", "ScatterElements"), _constant_first),
    "CumSum": _cumulative_sum,
    "Einsum": _einsum,
    "GatherND": _gather_nd,
    "Trilu": lambda _: None,
    "Squeeze": _squeeze,
    "Unsqueeze": lambda view: view.shift_axes(1, None),
    "Slice": _slice,
    "Pad": _pad,
    "Transpose": _transpose,
    "Resize": _resize,
    "Upsample": lambda view: view.prefix(1, 1.0),
    "Tile": lambda view: view.prefix(1, 1),
    "Reshape": lambda view: view.prefix(1, 1),
    "Expand": lambda view: view.prefix(1, 1),
    "MatMul": _matmul,
}
