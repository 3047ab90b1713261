"""PIGEON's figures of single layers: ReLUs by cores (2), a convolution's throughput (4), ReLUs by number (7)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from covey.bench import primitives
from covey.bench.cells import COLUMNS, Cell, Preset, selected
from covey.bench.pigeon.rows import DEVICES, MACHINES, NETWORK, PROTOCOLS, cores, lanes
from covey.bench.primitives import Primitive, Row
from covey.client import Progress
from covey.errors import CoveyError

RELUS = 1 << 20
"""Of each mini-batch of figure 2."""

SIDE, CHANNELS, KERNEL = 224, 64, 3
"""Of the convolution of figure 4, VGG16's largest on ImageNet's images."""

IMAGES = (1, 4)
"""At once, in figure 4."""

POWERS = (8, 12, 16, 20, 22)
"""Of two: the ReLUs of figure 7."""


def _measure(
    chosen: list[Primitive],
    protocol: str,
    ring: int,
    times: int,
    say: Progress,
    *,
    lanes: int | None = None,
    device: str | None = None,
) -> list[Row]:
    rows = primitives.measure(
        chosen, protocol=PROTOCOLS[protocol], ring=ring, network=NETWORK, options={"lanes": lanes},
        repetitions=times, warm_up=1, progress=say, device=device,
    )  # fmt: skip
    for row in rows:
        if row.differing:
            raise CoveyError(f"{row.name}: {row.differing} results differ from clear; please report it")
    return rows


def _cell(what: str, row: Row, protocol: str, ring: int, paper: str, lanes: int | None = None) -> Cell:
    # A step's time is the sum over the mini-batches, which are computed side by side.
    seconds = row.wall.median / (lanes or 1)
    sent = row.bits * row.elements / 8
    rate = sent * 8 / int(protocol[0]) / seconds / 1e9
    here = f"{rate:.3g} Gbit/s; {row.elements / seconds / 1e6:.3g} M elements/s"
    return Cell(what, f"{protocol}, Z_2^{ring}", NETWORK.name, seconds, sent, row.rounds, False, paper, here)


def figure_2(times: int, say: Progress, *, protocols: Sequence[str] | None = None) -> Iterator[Cell]:
    """ReLUs by cores of a party."""
    for protocol in _of(protocols, "figure 2"):
        for count in (count for count in (1, 2, 4, 8) if count <= cores(protocol)):
            primitive = Primitive("relu", count * RELUS, 0, primitives.relu(RELUS, samples=count))
            (row,) = _measure([primitive], protocol, 32, times, say, lanes=count if count > 1 else None)
            paper = "" if count == 1 else "nearly 100 % of 25 Gbit/s"
            what = f"2^20 ReLUs on {'one core' if count == 1 else f'each of {count} cores'}"
            yield _cell(what, row, protocol, 32, paper, count)


def figure_4(times: int, say: Progress, *, protocols: Sequence[str] | None = None) -> Iterator[Cell]:
    """A convolution's throughput."""
    papers = {"CPU": "more than 5 Gbit/s", "GPU": "more than half of 25 Gbit/s"}
    for protocol in _of(protocols, "figure 4"):
        for device, name in DEVICES.items():
            for count in IMAGES:
                elements = count * CHANNELS * SIDE**2
                macs = elements * CHANNELS * KERNEL**2
                primitive = Primitive("conv", elements, macs, primitives.conv(CHANNELS, SIDE, KERNEL, count))
                split = lanes(protocol, count)
                (row,) = _measure([primitive], protocol, 32, times, say, lanes=split, device=name)
                what = f"{count} {'image' if count == 1 else 'images'}, {device}"
                yield _cell(what, row, protocol, 32, papers[device], split)


def figure_7(times: int, say: Progress, *, protocols: Sequence[str] | None = None) -> Iterator[Cell]:
    """ReLUs by number and ring."""
    for protocol in _of(protocols, "figure 7"):
        for ring in (32, 64):
            chosen = [Primitive(f"2^{power} ReLUs", 1 << power, 0, primitives.relu(1 << power)) for power in POWERS]
            rows = _measure(chosen, protocol, ring, times, say)
            for row in rows:
                paper = "Piranha less than 2 %; of 25 Gbit/s" if protocol == "4PC" and row is rows[-1] else ""
                yield _cell(row.name, row, protocol, ring, paper)


def _of(protocols: Sequence[str] | None, figure: str) -> list[str]:
    """Those of the paper's names whose protocols were asked for."""
    served = selected(figure, "protocol", PROTOCOLS.values(), protocols)
    return [name for name, protocol in PROTOCOLS.items() if protocol in served]


GIGABITS = "Gbit/s are a party's on average, preprocessing included."

PRESETS = {
    "pigeon-figure2": Preset(
        "PIGEON, figure 2 (d): comparisons by a party's cores",
        "ReLUs on values of the whole ring, a mini-batch a core; as many cores as this machine has for each party. The "
        "paper draws its prefix adder alone. Its parts (a) and (c), by width of registers, have no counterpart, as "
        "kernels take the widest; nor has (b), as BatchNormalization is part of a convolution. "
        f"{GIGABITS} {MACHINES}",
        figure_2,
        ("protocols",),
        COLUMNS,
    ),
    "pigeon-figure4": Preset(
        "PIGEON, figure 4: throughput of a convolution, 32 bits",
        f"{KERNEL} × {KERNEL}, {CHANNELS} to {CHANNELS} channels, on {SIDE} × {SIDE}, without a shift behind it. The "
        "paper draws its rates; these are its text's, on the processor about 85 % above those without its changes to "
        f"products. {GIGABITS} {MACHINES}",
        figure_4,
        ("protocols",),
        COLUMNS,
    ),
    "pigeon-figure7": Preset(
        "PIGEON, figure 7: ReLUs by number, 32 and 64 bits",
        "On values of the whole ring, one core a party. The paper draws its times; its text has two orders of "
        "magnitude more ReLUs a second than Piranha, and Piranha's use of the network with four parties. "
        f"{GIGABITS} {MACHINES}",
        figure_7,
        ("protocols",),
        COLUMNS,
    ),
}
"""By name."""
