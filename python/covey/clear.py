"""Running a program in the clear: the specification every exact protocol equals bit for bit."""

from __future__ import annotations

import json
import time

from covey import _core
from covey.inputs import Data, read_inputs
from covey.model import Model
from covey.result import NodeProfile, Profile, Result


class ClearSession:
    """A model on plain integers on this machine; its runs may be a sequence."""

    def __init__(self, model: Model) -> None:
        self.program = model.program
        self._runner = _core.Clear(model.program, model.need_weights())

    def infer(self, data: Data, *, continues: bool = False) -> Result:
        """The outputs on data [N, ..]. If it `continues`, carried values are what the run before left, otherwise 0."""
        inputs = read_inputs(data, self.program)
        start = time.perf_counter()
        opened, _, timings = self._runner.run(inputs, continues)
        seconds = time.perf_counter() - start
        nodes = [NodeProfile.of({**row, "rounds": 0, "links": []}) for row in json.loads(timings)]
        return Result.of(self.program, opened, Profile(nodes, seconds))


def run_clear(model: Model, data: Data) -> Result:
    """The outputs of a model on data [N, ..], computed on plain integers on this machine."""
    return ClearSession(model).infer(data)
