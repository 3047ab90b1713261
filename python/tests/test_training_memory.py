"""Planned memory of training against what the parties' processes took, where the weights are most of it."""

from __future__ import annotations

import itertools
import json
import sys

import numpy as np
import pytest
from onnx import helper

import builders
import covey
from covey import _core

BATCH, STEPS, WIDTH = 8, 2, 1024
SIZES = [WIDTH, 3 * WIDTH // 2, WIDTH, 10]
WEIGHTS = sum(inputs * outputs for inputs, outputs in itertools.pairwise(SIZES))


@pytest.fixture(scope="module")
def job() -> covey.Job:
    """An MLP of three million weights, with momentum."""
    rng = np.random.default_rng(0)
    constants, nodes = {}, []
    for layer, (inputs, outputs) in enumerate(itertools.pairwise(SIZES)):
        constants[f"w{layer}"] = builders.weights(rng, outputs, inputs)
        constants[f"b{layer}"] = np.zeros(outputs)
        last = layer == len(SIZES) - 2
        x, y = "x" if layer == 0 else f"r{layer - 1}", "scores" if last else f"h{layer}"
        nodes.append(helper.make_node("Gemm", [x, f"w{layer}", f"b{layer}"], [y], name=y, transB=1))
        if not last:
            nodes.append(helper.make_node("Relu", [y], [f"r{layer}"], name=f"r{layer}"))
    model = builders.model(nodes, {"x": ["N", WIDTH]}, ["scores"], constants)
    return covey.compile_training(
        model, loss="cross-entropy", optimizer=covey.SGD(0.01, momentum=0.9), batch=BATCH, calibration=data()
    )


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    return rng.uniform(-1, 1, (BATCH * STEPS, WIDTH)), rng.integers(0, 10, BATCH * STEPS)


@pytest.mark.skipif(sys.platform != "linux", reason="no other system tells how much memory a process took")
@pytest.mark.parametrize(("protocol", "parties"), [("trio", 3), ("quad", 4), ("beaver", 2)])
def test_the_plan_is_near_what_the_parties_take(job: covey.Job, protocol: str, parties: int) -> None:
    made = job.compiled
    planned = json.loads(_core.plan(covey.Program(made.program_bytes), protocol, 1))
    x, labels = data()
    with covey.local(protocol) as running:
        session = running.session(made)
        for step in range(STEPS):
            rows = slice(step * BATCH, (step + 1) * BATCH)
            result = session.infer({"x": x[None, rows], "labels": labels[None, rows]}, continues=step > 0)
    # A dealer's shares are zeros, and whether these take memory is up to the allocator.
    for role in range(parties):
        peak = result.parties[role].peak_memory_bytes
        held, ahead = planned["memory"][role], planned["dealt_ahead"][role]
        assert peak is not None
        # How far a dealer gets ahead depends on the machine.
        assert 0.75 * held < peak < 1.2 * (held + ahead), (role, peak, held, ahead)
        # Three tensors as large as the weights: these, what they have changed, and their momentum.
        assert held > 3 * 8 * WEIGHTS


def test_what_is_dealt_ahead_is_planned_up_to_what_parties_take_in(job: covey.Job) -> None:
    made = job.compiled
    planned = json.loads(_core.plan(covey.Program(made.program_bytes), "trio", 1))
    dealt = {link["to"]: link["bytes"] for link in planned["total"]["links"] if link["offline"]}
    assert set(dealt) == {1, 2} and planned["dealt_ahead"][0] == 0
    for role, bytes_dealt in dealt.items():
        # The weights' part of it comes at the end of a step.
        assert bytes_dealt / 2 < planned["dealt_ahead"][role] < 1.1 * bytes_dealt
        assert planned["dealt_ahead"][role] < 256 << 20
