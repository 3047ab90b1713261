"""Protocol primitives, each as a program of one node (or of a linear layer with its shift and ReLU).

The processor time of a primitive is that of its run, less that of a twin whose node needs no communication: the same
inputs are shared and as large an output opened, but it is the sum of the inputs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from covey import _core
from covey._proto import program_pb2 as pb
from covey.bench.networks import NetworkProfile
from covey.bench.programs import Builder, Floats
from covey.bench.runs import MATERIAL, OUTSIDE, Runs, nodes, parties, repeat
from covey.bench.statistics import Summary
from covey.clear import run_clear
from covey.client import Phase, Progress
from covey.comparison import compare
from covey.compiled import compile as compile_model
from covey.drawing import Wanted, draw
from covey.errors import OptionError
from covey.functions import GELU, SIGMOID, Function
from covey.lowering import GUARD_BITS
from covey.model import Model, load
from covey.ops.scalar import GOAL
from covey.result import NodeProfile

FRACTION = 10
"""Fractional bits, and so the bits that a shift after a product drops."""

WEIGHT_BITS = 12
"""Of a convolution's weights at most, as of trained networks. Wider ones take larger sets of lattice encryption."""

TABLE_FRACTION = 12
"""Fractional bits of what tables take and give."""

RANGES: dict[str, int | None] = {"whole ring": None, "28 bits": 28, "24 bits": 24, "20 bits": 20}
"""Comparisons are measured on values that are proved to fit so many bits, sign included, and without such a proof."""


@dataclass(frozen=True)
class Case:
    """A primitive ready to run: its program, its twin's, the inputs of both."""

    model: Model
    twin: Model
    inputs: dict[str, Floats]
    samples: int


@dataclass(frozen=True)
class Primitive:
    """What is measured: `elements` results, `macs` multiplications with addition behind them."""

    name: str
    elements: int
    macs: int
    build: Callable[[int], Case]
    """The case in a ring of so many bits."""
    protocols: tuple[str, ...] = ("trio", "quad", "beaver")
    """Where it is measured unless it is asked for by name: what takes minutes is left out."""


@dataclass(frozen=True)
class Row:
    """One primitive's figures. Bits are those on all links, and exclude sharing inputs and opening outputs."""

    name: str
    elements: int
    macs: int
    wall: Summary
    check_wall: Summary | None
    """Of the check before the result is opened, which is no part of the rest."""
    cpu_seconds: list[float | None]
    bits: float
    gate_bits: float
    """Without correlated randomness, of which a session makes more than one run uses up."""
    planned_gate_bits: float
    rounds: int
    planned_rounds: int
    differing: int

    @property
    def gmacs_per_core(self) -> float | None:
        """GMAC a second of one party's processor time, on average."""
        known = [seconds for seconds in self.cpu_seconds if seconds is not None]
        mean = sum(known) / len(known) if known else 0.0
        return self.macs / mean / 1e9 if self.macs and mean > 0 else None

    @property
    def as_planned(self) -> bool:
        """Whether the meter counted what the plan said."""
        return self.gate_bits == self.planned_gate_bits and self.rounds == self.planned_rounds

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        check = None if self.check_wall is None else self.check_wall.to_json()
        data = {**asdict(self), "wall": self.wall.to_json(), "check_wall": check, "as_planned": self.as_planned}
        return {**data, "gmacs_per_party_core": self.gmacs_per_core}


def measure(
    chosen: list[Primitive],
    *,
    protocol: str,
    computing: int | None = None,
    ring: int,
    network: NetworkProfile,
    options: Mapping[str, Any],
    repetitions: int,
    warm_up: int,
    progress: Progress,
    phase: Phase = "joint",
    device: str | None = None,
    threads: int | None = None,
) -> list[Row]:
    """Run every primitive and its twin in one session after the other of the same parties."""
    rows = []
    with parties(protocol, network, options, progress, computing, device, threads) as running:
        for index, primitive in enumerate(chosen):
            progress(index, len(chosen), primitive.name)
            case = primitive.build(ring)
            runs, result = repeat(
                running,
                case.model,
                case.inputs,
                batch=case.samples,
                phase=phase,
                warm_up=warm_up,
                repetitions=repetitions,
            )
            twin, _ = repeat(
                running, case.twin, case.inputs, batch=case.samples, warm_up=warm_up, repetitions=repetitions
            )
            clear = run_clear(case.model, case.inputs)
            differing = sum(row.differing for row in compare(clear.integers, result.integers))
            planned = [
                NodeProfile.of(row)
                for row in _plan(case, protocol, computing, running.options)["nodes"]
                if row["name"] not in OUTSIDE
            ]
            rows.append(_row(primitive, runs, twin, planned, differing, phase))
    return rows


