"""party, share-weights, infer: the parties and clients of real deployments, each on a machine of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from covey.cli import console
from covey.cli.keys import warn_of_expiry
from covey.cli.options import (
    AtOnce,
    InputFile,
    Json,
    KeyBits,
    LaneRoles,
    Lanes,
    LinearMethod,
    OutputFile,
    PreprocessLinear,
    ServedProtocol,
    Weights,
    check_served,
)
from covey.cli.run import PlotFile, ProfileFlag
from covey.errors import ModelError
from covey.protocols import PROTOCOLS, session_options

PartyConfig = Annotated[Path, typer.Option(metavar="party.toml", help="Who this party is, and whom it knows.")]
DealerConfig = Annotated[Path, typer.Option(metavar="dealer.toml", help="Who the dealer is, and whom it knows.")]
OwnerConfig = Annotated[Path, typer.Option(metavar="owner.toml", help="Who the model owner is, and the parties.")]
ClientConfig = Annotated[Path, typer.Option(metavar="client.toml", help="Who the data owner is, and the parties.")]
LogFormat = Annotated[
    str | None,
    typer.Option(metavar="FORMAT", help="How the log is written: text or json; by default as `log` of [party]."),
]
PartyDevice = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="NAME",
        help="What computes linear layers: auto, cpu, cuda or cuda:<number>; by default as `device` of [party].",
    ),
]
PartyThreads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        metavar="N",
        help="How many threads compute; by default as `threads` of [party], and else one for each processor.",
    ),
]
OptionalModel = Annotated[
    Path | None,
    typer.Argument(metavar="[MODEL]", help="The .covey file; by default the only one beside the configuration."),
]


def party(
    config: PartyConfig,
    log: LogFormat = None,
    device: PartyDevice = None,
    threads: PartyThreads = None,
    until_stdin_closes: Annotated[bool, typer.Option("--until-stdin-closes", hidden=True)] = False,
) -> None:
    """Be one of the parties, until interrupted."""
    _serve(config, until_stdin_closes, log, device, threads)


def dealer(
    config: DealerConfig,
    log: LogFormat = None,
    device: PartyDevice = None,
    threads: PartyThreads = None,
    until_stdin_closes: Annotated[bool, typer.Option("--until-stdin-closes", hidden=True)] = False,
) -> None:
    """Be the dealer, who hands out correlated randomness and sees no shares, until interrupted."""
    _serve(config, until_stdin_closes, log, device, threads, dealer=True)


def _serve(
    config: Path,
    until_stdin_closes: bool,
    log: str | None,
    device: str | None,
    threads: int | None,
    dealer: bool = False,
) -> None:
    from covey.config import check_party_file
    from covey.serving import serve

    check_party_file(config, "dealer" if dealer else "party")
    warn_of_own_expiry(config)
    serve(config, dealer=dealer, log=log, device=device, threads=threads, until_stdin_closes=until_stdin_closes)


def share_weights(
    config: OwnerConfig,
    model: OptionalModel = None,
    weights: Weights = None,
    protocol: ServedProtocol = None,
    as_json: Json = False,
) -> None:
    """Share a model's weights with the parties: each gets shares that tell it nothing."""
    from covey.client import Client
    from covey.model import load

    kind = protocol_of(config, protocol)
    warn_of_own_expiry(config)
    loaded = load(model or model_beside(config), weights=weights)
    loaded.need_weights()
    with console.progress(quiet=as_json) as report:
        shared = Client(config).share_weights(loaded, protocol=kind, progress=report)
    if as_json:
        console.print_json({"program_hash": shared.program_hash, "bytes": shared.bytes})
        return
    info, bytes_sent = PROTOCOLS[kind], shared.bytes
    parties = info.count(len(bytes_sent) - 1) if info.dealer else None
    sizes = ", ".join(f"{info.peer(role, parties)} {console.amount(count)}" for role, count in enumerate(bytes_sent))
    console.say(f"the parties hold shares of '{loaded.program.name}' ({loaded.program.hash[:12]}): {sizes}")


def infer(
    config: ClientConfig,
    input_file: InputFile,
    model: OptionalModel = None,
    output: OutputFile = None,
    profile: ProfileFlag = False,
    plot: PlotFile = None,
    protocol: ServedProtocol = None,
    key_bits: KeyBits = None,
    linear: LinearMethod = None,
    preprocess_linear: PreprocessLinear = False,
    lanes: Lanes = None,
    at_once: AtOnce = None,
    roles: LaneRoles = None,
    as_json: Json = False,
) -> None:
    """Run a private inference with the parties; the result opens here and nowhere else."""
    from covey.cli.outputs import check_output_path, show
    from covey.client import Client
    from covey.inputs import batch_of, read_inputs
    from covey.model import load
    from covey.plot import check_plot

    kind = protocol_of(config, protocol)
    check_plot(plot)
    warn_of_own_expiry(config)
    program = load(model or model_beside(config), data=input_file).program
    check_output_path(output, len(program.outputs))
    inputs = read_inputs(input_file, program)
    options = session_options(key_bits, kind, lanes, linear, preprocess_linear, roles)
    samples = batch_of(inputs, program) if at_once is None else min(batch_of(inputs, program), at_once)
    with (
        console.progress(quiet=as_json) as report,
        Client(config).session(program, kind, samples=samples, progress=console.waiting, **options) as session,
    ):
        if session.absent_dealer is not None:
            console.warn(session.absent_dealer)
        result = session.infer_split(inputs, at_once=at_once, progress=report)
    show(result, output=output, profile=profile, as_json=as_json)
    if plot is not None and result.profile is not None:
        result.profile.plot(plot, title=f"{program.name} on {kind}")


def protocol_of(config: Path, asked: str | None) -> str:
    """The protocol that --protocol names, or else the file. Raises `CoveyError`."""
    from covey.config import protocol_for

    return check_served(protocol_for(config, asked))


def model_beside(config: Path) -> Path:
    """The only .covey file in the configuration's folder, or else in the working folder."""
    for folder in (config.parent, Path(".")):
        found = sorted(folder.glob("*.covey"))
        if len(found) == 1:
            return found[0]
        if found:
            names = ", ".join(path.name for path in found[:5])
            raise ModelError(f"'{folder}' holds several programs ({names}): name one as MODEL")
    raise ModelError(f"no program is at hand: name a .covey file as MODEL, or put it beside '{config}'")


def warn_of_own_expiry(config: Path) -> None:
    from covey.config import own_identity

    identity = own_identity(config)
    if identity is not None:
        warn_of_expiry(f"the certificate of '{identity.name}'", identity.days_left)
