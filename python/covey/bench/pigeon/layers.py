"""PIGEON's times layer by layer, and how far they fill a network: table 5."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from covey.bench.cache import default_folder
from covey.bench.cells import COLUMNS, Cell, Preset, selected
from covey.bench.model import Outcome, measure
from covey.bench.pigeon.rows import (
    BATCH,
    DEVICES,
    LARGEST,
    MACHINES,
    NETWORK,
    images,
    memory,
    setting,
)
from covey.bench.runs import nodes
from covey.client import Progress
from covey.result import NodeProfile

PARTIES = 3


@dataclass(frozen=True)
class Layer:
    """A row of the paper's: gigabytes of a party, seconds and gigabits a second without and with a GPU."""

    gigabytes: float
    seconds: tuple[float, float]
    gigabits: tuple[float, float]


TABLE_5 = {
    "vgg16": {
        "LINEAR": Layer(0.01, (0.62, 0.59), (0.09, 0.10)),
        "AVGPOOL2D": Layer(0.39, (0.15, 0.15), (21.33, 20.36)),
        "ACTIVATION": Layer(45.30, (12.29, 16.16), (29.50, 22.42)),
        "CONV2D": Layer(10.40, (29.80, 9.14), (2.79, 9.10)),
        "Total": Layer(56.11, (40.32, 25.10), (11.13, 17.88)),
    },
    "resnet152": {
        "LINEAR": Layer(0.00, (0.04, 0.13), (0.17, 0.05)),
        "ADAPTIVEAVGPOOL2D": Layer(0.00, (0.00, 0.00), (6.08, 4.91)),
        "AVGPOOL2D": Layer(0.05, (0.04, 0.04), (10.49, 9.52)),
        "ACTIVATION": Layer(70.39, (17.87, 24.38), (31.51, 23.10)),
        "BATCHNORM2D": Layer(34.64, (8.67, 12.22), (31.98, 22.69)),
        "CONV2D": Layer(17.32, (23.79, 13.29), (5.83, 10.43)),
        "Total": Layer(122.40, (48.41, 47.39), (20.23, 20.66)),
    },
}
"""By network and layer; FLATTEN, which takes nothing, is left out."""

KINDS = {
    "Conv, ReLU": (("Conv",), ("CONV2D", "BATCHNORM2D", "ACTIVATION")),
    "Add, ReLU": (("Add", "Relu"), ()),
    "average pools": (("AveragePool",), ("AVGPOOL2D",)),
    "global average": (("GlobalAveragePool",), ("ADAPTIVEAVGPOOL2D",)),
    "dense layers": (("Gemm",), ("LINEAR",)),
}
"""The operators that a kind of layer begins with, and the paper's rows that it stands beside."""


def table_5(
    times: int, say: Progress, *, batch: int | None = None, rows: Sequence[str] | None = None
) -> Iterator[Cell]:
    """Seconds and gigabits a second by kind of layer."""
    for model in selected("table 5", "row", TABLE_5, rows):
        for index, device in enumerate(DEVICES):
            run = setting(model, "imagenet", "3PC", device, batch or LARGEST["imagenet"], times)
            yield from _of_network(measure(run, default_folder(), say), device, index)


def _of_network(outcome: Outcome, device: str, index: int) -> list[Cell]:
    run = outcome.setting
    paper, lanes = TABLE_5[run.spec.model], run.options["lanes"] or 1
    domain = f"{run.spec.model}, {device}, {images(run.batch)}, {outcome.ring}"

    def cell(kind: str, found: list[NodeProfile], seconds: float, sent: int, more: str, layers: Sequence[str]) -> Cell:
        rounds = sum(node.rounds for node in found)
        said = "; ".join(_paper(name, paper[name], index) for name in layers if name in paper)
        rate = f"{sent * 8 / PARTIES / seconds / 1e9:.3g} Gbit/s"
        return Cell(kind, domain, NETWORK.name, seconds, sent, rounds, False, said, f"{rate}{more}")

    cells = []
    for kind, (operators, layers) in KINDS.items():
        found = [node for node in nodes(outcome.runs.profile) if node.op.split("+")[0] in operators]
        sent = sum(node.bytes for node in found)
        if sent:
            # A step's time is the sum over the mini-batches, which are computed side by side.
            seconds = sum(node.milliseconds for node in found) / lanes / 1e3
            gpus = sum(node.gpus > 0 for node in found)
            cells.append(cell(kind, found, seconds, sent, f"; {gpus} steps on a GPU" if gpus else "", layers))
    use = "" if outcome.link_use is None else f"; {outcome.link_use:.0%} of the busiest link"
    use += "" if run.device == "cpu" else f"; {memory(outcome)}"
    every = nodes(outcome.runs.profile)
    return [*cells, cell("all", every, outcome.runs.wall.median, outcome.bytes, use, ["Total"])]


def _paper(name: str, layer: Layer, device: int) -> str:
    seconds, gigabits = layer.seconds[device], layer.gigabits[device]
    return f"{name} {seconds:.2f} s; {layer.gigabytes:.2f} GB, {gigabits:.2f} Gbit/s"


PRESETS = {
    "pigeon-table5": Preset(
        "PIGEON, table 5: time by kind of layer, and the network's use; ImageNet, 3PC, 32 bits",
        "A convolution's shift and the ReLU behind it are one step of Covey's, and BatchNormalization is part of the "
        "convolution: their row stands beside several of the paper's. A kind's time is the mean of the mini-batches "
        "that run side by side, waits included; all: the whole inference. GB "
        "and Gbit/s are a party's on average. Preprocessing included. "
        f"{LARGEST['imagenet']} images at once for the paper's {BATCH}, unless --batch says otherwise. {MACHINES}",
        table_5,
        ("batch", "rows"),
        COLUMNS,
    ),
}
"""By name."""
