"""Files are written whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

import pytest

from covey import files, interrupts
from strikes import struck_at


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def write(folder: Path, version: bytes) -> None:
    files.write_whole(
        {folder / "a": lambda stream: stream.write(b"a" + version), folder / "b": lambda stream: stream.write(version)},
        {folder / "b": 0o600},
    )


def test_ctrl_c_at_every_line(tmp_path: Path) -> None:
    """Both files as they were or both new, and nothing beside them."""
    write(tmp_path, b"0")
    old, new = contents(tmp_path), {"a": b"a1", "b": b"1"}
    states, line, struck = [], 0, True
    while struck:
        write(tmp_path, b"0")
        struck = struck_at(line, [files.__file__, interrupts.__file__], lambda: write(tmp_path, b"1"))
        states.append(contents(tmp_path))
        assert states[-1] in (old, new), line
        line += 1
    assert states.count(old) > 5 and states.count(new) > 5
    assert states == sorted(states, key=lambda state: state == new)


def test_permissions(tmp_path: Path) -> None:
    os.umask(before := os.umask(0))
    write(tmp_path, b"")
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in "ab"]
    assert modes == [0o666 & ~before, 0o600]


def test_a_full_disk(tmp_path: Path) -> None:
    write(tmp_path, b"0")
    old = contents(tmp_path)

    def full(stream: BinaryIO) -> None:
        stream.write(b"a part")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left") as raised:
        files.write_whole({tmp_path / "a": lambda stream: stream.write(b"1"), tmp_path / "b": full})
    assert raised.value.filename == str(tmp_path / "b")
    assert contents(tmp_path) == old


def test_a_place_that_is_taken(tmp_path: Path) -> None:
    """Files that belong together never differ: where the second cannot be placed, the first goes too."""
    (tmp_path / "b").mkdir()
    with pytest.raises(IsADirectoryError) as raised:
        write(tmp_path, b"1")
    assert raised.value.filename == str(tmp_path / "b")
    assert [path.name for path in tmp_path.iterdir()] == ["b"]
