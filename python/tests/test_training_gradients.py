"""Gradients of every operator and of whole networks, against PyTorch in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import helper

import builders
import covey
import ensembles
import training_networks as networks
from covey import reference
from covey.importers.onnx_node import IMPORTERS, OnnxNode
from covey.ops.mul import Mul
from covey.training import optimizers
from covey.training.losses import LABELS
from covey.training.opening import LOSS
from covey.training.optimizers import SGD, Adam, adamw
from covey.training.step import make

torch = pytest.importorskip("torch")
F = torch.nn.functional
BATCH = 3

Case = tuple[list[Any], tuple[int, ...], dict[str, np.ndarray], Callable[..., Any]]
"""Nodes that read x and constants and give z, a sample's shape, the constants, and the same in PyTorch."""


def node(op: str, inputs: str, output: str, **attributes: Any) -> Any:
    return helper.make_node(op, inputs.split(), [output], name=output, **attributes)


def drawn(*shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).normal(size=shape) * 0.5


def through(op: str, function: Callable[[Any], Any], shape: tuple[int, ...] = (2, 6, 7), **attributes: Any) -> Case:
    """The operator on x times a constant."""
    return (
        [node("Mul", "x w", "a"), node(op, "a", "z", **attributes)],
        shape,
        {"w": drawn(*shape)},
        (lambda x, w: function(x * w)),
    )


def positive(op: str, function: Callable[[Any], Any]) -> Case:
    nodes, shape, _, run = through(op, function, (4, 5))
    return nodes, shape, {"w": np.abs(drawn(*shape)) + 0.5}, lambda x, w: run(x.abs() + 0.5, w)


def pooled(op: str, function: Callable[..., Any], **attributes: Any) -> Case:
    return through(op, function, (2, 7, 8), **attributes)


def convolved(first: dict[str, Any], second: dict[str, Any], w: tuple[int, ...], v: tuple[int, ...], *x: int) -> Case:
    """Two convolutions, so that a gradient passes through one of them."""
    run = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}[len(w)]

    def options(attributes: dict[str, Any]) -> dict[str, Any]:
        found = {"stride": attributes.get("strides", 1), "dilation": attributes.get("dilations", 1)}
        half = len(attributes.get("pads", ())) // 2
        return {**found, "padding": attributes["pads"][:half] if half else 0, "groups": attributes.get("group", 1)}

    nodes = [node("Conv", "x w b", "a", **first), node("Conv", "a v c", "z", **second)]
    constants = {"w": drawn(*w), "b": drawn(w[0]), "v": drawn(*v), "c": drawn(v[0])}
    return nodes, x, constants, lambda x, w, b, v, c: run(run(x, w, b, **options(first)), v, c, **options(second))


def normalised(op: str, function: Callable[..., Any], *constants: tuple[int, ...], **attributes: Any) -> Case:
    nodes = [node("Mul", "x w", "a"), node(op, "a g b", "z", **attributes)]
    g, b = constants
    given = {"w": drawn(3, 4, 5) + 1, "g": drawn(*g), "b": drawn(*b)}
    return nodes, (3, 4, 5), given, lambda x, w, g, b: function(x * w, g, b)


