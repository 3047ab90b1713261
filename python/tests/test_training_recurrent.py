"""Training of recurrent layers: steps in floating point are PyTorch's, and the same in every protocol."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import builders
import covey
import covey.ir
import training_networks as networks
from covey.clear import ClearSession
from covey.model import load
from covey.training.losses import LABELS
from covey.training.parameters import Part, model_of, views
from covey.training.step import make
from served import PROTOCOLS
from test_training import node

LENGTH, SIZE, HIDDEN, BATCH = 4, 3, 5, 6


def recurrent(torch: Any, kind: str, **options: Any) -> Any:
    """A recurrent layer, whose last state is classified."""

    class Network(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = getattr(torch.nn, kind)(SIZE, HIDDEN, batch_first=True, **options)
            self.head = torch.nn.Linear(
                (self.layer.proj_size or HIDDEN) * (2 if options.get("bidirectional") else 1), 2
            )

        def forward(self, x: Any) -> Any:
            return self.head(self.layer(x)[0][:, -1])

    return Network()


def samples(count: int) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(1).uniform(-1, 1, (count, LENGTH, SIZE))
    return x, (x.sum((1, 2)) > 0).astype(np.int64)


OPTIONS = {"plain": {}, "bare": {"bias": False}, "two": {"num_layers": 2}, "both": {"bidirectional": True}}


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        *(
            pytest.param(kind, OPTIONS[case], id=f"{kind} {case}")
            for case in OPTIONS
            for kind in ("LSTM", "GRU", "RNN")
        ),
        pytest.param("LSTM", {"proj_size": 2, "num_layers": 2, "bidirectional": True}, id="LSTM projected"),
    ],
)
def test_steps_are_pytorchs(kind: str, options: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch", reason="torch is optional")
    module = networks.build(torch, lambda torch: recurrent(torch, kind, **options))
    step = networks.step_of(
        module, torch.zeros(2, LENGTH, SIZE), loss="cross-entropy", optimizer=covey.SGD(0.5, momentum=0.9), batch=BATCH
    )
    assert {entry.name for entry in step.trained} == {name for name, _ in module.named_parameters()}
    x, labels = samples(4 * BATCH)
    batches = [
        {step.data[0]: x[None, start : start + BATCH], LABELS: labels[None, start : start + BATCH].astype(np.float64)}
        for start in range(0, len(x), BATCH)
    ]
    found = networks.rehearsed(step, batches)
    loss = networks.cross_entropy(torch)
    losses, due = networks.torch_steps(
        torch, module, lambda parameters: torch.optim.SGD(parameters, 0.5, momentum=0.9), batches, loss
    )
    np.testing.assert_allclose(found.losses, losses, rtol=1e-9)
    off = networks.differences(step, found.trained(step), due)
    assert max(off.values()) < 1e-7, off


def file_of(kind: str, gates: int, **attributes: Any) -> onnx.ModelProto:
    """A layer of both directions as ONNX has it: one tensor for the weights of both, one for all biases."""
    rng = np.random.default_rng(2)
    nodes = [
        node(kind, "x w r b", "y", hidden_size=HIDDEN, direction="bidirectional", layout=1, **attributes),
        node("ReduceSum", "y axes", "sums", keepdims=0),
        node("MatMul", "sums v", "scores"),
    ]
    constants = {
        "w": builders.weights(rng, 2, gates * HIDDEN, SIZE),
        "r": builders.weights(rng, 2, gates * HIDDEN, HIDDEN),
        "b": builders.weights(rng, 2, 2 * gates * HIDDEN),
        "axes": np.array([1, 2], dtype=np.int64),
        "v": builders.weights(rng, HIDDEN, 2),
    }
    return builders.model(nodes, {"x": ["N", LENGTH, SIZE]}, ["scores"], constants)


@pytest.mark.parametrize(
    ("kind", "gates", "attributes"),
    [("LSTM", 4, {}), ("GRU", 3, {}), ("GRU", 3, {"linear_before_reset": 1}), ("RNN", 1, {})],
)
def test_the_gradient_of_an_onnx_layer_is_the_losss_slope(kind: str, gates: int, attributes: dict[str, Any]) -> None:
    """Against differences of the loss: its tensors are parts of the operator's weights."""
    model = file_of(kind, gates, **attributes)
    x, labels = samples(BATCH)

    def loss_after(proto: onnx.ModelProto, rate: float) -> tuple[list[float], Any, Any]:
        step = make(proto, loss="cross-entropy", optimizer=covey.SGD(rate), batch=BATCH)
        batch = {step.data[0]: x[None], LABELS: labels[None].astype(np.float64)}
        found = networks.rehearsed(step, [batch, batch])
        return found.losses, found, step

    tiny = 1e-4
    (before, after), found, step = loss_after(model, tiny)
    assert {entry.name for entry in step.trained} == {"w", "r", "b", "v"}
    # A step along the gradient g lowers the loss by rate · |g|², up to the rate's square.
    moved = {entry.name: found.carried[entry.change][0] for entry in step.trained}
    steepest = sum(float((change / 2 / tiny) ** 2 @ np.ones(change.size)) for change in map(np.ravel, moved.values()))
    assert before - after == pytest.approx(tiny * steepest, rel=1e-2)
    assert all(np.abs(change).max() > 1e-9 for change in moved.values())


def test_parts_of_a_tensor_are_found_wherever_they_are() -> None:
    rng = np.random.default_rng(3)
    source = file_of("LSTM", 4)
    _, drawn = model_of(source).probe(["w", "r", "b"])
    numbers = np.concatenate([array.ravel() for array in drawn.values()])
    assert len(np.unique(numbers)) == numbers.size and (numbers.astype(np.float32) == numbers).all()
    w, b = drawn["w"], drawn["b"]
    order = rng.permutation(w.shape[1])
    parts = {"turned": w[0].T, "rows": w[1][order].T, "one": b[1, 7:8], "steps": b[:, ::3]}
    others = {"sum": b[:, :20] + b[:, 20:], "twice": 2 * b, "both": np.concatenate([w[0, :2, 0], b[0, :2]])}
    graph = covey.ir.Graph("test")
    graph.parameters.update(parts | others | {"jumbled": rng.permutation(w.ravel()).reshape(w.shape)})
    found = views(graph, drawn)
    assert found.keys() == parts.keys()
    for name, part in found.items():
        assert isinstance(part, Part)
        np.testing.assert_array_equal(part.taken.reference(drawn[part.tensor][None])[0], parts[name])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_protocol_trains_the_same(protocol: str) -> None:
    torch = pytest.importorskip("torch", reason="torch is optional")
    module = networks.build(torch, lambda torch: recurrent(torch, "GRU"))
    x, labels = samples(12)
    job = covey.compile_training(
        module, torch.zeros(2, LENGTH, SIZE), loss="cross-entropy", optimizer=covey.SGD(0.2), batch=BATCH,
        calibration=(x, labels), open_weights=True,
    )  # fmt: skip
    due = covey.Trainer(ClearSession(load(job.compiled)))
    losses = [epoch.losses for epoch in due.fit(x, labels, 2)]
    with covey.local(protocol) as parties:
        trainer = covey.Trainer(parties.session(job.compiled))
        assert [epoch.losses for epoch in trainer.fit(x, labels, 2)] == losses
        weights = trainer.weights()
    assert all((weights[name] == array).all() for name, array in due.weights().items())
