"""Programs of a sequence's steps: what parties carry from run to run equals the specification and follows the model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import builders
import covey
from command import Command
from covey import _core
from covey.clear import ClearSession, run_clear
from covey.model import load
from covey.parties import Parties

STEPS = 6


@pytest.fixture(scope="module", params=["trio", "quad", "beaver", "two-party"])
def every(request: pytest.FixtureRequest) -> Iterator[Parties]:
    with covey.local(request.param) as running:
        yield running


def cell() -> onnx.ModelProto:
    """A recurrent cell: its state after a number, and what it gives."""
    rng = np.random.default_rng(3)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="input"),
        helper.make_node("MatMul", ["h", "u"], ["b"], name="state"),
        helper.make_node("Add", ["a", "b"], ["c"], name="sum"),
        helper.make_node("Tanh", ["c"], ["h_next"], name="next"),
        helper.make_node("MatMul", ["h_next", "v"], ["y"], name="answer"),
    ]
    constants = {"w": builders.weights(rng, 3, 4), "u": builders.weights(rng, 4, 4), "v": builders.weights(rng, 4, 2)}
    return builders.model(nodes, {"x": ["N", 3], "h": ["N", 4]}, ["y", "h_next"], constants)


def sequence(batch: int = 2) -> list[np.ndarray]:
    return list(np.random.default_rng(5).uniform(-1, 1, (STEPS, batch, 3)))


def roll(proto: onnx.ModelProto, xs: list[np.ndarray]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The answers of the float model, and the states before each step."""
    state, answers, states = np.zeros((len(xs[0]), 4)), [], []
    for x in xs:
        states.append(state)
        answer, state = builders.float_results(proto, {"x": x, "h": state})
        answers.append(answer)
    return answers, states


@pytest.fixture(scope="module")
def compiled() -> covey.Compiled:
    xs = list(np.random.default_rng(4).uniform(-1, 1, (STEPS, 8, 3)))
    calibration = {"x": np.concatenate(xs), "h": np.concatenate(roll(cell(), xs)[1])}
    return covey.compile(cell(), calibration=calibration, carry={"h": "h_next"})


def test_the_program_has_neither_the_input_nor_the_output(compiled: covey.Compiled) -> None:
    program = _core.Program(compiled.program_bytes)
    assert [entry["name"] for entry in program.inputs] == ["x"]
    assert [entry["name"] for entry in program.outputs] == ["y"]
    (carried,) = program.carried
    assert (carried["name"], carried["next"], carried["shape"]) == ("h", "h_next", [4])
    assert compiled.report["carried"] == [{"name": "h", "next": "h_next", "shape": ["N", 4]}]
    assert compiled.report["measured"]["error"] < 0.01


def test_a_sequence_in_the_clear_follows_the_model(compiled: covey.Compiled) -> None:
    session, xs = ClearSession(load(compiled)), sequence()
    answers, _ = roll(cell(), xs)
    got = [session.infer(x, continues=index > 0).outputs["y"] for index, x in enumerate(xs)]
    np.testing.assert_allclose(got, answers, atol=5e-3)
    # Without what is carried the last step gives something else.
    alone = run_clear(load(compiled), xs[-1]).outputs["y"]
    assert np.abs(alone - answers[-1]).max() > 0.05
    done = ClearSession(load(compiled)).infer_all(xs)
    np.testing.assert_array_equal([result.outputs["y"] for result in done.results], got)


def test_sequences_equal_the_specification_in_every_protocol(compiled: covey.Compiled, every: Parties) -> None:
    model, xs = load(compiled), sequence()
    clear = ClearSession(model).infer_all(xs)
    session = every.session(model)
    first = session.infer_all(xs[:3])
    # A run that is of no sequence, and another sequence, go on apart.
    every.run(model, xs[0])
    every.session(model).infer(xs[1])
    rest = [session.infer(x, continues=True) for x in xs[3:]]
    for result, due in zip([*first.results, *rest], clear.results, strict=True):
        np.testing.assert_array_equal(result.integers["y"], due.integers["y"])
    again = session.infer(xs[0])
    np.testing.assert_array_equal(again.integers["y"], clear.results[0].integers["y"])
    with pytest.raises(covey.CoveyError, match=r"the run of 1 sample\(s\) continues one of 2: begin a new sequence"):
        session.infer(xs[0][:1], continues=True)


def test_a_first_run_is_verified_as_other_programs_are(compiled: covey.Compiled, parties: Parties) -> None:
    result = parties.run(load(compiled), sequence()[0])
    np.testing.assert_allclose(result.outputs["y"], roll(cell(), sequence())[0][0], atol=5e-3)
    assert covey.verify(compiled, data=sequence()[0]).passed


def test_without_calibration_the_declared_range_must_hold_what_is_carried() -> None:
    ranges = {"x": (-1.0, 1.0), "h": (-1.0, 1.0)}
    proved = covey.compile(cell(), input_range=ranges, carry={"h": "h_next"})
    assert _core.Program(proved.program_bytes).carried[0]["proved"]
    with pytest.raises(
        covey.DoesNotFitError, match="carried to the next run as 'h', whose declared range does not hold"
    ):
        covey.compile(cell(), input_range=ranges | {"h": (-0.5, 0.5)}, carry={"h": "h_next"})


@pytest.mark.parametrize(
    ("carry", "problem"),
    [
        ({"z": "h_next"}, "'z' is no input; the inputs are 'x', 'h'"),
        ({"h": "z"}, "'z' is no output; the outputs are 'y', 'h_next'"),
        ({"h": 2}, "'2' is no output; the outputs are 'y', 'h_next'"),
        ({"x": "h_next"}, "differ; let the output be as the input is"),
        ({"h": "h_next", "x": "y"}, "differ; let the output be as the input is"),
    ],
)
def test_what_cannot_be_carried_is_refused(carry: dict[str, str | int], problem: str) -> None:
    with pytest.raises(covey.OptionError, match=re.escape(problem)):
        covey.compile(cell(), input_range=(-1, 1), carry=carry)


def test_every_output_carried_and_every_input_carried_are_refused() -> None:
    identity = builders.model(
        [helper.make_node("Tanh", ["x"], ["y"], name="f"), helper.make_node("Exp", ["x"], ["z"], name="g")],
        {"x": ["N", 3]},
        ["y", "z"],
    )
    with pytest.raises(covey.OptionError, match="every input is carried and none is shared"):
        covey.compile(identity, input_range=(-1, 1), carry={"x": "y"})
    one = builders.model(
        [helper.make_node("Add", ["x", "h"], ["s"], name="s"), helper.make_node("Tanh", ["s"], ["y"], name="f")],
        {"x": ["N", 3], "h": ["N", 3]},
        ["y"],
    )
    with pytest.raises(covey.OptionError, match="every output is carried and none is revealed"):
        covey.compile(one, input_range=(-1, 1), carry={"h": "y"})


def test_files_keep_what_is_carried(compiled: covey.Compiled, tmp_path: Path, command: Command) -> None:
    program, _, _ = compiled.save(tmp_path / "cell.covey")
    assert load(program).program.carried == _core.Program(compiled.program_bytes).carried
    shown = command("explain", str(program)).out
    assert "carried" in shown and "h" in shown
    with pytest.raises(covey.CoveyError, match="is no program for generation"):
        covey.Generator(ClearSession(load(program)))
