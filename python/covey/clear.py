"""Running a program in the clear: the specification every exact protocol equals bit for bit."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from covey import _core
from covey.inputs import Data, read_inputs
from covey.model import Model
from covey.result import NodeProfile, Opened, Profile, Result, Results, Work


class ClearSession:
    """A model on plain integers on this machine; its runs may be a sequence."""

    def __init__(self, model: Model) -> None:
        self.program = model.program
        self._runner = _core.Clear(model.program, model.need_weights())
        self.sequence = 0
        """The number of the sequence that the latest run belongs to. A run that `continues` none begins the next."""

    def infer(self, data: Data, *, continues: bool = False) -> Result:
        """The outputs on data [N, ..]. If it `continues`, carried values are what the run before left, otherwise 0."""
        inputs = read_inputs(data, self.program)
        self.sequence += not continues
        start = time.perf_counter()
        opened, _, timings = self._runner.run(inputs, continues)
        seconds = time.perf_counter() - start
        nodes = [NodeProfile.of({**row, "rounds": 0, "links": []}) for row in json.loads(timings)]
        return Result.of(self.program, opened, Profile(nodes, seconds))

    def end(self) -> Opened:
        """What the program opens at the end of the sequence of the runs before."""
        start = time.perf_counter()
        opened = self._runner.end()
        return Opened.of(opened, Work(Profile([], time.perf_counter() - start), []))

    def served_weights(self) -> dict[str, npt.NDArray[np.int64]]:
        """What the runs before made as the weights of the program that this one serves: integers by parameter."""
        return {entry["name"]: entry["integers"] for entry in self._runner.served()}

    def infer_all(self, inputs: Sequence[Data], *, continues: bool = False) -> Results:
        """One run for each of `inputs`: a sequence, which `continues` that of the runs before or is new."""
        done = [self.infer(data, continues=continues or index > 0) for index, data in enumerate(inputs)]
        latencies = [result.profile.seconds for result in done if result.profile is not None]
        return Results(done, latencies, Work(Profile([], sum(latencies)), []))


def run_clear(model: Model, data: Data) -> Result:
    """The outputs of a model on data [N, ..], computed on plain integers on this machine."""
    return ClearSession(model).infer(data)
