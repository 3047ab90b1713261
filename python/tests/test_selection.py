"""Elements at secret indices, and arithmetic on them: against PyTorch, and ONNX's operators against onnxruntime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import builders
import covey
import interpreter
from agreement import agree
from covey import reference
from covey.importers.torch_export import examine
from covey.passes import rewrite

RNG = np.random.default_rng(0)
INTEGER = TensorProto.INT64


def spread(*shape: int) -> np.ndarray:
    """Numbers no two of which are near each other, in a random order."""
    size = int(np.prod(shape))
    return RNG.permuted(np.linspace(-2, 2, size)).astype(np.float32).astype(np.float64).reshape(shape)


def model(nodes: list[onnx.NodeProto], constants: dict[str, np.ndarray] | None = None, **options: Any) -> Any:
    return builders.model(nodes, {"x": ["N", 4, 5]}, ["y"], constants, **options)


BEST = helper.make_node("ArgMax", ["x"], ["i"], name="best", axis=1)

# Of x: [N, 4, 5].
ONNX: dict[str, tuple[list[onnx.NodeProto], dict[str, np.ndarray]]] = {
    "GatherElements": ([BEST, helper.make_node("GatherElements", ["x", "i"], ["y"], axis=1)], {}),
    "GatherElements, of a part, along the first": (
        [
            helper.make_node("TopK", ["x", "two"], ["v", "i"], axis=1, largest=0),
            helper.make_node("GatherElements", ["x", "i"], ["y"], axis=1),
        ],
        {"two": np.array([2])},
    ),
    "GatherElements, the same for all columns": (
        [
            helper.make_node("ReduceMax", ["x"], ["m"], axes=[2]),
            helper.make_node("ArgMax", ["m"], ["k"], axis=1),
            helper.make_node("Expand", ["k", "shape"], ["i"]),
            helper.make_node("GatherElements", ["x", "i"], ["y"], axis=1),
        ],
        {"shape": np.array([1, 1, 5])},
    ),
    "GatherND": (
        [
            helper.make_node("ReduceMax", ["x"], ["m"], axes=[2], keepdims=0),
            helper.make_node("ArgMax", ["m"], ["i"], axis=1),
            helper.make_node("GatherND", ["x", "i"], ["y"], batch_dims=1),
        ],
        {},
    ),
    "GatherND, side by side": (
        [
            helper.make_node("ArgMax", ["x"], ["i"], axis=2),
            helper.make_node("GatherND", ["x", "i"], ["y"], batch_dims=2),
        ],
        {},
    ),
    "OneHot": (
        [BEST, helper.make_node("OneHot", ["i", "depth", "values"], ["y"])],
        {"depth": np.array(6), "values": np.array([0.5, 2.0])},
    ),
    "OneHot of too few": (
        [BEST, helper.make_node("OneHot", ["i", "depth", "values"], ["y"], axis=1)],
        {"depth": np.array(2), "values": np.array([0.0, 1.0])},
    ),
    "Gather of a table": ([BEST, helper.make_node("Gather", ["table", "i"], ["y"])], {"table": spread(4, 2, 3)}),
    "arithmetic on places": (
        [
            BEST,
            helper.make_node("Mul", ["i", "two"], ["twice"]),
            helper.make_node("Sub", ["nine", "twice"], ["places"]),
            helper.make_node("Gather", ["table", "places"], ["y"]),
        ],
        {"two": np.array(2), "nine": np.array(9), "table": spread(12, 2)},
    ),
    "places as numbers": (
        [BEST, helper.make_node("Cast", ["i"], ["n"], to=1), helper.make_node("Mul", ["n", "x"], ["y"])],
        {},
    ),
    "places compared": (
        [
            BEST,
            helper.make_node("Greater", ["i", "one"], ["late"]),
            helper.make_node("Where", ["late", "x", "zero"], ["y"]),
        ],
        {"one": np.array(1), "zero": np.array(0.0)},
    ),
}
ONNX["the place of the least"] = (
    [
        BEST,
        helper.make_node("ArgMin", ["i"], ["j"], axis=2, keepdims=0),
        helper.make_node("Gather", ["table", "j"], ["y"]),
    ],
    {"table": spread(5, 2)},
)


@pytest.mark.parametrize("case", ONNX)
def test_onnx(case: str) -> None:
    nodes, constants = ONNX[case]
    agree(model(nodes, constants), {"x": spread(3, 4, 5)})


def test_what_is_selected_is_exact_and_bounded_by_the_data() -> None:
    nodes, constants = ONNX["GatherND"]
    compiled = covey.compile(model(nodes, constants), input_range=(-2, 2))
    program = interpreter.program_of(compiled)
    x = spread(6, 4, 5)
    (got,) = interpreter.run(compiled, {"x": x})
    rows = np.rint(np.ldexp(x, compiled.report["scale"]))
    assert np.array_equal(np.ldexp(got, compiled.report["scale"]), rows[np.arange(6), x.max(2).argmax(1)])
    assert program.values[program.outputs[0]].bound.bits == program.values[program.inputs[0]].bound.bits


def test_one_row_of_indices_serves_all_columns() -> None:
    """Of 4 elements along a dimension, 5 columns have one index: 3 comparisons find it, and 4 make it one-hot."""
    nodes, constants = ONNX["GatherElements, the same for all columns"]
    program = interpreter.program_of(covey.compile(model(nodes, constants), input_range=(-2, 2)))
    (compared,) = [program.values[n.outputs[0]] for n in program.nodes if n.WhichOneof("op") == "less_than_zero"]
    assert list(compared.shape) == [1, 4]


REFUSED: dict[str, tuple[list[onnx.NodeProto], dict[str, np.ndarray], str]] = {
    "of all samples": (
        [BEST, helper.make_node("Gather", ["x", "i"], ["y"], name="g", axis=1)],
        {},
        "'g' (Gather): it picks of every sample of x[N, 4, 5] by each sample's indices; use GatherElements",
    ),
    "beyond": (
        [BEST, helper.make_node("Gather", ["table", "i"], ["y"], name="g")],
        {"table": spread(3, 2)},
        "'g' (Gather): its indices 'i' are from 0 to 3, and there are 3 elements; clip them",
    ),
    "one-hot of places below 0": (
        [
            BEST,
            helper.make_node("Sub", ["i", "two"], ["j"]),
            helper.make_node("OneHot", ["j", "depth", "values"], ["y"], name="g"),
        ],
        {"two": np.array(2), "depth": np.array(5), "values": np.array([0.0, 1.0])},
        "'g' (OneHot): its indices are from -2 to 1; add what makes the least of them 0",
    ),
    "tuples": (
        [
            helper.make_node("ReduceMax", ["x"], ["m"], axes=[2], keepdims=0),
            helper.make_node("TopK", ["m", "two"], ["v", "i"], axis=1),
            helper.make_node("GatherND", ["x", "i"], ["y"], name="g", batch_dims=1),
        ],
        {"two": np.array([2])},
        "'g' (GatherND): its secret indices i[N, 2] are tuples of 2, or do not fit x[N, 4, 5]; gather along one",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str) -> None:
    nodes, constants, message = REFUSED[case]
    with pytest.raises(covey.UnsupportedError) as caught:
        covey.compile(model(nodes, constants), input_range=(-2, 2))
    assert message in str(caught.value)


torch = pytest.importorskip("torch", reason="PyTorch is not installed")


class Functions(torch.nn.Module):  # type: ignore[misc]
    """Several functions of one input, exported once."""

    def __init__(self, functions: list[Callable[..., Any]]) -> None:
        super().__init__()
        self.functions = functions

    def forward(self, *inputs: Any) -> Any:
        return tuple(function(*inputs) for function in self.functions)


def samples(x: Any) -> Any:
    return torch.arange(len(x))


COMPUTED: dict[str, Callable[[Any], Any]] = {
    "index": lambda x: x[samples(x), x.sum(-1).argmax(-1)],
    "index behind": lambda x: x[samples(x), :, x.sum(1).argmin(-1)],
    "several": lambda x: x[samples(x)[:, None], x.sum(-1).topk(2, -1).indices],
    "gather": lambda x: x.gather(2, x.argmax(2, keepdim=True)),
    "take_along_dim": lambda x: torch.take_along_dim(x, x.argmax(1, keepdim=True), 1),
    "one_hot": lambda x: torch.nn.functional.one_hot(x.argmax(2), 5).float(),
    "the last that counts": lambda x: x[samples(x), (x.sum(-1) > -1).sum(-1) - 1],
    "the last that counts, by place": lambda x: x[
        samples(x), (torch.arange(4) * (x[:, :, 0] > -1.5).to(torch.int32)).argmax(-1)
    ],
    "a table": lambda x: torch.arange(15.0).reshape(5, 3)[x.argmax(-1)],
    "rows selected": lambda x: torch.arange(15.0).reshape(5, 3).index_select(0, x.argmax(-1).view(-1)).view(-1, 4, 3),
    "indices of indices": lambda x: x.argmax(1).gather(1, x.argmax(2)).gather(1, x[..., :4].argmax(2)),
    "scattered numbers": lambda x: torch.zeros_like(x).scatter(2, x.argmax(2, keepdim=True), 1.0),
    "scattered into data": lambda x: x.scatter(1, x.argmin(1, keepdim=True), x.amax(1, keepdim=True)),
    "scattered best": lambda x: torch.full((len(x), 4, 5), 0.5).scatter(2, *x.topk(2)[::-1]),
    "scattered constants": lambda x: x.scatter(
        2, x.topk(3)[1], torch.linspace(-1, 1, 12).view(1, 4, 3).repeat(len(x), 1, 1)
    ),
    "sums of scattered": lambda x: x.scatter_add(2, x.argmax(2, keepdim=True).expand(-1, 4, 3), x),
    "sums of scattered, reduced": lambda x: x.scatter_reduce(1, x.argmax(1, keepdim=True), x[:, :1], "sum"),
    "places as numbers": lambda x: x.argmax(-1) / 2 + x[:, :, 0],
}

# Of x: [N, 4, 5] and whole numbers i: [N] below 4, j: [N, 4, 1] below 5.
GIVEN: dict[str, Callable[..., Any]] = {
    "index": lambda x, i, j: x[samples(x), i],
    "gather": lambda x, i, j: x.gather(2, j),
    "gather of all": lambda x, i, j: x.gather(1, i[:, None, None].expand(-1, 1, 5)),
    "the largest": lambda x, i, j: x[samples(x), j.squeeze(-1).argmax(-1)],
    "the last of a length": lambda x, i, j: x[samples(x), i - 1],
    "the last of a length, gathered": lambda x, i, j: x.gather(1, (3 - i)[:, None, None].expand(-1, 1, 5)),
    "from the end": lambda x, i, j: x[samples(x), -1 - i] + (torch.arange(5) < i[:, None]),
    "one hot by scatter": lambda x, i, j: torch.zeros(len(x), 4, 5).scatter_(2, j, 1),
    "counts": lambda x, i, j: torch.zeros(len(x), 5).scatter_add_(1, j.squeeze(-1), torch.ones(len(x), 4)),
    "a sum": lambda x, i, j: (1 - j) * x,
}


def compared(functions: dict[str, Callable[..., Any]], inputs: tuple[Any, ...], **options: Any) -> None:
    """Reference and fixed-point program against PyTorch."""
    module = Functions(list(functions.values())).eval()
    graph, errors = examine(module, example_inputs=tuple(each[:2] for each in inputs))
    assert [*errors, *rewrite(graph)] == []
    due = [each.double().numpy() for each in module(*inputs)]
    arrays = {name: each.double().numpy() for name, each in zip(graph.inputs, inputs, strict=True)}
    for name, got, wanted in zip(functions, reference.outputs(graph, arrays), due, strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-5, err_msg=name)
    compiled = covey.compile(module, inputs, **options)
    for name, got, wanted in zip(functions, interpreter.run(compiled, arrays), due, strict=True):
        np.testing.assert_allclose(got, wanted, atol=0.02, err_msg=name)


def test_computed_indices() -> None:
    compared(COMPUTED, (torch.tensor(spread(5, 4, 5)).float(),))


def test_indices_that_are_inputs() -> None:
    x = torch.tensor(spread(6, 4, 5)).float()
    compared(GIVEN, (x, torch.tensor([0, 3, 1, 2, 2, 0]), torch.randint(0, 5, (6, 4, 1))))


SCATTERED: dict[str, tuple[Callable[..., Any], str]] = {
    "twice": (lambda x: x.scatter(2, x.argmax(2, keepdim=True).expand(-1, -1, 2), x), "several may be the same"),
    "not along that": (lambda x: x.scatter(1, x.topk(2)[1].transpose(1, 2)[..., :4], x), "of a part"),
    "of a part": (lambda x: x.scatter(2, x[:, :2].argmax(2, keepdim=True), 1.0), "of a part"),
    "reduced": (
        lambda x: x.scatter_reduce(2, x.argmax(2, keepdim=True), x, "amax"), "it reduces at secret indices"
    ),
    "without itself": (
        lambda x: x.scatter_reduce(2, x.argmax(2, keepdim=True), x, "sum", include_self=False), "it reduces at secret"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SCATTERED)
def test_other_writing_at_secret_indices_is_refused(case: str) -> None:
    function, problem = SCATTERED[case]
    _, (error, *_) = examine(Functions([function]).eval(), example_inputs=(torch.tensor(spread(5, 4, 5)).float(),))
    assert problem in str(error)


def test_lengths_have_as_many_classes_as_lead_to_an_element() -> None:
    x = torch.tensor(spread(6, 4, 5)).float()
    compiled = covey.compile(Functions([lambda x, i: x[samples(x), i - 1]]).eval(), (x, torch.arange(6) % 4 + 1))
    assert compiled.graph.classes["inputs_1"] == (5,)


def test_samples_are_not_mixed() -> None:
    x = torch.tensor(spread(5, 4, 5)).float()
    for function in (lambda x: x[:, x.sum(-1).argmax(-1)], lambda x: x[samples(x)[:, None], x.sum(-1).argmax(-1)]):
        _, (error, *_) = examine(Functions([function]).eval(), example_inputs=(x,))
        assert "by secret indices of several dimensions, or of other samples" in str(error)
