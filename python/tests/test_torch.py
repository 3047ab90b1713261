"""PyTorch programs: every operator against PyTorch itself, names, refusals, data."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import covey
import interpreter
from command import Command
from covey import reference
from covey.importers.torch_export import examine
from covey.passes import rewrite

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn, functional = torch.nn, torch.nn.functional


class Apply(nn.Module):
    """A module that applies a function."""

    def __init__(self, function: Any, **parts: Any) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            if isinstance(part, torch.Tensor):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)

    def forward(self, *inputs: Any) -> Any:
        return self.function(self, *inputs)


def agrees(module: Any, *inputs: Any, atol: float = 1e-5) -> covey.ir.Graph:
    """The module's graph, after checking that it computes in floating point what the module does."""
    module = module if isinstance(module, torch.fx.GraphModule) else module.eval()
    graph, errors = examine(module, example_inputs=inputs)
    errors = [*errors, *rewrite(graph)]
    assert errors == []
    with torch.no_grad():
        due = module(*inputs)
    due = list(due) if isinstance(due, tuple | list) else [due]
    data = {name: tensor.double().numpy() for name, tensor in zip(graph.inputs, inputs, strict=True)}
    for got, expected in zip(reference.outputs(graph, data), due, strict=True):
        assert got.shape == tuple(expected.shape)
        np.testing.assert_allclose(got, expected.double().numpy(), atol=atol)
    return graph


def image(*shape: int) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


IMAGE = (2, 4, 9, 8)
VECTOR = (3, 12)
K = torch.linspace(-1, 1, 4)[:, None, None]
STACK = torch.linspace(-1, 1, 4 * 8 * 9).reshape(4, 8, 9)
TABLE = torch.linspace(-1, 1, 216).reshape(9, 3, 8)

