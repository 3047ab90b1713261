"""PyTorch programs that compute with the number of samples, or repeat something for each: as the module, or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import covey
from covey import reference
from covey.importers.torch_export import examine
from covey.importers.torch_programs import load
from covey.passes import rewrite

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


class Apply(torch.nn.Module):  # type: ignore[misc, name-defined]
    """A function of inputs, and of constants w: [2, 5], masks [2, 3, 3], indices [2, 3, 4] and truth values [5]."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.function = function
        self.register_buffer("w", torch.randn(2, 5, generator=generator))
        self.register_buffer("scores", torch.randn(2, 3, 3, generator=generator))
        self.register_buffer("index", torch.randint(0, 5, (2, 3, 4), generator=generator))
        self.register_buffer("truths", torch.tensor([True, False, True, True, False]))
        self.register_buffer("factor", torch.tensor(1.5))
        self.register_buffer("x", torch.randn(5, generator=generator))  # called like an input
        self.eval()

    def forward(self, x: Any) -> Any:
        return self.function(self, x)


def windows(x: Any) -> Any:
    """[B, 2, 3, 5] with the batch and windows merged."""
    return x.reshape(-1, 3, 5)


def larger(x: Any) -> Any:
    """Which elements are not about the least: some of a row never are."""
    return x > x.amin(-1, keepdim=True) + 0.4


def masked(m: Any, x: Any) -> Any:
    return torch.softmax((x @ m.scores[0]).masked_fill(larger(x), -1e9), -1)


SAME: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "queries that are normalised for each sample": (
        lambda m, x: torch.nn.functional.layer_norm(m.w.expand(x.shape[0], -1, -1), (5,)) @ x.transpose(1, 2),
        (3, 5),
    ),
    "queries of a layer and heads for each sample": (
        lambda m, x: (torch.nn.functional.linear(m.w.expand(x.shape[0], -1, -1), m.scores.view(-1)[:15].view(3, 5)))
        .view(x.shape[0], 2, 3, 1)
        .permute(0, 2, 1, 3)
        @ x.view(-1, 3, 1, 5),
        (3, 5),
    ),
    "rows of each sample by its number": (
        lambda m, x: x * m.truths.expand(x.shape[0], 5)[torch.arange(x.shape[0])[:, None], torch.arange(5)][:, None],
        (3, 5),
    ),
    "a first row for each window": (
        lambda m, x: torch.cat((m.w[:1, None].expand(windows(x).shape[0], -1, -1), windows(x)), 1).view(-1, 2, 4, 5),
        (2, 3, 5),
    ),
    "positions for each sample behind the rows": (
        lambda m, x: torch.einsum(
            "ibnd,jbnd->bnij", x.permute(1, 0, 2)[..., None], m.w[:, None].expand(-1, x.shape[0], -1)[..., None]
        ),
        (3, 5),
    ),
    "a mask for each window": (
        lambda m, x: (
            windows(x) @ windows(x).transpose(1, 2)
            + m.scores.unsqueeze(0).expand(x.shape[0], 2, 3, 3).reshape(-1, 3, 3)
        ).view(-1, 2, 3, 3),
        (2, 3, 5),
    ),
    "a product for each window": (
        lambda m, x: torch.bmm(windows(x).transpose(1, 2), m.scores.repeat(x.shape[0], 1, 1)).view(-1, 2, 5, 3),
        (2, 3, 5),
    ),
    "indices for each window": (
        lambda m, x: windows(x).gather(2, m.index.repeat(x.shape[0], 1, 1)).view(-1, 2, 3, 4),
        (2, 3, 5),
    ),
    "attention in windows": (
        lambda m, x: torch.nn.functional.scaled_dot_product_attention(
            windows(x).unsqueeze(1), windows(x).unsqueeze(1), windows(x).unsqueeze(1),
            attn_mask=m.scores.repeat(x.shape[0], 1, 1).unsqueeze(1),
        ).view(-1, 2, 3, 5),
        (2, 3, 5),
    ),
    "a product with a constant of each head, repeated behind the heads": (
        lambda m, x: torch.bmm(
            m.scores.transpose(0, 1)[:, None].expand(-1, x.shape[0], -1, -1).flatten(1, 2).transpose(0, 1),
            x.view(-1, 3, 5),
        ).view(x.shape),
        (2, 3, 5),
    ),
    "parts of what is repeated": (
        lambda m, x: x * torch.cat(m.w.expand(x.shape[0], 3, 2, 5).chunk(2, 2)[::-1], -1)[:, :, 0, 5:],
        (3, 5),
    ),
    "a scalar that is expanded to none": (lambda m, x: x + m.factor.expand([]), (5,)),
    "a row for each sample, at the front": (lambda m, x: torch.cat([x, m.w[:1].expand(x.shape[0], 5)], 1), (5,)),
    "a buffer called like the input": (lambda m, x: x * m.x + x, (5,)),
    "parts": (lambda m, x: x.unbind(1)[0] * x.unbind(1)[1], (2, 5)),
    "a part cut to nothing": (lambda m, x: torch.cat([x[:, :, :0], x[:, :, 1:]], 2), (2, 5)),
    "truth values, multiplied": (lambda m, x: ((x > 0) * m.truths).float() + (x > 0) * (x < 1) * x, (5,)),
    "a sum and a product": (
        lambda m, x: torch.baddbmm(m.scores[0], x, x.transpose(1, 2), beta=0.5, alpha=2.0), (3, 5),
    ),
    "a masked Softmax at the end": (lambda m, x: masked(m, x), (3,)),
    "the largest of a masked Softmax": (lambda m, x: masked(m, x).argmax(-1), (3,)),
    "a masked Softmax of two scores": (
        lambda m, x: torch.softmax(x.masked_fill(larger(x), -1e9), -1) @ m.w, (3, 2),
    ),
}  # fmt: skip

