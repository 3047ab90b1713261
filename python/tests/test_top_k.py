"""TopK against onnxruntime, with ties, in both directions, along every axis."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import builders
import covey
import interpreter
from agreement import agree
from covey.ops.top_k import network


def top_k(
    shape: tuple[int, ...], count: int, outputs: str = "vi", *, axis: int = -1, largest: int = 1
) -> onnx.ModelProto:
    node = helper.make_node("TopK", ["x", "k"], ["v", "i"], name="the_node", axis=axis, largest=largest)
    types = {"i": TensorProto.INT64}
    return builders.model([node], {"x": ["N", *shape]}, list(outputs), {"k": np.array([count])}, types=types)


def tied(*shape: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Multiples of a quarter, most of them several times."""
    return {"x": np.random.default_rng(seed).integers(-8, 9, shape) / 4}


CASES: dict[str, tuple[tuple[int, ...], int, str, dict[str, int]]] = {
    "values": ((9,), 3, "v", {}),
    "values and indices": ((9,), 3, "vi", {}),
    "indices": ((9,), 4, "i", {}),
    "one of two": ((2,), 1, "vi", {}),
    "one of one": ((1,), 1, "v", {}),
    "all, smallest first": ((7,), 7, "vi", {"largest": 0}),
    "the smallest": ((6,), 2, "v", {"largest": 0}),
    "rows of images": ((3, 4, 5), 2, "vi", {}),
    "along the channels": ((5, 2, 3), 3, "vi", {"axis": 1, "largest": 0}),
    "along the columns": ((2, 6, 3), 2, "i", {"axis": 2}),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("ring", [32, 64])
def test_agrees_with_onnxruntime(case: str, ring: int) -> None:
    shape, count, outputs, options = CASES[case]
    compiled = agree(top_k(shape, count, outputs, **options), tied(64, *shape), tolerance=0, ring=ring)
    assert all(value.bound.source == value.bound.PROVED for value in interpreter.program_of(compiled).values)


@pytest.mark.parametrize("truncation", ["ulp", "probabilistic"])
def test_indices_are_exact_whatever_rounding_is_allowed(truncation: str) -> None:
    compiled = covey.compile(top_k((9,), 3), input_range=(-2, 2), truncation=truncation, ring=64)
    for node in interpreter.program_of(compiled).nodes:
        kind = node.WhichOneof("op")
        assert kind not in ("truncate", "mul_shift") or getattr(node, kind).rounding == 0


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 13, 40])
def test_networks_sort(size: int) -> None:
    """A network that sorts all rows of zeros and ones sorts all rows; here all of few, and many."""
    rng = np.random.default_rng(size)
    rows = np.arange(2**size)[:, None] >> np.arange(size) & 1 if size < 14 else rng.integers(0, 2, (4000, size))
    for count in {1, 2, size // 2, size} & set(range(1, size + 1)):
        x = rows.copy()
        for layer in network(size, count):
            assert len({place for pair in layer for place in pair}) == 2 * len(layer)
            for a, b in layer:
                x[:, a], x[:, b] = np.maximum(x[:, a], x[:, b]), np.minimum(x[:, a], x[:, b])
        assert np.array_equal(x[:, :count], -np.sort(-rows, axis=1)[:, :count])


@pytest.mark.parametrize(("size", "count", "most"), [(8, 1, 7), (8, 3, 15), (1000, 1, 999), (1000, 10, 7000)])
def test_comparisons(size: int, count: int, most: int) -> None:
    assert sum(map(len, network(size, count))) <= most


def test_indices_are_numbers_too() -> None:
    nodes = [
        helper.make_node("TopK", ["x", "k"], ["v", "i"], name="the_node"),
        helper.make_node("Cast", ["i"], ["n"], name="cast", to=TensorProto.FLOAT),
        helper.make_node("Mul", ["v", "n"], ["y"], name="product"),
    ]
    proto = builders.model(nodes, {"x": ["N", 5]}, ["y"], {"k": np.array([2])})
    agree(proto, {"x": np.random.default_rng(0).uniform(-1, 1, (4, 5)).astype(np.float32).astype(np.float64)})


def test_too_many_are_refused() -> None:
    proto = top_k((5,), 5)
    proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.array([6]), "k"))
    del proto.graph.output[0].type.tensor_type.shape.dim[1:]
    with pytest.raises(covey.CoveyError, match="it asks for 6 of 5 elements"):
        covey.compile(proto, input_range=(-1, 1))
