"""Training in a session with the parties: minibatch after minibatch, epochs, and what opens at the end."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from covey.clear import ClearSession
from covey.errors import CoveyError, DataError, ModelError, OptionError
from covey.explanation import is_training
from covey.inputs import Data
from covey.training.losses import LABELS
from covey.training.minibatches import Arrays, Form, Records, read, shuffled
from covey.training.step import LOSS, OPENED, RIGHT

if TYPE_CHECKING:
    from covey._core import Program
    from covey.client import Progress
    from covey.result import Opened, Result

AT_ONCE = 8
"""So many minibatches are one request."""


class Runs(Protocol):
    """A session with the parties, or one in the clear."""

    program: Program

    def infer_all(self, inputs: Any, *, continues: bool = False) -> Any:
        """One run for each of `inputs`, one after the other."""

    def end(self) -> Opened:
        """What opens at the end of a sequence."""


@dataclass(frozen=True)
class Steps:
    """What some steps came to. `bytes` is the payload on all links, offline included."""

    loss: float
    right: int | None
    labels: int
    steps: int
    seconds: float
    bytes: int
    rounds: int

    @property
    def accuracy(self) -> float | None:
        """The part of the labels that the model got right, before each step."""
        return None if self.right is None else self.right / self.labels


@dataclass(frozen=True)
class Epoch(Steps):
    """One pass over the data; `number` counts from 1, and `losses` are those of its steps."""

    number: int = 0
    losses: list[float] = field(default_factory=list, repr=False)


class Trainer:
    """A training job in a session, which begins with the job's weights.

    The data owner's process: samples and labels leave it in shares alone, and the losses, and the weights if the job
    says so, open to it.
    """

    def __init__(self, session: Runs) -> None:
        self.program = session.program
        self.forms, self.batch = _forms_of(self.program)
        self.labels = _labels_of(self.program)
        self._session = session
        self._taken = 0
        # In the clear a step that passes a bound is named; with parties a request of several takes less time.
        self._at_once = 1 if isinstance(session, ClearSession) else AT_ONCE

    @property
    def taken(self) -> int:
        """Steps so far."""
        return self._taken

    def step(self, data: Data, labels: Any) -> Steps:
        """One step on one minibatch. Raises `DataError` for data that do not fit it."""
        records = read(data, labels, self.forms, self.batch)
        if len(records) != self.batch:
            raise DataError(
                f"a step takes a minibatch of {self.batch} samples, not {len(records)}: give as many, or use fit"
            )
        (minibatch,) = records.minibatches(self.batch, np.arange(self.batch))
        return self._steps([minibatch])

    def fit(
        self, data: Data, labels: Any, epochs: int = 1, *, seed: int = 0, progress: Progress | None = None
    ) -> Iterator[Epoch]:
        """Epochs over a data set in whole minibatches, each as it is done. Its order follows from `seed`.

        Samples that fill no minibatch are left out of an epoch, others in each. `progress` is told the steps done, all
        steps and the last loss.
        """
        if epochs < 1:
            raise OptionError(f"{epochs} epochs: ask for at least 1")
        records = read(data, labels, self.forms, self.batch)
        return self._epochs(records, epochs, seed, progress)

    def _epochs(self, records: Records, epochs: int, seed: int, progress: Progress | None) -> Iterator[Epoch]:
        for number in range(1, epochs + 1):
            start = time.perf_counter()
            parts: list[Steps] = []
            losses: list[float] = []
            waiting: list[Arrays] = []
            batches = len(records) // self.batch
            for index, minibatch in enumerate(records.minibatches(self.batch, shuffled(len(records), seed, number))):
                waiting.append(minibatch)
                if len(waiting) == self._at_once or index == batches - 1:
                    parts.append(self._steps(waiting, losses))
                    waiting = []
                    if progress is not None:
                        done = (number - 1) * batches + len(losses)
                        progress(done, epochs * batches, f"epoch {number} of {epochs}, loss {losses[-1]:.4f}")
            yield Epoch(
                loss=float(np.mean(losses)),
                right=None if parts[0].right is None else sum(part.right or 0 for part in parts),
                labels=sum(part.labels for part in parts),
                steps=len(losses),
                seconds=time.perf_counter() - start,
                bytes=sum(part.bytes for part in parts),
                rounds=sum(part.rounds for part in parts),
                number=number,
                losses=losses,
            )

    def _steps(self, minibatches: list[Arrays], losses: list[float] | None = None) -> Steps:
        start = time.perf_counter()
        try:
            done = self._session.infer_all(minibatches, continues=self._taken > 0)
        except DataError:
            raise
        except CoveyError as error:
            which = f"step {self._taken + 1}" + (f" to {self._taken + len(minibatches)}" * (len(minibatches) > 1))
            raise CoveyError(f"{which}: {error}") from None
        self._taken += len(minibatches)
        results: list[Result] = done.results
        found = [float(result.outputs[LOSS].item()) for result in results]
        if losses is not None:
            losses += found
        right = None
        if RIGHT in results[0].outputs:
            right = sum(int(result.outputs[RIGHT].item()) for result in results)
        total = done.work.profile.total
        return Steps(
            loss=float(np.mean(found)),
            right=right,
            labels=self.labels * len(results),
            steps=len(results),
            seconds=time.perf_counter() - start,
            bytes=total.bytes,
            rounds=total.rounds,
        )

    def weights(self) -> dict[str, npt.NDArray[np.float64]]:
        """What was trained, by the model's names: it opens to this process, and the training ends.

        Raises a `CoveyError` where the job opens no weights, or no step was taken.
        """
        if not any(entry["opens"] for entry in self.program.carried):
            raise OptionError("this job opens no weights: compile it with open_weights=True (--open-weights)")
        if not self._taken:
            raise OptionError("no step was taken: the weights are those of the model")
        opened = self._session.end()
        self._taken = 0
        return {_name(name): array for name, array in opened.values.items()}


def _name(value: str) -> str:
    """The model's name of a value that opened."""
    return value.removeprefix(OPENED).rpartition("@")[0]


def _forms_of(program: Program) -> tuple[list[Form], int]:
    """What a job takes for one sample, and the samples of a minibatch. Raises `ModelError` for other programs."""
    if not is_training(program):
        raise ModelError(f"'{program.name}' is no training job: make one with covey.compile_training or covey train")
    forms = []
    for entry in program.inputs:
        classes = entry.get("classes")
        batch, *shape = entry["shape"]
        of_sample = (
            None if classes is None else tuple(classes[: len(classes) // batch] if len(classes) > 1 else classes)
        )
        low, high = entry["low"], entry["high"]
        if of_sample is not None and all(of_sample):
            low, high = 0, max(of_sample) - 1
        forms.append(Form(entry["name"], tuple(shape), of_sample, float(low), float(high)))
    return forms, int(batch)


def _labels_of(program: Program) -> int:
    """Labels of a minibatch."""
    entry = next(entry for entry in program.inputs if entry["name"] == LABELS)
    return int(np.prod(entry["shape"]))


def load_into(module: Any, weights: Mapping[str, npt.NDArray[Any]]) -> None:
    """Put trained tensors into a PyTorch module, by name. Raises `ModelError` for names it does not have."""
    import torch

    state = module.state_dict()
    unknown = [name for name in weights if name not in state]
    if unknown:
        raise ModelError(f"the module has no '{unknown[0]}': give the module that the job was compiled from")
    with torch.no_grad():
        for name, array in weights.items():
            state[name].copy_(torch.from_numpy(np.asarray(array)))
