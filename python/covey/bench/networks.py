"""The networks that benchmarks run on: loopback as it is, or slowed down to what a profile allows."""

from __future__ import annotations

import re
from dataclasses import dataclass

from covey.errors import OptionError


@dataclass(frozen=True)
class NetworkProfile:
    """What every link offers in either direction; `None` is no limit."""

    name: str
    megabits: float | None
    round_trip_ms: float

    @property
    def options(self) -> dict[str, float]:
        """The `[network]` table of a client's configuration file; empty where nothing is emulated."""
        if self.megabits is None:
            return {}
        return {"latency_ms": self.round_trip_ms / 2, "bandwidth_mbit": self.megabits}

    @property
    def session(self) -> dict[str, int]:
        """What a session on this network is told to choose its circuits for; on loopback that is left to it."""
        if self.megabits is None:
            return {}
        return {"latency_us": round(self.round_trip_ms * 500), "bandwidth": round(self.megabits * 1e6)}

    def wire_seconds(self, size: float, rounds: int) -> float:
        """Seconds that so many bytes, one after the other, and so many rounds take on the wire."""
        sending = size * 8 / (self.megabits * 1e6) if self.megabits else 0.0
        return rounds * self.round_trip_ms / 2e3 + sending

    def use(self, size: int, seconds: float) -> float | None:
        """The fraction of a link's rate that `size` bytes in `seconds` come to."""
        return None if self.megabits is None else size * 8 / seconds / (self.megabits * 1e6)

    def __str__(self) -> str:
        if self.megabits is None:
            return self.name
        return f"{self.name} ({self.megabits / 1e3:g} Gbit/s, {self.round_trip_ms:g} ms round trip, emulated)"


NETWORKS = {
    profile.name: profile
    for profile in (
        NetworkProfile("loopback", None, 0.0),
        NetworkProfile("25g", 25_000, 0.3),
        NetworkProfile("10g", 10_000, 0.3),
        NetworkProfile("1g", 1_000, 0.3),
        NetworkProfile("wan", 1_000, 70.0),
        # CrypTFlow2, section 7: 377 and 40 megabytes a second.
        NetworkProfile("cryptflow2-lan", 3_016, 0.3),
        NetworkProfile("cryptflow2-wan", 320, 80.0),
        # MPC-Pipe, section 5.4.
        NetworkProfile("mpc-pipe-wan", 10_000, 70.0),
        # Efficient-models paper (arXiv:2209.00411), section "Secure inference".
        NetworkProfile("efficient-models", 16_000, 0.7),
    )
}


LOCAL_ROUND_TRIP_MS = 0.3
"""Of a local network."""


def local_network(megabits: float) -> NetworkProfile:
    """A local network of any rate."""
    return NetworkProfile(f"{megabits / 1e3:.3g}g", megabits, LOCAL_ROUND_TRIP_MS)


def network(name: str) -> NetworkProfile:
    """A profile by name, or a local network by its rate, such as 2.5g. Raises `OptionError`."""
    if name in NETWORKS:
        return NETWORKS[name]
    rate = re.fullmatch(r"(\d{1,4}(?:\.\d{1,3})?)g", name)
    if rate is None or float(rate[1]) == 0:
        raise OptionError(
            f"network '{name}' is unknown: use one of {', '.join(NETWORKS)}, or a rate in Gbit/s such as 2.5g"
        )
    return local_network(float(rate[1]) * 1e3)