def _plan(case: Case, protocol: str, computing: int | None, options: Mapping[str, Any]) -> dict[str, Any]:
    planned = _core.plan(case.model.program, protocol, case.samples, parties=computing, **options)
    plan: dict[str, Any] = json.loads(planned)
    return plan


def _row(primitive: Primitive, runs: Runs, twin: Runs, planned: list[NodeProfile], differing: int, phase: Phase) -> Row:
    measured = nodes(runs.profile)
    # Offline material is no part of a run that is timed online.
    due = [node.online_bytes if phase == "online" else node.bytes for node in planned if node.name != MATERIAL]
    cpu = [
        None if mine is None or idle is None else max(0.0, mine - idle)
        for mine, idle in zip(runs.cpu_seconds, twin.cpu_seconds, strict=True)
    ]
    return Row(
        name=primitive.name,
        elements=primitive.elements,
        macs=primitive.macs,
        wall=runs.nodes_wall,
        check_wall=runs.check_wall,
        cpu_seconds=cpu,
        bits=sum(node.bytes for node in measured) * 8 / primitive.elements,
        gate_bits=sum(node.bytes for node in measured if node.name != MATERIAL) * 8 / primitive.elements,
        planned_gate_bits=sum(due) * 8 / primitive.elements,
        rounds=sum(node.rounds for node in measured),
        planned_rounds=sum(node.rounds for node in planned),
        differing=differing,
    )


def select(names: list[str], protocol: str = "trio") -> list[Primitive]:
    """Primitives whose names begin with one of these; else the protocol's. Raises `OptionError` for none such."""
    if names:
        chosen = [primitive for primitive in PRIMITIVES if primitive.name.startswith(tuple(names))]
    else:
        chosen = [primitive for primitive in PRIMITIVES if protocol in primitive.protocols]
    if not chosen:
        known = ", ".join(dict.fromkeys(primitive.name.split()[0] for primitive in PRIMITIVES))
        raise OptionError(f"no primitive begins with {' or '.join(names)}: there are {known}")
    return chosen


def _case(builder: Builder, twin: Builder, output: int, due: int, samples: int = 1) -> Case:
    return Case(builder.model(output), twin.model(due), builder.data(samples), samples)


def _products(gates: int, size: int) -> Callable[[int], Case]:
    """Gates one after the other: the first one's clock also runs where a party has its inputs before another has."""

    def build(ring: int) -> Case:
        one, two = Builder("multiplications", ring, FRACTION), Builder("twin", ring, FRACTION)
        for builder in (one, two):
            for name in ("x", "y"):
                builder.input(name, (size,), FRACTION)
        products = [one.node(pb.Mul(), [0, 1], (size,), 2 * FRACTION, 2 * FRACTION) for _ in range(gates)]
        product = products[-1]
        return _case(one, two, product, two.node(pb.Add(), [0, 1], (size,), FRACTION + 1, FRACTION))

    return build


def relu(size: int, width: int | None = None, samples: int = 1) -> Callable[[int], Case]:
    """ReLUs of each sample, on values of the whole ring or proved to fit so many bits."""

    def build(ring: int) -> Case:
        one, two = Builder(f"relu {width}", ring, FRACTION), Builder(f"twin {width}", ring, FRACTION)
        bits, proved = _range(width, ring)
        for builder in (one, two):
            builder.input("x", (size,), bits - 1)
            # Comparisons go by the bound of what is compared, and an input's is always proved: the sum stands in.
            builder.node(pb.Add(), [0, 0], (size,), bits, FRACTION, proved)
        return _case(one, two, one.node(pb.Relu(), [1], (size,), bits, FRACTION, proved), 1, samples)

    return build


