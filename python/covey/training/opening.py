"""When losses open: that of each step, a sum over so many steps, or none."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from covey.ir import Value
    from covey.training.builder import Builder
    from covey.training.losses import Loss
    from covey.training.optimizers import Next

LOSS, RIGHT = "loss", "right"
"""The outputs of a step: the mean loss of the minibatch, and how many labels it got right."""

SUMS = {LOSS: "losses", RIGHT: "right"}
"""What the sums of both over steps are called; the number of steps follows."""


def output_name(output: str, steps: int) -> str:
    """The name of an output of steps, or of its sum over so many."""
    return output if steps == 1 else f"{SUMS[output]}_of_{steps}_steps"


def steps_between(outputs: Iterable[str]) -> int | None:
    """How many steps there are from one opened loss to the next; None where none opens.

    Raises `ValueError` for outputs that no training job has.
    """
    names = list(outputs)
    if not names:
        return None
    found = re.fullmatch(rf"{LOSS}|{SUMS[LOSS]}_of_([1-9][0-9]{{0,8}})_steps", names[0])
    steps = int(found[1] or 1) if found is not None else 0
    if found is None or names[1:] not in ([], [output_name(RIGHT, steps)]):
        raise ValueError(f"{', '.join(names)}: not the outputs of a training job")
    return steps


@dataclass(frozen=True)
class Sum:
    """Values that hold the sum of another over so many steps, or a part of it."""

    values: tuple[str, ...]
    of: str
    steps: int


def summed(build: Builder, loss: Loss, steps: int) -> tuple[Loss, list[Next], list[Sum]]:
    """Sums of what opens over so many steps, which are 0 in all but the last of them; what is carried for that."""
    from covey.ops.add import Add
    from covey.ops.in_turn import InTurn
    from covey.training.optimizers import Next

    nexts: list[Next] = []
    sums: list[Sum] = []

    def opened(name: str, value: Value) -> Value:
        with build.at(SUMS[name], "Loss", f"{SUMS[name]}.of"):
            before = build.variable(f"{SUMS[name]}.before", None, value.shape)
            kept = build.emit(InTurn((0, 1), (1, steps - 1)), before, hint="kept")
            total = build.emit(Add(), kept, value, hint="sum")
            opens = build.emit(InTurn((0, 1), (steps - 1, 1)), total, hint="opens")
        build.graph.finer.discard(before.name)  # a sum is as fine as what it is of
        nexts.append(Next(before, total))
        sums.append(Sum((before.name, kept.name, total.name, opens.name), value.name, steps))
        return opens

    right = None if loss.right is None else opened(RIGHT, loss.right)
    return replace(loss, loss=opened(LOSS, loss.loss), right=right), nexts, sums
