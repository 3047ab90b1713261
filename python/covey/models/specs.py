"""What there is in the zoo: each model with its sizes, its samples, and what a compiler is told of its inputs."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from covey.errors import OptionError
from covey.models import architectures, mobile, transformers
from covey.models.architectures import Plan, Pool
from covey.models.forms import OPERATORS, Operator
from covey.models.images import Shape, pseudo_images
from covey.models.network import BATCH_SEED, Network, Value
from covey.models.sequences import SequenceNetwork
from covey.models.transformers import Sizes

Samples = dict[str, npt.NDArray[Any]]
"""Arrays [N, ..] by the input's name."""

SAMPLE_SEED, CALIBRATION_SEED = 2, 3

CALIBRATION_ELEMENTS = 4 * 3 * 224 * 224
"""Pixels of the images that calibrate a model: four large ones, or up to 64 small ones."""

CALIBRATION_SEQUENCES = 4
"""Sequences, or large images, that calibrate a Transformer; of GPT-2's as many steps each."""

FARTHEST = 5.0
"""No element of a normalised row is farther from 0 in samples of hidden states."""

SHAPES: dict[str, Shape] = {
    "mnist": (1, 28, 28),
    "cifar": (3, 32, 32),
    "tinyimagenet": (3, 64, 64),
    "imagenet": (3, 224, 224),
}
"""Image shapes by name."""

CLASSES = {"mnist": 10, "cifar": 10, "tinyimagenet": 200, "imagenet": 1000}

SIZES = (32, 1024)
"""The smallest and the largest side of an image where a network takes any."""

WIDTHS = (0.05, 4.0)
"""The least and the largest part of its published channels that a network may have."""


@dataclass(frozen=True)
class Architecture:
    """A network of images: its layers, and the shapes it comes in, its own first."""

    layers: Callable[[Plan], Value]
    shapes: tuple[str, ...]
    any_size: bool = False
    """Whether images may have any size, because an average over the map precedes the classifier."""
    any_width: bool = False
    """Whether it may be thinned or widened."""
    published: Operator | None = None
    """The form that its authors gave it, where the zoo has others."""


COLOUR = ("cifar", "tinyimagenet", "imagenet")
"""Of networks that are usual for small images."""

LARGE = ("imagenet", "tinyimagenet", "cifar")
"""Of networks that their authors made for large images."""

MODELS: dict[str, Architecture] = {
    "lenet5": Architecture(architectures.lenet5, ("mnist", "cifar")),
    "alexnet": Architecture(architectures.alexnet, COLOUR),
    "vgg11": Architecture(architectures.vgg11, COLOUR),
    "vgg16": Architecture(architectures.vgg16, COLOUR),
    "vgg19": Architecture(architectures.vgg19, COLOUR),
    "resnet18": Architecture(architectures.resnet18, COLOUR, True, True, "dense"),
    "resnet34": Architecture(architectures.resnet34, COLOUR, True, True, "dense"),
    "resnet50": Architecture(architectures.resnet50, COLOUR, True, True, "dense"),
    "resnet101": Architecture(architectures.resnet101, COLOUR, True, True, "dense"),
    "resnet152": Architecture(architectures.resnet152, COLOUR, True, True, "dense"),
    "squeezenet": Architecture(architectures.squeezenet, LARGE, True),
    "densenet121": Architecture(architectures.densenet121, LARGE, True, False, "dense"),
    "mobilenetv2": Architecture(mobile.mobilenetv2, LARGE, True, False, "factorised"),
    "mobilenetv3-small": Architecture(mobile.mobilenetv3_small, LARGE, True, False, "factorised"),
    "mobilenetv3-large": Architecture(mobile.mobilenetv3_large, LARGE, True, False, "factorised"),
    "shufflenetv2": Architecture(mobile.shufflenetv2, LARGE, True, True, "factorised"),
    "efficientnet-b0": Architecture(mobile.efficientnet_b0, LARGE, True, False, "factorised"),
    "resnet32": Architecture(architectures.resnet32, ("cifar",), True),
    "minionn": Architecture(architectures.minionn, ("cifar",)),
}
"""Every network of images, by name."""


