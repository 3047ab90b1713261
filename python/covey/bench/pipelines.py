"""MPC-Pipe's pipelines on a model: each by itself, all together and none, on networks of any rate, online."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from covey.bench.cache import kept
from covey.bench.jobs import Job
from covey.bench.networks import LOCAL_ROUND_TRIP_MS, NetworkProfile, local_network
from covey.bench.runs import PATIENCE
from covey.bench.statistics import Summary
from covey.clear import run_clear
from covey.client import Client, Phase, Progress
from covey.comparison import compare
from covey.config import read
from covey.errors import CoveyError, OptionError
from covey.inputs import Data
from covey.model import Model, load
from covey.models import Spec
from covey.parties import Parties, local
from covey.protocols import PROTOCOLS
from covey.result import NodeProfile, Profile, Results

LANES = 2
"""Mini-batches at a time, as the paper has them."""


@dataclass(frozen=True)
class Variant:
    """Which pipelines are on."""

    name: str
    inter_linear: bool
    """Weights are opened once, not in front of each product."""
    inner_layer: bool
    """A tile travels while the next is computed."""
    lanes: int = 1
    """Mini-batches at a time."""

    @property
    def options(self) -> dict[str, Any]:
        """Of a session."""
        pipelines = {"inter_linear": self.inter_linear, "inner_layer": self.inner_layer}
        return {**pipelines, "lanes": self.lanes, "roles": "fixed"}


NONE = Variant("none", False, False)
TWO = Variant("inter-linear and inner-layer", True, True)
ALL = Variant("all", True, True, LANES)
VARIANTS = (
    NONE,
    Variant("inter-linear", True, False),
    Variant("inner-layer", False, True),
    Variant("inter-batch", False, False, LANES),
    Variant("inner-layer and inter-batch", False, True, LANES),
    TWO,
    ALL,
)
"""Off, each, and together."""


@dataclass(frozen=True)
class Row:
    """A variant's figures for online inferences, their material made before; or for steps of training as a whole."""

    variant: Variant
    network: NetworkProfile
    batch: int
    latency: Summary
    """Seconds of one inference by itself."""
    seconds_each: float
    """Of several, from the first request to the last result, over their number."""
    computing_seconds: float
    """Of one inference by itself, at the party that took longest, node by node."""
    waiting_seconds: float
    """The rest of its time: waits for others."""
    link_bits_per_second: float
    """What the link that carried most carried, on average, while `seconds_each` was taken."""
    core_use: list[float | None]
    """Processor seconds of each computing party over seconds, in the same time."""
    bytes: int
    """Online, on all links."""
    rounds: int
    nodes: list[NodeProfile]
    attention: frozenset[str]
    """The nodes that multiply two activations."""

    @property
    def per_minute(self) -> float:
        """Samples."""
        return self.batch * 60 / self.seconds_each

    @property
    def link_use(self) -> float | None:
        """The fraction of a link's rate."""
        rate = self.network.megabits
        return None if rate is None else self.link_bits_per_second / (rate * 1e6)

    def more_throughput(self, base: Row) -> float:
        """As a fraction of `base`'s."""
        return base.seconds_each / self.seconds_each - 1

    def less_latency(self, base: Row) -> float:
        """As a fraction of `base`'s."""
        return 1 - self.latency.median / base.latency.median

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "variant": asdict(self.variant),
            "network": str(self.network),
            "batch": self.batch,
            "latency_seconds": self.latency.to_json(),
            "seconds_each": self.seconds_each,
            "per_minute": self.per_minute,
            "computing_seconds": self.computing_seconds,
            "waiting_seconds": self.waiting_seconds,
            "link_bits_per_second": self.link_bits_per_second,
            "link_use": self.link_use,
            "core_use": self.core_use,
            "bytes": self.bytes,
            "rounds": self.rounds,
        }