def odd_relu(size: int) -> Callable[[int], Case]:
    """ReLU in Z_n, n = 2^l - 3."""

    def build(ring: int) -> Case:
        one, two = (Builder(f"odd {name}", ring, FRACTION, modulus=2**ring - 3) for name in ("relu", "twin"))
        bits, proved = _range(None, ring)
        for builder in (one, two):
            builder.input("x", (size,), bits - 1)
            builder.node(pb.Add(), [0, 0], (size,), bits, FRACTION, proved)
        return _case(one, two, one.node(pb.Relu(), [1], (size,), bits, FRACTION, proved), 1)

    return build


def shift(size: int, clamped: bool) -> Callable[[int], Case]:
    """A shift of values of unknown sign, alone or with the ReLU behind it."""

    def build(ring: int) -> Case:
        one, two = Builder("shift", ring, FRACTION), Builder("twin", ring, FRACTION)
        bits, proved = _range(None, ring)
        for builder in (one, two):
            builder.input("x", (size,), bits - 1)
            builder.node(pb.Add(), [0, 0], (size,), bits, FRACTION, proved)
        shifted = bits - FRACTION
        value = one.node(pb.Truncate(bits=FRACTION, rounding=pb.EXACT), [1], (size,), shifted, 0, proved)
        if clamped:
            value = one.node(pb.Relu(), [value], (size,), shifted, 0, proved)
        return _case(one, two, value, 1)

    return build


def _division(size: int, divisor: int) -> Callable[[int], Case]:
    """Exact division by a public number, as average pooling takes it."""

    def build(ring: int) -> Case:
        one, two = Builder("division", ring, FRACTION), Builder("twin", ring, FRACTION)
        bits, proved = _range(None, ring)
        for builder in (one, two):
            builder.input("x", (size,), bits - 1)
            builder.node(pb.Add(), [0, 0], (size,), bits, FRACTION, proved)
        return _case(one, two, one.node(pb.DivExact(divisor=divisor), [1], (size,), bits - 4, FRACTION, proved), 1)

    return build


def _linear(channels: int, side: int, width: int | None) -> Callable[[int], Case]:
    """A 1 × 1 convolution, its shift and ReLU: as cheap a product as a layer can have."""

    def build(ring: int) -> Case:
        shape = (channels, side, side)
        bits, proved = _range(width, ring)
        terms = (channels - 1).bit_length()
        one, two = Builder(f"layer {width}", ring, FRACTION), Builder(f"twin {width}", ring, FRACTION)
        x = one.input("x", shape, FRACTION)
        weight = one.parameter("weight", (channels, channels, 1, 1), min(bits - FRACTION - terms, FRACTION))
        window = pb.Window(kernel=[1, 1], strides=[1, 1], pads=[0] * 4, dilations=[1, 1])
        value = one.node(pb.Conv2d(window=window, groups=1), [x, weight], shape, bits, 2 * FRACTION, proved)
        short = (bits - FRACTION, FRACTION, proved)
        value = one.node(pb.Truncate(bits=FRACTION, rounding=pb.EXACT), [value], shape, *short)
        value = one.node(pb.Relu(), [value], shape, *short)
        due = two.node(pb.Add(), [two.input("x", shape, FRACTION)] * 2, shape, FRACTION + 1, FRACTION)
        return _case(one, two, value, due)

    return build


def _matmul(count: int, size: int) -> Callable[[int], Case]:
    def build(ring: int) -> Case:
        shape = (size, size)
        one, two = Builder("matmul", ring, FRACTION), Builder("twin", ring, FRACTION)
        bits = (one.most - (size - 1).bit_length()) // 2
        for builder in (one, two):
            for name in ("x", "y"):
                builder.input(name, shape, bits)
        product = one.node(pb.Matmul(), [0, 1], shape, one.most, 2 * FRACTION)
        return _case(one, two, product, two.node(pb.Add(), [0, 1], shape, bits + 1, FRACTION), count)

    return build


