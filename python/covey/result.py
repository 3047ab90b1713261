"""What a run gives: outputs as numbers and as integers, and a profile."""

from __future__ import annotations

import functools
import json
import operator
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from rich.console import Group, RenderableType
from rich.text import Text

from covey.shown import Shown
from covey.tables import amount, duration, profile_table

if TYPE_CHECKING:
    from covey._core import Program
    from covey.plot import Plot

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

SHOWN_SAMPLES = 10
SHOWN_CLASSES = 3
SHOWN_ELEMENTS = 8


@dataclass(frozen=True)
class NodeProfile:
    """One step of a run: milliseconds, online rounds, and payload bytes over all links of all parties.

    `links` holds dicts of offline, from, to, bytes and messages.
    """

    name: str
    op: str
    milliseconds: float
    rounds: int
    offline_bytes: int
    online_bytes: int
    links: list[dict[str, Any]] = field(repr=False)
    waiting_milliseconds: float = 0.0
    """Those in which the party that took longest waited for others; in the rest it computed."""
    gpus: int = 0
    """Parties that computed it on a GPU."""

    @property
    def device(self) -> str:
        """`gpu` where a party computed it on one, else `cpu`."""
        return "gpu" if self.gpus else "cpu"

    @property
    def bytes(self) -> int:
        """Offline and online together."""
        return self.offline_bytes + self.online_bytes

    @property
    def messages(self) -> int:
        """Offline and online together."""
        return sum(int(link["messages"]) for link in self.links)

    @property
    def busiest_link_bytes(self) -> int:
        """What the directed link that carried most carried, offline and online together."""
        sent: dict[tuple[int, int], int] = {}
        for link in self.links:
            key = (int(link["from"]), int(link["to"]))
            sent[key] = sent.get(key, 0) + int(link["bytes"])
        return max(sent.values(), default=0)

    @property
    def gigabits_per_second(self) -> float:
        """Of the busiest link, over the step's time; 0 where no time is known."""
        return self.busiest_link_bytes * 8 / self.milliseconds / 1e6 if self.milliseconds else 0.0

    def and_then(self, other: NodeProfile) -> NodeProfile:
        """This step, and the same of a later run."""
        links = {(link["offline"], link["from"], link["to"]): dict(link) for link in self.links}
        for link in other.links:
            key = (link["offline"], link["from"], link["to"])
            if key in links:
                links[key]["bytes"] += link["bytes"]
                links[key]["messages"] += link["messages"]
            else:
                links[key] = link
        return NodeProfile(
            self.name,
            self.op,
            milliseconds=self.milliseconds + other.milliseconds,
            rounds=self.rounds + other.rounds,
            offline_bytes=self.offline_bytes + other.offline_bytes,
            online_bytes=self.online_bytes + other.online_bytes,
            links=list(links.values()),
            waiting_milliseconds=self.waiting_milliseconds + other.waiting_milliseconds,
            gpus=max(self.gpus, other.gpus),
        )

    @staticmethod
    def of(row: Mapping[str, Any]) -> NodeProfile:
        """From a row of a profile or a plan."""

        def total(offline: bool) -> int:
            return sum(int(link["bytes"]) for link in row["links"] if bool(link["offline"]) is offline)

        return NodeProfile(
            name=row["name"],
            op=row["op"],
            milliseconds=float(row.get("milliseconds", 0.0)),
            rounds=int(row["rounds"]),
            offline_bytes=total(True),
            online_bytes=total(False),
            links=list(row["links"]),
            waiting_milliseconds=float(row.get("waiting_milliseconds", 0.0)),
            gpus=int(row.get("gpus", 0)),
        )


