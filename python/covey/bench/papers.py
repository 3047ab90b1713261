"""Measurements that papers report, made again here: CrypTFlow2 (Rathee and others, CCS 2020), section 7; MPC-Pipe."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

import onnx

from covey import _core, models
from covey.bench import mpc_pipe, primitives
from covey.bench.cells import Cell, Preset
from covey.bench.networks import NetworkProfile, network
from covey.bench.primitives import Primitive
from covey.client import Phase, Progress
from covey.errors import OptionError

LONGEST = 600.0
"""Seconds on the wire beyond which a cell is planned and not measured."""


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
        wire = rounds * profile.round_trip_ms / 2e3 + (sent * 8 / (profile.megabits * 1e6) if profile.megabits else 0.0)
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


def _figure_1(times: int, say: Progress) -> list[Cell]:
    sizes = range(0, 21, 4)
    cells = []
    for name in ("cryptflow2-lan", "cryptflow2-wan"):
        for domain, build in (("Z_2^32", primitives.relu), ("Z_n, 32 bits", primitives.odd_relu)):
            chosen = [Primitive(f"2^{power} ReLUs", 1 << power, 0, build(1 << power)) for power in sizes]
            cells += _cells(chosen, 32, domain, network(name), "joint", times, say)
    return cells


def _table_6(times: int, say: Progress) -> list[Cell]:
    cells = []
    for model, paper in (("minionn", "0.32 s (Delphi 3.97 s)"), ("resnet32", "0.63 s (Delphi 6.99 s)")):
        layers = Counter(activations(model))
        chosen = [Primitive(str(size), size, 0, primitives.shift(size, clamped=True)) for size in layers]
        parts = _cells(chosen, 41, "Z_2^41", network("cryptflow2-lan"), "online", times, say)
        count = {int(part.what): layers[int(part.what)] for part in parts}
        total = [(part, count[int(part.what)]) for part in parts]
        cells.append(
            Cell(
                f"{model}: {sum(layers.values())} layers of ReLU and shift",
                "Z_2^41",
                "cryptflow2-lan",
                sum(part.seconds * many for part, many in total),
                sum(part.bytes * many for part, many in total),
                sum(part.rounds * many for part, many in total),
                any(part.planned for part in parts),
                paper,
            )
        )
    return cells


def activations(model: str) -> list[int]:
    """Elements of each ReLU layer of a model of the zoo on CIFAR's images, for one image."""
    graph = onnx.shape_inference.infer_shapes(models.build(model, "cifar", "avg")).graph
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
    "cryptflow2-table6": Preset(
        "CrypTFlow2, table 6: non-linear layers online",
        "41 bits, LAN. Layer by layer, medians added up; correlated OTs in stock. The paper's seconds are on "
        "two machines of 4 cores, without a stock.",
        _table_6,
    ),
    **mpc_pipe.PRESETS,
}
"""By name."""