@dataclass(frozen=True)
class Kind:
    """A Transformer: what it reads, its sizes, and the length and layers it has unless asked for others."""

    reads: str
    """tokens, rows, images, or steps."""
    build: Callable[..., None]
    sizes: Sizes
    sequence: int | None = None
    layers: int | None = None
    """Fewer than `sizes` says."""


_BASE = Sizes(768, 12, 3072, 12, vocabulary=30522, positions=512)
_LARGE = Sizes(1024, 16, 4096, 24, vocabulary=30522, positions=512)
_VIT = Sizes(768, 12, 3072, 12, image=224, patch=16, classes=1000)
_GPT2 = Sizes(768, 12, 3072, 12, vocabulary=50257, positions=1024, epsilon=1e-5)
_XLM = Sizes(1024, 16, 4096, 24, positions=512, epsilon=1e-5)

TRANSFORMERS: dict[str, Kind] = {
    "bert-base": Kind("tokens", transformers.bert, _BASE, 128),
    "bert-large": Kind("tokens", transformers.bert, _LARGE, 128),
    "bert-base-layer": Kind("rows", transformers.encoder_layers, _BASE, 128, 1),
    "xlm-layer": Kind("rows", transformers.relu_layers, _XLM, 512, 1),
    "vit-b": Kind("images", transformers.vit, _VIT),
    "gpt2": Kind("steps", transformers.gpt2, _GPT2, 128),
}
"""By name."""


@dataclass(frozen=True)
class Spec(ABC):
    """A model of the zoo."""

    model: str

    @property
    def unit(self) -> str:
        """What a sample is, in the plural."""
        return "images"

    @property
    @abstractmethod
    def label(self) -> str:
        """Such as `vgg16-imagenet-avg` or `bert-base-sequence-128-layers-12`."""

    @abstractmethod
    def build(self) -> onnx.ModelProto:
        """The model: the same, bit for bit, for the same specification."""

    @abstractmethod
    def samples(self, count: int, seed: int = SAMPLE_SEED) -> Samples:
        """`count` samples, none of them from what networks are built with, without what a session carries."""

    @abstractmethod
    def calibration(self) -> Samples:
        """Samples that bounds and scales are taken from, with what a session carries."""

    @property
    def input_range(self) -> Any:
        """Where inputs lie: one range for all, or by name."""
        return (0.0, 1.0)

    @property
    def carry(self) -> dict[str, str]:
        """What a session carries from run to run: the inputs, and the output that each is in the next run."""
        return {}


