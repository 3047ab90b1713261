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

from covey.bench.clock import RESOLVED
from covey.bench.statistics import Summary
from covey.errors import OptionError

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
        except (ImportError, OSError, OptionError):  # the second: installed, but for another machine
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

    from covey.nn import ZooNetwork

    network = ZooNetwork(onnx.load(path)).eval()
    torch.set_num_threads(1)
    (given,) = (torch.from_numpy(array) for array in inputs.values())

    def call() -> Array:
        with torch.inference_mode():
            return np.asarray(network(given).numpy())

    return "torch fp32, one thread", call
