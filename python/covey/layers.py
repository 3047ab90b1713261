"""Every layer of a network in the open: what a program computes between its inputs and outputs, beside floating point.

A program whose outputs are all of its layers computes the same integers as the program itself; running that one in the
clear, or privately on one's own data, shows where error comes from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from covey import _core, _interrupt, reference
from covey._proto import program_pb2 as pb
from covey.clear import run_clear
from covey.closeness import relative_error
from covey.emit import HEADER_BYTES, program_file
from covey.inputs import Floats
from covey.ir import Graph
from covey.model import Model
from covey.ops.average_pool import AveragePool
from covey.result import Result


@dataclass(frozen=True)
class Layer:
    """One layer's values in the clear beside floating point: the error that it and all layers before it have made.

    `relative_error` is the norm of the difference over that of the float values, `largest_error` the largest
    difference; `differing` says in how many of `elements` a private run and clear disagree, None without such a run.
    """

    node: str
    op: str
    scale: int
    relative_error: float
    largest_error: float
    largest: float
    elements: int
    differing: int | None = None


def opened(model: Model, weights: bytes | None = None) -> Model:
    """The model with every layer as an output, in the order of execution. `weights` is its weights file, if at hand."""
    program = pb.Program.FromString(model.program.to_bytes()[HEADER_BYTES:])
    last = {node.name: node.outputs[0] for node in program.nodes}
    del program.outputs[:], program.postprocess[:]
    program.outputs.extend(dict.fromkeys(last.values()))
    content, digest = program_file(program, program.name)
    whole = _core.Program(content)
    if weights is None:
        _interrupt.untidy()
        with TemporaryDirectory(prefix="covey-") as folder:
            path = Path(folder) / "weights.safetensors"
            model.need_weights().write(path)
            weights = path.read_bytes()
    # The weights name the program they belong to once, in the file's header.
    weights = weights.replace(model.program.hash.encode(), digest.encode(), 1)
    return Model(whole, _core.Weights(weights, whole), model.graph)


def compare(model: Model, graph: Graph, inputs: Mapping[str, Floats], private: Result | None = None) -> list[Layer]:
    """Every layer of an opened model in the clear beside floating point, and beside a private run of the same."""
    program = pb.Program.FromString(model.program.to_bytes()[HEADER_BYTES:])
    clear = run_clear(model, dict(inputs))
    floats = reference.run(graph, inputs)
    by_name = {node.name: node for node in graph.nodes}
    made = {node.outputs[0]: node for node in program.nodes}
    counted = _divisors(program, graph)
    layers = []
    for index in program.outputs:
        node, value = made[index], program.values[index]
        got = clear.logits[value.name] / counted.get(index, 1)
        due = floats[by_name[node.name].output] if node.name in by_name else None
        if due is None or due.shape != got.shape:  # a step that the float network does not have as it is
            continue
        difference = np.abs(got - due)
        integers = clear.integers[value.name]
        layers.append(
            Layer(
                node.name,
                node.source_op,
                value.scale,
                relative_error(got, due),
                float(difference.max()),
                float(np.abs(due).max()),
                integers.size,
                None if private is None else int((private.integers[value.name] != integers).sum()),
            )
        )
    return layers


def _divisors(program: pb.Program, graph: Graph) -> dict[int, int]:
    """How many elements the values count that stand for means whose readers divide (see `covey.linear`)."""
    # A node of the model may be several here: the mean, and the removal of its dimensions.
    means = {
        node.name: node.op.divisor(graph.values[node.inputs[0]])
        for node in graph.nodes
        if isinstance(node.op, AveragePool)
    }
    found: dict[int, int] = {}
    divided = {node.name for node in program.nodes if node.WhichOneof("op") in ("mul_shift", "div_exact")}
    for node in program.nodes:
        kind, (output,) = node.WhichOneof("op"), node.outputs
        if kind == "sum_pool" and node.name in means and node.name not in divided:
            found[output] = means[node.name]
        elif kind == "reshape" and node.inputs[0] in found:
            found[output] = found[node.inputs[0]]
    return found
