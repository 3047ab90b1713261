"""How results are written: tables of text and numbers, bytes and seconds as people read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from covey.result import NodeProfile


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


def profile_table(nodes: Sequence[NodeProfile], total: NodeProfile, timed: bool = True) -> Table:
    """Node by node: milliseconds and which of them were waits, bytes, what the busiest link carried, and rounds.

    Where a GPU computed any node, a column says how many parties' GPUs did.
    """
    numbers = [*(["ms", "waiting", "Gbit/s"] if timed else []), "offline bytes", "online bytes", "rounds"]
    if total.gpus:
        numbers.insert(0, "GPUs")
    made = table("node by node", ["node", "operator"], numbers)
    for node in [*nodes, total]:
        if node is total:
            made.add_section()
        waiting = f"{node.waiting_milliseconds / node.milliseconds:.0%}" if node.milliseconds else ""
        gpus = [f"{node.gpus}" if node.gpus and node is not total else ""] if total.gpus else []
        times = [f"{node.milliseconds:,.1f}", waiting, f"{node.gigabits_per_second:.2f}"] if timed else []
        made.add_row(
            cell(node.name),
            cell(node.op),
            *gpus,
            *times,
            f"{node.offline_bytes:,}",
            f"{node.online_bytes:,}",
            f"{node.rounds:,}",
        )
    return made


def amount(count: float) -> str:
    """Bytes as people read them."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"


def duration(seconds: float) -> str:
    """Seconds as people read them."""
    if seconds < 0.0995:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 120 else f"{seconds / 60:.1f} min"
