"""The command line of campaigns that judge what they draw, one seed after another."""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Callable

import torch

NAMES = re.compile(r" \([^()]* line \d+: .*\)|'[^']*'|\S*\[[^\]]*\]|\d+")
"""What tells refusals for one reason apart: places in files, names, shapes and numbers."""


def parsed(description: str | None, *switches: tuple[str, str]) -> argparse.Namespace:
    """The arguments: how many, the first seed, and switches with their help."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="of the first module; the others follow")
    for switch, text in switches:
        parser.add_argument(switch, action="store_true", help=text)
    return parser.parse_args()


def run(asked: argparse.Namespace, judge: Callable[[int], tuple[str, str]], shown: Callable[[int], object]) -> int:
    """Judge each seed and count the verdicts; 1 if any is `wrong`, which is printed as `shown`."""
    torch.set_num_threads(1)
    counts: Counter[str] = Counter()
    reasons: dict[str, list[int]] = {}
    for seed in range(asked.seed, asked.seed + asked.count):
        kind, text = judge(seed)
        counts[kind] += 1
        if kind == "wrong":
            print(f"seed {seed}: {text}\n{shown(seed)}\n", flush=True)
        elif kind in ("refused", "same in part"):
            reasons.setdefault(NAMES.sub("…", text), []).append(seed)
    for reason, seeds in sorted(reasons.items(), key=lambda entry: -len(entry[1])):
        print(f"{len(seeds):5} refused, as seed {seeds[0]}: {reason[:160]}")
    print(f"{asked.count} modules: " + ", ".join(f"{number} {kind}" for kind, number in sorted(counts.items())))
    return min(counts["wrong"], 1)
