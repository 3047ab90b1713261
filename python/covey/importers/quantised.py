"""Quantised ONNX models as the floating-point models that they stand for.

A quantised tensor stands for real numbers, (integer - zero point) * scale: the network is computed on these. Weights
and biases are exact. Activations are cut off where their integers end, as a ReLU or ReLU6 may live in that alone; their
rounding to 8 bits is left out: Covey rounds to its own, finer, scale.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from covey.errors import ModelError, UnsupportedError
from covey.importers.folding import real
from covey.importers.onnx_node import MS_DOMAIN
from covey.importers.replacements import FLOAT_MODEL

Array = npt.NDArray[Any]

_MOVES = {
    "Concat", "Flatten", "Gather", "Identity", "MaxPool", "Reshape", "Slice", "Split", "Squeeze", "Transpose",
    "Unsqueeze",
}  # fmt: skip
"""What does the same to integers as to the numbers that they stand for."""

_SMALL = {"int4": (-8, 7), "uint4": (0, 15), "int2": (-2, 1), "uint2": (0, 3)}
"""Ends of integer types that NumPy does not have."""


@dataclass(frozen=True)
class Grid:
    """Which real numbers the integers of a tensor stand for."""

    scale: float
    zero: float


def dequantised(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """The model without quantised tensors, if it has any. Raises `UnsupportedError` where integers are used as such."""
    if not any(node.op_type in _WRITTEN for node in model.graph.node):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    _Rewriter(copy, opset).run()
    return copy


class _NotKnownError(Exception):
    """A scale or zero point that is no constant, or of another form than one number: the node is left as it is."""


@dataclass
class _Rewriter:
    model: onnx.ModelProto
    opset: int
    constants: dict[str, Array] = field(default_factory=dict)
    grids: dict[str, Grid] = field(default_factory=dict)
    """The quantised activations."""
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    """Of tensors."""
    named: set[str] = field(default_factory=set)
    """Of the nodes that were written."""

    def run(self) -> None:
        graph = self.model.graph
        self.constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
        self.names = {name for node in graph.node for name in (*node.input, *node.output)} | set(self.constants)
        for node in graph.node:
            if node.op_type == "Constant" and len(node.attribute) == 1 and node.attribute[0].name == "value":
                self.constants[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
            self._node(node)
        for output in graph.output:
            if output.name in self.grids:
                raise ModelError(f"output '{output.name}' is quantised: end the model with DequantizeLinear")
        del graph.node[:]
        graph.node.extend(self.nodes)
        # Shapes of values are known from the operators; their types are not what they were.
        del graph.value_info[:]

    def _node(self, node: onnx.NodeProto) -> None:
        writer = _WRITTEN.get(node.op_type)
        if writer is not None and node.domain in ("", "ai.onnx", MS_DOMAIN):
            kept = len(self.nodes)
            try:
                writer(self, node)
                return
            except _NotKnownError:
                del self.nodes[kept:]
        read = [self.grids[name] for name in node.input if name in self.grids]
        if read:
            alone = node.op_type == "Concat" and len(read) < len(node.input)
            if node.op_type not in _MOVES or len(set(read)) > 1 or alone or writer is not None:
                reason = "it computes with the integers of a quantised tensor"
                raise UnsupportedError(node.name or node.op_type, node.op_type, reason, FLOAT_MODEL)
            self.grids.update(dict.fromkeys(node.output, read[0]))
        self.nodes.append(node)

    # What writers of operators use

    def constant(self, node: onnx.NodeProto, index: int) -> Array:
        """An operand that is a constant; none is the number 0."""
        if index >= len(node.input) or not node.input[index]:
            return np.zeros((), np.uint8)
        if node.input[index] not in self.constants:
            raise _NotKnownError
        return self.constants[node.input[index]]

    def grid(self, node: onnx.NodeProto, scale: int, zero: int) -> Grid:
        """What two operands say, one number each."""
        step, offset = self.constant(node, scale), self.constant(node, zero)
        if step.size != 1 or offset.size != 1 or offset.dtype.kind == "f" or not np.isfinite(step.astype(float)).all():
            raise _NotKnownError
        return Grid(float(step.ravel()[0]), float(offset.ravel()[0]))

    def kind(self, node: onnx.NodeProto, zero: int) -> np.dtype[Any]:
        """The type of the integers that a zero point, or an attribute, stands for."""
        chosen = next((each.i for each in node.attribute if each.name == "output_dtype" and each.i), None)
        if chosen is not None:
            return np.dtype(helper.tensor_dtype_to_np_dtype(chosen))
        return self.constant(node, zero).dtype

    def write(self, node: onnx.NodeProto, op: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        """A node in the place of a quantised one, whose name the first has; gives its output's name."""
        name = f"{node.name}.{output}" if node.name in self.named else node.name
        self.named.update(filter(None, [name]))
        self.nodes.append(helper.make_node(op, list(inputs), [output], name=name, **attributes))
        return output

    def store(self, hint: str, array: Array) -> str:
        """A constant under a name of its own."""
        name = self.fresh(hint)
        self.constants[name] = array
        self.model.graph.initializer.append(numpy_helper.from_array(array, name))
        return name

    def fresh(self, hint: str) -> str:
        """A name that nothing has."""
        name, count = hint, 1
        while name in self.names:
            count += 1
            name = f"{hint}.{count}"
        self.names.add(name)
        return name

    def operand(self, node: onnx.NodeProto, index: int, grid: Grid) -> str:
        """An operand as real numbers: a constant, or an activation, which has to be of this grid."""
        name = node.input[index]
        if name in self.constants:
            scale, zero = np.array(grid.scale), np.array(grid.zero)
            return self.store_real(name, self.constants[name], scale, zero, 0)
        if name not in self.grids:
            raise _NotKnownError
        return self.moved(node, name, self.grids[name], grid)

    def weights(self, node: onnx.NodeProto, index: int, scale: int, zero: int, axis: int) -> str:
        """A constant operand as real numbers; scale and zero point are for all of it, or for each place of an axis."""
        scales, zeros = self.constant(node, scale), self.constant(node, zero)
        return self.store_real(node.input[index], self.constant(node, index), scales, zeros, axis)

    def store_real(self, name: str, integers: Array, scale: Array, zero: Array, axis: int) -> str:
        """A constant of what the integers called `name` stand for."""
        try:
            return self.store(f"{name}.real", real(integers, scale, zero, axis).astype(np.float32))
        except ValueError:
            raise _NotKnownError from None

    def moved(self, node: onnx.NodeProto, name: str, own: Grid, read: Grid, output: str | None = None) -> str:
        """Integers of one grid as what they stand for in another."""
        if own == read:
            return name if output is None else self.write(node, "Identity", [name], output)
        factor = np.array(read.scale / own.scale, np.float32)
        summand = np.array((own.zero - read.zero) * read.scale, np.float32)
        product = self.write(node, "Mul", [name, self.store(f"{name}.factor", factor)], self.fresh(f"{name}.product"))
        return self.write(node, "Add", [product, self.store(f"{name}.summand", summand)], output or self.fresh(name))

    def give(self, node: onnx.NodeProto, name: str, scale: int, zero: int) -> None:
        """The node's result is a number cut off where the integers of its grid end."""
        grid, kind, output = self.grid(node, scale, zero), self.kind(node, zero), node.output[0]
        if grid.scale <= 0:
            raise _NotKnownError
        least, most = _ends(kind)
        ends = [float(np.float32((end - grid.zero) * grid.scale)) for end in (least, most)]
        if self.opset < 11:
            self.write(node, "Clip", [name], output, min=ends[0], max=ends[1])
        else:
            sides = zip(("low", "high"), ends, strict=True)
            bounds = [self.store(f"{output}.{side}", np.array(end, np.float32)) for side, end in sides]
            self.write(node, "Clip", [name, *bounds], output)
        self.grids[output] = grid