@dataclass(frozen=True)
class Profile(Shown):
    """Where time and bytes went, step by step under the model's own node names."""

    nodes: list[NodeProfile]
    seconds: float
    """Wall-clock seconds as the client saw them, preprocessing included where it was part of the run."""

    @staticmethod
    def of(text: str, seconds: float) -> Profile:
        """From the parties' merged profile, as JSON."""
        return Profile([NodeProfile.of(row) for row in json.loads(text)["nodes"]], seconds)

    @property
    def total(self) -> NodeProfile:
        """All steps together."""
        return NodeProfile(
            name="total",
            op="",
            milliseconds=sum(node.milliseconds for node in self.nodes),
            rounds=sum(node.rounds for node in self.nodes),
            offline_bytes=sum(node.offline_bytes for node in self.nodes),
            online_bytes=sum(node.online_bytes for node in self.nodes),
            links=[link for node in self.nodes for link in node.links],
            waiting_milliseconds=sum(node.waiting_milliseconds for node in self.nodes),
            gpus=max((node.gpus for node in self.nodes), default=0),
        )

    @staticmethod
    def summed(profiles: Sequence[Profile]) -> Profile:
        """Of runs of one program one after the other."""
        nodes: dict[tuple[str, str, int], NodeProfile] = {}
        for profile in profiles:
            seen: dict[tuple[str, str], int] = {}
            for node in profile.nodes:
                # Several steps may have one name.
                place = seen[node.name, node.op] = seen.get((node.name, node.op), 0) + 1
                key = (node.name, node.op, place)
                nodes[key] = nodes[key].and_then(node) if key in nodes else node
        return Profile(list(nodes.values()), sum(profile.seconds for profile in profiles))

    def rows(self) -> list[dict[str, Any]]:
        """Every step: device, milliseconds and which of them were waits, bytes, rounds and messages."""
        return [
            {
                "node": node.name,
                "op": node.op,
                "device": node.device,
                "milliseconds": node.milliseconds,
                "waiting_milliseconds": node.waiting_milliseconds,
                "gigabits_per_second": node.gigabits_per_second,
                "offline_bytes": node.offline_bytes,
                "online_bytes": node.online_bytes,
                "rounds": node.rounds,
                "messages": node.messages,
            }
            for node in self.nodes
        ]

    def rendered(self) -> RenderableType:
        """Step by step, for a terminal (print it with rich)."""
        return Group(profile_table(self.nodes, self.total), Text(self.summary))

    @property
    def summary(self) -> str:
        """The whole run in one line."""
        total = self.total
        traffic = f", {amount(total.bytes)} sent by all, {total.rounds:,} rounds" if total.links else ""
        return duration(self.seconds) + traffic

    def plot(self, path: str | os.PathLike[str] | None = None, *, title: str = "profile") -> Plot:
        """Time and bytes of every step as a picture, which notebooks show and `path` (.png, .svg, .pdf) keeps.

        Raises `OptionError` where matplotlib is not installed or the path is none that a picture can go to.
        """
        from covey.plot import draw, drawn

        return drawn(lambda: draw(self, title), path)

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "seconds": self.seconds,
            "nodes": [
                {
                    "name": node.name,
                    "op": node.op,
                    "device": node.device,
                    "milliseconds": node.milliseconds,
                    "waiting_milliseconds": node.waiting_milliseconds,
                    "rounds": node.rounds,
                    "links": node.links,
                }
                for node in self.nodes
            ],
        }


@dataclass(frozen=True)
class PartyUsage:
    """What a run took of one party's machine; `None` where its system does not tell.

    `cpu_seconds` counts all threads of the party's process, `peak_memory_bytes` is the most it held since it started,
    `gpu_memory_bytes` likewise of a GPU, where it used one, and `socket_bytes_sent` includes framing and TLS.
    """

    name: str
    socket_bytes_sent: int
    cpu_seconds: float | None
    peak_memory_bytes: int | None
    gpu_memory_bytes: int | None = None

    def and_then(self, other: PartyUsage) -> PartyUsage:
        """What this run took, and a later one."""

        def both(join: Callable[[Any, Any], Any], mine: Any, theirs: Any) -> Any:
            return None if mine is None or theirs is None else join(mine, theirs)

        return PartyUsage(
            self.name,
            self.socket_bytes_sent + other.socket_bytes_sent,
            both(operator.add, self.cpu_seconds, other.cpu_seconds),
            both(max, self.peak_memory_bytes, other.peak_memory_bytes),
            both(max, self.gpu_memory_bytes, other.gpu_memory_bytes),
        )

    @staticmethod
    def all_of(text: str) -> list[PartyUsage]:
        """From JSON, in role order."""
        return [PartyUsage(**row) for row in json.loads(text)]


@dataclass(frozen=True)
class Work:
    """What preprocessing took: steps and bytes, and what it took of each party's machine."""

    profile: Profile
    parties: list[PartyUsage]


@dataclass(frozen=True)
class Opened:
    """What opened at the end of a sequence, by the program's names, without the dimension of samples where it is 1."""

    values: dict[str, Floats] = field(repr=False)
    integers: dict[str, Integers] = field(repr=False)
    work: Work = field(repr=False)

    @staticmethod
    def of(entries: Sequence[Mapping[str, Any]], work: Work) -> Opened:
        """From the runtime's integers."""
        integers = {entry["name"]: entry["integers"] for entry in entries}
        integers = {name: array[0] if len(array) == 1 else array for name, array in integers.items()}
        scales = {entry["name"]: int(entry["scale"]) for entry in entries}
        values = {name: np.ldexp(array.astype(np.float64), -scales[name]) for name, array in integers.items()}
        return Opened(values, integers, work)


@dataclass(frozen=True)
class Results:
    """Several inferences of one session, as many at a time as it has lanes.

    `latencies` are the seconds of each; times of steps in `work` are added up over all of them, while its `seconds` are
    from the request to the last result.
    """

    results: list[Result]
    latencies: list[float]
    work: Work