FUNCTIONS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "relu": (lambda m, x: functional.relu(x), IMAGE),
    "relu in place": (lambda m, x: functional.relu_(x * 1.0), IMAGE),
    "relu6": (lambda m, x: functional.relu6(4 * x), IMAGE),
    "hardtanh": (lambda m, x: functional.hardtanh(x, -0.5, 0.25), IMAGE),
    "clamp": (lambda m, x: torch.clamp(x, -0.5, 0.5), IMAGE),
    "clamp from below": (lambda m, x: torch.clamp(x, min=-0.5), IMAGE),
    "clamp from above": (lambda m, x: torch.clamp_max(x, 0.5), IMAGE),
    "add": (lambda m, x: x + torch.relu(x), IMAGE),
    "add in place": (lambda m, x: torch.relu(x).add_(x), IMAGE),
    "add alpha": (lambda m, x: torch.add(torch.relu(x), x, alpha=2.5), IMAGE),
    "add number": (lambda m, x: x + 1, IMAGE),
    "add truth value": (lambda m, x: x + (x > 0) + ((x > 0.5) + 1), IMAGE),
    "truth values added": (lambda m, x: torch.where((x > 0.5) + (x < -0.5), x, 0.0), IMAGE),
    "truth values chosen": (lambda m, x: torch.where(x > 0, x > 1, x < -1) * x, IMAGE),
    "truth values chosen from constant ones": (lambda m, x: torch.where(x > 0, K > 0, x < -1) * x, IMAGE),
    "truth values or none": (
        lambda m, x: (torch.where(x > 0, x < 1, False) | (x < 0).masked_fill(x < -1, False)) * x,
        IMAGE,
    ),
    "a truth value or a number": (lambda m, x: torch.where(x > 0, x < 1, x), IMAGE),
    "truth values added to constant ones": (lambda m, x: torch.where((x > 0.5) + (K > 0), x, 0.0), IMAGE),
    "sub": (lambda m, x: torch.relu(x) - x, IMAGE),
    "rsub": (lambda m, x: 1.5 - x, IMAGE),
    "neg": (lambda m, x: -x, IMAGE),
    "mul": (lambda m, x: x * torch.relu(x), IMAGE),
    "mul number": (lambda m, x: 0.5 * x, IMAGE),
    "div": (lambda m, x: x / 3, IMAGE),
    "square": (lambda m, x: x**2, IMAGE),
    "buffer": (lambda m, x: x * K.to(x) - K.to(x), IMAGE),
    "matmul": (lambda m, x: torch.matmul(x, x.transpose(2, 3)), IMAGE),
    "matmul by a stack": (
        lambda m, x: torch.matmul(x, STACK.to(x)) + torch.matmul(STACK.to(x), x).sum((2, 3), keepdim=True),
        IMAGE,
    ),
    "bmm": (lambda m, x: torch.bmm(x.flatten(2), x.flatten(2).permute(0, 2, 1)), IMAGE),
    "topk": (lambda m, x: torch.topk(x, 3, dim=1)[0], IMAGE),
    "sort": (lambda m, x: torch.sort(x, dim=2, descending=True), IMAGE),
    "argmin": (lambda m, x: torch.argmin(x, dim=1), VECTOR),
    "cumsum": (lambda m, x: torch.cumsum(x, 1), IMAGE),
    "triangles": (lambda m, x: torch.triu(x, 1) + torch.tril(x, -2), IMAGE),
    "norm": (lambda m, x: torch.linalg.vector_norm(x, dim=(1, 3)), IMAGE),
    "norm of order 1": (lambda m, x: functional.normalize(x, 1, dim=1), IMAGE),
    "logsumexp": (lambda m, x: torch.logsumexp(x, 1, keepdim=True), IMAGE),
    "einsum": (lambda m, x: torch.einsum("nchw,cw->nhc", x, torch.linspace(-1, 1, 32).reshape(4, 8)), IMAGE),
    "max_pool2d": (lambda m, x: functional.max_pool2d(x, 3, 2, 1, ceil_mode=True), IMAGE),
    "max_pool2d dilated": (lambda m, x: functional.max_pool2d(x, 2, 1, dilation=2), IMAGE),
    "max_pool2d with indices": (lambda m, x: functional.max_pool2d(x, 2, return_indices=True)[0], IMAGE),
    "avg_pool2d": (lambda m, x: functional.avg_pool2d(x, (3, 2), 2, (1, 0)), IMAGE),
    "avg_pool2d without padding": (
        lambda m, x: functional.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
        IMAGE,
    ),
    "adaptive to one": (lambda m, x: functional.adaptive_avg_pool2d(x, 1), IMAGE),
    "adaptive": (lambda m, x: functional.adaptive_avg_pool2d(x, (3, 4)), IMAGE),
    "adaptive to the same": (lambda m, x: functional.adaptive_avg_pool2d(torch.relu(x), (9, 8)), IMAGE),
    "adaptive maximum": (lambda m, x: functional.adaptive_max_pool2d(x, (3, 2)), IMAGE),
    "adaptive, unevenly": (lambda m, x: functional.adaptive_avg_pool2d(x, (5, 3)), IMAGE),
    "adaptive, larger": (lambda m, x: functional.adaptive_avg_pool2d(x, (7, 11)), IMAGE),
    "adaptive maximum, unevenly": (lambda m, x: functional.adaptive_max_pool2d(x, (4, 8)), IMAGE),
    "adaptive, one dimension": (lambda m, x: functional.adaptive_avg_pool1d(x[:, :, 0], 5), IMAGE),
    "mean": (lambda m, x: x.mean((2, 3)), IMAGE),
    "mean keeping dims": (lambda m, x: x.mean([-1, -2], keepdim=True), IMAGE),
    "flatten": (lambda m, x: torch.flatten(x, 1), IMAGE),
    "flatten within": (lambda m, x: x.flatten(1, 2), IMAGE),
    "unflatten": (lambda m, x: x.unflatten(1, (3, 4)), VECTOR),
    "view": (lambda m, x: x.view(x.size(0), -1), IMAGE),
    "reshape": (lambda m, x: x.reshape(-1, 4, 72), IMAGE),
    "reshape by shape": (lambda m, x: x.reshape(x.shape[0], x.shape[1] * x.shape[2], x.shape[3]), IMAGE),
    "squeeze": (lambda m, x: x.unsqueeze(1).squeeze(1) + x.unsqueeze(-1).squeeze(), VECTOR),
    "permute": (lambda m, x: x.permute(0, 3, 1, 2), IMAGE),
    "transpose": (lambda m, x: x.transpose(-1, 1).contiguous(), IMAGE),
    "cat": (lambda m, x: torch.cat([x, torch.relu(x), -x], 1), IMAGE),
    "stack": (lambda m, x: torch.stack([x, torch.relu(x)], dim=1), VECTOR),
    "pad": (lambda m, x: functional.pad(x, (1, 2, 0, 3), value=0.5), IMAGE),
    "pad by mirroring": (lambda m, x: functional.pad(x, (1, 2, 0, 3), mode="reflect"), IMAGE),
    "pad by repeating": (lambda m, x: functional.pad(x, (1, 2, 0, 3), mode="replicate"), IMAGE),
    "pad that crops": (lambda m, x: functional.pad(x, (-1, 2, 0, -3)), IMAGE),
    "softmax": (lambda m, x: torch.softmax(2 * x, -1), VECTOR),
    "softmax inside": (lambda m, x: torch.softmax(x, -1) * 2, VECTOR),
    "log softmax": (lambda m, x: functional.log_softmax(x, 1), IMAGE),
    "argmax": (lambda m, x: x.argmax(1), VECTOR),
    "dropout": (lambda m, x: torch.relu(functional.dropout(x, 0.5, training=m.training)), VECTOR),
    "to": (lambda m, x: torch.relu(x.to(torch.float32)), VECTOR),
    "leaky_relu": (lambda m, x: functional.leaky_relu(x, 0.2), IMAGE),
    "abs": (lambda m, x: x.abs(), IMAGE),
    "hardsigmoid": (lambda m, x: functional.hardsigmoid(3 * x), IMAGE),
    "hardswish": (lambda m, x: functional.hardswish(3 * x), IMAGE),
    "maximum": (lambda m, x: torch.maximum(x, -x) + torch.minimum(x, 0.5 * x), IMAGE),
    "sum": (lambda m, x: x.sum(1), IMAGE),
    "amax": (lambda m, x: x.amax((2, 3), keepdim=True), IMAGE),
    "amin": (lambda m, x: x.amin(-1), IMAGE),
    "slice": (lambda m, x: x[:, 1:3, ::2, -4:], IMAGE),
    "select": (lambda m, x: x[:, -1] + x[:, 0], IMAGE),
    "split": (lambda m, x: (lambda a, b: a - b)(*x.split(2, dim=1)), IMAGE),
    "split by sizes": (lambda m, x: torch.cat(x.split([1, 3], dim=1)[::-1], 1), IMAGE),
    "chunk": (lambda m, x: (lambda a, b: a * b)(*x.chunk(2, dim=-1)), IMAGE),
    "index_select": (lambda m, x: x.index_select(1, torch.tensor([2, 0, 0])), IMAGE),
    "repeat": (lambda m, x: x.repeat(1, 2, 1, 3), IMAGE),
    "expand": (lambda m, x: x.unsqueeze(1).expand(-1, 3, -1) * 2, VECTOR),
    "upsample": (lambda m, x: functional.interpolate(x, scale_factor=2), IMAGE),
    "upsample to a size": (lambda m, x: functional.interpolate(x, size=(13, 20)), IMAGE),
    "bilinear": (lambda m, x: functional.interpolate(x, scale_factor=2, mode="bilinear"), IMAGE),
    "bilinear, corners": (
        lambda m, x: functional.interpolate(x, size=(5, 9), mode="bilinear", align_corners=True),
        IMAGE,
    ),
    "bilinear, by a factor with corners": (
        lambda m, x: functional.interpolate(x, scale_factor=1.7, mode="bilinear", align_corners=True),
        IMAGE,
    ),
    "bicubic": (lambda m, x: functional.interpolate(x, size=(13, 6), mode="bicubic"), IMAGE),
    "bilinear, smaller": (lambda m, x: functional.interpolate(x, (4, 3), mode="bilinear", antialias=True), IMAGE),
    "bicubic, smaller": (lambda m, x: functional.interpolate(x, (4, 3), mode="bicubic", antialias=True), IMAGE),
    "linear": (lambda m, x: functional.interpolate(x.flatten(2), scale_factor=2, mode="linear"), IMAGE),
    "trilinear": (lambda m, x: functional.interpolate(x.unsqueeze(1), scale_factor=2, mode="trilinear"), IMAGE),
    "pixel_shuffle": (lambda m, x: functional.pixel_shuffle(x, 2), IMAGE),
    "where": (lambda m, x: torch.where(x > 0.5, x, -2 * x), IMAGE),
    "comparisons": (lambda m, x: torch.where(x <= 0.25, x * 3, x) + torch.where(x >= 0, x, 1 - x), IMAGE),
    "and with a constant": (lambda m, x: torch.where((x > 0.5) & (K > 0), x, -x), IMAGE),
    "or with a constant": (lambda m, x: torch.where((K > 0) | (x > 0.5), x, -x), IMAGE),
    "truth values that differ": (lambda m, x: torch.where((x > 0.5).ne(x > 0), x, -x), IMAGE),
    "masked_fill": (lambda m, x: x.masked_fill(x > 0.5, -1.0) + torch.zeros_like(x).masked_fill(x > 0, 2.0), IMAGE),
    "indexing": (lambda m, x: x[:, torch.tensor([[0, 2], [1, 1]]), 3] + x[:, torch.tensor([3]), :2], IMAGE),
    "indexing of each sample": (lambda m, x: x[torch.arange(len(x))[:, None], torch.tensor([[2, 0]])], IMAGE),
    "roll": (lambda m, x: torch.roll(x, (1, -2), (2, -1)), IMAGE),
    "cumulative sum": (lambda m, x: torch.cumsum(x, -1), IMAGE),
    "max_pool1d": (lambda m, x: functional.max_pool1d(x.flatten(2), 3, 2, 1), IMAGE),
    "avg_pool3d": (lambda m, x: functional.avg_pool3d(x.unsqueeze(1), 2), IMAGE),
    "rows of all samples, largest": (lambda m, x: x.reshape(-1, 8).topk(2, -1)[0].reshape(-1, 4, 9, 2), IMAGE),
    "rows of all samples, places": (
        lambda m, x: torch.eye(8)[x.reshape(-1, 8).topk(2, -1)[1]].reshape(-1, 4, 9, 2, 8) * x[:, :, :, None],
        IMAGE,
    ),
    "rows of all samples, sorted": (lambda m, x: x.reshape(-1, 9, 8).sort(1)[0].reshape(x.shape), IMAGE),
    "rows of all samples, padded": (
        lambda m, x: functional.pad(x.reshape(-1, 9, 8), (1, 2, -1, 3), value=0.5).reshape(-1, 4, 11, 11),
        IMAGE,
    ),
    "rows of all samples, mirrored": (
        lambda m, x: functional.pad(x.reshape(-1, 9, 8), (1, 2), "reflect").reshape(-1, 4, 9, 11),
        IMAGE,
    ),
    "rows of all samples, summed up": (lambda m, x: x.reshape(-1, 9, 8).cumsum(1).reshape(x.shape), IMAGE),
    "rows of all samples, triangles": (lambda m, x: x.reshape(-1, 9, 8).tril(1).reshape(x.shape), IMAGE),
    "rows of all samples, by einsum": (
        lambda m, x: (
            torch.einsum("bwc,wkc,bwc->wbk", x.reshape(-1, 9, 8), TABLE, x.reshape(-1, 9, 8))
            .permute(1, 0, 2)
            .reshape(-1, 4, 9, 3)
        ),
        IMAGE,
    ),
    "samples last": (
        lambda m, x: functional.pad(x.permute(1, 2, 3, 0).cumsum(1), (0, 0, 1, 2)).permute(3, 0, 1, 2),
        (8, 4, 9, 8),
    ),
    "several outputs": (lambda m, x: (x + 1, x - 1), VECTOR),
}

