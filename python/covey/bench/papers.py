"""Measurements that papers report, made again here: CrypTFlow2 (Rathee and others, CCS 2020), section 7; MPC-Pipe;
PIGEON; VGG16 in all protocols; steps of training; efficient models. Also the ways in which two
parties multiply by weights, in the same form."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import onnx

from covey import _core, models
from covey.bench import (
    efficient_models,
    linear_ways,
    mpc_pipe,
    mpc_pipe_training,
    one_image,
    pigeon,
    primitives,
    training_steps,
)
from covey.bench.cells import LONGEST, Cell, Preset
from covey.bench.networks import NetworkProfile, network
from covey.bench.one_network import one_network
from covey.bench.primitives import Case, Primitive
from covey.client import Phase, Progress
from covey.errors import OptionError
from covey.models import ImageSpec


def find(name: str) -> Preset:
    """A preset by name. Raises `OptionError`."""
    if name not in PRESETS:
        raise OptionError(f"no such figure or table '{name}': use {' or '.join(PRESETS)}")
    return PRESETS[name]


def _cells(
    chosen: Iterable[Primitive],
    ring: int,
    domain: str,
    profile: NetworkProfile,
    phase: Phase,
    times: int,
    say: Progress,
) -> list[Cell]:
    cells = []
    brief = []
    options: dict[str, Any] = dict(profile.session)
    for primitive in chosen:
        case = primitive.build(ring)
        plan = json.loads(_core.plan(case.model.program, "two-party", case.samples, **options))
        nodes = [node for node in plan["nodes"] if node["name"] not in ("inputs", "outputs")]
        links = [link for node in nodes for link in node["links"] if phase == "joint" or not link["offline"]]
        sent = sum(link["bytes"] for link in links)
        rounds = sum(node["rounds"] for node in nodes)
        wire = profile.wire_seconds(sent, rounds)
        if wire > LONGEST:
            cells.append(Cell(primitive.name, domain, profile.name, wire, sent, rounds, True, ""))
        else:
            brief.append(primitive)
    rows = primitives.measure(
        brief, protocol="two-party", ring=ring, network=profile, options={}, repetitions=times, warm_up=1,
        progress=say, phase=phase,
    )  # fmt: skip
    for row in rows:
        bits = row.gate_bits if phase == "online" else row.bits
        sent = bits * row.elements / 8
        cells.append(Cell(row.name, domain, profile.name, row.wall.median, sent, row.rounds, False, ""))
    return cells


def _figure_1(times: int, say: Progress) -> Iterator[Cell]:
    sizes = range(0, 21, 4)
    for name in ("cryptflow2-lan", "cryptflow2-wan"):
        for domain, build in (("Z_2^32", primitives.relu), ("Z_n, 32 bits", primitives.odd_relu)):
            chosen = [Primitive(f"2^{power} ReLUs", 1 << power, 0, build(1 << power)) for power in sizes]
            yield from _cells(chosen, 32, domain, network(name), "joint", times, say)


def _layers(
    what: str,
    model: tuple[str, str],
    build: Callable[[int], Callable[[int], Case]],
    domain: tuple[int, str],
    profile: str,
    phase: Phase,
    paper: str,
    times: int,
    say: Progress,
) -> Cell:
    """All activation layers of a model of the zoo, of this name and on images of this shape, one after the other."""
    layers = Counter(activations(*model))
    ring, name = domain
    chosen = [Primitive(str(size), size, 0, build(size)) for size in layers]
    parts = _cells(chosen, ring, name, network(profile), phase, times, say)
    total = [(part, layers[int(part.what)]) for part in parts]
    return Cell(
        f"{model[0]}, {sum(layers.values())} {what}",
        name,
        profile,
        sum(part.seconds * many for part, many in total),
        sum(part.bytes * many for part, many in total),
        sum(part.rounds * many for part, many in total),
        any(part.planned for part in parts),
        paper,
    )


NETWORKS_SHOWN = {"squeezenet": 32, "resnet50": 37, "densenet121": 32}
"""Those of tables 4 and 7, and the bits that the paper gives each."""


def _table_4(times: int, say: Progress) -> Iterator[Cell]:
    papers = {
        "squeezenet": ("3.5 s (GC 26.4)", "33.3 s (GC 265.6)", "5.6 s (GC 51.7)", "50.4 s (GC 525.8)"),
        "resnet50": ("16.4 s (GC 136.5)", "69.4 s (GC 1285.2)", "28.0 s (GC 267.5)", "124.0 s (GC 2589.7)"),
        "densenet121": ("24.8 s (GC 199.6)", "118.7 s (GC 1849.3)", "41.9 s (GC 383.5)", "256.0 s (GC 3686.2)"),
    }
    domains = (("Z_2^{}", primitives.relu), ("Z_n, {} bits", primitives.odd_relu))
    ways = [(*domain, profile) for domain in domains for profile in ("cryptflow2-lan", "cryptflow2-wan")]
    return (
        _layers("ReLU", (model, "imagenet"), build, (bits, name.format(bits)), profile, "joint", paper, times, say)
        for model, bits in NETWORKS_SHOWN.items()
        for (name, build, profile), paper in zip(ways, papers[model], strict=True)
    )


def _table_5(times: int, say: Progress) -> Iterator[Cell]:
    for model, paper, delphi in (
        ("minionn", "1.0 s (Delphi 30.2 s)", "Delphi 40.9 s"),
        ("resnet32", "2.4 s (Delphi 52.9 s)", "Delphi 68.8 s"),
    ):
        domain = (41, "Z_2^41")
        yield _layers("ReLU and shift", (model, "cifar"), _fused, domain, "cryptflow2-lan", "joint", paper, times, say)
        yield one_network(ImageSpec(model, "cifar", "avg"), 41, "auto", "cryptflow2-lan", delphi, times, say)


def _table_6(times: int, say: Progress) -> Iterator[Cell]:
    return (
        _layers(
            "ReLU and shift", (model, "cifar"), _fused, (41, "Z_2^41"), "cryptflow2-lan", "online", paper, times, say
        )
        for model, paper in (("minionn", "0.32 s (Delphi 3.97 s)"), ("resnet32", "0.63 s (Delphi 6.99 s)"))
    )


def _table_7(_: int, say: Progress) -> Iterator[Cell]:
    ways = [(linear, profile) for linear in ("ot", "lattice") for profile in ("cryptflow2-lan", "cryptflow2-wan")]
    return (
        one_network(ImageSpec(model, "imagenet", "avg"), bits, linear, profile, "", 1, say)
        for model, bits in NETWORKS_SHOWN.items()
        for linear, profile in ways
    )


def _fused(size: int) -> Callable[[int], Case]:
    return primitives.shift(size, clamped=True)


def activations(model: str, shape: str = "cifar") -> list[int]:
    """Elements of each ReLU layer of a model of the zoo on images of that shape, for one image."""
    graph = onnx.shape_inference.infer_shapes(models.build(model, shape, "avg")).graph
    shapes = {value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in graph.value_info}
    sizes = []
    for node in graph.node:
        if node.op_type == "Relu":
            size = 1
            for length in shapes[node.output[0]][1:]:
                size *= length
            sizes.append(size)
    return sizes


PRESETS = {
    "cryptflow2-figure1": Preset(
        "CrypTFlow2, figure 1: ReLU by number",
        "The paper draws its improvement over garbled circuits: 2 to 25 times for 2^13 ReLUs and more, most in WAN. "
        "Here: two processes that share this machine. Making correlated OTs is counted where a run makes some; small "
        "runs live on what the warm-up left over.",
        _figure_1,
    ),
    "cryptflow2-table4": Preset(
        "CrypTFlow2, table 4: ReLU layers",
        "Layer by layer, medians added up, correlated OTs included. GC are the paper's garbled circuits; its seconds "
        "are on two machines of 4 cores. Here: two processes that share this machine.",
        _table_4,
    ),
    "cryptflow2-table5": Preset(
        "CrypTFlow2, table 5: against Delphi",
        "41 bits, LAN, correlated randomness included. The paper times layers of ReLU and truncation. A whole network, "
        "its linear layers by the faster way each, is set against Delphi's linear and other layers together. So many "
        "outputs differ from clear's.",
        _table_5,
    ),
    "cryptflow2-table7": Preset(
        "CrypTFlow2, table 7: networks on ImageNet's images",
        "One run of one image each, correlated randomness included. What would send more than 20 GB or take more than "
        "ten minutes on the wire is planned. Linear layers go by OT or by lattice encryption; so many outputs differ "
        "from clear's. The paper has at most 10 minutes in LAN and 20 in WAN, by the better of both.",
        _table_7,
    ),
    "cryptflow2-table6": Preset(
        "CrypTFlow2, table 6: non-linear layers online",
        "41 bits, LAN. Layer by layer, medians added up; correlated OTs in stock. The paper's seconds are on "
        "two machines of 4 cores, without a stock.",
        _table_6,
    ),
    **linear_ways.PRESETS,
    **mpc_pipe.PRESETS,
    **mpc_pipe_training.PRESETS,
    **training_steps.PRESETS,
    **pigeon.PRESETS,
    **one_image.PRESETS,
    **efficient_models.PRESETS,
}
"""By name."""
