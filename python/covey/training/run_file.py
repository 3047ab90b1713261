"""What a data owner's machine keeps of a training run, so that the run can go on after any of its processes ended."""

from __future__ import annotations

import json
import math
import os
import secrets
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from covey.errors import DataError, OptionError
from covey.files import write_whole
from covey.training.minibatches import Records
from covey.training.shared import SharedRecords

KIND, VERSION = "covey training run", 1


@dataclass
class RunFile:
    """A training run: which job of the parties' checkpoints it is, on what data, and what its steps came to.

    `losses` and `right` have an entry a step, also of steps after the last checkpoint. Where no loss opened it is no
    number, and None.
    """

    path: Path
    program: str
    job: str
    data: str | None = None
    seed: int | None = None
    kept: int = 0
    losses: list[float] = field(default_factory=list)
    right: list[int | None] = field(default_factory=list)

    @staticmethod
    def open(path: str | os.PathLike[str], program: str) -> RunFile:
        """The run that the file describes, or a new one of this program where there is no file.

        Raises `OptionError` for a file that is none, or of another program.
        """
        place = Path(path)
        if not place.parent.is_dir():
            raise OptionError(f"'{place.parent}' is no folder: make it, or name another file for the run")
        try:
            text = place.read_text()
        except FileNotFoundError:
            return RunFile(place, program, secrets.token_hex(16))
        except (OSError, ValueError) as error:
            raise OptionError(f"'{place}' cannot be read: {error}") from None
        try:
            entries = json.loads(text)
            if entries.pop("kind") != KIND or entries.pop("version") != VERSION:
                raise ValueError
            run = RunFile(place, **entries)
            if len(run.job) != 32 or not len(run.losses) == len(run.right) >= run.kept:
                raise ValueError
        except (ValueError, TypeError, KeyError, AttributeError):
            raise OptionError(f"'{place}' describes no training run: name another file, or restore it") from None
        if run.program != program:
            raise OptionError(f"'{place}' is a run of another training job: name another file for this one")
        return run

    @staticmethod
    def kept_in(path: Path) -> int:
        """Steps until the latest checkpoint of the run that the file describes, or 0 where there is none."""
        try:
            return int(json.loads(path.read_text())["kept"])
        except (OSError, ValueError, TypeError, KeyError):
            return 0

    def begin(self, records: Records | SharedRecords, seed: int) -> None:
        """Bind the run to its data and their order. Raises `DataError` where it began with others."""
        data = records.digest()
        if self.data is None:
            self.data, self.seed = data, seed
            self.write()
        elif (self.data, self.seed) != (data, seed):
            what = "other data or labels" if self.data != data else f"seed {self.seed}"
            raise DataError(f"'{self.path}' began with {what}: give the same, or name another file for a new run")

    def took(self, losses: list[float], right: list[int | None]) -> None:
        """Add what steps came to."""
        self.losses += losses
        self.right += right

    def at(self, taken: int) -> None:
        """Forget the steps after the first `taken`: they are taken again.

        What steps came to that an older copy of the file does not tell is no number.
        """
        del self.losses[taken:], self.right[taken:]
        missing = taken - len(self.losses)
        self.losses += [math.nan] * missing
        self.right += [None] * missing

    def write(self) -> None:
        """Put the file on the disk, whole or not at all."""
        entries: dict[str, Any] = {"kind": KIND, "version": VERSION, **asdict(self)}
        del entries["path"]
        text = json.dumps(entries).encode()
        try:
            write_whole({self.path: lambda stream: stream.write(text)})
        except OSError as error:
            raise OptionError(f"'{self.path}' cannot be written: {error.strerror or error}") from None

    def remove(self) -> None:
        """The run is over."""
        self.path.unlink(missing_ok=True)
