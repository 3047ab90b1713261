"""The float network on one thread of this machine, the yardstick beside private inference: torch, else onnxruntime."""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from covey.bench.clock import RESOLVED
from covey.bench.statistics import Summary
from covey.errors import OptionError
from covey.training.losses import LABELS
from covey.training.optimizers import SGD, Adam, Optimizer

Array = npt.NDArray[Any]
Inputs = Mapping[str, Array]

TORCH = "torch fp32, one thread"


@dataclass(frozen=True)
class Plaintext:
    """What one inference, or one step of training, took: `engine` names what ran it."""

    engine: str
    wall: Summary
    cpu_seconds: float
    outputs: Array
    """The first output of the network, or the losses of the first steps."""


def measure(path: Path, parts: Sequence[Inputs], repetitions: int, warm_up: int = 1) -> Plaintext | None:
    """Run the network on one thread, a small one more often than asked; `None` without torch and onnxruntime.

    It runs on `parts` of the samples, one after the other. Torch runs convolutional networks, onnxruntime those with
    other operators. Inputs that are not given are zeros, as in a sequence's first run.
    """
    for engine in (_torch, _onnxruntime):
        try:
            name, run = engine(path)
        except (ImportError, OSError, OptionError):  # the second: installed, but for another machine
            continue
        return _timed(name, functools.partial(_in_turn, run, parts), repetitions, warm_up)
    return None


def _in_turn(run: Callable[[Inputs], Array], parts: Sequence[Inputs]) -> Array:
    outputs = [run(part) for part in parts]
    return outputs[0] if len(parts) == 1 else np.concatenate(outputs)


def measure_steps(
    path: Path, minibatches: Sequence[Inputs], optimizer: Optimizer, repetitions: int
) -> Plaintext | None:
    """Train the network on one thread: steps on these minibatches, the last `repetitions` of which are timed.

    More follow where they are short. `None` without torch, and for a network that is no module there.
    """
    try:
        step = _torch_step(path, optimizer)
        losses: list[float] = []
        turns = itertools.cycle(minibatches)

        def call() -> Array:
            losses.append(step(next(turns)))
            return np.array(losses[: len(minibatches)])

        return _timed(TORCH, call, repetitions, len(minibatches) - repetitions)
    except (ImportError, OSError, OptionError):
        return None


def _timed(name: str, call: Callable[[], Array], repetitions: int, warm_up: int) -> Plaintext:
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


def _onnxruntime(path: Path) -> tuple[str, Callable[[Inputs], Array]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def run(inputs: Inputs) -> Array:
        count = len(next(iter(inputs.values())))
        feed = {
            entry.name: inputs[entry.name] if entry.name in inputs else np.zeros((count, *entry.shape[1:]), np.float32)
            for entry in session.get_inputs()
        }
        return np.asarray(session.run(None, feed)[0])

    return "onnxruntime fp32, one thread", run


def _torch(path: Path) -> tuple[str, Callable[[Inputs], Array]]:
    import torch

    from covey.nn import ZooNetwork

    network = ZooNetwork(onnx.load(path)).eval()
    torch.set_num_threads(1)

    def run(inputs: Inputs) -> Array:
        (given,) = (torch.from_numpy(array) for array in inputs.values())
        with torch.inference_mode():
            return np.asarray(network(given).numpy())

    return TORCH, run


def _torch_step(path: Path, optimizer: Optimizer) -> Callable[[Inputs], float]:
    """One step of training on a minibatch, which has a dimension of one in front of it; its loss."""
    import torch
    from torch.nn import functional

    from covey.bench.encoder_module import EncoderModule
    from covey.nn import ZooNetwork

    model = onnx.load(path)
    try:
        network = ZooNetwork(model).train()
    except OptionError:
        network = EncoderModule(model)
    torch.set_num_threads(1)
    stepping = _torch_optimizer(optimizer, network.parameters())

    def step(minibatch: Inputs) -> float:
        (given,) = (torch.from_numpy(array[0]).float() for name, array in minibatch.items() if name != LABELS)
        labels = torch.from_numpy(minibatch[LABELS][0])
        stepping.zero_grad()
        scores = network(given)
        of_classes = labels.dim() < scores.dim()
        loss = (
            functional.cross_entropy(scores, labels.long())
            if of_classes
            else functional.mse_loss(scores, labels.float())
        )
        loss.backward()
        stepping.step()
        return float(loss.item())

    return step


def _torch_optimizer(optimizer: Optimizer, parameters: Any) -> Any:
    from torch import optim

    common: dict[str, Any] = {"lr": optimizer.lr, "weight_decay": optimizer.weight_decay}
    if isinstance(optimizer, SGD):
        return optim.SGD(parameters, momentum=optimizer.momentum, nesterov=optimizer.nesterov, **common)
    assert isinstance(optimizer, Adam)
    kind = optim.AdamW if optimizer.decoupled else optim.Adam
    return kind(parameters, betas=(optimizer.beta1, optimizer.beta2), eps=optimizer.epsilon, **common)
