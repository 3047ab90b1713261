"""Operators that act on rows, where the batch has moved or is merged with others: as on one dimension more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from covey.importers.moved import Frame

AXIS = {"TopK": -1, "Hardmax": -1, "LpNormalization": -1}
"""Operators along an axis, which is an attribute, and what it is by default."""


def along_axis(frame: Frame) -> None:
    axis = frame.axis(int(frame.node.attribute("axis", AXIS[frame.operator])))
    inputs = [frame.node.scope.moved[frame.x.name], *frame.node.inputs[1:]]
    layouts = [frame.layout] * len(frame.node.outputs)
    frame.become(inputs, *layouts, **frame.keep(axis=frame.behind(axis)))


def cumulative(frame: Frame) -> None:
    axis = frame.behind(frame.axis(frame.node.one_integer(1, "axis")))
    source = frame.node.scope.moved[frame.x.name]
    frame.become([source, frame.constant(np.array(axis))], frame.layout, **frame.keep())


def triangle(frame: Frame) -> None:
    if frame.layout.place >= frame.rank - 2:
        raise frame.refused("it runs over the batch")
    frame.become([frame.node.scope.moved[frame.x.name], *frame.node.inputs[1:]], frame.layout, **frame.keep())


def pad(frame: Frame) -> None:
    """What is padded is told of every dimension of the value behind."""
    node = frame.node
    given = node.integers("pads") or [] if node.opset < 11 else node.constant_integers(1, "pads")
    axes = node.places(node.constant_integers(3, "axes"), frame.rank) if node.has(3) else list(range(frame.rank))
    if len(given) != 2 * len(axes):
        raise frame.refused(f"its {len(given)} pads do not fit the dimensions")
    rank = 1 + len(frame.x.shape)
    pads = [0] * 2 * rank
    for index, axis in enumerate(axes):
        for side in range(2):
            if width := given[side * len(axes) + index]:
                pads[side * rank + frame.behind(frame.axis(axis))] = width
    source = node.scope.moved[frame.x.name]
    if node.opset < 11:
        frame.become([source], frame.layout, **frame.keep(pads=pads))
    else:
        frame.become([source, frame.constant(np.array(pads)), *node.inputs[2:3]], frame.layout, **frame.keep())


def arg_max(frame: Frame) -> None:
    axis = frame.axis(int(frame.node.attribute("axis", 0)))
    gone = int(not frame.node.flag("keepdims", 1) and axis < frame.layout.place)
    source = frame.node.scope.moved[frame.x.name]
    frame.become([source], frame.layout.shifted(-gone), **frame.keep(axis=frame.behind(axis)))


def softmax(frame: Frame) -> None:
    node = frame.node
    axis = int(node.attribute("axis", -1 if node.opset >= 13 else 1))
    last = frame.rank - 1
    if frame.x.merged == 1:
        if node.opset < 13 and axis not in (-1, last):
            raise frame.refused(f"it runs over the axes from {axis} on")
        axis = frame.behind(frame.axis(axis))
    elif node.opset < 13 and axis not in (-1, last):
        raise frame.refused(f"it runs over axis {axis}")
    else:
        axis = frame.behind(frame.axis(axis))
    frame.become([node.scope.moved[frame.x.name]], frame.layout, axis=axis)


def normalization(frame: Frame) -> None:
    """Over the last dimensions, which must lie behind the batch; scale and shift align with them."""
    node = frame.node
    axis = int(node.attribute("axis", -1))
    place = axis + frame.rank if axis < 0 else axis
    if place <= frame.x.place:
        raise frame.refused(f"it runs over the axes from {axis} on")
    inputs = [node.scope.moved[frame.x.name], *node.inputs[1:]]
    frame.become(inputs, frame.layout, **frame.keep(axis=place - frame.rank))
