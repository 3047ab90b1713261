"""Measurements that MPC-Pipe reports for inference, made again: Wang and others, both versions.

`mpc_pipe_training` has those for training.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from covey import _core
from covey._core import Program
from covey.bench.cache import default_folder, kept
from covey.bench.cells import Cell, Preset
from covey.bench.networks import NetworkProfile, network
from covey.bench.pipelines import ALL, NONE, TWO, VARIANTS, Row, Variant, bed, by_kind
from covey.bench.primitives import relu
from covey.bench.runs import nodes, parties, repeat
from covey.client import Progress
from covey.model import load
from covey.models import ImageSpec, Spec, TransformerSpec

NOTE = (
    "Beaver at 64 bits, one image of ImageNet's shape or one sequence of 512 a mini-batch, online with its material "
    "made before, as in the paper. The paper has a GPU for each party; here all share this machine's processors. "
    "Without the inter-linear pipeline the parties send weights' openings in front of each product. The Transformer is "
    "one encoder layer of 1024 features and 16 heads, with ReLU, normalisation and an exact Softmax."
)

DOMAIN = "Z_2^64"

LAN, WAN = network("10g"), network("mpc-pipe-wan")

MODELS: dict[str, Spec] = {
    "VGG16": ImageSpec("vgg16", "imagenet", "max"),
    "ResNet50": ImageSpec("resnet50", "imagenet", "max"),
    "Transformer": TransformerSpec("xlm-layer"),
}


def cell_of(what: str, row: Row, here: str, paper: str = "", seconds: float | None = None) -> Cell:
    """A row as a cell; `seconds` where it is not of its latency."""
    shown = row.latency.median if seconds is None else seconds
    return Cell(what, DOMAIN, row.network.name, shown, row.bytes, row.rounds, False, paper, here)


def _rows(
    label: str,
    networks: list[NetworkProfile],
    variants: list[Variant],
    times: int,
    say: Progress,
    *,
    device: str | None,
    computing: int = 2,
    public: bool = False,
) -> list[list[Row]]:
    """Of one model: for each network a row a variant."""
    with bed(MODELS[label], default_folder(), say, parties=computing, public_weights=public, device=device) as made:
        return [[made.measure(variant, each, times, say) for variant in variants] for each in networks]


def split(row: Row) -> str:
    """Where the time of one inference goes."""
    return f"computes {row.computing_seconds:.3g} s, waits {row.waiting_seconds:.3g} s"


def figure_1(times: int, say: Progress, *, device: str | None = None) -> Iterator[Cell]:
    """Computation and communication without pipelines."""
    paper = {"VGG16": "GPUs idle 60 %", "ResNet50": "GPUs idle 63 %", "Transformer": "GPUs idle 56 %"}
    for label in MODELS:
        ((row,),) = _rows(label, [LAN], [NONE], times, say, device=device)
        yield cell_of(label, row, split(row), paper[label])


def figure_4(times: int, say: Progress) -> Iterator[Cell]:
    """A non-linear layer by its number of tiles."""
    count = 1 << 20
    case = relu(count)(64)
    for tiles in (1, 2, 4, 8, 16, 64):
        options = {"tile": count // tiles, "window": tiles}
        with parties("beaver", LAN, options, say) as running:
            runs, _ = repeat(running, case.model, case.inputs, batch=case.samples, phase="online", repetitions=times)
        seconds = sum(node.milliseconds for node in nodes(runs.profile)) / 1e3
        total = runs.profile.total
        paper = "best on their GPU" if tiles == 4 else ""
        here = f"waits {total.waiting_milliseconds / total.milliseconds:.0%}"
        what = f"2^20 ReLUs in {tiles} {'tile' if tiles == 1 else 'tiles'}"
        yield Cell(what, DOMAIN, LAN.name, seconds, total.online_bytes, total.rounds, False, paper, here)


def figure_6(times: int, say: Progress, *, device: str | None = None) -> Iterator[Cell]:
    """Throughput with each pipeline and with all, LAN and WAN."""
    paper = {("VGG16", "10g"): "+49.8 %", ("ResNet50", "10g"): "+34.0 %", ("Transformer", "10g"): "+50.4 %"}
    for label in MODELS:
        for rows in _rows(label, [LAN, WAN], list(VARIANTS), times, say, device=device):
            for row in rows:
                here = f"throughput {row.more_throughput(rows[0]):+.0%}"
                said = paper.get((label, row.network.name), "") if row.variant == ALL else ""
                yield cell_of(f"{label}, {row.variant.name}", row, here, said, row.seconds_each)


def figure_7(times: int, say: Progress, *, device: str | None = None) -> list[Cell]:
    """VGG16's time and where it goes."""
    paper = [
        "14.25 s (linear layers 4.64 s, of which 0.34 s communicate)",
        "0.29 s less",
        "12.69 s",
        "9.52 s each of 2",
    ]
    inter_linear = next(variant for variant in VARIANTS if variant.inter_linear and not variant.inner_layer)
    (rows,) = _rows("VGG16", [LAN], [NONE, inter_linear, TWO, ALL], times, say, device=device)
    return [
        cell_of(f"VGG16, {row.variant.name}", row, split(row), said, row.seconds_each)
        for row, said in zip(rows, paper, strict=True)
    ]


