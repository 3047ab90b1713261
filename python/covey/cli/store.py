"""store fill, show, delete: offline material that the parties keep: correlated OTs of two, stored runs of others."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from covey.cli import console, holdings
from covey.cli.holdings import EitherConfig, StateFolder, Yes
from covey.cli.options import Json, PreprocessLinear, check_served
from covey.cli.remote import ClientConfig, OptionalModel, model_beside, warn_of_own_expiry
from covey.errors import CoveyError, OptionError
from covey.protocols import of_parties, session_options

if TYPE_CHECKING:
    from covey._core import Program

app = typer.Typer(help="Make, count and delete the parties' offline material.", no_args_is_help=True)

OTS = "two-party"

PORTION_SECONDS = 30
BYTES_PER_SECOND = 40e6
OTS_PER_SECOND = 20e6

Protocol = Annotated[
    str | None,
    typer.Option(
        help=f"{OTS} (correlated OTs), or trio, quad or beaver (runs that P0 or a dealer deals); by default that of "
        f"the parties that the file lists."
    ),
]
Batch = Annotated[int, typer.Option(min=1, help="Samples in one inference.")]
RoundBits = Annotated[
    int, typer.Option(min=0, max=24, metavar="N", help="The `round_bits` that the parties grant you.")
]


@app.command()
def fill(
    config: ClientConfig,
    model: OptionalModel = None,
    inferences: Annotated[int, typer.Option(min=1, max=1 << 16, help="For how many.")] = 1,
    batch: Batch = 1,
    protocol: Protocol = None,
    preprocess_linear: PreprocessLinear = False,
    as_json: Json = False,
) -> None:
    """Have the parties make the correlated randomness of so many inferences of a program, and keep it on disk."""
    from covey.client import Client
    from covey.model import load

    kind = _protocol(protocol, config)
    warn_of_own_expiry(config)
    program = load(model or model_beside(config)).program
    options = session_options(None, kind, preprocess_linear=preprocess_linear)
    at_once = _at_once(program, kind, batch, config, preprocess_linear)
    start = time.perf_counter()
    sent, made = 0, 0
    try:
        with (
            console.progress(quiet=as_json) as report,
            Client(config).session(program, kind, progress=console.waiting, **options) as session,
        ):
            while made < inferences:
                report(made, inferences, "filling the store")
                count = min(at_once, inferences - made)
                sent += session.fill_store(batch, count).profile.total.bytes
                made += count
    except (CoveyError, KeyboardInterrupt):
        if made:
            left = inferences - made
            console.complain(f"stored before that: {made} inference(s); for the rest fill with --inferences {left}")
        raise
    seconds = time.perf_counter() - start
    if as_json:
        console.print_json({"inferences": inferences, "batch": batch, "bytes": sent, "seconds": seconds})
        return
    linear = " and products of masks" if preprocess_linear else ""
    what = f"correlated OTs{linear} for" if kind == OTS else "correlated randomness dealt for"
    console.say(
        f"the parties have {what} {inferences} more inference(s) of {batch} sample(s) of '{program.name}': "
        f"{console.amount(sent)} sent in {console.duration(seconds)}"
    )


@app.command()
def show(
    config: ClientConfig,
    model: OptionalModel = None,
    batch: Batch = 1,
    round_bits: RoundBits = 0,
    protocol: Protocol = None,
    as_json: Json = False,
) -> None:
    """Show the parties' offline material, and for how many inferences of a program it lasts."""
    from covey.client import Client
    from covey.model import load

    kind = _protocol(protocol, config)
    warn_of_own_expiry(config)
    program = load(model or model_beside(config)).program
    batches: list[Any]
    runs, links = Client(config).stored_runs(), Client(config).links()
    of_program = runs.of(program, batch, protocol=kind, round_bits=round_bits, links=links)
    others = runs.others(program, batch, protocol=kind, round_bits=round_bits, links=links)
    if kind != OTS:
        batches = of_program
        count, held = sum(batches), "runs"
    else:
        stored = Client(config).stored()
        count = stored.inferences(program, batch, round_bits=round_bits, links=links)
        batches = [list(left) for left in stored.batches]
        held = f"{sum(map(sum, batches)):,} correlated OTs"
    if as_json:
        found = {"protocol": kind, "inferences": count, "batch": batch, "batches": batches, "others": others}
        console.print_json({**found, **({"linear": of_program} if kind == OTS else {})})
        return
    console.say(
        f"{held} in store, {len(batches)} batch(es): {count} inference(s) of {batch} sample(s) of '{program.name}'"
    )
    if kind == OTS and of_program:
        console.say(f"products of masks in store for {sum(of_program)} of them with --preprocess-linear")
    for runs_of in others:
        console.say(
            f"also in store: {runs_of['left']} inference(s) of {runs_of['batch']} sample(s) of program "
            f"{runs_of['program'][:12]} (--batch {runs_of['batch']} --round-bits {runs_of['round_bits']}"
            + (", for other links)" if links and runs_of["options"]["profile"] != links else ")")
        )


