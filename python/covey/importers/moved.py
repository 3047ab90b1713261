"""Nodes that move the batch away from the front or merge it with other dimensions, and nodes up to where it is back.

A graph keeps the batch first, so nothing is moved: what a model has as [T, N, E] stays [N, T, E]. The model's value is
then a name for that one, with its own layout (`Value.at`, `Value.merged`, `Value.first`). A node that reads it is
imported as what it does to the value behind it. Where the batch is first again, so is the name's. Nodes that would
compute across the batch are refused, and so are those without a handler.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from covey.errors import NodeError, UnsupportedError
from covey.importers import doubts, merged, rows, sequences, turned
from covey.importers.doubts import MOVE_BACK, OF_ATTENTION, value_of
from covey.importers.layouts import BEHIND, FIRST, Layout, Place, layout_of, reshaped
from covey.importers.onnx_node import BATCH, IMPORTERS, Importer, OnnxNode, Scope, of_one_sample, well_formed
from covey.ir import Note, Status, Value


def run(importer: Importer, operator: str, node: OnnxNode) -> None:
    """Import a node, wherever the batch of its operands is."""
    ways = [doubts.Way(inputs, place) for inputs in doubts.operands(node) for place in _places(operator, node, inputs)]
    if len(ways) == 1 and not doubts.doubted(node):
        _run(importer, operator, node, ways[0].place)
    else:
        doubts.run(node, ways, lambda attempt, place: _run(importer, operator, attempt, place))


def _places(operator: str, node: OnnxNode, inputs: tuple[str, ...]) -> list[Place] | list[None]:
    """Where a Reshape of these operands may have the batch."""
    x = value_of(node.scope, inputs[0]) if inputs else None
    if operator != "Reshape" or x is None or not node.is_constant(1):
        return [None]
    copies = not node.attributes.get("allowzero", 0)
    found = reshaped(x, node.constant_integers(1, "target shape"), copies, node.scope.exported_batch)
    if FIRST in (layout for layout, _ in found) and x.batch_first and not doubts.doubted(node):
        # No model merges its batch with others and leaves a size of 1 where it was.
        found = [place for place in found if place[0].merged == 1]
    return found or [None]


def _run(importer: Importer, operator: str, node: OnnxNode, place: Place | None) -> None:
    with well_formed(node.name, node.op_type):
        _run_at(importer, operator, node, place)


def _run_at(importer: Importer, operator: str, node: OnnxNode, place: Place | None) -> None:
    values = [value for name in node.inputs if (value := value_of(node.scope, name)) is not None]
    moved = next((value for value in values if not value.batch_first), None)
    if moved is not None:
        handler = _HANDLERS.get(operator)
        differ = operator != "Einsum" and any(layout_of(value) != layout_of(moved) for value in values)
        if differ and operator in sequences.KINDS and node.has(4) and not node.is_constant(4):
            raise node.unsupported("its sequences have lengths of their own", "let all have one, and pad them outside")
        if handler is None or differ:
            where = f"node '{node.scope.movers[moved.name][0]}' has moved the batch"
            way_out = f"{OF_ATTENTION}{MOVE_BACK}" if operator == "Attention" else MOVE_BACK
            raise node.unsupported(f"it reads {moved}, where {where}", way_out)
        handler(Frame(operator, node, moved, place))
    elif values and (_moves(operator, node, values[0]) if place is None else place[0] != FIRST):
        _HANDLERS[operator](Frame(operator, node, values[0], place))
    else:
        importer(node)


def not_brought_back(scope: Scope, output: str, value: Value, errors: list[NodeError]) -> None:
    """Note and record, in the order of the nodes, that an output has its batch elsewhere: the node that moved it is
    at fault.
    """
    node, op = scope.movers[value.name]
    if any(error.node == node for error in errors):
        return
    reason = f"it moves the batch, which output '{output}' {value} does not have first and alone"
    way_out = "transpose or reshape the output so that the batch is first again"
    if value.name in scope.otherwise:
        way_out = doubts.WAY_OUT
    notes = scope.graph.notes
    notes[node] = Note(node, op, Status.UNSUPPORTED, f"{reason}; {way_out}")
    order = {name: place for place, name in enumerate(notes)}
    errors.append(UnsupportedError(node, op, reason, way_out))
    errors.sort(key=lambda error: order[error.node])


def settle(scope: Scope) -> None:
    """At the end: what stood behind the model's values takes their names, which are free now."""
    graph = scope.graph
    doubts.clear(scope)
    names = {}
    for name, behind in scope.moved.items():
        del graph.values[name]
        if behind in graph.values and behind.startswith(f"{name}{BEHIND}"):
            names[behind] = name
    taken = {name: behind for behind, name in names.items()}
    for other, name in scope.originals.items():
        behind = taken.get(other, other)
        if behind in graph.values and name not in graph.values and name not in taken:
            names[behind], taken[name] = name, behind
    for node in graph.nodes:
        node.inputs = [names.get(name, name) for name in node.inputs]
        node.output = names.get(node.output, node.output)
    graph.outputs = [names.get(name, name) for name in graph.outputs]
    for behind, name in names.items():
        graph.add_value(replace(graph.values.pop(behind), name=name))


