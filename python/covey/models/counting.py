"""How many multiplications a network takes, counted from its graph."""

from __future__ import annotations

import math

import onnx


def multiplications(model: onnx.ModelProto) -> int:
    """Those of the convolutions and fully connected layers of one sample, before any compiler pass.

    Counted is what meets a zero of the padding, too, as the efficient-models paper (arXiv:2209.00411) counts.
    """
    graph = onnx.shape_inference.infer_shapes(model).graph
    sizes = {
        value.name: math.prod(each.dim_value for each in value.type.tensor_type.shape.dim[1:])
        for value in (*graph.value_info, *graph.output)
    }
    weights = {tensor.name: math.prod(tensor.dims[1:]) for tensor in graph.initializer}
    layers = [node for node in graph.node if node.op_type in ("Conv", "Gemm")]
    return sum(sizes[node.output[0]] * weights[node.input[1]] for node in layers)