class Bed:
    """Parties on this machine that hold one model, for sessions with all kinds of options on all kinds of networks.

    Of a program that carries values, as a step of training does, every run is the first of a sequence: it is not
    preprocessed, and takes its material in its own time.
    """

    def __init__(self, running: Parties, spec: Spec, model: Model, batch: int, inputs: Data) -> None:
        self.running = running
        self.spec = spec
        self.model = model
        self.batch = batch
        self.inputs = inputs
        self.due = run_clear(model, inputs)
        self.carries = bool(model.program.carried)
        self.phase: Phase = "joint" if self.carries else "online"

    def measure(
        self,
        variant: Variant,
        network: NetworkProfile,
        repetitions: int,
        progress: Progress,
        options: Mapping[str, Any] | None = None,
    ) -> Row:
        """One inference to warm up, then so many by themselves, then several at a time where there are lanes."""
        given = {**network.session, **variant.options, **(options or {})}
        client = Client(self.configured(network))
        results = []
        with client.session(self.model.program, self.running.protocol, **given) as session:
            for index in range(1 + repetitions):
                progress(index, 1 + repetitions, f"{variant.name} on {network.name}")
                if not self.carries:
                    session.preprocess(self.batch)
                done = session.infer_all([self.inputs], phase=self.phase)
                self.check(done)
                results += [done] if index else []
            together = results
            if variant.lanes > 1:
                count = 2 * variant.lanes
                session.preprocess(self.batch, count)
                together = [session.infer_all([self.inputs] * count, phase=self.phase)]
                self.check(together[0])
        return self._row(variant, network, results, together)

    def _row(self, variant: Variant, network: NetworkProfile, results: list[Results], together: list[Results]) -> Row:
        total = results[-1].work.profile.total
        seconds = sum(done.work.profile.seconds for done in together)
        count = sum(len(done.results) for done in together)
        busiest = sum(done.work.profile.total.busiest_link_bytes for done in together)
        info = PROTOCOLS[self.running.protocol]
        computing = len(self.running.names) - info.dealer
        used = [[done.work.parties[party].cpu_seconds for done in together] for party in range(computing)]
        return Row(
            variant=variant,
            network=network,
            batch=self.batch,
            latency=Summary.of([done.work.profile.seconds for done in results]),
            seconds_each=seconds / count,
            computing_seconds=(total.milliseconds - total.waiting_milliseconds) / 1e3,
            waiting_seconds=total.waiting_milliseconds / 1e3,
            link_bits_per_second=busiest * 8 / seconds,
            core_use=[None if None in party else sum(s or 0.0 for s in party) / seconds for party in used],
            bytes=total.online_bytes,
            rounds=total.rounds,
            nodes=results[-1].work.profile.nodes,
            attention=frozenset(
                node["name"]
                for node in self.model.program.nodes
                # In training weights are secret operands, too, so that all products look like this.
                if (node["op"], node["computes"]) == ("MatMul", "Matmul") and not self.carries
            ),
        )

    def check(self, done: Results) -> None:
        """Raises `CoveyError` if an output differs from `clear`."""
        for result in done.results:
            differing = sum(row.differing for row in compare(self.due.integers, result.integers))
            if differing:
                raise CoveyError(f"{differing} outputs differ from clear; please report it")

    def configured(self, network: NetworkProfile) -> Path:
        """The data owner's configuration file for a network."""
        document = read(self.running.client_config)
        if network.options:
            document["network"] = network.options
        path = self.running.client_config.with_name("bench.toml")
        path.write_text(document.as_string())
        return path


@contextmanager
def bed(
    spec: Spec,
    folder: Path,
    progress: Progress,
    *,
    protocol: str = "beaver",
    parties: int | None = None,
    ring: str = "64",
    batch: int = 1,
    public_weights: bool = False,
    device: str | None = None,
) -> Iterator[Bed]:
    """Parties that hold a model of the zoo. Raises `OptionError` for one whose runs follow each other."""
    if spec.carry:
        raise OptionError(
            f"a run of {spec.model} needs what the run before left, so runs cannot overlap: use covey bench model"
        )
    files = kept(spec, ring, folder, progress, public_weights=public_weights)
    model = load(files.program)
    with _running(spec, model, batch, spec.samples(batch), progress, protocol, parties, device) as made:
        yield made


@contextmanager
def training_bed(
    job: Job, folder: Path, progress: Progress, *, protocol: str, parties: int | None, device: str | None
) -> Iterator[Bed]:
    """Parties that hold a training job."""
    model = load(job.kept(folder, progress).program)
    (minibatch,) = job.minibatches(model.program, 1)
    with _running(job.spec, model, job.batch, minibatch, progress, protocol, parties, device) as made:
        yield made


@contextmanager
def _running(
    spec: Spec,
    model: Model,
    batch: int,
    inputs: Data,
    progress: Progress,
    protocol: str,
    parties: int | None,
    device: str | None,
) -> Iterator[Bed]:
    with local(protocol, parties=parties, timeout=PATIENCE, device=device, progress=progress) as running:
        progress(0, 0, "sharing weights")
        running.share(model)
        yield Bed(running, spec, model, batch, inputs)


def balanced(unpipelined: Row) -> NetworkProfile | None:
    """The local network on which an inference without pipelines communicates for as long as it computes.

    That is the rate at which the busiest link's bytes, and a local network's latency in every round, take the time that
    was computed on loopback. `None` where rounds alone take longer.
    """
    left = unpipelined.computing_seconds - unpipelined.rounds * LOCAL_ROUND_TRIP_MS / 2e3
    if left <= 0:
        return None
    return local_network(Profile(unpipelined.nodes, 0.0).total.busiest_link_bytes * 8 / left / 1e6)


def need_balanced(unpipelined: Row) -> NetworkProfile:
    """The same. Raises `OptionError` where there is none."""
    found = balanced(unpipelined)
    if found is None:
        raise OptionError(
            "no rate makes this model's communication as short as its computation, as its rounds alone take longer: "
            "use a larger model, or name a --network"
        )
    return found


def table(
    bed: Bed, networks: Sequence[NetworkProfile], variants: Sequence[Variant], repetitions: int, progress: Progress
) -> list[Row]:
    """Each variant on each network."""
    return [bed.measure(variant, network, repetitions, progress) for network in networks for variant in variants]


KINDS = {
    "Conv": "linear",
    "Gemm": "linear",
    "MatMul": "linear",
    "Relu": "ReLU",
    "MaxPool": "max pool",
    "Softmax": "softmax",
    "LayerNormalization": "normalisation",
}
"""What an operator counts as, the first of several that run at once."""


def by_kind(row: Row) -> dict[str, float]:
    """Seconds of one inference by kind of layer, as the paper's figures split them; it leaves out normalisation."""
    sums = dict.fromkeys([*dict.fromkeys(KINDS.values()), "attention", "other"], 0.0)
    for node in row.nodes:
        found = [KINDS[op] for op in node.op.split("+") if op in KINDS]
        kind = next((kind for kind in sums if kind in found), "other")
        if row.attention.intersection(node.name.split("+")):
            kind = "attention"
        sums[kind] += node.milliseconds / 1e3
    return sums
