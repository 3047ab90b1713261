"""What a run is known to take before it begins, and whether this machine has room for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from covey import _core
from covey._core import Program
from covey.bench.networks import NetworkProfile
from covey.bench.runs import session_options
from covey.parties import machine_memory
from covey.result import NodeProfile


@dataclass(frozen=True)
class Plan:
    """Bytes and rounds of one run with one sample, which of a training job is a minibatch, and the parties' memory."""

    network: NetworkProfile
    total: NodeProfile
    memory_bytes: list[int]
    """By party, the dealer last where there is one, with what waits of what was dealt ahead."""

    @staticmethod
    def of(
        program: Program,
        protocol: str,
        parties: int | None,
        network: NetworkProfile,
        options: Mapping[str, Any],
    ) -> Plan:
        """On a network, with a session's options."""
        given: dict[str, Any] = {**network.session, **session_options(options)}
        found = json.loads(_core.plan(program, protocol, 1, parties=parties, **given))
        return Plan(network, NodeProfile.of(found["total"]), peak_memory(found))

    @property
    def memory(self) -> int:
        """Of all parties together, which share this machine."""
        return sum(self.memory_bytes)

    @property
    def fits(self) -> bool:
        """Whether this machine has that memory, as far as its system tells."""
        has = machine_memory()
        return has is None or self.memory <= has

    @property
    def wire_seconds(self) -> float:
        """What the busiest link and the rounds take alone."""
        return self.network.wire_seconds(self.total.busiest_link_bytes, self.total.rounds)


def peak_memory(plan: Mapping[str, Any]) -> list[int]:
    """Bytes of each party's process in role order, what dealers have sent ahead of its use included."""
    return [held + ahead for held, ahead in zip(plan["memory"], plan["dealt_ahead"], strict=True)]
