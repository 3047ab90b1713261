"""Ranges of inputs that the parties enforce: nothing changes within them, and no share gets beyond them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import builders
import covey
import ensembles
import interpreter
from covey.emit import program_file
from covey.explanation import what_a_run_reveals

RANGE = (-1.5, 2.0)


def network() -> Any:
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"], name="first", transB=1),
        helper.make_node("Relu", ["h"], ["y"], name="relu"),
    ]
    constants = {"w": builders.weights(rng, 4, 3), "b": rng.normal(size=4)}
    return builders.model(nodes, {"x": ["N", 3]}, ["y"], constants)


def trusting(compiled: covey.Compiled) -> covey.Compiled:
    """The program for clients that share any number below 2^30 units, as a client that was changed may."""
    program = interpreter.program_of(compiled)
    x = program.values[program.inputs[0]]
    x.bound.bits = 30
    x.range.low, x.range.high = (np.ldexp(end, 29 - x.scale) for end in (-1.0, 1.0))
    content, digest = program_file(program, "trusting")
    return replace(compiled, program_bytes=content, program_hash=digest)


def test_numbers_within_are_the_same() -> None:
    plain, enforced = (
        covey.compile(network(), input_range=RANGE, enforce_ranges=enforced) for enforced in (False, True)
    )
    data = np.random.default_rng(1).uniform(*RANGE, (20, 3))
    data[0], data[1] = RANGE
    np.testing.assert_array_equal(*(interpreter.run(each, {"x": data})[0] for each in (plain, enforced)))
    assert enforced.report["inputs"][0]["enforced"] and not plain.report["inputs"][0]["enforced"]
    assert "enforced by the parties" in str(enforced)
    assert [row["bound"] for row in enforced.rows()[:2]] == ["enforced"] * 2
    revealed = [what_a_run_reveals(covey.Program(each.program_bytes)) for each in (plain, enforced)]
    assert revealed[0] == revealed[1]  # nothing about calibration data, of which there are none


def test_data_that_reach_less_than_the_range_narrow_nothing() -> None:
    data = np.random.default_rng(1).uniform(-0.1, 0.1, (20, 3))
    plain, enforced = (
        covey.compile(network(), input_range=(-20, 20), calibration=data, enforce_ranges=enforced)
        for enforced in (False, True)
    )
    far = np.random.default_rng(2).uniform(-20, 20, (20, 3))
    np.testing.assert_array_equal(*(interpreter.run(each, {"x": far})[0] for each in (plain, enforced)))


@pytest.mark.parametrize("protocol", ["trio", "quad", "two-party", "beaver"])
def test_no_share_gets_beyond(protocol: str) -> None:
    compiled = trusting(covey.compile(network(), input_range=RANGE, enforce_ranges=True))
    data = np.random.default_rng(2).uniform(-2, 3, (8, 3))
    data[::2] *= 2.0**12
    with covey.local(protocol=protocol) as parties:
        (far,) = parties.run(compiled, data).outputs.values()
        (due,) = parties.run(compiled, np.clip(data, *RANGE)).outputs.values()
    np.testing.assert_array_equal(far, due)


def test_trees_and_whole_numbers() -> None:
    rng = np.random.default_rng(3)
    lists = ensembles.attributes([ensembles.grow(rng, 3, 2, 1) for _ in range(3)], "target", 1)
    proto = ensembles.single("TreeEnsembleRegressor", 2, n_targets=1, **lists)
    data = np.round(rng.uniform(-2, 2, (40, 2)), 2)
    plain, enforced = (covey.compile(proto, calibration=data, enforce_ranges=enforced) for enforced in (False, True))
    scales = [each.values[each.inputs[0]].scale for each in map(interpreter.program_of, (plain, enforced))]
    assert scales[0] == scales[1] < 16
    np.testing.assert_array_equal(*(interpreter.run(each, {"x": data})[0] for each in (plain, enforced)))


def test_one_number_alone() -> None:
    compiled = covey.compile(network(), input_range=(1, 1), enforce_ranges=True)
    first, second = interpreter.program_of(compiled).nodes[:2]
    assert second.clip.high == first.clip.low + 1


def test_ids_are_refused() -> None:
    nodes = [helper.make_node("Gather", ["table", "ids"], ["y"], name="embedding")]
    model = builders.model(nodes, {"ids": ["N", 4]}, ["y"], {"table": np.eye(5)}, types={"ids": onnx.TensorProto.INT64})
    with pytest.raises(covey.OptionError, match=r"'ids' takes ids, shared as one-hot rows.*--enforce-ranges"):
        covey.compile(model, enforce_ranges=True)
