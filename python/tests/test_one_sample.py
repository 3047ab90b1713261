"""Models exported with one sample, whose batch is a size of 1 among others: the same programs as from two samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import builders
import covey
from covey import reference
from covey.importers import onnx as onnx_importer
from covey.importers.torch_export import examine
from covey.passes import rewrite

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn, functional = torch.nn, torch.nn.functional

from test_batch_moves import node  # noqa: E402
from test_torch import Apply, image  # noqa: E402
from test_torch_transformers import VISION, encoder, padding  # noqa: E402

TOKENS = (5, 12)
IMAGE = (3, 32, 32)


class Heads(nn.Module):
    """A token in front, a norm, and heads split as libraries split them."""

    def __init__(self, split: Any, *, scores: bool = False) -> None:
        super().__init__()
        self.split, self.scores = split, scores
        self.token = nn.Parameter(torch.zeros(1, 1, 12))
        self.norm, self.into, self.out = (
            nn.LayerNorm(12),
            nn.ModuleList(nn.Linear(12, 12) for _ in "qkv"),
            nn.Linear(12, 12),
        )

    def forward(self, x: Any) -> Any:
        batch = x.shape[0]
        x = torch.cat([self.token.expand(batch, -1, -1), x], 1)
        q, k, v = (self.split(part(self.norm(x)), batch) for part in self.into)
        if self.scores:
            mixed = torch.softmax(q @ k.transpose(-1, -2) / 2, -1) @ v
            mixed = mixed.transpose(0, 1).reshape(-1, batch, 12).transpose(0, 1)
        else:
            mixed = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, -1, 12)
        x = x + self.out(mixed)
        return x[:, 0], x.mean(1)


def attention(how: Any, **options: Any) -> Any:
    return Apply(how, part=nn.MultiheadAttention(12, 3, **{"batch_first": True, **options}))


def recurrent(kind: Any, how: Any, **options: Any) -> Any:
    return Apply(how, part=kind(12, 6, **{"batch_first": True, **options}))


CASES: dict[str, tuple[Any, tuple[int, ...]]] = {
    "encoder": (encoder, TOKENS),
    "encoder of one token": (encoder, (1, 12)),
    "causal encoder": (
        lambda: Apply(
            lambda m, x: m.part(x, nn.Transformer.generate_square_subsequent_mask(5), is_causal=True), part=encoder()
        ),
        TOKENS,
    ),
    "decoder": (
        lambda: Apply(lambda m, x: m.part(x, x[:, :3]), part=nn.TransformerDecoderLayer(12, 3, 20, batch_first=True)),
        TOKENS,
    ),
    "attention": (lambda: attention(lambda m, x: m.part(x, x, x, need_weights=False)[0]), TOKENS),
    "attention and its weights": (lambda: attention(lambda m, x: m.part(x, x, x)), TOKENS),
    "attention of one token": (lambda: attention(lambda m, x: m.part(x, x, x, need_weights=False)[0]), (1, 12)),
    "attention to other tokens": (lambda: attention(lambda m, x: m.part(x, x[:, :3], x[:, :3])[0]), TOKENS),
    "attention that is turned within": (
        lambda: attention(
            lambda m, x: m.part(*[x.transpose(0, 1)] * 3, need_weights=False)[0].transpose(0, 1), batch_first=False
        ),
        TOKENS,
    ),
    "heads by sizes of 1": (lambda: Heads(lambda x, n: x.view(n, -1, 3, 4).transpose(1, 2)), TOKENS),
    "heads in the batch": (
        lambda: Heads(lambda x, n: x.transpose(0, 1).contiguous().view(-1, 3 * n, 4).transpose(0, 1), scores=True),
        TOKENS,
    ),
    "rows of other sizes of 1": (
        lambda: Apply(lambda m, x: (2 * x.transpose(0, 1).reshape(5, len(x), 1, 12)).permute(1, 2, 0, 3).flatten(1)),
        TOKENS,
    ),
    "lstm": (lambda: recurrent(nn.LSTM, lambda m, x: m.part(x)[0][:, -1]), TOKENS),
    "lstm of both directions": (
        lambda: recurrent(nn.LSTM, lambda m, x: m.part(x)[1][0][-1], num_layers=2, bidirectional=True),
        TOKENS,
    ),
    "gru with its steps first": (
        lambda: recurrent(nn.GRU, lambda m, x: m.part(x.transpose(0, 1))[0][-1], batch_first=False),
        TOKENS,
    ),
}


def shown(graph: covey.ir.Graph) -> list[Any]:
    """A graph but for its names: PyTorch numbers nodes, of which it writes others for one sample."""
    number = {name: place for place, name in enumerate([*graph.inputs, *(each.output for each in graph.nodes)])}
    return [
        (str(each.op), [number.get(name, graph.values[name].shape) for name in each.inputs]) for each in graph.nodes
    ]


def imported(module: Any, *inputs: Any) -> covey.ir.Graph:
    graph, errors = examine(torch.export.export(module, inputs), "model")
    assert [*errors, *rewrite(graph)] == []
    assert not [each.output for each in graph.nodes if "otherwise" in each.output]
    return graph


def same_program(module: Any, *shapes: Any) -> None:
    """That one sample and two give the same graph, which computes for each sample what PyTorch does for it alone."""
    torch.manual_seed(1)
    for part in module.eval().parameters():
        nn.init.normal_(part, std=0.3)
    inputs = [shape if isinstance(shape, torch.Tensor) else image(3, *shape) for shape in shapes]
    one, two = (imported(module, *(each[:count] for each in inputs)) for count in (1, 2))
    assert shown(one) == shown(two)
    results = []
    with torch.no_grad():
        for sample in range(3):
            result = module(*(each[sample : sample + 1] for each in inputs))
            results.append(result if isinstance(result, tuple) else (result,))
    data = {name: each.double().numpy() for name, each in zip(one.inputs, inputs, strict=True)}
    for got, expected in zip(reference.outputs(one, data), zip(*results, strict=True), strict=True):
        np.testing.assert_allclose(got, torch.cat(expected).numpy(), atol=1e-4)


@pytest.mark.parametrize("case", CASES)
def test_module(case: str) -> None:
    make, shape = CASES[case]
    same_program(make(), shape)


def test_a_padded_encoder() -> None:
    module = Apply(lambda m, x, none: m.part(x, src_key_padding_mask=none), part=encoder())
    same_program(module, TOKENS, padding(3, 5))


@pytest.mark.parametrize("case", VISION)
def test_networks_of_torchvision(case: str) -> None:
    torchvision = pytest.importorskip("torchvision", reason="torchvision is not installed")
    same_program(VISION[case](torchvision.models), IMAGE)


def test_a_file_is_private(tmp_path: Path) -> None:
    """As most users write it: exported with one sample, compiled from the file, and verified with several."""
    torch.manual_seed(1)
    path, x = str(tmp_path / "encoder.pt2"), image(3, *TOKENS).numpy()
    torch.export.save(torch.export.export(encoder().eval(), (torch.from_numpy(x[:1]),)), path)
    compiled = covey.compile(path, calibration=x, max_error=0.01)
    verdict = covey.verify(compiled, "trio", data=x, samples=3)
    assert verdict.passed, verdict.failure


REFUSED: dict[str, tuple[Any, tuple[int, ...], str]] = {
    "attention across samples": (
        lambda: attention(lambda m, x: m.part(x, x, x, need_weights=False)[0], batch_first=False),
        TOKENS,
        "make modules of attention with batch_first=True, or export the model with two samples or a dynamic batch: one "
        "sample does not show where its batch is",
    ),
    "an output elsewhere": (
        lambda: Apply(lambda m, x: 2 * x.transpose(0, 1).reshape(5, 3, 4)),
        TOKENS,
        "export the model with two samples or a dynamic batch: one sample does not show where its batch is",
    ),
    "a mean over samples": (lambda: Apply(lambda m, x: x - x.mean(0)), TOKENS, "it runs over the batch"),
    "a batch that PyTorch drops": (
        lambda: Apply(lambda m, x: torch.softmax(x.squeeze(), 1)),
        TOKENS,
        "[N, 5, 12] has the shape [5, 12] in PyTorch, for the 1 it was exported with",
    ),
    "a sample that becomes three": (
        lambda: Apply(lambda m, x: x + torch.zeros(3, 1, 1)),
        TOKENS,
        "of shape [3, 1, 1] differs between samples of a batch",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str) -> None:
    make, shape, message = REFUSED[case]
    program = torch.export.export(make().eval(), (image(1, *shape),))
    with pytest.raises(covey.UnsupportedError) as caught:
        covey.compile(program, input_range=(-1, 1))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


# ONNX


@pytest.mark.parametrize("samples", [1, 2])
def test_onnx_heads(samples: int) -> None:
    """Heads that share a dimension with the batch, between steps that come first."""
    nodes = [
        node("Transpose", "x", to="t", perm=[1, 0, 2]),
        node("Reshape", "t", "heads", to="h"),
        node("Transpose", "h", to="q", perm=[1, 0, 2]),
        node("Transpose", "h", to="k", perm=[1, 2, 0]),
        node("MatMul", "q", "k", to="scores"),
        node("Softmax", "scores", to="s", axis=-1),
        node("MatMul", "s", "q", to="m"),
        node("Transpose", "m", to="b", perm=[1, 0, 2]),
        node("Reshape", "b", "rows", to="r"),
        node("MatMul", "r", "w", to="l"),
        node("Reshape", "l", "steps", to="a"),
        node("Transpose", "a", to="y", perm=[1, 0, 2]),
    ]
    weight = np.random.default_rng(1).normal(size=(4, 3))
    constants = {
        "heads": np.array([5, 2 * samples, 2]),
        "rows": np.array([5 * samples, 4]),
        "steps": np.array([5, samples, 3]),
        "w": weight,
    }
    proto = builders.model(nodes, {"x": [samples, 5, 4]}, ["y"], constants)
    graph = onnx_importer.import_model(proto)
    assert rewrite(graph) == []
    x = np.random.default_rng(2).normal(size=(3, 5, 4))
    heads = x.reshape(3, 5, 2, 2).swapaxes(1, 2)
    weights = np.exp(heads @ heads.swapaxes(2, 3))
    mixed = (weights / weights.sum(-1, keepdims=True) @ heads).swapaxes(1, 2).reshape(3, 5, 4)
    (got,) = reference.outputs(graph, {"x": x})
    np.testing.assert_allclose(got, mixed @ weight, atol=1e-5)


def test_onnx_rows_that_would_repeat_the_sample() -> None:
    proto = builders.model([node("Add", "x", "k", to="y")], {"x": [1, 1, 4]}, ["y"], {"k": np.zeros((3, 1, 4))})
    with pytest.raises(covey.UnsupportedError, match="differs between samples of a batch"):
        covey.compile(proto, input_range=(-1, 1))