def figure_9(times: int, say: Progress, *, device: str | None = None) -> Iterator[Cell]:
    """Latency by kind of layer, LAN and WAN."""
    paper = {
        ("VGG16", "10g"): "-10.9 %",
        ("ResNet50", "10g"): "-10.6 %",
        ("VGG16", "mpc-pipe-wan"): "-9.5 %",
        ("ResNet50", "mpc-pipe-wan"): "-10.6 %",
        ("Transformer", "10g"): "-10.6 %",
        ("Transformer", "mpc-pipe-wan"): "-7.4 %",
    }
    for label in MODELS:
        for base, row in _rows(label, [LAN, WAN], [NONE, TWO], times, say, device=device):
            said = paper[label, row.network.name]
            yield cell_of(label, row, f"latency {-row.less_latency(base):+.1%}", said)
            yield from kinds_of(label, base, row)


def kinds_of(label: str, base: Row, row: Row) -> list[Cell]:
    """What two variants take by kind of layer."""
    before, after = by_kind(base), by_kind(row)
    return [
        cell_of(f"{label}, {kind} layers", row, f"latency {after[kind] / seconds - 1:+.1%}", seconds=after[kind])
        for kind, seconds in before.items()
        if seconds > 0 and kind != "other"
    ]


def table_1(times: int, say: Progress, *, device: str | None = None) -> Iterator[Cell]:
    """Linear and non-linear layers."""
    for label in MODELS:
        ((base, row),) = _rows(label, [LAN], [NONE, TWO], times, say, device=device)
        yield from kinds_of(label, base, row)


def section_5_5(times: int, say: Progress, *, device: str | None = None) -> Iterator[Cell]:
    """How far the network is used, without pipelines and with all."""
    paper = {
        "VGG16": ("5.91 Gbit/s; GPUs idle 60 %", "8.85 Gbit/s; GPUs idle 39.5 %"),
        "ResNet50": ("70.73 %", "92.23 %"),
        "Transformer": ("52.3 %", "67.5 %"),
    }
    for label in MODELS:
        (rows,) = _rows(label, [LAN], [NONE, ALL], times, say, device=device)
        for row, said in zip(rows, paper[label], strict=True):
            here = f"{row.link_bits_per_second / 1e9:.3g} Gbit/s, {row.link_use:.0%}"
            yield cell_of(f"{label}, {row.variant.name}", row, here, said, row.seconds_each)


def figure_10(_: int, say: Progress) -> list[Cell]:
    """Bytes that a party sends and receives, by the number of parties: planned."""
    paper = {3: "roughly 17 GB", 4: "about 25 GB"}
    program = load(kept(MODELS["VGG16"], "64", default_folder(), say).program).program
    return exchanged("VGG16", program, ALL, paper)


def exchanged(label: str, program: Program, variant: Variant, paper: dict[int, str]) -> list[Cell]:
    """Bytes that a party sends and receives online, by the number of parties: planned."""
    options: dict[str, Any] = {**LAN.session, **variant.options}
    cells = []
    for count in (2, 3, 4, 5):
        plan = json.loads(_core.plan(program, "beaver", 1, parties=count, **options))
        sent = [link for link in plan["total"]["links"] if not link["offline"] and 0 in (link["from"], link["to"])]
        total, rounds = sum(link["bytes"] for link in sent), plan["total"]["rounds"]
        wire = LAN.wire_seconds(max(link["bytes"] for link in sent), rounds)
        what = f"{label}, {count} parties"
        cells.append(Cell(what, DOMAIN, LAN.name, wire, total, rounds, True, paper.get(count, "")))
    return cells


