"""Operators of PyTorch that are written as others, by importers or by PyTorch's own rules, against the module.

Those of a group are the outputs of one module, which is exported once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import covey
from covey import reference
from covey.clear import run_clear
from covey.importers.torch_export import examine
from covey.model import load
from covey.passes import rewrite

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

f = torch.nn.functional
Function = Callable[[Any], Any]


def written(start: Any, *assignments: tuple[Any, Any]) -> Any:
    """A copy with parts of it assigned."""
    copy = start.clone()
    for place, value in assignments:
        copy[place] = value
    return copy


def halves(x: Any) -> list[tuple[Any, Any]]:
    return [((..., slice(None, 2)), x[..., :2] + 1), ((..., slice(2, None)), x[..., 2:] * 2)]


def compared(x: Any, y: Any) -> Any:
    """All six comparisons, as one number."""
    kinds = (torch.lt, torch.gt, torch.le, torch.ge, torch.eq, torch.ne)
    return sum(compare(x, y) * 2.0**bit for bit, compare in enumerate(kinds))


def turned(x: Any) -> Any:
    """Points of an image, the same for every sample."""
    turn = torch.tensor([[[0.8, 0.1, 0.2], [0.3, 0.9, 0.0]]]).expand(len(x), -1, -1)
    return f.affine_grid(turn, [len(x), 1, 2, 5], align_corners=False)


ALL = slice(None)

TWICE = torch.tensor([[[2, 0, 2, 1]]])
"""Places of which one is there twice."""

# Of x: [N, 3, 4].
GROUPS: dict[str, dict[str, Function]] = {
    "by PyTorch's rules": {
        "tile": lambda x: x.tile(1, 2, 1),
        "type_as": lambda x: x + torch.linspace(0, 1, 4).type_as(x) * torch.arange(3)[:, None].type_as(x),
        "type_as of truth": lambda x: torch.where(torch.arange(4).type_as(x > 0), x, -x),
        "repeat_interleave": lambda x: x.repeat_interleave(2, 1),
        "threshold": lambda x: f.threshold(x, 0.1, 0.5),
        "glu": lambda x: f.glu(x, -1),
        "pixel_unshuffle": lambda x: f.pixel_unshuffle(x.unsqueeze(1)[..., :2, :2], 2),
        "channel_shuffle": lambda x: f.channel_shuffle(x.transpose(1, 2).unsqueeze(-1), 2),
        "addcmul": lambda x: torch.addcmul(x, x, x, value=0.3),
        "diff": lambda x: x.diff(dim=1),
        "hstack": lambda x: torch.hstack([x, x]),
        "pairwise_distance": lambda x: f.pairwise_distance(x, x * x),
        "aminmax": lambda x: x.aminmax(dim=1)[1],
        "logit": lambda x: torch.logit(x.sigmoid() * 0.9 + 0.05),
        "rot90": lambda x: x.rot90(1, (1, 2)),
        "sinc": torch.sinc,
    },
    "reductions": {
        "any": lambda x: (x > 0.5).any(1).float(),
        "all": lambda x: (x > -1.5).all(2, keepdim=True) * x,
        "any of two": lambda x: (x > 1.4).any((1, 2))[:, None].float(),
        "count": lambda x: (x > 0).sum(1).float(),
        "max": lambda x: x.max(1)[0],
        "places of maxima": lambda x: x * x.max(1, keepdim=True)[1],
        "bucketize": lambda x: torch.bucketize(x, torch.linspace(-1, 1, 5)).float(),
        "searchsorted": lambda x: torch.searchsorted(torch.arange(-2.0, 3), x.round(), side="right").float(),
        "sub of a constant times alpha": lambda x: (
            torch.sub(x, torch.linspace(0, 1, 4), alpha=3) + x.add(2.0, alpha=-2)
        ),
        "bilinear": lambda x: f.bilinear(x, x * x, torch.arange(32.0).reshape(2, 4, 4) / 32, torch.tensor([0.5, -1])),
        "einsum with dots": lambda x: torch.einsum("...i,ij->...j", x, torch.arange(8.0).reshape(4, 2) / 8),
        "whole parts": lambda x: (2 * x).int() + (x * 3).long() % 2,
        "clipped whole parts as places": lambda x: torch.arange(6.0)[(x * 2).long().clamp(0, 5)],
        "min": lambda x: x.min(-1, keepdim=True).values,
        "cummax": lambda x: x.cummax(1)[0],
        "cummin": lambda x: x.cummin(2).values,
        "cumprod": lambda x: x.cumprod(-1),
        "einsum of three": lambda x: torch.einsum("bij,bik,jk->bi", x, x, torch.arange(16.0).reshape(4, 4) / 16),
        "median and its place": lambda x: sum(x.median(2)),
        "median of six": lambda x: x.flatten(1)[:, :6].nanmedian(1)[1][:, None] * 1.0,
        "kthvalue": lambda x: x.kthvalue(2, 2, keepdim=True)[0] + x.kthvalue(3)[1][..., None],
        **{
            f"quantile, {how}": lambda x, how=how: x.flatten(1).quantile(0.32, 1, interpolation=how)[:, None]
            for how in ("linear", "lower", "higher", "nearest", "midpoint")
        },
        "quantiles": lambda x: x.quantile(torch.tensor([0.9, 1.0]), 2, keepdim=True).permute(1, 2, 3, 0),
        "a high quantile": lambda x: x.flatten(1).nanquantile(0.95, -1, keepdim=True),
        "median": lambda x: x.median(2)[0],
        "median that stays": lambda x: x.median(1, keepdim=True).values * x,
        "prod": lambda x: x.prod(1),
        "var": lambda x: x.var(-1),
        "var, biased": lambda x: x.var((1, 2), unbiased=False)[:, None],
        "std": lambda x: x.std(1, keepdim=True),
        "var_mean": lambda x: sum(torch.var_mean(x, -1, correction=0)),
        "std_mean": lambda x: torch.std_mean(x, 1)[0],
        "a norm by var": lambda x: (x - x.mean(-1, True)) / (x.var(-1, keepdim=True, unbiased=False) + 1e-3).sqrt(),
        "a norm by std": lambda x: (x - x.mean(-1, True)) / (x.std(-1, keepdim=True) + 1e-2),
        "cosine": lambda x: f.cosine_similarity(x, x + 1, dim=1),
        "greatest and least size": lambda x: x.norm(float("inf"), 1) + torch.linalg.vector_norm(x, -float("inf"), -2),
        "what is not 0": lambda x: x.relu().norm(p=0, dim=1),
        "greatest gaps": lambda x: torch.cdist(x, torch.arange(8.0).reshape(2, 4), p=float("inf")),
        "by running statistics": lambda x: f.instance_norm(
            x, torch.arange(3.0), torch.arange(3.0) + 1, torch.arange(3.0) - 1, torch.ones(3), use_input_stats=False
        ),
        "by these alone": lambda x: f.instance_norm(x, torch.ones(3), torch.ones(3) / 2, use_input_stats=False),
        "distances": lambda x: torch.cdist(x, torch.arange(8.0).reshape(2, 4)),
    },
    "element by element": {
        "expm1": torch.expm1,
        "log1p": lambda x: torch.log1p(x.abs()),
        "exp2": torch.exp2,
        "log2": lambda x: torch.log2(x.abs() + 1),
        "log10": lambda x: torch.log10(x.abs() + 1),
        "erfc": torch.erfc,
        "rsub": lambda x: torch.rsub(x, 1, alpha=2),
        "lerp": lambda x: torch.lerp(x, x.abs(), 0.25),
        "lerp by x": lambda x: torch.lerp(x, x * x, x.sigmoid()),
        "clamp": lambda x: torch.clamp(x, x * 0 - 0.3, torch.full((4,), 0.5)),
        "clamp from below": lambda x: torch.clamp(x, min=torch.arange(4.0) / 4),
        "nan_to_num": lambda x: torch.nan_to_num(x + 1),
        "logaddexp": lambda x: torch.logaddexp(x, x * 0.5),
        "rrelu": lambda x: f.rrelu(x, 0.1, 0.5),
        "softplus up to a threshold": lambda x: f.softplus(x, 2.5, 1),
        "softplus up to another": lambda x: f.softplus(x, threshold=0.5),
        "fmax": lambda x: torch.fmax(x, -x) + torch.fmin(x, 2 * x),
        "heaviside": lambda x: torch.heaviside(x.round(), torch.tensor(0.25)),
        "hypot": lambda x: torch.hypot(x, x * x) + torch.hypot(torch.arange(4.0), x),
        "xlogy": lambda x: torch.xlogy(x, x.abs() + 1) + torch.special.xlogy(2, x * x + 1),
        "xlogy of constants": lambda x: torch.xlogy(x, torch.tensor([2, 3, 1, 0.5])) + torch.xlogy(x, torch.tensor(4)),
        "one power in a tensor": lambda x: x ** torch.full((4,), 3.0),
    },
    "truth values": {
        "numbers are finite": lambda x: (
            torch.where(x.isnan() | x.isinf() | ~x.isfinite(), 0.0, x) * x.isfinite().float()
        ),
        "none is infinite": lambda x: x.masked_fill(torch.isneginf(x) | torch.isposinf(x), 1.0) * 2,
        "of truth values": lambda x: (x > 0).float().bool() * x,
        "the opposite": lambda x: (1 - (x > 0).int()).bool() * x,
        "of numbers": lambda x: (2 * x).int().bool() * x,
        "counted": lambda x: (x > 0).count_nonzero(dim=1).float(),
        "equal to 0, to 1 and to each other": lambda x: (((x > 0) == 0) ^ ((x < 1).eq(1)) ^ ((x > 0) == (x > 1))) * x,
        "in order, with each other": lambda x: compared(x > 0, x > 1),
        "in order, with constants": lambda x: compared(x > 0, torch.tensor([0, 1, 1, 0])),
        "in order, constants first": lambda x: compared(torch.tensor([False, True, True, False]), x > 0),
        "in order, with a constant of more elements": lambda x: compared(x[..., :1] > 0, torch.tensor([0.0, 1, 1, 0])),
        "in order, with a number": lambda x: compared(x > 0, 1) + compared(x > 0, 0.5),
        "in order, with numbers": lambda x: compared(x > 0, x.round()) + compared(x.argmax(1, True), x > 0),
        "exclusive or with a constant": lambda x: ((x > 0) ^ torch.tensor([True, False, True, False])) * x,
        "with one truth value": lambda x: (((x > 0) ^ True) | ((x > 1) & True)) * x + ((x < 1) | False).int(),
        "as numbers": lambda x: (~((x > 0) & 1) * 2 + (1 ^ (x > 1))) * x,
        "any that is not 0": lambda x: (x.relu().any(1) | (x.relu() - x).all(1)) * x[:, 0],
        "any number but 0": lambda x: torch.logical_or(x.relu(), x < -1) * torch.logical_not((-x).relu()) * x,
        "any place but 0": lambda x: torch.logical_and(x.argmax(1), torch.arange(4)) * x[:, 0],
        "of a choice": lambda x: torch.where(x > 0, 0.0, -3e38).bool() * x,
        "the least": lambda x: torch.max(x * x, torch.tensor(torch.finfo(torch.float32).min)),
    },
    "points": {
        "grid_sample": lambda x: f.grid_sample(x[:, None], turned(x), mode="bilinear", padding_mode="border"),
    },
    "moves": {
        "flip": lambda x: x.flip(1, -1),
        "diagonal": lambda x: torch.diagonal(x, 0, 1, 2),
        "diagonal aside": lambda x: torch.diagonal(x, 1, -1, 1),
        "unfold": lambda x: x.unfold(1, 2, 1).unfold(2, 3, 1),
        "im2col": lambda x: f.unfold(torch.stack([x, -x], 1), (2, 3), 1, 1, 2),
        "im2col, apart": lambda x: f.unfold(x.unsqueeze(1), 2, dilation=2),
        "reflected and cropped": lambda x: f.pad(x, (-1, 2), "reflect"),
        "repeated and cropped": lambda x: f.pad(x, (1, -2), "replicate"),
        "from the other end and cropped": lambda x: f.pad(x, (-2, 2), "circular"),
        "split into nothing": lambda x: x.split([0, 3], 1)[1] * 2,
        "a divisor": lambda x: f.avg_pool2d(x.unsqueeze(1), 2, divisor_override=3),
    },
    "assignments": {
        "a slice": lambda x: written(torch.zeros_like(x), ((ALL, slice(1, None)), x[:, :2])),
        "every other": lambda x: written(
            torch.zeros_like(x), ((..., slice(0, None, 2)), x[..., :2]), ((..., slice(1, None, 2)), x[..., 2:])
        ),
        "halves of what holds anything": lambda x: written(torch.empty_like(x), *halves(x)),
        "halves of a new one": lambda x: written(x.new_empty(len(x), 3, 4), *halves(x)),
        "halves of one of this size": lambda x: written(torch.empty(len(x), 3, 4), *halves(x)),
        "a row": lambda x: written(x, ((ALL, 1), x[:, 0])),
        "the last row, a number": lambda x: written(x, ((ALL, -1), 1.0)),
        "rows by number": lambda x: written(x, ((ALL, [0, 2]), x[:, 1:])),
        "elements by number": lambda x: written(x, ((ALL, [0, 2], [1, 3]), 7.0)),
        "a mask of x": lambda x: written(x, (x < 0, 0.0)),
        "a constant mask": lambda x: written(x, ((ALL, torch.eye(3, 4) > 0), 0.5)),
        "scatter": lambda x: x.scatter(1, torch.zeros(1, 1, 4, dtype=torch.long).expand(len(x), 1, 4), x[:, :1] * 2),
        "fill": lambda x: x.clone().fill_(2.0) + x,
        "index_fill": lambda x: x.index_fill(1, torch.tensor([0, 2]), 1.25),
        "to zeros": lambda x: written(torch.zeros(len(x), 3, 5), ((ALL, slice(1, None), [0, 2]), x[:, :2, :2])),
        "to ones": lambda x: written(torch.ones(len(x), 3), ((ALL, [2, 0]), x[:, :2, 1])),
    },
    "reduced at places": {
        f"{how}, with what was there: {include}": lambda x, how=how, include=include: x.scatter_reduce(
            2, TWICE.expand(len(x), 3, 4), x * x - 1, how, include_self=include
        )
        for how in ("sum", "prod", "mean", "amax", "amin")
        for include in (True, False)
    },
    "reduced otherwise": {
        "products": lambda x: x.scatter(2, TWICE.expand(len(x), 3, 4), 1.5, reduce="multiply"),
        "into zeros": lambda x: torch.zeros(len(x), 3, 5).scatter_reduce(
            2, TWICE.expand(len(x), 3, 4), x, "amax", include_self=False
        ),
        "beside ones": lambda x: torch.ones(len(x), 3, 4).scatter_reduce(2, TWICE.expand(len(x), 3, 4), x, "amin"),
        "of constants": lambda x: x.scatter_reduce(
            2, TWICE.expand(len(x), 3, 4), torch.arange(-6.0, 6).reshape(3, 4).expand(len(x), 3, 4), "mean"
        ),
        "index_reduce": lambda x: x.index_reduce(1, torch.tensor([2, 0, 2]), x + 1, "amax"),
        "index_reduce alone": lambda x: x.index_reduce(1, torch.tensor([2, 2, 2]), x, "mean", include_self=False),
    },
    "sums": {
        "scatter_add": lambda x: x.scatter_add(2, TWICE.expand(len(x), 3, 4), x * x),
        "scatter_add to zeros": lambda x: torch.zeros_like(x).scatter_add(2, TWICE[..., 1:].expand(len(x), 2, 3), x),
        "scatter of sums": lambda x: x.scatter(2, TWICE.expand(len(x), 3, 4), x * x, reduce="add"),
        "scatter of a number's sums": lambda x: x.scatter(2, TWICE.expand(len(x), 3, 4), 0.5, reduce="add"),
        "scatter_reduce": lambda x: x.scatter_reduce(2, TWICE.expand(len(x), 3, 4), x * x, "sum"),
        "index_add": lambda x: torch.zeros(len(x), 2, 4).index_add(1, torch.tensor([1, 0, 1]), x, alpha=0.5),
        "index_add of constants": lambda x: x.index_add(1, torch.tensor([1, 1]), torch.ones(len(x), 2, 4)),
        "index_put": lambda x: torch.zeros(len(x), 3).index_put(
            (torch.arange(len(x))[:, None].expand(-1, 4), TWICE[0].expand(len(x), 4)), x[:, 0], accumulate=True
        ),
        "fold": lambda x: f.fold(x.reshape(-1, 4, 3).repeat(1, 1, 2), (4, 3), 2, stride=(1, 1)),
        "fold, apart": lambda x: f.fold(x.reshape(-1, 4, 3).repeat(1, 1, 4), (4, 6), 2, 2, 1, (2, 1)),
    },
}


class Outputs(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, functions: list[Function]) -> None:
        super().__init__()
        self.functions = functions
        self.eval()

    def forward(self, x: Any) -> Any:
        return tuple(function(x) for function in self.functions)


def example(samples: int) -> Any:
    return torch.rand(samples, 3, 4, generator=torch.Generator().manual_seed(samples)) * 4 - 2


@pytest.fixture
def unwritten_is_nan() -> Iterator[None]:
    """PyTorch fills memory that it does not write to with NaN."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("unwritten_is_nan")