@dataclass(frozen=True)
class Result(Shown):
    """The opened outputs of a run.

    `outputs` are real numbers by output name, with what the result's owner does in the clear (a final Softmax) applied;
    `integers` the ring integers they come from, `scales` their fractional bits.
    """

    outputs: dict[str, Floats]
    integers: dict[str, Integers] = field(repr=False)
    scales: dict[str, int] = field(repr=False)
    profile: Profile | None = field(default=None, repr=False)
    parties: list[PartyUsage] = field(default_factory=list, repr=False)
    """What the run took of each party's machine, in role order; empty without parties."""
    at_bound: list[str] = field(default_factory=list)
    """Outputs that touch a bound that calibration data gave: they, and what they come from, may have wrapped around."""

    @property
    def logits(self) -> dict[str, Floats]:
        """The outputs before what is done in the clear, as real numbers."""
        return {name: integers / 2.0 ** self.scales[name] for name, integers in self.integers.items()}

    def rows(self) -> list[dict[str, Any]]:
        """Every sample: its number and all elements of its outputs, named `output[index, ..]`."""
        count = max((len(values) for values in self.outputs.values() if values.ndim), default=1)
        rows: list[dict[str, Any]] = [{"sample": sample} for sample in range(count)]
        for name, values in self.outputs.items():
            batched = values if values.ndim and len(values) == count else values[None].repeat(count, axis=0)
            for index in np.ndindex(batched.shape[1:]):
                column = f"{name}[{', '.join(map(str, index))}]" if index else name
                place = (slice(None), *index)
                for row, value in zip(rows, batched[place].tolist(), strict=True):
                    row[column] = value
        return rows

    @property
    def lines(self) -> list[str]:
        """The predictions of the first samples, or the first elements of outputs that are no classes."""
        return [line for name, values in self.outputs.items() for line in _output_lines(name, values)]

    @property
    def warnings(self) -> list[str]:
        """What may be wrong with the outputs, one line each."""
        return [
            f"output '{name}' touches the bound that the calibration data gave it, so it may be wrong: compile with "
            f"more --calibration data or a larger ring"
            for name in self.at_bound
        ]

    def rendered(self) -> RenderableType:
        """The outputs for a terminal (print it with rich)."""
        took = [self.profile.summary] if self.profile is not None else []
        return Text("\n".join([*self.lines, *self.warnings, *took]), overflow="fold")

    @staticmethod
    def joined(done: Results) -> Result:
        """One result of mini-batches one after the other."""

        def rows(part: str) -> dict[str, Any]:
            parts = [getattr(result, part) for result in done.results]
            return {name: np.concatenate([each[name] for each in parts]) for name in parts[0]}

        first = done.results[0]
        touching = list(dict.fromkeys(name for result in done.results for name in result.at_bound))
        return Result(rows("outputs"), rows("integers"), first.scales, done.work.profile, done.work.parties, touching)

    @staticmethod
    def one_after_the_other(done: Sequence[Result]) -> Result:
        """One result of runs on one part of the samples each."""
        profile = Profile.summed([result.profile for result in done if result.profile is not None])
        parties = [functools.reduce(PartyUsage.and_then, runs) for runs in zip(*(r.parties for r in done), strict=True)]
        return Result.joined(Results(list(done), [], Work(profile, parties)))

    @staticmethod
    def of(
        program: Program,
        opened: Sequence[Mapping[str, Any]],
        profile: Profile | None = None,
        parties: Sequence[PartyUsage] = (),
    ) -> Result:
        """From what was opened: dicts of name, scale and integers."""
        softmaxes = {entry["name"] for entry in program.outputs if entry["postprocess"] == "softmax"}
        integers = {entry["name"]: entry["integers"] for entry in opened}
        scales = {entry["name"]: int(entry["scale"]) for entry in opened}
        outputs = {name: values / 2.0 ** scales[name] for name, values in integers.items()}
        for name in softmaxes & outputs.keys():
            outputs[name] = softmax(outputs[name])
        calibrated = {entry["name"]: int(entry["bound_bits"]) for entry in program.outputs if not entry["proved"]}
        at_bound = [name for name in integers if _touches(integers[name], calibrated.get(name))]
        return Result(outputs, integers, scales, profile, list(parties), at_bound)


def _output_lines(name: str, values: Floats) -> Iterator[str]:
    yield f"{name} [{', '.join(map(str, values.shape))}]"
    if values.ndim != 2 or values.shape[1] < 2:
        flat = values.reshape(len(values), -1) if values.ndim and len(values) else values.reshape(1, -1)
        for index, row in enumerate(flat[:SHOWN_SAMPLES]):
            more = " ..." if len(row) > SHOWN_ELEMENTS else ""
            yield f"  sample {index}: {', '.join(f'{value:.5g}' for value in row[:SHOWN_ELEMENTS])}{more}"
    else:
        for index, row in enumerate(values[:SHOWN_SAMPLES]):
            best = np.argsort(-row, kind="stable")[:SHOWN_CLASSES]
            yield f"  sample {index}: " + ", ".join(f"class {k} ({row[k]:.4g})" for k in best)
    if len(values) > SHOWN_SAMPLES:
        yield f"  ... and {len(values) - SHOWN_SAMPLES} more"


def _touches(values: Integers, bits: int | None) -> bool:
    if bits is None or not values.size:
        return False
    return max(int(values.max()), -int(values.min())) >= (1 << bits) - 1


def softmax(values: Floats) -> Floats:
    """Softmax over the last axis."""
    powers: Floats = np.exp(values - values.max(axis=-1, keepdims=True))
    shares: Floats = powers / powers.sum(axis=-1, keepdims=True)
    return shares
