"""Random and adversarial models against their bounds, in the clear and among parties: `make bounds`.

Each model is compiled for the widest input range that its ring has room for, and run where its inputs drive some value
to an extreme: at the range's ends, by the sign with which each input counts. Python's integers say what every value is.
A bound that is called proved must hold; where one that calibration data gave is passed, `clear` must name it; all
elements of all outputs must be equal, in the clear and privately.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper

import builders
import covey
import exact
from covey import _core, reference
from covey._proto import program_pb2 as pb
from covey.clear import run_clear
from covey.errors import CoveyError, DoesNotFitError
from covey.ir import Graph
from covey.model import Model, load
from covey.parties import local
from covey.protocols import PROTOCOLS
from interpreter import program_of

PRIVATE = ("trio", "quad", "two-party", "beaver")
TARGETS = 3
"""Values of a model that are driven to an extreme."""


@dataclass
class Found:
    """What a campaign saw."""

    seed: int
    models: int = 0
    refused: int = 0
    calibrated: int = 0
    above_53: int = 0
    passed: int = 0
    elements: int = 0
    private: Counter[str] = field(default_factory=Counter)
    operators: Counter[str] = field(default_factory=Counter)
    rings: Counter[int] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Maker:
    """A random network, one operator after the other."""

    def __init__(self, rng: np.random.Generator, room: int) -> None:
        self.rng = rng
        self.room = room  # bits of the ring before the point
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}
        image, rows, vector = (2, 4, 4), (3, 4), (6,)
        self.shape: tuple[int, ...] = (image, rows, vector)[rng.integers(3)]
        self.input_shape, self.second = self.shape, False
        self.now = "x"
        self.earlier = [("x", self.shape)]
        self.size = rng.choice([1.0, 2.0**-12, 2.0**-29, 40.0])

    def constant(self, array: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name

    def numbers(self, *shape: int) -> np.ndarray:
        """Weights: all alike, of random sign, or random; small ones are a few units of the scale."""
        values = (np.ones(shape), self.rng.choice([-1.0, 1.0], shape), self.rng.normal(size=shape))
        return np.asarray(values[self.rng.integers(3)] * self.size)

    def bias(self, count: int) -> np.ndarray:
        """Sometimes far beyond what is added to it."""
        return self.rng.uniform(-1, 1, count) * self.large(-8)

    def large(self, least: int, *, top: bool = False) -> float:
        """A power of two, often one that leaves the ring no more than a few bits."""
        most = self.room - int(self.rng.integers(2, 6))
        return float(
            2.0 ** (most if top or self.rng.random() < 0.4 else self.rng.integers(least, max(most, least) + 1))
        )

    def emit(self, op: str, operands: list[str], shape: tuple[int, ...], **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, operands, [name], name=f"{op}{len(self.nodes)}", **attributes))
        self.now, self.shape = name, shape
        return name

    def step(self) -> None:
        choices = [
            self.unary,
            self.binary,
            self.cancel,
            self.affine,
            self.choice,
            self.move,
            self.linear,
            self.reduction,
        ]
        if len(self.shape) == 3 and min(self.shape[1:]) >= 2:
            choices += [self.image] * 3
        choices[self.rng.integers(len(choices))]()
        self.earlier.append((self.now, self.shape))

    def unary(self) -> None:
        names = [
            "Relu",
            "Abs",
            "Neg",
            "HardSigmoid",
            "HardSwish",
            "Sigmoid",
            "Tanh",
            "Softplus",
            "Elu",
            "Erf",
            "Mish",
            "LeakyRelu",
            "Clip",
            "Pow",
            "PRelu",
        ]
        op = names[self.rng.integers(len(names))]
        more: list[str] = []
        attributes: dict[str, Any] = {}
        if op == "LeakyRelu":
            attributes["alpha"] = float(self.rng.choice([0.01, 0.25, -2.0, 3.0]))
        elif op == "Clip":
            low = self.rng.normal() * self.size
            more = [self.constant(low), self.constant(low + abs(self.rng.normal()) * self.size)]
        elif op == "Pow":
            more = [self.constant(float(self.rng.integers(2, 4)))]
        elif op == "PRelu":
            more = [self.constant(self.numbers(*self.shape[-1:]))]
        self.emit(op, [self.now, *more], self.shape, **attributes)

    def other(self) -> str:
        """Another value of this shape: an earlier one, the second input or a constant."""
        alike = [name for name, shape in self.earlier if shape == self.shape and name != self.now]
        if self.shape == self.input_shape and self.rng.random() < 0.3:
            self.second = True
            return "z"
        if alike and self.rng.random() < 0.6:
            return str(self.rng.choice(alike))
        return self.constant(self.bias(int(np.prod(self.shape))).reshape(self.shape))

    def binary(self) -> None:
        op = str(self.rng.choice(["Add", "Sub", "Mul", "Max", "Min"]))
        operands = [self.now, self.other()]
        if op in ("Add", "Sub") and self.rng.random() < 0.5:
            operands.reverse()
        self.emit(op, operands, self.shape)

    def cancel(self, *, top: bool = False) -> None:
        """What rounding loses of a sum is all that is left of it."""
        large = self.constant(np.full(1, self.large(0, top=top)))
        self.emit("Sub", [self.emit("Add", [self.now, large], self.shape), large], self.shape)

    def affine(self) -> None:
        op = str(self.rng.choice(["Mul", "Div", "BatchNormalization"]))
        if op == "BatchNormalization" and len(self.shape) > 1:
            count = self.shape[0]
            arrays = [self.numbers(count), self.bias(count), self.bias(count), self.rng.uniform(0.5, 2, count)]
            self.emit(op, [self.now, *map(self.constant, arrays)], self.shape)
        elif op == "Div":
            self.emit(op, [self.now, self.constant(float(self.rng.choice([3.0, -0.3, 255.0])))], self.shape)
        else:
            self.emit("Mul", [self.now, self.constant(self.numbers(*self.shape[-1:]))], self.shape)

    def choice(self) -> None:
        condition = self.emit(
            str(self.rng.choice(["Less", "Greater", "LessOrEqual", "Equal"])),
            [self.now, self.other_than_now()],
            self.shape,
        )
        x = self.earlier[-1][0]
        if self.rng.random() < 0.5:
            opposite = self.emit("Not", [condition], self.shape)
            equal = self.emit("Less", [x, self.constant(0.5)], self.shape)
            condition = self.emit(str(self.rng.choice(["And", "Or", "Xor"])), [opposite, equal], self.shape)
        self.emit("Where", [condition, x, self.constant(self.bias(1))], self.shape)

    def other_than_now(self) -> str:
        alike = [name for name, shape in self.earlier if shape == self.shape and name != self.now]
        return str(self.rng.choice(alike)) if alike else self.constant(self.bias(1))

    def move(self) -> None:
        op = str(
            self.rng.choice(["Transpose", "Slice", "Tile", "Pad", "Gather", "Concat", "Flatten", "Resize", "Split"])
        )
        last, rank = self.shape[-1], len(self.shape) + 1
        if op == "Transpose" and rank > 2:
            order = [0, *range(2, rank), 1]
            self.emit(op, [self.now], tuple(self.shape[i - 1] for i in order[1:]), perm=order)
        elif op == "Slice" and last > 2:
            ends = [self.constant(np.array([value])) for value in (1, last, rank - 1)]
            self.emit(op, [self.now, *ends], (*self.shape[:-1], last - 1))
        elif op == "Tile" and last < 6:
            repeats = self.constant(np.array([1] * (rank - 1) + [2]))
            self.emit(op, [self.now, repeats], (*self.shape[:-1], 2 * last))
        elif op == "Pad" and last < 6:
            pads = [0] * (rank - 1) + [1] + [0] * (rank - 1) + [1]
            self.emit(
                op,
                [self.now, self.constant(np.array(pads)), self.constant(self.bias(1)[0])],
                (*self.shape[:-1], last + 2),
            )
        elif op == "Gather":
            index = self.constant(np.array([0, last - 1, 0]))
            self.emit(op, [self.now, index], (*self.shape[:-1], 3), axis=rank - 1)
        elif op == "Concat" and last < 6:
            self.emit(op, [self.now, self.now], (*self.shape[:-1], 2 * last), axis=rank - 1)
        elif op == "Split" and last % 2 == 0:
            first = self.emit(op, [self.now], (*self.shape[:-1], last // 2), axis=rank - 1)
            self.nodes[-1].output.append(f"{first}.b")
            self.emit("Sub", [first, f"{first}.b"], self.shape)
        elif op == "Resize" and rank == 4 and last < 6:
            scales = self.constant(np.array([1.0, 1.0, 2.0, 2.0], dtype=np.float32))
            mode = str(self.rng.choice(["nearest", "linear", "cubic"]))
            sizes = (self.shape[0], self.shape[1] * 2, last * 2)
            self.emit(op, [self.now, "", scales], sizes, mode=mode)
        else:
            self.emit("Flatten", [self.now], (int(np.prod(self.shape)),))

    def linear(self) -> None:
        last = self.shape[-1]
        if len(self.shape) == 2 and self.rng.random() < 0.5:
            turned = self.emit("Transpose", [self.now], self.shape[::-1], perm=[0, 2, 1])
            self.emit("MatMul", [self.earlier[-1][0], turned], (self.shape[1], self.shape[1]))
        elif len(self.shape) == 1:
            operands = [self.now, self.constant(self.numbers(last, last)), self.constant(self.bias(last))]
            self.emit("Gemm", operands, (last,))
        else:
            self.emit("MatMul", [self.now, self.constant(self.numbers(last, last))], self.shape)

    def reduction(self) -> None:
        if len(self.shape) < 2:
            return
        op = str(self.rng.choice(["ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin"]))
        axis, shape = len(self.shape), (*self.shape[:-1], 1)
        if op == "ReduceSum":
            self.emit(op, [self.now, self.constant(np.array([axis]))], shape, keepdims=1)
        else:
            self.emit(op, [self.now], shape, axes=[axis], keepdims=1)

    def image(self) -> None:
        op = str(
            self.rng.choice(
                [
                    "Conv",
                    "Conv",
                    "ConvTranspose",
                    "AveragePool",
                    "AveragePool",
                    "MaxPool",
                    "SpaceToDepth",
                    "GlobalAveragePool",
                ]
            )
        )
        channels, height, width = self.shape
        if op == "Conv":
            operands = [self.now, self.constant(self.numbers(2, channels, 3, 3)), self.constant(self.bias(2))]
            self.emit(op, operands, (2, height, width), pads=[1, 1, 1, 1])
        elif op == "ConvTranspose" and height < 6:
            operands = [self.now, self.constant(self.numbers(channels, 2, 2, 2)), self.constant(self.bias(2))]
            self.emit(op, operands, (2, height * 2, width * 2), strides=[2, 2])
        elif op in ("AveragePool", "MaxPool"):
            border = {"pads": [1, 1, 1, 1], "strides": [1, 1], "kernel_shape": [3, 3]}
            self.emit(op, [self.now], self.shape, **border)
        elif op == "SpaceToDepth" and height % 2 == 0 and width % 2 == 0 and channels < 8:
            self.emit(op, [self.now], (channels * 4, height // 2, width // 2), blocksize=2)
        else:
            self.emit("GlobalAveragePool", [self.now], (channels, 1, 1))

    def model(self, *, cancelling: bool) -> onnx.ModelProto:
        if cancelling:
            self.cancel(top=True)
            self.earlier.append((self.now, self.shape))
        for _ in range(self.rng.integers(1, 5)):
            self.step()
        output_type = None
        if self.rng.random() < 0.1 and len(self.shape) > 0:
            self.emit("ArgMax", [self.now], self.shape[:-1], axis=len(self.shape), keepdims=0)
            output_type = onnx.TensorProto.INT64
        inputs = {"x": ["N", *self.input_shape], **({"z": ["N", *self.input_shape]} if self.second else {})}
        return builders.model(self.nodes, inputs, [self.now], self.constants, output_dtype=output_type)


@dataclass
class Case:
    """A compiled model and inputs within its range."""

    compiled: covey.Compiled
    inputs: dict[str, np.ndarray]


def draw(rng: np.random.Generator) -> Case:
    """A model, compiled for the largest inputs that fit. Raises `CoveyError` where none do."""
    cancelling = rng.random() < 0.15
    ring = int(rng.integers(60, 65) if cancelling else rng.choice([64, 64, 64, 32, 32, *rng.integers(20, 65, 2)]))
    scale = int(rng.integers(1, min(ring // 2 - 2, 30) + 1))
    maker = Maker(rng, ring - 2 - scale)
    proto = maker.model(cancelling=cancelling)
    names = [value.name for value in proto.graph.input]
    division = "exact" if rng.random() < 0.2 else "mul-shift"
    skew = rng.uniform(0.0, 1.0)

    def ranges(size: float) -> dict[str, tuple[float, float]]:
        return dict.fromkeys(names, (-size * skew if skew > 0.3 else 0.0, size))

    def compiled(size: float, calibration: dict[str, np.ndarray] | None = None) -> covey.Compiled:
        # Scales are drawn for their bounds, however coarse the outputs are.
        return covey.compile(
            proto,
            ring=ring,
            scale=scale,
            division=division,
            input_range=ranges(size),
            calibration=calibration,
            max_error=np.inf,
        )

    def largest(low: float, high: float, steps: int, of: Callable[[float], float]) -> tuple[float, covey.Compiled]:
        """By bisection between what fits and what does not; the first attempt must fit."""
        best = compiled(of(low))
        for _ in range(steps):
            middle = (low + high) / 2
            try:
                best, low = compiled(of(middle)), middle
            except DoesNotFitError:
                high = middle
        return low, best

    # To the bit, then to a few parts in a thousand: next to what the ring leaves, and next to a power of two.
    exponent, best = largest(-scale, ring - 2 - scale, int(rng.integers(3, 12)), lambda e: 2.0**e)
    chance = rng.random()
    if (
        cancelling or chance < 0.3
    ):  # a few units of the scale: what float64 rounds off larger numbers is not small beside them
        best = compiled(float(rng.integers(1, 100 if cancelling else 1000)) * 2.0**-scale)
    elif chance < 0.5:
        sample = {n: rng.uniform(*ranges(2.0 ** (exponent - 2))[n], (4, *maker.input_shape)) for n in names}
        best = compiled(2.0 ** (exponent + rng.uniform(0, 3)), sample)
    (bounds,) = {(v.range.low, v.range.high) for v in program_of(best).values if v.kind == pb.Value.INPUT}
    return Case(best, extremes(best.graph, names, maker.input_shape, bounds, rng))


def extremes(
    graph: Graph, names: list[str], shape: tuple[int, ...], ends: tuple[float, float], rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Samples at the ends of the range: all, at random, and those that drive a value as far as it goes."""
    each = int(np.prod(shape))
    count = each * len(names)
    low, high = ends

    def split(corners: np.ndarray) -> dict[str, np.ndarray]:
        values = np.where(corners, high, low)
        return {n: values[:, i * each : (i + 1) * each].reshape(-1, *shape) for i, n in enumerate(names)}

    found = [np.zeros(count, bool), np.ones(count, bool), rng.random(count) < 0.5]
    computed = [node.output for node in graph.nodes]
    for _ in range(TARGETS):
        corner, target = rng.random(count) < 0.5, str(rng.choice(computed))
        sign, place = rng.choice([-1.0, 1.0]), rng.random()
        for _ in range(2):
            flipped = np.concatenate([corner[None], corner ^ np.eye(count, dtype=bool)])
            values = reference.run(graph, split(flipped))[target].reshape(count + 1, -1)
            values = sign * values[:, int(place * values.shape[1])]
            better = values[1:] > values[0]
            if not better.any():
                break
            corner = corner ^ better
        found.append(corner)
    inputs = split(np.array(found))
    inside = {n: rng.uniform(low, high, (2, *shape)) for n in names}
    return {n: np.concatenate([inputs[n], inside[n]]) for n in names}