MODULES: dict[str, tuple[Any, tuple[int, ...]]] = {
    "conv": (lambda: nn.Conv2d(4, 6, 3, 2, 1), IMAGE),
    "conv without bias": (lambda: nn.Conv2d(4, 6, (3, 1), bias=False), IMAGE),
    "conv in groups": (lambda: nn.Conv2d(4, 8, 3, groups=2, dilation=2), IMAGE),
    "conv same": (lambda: nn.Conv2d(4, 2, (4, 3), padding="same"), IMAGE),
    "conv valid": (lambda: nn.Conv2d(4, 2, 3, padding="valid"), IMAGE),
    "conv1d": (lambda: nn.Conv1d(9, 5, 3, 2, 1), (2, 9, 8)),
    "conv3d": (lambda: nn.Conv3d(2, 3, 2, padding=1), (2, 2, 4, 5, 6)),
    "conv transposed": (lambda: nn.ConvTranspose2d(4, 3, 3, 2, 1, output_padding=1), IMAGE),
    "conv transposed in groups": (lambda: nn.ConvTranspose1d(4, 6, 2, 2, groups=2), (2, 4, 5)),
    "prelu": (lambda: nn.PReLU(4, init=0.3), IMAGE),
    "prelu of one slope": (lambda: nn.PReLU(), VECTOR),
    "linear": (lambda: nn.Linear(12, 5), VECTOR),
    "linear without bias": (lambda: nn.Linear(12, 5, bias=False), VECTOR),
    "linear on images": (lambda: nn.Linear(8, 5), IMAGE),
    "linear on images without bias": (lambda: nn.Linear(8, 5, bias=False), IMAGE),
    "batch norm": (lambda: nn.BatchNorm2d(4), IMAGE),
    "batch norm of vectors": (lambda: nn.BatchNorm1d(12), VECTOR),
    "batch norm without scale": (lambda: nn.Sequential(nn.Conv2d(4, 3, 1), nn.BatchNorm2d(3, affine=False)), IMAGE),
}


