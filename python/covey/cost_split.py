"""Which bytes of a run are for linear layers, and which for the rest.

The split follows table 1 of the efficient-models paper (arXiv:2209.00411). A step of a plan may be a product with the
shift and the ReLU behind it, computed by one gate. A second plan, of the same program with the values between them as
outputs, has each part as a step of its own. The parts take their bytes from the fused step in order; the last part that
sends anything takes what is left, so that all sums are those of the first plan.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from covey import _core
from covey._proto import program_pb2 as pb
from covey.emit import HEADER_BYTES, program_file

PARTS = {
    "convolution": "convolution",
    "other_linear": "other linear",
    "shift": "shift",
    "non_linear": "non-linear",
    "other": "other",
}
"""What tables call each part of the bytes.

The parts are linear layers, apart from rescaling: those of convolutions and the others; rescaling; the remaining
operations; and what belongs to no layer, such as inputs, outputs, checks and correlated randomness.
"""

PRODUCTS = frozenset({"conv2d", "dense", "matmul"})
"""Operations of a program that are convolutions and products of matrices: linear wherever they are."""

SUMS_AND_MOVES = frozenset(
    {"mul", "add", "sub", "shift_left", "sum_pool", "reshape", "transpose", "concat", "pad", "gather"}
)
"""Operations that are linear, except within a layer that has others, too, such as Softmax."""

SHIFTS = frozenset({"truncate", "mul_shift", "div_exact"})
"""Operations that bring a result back to its scale: shifts, and divisions by public numbers."""


def decoded(program: _core.Program) -> pb.Program:
    """The program's message."""
    return pb.Program.FromString(program.to_bytes()[HEADER_BYTES:])


def split(program: _core.Program, plan: dict[str, Any], parties: int | None, options: dict[str, Any]) -> dict[str, int]:
    """Bytes of a plan by `PARTS`: offline and online together, over all links.

    `parties` and `options` are those that the plan was made with. Raises a `CoveyError`.
    """
    message = decoded(program)
    part = _parts(message)
    own = {row["node"] for row in plan["nodes"]}
    alone = _alone(message, own, plan, parties, options)
    readers: dict[int, list[int]] = defaultdict(list)
    for index, node in enumerate(message.nodes):
        for value in node.inputs:
            readers[value].append(index)

    def is_product(index: int) -> bool:
        return message.nodes[index].WhichOneof("op") in PRODUCTS

    def fused(index: int) -> Iterator[int]:
        yield index
        for reader in readers[message.nodes[index].outputs[0]]:
            # A product without a row is fused with one that it is added to: both are opened as one.
            if reader not in own and not is_product(reader):
                yield from fused(reader)
                return

    found = dict.fromkeys(PARTS, 0)
    for row in plan["nodes"]:
        left = _bytes(row)
        if row["node"] >= len(message.nodes):
            found["other"] += left
            continue
        members = list(fused(row["node"]))
        *before, last = [index for index in members if alone.get(index)] or members[:1]
        for index in before:
            taken = min(alone[index], left)
            found[part[index]] += taken
            left -= taken
        found[part[last]] += left
    return found


def _parts(message: pb.Program) -> list[str]:
    """What each node's bytes count as."""
    nodes = [(node, str(node.WhichOneof("op"))) for node in message.nodes]
    linear = PRODUCTS | SUMS_AND_MOVES | SHIFTS
    not_linear = {node.name for node, operation in nodes if operation not in linear}

    def part(node: pb.Node, operation: str) -> str:
        if operation in SHIFTS:
            return "shift"
        if operation not in PRODUCTS and node.name in not_linear:
            return "non_linear"
        return "convolution" if "conv" in node.source_op.lower() else "other_linear"

    return [part(node, operation) for node, operation in nodes]


def _alone(
    message: pb.Program, own: set[int], plan: dict[str, Any], parties: int | None, options: dict[str, Any]
) -> dict[int, int]:
    """The bytes of each node where every value that a node reads within a fused step is an output."""
    made = {value for node in message.nodes for value in node.outputs}
    joined = [node for index, node in enumerate(message.nodes) if index not in own]
    between = [value for node in joined for value in node.inputs if value in made]
    apart = pb.Program()
    apart.CopyFrom(message)
    del apart.outputs[:], apart.postprocess[:]
    apart.outputs.extend(dict.fromkeys([*message.outputs, *between]))
    content, _ = program_file(apart, message.name)
    program = _core.Program(content)
    rows = json.loads(_core.plan(program, plan["protocol"], plan["batch"], 0, parties, **options))["nodes"]
    return {row["node"]: _bytes(row) for row in rows}


def _bytes(row: dict[str, Any]) -> int:
    return sum(int(link["bytes"]) for link in row["links"])