SPEEDS = ("10g", "20g", "40g")


def table_2(times: int, say: Progress, *, device: str | None = None) -> Iterator[Cell]:
    """Throughput by the link's speed."""
    paper = {
        ("VGG16", "10g", "none"): "4.21 a minute",
        ("VGG16", "10g", "all"): "6.42 a minute",
        ("VGG16", "20g", "none"): "6.31 a minute",
    }
    for label in MODELS:
        for rows in _rows(label, [network(speed) for speed in SPEEDS], [NONE, ALL], times, say, device=device):
            for row in rows:
                said = paper.get((label, row.network.name, row.variant.name), "")
                here = f"{row.per_minute:.3g} a minute"
                yield cell_of(f"{label}, {row.variant.name}", row, here, said, row.seconds_each)


def table_3(times: int, say: Progress, *, device: str | None = None) -> Iterator[Cell]:
    """Latency by the link's speed."""
    paper = {
        "VGG16": {"10g": ("14.25 s", "12.7 s"), "20g": ("9.6 s", "8.59 s"), "40g": ("7.36 s", "6.71 s")},
        "ResNet50": {"10g": ("6.66 s", "5.96 s"), "20g": ("4.36 s", "3.92 s"), "40g": ("3.21 s", "2.86 s")},
        "Transformer": {"10g": ("5.78 s", "5.17 s"), "20g": ("4.03 s", "3.67 s"), "40g": ("3.32 s", "3.02 s")},
    }
    for label in MODELS:
        for rows in _rows(label, [network(speed) for speed in SPEEDS], [NONE, TWO], times, say, device=device):
            for row, said in zip(rows, paper[label][rows[0].network.name], strict=True):
                here = f"latency {-row.less_latency(rows[0]):+.1%}"
                yield cell_of(f"{label}, {row.variant.name}", row, here, said)


def _of_parties(
    count: int,
    profile: NetworkProfile,
    paper: dict[str, str],
    times: int,
    say: Progress,
    *,
    device: str | None,
    public: bool = False,
) -> Iterator[Cell]:
    for label, said in paper.items():
        (rows,) = _rows(
            label, [profile], [NONE, TWO, ALL], times, say, device=device, computing=count, public=public
        )  # fmt: skip
        base, two, both = rows
        here = f"throughput {both.more_throughput(base):+.0%}, latency {-two.less_latency(base):+.1%}"
        what = f"{label}, {count} parties" + (", public weights" if public else "")
        yield cell_of(what, two, here, said)


def table_4(times: int, say: Progress, *, device: str | None = None) -> Iterator[Cell]:
    """Three parties on 10 Gbit/s."""
    paper = {
        "VGG16": "throughput +51 %, latency -13 %",
        "ResNet50": "throughput +48 %, latency -10 %",
        "Transformer": "throughput +52 %, latency -14 %",
    }
    return _of_parties(3, LAN, paper, times, say, device=device)


def table_5(times: int, say: Progress, *, device: str | None = None) -> Iterator[Cell]:
    """Three parties on 10 Gbit/s, WAN; the paper's text has none of its figures."""
    return _of_parties(3, WAN, dict.fromkeys(MODELS, ""), times, say, device=device)


def table_6(times: int, say: Progress, *, device: str | None = None) -> Iterator[Cell]:
    """Two parties on 10 Gbit/s, three on 20."""
    two = {
        "VGG16": "throughput +49.8 %, latency -10.9 %",
        "ResNet50": "throughput +34.0 %, latency -10.6 %",
        "Transformer": "throughput +50.4 %, latency -10.6 %",
    }
    three = {"VGG16": "", "ResNet50": "throughput +41 %, latency -11 %", "Transformer": ""}
    yield from _of_parties(2, LAN, two, times, say, device=device)
    yield from _of_parties(3, network("20g"), three, times, say, device=device)


def first_figure_5(times: int, say: Progress, *, device: str | None = None) -> Iterator[Cell]:
    """The Transformer with two parties and three."""
    return _speedups("Transformer", ("8.19 %", "12.60 %"), times, say, device)