@pytest.mark.parametrize("case", FUNCTIONS)
def test_function(case: str) -> None:
    function, shape = FUNCTIONS[case]
    agrees(Apply(function), image(*shape))


TABLES: dict[str, Any] = {
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "erf": torch.erf,
    "gelu": functional.gelu,
    "gelu by tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "silu": functional.silu,
    "mish": functional.mish,
    "softplus": functional.softplus,
    "softplus of 2": lambda x: functional.softplus(x, beta=2.0),
    "softsign": functional.softsign,
    "logsigmoid": functional.logsigmoid,
    "elu": lambda x: functional.elu(x, 0.7),
    "selu": functional.selu,
    "celu": lambda x: functional.celu(x, 1.5),
    "exp": torch.exp,
    "log": lambda x: torch.log(x + 2.0),
    "sqrt": lambda x: torch.sqrt(x + 2.0),
    "rsqrt": lambda x: torch.rsqrt(x + 2.0),
    "reciprocal": lambda x: 1.0 / (x + 2.0),
    "quotient": lambda x: x / (x + 2.0),
    "power": lambda x: (x + 2.0) ** 1.5,
    "power of a number": lambda x: 0.5**x + 0.9 ** (x > 0).long().cumsum(1),
    "power of numbers": lambda x: torch.linspace(0.5, 2, 12) ** x,
    "sin": lambda x: torch.sin(x) + torch.cos(x),
}


@pytest.mark.parametrize("function", TABLES.values(), ids=TABLES)
def test_tables(function: Any) -> None:
    agrees(Apply(lambda m, x: function(x)), image(*VECTOR), atol=0.02)


