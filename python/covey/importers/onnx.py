"""ONNX models to the graph.

Nodes are taken in order. Those that depend on constants only are evaluated; the others go to their operator's importer
(`covey.ops`). The first dimension of every graph input is the batch, whatever size the model was exported with.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx.inliner
from onnx import helper, numpy_helper

import covey.ops  # noqa: F401  (fills the table of importers)
from covey.errors import ModelError, NodeError
from covey.importers import loops, moved, narrow
from covey.importers.element_types import element_types
from covey.importers.folding import evaluate, shape_of
from covey.importers.onnx_node import (
    BATCH,
    DOMAINS,
    IMPORTERS,
    ML_DOMAIN,
    OTHER_BATCH,
    Importer,
    OnnxNode,
    Scope,
    well_formed,
)
from covey.importers.quantised import dequantised
from covey.importers.repairs import repaired
from covey.importers.replacements import no_secure_form
from covey.ir import DType, Graph, Note, Status, Value
from covey.ops import scores
from covey.ops.counting import is_whole

OLDEST_OPSET = 6

_FOLDED = {"ConstantOfShape", "If", "Loop", "Range", "Shape", "Size"}
"""Operators that have no importer: their results are known."""

_OF_LABELS = {"Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze", "ZipMap"}
"""What models do with class labels before they give them."""

_ORDERING = {"Clip", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Min"}
"""What may give the same for two batch sizes, and something else for others."""

_DTYPES: dict[int, DType] = {
    onnx.TensorProto.FLOAT: DType.FLOAT,
    onnx.TensorProto.DOUBLE: DType.FLOAT,
    onnx.TensorProto.FLOAT16: DType.FLOAT,
    onnx.TensorProto.INT64: DType.INDEX,
    onnx.TensorProto.INT32: DType.INDEX,
    onnx.TensorProto.BOOL: DType.BOOL,
}

_WHOLE = {getattr(onnx.TensorProto, kind.upper()): kind for kind in ("int64", *narrow.NARROW)}


def load(source: str | os.PathLike[str] | onnx.ModelProto) -> onnx.ModelProto:
    """Read and check a model file (or check a model in memory). Raises `ModelError`."""
    where = "the model" if isinstance(source, onnx.ModelProto) else f"'{os.fspath(source)}'"
    try:
        model = source if isinstance(source, onnx.ModelProto) else onnx.load(os.fspath(source))
    except FileNotFoundError as error:
        missing = f"'{error.filename}' which {where} needs" if str(error.filename) not in where else where
        raise ModelError(f"{missing} does not exist: check the path") from None
    except Exception as error:  # protobuf, external data and the operating system each raise their own
        raise ModelError(f"{where} is not a readable ONNX model ({_first_line(error)}): export it again") from None
    if not model.HasField("graph") or not model.graph.node:
        raise ModelError(f"{where} is not an ONNX model or has no nodes: export it again")
    if not all(isinstance(text, str) for text in _names(model)):
        raise ModelError(f"{where} holds a name that is no UTF-8 text: export it again")
    opset = _opset(model, where)
    if opset < OLDEST_OPSET:
        raise ModelError(
            f"{where} uses opset {opset}, older than {OLDEST_OPSET}: convert it with "
            f"onnx.version_converter.convert_version(model, 13)"
        )
    try:
        if model.functions:
            model = onnx.inliner.inline_local_functions(model)
        model = repaired(model)
        if model.ByteSize() < onnx.checker.MAXIMUM_PROTOBUF:
            onnx.checker.check_model(model)
    except Exception as error:  # the checker raises several kinds
        raise ModelError(f"{where} is not a valid ONNX model ({_first_line(error)}): export it again") from None
    return dequantised(model, opset)


def import_model(source: str | os.PathLike[str] | onnx.ModelProto, name: str | None = None) -> Graph:
    """The graph of a model. Raises `ModelError` or the `NodeError` of the first unusable node."""
    graph, errors = examine(source, name)
    if errors:
        raise errors[0]
    return graph


def examine(
    source: str | os.PathLike[str] | onnx.ModelProto,
    name: str | None = None,
    *,
    dropout: bool = False,
    trained: Container[str] | None = None,
) -> tuple[Graph, list[NodeError]]:
    """The graph of a model as far as it can be imported, with a note on every node, and what stands in the way.

    With `dropout` the nodes of that operator stay; otherwise they do nothing. With `trained`, the names of tensors,
    weights stay apart.
    """
    model = load(source)
    if name is None:
        name = model.graph.name
        if not isinstance(source, onnx.ModelProto):
            name = os.path.splitext(os.path.basename(os.fspath(source)))[0]
    graph, errors = _Importer(model, name or "model", dropout, trained).run()
    if trained and not errors:
        graph.mirror, errors = _Importer(_mirrored(model, trained), name or "model", dropout, trained).run()
    return graph, errors


def _mirrored(model: onnx.ModelProto, trained: Container[str]) -> onnx.ModelProto:
    """A model with 2 less their numbers in the tensors that are trained."""
    other = onnx.ModelProto()
    other.CopyFrom(model)
    for entry in other.graph.initializer:
        if entry.name in trained:
            array = numpy_helper.to_array(entry)
            entry.CopyFrom(numpy_helper.from_array((2 - array).astype(array.dtype), entry.name))
    return other


def _names(model: onnx.ModelProto) -> Iterator[object]:
    """Every name in a model; protobuf gives those that are no UTF-8 as bytes."""
    graph = model.graph
    yield graph.name
    for entry in model.opset_import:
        yield entry.domain
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        yield from (attribute.name for attribute in node.attribute)
    yield from (tensor.name for tensor in graph.initializer)
    for value in (*graph.input, *graph.output):
        yield from (value.name, *(dim.dim_param for dim in value.type.tensor_type.shape.dim))


def _opset(model: onnx.ModelProto, where: str) -> int:
    versions = [entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")]
    if not versions and any(entry.domain == ML_DOMAIN for entry in model.opset_import):
        return int(onnx.defs.onnx_opset_version())  # no node of it is there to be read
    if not versions:
        raise ModelError(f"{where} names no version of the ONNX operator set: export it again")
    return int(versions[0])


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0][:200] if text else type(error).__name__


_ENCODERS = ("OneHotEncoder", "LabelEncoder")

_MOVES = ("Cast", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze")
"""Operators whose results hold elements of the first operand, and nothing else."""


class _Importer:
    def __init__(
        self, model: onnx.ModelProto, name: str, dropout: bool = False, trained: Container[str] | None = None
    ) -> None:
        self.model = model
        self.scope = Scope(Graph(name), _opset(model, "the model"), dropout=dropout, trained=trained is not None)
        self.learned = {entry.name: entry.name for entry in model.graph.initializer if entry.name in (trained or ())}
        """The tensor that is trained, for each constant that holds numbers of one."""
        self.errors: list[NodeError] = []
        self.names: set[str] = {node.name for node in model.graph.node if node.name}
        self.taken: set[str] = set()
        self.unknown: dict[str, str] = {}  # values without a known shape: the unsupported node that each comes from
        self.inferred: dict[str, list[int]] | None = None

    def run(self) -> tuple[Graph, list[NodeError]]:
        graph = self.scope.graph
        self.scope.used.update(name for node in self.model.graph.node for name in node.input)
        self.scope.used.update(output.name for output in self.model.graph.output)
        self.scope.categories.update(_categories(self.model.graph))
        for tensor in self.model.graph.initializer:
            self.scope.constants[tensor.name] = _array(tensor)
        if self.model.graph.sparse_initializer:
            raise ModelError("the model stores sparse weights: export it with dense ones")
        for value in self.model.graph.input:
            if value.name not in self.scope.constants:
                self._input(value)
        self.scope.types, self.scope.types_within = element_types(self.model)
        for index, node in enumerate(self.model.graph.node):
            self._node(node, self._name(node, index))
        for output in self.model.graph.output:
            self._output(output.name)
        moved.settle(self.scope)
        if not graph.outputs and not self.errors and not self.unknown:
            raise ModelError("the model gives nothing but class labels: export it with its scores or probabilities")
        return graph, self.errors

    def _name(self, node: onnx.NodeProto, index: int) -> str:
        name = hint = node.name or f"{node.op_type}_{index}"
        count = 1
        while name in self.taken or (not node.name and name in self.names):
            count += 1
            name = f"{hint}.{count}"
        self.taken.add(name)
        return name

    def _input(self, value: onnx.ValueInfoProto) -> None:
        name, tensor = value.name, value.type.tensor_type
        if not value.type.HasField("tensor_type") or tensor.elem_type not in _DTYPES:
            known = tensor.elem_type in onnx.TensorProto.DataType.values() and tensor.elem_type
            kind = helper.tensor_dtype_to_string(tensor.elem_type) if known else "no tensor type"
            raise ModelError(f"input '{name}' has {kind}: Covey takes float16, float32, float64, int32, int64 or bool")
        if not tensor.HasField("shape") or not tensor.shape.dim:
            raise ModelError(f"input '{name}' has no shape or no batch dimension: export the model with input shapes")
        first, *rest = tensor.shape.dim
        for axis, dim in enumerate(rest, start=1):
            if not dim.HasField("dim_value") or dim.dim_value < 1:
                shown = f"the symbolic size '{dim.dim_param}'" if dim.dim_param else f"size {dim.dim_value}"
                raise ModelError(
                    f"input '{name}' has {shown} in dimension {axis}: only the first (the batch) may vary; export the "
                    f"model with fixed sizes of at least 1"
                )
        if first.HasField("dim_value") and first.dim_value > 0:
            self.scope.exported_batch = int(first.dim_value)
        graph = self.scope.graph
        dtype = _DTYPES[tensor.elem_type]
        graph.add_value(Value(name, tuple(int(dim.dim_value) for dim in rest), dtype=dtype))
        graph.inputs.append(name)

    def _output(self, name: str) -> None:
        if name in self.scope.labels:
            return
        value = self.scope.activation(name)
        if value is not None:
            graph = self.scope.graph
            if value.name in graph.inputs or value.name in graph.outputs:
                other = "an input" if value.name in graph.inputs else "another output"
                raise ModelError(f"output '{name}' is the same as {other} ('{value.name}'): remove it from the outputs")
            if not value.batch_first:
                moved.not_brought_back(self.scope, name, value, self.errors)
                return
            if graph.holds_input(value.name):
                raise ModelError(f"output '{name}' holds whole numbers of the input: remove it from the outputs")
            if value.name in self.scope.first_last and not graph.consumers(value.name):
                scores.exchange(graph, value.name)
                graph.exchanged.add(name)
            graph.outputs.append(value.name)
            graph.exported.append(name)
        elif name in self.scope.constants:
            raise ModelError(f"output '{name}' is a constant, which needs no secure computation: remove it")
        elif name not in self.unknown:
            raise ModelError(f"output '{name}' is computed by no node: export the model again")

    def _node(self, proto: onnx.NodeProto, name: str) -> None:
        scope = self.scope
        node = OnnxNode(scope, name, proto.op_type, list(proto.input), list(proto.output), _attributes(proto))
        behind = next((self.unknown[operand] for operand in proto.input if operand in self.unknown), None)
        try:
            if behind is not None:
                if proto.op_type not in _FOLDED:
                    self._importer(proto, name)  # that there is none shows whatever its operands are
                text = f"it reads what '{behind}' computes"
                self.scope.graph.notes[name] = Note(name, proto.op_type, Status.UNCHECKED, text, behind)
                self.unknown.update(dict.fromkeys(proto.output, behind))
            elif any(operand in scope.labels for operand in proto.input):
                self._label(node)
            elif proto.op_type == "Loop" and proto.domain in ("", "ai.onnx"):
                loops.unroll(node, self._node)
                self._note(node, Status.REWRITTEN, node.rewritten or "")
            elif proto.op_type == "If" and proto.domain in ("", "ai.onnx"):
                loops.choose(node, self._node)
                self._note(node, Status.REWRITTEN, node.rewritten or "")
            elif self._fold(proto, node):
                self._note(node, Status.REWRITTEN, "constant, evaluated at compile time")
            else:
                self._import(proto, node)
        except NodeError as error:
            self.errors.append(error)
            self._note(node, Status.UNSUPPORTED, f"{error.reason}; {error.way_out}")
            self._guess_outputs(proto, behind or name)

    def _label(self, node: OnnxNode) -> None:
        """Drop a node that only brings class labels into another form."""
        if node.op_type not in _OF_LABELS:
            raise node.unsupported(
                "it computes with class labels", "let it read scores, or export the model up to what gives the labels"
            )
        self.scope.labels.update(filter(None, node.outputs))
        self._note(node, Status.REWRITTEN, "dropped: it reads class labels")

    def _fold(self, proto: onnx.NodeProto, node: OnnxNode) -> bool:
        """Evaluate a node whose operands are constants, or that asks for an activation's shape."""
        scope = self.scope
        if proto.domain not in ("", "ai.onnx"):
            return False
        if proto.op_type == "Shape" and not node.is_constant(0):
            value, end = self._known(node), node.attribute("end")
            self._of_batch(node, lambda batch: shape_of(scope, value, int(node.attribute("start", 0)), end, batch))
            return True
        if proto.op_type == "Size" and not node.is_constant(0):
            value = self._known(node)
            self._of_batch(node, lambda batch: np.asarray(np.prod(shape_of(scope, value, 0, None, batch))))
            return True
        operands = [operand for operand in proto.input if operand]
        if any(operand not in scope.constants for operand in operands) or _random(proto, scope):
            return False
        known = {operand: scope.constants[operand] for operand in operands}
        tensor = next((self.learned[operand] for operand in operands if operand in self.learned), None)
        if tensor is not None:
            if proto.op_type not in _MOVES:
                raise node.unsupported(f"it computes with '{tensor}' alone", f"freeze it (freeze=['{tensor}'])")
            self.learned |= dict.fromkeys(filter(None, proto.output), tensor)
        results = evaluate(proto, node.name, scope.opset, known)
        for output, result in zip([output for output in proto.output if output], results, strict=True):
            if not isinstance(result, np.ndarray | np.generic):
                raise node.unsupported("its constant result is no tensor", "simplify the model first")
            scope.constants[output] = np.asarray(result)
        if any(operand in scope.folded_again for operand in operands):
            self._fold_again(proto, node, known)
        return True

    def _of_batch(self, node: OnnxNode, made: Callable[[int], npt.NDArray[Any]]) -> None:
        """Make a constant that may depend on the batch size."""
        scope, name = self.scope, node.outputs[0]
        scope.constants[name], scope.folded_again[name] = made(BATCH), made(OTHER_BATCH)
        self._forget_equal([name])

    def _fold_again(self, proto: onnx.NodeProto, node: OnnxNode, known: dict[str, Any]) -> None:
        """Evaluate a node for the other batch size, too."""
        scope, names = self.scope, [output for output in proto.output if output]
        others = {operand: scope.folded_again.get(operand, array) for operand, array in known.items()}
        results: list[Any] = [None] * len(names)
        if proto.op_type not in _ORDERING and not any(array is None for array in others.values()):
            with suppress(NodeError):
                results = [np.asarray(each) for each in evaluate(proto, node.name, scope.opset, others)]
        scope.folded_again.update(zip(names, results, strict=True))
        self._forget_equal(names)

    def _forget_equal(self, names: list[str]) -> None:
        """Forget that constants come from the batch size where it has no bearing on them."""
        for name in names:
            other = self.scope.folded_again[name]
            if other is not None and np.array_equal(other, self.scope.constants[name]):
                del self.scope.folded_again[name]

    def _known(self, node: OnnxNode) -> Value:
        """The operand of a node that asks for its shape, wherever its batch is."""
        return self.scope.activation(node.inputs[0]) or node.activation(0)

    def _import(self, proto: onnx.NodeProto, node: OnnxNode) -> None:
        importer, operator = self._importer(proto, node.name), proto.op_type
        if operator == "Div" and self._whole_type(proto.output[0]) is not None:
            operator = "TruncatedDiv"
            importer = IMPORTERS[operator]
        mark = len(self.scope.graph.nodes)
        try:
            with well_formed(node.name, proto.op_type):
                moved.run(importer, operator, node)
            unread = sorted(set(node.attributes) - node.read)
            if unread:
                raise node.unsupported(f"its attribute '{unread[0]}' is not supported", "export the model without it")
            self._check_whole(node)
        except NodeError:
            del self.scope.graph.nodes[mark:]
            raise
        status = Status.OK if node.rewritten is None else Status.REWRITTEN
        self._note(node, status, node.rewritten or "")

    def _check_whole(self, node: OnnxNode) -> None:
        """Refuse results that the model has without a fraction, where they may have one, or in a type that wraps."""
        scope = self.scope
        for name in filter(None, node.outputs):
            value, kind = scope.activation(name), self._whole_type(name)
            if kind is None or value is None or value.dtype is DType.BOOL or name in scope.categories:
                continue
            behind = scope.moved.get(value.name, value.name)
            if not is_whole(scope.graph, behind):
                raise node.unsupported("it rounds its results to whole numbers", "put a Cast to float before it")
            if kind in narrow.NARROW and not narrow.fits(scope.graph, scope.graph.values[behind], kind):
                self._keep_within(node, name, value, kind)

    def _keep_within(self, node: OnnxNode, output: str, value: Value, kind: str) -> None:
        """Put a check of the range behind the value of an output."""
        scope = self.scope
        # What a cast read shows how far its result reaches.
        source = node.inputs[:1] if node.op_type == "Cast" else []
        checked = scope.graph.fresh(f"{value.name}.within")
        moved.run(
            IMPORTERS["Within"],
            "Within",
            OnnxNode(scope, node.name, node.op_type, [value.name, *source], [checked], {"kind": kind}),
        )
        scope.aliases[output] = checked

    def _whole_type(self, name: str) -> str | None:
        """The type of integers in which the model has a value; values here have none."""
        return _WHOLE.get(self.scope.types.get(name, 0))

    def _importer(self, proto: onnx.NodeProto, name: str) -> Importer:
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        importer = DOMAINS.get(domain, {}).get(proto.op_type)
        if importer is None:
            raise no_secure_form(name, proto.op_type, domain)
        return importer

    def _note(self, node: OnnxNode, status: Status, text: str) -> None:
        self.scope.graph.notes[node.name] = Note(node.name, node.op_type, status, text)

    def _guess_outputs(self, proto: onnx.NodeProto, root: str) -> None:
        """Go on behind an unsupported node with the shapes ONNX infers, so that the rest is checked too."""
        if self.inferred is None:
            self.inferred = _inferred_shapes(self.model, self.scope.exported_batch)
        for output in proto.output:
            shape = self.inferred.get(output)
            if shape is None or self.scope.activation(output) is not None:
                self.unknown[output] = root
            else:
                self.scope.graph.add_value(Value(output, tuple(shape)))