def check(case: Case, found: Found) -> bool:
    """Every value against its bound, and `clear` against Python's integers. Whether all bounds held."""
    program = program_of(case.compiled)
    values = exact.run(case.compiled, case.inputs)
    made = {node.outputs[0]: node for node in program.nodes}
    passed = []
    for index, value in enumerate(program.values):
        largest = max((abs(v) for v in values[index].ravel()), default=0)
        found.above_53 += largest >= 1 << 53
        if largest >> value.bound.bits:
            passed.append(index)
            if value.bound.source == pb.Bound.PROVED:
                found.failures.append(f"the proved bound 2^{value.bound.bits} of '{value.name}' is passed by {largest}")
    found.passed += len(passed)
    found.calibrated += any(v.bound.source == pb.Bound.CALIBRATED for v in program.values)
    found.operators.update(node.WhichOneof("op") for node in program.nodes)
    found.rings[program.ring.pow2] += 1
    try:
        clear = run_clear(load(case.compiled), case.inputs)
    except CoveyError as error:
        names = {made[index].name for index in passed if index in made}
        if not any(f"'{name}'" in str(error) or f"{name}+" in str(error) for name in names):
            found.failures.append(f"clear refuses where {sorted(names)} pass their bounds: {error}")
        return False
    if passed:
        found.failures.append(f"clear does not name what passes its bound: {[program.values[i].name for i in passed]}")
        return False
    for index in program.outputs:
        got, due = clear.integers[program.values[index].name], values[index]
        found.elements += due.size
        differing = int((exact.whole(got) != due).sum())
        if differing:
            found.failures.append(
                f"{differing} of {due.size} elements of '{program.values[index].name}' differ in the clear"
            )
    return True