@pytest.mark.parametrize("case", MODULES)
def test_module(case: str) -> None:
    torch.manual_seed(1)
    make, shape = MODULES[case]
    module = make()
    for part in module.modules():
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
            part.running_mean.uniform_(-1, 1)
            part.running_var.uniform_(0.5, 2)
    agrees(module, image(*shape))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Any) -> Any:
        out = self.relu(self.norm(self.conv(x)))
        out += x
        return self.relu(out)


def network() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(Block(), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(), nn.Linear(64, 3)).eval()


def test_nodes_bear_module_paths() -> None:
    graph = agrees(network(), image(2, 4, 8, 8))
    assert [(node.name, node.source_op) for node in graph.nodes] == [
        ("0.conv", "aten.conv2d"),
        ("0.relu", "aten.relu"),
        ("0.add", "aten.add.Tensor"),
        ("1", "aten.max_pool2d"),
        ("0.relu.2", "aten.relu"),
        ("2", "aten.view"),
        ("4", "aten.linear"),
    ]
    assert graph.notes["0.norm"].text == "folded into 0.conv"
    assert {"0.conv.weight.folded", "4.weight"} <= graph.parameters.keys()


def test_the_private_program_is_right() -> None:
    module, x = network(), image(6, 4, 8, 8)
    compiled = covey.compile(module, (x,))
    with torch.no_grad():
        due = module(x).numpy()
    np.testing.assert_allclose(interpreter.run(compiled, {"input": x.numpy()})[0], due, atol=0.02)
    assert compiled.report["model"] == "Sequential"
    assert "calibration" in compiled.report["inputs"][0]["range_from"]


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_a_program_of_fixed_batch(batch: int, tmp_path: Path) -> None:
    module, x = network(), image(4, 4, 8, 8)
    program = torch.export.export(module, (x[:1].repeat(batch, 1, 1, 1),))
    torch.export.save(program, tmp_path / "model.pt2")
    graph, errors = examine(tmp_path / "model.pt2")
    assert errors == []
    with torch.no_grad():
        due = module(x).numpy()
    (got,) = reference.outputs(graph, {"input": x.double().numpy()})
    np.testing.assert_allclose(got, due, atol=1e-5)
    assert graph.name == "model"


def test_tied_parameters_are_one() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(6, 6)
            self.second = nn.Linear(6, 6)
            self.second.weight = self.first.weight

        def forward(self, x: Any) -> Any:
            return self.second(torch.relu(self.first(x)))

    graph = agrees(Tied(), image(3, 6))
    assert sorted(graph.parameters) == ["first.bias", "first.weight", "second.bias"]


def test_constants_are_evaluated() -> None:
    def scaled(module: Any, x: Any) -> Any:
        return functional.linear(x, module.weight / module.weight.norm(dim=1, keepdim=True))

    graph = agrees(Apply(scaled, weight=image(5, 12)), image(*VECTOR))
    assert [node.name for node in graph.nodes] == ["linear"]


def test_two_inputs() -> None:
    graph = agrees(Apply(lambda m, a, b: a * b + a), image(2, 5), image(2, 5) + 1)
    assert len(graph.inputs) == 2


def test_half_precision_weights() -> None:
    for dtype in (torch.bfloat16, torch.float16):
        module = nn.Linear(4, 3).eval().to(dtype)
        graph, errors = examine(module, example_inputs=(torch.zeros(2, 4, dtype=dtype),))
        assert errors == []
        (weight,) = (array for name, array in graph.parameters.items() if name == "weight")
        assert np.array_equal(weight, module.weight.detach().double().numpy().T)


