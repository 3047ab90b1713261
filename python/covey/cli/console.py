"""What commands print: results on stdout, progress and errors on stderr, nothing wider than 100 columns."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from covey.result import NodeProfile

WIDTH = 100

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


def table(title: str, left: list[str], right: list[str]) -> Table:
    """An empty table: `left` columns hold text, `right` ones numbers."""
    made = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in left:
        made.add_column(heading, overflow="fold", max_width=40)
    for heading in right:
        made.add_column(heading, justify="right", no_wrap=True)
    return made


def cell(text: str) -> Text:
    """Text of the user's, such as a node name, shown as it is."""
    return Text(text)


def profile_table(nodes: list[NodeProfile], total: NodeProfile, timed: bool = True) -> Table:
    """Node by node: milliseconds and which of them were waits, bytes, what the busiest link carried, and rounds."""
    numbers = [*(["ms", "waiting", "Gbit/s"] if timed else []), "offline bytes", "online bytes", "rounds"]
    made = table("node by node", ["node", "operator"], numbers)
    for node in [*nodes, total]:
        if node is total:
            made.add_section()
        waiting = f"{node.waiting_milliseconds / node.milliseconds:.0%}" if node.milliseconds else ""
        times = [f"{node.milliseconds:,.1f}", waiting, f"{node.gigabits_per_second:.2f}"] if timed else []
        made.add_row(
            cell(node.name),
            cell(node.op),
            *times,
            f"{node.offline_bytes:,}",
            f"{node.online_bytes:,}",
            f"{node.rounds:,}",
        )
    return made


def amount(count: float) -> str:
    """Bytes as people read them."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"


def duration(seconds: float) -> str:
    """Seconds as people read them."""
    if seconds < 0.0995:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 120 else f"{seconds / 60:.1f} min"
