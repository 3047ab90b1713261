"""Running a program in the clear: the specification every exact protocol equals bit for bit."""

from __future__ import annotations

import json
import time

from covey import _core
from covey.inputs import Data, read_inputs
from covey.model import Model
from covey.result import NodeProfile, Profile, Result


def run_clear(model: Model, data: Data) -> Result:
    """The outputs of a model on data [N, ..], computed on plain integers on this machine."""
    inputs = read_inputs(data, model.program)
    start = time.perf_counter()
    opened, _, timings = _core.run_clear(model.program, model.need_weights(), inputs)
    seconds = time.perf_counter() - start
    nodes = [NodeProfile.of({**row, "rounds": 0, "links": []}) for row in json.loads(timings)]
    return Result.of(model.program, opened, Profile(nodes, seconds))
