"""Training in a session with the parties: minibatch after minibatch, epochs, and what opens at the end."""

from __future__ import annotations

import itertools
import math
import os
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from covey.arguments import is_whole
from covey.clear import ClearSession
from covey.errors import CoveyError, DataError, OptionError, PartyLostError
from covey.inputs import Data
from covey.training.losses import LABELS
from covey.training.minibatches import Records, check_epochs, check_seed, forms_of, read, shuffled
from covey.training.opening import LOSS, RIGHT, output_name, steps_between
from covey.training.run_file import RunFile
from covey.training.shared import SharedData, SharedRecords, attached
from covey.training.step import OPENED

if TYPE_CHECKING:
    from covey._core import Program
    from covey.client import Progress, Resumption
    from covey.result import Opened, Result

AT_ONCE = 8
"""So many minibatches are one request."""

EVERY = 50
"""Steps from one checkpoint to the next."""


class Runs(Protocol):
    """A session with the parties, or one in the clear."""

    program: Program
    sequence: int

    def infer_all(self, inputs: Any, *, continues: bool = False) -> Any:
        """One run for each of `inputs`, one after the other."""

    def end(self) -> Opened:
        """What opens at the end of a sequence."""


class Keeping(Runs, Protocol):
    """A session whose parties keep checkpoints."""

    def keep(self, job: str) -> int:
        """Keep what the runs before carry."""

    def resume(self, job: str) -> Resumption:
        """Continue from the latest checkpoint in common."""

    def forget(self, job: str) -> None:
        """Erase the job's checkpoints."""

    def check_serving(self) -> None:
        """Whether that can serve."""

    def serve_weights(self) -> str:
        """Keep what was trained as the weights of the program that the job serves."""


@dataclass(frozen=True)
class Steps:
    """What some steps came to. `bytes` is the payload on all links, offline included.

    `loss` is the mean of the losses that opened, or None. `labels` counts the labels of their steps, and `right` those
    that the model got right.
    """

    loss: float | None
    right: int | None
    labels: int
    steps: int
    seconds: float
    bytes: int
    rounds: int

    @property
    def accuracy(self) -> float | None:
        """The part of the labels that the model got right, before each step."""
        return None if self.right is None or not self.labels else self.right / self.labels


@dataclass(frozen=True)
class Epoch(Steps):
    """One pass over the data; `number` counts from 1, and `losses` are those that opened in its steps.

    `seconds`, `bytes` and `rounds` are those of `taken` steps: of a run that was continued within the epoch, fewer.
    """

    number: int = 0
    taken: int = 0
    losses: list[float] = field(default_factory=list, repr=False)


