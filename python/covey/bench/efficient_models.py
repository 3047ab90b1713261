"""Tables 1 and 2 and figure 3 of the efficient-models paper, planned: Ganesan and others (arXiv:2209.00411)."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import onnx

from covey import _core
from covey.bench.cells import Cell, Column, Preset, selected
from covey.bench.networks import network
from covey.client import Progress
from covey.compiled import prepare
from covey.computation import core_seconds
from covey.cost_comparison import SERVED, Cost, Setting, cost_of, multiplications, settings
from covey.cost_split import PARTS
from covey.errors import OptionError
from covey.lowering import Settings
from covey.model import Model
from covey.models import Floats, ImageSpec, Network, Operator, pseudo_images
from covey.models.forms import convolution
from covey.models.specs import CALIBRATION_SEED
from covey.protocols import PROTOCOLS
from covey.protocols import protocol as find_protocol
from covey.tables import amount, duration

RING, SCALE = 60, 23
"""Bits of the ring and fractional bits in the paper; protocols without such a ring take their largest."""

SIZE, CLASSES = 320, 14
"""The side of an image of CheXpert in the paper, and the labels of that data set."""

NETWORK = network("efficient-models")

BACKBONES = {"D": "densenet121", "R": "resnet50", "R'": "resnet18", "M": "mobilenetv3-large", "S": "shufflenetv2"}

OPERATORS: dict[str, Operator] = {"D": "dense", "F": "factorised", "S": "shuffle", "X": "x"}

BASELINE = "DD"
"""The row that the paper's ratios are relative to: 2.63 TB and 1524.9 s."""

TABLE_2 = {
    # How many times fewer bytes and seconds than the baseline's, and the area under the curve.
    "DD": (1, 1, 0.888),
    "DDW": (1.55, 1.06, 0.888),
    "DF": (1.56, 1.06, 0.885),
    "DS": (1.57, 1.06, 0.886),
    "DX": (2.37, 1.33, 0.880),
    "RD": (0.71, 0.76, 0.884),
    "RDW": (0.96, 0.87, 0.882),
    "RF": (1.18, 1.08, 0.883),
    "RS": (1.18, 1.17, 0.882),
    "RX": (2.10, 1.43, 0.876),
    "R'D": (1.61, 1.90, 0.884),
    "R'DW": (3.61, 3.31, 0.884),
    "R'F": (12.41, 7.27, 0.883),
    "R'S": (12.83, 8.25, 0.882),
    "R'X": (19.10, 8.77, 0.866),
    "MD": (2.18, 2.33, 0.882),
    "MDW": (8.30, 2.91, 0.882),
    "MF": (12.93, 9.11, 0.873),
    "MS": (18.30, 9.11, 0.870),
    "MX": (19.39, 9.91, 0.871),
    "SD": (5.50, 2.11, 0.879),
    "SDW": (9.07, 7.30, 0.879),
    "SF": (19.39, 12.84, 0.872),
    "SFW": (19.66, 10.30, 0.872),
    "SS": (19.67, 12.84, 0.872),
    "SSW": (19.67, 12.84, 0.875),
    "SX": (30.15, 15.35, 0.868),
    "SXW": (30.80, 17.09, 0.868),
}

TABLE_1 = {
    # Shares of the bytes: convolutions, other linear layers, all others.
    "densenet121": (0.9711, 0.0158, 0.0131),
    "resnet50": (0.9667, 0.0189, 0.0144),
    "mobilenetv3-large": (0.9056, 0.0572, 0.0372),
    "shufflenetv2": (0.9282, 0.0410, 0.0308),
}

FIGURE_3: dict[Operator, float] = {"dense": 1, "factorised": 5, "shuffle": 9}
"""How many times fewer bytes than dense, at every size: the text has 5, and 1.8 more for an aggregate of 9."""

SIDES = (16, 32, 64, 128, 256, 512)
"""Of the images of figure 3."""

