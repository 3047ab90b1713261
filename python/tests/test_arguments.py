"""What callers of a session may give: anything else is one line, before it reaches the parties."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import builders
import covey
from covey.arguments import check_options
from covey.arrays import to_numpy
from covey.client import Session
from covey.model import load


@pytest.fixture(scope="module")
def session() -> Session:
    """A session whose parties are never asked: a call that gets through fails by another error."""
    proto = builders.single("Relu", ["N", 4])
    return Session(load(covey.compile(proto, input_range=(-1, 1))).program, None, "trio")  # type: ignore[arg-type]


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


def test_tensors_that_are_no_arrays() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x = torch.arange(4.0)
    np.testing.assert_array_equal(to_numpy(x.to(torch.bfloat16), ["x"], "input"), x.numpy())
    np.testing.assert_array_equal(to_numpy(torch._neg_view(x), ["x"], "input"), -x.numpy())
    for tensor in (x.to_sparse(), x.to("meta")):
        with pytest.raises(covey.CoveyError, match="give a dense one"):
            to_numpy(tensor, ["x"], "input")
