"""A whole network of the zoo as one cell of a table: one image between two parties."""

from __future__ import annotations

import json
from typing import Any

from covey import _core
from covey.bench.cache import default_folder, kept
from covey.bench.cells import LONGEST, MOST, Cell
from covey.bench.model import Setting, measure
from covey.bench.networks import network
from covey.client import Progress
from covey.model import load
from covey.models import ImageSpec


def one_network(
    spec: ImageSpec, bits: int, linear: str, profile: str, paper: str, times: int, say: Progress, warm_up: int = 0
) -> Cell:
    """One image through a whole network of the zoo, or planned where that takes long."""
    slow = network(profile)
    folder = default_folder()
    files = kept(spec, str(bits), folder, say)
    options: dict[str, Any] = {"linear": linear}
    given: dict[str, Any] = {**slow.session, **options}
    plan = json.loads(_core.plan(load(files.program).program, "two-party", 1, **given))
    sent, rounds = sum(link["bytes"] for node in plan["nodes"] for link in node["links"]), plan["total"]["rounds"]
    wire = slow.wire_seconds(sent, rounds)
    what, domain = f"{spec.model} by {linear}", f"Z_2^{bits}"
    if wire > LONGEST or sent > MOST:
        return Cell(what, domain, profile, wire, sent, rounds, True, paper)
    setting = Setting(
        spec, 1, slow, "two-party", ring=str(bits), options=options, repetitions=times, warm_up=warm_up, plaintext=False
    )
    outcome = measure(setting, folder, say)
    cpu = outcome.runs.total_cpu_seconds
    differing = None if outcome.differing is None else float(outcome.differing)
    figures = {"cpu_seconds": cpu, "planned_bytes": float(sent), "differing": differing}
    here = f"{outcome.differing} differ" if cpu is None else f"{outcome.differing} differ; {cpu:.3g} s of CPU"
    return Cell(
        what, domain, profile, outcome.runs.wall.median, outcome.bytes, rounds, False, paper, here, figures=figures
    )
