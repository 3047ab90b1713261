"""What a run protects, reveals and costs, known before anything runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from covey import _core, certificate
from covey._core import Program
from covey._proto import program_pb2 as pb
from covey.emit import HEADER_BYTES
from covey.model import Model
from covey.ops.enforced_range import EnforcedRange
from covey.protocols import PROTOCOLS
from covey.report import serving
from covey.result import NodeProfile
from covey.shown import Shown
from covey.tables import amount, cell, duration, profile_table, table
from covey.training.opening import steps_between

MOST_BYTES = 5
"""Nodes that are listed once more, because they send the most."""


@dataclass(frozen=True)
class Explanation(Shown):
    """What a run of a program among the parties of a protocol protects, reveals and costs.

    `reveals` says who learns what, one line each. `plan` is the cost as plain data: bytes and rounds of every node and
    link, estimated seconds of sessions that are set up for two networks, correlated OTs, and each party's peak memory
    in bytes.
    """

    program: str
    program_hash: str
    ring: str
    protocol: str
    parties: int | None
    security: str
    reveals: list[str]
    plan: dict[str, Any] = field(repr=False)
    note: str | None = None
    """What was decided while the model was compiled for this, if it was."""
    minibatch: int | None = None
    """Samples of a step, of a training job."""

    @cached_property
    def nodes(self) -> list[NodeProfile]:
        """Every step with its bytes and rounds; its time is not known before it runs."""
        return [NodeProfile.of(row) for row in self.plan["nodes"]]

    @cached_property
    def total(self) -> NodeProfile:
        """All steps together."""
        return NodeProfile.of(self.plan["total"])

    def rows(self) -> list[dict[str, Any]]:
        """Every step: bytes over all links, offline and online, rounds and messages."""
        return [
            {
                "node": node.name,
                "op": node.op,
                "offline_bytes": node.offline_bytes,
                "online_bytes": node.online_bytes,
                "rounds": node.rounds,
                "messages": node.messages,
            }
            for node in self.nodes
        ]

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        header = {"model": self.program, "program_hash": self.program_hash, "ring": self.ring}
        return {**header, "security": self.security, "reveals": self.reveals, **self.plan}

    def rendered(self) -> RenderableType:
        """The explanation for a terminal (print it with rich)."""
        plan = self.plan
        head = f"{self.program}  ring {self.ring}  program {self.program_hash[:12]}"
        parts: list[RenderableType] = [
            Text(f"{head}  {self._at_once}\n"),
            Text(self.security),
            Text("\nA run reveals"),
            *(Padding(Text("- " + line), (0, 0, 0, 2)) for line in self.reveals),
            Text(),
            profile_table(self.nodes, self.total, timed=False),
        ]
        if self.total.links:
            parts += [Text(), self._links(), Text(), self._most_bytes()]
            if plan["weights"]:
                once = NodeProfile.of(plan["weights"])
                parts.append(Text(f"preparing the weights together, once for a version of them: {amount(once.bytes)}"))
        parts.append(Text())
        parts += [Text(self._estimated(estimate)) for estimate in plan["estimates"]]
        if any(plan["correlated_ots"]):
            ots = " and ".join(f"{count:,}" for count in plan["correlated_ots"])
            still = "is only the public keys of lattice encryption" if plan["exposure"] else "is not sent"
            parts.append(
                Text(
                    f"correlated OTs: {ots}, by the party that holds the correlation; with these in store (`covey "
                    f"store`), 'correlated randomness' {still}"
                )
            )
        if any(plan["memory"]):
            peaks = ", ".join(f"{self._called(role)} {amount(peak)}" for role, peak in enumerate(plan["memory"]))
            ahead = max(plan["dealt_ahead"])
            more = f"; up to {amount(ahead)} more at a party while what is dealt ahead waits" if ahead else ""
            parts.append(Text(f"peak memory, about: {peaks}{more}"))
        return Group(*parts)

    def _estimated(self, estimate: dict[str, Any]) -> str:
        network = estimate["network"]
        other = estimate["rounds"] != self.total.rounds
        rounds = f" in {estimate['rounds']:,} rounds, with circuits for such a network" if other else ""
        return (
            f"{network['name']} ({network['bits_per_second'] / 1e9:g} Gbit/s, "
            f"{2e3 * network['one_way_seconds']:g} ms round trip): "
            f"{duration(estimate['seconds'])} on the wire{rounds}, "
            f"{duration(estimate['online_seconds'])} of it once preprocessed; computation comes on top"
        )

    @property
    def _at_once(self) -> str:
        runs = self.plan["batch"]
        return f"{runs} sample(s) at once" if self.minibatch is None else f"{runs} step(s) of {self.minibatch} samples"

    @property
    def _called(self) -> Callable[[int], str]:
        info = PROTOCOLS[self.protocol]
        return lambda number: info.peer(number, self.parties)

    def _links(self) -> Table:
        made = table("link by link", ["from", "to"], ["offline bytes", "online bytes", "messages"])
        rows: dict[tuple[int, int], list[int]] = {}
        for link in self.total.links:
            row = rows.setdefault((link["from"], link["to"]), [0, 0, 0])
            row[0 if link["offline"] else 1] += link["bytes"]
            row[2] += link["messages"]
        for (sender, receiver), row in sorted(rows.items()):
            made.add_row(self._called(sender), self._called(receiver), *(f"{count:,}" for count in row))
        return made

    def _most_bytes(self) -> Table:
        made = table("the nodes that send most", ["node", "operator"], ["bytes", "share", "rounds"])
        for node in sorted(self.nodes, key=lambda node: node.bytes, reverse=True)[:MOST_BYTES]:
            if node.bytes:
                share = f"{node.bytes / self.total.bytes:.0%}"
                made.add_row(cell(node.name), cell(node.op), f"{node.bytes:,}", share, f"{node.rounds:,}")
        return made


def explanation(
    model: Model, protocol: str, parties: int | None, batch: int, round_bits: int, options: dict[str, Any]
) -> Explanation:
    """The explanation of a loaded model; `parties` is how many compute where the protocol takes any number."""
    program = model.program
    plan = json.loads(_core.plan(program, protocol, batch, round_bits, parties, estimates=True, **options))
    reveals = what_a_run_reveals(program, round_bits)
    if options.get("key_bits") is not None:
        reveals.append(
            f"to the result's owner: more of the weights if an input repeats, as comparisons read "
            f"{options['key_bits']} bits and masks decide errors near 0"
        )
    if exposure := plan["exposure"]:
        reveals.append(
            f"to P1: of the weights and of P0's shares, through the noise of {exposure['results']:,} encrypted "
            f"results, at most a statistical distance of 2^-{int(exposure['bits_each'])} each and "
            f"2^-{int(exposure['bits_total'])} a run"
        )
    security = PROTOCOLS[protocol].security
    minibatch = program.inputs[0]["shape"][0] if is_training(program) else None
    return Explanation(
        program.name, program.hash, program.ring, protocol, parties, security, reveals, plan, model.note, minibatch
    )


def is_training(program: Program) -> bool:
    """Whether the program is a training job's step."""
    try:
        steps = steps_between(entry["name"] for entry in program.outputs)
    except ValueError:
        return False
    labelled = bool(program.carried) and "labels" in {entry["name"] for entry in program.inputs}
    return labelled and (steps is None or steps == 1 or _opens_in_turn(program, steps))


