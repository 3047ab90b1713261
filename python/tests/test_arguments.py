"""What callers of a session may give: anything else is one line, before it reaches the parties."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import builders
import covey
from covey.arguments import check_options
from covey.arrays import to_numpy
from covey.certificate import read_labels
from covey.client import Session
from covey.model import load
from covey.parties import Parties


@pytest.fixture(scope="module")
def compiled() -> covey.Compiled:
    return covey.compile(builders.single("Relu", ["N", 4]), input_range=(-1, 1))


@pytest.fixture(scope="module")
def session(compiled: covey.Compiled) -> Session:
    """A session whose parties are never asked: a call that gets through fails by another error."""
    return Session(load(compiled).program, None, "trio")  # type: ignore[arg-type]


@pytest.mark.parametrize("number", [-1, 0.5, 2**63, True, "1"])
def test_counts_are_whole_numbers(session: Session, number: Any) -> None:
    for call in (
        lambda: session.preprocess(number),
        lambda: session.preprocess(1, number),
        lambda: session.fill_store(number),
        lambda: session.infer_rows([[0]], samples=number),
        lambda: session.infer_rows([[0, number]]),
        lambda: session.infer_split(np.zeros((2, 4)), number),
    ):
        with pytest.raises(covey.OptionError, match="use a whole number"):
            call()


def test_no_parts(session: Session) -> None:
    with pytest.raises(covey.OptionError, match="parts is 0"):
        session.infer_split(np.zeros((2, 4)), 0)


@pytest.mark.parametrize(
    "options",
    [
        {"lanes": "a"},
        {"latency_us": -1},
        {"latency_us": 2**32},
        {"window": 1.5},
        {"bandwidth": 2**64},
        {"key_bits": 2**32},
        {"key_bits": 1},
    ],
)
def test_options_are_whole_numbers(options: dict[str, Any]) -> None:
    with pytest.raises(covey.OptionError, match=f"{next(iter(options))} is .*: use a whole number"):
        check_options(options)


@pytest.mark.parametrize("name", ["inner_layer", "inter_linear", "preprocess_linear"])
def test_options_are_true_or_false(name: str) -> None:
    check_options({name: np.True_})
    with pytest.raises(covey.OptionError, match=f"{name} is 'no': use True or False"):
        check_options({name: "no"})


def test_options_have_names() -> None:
    with pytest.raises(covey.OptionError, match="options is 5: give options of a session by name"):
        check_options(5)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"protocol": ["trio"]}, "protocol '['trio']' is unknown"),
        ({"protocol": "beaver", "parties": 2.0}, "parties is 2.0: use a whole number"),
        ({"network": 5}, "network is 5: give it by name, such as {'latency_ms': 20}"),
        ({"device": 5}, "device is 5: use auto, cpu, cuda or cuda:<number>"),
        ({"threads": 1.5}, "threads is 1.5: use a whole number"),
        ({"data_owner_computes": "no"}, "data_owner_computes is 'no': use True or False"),
        ({"options": {"key_bits": 2**32}}, "key_bits is 4294967296: use a whole number from 2 to 64"),
        ({"options": {"linear": "ot"}}, "--linear says how two parties multiply by weights: trio has one way"),
        ({"options": {"preprocess_linear": True}}, "is for layers by lattice encryption: trio has none"),
    ],
)
def test_parties_of_this_machine(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(covey.OptionError, match=re.escape(problem)):
        Parties(**options)


@pytest.mark.parametrize("key_bits", [-1, 8.5, "8", 2**32])
def test_key_bits_of_an_explanation(compiled: covey.Compiled, key_bits: Any) -> None:
    with pytest.raises(covey.OptionError, match=r"key_bits is .*: use a whole number from 2 to 64"):
        covey.explain(compiled, key_bits=key_bits)


def test_options_that_a_compiled_model_has_no_use_for(compiled: covey.Compiled, tmp_path: Path) -> None:
    data = {"x": np.zeros((2, 4))}
    program, _, _ = compiled.save(tmp_path / "x.covey")
    for model in (compiled, program, load(compiled)):
        for options in ({"calibration": data}, {"input_range": (0, 1)}):
            with pytest.raises(covey.OptionError, match="are for models yet to be compiled: leave them out"):
                covey.explain(model, **options)
            with pytest.raises(covey.OptionError, match="are for models yet to be compiled: leave them out"):
                covey.compare([model], **options)
    with pytest.raises(covey.OptionError, match="carries its weights: leave weights out"):
        covey.verify(compiled, "clear", weights="nope")
    # Beside a model that is yet to be compiled they are for that one.
    onnx.save(builders.single("Relu", ["N", 4]), tmp_path / "y.onnx")
    assert len(covey.compare([compiled, tmp_path / "y.onnx"], input_range=(-1, 1)).rows()) > 1


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"labels": [0, 1, 3]}, "the labels array holds 3 at 2, and the model has 3 classes: number them from 0 to 2"),
        ({"labels": np.array([0, -1, 1])}, "the labels array holds -1 at 1, and the model has 3 classes"),
        ({"labels": [0, 1]}, "the labels array holds int64 [2]: give one whole number for each of 3 samples"),
        ({"labels": [[0], [1, 2], [0]]}, "labels are lists: give one whole number for each of 3 samples"),
        ({"labels": 5}, "the labels array holds int: give one whole number"),
        ({"tolerance": float("nan")}, "tolerance is nan: use a number from 0 to 1"),
        ({"tolerance": -1}, "tolerance is -1: use a number from 0 to 1"),
        ({"tolerance": "x"}, "tolerance is 'x': use a number from 0 to 1"),
        ({"regression": "no"}, "regression is 'no': use True or False"),
    ],
)
def test_labels_and_tolerances(options: dict[str, Any], problem: str) -> None:
    data = np.eye(3)
    proto = builders.model([helper.make_node("Relu", ["x"], ["y"])], {"x": ["N", 3]}, ["y"], {})
    with pytest.raises(covey.CoveyError, match=re.escape(problem)):
        covey.tune(proto, data, **options)
    if "labels" in options:
        with pytest.raises(covey.CoveyError, match=re.escape(problem)):
            covey.verify(covey.compile(proto, calibration=data), "clear", data=data, labels=options["labels"])


def test_labels_are_lists_arrays_or_tensors() -> None:
    assert read_labels([0, 2], 2, 3).tolist() == read_labels(np.array([0, 2], np.uint8), 2, 3).tolist() == [0, 2]
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    assert read_labels(torch.tensor([0, 2]), 2, 3).tolist() == [0, 2]


def test_labels_belong_to_data(compiled: covey.Compiled) -> None:
    with pytest.raises(covey.OptionError, match="labels are those of given data: give data, too"):
        covey.verify(compiled, "clear", labels=[0])


def test_masked_arrays() -> None:
    x = np.ma.masked_greater(np.arange(4.0), 2)
    with pytest.raises(covey.DataError, match=r"say what they are first \(x.filled\(0\)\)"):
        to_numpy({"x": x}, ["x"], "input")
    assert type(to_numpy(np.ma.array([1.0, 2.0]), ["x"], "input")) is np.ndarray


@pytest.mark.parametrize(
    "rows",
    [np.zeros((2, 4), complex), np.zeros((2, 4), "M8[s]"), np.full((2, 4), "1"), [[1.0] * 4]],
    ids=["complex", "dates", "texts", "a list"],
)
def test_rows_of_a_data_set_are_numbers(session: Session, rows: Any) -> None:
    with pytest.raises(covey.CoveyError, match=r"input .x. (has dtype|is a)"):
        session.share_data("rows", rows)


def test_name_of_a_data_set(session: Session) -> None:
    with pytest.raises(covey.OptionError, match="cannot be called 'a/b'"):
        session.share_data("a/b", np.zeros((2, 4)))


def test_data_of_several_inputs_by_position() -> None:
    model = builders.model([helper.make_node("Sub", ["x", "pad"], ["y"])], {"x": ["N", 2], "pad": ["N", 2]}, ["y"])
    x, pad = np.full((3, 2), 2.0), np.zeros((3, 2))
    for data in ((x, pad), [x, pad]):
        compiled = covey.compile(model, calibration=data)
        assert covey.verify(compiled, "clear", data=data).passed
        spans = {entry["name"]: entry["high"] > 1 for entry in load(compiled).program.inputs}
        assert spans == {"x": True, "pad": False}
    for data, kind in (((x,), "a tuple"), (x, "one array"), ([x, [0.0]], "a list")):
        with pytest.raises(covey.DataError, match=f"{kind} but .*: give a dict {{'x': .., 'pad': ..}} .*in this order"):
            covey.compile(model, calibration=data)
    single = builders.single("Relu", ["N", 2])
    assert covey.compile(single, calibration=(x,)).program_hash == covey.compile(single, calibration=x).program_hash


def test_tensors_that_are_no_arrays() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x = torch.arange(4.0)
    np.testing.assert_array_equal(to_numpy(x.to(torch.bfloat16), ["x"], "input"), x.numpy())
    np.testing.assert_array_equal(to_numpy(torch._neg_view(x), ["x"], "input"), -x.numpy())
    for tensor in (x.to_sparse(), x.to("meta")):
        with pytest.raises(covey.CoveyError, match="give a dense one"):
            to_numpy(tensor, ["x"], "input")
