"""The float network on one thread of this machine, the yardstick beside private inference: torch, else onnxruntime."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from covey.bench.clock import RESOLVED
from covey.bench.statistics import Summary

Array = npt.NDArray[Any]
Inputs = Mapping[str, Array]


@dataclass(frozen=True)
class Plaintext:
    """What one inference took: `engine` names what ran it."""

    engine: str
    wall: Summary
    cpu_seconds: float
    outputs: Array
    """The first output of the network."""


def measure(path: Path, inputs: Inputs, repetitions: int, warm_up: int = 1) -> Plaintext | None:
    """Run the network on one thread, a small one more often than asked; `None` without torch and onnxruntime.

    Torch runs convolutional networks, onnxruntime those with other operators. Inputs that are not given are
    zeros, as in a sequence's first run.
    """
    for engine in (_torch, _onnxruntime):
        try:
            name, call = engine(path, inputs)
        except (ImportError, OSError, NotImplementedError):  # the second: installed, but for another machine
            continue
        for _ in range(warm_up):
            outputs = call()
        walls: list[float] = []
        before = time.process_time()
        while len(walls) < repetitions or time.process_time() - before < RESOLVED:
            start = time.perf_counter()
            outputs = call()
            walls.append(time.perf_counter() - start)
        cpu = (time.process_time() - before) / len(walls)
        return Plaintext(name, Summary.of(walls), cpu, outputs)
    return None


def _onnxruntime(path: Path, inputs: Inputs) -> tuple[str, Callable[[], Array]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    count = len(next(iter(inputs.values())))
    feed = {
        entry.name: inputs[entry.name] if entry.name in inputs else np.zeros((count, *entry.shape[1:]), np.float32)
        for entry in session.get_inputs()
    }
    return "onnxruntime fp32, one thread", lambda: np.asarray(session.run(None, feed)[0])


def _torch(path: Path, inputs: Inputs) -> tuple[str, Callable[[], Array]]:
    import torch

    model = onnx.load(path)
    tensors = {entry.name: torch.from_numpy(numpy_helper.to_array(entry).copy()) for entry in model.graph.initializer}
    steps = [(_torch_operator(node), list(node.input), node.output[0]) for node in model.graph.node]
    torch.set_num_threads(1)
    given = {name: torch.from_numpy(array) for name, array in inputs.items()}

    def call() -> Array:
        with torch.inference_mode():
            values = {**tensors, **given}
            for operator, operands, output in steps:
                values[output] = operator(*(values[name] for name in operands))
            return np.asarray(values[model.graph.output[0].name].numpy())

    return "torch fp32, one thread", call


def _torch_operator(node: onnx.NodeProto) -> Callable[..., Any]:
    """The operators of convolutional networks, as torch computes them. Raises `NotImplementedError` for others."""
    from torch.nn import functional

    given = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    kernel, stride = given.get("kernel_shape"), given.get("strides")
    padding = list(given.get("pads", [0, 0]))[:2]
    operators: dict[str, Callable[..., Any]] = {
        "Conv": lambda x, weight, bias=None: functional.conv2d(
            x, weight, bias, stride, padding, groups=given.get("group", 1)
        ),
        "Gemm": lambda x, weight, bias: functional.linear(x, weight, bias),
        "BatchNormalization": lambda x, scale, bias, mean, variance: functional.batch_norm(
            x, mean, variance, scale, bias, eps=given["epsilon"]
        ),
        "Relu": functional.relu,
        "MaxPool": lambda x: functional.max_pool2d(x, kernel, stride, padding),
        "AveragePool": lambda x: functional.avg_pool2d(x, kernel, stride, padding),
        "GlobalAveragePool": lambda x: x.mean(dim=(2, 3), keepdim=True),
        "Add": lambda x, y: x + y,
        "Flatten": lambda x: x.flatten(1),
    }
    if node.op_type not in operators:
        raise NotImplementedError(node.op_type)
    return operators[node.op_type]
