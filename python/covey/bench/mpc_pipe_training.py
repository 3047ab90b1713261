"""Measurements that MPC-Pipe reports for training, made again; `mpc_pipe` has those for inference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from covey.bench.cache import default_folder
from covey.bench.cells import LONGEST, MOST, Cell, Preset
from covey.bench.jobs import Job
from covey.bench.mpc_pipe import DOMAIN, LAN, MODELS, SPEEDS, WAN, WITH_DEVICE, cell_of, exchanged, kinds_of, split
from covey.bench.networks import NetworkProfile, network
from covey.bench.pipelines import NONE, VARIANTS, Row, training_bed
from covey.bench.planned import Plan
from covey.client import Progress
from covey.model import load

NOTE = (
    "Beaver at 64 bits, steps of SGD on one image of ImageNet's shape, or one sequence of 512, with random labels. "
    "A step needs the weights of the step before: it is not preprocessed, and its time has the dealer's work in it, "
    "where the paper's is online. Bytes are online ones. Of the paper's pipelines the inner-layer one is there. The "
    "inter-linear one opens weights ahead, but these change in each step; the inter-batch one halves a mini-batch. The "
    "paper's figures are of the first two together where they say nothing else. It has a GPU for each party; here all "
    "share this machine's processors. Cells that would take over ten minutes on the wire with their repetitions, over "
    "20 GB, or more memory than this machine has, are planned: their time is that of the busiest link and all rounds."
)

BEAVER = "beaver"

(PIPED,) = (one for one in VARIANTS if one.inner_layer and not one.inter_linear and one.lanes == 1)


def _rows(
    label: str,
    networks: Sequence[NetworkProfile],
    times: int,
    say: Progress,
    *,
    device: str | None,
    computing: int = 2,
) -> list[list[Row] | Plan]:
    """Of one model: for each network a row without the pipeline and one with it, or a plan where they take long."""
    job = Job(MODELS[label], 1)
    folder = default_folder()
    program = load(job.kept(folder, say).program).program
    plans = [Plan.of(program, BEAVER, computing, each, {}) for each in networks]
    short = [plan.fits and plan.total.bytes <= MOST and (1 + times) * plan.wire_seconds <= LONGEST for plan in plans]
    if not any(short):
        return list(plans)
    with training_bed(job, folder, say, protocol=BEAVER, parties=computing, device=device) as bed:
        return [
            [bed.measure(variant, plan.network, times, say) for variant in (NONE, PIPED)] if brief else plan
            for plan, brief in zip(plans, short, strict=True)
        ]


def _planned(what: str, plan: Plan, paper: str) -> Cell:
    total = plan.total
    return Cell(what, DOMAIN, plan.network.name, plan.wire_seconds, total.online_bytes, total.rounds, True, paper)


def figure_8(times: int, say: Progress, *, device: str | None = None) -> list[Cell]:
    """VGG16's time and where it goes."""
    paper = ("33.1 s; GPUs idle 35 %", "29.6 s; with the third 27.9 s each of 2, GPUs idle 18 %")
    (rows,) = _rows("VGG16", [LAN], times, say, device=device)
    if isinstance(rows, Plan):
        return [_planned("VGG16", rows, " to ".join(paper))]
    return [cell_of(f"VGG16, {row.variant.name}", row, split(row), said) for row, said in zip(rows, paper, strict=True)]


def figure_9(times: int, say: Progress, *, device: str | None = None) -> Iterator[Cell]:
    """Latency by kind of layer, LAN and WAN."""
    paper = {("VGG16", LAN.name): "2 s of linear layers hidden, 1.49 s of others; +11.6 % throughput"}
    for label in MODELS:
        for rows, profile in zip(_rows(label, [LAN, WAN], times, say, device=device), (LAN, WAN), strict=True):
            said = paper.get((label, profile.name), "—")
            if isinstance(rows, Plan):
                yield _planned(label, rows, said)
                continue
            base, row = rows
            yield cell_of(label, row, f"latency {-row.less_latency(base):+.1%}", said)
            yield from kinds_of(label, base, row)


