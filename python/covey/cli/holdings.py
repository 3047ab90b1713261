"""What the parties keep: whose it is and what it takes, as they or a state folder say, and its deletion."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from covey.cli import console
from covey.errors import CoveyError, OptionError

EitherConfig = Annotated[
    Path | None,
    typer.Option(metavar="FILE.toml", help="owner.toml or client.toml; on a party's host its party.toml."),
]
StateFolder = Annotated[
    Path | None, typer.Option("--state", metavar="FOLDER", help="A party's state folder, on its host.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

DIGITS = 12
"""Of a hash, in tables."""


def is_party(config: Path) -> bool:
    """Whether a configuration file is a party's. Raises `CoveyError`."""
    from covey.config import read

    return isinstance(read(config).get("party"), dict)


def folder_of(config: Path | None, state: Path | None) -> Path | None:
    """The state folder that is asked about; none where the parties are. Raises `CoveyError`."""
    from covey import _core

    if (config is None) == (state is None):
        raise OptionError("give either --config FILE.toml or, on a party's host, --state FOLDER")
    if config is not None and is_party(config):
        return Path(_core.state_folder(os.fspath(config)))
    return state


def usage(config: Path | None, state: Path | None) -> list[dict[str, Any]]:
    """What each program takes at each party, with the `party`'s name. Warns of parties that are silent or troubled."""
    from covey import _core

    folder = folder_of(config, state)
    if folder is None:
        answers = json.loads(_core.status(os.fspath(config)))  # type: ignore[arg-type]
        for answer in answers:
            if "error" in answer:
                console.warn(answer["error"])
            else:
                _warn_of(answer["name"], answer["status"])
        if all("error" in answer for answer in answers):
            raise CoveyError("no party answers: `covey doctor` says more")
        return [
            {**entry, "party": answer["name"]}
            for answer in answers
            for entry in answer.get("status", {}).get("usage", [])
        ]
    status = None
    try:
        status = own_status(config) if config is not None else None
    except CoveyError as error:
        console.warn(f"the daemon could not be asked: {error}")
    if status is not None:
        _warn_of(status["name"], status)
    entries, problems = host_usage(status, folder)
    for problem in problems:
        console.warn(problem)
    return entries


def _warn_of(party: str, status: dict[str, Any]) -> None:
    for problem in status["problems"]:
        console.warn(f"{party}: {problem['what']}")


def own_status(config: Path) -> dict[str, Any] | None:
    """What the daemon of a party's file says; none where it does not serve. Raises `CoveyError`."""
    from covey import _core
    from covey.config import read

    if not _listens(str(read(config)["party"].get("listen"))):
        return None
    status: dict[str, Any] = json.loads(_core.own_status(os.fspath(config)))
    return status


def _listens(address: str) -> bool:
    """Whether anybody takes connections at an address of this machine, as far as can be told."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=1).close()
    except ConnectionRefusedError:
        return False
    except (OSError, ValueError, OverflowError):
        pass  # asking the daemon says what it is
    return True


def host_usage(status: dict[str, Any] | None, folder: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The same on a party's host, as its daemon says or else its state folder; and what cannot be read there."""
    from covey import _core

    if status is not None:
        return _with_stocks(status["name"], status["usage"], status["stores"]), []
    found = json.loads(_core.look(os.fspath(folder)))
    return _with_stocks("", found["usage"], found["stores"]), found["problems"]


def _with_stocks(party: str, usage: Iterable[dict[str, Any]], stores: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    entries = [{**entry, "party": party} for entry in usage]
    taken = sum(store["bytes"] for store in stores)
    return [*entries, {"party": party, "ots_bytes": taken}] if taken else entries


def usage_table(entries: Sequence[dict[str, Any]]) -> Any:
    """Bytes by program and party, in 80 columns."""
    table = console.table("what programs take", ["program", "party"], ["shares", "offline", "kept", "memory", "a run"])
    table.columns[0].max_width = table.columns[1].max_width = 14
    for entry in entries:
        if "ots_bytes" in entry:
            ots = console.amount(entry["ots_bytes"])
            table.add_row(console.cell("correlated OTs"), console.cell(entry["party"]), "", ots)
            continue
        offline = entry["runs_bytes"] + entry["masks_bytes"]
        sizes = [entry["share_bytes"], offline, entry["checkpoints_bytes"], entry["memory_bytes"]]
        shown = ["-" if size is None else console.amount(size) for size in sizes]
        run = entry["run_memory"]
        table.add_row(
            console.cell(entry["name"]),
            console.cell(entry["party"]),
            *shown,
            f"{console.amount(run[1])}/{run[0]}" if run else "-",
        )
    return table


def confirm(what: str, yes: bool) -> None:
    """Ask before something goes that cannot be brought back."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise OptionError(f"{what}: add --yes where nobody can be asked")
    if not typer.confirm(f"{what}?"):
        console.note("nothing is deleted")
        raise typer.Exit(1)


def report(deleted: Sequence[dict[str, Any]], as_json: bool) -> None:
    """Say what each party deleted; leaves with exit code 1 if one could not."""
    if as_json:
        console.print_json(list(deleted))
    failed = [entry for entry in deleted if "error" in entry]
    for entry in [] if as_json else deleted:
        console.say(f"{entry['name']}: {'failed' if 'error' in entry else _words(entry)}")
    if failed:
        more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        error = failed[0]["error"].rstrip(".")
        named = error if error.startswith(failed[0]["name"]) else f"{failed[0]['name']}: {error}"
        console.complain(f"{named}{more}; what failed can be asked for again")
        raise typer.Exit(1)


def _words(entry: dict[str, Any]) -> str:
    counts = [
        f"{entry[kind]:,} {name}"
        for kind, name in (
            ("runs", "stored run(s)"),
            ("ots", "correlated OTs"),
            ("data_sets", "data set(s)"),
            ("damaged", "damaged batch(es) or file(s)"),
        )
        if entry[kind]
    ]
    gone = [*(["weights"] if entry["weights"] else []), *counts]
    return f"{', '.join(gone)} deleted" if gone else "nothing was there"
