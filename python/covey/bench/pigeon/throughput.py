"""PIGEON's images a second: tables 4, 6, 7 and 10."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from covey.bench.cache import default_folder
from covey.bench.cells import COLUMNS, Cell, Preset, selected
from covey.bench.model import Setting, measure
from covey.bench.pigeon.rows import (
    BATCH,
    DEVICES,
    LARGEST,
    MACHINES,
    PROTOCOLS,
    beside,
    cell,
    images,
    memory,
    setting,
)
from covey.client import Progress

Rates = dict[str, dict[str, tuple[float | None, float, float | None]]]
"""Images a second of Piranha, PIGEON without and with a GPU, by network and protocol; None where the paper has none."""

TABLE_4: Rates = {
    "alexnet-cifar": {"3PC": (24.57, 1409.3, 48.81), "4PC": (9.19, 1034.11, 45.94)},
    "resnet50-cifar": {"3PC": (3.10, 247.72, 36.25), "4PC": (1.02, 171.03, 31.68)},
    "vgg16-cifar": {"3PC": (10.86, 208.7, 42.37), "4PC": (4.19, 122.78, 37.38)},
    "resnet50-imagenet": {"3PC": (1.03, 8.37, 7.88), "4PC": (None, 5.70, 6.05)},
    "vgg16-imagenet": {"3PC": (0.21, 4.76, 7.65), "4PC": (0.08, 3.24, 6.12)},
}

TABLE_7: Rates = {
    "alexnet-cifar": {"3PC": (17.99, 941.51, None), "4PC": (4.19, 681.68, None)},
    "resnet50-cifar": {"3PC": (1.50, 81.97, None), "4PC": (0.52, 80.81, None)},
    "vgg16-cifar": {"3PC": (5.08, 76.85, None), "4PC": (1.86, 75.92, None)},
    "resnet18-imagenet": {"3PC": (0.79, 3.51, None), "4PC": (None, 2.75, None)},
    "vgg16-imagenet": {"3PC": (0.11, 1.77, None), "4PC": (0.04, 1.40, None)},
}


def _rate(what: str, protocol: str, run: Setting, paper: str, say: Progress, batch: int = BATCH) -> Cell:
    """Images a second of one setting, where the paper has `batch` images at once."""
    outcome = measure(run, default_folder(), say)
    here = f"{outcome.images_per_second:.4g}/s" + (f"; {memory(outcome)}" if run.device != "cpu" else "")
    return cell(f"{what}, {images(run.batch, batch)}", protocol, outcome, paper, here)


def _rates(
    table: str,
    rates: Rates,
    ring: int,
    times: int,
    say: Progress,
    batch: int | None,
    rows: Sequence[str] | None,
    protocols: Sequence[str] | None,
) -> Iterator[Cell]:
    served = selected(table, "protocol", PROTOCOLS.values(), protocols)
    for network in selected(table, "row", rates, rows):
        model, shape = network.split("-")
        for protocol, (piranha, *pigeon) in rates[network].items():
            if PROTOCOLS[protocol] not in served:
                continue
            for device, rate in zip(DEVICES, pigeon, strict=True):
                run = setting(model, shape, protocol, device, batch or LARGEST[shape], times, ring=ring)
                said = ("" if rate is None else f"{rate:g}/s") + beside(piranha, "/s", "Piranha")
                yield _rate(f"{network}, {device}", protocol, run, said.removeprefix("; "), say)


def table_4(
    times: int,
    say: Progress,
    *,
    batch: int | None = None,
    rows: Sequence[str] | None = None,
    protocols: Sequence[str] | None = None,
) -> Iterator[Cell]:
    """Images a second, 32 bits."""
    return _rates("table 4", TABLE_4, 32, times, say, batch, rows, protocols)


def table_7(
    times: int,
    say: Progress,
    *,
    batch: int | None = None,
    rows: Sequence[str] | None = None,
    protocols: Sequence[str] | None = None,
) -> Iterator[Cell]:
    """Images a second, 64 bits."""
    return _rates("table 7", TABLE_7, 64, times, say, batch, rows, protocols)


@dataclass(frozen=True)
class Tweak:
    """A way to evaluate ReLUs, and whether all preprocessing is done before."""

    name: str
    options: dict[str, Any]
    """Of `setting`."""


TWEAKS = (
    Tweak("automatic", {}),
    Tweak("PPA", {"adder": "log-depth"}),
    Tweak("RCA", {"adder": "ripple"}),
    Tweak("RCA8", {"adder": "ripple", "key_bits": 8}),
    Tweak("ON, RCA8", {"adder": "ripple", "key_bits": 8, "phase": "online"}),
)
"""Those of table 6, behind the one that a session takes where it is told none."""

TABLE_6: dict[str, dict[str, tuple[float, float, float, float]]] = {
    # Images a second by network and device, with the paper's four tweaks.
    "vgg16-cifar": {"CPU": (208.70, 57.40, 134.37, 144.92), "GPU": (42.37, 31.40, 45.72, 60.57)},
    "vgg16-cifar-large": {"CPU": (277.90, 308.99, 341.05, 412.90), "GPU": (294.94, 324.62, 354.24, 573.51)},
    "resnet50-imagenet": {"CPU": (8.37, 12.70, 11.30, 13.78), "GPU": (7.88, 9.54, 10.69, 16.96)},
    "vgg16-imagenet": {"CPU": (4.76, 5.08, 5.48, 6.44), "GPU": (7.65, 9.99, 12.47, 19.42)},
}

LARGE, LARGE_HERE = 12288, 1536
"""Images at once of the row `vgg16-cifar-large`: the paper's, and what is run here."""


