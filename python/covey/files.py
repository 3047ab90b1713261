"""Writing files whole or not at all, whatever happens meanwhile: a full disk, an error, Ctrl-C."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

from covey import _interrupt
from covey.interrupts import uninterrupted

Writer = Callable[[BinaryIO], object]
"""Writes a file's content to a stream."""


def write_whole(files: Mapping[Path, Writer], modes: Mapping[Path, int] | None = None) -> None:
    """Write all files or none: each under a temporary name beside its place and synced, then all renamed.

    `modes` are permissions of the files that have others than the process gives to new ones. Raises `OSError`, whose
    `filename` is one of `files`.
    """
    modes = modes or {}
    _interrupt.untidy()
    # Known before they exist: whatever interrupts us, what is there is found again.
    temporaries = {path: path.with_name(f".{path.name}.{secrets.token_hex(6)}") for path in files}
    placed: list[Path] = []
    path = Path()
    try:
        for path, write in files.items():
            with open(temporaries[path], "xb", opener=_owned if path in modes else None) as stream:
                write(stream)
                stream.flush()
                os.fsync(stream.fileno())
            if path in modes:
                os.chmod(temporaries[path], modes[path])
        with uninterrupted():
            for path, temporary in temporaries.items():
                os.replace(temporary, path)
                placed.append(path)
    except OSError as error:
        for done in placed:  # files that belong together never differ
            done.unlink(missing_ok=True)
        error.filename = str(path)  # the caller's name for it; a full disk names none
        raise
    finally:
        for temporary in temporaries.values():
            temporary.unlink(missing_ok=True)


def _owned(path: str, flags: int) -> int:
    """Opens a new file that nobody else can read until it is given the permissions it is to have."""
    return os.open(path, flags, 0o600)
