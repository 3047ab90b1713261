"""Standard networks and what an inference of each costs in every protocol, as `covey explain` counts it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import as_file, files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from covey import _core, models
from covey._proto import program_pb2 as pb
from covey.bench.cache import kept
from covey.bench.planned import peak_memory
from covey.client import Progress
from covey.compiled import compile as compile_model
from covey.emit import HEADER_BYTES
from covey.errors import OptionError
from covey.model import load
from covey.models import ImageSpec
from covey.result import NodeProfile

PROTOCOLS_SHOWN = ("trio", "quad", "beaver", "two-party")
"""All; Beaver among two parties and a dealer."""

TORCHVISION = ("googlenet",)
"""Those that only torchvision has, on 224 × 224 images."""

SHAPES_SHOWN = ("mnist", "cifar", "imagenet")
"""Of images: costs on tinyimagenet's lie between."""

SEED, STATISTICS, CALIBRATION = 0, 8, 4
"""Of torchvision's weights; images that statistics come from; images that calibrate."""

NAMES = (
    "digits",
    *(ImageSpec(model, shape).label.removesuffix("-max") for shape in SHAPES_SHOWN for model in models.MODELS
      if shape in models.MODELS[model].shapes),
    *(f"{name}-imagenet" for name in TORCHVISION),
)  # fmt: skip
"""What the gallery has, by name: the model and the shape of its images."""


@dataclass(frozen=True)
class Cost:
    """An inference of one sample in one protocol, preprocessing included."""

    bytes: int
    rounds: int
    lan_seconds: float
    wan_seconds: float
    """On the wire; computation comes on top."""
    memory: int
    """The peak of the party that needs most."""


@dataclass(frozen=True)
class Row:
    """A network."""

    name: str
    image: tuple[int, ...]
    parameters: int
    products: int
    comparisons: int
    ring_bits: int
    costs: dict[str, Cost]

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def rows(names: Sequence[str], folder: Path, progress: Progress) -> list[Row]:
    """The networks of these names, or programs in files; all that can be built here without a name.

    Raises `OptionError` for what there is not.
    """
    for name in names:
        if name not in NAMES and not name.endswith(".covey"):
            raise OptionError(f"'{name}' is not in the gallery: use a .covey file or one of {', '.join(NAMES)}")
    chosen = list(names) or [name for name in NAMES if not _from_torchvision(name) or _has_torchvision()]
    found = []
    for done, name in enumerate(chosen):
        progress(done, len(chosen), f"compiling {name}")
        program = _core.Program(Path(name)) if name.endswith(".covey") else _program(name, folder)
        progress(done, len(chosen), f"planning {name}")
        found.append(_row(Path(name).stem, program))
    return found


def _program(name: str, folder: Path) -> _core.Program:
    if name == "digits":
        with as_file(files("covey") / "data" / "digits") as data:
            return load(data / "digits.onnx", calibration=data / "calibration.npy", input_range=(0, 1)).program
    model, shape = name.rsplit("-", 1)
    if _from_torchvision(name):
        return _torchvision(model, models.SHAPES[shape])
    return load(kept(ImageSpec(model, shape), "auto", folder, lambda *_: None).program).program


def _from_torchvision(name: str) -> bool:
    return name.split("-")[0] in TORCHVISION


def _has_torchvision() -> bool:
    return find_spec("torchvision") is not None


def _torchvision(name: str, shape: tuple[int, int, int]) -> _core.Program:
    """A network with seeded weights and the statistics of pseudo-images."""
    if not _has_torchvision():
        raise OptionError(f"{name} comes with torchvision: pip install torchvision")
    import torch
    import torchvision

    torch.manual_seed(SEED)
    options = {"init_weights": True, "aux_logits": False} if name == "googlenet" else {}
    module = getattr(torchvision.models, name)(weights=None, **options)
    images = torch.from_numpy(models.pseudo_images(STATISTICS, shape, SEED))
    for part in module.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            part.momentum = None  # the plain mean over batches, of which there is one
    with torch.no_grad():
        module.train()(images)
    compiled = compile_model(module.eval(), (images[:2],), calibration=images[:CALIBRATION], input_range=(0, 1))
    return _core.Program(compiled.program_bytes)


def _row(name: str, program: _core.Program) -> Row:
    content = pb.Program.FromString(program.to_bytes()[HEADER_BYTES:])
    return Row(
        name,
        tuple(program.inputs[0]["shape"]),
        program.parameters,
        products(content),
        _comparisons(content),
        program.ring_bits,
        {protocol: _cost(program, protocol) for protocol in PROTOCOLS_SHOWN},
    )


def _cost(program: _core.Program, protocol: str) -> Cost:
    plan = json.loads(_core.plan(program, protocol, 1, estimates=True))
    total = NodeProfile.of(plan["total"])
    lan, wan = (estimate["seconds"] for estimate in plan["estimates"])
    return Cost(total.bytes, total.rounds, lan, wan, max(peak_memory(plan)))


def products(program: pb.Program) -> int:
    """Multiplications of a sample: MAC."""

    def count(node: pb.Node) -> int:
        kind = node.WhichOneof("op")
        shapes = [list(program.values[value].shape) for value in (*node.inputs, *node.outputs)]
        if kind == "conv2d":
            return math.prod(shapes[-1]) * math.prod(shapes[1][1:])
        if kind in ("dense", "matmul"):
            return math.prod(shapes[-1]) * shapes[0][-1]
        return math.prod(shapes[-1]) if kind == "mul" else 0

    return sum(map(count, program.nodes))


def _comparisons(program: pb.Program) -> int:
    """Elements of a sample that are compared with a constant: Relu, and each bound of a Clip."""

    def count(node: pb.Node) -> int:
        kind = node.WhichOneof("op")
        elements = int(np.prod(program.values[node.outputs[0]].shape, dtype=np.int64))
        if kind == "clip":
            return elements * (node.clip.HasField("low") + node.clip.HasField("high"))
        return elements if kind in ("relu", "less_than_zero") else 0

    return sum(map(count, program.nodes))


Table = tuple[str, list[str], list[list[str]]]
"""A title, the headings, the cells."""


def tables(found: Sequence[Row], amount: Callable[[float], str], duration: Callable[[float], str]) -> list[Table]:
    """The networks themselves, then what they cost protocol by protocol."""
    sizes = [
        [row.name, "×".join(map(str, row.image)), _count(row.parameters), _count(row.products), _count(row.comparisons),
         f"Z_2^{row.ring_bits}"]
        for row in found
    ]  # fmt: skip
    made: list[Table] = [("networks", ["network", "input", "parameters", "MAC", "ReLU", "ring"], sizes)]
    for protocol in PROTOCOLS_SHOWN:
        costs = [(row.name, row.costs[protocol]) for row in found]
        cells = [
            [name, amount(cost.bytes), f"{cost.rounds:,}", duration(cost.lan_seconds), duration(cost.wan_seconds),
             amount(cost.memory)]
            for name, cost in costs
        ]  # fmt: skip
        made.append((protocol, ["network", "sent", "rounds", "LAN", "WAN", "peak memory"], cells))
    return made


def _count(number: float) -> str:
    for unit in ("", " k", " M"):
        if number < 1000:
            return f"{number:.3g}{unit}"
        number /= 1000
    return f"{number:.3g} G"


def markdown(made: Sequence[Table]) -> str:
    """The tables as a page has them."""
    lines = []
    for title, headings, cells in made:
        lines += [f"### {title}", "", _line(headings), "|---|" + "---:|" * (len(headings) - 1)]
        lines += [_line(row) for row in cells]
        lines.append("")
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
