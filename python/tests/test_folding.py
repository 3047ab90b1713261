"""Constants that a model computes: the number of samples is none of them, and older operators keep their rules."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import builders
import covey
from agreement import agree

ONE, ZERO = np.array([1]), np.array([0])

ATTRIBUTES: dict[str, Any] = {"Cast": {"to": 1}, "Concat": {"axis": 0}, "ReduceProd": {"keepdims": 0}}


def model(texts: str, constants: dict[str, Any], **options: Any) -> Any:
    """Nodes written as `Op operand .. result`, of x: [N, 4], the last of which gives y."""
    nodes = []
    for text in texts.split("; "):
        op, *operands, result = text.split()
        nodes.append(helper.make_node(op, operands, [result], **ATTRIBUTES.get(op, {})))
    return builders.model(nodes, {"x": ["N", 4]}, ["y"], constants, **options)


SIZES = {
    "a share of the samples": ("Shape x s; Gather s zero n; Cast n f; Div x f y", "its divisor comes from"),
    "the number of elements": ("Size x n; Cast n f; Mul x f y", "comes from the number of samples"),
    "a product of sizes": ("Shape x s; ReduceProd s n; Cast n f; Add x f y", "comes from the number of samples"),
    "a choice by the samples": ("Shape x s; Gather s zero n; Less n eight b; Where b x three y", "its condition comes"),
    "the lesser of two": ("Shape x s; Gather s zero n; Min n eight m; Cast m f; Mul x f y", "comes from the number"),
    "half the samples cut": (
        "Shape x s; Slice s none one n; Div n two h; Slice x none h one y",
        "it cuts other dimensions",
    ),
}
NUMBERS = {
    "zero": np.int64(0), "eight": np.int64(8), "three": np.float32(3), "none": ZERO, "one": ONE, "two": np.array([2]),
}  # fmt: skip


@pytest.mark.parametrize("case", SIZES)
@pytest.mark.parametrize("batch", ["N", 2])
def test_the_number_of_samples_is_no_number_of_the_model(case: str, batch: Any) -> None:
    texts, saying = SIZES[case]
    names = {name for text in texts.split("; ") for name in text.split()}
    proto = model(texts, {name: array for name, array in NUMBERS.items() if name in names})
    if batch != "N":
        proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = batch
    with pytest.raises(covey.UnsupportedError, match=saying):
        covey.compile(proto, input_range=(-1, 1))


@pytest.mark.parametrize(
    "texts",
    [
        "Shape x s; Gather s first n; Cast n f; Div x f y",
        "Shape x s; Slice s none one n; Concat n rest h; Reshape x h r; Relu r y",
        "Shape x s; Slice s none one n; Concat n four h; Expand row h e; Add x e y",
    ],
    ids=["a size of a sample", "a shape", "a row for every sample"],
)
def test_sizes_and_shapes_are_known(texts: str) -> None:
    constants = {
        "first": np.int64(1), "none": ZERO, "one": ONE, "rest": np.array([2, -1]), "four": np.array([4]),
        "row": np.array([[1.0, 2.0, 3.0, 4.0]]),
    }  # fmt: skip
    names = {name for text in texts.split("; ") for name in text.split()}
    proto = model(texts, {name: array for name, array in constants.items() if name in names})
    x = np.random.default_rng(0).uniform(-1, 1, (3, 4))
    agree(proto, {"x": x})


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("axis", [0, 1, 2, -1, None])
def test_rows_of_constants_before_opset_13(op: str, axis: int | None) -> None:
    constant = np.random.default_rng(0).normal(size=(2, 3, 4))
    nodes = [
        helper.make_node(op, ["c"], ["s"], **({} if axis is None else {"axis": axis})),
        helper.make_node("ReduceSum", ["s"], ["k"], axes=[0, 1], keepdims=0),
        helper.make_node("Add", ["x", "k"], ["y"]),
    ]
    proto = builders.model(nodes, {"x": ["N", 4]}, ["y"], {"c": constant}, opset=11)
    agree(proto, {"x": np.random.default_rng(1).uniform(-1, 1, (3, 4))})


@pytest.mark.parametrize("opset", [13, 17])
@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int32])
def test_weights_that_are_stored_as_integers(kind: Any, axis: int | None, opset: int) -> None:
    rng = np.random.default_rng(0)
    size = () if axis is None else ((4, 3)[axis],)
    constants = {"w": rng.integers(0, 100, (4, 3)).astype(kind), "s": rng.uniform(0.001, 0.01, size).astype(np.float32)}
    if kind != np.int32:
        constants["z"] = rng.integers(0, 100, size).astype(kind)
    options = {} if axis is None else {"axis": axis}
    nodes = [
        helper.make_node("DequantizeLinear", [name for name in "wsz" if name in constants], ["d"], **options),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    proto = builders.model(nodes, {"x": ["N", 4]}, ["y"], constants, opset=opset)
    agree(proto, {"x": rng.uniform(-1, 1, (5, 4))})


def chosen(condition: Any) -> Any:
    """An If between x and its negative."""
    branches = [
        helper.make_graph([helper.make_node(op, ["x"], ["z"])], op, [], [helper.make_tensor_value_info("z", 1, None)])
        for op in ("Relu", "Neg")
    ]
    nodes = [
        helper.make_node("If", ["c"], ["t"], then_branch=branches[0], else_branch=branches[1]),
        helper.make_node("Add", ["t", "k"], ["y"]),
    ]
    return builders.model(nodes, {"x": ["N", 4]}, ["y"], {"c": condition, "k": np.array(0.25)})


@pytest.mark.parametrize("condition", [True, False])
def test_the_branch_that_is_always_taken(condition: bool) -> None:
    agree(chosen(np.array(condition)), {"x": np.random.default_rng(0).uniform(-1, 1, (3, 4))})


def test_a_branch_that_depends_on_the_input_is_refused() -> None:
    proto = chosen(np.array(True))
    del proto.graph.initializer[0]
    proto.graph.input.append(helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, ["N"]))
    with pytest.raises(covey.UnsupportedError, match="its condition depends on the network's input; use Where"):
        covey.compile(proto, input_range=(-1, 1))


def test_numbers_that_the_network_counts() -> None:
    nodes = [
        helper.make_node("Greater", ["x", "zero"], ["b"]),
        helper.make_node("Cast", ["b"], ["i"], to=onnx.TensorProto.INT64),
        helper.make_node("ReduceSum", ["i", "axes"], ["n"], keepdims=0),
        helper.make_node("Greater", ["n", "two"], ["m"]),
        helper.make_node("Cast", ["m"], ["y"], to=onnx.TensorProto.FLOAT),
    ]
    constants = {"zero": np.array(0.0), "axes": np.array([1]), "two": np.array(2)}
    agree(
        builders.model(nodes, {"x": ["N", 4]}, ["y"], constants), {"x": np.random.default_rng(0).uniform(-1, 1, (8, 4))}
    )
