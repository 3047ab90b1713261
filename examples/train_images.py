"""Train a network of covey.models on labelled images with PyTorch, and write the ONNX that `covey compile` takes.

    python examples/train_images.py resnet18 --operator x --data CheXpert-v1.0-small --out trained
    python examples/train_images.py shufflenetv2 --data digits --size 32 --epochs 1 --out trained

The recipe is that of the efficient-models paper (arXiv:2209.00411) where it says one: images of 320 × 320, SGD from a
learning rate of 0.001 on, 10 epochs, batches of 16. Momentum and the rate's way down to 0, along a cosine, are ours.
`image_data.py` says which data are read, and how. The folder gets network.onnx, calibration.npy, and images.npy with
labels.npy of the first validation samples. A GPU is used if PyTorch finds one. Needs `pip install torch pillow`.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import image_data
import numpy as np
import onnx
import torch
from image_data import Images, Part
from torch import nn
from torch.nn import functional

from covey import CoveyError, OptionError, models
from covey.nn import ZooNetwork

CALIBRATION, KEPT = 32, 32
"""Images that calibrate, and validation samples that are written."""


@dataclass(frozen=True)
class Recipe:
    """How a network is trained; the seed draws its weights and the order of the images."""

    epochs: int = 10
    batch: int = 16
    learning_rate: float = 1e-3
    momentum: float = 0.9
    seed: int = 0


def train(network: nn.Module, part: Part, count: int, recipe: Recipe, say: Callable[[str], None]) -> list[float]:
    """Draw the weights and train on the part's first `count` images; the mean loss of each epoch."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(recipe.seed)
    redraw(network)
    network.to(device, memory_format=torch.channels_last).train()
    optimizer = torch.optim.SGD(network.parameters(), recipe.learning_rate, recipe.momentum)
    steps = max(1, count // recipe.batch)  # whole batches, as a normalisation cannot do with one image
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, recipe.epochs * steps)
    means = []
    for epoch in range(1, recipe.epochs + 1):
        losses = []
        for places in torch.randperm(count).split(recipe.batch)[:steps]:
            loss = loss_of(network(part.images(places.tolist()).to(device)), part.labels[places].to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
        means.append(float(np.mean(losses)))
        say(f"epoch {epoch} of {recipe.epochs}: mean loss {means[-1]:.4f}")
    network.eval()
    return means


def redraw(network: nn.Module) -> None:
    """New weights of convolutions and dense layers, as He and others propose; normalisations stay as they are."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def loss_of(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross-entropy: of one class for each sample, or of each label by itself."""
    if labels.is_floating_point():
        return functional.binary_cross_entropy_with_logits(logits, labels)
    return functional.cross_entropy(logits, labels)


def logits_of(network: nn.Module, part: Part, count: int) -> np.ndarray:
    """The trained network's logits for the part's first `count` images, [count, classes]."""
    device = next(network.parameters()).device
    with torch.inference_mode():
        found = [network(images.to(device)).cpu().numpy() for images in batches(part, count)]
    return np.concatenate(found)


def batches(part: Part, count: int, batch: int = 64) -> Iterator[torch.Tensor]:
    """The part's first `count` images, in order."""
    for start in range(0, count, batch):
        yield part.images(range(start, min(start + batch, count)))


def accuracy(logits: np.ndarray, classes: np.ndarray) -> float:
    """The share of samples whose largest logit is that of their class."""
    return float((logits.argmax(axis=1) == classes).mean())


def area(scores: np.ndarray, truth: np.ndarray) -> float:
    """The area under the receiver operating curve: how often a sample with the label scores above one without.

    NaN where all samples have the label, or none has.
    """
    with_label = truth > 0.5
    count = int(with_label.sum())
    _, places, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]  # equal scores share the mean of their ranks
    pairs = count * (len(truth) - count)
    return float((ranks[with_label].sum() - count * (count + 1) / 2) / pairs) if pairs else float("nan")