def _opens_in_turn(program: Program, steps: int) -> bool:
    """Whether every output is a product with 1 in the last of so many runs and with 0 in all others."""
    message = pb.Program.FromString(program.to_bytes()[HEADER_BYTES:])
    producers = {output: node for node in message.nodes for output in node.outputs}
    nodes = [producers[output] for output in message.outputs]
    due = pb.Scheduled(multipliers=(0, 1), runs=(steps - 1, 1))
    return all(node.WhichOneof("op") == "scheduled" and node.scheduled == due for node in nodes)


def _what_training_reveals(program: Program, opens_weights: bool) -> list[str]:
    steps = steps_between(entry["name"] for entry in program.outputs)
    if steps is None:
        return ["weights that open tell about the records that they were trained on"] if opens_weights else []
    return [
        "a training job's losses are means over a minibatch, under weights that earlier ones shaped"
        + (f", and open as sums over {steps} steps, 0 in between" if steps > 1 else "")
        + ": they tell about its records"
        + (", and so do weights that open" if opens_weights else "")
    ]


def what_a_run_reveals(program: Program, round_bits: int = 0) -> list[str]:
    """Who learns what from a run, one line each."""
    losing = [entry["name"] for entry in program.outputs if round_bits and entry["loses_bits"]]
    which = f"{', '.join(losing)} of it " if 0 < len(losing) < len(program.outputs) else ""
    rounded = f", {which}rounded to multiples of 2^{round_bits} before it opens" if losing else ""
    softmax = " (a final softmax is computed by its owner, in the clear)"
    postprocessed = any(entry["postprocess"] == "softmax" for entry in program.outputs)
    names = ", ".join(entry["name"] for entry in program.outputs)
    lines = [
        "to every party: the architecture with node names, shapes and scales, the ring, the declared ranges and "
        "classes of inputs, a power-of-two bound for each tensor, batch size and timing",
        f"to the result's owner alone: the output {names}{rounded}{softmax if postprocessed else ''}"
        if program.outputs
        else "to nobody: a run opens nothing",
    ]
    message = pb.Program.FromString(program.to_bytes()[HEADER_BYTES:])
    if program.carried:
        names = ", ".join(entry["name"] for entry in program.carried)
        lines.append(
            f"to every party: how many runs a sequence has; what is carried between them ({names}) stays in shares "
            f"until the session ends"
        )
        opened = ", ".join(entry["opens"] for entry in program.carried if entry["opens"] is not None)
        if opened:
            lines.append(f"to the data owner alone, once, where it ends a sequence: {opened}")
        if is_training(program):
            lines += _what_training_reveals(program, bool(opened))
        if message.HasField("serving"):
            lines.append(serving(message.serving.program.hex()))
    enforced = {node.name for node in message.nodes if node.source_op == EnforcedRange.__name__}
    if calibrated := [name for name in program.calibrated if name not in enforced]:
        lines.append(
            f"bounds of {len(calibrated)} nodes come from calibration data; an input beyond them gives a wrong "
            f"result, which masks may decide: repeats tell its owner more"
        )
    if certificate.of(program) is not None:
        lines.append("to every party: the accuracy record, with what its data are called and how many they are")
    if program.public_weights:
        lines.append("the weights are public: every party knows them")
    return lines
