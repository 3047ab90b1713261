"""The configuration files: party.toml, dealer.toml, owner.toml, client.toml."""

from __future__ import annotations

import contextlib
import enum
import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import tomlkit
from tomlkit.exceptions import TOMLKitError

from covey.errors import CoveyError
from covey.files import write_whole
from covey.protocols import PROTOCOLS, of_parties

KINDS = ("peer", "party", "client")
"""The lists of others that files have."""


@dataclass(frozen=True)
class Peer:
    """Somebody as a configuration file names them: parties have an address, clients what they may ask for."""

    name: str
    fingerprint: str
    address: str | None = None
    may: Sequence[str] | None = None
    role: str | None = None
    """`dealer`, or nothing for a computing party."""


def party_toml(
    name: str, listen: str, key: str, state: str, parties: Sequence[Peer], clients: Sequence[Peer], **more: Any
) -> str:
    """The configuration of one party, or with `role` of the dealer; `parties` are the others, in role order."""
    document = tomlkit.document()
    document["party"] = {"name": name, "listen": listen, "key": key, "state": state, **more}
    document["peer"] = _entries(parties)
    document["client"] = _entries(clients)
    return tomlkit.dumps(document)


def client_toml(
    name: str, key: str, parties: Sequence[Peer], network: Mapping[str, float] | None = None, **more: Any
) -> str:
    """The configuration of a model owner or a data owner; `parties` are all in role order, `network` one to emulate.

    Sessions then choose circuits for that network.
    """
    document = tomlkit.document()
    document["client"] = {"name": name, "key": key, **more}
    document["party"] = _entries(parties)
    if network:
        document["network"] = dict(network)
        document["links"] = _links(network)
    return tomlkit.dumps(document)


def _links(network: Mapping[str, float]) -> dict[str, float]:
    links = {"round_trip_ms": 2 * network.get("latency_ms", 0.0)}
    if "bandwidth_mbit" in network:
        links["bandwidth_mbit"] = network["bandwidth_mbit"]
    return links


def _entries(peers: Sequence[Peer]) -> Any:
    entries = tomlkit.aot()
    for peer in peers:
        entry = tomlkit.table()
        entry["name"] = peer.name
        if peer.address is not None:
            entry["address"] = peer.address
        entry["fingerprint"] = peer.fingerprint
        if peer.role is not None:
            entry["role"] = peer.role
        if peer.may is not None:
            entry["may"] = list(peer.may)
        entries.append(entry)
    return entries