def campaign(models: int, seed: int, private: int = 0, progress: Callable[[str], None] = lambda _: None) -> Found:
    """So many models in the clear, and the first that can of them privately."""
    found, start = Found(seed), time.monotonic()
    attempt = 0
    with ExitStack() as stack:
        running = {name: stack.enter_context(local(name, timeout=120.0)) for name in PRIVATE} if private else {}
        while found.models < models:
            attempt += 1
            rng = np.random.default_rng([seed, attempt])
            try:
                case = draw(rng)
            except CoveyError:
                found.refused += 1
                continue
            found.models += 1
            before = len(found.failures)
            held = check(case, found)
            if held and sum(found.private.values()) < private:
                _privately(case, running, found)
            found.failures[before:] = [f"seed {seed} {attempt}: {text}" for text in found.failures[before:]]
            if found.models % 100 == 0:
                progress(f"{found.models} models, {sum(found.private.values())} privately")
    found.seconds = time.monotonic() - start
    return found


def _privately(case: Case, running: dict[str, Any], found: Found) -> None:
    ring = program_of(case.compiled).ring.pow2
    model = load(case.compiled)
    able = [name for name in PRIVATE if ring in PROTOCOLS[name].rings and _supports(name, model)]
    if not able:
        return
    name = min(able, key=lambda each: found.private[each])
    clear = run_clear(model, case.inputs)
    try:
        result = running[name].run(model, case.inputs)
    except CoveyError as error:
        found.failures.append(f"{name}: {error}")
        return
    found.private[name] += 1
    for output, due in clear.integers.items():
        differing = int((result.integers[output] != due).sum())
        if differing:
            found.failures.append(f"{name}: {differing} of {due.size} elements of '{output}' differ from clear")


