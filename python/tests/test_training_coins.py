"""Dropout and stochastic rounding by public coins: rates, gradients, the same bits in every protocol, and mistakes."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import builders
import covey
import training_networks as networks
from command import Command
from covey import reference
from covey.clear import ClearSession
from covey.model import load
from covey.ops.dropout import Dropout
from covey.training.calibration import rehearse
from covey.training.coins import drawn, seed_of
from covey.training.step import Step, make
from interpreter import program_of
from test_training import compiled, minibatches, node, perceptron, table

RATE = 0.25


@pytest.fixture(scope="module")
def job() -> covey.Job:
    optimizer = covey.SGD(0.2, momentum=0.5, schedule=covey.schedules.step([3, 5], 0.5))
    return compiled(perceptron(dropout=RATE), table(), optimizer=optimizer, dropout=True, stochastic_rounding=True)


def masks(step: Step, run: int) -> list[np.ndarray]:
    """What each Dropout node of the step multiplies its operand by in a run, in the order of the nodes."""
    found = []
    for entry in step.graph.nodes:
        if isinstance(entry.op, Dropout):
            shape = (1, *step.graph.values[entry.output].shape)
            found.append(np.asarray(entry.op.in_run(run).reference(np.ones(shape)))[0])
    return found


def test_coins_have_the_declared_rate_and_differ_between_runs_and_nodes() -> None:
    ones = np.ones((1, 100, 200))
    seeds = [seed_of(0, 0), seed_of(0, 1), seed_of(1, 0)]
    assert len(set(seeds)) == 3
    made = [Dropout(0.3, seed, run).reference(ones) for seed, run in itertools.product(seeds, (0, 1))]
    for mask in made:
        dropped = mask == 0
        assert abs(dropped.mean() - 0.3) < 5 * (0.21 / ones.size) ** 0.5
        np.testing.assert_allclose(mask[~dropped], 1 / 0.7)
    for one, other in itertools.combinations(made, 2):
        assert abs(((one == 0) & (other == 0)).mean() - 0.09) < 5 * (0.09 * 0.91 / ones.size) ** 0.5
    # As the program format says: any party can work them out alone.
    due = drawn("dropout", 5, 3, 4, "<u4")
    assert due.tolist() == drawn("dropout", 5, 3, 8, "<u4")[:4].tolist() and due.dtype.itemsize == 4


def test_the_gradient_has_the_coins_of_the_forward_form(job: covey.Job) -> None:
    forward, backward = masks(job.step, 2)
    np.testing.assert_array_equal(forward, backward)
    assert (forward != masks(job.step, 3)[0]).any()
    nodes = [entry.dropout for entry in program_of(job.compiled).nodes if entry.WhichOneof("op") == "dropout"]
    assert len(nodes) == 2 and nodes[0].seed == nodes[1].seed and nodes[0].threshold == 2**30


@pytest.mark.parametrize("rate", [0.5, 0.3])
def test_steps_with_dropout_are_those_of_pytorch_with_the_same_mask(rate: float) -> None:
    torch = pytest.importorskip("torch", reason="torch is optional")
    data = table()

    class Masked(torch.nn.Module):  # type: ignore[misc,name-defined]
        """Dropout whose mask is given."""

        def __init__(self) -> None:
            super().__init__()
            self.masks: Any = None

        def forward(self, x: Any) -> Any:
            return x * torch.from_numpy(next(self.masks)) if self.masks is not None else x

    def network(torch: Any, last: Any) -> Any:
        layers = torch.nn.Linear(5, 8), torch.nn.ReLU(), torch.nn.Dropout(rate), torch.nn.Linear(8, 6), torch.nn.ReLU()
        return torch.nn.Sequential(*layers, last, torch.nn.Linear(6, 3))

    module = networks.build(torch, lambda torch: network(torch, torch.nn.Dropout(0.2)))
    job = compiled(module.train(), data, example_inputs=(torch.zeros(2, 5),), optimizer=covey.SGD(0.2), dropout=True)
    assert all(part.training for part in module.modules()), "the module itself is left alone"
    batches = minibatches(job, data, epochs=2)
    module[2], module[5] = Masked(), Masked()
    of_step = [masks(job.step, run) for run in range(len(batches))]
    # In forward order the first layer, the second; the gradients follow the other way round.
    for first, second, *back in of_step:
        np.testing.assert_array_equal(first, back[1])
        np.testing.assert_array_equal(second, back[0])
    module[2].masks, module[5].masks = iter([each[0] for each in of_step]), iter([each[1] for each in of_step])
    losses, due = networks.torch_steps(
        torch, module, lambda p: torch.optim.SGD(p, 0.2), batches, networks.cross_entropy(torch)
    )
    found = rehearse(job.step, batches)
    np.testing.assert_allclose(found.losses, losses, rtol=1e-9)
    assert max(networks.differences(job.step, found.trained(job.step), due).values()) < 1e-9
    # On integers: kept elements are scaled by 12 bits.
    trainer = covey.Trainer(ClearSession(load(job.compiled)))
    epochs = list(trainer.fit(*data, epochs=2))
    np.testing.assert_allclose([loss for epoch in epochs for loss in epoch.losses], losses, atol=2e-3)
    assert max(networks.differences(job.step, trainer.weights(), due).values()) < 5e-3


def test_a_sequence_in_trio_equals_the_specification_over_several_requests(job: covey.Job) -> None:
    batches = minibatches(job, table())[:7]
    clear = ClearSession(load(job.compiled))
    due, due_weights = clear.infer_all(batches), clear.end()
    with covey.local("trio", timeout=60) as parties, parties.session(job.compiled) as session:
        found = session.infer_all(batches[:2]).results
        found += session.infer_all(batches[2:6], continues=True).results
        found.append(session.infer(batches[6], continues=True))
        weights = session.end()
        # A new sequence begins with the coins and the rate of a first step.
        again = session.infer(batches[0])
    for one, expected in zip([*found, again], [*due.results, due.results[0]], strict=True):
        np.testing.assert_array_equal(one.integers["loss"], expected.integers["loss"])
    for name, integers in due_weights.integers.items():
        np.testing.assert_array_equal(weights.integers[name], integers)


def test_what_the_number_of_a_step_decides_costs_nothing(job: covey.Job) -> None:
    listed = [line for line in load(job.compiled).program.dump().splitlines() if " = " in line]
    local = {index for index, line in enumerate(listed) if re.search(r"= (Scheduled|Dropout|Dither)\(", line)}
    assert len(local) == 2 + 4 + 4
    for protocol in ("trio", "quad", "beaver", "two-party"):
        plan = covey.explain(job.compiled, protocol=protocol).plan
        costs = {row["node"]: row for row in plan["nodes"]}
        assert local <= costs.keys()
        assert not any(costs[index]["links"] for index in local), protocol


def test_stochastic_rounding_is_right_on_average_and_repeatable() -> None:
    data = table()
    jobs = [compiled(perceptron(), data, optimizer=covey.SGD(0.05), stochastic_rounding=on) for on in (False, True)]
    due = rehearse(jobs[0].step, minibatches(jobs[0], data, epochs=3))
    found = []
    for job in [*jobs, jobs[1]]:
        trainer = covey.Trainer(ClearSession(load(job.compiled)))
        losses = [loss for epoch in trainer.fit(*data, epochs=3) for loss in epoch.losses]
        np.testing.assert_allclose(losses, due.losses, atol=2e-3)
        found.append(trainer.weights())
    nearest, rounded, again = found
    for name, array in due.trained(jobs[0].step).items():
        assert np.abs(rounded[name] - array).max() < 1e-4
        np.testing.assert_array_equal(rounded[name], again[name])
    assert any((nearest[name] != rounded[name]).any() for name in nearest)


def test_a_step_of_less_than_half_a_unit_moves_weights_at_random_alone() -> None:
    # Each step is a quarter of a unit: rounded to the nearest, the weights never move.
    unit = 2.0**-18
    nodes = [node("MatMul", "x w", "flat"), node("Relu", "flat", "relu"), node("MatMul", "relu v", "scores")]
    constants = {"w": np.eye(2), "v": np.array([[1.0], [0.0]])}
    model = builders.model(nodes, {"x": ["N", 2]}, ["scores"], constants)
    data = np.ones((400, 2)), np.zeros((400, 1))
    options = {"loss": "mse", "freeze": ["w"], "batch": 1, "input_range": {"x": (-1, 1), "labels": (-1, 1)}}
    moved = {}
    for on in (False, True):
        # Both weights have the gradient 2: a step of 1/4 of a unit.
        job = compiled(model, data, optimizer=covey.SGD(unit / 8), stochastic_rounding=on, scale=10, **options)
        trainer = covey.Trainer(ClearSession(load(job.compiled)))
        list(trainer.fit(*data))
        moved[on] = (constants["v"] - trainer.weights()["v"]) / unit
    np.testing.assert_array_equal(moved[False], 0.0)
    # A hundred units each, within five standard deviations of 8.7.
    assert (np.abs(moved[True] - 100) < 44).all(), moved[True]


def test_models_come_in_either_mode(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is optional")
    module = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Dropout(0.4), torch.nn.Linear(4, 3))
    rates = []
    for training in (True, False):
        module.train(training)
        program = torch.export.export(module, (torch.zeros(2, 5),), dynamic_shapes=({0: torch.export.Dim("batch")},))
        torch.export.save(program, tmp_path / "model.pt2")
        for source in (module, program, tmp_path / "model.pt2"):
            example = (torch.zeros(2, 5),) if source is module else None
            step = make(source, example, loss="cross-entropy", optimizer=covey.SGD(0.1), batch=4, dropout=True)
            rates += [entry.op.rate for entry in step.graph.nodes if isinstance(entry.op, Dropout)]
    assert rates == [0.4] * 12
    rest = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Dropout(0.4, inplace=True), torch.nn.Linear(4, 3))
    step = make(rest, (torch.zeros(2, 5),), loss="cross-entropy", optimizer=covey.SGD(0.1), batch=4, dropout=True)
    assert sum(isinstance(entry.op, Dropout) for entry in step.graph.nodes) == 2
    for ratio in ({"ratio": 0.4}, {}):  # before it was an operand
        proto = perceptron()
        proto.graph.node.insert(2, node("Dropout", "relu", "kept", **ratio))
        proto.graph.node[3].input[0] = "kept"
        proto.opset_import[0].version = 11
        step = make(proto, loss="cross-entropy", optimizer=covey.SGD(0.1), batch=4, dropout=True)
        (rate,) = {entry.op.rate for entry in step.graph.nodes if isinstance(entry.op, Dropout)}
        assert rate == np.float32(ratio.get("ratio", 0.5))


def test_models_that_cannot_drop_are_refused_in_one_line() -> None:
    def refused(model: Any, saying: str, example: Any = None) -> None:
        with pytest.raises(covey.CoveyError, match=saying):
            make(model, example, loss="cross-entropy", optimizer=covey.SGD(0.1), batch=4, dropout=True)

    refused(perceptron(), "the model has no layer that drops elements: leave dropout out")
    refused(perceptron(dropout=1.0), "it drops 1 of the elements; give a rate from 0 to below 1")
    refused(perceptron(dropout=-0.5), "it drops -0.5 of the elements")
    torch = pytest.importorskip("torch", reason="torch is optional")
    nn = torch.nn
    channels = nn.Sequential(nn.Unflatten(1, (5, 1, 1)), nn.Dropout2d(0.2), nn.Flatten(), nn.Linear(5, 3))
    refused(channels, "node '1' .*it drops more than single elements; use Dropout instead", torch.zeros(2, 5))
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
    refused(layer, "node 'self_attn' .*it drops elements of its own; set its dropout to 0", torch.zeros(2, 3, 8))


def test_without_the_option_nothing_is_dropped() -> None:
    step = make(perceptron(dropout=RATE), loss="cross-entropy", optimizer=covey.SGD(0.1), batch=4)
    assert not any(isinstance(entry.op, Dropout) for entry in step.graph.nodes)
    plain = covey.compile(perceptron(dropout=RATE), input_range=(-1, 1))
    x = table()[0]
    np.testing.assert_array_equal(
        reference.outputs(plain.graph, {"x": x})[0],
        reference.outputs(covey.compile(perceptron(), input_range=(-1, 1)).graph, {"x": x})[0],
    )


def test_the_command_drops_and_rounds_as_asked(command: Command, tmp_path: Path) -> None:
    x, labels = table()
    onnx.save(perceptron(dropout=RATE), tmp_path / "model.onnx")
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", labels)
    asked = ["train", tmp_path / "model.onnx", "--data", tmp_path / "x.npy", "--labels", tmp_path / "y.npy"]
    asked += ["--batch", 4, "--lr", 0.1, "--protocol", "clear"]
    plain, dropped, rounded = (
        command.succeeds(*asked, *options).out for options in ([], ["--dropout"], ["--stochastic-rounding"])
    )
    assert plain.startswith("epoch 1  loss ") and dropped.startswith("epoch 1  loss ")
    assert plain.split()[3] != dropped.split()[3] and rounded.startswith("epoch 1  loss ")
    other = command.succeeds(*asked, "--dropout", "--compile", tmp_path / "job.covey", "--stochastic-rounding")
    assert "job.covey" in other.out and "Dither(" in load(tmp_path / "job.covey").program.dump()
