"""init party, owner, client, dealer: a key and a configuration file, ready but for the others' fingerprints."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from covey.cli import console
from covey.cli.keys import key_file
from covey.cli.options import ServedProtocol, check_served
from covey.errors import CoveyError, OptionError
from covey.files import write_whole
from covey.initial import RIGHTS, Allowed, Server, client_text, party_text
from covey.protocols import DEALER, PROTOCOLS, of_parties

app = typer.Typer(
    help="Write the key and the configuration file of a party, a dealer, a model owner or a data owner.",
    no_args_is_help=True,
)

LONGEST_NAME = 32
"""Characters, as the parties' messages have it."""

USUAL_CLIENTS = ("owner=share-weights", "data=infer")

LONE_CLIENTS = ("owner=share-weights", "data=infer,take-role")
"""Those of a party without others: data owners are its other party."""

Name = Annotated[str, typer.Option(metavar="NAME", help="What the others' files call it.")]
Listen = Annotated[str, typer.Option(metavar="HOST:PORT", help="Where it listens; 0.0.0.0 stands for every address.")]
Others = Annotated[
    list[str] | None,
    typer.Option("--peer", metavar="NAME=HOST:PORT", help="Another computing party; once for each."),
]
Parties = Annotated[
    list[str] | None,
    typer.Option("--peer", metavar="NAME=HOST:PORT", help="A computing party; once for each, P0 first, then P1, .."),
]
Dealer = Annotated[str | None, typer.Option(metavar="NAME=HOST:PORT", help="The dealer, where the protocol has one.")]
Clients = Annotated[
    list[str] | None,
    typer.Option(
        "--client",
        metavar="NAME[=RIGHT,..]",
        help=f"Who may ask for what ({', '.join(RIGHTS)}); once for each. By default {' and '.join(USUAL_CLIENTS)}; "
        f"without other parties {LONE_CLIENTS[1]}.",
    ),
]
Queries = Annotated[
    int | None, typer.Option(min=0, metavar="N", help="Samples of one program that each client may have predicted.")
]
RoundBits = Annotated[
    int | None, typer.Option(min=0, max=24, metavar="N", help="Low bits that the outputs of each client lose.")
]
State = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="Where it keeps shares; by default beside the configuration.")
]
Out = Annotated[Path, typer.Option(metavar="FOLDER", help="Where the files go; it is made if need be.")]
Days = Annotated[int, typer.Option(help="How long a new key's certificate is valid, 1 to 3650 days.")]
Force = Annotated[bool, typer.Option("--force", help="Write the configuration anew. A key is never overwritten.")]


@app.command()
def party(
    name: Name,
    listen: Listen = "0.0.0.0:7100",
    peer: Others = None,
    dealer: Dealer = None,
    client: Clients = None,
    queries: Queries = None,
    round_bits: RoundBits = None,
    state: State = None,
    protocol: ServedProtocol = None,
    out: Out = Path("."),
    days: Days = 365,
    force: Force = False,
) -> None:
    """Write NAME.pem and party.toml of a computing party."""
    servers = _servers(peer, dealer)
    computing = 1 + sum(not server.dealer for server in servers)
    _fitting(protocol, computing, dealer is not None)
    clients = _clients(client or (USUAL_CLIENTS if servers else LONE_CLIENTS), queries, round_bits)
    pinned: list[Server | Allowed] = [*servers, *clients]
    _check_distinct(name, pinned)
    config = out / "party.toml"
    text = party_text(config, name, _address("--listen", listen), servers, clients, state=state)
    _write(config, text, name, days, force, pinned, [f"covey party --config {shlex.quote(str(config))}"])


@app.command("dealer")
def dealer_(
    name: Name = DEALER,
    listen: Listen = "0.0.0.0:7100",
    peer: Parties = None,
    client: Clients = None,
    state: State = None,
    out: Out = Path("."),
    days: Days = 365,
    force: Force = False,
) -> None:
    """Write NAME.pem and dealer.toml of the dealer, who hands out correlated randomness and sees no shares."""
    servers = _servers(peer, None)
    _fitting(None, len(servers), True)
    clients = _clients(client or USUAL_CLIENTS, None, None)
    pinned: list[Server | Allowed] = [*servers, *clients]
    _check_distinct(name, pinned)
    config = out / "dealer.toml"
    text = party_text(config, name, _address("--listen", listen), servers, clients, state=state, dealer=True)
    _write(config, text, name, days, force, pinned, [f"covey dealer --config {shlex.quote(str(config))}"])


@app.command()
def owner(
    name: Name = "owner",
    peer: Parties = None,
    dealer: Dealer = None,
    protocol: ServedProtocol = None,
    out: Out = Path("."),
    days: Days = 365,
    force: Force = False,
) -> None:
    """Write NAME.pem and owner.toml of a model owner, who shares weights."""
    config = out / "owner.toml"
    then = [f"covey share-weights model.covey --config {shlex.quote(str(config))}"]
    _client(config, name, peer, dealer, protocol, days, force, then)


