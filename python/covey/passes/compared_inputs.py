"""Inputs that trees compare and nothing else reads: an affine step before them, and how fine they have to be.

A step x -> (x + a) * m with m > 0 before a comparison with t is a comparison of x with t / m - a: scaling in front of
trees is free. Such inputs meet no product, so they may have more fractional bits than other values, as many
as the ring has room for; features of different sizes then keep their digits. Samples show how many bits are enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from covey import reference
from covey.interval import Array
from covey.ir import Graph, Node
from covey.ops.add import Add
from covey.ops.concat import Concat
from covey.ops.enforced_range import EnforcedRange
from covey.ops.gather import Gather
from covey.ops.mul import Mul
from covey.ops.reshape import Reshape
from covey.ops.sub import Sub
from covey.ops.trees import Below
from covey.passes.dead_nodes import remove_dead_nodes

MOST_BITS = 30
"""Fractional bits where no samples say that fewer are enough: those of a float32 between a sixteenth and an eighth."""

SPARE_BITS = 4
"""Further bits where samples decide alike at fewer, because those to come may lie closer to a threshold."""


def fold_into_thresholds(graph: Graph) -> None:
    """Let every Below read what an affine step before it reads."""
    for node in list(graph.nodes):
        if isinstance(node.op, Below):
            while _fold(graph, node, node.op):
                pass


def _fold(graph: Graph, node: Node, op: Below) -> bool:
    """Fold the step right before a comparison; whether there was one."""
    step = graph.producer(node.inputs[0])
    if step is None or not isinstance(step.op, Add | Sub | Mul):
        return False
    constants = [index for index, name in enumerate(step.inputs) if name in graph.parameters]
    if len(constants) != 1 or (isinstance(step.op, Sub) and constants == [0]):
        return False
    source = step.inputs[1 - constants[0]]
    shape = graph.values[source].shape
    constant = graph.parameters[step.inputs[constants[0]]]
    if shape != graph.values[step.output].shape or len(shape) != 1:
        return False
    numbers = np.broadcast_to(constant, shape)[list(op.features)]
    if isinstance(step.op, Mul) and not (numbers > 0).all():
        return False
    thresholds = graph.parameters[node.inputs[1]]
    moved = {Add: np.subtract, Sub: np.add, Mul: np.divide}[type(step.op)](thresholds, numbers)
    if not np.isfinite(moved).all():
        return False
    node.inputs = [source, graph.add_parameter(f"{node.inputs[1]}.moved", moved).name]
    if not graph.consumers(step.output) and step.output not in graph.outputs:
        graph.remove([step])
        graph.note(step, f"moved into the thresholds of {node.name}")
    return True


def find_compared_inputs(graph: Graph) -> None:
    """Note the inputs that nothing but comparisons with constants reads, moves aside."""
    graph.compared = {name: MOST_BITS for name in graph.inputs if graph.consumers(name) and _only_compared(graph, name)}


def _only_compared(graph: Graph, name: str) -> bool:
    if name in graph.outputs or name in graph.carried:
        return False
    return all(
        isinstance(reader.op, Below)
        or (isinstance(reader.op, Gather | Reshape | Concat) and _only_compared(graph, reader.output))
        for reader in graph.consumers(name)
    )


def round_thresholds(graph: Graph, samples: Mapping[str, Array]) -> None:
    """Note how many bits hold each compared feature exactly, on samples [N, ..]: at fewer, thresholds are rounded."""
    for node in graph.nodes:
        if isinstance(node.op, Below) and _holds_inputs(graph, node.inputs[0]):
            part = replace(graph, outputs=[node.inputs[0]], notes={})
            remove_dead_nodes(part)
            parts = [reference.run(part, some)[node.inputs[0]] for some in reference.parts(part, samples)]
            bits = [_exact_bits(column) for column in np.concatenate(parts).T]
            node.op = replace(node.op, exact_bits=tuple(bits[feature] for feature in node.op.features))


def _holds_inputs(graph: Graph, name: str) -> bool:
    """Whether a value holds elements of inputs, moved or as they are."""
    step = graph.producer(name)
    if step is None:
        return True
    moves = isinstance(step.op, Gather | Reshape | Concat | EnforcedRange)
    return moves and all(_holds_inputs(graph, part) for part in step.inputs)


def measure_needed_bits(graph: Graph, samples: Mapping[str, Array]) -> None:
    """Lower the bits of each such input to those that samples [N, ..] need.

    That is the fewest that hold the samples exactly, or `SPARE_BITS` more than the fewest at which every node decides
    as it does in floating point.
    """
    graph.compared = {name: min(MOST_BITS, _exact_bits(samples[name])) for name in graph.compared}
    names = [name for name, bits in graph.compared.items() if bits == MOST_BITS]
    if not names:
        return
    comparisons = _up_to_comparisons(graph)

    def enough(bits: int) -> bool:
        return _decide_alike(comparisons, samples, names, bits)

    # Where some bits are enough, a few more are. Far more need not be: they tell apart what float32 does not.
    coarse = next((bits for bits in range(0, MOST_BITS, 4) if enough(bits)), MOST_BITS)
    fewest = next((bits for bits in range(max(coarse - 3, 0), coarse) if enough(bits)), coarse)
    for name in names:
        graph.compared[name] = min(MOST_BITS, fewest + SPARE_BITS)


def _exact_bits(array: Array) -> int:
    """The fewest fractional bits that hold all numbers, or one more than `MOST_BITS`."""
    return next((bits for bits in range(MOST_BITS + 1) if np.array_equal(_rounded(array, bits), array)), MOST_BITS + 1)


def _up_to_comparisons(graph: Graph) -> Graph:
    """The graph with the comparisons as its outputs, and nothing behind them."""
    outputs = [node.output for node in graph.nodes if isinstance(node.op, Below)]
    part = replace(graph, outputs=outputs, notes={})
    remove_dead_nodes(part)
    return part


def _decide_alike(comparisons: Graph, samples: Mapping[str, Array], names: list[str], bits: int) -> bool:
    """Whether all samples decide alike if the inputs `names` and their thresholds are rounded to so many bits."""
    below = {node.inputs[1]: node.op for node in comparisons.nodes if isinstance(node.op, Below)}
    rounded = {name: op.as_held(comparisons.parameters[name], bits) for name, op in below.items()}
    coarse = replace(comparisons, parameters={**comparisons.parameters, **rounded})
    for part in reference.parts(comparisons, samples):
        held = {key: _rounded(array, bits) if key in names else array for key, array in part.items()}
        due, got = reference.run(comparisons, part), reference.run(coarse, held)
        if any(not np.array_equal(due[name], got[name]) for name in comparisons.outputs):
            return False
    return True


def _rounded(array: Array, bits: int) -> Array:
    return np.asarray(np.ldexp(np.rint(np.ldexp(array, bits)), -bits))
