"""Operators with few multiplications: what they compute, what they cost, and models rewritten to use them."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import covey
import interpreter
from covey import models
from covey.bench.gallery import products
from covey.clear import run_clear
from covey.comparison import compare
from covey.emit import HEADER_BYTES
from covey.errors import OptionError
from covey.model import load
from covey.parties import Parties

torch = pytest.importorskip("torch", reason="needs PyTorch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from covey import nn as operators  # noqa: E402
from covey._proto import program_pb2 as pb  # noqa: E402
from covey.nn import counting  # noqa: E402
from covey.nn.bottlenecks import find  # noqa: E402

DIGITS = Path(covey.__file__).parent / "data" / "digits"


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    """The same weights in every run, and one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


def image(*shape: int) -> Any:
    return torch.from_numpy(np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32))


def count(module: Any, x: Any) -> int:
    return sum(counting.multiplications(module, [x]).values())


class Bottleneck(nn.Module):
    """A residual bottleneck as users write it, with parts in another order than they run."""

    def __init__(self, channels: int, between: int) -> None:
        super().__init__()
        self.expand = nn.Conv2d(between, channels, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(each) for each in (between, between, channels))
        self.filter = nn.Conv2d(between, between, 3, padding=1, bias=False)
        self.reduce = nn.Conv2d(channels, between, 1, bias=False)

    def forward(self, x: Any) -> Any:
        y = functional.relu(self.norms[0](self.reduce(x)))
        y = functional.relu(self.norms[1](self.filter(input=y)))
        return functional.relu(x + self.norms[2](self.expand(y)))


def small() -> Any:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), Bottleneck(16, 16), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10),
    ).eval()  # fmt: skip


@pytest.mark.parametrize("stride", [1, 2])
def test_modules_are_the_compositions_that_they_say(stride: int) -> None:
    x = image(2, 6, 9, 7)

    def depthwise(conv: Any, x: Any) -> Any:
        return functional.conv2d(x, conv.weight, conv.bias, stride, 1, groups=len(conv.weight))

    def shuffled(shuffle: Any, x: Any) -> Any:
        assert sorted(shuffle.order.tolist()) == list(range(x.shape[1]))
        return torch.stack([x[:, place, ::stride, ::stride] for place in shuffle.order], dim=1)

    def point(conv: Any, x: Any) -> Any:
        halves = zip(x.chunk(conv.groups, dim=1), conv.weight[..., 0, 0].chunk(conv.groups), strict=True)
        return torch.cat([torch.einsum("nchw,oc->nohw", part, weight) for part, weight in halves], dim=1)

    def parallel(module: Any, x: Any) -> Any:
        return depthwise(module.depthwise, x) + shuffled(module.shuffle, x)

    def half(module: Any, x: Any) -> Any:
        return torch.cat([depthwise(module.depthwise, x[:, :3]), shuffled(module.shuffle, x[:, 3:])], dim=1)

    factorised = operators.FactorisedConv2d(6, 8, stride=stride)
    torch.testing.assert_close(factorised(x), point(factorised.point, depthwise(factorised.spatial, x)))
    block = operators.ShuffleBlock(6, stride=stride, bias=True)
    torch.testing.assert_close(block(x), half(block, x))
    mixed = operators.ShuffleConv2d(6, 8, stride=stride)
    torch.testing.assert_close(mixed(x), point(mixed.point, half(mixed.spatial, x)))
    single = operators.XConv2d(6, 8, stride=stride)
    assert single.point.groups == 2
    torch.testing.assert_close(single(x), point(single.point, parallel(single.spatial, x)))
    whole = operators.XOperator(6, 4, 10, stride=stride)
    due = point(whole.last, parallel(whole.spatial, point(whole.first, x)))
    torch.testing.assert_close(whole(x), due)
    assert due.shape == (2, 10, math.ceil(9 / stride), math.ceil(7 / stride))


