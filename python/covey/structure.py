"""Comparing the structures of two programs: nodes, shapes, scales and attributes, whatever anything is called.

Every value gets a fingerprint of how it is computed: the operation with its attributes, its shape and scale, and the
fingerprints of the operands. Two programs have the same structure when their outputs have the same fingerprints, in
order, and no fingerprint is computed more often in one than in the other. Where they differ, the nodes to look at are
those that the other program lacks although it has computed all of their operands.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blake3 import blake3
from google.protobuf.message import Message

from covey._core import Program as CheckedProgram
from covey._proto import program_pb2 as pb
from covey.emit import HEADER_BYTES
from covey.whole import describe

COMMUTATIVE = ("add", "mul")
"""Operations whose two operands may come in either order."""


@dataclass(frozen=True)
class Difference:
    """One place where two structures differ: the nodes at it, and what is different."""

    here: str
    there: str
    what: str


@dataclass(frozen=True)
class Comparison:
    """The differences of two programs, and how many bounds differ where all else agrees."""

    nodes: int
    parameters: int
    ring: str
    differences: list[Difference]
    bounds_differing: int

    @property
    def equal(self) -> bool:
        """Whether the structures are the same."""
        return not self.differences


def read(path: str | os.PathLike[str]) -> pb.Program:
    """The program in a file, after the runtime has checked it. Raises `CoveyError`."""
    CheckedProgram(Path(path))
    return pb.Program.FromString(Path(path).read_bytes()[HEADER_BYTES:])


def compare(here: pb.Program, there: pb.Program) -> Comparison:
    """The structures of two programs side by side."""
    one, two = _Structure(here), _Structure(there)
    differences = [*_of_whole(one, two), *_of_nodes(one, two)]
    bounds = 0 if differences else sum((one.bounds - two.bounds).values())
    return Comparison(len(here.nodes), one.count("PARAMETER"), one.ring, differences, bounds)


class _Structure:
    """A program with the fingerprint of every value."""

    def __init__(self, program: pb.Program) -> None:
        self.program = program
        self.prints: dict[int, bytes] = {}
        for index, value in enumerate(program.values):
            if value.kind != pb.Value.INTERMEDIATE:
                place = list(program.inputs).index(index) if value.kind == pb.Value.INPUT else None
                self.prints[index] = _digest(_facts(value), place, list(value.constant))
        for node in program.nodes:
            operands = self.operands(node)
            kind = str(node.WhichOneof("op"))
            attributes = getattr(node, kind).SerializeToString(deterministic=True)
            for place, output in enumerate(node.outputs):
                self.prints[output] = _digest(kind, attributes, place, _facts(program.values[output]), operands)
        self.made = Counter(self.prints[output] for node in program.nodes for output in node.outputs)
        self.bounds = Counter(
            (self.prints[output], program.values[output].bound.SerializeToString(deterministic=True))
            for node in program.nodes
            for output in node.outputs
        )

    def operands(self, node: pb.Node) -> list[bytes]:
        """The fingerprints of a node's operands, in an order that does not matter where it does not matter."""
        prints = [self.prints[value] for value in node.inputs]
        return sorted(prints) if node.WhichOneof("op") in COMMUTATIVE else prints

    @property
    def ring(self) -> str:
        ring = self.program.ring
        return f"Z_2^{ring.pow2}" if ring.WhichOneof("kind") == "pow2" else f"Z_{ring.odd}"

    def count(self, kind: str) -> int:
        return sum(value.kind == pb.Value.Kind.Value(kind) for value in self.program.values)

    def missing_from(self, other: _Structure) -> list[pb.Node]:
        """The nodes `other` lacks although it has their operands, in execution order."""
        left, leaves = other.made.copy(), set(self.prints.values()) - set(self.made)
        known = leaves | set(other.prints.values())
        nodes = []
        for node in self.program.nodes:
            mark = self.prints[node.outputs[0]]
            if left[mark] > 0:
                left[mark] -= 1
            elif all(operand in known for operand in self.operands(node)):
                nodes.append(node)
        return nodes


def _of_whole(one: _Structure, two: _Structure) -> Iterator[Difference]:
    """What the programs differ in as wholes."""
    here, there = one.program, two.program
    whole: list[tuple[str, Any, Any]] = [
        ("ring", one.ring, two.ring),
        *(
            (f"number of {kind.lower()}s", one.count(kind), two.count(kind))
            for kind in ("PARAMETER", "CONSTANT", "STATE")
        ),
        ("inputs", _listed(here, here.inputs), _listed(there, there.inputs)),
        ("outputs", _listed(here, here.outputs), _listed(there, there.outputs)),
        ("after the outputs open", _postprocess(here), _postprocess(there)),
    ]
    for what, left, right in whole:
        if left != right:
            yield Difference("the program", "the program", f"{what} {left} / {right}")


