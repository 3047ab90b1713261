"""A model of the zoo, run privately again and again, and in plaintext beside it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from covey import _core
from covey.bench import plaintext
from covey.bench.cache import kept
from covey.bench.networks import NetworkProfile
from covey.bench.plaintext import Inputs, Plaintext
from covey.bench.planned import peak_memory
from covey.bench.runs import BenchPhase, Runs, links, parties, repeat, session_options
from covey.clear import run_clear
from covey.client import Progress, rows_of
from covey.closeness import relative_error
from covey.comparison import compare
from covey.model import Model, load
from covey.models import Spec
from covey.protocols import PROTOCOLS
from covey.result import NodeProfile, Result


@dataclass(frozen=True)
class Setting:
    """What is run, on what, and how often."""

    spec: Spec
    batch: int
    network: NetworkProfile
    protocol: str = "trio"
    parties: int | None = None
    """How many compute, where the protocol takes any number."""
    ring: str = "auto"
    phase: BenchPhase = "joint"
    options: Mapping[str, Any] = field(default_factory=dict)
    repetitions: int = 3
    warm_up: int = 1
    check: bool = True
    plaintext: bool = True
    device: str | None = None
    """What the parties compute linear layers on; `None` for what they choose themselves."""
    threads: int | None = None
    """How many each party computes on; `None` for its share of the processors."""

    @property
    def title(self) -> str:
        """What tables call it."""
        return self.spec.label

    @property
    def compared(self) -> str:
        """What is compared with `clear`."""
        return "outputs"

    def peer(self, number: int) -> str:
        """What tables call a party or the client."""
        return PROTOCOLS[self.protocol].peer(number, self.parties)


@dataclass(frozen=True)
class Outcome:
    """A model's figures."""

    setting: Setting
    ring: str
    scale: int
    parameters: int
    runs: Runs
    differing: int | None
    """Elements that differ from `clear`, of outputs or of what was trained; `None` where that was not looked at."""
    elements: int
    plaintext: Plaintext | None
    relative_error: float | None
    """Of the private outputs, or losses, against plaintext, where these are numbers."""
    same_answers: int | None
    """How many outputs are plaintext's, where these are classes."""
    planned_bytes: int
    planned_rounds: int
    planned_memory_bytes: list[int]
    """What `explain` predicts, by party the last."""

    @property
    def images_per_second(self) -> float:
        """Samples, by the median."""
        return self.setting.batch / self.runs.wall.median

    @property
    def bytes(self) -> int:
        """Payload on all links, the client's included, for one inference with its preprocessing."""
        before = self.runs.preparation.profile.total.bytes if self.runs.preparation else 0
        return self.runs.profile.total.bytes + before

    @property
    def cpu_ratio(self) -> float | None:
        """Processor time of all parties over that of plaintext, preprocessing included."""
        total, preprocessing = self.runs.total_cpu_seconds, self.runs.total_preparation_cpu_seconds
        if self.plaintext is None or total is None or preprocessing is None:
            return None
        return (total + preprocessing) / self.plaintext.cpu_seconds

    def busiest_link(self) -> tuple[str, int] | None:
        """The directed link that carries most, and its bytes."""
        rows = [(row["offline_bytes"] + row["online_bytes"], row) for row in links(self.runs.profile)]
        if not rows:
            return None
        most, row = max(rows, key=lambda pair: pair[0])
        sender, receiver = (self.setting.peer(row[end]) for end in ("from", "to"))
        return f"{sender} to {receiver}", most

    @property
    def link_use(self) -> float | None:
        """How far the busiest link is used, as a fraction of the profile's rate."""
        busiest = self.busiest_link()
        return None if busiest is None else self.setting.network.use(busiest[1], self.runs.wall.median)

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        setting = self.setting
        data: dict[str, Any] = {
            "model": asdict(setting.spec),
            "parameters": self.parameters,
            "protocol": setting.protocol,
            "parties": setting.parties,
            "ring": self.ring,
            "scale": self.scale,
            "batch": setting.batch,
            "phase": setting.phase,
            "network": str(setting.network),
            "device": setting.device or "auto",
            "threads": setting.threads,
            "options": {name: value for name, value in setting.options.items() if value is not None},
            "repetitions": setting.repetitions,
            "warm_up": setting.warm_up,
            **self.runs.to_json(),
            "images_per_second": self.images_per_second,
            "bytes": self.bytes,
            "link_use": self.link_use,
            "nodes": self.runs.profile.to_json()["nodes"],
            "elements": self.elements,
            "differing_from_clear": self.differing,
            "relative_error": self.relative_error,
            "same_answers": self.same_answers,
            "planned_bytes": self.planned_bytes,
            "planned_rounds": self.planned_rounds,
            "planned_memory_bytes": self.planned_memory_bytes,
            "plaintext": None,
            "cpu_ratio": self.cpu_ratio,
        }
        if self.plaintext is not None:
            data["plaintext"] = {
                "engine": self.plaintext.engine,
                "wall_seconds": self.plaintext.wall.to_json(),
                "cpu_seconds": self.plaintext.cpu_seconds,
            }
        return data


