"""Train a convolutional network on 32 × 32 images with PyTorch and write it as torch.export writes programs.

    python examples/digits32/train.py [--out FOLDER]

The data are scikit-learn's digits, 1,797 grey images of 8 × 8 pixels, enlarged to 32 × 32 and scaled to [0, 1]; 450 of
them are held out. It writes digits32.pt2, the held-out images and their labels, and images to calibrate with. Needs
`pip install torch scikit-learn` and half a minute on two cores. Everything is seeded, but the last bits of the weights
may differ from machine to machine.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

HELD_OUT = 450
CALIBRATION = 100
EPOCHS = 6
BATCH = 64
LEARNING_RATE = 2e-3


class Net(nn.Module):
    """Three convolutions with batch normalisation, a residual block among them, and two dense layers."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 16, 5, 2, 2, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2))
        self.block = nn.Sequential(nn.Conv2d(16, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16))
        self.widen = nn.Sequential(nn.Conv2d(16, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU())
        self.hidden = nn.Linear(512, 64)
        self.head = nn.Linear(64, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Logits of images [N, 1, 32, 32]."""
        features = self.stem(image)
        features = torch.relu(self.block(features) + features)
        return self.head(torch.relu(self.hidden(self.widen(features).flatten(1))))


def load() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Training images, held-out images, training labels, held-out labels; images are [N, 1, 32, 32] in [0, 1]."""
    digits = load_digits()
    images = (digits.images[:, None] / 16).astype(np.float32)
    parts = train_test_split(images, digits.target, test_size=HELD_OUT, stratify=digits.target, random_state=0)
    train_x, test_x, train_y, test_y = (torch.from_numpy(part) for part in parts)

    def enlarged(small: torch.Tensor) -> torch.Tensor:
        return nn.functional.interpolate(small, size=(32, 32), mode="bilinear", align_corners=False)

    return enlarged(train_x), enlarged(test_x), train_y, test_y


def train(images: torch.Tensor, labels: torch.Tensor) -> Net:
    """The trained network, ready for inference."""
    net = Net()
    optimiser = torch.optim.AdamW(net.parameters(), LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, LEARNING_RATE, total_steps=EPOCHS * -(-len(images) // BATCH)
    )
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(images)).split(BATCH):
            loss = nn.functional.cross_entropy(net(images[batch]), labels[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
    return net.eval()


def main() -> None:
    """Train, write four files, report the accuracy."""
    parser = argparse.ArgumentParser(description="Train a network on digits of 32 × 32 pixels.")
    parser.add_argument("--out", type=Path, default=Path("."), help="folder to write (default: the working folder)")
    out: Path = parser.parse_args().out
    torch.manual_seed(0)
    train_x, test_x, train_y, test_y = load()
    started = time.monotonic()
    net = train(train_x, train_y)
    print(f"trained on {len(train_x)} images in {time.monotonic() - started:.1f} s")
    with torch.no_grad():
        accuracy = (net(test_x).argmax(1) == test_y).double().mean().item()
    print(f"float accuracy: {accuracy:.2%} of {len(test_y)} held-out images")

    out.mkdir(parents=True, exist_ok=True)
    batch = torch.export.Dim("batch")
    program = torch.export.export(net, (train_x[:2].clone(),), dynamic_shapes=({0: batch},))
    torch.export.save(program, out / "digits32.pt2")
    np.save(out / "images32.npy", test_x.numpy())
    np.save(out / "labels32.npy", test_y.numpy())
    np.save(out / "calibration32.npy", train_x[:CALIBRATION].numpy())
    for name in ("digits32.pt2", "images32.npy", "labels32.npy", "calibration32.npy"):
        print(f"wrote {name}, {(out / name).stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
