"""Two clients ask parties on this machine without a pause while an operator does all that operators do.

    python python/tests/operations.py [--minutes 30] [--protocol trio] [--json]

Round after round: every key is replaced (each party's, the model owner's, both clients'), files with a mistake are
reloaded, a second model is shared, asked and deleted, the store is filled until the disk is full, used and emptied. A
request that is allowed must give the clear result to the bit; one that is not must be refused in one line. Exit code 1
if any request did neither.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import served
from covey import _core
from covey.clear import run_clear
from covey.client import Client
from covey.config import Pinning, pin, read
from covey.errors import CoveyError
from covey.files import write_whole
from covey.model import Model, load
from covey.parties import Party, local

SECOND = "data-two"
PAUSE = 2.0
"""Seconds between two acts of the operator."""
FULL = 200_000
"""Bytes a file may have while the disk counts as full: more than a count of queries, less than a stored run."""


@dataclass
class Tally:
    """What became of requests and acts."""

    done: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def ok(self, what: str) -> None:
        with self.lock:
            self.done[what] += 1

    def refusal(self, what: str, line: str) -> None:
        """A refusal that was to come: it must be one line."""
        with self.lock:
            if "\n" in line.strip() or not line.strip():
                self.failed.append(f"{what}: not one line: {line!r}")
            else:
                self.refused[what] += 1

    def failure(self, what: str, problem: object) -> None:
        with self.lock:
            self.failed.append(f"{what}: {problem}")


class World:
    """The parties, an owner with two models, and two clients."""

    def __init__(self, parties: list[Party], folder: Path, protocol: str) -> None:
        self.parties = parties
        self.folder = folder
        self.protocol = protocol
        self.owner = folder / "model-owner" / "owner.toml"
        self.clients = {"data-owner": folder / "data-owner" / "client.toml", SECOND: folder / SECOND / "client.toml"}
        self.programs = [served.network(seed).save(folder / f"model-{seed}.covey")[0] for seed in (1, 2)]
        self.models: list[Model] = [load(program) for program in self.programs]
        self.replaced = 0
        self._add_second_client()

    def _add_second_client(self) -> None:
        """A client like the first, with a key of its own."""
        place = self.folder / SECOND
        shutil.copytree(self.folder / "data-owner", place)
        (place / "key.pem").unlink()
        identity = _core.Identity.generate(SECOND, 2)
        identity.save(place / "key.pem")
        for party in self.parties:
            entry = f'\n[[client]]\nname = "{SECOND}"\nfingerprint = "{identity.fingerprint}"\nmay = ["infer"]\n'
            party.config.write_text(party.config.read_text() + entry)
        text = (place / "client.toml").read_text().replace('"data-owner"', f'"{SECOND}"', 1)
        (place / "client.toml").write_text(text)
        for party in self.parties:
            self.reload(party)

    def reload(self, party: Party, says: str = "configuration read again") -> None:
        """SIGHUP, and wait until the party has read its file."""
        before = party.log.read_text().count(says)
        assert party.pid is not None
        os.kill(party.pid, signal.SIGHUP)
        deadline = time.monotonic() + 20
        while party.log.read_text().count(says) == before:
            if time.monotonic() > deadline:
                raise CoveyError(f"party {party.name} did not say '{says}' within 20 s")
            time.sleep(0.02)

    def replace_key(self, name: str, config: Path) -> None:
        """As docs/three-hosts.md says: pinned beside the old one everywhere, taken up, pinned alone everywhere."""
        self.replaced += 1
        file = f"key-{self.replaced}.pem"
        identity = _core.Identity.generate(name, 2)
        identity.save(config.parent / file)
        is_party = any(party.name == name for party in self.parties)
        others = [party.config for party in self.parties if party.config != config]
        if is_party:
            others += [self.owner, *self.clients.values()]

        def pinned(how: Pinning) -> None:
            for other in others:
                pin(other, {name: identity.fingerprint}, how)
            for party in self.parties:
                if party.config in others:
                    self.reload(party)

        pinned(Pinning.ADD)
        table = read(config)["party" if is_party else "client"]
        # Whole or not at all, as its client reads it all the time.
        changed = config.read_text().replace(f'key = "{table["key"]}"', f'key = "{file}"', 1)
        write_whole({config: lambda stream: stream.write(changed.encode())}, {config: 0o600})
        if is_party:
            self.reload(next(party for party in self.parties if party.name == name))
        else:
            # What began with the former key ends before that key serves no more.
            time.sleep(PAUSE)
        pinned(Pinning.ONLY)

    def command(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        return served.run_command(*arguments)


def ask(world: World, name: str, model: Model, seed: int, count: int) -> None:
    """One session with some requests, each compared. Raises `CoveyError`."""
    with Client(world.clients[name]).session(model.program, world.protocol) as session:
        for number in range(count):
            x = served.samples(seed + number)
            result = session.infer(x)
            due = run_clear(model, x)
            for output, integers in due.integers.items():
                if (result.integers[output] != integers).any():
                    raise AssertionError(f"output {output} differs from the clear result")


def client_loop(world: World, name: str, tally: Tally, stop: threading.Event) -> None:
    seed = 0
    while not stop.is_set():
        seed += 10
        try:
            ask(world, name, world.models[0], seed, 1 + seed // 10 % 5)
            tally.ok(f"sessions of {name}")
        except Exception as error:  # whatever it is, it was not to happen
            tally.failure(f"{name}, at {time.strftime('%H:%M:%S')}", repr(error))


def acts(world: World, tally: Tally) -> list[tuple[str, Callable[[], None]]]:
    """What the operator and the owner do in a round."""

    def checked(what: str, *arguments: object) -> None:
        ended = world.command(*arguments)
        if ended.returncode:
            tally.failure(what, ended.stderr.strip())
        else:
            tally.ok(what)

    def to_be_refused(what: str, *arguments: object) -> None:
        ended = world.command(*arguments)
        if ended.returncode == 0:
            tally.failure(what, "it was to be refused")
        else:
            try:
                tally.refusal(what, served.one_line(ended.stderr))
            except AssertionError as error:
                tally.failure(what, f"not one line: {error}")

    def replace(name: str, config: Path) -> Callable[[], None]:
        def act() -> None:
            world.replace_key(name, config)
            tally.ok("keys replaced")

        return act

    def mistake() -> None:
        party = world.parties[0]
        sound = party.config.read_text()
        party.config.write_text("[party")
        world.reload(party, says="the configuration stays as it was")
        party.config.write_text(sound)
        world.reload(party)
        tally.ok("files with a mistake reloaded")

    def second_model() -> None:
        data = world.clients["data-owner"]
        x = world.folder / "x.npy"
        np.save(x, served.samples(3))
        infer = ("infer", world.programs[1], "--config", data, "--protocol", world.protocol, "--input", x)
        to_be_refused("requests for a model that is not shared", *infer)
        checked(
            "models shared",
            "share-weights", world.programs[1], "--config", world.owner, "--protocol", world.protocol,
        )  # fmt: skip
        checked("requests for the second model", *infer)
        ask(world, SECOND, world.models[1], 7, 3)
        to_be_refused("deletions by another client", "weights", "delete", world.programs[1], "--config", data, "--yes")
        checked("models deleted", "weights", "delete", world.programs[1], "--config", world.owner, "--yes")
        to_be_refused("requests for a deleted model", *infer)

    def share_again() -> None:
        checked(
            "models shared again under a new key",
            "share-weights", world.programs[0], "--config", world.owner, "--protocol", world.protocol,
        )  # fmt: skip

    def full_store() -> None:
        data = world.clients["data-owner"]
        fill = ("store", "fill", world.programs[0], "--config", data, "--inferences", 20, "--batch", 512)
        checked("stores filled", "store", "fill", world.programs[0], "--config", data, "--inferences", 5, "--batch", 2)
        for party in world.parties:
            assert party.pid is not None
            resource.prlimit(party.pid, resource.RLIMIT_FSIZE, (FULL, resource.RLIM_INFINITY))
        to_be_refused("stores filled on a full disk", *fill)
        ask(world, "data-owner", world.models[0], 11, 2)
        tally.ok("sessions of stored runs on a full disk")
        for party in world.parties:
            assert party.pid is not None
            resource.prlimit(party.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        checked("stores deleted", "store", "delete", "--all", "--config", data, "--yes")
        checked("stores filled", "store", "fill", world.programs[0], "--config", data, "--inferences", 2)

    def doctor() -> None:
        checked("doctors that find nothing", "doctor", "--config", world.clients["data-owner"])

    keys = [(f"a new key for {party.name}", replace(party.name, party.config)) for party in world.parties]
    keys += [(f"a new key for {name}", replace(name, config)) for name, config in world.clients.items()]
    keys.append(("a new key for the owner", replace("model-owner", world.owner)))
    others = [
        ("a file with a mistake", mistake),
        ("a second model", second_model),
        ("weights shared again", share_again),
        ("a full store", full_store),
        ("doctor", doctor),
    ]
    return [*keys, *others]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30.0, help="how long; a round is finished, by default 30")
    parser.add_argument("--protocol", default="trio", choices=["trio", "quad"], help="by default trio")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args()
    tally = Tally()
    with local(arguments.protocol) as running:
        assert running.folder is not None
        world = World(running.parties, running.folder, arguments.protocol)
        Client(world.owner).share_weights(
            world.models[0].program, world.models[0].need_weights(), protocol=arguments.protocol
        )
        stop = threading.Event()
        clients = [
            threading.Thread(target=client_loop, args=(world, name, tally, stop), daemon=True) for name in world.clients
        ]
        started = time.monotonic()
        for client in clients:
            client.start()
        rounds = 0
        while time.monotonic() < started + 60 * arguments.minutes:
            for what, act in acts(world, tally):
                if sys.stderr.isatty():
                    print(f"\r{(time.monotonic() - started) / 60:5.1f} min  {what:<40}", end="", file=sys.stderr)
                try:
                    act()
                except Exception as error:  # the round goes on, and the report says so
                    tally.failure(what, repr(error))
                time.sleep(PAUSE)
            rounds += 1
        stop.set()
        for client in clients:
            client.join(60)
        minutes = (time.monotonic() - started) / 60
        kept = Path(tempfile.mkdtemp(prefix="covey-operations-")) if tally.failed else None
        for party in running.parties:
            if kept is not None:
                shutil.copy(party.log, kept / f"{party.name}.log")
    if arguments.json:
        print(
            json.dumps(
                {
                    "protocol": arguments.protocol, "minutes": minutes, "rounds": rounds, "done": tally.done,
                    "refused": tally.refused, "failed": tally.failed,
                },
                indent=2,
            )
        )  # fmt: skip
    else:
        print(f"{minutes:.1f} minutes, {rounds} rounds, {arguments.protocol}\n")
        for title, counts in (("done", tally.done), ("refused in one line", tally.refused)):
            print(title)
            for what, count in sorted(counts.items()):
                print(f"  {count:>8}  {what}")
        print(f"\n{len(tally.failed)} failed" + (f"; logs in {kept}" if kept else ""))
        for line in tally.failed[:20]:
            print(f"  {line}")
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
