"""The types of elements that an ONNX model computes with: values of a graph here have none.

What ONNX infers needs no weights, so they are left out: models may hold more of them than it reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import onnx
from onnx import AttributeProto, helper

from covey.errors import ModelError

_MOST_ELEMENTS = 64
"""Larger tensors are weights; smaller ones may be shapes, which ONNX reads."""

Types = dict[str, int]


def element_types(model: onnx.ModelProto) -> tuple[Types, dict[tuple[str, ...], Types]]:
    """Types by name, and those within bodies of control flow by the outputs of its node and the attribute's name."""
    try:
        graph = onnx.shape_inference.infer_shapes(_without_weights(model)).graph
    except Exception as error:  # ONNX raises several kinds
        text = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
        raise ModelError(f"the types of the model's values are not known ({text}): export it again") from None
    within = {
        (*node.output, attribute.name): _types(attribute.g)
        for node, attribute in _attributes(graph)
        if attribute.type == AttributeProto.GRAPH
    }
    return _types(graph), within


def _types(graph: onnx.GraphProto) -> Types:
    return {value.name: value.type.tensor_type.elem_type for value in [*graph.value_info, *graph.output]}


def _attributes(graph: onnx.GraphProto) -> Iterator[tuple[onnx.NodeProto, AttributeProto]]:
    for node in graph.node:
        for attribute in node.attribute:
            yield node, attribute


def _size(tensor: onnx.TensorProto) -> int:
    return prod(tensor.dims)


def _without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same model with inputs in the place of its large constants."""
    graph, bare = model.graph, onnx.ModelProto(ir_version=max(model.ir_version, 4), opset_import=model.opset_import)
    given = {value.name for value in graph.input}
    bare.graph.name = graph.name
    for fields in ("input", "output", "value_info"):
        getattr(bare.graph, fields).extend(getattr(graph, fields))
    for tensor in graph.initializer:
        if _size(tensor) <= _MOST_ELEMENTS:
            bare.graph.initializer.append(tensor)
        elif tensor.name not in given:
            bare.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
    for node in graph.node:
        value = next((each for each in node.attribute if each.name == "value"), None)
        if node.op_type == "Constant" and value is not None and _size(value.t) > _MOST_ELEMENTS:
            info = helper.make_tensor_value_info(node.output[0], value.t.data_type, list(value.t.dims))
            bare.graph.input.append(info)
        else:
            bare.graph.node.append(node)
    return bare
