"""From the graph to the program: integers, scales, bounds.

`Lowering` holds one attempt at one ring and scale. Each operator's `lower` emits program nodes through it; every
emitted value gets a bound at once, so an attempt that cannot fit stops at the first node that leaves the ring.

Bounds. Trio's exact truncation wants |v| < 2^(l-2) and the differences inside a maximum want one bit more than their
operands (honest-majority.md); Covey asks |v| < 2^(l-2) of every value, which covers both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NoReturn

import numpy as np
from google.protobuf.message import Message

from covey import whole
from covey._proto import program_pb2 as pb
from covey.carrying import close, serve
from covey.drawing import Drawn
from covey.errors import DoesNotFitError, ParameterError, UnsupportedError
from covey.interval import Array, Interval, integer_bits
from covey.ir import DType, Graph, Node, Shape, Value, Weight, plain

MARGIN = 4.0
"""How far beyond the calibration data's maximum a calibrated bound reaches."""

GUARD_BITS = 2
"""Bits of the ring no value may use: the sign, and the room truncation and differences need."""

MOST_WRAPS = 2.0**-10
"""The most elements of an inference that probabilistic shifts may make wrap around, on average (docs/trio.md)."""

INPUT = "Input"
"""The operator that errors about an input's declared range name."""

MOST_SCALE = 62
"""The most fractional bits that a program's value may have."""

MOST_EXTRA_BITS = 16
"""The most fractional bits a small constant gets beyond the ordinary scale."""

OP_FIELDS = {
    entry.message_type.full_name: entry.name
    for entry in pb.Node.DESCRIPTOR.oneofs_by_name["op"].fields
    if entry.message_type is not None
}


class Truncation(str, Enum):
    """How right shifts round (see `Rounding` in program.proto)."""

    EXACT = "exact"
    ULP = "ulp"
    PROBABILISTIC = "probabilistic"


class Division(str, Enum):
    """How average pooling divides."""

    MUL_SHIFT = "mul-shift"
    EXACT = "exact"


_ROUNDING = {
    Truncation.EXACT: pb.Rounding.EXACT,
    Truncation.ULP: pb.Rounding.ULP,
    Truncation.PROBABILISTIC: pb.Rounding.PROBABILISTIC,
}


@dataclass(frozen=True)
class Lowered:
    """A value of the program: its id, type, scale, and where its integers lie."""

    id: int
    name: str
    shape: Shape
    batched: bool
    scale: int
    interval: Interval
    calibrated: bool = False
    divisor: int = 1
    """What the integers are still to be divided by: a mean whose reader takes the division into its weights."""
    share: float = 1.0
    """What the number that the integers stand for is times the value: readers heed it where it makes no difference."""


@dataclass(frozen=True)
class Row:
    """One program node as the report shows it. `magnitude` is a real number."""

    node: str
    source_op: str
    program_op: str
    scale: int
    bits: int
    calibrated: bool
    magnitude: float
    elements: int


@dataclass(frozen=True)
class Settings:
    """What a lowering attempt is made with."""

    ring_bits: int
    scale: int
    truncation: Truncation = Truncation.EXACT
    division: Division = Division.MUL_SHIFT
    public_weights: bool = False
    fine_weights: bool = False
    """Whether small weights are given more fractional bits."""
    finer_bits: int = 0
    """How many more fractional bits weights have that are trained: the values that a training step's graph calls
    `finer`, and the parameters that a network's `reach` is of."""
    whole_bounds: bool = False
    """Whether one interval stands for all elements of a value: large ones then take little memory and time."""
    table_error: float = 4.5e-4
    """The largest error that is wanted of a function's table: calibration data may ask for less."""

    @property
    def available_bits(self) -> int:
        """b such that |integer| < 2^b must hold for every value."""
        return self.ring_bits - GUARD_BITS


