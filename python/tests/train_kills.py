"""Kill parties and the data owner's process at random moments of a training run, and see that the run loses nothing.

    python python/tests/train_kills.py [--runs 100] [--seed N] [--protocol trio] [--parties N] [--every 2]

A run is `covey train` with checkpoints. While it works, processes are killed and started again, one at a time: any
party, the dealer, or the command itself, which is then called again as before. Every run must end with the weights of
an undisturbed one to the last digit, and the losses that the last command tells must be those of the undisturbed run.
The program that the job serves must then compute with these weights. Before each run the owner shares its own again.
A protocol that keeps weights at one party serves none.
Prints a line a run, and the seed of the random moments. Exit code 1 if anything did not hold.
"""

from __future__ import annotations

import argparse
import json
import random
import secrets
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

import covey
from covey.clear import ClearSession, run_clear
from covey.model import load
from covey.parties import Parties, Party
from test_training import perceptron

TIMEOUT = 2.0
BATCH, EPOCHS = 4, 12
SAMPLES = 40
PATIENCE = 120
"""Seconds that a run may take."""

MOST_FILES = 8
"""Of a client and program a party keeps four jobs with two checkpoints each."""


class Campaign:
    """One job, its data, and what it comes to undisturbed."""

    def __init__(self, folder: Path, parties: Parties, every: int) -> None:
        self.folder, self.parties, self.every = folder, parties, every
        rng = np.random.default_rng(0)
        samples = rng.standard_normal((SAMPLES, 5))
        self.data = folder / "samples.npy", folder / "labels.npy"
        np.save(self.data[0], samples)
        np.save(self.data[1], (samples[:, 0] > 0).astype(np.int64) + (samples[:, 1] > 0))
        model = covey.compile_training(
            perceptron(),
            loss="cross-entropy",
            optimizer=covey.SGD(0.1, momentum=0.5),
            batch=BATCH,
            calibration=self.data,
            open_weights=True,
            serve=parties.protocol != "two-party",
        )
        self.job, self.served = folder / "job.covey", folder / "served.covey"
        model.compiled.save(self.job)
        covey.Client(parties.owner_config).share_weights(self.job)
        self.weights, self.losses = self.undisturbed()
        self.samples = samples[:3].astype(np.float32)
        self.results = None if model.served is None else self.results_in_the_clear(model)

    def results_in_the_clear(self, model: covey.Job) -> np.ndarray:
        """What the program that serves computes with the weights of the undisturbed run."""
        assert model.served is not None
        model.served.save(self.served)
        session = ClearSession(load(model.compiled))
        for _ in covey.Trainer(session).fit(*self.data, EPOCHS):
            pass
        trained = replace(model.served, weights={**model.served.weights, **session.served_weights()})
        return run_clear(load(trained), self.samples).integers["scores"]

    def undisturbed(self) -> tuple[dict[str, np.ndarray], list[float]]:
        with covey.Client(self.parties.client_config).session(self.job) as session:
            trainer = covey.Trainer(session)
            losses = [loss for epoch in trainer.fit(*self.data, EPOCHS) for loss in epoch.losses]
            return trainer.weights(), losses

    def command(self, run: Path, out: Path) -> subprocess.Popen[str]:
        """`covey train`, which waits for parties that fail."""
        words = ["train", self.job, "--data", self.data[0], "--labels", self.data[1], "--epochs", EPOCHS]
        words += ["--config", self.parties.client_config, "--checkpoints", run, "--every", self.every]
        words += ["--patience", 1, "--out", out, "--json"]
        return subprocess.Popen(
            [sys.executable, "-m", "covey", *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, moments: random.Random, usual: float) -> tuple[list[str], str]:
        """A run with kills: who was killed, and what was wrong."""
        record, out = self.folder / "run.json", self.folder / "trained.npz"
        for path in (record, out):
            path.unlink(missing_ok=True)
        killed: list[str] = []
        if self.results is not None:
            covey.Client(self.parties.owner_config).share_weights(self.served)
        process = self.command(record, out)
        end = time.monotonic() + PATIENCE
        strikes = moments.randint(1, 4)
        try:
            while True:
                pause = moments.uniform(0, usual / 2) if strikes else PATIENCE
                try:
                    process.wait(min(pause, max(end - time.monotonic(), 0.1)))
                except subprocess.TimeoutExpired:
                    if time.monotonic() >= end:
                        return killed, "does not end"
                    strikes -= 1
                    victim = moments.randrange(len(self.parties.parties) + 1)
                    if victim == len(self.parties.parties):
                        killed.append("client")
                        process.kill()
                        process.wait()
                        process = self.command(record, out)
                    else:
                        # A command whose first session does not open ends: parties may not be there at all.
                        while not record.exists() and process.poll() is None:
                            time.sleep(0.02)
                        party = self.parties.parties[victim]
                        killed.append(party.name)
                        party.kill()
                        time.sleep(moments.uniform(0, 1))
                        party.spawn()
                        party.wait_until_ready()
                    continue
                break
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        said, complaint = process.communicate()
        if process.returncode != 0:
            return killed, complaint.strip().splitlines()[-1] if complaint.strip() else f"exit {process.returncode}"
        return killed, self.judge(out, [json.loads(line) for line in said.splitlines()], record)

    def judge(self, out: Path, epochs: list[dict], record: Path) -> str:
        with np.load(out) as found:
            if found.keys() != self.weights.keys():
                return f"weights {sorted(found.keys())}"
            for name, array in self.weights.items():
                if not np.array_equal(found[name], array.astype(np.float32)):
                    return f"'{name}' differs from the undisturbed run's"
        steps = len(self.losses) // EPOCHS
        for epoch in epochs:
            start = (epoch["number"] - 1) * steps
            if epoch["losses"] != self.losses[start : start + steps]:
                return f"losses of epoch {epoch['number']} differ"
        if record.exists():
            return "the run's file is left"
        if self.results is not None:
            with covey.Client(self.parties.client_config).session(self.served) as session:
                if not np.array_equal(session.infer(self.samples).integers["scores"], self.results):
                    return "the program that is served computes with other weights"
        # A command that is killed at its end leaves a job behind, which makes room for later ones.
        if any(len(self.kept(party)) > MOST_FILES for party in self.parties.parties):
            return "checkpoints of finished runs pile up"
        return ""

    def kept(self, party: Party) -> list[Path]:
        return list((Path(party.config).parent / "state" / "checkpoints").glob("*.checkpoint"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=secrets.randbits(32), help="of the random moments")
    parser.add_argument("--protocol", default="trio", help="by default trio")
    parser.add_argument("--parties", type=int, help="how many compute, for beaver")
    parser.add_argument("--every", type=int, default=2, help="steps from one checkpoint to the next")
    arguments = parser.parse_args()
    moments = random.Random(arguments.seed)
    print(f"seed {arguments.seed}, {arguments.runs} runs of {arguments.protocol}, time-out {TIMEOUT:g} s", flush=True)
    failures = kills = 0
    with (
        tempfile.TemporaryDirectory() as folder,
        covey.local(arguments.protocol, parties=arguments.parties, timeout=TIMEOUT) as parties,
    ):
        campaign = Campaign(Path(folder), parties, arguments.every)
        start = time.monotonic()
        process = campaign.command(Path(folder) / "first.json", Path(folder) / "first.npz")
        process.communicate()
        usual = time.monotonic() - start
        print(f"{len(campaign.losses)} steps take {usual:.1f} s undisturbed, with checkpoints\n", flush=True)
        for number in range(1, arguments.runs + 1):
            start = time.monotonic()
            killed, problem = campaign.run(moments, usual)
            failures, kills = failures + bool(problem), kills + len(killed)
            mark = f"  FAILED: {problem}" if problem else ""
            print(f"{number:>4}{time.monotonic() - start:>7.1f} s  {', '.join(killed)}{mark}", flush=True)
    well = f"{arguments.runs - failures} of {arguments.runs} runs with {kills} kills"
    print(f"\n{well} end with the weights and losses of an undisturbed one")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
