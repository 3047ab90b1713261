"""Values that a session carries from run to run, such as the keys and values of earlier tokens.

A model has them as an input and an output, which is what the input is in the next run. Until its program is finished
they are an input and an output here as well, so that calibration data give both and every program is measured with
them. In the finished program the parties keep them as shares, and they are zeros in a sequence's first run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from covey._proto import program_pb2 as pb
from covey.errors import DoesNotFitError, OptionError, UnsupportedError
from covey.inputs import listed
from covey.interval import integer_bits
from covey.ir import DType, Graph, Weight

if TYPE_CHECKING:
    from covey.lowering import Lowered, Lowering


Carry: TypeAlias = "Mapping[str, str | int]"
"""The inputs that are carried, and the output that each is in the next run, by its name or its number from 0."""


def declare(graph: Graph, carry: Carry) -> None:
    """Note in the graph what is carried. Raises `OptionError` where names, shapes or kinds do not fit."""
    if not isinstance(carry, Mapping):
        raise OptionError(f"carry is {carry!r}: give the output for each input that is carried, {{'past': 'present'}}")
    names = graph.exported or graph.outputs
    for name, output in carry.items():
        what = f"carry '{name}' from '{output}'"
        if name not in graph.inputs:
            raise OptionError(f"{what}: '{name}' is no input; the inputs are {listed(graph.inputs)}")
        index = output if isinstance(output, int) else names.index(output) if output in names else -1
        if not 0 <= index < len(names):
            raise OptionError(f"{what}: '{output}' is no output; the outputs are {listed(names)}")
        computed = graph.outputs[index]
        value, result = graph.values[name], graph.values[computed]
        if value.dtype is not DType.FLOAT or result.dtype is not DType.FLOAT:
            raise OptionError(f"{what}: only real numbers are carried; make both floating point")
        if value.shape != result.shape:
            raise OptionError(f"{what}: their shapes {value} and {result} differ; let the output be as the input is")
        graph.carried[name] = computed
    if len(set(graph.carried.values())) < len(graph.carried):
        raise OptionError("two inputs are carried from one output: carry one of them and let the model read it twice")
    if graph.carried and set(graph.outputs) <= set(graph.carried.values()):
        raise OptionError("every output is carried and none is revealed: add an output for the result's owner")
    if graph.carried and set(graph.inputs) <= set(graph.carried):
        raise OptionError("every input is carried and none is shared: add an input of the data owner's")


def ranges_of_carried(graph: Graph, magnitudes: Mapping[str, float]) -> dict[str, tuple[float, float]]:
    """Where carried values may lie, given the largest values of before and after over the calibration data."""
    from covey.lowering import MARGIN

    largest = {name: MARGIN * max(magnitudes[name], magnitudes[output]) for name, output in graph.carried.items()}
    return {name: (-most, most) for name, most in largest.items()}


def close(low: Lowering, value: Lowered, output: str) -> Lowered:
    """The result that `value` is in the next run, at its scale and within its bound."""
    node = low.graph.producer(output)
    assert node is not None, f"{output} is an output, which a node computes"
    result = low.value(output)
    if result.scale > value.scale:
        result = low.truncate(node, result, result.scale - value.scale)
    result = low.shift_left(node, result, value.scale, low.magnitude(output))
    if result.interval.within(value.interval):
        return result
    if low.magnitudes is None:
        raise DoesNotFitError(
            node.name,
            node.source_op,
            magnitude=float(np.ldexp(result.interval.magnitude, -result.scale)),
            needed=result.interval.bits,
            available=value.interval.bits,
            scale=result.scale,
            calibrated=False,
            reason=f"it is carried to the next run as '{value.name}', whose declared range does not hold it",
        )
    bounded = replace(result, interval=result.interval.clamp(value.interval.magnitude), calibrated=True)
    bound = low.program.values[result.id].bound
    bound.bits, bound.source = bounded.interval.bits, pb.Bound.CALIBRATED
    return bounded


def serve(low: Lowering, name: str, weight: Weight) -> Lowered:
    """A value as a weight of another program: at that one's scale, which is no smaller, and within its bound."""
    node, value = low.graph.producer(name), low.value(name)
    assert node is not None, f"a node computes {name}"
    if value.scale > weight.scale:
        reason = (
            f"its weight '{name}' has {value.scale} fractional bits where the program that serves takes {weight.scale}"
        )
        raise UnsupportedError(node.name, node.source_op, reason, "open the weights instead")
    result = low.shift_left(node, value, weight.scale, low.magnitude(name))
    most = integer_bits(weight.largest)
    bound = low.program.values[result.id].bound
    if bound.bits > most:
        bound.bits, bound.source = most, pb.Bound.CALIBRATED
    return result


def graph_of_runs(graph: Graph) -> Graph:
    """The network as one run sees it: without what is carried among its inputs and outputs."""
    if not graph.carried:
        return graph
    kept = [index for index, name in enumerate(graph.outputs) if name not in graph.carried.values()]
    return replace(
        graph,
        inputs=[name for name in graph.inputs if name not in graph.carried],
        outputs=[graph.outputs[index] for index in kept],
        exported=[graph.exported[index] for index in kept] if graph.exported else [],
    )


def program_of_runs(
    program: pb.Program,
    carried: Mapping[int, int],
    opened: Mapping[int, int] | None = None,
    served: Sequence[tuple[int, str]] = (),
    serves: str | None = None,
) -> pb.Program:
    """The program whose inputs (keys, by id) are carried from its outputs (values).

    What opens at the end is given by such keys, and what is `served` as a weight of another program by value; `serves`
    is that program's hash.
    """
    if not carried:
        return program
    finished = pb.Program()
    finished.CopyFrom(program)
    for value in carried:
        finished.values[value].kind = pb.Value.CARRIED
        finished.values[value].ClearField("range")
    kept = [index for index, output in enumerate(program.outputs) if output not in carried.values()]
    del finished.inputs[:], finished.outputs[:]
    finished.inputs.extend(value for value in program.inputs if value not in carried)
    finished.outputs.extend(program.outputs[index] for index in kept)
    if program.postprocess:
        del finished.postprocess[:]
        finished.postprocess.extend(program.postprocess[index] for index in kept)
    for value, after in carried.items():
        entry = finished.carried.add(value=value, next=after)
        if opened is not None and value in opened:
            entry.opens = opened[value]
    if serves is not None:
        finished.serving.program = bytes.fromhex(serves)
        for value, parameter in served:
            finished.serving.weights.add(value=value, parameter=parameter)
    return finished