@dataclass(repr=False)
class Lowering:
    """One attempt to express `graph` on integers.

    `ranges` gives each input's declared interval; `magnitudes` the largest absolute value of each of the graph's values
    over the calibration data, if there is any; `left_wide` the values truncation placement leaves at product scale.
    """

    graph: Graph
    settings: Settings
    ranges: Mapping[str, tuple[float, float]]
    magnitudes: Mapping[str, float] | None
    left_wide: frozenset[str] = frozenset()
    program: pb.Program = field(default_factory=pb.Program)
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    drawn: list[Drawn] = field(default_factory=list)
    wraps: float = 0.0
    """How many elements of an inference the shifts so far make wrap around, on average, at the bounds."""
    carried: dict[int, int] = field(default_factory=dict)
    """The ids of inputs that a session carries from run to run, and of what they are in the next run."""
    opened: dict[int, int] = field(default_factory=dict)
    """The ids of carried inputs, and of what opens at the end of a sequence."""
    served: list[tuple[int, str]] = field(default_factory=list)
    """The ids of values that become weights of another program, and the names that these have there."""
    trained: dict[str, list[Weight]] = field(default_factory=dict)
    """What the program has of each parameter that training makes."""
    _values: dict[str, Lowered] = field(default_factory=dict)
    _parameters: dict[tuple[str, int, float, int], Lowered] = field(default_factory=dict)
    _integers: dict[tuple[str, int, int], Array] = field(default_factory=dict)
    """Those of the node at hand, of which bounds and weights are made: large ones take as long as all the rest."""
    _names: set[str] = field(default_factory=set)

    def run(self) -> None:
        """Emit the whole graph. Raises `DoesNotFitError` at the first value that may leave the ring."""
        for name in self.graph.inputs:
            self._input(self.graph.values[name])
        for node in self.graph.nodes:
            result = node.op.lower(self, node)
            result = self.settle(node, result)
            if self.settings.whole_bounds:
                result = replace(result, interval=result.interval.whole)
            self._values[node.output] = result
            self._integers.clear()
        for name, output in self.graph.carried.items():
            self._values[output] = result = close(self, self._values[name], output)
            self.carried[self._values[name].id] = result.id
        for name, output in self.graph.opened.items():
            self.opened[self._values[name].id] = self._values[output].id
        for name, weights in self.graph.served.items():
            self.served += [(serve(self, name, weight).id, weight.parameter) for weight in weights]
        self.program.ring.pow2 = self.settings.ring_bits
        self.program.inputs.extend(self._values[name].id for name in self.graph.inputs)
        self.program.outputs.extend(self._values[name].id for name in self.graph.outputs)
        self._name_outputs()
        if self.graph.postprocess:
            for name in self.graph.outputs:
                step = self.graph.postprocess.get(name)
                self.program.postprocess.append(pb.Postprocess.SOFTMAX if step else pb.Postprocess.NOTHING)
        # Intervals take twice the memory of the weights, and nothing reads them from here on.
        self._values.clear()
        self._parameters.clear()

    @property
    def scale(self) -> int:
        """Fractional bits of an ordinary value."""
        return self.settings.scale

    def value(self, name: str) -> Lowered:
        """The program value of one of the graph's activations, at whatever scale it was left."""
        value = self._values[name]
        assert value.divisor == 1 and value.share == 1.0, f"what reads {name} cannot divide it"
        return value

    def value_or_multiple(self, name: str) -> Lowered:
        """The same, for operators that heed its divisor, or its share."""
        return self._values[name]

    def is_parameter(self, name: str) -> bool:
        """Whether the graph's value is a parameter."""
        return name in self.graph.parameters

    def parameter(self, node: Node, name: str, scale: int, offset: float = 0.0, divisor: int = 1) -> Lowered:
        """The parameter `round_half_even(w / divisor * 2^scale) + offset`, added to the weights if it is not there."""
        key = (name, scale, offset, divisor)
        if key not in self._parameters:
            self._check_trained(node, name, scale, whole=offset == 0.0 and divisor == 1)
            integers = self.integers(name, scale, divisor)
            integers = integers + offset if offset else integers
            interval = self.interval_of(name, scale, divisor, offset)
            self._parameters[key] = made = self.whole_parameter(node, name, integers, scale, interval)
            if name in self.graph.reach:
                self.trained.setdefault(name, []).append(Weight(made.name, scale, interval.magnitude))
        return self._parameters[key]

    def whole_parameter(
        self, node: Node, name: str, integers: Array, scale: int, interval: Interval | None = None
    ) -> Lowered:
        """A parameter that the operator itself has rounded, added to the weights."""
        if interval is None:
            self._check_trained(node, name, scale, whole=False)
            interval = Interval.constant(integers)
        self._check(node.name, node.source_op, interval.magnitude, scale, calibrated=False)
        lowered = self._new_value(
            name if (name not in self._names) else f"{name}@{scale}",
            integers.shape,
            batched=False,
            scale=scale,
            interval=interval,
            calibrated=False,
            kind=pb.Value.PARAMETER,
        )
        storage = np.int32 if self.settings.ring_bits <= 32 else np.int64
        self.weights[lowered.name] = integers.astype(storage)
        return lowered

    def constant(self, node: Node, hint: str, integers: Array, scale: int) -> Lowered:
        """A public constant of the program: numbers of the operator itself, never of the model's weights."""
        self._check(node.name, node.source_op, float(np.abs(integers).max(initial=0.0)), scale, calibrated=False)
        lowered = self._new_value(
            f"{node.output}.{hint}",
            integers.shape,
            batched=False,
            scale=scale,
            interval=Interval.constant(integers),
            calibrated=False,
            kind=pb.Value.CONSTANT,
        )
        self.program.values[lowered.id].constant.extend(int(value) for value in integers.ravel())
        return lowered

    def integers(self, name: str, scale: int, divisor: int = 1) -> Array:
        """The parameter over `divisor`, as whole numbers of 2^-scale: not to be written to."""
        key = (name, scale, divisor)
        if key not in self._integers and name in self.graph.reach:
            # As training has them, whatever the scale.
            exact = np.rint(np.ldexp(self.graph.parameters[name], self.trained_scale))
            self._integers[key] = np.ldexp(exact, scale - self.trained_scale)
        elif key not in self._integers:
            scaled = np.asarray(self.graph.parameters[name] * 2.0**scale)
            self._integers[key] = np.rint(scaled if divisor == 1 else scaled / divisor, out=scaled)
        return self._integers[key]

    def interval_of(self, name: str, scale: int, divisor: int = 1, offset: float = 0.0) -> Interval:
        """Where a parameter's integers, and `offset` more, may lie: everywhere within its reach where it is trained."""
        if name not in self.graph.reach:
            integers = self.integers(name, scale, divisor)
            return Interval.constant(integers + offset if offset else integers)
        most = np.rint(np.ldexp(self.graph.reach[name], self.trained_scale))
        most = np.ldexp(most, scale - self.trained_scale)
        shape = self.graph.parameters[name].shape
        return Interval(np.broadcast_to(-most, shape), np.broadcast_to(most, shape))

    def largest(self, name: str) -> float:
        """The largest absolute value of a parameter."""
        return self.graph.reach.get(name, float(np.abs(self.graph.parameters[name]).max(initial=0.0)))

    @property
    def trained_scale(self) -> int:
        """Fractional bits of weights that are trained."""
        return self.scale + self.settings.finer_bits

    def scale_of(self, name: str) -> int:
        """Fractional bits that a parameter is read with at least."""
        return self.trained_scale if name in self.graph.reach else self.scale

    def _check_trained(self, node: Node, name: str, scale: int, *, whole: bool) -> None:
        """Raise `UnsupportedError` where a weight that training makes would have to be rounded, or changed."""
        if name in self.graph.reach and (scale < self.trained_scale or not whole):
            reason = f"it reads '{name}' in a form that the parties cannot make of trained weights alone"
            raise UnsupportedError(node.name, node.source_op, reason, "freeze it, or open the weights instead")

    def operands_at_one_scale(self, node: Node, names: Sequence[str] | None = None) -> list[Lowered]:
        """A node's operands (or some) brought to the largest of their scales; parameters are encoded at it."""
        names = node.inputs if names is None else names
        activations = [self.value(name) for name in names if not self.is_parameter(name)]
        # Where all are parameters or truth values, the ordinary scale.
        scale = max((value.scale for value in activations), default=self.scale)
        scale = max([scale, *(self.scale_of(name) for name in names if self.is_parameter(name))])
        return [
            self.parameter(node, name, scale)
            if self.is_parameter(name)
            else self.shift_left(node, self.value(name), scale, self.magnitude(name))
            for name in names
        ]

    def magnitude_sum(self, *names: str) -> float | None:
        """What bounds sums and differences of these values and parameters over the calibration data."""
        if self.magnitudes is None:
            return None
        parts = (self.largest(name) if self.is_parameter(name) else self.magnitudes[name] for name in names)
        return sum(parts)

    def magnitude(self, name: str) -> float | None:
        """The largest absolute value of a graph value over the calibration data, None without any."""
        return None if self.magnitudes is None else self.magnitudes[name]

    def emit(
        self,
        node: Node,
        op: Message,
        inputs: Sequence[Lowered],
        *,
        shape: Shape,
        scale: int,
        interval: Interval,
        name: str | None = None,
        magnitude: float | None = None,
        headroom: int = 0,
        unconditional: bool = False,
        bits: bool = False,
    ) -> Lowered:
        """Append one program node and its result.

        `interval` is where the result's integers lie, given the operands' intervals; `magnitude` the largest absolute
        value (as a real number) over the calibration data, by default that of the node's result. `name` defaults to the
        result's own when this is its final form. `headroom` is how many bits more than the result's the next node
        takes on the way; `unconditional` says that the interval holds whatever the operands are; `bits` that the
        result holds bits. Raises `DoesNotFitError` when neither bound fits the ring.
        """
        if magnitude is None:
            magnitude = self.magnitude(node.output)
        calibrated = any(value.calibrated for value in inputs) and not unconditional
        fits = interval.bits + headroom <= self.settings.available_bits
        if magnitude is not None and (calibrated or not fits):
            calibrated = True
            interval = interval.clamp(np.floor(np.ldexp(max(MARGIN * magnitude, 1.0), scale)))
        self._check(node.name, node.source_op, interval.magnitude, scale, calibrated)
        result = self._new_value(
            name or self._name_of_result(node, scale),
            shape,
            batched=any(value.batched for value in inputs),
            scale=scale,
            interval=interval,
            calibrated=calibrated,
            kind=pb.Value.INTERMEDIATE,
        )
        self.program.values[result.id].bits = bits
        field_name = OP_FIELDS[op.DESCRIPTOR.full_name]
        message = pb.Node(
            name=plain(node.name),
            source_op=plain(node.source_op),
            inputs=[value.id for value in inputs],
            outputs=[result.id],
        )
        getattr(message, field_name).CopyFrom(op)
        # An operator without attributes is an empty message: CopyFrom alone would leave the oneof unset.
        getattr(message, field_name).SetInParent()
        self.program.nodes.append(message)
        self.rows.append(
            Row(
                node.name,
                node.source_op,
                op.DESCRIPTOR.name,
                scale,
                interval.bits,
                calibrated,
                float(np.ldexp(interval.magnitude, -scale)),
                int(np.prod(shape, dtype=np.int64)),
            )
        )
        return result

    def settle(self, node: Node, result: Lowered) -> Lowered:
        """The result at its settled scale, truncated if need be; as it is where placement leaves it wide."""
        scale = self.settled_scale(node.output)
        if result.scale <= scale or node.op.free_scale or node.output in self.left_wide:
            return result
        return self.truncate(node, result, result.scale - scale)

    def settled_scale(self, name: str) -> int:
        """Fractional bits that a result is truncated to: the ordinary ones, unless what reads it asks for fewer."""
        if name in self.graph.finer:
            return self.scale + self.settings.finer_bits
        reader = self.graph.producer(self.graph.narrow.get(name, ""))
        return self.scale if reader is None else reader.op.operand_scale(self, reader)

    def truncate(self, node: Node, value: Lowered, bits: int, name: str | None = None) -> Lowered:
        """`floor(value / 2^bits)`, or near it as the settings allow."""
        if bits >= self.settings.ring_bits:  # more than the ring has, whatever its integers take
            self._refuse(node.name, node.source_op, value.interval.magnitude, value.scale, bits, value.calibrated)
        self.count_wraps(node, value, value.interval)
        return self.emit(
            node,
            pb.Truncate(bits=bits, rounding=self.rounding),
            [value],
            shape=value.shape,
            scale=value.scale - bits,
            interval=self.rounded(value.interval.shifted_right(bits)),
            name=name,
        )

    def count_wraps(self, node: Node, value: Lowered, shifted: Interval) -> None:
        """Count what a shift of the integers in `shifted` makes wrap around: each with probability |v| / 2^l."""
        if self.settings.truncation is not Truncation.PROBABILISTIC:
            return
        largest = np.maximum(np.abs(shifted.low), np.abs(shifted.high))
        elements = int(np.prod(value.shape, dtype=np.int64)) / max(largest.size, 1)
        self.wraps += float(largest.sum()) * elements * 2.0**-self.settings.ring_bits
        if self.wraps <= MOST_WRAPS:
            return
        needed = self.settings.available_bits + max(1, int(np.ceil(np.log2(self.wraps / MOST_WRAPS))))
        reason = (
            f"its probabilistic shift and those before make {self.wraps:.2g} elements of an inference wrap around on "
            f"average in Z_2^{self.settings.ring_bits} at scale {self.scale}, and {MOST_WRAPS:.2g} may at most"
        )
        self._refuse(node.name, node.source_op, value.interval.magnitude, value.scale, needed, value.calibrated, reason)

    def rounded(self, interval: Interval) -> Interval:
        """An interval of floored quotients, with what inexact rounding may add."""
        return interval if self.settings.truncation is Truncation.EXACT else interval.widen(1.0)

    @property
    def rounding(self) -> pb.Rounding:
        """The settings' rounding, as the program writes it."""
        return _ROUNDING[self.settings.truncation]

    def shift_left(
        self, node: Node, value: Lowered, scale: int, magnitude: float | None, name: str | None = None
    ) -> Lowered:
        """The same number at a larger scale."""
        bits = scale - value.scale
        if bits == 0:
            return value
        return self.emit(
            node,
            pb.ShiftLeft(bits=bits),
            [value],
            shape=value.shape,
            scale=scale,
            interval=value.interval.shifted_left(bits),
            name=self._fresh(name or f"{value.name}@{scale}"),
            magnitude=magnitude,
        )

    def _input(self, value: Value) -> None:
        if value.name in self.graph.classes:
            self._whole_input(value)
            return
        truth = value.dtype is DType.BOOL
        ends = (0.0, 1.0) if truth else self.ranges[value.name]
        scale = 0 if truth else self._input_scale(value.name, ends)
        low, high = (float(np.rint(np.ldexp(bound, scale))) for bound in ends)
        interval = Interval(*(np.broadcast_to(np.array(end), (1, *value.shape)) for end in (low, high)))
        self._share(value.name, value.shape, scale, interval, ends)

    def _whole_input(self, value: Value) -> None:
        """Whole numbers, one-hot or as they are, at scale 0. The range is that of all elements."""
        classes = self.graph.classes[value.name]
        lows, highs, ends = whole.spans(classes, value.shape, self.ranges[value.name])
        message = self._share(value.name, lows.shape, 0, Interval(lows[None], highs[None]), ends)
        message.whole.shape.extend(value.shape)
        message.whole.classes.extend(classes)

    def _share(self, name: str, shape: Shape, scale: int, interval: Interval, ends: tuple[float, float]) -> pb.Value:
        """An input of the program, whose range is `ends`."""
        # Nobody enforces the range of what is carried from run to run.
        calibrated = name in self.graph.carried and self.magnitudes is not None
        self._check(name, INPUT, interval.magnitude, scale, calibrated)
        lowered = self._new_value(
            name,
            shape,
            batched=True,
            scale=scale,
            interval=interval,
            # What parties enforce holds behind the input.
            calibrated=calibrated or name in self.graph.enforced,
            kind=pb.Value.INPUT,
        )
        message = self.program.values[lowered.id]
        message.range.low, message.range.high = ends
        self._values[name] = lowered
        return message

    def _input_scale(self, name: str, ends: tuple[float, float]) -> int:
        """The ordinary scale; for an input that is only compared, what it needs as far as differences have room."""
        if name not in self.graph.compared:
            return self.settled_scale(name)
        widest = max(abs(ends[0]), abs(ends[1]), ends[1] - ends[0])
        # Thresholds are float64 until they are in the ring.
        room = min(self.settings.available_bits - 1, 52) - int(np.frexp(widest)[1])
        return max(0, min(self.graph.compared[name], room))

    def _new_value(
        self,
        name: str,
        shape: Sequence[int],
        *,
        batched: bool,
        scale: int,
        interval: Interval,
        calibrated: bool,
        kind: pb.Value.Kind,
    ) -> Lowered:
        name = self._fresh(plain(name))
        self._names.add(name)
        public = kind == pb.Value.CONSTANT or (kind == pb.Value.PARAMETER and self.settings.public_weights)
        self.program.values.append(
            pb.Value(
                name=name,
                shape=shape,
                batched=batched,
                scale=scale,
                kind=kind,
                visibility=pb.Value.PUBLIC if public else pb.Value.SECRET,
                bound=pb.Bound(
                    bits=max(interval.bits, 1), source=pb.Bound.CALIBRATED if calibrated else pb.Bound.PROVED
                ),
            )
        )
        return Lowered(len(self.program.values) - 1, name, tuple(shape), batched, scale, interval, calibrated)

    def _name_outputs(self) -> None:
        """Give outputs the names that the graph has for them, also where an operator ends in a step of its own."""
        values = self.program.values
        places = {value.name: place for place, value in enumerate(values)}
        for output, name in zip(self.program.outputs, self.graph.outputs, strict=True):
            value, wanted = values[output], plain(name)
            if value.name == wanted:
                continue
            if (other := places.get(wanted)) is not None:
                values[other].name, places[value.name] = value.name, other
            value.name, places[wanted] = wanted, output

    def _name_of_result(self, node: Node, scale: int) -> str:
        integer = self.graph.values[node.output].dtype is not DType.FLOAT
        return node.output if scale == self.scale or integer else f"{node.output}@{scale}"

    def _fresh(self, hint: str) -> str:
        name, count = hint, 1
        while name in self._names:
            count += 1
            name = f"{hint}.{count}"
        return name

    def check_constant(self, node: Node, value: float, scale: int, calibrated: bool = False) -> None:
        """Raise `DoesNotFitError` unless an integer of this size may appear while the node runs."""
        self._check(node.name, node.source_op, abs(value), scale, calibrated)

    def _check(self, node: str, op: str, magnitude: float, scale: int, calibrated: bool) -> None:
        if np.isnan(magnitude):
            raise ParameterError(node, op, "its range cannot be computed", "check the model's weights")
        # No program has a larger scale, whatever is left of the number.
        needed = max(integer_bits(magnitude), scale if scale > MOST_SCALE else 0)
        if needed > self.settings.available_bits:
            self._refuse(node, op, magnitude, scale, needed, calibrated)

    def _refuse(
        self,
        node: str,
        op: str,
        magnitude: float,
        scale: int,
        needed: int,
        calibrated: bool,
        reason: str | None = None,
    ) -> NoReturn:
        raise DoesNotFitError(
            node,
            op,
            magnitude=float(np.ldexp(magnitude, -scale)),
            needed=needed,
            available=self.settings.available_bits,
            scale=scale,
            calibrated=calibrated,
            reason=reason,
        )


def leading_zeros(constant: Array) -> int:
    """Leading zero bits of a constant below 1, given to it as fractional bits: 1/255 would lose half its digits."""
    largest = float(np.abs(constant).max(initial=0.0))
    if not 0.0 < largest < 1.0:
        return 0
    return min(MOST_EXTRA_BITS, -int(np.frexp(largest)[1]))
