"""What several models cost in several protocols, side by side, before anything runs."""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from covey._proto import program_pb2 as pb
from covey.cost_split import PARTS, decoded, split
from covey.errors import OptionError
from covey.explanation import explanation
from covey.model import Model
from covey.protocols import PROTOCOLS, session_options
from covey.protocols import protocol as find_protocol
from covey.shown import Shown
from covey.tables import amount, cell, duration, table

if TYPE_CHECKING:
    from covey._core import Program
    from covey.plot import Plot

NAME_WIDTH = 14
"""Columns of text for a model's name; a longer one is folded, so that tables fit 80 columns."""

SERVED = tuple(name for name, info in PROTOCOLS.items() if info.served)
"""The protocols that run among servers."""


@dataclass(frozen=True)
class Cost:
    """What a run of one model costs in one protocol.

    Bytes are payloads over all links of all parties. `seconds` are estimates by network, LAN and WAN, of preprocessing
    and online together in a session that is set up for it, without computation. `busiest_bytes` is the most that one
    machine sends, or that one receives. `correlated_ots` has both parties' (0 but between two). `parts` has the bytes
    by `covey.cost_split.PARTS`.
    """

    model: str
    protocol: str
    parties: int | None
    offline_bytes: int
    online_bytes: int
    busiest_bytes: int
    rounds: int
    correlated_ots: int
    seconds: dict[str, float]
    parts: dict[str, int]

    @property
    def bytes(self) -> int:
        """Offline and online together."""
        return self.offline_bytes + self.online_bytes


@dataclass(frozen=True)
class CostComparison(Shown):
    """Costs of models in protocols: all models of the first protocol, then of the next."""

    batch: int
    rings: dict[str, str]
    """Every model's ring, in the order given."""
    multiplications: dict[str, int]
    """Those of a sample in every model's convolutions and matrix products."""
    costs: list[Cost] = field(repr=False)
    notes: list[str] = field(repr=False)
    """What was decided while models were compiled for this."""

    def reduction(self, cost: Cost) -> float | None:
        """How many times fewer bytes than the first model's in the same protocol; None for none at all."""
        first = next(other for other in self.costs if other.protocol == cost.protocol)
        return first.bytes / cost.bytes if cost.bytes else None

    def rows(self) -> list[dict[str, Any]]:
        """Every model in every protocol: bytes, rounds, seconds, multiplications, the ratio, and bytes by part."""
        return [
            {
                "model": cost.model,
                "protocol": cost.protocol,
                "parties": cost.parties,
                "offline_bytes": cost.offline_bytes,
                "online_bytes": cost.online_bytes,
                "rounds": cost.rounds,
                **{f"{name.lower()}_seconds": seconds for name, seconds in cost.seconds.items()},
                "multiplications": self.multiplications[cost.model],
                "reduction": self.reduction(cost),
                **{f"{part}_bytes": cost.parts[part] for part in PARTS},
            }
            for cost in self.costs
        ]

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        models = [
            {"model": name, "ring": ring, "multiplications": self.multiplications[name]}
            for name, ring in self.rings.items()
        ]
        return {"batch": self.batch, "models": models, "costs": self.rows()}

    def rendered(self) -> RenderableType:
        """The tables for a terminal (print them with rich), at most 80 columns wide."""
        return Group(
            self._models(),
            Text(),
            self._costs(),
            Text("fewer: the first model's bytes, offline and online together, divided by these\n"),
            self._split(),
        )

    def plot(self, path: str | os.PathLike[str] | None = None) -> Plot:
        """Draw the bytes by part, a panel for each protocol, and save them at `path` if there is one.

        Raises `OptionError` where matplotlib is not installed or the path is none that a picture can go to.
        """
        from covey.plot import draw_costs, drawn

        return drawn(lambda: draw_costs(self), path)

    def _models(self) -> Table:
        made = table(f"models, {self.batch} sample(s) at once", ["model", "ring"], ["multiplications", "fewer"])
        first = next(iter(self.multiplications.values()))
        for name, ring in self.rings.items():
            count = self.multiplications[name]
            made.add_row(cell(name), ring, f"{count:,}", _times(first / count if count else None))
        return made

    def _costs(self) -> Table:
        networks = list(self.costs[0].seconds)
        made = _narrow("costs", ["offline", "online", "rounds", *networks, "fewer"])
        for cost in self.costs:
            made.add_row(
                cost.protocol,
                cell(cost.model),
                amount(cost.offline_bytes),
                amount(cost.online_bytes),
                f"{cost.rounds:,}",
                *(duration(seconds) for seconds in cost.seconds.values()),
                _times(self.reduction(cost)),
            )
        return made

    def _split(self) -> Table:
        made = _narrow("shares of the bytes", [label.replace(" ", "\n") for label in PARTS.values()])
        for cost in self.costs:
            shares = (f"{cost.parts[part] / cost.bytes:.1%}" if cost.bytes else "" for part in PARTS)
            made.add_row(cost.protocol, cell(cost.model), *shares)
        return made


