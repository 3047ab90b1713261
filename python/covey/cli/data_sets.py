"""data share, list, delete: data sets that the parties keep as shares, for training and inference in later sessions."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from covey.cli import console, holdings
from covey.cli.holdings import EitherConfig, StateFolder, Yes
from covey.cli.options import Json
from covey.errors import CoveyError, OptionError

app = typer.Typer(help="Share, list and delete data sets that the parties keep.", no_args_is_help=True)

Program = Annotated[
    Path, typer.Argument(metavar="PROGRAM.covey", help="The program, or training job, whose inputs the rows are.")
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Your name for the data set.")]
Samples = Annotated[Path, typer.Option("--data", metavar="X.npy", help="The samples, [N, ..].")]
Labels = Annotated[Path | None, typer.Option(metavar="Y.npy", help="Of a training job: their labels, [N].")]
Allow = Annotated[
    list[str] | None,
    typer.Option(metavar="covey:..", help="The key of another client that may use it; may be given again."),
]
OwnerConfig = Annotated[Path, typer.Option("--config", metavar="client.toml", help="You, and the parties.")]


@app.command()
def share(
    program: Program,
    name: Name,
    data: Samples,
    config: OwnerConfig,
    labels: Labels = None,
    allow: Allow = None,
    as_json: Json = False,
) -> None:
    """Share samples, and labels, with the parties: they keep them as shares, for this program alone."""
    from covey import _core
    from covey.cli.remote import protocol_of, warn_of_own_expiry
    from covey.client import Client
    from covey.explanation import is_training
    from covey.model import load
    from covey.training.shared import rows_of

    _core.check_data_set_name(name)
    loaded = load(program).program
    for key in allow or ():
        _core.check_fingerprint(key)
    if is_training(loaded) != (labels is not None):
        raise OptionError(
            f"'{loaded.name}' is a training job: give --labels"
            if labels is None
            else f"'{loaded.name}' is no training job: leave out --labels"
        )
    rows: Any = data if labels is None else rows_of(loaded, data, labels)
    warn_of_own_expiry(config)
    with (
        console.progress(quiet=as_json) as report,
        Client(config).session(loaded, protocol_of(config, None), progress=console.waiting) as session,
    ):
        kept = session.share_data(name, rows, allow=allow or (), progress=report)
    if as_json:
        console.print_json(asdict(kept))
        return
    used_by = "you alone" if not allow else f"you and {len(allow)} other client(s)"
    console.say(
        f"{kept.rows:,} rows are kept as '{kept.name}', version {kept.version[: holdings.DIGITS]}, for {used_by}"
    )


@app.command("list")
def list_(config: EitherConfig = None, state: StateFolder = None, as_json: Json = False) -> None:
    """List the data sets that you shared or may use; on a party's host (party.toml or --state) all that it keeps."""
    entries = _kept(config, state)
    if as_json:
        console.print_json(entries)
        return
    if not entries:
        console.say("no data sets are kept" + (" for you" if holdings.folder_of(config, state) is None else ""))
        return
    table = console.table("", ["name", "program", "version", "owner", "party"], ["rows", "size"])
    for entry in entries:
        kept = entry["data_set"]
        texts = [
            kept["name"],
            entry["program"][: holdings.DIGITS],
            kept["version"][: holdings.DIGITS],
            entry["owner"],
            entry["party"],
        ]
        table.add_row(*map(console.cell, texts), f"{kept['rows']:,}", console.amount(entry["bytes"]))
    console.out().print(table)


@app.command()
def delete(
    program: Program,
    name: Name,
    config: EitherConfig = None,
    state: StateFolder = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete a data set that you shared, at every party; sessions take no more of its rows.

    On the host of a party that does not serve (party.toml or --state), its operator deletes anybody's.
    """
    from covey import _core
    from covey.model import load

    folder = holdings.folder_of(config, state)
    wanted = load(program).program.hash
    where = "all parties" if folder is None else f"'{folder}'"
    holdings.confirm(f"delete the data set '{name}' at {where}", yes)
    if folder is None:
        deleted = json.loads(_core.delete_data(os.fspath(config), wanted, name))  # type: ignore[arg-type]
    else:
        deleted = [{"name": folder.name, **json.loads(_core.delete_data_in(os.fspath(folder), wanted, name))}]
    holdings.report(deleted, as_json)


def _kept(config: Path | None, state: Path | None) -> list[dict[str, Any]]:
    """What each party keeps of data sets, with the `party`'s name. Warns of a party that is silent, and of damage."""
    from covey import _core

    folder = holdings.folder_of(config, state)
    if config is not None:
        answers = json.loads(_core.data_sets(os.fspath(config), folder is not None))
        failed = [answer["error"] for answer in answers if "error" in answer]
        if folder is None or not failed:
            for problem in failed:
                console.warn(problem)
            if len(failed) == len(answers):
                raise CoveyError("no party answers: `covey doctor` says more")
            for answer in answers:
                for problem in answer.get("problems", []):
                    console.warn(f"{answer['name']}: {problem}")
            kept = ((answer["name"], answer.get("data_sets", [])) for answer in answers)
            return [{**entry, "party": name} for name, entries in kept for entry in entries]
    found = json.loads(_core.look(os.fspath(folder)))  # type: ignore[arg-type]
    for problem in found["problems"]:
        console.warn(problem)
    return [{**entry, "party": ""} for entry in found["data_sets"]]