def _moves(operator: str, node: OnnxNode, x: Value) -> bool:
    """Whether a node takes the batch from its place at the front."""
    if operator == "Transpose":
        order = node.integers("perm") or list(reversed(range(x.rank)))
        return sorted(order) == list(range(x.rank)) and order[0] != 0
    if operator == "Unsqueeze":
        axes = _axes(node)
        return axes is not None and any(axis in (0, -x.rank - len(axes)) for axis in axes)
    return False


@dataclass(frozen=True)
class Frame:
    """A node in the model's layout: where its operands have the batch, and how many dimensions."""

    operator: str
    node: OnnxNode
    x: Value
    place: Place | None = None
    """Where a Reshape puts the batch, if its samples stay whole."""

    @property
    def at(self) -> int:
        return self.x.at

    @property
    def rank(self) -> int:
        return self.x.rank

    @property
    def layout(self) -> Layout:
        return layout_of(self.x)

    def refused(self, reason: str) -> UnsupportedError:
        return self.node.unsupported(f"{reason} of {self.x}", MOVE_BACK)

    def axis(self, axis: int) -> int:
        """A dimension, counted from the front. Refuses the batch."""
        place = axis + self.rank if axis < 0 else axis
        if not 0 <= place < self.rank or place == self.x.place:
            raise self.refused(f"it runs over axis {axis}, the batch or none,")
        return place

    def behind(self, axis: int) -> int:
        """The same dimension of the value behind the model's one."""
        return self.layout.behind(axis)

    def operands(self) -> list[str]:
        """The node's operands with the batch first: the values behind activations, constants turned likewise."""
        names = []
        for name in self.node.inputs:
            value = value_of(self.node.scope, name)
            if value is not None:
                if value.rank != self.rank:
                    raise self.refused(f"its operand {value} has other dimensions than those")
                names.append(self.node.scope.moved.get(value.name, value.name))
            else:
                names.append(self.constant(self.turned(name)) if name in self.node.scope.constants else name)
        return names

    def turned(self, name: str) -> npt.NDArray[Any]:
        """A constant beside activations, its dimension beside the batch in front if it has one."""
        array = self.node.scope.constants[name]
        missing = self.rank - array.ndim
        if missing < 0:
            raise self.refused(f"its constant of shape {list(array.shape)} has more dimensions than those")
        if self.x.merged > 1:
            array = of_one_sample(array, self.rank, self.node.scope.exported_batch)
            place = array.ndim - (self.rank - self.x.first)
            if place < 0:
                return array
            # What is repeated for each sample is there once.
            parts = self.x.shape[self.x.first : self.x.first + self.x.merged - 1]
            if array.shape[place] == 1:
                return array.reshape(*array.shape[:place], *(1 for _ in parts), *array.shape[place + 1 :])
            batch, copies = self.node.scope.exported_batch, int(np.prod(parts))
            outermost = self.x.at == self.x.first or batch == 1
            if outermost and array.shape[place] in (copies, copies * (batch or 1)):
                each = array.reshape(*array.shape[:place], -1, *parts, *array.shape[place + 1 :])
                one: npt.NDArray[Any] = each.take(0, place)
                if (each == np.expand_dims(one, place)).all():
                    return one
            raise self.refused("its constant differs between the rows")
        if missing > self.at:
            return array
        return np.moveaxis(array.reshape((1,) * missing + array.shape), self.at, 0)

    def constant(self, array: npt.NDArray[Any]) -> str:
        """A name for a constant."""
        scope, name, count = self.node.scope, f"{self.node.outputs[0]}.turned", 1
        while name in scope.constants or name in scope.graph.values or name in scope.aliases:
            count += 1
            name = f"{self.node.outputs[0]}.turned.{count}"
        scope.constants[name] = array
        return name

    def become(
        self,
        inputs: list[str],
        *layouts: Layout,
        operator: str | None = None,
        **attributes: Any,
    ) -> None:
        """The node's results are those of an operator on values whose batch is first; the model has them in `layouts`.
        Results beyond those are refused where they are used.
        """
        node, scope = self.node, self.node.scope
        names = [
            scope.graph.fresh(f"{name}{BEHIND}") if name and layout != Layout(0) else name
            for name, layout in zip(node.outputs, layouts, strict=False)
        ]
        names += node.outputs[len(layouts) :]
        scope.used.update(inner for name, inner in zip(node.outputs, names, strict=True) if name in scope.used)
        inner = OnnxNode(scope, node.name, node.op_type, inputs, names, attributes)
        IMPORTERS[operator or self.operator](inner)
        node.read |= inner.read
        node.note(f"{inner.rewritten or 'as it is'}, with the batch first")
        for name, behind, layout in zip(node.outputs, names, layouts, strict=False):
            value = scope.activation(behind)
            if behind != name and value is not None:
                at, merged, first = layout.at, layout.merged, layout.first
                scope.graph.add_value(replace(value, name=name, at=at, merged=merged, first=first))
                scope.moved[name] = value.name
                scope.movers[name] = scope.movers.get(self.x.name, (node.name, node.op_type))

    def keep(self, **changed: Any) -> dict[str, Any]:
        """The node's attributes, some changed."""
        self.node.read.update(changed)
        return {**self.node.attributes, **changed}