CHANNELS, KERNEL = 64, 3
"""Of the convolutions of figure 3, which read three channels."""


@dataclass(frozen=True)
class Variant:
    """What a row of table 2 computes: a network, the form of its convolutions, and whether Winograd's form is taken."""

    model: str
    operator: Operator
    winograd: bool

    def __str__(self) -> str:
        return f"{self.model} {self.operator}" + (", Winograd" if self.winograd else "")

    def spec(self, size: int) -> ImageSpec:
        """The network on images of this side."""
        return ImageSpec(self.model, "imagenet", operator=self.operator, size=size, classes=CLASSES)


@dataclass(frozen=True)
class Planned:
    """What one image costs in one protocol."""

    cost: Cost
    wire: float
    """Seconds of bytes and rounds on the paper's network."""
    compute: float
    """Seconds of the party that computes most."""

    @property
    def seconds(self) -> float:
        """One after the other."""
        return self.wire + self.compute

    @classmethod
    def of(cls, model: Model, protocol: str, setting: Setting, cores: int) -> Planned:
        """Plan a model; each party computes on so many cores, all of them busy."""
        cost = cost_of(model, protocol, setting)
        wire = NETWORK.wire_seconds(cost.busiest_bytes, cost.rounds)
        return cls(cost, wire, core_seconds(cost, multiplications(model.program), setting[1].get("linear")) / cores)


def variant(mnemonic: str) -> Variant:
    """What the paper's name of a row stands for: the network, the operator, and W for Winograd's form."""
    parts = re.fullmatch(r"(D|R'?|M|S)([DFSX])(W?)", mnemonic)
    assert parts is not None, mnemonic
    return Variant(BACKBONES[parts[1]], OPERATORS[parts[2]], bool(parts[3]))


def programs(
    model: onnx.ModelProto, image: Floats, rings: Collection[int], *, winograd: bool = False
) -> dict[int, _core.Program]:
    """The network's program in each of the rings, its bounds from one image [1, C, H, W].

    Outputs are not measured against floating point: at this scale they are near enough for the first program to be
    taken, and the costs are those of a compiled model. Raises a `CoveyError`.
    """
    prepared = prepare(
        model, calibration={"image": image}, input_range=(0.0, 1.0), winograd="all" if winograd else "off"
    )
    unmeasured = replace(prepared, few=None)
    found = {}
    for ring in rings:
        compiled = unmeasured.compiled(Settings(ring_bits=ring, scale=0), (ring,), SCALE)
        found[ring] = _core.Program(compiled.program_bytes)
    return found


def table_1(
    _: int,
    say: Progress,
    *,
    size: int = SIZE,
    protocols: Sequence[str] = SERVED,
    linear: str | None = None,
    rows: Sequence[str] = tuple(TABLE_1),
) -> list[Cell]:
    """Which bytes linear layers take in networks of their published forms."""
    chosen = _settings(protocols, linear)
    names = selected("table 1", "row", TABLE_1, rows)
    specs = {name: ImageSpec(name, "imagenet", size=size, classes=CLASSES) for name in names}
    costs = {}
    for done, (name, spec) in enumerate(specs.items()):
        say(done, len(specs), f"planning {name}")
        costs[name] = _costs(spec.build(), spec.image, chosen)
    return [
        _cell(name, size, protocol, chosen, costs[name][protocol], _shares(costs[name][protocol].cost, TABLE_1[name]))
        for protocol in chosen
        for name in names
    ]


