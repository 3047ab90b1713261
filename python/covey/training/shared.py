"""Training on data sets that the parties keep: rows are named by number, and no sample leaves its owner again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from covey.errors import DataError, OptionError
from covey.inputs import Data
from covey.training.minibatches import Arrays, forms_of, read

if TYPE_CHECKING:
    from covey._core import Program
    from covey.client import DataSet


class SharedData:
    """The rows of data sets that parties keep for a job, one set after the other, in place of samples and labels.

    A data set is its name or, where several owners have one of the name, KEY/NAME with its owner's key. `tell` hears of
    each that is attached.
    """

    def __init__(self, names: Sequence[str], tell: Callable[[DataSet], None] = lambda _: None) -> None:
        if isinstance(names, str) or not names:
            raise OptionError("name the data sets in a list: SharedData(['records'])")
        self.names, self.tell = list(names), tell


@dataclass(frozen=True)
class SharedRecords:
    """What a session attached of `SharedData`."""

    data_sets: list[DataSet]

    def __len__(self) -> int:
        return sum(one.rows for one in self.data_sets)

    def minibatches(self, batch: int, order: npt.NDArray[np.int64]) -> Iterator[list[int]]:
        """Row numbers of whole minibatches in this order; what is left over at the end is left out."""
        for start in range(0, len(order) - batch + 1, batch):
            yield order[start : start + batch].tolist()

    def digest(self) -> str:
        """By which the versions of these data sets are told from others."""
        return " ".join(one.version for one in self.data_sets)

    def run(self, session: Any, minibatches: list[list[int]], continues: bool) -> Any:
        """A run for each minibatch, one after the other."""
        return session.infer_rows(minibatches, continues=continues)


def attached(session: Any, shared: SharedData, batch: int) -> SharedRecords:
    """The rows of `shared` in a session. Raises `CoveyError` where a party lacks a data set or has another version."""
    if not hasattr(session, "attach"):
        raise OptionError("protocol clear has no parties that keep data sets: give it --data and --labels")
    records = SharedRecords(session.attach(shared.names))
    for one in records.data_sets:
        shared.tell(one)
    if len(records) < batch:
        raise DataError(
            f"the data sets have {len(records)} rows, and a minibatch takes {batch}: attach more, or compile a smaller "
            f"--batch"
        )
    return records


def rows_of(program: Program, data: Data, labels: Any) -> Arrays:
    """Samples and labels as rows of a training job, checked. Raises `DataError` naming what is wrong."""
    forms, _ = forms_of(program)
    return read(data, labels, forms, 1).arrays