def test_permutations_come_from_the_seed_and_stay_with_the_weights() -> None:
    first, again, other = (operators.ChannelShuffle(32, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first.order, again.order) and not torch.equal(first.order, other.order)
    other.load_state_dict(first.state_dict())
    assert torch.equal(first.order, other.order)


def test_multiplications_are_the_papers() -> None:
    """A bottleneck from 16 by way of 48 to 64 channels, and ResNet50's first one, on the 160 × 160 of its stem."""
    x = image(1, 16, 4, 4)
    bottleneck = nn.Sequential(nn.Conv2d(16, 48, 1), nn.Conv2d(48, 48, 3, padding=1), nn.Conv2d(48, 64, 1))
    assert count(bottleneck, x) == 16 * 24_576
    assert count(operators.rewrite(bottleneck, "shuffle").model, x) == 16 * 4_056
    assert count(operators.rewrite(bottleneck, "x").model, x) == count(operators.XOperator(16, 48, 64), x) == 16 * 2_352
    # The paper measures 7.59 times and 1.5 times fewer bytes. One activation's cost, the same for all, explains both.
    activations = (24_576 - 7.59 * 2_352) / 6.59
    assert (4_056 + activations) / (2_352 + activations) == pytest.approx(1.5, abs=0.01)

    first = nn.Sequential(nn.Conv2d(64, 64, 1), nn.Conv2d(64, 64, 3, padding=1), nn.Conv2d(64, 256, 1))
    x = image(1, 64, 16, 16)
    counts = [count(first, x), *(count(operators.rewrite(first, each).model, x) for each in ("shuffle", "x"))]
    assert [100 * each / 1e9 for each in counts] == pytest.approx([1.46, 0.53, 0.27], abs=0.01)


def test_both_exports_compile_to_the_same_program(parties: Parties, tmp_path: Path) -> None:
    module = nn.Sequential(
        operators.XOperator(4, 6, 8, stride=2), nn.BatchNorm2d(8), nn.ReLU(),
        operators.ShuffleConv2d(8, 6), nn.ReLU(), operators.FactorisedConv2d(6, 4), nn.ReLU(), nn.Flatten(),
        nn.Linear(64, 3),
    ).eval()  # fmt: skip
    x = image(4, 4, 8, 8)
    with warnings.catch_warnings():  # PyTorch deprecates this exporter; the other needs onnxscript
        warnings.simplefilter("ignore")
        names = {"input_names": ["input"], "dynamic_axes": {"input": {0: "batch"}}}
        torch.onnx.export(module, (x[:2],), tmp_path / "module.onnx", dynamo=False, **names)
    graph = onnx.load(tmp_path / "module.onnx").graph
    assert {node.op_type for node in graph.node} <= {
        "Conv", "Gather", "Slice", "Concat", "Add", "Relu", "Flatten", "Gemm", "Constant",
    }  # fmt: skip
    exported = covey.compile(module, (x,), calibration=x)
    imported = covey.compile(tmp_path / "module.onnx", calibration=x)
    kinds = []
    for compiled in (exported, imported):
        with torch.no_grad():
            np.testing.assert_allclose(interpreter.run(compiled, {"input": x.numpy()})[0], module(x).numpy(), atol=0.02)
        content = pb.Program.FromString(compiled.program_bytes[HEADER_BYTES:])
        kinds.append([node.WhichOneof("op") for node in content.nodes])
        assert products(content) == count(module, x)
        explained = covey.explain(compiled)
        moves = {node.name for node in content.nodes if node.WhichOneof("op") in ("gather", "concat")}
        sent = [node.bytes for node in explained.nodes if node.name in moves]
        assert len(sent) >= 3 and sum(sent) == 0 < explained.total.bytes
    assert kinds[0] == kinds[1]
    private, due = parties.run(imported, x.numpy()), run_clear(load(imported), x.numpy())
    assert sum(row.differing for row in compare(due.integers, private.integers)) == 0


TORCHVISION = {
    "resnet18": ("resnet18", ()),
    "resnet50": ("resnet50", ("conv1",)),
    "densenet121": ("densenet121", ("features.conv0",)),
    "mobilenet_v3_large": ("mobilenetv3-large", ("features.0.0",)),
    "shufflenet_v2_x1_0": ("shufflenetv2", ("conv1.0",)),
}


@pytest.fixture(scope="module", params=TORCHVISION)
def vision(request: pytest.FixtureRequest) -> tuple[str, Any]:
    torchvision = pytest.importorskip("torchvision", reason="needs torchvision")
    return request.param, getattr(torchvision.models, request.param)(weights=None).eval()


def test_rewritten_networks_are_the_zoos(vision: tuple[str, Any]) -> None:
    """A rewritten network of torchvision keeps its shapes, and multiplies as often as that form in the zoo."""
    name, model = vision
    known, keep = TORCHVISION[name]
    x = image(1, 3, 64, 64)
    with torch.no_grad():
        due = model(x).shape
    chosen = ("x", "shuffle") if name == "mobilenet_v3_large" else ("x",)
    before = models.multiplications(models.build(known, "imagenet", size=64))
    for operator in chosen:
        rewritten = operators.rewrite(model, operator, example_inputs=x, keep=keep, start="random")
        with torch.no_grad():
            assert rewritten.model(x).shape == due
        assert rewritten.before == before
        zoo = models.build(known, "imagenet", size=64, operator=operator)
        assert rewritten.after == models.multiplications(zoo) < before
        # What did not change costs what it did.
        parts = [(each.before, each.after) for each in rewritten.changes]
        assert rewritten.before - rewritten.after == sum(was - now for was, now in parts)
        assert all(now <= was for was, now in parts)  # a depthwise filter stays one, with a shuffle added
        assert set(rewritten.kept) == set(keep)
        assert rewritten.note is None


def test_a_bottleneck_is_found_by_what_runs() -> None:
    found = find(small())
    assert found.untraced is None
    (bottleneck,) = found.bottlenecks.values()
    assert (bottleneck.first, bottleneck.spatial, bottleneck.last) == ("2.reduce", "2.filter", "2.expand")


def test_the_report_says_what_was_done() -> None:
    model = small()
    rewritten = operators.rewrite(model, "x", example_inputs=image(2, 1, 8, 8))
    assert [(row["module"], row["was"], row["is"]) for row in rewritten.rows()] == [
        ("2.expand", "1×1, 16 → 16", "1×1, 16 → 16 in 2 groups"),
        ("2.filter", "3×3, 16 → 16", "depthwise 3×3 + shuffle"),
        ("2.reduce", "1×1, 16 → 16", "1×1, 16 → 16 in 2 groups"),
        ("4", "3×3, 16 → 32", "depthwise 3×3 + shuffle, 1×1, 16 → 32 in 2 groups"),
    ]
    positions = 64
    assert [row["before"] for row in rewritten.rows()] == [64 * 256, 64 * 9 * 256, 64 * 256, 16 * 9 * 512]
    assert [row["after"] for row in rewritten.rows()] == [
        positions * 128,
        positions * 144,
        positions * 128,
        16 * (144 + 256),
    ]
    text = str(rewritten)
    assert f"{rewritten.before:,}" in text and f"{rewritten.after:,}" in text
    assert "0 was left: it reads one channel: there is nothing to shuffle" in text
    assert [type(each) for each in model] == [type(each) for each in small()]  # the model itself stays
    uncounted = operators.rewrite(model, "x", keep=["2"])
    assert [each.path for each in uncounted.changes] == ["4"]
    assert "counted if example_inputs are given" in str(uncounted)


def test_a_separable_convolution_is_found_again() -> None:
    """A dense convolution that is a factorised one in truth is replaced without any error."""
    truth = operators.FactorisedConv2d(6, 20, bias=True)
    dense = nn.Conv2d(6, 20, 3, padding=1)
    with torch.no_grad():
        dense.weight.copy_(torch.einsum("oc,chw->ochw", truth.point.weight[..., 0, 0], truth.spatial.weight[:, 0]))
        dense.bias.copy_(truth.point.bias)
        x = image(2, 6, 8, 8)
        torch.testing.assert_close(dense(x), truth(x))
        (found,) = operators.rewrite(nn.Sequential(dense), "factorised").model
        torch.testing.assert_close(found(x), truth(x))


@pytest.mark.parametrize("operator", ["factorised", "shuffle", "x"])
def test_a_single_layer_starts_nearer_than_a_random_one(operator: Any) -> None:
    dense = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1))
    x = image(4, 8, 8, 8)
    errors = []
    with torch.no_grad():
        for start in ("trained", "random"):
            (made,) = operators.rewrite(dense, operator, start=start).model
            errors.append(float((made(x) - dense(x)).norm() / dense(x).norm()))
    assert errors[0] < 0.95 * errors[1] and errors[0] < 1