def _array(tensor: onnx.TensorProto) -> Any:
    try:
        return numpy_helper.to_array(tensor)
    except Exception as error:  # truncated raw data, unknown types, missing external files
        raise ModelError(
            f"weight '{tensor.name}' cannot be read ({_first_line(error)}): export the model again"
        ) from None


def _attributes(proto: onnx.NodeProto) -> dict[str, Any]:
    values = {}
    for attribute in proto.attribute:
        value = helper.get_attribute_value(attribute)
        values[attribute.name] = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    return values


def _categories(graph: onnx.GraphProto) -> set[str]:
    """What only encoders read."""
    encoders = [node.domain == ML_DOMAIN and node.op_type in _ENCODERS for node in graph.node]
    read: dict[bool, set[str]] = {True: set(), False: {output.name for output in graph.output}}
    for node, encodes in zip(graph.node, encoders, strict=True):
        read[encodes].update(node.input)
    return read[True] - read[False]


def _random(proto: onnx.NodeProto, scope: Scope) -> bool:
    """Whether a node of constants draws numbers; a Dropout does in training mode."""
    if proto.op_type == "Dropout":
        return len(proto.input) > 2 and bool(np.any(scope.constants.get(proto.input[2], False)))
    return proto.op_type.startswith("Random") or proto.op_type in ("Bernoulli", "Multinomial")


def _inferred_shapes(model: onnx.ModelProto, batch: int | None) -> dict[str, list[int]]:
    """Shapes of one sample, where ONNX can tell them and the batch comes first; `batch` is its size, if it is fixed."""
    try:
        inferred = onnx.shape_inference.infer_shapes(model)
    except Exception:  # inference is a help for `check` only
        return {}
    shapes = {}
    for value in [*inferred.graph.value_info, *inferred.graph.output]:
        dims = value.type.tensor_type.shape.dim
        first = dims and (int(dims[0].dim_value) if dims[0].HasField("dim_value") else None)
        if dims and first == batch and all(dim.HasField("dim_value") and dim.dim_value > 0 for dim in dims[1:]):
            shapes[value.name] = [int(dim.dim_value) for dim in dims[1:]]
    return shapes
