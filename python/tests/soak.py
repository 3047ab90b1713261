"""Ask parties on this machine for predictions for a long time, over mutual TLS, and see whether their memory grows.

    python python/tests/soak.py [--queries 100000] [--sessions N] [--protocol trio] [--parties N] [--json]

The digits network, one image a query, all in one session or in `--sessions` one after the other; one query in a hundred
is compared with the clear result. After the first 1,000 queries (a tenth of fewer) the resident memory of each party
and of the client may grow by less than 1 %: a level is the median of the samples of one tenth of the queries. Exit code
1 if memory grew or a result was wrong.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np

import covey
from covey.clear import run_clear
from covey.client import Client
from covey.model import load
from covey.protocols import protocol

DIGITS = Path(covey.__file__).parent / "data" / "digits"
WARM = 1000
MOST = 0.01


def resident(pid: int) -> int:
    """Resident memory of a process, in KiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise SystemExit(f"process {pid} is gone")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--queries", type=int, default=100_000)
    parser.add_argument("--sessions", type=int, default=1, help="one after the other, of as many queries each")
    parser.add_argument("--protocol", default="trio", help="by default trio")
    parser.add_argument("--parties", type=int, help="how many compute, for beaver")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args()
    queries, sessions = arguments.queries, arguments.sessions
    if not 1 <= sessions <= queries or queries < 20:
        parser.error("at least 20 queries, and no more sessions than queries")
    model = load(DIGITS / "digits.onnx", calibration=DIGITS / "calibration.npy", input_range=(0.0, 1.0))
    images = np.load(DIGITS / "test-images.npy")
    clear = run_clear(model, images)
    own = int(Path("/proc/self").readlink().name)
    wrong = compared = 0
    with covey.local(arguments.protocol, parties=arguments.parties) as parties:
        parties.share(model)
        processes = {
            name: party.pid
            for name, party in zip(protocol(arguments.protocol).roles(arguments.parties), parties.parties, strict=True)
        }
        processes["client"] = own
        samples: list[tuple[int, dict[str, int]]] = []
        every = max(1, min(100, queries // 100))
        start = time.perf_counter()
        done = 0
        for number in range(sessions):
            until = queries * (number + 1) // sessions
            with Client(parties.client_config).session(model.program, arguments.protocol) as session:
                while done < until:
                    at = done % len(images)
                    result = session.infer(images[at : at + 1])
                    done += 1
                    if done % 100 == 0 or done == 1:
                        compared += 1
                        wrong += any(
                            (result.integers[name] != due[at : at + 1]).any() for name, due in clear.integers.items()
                        )
                    if done % every == 0:
                        samples.append((done, {name: resident(pid) for name, pid in processes.items() if pid}))
        seconds = time.perf_counter() - start
    warm = WARM if queries > 2 * WARM else queries // 10
    window = max(1, (queries - warm) // 10)
    rows = []
    for name in processes:
        first = statistics.median(kib[name] for at, kib in samples if warm <= at <= warm + window)
        last = statistics.median(kib[name] for at, kib in samples if at > queries - window)
        rows.append({"process": name, "after_warm_up_kib": first, "at_the_end_kib": last, "growth": last / first - 1})
    grown = [row["process"] for row in rows if row["growth"] >= MOST]
    report = {
        "protocol": arguments.protocol, "queries": queries, "sessions": sessions, "seconds": seconds, "warm_up": warm,
        "compared": compared, "wrong": wrong, "memory": rows, "grown": grown,
    }  # fmt: skip
    if arguments.json:
        print(json.dumps(report, indent=2))
    else:
        print_table(report)
    return 1 if grown or wrong else 0


def print_table(report: dict) -> None:
    queries, seconds = report["queries"], report["seconds"]
    print(f"{queries} queries of {report['protocol']} in {report['sessions']} session(s): {seconds:.0f} s, ", end="")
    print(f"{queries / seconds:.1f} a second; {report['wrong']} of {report['compared']} compared results wrong\n")
    print(f"{'process':<10}{'after ' + str(report['warm_up']):>14}{'at the end':>14}{'growth':>10}")
    for row in report["memory"]:
        levels = [f"{row[level] / 1024:.1f} MiB" for level in ("after_warm_up_kib", "at_the_end_kib")]
        mark = "  GREW" if row["process"] in report["grown"] else ""
        print(f"{row['process']:<10}{levels[0]:>14}{levels[1]:>14}{row['growth']:>+10.2%}{mark}")


if __name__ == "__main__":
    sys.exit(main())
