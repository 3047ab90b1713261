"""Fully connected layers: Gemm, and MatMul with a constant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from covey._proto import program_pb2 as pb
from covey.importers.onnx_node import OnnxNode, from_onnx, of_one_sample
from covey.importers.torch_node import Constant, TorchNode, from_torch
from covey.interval import Array, Interval, of_centre
from covey.ir import Node, Op, Shape, Value
from covey.linear import emit_linear
from covey.lowering import Lowered, Lowering
from covey.ops.add import Add

if TYPE_CHECKING:
    from covey.training.builder import Builder


@dataclass(frozen=True)
class Dense(Op):
    """x [N, .., K] times weight [K, M] plus an optional bias [M].

    The weight has up to `finer` more fractional bits, as far as the ring has room for the product.
    """

    finer: int = field(default=0, kw_only=True)

    widens = True

    def shape(self, *inputs: Value) -> Shape:
        x, weight = inputs[:2]
        if len(weight.shape) != 2 or not x.shape or x.shape[-1] != weight.shape[0]:
            raise ValueError(f"{x} does not multiply with a weight of shape {list(weight.shape)}")
        if len(inputs) > 2 and inputs[2].shape != (weight.shape[1],):
            raise ValueError(f"its bias has shape {list(inputs[2].shape)} instead of [{weight.shape[1]}]")
        return (*x.shape[:-1], weight.shape[1])

    def reference(self, *inputs: Array) -> Array:
        product: Array = np.asarray(np.matmul(inputs[0], inputs[1]))
        return product + inputs[2] if len(inputs) > 2 else product

    def interval(self, *inputs: Interval) -> Interval:
        if not all(each.is_constant for each in inputs[1:]):
            from covey.ops.matmul import Matmul

            product = Matmul().interval(*inputs[:2])
            return product + inputs[2] if len(inputs) > 2 else product
        x, weight = inputs[0], inputs[1].low
        bias = [inputs[2].low] if len(inputs) > 2 else []
        return of_centre(
            self.reference(x.centre, weight, *bias),
            self.reference(x.radius, np.abs(weight)),
            terms=weight.shape[0],
            products=float(np.abs(weight).max()) * x.magnitude,
            more=float(np.abs(bias).max(initial=0.0)),
        )

    def of_secrets(self, build: Builder, *inputs: Value) -> Value:
        x, weight, *bias = inputs
        if not weight.batched:
            layer = self if not any(each.batched for each in bias) else type(self)()
            y = build.emit(layer, x, weight, *(each for each in bias if not each.batched), hint="product")
            return build.total([y, *(each for each in bias if each.batched)])
        rows = build.reshape(x, (x.size // x.shape[-1], x.shape[-1]))
        y = build.layer(rows, weight, [build.reshape(each, (1, *each.shape)) for each in bias])
        return build.reshape(y, (*x.shape[:-1], weight.shape[1]))

    def gradient(
        self, build: Builder, inputs: Sequence[Value], result: Value, gradient: Value
    ) -> Sequence[Value | None]:
        x, weight, *bias = inputs
        columns = gradient.shape[-1]

        def of_weight() -> Value:
            rows, gradients = (
                build.reshape(each, (each.size // each.shape[-1], each.shape[-1])) for each in (x, gradient)
            )
            return build.matmul(build.swapped(rows), gradients)

        return [
            build.part(x, lambda: build.emit(Dense(), gradient, build.swapped(weight), hint="back")),
            build.part(weight, of_weight),
            *(build.part(each, lambda: build.sum_to(gradient, (columns,))) for each in bias),
        ]

    def lower(self, low: Lowering, node: Node) -> Lowered:
        return emit_linear(low, node, pb.Dense(), finer=self.finer)


@from_onnx("Gemm")
def _gemm(node: OnnxNode) -> None:
    x = node.activation(0, "input A")
    alpha, beta = float(node.attribute("alpha", 1.0)), float(node.attribute("beta", 1.0))
    if node.opset < 7:
        node.ignore("broadcast")
    if node.flag("transA"):
        raise node.unsupported("transA would mix the samples of a batch", "transpose the input before the model")
    if len(x.shape) != 1:
        raise node.unsupported(f"its input A {x} is not a matrix", "flatten it first")
    weight = node.weights(1, "input B") * alpha
    if weight.ndim != 2:
        raise node.unsupported(f"its input B has shape {list(weight.shape)}", "it must be a matrix")
    weight = weight.T if node.flag("transB") else weight
    inputs = [x, node.parameter(np.ascontiguousarray(weight), node.inputs[1])]
    if not node.has(2) or beta == 0.0:
        node.emit(Dense(), inputs)
    elif node.is_constant(2):
        bias = of_one_sample(node.weights(2, "input C") * beta, 2)
        if bias.ndim > 1 or bias.size not in (1, weight.shape[1]):
            raise node.unsupported(
                f"its input C of shape {list(bias.shape)} differs between samples of a batch",
                "give one bias per output",
            )
        inputs.append(node.parameter(np.broadcast_to(bias, (weight.shape[1],)).copy(), node.inputs[2]))
        node.emit(Dense(), inputs)
    else:
        if beta != 1.0:
            raise node.unsupported(f"beta is {beta} and input C no constant", "scale it by a Mul before")
        product = node.emit(Dense(), inputs, output=f"{node.outputs[0]}.product")
        node.emit(Add(), [product, node.activation(2, "input C")])


@from_torch("aten.linear.default")
def _linear_aten(node: TorchNode) -> None:
    x, weight = node.activation("input"), node.operand("weight")
    bias = node.operand("bias") if node.has("bias") else None
    if len(x.shape) == 1:
        node.become("Gemm", x, weight, bias, transB=1)
        return
    turned = Constant(weight.name, node.constant("weight").T) if isinstance(weight, Constant) else weight
    if bias is None:
        node.become("MatMul", x, turned)
    else:
        node.become("Add", node.apply("MatMul", x, turned, suffix="product"), bias)


@from_torch("aten.addmm.default")
def _addmm_aten(node: TorchNode) -> None:
    alpha, beta = node.number("alpha"), node.number("beta")
    node.become("Gemm", node.activation("mat1"), node.operand("mat2"), node.operand("self"), alpha=alpha, beta=beta)