def judged(data: Images, logits: np.ndarray) -> list[str]:
    """What is printed of the validation samples: accuracy, or the area under the curve of each label."""
    labels = data.valid.labels[: len(logits)].numpy()
    if not data.valid.labels.is_floating_point():
        return [f"accuracy {accuracy(logits, labels):.2%} of {len(logits):,} validation samples"]
    areas = [area(logits[:, place], labels[:, place]) for place in range(data.classes)]
    known = [each for each in areas if not np.isnan(each)]
    lines = [
        f"{name:<28}{'one class only' if np.isnan(each) else f'{each:.4f}'}"
        for name, each in zip(data.names, areas, strict=True)
    ]
    mean = f"{np.mean(known):.4f}" if known else "unknown"
    return [*lines, f"mean AUC {mean} over {len(known)} labels of {len(logits):,} validation samples"]


def write(network: ZooNetwork, data: Images, count: int, folder: Path) -> None:
    """The model, and what compiling and verifying it needs."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        onnx.save(network.to_onnx(), folder / "network.onnx")
        kept = range(min(KEPT, len(data.valid.labels)))
        np.save(folder / "calibration.npy", data.train.images(range(min(CALIBRATION, count))).numpy())
        np.save(folder / "images.npy", data.valid.images(kept).numpy())
        np.save(folder / "labels.npy", data.valid.labels[: len(kept)].numpy())
    except OSError as error:
        raise CoveyError(f"cannot write to '{folder}': {error.strerror}") from None
    low, high = data.range
    print(f"wrote {folder}; compile it with --calibration {folder}/calibration.npy --input-range {low:.4f},{high:.4f}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, validate, write."""
    parser = argparse.ArgumentParser(description="Train a network of covey.models on labelled images.")
    known = [name for name, each in models.MODELS.items() if each.any_size]
    usual = Recipe()
    parser.add_argument("model", choices=known, metavar="MODEL", help=", ".join(known))
    parser.add_argument("--data", required=True, help="a folder like CheXpert's or MNIST's, or digits")
    parser.add_argument("--out", type=Path, required=True, help="the folder to write to")
    parser.add_argument("--operator", help=f"in place of dense convolutions: {', '.join(models.OPERATORS)}")
    parser.add_argument("--width", type=float, help="channels, as a part of those published")
    parser.add_argument("--size", type=int, default=320, help="the side of images (default 320)")
    parser.add_argument("--images", type=int, help="train on the first so many (default: all)")
    parser.add_argument("--validation", type=int, help="validate on the first so many (default: all)")
    parser.add_argument("--uncertain", choices=image_data.UNCERTAIN, default="ones", help="what -1 counts as")
    parser.add_argument("--epochs", type=int, default=usual.epochs)
    parser.add_argument("--batch", type=int, default=usual.batch)
    parser.add_argument("--learning-rate", type=float, default=usual.learning_rate)
    parser.add_argument("--momentum", type=float, default=usual.momentum)
    parser.add_argument("--seed", type=int, default=usual.seed)
    chosen = parser.parse_args(arguments)
    for name in ("images", "validation", "epochs", "batch", "learning_rate"):
        if getattr(chosen, name) is not None and getattr(chosen, name) <= 0:
            parser.error(f"--{name.replace('_', '-')} must be above 0")
    recipe = Recipe(chosen.epochs, chosen.batch, chosen.learning_rate, chosen.momentum, chosen.seed)
    try:
        data = image_data.load(chosen.data, chosen.size, chosen.uncertain)
        count = min(chosen.images or len(data.train.labels), len(data.train.labels))
        if count < 2:
            raise OptionError(f"{count} image to train on: give at least 2, which a normalisation needs")
        network = ZooNetwork(built(chosen.model, data.classes, chosen.size, chosen.operator, chosen.width))
        print(f"{count:,} images of {chosen.size} × {chosen.size} to train on", flush=True)
        train(network, data.train, count, recipe, lambda line: print(line, flush=True))
        valid = min(chosen.validation or len(data.valid.labels), len(data.valid.labels))
        print(*judged(data, logits_of(network, data.valid, valid)), sep="\n")
        write(network, data, count, chosen.out)
    except CoveyError as error:
        sys.exit(f"error: {error}")


def built(model: str, classes: int, size: int, operator: str | None, width: float | None) -> onnx.ModelProto:
    """A network of the zoo, untrained. Raises `OptionError` for what there is not."""
    return models.find(model, operator=operator, size=size, classes=classes, width=width).build()


if __name__ == "__main__":
    main()
