"""Kill processes while they use what they have in store, and see that nothing is used twice and that they go on.

    python python/tests/store_kills.py [--runs 1000] [--daemon-kills 24] [--seed N]

First `--runs` kills of a process that does nothing but take pieces from a store on disk, for each kind of store: the
hash of each piece used is written down, and none may come twice (`crates/ot/examples/store_kills.rs`). Then
`--daemon-kills` kills of parties, and of the dealer, at random moments of inferences that take their correlated
randomness from the store, for each protocol: once the one killed is back, the next inference must equal the clear one
and take from the store within 5 s, and no party may have more in store than before. While the dealer is away they take
from the store without it. Last, P0's store is put
back from a copy: the others must refuse it. Prints tables; exit code 1 if anything did not hold.
"""

from __future__ import annotations

import argparse
import random
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

import covey
from covey.clear import run_clear
from covey.client import Client
from covey.model import Model, load
from covey.parties import Parties, Party
from covey.protocols import protocol as find_protocol
from covey.result import Result

ROOT = Path(__file__).parents[2]
DIGITS = Path(covey.__file__).parent / "data" / "digits"
TIMEOUT = 3.0
RESUME = 5.0
PUT_BACK = "older one, put back"
DEALER = "dealer"
FOLDERS = {"two-party": "correlated-ots", "trio": "stored-runs", "quad": "stored-runs", "beaver": "stored-runs"}


def campaign(runs: int) -> int:
    """Kill a process that uses up stores: its exit code."""
    cargo = ["cargo", "run", "--quiet", "--release", "--locked", "-p", "covey-ot", "--example", "store_kills", "--"]
    return subprocess.run([*cargo, "--runs", str(runs)], cwd=ROOT, check=False).returncode


class Place:
    """Parties with a store, and what an inference must give."""

    def __init__(self, name: str, parties: Parties) -> None:
        self.name = name
        self.parties = parties
        self.model: Model = load(DIGITS / "digits.onnx", calibration=DIGITS / "calibration.npy", input_range=(0.0, 1.0))
        self.images = np.load(DIGITS / "test-images.npy")[:1]
        self.clear: Result = run_clear(self.model, self.images)
        Client(parties.owner_config).share_weights(self.model, protocol=name)

    def fill(self, inferences: int) -> None:
        with Client(self.parties.client_config).session(self.model.program, self.name) as session:
            session.fill_store(1, inferences)

    def infer(self) -> tuple[bool, bool]:
        """Whether one inference equals the clear one, and whether it took from the store."""
        with Client(self.parties.client_config).session(self.model.program, self.name) as session:
            result = session.infer(self.images)
        right = all((result.integers[name] == due).all() for name, due in self.clear.integers.items())
        assert result.profile is not None
        return right, any(node.op == "from the store" for node in result.profile.nodes)

    def left(self) -> list[int]:
        """What each party has in store: OTs or runs."""
        sides = [answer["status"] for answer in Client(self.parties.client_config).status()]
        if self.name != "two-party":
            return [sum(runs["left"] for runs in side["runs"]) for side in sides]
        return [sum(sum(left) for store in side["stores"] for _, left in store["batches"]) for side in sides]

    def store(self, party: Party) -> Path:
        (state,) = party.config.parent.glob("state*")
        return state / FOLDERS[self.name]


def restart(party: Party) -> float:
    """Start a party that was killed: when that began."""
    start = time.monotonic()
    party.spawn()
    party.wait_until_ready()
    return start


def kill_once(place: Place, victim: Party, moment: float) -> tuple[float, str]:
    """Kill a party `moment` seconds into an inference: how long it took to go on, and what was wrong."""
    before = place.left()

    def kill() -> None:
        time.sleep(moment)
        victim.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        while killer.is_alive():
            place.infer()
    except covey.CoveyError:
        pass
    killer.join()
    problems = []
    if victim.name == DEALER and place.infer() != (True, True):
        problems.append("no inference from the store without the dealer")
    start = restart(victim)
    after = place.left()
    right, stored = place.infer()
    seconds = time.monotonic() - start
    if not right:
        problems.append("the next inference is wrong")
    if not stored:
        problems.append("the next inference did not take from the store")
    if seconds >= RESUME:
        problems.append("too late")
    if any(now > was for now, was in zip(after, before, strict=True)):
        problems.append(f"more in store than before: {before}, {after}")
    return seconds, "; ".join(problems)


def put_back(place: Place, folder: Path) -> str:
    """Put P0's store back from a copy made before an inference: what was wrong."""
    first = place.parties.parties[0]
    first.kill()
    copy = folder / place.name
    shutil.copytree(place.store(first), copy)
    restart(first)
    if not place.infer()[1]:
        return "the inference before the copy is put back did not take from the store"
    first.kill()
    shutil.rmtree(place.store(first))
    shutil.copytree(copy, place.store(first))
    restart(first)
    right, stored = place.infer()
    logs = [party.log.read_text("utf-8", "replace") for party in place.parties.parties]
    if stored or not right or not all(PUT_BACK in log for log in logs):
        return "an older copy that was put back is not refused by all"
    return ""


def daemons(name: str, kills: int, moments: random.Random, folder: Path) -> int:
    """Kill parties of a protocol while they use their stores: how many times something was wrong."""
    roles = find_protocol(name).roles(None)
    failures, slowest = 0, 0.0
    with covey.local(name, timeout=TIMEOUT) as parties:
        place = Place(name, parties)
        place.fill(8 * kills + 8)
        start = time.monotonic()
        if place.infer() != (True, True):
            raise SystemExit(f"{name}: an inference does not take from a store that was filled")
        usual = time.monotonic() - start
        for kill in range(kills):
            role = kill % len(roles)
            moment = moments.uniform(0, 2 * usual)
            seconds, problem = kill_once(place, parties.parties[role], moment)
            slowest = max(slowest, seconds)
            failures += bool(problem)
            if problem:
                print(f"{name}: {roles[role]} killed after {moment:.3f} s: FAILED: {problem}", flush=True)
            if min(place.left()) == 0:
                place.fill(8 * (kills - kill))
        problem = put_back(place, folder)
        failures += bool(problem)
    refused = problem or "refused by all"
    print(f"{name:<16}{kills:>7}{failures:>9}{slowest:>15.2f} s  {refused}", flush=True)
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=1000, help="kills of the process for each kind of store")
    parser.add_argument("--daemon-kills", type=int, default=24, help="kills of parties for each protocol")
    parser.add_argument("--seed", type=int, default=secrets.randbits(32), help="of the moments of the parties' kills")
    arguments = parser.parse_args()
    code = campaign(arguments.runs)
    print(f"\nseed {arguments.seed}")
    print(f"{'parties':<16}{'kills':>7}{'failed':>9}{'slowest start':>17}  an older copy of P0's store")
    moments = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as folder:
        failures = sum(daemons(name, arguments.daemon_kills, moments, Path(folder)) for name in FOLDERS)
    return 1 if code or failures else 0


if __name__ == "__main__":
    sys.exit(main())
