"""Training of random PyTorch modules against PyTorch's: a few in `make test`, 1,000 with COVEY_IN_FULL=1."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

import random_training

IN_FULL = "COVEY_IN_FULL" in os.environ


@pytest.mark.parametrize("seed", range(1000 if IN_FULL else 3))
def test_training_of_a_random_module_is_never_wrong(seed: int) -> None:
    kind, text = random_training.judge(seed, program=IN_FULL or seed == 0)
    assert kind != "wrong", f"{text}\n{random_training.drawn(seed)}"
    if seed < 3:
        assert kind.startswith("same"), text