Setting = tuple[int | None, dict[str, Any]]
"""How many parties compute, where the protocol takes any number, and a session's options."""


def settings(
    protocols: Sequence[str],
    parties: int | None,
    key_bits: int | None,
    linear: str | None,
    preprocess_linear: bool,
) -> dict[str, Setting]:
    """Each protocol's setting: an option that only some of the protocols have is for these.

    Raises `OptionError` for an option that none of them has, and for protocols that nothing runs in.
    """
    if isinstance(protocols, str) or not protocols:
        raise OptionError(f"protocols is no list of protocols: give at least one of {', '.join(SERVED)}")
    infos = [find_protocol(name) for name in dict.fromkeys(protocols)]
    if "two-party" not in protocols:
        session_options(None, infos[0].name, linear=linear, preprocess_linear=preprocess_linear)
    if not any(info.key_bits for info in infos):
        session_options(key_bits, infos[0].name)
    if all(len(info.computing) < 2 for info in infos):
        infos[0].count(parties)
    found: dict[str, Setting] = {}
    for info in infos:
        count = info.count(parties if len(info.computing) > 1 else None)
        if info.name == "two-party":
            options = session_options(key_bits, info.name, linear=linear, preprocess_linear=preprocess_linear)
        else:
            options = session_options(key_bits if info.key_bits else None, info.name)
        found[info.name] = (count, options)
    return found


def _exact_ones(settings: Mapping[str, Setting]) -> list[str]:
    """A note where comparisons are approximate in some of the protocols alone."""
    exact = [name for name, (_, options) in settings.items() if "key_bits" not in options]
    return [f"{' and '.join(exact)}: exact, without key bits"] if 0 < len(exact) < len(settings) else []


def side_by_side(
    models: Sequence[Model], settings: Mapping[str, Setting], batch: int, round_bits: int
) -> CostComparison:
    """The costs of loaded models in protocols with these settings. Raises a `CoveyError`."""
    named = dict(zip(_names(models), models, strict=True))
    costs = [
        cost_of(model, protocol, setting, batch, round_bits, name)
        for protocol, setting in settings.items()
        for name, model in named.items()
    ]
    return CostComparison(
        batch,
        rings={name: model.program.ring for name, model in named.items()},
        multiplications={name: multiplications(model.program) for name, model in named.items()},
        costs=costs,
        notes=[*(model.note for model in models if model.note is not None), *_exact_ones(settings)],
    )


def cost_of(
    model: Model, protocol: str, setting: Setting, batch: int = 1, round_bits: int = 0, name: str | None = None
) -> Cost:
    """The cost of a loaded model in a protocol with this setting; `name` is what it is called there."""
    count, options = setting
    explained = explanation(model, protocol, count, batch, round_bits, options)
    return Cost(
        model=name or model.program.name,
        protocol=protocol,
        parties=count,
        offline_bytes=explained.total.offline_bytes,
        online_bytes=explained.total.online_bytes,
        busiest_bytes=_busiest(explained.total.links),
        rounds=explained.total.rounds,
        correlated_ots=sum(explained.plan["correlated_ots"]),
        seconds={each["network"]["name"]: each["seconds"] for each in explained.plan["estimates"]},
        parts=split(model.program, explained.plan, count, options),
    )


def _busiest(links: Iterable[Mapping[str, Any]]) -> int:
    """The most bytes that any machine sends or receives."""
    carried: dict[tuple[str, int], int] = defaultdict(int)
    for link in links:
        for end in ("from", "to"):
            carried[end, link[end]] += link["bytes"]
    return max(carried.values(), default=0)


def multiplications(program: Program) -> int:
    """Those of a sample in the convolutions and matrix products of a program, after all compiler passes.

    Counted is what meets a zero of the padding, too. Products element by element are not counted, and neither are
    products with constants, such as Winograd's transforms, which every party computes by itself.
    """
    message = decoded(program)
    total = 0
    for node in message.nodes:
        operation, operands = node.WhichOneof("op"), [message.values[value] for value in node.inputs[:2]]
        outputs = math.prod(message.values[node.outputs[0]].shape)
        if any(operand.kind == pb.Value.CONSTANT for operand in operands):
            continue
        if operation == "conv2d":
            total += outputs * math.prod(operands[1].shape[1:])
        elif operation in ("dense", "matmul"):
            total += outputs * operands[0].shape[-1]
    return total


def _names(models: Sequence[Model]) -> list[str]:
    """What the models are called, each by a name of its own."""
    names: list[str] = []
    for model in models:
        name, number = model.program.name, 1
        while name in names:
            number += 1
            name = f"{model.program.name} ({number})"
        names.append(name)
    return names


def _narrow(title: str, numbers: list[str]) -> Table:
    made = table(title, ["protocol", "model"], numbers)
    made.columns[1].max_width = NAME_WIDTH
    return made


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"
