"""Steps of a training job in every protocol, which must come to the bits of the specification, and what a step takes.

    python python/tests/training_exact.py [--model lenet5] [--steps 50] [--batch 8] [--protocols trio,quad]
        [--device auto] [--json]

A model of the zoo is trained on its pseudo-images with random labels. Every loss and, at the end, every weight must
equal those of `clear`. Exit code 1 if any does not.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

import numpy as np

import covey
from covey import models
from covey.clear import ClearSession
from covey.model import load
from covey.training.minibatches import Arrays
from covey.training.trainer import AT_ONCE

SHAPE = {"lenet5": "mnist"}
PROTOCOLS = "trio,quad,beaver,beaver-3,two-party"


def minibatches(shape: str, batch: int, count: int) -> list[Arrays]:
    """Different images and labels for each step."""
    images = models.samples(shape, batch * count).astype(np.float64)
    labels = np.random.default_rng(1).integers(0, 10, batch * count).astype(np.float64)
    return [
        {"x": images[None, start : start + batch], "labels": labels[None, start : start + batch]}
        for start in range(0, batch * count, batch)
    ]


def run(session: Any, batches: list[Arrays]) -> tuple[list[Any], dict[str, np.ndarray], Any, float]:
    """The results of every step, the integers of the weights, the work of the last steps and their seconds each."""
    steps: list[Any] = []
    for start in range(0, len(batches), AT_ONCE):
        part = batches[start : start + AT_ONCE]
        began = time.perf_counter()
        done = session.infer_all(part, continues=start > 0)
        seconds = (time.perf_counter() - began) / len(part)
        steps += done.results
    return steps, session.end().integers, (done.work, len(part)), seconds


def equal(found: Any, due: Any) -> bool:
    """Whether all integers are the same."""
    return all(np.array_equal(found[name], array) for name, array in due.items())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="lenet5", help="of the zoo, by default lenet5")
    parser.add_argument("--shape", help="of its images, by default the smallest")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--batch", type=int, default=8, help="samples of a minibatch, by default 8")
    parser.add_argument("--protocols", default=PROTOCOLS, help=f"by default {PROTOCOLS}")
    parser.add_argument("--device", help="what parties compute linear layers on, by default auto")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args()
    shape = arguments.shape or SHAPE.get(arguments.model, "cifar10")
    batches = minibatches(shape, arguments.batch, arguments.steps)
    first = [np.concatenate([batch[name][0] for batch in batches[:4]]) for name in ("x", "labels")]
    model = models.build(arguments.model, shape)
    name = model.graph.input[0].name
    batches = [{name: batch["x"], "labels": batch["labels"]} for batch in batches]
    job = covey.compile_training(
        model, loss="cross-entropy", optimizer=covey.SGD(0.01, momentum=0.9), batch=arguments.batch,
        calibration=(first[0], first[1]), input_range=(0, 1), open_weights=True,
    )  # fmt: skip
    due, due_weights, _, seconds = run(ClearSession(load(job.compiled)), batches)
    rows: list[dict[str, Any]] = [{"protocol": "clear", "same": True, "seconds": seconds, "bytes": 0, "of_parties": []}]
    for protocol in arguments.protocols.split(","):
        kind, _, count = protocol.partition("-") if protocol != "two-party" else (protocol, "", "")
        with covey.local(kind, parties=int(count) if count else None, timeout=120, device=arguments.device) as parties:
            steps, weights, (work, last), seconds = run(parties.session(job.compiled), batches)
        same = equal(weights, due_weights) and all(
            equal(step.integers, other.integers) for step, other in zip(steps, due, strict=True)
        )
        sent = [party.socket_bytes_sent / last for party in work.parties]
        rows.append(
            {
                "protocol": protocol, "same": same, "seconds": seconds, "bytes": work.profile.total.bytes / last,
                "of_parties": sent,
            }
        )  # fmt: skip
    if arguments.json:
        print(json.dumps({"model": arguments.model, "steps": arguments.steps, "rows": rows}, indent=2))
    else:
        loss = due[-1].outputs["loss"].item()
        print(f"{arguments.model}, {arguments.steps} steps of {arguments.batch} samples, loss to {loss:.4f}")
        for row in rows:
            sent = ", ".join(f"{each / 1e6:.1f}" for each in row["of_parties"])
            print(
                f"{row['protocol']:<10} {'same bits' if row['same'] else 'DIFFERS':<10} {row['seconds']:.3f} s and "
                f"{row['bytes'] / 1e6:.1f} MB a step; parties sent {sent or 'nothing'} MB"
            )
    return 0 if all(row["same"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