CASES: dict[str, Case] = {
    "relu": through("Relu", torch.relu),
    "sigmoid": through("Sigmoid", torch.sigmoid),
    "tanh": through("Tanh", torch.tanh),
    "softplus": through("Softplus", F.softplus),
    "erf": through("Erf", torch.erf),
    "elu": through("Elu", lambda x: F.elu(x, 0.75), alpha=0.75),
    "selu": through("Selu", F.selu),
    "celu": through("Celu", lambda x: F.celu(x, 1.5), alpha=1.5),
    "leaky relu": through("LeakyRelu", lambda x: F.leaky_relu(x, 0.125), alpha=0.125),
    "hard sigmoid": through("HardSigmoid", lambda x: (0.25 * x + 0.5).clamp(0, 1), alpha=0.25),
    "hard swish": through("HardSwish", F.hardswish),
    "softsign": through("Softsign", F.softsign),
    "exp": through("Exp", torch.exp),
    "sin": through("Sin", torch.sin),
    "cos": through("Cos", torch.cos),
    "atan": through("Atan", torch.atan),
    "abs": through("Abs", torch.abs),
    "log": positive("Log", torch.log),
    "sqrt": positive("Sqrt", torch.sqrt),
    "reciprocal": positive("Reciprocal", torch.reciprocal),
    "softmax": (
        [node("Mul", "x w", "a"), node("Softmax", "a", "s", axis=-1), node("MatMul", "s v", "z")], (2, 5),
        {"w": drawn(2, 5), "v": drawn(5, 3)}, lambda x, w, v: torch.softmax(x * w, -1) @ v,
    ),
    "log softmax": (
        [node("Mul", "x w", "a"), node("LogSoftmax", "a", "s", axis=-1), node("MatMul", "s v", "z")], (2, 5),
        {"w": drawn(2, 5), "v": drawn(5, 3)}, lambda x, w, v: torch.log_softmax(x * w, -1) @ v,
    ),
    "max pool": pooled("MaxPool", lambda x: F.max_pool2d(x, 2), kernel_shape=[2, 2], strides=[2, 2]),
    "max pool, overlapping and padded": pooled(
        "MaxPool", lambda x: F.max_pool2d(x, 3, 2, 1), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]
    ),
    "max pool, dilated": pooled(
        "MaxPool", lambda x: F.max_pool2d(x, 2, 1, dilation=2), kernel_shape=[2, 2], dilations=[2, 2]
    ),
    "max pool, gaps": pooled("MaxPool", lambda x: F.max_pool2d(x, 2, 3), kernel_shape=[2, 2], strides=[3, 3]),
    "global max pool": pooled("GlobalMaxPool", lambda x: x.amax((2, 3), keepdim=True)),
    "average pool": pooled("AveragePool", lambda x: F.avg_pool2d(x, 2), kernel_shape=[2, 2], strides=[2, 2]),
    "average pool, padding left out": pooled(
        "AveragePool", lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), kernel_shape=[3, 3],
        strides=[2, 2], pads=[1, 1, 1, 1],
    ),
    "average pool, padding counted": pooled(
        "AveragePool", lambda x: F.avg_pool2d(x, 3, 1, 1), kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1],
        count_include_pad=1,
    ),
    "global average pool": pooled("GlobalAveragePool", lambda x: x.mean((2, 3), keepdim=True)),
    "transpose": through("Transpose", lambda x: x.permute(0, 3, 1, 2), perm=[0, 3, 1, 2]),
    "flatten": through("Flatten", lambda x: x.flatten(1)),
    "mean": through("ReduceMean", lambda x: x.mean((2, 3), keepdim=True), axes=[2, 3]),
    "largest of rows": through("ReduceMax", lambda x: x.amax(2, keepdim=True), axes=[2]),
    "norm of rows": through("ReduceL2", lambda x: x.norm(dim=2, keepdim=True), axes=[2]),
    "sum of squares": through("ReduceSumSquare", lambda x: (x**2).sum(2, keepdim=True), axes=[2]),
    "logarithm of a sum": through("ReduceLogSumExp", lambda x: x.logsumexp(2, keepdim=True), axes=[2]),
    "concat": (
        [node("Mul", "x w", "a"), node("Concat", "a x a", "z", axis=2)], (2, 3), {"w": drawn(2, 3)},
        lambda x, w: torch.cat([x * w, x, x * w], 2),
    ),
    "residual": (
        [node("Mul", "x w", "a"), node("Sub", "a x", "s"), node("Mul", "s a", "m"), node("Add", "m a", "z")], (3, 4),
        {"w": drawn(4)}, lambda x, w: (x * w - x) * (x * w) + x * w,
    ),
    "product of activations": (
        [node("MatMul", "x w", "a"), node("Transpose", "a", "t", perm=[0, 2, 1]), node("MatMul", "a t", "z")], (3, 4),
        {"w": drawn(4, 5)}, lambda x, w: (x @ w) @ (x @ w).transpose(1, 2),
    ),
    "dense": (
        [node("Gemm", "x w b", "a", transB=1), node("Gemm", "a v c", "z")], (4,),
        {"w": drawn(5, 4), "b": drawn(5), "v": drawn(5, 2), "c": drawn(2)},
        lambda x, w, b, v, c: F.linear(x, w, b) @ v + c,
    ),
    "largest and smallest": (
        [node("Mul", "x w", "a"), node("Max", "a x", "s"), node("Min", "s v", "z")], (3, 4),
        {"w": drawn(4), "v": drawn(4) + 0.5}, lambda x, w, v: torch.minimum(torch.maximum(x * w, x), v.detach()),
    ),
    "prelu": (
        [node("Mul", "x w", "a"), node("PRelu", "a v", "z")], (3, 4), {"w": drawn(3, 4), "v": drawn(3, 1)},
        lambda x, w, v: torch.where(x * w > 0, x * w, v * (x * w)),
    ),
    "where": (
        [node("Mul", "x w", "a"), node("Less", "a x", "c"), node("Where", "c a x", "z")], (3, 4), {"w": drawn(3, 4)},
        lambda x, w: torch.where(x * w < x, x * w, x),
    ),
    "quotient": (
        [node("Mul", "x w", "a"), node("Mul", "a a", "s"), node("Softplus", "s", "p"), node("Div", "a p", "z")], (3, 4),
        {"w": drawn(3, 4)}, lambda x, w: (x * w) / F.softplus((x * w) ** 2),
    ),
    "rows over their norms, at the end": (
        [node("Mul", "x w", "a"), node("LpNormalization", "a", "z", axis=-1, p=2)], (3, 4), {"w": drawn(3, 4)},
        lambda x, w: F.normalize(x * w, dim=-1),
    ),
    "layer norm": normalised(
        "LayerNormalization", lambda x, g, b: F.layer_norm(x, (5,), g, b), (5,), (5,), axis=-1
    ),
    "layer norm over all": normalised(
        "LayerNormalization", lambda x, g, b: F.layer_norm(x, (3, 4, 5), g, b), (3, 4, 5), (3, 4, 5), axis=1
    ),
    "instance norm": normalised(
        "InstanceNormalization", lambda x, g, b: F.instance_norm(x, weight=g, bias=b), (3,), (3,)
    ),
    "convolution": convolved({}, {}, (3, 2, 3, 3), (2, 3, 3, 3), 2, 6, 6),
    "convolution, strided": convolved(
        {"pads": [1, 1, 1, 1]}, {"strides": [2, 3], "pads": [1, 0, 1, 0]}, (4, 2, 3, 3), (2, 4, 3, 2), 2, 7, 6
    ),
    "convolution, grouped and depthwise": convolved(
        {"group": 2, "pads": [1, 1, 1, 1]}, {"group": 4, "dilations": [2, 1], "pads": [2, 1, 2, 1]}, (4, 2, 3, 3),
        (8, 1, 3, 3), 4, 6, 5,
    ),
    "convolution, padded beyond its reach": convolved(
        {"strides": [2, 1]}, {"strides": [3, 2], "pads": [2, 2, 2, 2], "dilations": [2, 2]}, (3, 2, 2, 2), (2, 3, 3, 3),
        2, 9, 8,
    ),
    "convolution of points": convolved({}, {"strides": [2, 2]}, (3, 2, 1, 1), (2, 3, 1, 1), 2, 6, 6),
    "transposed convolution": (
        [node("Conv", "x w b", "a"), node("ConvTranspose", "a v c", "z", strides=[2, 3], pads=[1, 0, 0, 1], group=2)],
        (2, 5, 6), {"w": drawn(4, 2, 2, 2), "b": drawn(4), "v": drawn(4, 3, 3, 2), "c": drawn(6)},
        lambda x, w, b, v, c: F.conv_transpose2d(F.conv2d(x, w, b), v, c, (2, 3), groups=2)[:, :, 1:, :-1],
    ),
    "transposed convolution of rows": (
        [node("Mul", "x w", "a"), node("ConvTranspose", "a v", "z", strides=[2])], (2, 5),
        {"w": drawn(2, 5), "v": drawn(2, 3, 4)}, lambda x, w, v: F.conv_transpose1d(x * w, v, stride=2),
    ),
    "resized": (
        [
            node("Mul", "x w", "a"),
            helper.make_node(
                "Resize", ["a", "", "scales"], ["z"], name="z", mode="linear",
                coordinate_transformation_mode="half_pixel",
            ),
        ],
        (2, 4, 5), {"w": drawn(2, 4, 5), "scales": np.array([1.0, 1.0, 2.0, 2.0])},
        lambda x, w, scales: F.interpolate(x * w, scale_factor=2, mode="bilinear"),
    ),
    "two largest": (
        [node("Mul", "x w", "a"), helper.make_node("TopK", ["a", "count"], ["z", "places"], axis=1)], (4, 3),
        {"w": drawn(4, 3), "count": np.array([2], dtype=np.int64)},
        lambda x, w, count: (x * w).topk(2, dim=1).values,
    ),
    "convolution of rows": convolved({"pads": [1, 1]}, {"strides": [2]}, (3, 2, 3), (2, 3, 3), 2, 9),
    "convolution of volumes": convolved({}, {}, (3, 2, 2, 2, 2), (2, 3, 2, 2, 2), 2, 4, 5, 6),
}  # fmt: skip


