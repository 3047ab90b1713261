"""Standard networks with seeded, untrained weights as ONNX, for verifying and timing Covey.

    model = covey.models.build("resnet18", shape="cifar")
    images = covey.models.samples("cifar", 4)

| model | mnist 1×28×28 | cifar 3×32×32 | imagenet 3×224×224 |
|---|---|---|---|
| lenet5 | yes | yes | |
| alexnet, vgg16, resnet18, resnet50 | | yes, ten classes | yes, a thousand classes |
| resnet32, minionn | | yes, ten classes | |

Pooling between layers is `max` or `avg`. The same call gives the same model, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import onnx

from covey.errors import OptionError
from covey.models import architectures
from covey.models.architectures import Plan, Pool
from covey.models.images import Floats, Shape, pseudo_images
from covey.models.network import Network, Value

__all__ = ["MODELS", "SHAPES", "Floats", "Network", "Spec", "build", "pseudo_images", "samples"]

SAMPLE_SEED = 2

SHAPES: dict[str, Shape] = {"mnist": (1, 28, 28), "cifar": (3, 32, 32), "imagenet": (3, 224, 224)}
"""Image shapes by name."""

CLASSES = {"mnist": 10, "cifar": 10, "imagenet": 1000}

MODELS: dict[str, tuple[Callable[[Plan], Value], tuple[str, ...]]] = {
    "lenet5": (architectures.lenet5, ("mnist", "cifar")),
    "alexnet": (architectures.alexnet, ("cifar", "imagenet")),
    "vgg16": (architectures.vgg16, ("cifar", "imagenet")),
    "resnet18": (architectures.resnet18, ("cifar", "imagenet")),
    "resnet50": (architectures.resnet50, ("cifar", "imagenet")),
    "resnet32": (architectures.resnet32, ("cifar",)),
    "minionn": (architectures.minionn, ("cifar",)),
}
"""Every model's layers, and the shapes it comes in."""


@dataclass(frozen=True)
class Spec:
    """A model of the zoo: architecture, image shape, and how it pools. Raises `OptionError` for one there is not."""

    model: str
    shape: str
    pool: Pool = "max"

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise OptionError(f"model '{self.model}' is not in the zoo: use one of {', '.join(MODELS)}")
        shapes = MODELS[self.model][1]
        if self.shape not in shapes:
            raise OptionError(f"{self.model} has no shape '{self.shape}': use {' or '.join(shapes)}")
        if self.pool not in ("max", "avg"):
            raise OptionError(f"pooling '{self.pool}' is unknown: use max or avg")

    @property
    def label(self) -> str:
        """Such as `vgg16-imagenet-avg`."""
        return f"{self.model}-{self.shape}-{self.pool}"

    @property
    def image(self) -> Shape:
        """Channels, height and width of an input."""
        return SHAPES[self.shape]

    def network(self) -> tuple[onnx.ModelProto, Network]:
        """The model, and the network it was built from, with its ranges."""
        net = Network(self.label, self.image, CLASSES[self.shape])
        return net.model(MODELS[self.model][0](Plan(net, self.pool))), net


def build(model: str, shape: str = "cifar", pool: Pool = "max") -> onnx.ModelProto:
    """A model of the zoo. Raises `OptionError` for one there is not."""
    return Spec(model, shape, pool).network()[0]


def samples(shape: str, count: int, seed: int = SAMPLE_SEED) -> Floats:
    """`count` pseudo-images of a shape, none of them from the batch that networks are built with."""
    if shape not in SHAPES:
        raise OptionError(f"shape '{shape}' is unknown: use {', '.join(SHAPES)}")
    return pseudo_images(count, SHAPES[shape], seed)