@pytest.mark.parametrize("group", GROUPS)
def test_they_are_what_the_module_computes(group: str) -> None:
    module, x = Outputs(list(GROUPS[group].values())), example(3)
    graph, errors = examine(module, example_inputs=(example(2),))
    assert [*errors, *rewrite(graph)] == []
    results = reference.outputs(graph, {graph.inputs[0]: x.double().numpy()})
    for name, got, due in zip(GROUPS[group], results, module(x), strict=True):
        np.testing.assert_allclose(got, due.numpy(), atol=2e-4, err_msg=name)


REFUSED: dict[str, tuple[Function, str]] = {
    "samples written": (lambda x: torch.slice_scatter(x, x[:1], 0, 0, 1), "samples|the batch"),
    "samples flipped": (lambda x: x.flip(0), "runs over the batch"),
    "over the batch": (lambda x: x.var(0), "runs over the batch"),
    "the angle of the origin": (lambda x: torch.atan2(x, x), "put a Clip before it|give calibration data"),
    "a logarithm of 0": (lambda x: torch.xlogy(x, torch.arange(4.0)), "numbers that have no logarithm"),
    "bits of numbers": (lambda x: ((x > 0) & torch.tensor([2, 1, 2, 1])) * x, "holds numbers other than 0 and 1"),
    "written twice": (lambda x: written(x, ((ALL, [1, 1]), 0.5)), "writes an element twice"),
    "powers of elements": (lambda x: x.abs() ** torch.arange(4.0), r"powers that differ \(0, 1, 2, 3\).*torch.cat"),
    "secret powers": (lambda x: x.abs() ** x, "its base and its exponent depend on the input"),
    "powers of 0": (lambda x: 0.0**x, "its base holds numbers that have no logarithm"),
    "powers of what is below 0": (lambda x: torch.tensor([-2.0, 1, 2, 3]) ** x, "numbers that have no logarithm"),
    "filled with infinity": (lambda x: x.masked_fill(x > 0, torch.inf).amin(1), "use a finite number such as 1e4"),
    "a random slope": (lambda x: f.rrelu(x, training=True), "its slope is random in training"),
    "places of maxima so far": (lambda x: x.cummax(1)[1] * 1.0, "its result 1 is asked for"),
    "a quantile over the batch": (lambda x: x.quantile(0.5), "it runs over the batch too"),
    "cropped and taken": (lambda x: f.pad(x, (-2, 3), "reflect"), "its pads crop what they pad with"),
    "no rule that leads anywhere": (lambda x: torch.lgamma(x), "aten.lgamma.: Covey has no secure form"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str) -> None:
    function, saying = REFUSED[case]
    with pytest.raises(covey.CoveyError, match=saying):
        covey.compile(Outputs([function]), (example(2),), input_range=(-1, 1))


def test_statistics_that_training_changes() -> None:
    module = torch.nn.InstanceNorm1d(3, track_running_stats=True).eval()
    _, (error,) = examine(module, example_inputs=(example(2),), trained=())
    assert "those of each sample while it is trained" in str(error)


def test_what_only_assertions_read() -> None:
    """As XLM has them of its lengths."""

    class Asserting(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            torch._check((x > 0).sum(1).max().item() <= 100)  # pytest rewrites assert statements
            return x * 2

    graph, errors = examine(Asserting().eval(), example_inputs=(example(2),))
    assert errors == []
    assert [node.source_op for node in graph.nodes] == ["aten.mul.Tensor"]


def test_angles() -> None:
    """Of points all around, on the axes and the diagonals, at distances from 1/8 to 32."""
    turns = torch.arange(64) / 64 * 2 * math.pi
    points = torch.stack([torch.cos(turns), torch.sin(turns)], 1) * 2.0 ** (torch.arange(64) % 9 - 3)[:, None]
    points = (points * 256).round() / 256 + 0.0  # -0 is below 0 for PyTorch
    program = covey.compile(Outputs([lambda x: torch.atan2(x[:, 1:], x[:, :1])]), (points,), calibration=points.numpy())
    (y,) = run_clear(load(program), points.numpy()).outputs.values()
    due = np.arctan2(*points.double().numpy().T[::-1, :, None])
    assert np.abs(np.asarray(y) - due).max() * 2 ** program.report["scale"] < 4


def test_exponentials_of_numbers_below_all_rings() -> None:
    """As RWKV has them of the state before its first token."""
    start = torch.tensor([-1e38, 0.5, -1e38, 0.0])
    functions = [
        lambda x: torch.exp(start - x) * 0.5,
        lambda x: torch.exp(x - start.neg()) * 0.5,
        lambda x: torch.exp(torch.full((4,), -1e38) - torch.max(x, torch.full((4,), -1e38))) + x,
    ]
    module, x = Outputs(functions), example(3)
    program = covey.compile(module, (x,), calibration=x.numpy())
    for got, due in zip(run_clear(load(program), x.numpy()).outputs.values(), module(x), strict=True):
        np.testing.assert_allclose(np.asarray(got), due.numpy(), atol=0.01)