def measure(setting: Setting, folder: Path, progress: Progress) -> Outcome:
    """Build or fetch the model, check it against `clear`, run it privately, run it in plaintext."""
    files = kept(setting.spec, setting.ring, folder, progress)
    inputs = setting.spec.samples(setting.batch)
    model = load(files.program)
    with parties(
        setting.protocol,
        setting.network,
        setting.options,
        progress,
        setting.parties,
        setting.device,
        setting.threads,
    ) as running:
        runs, private = repeat(
            running,
            model,
            inputs,
            batch=setting.batch,
            phase=setting.phase,
            warm_up=setting.warm_up,
            repetitions=setting.repetitions,
            progress=progress,
        )
        sizes = [setting.batch] if setting.phase != "joint" else running.portions(model, setting.batch)
    # The specification and plaintext take as many samples at a time as the parties: all may not fit this machine.
    starts = itertools.accumulate(sizes, initial=0)
    parts = [rows_of(inputs, model.program, start, start + size) for start, size in zip(starts, sizes, strict=False)]
    differing: int | None = None
    if setting.check:
        progress(0, 0, "the specification, in the clear")
        differing = _differing(model, parts, sizes, private)
    outside: Plaintext | None = None
    if setting.plaintext:
        progress(0, 0, "plaintext on one thread")
        outside = plaintext.measure(files.onnx, parts, max(3, setting.repetitions))
    given = {**setting.network.session, **session_options(setting.options)}
    plans = {
        size: json.loads(_core.plan(model.program, setting.protocol, size, parties=setting.parties, **given))
        for size in set(sizes)
    }
    return _outcome(setting, model, runs, private, differing, outside, [plans[size] for size in sizes])


def _differing(model: Model, parts: Sequence[Inputs], sizes: Sequence[int], private: Result) -> int:
    """Elements of the private outputs that are not the specification's."""
    differing, start = 0, 0
    for part, size in zip(parts, sizes, strict=True):
        due = run_clear(model, part).integers
        if len(parts) == 1:
            rows = private.integers
        else:
            rows = {name: integers[start : start + size] for name, integers in private.integers.items()}
        differing += sum(row.differing for row in compare(due, rows))
        start += size
    return differing


def _outcome(
    setting: Setting,
    model: Model,
    runs: Runs,
    private: Result,
    differing: int | None,
    outside: Plaintext | None,
    plans: list[dict[str, Any]],
) -> Outcome:
    totals = [NodeProfile.of(plan["total"]) for plan in plans]
    (output,) = private.outputs.values()
    program = model.program
    scales = [entry["scale"] for entry in (*program.inputs, *program.carried, *program.outputs)]
    error = same = None
    if outside is not None and outside.outputs.dtype.kind == "f":
        error = relative_error(output, outside.outputs.astype(np.float64))
    elif outside is not None:
        same = int((output == outside.outputs).sum())
    return Outcome(
        setting=setting,
        ring=program.ring,
        scale=next((int(scale) for scale in scales if scale), 0),  # token ids and masks have no fractional bits
        parameters=program.parameters,
        runs=runs,
        differing=differing,
        elements=output.size,
        plaintext=outside,
        relative_error=error,
        same_answers=same,
        planned_bytes=sum(total.bytes for total in totals),
        planned_rounds=sum(total.rounds for total in totals),
        planned_memory_bytes=[max(peaks) for peaks in zip(*map(peak_memory, plans), strict=True)],
    )
