"""Networks that training is tested with, and what PyTorch makes of a few steps in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from covey.training.calibration import Rehearsal, rehearse
from covey.training.losses import LABELS
from covey.training.step import Step, make

Arrays = dict[str, np.ndarray]


def lenet(torch: Any) -> Any:
    """Two convolutions with pooling and two dense layers, on images of one channel and 28 x 28."""
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 8, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(128, 24), nn.ReLU(), nn.Linear(24, 10),
    )  # fmt: skip


def perceptron(torch: Any, inputs: int = 8, hidden: int = 16, outputs: int = 3) -> Any:
    """One hidden layer."""
    nn = torch.nn
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))


def residual(torch: Any) -> Any:
    """ResNet's first layers for CIFAR in small: a stem, a plain block and one of stride 2 with a projection."""
    nn = torch.nn

    class Block(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self, inputs: int, outputs: int, stride: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(outputs)
            self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(outputs)
            self.shortcut = nn.Sequential()
            if stride != 1 or inputs != outputs:
                self.shortcut = nn.Sequential(
                    nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
                )

        def forward(self, x: Any) -> Any:
            y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
            return torch.relu(y + self.shortcut(x))

    return nn.Sequential(
        nn.Conv2d(3, 4, 3, 1, 1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), Block(4, 4, 1), Block(4, 8, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10),
    )  # fmt: skip


def transformer(torch: Any) -> Any:
    """A two-layer encoder on embedded words, its mean classified."""
    nn = torch.nn

    class Encoder(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(20, 8)
            self.places = nn.Parameter(torch.randn(6, 8) * 0.3)
            layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, activation="gelu", batch_first=True)
            self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.head = nn.Linear(8, 3)

        def forward(self, tokens: Any) -> Any:
            return self.head(self.encoder(self.words(tokens) + self.places).mean(dim=1))

    return Encoder()


def build(torch: Any, network: Callable[..., Any], seed: int = 0) -> Any:
    """A network with random weights, ready to be exported."""
    torch.manual_seed(seed)
    return network(torch).eval()


def rehearsed(step: Step, batches: list[Arrays]) -> Rehearsal:
    """The step's own graph in floating point."""
    return rehearse(step, batches)


def torch_steps(
    torch: Any,
    module: Any,
    optimizer: Any,
    batches: list[Arrays],
    loss: Callable[[Any, Any], Any],
    limit: Callable[[Any], Any] = lambda parameters: None,
) -> tuple[list[float], Arrays]:
    """The losses of these steps in float64, and the module's tensors after them; gradients are clipped by `limit`."""
    module = module.double().train()
    made = optimizer(module.parameters())
    losses = []
    for batch in batches:
        inputs = [torch.from_numpy(array[0]) for name, array in batch.items() if name != LABELS]
        inputs = [x.long() if not x.is_floating_point() or module_takes_words(module) else x for x in inputs]
        value = loss(module(*inputs), torch.from_numpy(batch[LABELS][0]))
        made.zero_grad()
        value.backward()
        limit(module.parameters())
        made.step()
        losses.append(value.item())
    return losses, {name: tensor.detach().numpy() for name, tensor in module.state_dict().items()}


def module_takes_words(module: Any) -> bool:
    """Whether its inputs are token ids."""
    return hasattr(module, "words")


def cross_entropy(torch: Any) -> Callable[[Any, Any], Any]:
    """PyTorch's, with labels as floats."""
    return lambda scores, labels: torch.nn.functional.cross_entropy(scores, labels.long())


def step_of(module: Any, example: Any, **options: Any) -> Step:
    """The step of a module."""
    return make(module, (example,), **options)


def differences(step: Step, found: Mapping[str, np.ndarray], due: Arrays) -> dict[str, float]:
    """How far what was trained is from what it should be, beside how far it moved."""
    off = {}
    for entry in step.trained:
        moved = np.linalg.norm(due[entry.name] - entry.initial)
        off[entry.name] = float(np.linalg.norm(found[entry.name] - due[entry.name]) / max(moved, 1e-12))
    return off
