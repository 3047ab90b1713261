"""store fill, show: correlated OTs that two parties make ahead of sessions."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from covey.cli import console
from covey.cli.options import Json
from covey.cli.remote import ClientConfig, OptionalModel, model_beside, warn_of_own_expiry

app = typer.Typer(help="Make and count what two parties have ahead of sessions.", no_args_is_help=True)

PROTOCOL = "two-party"

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
    as_json: Json = False,
) -> None:
    """Have both parties make the correlated OTs of so many inferences of a program, and keep them on disk."""
    from covey.client import Client
    from covey.model import load

    warn_of_own_expiry(config)
    program = load(model or model_beside(config)).program
    start = time.perf_counter()
    with console.progress(quiet=as_json) as report, Client(config).session(program, PROTOCOL) as session:
        report(0, 0, "filling the store")
        work = session.fill_store(batch, inferences)
    seconds, sent = time.perf_counter() - start, work.profile.total.bytes
    if as_json:
        console.print_json({"inferences": inferences, "batch": batch, "bytes": sent, "seconds": seconds})
        return
    console.say(
        f"the parties have correlated OTs for {inferences} more inference(s) of {batch} sample(s) of '{program.name}': "
        f"{console.amount(sent)} sent in {console.duration(seconds)}"
    )


@app.command()
def show(
    config: ClientConfig,
    model: OptionalModel = None,
    batch: Batch = 1,
    round_bits: RoundBits = 0,
    as_json: Json = False,
) -> None:
    """Say how many correlated OTs the parties have ahead, and for how many inferences of a program they last."""
    from covey.client import Client
    from covey.model import load

    warn_of_own_expiry(config)
    program = load(model or model_beside(config)).program
    stored = Client(config).stored()
    count = stored.inferences(program, batch, round_bits=round_bits)
    if as_json:
        batches = [list(ots) for ots in stored.batches]
        console.print_json({"inferences": count, "batch": batch, "batches": batches})
        return
    ots = sum(sum(ots) for ots in stored.batches)
    console.say(
        f"{ots:,} correlated OTs in store, {len(stored.batches)} batch(es): {count} inference(s) of {batch} sample(s) "
        f"of '{program.name}'"
    )
