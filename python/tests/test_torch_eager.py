"""Modules whose exported program is not all they compute: refused, or as the module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import covey
from covey import reference
from covey.importers.torch_export import examine
from covey.importers.torch_programs import runner
from covey.passes import rewrite

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


class Apply(torch.nn.Module):  # type: ignore[misc, name-defined]
    """A function of a part and of inputs."""

    def __init__(self, function: Callable[..., Any], part: Any = None) -> None:
        super().__init__()
        self.function, self.part = function, part
        self.eval()

    def forward(self, *inputs: Any) -> Any:
        return self.function(self.part, *inputs)


def drawn(*shape: int) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def encoder(nested: bool) -> Any:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    part = torch.nn.TransformerEncoder(layer, 1, enable_nested_tensor=nested)
    return Apply(lambda part, x, mask: part(x, src_key_padding_mask=mask).mean(1), part)


PADDED = torch.arange(5)[None] >= torch.tensor([5, 4, 2])[:, None]


def test_padded_positions_of_nested_tensors_are_refused() -> None:
    with pytest.raises(
        covey.ModelError, match=r"has other results: make nn\.TransformerEncoder with enable_nested_tensor"
    ):
        examine(encoder(True), None, (drawn(3, 5, 8), PADDED))


def test_padded_positions_of_other_tensors() -> None:
    same(encoder(False), drawn(3, 5, 8), PADDED)


SIZES: dict[str, Callable[..., Any]] = {
    "a branch": lambda _, x: x * 2 if x.shape[0] > 3 else x.relu(),
    "a factor": lambda _, x: x * float(int(x.shape[0])),
    "a tensor": lambda _, x: x + torch.full((1,), float(x.shape[0])),
}


@pytest.mark.parametrize("samples", [1, 6])
@pytest.mark.parametrize("case", SIZES)
def test_results_that_depend_on_the_number_of_samples_are_refused(case: str, samples: int) -> None:
    if case == "a branch" and samples == 1:
        pytest.skip("one sample and two go the same way")
    with pytest.raises(covey.CoveyError, match="the number of samples"):
        covey.compile(Apply(SIZES[case]), (drawn(samples, 4),))


@pytest.mark.parametrize("samples", [1, 2])
def test_what_is_written_to_the_first_samples_alone_is_refused(samples: int) -> None:
    rows = torch.arange(samples), torch.ones(samples, dtype=torch.long)
    with pytest.raises(covey.CoveyError, match=f"in a batch of {samples} than in one of {2 * samples}"):
        covey.compile(Apply(lambda _, x: x.view(len(x), 4).index_put(rows, torch.tensor(3.0))), (drawn(samples, 4),))


def test_a_module_that_takes_one_batch_size_alone() -> None:
    same(Apply(lambda part, x: part(x).reshape(6, 2, 2), torch.nn.Linear(5, 4)), drawn(6, 5))


def test_the_random_state_stays() -> None:
    torch.manual_seed(5)
    due = torch.rand(3)
    torch.manual_seed(5)
    examine(Apply(lambda _, x: x.relu()), None, (torch.ones(2, 3),))
    assert torch.equal(torch.rand(3), due)


HALVES = torch.full((4,), 0.5)

DRAWS: dict[str, Callable[..., Any]] = {
    "randn": lambda _, x: x + torch.randn(4),
    "rand of the samples": lambda _, x: x + torch.rand(x.shape[0], 4),
    "bernoulli": lambda _, x: x * torch.empty(4).bernoulli_(0.5),
    "randperm": lambda _, x: x[:, torch.randperm(4)] + 1,
    "dropout of constants": lambda _, x: x * torch.nn.functional.dropout(HALVES, training=True),
    "gumbel": lambda _, x: torch.nn.functional.gumbel_softmax(x),
}


@pytest.mark.parametrize("case", DRAWS)
def test_random_numbers_are_no_constants(case: str) -> None:
    state = torch.get_rng_state()
    _, errors = examine(Apply(DRAWS[case]), None, (drawn(3, 4),))
    assert "it is random" in errors[0].reason
    assert torch.equal(torch.get_rng_state(), state)


def test_what_may_draw_numbers_and_does_not() -> None:
    part = torch.nn.Dropout().eval()
    same(Apply(lambda part, x: x * part(HALVES), part), drawn(3, 4))


def test_numbers_that_numpy_draws_are_refused() -> None:
    with pytest.raises(covey.ModelError, match="has other results each time that it runs"):
        examine(Apply(lambda _, x: x + float(np.random.rand())), None, (drawn(3, 4),))


def test_a_module_that_changes_its_inputs() -> None:
    x = drawn(3, 4)
    before = x.clone()
    assert examine(Apply(lambda _, x: x.mul_(2).relu()), None, (x,))[1] == []
    assert torch.equal(x, before)


def test_a_program_that_changes_its_inputs() -> None:
    program = torch.export.export(Apply(lambda _, x: x.mul_(2).relu()), (drawn(3, 4),))
    array = drawn(3, 4).numpy()
    (got,) = runner(program)[1]([array])
    np.testing.assert_array_equal(array, drawn(3, 4).numpy())
    np.testing.assert_allclose(got, 2 * array.clip(0), rtol=1e-6)


@pytest.mark.parametrize("nested", [False, True])
def test_compiled_modules_build_no_kernels(nested: bool) -> None:
    built = []

    def build(graph: Any, _: Any) -> Any:
        built.append(graph)
        return graph

    inner = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()).eval()
    compiled = torch.compile(inner, backend=build)
    module = Apply(lambda part, x: part(x) * 2, compiled) if nested else compiled
    graph, errors = examine(module, None, (drawn(3, 4),))
    assert errors == built == []
    assert nested or (graph.name == "Sequential" and list(graph.parameters) == ["0.weight", "0.bias"])
    x = drawn(3, 4)
    (got,) = reference.outputs(graph, {graph.inputs[0]: x.double().numpy()})
    with torch.no_grad():
        np.testing.assert_allclose(got, inner(x).numpy() * (2 if nested else 1), atol=1e-6)


def test_no_graph_is_printed_where_an_export_fails(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(covey.ModelError, match=r"torch\.export cannot export Apply"):
        examine(Apply(lambda _, x: x * 2 if x.sum() > 0 else x), None, (drawn(3, 4),))
    assert capsys.readouterr() == ("", "")


def test_autocast_within_a_module() -> None:
    def cast(part: Any, x: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return part(x).float() * torch.ones(4, dtype=torch.bfloat16).exp()

    same(Apply(cast, torch.nn.Linear(5, 4)), drawn(6, 5), tolerance=0.02)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_modules_of_double_precision(kind: Any) -> None:
    module = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3), torch.nn.ReLU()).double().eval()
    x = drawn(2, 2, 5, 5)
    graph, errors = examine(module, None, (x.to(kind),))
    assert not errors
    (got,) = reference.outputs(graph, {graph.inputs[0]: x.numpy()})
    np.testing.assert_allclose(got, module(x.double()).detach().numpy(), atol=1e-9)


def same(module: Any, *inputs: Any, tolerance: float = 1e-4) -> None:
    graph, errors = examine(module, None, inputs)
    assert not errors
    rewrite(graph)
    (got,) = reference.outputs(graph, {name: x.numpy() for name, x in zip(graph.inputs, inputs, strict=True)})
    with torch.no_grad():
        np.testing.assert_allclose(got, module(*inputs).numpy(), atol=tolerance)
