"""What a data owner's machine keeps of a training run, so that the run can go on after any of its processes ended."""

from __future__ import annotations

import json
import math
import os
import secrets
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from blake3 import blake3

from covey.errors import DataError, OptionError
from covey.files import write_whole
from covey.training.minibatches import Records
from covey.training.shared import SharedRecords

KIND, VERSION = "covey training run", 2


@dataclass
class RunFile:
    """A training run: which job of the parties' checkpoints it is, on what data, and what its steps came to.

    `losses` and `right` have an entry a step, also of steps after the last checkpoint. Where no loss opened it is no
    number, and None. `data` is a salted hash, from which nobody tells whether the samples are those of a guess.
    """

    path: Path
    program: str
    job: str
    data: str | None = None
    seed: int | None = None
    kept: int = 0
    losses: list[float] = field(default_factory=list)
    right: list[int | None] = field(default_factory=list)
    lacking: int = 0
    """Steps that an older copy of the file does not tell of."""

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
            entries["losses"] = [math.nan if loss is None else float(loss) for loss in entries["losses"]]
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
        digest = records.digest()
        if self.data is None:
            self.data, self.seed = _salted(digest, secrets.token_hex(16)), seed
            self.write()
            return
        same = self.data == _salted(digest, self.data.partition(" ")[0])
        if not same or self.seed != seed:
            what = f"seed {self.seed}" if same else "other data or labels"
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
        self.lacking = max(taken - len(self.losses), 0)
        self.losses += [math.nan] * self.lacking
        self.right += [None] * self.lacking

    def write(self) -> None:
        """Put the file on the disk, whole or not at all."""
        entries: dict[str, Any] = {"kind": KIND, "version": VERSION, **asdict(self)}
        del entries["path"], entries["lacking"]
        entries["losses"] = [None if math.isnan(loss) else loss for loss in self.losses]
        text = json.dumps(entries).encode()
        try:
            write_whole({self.path: lambda stream: stream.write(text)}, {self.path: 0o600})
        except OSError as error:
            raise OptionError(f"'{self.path}' cannot be written: {error.strerror or error}") from None

    def remove(self) -> None:
        """The run is over."""
        self.path.unlink(missing_ok=True)


def _salted(digest: str, salt: str) -> str:
    return f"{salt} {blake3(f'{salt} {digest}'.encode()).hexdigest()}"
