"""The kernels' figures on one thread of this machine, beside what a float library reaches on it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, helper

from covey import _core
from covey.bench.clock import RESOLVED
from covey.client import Progress
from covey.parties import processors

Floats = npt.NDArray[np.float32]
T = TypeVar("T")

SECONDS = 0.5
"""Time for one float figure; the fastest run counts, as for the kernels."""


@dataclass(frozen=True)
class Figure:
    """One kernel's rate. `ratio` is to the yardstick, `target` what either is to reach."""

    name: str
    unit: str
    value: float
    instruction_set: str
    ratio: float | None = None
    target: float | None = None

    @property
    def reached(self) -> bool | None:
        """Whether the target is met; `None` without one."""
        if self.target is None:
            return None
        return (self.value if self.ratio is None else self.ratio) >= self.target

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "name": self.name,
            "unit": self.unit,
            "value": self.value,
            "instruction_set": self.instruction_set,
            "ratio": self.ratio,
            "target": self.target,
            "reached": self.reached,
        }


SQUARE, CONVOLUTION = "1024 × 1024 × 1024", "64 × 576 × 50176"

SHAPES = {SQUARE: (1024, 1024, 1024), CONVOLUTION: (64, 576, 50176)}
"""M, K and N of the products that kernels and the float library are compared on: a square, and a layer of VGG16."""

RATIOS = {
    "product u32 1024 x 1024 x 1024": (SQUARE, 1.5),
    "product u64 1024 x 1024 x 1024": (SQUARE, 0.5),
    "1 x convolution u32 64 to 64, 224²": (CONVOLUTION, 1.2),
    "1 x convolution u64 64 to 64, 224²": (CONVOLUTION, 0.4),
}
"""The float product to compare with and the least ratio to it, by the beginning of a row's name."""

RATES = {"AES-128-CTR, 65536": 17.0, "u32 to 32 planes": 100.0, "u32 from 32 planes": 100.0}
"""Least rate in the row's own unit, by the beginning of a row's name."""


@dataclass(frozen=True)
class Yardstick:
    """A float library, and its GMAC a second of processor time by shape."""

    engine: str
    gmacs: dict[str, float]


def measure(every: bool, progress: Progress) -> tuple[Yardstick, list[Figure]]:
    """The yardstick, and the figures of the kernels that have targets, or of every one and many shapes."""
    rows = json.loads(_core.measure_kernels(every, progress))
    progress(1, 1, "float products on one thread")
    floats = yardstick()
    return floats, [figure(row, floats) for row in rows]


def figure(row: dict[str, Any], floats: Yardstick) -> Figure:
    """A row beside the yardstick and its target."""
    if row["unit"] != "GMAC/s":
        return Figure(**row, target=_of(row["name"], RATES))
    shape, target = _of(row["name"], RATIOS) or (SQUARE, None)
    return Figure(**row, ratio=row["value"] / floats.gmacs[shape], target=target)


def _of(name: str, table: Mapping[str, T]) -> T | None:
    return next((entry for start, entry in table.items() if name.startswith(start)), None)


def yardstick(shapes: dict[str, tuple[int, int, int]] = SHAPES) -> Yardstick:
    """What multiplies float32 matrices on one thread here: torch, else onnxruntime, else NumPy as it is set up."""
    rng = np.random.default_rng(0)
    engine, gmacs = "", {}
    for name, (m, k, n) in shapes.items():
        a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
        for product in (_torch, _onnxruntime, _numpy):
            try:
                engine, call = product(a, b)
            except (ImportError, OSError):  # the latter: installed, but for another machine
                continue
            gmacs[name] = m * k * n / fastest(call) / 1e9
            break
    return Yardstick(engine, gmacs)


def _torch(a: Floats, b: Floats) -> tuple[str, Callable[[], object]]:
    import torch

    torch.set_num_threads(1)
    x, y = torch.from_numpy(a), torch.from_numpy(b)
    out = torch.empty(len(a), b.shape[1])
    return "torch, one thread", lambda: torch.matmul(x, y, out=out)


def _onnxruntime(a: Floats, b: Floats) -> tuple[str, Callable[[], object]]:
    import onnxruntime

    # Both operands come at run time: a constant one would be packed beforehand.
    operands = {"a": a, "b": b}
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape) for name, array in operands.items()]
    result = helper.make_tensor_value_info("c", TensorProto.FLOAT, (len(a), b.shape[1]))
    graph = helper.make_graph([helper.make_node("MatMul", ["a", "b"], ["c"])], "product", given, [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return "onnxruntime, one thread", lambda: session.run(None, operands)


def _numpy(a: Floats, b: Floats) -> tuple[str, Callable[[], object]]:
    out = np.empty((len(a), b.shape[1]), np.float32)
    return "NumPy", lambda: np.matmul(a, b, out=out)


def fastest(run: Callable[[], object]) -> float:
    """Processor seconds of one run, of the fastest batch of runs: whatever the library's threads do counts.

    A batch lasts `RESOLVED` or more.
    """
    run()
    runs = 1
    while (best := _processor_seconds(run, runs)) < RESOLVED:
        runs *= 2
    until = time.perf_counter() + SECONDS
    while time.perf_counter() < until:
        best = min(best, _processor_seconds(run, runs))
    return best / runs


def _processor_seconds(run: Callable[[], object], runs: int) -> float:
    start = time.process_time()
    for _ in range(runs):
        run()
    return time.process_time() - start


def has_amx() -> bool | None:
    """Whether the processor multiplies 8-bit matrices (AMX int8); `None` where the system does not tell."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return None
    flags = next((line for line in text.splitlines() if line.startswith("flags")), None)
    return None if flags is None else "amx_int8" in flags.split()


def processor() -> str:
    """The processor's name as the system gives it, and how many of them this process may use."""
    name = "unknown processor"
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), name)
    except OSError:
        pass
    return f"{name}, {processors()} CPUs"