REFUSED: dict[str, tuple[Callable[..., Any], tuple[int, ...], str]] = {
    "rows beside a batch that is not outermost": (
        lambda m, x: (
            (x.transpose(0, 1).reshape(-1, 5) + m.w.repeat(x.shape[0], 1)).view(2, -1, 5).transpose(0, 1)
        ),
        (2, 5),
        "its constant differs between the rows",
    ),
    "the number of samples": (lambda m, x: x * x.shape[0], (5,), "is the number of samples"),
    "the number of samples, beside a constant": (lambda m, x: x + m.w[:1] * x.shape[0], (5,), "number of samples"),
    "a share of the samples": (lambda m, x: x * (1 / x.shape[0]), (5,), "computes with the number of samples"),
    "as many copies as samples": (
        lambda m, x: x.unsqueeze(1).expand(x.shape[0], x.shape[0], 5).sum(1), (5,), "as often as there are samples",
    ),
    "as many copies as samples, repeated": (
        lambda m, x: x.unsqueeze(1).repeat(1, x.shape[0], 1).sum(1), (5,), "as often as there are samples",
    ),
}  # fmt: skip


MERGED: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "a convolution of each head": (
        lambda conv, x: conv(images(x)).reshape(x.shape[0], 2, 5, 4, 4), (torch.nn.Conv2d(3, 5, 3, padding=1),),
    ),
    "channels of each head apart, without a bias": (
        lambda conv, x: conv(images(x)).reshape(x.shape[0], 2, 3, 2, 2),
        (torch.nn.Conv2d(3, 3, 3, 2, 1, groups=3, bias=False),),
    ),
    "maxima of each head": (
        lambda pool, x: pool(images(x)).reshape(x.shape[0], 2, 3, 2, 2), (torch.nn.MaxPool2d(2),),
    ),
    "means of each head": (
        lambda pool, x: pool(images(x)).flatten(1).reshape(x.shape[0], 2, 3), (torch.nn.AdaptiveAvgPool2d(1),),
    ),
    "normalised maps": (lambda norm, x: norm(images(x)).reshape(x.shape), (torch.nn.BatchNorm2d(3),)),
    "normalised rows": (
        lambda layer, norm, x: norm(layer(x).flatten(0, 3)).reshape(x.shape[0], 2, 3, 4, 6),
        (torch.nn.Linear(4, 6, bias=False), torch.nn.BatchNorm1d(6)),
    ),
    "windows of a map": (
        lambda conv, x: conv(
            x.flatten(1, 2).reshape(-1, 6, 2, 2, 2, 2).permute(0, 2, 4, 1, 3, 5).reshape(-1, 6, 2, 2)
        ).reshape(x.shape[0], 4, 5, 2, 2),
        (torch.nn.Conv2d(6, 5, 1),),
    ),
}  # fmt: skip


