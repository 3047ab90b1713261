"""PIGEON's seconds for one image, and its memory of the GPU: tables 1, 8 and 9."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from covey.bench.cache import default_folder
from covey.bench.cells import COLUMNS, Cell, Preset, selected
from covey.bench.model import measure
from covey.bench.pigeon.rows import DEVICES, MACHINES, PROTOCOLS, beside, cell, memory, setting
from covey.client import Progress

Seconds = dict[str, dict[str, tuple[float | None, float, float]]]
"""Of Piranha, PIGEON without and with a GPU, by network and protocol."""


def table_1(times: int, say: Progress) -> Iterator[Cell]:
    """Memory of the GPU by batch."""
    paper = {
        ("3PC", 1): "0.205 GB",
        ("3PC", 8): "1.05 GB; Piranha 11.44 GB",
        ("4PC", 4): "0.83 GB; Piranha 9.36 GB",
        ("3PC", 32): "20.46 GB for 192",
    }
    for (protocol, batch), said in paper.items():
        outcome = measure(setting("vgg16", "imagenet", protocol, "GPU", batch, times), default_folder(), say)
        yield cell(f"vgg16-imagenet, batch {batch}", protocol, outcome, said, memory(outcome))


LATENCY: dict[int, Seconds] = {
    # By the ring's bits.
    32: {
        "alexnet-cifar": {"3PC": (0.07, 0.05, 0.48), "4PC": (0.18, 0.08, 0.52)},
        "resnet18-cifar": {"3PC": (0.22, 1.50, 1.55), "4PC": (0.52, 1.22, 1.60)},
        "resnet50-cifar": {"3PC": (0.94, 2.86, 3.29), "4PC": (2.09, 2.84, 3.25)},
        "vgg16-cifar": {"3PC": (0.16, 0.28, 0.60), "4PC": (0.44, 0.51, 0.66)},
        "resnet18-imagenet": {"3PC": (0.97, 1.50, 1.28), "4PC": (None, 3.45, 2.02)},
        "vgg16-imagenet": {"3PC": (3.50, 6.34, 1.58), "4PC": (9.91, 16.24, 2.97)},
    },
    64: {
        "alexnet-cifar": {"3PC": (0.11, 0.21, 0.67), "4PC": (None, 0.16, 0.64)},
        "resnet18-cifar": {"3PC": (0.26, 0.66, 1.10), "4PC": (0.64, 0.77, 1.20)},
        "resnet50-cifar": {"3PC": (1.50, 1.37, 1.88), "4PC": (None, 1.55, 2.07)},
        "vgg16-cifar": {"3PC": (0.27, 0.45, 0.74), "4PC": (0.74, 0.96, 0.85)},
        "resnet18-imagenet": {"3PC": (1.61, 3.19, 1.72), "4PC": (None, 7.39, 2.62)},
        "vgg16-imagenet": {"3PC": (8.37, 15.66, 2.61), "4PC": (23.01, 40.22, 4.54)},
    },
}


def _latency(
    table: str, ring: int, times: int, say: Progress, rows: Sequence[str] | None, protocols: Sequence[str] | None
) -> Iterator[Cell]:
    served = selected(table, "protocol", PROTOCOLS.values(), protocols)
    for network in selected(table, "row", LATENCY[ring], rows):
        model, shape = network.split("-")
        for protocol, (piranha, *pigeon) in LATENCY[ring][network].items():
            if PROTOCOLS[protocol] not in served:
                continue
            for device, seconds in zip(DEVICES, pigeon, strict=True):
                outcome = measure(setting(model, shape, protocol, device, 1, times, ring=ring), default_folder(), say)
                said = f"{seconds:g} s{beside(piranha, ' s', 'Piranha')}"
                here = f"{outcome.runs.wall.median:.3g} s" + (f"; {memory(outcome)}" if device == "GPU" else "")
                yield cell(f"{network}, {device}", protocol, outcome, said, here)


def table_8(
    times: int, say: Progress, *, rows: Sequence[str] | None = None, protocols: Sequence[str] | None = None
) -> Iterator[Cell]:
    """Seconds for one image, 32 bits."""
    return _latency("table 8", 32, times, say, rows, protocols)


def table_9(
    times: int, say: Progress, *, rows: Sequence[str] | None = None, protocols: Sequence[str] | None = None
) -> Iterator[Cell]:
    """Seconds for one image, 64 bits."""
    return _latency("table 9", 64, times, say, rows, protocols)


PRESETS = {
    "pigeon-table1": Preset(
        "PIGEON, table 1 and section 7: memory of the GPU",
        f"GPU: the most that a party takes of it. {MACHINES}",
        table_1,
        columns=COLUMNS,
    ),
    "pigeon-table8": Preset(
        "PIGEON, table 8: one image, 32 bits, one core a party",
        f"Preprocessing included. GPU: the most that a party takes of it. {MACHINES}",
        table_8,
        ("rows", "protocols"),
        COLUMNS,
    ),
    "pigeon-table9": Preset(
        "PIGEON, table 9: one image, 64 bits, one core a party",
        f"Preprocessing included. GPU: the most that a party takes of it. {MACHINES}",
        table_9,
        ("rows", "protocols"),
        COLUMNS,
    ),
}
"""By name."""
