"""Training of random PyTorch modules: the weights after a few steps, against those that PyTorch comes to.

    python python/tests/random_training.py [--count N] [--seed S] [--programs]

A module is a list of steps that read earlier results, with parameters, layers, tables and parts without gradients. The
graph of a training step comes to PyTorch's weights in float64, and with --programs the fixed-point program nearly.
Modules that are refused are counted by reason. A refusal that names a parameter to freeze is followed: the rest must
then be trained, or refused for another reason.
"""

from __future__ import annotations

import copy
import random
import re
import sys
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as f
from torch.overrides import TorchFunctionMode

import covey
import judging
from covey.clear import ClearSession
from covey.model import load
from covey.training.calibration import rehearse
from covey.training.losses import LABELS
from covey.training.step import Step as TrainingStep
from covey.training.step import make
from module_layers import layers, of_batch, two
from module_steps import PLAIN, SMOOTH, Draw, Maker, Step, Steps, Tensor, by_name, constant_operand, moves, reductions
from training_modules import Embedded, matrices, operand, rows

LARGEST = 400
BATCH, MINIBATCHES = 4, 3
WORDS = 7

ONE: list[tuple[float, Maker]] = [
    (2.0, by_name(SMOOTH)),
    (2.0, by_name(PLAIN)),
    (1.0, constant_operand),
    (1.5, reductions),
    (3.0, moves),
    (0.8, of_batch),
    (4.0, layers),
    (3.0, operand),
    (3.0, matrices),
    (0.7, rows),
]

SHAPES = [(6,), (4,), (3, 4), (4, 6), (5, 3), (2, 4, 4), (3, 6, 5)]


@dataclass
class Case:
    """A module and how it is trained."""

    module: Steps
    x: Tensor
    labels: Tensor
    loss: str
    optimizer: covey.SGD | covey.Adam
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        frozen = [name for name, tensor in self.module.named_parameters() if not tensor.requires_grad]
        return f"{self.module}\n{self.loss}, {self.optimizer}, {self.options}, without gradients {frozen}"


def drawn(seed: int, most: int = 6) -> Case:
    """What is trained for a seed."""
    of = random.Random(seed)
    torch.manual_seed(seed)
    module = Steps().eval()
    draw = Draw(of, module)
    samples = BATCH * MINIBATCHES
    generator = torch.Generator().manual_seed(seed)
    if of.random() < 0.2:
        x = torch.randint(0, WORDS, (samples, of.randint(2, 4)), generator=generator)
        name = draw.part(Embedded(WORDS, of.choice([3, 4]), of.choice([None, None, 2])))
        module.steps.append(Step(f"table {name}", (0,), lambda m, x: getattr(m, name)(x)))
    else:
        x = torch.rand(samples, *of.choice(SHAPES), generator=generator) * 4 - 2
        layer = draw.part(nn.Linear(x.shape[-1], x.shape[-1]))
        module.steps.append(Step(f"layer {layer}", (0,), lambda m, x: getattr(m, layer)(x)))
    with torch.no_grad():
        draw.results = [x, module.steps[0].compute(module, x)]
        for _ in range(of.randint(1, most)):
            _append(draw)
        loss = of.choice(["cross-entropy", "binary-cross-entropy", "mse"])
        _end(draw, loss)
    scores = draw.results[-1]
    module.outputs = [len(draw.results) - 1]
    _prune(module, x)
    shape = scores.shape[:-1] if loss == "cross-entropy" else scores.shape
    classes = {"cross-entropy": scores.shape[-1], "binary-cross-entropy": 2}.get(loss)
    labels = torch.randn(shape) if classes is None else torch.randint(0, classes, shape)
    for parameter in module.parameters():
        parameter.requires_grad_(of.random() > 0.08)
    options = {"batch_norm": "frozen"} if of.random() < 0.15 else {}
    return Case(module, x, labels, loss, _optimizer(of), options)