def table_6(
    times: int, say: Progress, *, batch: int | None = None, rows: Sequence[str] | None = None
) -> Iterator[Cell]:
    """Images a second by adder, key bits and phase."""
    for row in selected("table 6", "row", TABLE_6, rows):
        model, shape, *large = row.split("-")
        here, paper = (LARGE_HERE, LARGE) if large else (LARGEST[shape], BATCH)
        for device, rates in TABLE_6[row].items():
            for tweak, rate in zip(TWEAKS, (None, *rates), strict=True):
                run = setting(model, shape, "3PC", device, batch or here, times, **tweak.options)
                said = "" if rate is None else f"{rate:g}/s"
                yield _rate(f"{model}-{shape}, {device}, {tweak.name}", "3PC", run, said, say, paper)


def table_10(times: int, say: Progress, *, batch: int | None = None) -> Iterator[Cell]:
    """VGG16 on ImageNet's images in 64 bits, beside CryptGPU."""
    papers = {"CPU": "1.77/s", "GPU": "CryptGPU 0.022/s; of at most 3 at once"}
    return (
        _rate(
            f"vgg16-imagenet, {device}",
            "3PC",
            setting("vgg16", "imagenet", "3PC", device, batch or LARGEST["imagenet"], times, ring=64),
            paper,
            say,
        )
        for device, paper in papers.items()
    )


CUT = f"{BATCH} images of CIFAR's size at once, {LARGEST['imagenet']} of ImageNet's, unless --batch says otherwise."

PRESETS = {
    "pigeon-table4": Preset(
        "PIGEON, table 4: images a second, 32 bits",
        f"Preprocessing included. {CUT} {MACHINES}",
        table_4,
        ("batch", "rows", "protocols"),
        COLUMNS,
    ),
    "pigeon-table6": Preset(
        "PIGEON, table 6: images a second with different adders, key bits and phases; 3PC, 32 bits",
        "automatic: what a session chooses itself; PPA: a tree of logarithmic depth; RCA: ripple carry; RCA8: the same "
        "on 8 key bits, which is approximate; ON: online, preprocessing before it. "
        f"{CUT} {LARGE:,} images are cut to {LARGE_HERE:,}. {MACHINES}",
        table_6,
        ("batch", "rows"),
        COLUMNS,
    ),
    "pigeon-table7": Preset(
        "PIGEON, table 7: images a second, 64 bits",
        f"Preprocessing included; the paper has no GPU in it, but for Piranha. {CUT} {MACHINES}",
        table_7,
        ("batch", "rows", "protocols"),
        COLUMNS,
    ),
    "pigeon-table10": Preset(
        "PIGEON, table 10: images a second beside CryptGPU, 3PC, 64 bits",
        "Preprocessing included. The table does not name its network; PIGEON's figure is that of VGG16 in table 7. "
        f"{CUT} {MACHINES}",
        table_10,
        ("batch",),
        COLUMNS,
    ),
}
"""By name."""
