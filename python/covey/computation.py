"""Processor time of an inference, estimated from its multiplications, bytes and correlated OTs.

Rates are nanoseconds of one core, measured on an AMD EPYC with AVX-512 (two cores) as processor time, not wall
time, at the party that computes most. Two parties' are from `covey bench primitives --protocol two-party --ring 60
--linear ot`, the others' from `--protocol trio`, `quad` and `beaver` with `--ring 64`:

- `relu 2^20, whole ring`: bytes outside linear layers; between two parties correlated OTs, as also `shift and relu
  2^17` and `table 2^17, sigmoid on [-8, 8)`.
- `conv 64→64 3×3 56^2 × 16`: multiplications, less the time of its bytes; between two parties, `conv 64→64 3×3 14^2`:
  bytes of linear layers, less the time of its correlated OTs.

Lattice encryption's are fitted to runs of `covey bench model`, as no primitive of a ring of 60 bits uses it.
docs/efficient-models.md compares predictions with runs of networks.
"""

from __future__ import annotations

from dataclasses import dataclass

from covey.cost_comparison import Cost


@dataclass(frozen=True)
class Rates:
    """Nanoseconds of one core. Bytes are those on all links, and correlated OTs those of both parties."""

    multiplication: float
    """In linear layers."""
    linear_byte: float
    other_byte: float
    """Outside linear layers."""
    correlated_ot: float = 0
    """Made and used."""

    def seconds(self, multiplications: int, linear_bytes: int, other_bytes: int, correlated_ots: int = 0) -> float:
        """Of one core."""
        nanoseconds = (
            multiplications * self.multiplication
            + linear_bytes * self.linear_byte
            + other_bytes * self.other_byte
            + correlated_ots * self.correlated_ot
        )
        return nanoseconds / 1e9


_LATTICE = Rates(2.5, 2, 0, 50)

RATES = {
    "trio": Rates(0.12, 0.77, 0.77),
    "quad": Rates(0.20, 0.81, 0.81),
    "beaver": Rates(0.15, 0.83, 0.83),
    "two-party by ot": Rates(0, 1.7, 0, 50),
    "two-party by lattice": _LATTICE,
    # Small layers go by OT, whose bytes cost about as much.
    "two-party by auto": _LATTICE,
}
"""By protocol, and by how two parties multiply."""


def core_seconds(cost: Cost, multiplications: int, linear: str | None) -> float:
    """Seconds of one core at the party that computes most; `linear` is how two parties multiply."""
    name = cost.protocol if linear is None else f"{cost.protocol} by {linear}"
    products = cost.parts["convolution"] + cost.parts["other_linear"]
    return RATES[name].seconds(multiplications, products, cost.bytes - products, cost.correlated_ots)
