"""Train a vision transformer on the handwritten digits of `covey demo` and write it for Covey.

    python examples/digits_vit/train.py --out digits-vit

An image of 8 × 8 pixels is 16 patches of 2 × 2, each a token of 32 numbers; a class token stands before them. Two
encoder layers of `torch.nn` with four heads follow. Training takes half a minute. The folder gets `digits-vit.pt2`, the
held-out images and labels, and calibration images.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "digits"))
from train import load

EPOCHS = 80
BATCH = 64
LEARNING_RATE = 5e-3
WEIGHT_DECAY = 0.05
CALIBRATION = 100


class VisionTransformer(nn.Module):
    """Logits [N, 10] of images [N, 1, 8, 8] in [0, 1]."""

    def __init__(self, width: int = 32, heads: int = 4, layers: int = 2, patch: int = 2, dropout: float = 0.0) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, width, patch, stride=patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(0.02 * torch.randn(1, 1 + (8 // patch) ** 2, width))
        layer = nn.TransformerEncoderLayer(
            width, heads, 2 * width, dropout, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, norm=nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, image: Tensor) -> Tensor:
        tokens = self.patches(image).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.class_token.expand(tokens.shape[0], -1, -1), tokens], dim=1) + self.positions
        return self.head(self.encoder(tokens)[:, 0])


def trained(images: Tensor, labels: Tensor) -> VisionTransformer:
    """The network after training, in evaluation mode."""
    model = VisionTransformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    steps = EPOCHS * (len(images) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=steps)
    model.train()
    for _ in range(EPOCHS):
        order = torch.randperm(len(images))
        for start in range(0, len(images) - BATCH + 1, BATCH):
            chosen = order[start : start + BATCH]
            loss = nn.functional.cross_entropy(model(_moved(images[chosen])), labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return model.eval()


def _moved(images: Tensor) -> Tensor:
    """Each image moved by a pixel at most, as digits are written."""
    padded = nn.functional.pad(images, (1, 1, 1, 1))
    down, right = torch.randint(0, 3, (2,)).tolist()
    return padded[:, :, down : down + 8, right : right + 8]


def main() -> None:
    """Train, test and write."""
    parser = argparse.ArgumentParser(description="Train a vision transformer on the handwritten digits.")
    parser.add_argument("--out", type=Path, default=Path("digits-vit"), help="folder to write to")
    folder = parser.parse_args().out
    torch.manual_seed(0)
    torch.set_num_threads(1)  # the matrices are small
    train_x, test_x, train_y, test_y = load()
    model = trained(torch.from_numpy(train_x), torch.from_numpy(train_y))
    with torch.no_grad():
        right = (model(torch.from_numpy(test_x)).argmax(1).numpy() == test_y).mean()
    folder.mkdir(parents=True, exist_ok=True)
    example = (torch.from_numpy(test_x[:2]),)
    program = torch.export.export(model, example, dynamic_shapes=({0: torch.export.Dim("batch")},))
    torch.export.save(program, folder / "digits-vit.pt2")
    np.save(folder / "images.npy", test_x)
    np.save(folder / "labels.npy", test_y)
    np.save(folder / "calibration.npy", train_x[:CALIBRATION])
    print(f"{right:.2%} of {len(test_y)} held-out images right; written to {folder}")


if __name__ == "__main__":
    main()
