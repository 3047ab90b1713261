"""Random PyTorch modules: what Covey makes of each, against the module itself.

    python python/tests/random_modules.py [--count N] [--seed S] [--programs] [--onnx]

A module is a list of steps that read earlier results. The graph as imported and as rewritten computes the same in
floating point, and with --programs the fixed-point program does so nearly. With --onnx PyTorch exports them to ONNX
first. Modules that are refused are counted by reason: a refusal is no error.
"""

from __future__ import annotations

import io
import random
import sys
import warnings
from contextlib import redirect_stdout
from functools import partial
from typing import Any

import numpy as np
import onnx
import torch
from torch.nn import functional as f

import builders
import covey
import judging
from covey import reference
from covey.clear import run_clear
from covey.importers.source import examine
from covey.ir import Graph
from covey.model import load
from covey.passes import rewrite
from module_layers import layers, of_batch, two
from module_steps import PLAIN, SMOOTH, Draw, Maker, Step, Steps, Tensor, by_name, constant_operand, moves, reductions

LARGEST = 600

ONE: list[tuple[float, Maker]] = [
    (2.0, by_name(SMOOTH)),
    (3.0, by_name(PLAIN)),
    (1.5, constant_operand),
    (2.0, reductions),
    (4.0, moves),
    (1.2, of_batch),
    (3.0, layers),
]


SHAPES = [(6,), (4,), (3, 4), (4, 6), (5, 3), (2, 4, 4), (3, 6, 5), (4, 5, 5), (2, 3, 2, 2)]


def drawn(seed: int, most: int = 8) -> tuple[Steps, tuple[int, ...]]:
    """The module of a seed, and the shape of its input without the batch."""
    of = random.Random(seed)
    torch.manual_seed(seed)
    module = Steps()
    module.eval()
    draw = Draw(of, module)
    shape = of.choice(SHAPES)
    draw.results = [example(seed, shape, 2)]
    with torch.no_grad():
        for _ in range(of.randint(1, most)):
            _append(draw)
    if not module.steps:
        module.steps.append(Step("relu", (0,), lambda m, x: f.relu(x)))
    last = len(module.steps)
    module.outputs = [last] + ([of.randrange(1, last)] if last > 1 and of.random() < 0.2 else [])
    return module, shape


def _append(draw: Draw) -> None:
    """Add a step whose result is small and finite, if one is found."""
    of, module = draw.of, draw.module
    for _ in range(8):
        newest = len(draw.results) - 1
        at = newest if of.random() < 0.75 else of.randrange(len(draw.results))
        reads: tuple[int, ...] = (at,)
        if of.random() < 0.25:
            other = of.randrange(len(draw.results))
            reads = (at, other)
            made = two(draw, draw.results[at], draw.results[other])
        else:
            maker = of.choices([maker for _, maker in ONE], [weight for weight, _ in ONE])[0]
            made = maker(draw, tuple(draw.results[at].shape))
        if made is None:
            continue
        text, compute = made
        try:
            result = compute(module, *(draw.results[index] for index in reads))
        except (RuntimeError, ValueError, IndexError, TypeError, AssertionError, NotImplementedError):
            continue
        good = (
            result.dtype == torch.float32
            and result.dim() >= 2
            and len(result) == 2
            and 0 < result.numel() <= 2 * LARGEST
        )
        if not good or not torch.isfinite(result).all() or result.abs().max() > 30 or result is draw.results[at]:
            continue
        module.steps.append(Step(f"{text} -> {list(result.shape[1:])}", reads, compute))
        draw.results.append(result)
        return


def example(seed: int, shape: tuple[int, ...], samples: int) -> Tensor:
    """Inputs of a module in [-2, 2]."""
    return torch.rand(samples, *shape, generator=torch.Generator().manual_seed(seed + samples)) * 4 - 2


Outputs = list[np.ndarray]


def judge(seed: int, *, program: bool = False, through_onnx: bool = False) -> tuple[str, str]:
    """What becomes of the module of a seed: `same`, `refused`, `wrong`, or `not exported`; and where or why."""
    module, shape = drawn(seed)
    x = example(seed, shape, 3)
    with torch.no_grad():
        due = _arrays(module(x))
    source, options = (_exported(module, seed, shape), {}) if through_onnx else (module, {"example_inputs": (x[:2],)})
    if source is None or (through_onnx and _differ(builders.float_results(source, {"x": x.numpy()}), due)):
        return "not exported", ""
    try:
        graph, errors = examine(source, **options)
        if errors:
            return "refused", str(errors[0])
        if found := _differ(_floats(graph, x), due):
            return "wrong", f"as imported: {found}"
        if errors := rewrite(graph):
            return "refused", str(errors[0])
        if found := _differ(_floats(graph, x), due):
            return "wrong", f"as rewritten: {found}"
        if program:
            inputs = torch.cat([example(seed, shape, 64), x]).numpy()
            compiled = covey.compile(source, **options, input_range=(-2, 2), calibration=inputs)
            outputs = run_clear(load(compiled), x.numpy()).outputs
            if found := _differ(list(outputs.values()), due, near=True):
                return "wrong", f"as a program: {found}"
    except covey.CoveyError as error:
        return "refused", str(error)
    return "same", ""


def _exported(module: Steps, seed: int, shape: tuple[int, ...]) -> onnx.ModelProto | None:
    """The module as ONNX, with a symbolic batch, where PyTorch can export it."""
    buffer, errors = io.BytesIO(), (RuntimeError, torch.onnx.errors.OnnxExporterError, IndexError, TypeError)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), torch.no_grad():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                module, (example(seed, shape, 2),), buffer, input_names=["x"], dynamic_axes={"x": {0: "N"}},
                opset_version=17, dynamo=False,
            )  # fmt: skip
        proto = onnx.load_from_string(buffer.getvalue())
        builders.float_results(proto, {"x": example(seed, shape, 3).numpy()})
    except errors:
        return None
    except Exception as error:  # onnxruntime has its own
        if "onnxruntime" not in type(error).__module__:
            raise
        return None
    return proto


def _arrays(outputs: Any) -> Outputs:
    return [tensor.double().numpy() for tensor in (outputs if isinstance(outputs, tuple) else (outputs,))]


def _floats(graph: Graph, x: Tensor) -> Outputs:
    return reference.outputs(graph, {graph.inputs[0]: x.double().numpy()})


def _differ(got: Outputs, due: Outputs, near: bool = False) -> str:
    """How outputs differ; of a program, which rounds, one in twenty may: comparisons turn at their edges."""
    if len(got) != len(due):
        return f"{len(got)} outputs for {len(due)}"
    for mine, its in zip(got, due, strict=True):
        if mine.shape != its.shape:
            return f"shape {mine.shape} for {its.shape}"
        most = 0.02 * max(1.0, np.abs(its).max()) if near else 2e-4 * (1 + np.abs(its))
        off = ~(np.abs(mine - its) <= most)
        if off.mean() > (0.05 if near else 0.0):
            return f"{off.sum()} of {off.size} elements are off, by {np.abs(mine - its).max():.3g} at most"
    return ""


def main() -> int:
    """Judge many; 1 if any is wrong."""
    asked = judging.parsed(
        __doc__,
        ("--onnx", "export each to ONNX first"),
        ("--programs", "compile and run each in fixed point, too"),
    )
    judged = partial(judge, program=asked.programs, through_onnx=asked.onnx)
    return judging.run(asked, judged, lambda seed: drawn(seed)[0])


if __name__ == "__main__":
    sys.exit(main())
