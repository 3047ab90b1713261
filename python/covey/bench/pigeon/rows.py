"""What the rows of PIGEON's tables share: protocols, devices, batches, and a cell for a network that was run."""

from __future__ import annotations

from covey.bench.cells import Cell
from covey.bench.model import Outcome, Setting
from covey.bench.networks import network
from covey.bench.runs import BenchPhase
from covey.models import ImageSpec
from covey.parties import processors

PROTOCOLS = {"3PC": "trio", "4PC": "quad"}
"""By the paper's names."""

DEVICES = {"CPU": "cpu", "GPU": "auto"}
"""By the paper's names; a row of the GPU computes on the processor where there is none."""

BATCH = 192
"""Images of one inference in the paper's tables of throughput."""

LARGEST = {"cifar": BATCH, "imagenet": 32}
"""Images of one inference here: what a machine holds that all parties share."""

NETWORK = network("25g")

MACHINES = (
    "The paper's parties have a machine each, with 32 cores and an L4 GPU, and 25 Gbit/s between them; here all share "
    "this one, and 25 Gbit/s are emulated. Exact, over TLS, real weights; the paper truncates probabilistically. "
    "Max pools are average pools, as in the paper."
)


def setting(
    model: str,
    shape: str,
    protocol: str,
    device: str,
    batch: int,
    times: int,
    *,
    ring: int = 32,
    phase: BenchPhase = "joint",
    adder: str | None = None,
    key_bits: int | None = None,
) -> Setting:
    """A network of the zoo in one of `PROTOCOLS` and on one of `DEVICES`."""
    # Inferences of many images are not compared with `clear`, which would take longer than they do.
    return Setting(
        ImageSpec(model, shape, "avg"),
        batch,
        NETWORK,
        PROTOCOLS[protocol],
        ring=str(ring),
        phase=phase,
        repetitions=times,
        options={"lanes": lanes(protocol, batch), "adder": adder, "key_bits": key_bits},
        check=batch == 1,
        plaintext=False,
        device=DEVICES[device],
    )


def lanes(protocol: str, batch: int) -> int | None:
    """Mini-batches side by side, as many as the cores and the batch let."""
    most = min(8, batch, cores(protocol))
    return max(lane for lane in (1, 2, 4, 8) if lane <= most and batch % lane == 0) if batch > 1 else None


def cores(protocol: str) -> int:
    """Those that each party of 3PC or 4PC has to itself on this machine; one where there are fewer than parties."""
    return max(1, processors() // int(protocol[0]))


def images(batch: int, paper: int = BATCH) -> str:
    """How many at once, and for how many of the paper's where these differ."""
    return f"batch {batch:,}" + ("" if batch == paper else f" for {paper:,}")


def cell(what: str, protocol: str, outcome: Outcome, paper: str, here: str) -> Cell:
    """A run, beside the paper's words for it."""
    runs = outcome.runs
    if outcome.differing is not None:
        here += f"; {outcome.differing} differ"
    rounds, domain = runs.profile.total.rounds, f"{protocol}, {outcome.ring}"
    return Cell(what, domain, NETWORK.name, runs.wall.median, outcome.bytes, rounds, False, paper, here)


def memory(outcome: Outcome) -> str:
    """The most that a party took of a GPU."""
    peaks = [peak for peak in outcome.runs.gpu_memory_bytes if peak is not None]
    return f"GPU {max(peaks) / 1e6:,.0f} MB" if peaks else "no GPU"


def beside(value: float | None, unit: str, framework: str) -> str:
    """A figure of another framework, to stand behind PIGEON's; nothing where the paper has none."""
    return "" if value is None else f"; {framework} {value:g}{unit}"