def first_figure_6(times: int, say: Progress, *, device: str | None = None) -> Iterator[Cell]:
    """VGG16 with two parties and three."""
    return _speedups("VGG16", ("7.31 %", "9.97 %"), times, say, device)


def first_figure_7(times: int, say: Progress, *, device: str | None = None) -> Iterator[Cell]:
    """ResNet50 with two parties and three."""
    return _speedups("ResNet50", ("8.32 %", "10.23 %"), times, say, device)


def _speedups(label: str, paper: tuple[str, str], times: int, say: Progress, device: str | None) -> Iterator[Cell]:
    for count, said in zip((2, 3), paper, strict=True):
        ((base, row),) = _rows(label, [LAN], [NONE, TWO], times, say, device=device, computing=count)
        speedup = base.latency.median / row.latency.median - 1
        yield cell_of(f"{label}, {count} parties", row, f"{speedup:.1%} faster", f"{said} faster")
        yield from kinds_of(f"{label}, {count} parties", base, row)


def first_figure_8(times: int, say: Progress, *, device: str | None = None) -> Iterator[Cell]:
    """Public weights, two parties and three."""
    none = dict.fromkeys(MODELS, "")
    return (cell for count in (2, 3) for cell in _of_parties(count, LAN, none, times, say, device=device, public=True))


WITH_DEVICE = ("device",)

PRESETS = {
    "mpc-pipe-figure1": Preset(
        "MPC-Pipe, figure 1: computation and communication without pipelines", NOTE, figure_1, WITH_DEVICE
    ),
    "mpc-pipe-figure4": Preset("MPC-Pipe, figure 4: a non-linear layer by its number of tiles", NOTE, figure_4),
    "mpc-pipe-figure6": Preset(
        "MPC-Pipe, figure 6: throughput with each pipeline, two parties", NOTE, figure_6, WITH_DEVICE
    ),
    "mpc-pipe-figure7": Preset("MPC-Pipe, figure 7: VGG16 step by step, two parties", NOTE, figure_7, WITH_DEVICE),
    "mpc-pipe-figure9": Preset(
        "MPC-Pipe, figure 9: latency by kind of layer, two parties", NOTE, figure_9, WITH_DEVICE
    ),
    "mpc-pipe-figure10": Preset(
        "MPC-Pipe, figure 10: bytes that a party sends and receives online, by the number of parties",
        f"Planned, nothing runs; the time is that of the busiest link. {NOTE}",
        figure_10,
    ),
    "mpc-pipe-table1": Preset(
        "MPC-Pipe, table 1: linear and non-linear layers, two parties", NOTE, table_1, WITH_DEVICE
    ),
    "mpc-pipe-table2": Preset("MPC-Pipe, table 2: throughput by the link's speed", NOTE, table_2, WITH_DEVICE),
    "mpc-pipe-table3": Preset("MPC-Pipe, table 3: latency by the link's speed", NOTE, table_3, WITH_DEVICE),
    "mpc-pipe-table4": Preset("MPC-Pipe, table 4: three parties on 10 Gbit/s", NOTE, table_4, WITH_DEVICE),
    "mpc-pipe-table5": Preset("MPC-Pipe, table 5: three parties on 10 Gbit/s, WAN", NOTE, table_5, WITH_DEVICE),
    "mpc-pipe-table6": Preset("MPC-Pipe, table 6: two parties and three, links scaled up", NOTE, table_6, WITH_DEVICE),
    "mpc-pipe-section5.5": Preset("MPC-Pipe, section 5.5: use of the network", NOTE, section_5_5, WITH_DEVICE),
    "mpc-pipe-first-figure5": Preset(
        "MPC-Pipe's first version, figure 5: the Transformer", NOTE, first_figure_5, WITH_DEVICE
    ),
    "mpc-pipe-first-figure6": Preset("MPC-Pipe's first version, figure 6: VGG16", NOTE, first_figure_6, WITH_DEVICE),
    "mpc-pipe-first-figure7": Preset("MPC-Pipe's first version, figure 7: ResNet50", NOTE, first_figure_7, WITH_DEVICE),
    "mpc-pipe-first-figure8": Preset(
        "MPC-Pipe's first version, figure 8: public weights", NOTE, first_figure_8, WITH_DEVICE
    ),
}
"""By name."""