def gradients(case: Case, x: np.ndarray, targets: np.ndarray | None = None, **options: Any) -> tuple[Any, Any]:
    """Those of the step's graph and PyTorch's, by constant."""
    nodes, shape, constants, function = case
    proto = builders.model(nodes, {"x": ["N", *shape]}, ["z"], constants)
    step = make(proto, loss="mse", optimizer=SGD(1.0), batch=BATCH, **options)
    labels = np.random.default_rng(2).normal(size=(1, *step.graph.values[LABELS].shape))
    given = {"x": x[None], LABELS: labels if targets is None else targets}
    given |= {name: np.zeros((1, *step.graph.values[name].shape)) for name in step.graph.carried}
    found = reference.run(step.graph, given)
    leaves = {
        name: torch.tensor(array.astype(np.float32).astype(np.float64), requires_grad=True)
        for name, array in constants.items()
    }
    loss = F.mse_loss(function(torch.from_numpy(x), **leaves), torch.from_numpy(given[LABELS][0]))
    loss.backward()
    assert found[LOSS].item() == pytest.approx(loss.item(), rel=1e-6)
    return (
        {entry.name: -found[entry.after][0] for entry in step.trained},
        {name: leaf.grad.numpy() for name, leaf in leaves.items() if leaf.grad is not None},
    )


