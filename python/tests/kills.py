"""Kill each of the parties, or the dealer, at random moments of inferences, and see what the others and the client say.

    python python/tests/kills.py [--kills 20] [--seed N] [--protocol trio] [--parties N]

Every kill must end the inference on the client and in all other parties' logs with the same reason, naming the party
killed, within twice the time-out; and once it is restarted, a further inference must equal the clear one. Prints a
table, and the seed of the random moments. Exit code 1 if anything did not hold.
"""

from __future__ import annotations

import argparse
import random
import re
import secrets
import sys
import threading
import time
from pathlib import Path

import numpy as np

import covey
from covey.clear import run_clear
from covey.model import Model, load
from covey.parties import Parties
from covey.protocols import protocol
from covey.result import Result

DIGITS = Path(covey.__file__).parent / "data" / "digits"
TIMEOUT = 3.0
SAMPLES = 100


class Log:
    """What a party adds to its log from now on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.start = path.stat().st_size

    def await_reason(self, reason: str, deadline: float) -> bool:
        while True:
            with open(self.path, "rb") as stream:
                stream.seek(self.start)
                if reason in stream.read().decode("utf-8", "replace"):
                    return True
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)


def reason_of(error: str) -> str:
    """The common part of an error: without the way out in brackets at its end."""
    return re.sub(r" \([^()]*\)$", "", error)


def kill_once(
    parties: Parties, model: Model, images: np.ndarray, clear: Result, role: int, moment: float
) -> tuple[str, float, str]:
    """Kill one party `moment` seconds into an inference: what the client heard, after how long, and what was wrong."""
    victim = parties.parties[role]
    logs = [Log(party.log) for party in parties.parties if party is not victim]
    killed: list[float] = []

    def kill() -> None:
        time.sleep(moment)
        killed.append(time.monotonic())
        victim.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    heard = ""
    try:
        # The moment may fall on the opening of the session, on any step of an inference, or between two.
        while not heard:
            parties.run(model, images)
    except covey.CoveyError as error:
        heard = str(error)
    ended = time.monotonic()
    killer.join()
    seconds = ended - killed[0]
    deadline = killed[0] + 2 * TIMEOUT
    reason = reason_of(heard)
    problems = []
    if victim.name not in reason:
        problems.append(f"does not name {victim.name}")
    if seconds > 2 * TIMEOUT:
        problems.append("too late")
    if "cannot be reached" not in reason:  # then no session was there whose end the others could tell of
        silent = [log.path.parent.name for log in logs if not log.await_reason(reason, deadline)]
        problems += [f"{name} does not say the same" for name in silent]
    victim.spawn()
    victim.wait_until_ready()
    after = parties.run(model, images)
    if any((after.integers[name] != due).any() for name, due in clear.integers.items()):
        problems.append("the next inference is wrong")
    return reason, seconds, "; ".join(problems)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20, help="of each party")
    parser.add_argument("--seed", type=int, default=secrets.randbits(32), help="of the random moments")
    parser.add_argument("--protocol", default="trio", help="by default trio")
    parser.add_argument("--parties", type=int, help="how many compute, for beaver")
    arguments = parser.parse_args()
    roles = protocol(arguments.protocol).roles(arguments.parties)
    moments = random.Random(arguments.seed)
    campaign = f"{arguments.kills} kills of each party of {arguments.protocol}"
    print(f"seed {arguments.seed}, time-out {TIMEOUT:g} s, {campaign}", flush=True)
    model = load(DIGITS / "digits.onnx", calibration=DIGITS / "calibration.npy", input_range=(0.0, 1.0))
    images = np.load(DIGITS / "test-images.npy")[:SAMPLES]
    clear = run_clear(model, images)
    failures = 0
    with covey.local(arguments.protocol, parties=arguments.parties, timeout=TIMEOUT) as parties:
        parties.run(model, images)
        usual = parties.run(model, images).profile
        assert usual is not None
        print(f"an inference of {SAMPLES} samples takes {usual.seconds:.2f} s\n")
        print(f"{'party':<8}{'moment':>9}{'told after':>12}  reason")
        for _ in range(arguments.kills):
            for role, name in enumerate(roles):
                moment = moments.uniform(0, 1.5 * usual.seconds)
                reason, seconds, problem = kill_once(parties, model, images, clear, role, moment)
                failures += bool(problem)
                mark = f"  FAILED: {problem}" if problem else ""
                print(f"{name:<8}{moment:>7.3f} s{seconds:>10.3f} s  {reason}{mark}", flush=True)
    kills = arguments.kills * len(roles)
    print(
        f"\n{kills - failures} of {kills} kills: same reason everywhere within {2 * TIMEOUT:g} s, and right inferences "
        f"after"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
