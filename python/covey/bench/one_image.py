"""VGG16 on one image of CIFAR's size in every protocol, beside what was published or measured of others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from covey.bench.cache import default_folder
from covey.bench.cells import COLUMNS, Cell, Preset, selected
from covey.bench.model import Setting, measure
from covey.bench.networks import network
from covey.bench.runs import BenchPhase
from covey.client import Progress
from covey.models import ImageSpec

NETWORK = network("25g")

SPEC = ImageSpec("vgg16", "cifar", "avg")

PHASES: tuple[BenchPhase, ...] = ("joint", "online")

PAPERS: dict[tuple[str, int], dict[BenchPhase, str]] = {
    # By protocol and ring; PIGEON's tables 8 and 9, and CrypTen and SPU as built on a machine of two cores.
    ("trio", 32): {"joint": "Piranha 0.16 s; PIGEON 0.28 s; with a GPU 0.60 s"},
    ("trio", 64): {"joint": "Piranha 0.27 s; PIGEON 0.45 s; with a GPU 0.74 s; SPU 13.5 s on loopback"},
    ("quad", 32): {"joint": "Piranha 0.44 s; PIGEON 0.51 s; with a GPU 0.66 s"},
    ("quad", 64): {"joint": "Piranha 0.74 s; PIGEON 0.96 s; with a GPU 0.85 s"},
    ("beaver", 64): {"online": "CrypTen 2.16 s, 560 MB; on loopback"},
    ("two-party", 32): {},
}


def vgg16_cifar(
    times: int, say: Progress, *, protocols: Sequence[str] | None = None, device: str | None = None
) -> Iterator[Cell]:
    """Seconds and bytes, with preprocessing and online."""
    known = dict.fromkeys(protocol for protocol, _ in PAPERS)
    served = selected("vgg16-cifar", "protocol", known, protocols)
    for (protocol, ring), papers in PAPERS.items():
        if protocol in served:
            yield from (_cell(protocol, ring, phase, papers.get(phase, ""), times, say, device) for phase in PHASES)


def _cell(
    protocol: str, ring: int, phase: BenchPhase, paper: str, times: int, say: Progress, device: str | None
) -> Cell:
    run = Setting(
        SPEC,
        1,
        NETWORK,
        protocol,
        ring=str(ring),
        phase=phase,
        repetitions=times,
        plaintext=False,
        device=device,
    )
    outcome = measure(run, default_folder(), say)
    total = outcome.runs.profile.total
    here = f"{outcome.differing} differ"
    if outcome.runs.preparation_wall is not None:
        here += f"; {outcome.runs.preparation_wall.median:.3g} s before"
    seconds = outcome.runs.wall.median
    return Cell(
        phase, f"{protocol}, {outcome.ring}", NETWORK.name, seconds, total.bytes, total.rounds, False, paper, here
    )


PRESETS = {
    "vgg16-cifar": Preset(
        "VGG16, one image of CIFAR's size, in every protocol",
        "Average pools, exact, over TLS, real weights. joint: preprocessing included; online: done before, in so many "
        "seconds, and not in what is sent. Beaver is of two parties. Piranha and PIGEON: PIGEON's tables 8 and 9. "
        "Their parties have a machine with an L4 GPU each and 25 Gbit/s between them. PIGEON takes one core a party "
        "and truncates probabilistically. CrypTen, two parties, and SPU, three by ABY3, were measured on one machine "
        "of two cores. Here all share this machine, and 25 Gbit/s are emulated.",
        vgg16_cifar,
        ("protocols", "device"),
        COLUMNS,
    ),
}
"""By name."""
