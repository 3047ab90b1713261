"""The training of a network of the zoo: private steps on minibatches, one after the other, and in plaintext beside."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from covey.bench import plaintext
from covey.bench.jobs import Arrays, Job
from covey.bench.model import Outcome, Setting
from covey.bench.planned import Plan
from covey.bench.runs import parties, sum_up
from covey.clear import ClearSession
from covey.client import Progress, Session
from covey.closeness import relative_error
from covey.comparison import compare
from covey.errors import OptionError
from covey.model import load
from covey.result import Integers, Result
from covey.tables import amount
from covey.training.job import RING
from covey.training.opening import LOSS


@dataclass(frozen=True)
class Training(Setting):
    """What is trained, on what, and how many steps are taken: `warm_up` and `repetitions`, all of one sequence."""

    ring: str = str(RING)
    optimizer: str = "sgd"

    @cached_property
    def job(self) -> Job:
        """Raises `OptionError` for what is not trained."""
        return Job(self.spec, self.batch, self.optimizer)

    @property
    def title(self) -> str:
        return f"{self.spec.label}, a step of {self.optimizer}"

    @property
    def compared(self) -> str:
        return "losses and weights"

    @property
    def steps(self) -> int:
        """All of them."""
        return self.warm_up + self.repetitions


@dataclass(frozen=True)
class Steps(Outcome):
    """What steps of training took, on average one."""

    losses: list[float]
    """Before each step, those of the warm-up included."""
    plaintext_losses: list[float] | None

    def to_json(self) -> dict[str, Any]:
        assert isinstance(self.setting, Training)
        return {
            **super().to_json(),
            "optimizer": self.setting.optimizer,
            "losses": self.losses,
            "plaintext_losses": self.plaintext_losses,
        }


def measure(setting: Training, folder: Path, progress: Progress) -> Steps:
    """Build the job or fetch it, take steps in the clear, privately, and in plaintext. Raises `OptionError` for a job
    whose parties have no room together on this machine."""
    files = setting.job.kept(folder, progress)
    model = load(files.program)
    plan = Plan.of(model.program, setting.protocol, setting.parties, setting.network, setting.options)
    if not plan.fits:
        raise OptionError(
            f"a step of {setting.spec.label} with batch {setting.batch} takes {amount(plan.memory)} at all parties "
            f"together, more than this machine has (planned: {amount(plan.total.bytes)} sent in "
            f"{plan.total.rounds:,} rounds): use a smaller --batch or --shape"
        )
    minibatches = setting.job.minibatches(model.program, setting.steps)
    due: Taken | None = None
    if setting.check:
        progress(0, 0, "the specification, in the clear")
        due = _take(ClearSession(model), minibatches, setting, lambda *_: None)
    with parties(
        setting.protocol,
        setting.network,
        setting.options,
        progress,
        setting.parties,
        setting.device,
        setting.threads,
    ) as running:
        private = _take(running.session(model, progress), minibatches, setting, progress)
    outside = None
    if setting.plaintext:
        progress(0, 0, "plaintext on one thread")
        outside = plaintext.measure_steps(files.onnx, minibatches, setting.job.rates, setting.repetitions)
    losses = [float(result.outputs[LOSS].item()) for result in private.results]
    known = None if outside is None else outside.outputs.astype(np.float64)
    return Steps(
        setting=setting,
        ring=model.program.ring,
        scale=model.program.outputs[0]["scale"],
        parameters=sum(math.prod(entry["shape"]) for entry in model.program.carried if entry["opens"]),
        runs=sum_up(private.results[setting.warm_up :], private.client_cpu_seconds, []),
        differing=None if due is None else sum(row.differing for row in compare(due.integers, private.integers)),
        elements=sum(array.size for array in private.integers.values()),
        plaintext=outside,
        relative_error=None if known is None else relative_error(np.array(losses), known),
        same_answers=None,
        planned_bytes=plan.total.bytes,
        planned_rounds=plan.total.rounds,
        planned_memory_bytes=plan.memory_bytes,
        losses=losses,
        plaintext_losses=None if known is None else known.tolist(),
    )


@dataclass(frozen=True)
class Taken:
    """Steps one after the other: the integers that opened in each and at the end, and the client's seconds for one."""

    results: list[Result]
    integers: dict[str, Integers]
    client_cpu_seconds: float


def _take(session: Session | ClearSession, minibatches: list[Arrays], setting: Training, progress: Progress) -> Taken:
    results: list[Result] = []
    client_cpu = 0.0
    for index, minibatch in enumerate(minibatches):
        counted = index - setting.warm_up
        what = "warm-up" if counted < 0 else f"step {counted + 1} of {setting.repetitions}"
        progress(index, setting.steps, what)
        started = time.process_time()
        results.append(session.infer(minibatch, continues=index > 0))
        client_cpu += time.process_time() - started if counted >= 0 else 0.0
    opened = {
        f"{name} of step {index}": array
        for index, result in enumerate(results)
        for name, array in result.integers.items()
    }
    if setting.check:
        progress(setting.steps, setting.steps, "opening the weights")
        opened |= session.end().integers
    return Taken(results, opened, client_cpu / setting.repetitions)
