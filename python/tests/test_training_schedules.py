"""Schedules of the learning rate: PyTorch's own in floating point, tables of integers in programs, and mistakes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import covey
import training_networks as networks
from command import Command
from covey import schedules
from covey.clear import ClearSession
from covey.model import load
from covey.training.calibration import rehearse
from interpreter import program_of
from test_training import compiled, minibatches, perceptron, table

STEPS = 30


def torch_rates(torch: Any, made: Callable[[Any, Any], Any]) -> list[float]:
    """What part of the learning rate PyTorch's schedule gives each step."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = made(torch.optim.lr_scheduler, optimizer)
    rates = []
    for _ in range(STEPS):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return rates


def sequential(lr: Any, optimizer: Any) -> Any:
    """A rise over five steps, then half a cosine over fifteen, which stays where it ends."""
    rising = lr.LinearLR(optimizer, 0.2, total_iters=4)
    curve = lr.LambdaLR(optimizer, lambda step: 1.0)
    return lr.SequentialLR(optimizer, [rising, curve], [5])


@pytest.mark.parametrize(
    ("schedule", "made"),
    [
        (schedules.step([4, 9, 20], 0.5), lambda lr, o: lr.MultiStepLR(o, [4, 9, 20], 0.5)),
        (schedules.exponential(0.8, 3, least=1e-4), lambda lr, o: lr.LambdaLR(o, lambda step: 0.8 ** (step // 3))),
        (schedules.exponential(0.9, least=1e-3), lambda lr, o: lr.ExponentialLR(o, 0.9)),
        (schedules.cosine(STEPS, least=0.1), lambda lr, o: lr.CosineAnnealingLR(o, STEPS, eta_min=0.1)),
        (schedules.constant(warmup=5), sequential),
    ],
)
def test_schedules_are_those_of_pytorch(schedule: schedules.Schedule, made: Callable[[Any, Any], Any]) -> None:
    torch = pytest.importorskip("torch", reason="torch is optional")
    np.testing.assert_allclose([schedule.at(step) for step in range(STEPS)], torch_rates(torch, made), rtol=1e-9)


def test_a_warm_up_rises_to_the_schedule() -> None:
    cosine, warm = schedules.cosine(20, least=0.05), schedules.cosine(25, least=0.05, warmup=5)
    np.testing.assert_allclose(warm.factors, [0.2, 0.4, 0.6, 0.8, 1.0, *cosine.factors])
    assert schedules.step([4, 8], 0.5, warmup=2).factors == (0.5, 1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.5, 0.25)
    assert schedules.exponential(0.5, least=0.25, warmup=1) == schedules.exponential(0.5, least=0.25)
    assert schedules.exponential(0.5, 2, least=0.25).factors == (1.0, 1.0, 0.5, 0.5, 0.25)
    assert warm.at(10**9) == 0.05
    assert schedules.named("cosine:2", 10, 3) == schedules.cosine(20, warmup=3)
    assert schedules.named("step:2,3", 10) == schedules.step([20, 30])
    assert schedules.named("exponential:0.9", 10, 3) == schedules.exponential(0.9, 10, warmup=3)
    assert schedules.named(None, 10, 3) == schedules.constant(warmup=3) and schedules.named(None, 10) is None


def test_tables_of_integers_say_each_change_once() -> None:
    schedule = schedules.step([2, 5], 0.5)
    assert schedule.integers(-0.75, 4) == ([-12, -6, -3], [2, 3])
    assert schedule.integers(1.0, 0) == ([1, 0], [2])  # half a unit is rounded to even
    assert schedules.constant().integers(3.0, 1) == ([6], [])
    curve = schedules.cosine(5000)
    integers, steps = curve.integers(1.0, 12)
    assert sum(steps) < 5000 and len(integers) == len(steps) + 1 and all(a != b for a, b in pairwise(integers))
    spread = np.repeat(integers, [*steps, 5001 - sum(steps)])
    np.testing.assert_array_equal(spread, np.rint(np.array(curve.factors) * 4096))


@pytest.mark.parametrize(
    ("optimizer", "of_torch", "tolerance"),
    [
        (covey.SGD(0.2), lambda torch, p: torch.optim.SGD(p, 0.2), 2e-3),
        (
            covey.SGD(0.1, 0.01, momentum=0.9, nesterov=True),
            lambda torch, p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.01, nesterov=True),
            3e-3,
        ),
        (covey.Adam(0.02), lambda torch, p: torch.optim.Adam(p, 0.02), 2e-2),
        (covey.adamw(0.02, 0.1), lambda torch, p: torch.optim.AdamW(p, 0.02, weight_decay=0.1), 2e-2),
    ],
)
def test_steps_on_integers_follow_pytorch(optimizer: Any, of_torch: Callable[..., Any], tolerance: float) -> None:
    torch = pytest.importorskip("torch", reason="torch is optional")
    data = table()
    module = networks.build(torch, lambda torch: networks.perceptron(torch, inputs=5))
    scheduled = replace(optimizer, schedule=schedules.cosine(STEPS, least=0.1, warmup=4))
    job = compiled(module, data, example_inputs=(torch.zeros(2, 5),), optimizer=scheduled)
    batches = minibatches(job, data, epochs=3)
    assert len(batches) == STEPS

    class Scheduled:
        """An optimiser whose learning rate PyTorch changes after each step."""

        def __init__(self, parameters: Any) -> None:
            self.inner = of_torch(torch, parameters)
            lr = torch.optim.lr_scheduler
            self.zero_grad = self.inner.zero_grad
            rise = lr.LinearLR(self.inner, 0.25, total_iters=3)
            fall = lr.CosineAnnealingLR(self.inner, STEPS - 4, eta_min=0.1 * self.inner.param_groups[0]["initial_lr"])
            self.schedule = lr.SequentialLR(self.inner, [rise, fall], [4])

        def step(self) -> None:
            self.inner.step()
            self.schedule.step()

    losses, due = networks.torch_steps(torch, module, Scheduled, batches, networks.cross_entropy(torch))
    # Adam adds a little more than PyTorch's epsilon to what it divides by.
    exact = 1e-9 if isinstance(optimizer, covey.SGD) else 1e-4
    np.testing.assert_allclose(rehearse(job.step, batches).losses, losses, rtol=exact)
    trainer = covey.Trainer(ClearSession(load(job.compiled)))
    epochs = list(trainer.fit(*data, epochs=3))
    np.testing.assert_allclose([loss for epoch in epochs for loss in epoch.losses], losses, atol=2e-3)
    off = networks.differences(job.step, trainer.weights(), due)
    assert max(off.values()) < tolerance, off


def test_a_program_holds_one_table_for_each_step_of_a_weight() -> None:
    job = compiled(perceptron(), table(), optimizer=covey.SGD(0.2, schedule=schedules.step([3, 6], 0.5)))
    program = program_of(job.compiled)
    tables = [node.scheduled for node in program.nodes if node.WhichOneof("op") == "scheduled"]
    assert len(tables) == 4 and all(list(each.runs) == [3, 3] for each in tables)
    first, *others = (each / tables[0].multipliers[0] for each in tables[0].multipliers)
    np.testing.assert_allclose([first, *others], [1, 0.5, 0.25], rtol=1e-3)


@pytest.mark.parametrize(
    ("make", "saying"),
    [
        (lambda: schedules.Schedule(()), "a schedule of no steps"),
        (lambda: schedules.Schedule((1.0, 0.0)), "factor 0.0 at step 2: give positive numbers"),
        (lambda: schedules.step([]), "a schedule of no steps"),
        (lambda: schedules.step([3, 3]), "milestones [3, 3]: give rising whole numbers"),
        (lambda: schedules.step(5), "milestones 5: give rising whole numbers"),
        (lambda: schedules.step("ab"), "milestones 'ab': give rising whole numbers"),
        (lambda: schedules.step([2.5]), "milestones [2.5]: give rising whole numbers"),
        (lambda: schedules.step(np.array([], int)), "a schedule of no steps"),
        (lambda: schedules.step([3], "a"), "gamma 'a': give a number between 0 and 1"),
        (lambda: schedules.cosine("10"), "a schedule of '10' steps: give a whole number"),
        (lambda: schedules.cosine(10, warmup=2.5), "a warm-up of 2.5 steps: give a whole number"),
        (lambda: schedules.cosine(10, least=None), "ends at None of the learning rate"),
        (lambda: schedules.exponential(0.5, 1.5), "changes every 1.5 steps: give a whole number"),
        (lambda: schedules.Schedule(("a",)), "factor 'a' at step 1: give positive numbers"),
        (lambda: schedules.step([0]), "milestones [0]: give rising whole numbers"),
        (lambda: schedules.step([3], 1.5), "gamma 1.5: give a number between 0 and 1"),
        (lambda: schedules.step([3], warmup=3), "a warm-up of 3 steps in a schedule of 3: let it be shorter"),
        (lambda: schedules.cosine(0), "a schedule of 0 steps: give a whole number, at least 1"),
        (lambda: schedules.cosine(10, warmup=10), "a warm-up of 10 steps in a schedule of 10"),
        (lambda: schedules.cosine(10, least=0), "ends at 0 of the learning rate: give more than 0"),
        (lambda: schedules.cosine(1 << 21), "changes until step 2097152: it may until step 1048576"),
        (lambda: schedules.exponential(0.0), "gamma 0.0: give a number between 0 and 1"),
        (lambda: schedules.exponential(0.9, 0), "changes every 0 steps"),
        (lambda: schedules.exponential(0.999999999), "it may until step 1048576"),
        (lambda: schedules.constant(warmup=-1), "a warm-up of -1 steps: give a whole number, 0 or more"),
        (lambda: schedules.constant(warmup=1 << 21), "it may until step 1048576"),
        (lambda: schedules.named("linear:3", 10), "schedule 'linear:3' is unknown: use cosine:EPOCHS"),
        (lambda: schedules.named("cosine", 10), "schedule 'cosine' is unknown"),
        (lambda: schedules.named("step:a", 10), "schedule 'step:a' is unknown"),
    ],
)
def test_mistakes_are_named(make: Callable[[], Any], saying: str) -> None:
    with pytest.raises(covey.OptionError, match=re.escape(saying)):
        make()


def test_milestones_may_be_an_array() -> None:
    assert schedules.step(np.array([2, 4])) == schedules.step([2, 4])


def test_what_is_no_schedule_is_refused() -> None:
    wrong: Any = "cosine"
    with pytest.raises(covey.OptionError, match=r"make one, such as covey\.schedules\.cosine"):
        compiled(perceptron(), table(), optimizer=covey.SGD(0.1, schedule=wrong))


def test_a_rate_that_rounds_to_nothing_is_named_with_its_step() -> None:
    optimizer = covey.SGD(0.1, schedule=schedules.step([7], 1e-12))
    with pytest.raises(covey.NodeError, match=r"the factor 2\.5e-14 at step 8 rounds to 0"):
        compiled(perceptron(), table(), optimizer=optimizer)


def test_the_command_takes_schedules(command: Command, tmp_path: Path) -> None:
    x, labels = table()
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", labels)
    model = tmp_path / "model.onnx"
    onnx.save(perceptron(), model)
    asked = ["train", model, "--data", tmp_path / "x.npy", "--labels", tmp_path / "y.npy", "--batch", 4, "--lr", 0.1]
    command.succeeds(*asked, "--schedule", "step:1,2", "--warmup", 3, "--compile", tmp_path / "job.covey")
    nodes = load(tmp_path / "job.covey").program.dump()
    assert "multipliers" in nodes and "from run 20 on" in nodes
    command.refuses(*asked, "--schedule", "triangle", saying="schedule 'triangle' is unknown: use cosine:EPOCHS")
    command.refuses(*asked, "--schedule", "cosine:1", "--warmup", 10, saying="a warm-up of 10 steps in a schedule")
