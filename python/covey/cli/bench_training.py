"""bench training: what a private step of training takes."""

from __future__ import annotations

from typing import Annotated

import typer

from covey.cli import console
from covey.cli.bench_options import (
    Adder,
    Cache,
    Classes,
    Layers,
    MedianRepetitions,
    ModelName,
    Network,
    Operator,
    Pool,
    Sequence,
    Shape,
    Size,
    WarmUp,
    Width,
)
from covey.cli.options import Device, Json, LinearMethod, PartyCount, Protocol, Threads, check_served
from covey.errors import CoveyError
from covey.protocols import PROTOCOLS, device_option, threads_option

MinibatchSize = Annotated[int, typer.Option("--batch", min=1, help="Samples of a minibatch.")]
OptimizerName = Annotated[str, typer.Option("--optimizer", metavar="NAME", help="sgd, momentum, adam or adamw.")]
Check = Annotated[
    bool,
    typer.Option("--check/--no-check", help="Compare the losses of all steps, and the weights after them, with clear."),
]


def training(
    name: ModelName,
    shape: Shape = None,
    pool: Pool = None,
    operator: Operator = None,
    size: Size = None,
    classes: Classes = None,
    width: Width = None,
    sequence: Sequence = None,
    layers: Layers = None,
    batch: MinibatchSize = 32,
    optimizer: OptimizerName = "sgd",
    protocol: Protocol = "trio",
    parties: PartyCount = None,
    adder: Adder = None,
    linear: LinearMethod = None,
    network: Network = "loopback",
    repetitions: MedianRepetitions = 3,
    warm_up: WarmUp = 1,
    check: Check = True,
    device: Device = None,
    threads: Threads = None,
    nodes: Annotated[bool, typer.Option("--nodes", help="Show time, bytes and rounds node by node.")] = False,
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """Steps of training a model of the zoo, privately and in plaintext: samples and labels are random.

    A step needs the weights that the step before left, so all preprocessing is in its time.
    """
    from covey.bench.cache import default_folder
    from covey.bench.networks import network as find_network
    from covey.bench.runs import session_options
    from covey.bench.training import Training, measure
    from covey.cli.bench_tables import print_outcome
    from covey.models import find

    count = PROTOCOLS[check_served(protocol)].count(parties)
    options = {"adder": adder, "linear": linear}
    session_options(options)
    setting = Training(
        find(name, shape, pool, sequence, layers, operator=operator, size=size, classes=classes, width=width),
        batch,
        find_network(network),
        protocol,
        count,
        options=options,
        repetitions=repetitions,
        warm_up=warm_up,
        check=check,
        device=device_option(device, protocol),
        threads=threads_option(threads, protocol),
        optimizer=optimizer,
    )
    with console.progress(quiet=as_json) as report:
        outcome = measure(setting, cache if cache is not None else default_folder(), report)
    if as_json:
        console.print_json(outcome.to_json())
    else:
        print_outcome(outcome, nodes=nodes)
    if outcome.differing:
        raise CoveyError(
            f"{outcome.differing} of {outcome.elements} losses and weights differ from clear; please report it with "
            f"the command"
        )
