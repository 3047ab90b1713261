"""Random PyTorch modules against themselves, also through ONNX: a few in `make test`, 1,000 with COVEY_IN_FULL=1."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

import random_modules

IN_FULL = "COVEY_IN_FULL" in os.environ


@pytest.mark.parametrize("seed", range(1000 if IN_FULL else 12))
def test_a_random_module_is_never_wrong(seed: int) -> None:
    kind, text = random_modules.judge(seed, program=IN_FULL or seed % 4 == 0)
    assert kind != "wrong", f"{text}\n{random_modules.drawn(seed)[0]}"


@pytest.mark.parametrize("seed", range(1000 if IN_FULL else 8))
def test_a_random_module_through_onnx_is_never_wrong(seed: int) -> None:
    kind, text = random_modules.judge(seed, program=IN_FULL or seed % 4 == 0, through_onnx=True)
    assert kind != "wrong", f"{text}\n{random_modules.drawn(seed)[0]}"


def test_most_random_modules_are_supported() -> None:
    """Their steps are those that are known to be supported, so that few may be refused."""
    kinds = [random_modules.judge(seed)[0] for seed in range(100, 108)]
    assert kinds.count("same") >= 6
