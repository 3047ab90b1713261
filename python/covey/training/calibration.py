"""A few steps in floating point on calibration data: where every value of a step lies."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from covey import reference
from covey.interval import Array
from covey.training.step import Step


@dataclass
class Rehearsal:
    """What steps in floating point came to: spans of all values, losses, and what is carried at the end."""

    spans: dict[str, tuple[float, float]] = field(default_factory=dict)
    losses: list[float] = field(default_factory=list)
    right: list[float] = field(default_factory=list)
    carried: dict[str, Array] = field(default_factory=dict)

    def trained(self, step: Step) -> dict[str, Array]:
        """The tensors after these steps, by the model's names."""
        return {entry.name: entry.initial + self.carried[entry.change][0] for entry in step.trained}


def rehearse(step: Step, batches: Iterable[Mapping[str, Array]], runs: Iterable[int] | None = None) -> Rehearsal:
    """Steps on these minibatches, one after the other, beginning with the model's own weights.

    `runs` are the numbers that they have in training, by default from 0 on.
    """
    graph = step.graph
    found = Rehearsal()
    found.carried = {name: np.zeros((1, *graph.values[name].shape)) for name in graph.carried}
    kept = {*graph.outputs, step.loss, *([step.right] if step.right is not None else [])}
    for batch, run in zip(batches, itertools.count() if runs is None else runs, strict=False):
        outputs: dict[str, Array] = {}
        with np.errstate(all="ignore"):  # a loss that is no number says so
            for name, value in reference.each(graph, {**batch, **found.carried}, run):
                low, high = found.spans.get(name, (np.inf, -np.inf))
                found.spans[name] = (min(low, float(value.min())), max(high, float(value.max())))
                if name in kept:
                    outputs[name] = value
        found.carried = {name: outputs[after] for name, after in graph.carried.items()}
        found.losses.append(outputs[step.loss].item())
        if step.right is not None:
            found.right.append(outputs[step.right].item())
    return found