def table_2(
    _: int,
    say: Progress,
    *,
    size: int = SIZE,
    protocols: Sequence[str] = ("two-party",),
    linear: str | None = None,
    rows: Sequence[str] = tuple(TABLE_2),
    cores: int = 1,
) -> list[Cell]:
    """What networks, operators and Winograd's form save; the baseline is always among the rows."""
    chosen = _settings(protocols, linear)
    variants = {name: variant(name) for name in selected("table 2", "row", TABLE_2, (BASELINE, *rows))}
    specs = {name: each.spec(size) for name, each in variants.items()}
    costs = {}
    for done, (name, each) in enumerate(variants.items()):
        say(done, len(variants), f"planning {name}: {each}")
        spec = specs[name]
        costs[name] = _costs(spec.build(), spec.image, chosen, winograd=each.winograd, cores=cores)
    return [
        _cell(f"{name} {each}", size, protocol, chosen, costs[name][protocol],
              _reductions(costs[name][protocol], costs[BASELINE][protocol], *TABLE_2[name]))
        for protocol in chosen
        for name, each in variants.items()
    ]  # fmt: skip


def figure_3(
    _: int,
    say: Progress,
    *,
    size: int | None = None,
    protocols: Sequence[str] = ("two-party",),
    linear: str | None = None,
    cores: int = 1,
) -> list[Cell]:
    """One convolution by the size of its images: dense, factorised, and with a shuffle."""
    chosen = _settings(protocols, linear)
    if size is not None and size not in SIDES:
        raise OptionError(f"figure 3 has no images of {size} × {size}: use {', '.join(map(str, SIDES))}")
    sides = SIDES if size is None else (size,)
    costs: dict[tuple[int, Operator], dict[str, Planned]] = {}
    for side in sides:
        for operator in FIGURE_3:
            say(len(costs), len(sides) * len(FIGURE_3), f"planning {operator} on {side} × {side}")
            image = (3, side, side)
            costs[side, operator] = _costs(_one_convolution(operator, image), image, chosen, cores=cores)
    return [
        _cell(f"{side} × {side}, {operator}", None, protocol, chosen, costs[side, operator][protocol],
              _reductions(costs[side, operator][protocol], costs[side, "dense"][protocol], paper))
        for protocol in chosen
        for side in sides
        for operator, paper in FIGURE_3.items()
    ]  # fmt: skip


def _one_convolution(operator: Operator, image: tuple[int, int, int]) -> onnx.ModelProto:
    net = Network(operator, image, CHANNELS)
    return net.model(convolution(net, "conv", net.input(), CHANNELS, KERNEL, 1, operator))


def _settings(protocols: Sequence[str], linear: str | None) -> dict[str, Setting]:
    """Of each protocol; two parties multiply by oblivious transfer unless told otherwise. Raises `OptionError`."""
    for name in protocols:
        if not find_protocol(name).served:
            raise OptionError(f"{name} sends nothing to compare: use {', '.join(SERVED)}")
    return settings(protocols, None, None, linear or ("ot" if "two-party" in protocols else None), False)


def _ring(protocol: str) -> int:
    rings = PROTOCOLS[protocol].rings
    return RING if RING in rings else rings[-1]


def _costs(
    model: onnx.ModelProto,
    image: tuple[int, int, int],
    chosen: Mapping[str, Setting],
    *,
    winograd: bool = False,
    cores: int = 1,
) -> dict[str, Planned]:
    """Of one image in each protocol."""
    rings = {protocol: _ring(protocol) for protocol in chosen}
    made = programs(model, pseudo_images(1, image, CALIBRATION_SEED), set(rings.values()), winograd=winograd)
    return {
        protocol: Planned.of(Model(made[rings[protocol]]), protocol, setting, cores)
        for protocol, setting in chosen.items()
    }


def _cell(
    what: str,
    size: int | None,
    protocol: str,
    chosen: Mapping[str, Setting],
    planned: Planned,
    figures: dict[str, float | None],
) -> Cell:
    """A cost; `size` is that of the images where it is the same for all rows."""
    method = chosen[protocol][1].get("linear")
    domain = f"{protocol}{f' by {method}' if method else ''}, Z_2^{_ring(protocol)}"
    domain += "" if size is None else f", {size} × {size}"
    figures = {"wire": planned.wire, "compute": planned.compute, **figures}
    cost = planned.cost
    return Cell(what, domain, NETWORK.name, planned.seconds, cost.bytes, cost.rounds, True, "", figures=figures)