def _elementwise(frame: Frame) -> None:
    frame.become(frame.operands(), frame.layout, **frame.keep())


def _transpose(frame: Frame) -> None:
    order = frame.node.integers("perm") or list(reversed(range(frame.rank)))
    if sorted(order) != list(range(frame.rank)):
        raise frame.refused(f"its permutation {order} does not fit the dimensions")
    # With what is merged apart, dimensions beside each other move together.
    before = frame.layout
    parts = [[before.apart(axis)] for axis in range(frame.rank)]
    parts[before.place] = list(range(before.place, before.place + before.merged))
    apart = [axis for part in order for axis in parts[part]]
    at = apart.index(before.at)
    behind = [0, *(axis + 1 if axis < before.at else axis for axis in apart if axis != before.at)]
    layout = Layout(at, before.merged, apart.index(before.first) if before.merged > 1 else 0)
    source = frame.node.scope.moved.get(frame.x.name, frame.x.name)
    if behind == sorted(behind):
        frame.become([source], layout, operator="Identity")
    else:
        frame.become([source], layout, operator="Transpose", perm=behind)


def _reshape(frame: Frame) -> None:
    wanted = frame.node.constant_integers(1, "target shape")
    if frame.place is None:
        raise frame.refused(f"its target {wanted} mixes the batch with the dimensions")
    layout, shape = frame.place
    frame.keep(allowzero=0)
    source = frame.node.scope.moved.get(frame.x.name, frame.x.name)
    frame.become([source, frame.constant(np.array([BATCH, *shape]))], layout, operator="Reshape")