@pytest.mark.parametrize("name", CASES)
def test_an_operators_gradient_is_pytorchs(name: str) -> None:
    case = CASES[name]
    x = np.random.default_rng(3).uniform(-1, 1, (BATCH, *case[1]))
    if name in ("log", "sqrt", "reciprocal"):
        x = np.abs(x) + 0.5
        case = (case[0], case[1], case[2], lambda x, w, name=name: getattr(torch, name)(x * w))
    found, due = gradients(case, x)
    assert found.keys() == due.keys()
    for constant, gradient in due.items():
        assert np.abs(gradient).max() > 1e-5, f"{constant} has no gradient to compare"
        np.testing.assert_allclose(found[constant], gradient, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("pads", [[0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 1, 0]])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_of_equal_elements_the_first_takes_a_maximums_gradient(pads: list[int], stride: int) -> None:
    shape = (2, 6, 7)
    window = {"kernel_shape": [3, 3], "strides": [stride, stride], "pads": pads}
    nodes = [node("Mul", "x w", "a"), node("MaxPool", "a", "z", **window)]
    # Few different numbers, so that most windows hold their largest more than once.
    x = np.random.default_rng(4).integers(0, 3, (BATCH, *shape)).astype(np.float64)

    def run(x: Any, w: Any) -> Any:
        top, left, bottom, right = pads
        padded = F.pad(x * w, (left, right, top, bottom), value=-1e9)
        return F.max_pool2d(padded, 3, stride)

    found, due = gradients((nodes, shape, {"w": np.ones(shape)}, run), x)
    np.testing.assert_allclose(found["w"], due["w"], rtol=1e-9, atol=1e-12)


def test_at_zero_the_rectifier_passes_no_gradient() -> None:
    case = CASES["relu"]
    found, due = gradients((case[0], case[1], {"w": np.zeros(case[1])}, case[3]), np.ones((BATCH, *case[1])))
    np.testing.assert_array_equal(found["w"], due["w"])


def test_batch_normalisation_takes_frozen_statistics_where_asked() -> None:
    nodes = [node("Mul", "x w", "a"), node("BatchNormalization", "a g b m v", "z")]
    constants = {"w": drawn(3, 4), "g": drawn(3), "b": drawn(3), "m": drawn(3), "v": drawn(3) ** 2 + 0.5}
    x = np.random.default_rng(5).uniform(-1, 1, (BATCH, 3, 4))

    def run(x: Any, w: Any, g: Any, b: Any, m: Any, v: Any) -> Any:
        return F.batch_norm(x * w, m.detach(), v.detach(), g, b)

    proto_case = (nodes, (3, 4), constants, run)
    nodes_, shape, given, _ = proto_case
    proto = builders.model(nodes_, {"x": ["N", *shape]}, ["z"], given)
    step = make(proto, loss="mse", optimizer=SGD(1.0), batch=BATCH, batch_norm="frozen")
    assert [entry.name for entry in step.trained] == ["w", "g", "b"]
    labels = np.random.default_rng(2).normal(size=(1, BATCH, 3, 4))
    values = {"x": x[None], LABELS: labels}
    values |= {name: np.zeros((1, *step.graph.values[name].shape)) for name in step.graph.carried}
    found = reference.run(step.graph, values)
    leaves = [torch.tensor(given[n].astype(np.float32).astype(np.float64), requires_grad=True) for n in "wgbmv"]
    F.mse_loss(run(torch.from_numpy(x), *leaves), torch.from_numpy(labels[0])).backward()
    for entry, leaf in zip(step.trained, leaves, strict=False):
        np.testing.assert_allclose(-found[entry.after][0], leaf.grad.numpy(), rtol=2e-7, atol=1e-12)


OPTIMIZERS: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "sgd": (SGD(0.05), lambda p: torch.optim.SGD(p, 0.05)),
    "momentum": (
        SGD(0.05, 0.01, momentum=0.9), lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, weight_decay=0.01)
    ),
    "nesterov": (
        SGD(0.05, momentum=0.9, nesterov=True), lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, nesterov=True)
    ),
    "adam": (Adam(0.002, 0.01), lambda p: torch.optim.Adam(p, 0.002, weight_decay=0.01)),
    "adamw": (adamw(0.002), lambda p: torch.optim.AdamW(p, 0.002)),
}  # fmt: skip


