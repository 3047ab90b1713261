"""diff: do two programs have the same structure?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from covey.cli import console
from covey.cli.options import Json

SHOWN = 10
"""Differences that are printed."""

Compiled = Annotated[Path, typer.Argument(metavar="MODEL.covey", help="A compiled program.")]


def diff(here: Compiled, there: Compiled, as_json: Json = False) -> None:
    """Compare two programs node by node, whatever things are called; exit code 1 when they differ."""
    from covey.structure import compare, read

    one, two = read(here), read(there)
    found = compare(one, two)
    if as_json:
        rows = [{"here": d.here, "there": d.there, "what": d.what} for d in found.differences]
        console.print_json({"equal": found.equal, "bounds_differing": found.bounds_differing, "differences": rows})
    elif found.equal:
        console.say(
            f"the same structure: {found.nodes} nodes, {found.parameters} parameters, {found.ring}; shapes, scales and "
            f"attributes are equal"
        )
        if found.bounds_differing:
            console.say(
                f"the bounds of {found.bounds_differing} nodes differ: they come from weights and calibration data"
            )
    else:
        table = console.table(f"{here.name} / {there.name}", [here.name, there.name, "what differs"], [])
        for difference in found.differences[:SHOWN]:
            table.add_row(*(console.cell(text) for text in (difference.here, difference.there, difference.what)))
        console.out().print(table)
        if len(found.differences) > SHOWN:
            console.say(f"... and {len(found.differences) - SHOWN} more")
    if not found.equal:
        first = found.differences[0]
        place = first.here or first.there
        console.complain(f"the structures differ in {len(found.differences)} places, first at {place}: {first.what}")
        raise typer.Exit(1)
