"""Steps of training the networks of Keller and Sun (arXiv:2107.00501) and of Piranha, in every protocol."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from covey.bench.cache import default_folder
from covey.bench.cells import MOST, Cell, Preset, selected
from covey.bench.networks import network
from covey.bench.planned import Plan
from covey.bench.training import Training, measure
from covey.client import Progress
from covey.model import load
from covey.models import ImageSpec

NETWORK = network("loopback")

PROTOCOLS = ("trio", "quad", "beaver")


@dataclass(frozen=True)
class Step:
    """A network, the samples of its minibatch, and what was measured of others, without their preprocessing apart."""

    spec: ImageSpec
    batch: int = 128
    others: str = "—"


ROWS = {
    # CrypTen and SPU as built on a machine of two cores.
    "lenet5-mnist": Step(ImageSpec("lenet5", "mnist", "max"), 32, "CrypTen 2.1 to 3.1 s; SPU 24 s"),
    "alexnet-cifar": Step(ImageSpec("alexnet", "cifar", "max")),
    "lenet5-mnist-avg": Step(ImageSpec("lenet5", "mnist", "avg")),
    "alexnet-cifar-avg": Step(ImageSpec("alexnet", "cifar", "avg")),
    "vgg16-cifar-avg": Step(ImageSpec("vgg16", "cifar", "avg")),
}
"""The first two are Keller and Sun's, the others Piranha's, who pools by averages."""


def training_steps(
    times: int,
    say: Progress,
    *,
    rows: Sequence[str] | None = None,
    protocols: Sequence[str] | None = None,
    batch: int | None = None,
    device: str | None = None,
) -> Iterator[Cell]:
    """Seconds and bytes of one step."""
    chosen = selected("training-steps", "row", ROWS, rows)
    served = selected("training-steps", "protocol", PROTOCOLS, protocols)
    return (_cell(name, protocol, batch, times, say, device) for name in chosen for protocol in served)


def _cell(name: str, protocol: str, batch: int | None, times: int, say: Progress, device: str | None) -> Cell:
    step = ROWS[name]
    setting = Training(
        step.spec, batch or step.batch, NETWORK, protocol, repetitions=times, plaintext=False, device=device
    )
    others = step.others if setting.batch == step.batch else "—"
    what = f"{name}, batch {setting.batch}"
    domain = f"{protocol}, Z_2^{setting.ring}"
    program = load(setting.job.kept(default_folder(), say).program).program
    plan = Plan.of(program, protocol, None, NETWORK, {})
    total = plan.total
    if not plan.fits or total.bytes > MOST:
        return Cell(what, domain, NETWORK.name, 0.0, total.bytes, total.rounds, True, others, "does not fit here")
    outcome = measure(setting, default_folder(), say)
    cpu = outcome.runs.total_cpu_seconds
    here = f"{outcome.differing} differ" + ("" if cpu is None else f"; {cpu:.3g} s of CPU")
    return Cell(
        what, domain, NETWORK.name, outcome.runs.wall.median, outcome.bytes, total.rounds, False, others, here
    )  # fmt: skip


PRESETS = {
    "training-steps": Preset(
        "Steps of training the networks of Keller and Sun, and of Piranha",
        "One step of SGD on a minibatch, all preprocessing in it, exact, over TLS, on loopback; all parties share this "
        "machine. So many losses and weights differ from clear's after all steps. Cells that send more than 20 GB, or "
        "take more memory than this machine has, are planned, without a time. CrypTen, two parties, and SPU, three by "
        "ABY3, were measured on one machine of two cores, at batch 32.",
        training_steps,
        ("rows", "protocols", "batch", "device"),
    ),
}
"""By name."""