@pytest.mark.parametrize(
    ("network", "optimizer"),
    [
        ("lenet", "momentum"),
        ("residual", "nesterov"),
        ("transformer", "adamw"),
        *(("perceptron", optimizer) for optimizer in OPTIMIZERS),
    ],
)
def test_steps_of_whole_networks_are_pytorchs(network: str, optimizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizers, "LEAST_SQUARE", 0.0)
    rng = np.random.default_rng(6)
    shape = {"lenet": (4, 1, 28, 28), "residual": (5, 3, 8, 8), "transformer": (5, 6), "perceptron": (6, 8)}[network]
    words = network == "transformer"
    batches = [
        {
            "x": (rng.integers(0, 20, (1, *shape)) if words else rng.uniform(0, 1, (1, *shape))).astype(np.float64),
            LABELS: rng.integers(0, 3, (1, shape[0])).astype(np.float64),
        }
        for _ in range(4)
    ]  # fmt: skip
    module = networks.build(torch, getattr(networks, network))
    ours, theirs = OPTIMIZERS[optimizer]
    example = torch.zeros(2, *shape[1:], dtype=torch.long if words else torch.float32)
    step = networks.step_of(module, example, loss="cross-entropy", optimizer=ours, batch=shape[0])
    assert {entry.name for entry in step.trained} >= {name for name, _ in module.named_parameters()}
    named = [{step.data[0]: batch["x"], LABELS: batch[LABELS]} for batch in batches]
    found = networks.rehearsed(step, named)
    losses, due = networks.torch_steps(torch, module, theirs, named, networks.cross_entropy(torch))
    loose = optimizer.startswith("adam")  # torch adds epsilon to the root, we under it
    np.testing.assert_allclose(found.losses, losses, rtol=1e-5 if loose else 1e-12)
    off = networks.differences(step, found.trained(step), due)
    # Attention does not depend on the bias of keys: of a gradient that is rounding alone, Adam makes full steps.
    off = {name: error for name, error in off.items() if not (loose and name.endswith("in_proj_bias"))}
    assert max(off.values()) < (5e-3 if loose else 1e-9), off


@pytest.mark.parametrize(
    ("ours", "limit"),
    [
        (SGD(0.5, clip=0.02), lambda parameters: torch.nn.utils.clip_grad_value_(parameters, 0.02)),
        (SGD(0.5, clip_norm=0.1), lambda parameters: torch.nn.utils.clip_grad_norm_(parameters, 0.1)),
        (SGD(0.5, clip_norm=50.0), lambda parameters: None),
    ],
)
def test_clipped_gradients_are_pytorchs(ours: Any, limit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizers, "LEAST_NORM", 1e-12)
    rng = np.random.default_rng(8)
    module = networks.build(torch, networks.perceptron)
    step = networks.step_of(module, torch.zeros(2, 8), loss="cross-entropy", optimizer=ours, batch=6)
    batches = [
        {step.data[0]: rng.uniform(-1, 1, (1, 6, 8)), LABELS: rng.integers(0, 3, (1, 6)).astype(np.float64)}
        for _ in range(3)
    ]
    found = networks.rehearsed(step, batches)
    loss = networks.cross_entropy(torch)
    _, due = networks.torch_steps(torch, module, lambda p: torch.optim.SGD(p, 0.5), batches, loss, limit)
    off = networks.differences(step, found.trained(step), due)
    assert max(off.values()) < 1e-4, off  # PyTorch adds a little to the norm


