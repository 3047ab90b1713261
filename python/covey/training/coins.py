"""Public coins: pseudo-random numbers that all parties draw alike, others in each run of a sequence (program.proto)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from blake3 import blake3


def drawn(purpose: str, seed: int, run: int, count: int, kind: npt.DTypeLike) -> npt.NDArray[Any]:
    """The numbers of a node in a run, unsigned integers of a little-endian `kind`; nodes of one seed have the same."""
    size = np.dtype(kind).itemsize
    state = blake3(
        seed.to_bytes(8, "little") + run.to_bytes(8, "little"), derive_key_context=f"covey 2026 coins: {purpose}"
    )
    return np.frombuffer(state.digest(length=count * size), dtype=kind)


def seed_of(job: int, number: int) -> int:
    """The seed of a job's node that has this number, from the job's own."""
    return int.from_bytes(blake3(f"covey coins {job} {number}".encode()).digest()[:8], "little")
