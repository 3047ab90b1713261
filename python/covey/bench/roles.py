"""Fixed against turned roles: requests of two sessions, in turn, with the same parties on the same network."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from typing import Any

from covey.bench.networks import NetworkProfile
from covey.bench.pipelines import Bed
from covey.bench.statistics import Summary
from covey.client import Client, Progress
from covey.protocols import PROTOCOLS
from covey.result import Work

ROLES = ("fixed", "turned")


@dataclass(frozen=True)
class Row:
    """A session's figures on a network: requests of one inference a lane."""

    roles: str
    network: NetworkProfile
    seconds: Summary
    """Of a request."""
    samples: int
    """Of a request."""
    interface_bytes: int
    """Sent or received, whichever is more, by the party where that is most, in a request."""
    all_bytes: int
    """On all links between parties."""
    cpu_seconds: list[float | None]
    """Of each party, in a request."""

    @property
    def samples_per_second(self) -> float:
        """At the median."""
        return self.samples / self.seconds.median

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "roles": self.roles,
            "network": str(self.network),
            "seconds": self.seconds.to_json(),
            "samples_per_second": self.samples_per_second,
            "interface_bytes_per_sample": self.interface_bytes / self.samples,
            "bytes_per_sample": self.all_bytes / self.samples,
            "cpu_seconds": self.cpu_seconds,
        }


@dataclass(frozen=True)
class Pair:
    """Both on one network."""

    fixed: Row
    turned: Row
    ratios: Summary
    """Of neighbouring requests, how many times as many samples a second with turned roles."""

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "fixed": self.fixed.to_json(),
            "turned": self.turned.to_json(),
            "ratio": self.ratios.to_json(),
        }


def measure(bed: Bed, networks: Sequence[NetworkProfile], repetitions: int, progress: Progress) -> list[Pair]:
    """On each network so many requests of either session, one after the other, after one each to warm up."""
    return [_measure(bed, network, repetitions, progress) for network in networks]


def _measure(bed: Bed, network: NetworkProfile, repetitions: int, progress: Progress) -> Pair:
    protocol = bed.running.protocol
    lanes = PROTOCOLS[protocol].computing[0]
    client = Client(bed.configured(network))
    taken: dict[str, list[Work]] = {roles: [] for roles in ROLES}
    with ExitStack() as stack:
        sessions = {}
        for roles in ROLES:
            options: dict[str, Any] = {**network.session, "lanes": lanes, "roles": roles}
            sessions[roles] = stack.enter_context(client.session(bed.model.program, protocol, **options))
        for index in range(1 + repetitions):
            for roles in ROLES:
                progress(index, 1 + repetitions, f"{roles} roles on {network.name}")
                done = sessions[roles].infer_all([bed.inputs] * lanes)
                bed.check(done)
                taken[roles] += [done.work] if index else []
    fixed, turned = (_row(roles, network, lanes * bed.batch, lanes, taken[roles]) for roles in ROLES)
    pairs = zip(taken["fixed"], taken["turned"], strict=True)
    return Pair(fixed, turned, Summary.of([one.profile.seconds / other.profile.seconds for one, other in pairs]))


def _row(roles: str, network: NetworkProfile, samples: int, parties: int, works: Sequence[Work]) -> Row:
    sent, received = [0] * parties, [0] * parties
    for link in works[-1].profile.total.links:
        source, to, count = int(link["from"]), int(link["to"]), int(link["bytes"])
        # The client is no party.
        if source < parties and to < parties:
            sent[source] += count
            received[to] += count
    used = [[work.parties[party].cpu_seconds for work in works] for party in range(parties)]
    return Row(
        roles=roles,
        network=network,
        seconds=Summary.of([work.profile.seconds for work in works]),
        samples=samples,
        interface_bytes=max(*sent, *received),
        all_bytes=sum(sent),
        cpu_seconds=[None if None in party else median(s or 0.0 for s in party) for party in used],
    )
