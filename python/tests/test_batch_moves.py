"""Models that move the batch, or merge it with other dimensions, and bring it back: nothing is moved in the program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import builders
import covey
import interpreter
from agreement import agree, image
from covey.importers.onnx import import_model
from covey.ops.transpose import Transpose

RNG = np.random.default_rng(0)
CONSTANTS = {
    "w": builders.weights(RNG, 4, 6),
    "b": RNG.normal(size=6),
    "square": builders.weights(RNG, 4, 4),
    "position": RNG.normal(size=(5, 1, 4)),
    "tail": RNG.normal(size=4),
    "first": np.array([0]),
    "second": np.array([1]),
    "third": np.array([2]),
    "one": np.array(0),
    "last": np.array(-1),
    "rows": np.array([-1, 4]),
    "wide": np.array([-1, 5, 6]),
    "heads": np.array([5, -1, 2, 2]),
    "joined": np.array([0, 0, -1]),
    "half": np.array(0.5),
    "pairs": np.array([-1, 2, 2]),
    "tokens": np.array([-1, 5, 4]),
    "three": np.array([3]),
    "six": np.array([6]),
}


def node(op: str, *operands: str, to: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, list(operands), [to], name=f"{op} {to}", **attributes)


def swapped(x: str, to: str) -> onnx.NodeProto:
    """[N, T, E] as [T, N, E], or back."""
    return node("Transpose", x, to=to, perm=[1, 0, 2])


def sequence(nodes: Sequence[onnx.NodeProto], shape: Sequence[Any] = ("N", 5, 4), **options: Any) -> onnx.ModelProto:
    used = {name for each in nodes for name in each.input}
    constants = {name: array for name, array in CONSTANTS.items() if name in used}
    return builders.model(nodes, {"x": list(shape)}, ["y"], constants, **options)


BACK: dict[str, list[onnx.NodeProto]] = {
    "an einsum": [
        swapped("x", "t"),
        node("Einsum", "t", "w", to="h", equation="tbi,ij->tbj"),
        swapped("h", "y"),
    ],
    "an einsum that brings it back": [
        swapped("x", "t"),
        node("Einsum", "t", "t", to="y", equation="ibd,jbd->bij"),
    ],
    "a softmax of merged rows": [
        node("Reshape", "x", "pairs", to="p"),
        node("Softmax", "p", to="s", axis=1),
        node("Reshape", "s", "tokens", to="y"),
    ],
    "a layer": [
        swapped("x", "t"),
        node("MatMul", "t", "w", to="h"),
        node("Add", "h", "b", to="s"),
        node("Relu", "s", to="r"),
        swapped("r", "y"),
    ],
    "a constant for each step": [
        swapped("x", "t"),
        node("Add", "t", "position", to="p"),
        node("Mul", "p", "tail", to="q"),
        node("Clip", "q", "", "half", to="c"),
        swapped("c", "y"),
    ],
    "activations of one layout": [
        swapped("x", "t"),
        node("Sigmoid", "t", to="g"),
        node("Greater", "t", "half", to="c"),
        node("Mul", "t", "g", to="m"),
        node("Where", "c", "m", "t", to="k"),
        swapped("k", "y"),
    ],
    "the last step": [swapped("x", "t"), node("Gather", "t", "last", to="g", axis=0), node("Gemm", "g", "w", to="y")],
    "some steps": [
        swapped("x", "t"),
        node("Slice", "t", "second", "three", "first", to="s"),
        swapped("s", "y"),
    ],
    "two at once": [
        swapped("x", "t"),
        helper.make_node("Split", ["t"], ["a", "c"], name="split", axis=2),
        node("Concat", "c", "a", to="k", axis=2),
        node("Concat", "k", "t", to="j", axis=0),
        swapped("j", "y"),
    ],
    "the mean of the steps": [swapped("x", "t"), node("ReduceMean", "t", to="y", axes=[0], keepdims=0)],
    "the largest of the steps": [
        swapped("x", "t"),
        node("ReduceMax", "t", to="m", axes=[0, -1], keepdims=1),
        swapped("m", "y"),
    ],
    "a dimension before the batch and away": [
        node("Unsqueeze", "x", "first", to="u"),
        node("Concat", "u", "u", to="c", axis=0),
        node("ReduceSum", "c", "first", to="s", keepdims=1),
        node("Squeeze", "s", "first", to="y"),
    ],
    "heads": [
        swapped("x", "t"),
        node("Reshape", "t", "heads", to="h"),
        node("Transpose", "h", to="u", perm=[1, 2, 0, 3]),
        node("Transpose", "u", to="v", perm=[0, 1, 3, 2]),
        node("MatMul", "u", "v", to="m"),
        node("Transpose", "m", to="o", perm=[2, 0, 1, 3]),
        node("Reshape", "o", "joined", to="k"),
        swapped("k", "y"),
    ],
    "rows of all samples": [
        node("Reshape", "x", "rows", to="m"),
        node("Gemm", "m", "w", "b", to="h", alpha=0.5),
        node("Relu", "h", to="r"),
        node("Reshape", "r", "wide", to="y"),
    ],
    "rows of all steps": [
        swapped("x", "t"),
        node("Shape", "t", to="shape"),
        node("Reshape", "t", "rows", to="m"),
        node("MatMul", "m", "w", to="h"),
        node("Slice", "shape", "first", "third", to="part"),
        node("Concat", "part", "six", to="all", axis=0),
        node("Reshape", "h", "all", to="back"),
        swapped("back", "y"),
    ],
    "the largest number": [
        swapped("x", "t"),
        node("ReduceMean", "t", to="m", axes=[0], keepdims=1),
        node("ArgMax", "m", to="a", axis=2, keepdims=0),
        node("Transpose", "a", to="y", perm=[1, 0]),
    ],
}


@pytest.mark.parametrize("batch", ["N", 2])
@pytest.mark.parametrize("case", BACK)
def test_the_batch_comes_back(case: str, batch: Any) -> None:
    options = {"output_dtype": TensorProto.INT64} if case == "the largest number" else {}
    agree(sequence(BACK[case], (batch, 5, 4), **options), image(2, 5, 4))


@pytest.mark.parametrize("case", ["a layer", "rows of all samples", "the last step"])
def test_nothing_moves(case: str) -> None:
    graph = import_model(sequence(BACK[case]))
    assert not any(isinstance(each.op, Transpose) for each in graph.nodes)
    assert all(value.batch_first for value in graph.values.values())
    assert {each.output for each in graph.nodes} >= {"r"} or case == "the last step"


def test_a_softmax_at_the_end_is_still_the_owners() -> None:
    steps = [node("MatMul", "t", "w", to="h"), node("Softmax", "h", to="s", axis=-1)]
    compiled = covey.compile(sequence([swapped("x", "t"), *steps, swapped("s", "y")]), input_range=(-1, 1))
    assert [entry["postprocess"] for entry in compiled.report["outputs"]] == ["softmax"]


def test_checked_nodes_say_so() -> None:
    checked = covey.check(sequence(BACK["a layer"]))
    assert checked.ok
    texts = {note.node: note.text for note in checked.notes}
    assert texts["Relu r"] == "as it is, with the batch first"
    assert texts["Transpose t"] == texts["Transpose y"] == "removed, with the batch first"


def softmax_over_samples() -> onnx.ModelProto:
    return sequence([swapped("x", "t"), node("Softmax", "t", to="s", axis=1), swapped("s", "y")])


def layer_over_samples() -> onnx.ModelProto:
    turned = node("Transpose", "x", to="t", perm=[1, 2, 0])
    return sequence(
        [turned, node("MatMul", "t", "square", to="h"), node("Transpose", "h", to="y", perm=[2, 0, 1])], (4, 5, 4)
    )


REFUSED: dict[str, tuple[Callable[[], onnx.ModelProto], str]] = {
    "left there": (
        lambda: sequence([swapped("x", "y")]),
        "node 'Transpose y' (Transpose): it moves the batch, which output 'y' y[5, N, 4] does not have first and alone",
    ),
    "over samples": (
        softmax_over_samples,
        "node 'Softmax s' (Softmax): it runs over axis 1, the batch or none, of t[5, N, 4]",
    ),
    "a layer over samples": (
        layer_over_samples,
        "node 'MatMul h' (MatMul): it multiplies over the batch of t[5, 4, N]",
    ),
    "the mean of samples": (
        lambda: sequence([swapped("x", "t"), node("ReduceMean", "t", to="y", axes=[1], keepdims=0)]),
        "node 'ReduceMean y' (ReduceMean): it runs over axis 1, the batch or none, of t[5, N, 4]",
    ),
    "an operator that is not taught": (
        lambda: sequence([swapped("x", "t"), node("Tile", "t", "twice", to="p"), swapped("p", "y")]),
        "node 'Tile p' (Tile): it reads t[5, N, 4], where node 'Transpose t' has moved the batch; transpose or reshape",
    ),
    "two layouts": (
        lambda: sequence([swapped("x", "t"), node("Add", "t", "x", to="a"), swapped("a", "y")], (5, 5, 4)),
        "node 'Add a' (Add): it reads t[5, N, 4], where node 'Transpose t' has moved the batch",
    ),
    "a constant for each sample": (
        lambda: sequence(
            [node("Transpose", "x", to="t", perm=[1, 0, 2]), node("Add", "t", "b6", to="a"), swapped("a", "y")]
        ),
        "node 'Add a' (Add): its second operand of shape [2, 1, 1] differs between samples of a batch",
    ),
    "a constant for each row": (
        lambda: sequence(
            [
                node("Reshape", "x", "rows", to="m"),
                node("Add", "m", "b10", to="a"),
                node("Reshape", "a", "back", to="y"),
            ],
            (2, 5, 4),
        ),
        "node 'Add a' (Add): its constant differs between the rows of m[N·5, 4]",
    ),
    "mixed": (
        lambda: sequence(
            [swapped("x", "t"), node("Reshape", "t", "mix", to="m"), node("Reshape", "m", "wide", to="y")]
        ),
        "node 'Reshape m' (Reshape): its target [4, -1] mixes the batch with the dimensions of t[5, N, 4]",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    more = {"twice": np.array([1, 1, 2]), "b6": np.arange(2.0).reshape(1, 2, 1), "mix": np.array([4, -1])}
    more |= {"b10": np.arange(10.0)[:, None], "back": np.array([2, 5, 4])}
    for name, array in more.items():
        monkeypatch.setitem(CONSTANTS, name, array)
    build, message = REFUSED[case]
    with pytest.raises(covey.UnsupportedError) as caught:
        covey.compile(build(), input_range=(-1, 1))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_einsum_over_samples() -> None:
    nodes = [swapped("x", "t"), node("Einsum", "t", to="y", equation="tbi->ti")]
    with pytest.raises(covey.UnsupportedError, match="its equation 'tbi->ti' mixes the samples of a batch"):
        covey.compile(sequence(nodes), input_range=(-1, 1))


def test_from_pytorch() -> None:
    torch = pytest.importorskip("torch")

    class Module(torch.nn.Module):  # type: ignore[misc, name-defined]
        """A class token, a layer with the steps first, and three ways back."""

        def __init__(self) -> None:
            super().__init__()
            self.token = torch.nn.Parameter(torch.randn(1, 1, 4))
            self.position = torch.nn.Parameter(torch.randn(1, 6, 4))
            self.fc = torch.nn.Linear(4, 3)

        def forward(self, x: Any) -> Any:
            x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.position
            x = torch.relu(self.fc(x.transpose(0, 1)))
            rows = x.reshape(-1, 3) * 0.5
            return x.permute(1, 0, 2), x[0], x.mean(dim=0), rows.reshape(6, -1, 3).transpose(0, 1).flatten(1)

    torch.manual_seed(0)
    module, x = Module().eval(), torch.rand(3, 5, 4)
    compiled = covey.compile(module, (x,))
    for got, expected in zip(interpreter.run(compiled, {"x": x.double().numpy()}), module(x), strict=True):
        np.testing.assert_allclose(got, expected.detach().numpy(), atol=0.01)


# A constant joined to activations, such as the class token of a vision transformer


def test_a_class_token() -> None:
    nodes = [
        node("Shape", "x", to="shape"),
        node("Gather", "shape", "one", to="count", axis=0),
        node("Unsqueeze", "count", "first", to="batch"),
        node("Concat", "batch", "rest", to="all", axis=0),
        node("Expand", "token", "all", to="tokens"),
        node("Concat", "tokens", "x", to="c", axis=1),
        node("Add", "c", "positions", to="p"),
        node("MatMul", "p", "w", to="y"),
    ]
    constants = {
        "one": np.array(0),
        "first": np.array([0]),
        "rest": np.array([1, 4]),
        "token": RNG.normal(size=(1, 1, 4)),
        "positions": RNG.normal(size=(1, 6, 4)),
        "w": CONSTANTS["w"],
    }
    agree(builders.model(nodes, {"x": ["N", 5, 4]}, ["y"], constants), image(3, 5, 4))


@pytest.mark.parametrize("axis", [1, 2, -1])
def test_constants_between_activations(axis: int) -> None:
    shape = [1, 5, 4]
    shape[axis] = 2
    nodes = [node("Relu", "x", to="r"), node("Concat", "k", "x", "r", "k", "x", to="y", axis=axis)]
    compiled = agree(builders.model(nodes, {"x": [1, 5, 4]}, ["y"], {"k": RNG.normal(size=shape)}), image(1, 5, 4))
    assert {n.WhichOneof("op") for n in interpreter.program_of(compiled).nodes} <= {"relu", "concat", "gather", "add"}


def test_a_constant_that_does_not_join() -> None:
    """A model of one batch size may have another constant for each sample."""
    constant = RNG.normal(size=(2, 2, 4))
    proto = builders.model([node("Concat", "k", "x", to="y", axis=1)], {"x": [2, 5, 4]}, ["y"], {"k": constant})
    with pytest.raises(covey.UnsupportedError) as caught:
        covey.compile(proto, input_range=(-1, 1))
    assert str(caught.value) == (
        "node 'Concat y' (Concat): its constant operand 0 of shape [2, 2, 4] does not join x[N, 5, 4] along axis 1, or "
        "differs between samples; give it the shape of the other operands, the same for every sample"
    )