class Trainer:
    """A training job in a session, which begins with the job's weights.

    The data owner's process: samples and labels leave it in shares alone, and the losses, and the weights if the job
    says so, open to it. Or that of a client whom data owners let train on data sets that the parties keep.

    With `checkpoints`, a file of this machine, the parties keep the run's weights and moments on their disks every so
    many steps. Where the file describes a run that has begun, this trainer continues it after the latest checkpoint
    that all parties have. Give `fit` the same data and seed then: it takes the steps that are left.
    """

    def __init__(self, session: Runs, *, checkpoints: str | os.PathLike[str] | None = None, every: int = EVERY) -> None:
        self.program = session.program
        self.forms, self.batch = forms_of(self.program)
        self.labels = _labels_of(self.program)
        self._between = steps_between(entry["name"] for entry in self.program.outputs)
        self._session = session
        self._taken, self._ended = 0, False
        # Each ends where its weights open: parties keep nothing that its later steps could go on from.
        self._sequence = 0
        self._number: int | None = None
        """Which sequence of the session its steps are."""
        # In the clear a step that passes a bound is named; with parties a request of several takes less time.
        self._at_once = 1 if isinstance(session, ClearSession) else AT_ONCE
        self._every = every
        self.left_out = 0
        """Samples that an epoch of the last `fit` leaves out, for they fill no minibatch."""
        self._run = None if checkpoints is None else self._resumed(checkpoints)

    @property
    def taken(self) -> int:
        """Steps so far, those of a resumed run included."""
        return self._taken

    @property
    def lacking(self) -> int:
        """Steps of a resumed run that its file, an older copy, does not tell of."""
        return 0 if self._run is None else self._run.lacking

    def _resumed(self, path: str | os.PathLike[str]) -> RunFile:
        if isinstance(self._session, ClearSession):
            raise OptionError("protocol clear has no parties to keep checkpoints: leave them out")
        if not is_whole(self._every) or self._every < 1:
            raise OptionError(f"a checkpoint every {self._every!r} steps: ask for a whole number, at least 1")
        run = RunFile.open(path, self.program.hash)
        if run.data is None:
            return run
        found = cast(Keeping, self._session).resume(run.job)
        self._number = self._session.sequence
        if found.runs is None and run.kept:
            why = f"{found.lacking} has not the one that others have" if found.lacking else "no party has any"
            raise CoveyError(
                f"the parties have no checkpoint in common of the run '{path}' ({why}): start each with the state "
                f"folder that it had, or, if the weights were shared again or four other runs began, name another file "
                f"for a new run"
            )
        if found.runs is None and found.lacking:
            # Some died before all had written the first one.
            run.job = secrets.token_hex(16)
        self._taken = run.kept = found.runs or 0
        run.at(self._taken)
        run.write()
        return run

    def step(self, data: Data, labels: Any) -> Steps:
        """One step on one minibatch. Raises `DataError` for data that do not fit it."""
        if self._run is not None or self._ended:
            raise OptionError("a run with checkpoints takes its steps by fit, which knows their order")
        records = read(data, labels, self.forms, self.batch)
        if len(records) != self.batch:
            raise DataError(
                f"a step takes a minibatch of {self.batch} samples, not {len(records)}: give as many, or use fit"
            )
        (minibatch,) = records.minibatches(self.batch, np.arange(self.batch))
        return self._steps(records, [minibatch])

    def fit(
        self,
        data: Data | SharedData,
        labels: Any = None,
        epochs: int = 1,
        *,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> Iterator[Epoch]:
        """Epochs over a data set in whole minibatches, each as it is done. Its order follows from `seed`.

        `data` and `labels` are of this process, or `data` is `covey.SharedData`: rows that the parties keep. Samples
        that fill no minibatch are left out of an epoch, others in each. `progress` is told the steps done, all steps
        and the last loss. Of a run with checkpoints `epochs` are those of the whole run: it continues where it is, and
        an epoch's losses are those of all its steps, its time, bytes and rounds those of the steps taken now. The last
        epoch is given also where all its steps were taken before.
        """
        check_epochs(epochs)
        check_seed(seed)
        if isinstance(data, SharedData):
            if labels is not None:
                raise OptionError("shared data sets have labels of their own: leave out yours")
            records: Records | SharedRecords = attached(self._session, data, self.batch)
        else:
            records = read(data, labels, self.forms, self.batch)
        self.left_out = len(records) % self.batch
        if self._run is not None:
            if self._ended:
                raise OptionError("the weights opened, which ended this run: continue it with another Trainer")
            self._run.begin(records, seed)
        return self._epochs(records, epochs, seed, progress, self._sequence)

    def _epochs(
        self, records: Records | SharedRecords, epochs: int, seed: int, progress: Progress | None, sequence: int
    ) -> Iterator[Epoch]:
        batches = len(records) // self.batch
        for number in range(1, epochs + 1):
            done = min(max(self._taken - (number - 1) * batches, 0), batches) if self._run is not None else 0
            if done == batches and number < epochs:
                continue
            start = time.perf_counter()
            parts: list[Steps] = []
            losses, right = self._recorded((number - 1) * batches, done)
            minibatches: Iterator[Any] = records.minibatches(self.batch, shuffled(len(records), seed, number))
            left = itertools.islice(minibatches, done, None)
            while waiting := list(itertools.islice(left, self._together())):
                if sequence != self._sequence:
                    raise OptionError(
                        "the weights opened, which ended this training, and epochs are left: open them after the last "
                        "one, or leave the loop first"
                    )
                parts.append(self._steps(records, waiting, losses, right))
                self._keep_every()
                if progress is not None:
                    taken = (number - 1) * batches + len(losses)
                    progress(taken, epochs * batches, f"epoch {number} of {epochs}{_last(losses)}")
            yield Epoch(
                **self._opened(losses, right),
                steps=len(losses),
                seconds=time.perf_counter() - start,
                bytes=sum(part.bytes for part in parts),
                rounds=sum(part.rounds for part in parts),
                number=number,
                taken=len(losses) - done,
                losses=[loss for loss in losses if not math.isnan(loss)],
            )
        self._keep()

    def _opened(self, losses: list[float], right: list[int | None]) -> dict[str, Any]:
        """Of steps that came to this: the mean loss, the labels got right, and of how many."""
        opened = [loss for loss in losses if not math.isnan(loss)]
        known = [count for count in right if count is not None]
        return {
            "loss": float(np.mean(opened)) if opened else None,
            "right": sum(known) if len(known) == len(opened) > 0 else None,
            "labels": self.labels * len(opened) * (self._between or 0),
        }

    def _recorded(self, start: int, count: int) -> tuple[list[float], list[int | None]]:
        """What so many steps of the run from `start` on came to."""
        if self._run is None:
            return [], []
        return self._run.losses[start : start + count], self._run.right[start : start + count]

    def _together(self) -> int:
        """How many steps the next request takes: it ends where a checkpoint is to be kept."""
        if self._run is None:
            return self._at_once
        return min(self._at_once, self._every - self._taken % self._every)

    def _keep_every(self) -> None:
        if self._run is not None and self._taken % self._every == 0:
            self._keep()

    def _keep(self) -> None:
        """Have the parties keep a checkpoint, if steps were taken since the last."""
        if self._run is None or self._ended or self._taken == self._run.kept:
            return
        self._check_alone()
        # Before the parties: of the steps up to any checkpoint of theirs the file tells what they came to.
        self._run.write()
        self._run.kept = cast(Keeping, self._session).keep(self._run.job)
        self._run.write()

    def forget(self) -> None:
        """Remove the run's file, and have the parties erase its checkpoints. What was trained stays in the session."""
        if self._run is not None:
            # In this order: a run whose file is there can always be continued.
            self._run.remove()
            cast(Keeping, self._session).forget(self._run.job)
            self._run = None

    def _check_alone(self) -> None:
        if self._taken and self._number != self._session.sequence:
            raise OptionError(
                "this training cannot go on: other runs began in its session; give each Trainer a session of its own"
            )

    def _steps(
        self,
        records: Records | SharedRecords,
        minibatches: list[Any],
        losses: list[float] | None = None,
        right: list[int | None] | None = None,
    ) -> Steps:
        self._check_alone()
        start = time.perf_counter()
        try:
            done = records.run(self._session, minibatches, self._taken > 0)
        except DataError:
            raise
        except CoveyError as error:
            which = f"step {self._taken + 1}" + (f" to {self._taken + len(minibatches)}" * (len(minibatches) > 1))
            kind = PartyLostError if isinstance(error, PartyLostError) else CoveyError
            raise kind(f"{which}: {error}") from None
        self._taken += len(minibatches)
        self._number = self._session.sequence
        results: list[Result] = done.results
        first = self._taken - len(results)
        opened = [self._what_opened(first + index, one) for index, one in enumerate(results)]
        found, counts = [loss for loss, _ in opened], [count for _, count in opened]
        if self._run is not None:
            self._run.took(found, counts)
        if losses is not None and right is not None:
            losses += found
            right += counts
        total = done.work.profile.total
        return Steps(
            **self._opened(found, counts),
            steps=len(results),
            seconds=time.perf_counter() - start,
            bytes=total.bytes,
            rounds=total.rounds,
        )

    def _what_opened(self, step: int, result: Result) -> tuple[float, int | None]:
        """The loss that opened in a step, or no number, and how many labels were right in the steps that it is of."""
        steps = self._between
        if steps is None or (step + 1) % steps:
            return math.nan, None
        right = result.outputs.get(output_name(RIGHT, steps))
        loss = float(result.outputs[output_name(LOSS, steps)].item()) / steps
        return loss, None if right is None else round(right.item())

    def check_serving(self) -> None:
        """That the parties would serve what is trained, before any step. Raises the `CoveyError` that `serve` would."""
        self._serving().check_serving()

    def serve(self) -> str:
        """Have the parties compute with what was trained where they run `Job.served`: nothing opens.

        The weights of that program must be there, as the model owner shared them, and the parties must let this client
        `serve-weights`. Sessions that are open keep the weights they began with. Training may go on. Returns the name
        of the new version of the weights. Raises a `CoveyError` where the job serves none, or no step was taken.
        """
        session = self._serving()
        if not self._taken:
            raise OptionError("no step was taken: the weights are those of the model")
        self._check_alone()
        return session.serve_weights()

    def _serving(self) -> Keeping:
        if self.program.serving is None:
            raise OptionError("this job serves no program: compile it with serve=True (--serve)")
        if isinstance(self._session, ClearSession):
            raise OptionError("protocol clear has no parties to serve weights: open them (open_weights=True)")
        return cast(Keeping, self._session)

    def weights(self) -> dict[str, npt.NDArray[np.float64]]:
        """What was trained, by the model's names: it opens to this process, and the training ends.

        A loop over `fit` that goes on raises `OptionError` then. A run with checkpoints can be continued by another
        trainer until `forget`. Raises a `CoveyError` where the job opens no weights, or no step was taken.
        """
        check_opening(self.program)
        if not self._taken:
            raise OptionError("no step was taken: the weights are those of the model")
        self._check_alone()
        opened = self._session.end()
        self._taken, self._ended = 0, self._run is not None
        self._sequence += 1
        return {_name(name): array for name, array in opened.values.items()}


def check_opening(program: Program) -> None:
    """That a job opens weights at its end. Raises a `CoveyError` for others."""
    forms_of(program)
    if not any(entry["opens"] for entry in program.carried):
        raise OptionError("this job opens no weights: compile it with open_weights=True (--open-weights)")


def _last(losses: list[float]) -> str:
    """The last loss that opened, for a line on the progress."""
    last = next((loss for loss in reversed(losses) if not math.isnan(loss)), None)
    return "" if last is None else f", loss {last:.4f}"


def _name(value: str) -> str:
    """The model's name of a value that opened."""
    return value.removeprefix(OPENED).rpartition("@")[0]


def _labels_of(program: Program) -> int:
    """Labels of a minibatch."""
    entry = next(entry for entry in program.inputs if entry["name"] == LABELS)
    return int(np.prod(entry["shape"]))
