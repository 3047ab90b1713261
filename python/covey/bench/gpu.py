"""Linear maps on a GPU against the processor's kernels: whether they agree bit for bit, and how fast both are."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import onnx

from covey import _core
from covey.client import Progress
from covey.models import MODELS, find

SIDE = 4096
"""Rows and columns of the square product, and the largest of random sizes."""

FEW = ("vgg16-imagenet", "resnet50-imagenet")
"""Networks whose convolutions are measured unless all are wanted."""


@dataclass(frozen=True)
class Map:
    """A linear map to compute both ways, by its sizes.

    They are a square product's side, a dense layer's inputs and outputs, or a convolution's channels, groups, input,
    kernel, strides, pads and dilations.
    """

    name: str
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Row:
    """A map of `batch` samples by a weight of `parts` parts, computed by the GPU and by one core."""

    name: str
    bits: int
    products: int
    elements: int
    differing: int
    seconds: float
    core_seconds: float
    twin_seconds: float | None

    @property
    def rate(self) -> float:
        """Products of words a second by the GPU, in 10^12. Copies count, but for a square product."""
        return self.products / self.seconds / 1e12

    @property
    def gain(self) -> float:
        """How often faster than one core."""
        return self.core_seconds / self.seconds

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "name": self.name,
            "bits": self.bits,
            "products": self.products,
            "elements": self.elements,
            "differing": self.differing,
            "seconds": self.seconds,
            "tmac_per_second": self.rate,
            "core_seconds": self.core_seconds,
            "twin_seconds": self.twin_seconds,
        }


@dataclass(frozen=True)
class Generator:
    """Words that the GPU draws, against the processor's generator; `size` bytes were timed, a dense layer's weight."""

    bits: int
    elements: int
    differing: int
    size: int
    seconds: float
    core_seconds: float
    copy_seconds: float
    packed_seconds: float
    brought_seconds: float

    def rate(self, seconds: float) -> float:
        """10^9 bytes a second."""
        return self.size / seconds / 1e9

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            **asdict(self),
            "gb_per_second": self.rate(self.seconds),
            "core_gb_per_second": self.rate(self.core_seconds),
            "copy_gb_per_second": self.rate(self.copy_seconds),
        }


@dataclass(frozen=True)
class Relu:
    """Local work of a ReLU of 32 bits, by parts: what it would cost on the GPU, and what it costs one core."""

    elements: int
    copy_seconds: float
    draw_seconds: float
    plane_seconds: float
    core_draw_seconds: float
    core_plane_seconds: float

    @property
    def seconds(self) -> float:
        """By the GPU, one part after the other."""
        return self.copy_seconds + self.draw_seconds + self.plane_seconds

    @property
    def core_seconds(self) -> float:
        """By one core."""
        return self.core_draw_seconds + self.core_plane_seconds

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {**asdict(self), "seconds": self.seconds, "core_seconds": self.core_seconds}


@dataclass(frozen=True)
class Measured:
    """What computes, in a line, and what was measured of it."""

    used: str
    rows: list[Row]
    generators: list[Generator]
    relu: Relu

    @property
    def elements(self) -> int:
        """Elements that were compared."""
        return sum(row.elements for row in self.rows) + sum(of.elements for of in self.generators)

    @property
    def differing(self) -> int:
        """Those in which the GPU's differ from the processor's."""
        return sum(row.differing for row in self.rows) + sum(of.differing for of in self.generators)

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "gpu": self.used,
            "differing": self.differing,
            "maps": [row.to_json() for row in self.rows],
            "generator": [generator.to_json() for generator in self.generators],
            "relu": self.relu.to_json(),
        }


def _attributes(node: onnx.NodeProto) -> dict[str, list[int]]:
    values = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
    return {name: list(value) if isinstance(value, Iterable) else [value] for name, value in values.items()}


def convolutions(models: Sequence[str]) -> list[Map]:
    """Every convolution of these networks of the zoo, as `model-shape`, each geometry once."""
    maps: dict[tuple[int, ...], Map] = {}
    for label in models:
        model, shape = label.rsplit("-", 1)
        built = onnx.shape_inference.infer_shapes(find(model, shape).build())
        graph = built.graph
        shapes = {value.name: [d.dim_value for d in value.type.tensor_type.shape.dim] for value in graph.value_info}
        shapes |= {value.name: [d.dim_value for d in value.type.tensor_type.shape.dim] for value in graph.input}
        weights = {tensor.name: list(tensor.dims) for tensor in graph.initializer}
        for node in graph.node:
            if node.op_type != "Conv":
                continue
            (outputs, per_group, *kernel), given = weights[node.input[1]], _attributes(node)
            _, inputs, *image = shapes[node.input[0]]
            strides, pads = given.get("strides", [1, 1]), given.get("pads", [0, 0, 0, 0])
            name = f"{inputs} to {outputs}, {image[0]}²" + f", {kernel[0]}×{kernel[1]} / {strides[0]}"
            if inputs != per_group:
                name += f", {inputs // per_group} groups"
            channels, dilations = [inputs, outputs, inputs // per_group], given.get("dilations", [1, 1])
            sizes = (*channels, *image, *kernel, *strides, *pads, *dilations)
            maps.setdefault(sizes, Map(name, sizes))
    return list(maps.values())


def dense_layers(count: int) -> list[tuple[Map, int]]:
    """Dense layers of random sizes, most of them small, and how many samples each takes."""
    drawn = []
    for _ in range(count):
        samples, inputs, outputs = (round(math.exp(random.uniform(0, math.log(SIDE)))) for _ in range(3))
        layer = Map(f"{samples} × {inputs} · {inputs} × {outputs}", (inputs, outputs))
        drawn.append((layer, samples))
    return drawn


def measure(device: str, every: bool, layers: int, batch: int, parts: int, report: Progress) -> Measured:
    """The generator, a ReLU and a row for each map. Raises `OptionError` for a device that is not there."""
    used: str = _core.use_device(device)
    labels = [f"{model}-{shape}" for model, known in MODELS.items() for shape in known.shapes] if every else FEW
    wanted = [(Map(f"{SIDE} × {SIDE} · {SIDE} × {SIDE}, on the device", (SIDE,)), 1, 1)]
    wanted += [(of, samples, parts) for of, samples in dense_layers(layers)]
    wanted += [(of, batch, parts) for of in convolutions(labels)]
    generators = []
    for bits in (32, 64):
        report(0, 2 * len(wanted), "the generator")
        generators.append(Generator(bits, **json.loads(_core.measure_gpu_generator(bits, SIDE))))
    relu = Relu(**json.loads(_core.measure_gpu_relu()))
    rows = []
    for index, (of, samples, of_parts) in enumerate(wanted):
        for bits in (32, 64):
            report(2 * index + (bits == 64), 2 * len(wanted), of.name)
            measured = json.loads(_core.measure_gpu(of.sizes, bits, samples, of_parts))
            rows.append(Row(of.name, bits, **measured))
    return Measured(used, rows, generators, relu)
