"""Programs of one node, written directly: a benchmark of a primitive measures it and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from google.protobuf.message import Message

from covey._core import Program, Weights
from covey._proto import program_pb2 as pb
from covey.emit import program_file, weights_file
from covey.lowering import GUARD_BITS, OP_FIELDS
from covey.model import Model

Floats = npt.NDArray[np.float64]
Shape = tuple[int, ...]


@dataclass
class Builder:
    """A program under construction, in Z_2^`ring` or Z_n, n an odd `modulus` of as many bits. Values go by id."""

    name: str
    ring: int
    scale: int
    modulus: int | None = None
    program: pb.Program = field(default_factory=pb.Program)
    weights: dict[str, npt.NDArray[np.int32] | npt.NDArray[np.int64]] = field(default_factory=dict)
    ranges: dict[str, float] = field(default_factory=dict)

    @property
    def most(self) -> int:
        """The largest bound a value may have."""
        return self.ring - GUARD_BITS

    def input(self, name: str, shape: Shape, bits: int) -> int:
        """An input of that shape for each sample, of integers |x| < 2^bits."""
        value = self._value(name, shape, pb.Value.INPUT, bits, proved=True, batched=True)
        # The largest integer within the bound, the range being closed; what double precision holds is wide enough.
        limit = float(2 ** min(bits, 52) - 1) / 2.0**self.scale
        message = self.program.values[value]
        message.range.low, message.range.high = -limit, limit
        self.program.inputs.append(value)
        self.ranges[name] = limit
        return value

    def parameter(self, name: str, shape: Shape, bits: int) -> int:
        """A secret parameter of seeded integers |w| < 2^bits."""
        rng = np.random.default_rng(len(self.weights))
        storage = np.int32 if self.ring <= 32 else np.int64
        self.weights[name] = rng.integers(-(2**bits) + 1, 2**bits, shape).astype(storage)
        return self._value(name, shape, pb.Value.PARAMETER, bits, proved=True, batched=False)

    def node(self, op: Message, inputs: list[int], shape: Shape, bits: int, scale: int, proved: bool = True) -> int:
        """Append a node; its result."""
        kind = op.DESCRIPTOR.name
        value = self._value(
            f"{kind}.{len(self.program.nodes)}", shape, pb.Value.INTERMEDIATE, bits, proved, batched=True
        )
        self.program.values[value].scale = scale
        node = pb.Node(name=kind, source_op=kind, inputs=inputs, outputs=[value])
        place = getattr(node, OP_FIELDS[op.DESCRIPTOR.full_name])
        place.CopyFrom(op)
        place.SetInParent()
        self.program.nodes.append(node)
        return value

    def model(self, output: int) -> Model:
        """The finished program with its weights."""
        if self.modulus is None:
            self.program.ring.pow2 = self.ring
        else:
            self.program.ring.odd = self.modulus
        self.program.outputs.append(output)
        content, program_hash = program_file(self.program, self.name)
        program = Program(content)
        return Model(program, Weights(weights_file(self.weights, program_hash), program))

    def data(self, samples: int) -> dict[str, Floats]:
        """Inputs spread over their ranges, the same every time."""
        rng = np.random.default_rng(0)
        shapes = {value.name: tuple(value.shape) for value in self.program.values}
        return {name: rng.uniform(-limit, limit, (samples, *shapes[name])) for name, limit in self.ranges.items()}

    def _value(self, name: str, shape: Shape, kind: pb.Value.Kind, bits: int, proved: bool, batched: bool) -> int:
        source = pb.Bound.PROVED if proved else pb.Bound.CALIBRATED
        bound = pb.Bound(bits=min(bits, self.most), source=source)
        value = pb.Value(name=name, shape=shape, batched=batched, scale=self.scale, kind=kind, bound=bound)
        self.program.values.append(value)
        return len(self.program.values) - 1