def _matmul(frame: Frame) -> None:
    node = frame.node
    constants = [index for index in range(2) if node.is_constant(index)]
    rank = max((node.constant(index, "operand").ndim for index in constants), default=2)
    # The batch is beside what is multiplied over.
    if len(constants) == 1 and 2 <= rank <= frame.rank and frame.x.place == frame.rank - 1 - constants[0]:
        _matmul_beside_batch(frame, constants[0])
        return
    # What is multiplied over must lie behind the batch.
    inner = 1 if constants == [1] else 2
    stacked = rank == frame.rank > 2 and frame.x.merged > 1
    if (rank > 2 and not stacked) or frame.x.place >= frame.rank - (2 if stacked else inner):
        raise frame.refused("it multiplies over the batch")
    if not constants or stacked:
        operands = frame.operands()
    else:
        other = value_of(node.scope, node.inputs[1 - constants[0]])
        assert other is not None
        operands = [node.inputs[0], node.inputs[1]]
        operands[1 - constants[0]] = node.scope.moved.get(other.name, other.name)
    frame.become(operands, frame.layout)


def _matmul_beside_batch(frame: Frame, constant: int) -> None:
    """A product with a constant whose columns or rows are the batch, and what is merged with it, as one dimension."""
    node, scope = frame.node, frame.node.scope
    source, place = scope.moved[frame.x.name], frame.x.place
    shape = scope.graph.values[source].shape
    parts = shape[place : place + frame.x.merged - 1]

    def applied(operator: str, inputs: list[str], hint: str) -> str:
        name = scope.graph.fresh(f"{node.outputs[0]}.{hint}")
        IMPORTERS[operator](OnnxNode(scope, node.name, node.op_type, inputs, [name], {}))
        value = scope.activation(name)
        assert value is not None
        return value.name

    def as_shape(*sizes: int) -> str:
        return frame.constant(np.array([BATCH, *sizes]))

    one = applied("Reshape", [source, as_shape(*shape[:place], prod(parts), *shape[place + len(parts) :])], "one_row")
    product = applied("MatMul", [one, node.inputs[1]] if constant == 1 else [node.inputs[0], one], "product")
    sizes = scope.graph.values[product].shape
    frame.become([product, as_shape(*sizes[:place], *parts, *sizes[place + 1 :])], frame.layout, operator="Reshape")


def _gemm(frame: Frame) -> None:
    """Rows of merged dimensions: as a MatMul and an Add over what they were merged from."""
    node = frame.node
    rows = frame.x.merged > 1 and frame.x.place == 0 and frame.rank == 2
    if not rows or node.flag("transA") or (node.has(2) and not node.is_constant(2)):
        raise frame.refused("it multiplies over the batch")
    weight = node.weights(1, "input B") * float(node.attribute("alpha", 1.0))
    weight = weight.T if node.flag("transB") else weight
    beta = float(node.attribute("beta", 1.0))
    source = node.scope.moved[frame.x.name]
    if not node.has(2):
        frame.become([source, frame.constant(weight)], frame.layout, operator="MatMul")
        return
    bias = of_one_sample(node.weights(2, "input C") * beta, 2)
    product = node.scope.graph.fresh(f"{node.outputs[0]}.product")
    IMPORTERS["MatMul"](OnnxNode(node.scope, node.name, node.op_type, [source, frame.constant(weight)], [product], {}))
    frame.become([product, frame.constant(bias)], frame.layout, operator="Add")