def conv(channels: int, side: int, kernel: int, samples: int) -> Callable[[int], Case]:
    """A square convolution that keeps channels and size, of so many images."""

    def build(ring: int) -> Case:
        shape = (channels, side, side)
        one, two = Builder("conv", ring, FRACTION), Builder("twin", ring, FRACTION)
        terms = (channels * kernel * kernel - 1).bit_length()
        x = one.input("x", shape, FRACTION)
        bits = min(one.most - FRACTION - terms, WEIGHT_BITS)
        weight = one.parameter("weight", (channels, channels, kernel, kernel), bits)
        window = pb.Window(kernel=[kernel] * 2, strides=[1, 1], pads=[kernel // 2] * 4, dilations=[1, 1])
        value = one.node(pb.Conv2d(window=window, groups=1), [x, weight], shape, one.most, 2 * FRACTION)
        due = two.node(pb.Add(), [two.input("x", shape, FRACTION)] * 2, shape, FRACTION + 1, FRACTION)
        return _case(one, two, value, due, samples)

    return build


def _max_pool(channels: int, side: int) -> Callable[[int], Case]:
    def build(ring: int) -> Case:
        shape, pooled = (channels, side, side), (channels, side // 2, side // 2)
        one, two = Builder("max pool", ring, FRACTION), Builder("twin", ring, FRACTION)
        bits, proved = _range(None, ring)
        window = pb.Window(kernel=[2, 2], strides=[2, 2], pads=[0] * 4, dilations=[1, 1])
        for builder in (one, two):
            builder.input("x", shape, bits - 3)
            builder.node(pb.Add(), [0, 0], shape, bits - 2, FRACTION, proved)
        value = one.node(pb.MaxPool(window=window), [1], pooled, bits - 2, FRACTION, proved)
        return _case(one, two, value, two.node(pb.SumPool(window=window), [1], pooled, bits, FRACTION, proved))

    return build


def _scalar(size: int, function: Function, width: int) -> Callable[[int], Case]:
    """A function of values that are proved to fit so many bits, sign included, at `TABLE_FRACTION` fractional bits."""

    def build(ring: int) -> Case:
        one, two = (Builder(f"{name} of {function}", ring, TABLE_FRACTION) for name in ("table", "twin"))
        limit = 1 << (width - 1)
        for builder in (one, two):
            builder.input("x", (size,), width - 2)
            builder.node(pb.Add(), [0, 0], (size,), width - 1, TABLE_FRACTION)
        drawing = draw(Wanted(function, -limit, limit - 1, TABLE_FRACTION, TABLE_FRACTION, GOAL, ring - GUARD_BITS))
        if drawing is None or drawing.factor not in (0, 1):
            raise OptionError(f"no table of {function} fits Z_2^{ring}")
        outer = _clipped(one, 1, drawing.outer, size, width)
        inner = _clipped(one, outer, drawing.inner, size, width)
        bits = drawing.table.largest.bit_length()
        value = one.node(drawing.table.message(), [inner], (size,), bits, TABLE_FRACTION)
        if drawing.factor:
            value = one.node(pb.Add(), [outer, value], (size,), max(width - 1, bits) + 1, TABLE_FRACTION)
        return _case(one, two, value, 1)

    return build


def _clipped(builder: Builder, value: int, ends: tuple[int | None, int | None], size: int, width: int) -> int:
    sides = {side: end for side, end in zip(("low", "high"), ends, strict=True) if end is not None}
    return builder.node(pb.Clip(**sides), [value], (size,), width - 1, TABLE_FRACTION) if sides else value


def _rows(operator: str, rows: int, columns: int) -> Callable[[int], Case]:
    """An operator over rows of numbers in [-7.9, 7.9], as it is compiled within a network."""

    def build(ring: int) -> Case:
        operands = {"Softmax": ["x"], "LayerNormalization": ["x", "factor", "summand"]}[operator]
        weights = np.random.default_rng(0).uniform(0.5, 1.5, (2, columns)).astype(np.float32)
        constants = [numpy_helper.from_array(row, name) for name, row in zip(operands[1:], weights, strict=False)]
        # What ends a network may be left to the client; a change of sign behind it costs nothing.
        within = [helper.make_node(operator, operands, ["inner"], axis=-1), helper.make_node("Neg", ["inner"], ["y"])]
        sizes: list[str | int] = ["N", rows, columns]
        models = []
        for steps in (within, [helper.make_node("Add", ["x", "x"], ["y"])]):
            x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, sizes) for name in "xy")
            used = constants if steps is within else []
            graph = helper.make_graph(steps, operator, [x], [y], used)
            proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
            models.append(load(compile_model(proto, input_range=(-7.9, 7.9), ring=ring, scale=TABLE_FRACTION)))
        inputs = {"x": np.random.default_rng(1).uniform(-7.9, 7.9, (1, rows, columns))}
        model, twin = models
        return Case(model, twin, inputs, 1)

    return build


def _range(width: int | None, ring: int) -> tuple[int, bool]:
    """The bound of values compared on `width` bits, and whether it is proved: without proof the whole ring counts."""
    return (ring - GUARD_BITS, False) if width is None else (width - 1, True)


_SHIFTED_EXP = Function("exp(x - 4)", (), lambda x: np.exp(x - 4.0))
"""On [-4, 4) what exp is on [-8, 0): an input's range is the same on both sides of 0."""

MEGA = 1 << 20
DEALT = ("trio", "quad", "beaver")
ALL = (*DEALT, "two-party")

PRIMITIVES = [
    Primitive("multiplication 2^24", 16 * MEGA, 16 * MEGA, _products(1, 16 * MEGA)),
    Primitive("multiplication 4 × 2^24", 64 * MEGA, 64 * MEGA, _products(4, 16 * MEGA)),
    *(
        Primitive(f"relu 2^20, {name}", MEGA, 0, relu(MEGA, k), ALL if k is None else DEALT)
        for name, k in RANGES.items()
    ),
    Primitive("odd relu 2^17, Z_n", MEGA // 8, 0, odd_relu(MEGA // 8), ("two-party",)),
    Primitive("shift 2^17", MEGA // 8, 0, shift(MEGA // 8, clamped=False), ALL),
    Primitive("shift and relu 2^17", MEGA // 8, 0, shift(MEGA // 8, clamped=True), ALL),
    Primitive("division by 49, 2^17", MEGA // 8, 0, _division(MEGA // 8, 49), ("two-party",)),
    *(Primitive(f"layer 2^20, {name}", MEGA, 16 * MEGA, _linear(16, 256, k)) for name, k in RANGES.items()),
    Primitive("table 2^20, exp on [-8, 0)", MEGA, 0, _scalar(MEGA, _SHIFTED_EXP, 15)),
    Primitive("table 2^20, sigmoid on [-8, 8)", MEGA, 0, _scalar(MEGA, SIGMOID, 16)),
    Primitive("table 2^17, sigmoid on [-8, 8)", MEGA // 8, 0, _scalar(MEGA // 8, SIGMOID, 16), ("two-party",)),
    Primitive("sigmoid 2^20, 20 bits", MEGA, 0, _scalar(MEGA, SIGMOID, 20)),
    Primitive("gelu 2^20, 20 bits", MEGA, 0, _scalar(MEGA, GELU, 20)),
    Primitive("gelu 2^17, 20 bits", MEGA // 8, 0, _scalar(MEGA // 8, GELU, 20), ("two-party",)),
    Primitive("softmax 2^20, 128 columns", MEGA, 0, _rows("Softmax", 8192, 128)),
    Primitive("layernorm 768 · 2^10", 768 << 10, 0, _rows("LayerNormalization", 1024, 768)),
    Primitive("matmul 16 × 512^3", 16 * 512**2, 16 * 512**3, _matmul(16, 512)),
    Primitive("conv 64→64 3×3 14^2", 64 * 14**2, 64 * 64 * 9 * 14**2, conv(64, 14, 3, 1), ("two-party",)),
    Primitive("conv 64→64 3×3 56^2", 64 * 56**2, 64 * 64 * 9 * 56**2, conv(64, 56, 3, 1)),
    Primitive("conv 64→64 3×3 56^2 × 16", 16 * 64 * 56**2, 16 * 64 * 64 * 9 * 56**2, conv(64, 56, 3, 16)),
    Primitive("maxpool 2×2 of 2^20", MEGA // 4, 0, _max_pool(16, 256), ALL),
]
"""What `covey bench primitives` measures."""