@app.command()
def delete(
    model: Annotated[
        Path | None, typer.Argument(metavar="[MODEL]", help="The .covey file whose stored runs go.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All stored runs, and all correlated OTs.")] = False,
    damaged: Annotated[
        bool,
        typer.Option(
            "--damaged", help="On a party's host: damaged offline material, checkpoints and data sets, of all owners."
        ),
    ] = False,
    config: EitherConfig = None,
    state: StateFolder = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete the parties' offline material, so that it cannot be recovered: of one program, all, or what is damaged.

    On the host of a party that does not serve (party.toml or --state), its operator deletes what that party has.
    """
    from covey import _core
    from covey.model import load

    if sum((model is not None, everything, damaged)) != 1:
        raise OptionError("name the program whose stored runs go, or give --all or --damaged")
    folder = holdings.folder_of(config, state)
    if damaged and folder is None:
        raise OptionError("--damaged is for a party's operator, on its host: give party.toml or --state")
    program = load(model).program if model is not None else None
    what = "what is damaged" if damaged else "all stored runs and correlated OTs"
    if program is not None:
        what = f"the stored runs of '{program.name}'"
    holdings.confirm(f"delete {what} at {'all parties' if folder is None else repr(str(folder))}", yes)
    wanted = program.hash if program is not None else None
    if folder is None:
        deleted = json.loads(_core.delete_store(os.fspath(config), wanted))  # type: ignore[arg-type]
    else:
        place = os.fspath(folder)
        gone = _core.delete_damaged_in(place) if damaged else _core.delete_in(place, False, wanted)
        deleted = [{"name": folder.name, **json.loads(gone)}]
    holdings.report(deleted, as_json)


def _at_once(program: Program, kind: str, batch: int, config: Path, preprocess_linear: bool) -> int:
    """For how many inferences to fill the store at once: a cut loses what is under way, about half a minute's work."""
    from covey import _core
    from covey.client import Client
    from covey.config import parties_of
    from covey.protocols import protocol as find_protocol
    from covey.result import NodeProfile

    parties = parties_of(config)[0] if len(find_protocol(kind).computing) > 1 else None
    options: dict[str, Any] = {**Client(config).links(), "preprocess_linear": preprocess_linear}
    plan = json.loads(_core.plan(program, kind, batch, parties=parties, **options))
    dealt = NodeProfile.of(plan["total"]).offline_bytes
    seconds = dealt / BYTES_PER_SECOND + sum(plan["correlated_ots"]) / OTS_PER_SECOND
    return max(1, int(PORTION_SECONDS / max(seconds, 1e-6)))


def _protocol(name: str | None, config: Path) -> str:
    """The protocol that is asked for, or the one of the parties that the file lists. Raises `OptionError`."""
    from covey.config import parties_of

    asked = check_served(name) if name is not None else None
    computing, dealer = parties_of(config)
    fitting = of_parties(computing, dealer)
    if fitting is None or (asked is not None and asked != fitting):
        listed = f"{computing} computing {'party' if computing == 1 else 'parties'}" + (
            " and a dealer" if dealer else ""
        )
        way_out = f"leave --protocol out, or use {fitting}" if fitting is not None else "list the parties of a protocol"
        raise OptionError(f"'{config}' lists {listed}, which is not what {asked or 'any protocol'} takes: {way_out}")
    return fitting