def _prune(module: Steps, x: Tensor) -> None:
    """Leave out the steps that have no part in the result, and what nothing reads."""
    needed, left = {0}, list(module.outputs)
    while left:
        number = left.pop()
        if number not in needed:
            needed.add(number)
            left += module.steps[number - 1].reads
    at = {number: place for place, number in enumerate(sorted(needed))}
    kept = [(number, step) for number, step in enumerate(module.steps, start=1) if number in needed]
    module.steps = [Step(step.text, tuple(at[each] for each in step.reads), step.compute) for _, step in kept]
    module.outputs = [at[number] for number in module.outputs]
    for held in (module._parameters, module._modules):
        for name in list(held):
            part = held.pop(name)
            try:
                module(x)
            except AttributeError:
                held[name] = part


def _end(draw: Draw, loss: str) -> None:
    """Scores of the newest result, as a layer or as they are."""
    of, newest = draw.of, draw.results[-1]
    few = 1 < newest.shape[-1] <= 8
    if few and (loss != "cross-entropy" or newest.dim() > 1) and of.random() < 0.35:
        return
    name = draw.part(nn.Linear(newest.flatten(1).shape[1], 3))
    whole = of.random() < 0.7
    if not whole:
        draw.module._modules[name] = nn.Linear(newest.shape[-1], 3).eval()

    def scores(m: Any, x: Tensor) -> Tensor:
        return getattr(m, name)(x.flatten(1) if whole else x)

    draw.module.steps.append(Step(f"scores {name}", (len(draw.results) - 1,), scores))
    draw.results.append(scores(draw.module, newest))


def _optimizer(of: random.Random) -> covey.SGD | covey.Adam:
    kind = of.choice(["plain", "plain", "momentum", "nesterov", "decay", "clip", "norm", "schedule", "adam", "adamw"])
    rate = of.choice([0.02, 0.05, 0.1])
    if kind == "adam":
        return covey.Adam(rate / 5, of.choice([0.0, 0.05]))
    return {
        "plain": lambda: covey.SGD(rate),
        "momentum": lambda: covey.SGD(rate, momentum=0.9),
        "nesterov": lambda: covey.SGD(rate, 0.01, momentum=0.7, nesterov=True),
        "decay": lambda: covey.SGD(rate, 0.1),
        "clip": lambda: covey.SGD(rate, clip=0.1),
        "norm": lambda: covey.SGD(rate, clip_norm=0.5),
        "schedule": lambda: covey.SGD(rate, schedule=covey.schedules.step([1, 2], 0.5)),
        "adamw": lambda: covey.adamw(rate / 5),
    }[kind]()


def _append(draw: Draw) -> None:
    """Add a step whose result is small and finite, if one is found."""
    of, module = draw.of, draw.module
    for _ in range(8):
        newest = len(draw.results) - 1
        at = newest if of.random() < 0.8 else of.randrange(1, len(draw.results))
        reads: tuple[int, ...] = (at,)
        if of.random() < 0.2:
            other = of.randrange(1, len(draw.results))
            reads = (at, other)
            made = two(draw, draw.results[at], draw.results[other])
        elif of.random() < 0.1:
            earlier = of.choice(module.steps)
            made = (f"again {earlier.text}", earlier.compute) if len(earlier.reads) == 1 else None
        else:
            maker = of.choices([maker for _, maker in ONE], [weight for weight, _ in ONE])[0]
            made = maker(draw, tuple(draw.results[at].shape))
        if made is None:
            continue
        text, compute = made
        if of.random() < 0.06:
            text, compute = f"without gradients: {text}", _without(compute)
        try:
            result = compute(module, *(draw.results[index] for index in reads))
        except (RuntimeError, ValueError, IndexError, TypeError, AssertionError, NotImplementedError):
            continue
        good = (
            result.dtype == torch.float32
            and result.dim() >= 2
            and len(result) == len(draw.results[0])
            and 0 < result.numel() <= len(result) * LARGEST
        )
        if not good or not torch.isfinite(result).all() or result.abs().max() > 20 or result is draw.results[at]:
            continue
        module.steps.append(Step(f"{text} -> {list(result.shape[1:])}", reads, compute))
        draw.results.append(result)
        return