REFUSED: dict[str, tuple[Any, tuple[int, ...], str]] = {
    "unknown": (lambda m, x: torch.erfinv(x), VECTOR, "node 'erfinv' (aten.erfinv): Covey has no secure form"),
    "division": (lambda m, x: x / torch.relu(x), VECTOR, "Reciprocal needs numbers above 0"),
    "adaptive": (lambda m, x: functional.adaptive_avg_pool2d(x, (4, 2)), (4, 2, 35, 3), "the map [35, 3] too unevenly"),
    "indices": (lambda m, x: functional.max_pool2d(x, 2, return_indices=True)[1], IMAGE, "result 1 is asked for"),
    "batch": (lambda m, x: x.permute(1, 0), VECTOR, "it moves the batch"),
    "statistics": (lambda m, x: functional.batch_norm(x, None, None, training=True), VECTOR, "statistics"),
    "training": (lambda m, x: functional.dropout(x, 0.5, training=True), VECTOR, "call eval()"),
    "argument": (lambda m, x: torch.cdist(x[:, None], x[:, None], p=3.0), VECTOR, "its norm is of order 3"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusal(case: str) -> None:
    function, shape, saying = REFUSED[case]
    with pytest.raises(covey.CoveyError) as error:
        covey.compile(Apply(function).eval(), (image(*shape),))
    assert saying in str(error.value)
    assert "\n" not in str(error.value)


def test_refusals_name_the_line() -> None:
    with pytest.raises(
        covey.UnsupportedError, match=r"\(test_torch\.py line \d+: return self\.function\(self, \*inputs\)\)"
    ):
        covey.compile(Apply(REFUSED["unknown"][0]).eval(), (image(*VECTOR),))


def test_check_goes_on_behind_an_unsupported_node() -> None:
    module = Apply(lambda m, x: torch.relu(m.fc(torch.erfinv(x))), fc=nn.Linear(12, 3)).eval()
    checked = covey.check(module, (image(*VECTOR),))
    assert [(note.node, note.status.value) for note in checked.notes] == [
        ("erfinv", "unsupported"),
        ("fc", "ok"),
        ("relu", "ok"),
    ]


def test_check_finds_what_hides_behind_an_unsupported_node() -> None:
    class Module(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            second, _ = torch.mode(torch.relu(x), keepdim=True)
            return torch.relu(torch.logcumsumexp(second, 1))

    checked = covey.check(Module().eval(), torch.zeros(2, 4))
    assert {note.node: note.status.value for note in checked.notes} == {
        "relu": "ok",
        "mode": "unsupported",
        "logcumsumexp": "unsupported",
        "relu.2": "not checked",
    }
    assert [cause.op for cause in checked.causes] == ["aten.mode", "aten.logcumsumexp"]


def test_what_cannot_follow_a_moved_batch_names_the_move() -> None:
    class Module(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.relu(x.transpose(0, 1)).repeat(1, 1, 2).mean(0)

    checked = covey.check(Module().eval(), torch.zeros(2, 4, 3))
    assert [error.node for error in checked.errors] == ["repeat"]
    assert "where node 'transpose' has moved the batch" in checked.errors[0].reason


def test_training_mode_is_refused() -> None:
    module = network()
    module[0].norm.train()
    with pytest.raises(covey.ModelError, match=r"'0.norm' is in training mode: call eval\(\)"):
        covey.compile(module, (image(2, 4, 8, 8),))


def test_a_module_needs_example_inputs() -> None:
    whole = np.zeros((2, 4, 8, 8), dtype=np.int64)
    for options in ({"input_range": (0, 1)}, {"calibration": whole}, {"calibration": {}}):
        with pytest.raises(covey.ModelError, match=r"needs example inputs to be exported: give example_inputs, \[N"):
            covey.compile(network(), **options)
    with pytest.raises(covey.ModelError, match="example input 0 is a str"):
        covey.compile(network(), ("x",))


def test_calibration_data_of_floats_are_examples() -> None:
    module, samples = network(), image(20, 4, 8, 8)
    name = next(iter(inspect.signature(module.forward).parameters))
    due = covey.compile(module, (samples[:16],), calibration=samples).program_bytes
    for given in (samples, samples.double().numpy(), (samples,), {name: samples.numpy()}):
        assert covey.compile(module, calibration=given).program_bytes == due


def test_without_torch(monkeypatch: pytest.MonkeyPatch, command: Command, tmp_path: Path) -> None:
    torch.export.save(torch.export.export(network(), (image(2, 4, 8, 8),)), tmp_path / "model.pt2")
    monkeypatch.setitem(sys.modules, "torch", None)
    command.refuses("check", tmp_path / "model.pt2", saying="pip install 'covey[torch]'")


def test_bad_files(command: Command, tmp_path: Path) -> None:
    (tmp_path / "bad.pt2").write_bytes(b"PK\3\4 and then nothing")
    command.refuses("check", tmp_path / "bad.pt2", saying="is not a readable PyTorch export")
    command.refuses("check", tmp_path / "none.pt2", saying="does not exist")


def test_files_with_operators_of_other_packages(command: Command, tmp_path: Path) -> None:
    class Twice(nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return torch.ops.covey_tests.twice(x)

    with torch.library._scoped_library("covey_tests", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: 2 * x, "CompositeExplicitAutograd")
        torch.library.register_fake("covey_tests::twice", torch.empty_like, lib=library)
        torch.export.save(torch.export.export(Twice(), (image(2, 3),)), tmp_path / "twice.pt2")
    saying = "has the operator covey_tests.twice of a package that is not imported: write the model with PyTorch's own"
    command.refuses("check", tmp_path / "twice.pt2", saying=saying)


def test_commands_take_pt2(command: Command, tmp_path: Path) -> None:
    module, x = network(), torch.rand(4, 4, 8, 8)
    torch.export.save(torch.export.export(module, (x[:3],)), tmp_path / "model.pt2")
    np.save(tmp_path / "x.npy", x.numpy())
    assert "0.conv" in command.succeeds("check", tmp_path / "model.pt2").out
    command.succeeds("compile", tmp_path / "model.pt2", "--input-range", "0,1")
    out = command.succeeds(
        *("verify", tmp_path / "model.covey", "--protocol", "clear", "--model", tmp_path / "model.pt2"),
        *("--data", tmp_path / "x.npy"),
    ).out
    assert "PyTorch" in out
    command.succeeds("explain", tmp_path / "model.pt2", "--input-range", "0,1")


class Pairs(torch.utils.data.Dataset):
    """Images and labels."""

    def __init__(self, images: Any) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Any:
        return self.images[index], index


def test_data_of_pytorch() -> None:
    module, x = network(), image(7, 4, 8, 8)
    due = covey.compile(module, (x[:2],), calibration=x.numpy()).program_bytes
    loader = torch.utils.data.DataLoader(Pairs(x), batch_size=3)
    named = [{"input": sample} for sample in x]
    for data in (x, {"input": x}, Pairs(x), loader, torch.utils.data.DataLoader(named, batch_size=2)):
        assert covey.compile(module, (x[:2],), calibration=data).program_bytes == due
    for data, saying in (
        (Pairs(x[:0]), "has no samples"),
        (torch.utils.data.DataLoader([{"other": x[0]}]), "lack the input 'input'"),
        (torch.utils.data.StackDataset(x[:, :2]), "has shape"),
    ):
        with pytest.raises(covey.DataError, match=saying):
            covey.compile(module, (x[:2],), calibration=data)


def test_tensors_are_inputs() -> None:
    module, x = network(), image(3, 4, 8, 8)
    compiled = covey.compile(module, (x,))
    with covey.local("clear") as parties:
        results = [parties.run(compiled, data).integers["4"] for data in (x, x.numpy(), Pairs(x))]
    assert np.array_equal(results[0], results[1])
    assert np.array_equal(results[0], results[2])


def _split_and_join(self: Any, x: Any) -> Any:
    first, second, third = torch.split(x, 5, dim=2)
    return torch.cat([second * 2.0, first, third, *torch.chunk(x, 2, dim=-1)], dim=2)


MORE: list[tuple[str, Any, tuple[int, ...]]] = [
    ("leaky_relu", nn.LeakyReLU(0.2), IMAGE),
    ("prelu", nn.PReLU(4), IMAGE),
    ("prelu of one", nn.PReLU(), IMAGE),
    ("abs", Apply(lambda self, x: x.abs()), VECTOR),
    ("sigmoid", nn.Sigmoid(), VECTOR),
    ("tanh", nn.Tanh(), VECTOR),
    ("silu", nn.SiLU(), VECTOR),
    ("hardsigmoid", nn.Hardsigmoid(), VECTOR),
    ("hardswish", nn.Hardswish(), VECTOR),
    ("maximum", Apply(lambda self, x: torch.maximum(x, -x) + torch.min(x, x * 2.0)), VECTOR),
    ("where", Apply(lambda self, x: torch.where(x > 0.25, x, -x)), VECTOR),
    ("comparisons", Apply(lambda self, x: torch.where((x >= 0.5) | ~(x < -0.5) & (x <= 0.1), x, 2.0 * x)), VECTOR),
    ("slice", Apply(lambda self, x: x[:, 1:, ::2, 3] * 1.5), IMAGE),
    ("split", Apply(_split_and_join), (2, 3, 12)),
    ("index_select", Apply(lambda self, x: x.index_select(1, self.at), at=torch.tensor([2, 0, 2])), IMAGE),
    ("repeat", Apply(lambda self, x: x.repeat(1, 2, 1, 1) + 1.0), IMAGE),
    ("expand", Apply(lambda self, x: x[:, :1].expand(-1, 3, -1, -1) + 1.0), IMAGE),
    ("upsample", nn.Upsample(scale_factor=2), IMAGE),
    ("upsample to a size", nn.Upsample(size=(13, 10)), IMAGE),
    ("pixel_shuffle", nn.PixelShuffle(2), IMAGE),
    ("sum", Apply(lambda self, x: x.sum(dim=(1, 3))), IMAGE),
    ("amax", Apply(lambda self, x: x.amax(dim=2, keepdim=True) - x.amin(dim=2, keepdim=True)), IMAGE),
    ("conv_transpose1d", nn.ConvTranspose1d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2), (2, 4, 9)),
    ("conv_transpose2d", nn.ConvTranspose2d(4, 3, (3, 2), stride=(2, 3), dilation=(2, 1), bias=False), IMAGE),
    ("conv_transpose3d", nn.ConvTranspose3d(4, 2, 2, stride=2), (2, 4, 3, 4, 2)),
]


@pytest.mark.parametrize(("module", "shape"), [case[1:] for case in MORE], ids=[case[0] for case in MORE])
def test_operators_that_came_later(module: Any, shape: tuple[int, ...]) -> None:
    agrees(module, image(*shape))


def test_exported_modules_are_in_no_mode() -> None:
    """Their eval() is an error; a module around them has a mode."""
    x = image(2, 4, 8, 8)
    module = torch.export.export(network(), (x,), dynamic_shapes=({0: torch.export.Dim("n")},)).module()
    assert module.training
    agrees(module, x)
    with pytest.raises(covey.ModelError, match=r"'the model' is in training mode: call eval\(\)"):
        covey.compile(nn.Sequential(module), x)
    traced = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(12, 3), nn.Dropout()))
    with pytest.raises(covey.ModelError, match=r"'0' is in training mode: call eval\(\)"):
        covey.compile(traced, image(*VECTOR))


STORED: dict[str, Any] = {
    "quantised": (
        lambda w: w,
        lambda x, stored: x @ torch.quantize_per_tensor(stored, 0.1, 0, torch.qint8).dequantize(),
    ),
    "sparse": (lambda w: w.relu().to_sparse(), lambda x, stored: x @ stored),
    "sparse, in front": (lambda w: w.T.relu().to_sparse(), lambda x, stored: torch.sparse.mm(stored, x.T).T),
}


@pytest.mark.filterwarnings("ignore:.*quantized tensor creation:UserWarning")
@pytest.mark.parametrize("case", STORED)
def test_constants_that_do_not_store_their_numbers(case: str) -> None:
    store, use = STORED[case]

    class Constants(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weight", store(torch.randn(12, 3, generator=torch.Generator().manual_seed(2))))

        def forward(self, x: Any) -> Any:
            return use(x, self.weight)

    agrees(Constants(), image(4, 12))


HEADS, LEFT = torch.linspace(-1, 1, 3 * 4 * 5).reshape(3, 4, 5), torch.linspace(-1, 1, 2 * 12).reshape(2, 12)
BESIDE: dict[str, tuple[Any, tuple[int, ...]]] = {
    "a matrix for each head": (
        lambda x: torch.bmm(x.reshape(-1, 3, 4).permute(1, 0, 2), HEADS).permute(1, 0, 2).reshape(-1, 6, 15),
        (2, 6, 12),
    ),
    "a matrix and a bias for each head": (
        lambda x: (
            torch.baddbmm(HEADS[:, :1], x.reshape(-1, 3, 4).permute(1, 0, 2), HEADS).permute(1, 0, 2).reshape(-1, 6, 15)
        ),
        (2, 6, 12),
    ),
    "a matrix for each head of one token": (
        lambda x: torch.bmm(x.reshape(-1, 3, 4).permute(1, 0, 2), HEADS).permute(1, 0, 2),
        (2, 12),
    ),
    "tokens behind the batch": (
        lambda x: (x.permute(1, 2, 0, 3).reshape(3, -1, 4) @ HEADS).reshape(3, 6, -1, 5).permute(2, 0, 1, 3),
        (2, 3, 6, 4),
    ),
    "in front of columns": (lambda x: (LEFT @ x.T).T, (2, 12)),
    "in front of columns of tokens": (lambda x: (LEFT @ x.reshape(-1, 12).T).T.reshape(-1, 6, 2), (2, 6, 12)),
    "a stack in front of columns": (
        lambda x: (HEADS.mT @ x.reshape(-1, 3, 4).permute(1, 2, 0)).permute(2, 0, 1).reshape(-1, 6, 15),
        (2, 6, 12),
    ),
}


@pytest.mark.parametrize("case", BESIDE)
def test_products_with_constants_whose_rows_are_the_batch(case: str) -> None:
    function, shape = BESIDE[case]
    agrees(Apply(lambda self, x: function(x)), image(*shape))
    agrees(Apply(lambda self, x: function(x)), image(1, *shape[1:]))


KEEP = torch.tensor([True, False, True, True] * 3)
JOINED: dict[str, Any] = {
    "joined": lambda x: torch.where(torch.cat([x[:, :5] > 0, x[:, 5:] < 0], 1), x, -x),
    "stacked": lambda x: torch.stack([x > 0, x < -1], 1).any(1).float(),
    "joined to a constant": lambda x: torch.where(
        torch.cat([x[:, :8] > 0, KEEP[None, :4].expand(len(x), 4)], 1), x, -x
    ),
    "joined to numbers": lambda x: torch.cat([x > 0, x, KEEP[None].expand(len(x), 12)], 1),
    "joined to whole numbers": lambda x: torch.cat([x > 0, (x > 1).long() + 2], 1) * 1.5,
    "picked": lambda x: x[:, KEEP],
    "picked of two dimensions": lambda x: x.reshape(-1, 3, 4)[:, KEEP.reshape(3, 4)],
    "picked of the second": lambda x: x.reshape(-1, 3, 4)[:, :, KEEP[:4]],
}


@pytest.mark.parametrize("case", JOINED)
def test_truth_values_that_are_joined_or_pick(case: str) -> None:
    module, x = Apply(lambda self, x: JOINED[case](x)), image(3, 12)
    agrees(module, x)
    compiled = covey.compile(module.eval(), (x,))
    (got,) = interpreter.run(compiled, {compiled.graph.inputs[0]: x.numpy()})
    np.testing.assert_allclose(got, module(x).numpy(), atol=2e-3)