@pytest.fixture(scope="module")
def trained() -> tuple[Any, Any]:
    """A network trained a little on digits, and images that it was not trained on."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    images = torch.from_numpy(np.load(DIGITS / "test-images.npy"))
    labels = torch.from_numpy(np.load(DIGITS / "test-labels.npy"))
    model = small().train()
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for step in range(60):
        batch = torch.arange(32) + 32 * (step % 10)
        loss = functional.cross_entropy(model(images[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval(), images


@pytest.mark.parametrize("operator", ["factorised", "shuffle", "x"])
def test_trained_starts_are_nearer_than_random_ones(trained: tuple[Any, Any], operator: Any) -> None:
    model, images = trained
    held_out = images[320:]
    errors = []
    for options in ({"start": "random"}, {}, {"calibration": images[:64]}):
        torch.manual_seed(1)
        rewritten = operators.rewrite(model, operator, **options).model
        with torch.no_grad():
            errors.append(float((rewritten(held_out) - model(held_out)).norm() / model(held_out).norm()))
    random, near, nearer = errors
    assert nearer < 0.7 < min(near, random)


class Untraceable(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = small()

    def forward(self, x: Any) -> Any:
        return self.layers(x) if x.sum() > 0 else self.layers(-x)


def test_a_model_that_cannot_be_traced_is_rewritten_layer_by_layer() -> None:
    rewritten = operators.rewrite(Untraceable(), "factorised", example_inputs=image(1, 1, 8, 8))
    assert [each.path for each in rewritten.changes] == ["layers.0", "layers.2.filter", "layers.4"]
    assert "1×1, 16 → 16" in rewritten.changes[1].now  # nothing is known to mix its channels behind it
    assert "no bottleneck was looked for" in str(rewritten)


def test_weights_of_half_precision_stay_so() -> None:
    model = operators.rewrite(small().to(torch.bfloat16), "shuffle").model
    assert {each.dtype for each in model.parameters()} == {torch.bfloat16}


def test_a_layer_in_two_places_stays_one() -> None:
    shared = nn.Conv2d(8, 8, 3, padding=1)
    model = operators.rewrite(nn.Sequential(shared, nn.ReLU(), shared), "factorised").model
    assert model[0] is model[2] and isinstance(model[0], operators.FactorisedConv2d)


KEPT = {
    "it has 2 groups already": nn.Conv2d(8, 8, 3, padding=1, groups=2),
    "its padding is reflect, not zeros": nn.Conv2d(8, 8, 3, padding=1, padding_mode="reflect"),
    "its kernel is not centred": nn.Conv2d(8, 8, 3),
    "its padding is not the same on both sides": nn.Conv2d(8, 8, 4, padding="same"),
    "it is a Conv1d": nn.Conv1d(8, 8, 3),
    "no fewer multiplications": nn.Conv2d(8, 1, 3, padding=1),
}


@pytest.mark.parametrize("reason", KEPT)
def test_nothing_to_replace_is_one_line(reason: str) -> None:
    with pytest.raises(OptionError, match=r"Sequential has no convolution that operator 'x' replaces \(0: ") as error:
        operators.rewrite(nn.Sequential(KEPT[reason]), "x")
    assert reason in str(error.value) and "\n" not in str(error.value)


def test_wrong_arguments_are_one_line() -> None:
    model = small()
    for arguments, saying in [
        (("y",), "operator 'y' is unknown: use factorised or shuffle or x"),
        (("x", {"start": "zero"}), "start 'zero' is unknown: use trained or random"),
        (("x", {"keep": ["conv9"]}), "keep names 'conv9'"),
        (("x", {"example_inputs": "images"}), "example_inputs holds a str"),
        (("x", {"example_inputs": image(1, 3, 8, 8)}), "does not take the example inputs"),
        (("x", {"calibration": []}), "calibration is empty"),
        (("x", {"start": "random", "calibration": image(1, 1, 8, 8)}), "leave it out"),
    ]:
        operator, *options = arguments
        with pytest.raises(OptionError, match=saying) as error:
            operators.rewrite(model, operator, **(options[0] if options else {}))
        assert "\n" not in str(error.value)
    with pytest.raises(OptionError, match=r"takes a torch\.nn\.Module, not a str"):
        operators.rewrite("resnet18", "x")
    model.computed = 2 * model[0].weight
    with pytest.raises(OptionError, match="Sequential cannot be copied"):
        operators.rewrite(model, "x")
    with pytest.raises(OptionError, match="two groups do not divide 3 input and 4 output channels"):
        operators.GroupedPointwiseConv2d(3, 4)
    with pytest.raises(OptionError, match="a kernel of 2 × 2 has no centre"):
        operators.ShuffleBlock(4, 2)


def test_covey_needs_no_torch() -> None:
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "import covey, covey.models\n"
        "try:\n    import covey.nn\nexcept ImportError as error:\n    print(error)\n"
    )
    place = {**os.environ, "PYTHONPATH": str(Path(covey.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=place)
    assert done.stdout == "covey.nn needs PyTorch, which is not installed: pip install 'covey[torch]'\n", done.stderr
