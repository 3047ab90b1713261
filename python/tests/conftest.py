"""What several test files share: the digits network compiled once, and parties that stay up for the session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import covey
from command import DIGITS, Command
from covey.parties import Parties

LONG = (
    "test_bad_input.py",
    "test_interrupts.py",
    "test_torch.py",
    "test_pretrained.py",
    "test_bench.py",
    "test_torch_transformers.py",
    "test_one_sample.py",
    "test_training_opening.py",
    "test_models.py",
    "test_training_recurrent.py",
    "test_torch_recurrent.py",
    "test_tune.py",
    "test_store.py",
    "test_networks.py",
    "test_training_memory.py",
    "test_holdings.py",
)
"""Files that take longest, the longest first."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long files begin first where tests run side by side, so that none is left to run alone at the end."""
    if hasattr(config, "workerinput"):
        rank = {name: place for place, name in enumerate(LONG)}
        items.sort(key=lambda item: rank.get(item.path.name, len(LONG)))


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    return Command(capfd, monkeypatch)


@pytest.fixture(scope="session")
def images() -> np.ndarray:
    """450 held-out images [450, 1, 8, 8]."""
    return np.load(DIGITS / "test-images.npy")


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled digits network: digits.covey, with its weights beside it."""
    folder = tmp_path_factory.mktemp("digits")
    compiled = covey.compile(DIGITS / "digits.onnx", calibration=DIGITS / "calibration.npy", input_range=(0, 1))
    return compiled.save(folder / "digits.covey")[0]


@pytest.fixture(scope="session")
def parties() -> Iterator[Parties]:
    """Three parties on this machine."""
    with covey.local("trio", timeout=5) as running:
        yield running
