"""Batch normalisation. It never reaches the program: a pass folds it away or writes it as Mul and Add."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from covey.errors import ParameterError, UnsupportedError
from covey.importers.onnx_node import OnnxNode, from_onnx
from covey.importers.torch_node import TorchNode, from_torch
from covey.interval import Array
from covey.ir import Node, Op, Shape, Value
from covey.lowering import Lowered, Lowering


@dataclass(frozen=True)
class BatchNormalization(Op):
    """x [N, C, ..] to `(x - mean) / sqrt(variance + epsilon) * scale + shift`; the four parameters are [C]."""

    epsilon: float = 1e-5

    def shape(self, *inputs: Value) -> Shape:
        x = inputs[0]
        if not x.shape:
            raise ValueError(f"{x} has no channels")
        for parameter in inputs[1:]:
            if parameter.shape != (x.shape[0],):
                raise ValueError(f"its parameter {parameter} does not fit the {x.shape[0]} channels of {x}")
        return x.shape

    def affine(self, scale: Array, shift: Array, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Factor and summand of each channel."""
        factor = scale / np.sqrt(variance + self.epsilon)
        return factor, shift - mean * factor

    def reference(self, *inputs: Array) -> Array:
        x = inputs[0]
        factor, summand = self.affine(*inputs[1:])
        tail = (slice(None),) + (None,) * (x.ndim - 2)
        return x * factor[tail] + summand[tail]

    def lower(self, low: Lowering, node: Node) -> Lowered:
        raise UnsupportedError(node.name, node.source_op, "it was not rewritten by a pass", "report this as a bug")


@from_onnx("BatchNormalization")
def _batch_normalization(node: OnnxNode) -> None:
    node.only_first_output("the running mean")
    node.ignore("momentum")
    if node.flag("training_mode") or (node.opset < 7 and not node.flag("is_test")):
        raise node.unsupported("it is in training mode", "export the model for inference")
    if not node.flag("spatial", 1):
        raise node.unsupported("spatial=0 is not supported", "use statistics per channel")
    epsilon = float(node.attribute("epsilon", 1e-5))
    names = ("scale", "shift", "mean", "variance")
    arrays = [node.weights(index + 1, name) for index, name in enumerate(names)]
    smallest = float(arrays[3].min())
    if smallest + epsilon <= 0.0:
        raise ParameterError(
            node.name,
            node.op_type,
            f"its variance {smallest:.4g} plus epsilon {epsilon:.4g} is not positive",
            "repair or retrain the model",
        )
    parameters = [node.parameter(array, node.inputs[index + 1]) for index, array in enumerate(arrays)]
    node.emit(BatchNormalization(epsilon), [node.activation(0), *parameters])


@from_torch(
    "aten.batch_norm.default",
    "aten.native_batch_norm.default",
    "aten._native_batch_norm_legit.default",
    "aten._native_batch_norm_legit.no_stats",
    "aten._native_batch_norm_legit_functional.default",
    "aten._native_batch_norm_legit_no_training.default",
)
def _batch_normalization_aten(node: TorchNode) -> None:
    node.ignore("momentum", "cudnn_enabled")
    if not (node.has("running_mean") and node.has("running_var")):
        raise node.unsupported("it takes its statistics from the batch", "train it with track_running_stats=True")
    if node.argument("training"):
        raise node.unsupported("it is in training mode", "call eval() on the module before exporting it")
    mean = node.constant("running_mean")
    weight = node.operand("weight") if node.has("weight") else np.ones(mean.shape)
    bias = node.operand("bias") if node.has("bias") else np.zeros(mean.shape)
    operands = [weight, bias, node.operand("running_mean"), node.operand("running_var")]
    node.first_of("BatchNormalization", node.activation("input"), *operands, epsilon=node.number("eps"))
