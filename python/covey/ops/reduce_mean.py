"""The mean over height and width, which is average pooling over the whole map."""

from __future__ import annotations

import numpy as np

from covey.importers.onnx_node import OnnxNode, from_onnx
from covey.importers.torch_node import TorchNode, from_torch
from covey.ops.average_pool import whole_map
from covey.ops.reshape import Reshape


@from_onnx("ReduceMean")
def _reduce_mean(node: OnnxNode) -> None:
    node.ignore("noop_with_empty_axes")
    x = node.activation(0)
    axes = node.constant_integers(1, "axes") if node.has(1) else node.integers("axes")
    keep = node.flag("keepdims", 1)
    if len(x.shape) != 3 or axes is None or sorted(axis % x.rank for axis in axes) != [2, 3]:
        raise node.unsupported(f"it runs over axes {axes} of {x}", "only the mean over height and width is supported")
    node.note("AveragePool over the whole map")
    if keep:
        node.emit(whole_map(x), [x])
        return
    pooled = node.emit(whole_map(x), [x], output=f"{node.outputs[0]}.pooled")
    node.emit(Reshape((x.shape[0],)), [pooled])


@from_torch("aten.mean.dim")
def _reduce_mean_aten(node: TorchNode) -> None:
    node.ignore("dtype")
    x, axes = node.activation("self"), node.integers("dim")
    if not axes:
        raise node.unsupported("it runs over the batch too", "give it dims other than the batch")
    node.become("ReduceMean", x, np.array(axes), keepdims=int(node.flag("keepdim")))