def by_class(scores: Any, labels: Any) -> Any:
    weight = torch.tensor(OF_CLASSES, dtype=torch.float64)
    return F.cross_entropy(scores, labels.long(), weight, reduction="none").mean()


def by_label(scores: Any, labels: Any) -> Any:
    return F.binary_cross_entropy_with_logits(scores, labels, pos_weight=torch.tensor(OF_CLASSES, dtype=torch.float64))


OF_CLASSES = [0.5, 0.0, 7.0]


@pytest.mark.parametrize(
    ("name", "weights", "loss", "labels"),
    [
        ("cross-entropy", OF_CLASSES, by_class, (6,)),
        ("binary-cross-entropy", [[1.0] * 3, OF_CLASSES], by_label, (6, 3)),
    ],
)
def test_class_weights_are_pytorchs(name: str, weights: Any, loss: Any, labels: tuple[int, ...]) -> None:
    rng = np.random.default_rng(9)
    module = networks.build(torch, networks.perceptron)
    step = networks.step_of(
        module, torch.zeros(2, 8), loss=name, optimizer=SGD(0.5), batch=6, class_weights=torch.tensor(weights)
    )
    classes = 3 if name == "cross-entropy" else 2
    batches = [
        {step.data[0]: rng.uniform(-1, 1, (1, 6, 8)), LABELS: rng.integers(0, classes, (1, *labels)) * 1.0}
        for _ in range(3)
    ]
    found = networks.rehearsed(step, batches)
    losses, due = networks.torch_steps(torch, module, lambda p: torch.optim.SGD(p, 0.5), batches, loss)
    np.testing.assert_allclose(found.losses, losses, rtol=1e-12)
    off = networks.differences(step, found.trained(step), due)
    assert max(off.values()) < 1e-9, off


def test_an_importer_that_computes_with_weights_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def doubled(node: OnnxNode) -> None:
        node.emit(Mul(), [node.activation(0), node.parameter(2 * node.weights(1, "factor"), "doubled")])

    proto = builders.model([node("Mul", "x w", "a"), node("Add", "a w", "z")], {"x": ["N", 4]}, ["z"], {"w": drawn(4)})
    assert make(proto, loss="mse", optimizer=SGD(0.1), batch=2).trained
    monkeypatch.setitem(IMPORTERS, "Mul", doubled)
    with pytest.raises(
        covey.UnsupportedError, match=r"node 'a' \(Mul\): it reads something that is computed of weights"
    ):
        make(proto, loss="mse", optimizer=SGD(0.1), batch=2)


def test_what_an_onnx_model_computes_of_its_weights_alone_is_refused() -> None:
    nodes = [node("Transpose", "v", "t"), node("Mul", "t v", "s"), node("Mul", "x s", "a"), node("Mul", "a v", "z")]
    proto = builders.model(nodes, {"x": ["N", 4]}, ["z"], {"v": drawn(4)})
    with pytest.raises(
        covey.UnsupportedError, match=r"node 's' \(Mul\): it computes with 'v' alone; freeze it \(freeze="
    ):
        make(proto, loss="mse", optimizer=SGD(0.1), batch=2)


def test_an_operator_that_cannot_be_trained_is_named() -> None:
    trees = [ensembles.Branch(1, "BRANCH_LEQ", 0.25, np.ones(1), np.zeros(1))]
    lists = ensembles.attributes(trees, "target", 1)
    nodes = [
        node("MatMul", "x w", "a"), node("TreeEnsembleRegressor", "a", "z", domain="ai.onnx.ml", n_targets=1, **lists)
    ]  # fmt: skip
    proto = builders.model(nodes, {"x": ["N", 4]}, {"z": ["N", 1]}, {"w": drawn(4, 4)})
    with pytest.raises(
        covey.UnsupportedError, match=r"node 'z' \(TreeEnsembleRegressor\): \S+ has no form for minibatches; replace"
    ):
        make(proto, loss="mse", optimizer=SGD(0.1), batch=2)