def _supports(protocol: str, model: Model) -> bool:
    """Trio and Quad have no exact division, for one."""
    try:
        _core.plan(model.program, protocol)
    except CoveyError:
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=5000)
    parser.add_argument("--private", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = campaign(
        options.models, options.seed, options.private, lambda text: print(text, file=sys.stderr, flush=True)
    )
    total = sum(found.private.values())
    if total < options.private:
        found.failures.append(f"{total} models ran privately where {options.private} were asked for")
    if options.json:
        print(json.dumps(vars(found), default=dict, indent=2))
    else:
        print(f"{'models':40}{found.models:>10,}")
        print(f"{'  refused: no range fits':40}{found.refused:>10,}")
        print(f"{'  with calibrated bounds':40}{found.calibrated:>10,}")
        print(f"{'values above 2^53':40}{found.above_53:>10,}")
        print(f"{'calibrated bounds passed':40}{found.passed:>10,}")
        print(f"{'output elements compared':40}{found.elements:>10,}")
        for name, count in found.private.items():
            print(f"{'privately, ' + name:40}{count:>10,}")
        print(f"{'operators':40}  {', '.join(f'{name} {count}' for name, count in found.operators.most_common())}")
        print(f"{'seconds':40}{found.seconds:>10.0f}")
        print(f"{'failures':40}{len(found.failures):>10,}")
        for line in found.failures[:20]:
            print(f"  {line}")
    sys.exit(1 if found.failures else 0)


if __name__ == "__main__":
    main()