def _ends(kind: np.dtype[Any]) -> tuple[int, int]:
    if kind.name in _SMALL:
        return _SMALL[kind.name]
    if kind.kind not in "iu":
        raise _NotKnownError
    return int(np.iinfo(kind).min), int(np.iinfo(kind).max)


def _attributes(node: onnx.NodeProto, *left_out: str) -> dict[str, Any]:
    return {each.name: helper.get_attribute_value(each) for each in node.attribute if each.name not in left_out}


def _quantize(to: _Rewriter, node: onnx.NodeProto) -> None:
    if node.input[0] in to.constants:
        raise _NotKnownError
    to.give(node, node.input[0], 1, 2)


def _dequantize(to: _Rewriter, node: onnx.NodeProto) -> None:
    if node.input[0] not in to.grids:  # of a constant: evaluated as all constants are
        raise _NotKnownError
    to.moved(node, node.input[0], to.grids[node.input[0]], to.grid(node, 1, 2), node.output[0])


def _dynamic(to: _Rewriter, node: onnx.NodeProto) -> None:
    """Integers with a scale that depends on the data stand for the numbers themselves: with scale 1."""
    to.write(node, "Identity", [node.input[0]], node.output[0])
    to.grids[node.output[0]] = Grid(1.0, 0.0)
    known: list[Array] = [np.array(1.0, np.float32), np.array(0, np.uint8)]
    for name, array in zip(node.output[1:], known, strict=False):
        if name:
            to.constants[name] = array
            to.model.graph.initializer.append(numpy_helper.from_array(array, name))