def _shares(cost: Cost, paper: tuple[float, float, float]) -> dict[str, float | None]:
    shares: dict[str, float | None] = {part: cost.parts[part] / cost.bytes for part in PARTS}
    papers = (f"paper_{part}" for part in ("convolution", "other_linear", "non_linear"))
    return shares | dict(zip(papers, paper, strict=True))


def _reductions(
    planned: Planned, base: Planned, paper: float, paper_speedup: float | None = None, paper_auc: float | None = None
) -> dict[str, float | None]:
    reduction = base.cost.bytes / planned.cost.bytes
    return {
        "reduction": reduction,
        "paper_reduction": paper,
        "difference": reduction / paper - 1,
        "speedup": base.seconds / planned.seconds,
        "paper_speedup": paper_speedup,
        "paper_auc": paper_auc,
    }


def _beside(heading: str, name: str, form: str) -> Column:
    """A figure, and behind it in brackets the paper's, if it has one."""

    def text(cell: Cell) -> str:
        paper = cell.figures.get(f"paper_{name}")
        return format(cell.figures[name], form) + ("" if paper is None else f" ({format(paper, form)})")

    return Column(heading, text)


_SENT = Column("sent", lambda cell: amount(cell.bytes))
_ROUNDS = Column("rounds", lambda cell: f"{cell.rounds:,}")
_WIRE = Column("wire", lambda cell: duration(cell.figures["wire"] or 0))
_COMPUTE = Column("compute", lambda cell: duration(cell.figures["compute"] or 0))
_FEWER = _beside("fewer", "reduction", ".2f")
_DIFFERENCE = _beside("difference", "difference", "+.1%")
_FASTER = _beside("faster", "speedup", ".2f")

HOW = (
    "Planned, nothing runs: weights are random, and one image sets the bounds, at scale 23. Two parties have the "
    "paper's 60 bits, and linear layers by OT unless --linear says otherwise. Brackets: the paper's, by OT."
)

SECONDS = (
    "wire: seconds at the paper's 16 Gbit/s and 0.7 ms round trip; compute: those of the party that computes most, by "
    "rates measured on an AMD EPYC with AVX-512, on --cores, one by default."
)

PRESETS = {
    "efficient-models-table1": Preset(
        "Efficient-models paper, table 1: shares of the bytes",
        f"{HOW} Networks are in their published forms; the paper's images are 320 × 320. Shifts, and messages of no "
        f"layer, have columns of their own; the paper does not name them.",
        table_1,
        ("size", "protocols", "linear", "rows"),
        (_SENT, *(_beside(label.replace(" ", "\n"), part, ".1%") for part, label in PARTS.items())),
    ),
    "efficient-models-table2": Preset(
        "Efficient-models paper, table 2: networks and operators",
        f"{HOW} The paper's images are 320 × 320. fewer: DD's bytes over these; difference: from the paper's ratio. "
        f"{SECONDS} faster: DD's seconds, wire and compute together, over these.",
        table_2,
        ("size", "protocols", "linear", "rows", "cores"),
        (_SENT, _ROUNDS, _WIRE, _COMPUTE, _FEWER, _DIFFERENCE, _FASTER),
    ),
    "efficient-models-figure3": Preset(
        "Efficient-models paper, figure 3: a convolution by the size of images",
        f"{HOW} 3 × 3 taps, from 3 channels to 64. fewer: the dense form's bytes over these; difference: from the "
        f"paper's ratio. {SECONDS}",
        figure_3,
        ("size", "protocols", "linear", "cores"),
        (_SENT, _ROUNDS, _WIRE, _COMPUTE, _FEWER, _DIFFERENCE),
    ),
}
"""By name."""
