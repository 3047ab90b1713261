"""Small ONNX models built in memory, and the float results to compare with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

OPSET = 17


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[Any]],
    outputs: Sequence[str] | Mapping[str, Sequence[Any]],
    constants: Mapping[str, np.ndarray] | None = None,
    *,
    opset: int = OPSET,
    dtype: int = TensorProto.FLOAT,
    output_dtype: int | None = None,
    types: Mapping[str, int] | None = None,
) -> onnx.ModelProto:
    """A model of the given nodes; constants of float64 become float32. `types` are those of inputs and outputs that
    have others. Outputs of other domains' operators need shapes, which ONNX does not infer.
    """
    initializers = []
    shapes = outputs if isinstance(outputs, Mapping) else dict.fromkeys(outputs)
    opsets = {"": opset, **{node.domain: 1 for node in nodes if node.domain}}
    for name, array in (constants or {}).items():
        stored = array.astype(np.float32) if array.dtype == np.float64 and dtype == TensorProto.FLOAT else array
        initializers.append(numpy_helper.from_array(stored, name))
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info(name, (types or {}).get(name, dtype), shape) for name, shape in inputs.items()],
        [
            helper.make_tensor_value_info(name, (types or {}).get(name, output_dtype or dtype), shape)
            for name, shape in shapes.items()
        ],
        initializers,
    )
    imports = [helper.make_opsetid(*entry) for entry in opsets.items()]
    proto = helper.make_model(graph, opset_imports=imports, ir_version=10)
    # Only for the outputs' shapes, which a valid model has to state.
    return onnx.shape_inference.infer_shapes(proto)


def single(
    op: str,
    shape: Sequence[Any],
    constants: Mapping[str, np.ndarray] | None = None,
    *,
    first: Sequence[str] = ("x",),
    opset: int = OPSET,
    output_dtype: int | None = None,
    **attributes: Any,
) -> onnx.ModelProto:
    """One node named 'the_node' that reads x and the constants in order."""
    constants = constants or {}
    node = helper.make_node(op, [*first, *constants], ["y"], name="the_node", **attributes)
    return model([node], {"x": shape}, ["y"], constants, opset=opset, output_dtype=output_dtype)


def float_results(proto: onnx.ModelProto, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """What onnxruntime computes."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    # Its optimiser (1.31) merges a Pad with zeros into a MaxPool, whose padding never wins: another function.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    whole = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}
    types = {entry.name: whole.get(entry.type, np.float32) for entry in session.get_inputs()}
    return list(session.run(None, {name: array.astype(types[name]) for name, array in inputs.items()}))


def weights(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """He-initialised weights."""
    fan_in = max(1, int(np.prod(shape[1:])))
    return rng.normal(size=shape) * np.sqrt(2.0 / fan_in)


def small_cnn(rng: np.random.Generator, *, batch: Any = "N") -> onnx.ModelProto:
    """Conv, BatchNormalization, Relu, MaxPool, Dropout, Flatten, Gemm, Softmax."""
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "s", "b", "m", "v"], ["n"], name="norm", epsilon=1e-3),
        helper.make_node("Relu", ["n"], ["r"], name="relu"),
        helper.make_node("MaxPool", ["r"], ["p"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Dropout", ["p"], ["d"], name="drop"),
        helper.make_node("Flatten", ["d"], ["f"], name="flatten"),
        helper.make_node("Gemm", ["f", "w2", "b2"], ["logits"], name="fc", transB=1),
        helper.make_node("Softmax", ["logits"], ["probabilities"], name="softmax"),
    ]
    constants = {
        "w1": weights(rng, 4, 1, 3, 3),
        "b1": rng.normal(size=4) * 0.1,
        "s": rng.uniform(0.5, 1.5, 4),
        "b": rng.normal(size=4) * 0.1,
        "m": rng.normal(size=4) * 0.1,
        "v": rng.uniform(0.5, 1.5, 4),
        "w2": weights(rng, 10, 64),
        "b2": rng.normal(size=10) * 0.1,
    }
    return model(nodes, {"x": [batch, 1, 8, 8]}, ["probabilities"], constants)