def _without(compute: Any) -> Any:
    def run(m: Any, *operands: Tensor) -> Tensor:
        with torch.no_grad():
            return compute(m, *operands)

    return run


class _Doubles(TorchFunctionMode):  # type: ignore[misc]
    """Has new tensors and `float()` be of float64, as the module is."""

    def __enter__(self) -> Any:
        torch.set_default_dtype(torch.float64)
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        torch.set_default_dtype(torch.float32)

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return (torch.Tensor.double if function is torch.Tensor.float else function)(*args, **(kwargs or {}))


LOSSES: dict[str, Any] = {
    "cross-entropy": lambda scores, y: f.cross_entropy(scores.reshape(-1, scores.shape[-1]), y.reshape(-1)),
    "binary-cross-entropy": lambda scores, y: f.binary_cross_entropy_with_logits(scores, y.double()),
    "mse": lambda scores, y: f.mse_loss(scores, y.double()),
}


@dataclass
class Trained:
    """What PyTorch comes to: the module's tensors, losses, and where gradients are too small for Adam to compare."""

    tensors: dict[str, np.ndarray]
    losses: list[float]
    small: dict[str, np.ndarray]


def by_pytorch(case: Case, freeze: list[str]) -> Trained:
    """The steps in float64. Covey leaves dropout out; parameters in `freeze` stay."""
    module = copy.deepcopy(case.module).double().train()
    for part in module.modules():
        if isinstance(part, nn.modules.dropout._DropoutNd):
            part.eval()
        if isinstance(part, nn.MultiheadAttention):
            part.dropout = 0.0
        if "batch_norm" in case.options and isinstance(part, nn.modules.batchnorm._BatchNorm):
            part.eval()
    named = dict(module.named_parameters())
    for name in freeze:
        named[name].requires_grad_(False)
    trained = [tensor for tensor in named.values() if tensor.requires_grad]
    its, made = case.optimizer, _of_torch(case.optimizer, trained)
    losses, least = [], {name: np.full(tuple(tensor.shape), np.inf) for name, tensor in named.items()}
    for number in range(MINIBATCHES):
        if its.schedule is not None:
            made.param_groups[0]["lr"] = its.lr * its.schedule.factors[min(number, len(its.schedule.factors) - 1)]
        part = slice(number * BATCH, (number + 1) * BATCH)
        x = case.x[part].double() if case.x.is_floating_point() else case.x[part]
        with _Doubles():
            loss = LOSSES[case.loss](module(x), case.labels[part])
        made.zero_grad()
        loss.backward()
        if its.clip_norm is not None:
            nn.utils.clip_grad_norm_(trained, its.clip_norm)
        if its.clip is not None:
            nn.utils.clip_grad_value_(trained, its.clip)
        for name, tensor in named.items():
            if tensor.grad is not None:
                decayed = tensor.grad + (0.0 if getattr(its, "decoupled", True) else its.weight_decay) * tensor.detach()
                least[name] = np.minimum(least[name], decayed.abs().numpy())
        made.step()
        losses.append(loss.item())
    small = {name: array < 1e-2 if isinstance(its, covey.Adam) else array < 0 for name, array in least.items()}
    return Trained({name: tensor.detach().numpy() for name, tensor in module.state_dict().items()}, losses, small)


def _of_torch(its: covey.SGD | covey.Adam, trained: list[Tensor]) -> Any:
    if isinstance(its, covey.Adam):
        kind = torch.optim.AdamW if its.decoupled else torch.optim.Adam
        return kind(trained, its.lr, (its.beta1, its.beta2), its.epsilon, its.weight_decay)
    return torch.optim.SGD(trained, its.lr, its.momentum, weight_decay=its.weight_decay, nesterov=its.nesterov)


FROZEN = re.compile(r"freeze=\['([^']+)'\]|freeze '([^']+)'$|^'([^']+)' has no bearing")
"""How a refusal names the parameter to freeze."""


