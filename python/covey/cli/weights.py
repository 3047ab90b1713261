"""weights list, delete: the programs whose weights the parties keep in shares."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from covey.cli import console, holdings
from covey.cli.holdings import EitherConfig, StateFolder, Yes
from covey.cli.options import Json
from covey.errors import CoveyError

app = typer.Typer(help="List and delete the weights that the parties keep.", no_args_is_help=True)

LEAST_DIGITS = 6
"""Of a hash that stands for a program."""

Program = Annotated[
    str, typer.Argument(metavar="PROGRAM", help="A .covey file, a program's hash (6 digits or more) or a model's name.")
]


@app.command("list")
def list_(config: EitherConfig = None, state: StateFolder = None, as_json: Json = False) -> None:
    """List the programs that you shared; on a party's host (party.toml or --state) all that it keeps."""
    entries = [entry for entry in holdings.usage(config, state) if "program" in entry]
    if as_json:
        console.print_json(entries)
        return
    if not entries:
        console.say(
            "no weights of yours are kept" if holdings.folder_of(config, state) is None else "no weights are kept"
        )
        return
    headings = ["name", "program", "weights", "protocol", "ring", "owner", "party"]
    table = console.table("", headings, ["size"])
    for entry in entries:
        role = f"P{entry['role']}" + (f" {entry['party']}" if entry["party"] else "")
        ring = "".join(f"Z_2^{size}" if kind == "pow2" else f"Z_{size}" for kind, size in entry["ring"].items())
        short = [entry[key][: holdings.DIGITS] for key in ("program", "weights_version")]
        texts = [entry["name"], *short, entry["protocol"], ring, entry["owner"] or "not known", role]
        table.add_row(*map(console.cell, texts), console.amount(entry["share_bytes"]))
    console.out().print(table)


@app.command()
def delete(
    program: Program, config: EitherConfig = None, state: StateFolder = None, yes: Yes = False, as_json: Json = False
) -> None:
    """Delete a program's weights that you shared, and the offline material for them, at every party.

    On the host of a party that does not serve (party.toml or --state), its operator deletes anybody's.
    """
    from covey import _core

    folder = holdings.folder_of(config, state)
    name, wanted = _resolve(program, config, state)
    where = "all parties" if folder is None else f"'{folder}'"
    holdings.confirm(f"delete the weights of '{name}' ({wanted[: holdings.DIGITS]}) at {where}", yes)
    if folder is None:
        deleted = json.loads(_core.delete_weights(os.fspath(config), wanted))  # type: ignore[arg-type]
    else:
        deleted = [{"name": folder.name, **json.loads(_core.delete_in(os.fspath(folder), True, wanted))}]
    holdings.report(deleted, as_json)


def _resolve(program: str, config: Path | None, state: Path | None) -> tuple[str, str]:
    """A program's name and hash. Raises `CoveyError` where no program, or more than one, is meant."""
    from covey.model import load

    if Path(program).is_file():
        loaded = load(Path(program)).program
        return loaded.name, loaded.hash
    digits = program.lower()
    is_hash = len(digits) >= LEAST_DIGITS and set(digits) <= set("0123456789abcdef")
    kept: dict[str, Any] = {
        entry["program"]: entry["name"] for entry in holdings.usage(config, state) if "program" in entry
    }
    found = [one for one, name in kept.items() if name == program or (is_hash and one.startswith(digits))]
    if len(found) > 1:
        several = ", ".join(one[: holdings.DIGITS] for one in found)
        raise CoveyError(f"'{program}' stands for several programs: name one by its hash ({several})")
    if found:
        return kept[found[0]], found[0]
    if is_hash and len(digits) == 64:
        return digits[: holdings.DIGITS], digits
    raise CoveyError(f"no weights of a program '{program}' are kept for you: `covey weights list` says which are")