@app.command()
def client(
    name: Name = "data",
    peer: Parties = None,
    dealer: Dealer = None,
    protocol: ServedProtocol = None,
    out: Out = Path("."),
    days: Days = 365,
    force: Force = False,
) -> None:
    """Write NAME.pem and client.toml of a data owner, who has inputs and opens results."""
    config = out / "client.toml"
    shown = shlex.quote(str(config))
    then = [f"covey doctor --config {shown}", f"covey infer model.covey --config {shown} --input x.npy"]
    _client(config, name, peer, dealer, protocol, days, force, then)


def _client(
    config: Path,
    name: str,
    peer: list[str] | None,
    dealer: str | None,
    protocol: str | None,
    days: int,
    force: bool,
    then: Sequence[str],
) -> None:
    servers = _servers(peer, dealer)
    kind = _fitting(protocol, sum(not server.dealer for server in servers), dealer is not None)
    _check_distinct(name, servers)
    _write(config, client_text(config, name, servers, kind), name, days, force, servers, then)


def _write(
    config: Path,
    text: str,
    name: str,
    days: int,
    force: bool,
    pinned: Sequence[Server | Allowed],
    then: Sequence[str],
) -> None:
    """Write the file and, where there is none, the key; say what comes next."""
    from covey import _core

    key = key_file(name, config.parent)
    if config.exists() and not force:
        raise CoveyError(
            f"'{config}' exists already: move it away, or say --force to write it anew, without the fingerprints in it"
        )
    config.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = not key.exists()
    identity = _core.Identity.generate(name, days) if made else _core.Identity.load(key)
    if made:
        identity.save(key)
    write_whole({config: lambda stream: stream.write(text.encode())}, {config: 0o600})
    console.note(f"wrote {key} (keep it on this machine)" if made else f"kept the key {key}")
    console.note(f"wrote {config}; the others pin this fingerprint:")
    console.say(identity.fingerprint)
    console.note("next, with the fingerprints that `covey init` or `covey keys show NAME.pem` prints there:")
    pins = " ".join(f"{shlex.quote(other.name)} covey:…" for other in pinned)
    console.note(f"  covey keys pin {shlex.quote(str(config))} {pins}")
    for command in then:
        console.note(f"  {command}")


def _servers(peers: list[str] | None, dealer: str | None) -> list[Server]:
    named = [("--peer", text, False) for text in peers or ()] + ([("--dealer", dealer, True)] if dealer else [])
    return [_server(option, text, is_dealer) for option, text, is_dealer in named]


def _server(option: str, text: str, dealer: bool) -> Server:
    name, given, address = text.partition("=")
    if not given:
        raise OptionError(f"{option} '{text}' has no address: write it as NAME=HOST:PORT")
    return Server(_name(name), _address(option, address), dealer)


def _clients(given: Sequence[str], queries: int | None, round_bits: int | None) -> list[Allowed]:
    return [_allowed(text, queries, round_bits) for text in given]


def _allowed(text: str, queries: int | None, round_bits: int | None) -> Allowed:
    name, given, rights = text.partition("=")
    may = rights.split(",") if given else ["infer"]
    if wrong := [right for right in may if right not in RIGHTS]:
        raise OptionError(f"--client '{text}': '{wrong[0]}' is no right: use {', '.join(RIGHTS)}")
    limits: dict[str, Any] = {"queries": queries, "round_bits": round_bits} if "infer" in may else {}
    return Allowed(_name(name), tuple(may), **limits)


def _name(text: str) -> str:
    if not text.isprintable() or not 1 <= len(text) <= LONGEST_NAME:
        raise OptionError(f"'{text}' is no name: use 1 to {LONGEST_NAME} printable characters")
    return text


def _address(option: str, text: str) -> str:
    host, _, port = text.rpartition(":")
    if not host or not text.isprintable() or not port.isascii() or not port.isdigit() or int(port) >= 1 << 16:
        raise OptionError(f"{option}: '{text}' is no address: write it as HOST:PORT")
    return text


def _check_distinct(own: str, others: Sequence[Server | Allowed]) -> None:
    seen = {_name(own)}
    for other in others:
        if other.name in seen:
            raise OptionError(f"'{other.name}' is named twice: everybody has a name of their own")
        seen.add(other.name)


def _fitting(asked: str | None, computing: int, dealer: bool) -> str:
    """The protocol of so many parties. Raises `OptionError` where that is not what is asked for, or none."""
    if asked is not None:
        check_served(asked)
    fitting = of_parties(computing, dealer)
    if fitting is None or (asked is not None and asked != fitting):
        count = f"{computing} computing {'party' if computing == 1 else 'parties'}"
        takes = ", ".join(_takes(name) for name, info in PROTOCOLS.items() if info.served)
        raise OptionError(
            f"{count}{' and a dealer' if dealer else ''} are not what {asked or 'any protocol'} takes ({takes}): "
            f"name every other party with --peer NAME=HOST:PORT"
        )
    return fitting


def _takes(name: str) -> str:
    info = PROTOCOLS[name]
    least, most = min(info.computing), max(info.computing)
    return f"{name} {least if least == most else f'{least} to {most}'}{' and --dealer' if info.dealer else ''}"
