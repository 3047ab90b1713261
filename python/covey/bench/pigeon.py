"""Measurements of PIGEON that a GPU takes part in, made again: images a second, seconds for one, memory of the GPU."""

from __future__ import annotations

import os
from collections.abc import Iterable

from covey.bench.cache import default_folder
from covey.bench.cells import Cell, Preset
from covey.bench.model import Outcome, Setting, measure
from covey.bench.networks import network
from covey.client import Progress
from covey.models import ImageSpec

PROTOCOLS = {"3PC": "trio", "4PC": "quad"}

DEVICES = {"CPU": "cpu", "GPU": "auto"}

LARGEST = {"cifar": 192, "imagenet": 32}
"""Images of one inference: what a machine holds that all parties share."""

MACHINES = (
    "The paper's parties have a machine each, with 32 cores and an L4 GPU, and 25 Gbit/s between them; here all share "
    "this one."
)


def _setting(model: str, shape: str, protocol: str, device: str, batch: int, times: int, ring: int = 32) -> Setting:
    # Inferences of many images are not compared with `clear`, which would take longer than they do.
    return Setting(
        ImageSpec(model, shape, "max"),
        batch,
        network("25g"),
        PROTOCOLS[protocol],
        ring=str(ring),
        repetitions=times,
        options={"lanes": _lanes(protocol, batch)},
        check=batch == 1,
        plaintext=False,
        device=DEVICES[device],
    )


