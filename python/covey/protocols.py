"""The protocols by name: who takes part, what is promised, and what a run tells whom."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from covey.arguments import check_flags, check_number, check_options
from covey.errors import OptionError

PARTY_NAMES = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta")
"""What computing parties are called on one machine, in role order."""

DEALER = "dealer"
"""What the dealer is called there, and its role in configuration files."""


@dataclass(frozen=True)
class ProtocolInfo:
    """A protocol as users meet it."""

    name: str
    computing: Sequence[int]
    """How many parties may compute, the usual number first; none where everything is in the open."""
    rings: Sequence[int]
    """Bits of the rings Z_2^l it computes in."""
    help: str
    """For the command line's help."""
    security: str
    """What it promises, in one sentence."""
    who_learnt_what: str
    """After a run; `{count}` stands for the number of results, `{parties}` for the parties' names."""
    dealer: bool = False
    """Whether a dealer takes part beside the computing parties; it has the last role."""
    data_owner_can_compute: bool = False
    """Whether the data owner may be the last party itself: it holds nothing of the model."""
    computes_in_turn: bool = False
    """Whether a party computes mostly while the others wait, so that on one machine each may use all processors."""
    key_bits: bool = True
    """Whether comparisons may read fewer bits than they need."""
    roles_turn: bool = False
    """Whether the parties can take all roles in turn, from lane to lane."""

    @property
    def served(self) -> bool:
        """Whether it runs among servers."""
        return bool(self.computing)

    def count(self, parties: int | None) -> int | None:
        """How many parties compute where the protocol takes any number, else `None`. Raises `OptionError`."""
        if len(self.computing) > 1:
            if parties is None:
                return self.computing[0]
            check_number("parties", parties)
            if parties in self.computing:
                return int(parties)
            raise OptionError(f"{self.name} takes {self.computing[0]} to {self.computing[-1]} parties, not {parties}")
        if parties is None:
            return None
        has = f"always has {self.computing[0]} parties" if self.served else "has no parties"
        raise OptionError(f"{self.name} {has}: leave --parties out, or use {_of_any_number()}")

    def roles(self, parties: int | None = None) -> tuple[str, ...]:
        """What the parties are called on one machine, in role order, the dealer last."""
        count = self.count(parties) or sum(self.computing)
        return PARTY_NAMES[:count] + ((DEALER,) if self.dealer else ())

    def threads(self, processors: int, parties: int | None = None) -> int:
        """How many threads a party computes on where all of them are on one machine of `processors`."""
        at_once = 1 if self.computes_in_turn else len(self.roles(parties))
        return max(1, processors // max(1, at_once))

    def peer(self, number: int, parties: int | None = None) -> str:
        """What tables call a peer of a session: a party by its role, the dealer, or the client after them."""
        roles = self.roles(parties)
        if number >= len(roles):
            return "client"
        return DEALER if roles[number] == DEALER else f"P{number}"

    def label(self, parties: int | None = None) -> str:
        """For titles: its name, with the number of parties where it takes any."""
        return self.name if parties is None else f"{self.name} of {parties} parties"

    def learnt(self, results: int, parties: int | None = None) -> str:
        """`who_learnt_what` of a run on one machine."""
        *others, last = [name for name in self.roles(parties) if name != DEALER] or [""]
        return self.who_learnt_what.format(count=results, parties=f"{', '.join(others)} and {last}")


PROTOCOLS: Mapping[str, ProtocolInfo] = {
    info.name: info
    for info in (
        ProtocolInfo(
            "trio",
            (3,),
            (32, 64),
            "trio: three parties, semi-honest",
            "Trio: three parties compute; nothing that any one of them sees tells it anything about inputs, weights "
            "or outputs, as long as all three follow the protocol and no two pool what they see (semi-honest, one of "
            "three).",
            "Who could have learnt what: the data owner alone learnt the {count} results, and the model owner nothing; "
            "{parties} saw the program, the batch size and the timing, and beyond that only numbers that "
            "are random to each of them, unless two of them pool what they hold or one of them leaves the protocol.",
            roles_turn=True,
        ),
        ProtocolInfo(
            "quad",
            (4,),
            (32, 64),
            "quad: four parties, malicious with abort: one may do whatever it likes, and what it changes ends the run",
            "Quad: four parties compute; any one of them may do whatever it likes, and neither learns anything about "
            "inputs, weights or outputs nor makes the data owner accept a wrong result: the run ends instead, as long "
            "as no two of them work together (malicious, with abort, one of four).",
            "Who could have learnt what: the data owner alone learnt the {count} results, and the model owner nothing; "
            "{parties} saw the program, the batch size and the timing, and beyond that only numbers that "
            "are random to each of them, even if one of them left the protocol, unless two of them work together.",
            key_bits=False,
            roles_turn=True,
        ),
        ProtocolInfo(
            "two-party",
            (2,),
            range(16, 65),
            "two-party: the model owner's server and the data owner's, semi-honest, no dealer",
            "Two-party: the model owner's server holds the weights, and both servers shares of everything else; "
            "neither learns what the other holds, as long as both follow the protocol (semi-honest, no dealer).",
            "Who could have learnt what: the data owner alone learnt the {count} results. alpha, the model owner's "
            "server, holds the weights; the data owner's side saw of them only numbers that are random to it, as "
            "alpha did of the images, unless the two pool what they hold or one of them leaves the protocol. Both saw "
            "the program, the batch size and the timing.",
            data_owner_can_compute=True,
            computes_in_turn=True,
        ),
        ProtocolInfo(
            "beaver",
            range(2, 9),
            (32, 64),
            "beaver: 2 to 8 parties and a dealer, semi-honest, all but one party may pool what they see",
            "Beaver: a dealer hands out correlated randomness and any number of parties compute; what all but one of "
            "the parties see, pooled, tells them nothing about inputs, weights or outputs, as long as all follow the "
            "protocol and the dealer, who holds no shares, pools nothing with any of them (semi-honest, all but one).",
            "Who could have learnt what: the data owner alone learnt the {count} results, and the model owner nothing; "
            "{parties} saw the program, the batch size and the timing, and beyond that only numbers that are random "
            "to them, unless all of them pool what they hold, one of them pools it with the dealer, or one of them "
            "leaves the protocol. The dealer saw the program, the batch size and the timing, and no share of anything.",
            dealer=True,
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
    if isinstance(name, str) and name in PROTOCOLS:
        return PROTOCOLS[name]
    *others, last = PROTOCOLS
    raise OptionError(f"protocol '{name}' is unknown: use {', '.join(others)} or {last}")


def of_parties(computing: int, dealer: bool) -> str | None:
    """The protocol of so many listed parties; a data owner that is a party itself is not listed."""
    for info in PROTOCOLS.values():
        counts = (computing, computing + 1) if info.data_owner_can_compute else (computing,)
        if info.dealer is dealer and any(count in info.computing for count in counts):
            return info.name
    return None


def session_options(
    key_bits: int | None,
    name: str,
    lanes: int | None = None,
    linear: str | None = None,
    preprocess_linear: bool = False,
    roles: str | None = None,
) -> dict[str, Any]:
    """The options of a session that were given. Raises `OptionError` for one the protocol has not."""
    check_flags(preprocess_linear=preprocess_linear)
    whole = {"key_bits": key_bits, "lanes": lanes}
    check_options({option: value for option, value in whole.items() if value is not None})
    given = {**whole, "linear": linear, "preprocess_linear": preprocess_linear or None, "roles": roles}
    check_linear(name, linear, preprocess_linear)
    if roles not in (None, "fixed", "turned"):
        raise OptionError(f"--roles cannot be '{roles}': use fixed or turned")
    if roles == "turned":
        if not PROTOCOLS[name].roles_turn:
            turning = " or ".join(info.name for info in PROTOCOLS.values() if info.roles_turn)
            raise OptionError(f"--roles turned is for {turning}: roles do not turn in {name}")
        if lanes is None or lanes < 2:
            raise OptionError("--roles turned changes roles from lane to lane: say --lanes, best as many as parties")
    if key_bits is not None and not PROTOCOLS[name].key_bits:
        raise OptionError(f"--key-bits makes results depend on masks, which {name} refuses: leave it out")
    if name == "clear":
        if key_bits is not None:
            raise OptionError("--key-bits approximates comparisons of a private run: clear has none")
        if lanes is not None and lanes > 1:
            raise OptionError("--lanes is for private runs: clear has none")
        if roles is not None:
            raise OptionError("--roles is for private runs: clear has no parties")
    return {option: value for option, value in given.items() if value is not None}


def check_linear(name: str, linear: str | None, preprocess_linear: bool) -> None:
    """Refuse ways of multiplying by weights that a protocol has not. Raises `OptionError`."""
    if preprocess_linear and linear == "ot":
        raise OptionError("--preprocess-linear is for layers by lattice encryption: --linear ot has none")
    if preprocess_linear and name != "two-party":
        raise OptionError(f"--preprocess-linear is for layers by lattice encryption: {name} has none")
    if linear is not None and name != "two-party":
        raise OptionError(f"--linear says how two parties multiply by weights: {name} has one way")


def device_option(device: str | None, name: str) -> str | None:
    """What the parties of a protocol compute on, where it was said. Raises `CoveyError` for what they cannot."""
    from covey._core import check_device

    if device is not None:
        if not isinstance(device, str):
            raise OptionError(f"device is {device!r}: use auto, cpu, cuda or cuda:<number>")
        check_device(device)
        if name == "clear":
            raise OptionError("--device is for private runs: clear computes on the processor")
    return device


def threads_option(threads: int | None, name: str) -> int | None:
    """How many threads each party of a protocol computes on, where it was said. Raises `CoveyError`."""
    if threads is not None:
        if isinstance(threads, bool) or not isinstance(threads, int):
            raise OptionError(f"threads is {threads!r}: use a whole number")
        check_threads(threads)
        if name == "clear":
            raise OptionError("--threads is for private runs: clear computes on one thread")
    return threads


def check_threads(count: int) -> None:
    """Refuse a number of threads that there cannot be. Raises `CoveyError`."""
    from covey._core import check_threads as check

    check(max(-sys.maxsize, min(count, sys.maxsize)))  # the runtime takes no larger numbers


def _of_any_number() -> str:
    return " or ".join(info.name for info in PROTOCOLS.values() if len(info.computing) > 1)
