"""store fill, show: what the parties make ahead of sessions: correlated OTs of two parties, dealt runs of others."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from covey.cli import console
from covey.cli.options import Json, check_served
from covey.cli.remote import ClientConfig, OptionalModel, model_beside, warn_of_own_expiry

app = typer.Typer(help="Make and count what the parties have ahead of sessions.", no_args_is_help=True)

OTS = "two-party"

Protocol = Annotated[
    str, typer.Option(help=f"{OTS} (correlated OTs), or trio, quad or beaver (runs that P0 or a dealer deals).")
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
    protocol: Protocol = OTS,
    as_json: Json = False,
) -> None:
    """Have the parties make the correlated randomness of so many inferences of a program, and keep it on disk."""
    from covey.client import Client
    from covey.model import load

    kind = check_served(protocol)
    warn_of_own_expiry(config)
    program = load(model or model_beside(config)).program
    start = time.perf_counter()
    with console.progress(quiet=as_json) as report, Client(config).session(program, kind) as session:
        report(0, 0, "filling the store")
        work = session.fill_store(batch, inferences)
    seconds, sent = time.perf_counter() - start, work.profile.total.bytes
    if as_json:
        console.print_json({"inferences": inferences, "batch": batch, "bytes": sent, "seconds": seconds})
        return
    what = "correlated OTs for" if kind == OTS else "correlated randomness dealt for"
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
    protocol: Protocol = OTS,
    as_json: Json = False,
) -> None:
    """Say what the parties have ahead, and for how many inferences of a program it lasts."""
    from covey.client import Client
    from covey.model import load

    kind = check_served(protocol)
    warn_of_own_expiry(config)
    program = load(model or model_beside(config)).program
    batches: list[Any]
    if kind != OTS:
        batches = Client(config).stored_runs().of(program, batch, protocol=kind, round_bits=round_bits)
        count, held = sum(batches), "runs"
    else:
        stored = Client(config).stored()
        count, batches = stored.inferences(program, batch, round_bits=round_bits), [list(b) for b in stored.batches]
        held = f"{sum(map(sum, batches)):,} correlated OTs"
    if as_json:
        console.print_json({"inferences": count, "batch": batch, "batches": batches})
        return
    console.say(
        f"{held} in store, {len(batches)} batch(es): {count} inference(s) of {batch} sample(s) of '{program.name}'"
    )