def images(x: Any) -> Any:
    """[B, 2, 3, 4, 4] with the batch and heads merged."""
    return x.reshape(-1, 3, 4, 4)


class Merged(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, function: Callable[..., Any], layers: tuple[Any, ...]) -> None:
        super().__init__()
        self.function, self.layers = function, torch.nn.ModuleList(layers)
        for name, values in [*self.named_parameters(), *self.named_buffers()]:
            if values.is_floating_point():
                low, high = (0.5, 1.5) if "var" in name else (-1.0, 1.0)
                torch.nn.init.uniform_(values, low, high, generator=torch.Generator().manual_seed(0))
        self.eval()

    def forward(self, x: Any) -> Any:
        return self.function(*self.layers, x)


def inputs(shape: tuple[int, ...], samples: int) -> Any:
    return torch.randn(samples, *shape, generator=torch.Generator().manual_seed(samples))


@pytest.mark.parametrize("case", [*SAME, *MERGED])
def test_a_program_is_the_module(case: str) -> None:
    if case in MERGED:
        module, shape = Merged(*MERGED[case]), (2, 3, 4, 4)
    else:
        function, shape = SAME[case]
        module = Apply(function)
    graph, errors = examine(module, example_inputs=(inputs(shape, 2),))
    assert [*errors, *rewrite(graph)] == []
    x = inputs(shape, 3)
    with torch.no_grad():
        due = module(x).numpy()
    (got,) = reference.outputs(graph, {graph.inputs[0]: x.double().numpy()})
    if graph.postprocess:
        got = np.exp(got) / np.exp(got).sum(-1, keepdims=True)
    np.testing.assert_allclose(got.reshape(due.shape), due, atol=1e-5)


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str) -> None:
    function, shape, saying = REFUSED[case]
    with pytest.raises(covey.UnsupportedError, match=saying):
        covey.compile(Apply(function), (inputs(shape, 2),), input_range=(-1, 1))


class Gathering(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Takes one input by its name and others as they come."""

    def forward(self, x: Any, *more: Any, **named: Any) -> Any:
        return torch.relu(x) + sum(more) + sum(named.values())


@pytest.mark.parametrize("named", [False, True])
def test_a_signature_that_gathers_inputs_leaves_the_batch_free(named: bool) -> None:
    x = inputs((5,), 2)
    program, fixed = load(Gathering().eval(), {"x": x, "y": x, "z": x} if named else (x, x, x))
    assert fixed is None
    batches = {str(node.meta["val"].shape[0]) for node in program.graph.nodes if node.op == "placeholder"}
    assert len(batches) == 1 and "2" not in batches


def test_errors_say_that_the_module_fixes_the_batch() -> None:
    module = Apply(lambda m, x: (x.transpose(0, 1).reshape(-1, 5) + m.w.repeat(len(x), 1)).view(2, -1, 5))
    with pytest.raises(covey.UnsupportedError, match=r"exported for 3 samples alone: .* x\.shape\[0\] instead of len"):
        covey.compile(module, (inputs((2, 5), 3),), input_range=(-1, 1))


def test_errors_say_why_pytorch_fixes_the_batch() -> None:
    class Branching(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return x.cumsum(0) if x.shape[0] < 4 else x

    with pytest.raises(covey.UnsupportedError, match=r"exported for 3 samples alone: PyTorch says: .* generated guard"):
        covey.compile(Branching().eval(), (inputs((5,), 3),), input_range=(-1, 1))