@dataclass(frozen=True)
class ImageSpec(Spec):
    """A network of images: architecture, image shape, how it pools, and where asked for what follows.

    `operator` is the form of its convolutions (`forms`), `size` the side of square images in place of the shape's,
    `classes` the number of logits, and `width` the part of the published channels that it has throughout. Raises
    `OptionError` for what there is not.
    """

    shape: str
    pool: Pool = "max"
    operator: Operator | None = None
    size: int | None = None
    classes: int | None = None
    width: float | None = None

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise _unknown(self.model)
        known = MODELS[self.model]
        if self.shape not in known.shapes:
            raise OptionError(f"{self.model} has no shape '{self.shape}': use {' or '.join(known.shapes)}")
        if self.pool not in ("max", "avg"):
            raise OptionError(f"pooling '{self.pool}' is unknown: use max or avg")
        if self.operator is not None and known.published is None:
            raise _foreign(self.model, "operator")
        if self.operator not in (None, *OPERATORS):
            raise OptionError(f"operator '{self.operator}' is unknown: use {', '.join(OPERATORS)}")
        if self.size is not None and not known.any_size:
            raise _foreign(self.model, "size")
        if self.size is not None and not SIZES[0] <= self.size <= SIZES[1]:
            raise OptionError(f"{self.model} on images of {self.size} × {self.size}: use {SIZES[0]} to {SIZES[1]}")
        if self.classes is not None and self.classes < 1:
            raise OptionError(f"{self.model} with {self.classes} classes: use at least 1")
        if self.width is not None and not known.any_width:
            raise _foreign(self.model, "width")
        if self.width is not None and not WIDTHS[0] <= self.width <= WIDTHS[1]:
            raise OptionError(f"{self.model} of width {self.width}: use {WIDTHS[0]} to {WIDTHS[1]:.0f}")

    @property
    def label(self) -> str:
        chosen = (("", self.operator), ("size-", self.size), ("classes-", self.classes), ("width-", self.width))
        more = "".join(f"-{name}{value}" for name, value in chosen if value is not None)
        return f"{self.model}-{self.shape}-{self.pool}{more}"

    @property
    def image(self) -> Shape:
        """Channels, height and width of an input."""
        channels, height, width = SHAPES[self.shape]
        return (channels, height, width) if self.size is None else (channels, self.size, self.size)

    def network(self) -> tuple[onnx.ModelProto, Network]:
        """The model, and the network it was built from, with its ranges."""
        known = MODELS[self.model]
        net = Network(self.label, self.image, self.classes or CLASSES[self.shape])
        operator = self.operator or known.published or "dense"
        return net.model(known.layers(Plan(net, self.pool, operator, self.width or 1.0, self.shape))), net

    def build(self) -> onnx.ModelProto:
        return self.network()[0]

    def samples(self, count: int, seed: int = SAMPLE_SEED) -> Samples:
        return {"image": pseudo_images(count, self.image, seed)}

    def calibration(self) -> Samples:
        count = max(1, min(64, CALIBRATION_ELEMENTS // math.prod(self.image)))
        return self.samples(count, CALIBRATION_SEED)


@dataclass(frozen=True)
class TransformerSpec(Spec):
    """A Transformer by name, with the length of its sequences and its layers. Raises `OptionError` for wrong ones."""

    sequence: int | None = None
    layers: int | None = None

    def __post_init__(self) -> None:
        if self.model not in TRANSFORMERS:
            raise _unknown(self.model)
        kind = TRANSFORMERS[self.model]
        layers = kind.layers or kind.sizes.layers if self.layers is None else self.layers
        if not 1 <= layers <= kind.sizes.layers:
            raise OptionError(f"{self.model} with {layers} layers: use 1 to {kind.sizes.layers}")
        sequence = kind.sequence if self.sequence is None else self.sequence
        least = 2 if kind.reads == "steps" else 1
        if kind.sequence is None and sequence is not None:
            raise _foreign(self.model, "sequence")
        if sequence is not None and not least <= sequence <= kind.sizes.positions:
            raise OptionError(f"{self.model} with a sequence of {sequence}: use {least} to {kind.sizes.positions}")
        object.__setattr__(self, "layers", layers)
        object.__setattr__(self, "sequence", sequence)

    @property
    def label(self) -> str:
        sequence = "" if self.sequence is None else f"-sequence-{self.sequence}"
        return f"{self.model}{sequence}-layers-{self.layers}"

    @property
    def unit(self) -> str:
        return {"images": "images", "steps": "tokens"}.get(self.kind.reads, "sequences")

    @property
    def kind(self) -> Kind:
        """As it is in the zoo."""
        return TRANSFORMERS[self.model]

    @property
    def sizes(self) -> Sizes:
        """With as many layers as asked for."""
        assert self.layers is not None
        return replace(self.kind.sizes, layers=self.layers)

    def build(self) -> onnx.ModelProto:
        net = SequenceNetwork(self.label)
        self.kind.build(net, self.sizes, *self.samples(1, BATCH_SEED).values())
        return net.proto

    def samples(self, count: int, seed: int = SAMPLE_SEED) -> Samples:
        rng, sizes = np.random.default_rng(seed), self.sizes
        if self.kind.reads == "images":
            return {"image": pseudo_images(count, (3, sizes.image, sizes.image), seed)}
        assert self.sequence is not None
        if self.kind.reads == "rows":
            rows = rng.standard_normal((count, self.sequence, sizes.hidden)).astype(np.float32)
            return {"hidden_states": rows.clip(-FARTHEST, FARTHEST)}
        if self.kind.reads == "steps":
            return self._steps(rng.integers(0, sizes.vocabulary, (count, 1)), [0])
        ids = rng.integers(0, sizes.vocabulary, (count, self.sequence))
        return {"input_ids": ids, "attention_mask": transformers.padded(count, self.sequence)}

    def calibration(self) -> Samples:
        if self.kind.reads != "steps":
            return self.samples(CALIBRATION_SEQUENCES, CALIBRATION_SEED)
        assert self.sequence is not None
        rng, count = np.random.default_rng(CALIBRATION_SEED), CALIBRATION_SEQUENCES
        ids = rng.integers(0, self.sizes.vocabulary, (count, self.sequence))
        places = np.linspace(0, self.sequence - 1, count).astype(int).tolist()
        found = self._steps(ids[:, places], places)
        for index, known in enumerate(transformers.gpt2_keys_and_values(self.sizes, ids)):
            past = np.zeros((count, count, *known.shape[1:2], self.sequence - 1, known.shape[3]), np.float32)
            for number, place in enumerate(places):
                past[:, number, :, self.sequence - 1 - place :] = known[:, :, :place]
            found[f"past_{index}"] = past.reshape(count * count, *past.shape[2:])
        return found

    def _steps(self, ids: npt.NDArray[np.int64], places: list[int]) -> Samples:
        """Steps of tokens [N, T] at these T places of their sequences: N · T of them, sequence by sequence."""
        assert self.sequence is not None
        every = places * len(ids)
        return {
            "input_ids": ids.reshape(-1, 1),
            "position_ids": np.array(every, np.int64)[:, None],
            "attention_mask": transformers.window(every, self.sequence),
        }

    @property
    def input_range(self) -> Any:
        return {
            "images": (0.0, 1.0),
            "rows": (-FARTHEST, FARTHEST),
        }.get(self.kind.reads, {"attention_mask": (0.0, 1.0)})

    @property
    def carry(self) -> dict[str, str]:
        if self.kind.reads != "steps":
            return {}
        return {f"past_{index}": f"present_{index}" for index in range(2 * self.sizes.layers)}


def find(
    model: str,
    shape: str | None = None,
    pool: str | None = None,
    sequence: int | None = None,
    layers: int | None = None,
    *,
    operator: str | None = None,
    size: int | None = None,
    classes: int | None = None,
    width: float | None = None,
) -> Spec:
    """A model of the zoo. Images are of the smallest shape and pools take the maximum, unless asked for others.

    With a `size` of 64 or more, the shape is the largest one instead. Raises `OptionError` for a model there is not,
    and for an option that a model has not.
    """
    given: dict[str, object] = {"sequence": sequence, "layers": layers}
    if model in TRANSFORMERS:
        given = {"shape": shape, "pool": pool, "operator": operator, "size": size, "classes": classes, "width": width}
    for name, value in given.items():
        if value is not None and model in {**MODELS, **TRANSFORMERS}:
            raise _foreign(model, name)
    if model in TRANSFORMERS:
        return TransformerSpec(model, sequence, layers)
    shapes = MODELS[model].shapes if model in MODELS else ("",)
    usual = shapes[0] if size is None or size < 64 else shapes[-1]
    return ImageSpec(model, shape or usual, pool or "max", operator, size, classes, width)  # type: ignore[arg-type]


def _unknown(model: str) -> OptionError:
    return OptionError(f"model '{model}' is not in the zoo: use one of {', '.join([*MODELS, *TRANSFORMERS])}")


def _foreign(model: str, option: str) -> OptionError:
    if known := MODELS.get(model):
        optional = (("operator", known.published is not None), ("size", known.any_size), ("width", known.any_width))
        fits = ["shape", "pool", "classes", *(name for name, has in optional if has)]
    else:
        fits = ["layers"] if TRANSFORMERS[model].sequence is None else ["sequence", "layers"]
    *others, last = (f"--{each}" for each in fits)
    takes = f"{', '.join(others)} and {last}" if others else last
    return OptionError(f"{model} has no {option} to choose: it takes {takes}")
