"""Control flow that is known: the nodes of a loop's body, once for each run, and those of the branch that is taken.

Keras writes GRU and SimpleRNN so, and PyTorch what depends on the rank of a tensor. Whether a run comes must be known
when the model is compiled, which it is of loops that count their runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import AttributeProto, helper, numpy_helper

from covey.importers.onnx_node import OnnxNode
from covey.importers.replacements import FLAT

MOST_RUNS = 1024
"""Runs of one loop: no recurrent layer has more, a broken model may."""

ImportNode = Callable[[onnx.NodeProto, str], None]


def unroll(loop: OnnxNode, import_node: ImportNode) -> None:
    """Import the body of a loop for each run, and what the loop gives. Raises `UnsupportedError`."""
    constants, body = loop.scope.constants, loop.attribute("body")
    if any(attribute.type == AttributeProto.GRAPH for node in body.node for attribute in node.attribute):
        raise loop.unsupported("its body has control flow of its own", FLAT)
    states = loop.inputs[2:]
    if len(loop.inputs) < 2 or len(body.input) != len(loop.inputs) or len(body.output) <= len(states):
        raise loop.unsupported("its body has other inputs and outputs than it", "repair the model")
    bound = _number(loop, loop.constant(0, "number of runs")) if loop.has(0) else MOST_RUNS + 1
    goes_on = bool(_number(loop, loop.constant(1, "condition"))) if loop.has(1) else True
    gathered: list[list[str]] = [[] for _ in body.output[1 + len(states) :]]
    runs = 0
    while runs < bound and goes_on:
        if runs == MOST_RUNS:
            raise loop.unsupported(f"it runs more than {MOST_RUNS} times", FLAT)
        counter, condition = (f"{loop.name}/{entry.name}.{runs}" for entry in body.input[:2])
        constants[counter], constants[condition] = np.array(runs, np.int64), np.array(True)
        names = dict(zip((entry.name for entry in body.input), (counter, condition, *states), strict=True))
        found = _run(loop, "body", names, runs, import_node)
        if found[0] not in constants:
            raise loop.unsupported("whether it runs on depends on the network's input", FLAT)
        goes_on = bool(_number(loop, constants[found[0]]))
        states = found[1 : 1 + len(states)]
        for parts, part in zip(gathered, found[1 + len(states) :], strict=True):
            parts.append(part)
        runs += 1
    _results(loop, states, gathered, import_node)
    loop.note(f"its body {runs} times")


def choose(node: OnnxNode, import_node: ImportNode) -> None:
    """Import the branch of an If that is taken. Raises `UnsupportedError`."""
    if not node.is_constant(0):
        raise node.unsupported(
            "its condition depends on the network's input", "use Where, which computes both branches"
        )
    taken = "then_branch" if _number(node, node.constant(0, "condition")) else "else_branch"
    branch = node.attribute(taken)
    if branch is None or len(branch.output) != len(node.outputs):
        raise node.unsupported(f"its {taken} does not give what it does", "repair the model")
    if any(attribute.type == AttributeProto.GRAPH for each in branch.node for attribute in each.attribute):
        raise node.unsupported("its branch has control flow of its own", FLAT)
    _results(node, _run(node, taken, {}, 0, import_node), [], import_node)
    node.note(f"its {taken}, which is always taken")


def _number(loop: OnnxNode, array: npt.NDArray[Any]) -> int:
    if array.size != 1 or array.dtype.kind not in "iub":
        raise loop.unsupported("its number of runs or its condition is no single number", "repair the model")
    return int(array.ravel()[0])


def _run(loop: OnnxNode, attribute: str, names: dict[str, str], run: int, import_node: ImportNode) -> list[str]:
    """The body's outputs in one run; `names` has what its inputs are called outside of it."""
    scope, body = loop.scope, loop.attribute(attribute)
    types = scope.types_within.get((*loop.outputs, attribute), {})
    for tensor in body.initializer:
        names[tensor.name] = f"{loop.name}/{tensor.name}.{run}"
        scope.constants[names[tensor.name]] = numpy_helper.to_array(tensor)
    nodes = []
    for node in body.node:
        inputs = [names.get(name, name) for name in node.input]
        names.update({name: f"{loop.name}/{name}.{run}" for name in node.output if name})
        scope.types.update({names[name]: types[name] for name in node.output if name in types})
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        del copy.input[:], copy.output[:]
        copy.input.extend(inputs)
        copy.output.extend(names.get(name, name) for name in node.output)
        nodes.append(copy)
    outputs = [names.get(output.name, output.name) for output in body.output]
    scope.used.update(outputs, *(node.input for node in nodes))
    for index, node in enumerate(nodes):
        import_node(node, f"{loop.name}/{node.name or f'{node.op_type}_{index}'}.{run}")
    return outputs


def _results(loop: OnnxNode, states: list[str], gathered: list[list[str]], import_node: ImportNode) -> None:
    """What states are at the end, and what each run gave, along a new first dimension."""
    nodes = [helper.make_node("Identity", [state], [name]) for state, name in zip(states, loop.outputs, strict=False)]
    axes = f"{loop.name}/axes"
    loop.scope.constants[axes] = np.array([0])
    for name, parts in zip(loop.outputs[len(states) :], gathered, strict=False):
        if name not in loop.scope.used:
            continue
        if not parts:
            raise loop.unsupported("it never runs", "take it out of the model")
        rows = [f"{part}.row" for part in parts]
        for part, row in zip(parts, rows, strict=True):
            if loop.opset >= 13:
                nodes.append(helper.make_node("Unsqueeze", [part, axes], [row]))
            else:
                nodes.append(helper.make_node("Unsqueeze", [part], [row], axes=[0]))
        nodes.append(helper.make_node("Concat", rows, [name], axis=0))
    loop.scope.used.update(*(node.input for node in nodes))
    for index, node in enumerate(nodes):
        if node.output[0]:
            import_node(node, f"{loop.name}/{node.op_type}_{index}")
