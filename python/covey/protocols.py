"""The protocols by name: who takes part, what is promised, and what a run tells whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from covey.errors import OptionError


@dataclass(frozen=True)
class ProtocolInfo:
    """A protocol as users meet it."""

    name: str
    parties: tuple[str, ...]
    """What the computing parties are called on one machine, in role order; none where everything is in the open."""
    rings: Sequence[int]
    """Bits of the rings Z_2^l it computes in."""
    help: str
    """For the command line's help."""
    security: str
    """What it promises, in one sentence."""
    who_learnt_what: str
    """After a run; `{count}` stands for the number of results."""
    data_owner_can_compute: bool = False
    """Whether the data owner may be the last party itself: it holds nothing of the model."""


PROTOCOLS: Mapping[str, ProtocolInfo] = {
    info.name: info
    for info in (
        ProtocolInfo(
            "trio",
            ("alpha", "beta", "gamma"),
            (32, 64),
            "trio: three parties, semi-honest",
            "Trio: three parties compute; nothing that any one of them sees tells it anything about inputs, weights "
            "or outputs, as long as all three follow the protocol and no two pool what they see (semi-honest, one of "
            "three).",
            "Who could have learnt what: the data owner alone learnt the {count} results, and the model owner nothing; "
            "alpha, beta and gamma saw the program, the batch size and the timing, and beyond that only numbers that "
            "are random to each of them, unless two of them pool what they hold or one of them leaves the protocol.",
        ),
        ProtocolInfo(
            "two-party",
            ("alpha", "beta"),
            range(16, 65),
            "two-party: the model owner's server and the data owner's, semi-honest, no dealer",
            "Two-party: the model owner's server holds the weights, and both servers shares of everything else; "
            "neither learns what the other holds, as long as both follow the protocol (semi-honest, no dealer).",
            "Who could have learnt what: the data owner alone learnt the {count} results. alpha, the model owner's "
            "server, holds the weights; the data owner's side saw of them only numbers that are random to it, as "
            "alpha did of the images, unless the two pool what they hold or one of them leaves the protocol. Both saw "
            "the program, the batch size and the timing.",
            data_owner_can_compute=True,
        ),
        ProtocolInfo(
            "clear",
            (),
            range(4, 65),
            "clear: in the open on this machine, to compare with",
            "clear: no security; plain integers on one machine, the specification that exact protocols equal.",
            "Who could have learnt what: everybody on this machine, everything; clear protects nothing.",
        ),
    )
}


def protocol(name: str) -> ProtocolInfo:
    """A protocol by name. Raises `OptionError` for one nobody has heard of."""
    if name in PROTOCOLS:
        return PROTOCOLS[name]
    *others, last = PROTOCOLS
    raise OptionError(f"protocol '{name}' is unknown: use {', '.join(others)} or {last}")
