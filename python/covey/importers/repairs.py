"""What exporters leave in a model that ONNX does not have, or that an index does not need.

tf2onnx keeps operators of TensorFlow that it has no form of, as if they were ONNX's. Exporters also bring negative
indices to positive ones, which an input of whole numbers never holds: it counts from 0. Models written by hand may name
outputs without a shape, which runtimes accept and ONNX's checker does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper
from onnx.shape_inference import infer_shapes

from covey.errors import NodeError
from covey.importers.folding import evaluate
from covey.importers.replacements import TENSORFLOW

_PRODUCER = "tf2onnx"

_INDEX_ARITHMETIC = frozenset(
    ("Add", "And", "Cast", "Clip", "Equal", "Greater", "GreaterOrEqual", "Identity", "Less", "LessOrEqual", "Max",
     "Min", "Mod", "Mul", "Not", "Or", "Sub", "Where")
)  # fmt: skip
"""Element-wise operators that exporters apply to indices."""

_MOST_ROWS = 1 << 20
"""Tables with more rows keep their arithmetic."""


def repaired(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model, or a changed copy."""
    foreign = model.producer_name == _PRODUCER and any(_is_foreign(node) for node in model.graph.node)
    bypassed = _unneeded(model)
    shapeless = any(_is_shapeless(output) for output in model.graph.output)
    if not (foreign or bypassed or shapeless):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    if bypassed:
        _bypass(copy.graph, bypassed)
    if foreign:
        _name_foreign(copy)
    if shapeless:
        _give_shapes(copy)
    return copy


def _is_shapeless(output: onnx.ValueInfoProto) -> bool:
    kind = output.type.WhichOneof("value")
    return kind is None or (kind == "tensor_type" and not output.type.tensor_type.HasField("shape"))


def _give_shapes(model: onnx.ModelProto) -> None:
    """Give outputs the shapes that ONNX infers. The importer finds shapes itself: what is unknown may be anything."""
    with suppress(Exception):  # models of more than 2 GB, and nodes that the checker names
        for output, known in zip(model.graph.output, infer_shapes(model).graph.output, strict=True):
            output.CopyFrom(known)
    for output in model.graph.output:
        if _is_shapeless(output) and output.type.tensor_type.elem_type:
            output.type.tensor_type.shape.SetInParent()


def _is_foreign(node: onnx.NodeProto) -> bool:
    return node.domain in ("", "ai.onnx") and not onnx.defs.has(node.op_type)


def _name_foreign(model: onnx.ModelProto) -> None:
    """Write operators of TensorFlow with ONNX's; those without a form get a domain of their own."""
    nodes = []
    for node in model.graph.node:
        if not _is_foreign(node):
            nodes.append(node)
        elif node.op_type in ("Erfc", "Expm1"):
            one, inner = f"{node.output[0]}.one", f"{node.output[0]}.inner"
            model.graph.initializer.append(numpy_helper.from_array(np.array(1.0, np.float32), one))
            operator, operands = ("Erf", [one, inner]) if node.op_type == "Erfc" else ("Exp", [inner, one])
            nodes.append(helper.make_node(operator, node.input[:1], [inner], f"{node.name}/{operator}"))
            nodes.append(helper.make_node("Sub", operands, node.output, node.name))
        else:
            node.domain = TENSORFLOW
            nodes.append(node)
    _replace(model.graph, nodes)
    model.opset_import.append(helper.make_opsetid(TENSORFLOW, 1))


def _unneeded(model: onnx.ModelProto) -> dict[str, str]:
    """Indices of Gather that arithmetic leaves as they are, and what each is computed from."""
    graph = model.graph
    makers = {name: node for node in graph.node for name in node.output}
    constants = {tensor.name: tensor for tensor in graph.initializer}
    found = {}
    for node in graph.node:
        if node.op_type != "Gather" or node.input[0] not in constants or _axis(node) != 0:
            continue
        table, indices = constants[node.input[0]], node.input[1]
        arithmetic, leaves = _arithmetic(indices, makers)
        unknown = leaves - constants.keys()
        if len(unknown) != 1 or all(step.op_type in ("Cast", "Identity") for step in arithmetic):
            continue
        (source,) = unknown
        values = {name: numpy_helper.to_array(constants[name]) for name in leaves - unknown}
        if table.dims and 0 < table.dims[0] <= _MOST_ROWS:
            rows = (np.arange(table.dims[0], dtype=kind) for kind in (np.int64, np.int32))
            if any(_leaves_as_it_is(model, arithmetic, {**values, source: row}, source, indices) for row in rows):
                found[indices] = source
    return found


def _leaves_as_it_is(
    model: onnx.ModelProto,
    arithmetic: list[onnx.NodeProto],
    values: dict[str, npt.NDArray[Any]],
    source: str,
    result: str,
) -> bool:
    """Whether the nodes give each row of a table for itself. `values` has the rows and the constants."""
    steps = {node.output[0] for node in arithmetic}
    opset = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 1)
    try:
        for node in (node for node in model.graph.node if node.output[0] in steps):
            known = {name: values[name] for name in node.input if name}
            values[node.output[0]] = np.asarray(evaluate(node, node.name, opset, known)[0])
    except (NodeError, KeyError):  # the importer says what is wrong with them
        return False
    return np.array_equal(values[result].ravel(), values[source])


def _bypass(graph: onnx.GraphProto, bypassed: Mapping[str, str]) -> None:
    """Let indices be read where they come from, and drop what is then read by nobody."""
    for node in graph.node:
        if node.op_type == "Gather" and node.input[1] in bypassed:
            node.input[1] = bypassed[node.input[1]]
    kept: list[onnx.NodeProto] = []
    read = {output.name for output in graph.output}
    makers = {name: node for node in graph.node for name in node.output}
    arithmetic = {node.output[0] for name in bypassed for node in _arithmetic(name, makers)[0]}
    for node in reversed(graph.node):
        if node.output[0] not in arithmetic or node.output[0] in read:
            kept.append(node)
            read.update(node.input)
    _replace(graph, kept[::-1])


def _replace(graph: onnx.GraphProto, nodes: list[onnx.NodeProto]) -> None:
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)


def _axis(node: onnx.NodeProto) -> int:
    return next((int(attribute.i) for attribute in node.attribute if attribute.name == "axis"), 0)


def _arithmetic(name: str, makers: Mapping[str, onnx.NodeProto]) -> tuple[list[onnx.NodeProto], set[str]]:
    """The element-wise nodes that a value comes from, the last first, and what these read of others."""
    nodes: list[onnx.NodeProto] = []
    leaves: set[str] = set()
    seen, open_names = {name}, [name]
    while open_names:
        current = open_names.pop()
        maker = makers.get(current)
        if maker is None or maker.domain not in ("", "ai.onnx") or maker.op_type not in _INDEX_ARITHMETIC:
            leaves.add(current)
            continue
        nodes.append(maker)
        new = [operand for operand in maker.input if operand and operand not in seen]
        seen.update(new)
        open_names += new
    return nodes, leaves