def _expand(frame: Frame) -> None:
    wanted = frame.node.constant_integers(1, "shape")
    kept = (1, *(frame.x.dims(batch)[frame.x.place] for batch in (BATCH, frame.node.scope.exported_batch or BATCH)))
    others = [size for axis, size in enumerate(wanted) if axis != frame.x.place]
    if len(wanted) != frame.rank or wanted[frame.x.place] not in kept or any(size % BATCH == 0 for size in others):
        raise frame.refused(f"its shape {wanted} would repeat or move the batch")
    sizes = [1] * (1 + len(frame.x.shape))
    for axis, size in enumerate(wanted):
        if axis != frame.x.place:
            sizes[frame.behind(axis)] = size
    source = frame.node.scope.moved[frame.x.name]
    frame.become([source, frame.constant(np.array(sizes))], frame.layout)


def _gather(frame: Frame) -> None:
    node = frame.node
    if node.is_constant(0):  # rows of a table
        (value,) = (value for name in node.inputs if (value := value_of(node.scope, name)) is not None)
        source = node.scope.moved[value.name]
        frame.become([node.inputs[0], source], frame.layout, **frame.keep())
        return
    axis = frame.axis(int(node.attribute("axis", 0)))
    rank = node.constant(1, "indices").ndim
    layout = frame.layout if axis > frame.layout.place else frame.layout.shifted(rank - 1)
    frame.become([node.scope.moved[frame.x.name], node.inputs[1]], layout, axis=frame.behind(axis))


def _gather_elements(frame: Frame) -> None:
    axis = frame.axis(int(frame.node.attribute("axis", 0)))
    if not frame.node.is_constant(1) or value_of(frame.node.scope, frame.node.inputs[0]) is not frame.x:
        raise frame.refused("it gathers by secret indices")
    indices = frame.turned(frame.node.inputs[1])
    lead = frame.x.shape[: max(0, len(frame.x.shape) - indices.ndim)]
    indices = np.broadcast_to(indices, (*lead, *indices.shape))
    source = frame.node.scope.moved[frame.x.name]
    frame.become([source, frame.constant(indices)], frame.layout, axis=frame.behind(axis))


def _concat(frame: Frame) -> None:
    axis = frame.behind(frame.axis(int(frame.node.attribute("axis", 1))))
    names = frame.operands()
    for index, name in enumerate(names):
        if name in frame.node.scope.constants:
            names[index] = frame.constant(_stretched(frame, frame.node.scope.constants[name], axis))
    frame.become(names, frame.layout, axis=axis)


def _stretched(frame: Frame, array: npt.NDArray[Any], axis: int) -> npt.NDArray[Any]:
    """A constant that is joined, with all dimensions of the value behind but the batch, if it broadcasts to them."""
    sizes = list(frame.x.shape)
    own = (1,) * (1 + len(sizes) - array.ndim) + array.shape
    sizes[axis - 1] = own[axis]
    return array if own[0] != 1 else np.broadcast_to(array.reshape(own)[0], sizes)


def _split(frame: Frame) -> None:
    axis = frame.axis(int(frame.node.attribute("axis", 0)))
    inputs = [frame.node.scope.moved[frame.x.name], *frame.node.inputs[1:]]
    frame.become(inputs, *[frame.layout] * len(frame.node.outputs), **frame.keep(axis=frame.behind(axis)))


def _axes(node: OnnxNode) -> list[int] | None:
    if node.has(1):
        return node.constant_integers(1, "axes") if node.is_constant(1) else None
    return node.integers("axes")


def _over_axes(frame: Frame, axes: list[int], layout: Layout) -> None:
    """The operator over these dimensions of the value behind."""
    inputs = [frame.node.scope.moved.get(frame.x.name, frame.x.name)]
    if frame.node.has(1):
        frame.become([*inputs, frame.constant(np.array(axes))], layout, **frame.keep())
    else:
        frame.become(inputs, layout, **frame.keep(axes=axes))


def _reduce(frame: Frame) -> None:
    axes = _axes(frame.node)
    if not axes:
        raise frame.refused("it runs over the batch")
    places = [frame.axis(axis) for axis in axes]
    gone = 0 if frame.node.flag("keepdims", 1) else sum(place < frame.layout.place for place in places)
    _over_axes(frame, [frame.behind(place) for place in places], frame.layout.shifted(-gone))


