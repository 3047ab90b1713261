"""Batch normalisation. It never reaches the program: a pass folds it away or writes it as Mul and Add."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from covey.errors import ParameterError, UnsupportedError
from covey.importers.onnx_node import OnnxNode, from_onnx
from covey.importers.torch_node import TorchNode, from_torch
from covey.interval import Array
from covey.ir import Node, Op, Shape, Value
from covey.lowering import Lowered, Lowering
from covey.ops.standardising import Deviation, Mean, SquareMean, SquareSum, Standardised

if TYPE_CHECKING:
    from covey.training.builder import Builder


@dataclass(frozen=True)
class BatchNormalization(Op):
    """x [N, C, ..] to `(x - mean) / sqrt(variance + epsilon) * scale + shift`; the four parameters are [C]."""

    epsilon: float = 1e-5

    momentum: float = 0.1
    """What part of a running statistic a minibatch makes, where one is trained."""

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

    def stacked(self, build: Builder, *inputs: Value) -> Value:
        """With the minibatch's own statistics, of which running ones are kept, or with those of the model."""
        x, scale, shift, mean, variance = inputs
        if not build.batch_statistics:
            return self._frozen(build, x, scale, shift, mean, variance)
        _, channels, *sizes = x.shape
        count = build.count * math.prod(sizes)
        if count < 2:
            raise build.unsupported("a channel has one element in a minibatch", "use larger minibatches")
        rows = build.transpose(build.reshape(x, (build.count, channels, math.prod(sizes))), (1, 0, 2))
        rows = build.reshape(rows, (channels, count))
        deviation = build.emit(Deviation(), rows, hint="deviation")
        squares = build.emit(SquareSum(count * self.epsilon), deviation, hint="squares")
        y = build.emit(Standardised(over=float(count)), deviation, squares, hint="standard")
        y = build.transpose(build.reshape(y, (channels, build.count, math.prod(sizes))), (1, 0, 2))
        self._keep(build, rows, mean, variance)
        return _affine(build, build.reshape(y, x.shape), scale, shift)

    def _keep(self, build: Builder, rows: Value, mean: Value, variance: Value) -> None:
        """What running statistics take from the minibatch."""
        if not self.momentum:
            # PyTorch exports an average over all minibatches, momentum=None, as momentum 0.
            raise build.unsupported(
                "its momentum is 0, or None for a cumulative average",
                "give it a momentum such as 0.1, or take its statistics (batch_norm='frozen', --freeze-batch-norm)",
            )
        channels, count = rows.shape
        means = build.emit(Mean(), rows, hint="mean")
        squares = build.emit(SquareMean(count - 1), build.sub(rows, means), hint="variance")
        for parameter, found in ((mean, means), (variance, squares)):
            build.keep(parameter, build.reshape(found, (channels,)), self.momentum)

    def _frozen(self, build: Builder, x: Value, scale: Value, shift: Value, mean: Value, variance: Value) -> Value:
        if scale.batched or shift.batched:
            of_model = [build.graph.parameters[each.name] for each in (mean, variance)]
            factor, summand = self.affine(np.ones_like(of_model[0]), np.zeros_like(of_model[0]), *of_model)
            x = _affine(build, x, build.parameter(scale.name, factor), build.parameter(shift.name, summand))
            return _affine(build, x, scale, shift)
        arrays = (build.graph.parameters[each.name] for each in (scale, shift, mean, variance))
        factor, summand = self.affine(*arrays)
        return _affine(build, x, build.parameter(scale.name, factor), build.parameter(shift.name, summand))

    def lower(self, low: Lowering, node: Node) -> Lowered:
        raise UnsupportedError(node.name, node.source_op, "it was not rewritten by a pass", "report this as a bug")


def _affine(build: Builder, x: Value, factor: Value, summand: Value) -> Value:
    """x [N, C, ..] times a factor, and a summand more, for each channel."""
    tail = (1,) * (len(x.shape) - 2)
    factor, summand = (build.reshape(each, (*each.shape, *tail)) for each in (factor, summand))
    return build.add(build.mul(x, factor), summand)


@from_onnx("BatchNormalization")
def _batch_normalization(node: OnnxNode) -> None:
    node.only_first_output("the running mean")
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
    # ONNX says what part of the running statistic stays.
    node.emit(
        BatchNormalization(epsilon, 1.0 - float(node.attribute("momentum", 0.9))), [node.activation(0), *parameters]
    )


@from_torch(
    "aten.batch_norm.default",
    "aten.native_batch_norm.default",
    "aten._native_batch_norm_legit.default",
    "aten._native_batch_norm_legit.no_stats",
    "aten._native_batch_norm_legit_functional.default",
    "aten._native_batch_norm_legit_no_training.default",
)
def _batch_normalization_aten(node: TorchNode) -> None:
    node.ignore("cudnn_enabled")
    kept = 1.0 - node.number("momentum") if node.has("momentum") else 0.9
    if not (node.has("running_mean") and node.has("running_var")):
        raise node.unsupported("it takes its statistics from the batch", "train it with track_running_stats=True")
    if node.argument("training"):
        raise node.unsupported("it is in training mode", "call eval() on the module before exporting it")
    mean = node.constant("running_mean")
    weight = node.operand("weight") if node.has("weight") else np.ones(mean.shape)
    bias = node.operand("bias") if node.has("bias") else np.zeros(mean.shape)
    operands = [weight, bias, node.operand("running_mean"), node.operand("running_var")]
    node.first_of("BatchNormalization", node.activation("input"), *operands, epsilon=node.number("eps"), momentum=kept)
