"""What commands print: results on stdout, progress and errors on stderr, nothing wider than 100 columns."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from covey.shown import WIDTH
from covey.tables import amount, cell, duration, profile_table, table

__all__ = [
    "Report",
    "amount",
    "cell",
    "complain",
    "duration",
    "note",
    "out",
    "print_json",
    "profile_table",
    "progress",
    "say",
    "say_parts",
    "table",
    "waiting",
    "warn",
]

Report = Callable[[int, int, str], None]
"""How far long work is: done, total and what is being done."""


def _console(stderr: bool) -> Console:
    console = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    width = console.width if console.is_terminal else WIDTH
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False, width=min(width, WIDTH))


def out() -> Console:
    """Where results go."""
    return _console(stderr=False)


def say(text: str) -> None:
    """One line of a result, as it is."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def say_parts(*parts: str) -> None:
    """One line of a result; a terminal that is narrower shows it on several, which break between parts."""
    console = out()
    line = parts[0]
    for part in parts[1:]:
        if console.is_terminal and len(line) + len(part) + 2 > console.width:
            say(line)
            line = ""
        line += "  " + part
    say(line)


def note(text: str) -> None:
    """One line for the user's information; not part of the result."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def complain(text: str) -> None:
    """One line about what went wrong."""
    note("error: " + " ".join(text.split()))


def warn(text: str) -> None:
    """One line about what may go wrong."""
    note("warning: " + " ".join(text.split()))


def print_json(data: Any) -> None:
    """A result for machines."""
    say(json.dumps(data, indent=2))


def waiting(_done: int, _total: int, place: str) -> None:
    """The place of a session in a party's queue."""
    note(place)


@contextmanager
def progress(quiet: bool = False) -> Iterator[Report]:
    """A bar on stderr, where a terminal is there to show it."""
    console = _console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda done, total, what: None
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(30), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=None)

        def report(done: int, total: int, what: str) -> None:
            bar.update(task, completed=done, total=total or None, description=what[:50])

        yield report
