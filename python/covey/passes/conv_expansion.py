"""Writes convolutions over one and three dimensions, and transposed ones, with two-dimensional convolutions and moves.

Moves are local in every protocol, so each costs what its products and its outputs cost.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from math import gcd
from typing import Any

import numpy as np

from covey.interval import Array
from covey.ir import Graph, Node, Op, Value
from covey.ops.conv import Conv2d, ConvNd, convolution, last
from covey.ops.conv_transpose import ConvTranspose
from covey.ops.gather import Gather, strides
from covey.ops.pad import Pad
from covey.ops.reshape import Reshape
from covey.ops.transpose import Transpose
from covey.ops.window import STILL, Steps, image_window


def expand_convolutions(graph: Graph, *, transposed: bool = True) -> None:
    """Rewrite every ConvTranspose, if `transposed`, and every ConvNd."""
    for node in list(graph.nodes):
        if isinstance(node.op, ConvTranspose) and transposed:
            _Expansion(graph, node).transposed(node.op)
    for node in list(graph.nodes):
        if isinstance(node.op, ConvNd) and len(node.op.steps) == 1:
            _Expansion(graph, node).rows(node.op)
        elif isinstance(node.op, ConvNd):
            _Expansion(graph, node).volume(node.op)


class _Expansion:
    """The nodes that take the place of one."""

    def __init__(self, graph: Graph, node: Node) -> None:
        self.graph, self.node = graph, node
        self.x, self.weight, *self.bias = graph.operands(node)
        self.nodes: list[Node] = []

    def add(self, op: Op, hint: str, *inputs: Value) -> Value:
        """One more node; without a hint it computes the result."""
        graph, node = self.graph, self.node
        name = graph.fresh(f"{node.output}.{hint}") if hint else node.output
        value = graph.add_value(Value(name, tuple(op.shape(*inputs))))
        self.nodes.append(Node(node.name, node.source_op, op, [value.name for value in inputs], name))
        return value

    def parameter(self, array: Array, hint: str) -> Value:
        return self.graph.add_parameter(f"{self.weight.name}.{hint}", array)

    def finish(self, text: str) -> None:
        place = next(index for index, other in enumerate(self.graph.nodes) if other is self.node)
        self.graph.nodes[place : place + 1] = self.nodes
        self.graph.note(self.node, text)

    def rows(self, op: ConvNd) -> None:
        """x [C, L] as an image of one row."""
        weight = self.graph.parameters[self.weight.name]
        image = self.add(Reshape((self.x.shape[0], 1, self.x.shape[1])), "rows", self.x)
        kernel = self.parameter(weight[:, :, None, :], "row")
        conv = Conv2d(image_window(STILL, op.steps[0]), op.groups)
        result = self.add(conv, "convolved", image, kernel, *self.bias)
        self.add(Reshape((result.shape[0], result.shape[2])), "", result)
        self.finish("a 2-D convolution of images of one row")

    def volume(self, op: ConvNd) -> None:
        """x [C, D, H, W] as an image for each result along the depth, its channels what the kernel's depth reads."""
        deep, *across = op.steps
        x = self.x
        if deep.before or deep.after:
            widths = [(0, 0), (0, 0), (deep.before, deep.after), (0, 0), (0, 0)]
            x = self.add(Pad(*zip(*widths, strict=True)), "padded", x)  # type: ignore[arg-type]
        channels, depth, height, width = x.shape
        step = strides(x.shape)
        results = Steps(deep.kernel, deep.stride, 0, 0, deep.dilation).output(depth)
        layers = self.add(
            Gather(
                (
                    tuple(at * deep.stride * step[1] for at in range(results)),
                    tuple(
                        c * step[0] + k * deep.dilation * step[1] for c in range(channels) for k in range(deep.kernel)
                    ),
                    tuple(row * step[2] for row in range(height)),
                    tuple(range(width)),
                )
            ),
            "layers",
            x,
        )
        weight = self.graph.parameters[self.weight.name]
        kernel = self.parameter(weight.reshape(len(weight), -1, *weight.shape[3:]), "layers")
        result = self.add(Conv2d(image_window(*across), op.groups), "convolved", layers, kernel, *self.bias)
        self.add(Transpose((0, 2, 1, 3, 4)), "", result)
        self.finish("a 2-D convolution of each layer of the result")

    def transposed(self, op: ConvTranspose) -> None:
        """One convolution at x's size with a set of channels for each remainder of the position by the stride."""
        phases = [
            _Phases.of(steps, size, want)
            for steps, size, want in zip(op.steps, self.x.shape[1:], op.sizes, strict=True)
        ]
        weight = self.graph.parameters[self.weight.name]
        channels, per_group = weight.shape[:2]
        remainders = [phase.stride for phase in phases]
        # [groups, C / groups, O / groups, ..] to [groups, O / groups, remainders, C / groups, taps].
        grouped = weight.reshape(op.groups, channels // op.groups, per_group, *weight.shape[2:])
        kernel = np.zeros(
            (op.groups, per_group, *remainders, channels // op.groups, *(phase.steps.kernel for phase in phases))
        )
        for tap in itertools.product(*(range(size) for size in weight.shape[2:])):
            placed = [phase.places[k] for phase, k in zip(phases, tap, strict=True)]
            remainder, at = zip(*placed, strict=True)
            where: Any = (slice(None), slice(None), *remainder, slice(None), *at)
            kernel[where] = np.swapaxes(grouped[last(*tap)], 1, 2)
        copies = int(np.prod(remainders))
        outputs = op.groups * per_group
        kernel = kernel.reshape(outputs * copies, channels // op.groups, *kernel.shape[3 + len(phases) :])
        bias = [
            self.graph.add_parameter(f"{value.name}.copied", np.repeat(self.graph.parameters[value.name], copies))
            for value in self.bias
        ]
        conv = convolution([phase.steps for phase in phases], op.groups)
        parameters = [self.parameter(kernel, "turned"), *bias]
        self.expand_into(conv, parameters, outputs, phases)

    def expand_into(self, conv: Op, parameters: Sequence[Value], outputs: int, phases: Sequence[_Phases]) -> None:
        """The convolution, and the move that puts the channels of each remainder between one another."""
        result = self.add(conv, "phases", self.x, *parameters)
        rank = len(phases)
        copies = int(np.prod([phase.stride for phase in phases]))
        step = strides((outputs, *(phase.stride for phase in phases), *result.shape[1:]))
        axes = [tuple(channel * step[0] for channel in range(outputs))]
        for axis, phase in enumerate(phases):
            axes.append(tuple(r * step[1 + axis] + q * step[1 + rank + axis] for r, q in phase.reads))
        move = Gather(tuple(axes))
        assert result.size == outputs * copies * int(np.prod(result.shape[1:], dtype=np.int64))
        self.add(move, "", result)
        self.finish("a convolution at the input's size, its channels put between one another")


@dataclass(frozen=True)
class _Phases:
    """A transposed convolution along one dimension as a convolution for each remainder of the position by the stride.

    Result y takes tap k of input (y + before - k * dilation) / stride where that is whole. With y + before =
    q * stride + r these are the taps with k * dilation = r + stride * m, and the inputs q - m.
    """

    stride: int
    steps: Steps
    places: tuple[tuple[int, int], ...]
    """Remainder and place in the convolution's kernel of each tap."""
    reads: tuple[tuple[int, int], ...]
    """Remainder and position in the convolution's result of each result."""

    @staticmethod
    def of(steps: Steps, size: int, wanted: int) -> _Phases:
        stride = steps.stride
        taps = [divmod(k * steps.dilation, stride) for k in range(steps.kernel)]
        backs = [back for back, _ in taps]
        apart = reduce(gcd, (back - backs[0] for back in backs), 0) or 1
        furthest = max(backs)
        count = (furthest - min(backs)) // apart + 1
        # The first position whose window starts no later than the first input.
        first = min(steps.before // stride, furthest)
        last = (steps.before + wanted - 1) // stride
        before = furthest - first
        extent = (count - 1) * apart + 1
        after = max(0, last - first + extent - size - before)
        places = tuple((remainder, (furthest - back) // apart) for back, remainder in taps)
        reads = tuple(((y + steps.before) % stride, (y + steps.before) // stride - first) for y in range(wanted))
        return _Phases(stride, Steps(count, 1, before, after, apart), places, reads)
