"""Measuring a compiled program on calibration samples: in the clear, beside the float network.

The integers that a run in the clear computes are those of a private run, so what is measured here is what users get.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from covey import closeness
from covey._proto import program_pb2 as pb
from covey.closeness import Closeness, FloatReference
from covey.emit import HEADER_BYTES
from covey.errors import CoveyError
from covey.interval import Array
from covey.ir import Graph
from covey.result import Result

if TYPE_CHECKING:
    from covey.compiled import Compiled
    from covey.layers import Layer
    from covey.model import Model

MOST_SAMPLES = 64
FEWEST_SAMPLES = 4
MOST_ELEMENTS = 1 << 27
"""So many calibration samples are measured, at least and at most, and as many between as have so many values in all."""

AT_ONCE = 1 << 22
"""The clear runs so many elements of a program's widest value at once."""

LAYER_ELEMENTS = 1 << 23
"""Layers are compared on as many of the samples as have so many values in all, and on four at most."""

NAMED = 3
"""Nodes that are named for the growth of the error."""


@dataclass(frozen=True)
class Growth:
    """A node whose values are further from floating point than those it reads: by how much, relative L2."""

    node: str
    op: str
    before: float
    after: float


@dataclass(frozen=True)
class Measured:
    """What a program is off by on `samples` calibration samples; `failed` says why it could not run on them."""

    samples: int
    rows: list[Closeness]
    grows: list[Growth] = field(default_factory=list)
    failed: str = ""

    @property
    def error(self) -> float:
        """The largest relative L2 error of an output, over all samples and of the worst; infinite if it cannot run.

        Outputs that are class numbers count with the part of the answers that differs without being a near-tie.
        """
        return float("inf") if self.failed else max(map(_judged, self.rows), default=0.0)

    def to_json(self, available: int, limit: float) -> dict[str, Any]:
        """As the report holds it."""
        return {
            "samples": self.samples,
            "of": available,
            "error": self.error,
            "max_error": limit if math.isfinite(limit) else None,
            "outputs": [_row(row) for row in self.rows],
            "grows_at": [asdict(growth) for growth in self.grows],
        }


def _judged(row: Closeness) -> float:
    found = row.agreement
    if not row.classes or found is None:
        return row.error
    return (len(found.differing) - found.near_ties) / max(found.answers, 1)


def _row(row: Closeness) -> dict[str, Any]:
    found = row.agreement
    return {
        "output": row.output,
        "relative_error": None if row.classes else row.relative_error,
        "worst_error": row.worst_error,
        "worst_sample": row.worst_sample,
        "top1_agreement": None if found is None else found.fraction,
        "near_ties": None if found is None else found.near_ties,
    }


@dataclass(frozen=True)
class Samples:
    """The calibration samples that a network's programs are measured on, `available` before they were cut down."""

    graph: Graph
    inputs: Mapping[str, Array]
    available: int

    @staticmethod
    def of(graph: Graph, inputs: Mapping[str, Array]) -> Samples:
        """As many of the samples as are measured in reasonable time."""
        size = sum(graph.values[node.output].size for node in graph.nodes) or 1
        count = max(FEWEST_SAMPLES, min(MOST_SAMPLES, MOST_ELEMENTS // size))
        available = len(next(iter(inputs.values()))) if inputs else 0
        return Samples(graph, {name: array[:count] for name, array in inputs.items()}, available)

    @property
    def count(self) -> int:
        """Samples that are measured."""
        return len(next(iter(self.inputs.values()))) if self.inputs else 0

    @cached_property
    def expected(self) -> FloatReference:
        """What the float network makes of them."""
        return closeness.float_run(self.graph, self.inputs)

    def error_of(self, graph: Graph) -> float:
        """How far another float network is from this one on a few samples: the largest relative error of an output."""
        few = {name: array[:FEWEST_SAMPLES] for name, array in self.inputs.items()}
        logits = closeness.float_run(graph, few).logits
        due = {name: values[:FEWEST_SAMPLES] for name, values in self.expected.logits.items()}
        numbers = [name for name in graph.outputs if name not in self.expected.classes]
        return max((closeness.relative_error(logits[name], due[name]) for name in numbers), default=0.0)

    def measure(self, compiled: Compiled) -> Measured:
        """A program of the network on the samples. Needs the runtime: raises `ImportError` without it."""
        try:
            result = run(_model(compiled), self.inputs)
        except CoveyError as error:  # a value left its bound
            return Measured(self.count, [], [], str(error))
        return Measured(self.count, closeness.closeness(result, self.expected))

    def growth(self, compiled: Compiled) -> list[Growth]:
        """The nodes where the error grows most, the most first, on a few of the samples."""
        from covey import _core
        from covey.layers import compare, opened
        from covey.model import Model

        size = sum(self.graph.values[node.output].size for node in self.graph.nodes) or 1
        count = max(1, min(4, LAYER_ELEMENTS // size))
        few = {name: array[:count] for name, array in self.inputs.items()}
        whole = opened(Model(_core.Program(compiled.program_bytes)), compiled.weights_bytes)
        return _growth(self.graph, compare(whole, self.graph, few))


def _model(compiled: Compiled) -> Model:
    from covey import _core
    from covey.model import Model

    program = _core.Program(compiled.program_bytes)
    return Model(program, _core.Weights(compiled.weights_bytes, program), compiled.graph)


def run(model: Model, inputs: Mapping[str, Array]) -> Result:
    """The outputs in the clear, a part of the samples at a time."""
    from covey.clear import ClearSession

    program = pb.Program.FromString(model.program.to_bytes()[HEADER_BYTES:])
    widest = max(int(np.prod(value.shape, dtype=np.int64)) for value in program.values if value.batched)
    step = max(1, AT_ONCE // max(widest, 1))
    count = len(next(iter(inputs.values())))
    session = ClearSession(model)
    parts = [
        session.infer({name: array[start : start + step] for name, array in inputs.items()})
        for start in range(0, count, step)
    ]
    return Result(
        {name: np.concatenate([part.outputs[name] for part in parts]) for name in parts[0].outputs},
        {name: np.concatenate([part.integers[name] for part in parts]) for name in parts[0].integers},
        parts[0].scales,
    )


def _growth(graph: Graph, layers: list[Layer]) -> list[Growth]:
    known = {layer.node: layer for layer in layers}
    errors: dict[str, float] = {}
    found = []
    for node in graph.nodes:
        before = max((errors.get(name, 0.0) for name in node.inputs), default=0.0)
        layer = known.get(node.name)
        errors[node.output] = after = before if layer is None else layer.relative_error
        if after > before:
            found.append(Growth(node.name, node.source_op, before, after))
    return sorted(found, key=lambda growth: growth.before - growth.after)[:NAMED]