def read(path: str | os.PathLike[str]) -> tomlkit.TOMLDocument:
    """A configuration file as it stands. Raises `CoveyError`."""
    try:
        return tomlkit.parse(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CoveyError(f"configuration file '{path}' does not exist: check the path") from None
    except OSError as error:
        raise CoveyError(f"configuration file '{path}' cannot be read: {error.strerror}") from None
    except (TOMLKitError, UnicodeDecodeError) as error:
        raise CoveyError(f"configuration file '{path}' is not TOML ({error})") from None


class Pinning(enum.Enum):
    """What becomes of the keys that are pinned for somebody when another is."""

    REPLACE = "replace"
    """One key is replaced; a list of several gets one more."""
    ADD = "add"
    """They serve beside it, as while a key is replaced everywhere."""
    ONLY = "only"
    """It serves alone. A party's file keeps another party's former keys, as weights name those that they had."""


def pin(
    path: str | os.PathLike[str], fingerprints: Mapping[str, str], how: Pinning = Pinning.REPLACE
) -> dict[str, Sequence[str]]:
    """Pin keys by name and leave the rest of the file as it is; the keys of each that serve no more."""
    with _alone(Path(path)):
        document = read(path)
        before = {name: _pin_one(path, document, name, fingerprint, how) for name, fingerprint in fingerprints.items()}
        _check_distinct(path, document, fingerprints)
        _replace(Path(path), tomlkit.dumps(document))
    return before


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Nobody else pins keys in this file meanwhile: a change between reading and writing would be lost.

    The lock is the folder's, since the file itself is replaced and a file for the lock would stay behind.
    """
    try:
        folder = os.open(path.resolve().parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise CoveyError(f"configuration file '{path}' cannot be read: {error.strerror}") from None
    try:
        with contextlib.suppress(OSError):  # network file systems may have no locks for folders
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _pin_one(path: str | os.PathLike[str], document: Any, name: str, fingerprint: str, how: Pinning) -> Sequence[str]:
    named = [entry for entry in _all_entries(document) if isinstance(entry.get("name"), str)]
    entries = [entry for entry in named if entry["name"] == name]
    if not entries:
        known = ", ".join(f"'{entry['name']}'" for entry in named) or "nobody"
        raise CoveyError(f"'{path}' names no '{name}' to pin; it names {known}: add the entry or correct the name")
    peers = document.get("peer")
    gone: list[str] = []
    for entry in entries:
        before = _keys_of(entry)
        several = isinstance(entry.get("fingerprints"), list)
        if how is Pinning.ADD or (how is Pinning.REPLACE and several):
            _set_keys(entry, [*before, *({fingerprint} - set(before))], several)
            continue
        former = [key for key in before if key != fingerprint]
        _set_keys(entry, [fingerprint], several=False)
        gone += former
        if how is Pinning.ONLY and former and isinstance(peers, list) and any(entry is peer for peer in peers):
            kept = [str(key) for key in entry.get("formerly", [])]
            entry["formerly"] = [key for key in dict.fromkeys([*kept, *former]) if key != fingerprint]
    return list(dict.fromkeys(gone))


def _check_distinct(path: str | os.PathLike[str], document: Any, fingerprints: Mapping[str, str]) -> None:
    """Refuse what no command would take: a key that two parties, or two clients, have."""
    for kind in KINDS:
        owners = [(key, entry.get("name")) for entry in _entries_of(document, kind) for key in _keys_of(entry)]
        for name, fingerprint in fingerprints.items():
            others = [owner for key, owner in owners if key == fingerprint and owner != name]
            if others and (fingerprint, name) in owners:
                raise CoveyError(
                    f"'{path}': '{name}' would have the key of '{others[0]}': pin what `covey keys show` prints for "
                    f"the key of '{name}'"
                )


def _keys_of(entry: Any) -> list[str]:
    if isinstance(several := entry.get("fingerprints"), list):
        return [str(key) for key in several]
    return [str(entry["fingerprint"])] if entry.get("fingerprint") else []


def _set_keys(entry: Any, keys: Sequence[str], several: bool) -> None:
    if several or len(keys) > 1:
        entry.pop("fingerprint", None)
        entry["fingerprints"] = list(keys)
    else:
        entry.pop("fingerprints", None)
        entry["fingerprint"] = keys[0]


def _all_entries(document: Any) -> list[Any]:
    return [entry for kind in KINDS for entry in _entries_of(document, kind)]


def _entries_of(document: Any, kind: str) -> list[Any]:
    entries = document.get(kind)
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def _replace(path: Path, text: str) -> None:
    """Rewrite a file whole or not at all, with the owner and the permissions it has."""
    path = path.resolve()

    def write(stream: BinaryIO) -> None:
        _keep_owner(path, before, stream)
        stream.write(text.encode())

    try:
        before = path.stat()
        write_whole({path: write}, {path: before.st_mode & 0o777})
    except OSError as error:
        raise CoveyError(f"cannot write '{path}': {error.strerror or error}; it is unchanged") from None


def _keep_owner(path: Path, before: os.stat_result, stream: BinaryIO) -> None:
    """Give a new file to whom the old one belongs: root may pin keys for a daemon of another user."""
    new = os.fstat(stream.fileno())
    if (new.st_uid, new.st_gid) == (before.st_uid, before.st_gid):
        return
    try:
        os.fchown(stream.fileno(), before.st_uid, before.st_gid)
    except OSError:
        ours = new.st_uid == before.st_uid
        way_out = "as root, or chgrp it to a group of yours" if ours else "as that user or as root"
        raise CoveyError(
            f"'{path}' belongs to user {before.st_uid} and group {before.st_gid} and could not stay theirs: run this "
            f"{way_out}; it is unchanged"
        ) from None


def client_file(path: str | os.PathLike[str]) -> tomlkit.TOMLDocument:
    """A model owner's or data owner's file. Raises `CoveyError`, for that of a party or dealer as well."""
    document = read(path)
    section = document.get("party")
    if isinstance(section, dict):
        role = "dealer" if section.get("role") == "dealer" else "party"
        raise CoveyError(
            f"'{path}' is a {role}'s file, which `covey {role}` takes: give owner.toml or client.toml, whose [client] "
            f"says who you are"
        )
    return document


def check_party_file(path: str | os.PathLike[str], command: str) -> None:
    """Refuse a client's file for `covey party` or `covey dealer`. Raises `CoveyError`."""
    if isinstance(read(path).get("client"), dict):
        raise CoveyError(
            f"'{path}' is a client's file, which commands such as `covey share-weights` and `covey infer` take: give "
            f"{command}.toml, whose [party] says who you are"
        )


def parties_of(path: str | os.PathLike[str]) -> tuple[int, bool]:
    """How many computing parties a client's file lists, and whether it lists a dealer. Raises `CoveyError`."""
    listed = client_file(path).get("party")
    roles = [entry.get("role") for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    return sum(role != "dealer" for role in roles), "dealer" in roles


def protocol_for(path: str | os.PathLike[str], asked: str | None) -> str:
    """The protocol `asked` for, or else the one a client's file names, or else that of the parties it lists.

    Raises `CoveyError` for a name that no protocol among servers has, and for a party's file.
    """
    section = client_file(path).get("client")
    if asked is not None:
        return asked
    named = section.get("protocol") if isinstance(section, dict) else None
    if named is None:
        return of_parties(*parties_of(path)) or "trio"
    *others, last = (name for name, info in PROTOCOLS.items() if info.served)
    if named not in (*others, last):
        raise CoveyError(
            f"'{path}': client.protocol: '{named}' is no protocol among parties: use {', '.join(others)} or {last}"
        )
    return str(named)


def own_identity(path: str | os.PathLike[str]) -> Any:
    """The key a configuration file names, or `None` where none can be read: whoever uses the file says so."""
    from covey import _core

    document = read(path)
    for kind in ("party", "client"):
        table = document.get(kind)
        if isinstance(table, dict) and isinstance(table.get("key"), str):
            try:
                return _core.Identity.load(Path(path).parent / str(table["key"]))
            except CoveyError:
                return None
    return None