def _of_nodes(one: _Structure, two: _Structure) -> Iterator[Difference]:
    """Nodes that only one of the programs has, in pairs that read the same where there are such."""
    here, there = one.missing_from(two), two.missing_from(one)
    for node in here:
        twin = _twin(one, node, two, there)
        if twin is None:
            yield Difference(_name(node), "", f"{_summary(one.program, node)} / nothing")
        else:
            there.remove(twin)
            yield Difference(_name(node), _name(twin), _changes(one.program, node, two.program, twin))
    for node in there:
        yield Difference("", _name(node), f"nothing / {_summary(two.program, node)}")
    if not here and not there:
        outputs = ([side.prints[value] for value in side.program.outputs] for side in (one, two))
        if next(outputs) != next(outputs):
            yield Difference("the program", "the program", "its outputs are other values, or in another order")


def _twin(one: _Structure, node: pb.Node, two: _Structure, candidates: list[pb.Node]) -> pb.Node | None:
    """The node of the other program that stands in this one's place: of the same operands, or else of the same kind."""
    operands, kind = one.operands(node), node.WhichOneof("op")
    ranked = sorted(
        candidates,
        key=lambda other: (two.operands(other) != operands, other.WhichOneof("op") != kind),
    )
    if not ranked:
        return None
    best = ranked[0]
    return best if two.operands(best) == operands or best.WhichOneof("op") == kind else None


def _changes(here: pb.Program, node: pb.Node, there: pb.Program, twin: pb.Node) -> str:
    """What two nodes that stand for each other differ in."""
    one, two = _properties(here, node), _properties(there, twin)
    changes = [
        f"{key} {one.get(key, '-')} / {two.get(key, '-')}" for key in {**one, **two} if one.get(key) != two.get(key)
    ]
    return "; ".join(changes) or "other operands"


def _properties(program: pb.Program, node: pb.Node) -> dict[str, str]:
    kind = str(node.WhichOneof("op"))
    value = program.values[node.outputs[0]]
    found = {"operation": kind, "shape": _shape(value), "scale": str(value.scale)}
    for index, operand in enumerate(program.values[entry] for entry in node.inputs):
        found[f"operand {index}"] = f"{_shape(operand)} at scale {operand.scale}"
    found.update(_attributes(getattr(node, kind), ""))
    return found


def _attributes(message: Message, prefix: str) -> Iterator[tuple[str, str]]:
    for entry in message.DESCRIPTOR.fields:
        value = getattr(message, entry.name)
        if isinstance(value, Message):
            yield from _attributes(value, f"{prefix}{entry.name}.")
        elif not entry.has_presence or message.HasField(entry.name):
            yield f"{prefix}{entry.name}", str(list(value) if hasattr(value, "append") else value)


def _summary(program: pb.Program, node: pb.Node) -> str:
    value = program.values[node.outputs[0]]
    return f"{node.WhichOneof('op')} {_shape(value)} at scale {value.scale}"


def _facts(value: pb.Value) -> str:
    span = (value.range.low, value.range.high) if value.HasField("range") else ""
    whole = value.whole.SerializeToString(deterministic=True) if value.HasField("whole") else b""
    return f"{_shape(value)} {value.scale} {value.kind} {value.visibility} {span} {whole.hex()}"


def _shape(value: pb.Value) -> str:
    return "[" + ", ".join(["N"] * value.batched + [str(size) for size in value.shape]) + "]"


def _listed(program: pb.Program, ids: Any) -> str:
    values = [program.values[index] for index in ids]
    spans = [
        (f" in [{value.range.low:g}, {value.range.high:g}]" if value.HasField("range") else "")
        + (f" from {describe(value.whole.classes)}" if value.HasField("whole") else "")
        for value in values
    ]
    return ", ".join(f"{_shape(value)} at scale {value.scale}{span}" for value, span in zip(values, spans, strict=True))


def _postprocess(program: pb.Program) -> str:
    steps = list(program.postprocess) or [pb.Postprocess.NOTHING] * len(program.outputs)
    return ", ".join(pb.Postprocess.Name(step).lower() for step in steps)


def _name(node: pb.Node) -> str:
    return f"{node.name} ({node.source_op})"


def _digest(*parts: object) -> bytes:
    return blake3(repr(parts).encode()).digest()