def figure_10(_: int, say: Progress) -> Iterator[Cell]:
    """Bytes that a party sends and receives, by the number of parties: planned."""
    for label, spec in MODELS.items():
        program = load(Job(spec, 1).kept(default_folder(), say).program).program
        yield from exchanged(label, program, PIPED, dict.fromkeys((2, 3, 4, 5), "—"))


def table_3(times: int, say: Progress, *, device: str | None = None) -> Iterator[Cell]:
    """Latency by the link's speed."""
    paper = {
        "VGG16": {"10g": ("33.1 s", "29.6 s"), "20g": ("31.88 s", "29.34 s"), "40g": ("24.38 s", "23.02 s")},
        "ResNet50": {"10g": ("11.77 s", "10.42 s"), "20g": ("10.7 s", "9.68 s"), "40g": ("6.8 s", "6.29 s")},
        "Transformer": {"10g": ("10.68 s", "9.7 s"), "20g": ("8.39 s", "7.83 s"), "40g": ("7.44 s", "7.05 s")},
    }
    for label in MODELS:
        networks = [network(speed) for speed in SPEEDS]
        for rows, profile in zip(_rows(label, networks, times, say, device=device), networks, strict=True):
            said = paper[label][profile.name]
            if isinstance(rows, Plan):
                yield _planned(label, rows, " to ".join(said))
                continue
            for row, each in zip(rows, said, strict=True):
                here = f"latency {-row.less_latency(rows[0]):+.1%}"
                yield cell_of(f"{label}, {row.variant.name}", row, here, each)


def _three_parties(
    profile: NetworkProfile, paper: dict[str, str], times: int, say: Progress, device: str | None
) -> Iterator[Cell]:
    for label in MODELS:
        said = paper.get(label, "—")
        (rows,) = _rows(label, [profile], times, say, device=device, computing=3)
        if isinstance(rows, Plan):
            yield _planned(f"{label}, 3 parties", rows, said)
            continue
        base, row = rows
        yield cell_of(f"{label}, 3 parties", row, f"latency {-row.less_latency(base):+.1%}", said)


def table_4(times: int, say: Progress, *, device: str | None = None) -> Iterator[Cell]:
    """Three parties on 10 Gbit/s."""
    paper = {
        "VGG16": "latency -16 %; with the third throughput +40 %",
        "ResNet50": "latency -16 %; with the third throughput +37 %",
        "Transformer": "latency -13 %; with the third throughput +37 %",
    }
    return _three_parties(LAN, paper, times, say, device)


def table_5(times: int, say: Progress, *, device: str | None = None) -> Iterator[Cell]:
    """Three parties on 10 Gbit/s, WAN; the paper's text has none of its figures."""
    return _three_parties(WAN, {}, times, say, device)


PRESETS = {
    "mpc-pipe-training-figure8": Preset(
        "MPC-Pipe, figure 8: training VGG16 step by step, two parties", NOTE, figure_8, WITH_DEVICE
    ),
    "mpc-pipe-training-figure9": Preset(
        "MPC-Pipe, figure 9: latency of training by kind of layer, two parties", NOTE, figure_9, WITH_DEVICE
    ),
    "mpc-pipe-training-figure10": Preset(
        "MPC-Pipe, as figure 10: bytes that a party sends and receives online in a step of training",
        f"Planned, nothing runs. The paper's figure is of inference. {NOTE}",
        figure_10,
    ),
    "mpc-pipe-training-table3": Preset(
        "MPC-Pipe, table 3: latency of training by the link's speed", NOTE, table_3, WITH_DEVICE
    ),
    "mpc-pipe-training-table4": Preset(
        "MPC-Pipe, table 4: training with three parties on 10 Gbit/s", NOTE, table_4, WITH_DEVICE
    ),
    "mpc-pipe-training-table5": Preset(
        "MPC-Pipe, table 5: training with three parties on 10 Gbit/s, WAN", NOTE, table_5, WITH_DEVICE
    ),
}
"""By name."""