def _squeeze(frame: Frame) -> None:
    axes = _axes(frame.node)
    if not axes:
        raise frame.refused("it names no axes, and the batch may be 1,")
    places = [frame.axis(axis) for axis in axes]
    gone = sum(place < frame.layout.place for place in places)
    _over_axes(frame, [frame.behind(place) for place in places], frame.layout.shifted(-gone))


def _unsqueeze(frame: Frame) -> None:
    axes = _axes(frame.node) or []
    rank = frame.rank + len(axes)
    places = [axis + rank if axis < 0 else axis for axis in axes]
    if len({place for place in places if 0 <= place < rank}) < len(axes):
        raise frame.refused(f"its axes {axes} do not fit the dimensions")
    before = frame.layout
    after = before.shifted([place for place in range(rank) if place not in places][before.place] - before.place)
    _over_axes(frame, [after.behind(place) for place in places], after)


def _slice(frame: Frame) -> None:
    node = frame.node
    first = node.integers("starts") if node.opset < 10 else node.constant_integers(1, "starts")
    axes = node.integers("axes") if node.opset < 10 else node.constant_integers(3, "axes") if node.has(3) else None
    places = node.places(axes or range(len(first or [])), frame.rank)
    if frame.x.merged > 1 and frame.x.place in places:
        raise frame.refused("it cuts the merged dimensions")
    behind = [0 if place == frame.x.place else frame.behind(place) for place in places]
    source = node.scope.moved[frame.x.name]
    if node.opset < 10:
        frame.become([source], frame.layout, **frame.keep(axes=behind))
        return
    rest = [node.inputs[1], node.inputs[2], frame.constant(np.array(behind)), *node.inputs[4:]]
    frame.become([source, *rest], frame.layout)


_ELEMENTWISE = (
    "Abs", "Acos", "Acosh", "Add", "And", "Asin", "Asinh", "Atan", "Atanh", "Cast", "CastLike", "Ceil", "Celu",
    "Clip", "Cos", "Cosh", "Div", "Dropout", "Elu", "Equal", "Erf", "Exp", "Floor", "Gelu", "Greater",
    "GreaterOrEqual", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Less", "LessOrEqual", "Log", "Max",
    "Mean", "Min", "Mish", "Mod", "Mul", "Neg", "Not", "Or", "Pow", "PRelu", "Reciprocal", "Relu", "Round", "Selu",
    "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Sub", "Sum", "Swish", "Tan", "Tanh",
    "ThresholdedRelu", "TruncatedDiv", "Where", "Within", "Xor",
)  # fmt: skip

_REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSum", "ReduceSumSquare",
)  # fmt: skip

_HANDLERS: dict[str, Callable[[Frame], None]] = {
    **dict.fromkeys(_ELEMENTWISE, _elementwise),
    **dict.fromkeys(_REDUCTIONS, _reduce),
    **dict.fromkeys(sequences.KINDS, sequences.recurrent),
    **dict.fromkeys(("ArgMax", "ArgMin"), rows.arg_max),
    **dict.fromkeys(merged.LAYERS, merged.of_images),
    **dict.fromkeys(rows.AXIS, rows.along_axis),
    "Attention": merged.attention,
    "BatchNormalization": merged.normalised,
    "Concat": _concat,
    "CumSum": rows.cumulative,
    "Einsum": turned.einsum,
    "Expand": _expand,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "Gemm": _gemm,
    "LayerNormalization": rows.normalization,
    "LogSoftmax": rows.softmax,
    "MatMul": _matmul,
    "Pad": rows.pad,
    "RMSNormalization": rows.normalization,
    "Reshape": _reshape,
    "Slice": _slice,
    "Softmax": rows.softmax,
    "Split": _split,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Trilu": rows.triangle,
    "Unsqueeze": _unsqueeze,
}
