"""The text of configuration files as `covey init` first writes them: keys explained, no fingerprint yet."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomlkit

from covey.protocols import DEALER

RIGHTS = ("share-weights", "share-data", "infer", "take-role", "approximate", "serve-weights", "fill-store")
"""What a client may ask a party for."""

COLUMN = 34
"""Where the comments begin."""


@dataclass(frozen=True)
class Server:
    """A computing party, or the dealer."""

    name: str
    address: str
    dealer: bool = False


@dataclass(frozen=True)
class Allowed:
    """A client of a party, what it may ask for, and its limits."""

    name: str
    may: tuple[str, ...]
    queries: int | None = None
    round_bits: int | None = None


def party_text(
    config: Path,
    name: str,
    listen: str,
    servers: Sequence[Server],
    clients: Sequence[Allowed],
    *,
    state: Path | None = None,
    dealer: bool = False,
) -> str:
    """party.toml, or with `dealer` dealer.toml; `servers` are the others."""
    key = "state" if state is not None else "# state"
    folder = str(state.absolute()) if state is not None else f"state-{_as_file(name)}"
    lines = [
        *_title(config, name),
        "# SIGHUP has the running daemon read [[peer]] and [[client]] again.",
        "",
        "[party]",
        *([_key("role", DEALER, "it hands out correlated randomness and holds no shares")] if dealer else []),
        _key("name", name, "errors on all machines call it so"),
        _key("listen", listen, "the others must reach this port"),
        _key("key", f"{name}.pem", "never leaves this machine"),
        _key(key, folder, "folder of what it keeps, such as its shares of weights"),
        _key("# timeout", 10, "seconds a peer or client may take while a session is set up"),
        _key("# memory_mb", 48000, "MiB for all sessions; by default three quarters of the memory"),
        _key("# sessions", 16, "sessions and uploads at once"),
    ]
    for server in servers:
        lines += ["", "[[peer]]", *_server(config, server)]
    for client in clients:
        lines += ["", "[[client]]", _key("name", client.name), _fingerprint(config, client.name)]
        lines.append(_key("may", list(client.may), f"of {', '.join(RIGHTS)}"))
        if "infer" in client.may:
            lines += [
                _optional("queries", client.queries, 1000, "samples of one program in all; by default any number"),
                _optional("round_bits", client.round_bits, 4, "low bits its outputs lose; by default none"),
            ]
    return "\n".join(lines) + "\n"


def client_text(config: Path, name: str, servers: Sequence[Server], protocol: str) -> str:
    """owner.toml or client.toml; `servers` are all, the computing parties in the order of their roles."""
    lines = [
        *_title(config, name),
        "",
        "[client]",
        _key("name", name, "what the parties' files call it"),
        _key("key", f"{name}.pem", "never leaves this machine"),
        _key("protocol", protocol, "what --protocol is by default"),
        _key("# timeout", 10, "seconds without a sign of life after which a peer has failed"),
    ]
    for number, server in enumerate(servers):
        role = "the dealer" if server.dealer else f"P{number}"
        lines += ["", f"[[party]]{' ' * (COLUMN - 9)}# {role}", *_server(config, server)]
    return "\n".join(lines) + "\n"


def _title(config: Path, name: str) -> list[str]:
    return [
        f"# {config.name} of {name}, by `covey init`. docs/three-hosts.md explains every key.",
        "# A key behind # has its default; fingerprints are what each of the others sees of its own `covey keys show`.",
    ]


def _server(config: Path, server: Server) -> list[str]:
    role = [_key("role", DEALER)] if server.dealer else []
    return [_key("name", server.name), *role, _key("address", server.address), _fingerprint(config, server.name)]


def _fingerprint(config: Path, name: str) -> str:
    return _key("fingerprint", "", f"covey keys pin {shlex.quote(config.name)} {shlex.quote(name)} covey:…")


def _optional(key: str, value: int | None, example: int, comment: str) -> str:
    return _key(f"# {key}", example, comment) if value is None else _key(key, value, comment)


def _key(key: str, value: Any, comment: str = "") -> str:
    text = f"{key} = {tomlkit.item(value).as_string()}"
    return f"{text:<{COLUMN}} # {comment}" if comment else text


def _as_file(name: str) -> str:
    return name.replace("/", "_").replace("\\", "_")