def judge(seed: int, *, program: bool = False) -> tuple[str, str]:
    """What becomes of the training of a seed: `same`, `same in part`, `refused` or `wrong`; and where or why.

    It is the same in part where it was refused for parameters that are frozen then.
    """
    case = drawn(seed)
    freeze: list[str] = []
    reason = ""
    while True:
        try:
            kind, found = _judged(case, freeze, program)
            return ("same in part", reason) if kind == "same" and freeze else (kind, found)
        except covey.CoveyError as error:
            text = str(error)
        except Exception as error:  # any other is a finding
            return "wrong", f"{type(error).__name__}: {error}"
        reason = reason or text
        named = FROZEN.search(text)
        name = next((each for each in named.groups() if each), None) if named else None
        if "\n" in text:
            return "wrong", f"a refusal of several lines: {text}"
        if name is None or "every parameter is frozen" in text:
            return "refused", text
        if name in freeze:
            return "wrong", f"it says to freeze what is frozen: {text}"
        freeze.append(name)


def _judged(case: Case, freeze: list[str], program: bool) -> tuple[str, str]:
    common: dict[str, Any] = {"loss": case.loss, "optimizer": case.optimizer, "batch": BATCH, "freeze": freeze}
    common |= case.options
    # As many samples as no dimension has: a network could mistake one for the other.
    step = make(case.module, (case.x[:7],), **common)
    due = by_pytorch(case, freeze)
    if found := _floats(case, step, due):
        return "wrong", f"in floating point, frozen {freeze}: {found}"
    if program:
        data = case.x.numpy(), case.labels.numpy()
        job = covey.compile_training(case.module, case.x[:7], calibration=data, open_weights=True, **common)
        trainer = covey.Trainer(ClearSession(load(job.compiled)))
        starts = range(0, len(case.x), BATCH)
        losses = [trainer.step(*(each[start : start + BATCH] for each in data)).loss for start in starts]
        if found := _differ(step, trainer.weights(), losses, due, 0.03):
            return "wrong", f"as a program, frozen {freeze}: {found}"
    return "same", ""


def _floats(case: Case, step: TrainingStep, due: Trained) -> str:
    batches = []
    for start in range(0, len(case.x), BATCH):
        part = slice(start, start + BATCH)
        batches.append(
            {step.data[0]: case.x[None, part].double().numpy(), LABELS: case.labels[None, part].double().numpy()}
        )
    found = rehearse(step, batches)
    exact = case.optimizer.clip_norm is None and not isinstance(case.optimizer, covey.Adam)
    return _differ(step, found.trained(step), found.losses, due, 1e-5 if exact else 5e-3)


def _differ(step: TrainingStep, weights: Any, losses: list[Any], due: Trained, most: float) -> str:
    """How losses and weights differ, beside how far the latter moved."""
    for number, (mine, its) in enumerate(zip(losses, due.losses, strict=True)):
        if not abs(mine - its) <= most * (1 + abs(its)):
            return f"loss {mine:.5g} for {its:.5g} at step {number}"
    for entry in step.trained:
        its = due.tensors[entry.name].reshape(entry.initial.shape)
        off = np.where(_small(due, entry.name, its.shape), 0.0, np.abs(weights[entry.name] - its))
        moved = max(float(np.abs(its - entry.initial).max()), 0.003)
        if not off.max() <= most * moved:
            return f"{entry.name} is off by {off.max():.3g} where it moved by {moved:.3g}"
    return ""


def _small(due: Trained, name: str, shape: tuple[int, ...]) -> Any:
    return due.small[name].reshape(shape) if name in due.small else np.zeros(shape, bool)


def main() -> int:
    """Judge many; 1 if any is wrong."""
    asked = judging.parsed(__doc__, ("--programs", "compile each and train it in fixed point, too"))
    return judging.run(asked, lambda seed: judge(seed, program=asked.programs), drawn)


if __name__ == "__main__":
    sys.exit(main())