def _lanes(protocol: str, batch: int) -> int | None:
    """Mini-batches side by side, as many as the cores and the batch let: each computes on one core of each party."""
    lanes = min(8, batch, (os.cpu_count() or 1) // int(protocol[0]))
    return max(lane for lane in (1, 2, 4, 8) if lane <= max(lanes, 1) and batch % lane == 0) if batch > 1 else None


def _cell(what: str, outcome: Outcome, paper: str, here: str) -> Cell:
    runs = outcome.runs
    if outcome.differing is not None:
        here += f", {outcome.differing} differ"
    rounds = runs.profile.total.rounds
    return Cell(what, outcome.ring, "25g", runs.wall.median, outcome.bytes, rounds, False, paper, here)


def _memory(outcome: Outcome) -> str:
    peaks = [peak for peak in outcome.runs.gpu_memory_bytes if peak is not None]
    return f"at most {max(peaks) / 1e6:,.0f} MB of the GPU a party" if peaks else "no GPU is used"


def table_1(times: int, say: Progress) -> list[Cell]:
    """Memory of the GPU by batch."""
    paper = {
        ("3PC", 1): "0.205 GB",
        ("3PC", 8): "1.05 GB; Piranha 11.44 GB",
        ("4PC", 4): "0.83 GB; Piranha 9.36 GB",
        ("3PC", 32): "20.46 GB for 192",
    }
    cells = []
    for (protocol, batch), said in paper.items():
        outcome = measure(_setting("vgg16", "imagenet", protocol, "GPU", batch, times), default_folder(), say)
        cells.append(_cell(f"VGG16, ImageNet, {protocol}, batch {batch}", outcome, said, _memory(outcome)))
    return cells


Rates = dict[tuple[str, str], dict[str, tuple[float | None, float, float]]]

THROUGHPUT: Rates = {
    # Images a second of Piranha, PIGEON without and with a GPU.
    ("alexnet", "cifar"): {"3PC": (24.57, 1409.3, 48.81), "4PC": (9.19, 1034.11, 45.94)},
    ("resnet50", "cifar"): {"3PC": (3.10, 247.72, 36.25), "4PC": (1.02, 171.03, 31.68)},
    ("vgg16", "cifar"): {"3PC": (10.86, 208.7, 42.37), "4PC": (4.19, 122.78, 37.38)},
    ("resnet50", "imagenet"): {"3PC": (1.03, 8.37, 7.88), "4PC": (None, 5.70, 6.05)},
    ("vgg16", "imagenet"): {"3PC": (0.21, 4.76, 7.65), "4PC": (0.08, 3.24, 6.12)},
}


def table_4(times: int, say: Progress) -> list[Cell]:
    """Images a second."""
    cells = []
    for (model, shape), by_protocol in THROUGHPUT.items():
        for protocol, (piranha, *pigeon) in by_protocol.items():
            for (device, _), rate in zip(DEVICES.items(), pigeon, strict=True):
                setting = _setting(model, shape, protocol, device, LARGEST[shape], times)
                outcome = measure(setting, default_folder(), say)
                said = f"{rate:g}/s" + ("" if piranha is None else f"; Piranha {piranha:g}/s")
                what = f"{model}, {shape}, {protocol}, {device}, batch {setting.batch}"
                cells.append(_cell(what, outcome, said, f"{outcome.images_per_second:.2f}/s"))
    return cells


LATENCY: dict[int, Rates] = {
    # Seconds of Piranha, PIGEON without and with a GPU, by the ring's bits.
    32: {
        ("alexnet", "cifar"): {"3PC": (0.07, 0.05, 0.48), "4PC": (0.18, 0.08, 0.52)},
        ("resnet18", "cifar"): {"3PC": (0.22, 1.50, 1.55), "4PC": (0.52, 1.22, 1.60)},
        ("resnet50", "cifar"): {"3PC": (0.94, 2.86, 3.29), "4PC": (2.09, 2.84, 3.25)},
        ("vgg16", "cifar"): {"3PC": (0.16, 0.28, 0.60), "4PC": (0.44, 0.51, 0.66)},
        ("resnet18", "imagenet"): {"3PC": (0.97, 1.50, 1.28), "4PC": (None, 3.45, 2.02)},
        ("vgg16", "imagenet"): {"3PC": (3.50, 6.34, 1.58), "4PC": (9.91, 16.24, 2.97)},
    },
    64: {
        ("alexnet", "cifar"): {"3PC": (0.11, 0.21, 0.67), "4PC": (None, 0.16, 0.64)},
        ("resnet18", "cifar"): {"3PC": (0.26, 0.66, 1.10), "4PC": (0.64, 0.77, 1.20)},
        ("resnet50", "cifar"): {"3PC": (1.50, 1.37, 1.88), "4PC": (None, 1.55, 2.07)},
        ("vgg16", "cifar"): {"3PC": (0.27, 0.45, 0.74), "4PC": (0.74, 0.96, 0.85)},
        ("resnet18", "imagenet"): {"3PC": (1.61, 3.19, 1.72), "4PC": (None, 7.39, 2.62)},
        ("vgg16", "imagenet"): {"3PC": (8.37, 15.66, 2.61), "4PC": (23.01, 40.22, 4.54)},
    },
}


def _latency(ring: int, times: int, say: Progress) -> Iterable[Cell]:
    for (model, shape), by_protocol in LATENCY[ring].items():
        for protocol, (piranha, *pigeon) in by_protocol.items():
            for device, seconds in zip(DEVICES, pigeon, strict=True):
                setting = _setting(model, shape, protocol, device, 1, times, ring)
                outcome = measure(setting, default_folder(), say)
                said = f"{seconds:g} s" + ("" if piranha is None else f"; Piranha {piranha:g} s")
                here = f"{outcome.runs.wall.median:.3g} s" + (f", {_memory(outcome)}" if device == "GPU" else "")
                yield _cell(f"{model}, {shape}, {protocol}, {device}", outcome, said, here)


def table_8(times: int, say: Progress) -> list[Cell]:
    """Seconds for one image, 32 bits."""
    return list(_latency(32, times, say))


def table_9(times: int, say: Progress) -> list[Cell]:
    """Seconds for one image, 64 bits."""
    return list(_latency(64, times, say))


PRESETS = {
    "pigeon-table1": Preset(
        "PIGEON, table 1 and section 7: memory of the GPU", f"VGG16, exact, over TLS. {MACHINES}", table_1
    ),
    "pigeon-table4": Preset(
        "PIGEON, table 4: images a second",
        f"Exact, over TLS, preprocessing included; 192 images of CIFAR's size at once, 32 of ImageNet's. {MACHINES}",
        table_4,
    ),
    "pigeon-table8": Preset(
        "PIGEON, table 8: one image, 32 bits, one core a party",
        f"Exact, over TLS, preprocessing included. {MACHINES}",
        table_8,
    ),
    "pigeon-table9": Preset(
        "PIGEON, table 9: one image, 64 bits, one core a party",
        f"Exact, over TLS, preprocessing included. {MACHINES}",
        table_9,
    ),
}
"""By name."""
