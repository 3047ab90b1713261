"""Calling the `covey` command in this process."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import covey
from covey.cli import main

DIGITS = Path(covey.__file__).parent / "data" / "digits"


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


class Command:
    """`covey(...)` as a shell would run it: exit code, stdout, stderr."""

    def __init__(self, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capfd = capfd
        self._monkeypatch = monkeypatch

    def __call__(self, *arguments: object) -> Outcome:
        self._monkeypatch.setattr(sys, "argv", ["covey", *map(str, arguments)])
        self._capfd.readouterr()
        code: object = 0
        try:
            main()
        except SystemExit as leaving:
            code = leaving.code
        out, err = self._capfd.readouterr()
        return Outcome(code if isinstance(code, int) else 1, out, err)

    def succeeds(self, *arguments: object) -> Outcome:
        outcome = self(*arguments)
        assert outcome.code == 0, outcome
        return outcome

    def refuses(self, *arguments: object, saying: str, code: int = 1) -> str:
        """It ends with `code` and one line on stderr that holds `saying`; returns the line."""
        outcome = self(*arguments)
        assert outcome.code == code, outcome
        lines = [line for line in outcome.err.splitlines() if line.startswith("error: ")]
        assert len(lines) == 1, outcome
        assert "Traceback" not in outcome.err
        assert "internal error" not in lines[0], lines
        assert saying in lines[0], lines[0]
        return lines[0]