def _integer_product(operator: str, axis: int) -> Callable[[_Rewriter, onnx.NodeProto], None]:
    """A product of an activation's integers less their zero point and of a constant's."""

    def writer(to: _Rewriter, node: onnx.NodeProto) -> None:
        if node.input[0] not in to.grids:
            raise _NotKnownError
        own, zero = to.grids[node.input[0]], to.constant(node, 2)
        if zero.size != 1 or float(zero.ravel()[0]) != own.zero:
            raise _NotKnownError
        weights = to.store_real(node.input[1], to.constant(node, 1), np.array(1.0), to.constant(node, 3), axis)
        output = node.output[0]
        product = output if own.scale == 1 else to.fresh(f"{output}.real")
        to.write(node, operator, [node.input[0], weights], product, **_attributes(node))
        if product != output:
            factor = to.store(f"{output}.factor", np.array(1 / own.scale, np.float32))
            to.write(node, "Mul", [product, factor], output)

    return writer


def _conv(to: _Rewriter, node: onnx.NodeProto) -> None:
    x = to.operand(node, 0, to.grid(node, 1, 2))
    inputs = [x, to.weights(node, 3, 4, 5, 0)]
    if len(node.input) > 8 and node.input[8]:
        inputs.append(_bias(to, node, 8, to.grid(node, 1, 2).scale, to.constant(node, 4)))
    to.give(node, to.write(node, "Conv", inputs, to.fresh(f"{node.output[0]}.real"), **_attributes(node)), 6, 7)


def _bias(to: _Rewriter, node: onnx.NodeProto, index: int, scale: float, scales: Array) -> str:
    """A bias in units of the product's scale."""
    array = to.constant(node, index).astype(np.float64) * scale * scales.astype(np.float64).ravel()
    return to.store(f"{node.input[index]}.real", array.astype(np.float32))


def _matmul(to: _Rewriter, node: onnx.NodeProto) -> None:
    left = to.operand(node, 0, to.grid(node, 1, 2))
    right = to.weights(node, 3, 4, 5, -1) if node.input[3] in to.constants else to.operand(node, 3, to.grid(node, 4, 5))
    to.give(node, to.write(node, "MatMul", [left, right], to.fresh(f"{node.output[0]}.real")), 6, 7)


def _gemm(to: _Rewriter, node: onnx.NodeProto) -> None:
    """A, its scale and zero point, B and its own, C; a scale and zero point of the result, or none: it is real then."""
    attributes = _attributes(node)
    x = to.operand(node, 0, to.grid(node, 1, 2))
    inputs = [x, to.weights(node, 3, 4, 5, 0 if attributes.get("transB") else 1)]
    if len(node.input) > 6 and node.input[6]:
        scale = to.grid(node, 1, 2).scale * float(attributes.get("alpha", 1.0))
        inputs.append(_bias(to, node, 6, scale, to.constant(node, 4)))
    if len(node.input) > 7 and node.input[7]:
        to.give(node, to.write(node, "Gemm", inputs, to.fresh(f"{node.output[0]}.real"), **attributes), 7, 8)
    else:
        to.write(node, "Gemm", inputs, node.output[0], **attributes)


def _binary(operator: str) -> Callable[[_Rewriter, onnx.NodeProto], None]:
    def writer(to: _Rewriter, node: onnx.NodeProto) -> None:
        operands = [to.operand(node, first, to.grid(node, first + 1, first + 2)) for first in (0, 3)]
        to.give(node, to.write(node, operator, operands, to.fresh(f"{node.output[0]}.real")), 6, 7)

    return writer


def _unary(operator: str, *left_out: str) -> Callable[[_Rewriter, onnx.NodeProto], None]:
    def writer(to: _Rewriter, node: onnx.NodeProto) -> None:
        attributes = _attributes(node, *left_out)
        if any(each.name in left_out and each.i for each in node.attribute):
            raise _NotKnownError
        x = to.operand(node, 0, to.grid(node, 1, 2))
        to.give(node, to.write(node, operator, [x], to.fresh(f"{node.output[0]}.real"), **attributes), 3, 4)

    return writer


def _concat(to: _Rewriter, node: onnx.NodeProto) -> None:
    """The result's scale and zero point, then each operand with its own."""
    operands = [to.operand(node, i, to.grid(node, i + 1, i + 2)) for i in range(2, len(node.input), 3)]
    to.give(node, to.write(node, "Concat", operands, to.fresh(f"{node.output[0]}.real"), **_attributes(node)), 0, 1)


_WRITTEN: dict[str, Callable[[_Rewriter, onnx.NodeProto], None]] = {
    "QuantizeLinear": _quantize,
    "DequantizeLinear": _dequantize,
    "DynamicQuantizeLinear": _dynamic,
    "MatMulInteger": _integer_product("MatMul", -1),
    "ConvInteger": _integer_product("Conv", 0),
    "QLinearConv": _conv,
    "QLinearMatMul": _matmul,
    "QGemm": _gemm,
    "QLinearAdd": _binary("Add"),
    "QLinearMul": _binary("Mul"),
    "QLinearAveragePool": _unary("AveragePool", "channels_last"),
    "QLinearGlobalAveragePool": _unary("GlobalAveragePool", "channels_last"),
    "QLinearLeakyRelu": _unary("LeakyRelu"),
    "QLinearSigmoid": _unary("Sigmoid"),
    "QLinearConcat": _concat,
}
