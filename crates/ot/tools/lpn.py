"""Costs of the known attacks on the noise problems of silent oblivious transfer, in bit operations: `make lpn`.

Reads the sets from crates/ot/src/silent/parameters.rs and the weight of rows from crates/kernels/src/lpn.rs. Exits
with 1 if an attack on a set costs less than 2^128. Where a cost is not known exactly the attacker gets the better of
it: memory is free, in decoding and statistical attacks so is linear algebra, and subsets exist wherever the first
moment does not exclude them.

A problem: N = t * B equations in k unknown bits, each the sum of w random unknowns and of noise; the noise is one in
one equation of each block of B = 2^depth. The attacker is the sender of the OTs, who knows equations and sums and
wants the unknowns, from which follow the choice bits.
"""

import argparse
import json
import math
import random
import re
import sys
from dataclasses import dataclass
from pathlib import Path

CRATES = Path(__file__).resolve().parents[2]
LEAST = 128


@dataclass(frozen=True)
class Problem:
    name: str
    trees: int
    log_secret: int
    depth: int
    weight: int

    @property
    def unknowns(self) -> int:
        return 1 << self.log_secret

    @property
    def block(self) -> int:
        return 1 << self.depth

    @property
    def equations(self) -> int:
        return self.trees << self.depth

    @property
    def bits_per_ot(self) -> float:
        sent = 128 * self.trees * self.depth
        return sent / (self.equations - self.unknowns - self.trees * self.depth)


def read_problems() -> list[Problem]:
    """The sets of the Rust code."""
    code = (CRATES / "kernels/src/lpn.rs").read_text()
    weight = int(re.search(r"pub const WEIGHT: usize = (\d+);", code)[1])
    text = (CRATES / "ot/src/silent/parameters.rs").read_text()
    one = r'Parameters = Parameters \{ name: "(\w+)", trees: ([\d_]+), log_secret: (\d+), depth: (\d+) \};'
    found = re.findall(one, text)
    if len(found) != int(re.search(r"pub const ALL: \[Parameters; (\d+)\]", text)[1]):
        raise ValueError("parameters.rs has sets that this script cannot read")
    return [Problem(name, *map(int, numbers), weight) for name, *numbers in found]


# Combinatorics, in bits.


def entropy(x: float) -> float:
    return 0 if x <= 0 or x >= 1 else -x * math.log2(x) - (1 - x) * math.log2(1 - x)


def divergence(x: float, p: float) -> float:
    return x * math.log2(x / p) + (1 - x) * math.log2((1 - x) / (1 - p))


def choose(n: float, k: float) -> float:
    return (math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)) / math.log(2)


def error_free(problem: Problem, chosen: float) -> float:
    """Bits to guess `chosen` equations, as many of each block, none of which is noisy."""
    return -problem.trees * math.log2(1 - chosen / problem.equations)


def bisect(low: float, high: float, holds) -> float:
    """Where `holds`, which is false at `low` and true at `high`, becomes true."""
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


# Subsets of the unknowns. Rows are sparse: of the equations a share a^w has all its unknowns in a random share a of
# them, and these equations are a problem of their own, with fewer unknowns and the same noise.


def equations_within(problem: Problem, share: float) -> float:
    """More equations than any subset of this share of the unknowns has, by the first moment over all subsets."""
    if share >= 1:
        return problem.equations
    within, entropies = share**problem.weight, problem.unknowns * entropy(share)
    return problem.equations * bisect(
        within, 1 - 1e-12, lambda x: problem.equations * divergence(x, within) > entropies
    )


def random_subset(problem: Problem) -> float:
    """Unknowns of a random subset that has as many equations."""
    return problem.unknowns * (problem.unknowns / problem.equations) ** (1 / (problem.weight - 1))


def smallest_subset(problem: Problem) -> float:
    """No subset with as many equations as unknowns has fewer unknowns than this."""
    return problem.unknowns * bisect(
        0.01, 1, lambda share: equations_within(problem, share) >= share * problem.unknowns
    )


# The attacks. Each returns bits.


def gauss(problem: Problem) -> float:
    """Guess as many error-free equations as unknowns and solve them (Esser, Kuebler, May, CRYPTO 2017: pooled Gauss).
    The sum of each block is an equation without noise (Esser, Santini, CRYPTO 2024). Solving is Wiedemann's
    algorithm, for sparse rows."""
    wanted = problem.unknowns - problem.trees
    return error_free(problem, wanted) + math.log2(3 * problem.weight) + 2 * math.log2(wanted)


def subset(problem: Problem) -> float:
    """The same within a random subset of the unknowns (the dense-minor attack: Jain, Lin, Saha, CRYPTO 2024)."""
    wanted = random_subset(problem)
    return error_free(problem, wanted) + math.log2(3 * problem.weight) + 2 * math.log2(wanted)


def decoding(problem: Problem, unknowns: float, lists) -> float:
    """Information-set decoding with p errors in the set, under regular noise. An iteration makes its lists and reads
    the set's rows."""
    share, best = unknowns / problem.equations, math.inf
    for errors in range(0, min(problem.trees, 120), 2):
        chance = choose(problem.trees, errors) + errors * math.log2(share)
        chance += (problem.trees - errors) * math.log2(1 - share)
        best = min(best, max(math.log2(problem.weight * unknowns), lists(problem, unknowns, errors)) - chance)
    return best


def patterns(problem: Problem, unknowns: float, errors: float) -> float:
    """Patterns of `errors` in an information set, at most one in a block."""
    return choose(problem.trees, errors) + errors * math.log2(unknowns / problem.trees)


def enumerated(problem: Problem, unknowns: float, errors: int) -> float:
    return patterns(problem, unknowns, errors)


def collided(problem: Problem, unknowns: float, errors: int) -> float:
    return patterns(problem, unknowns, errors) / 2


def represented(problem: Problem, unknowns: float, errors: int) -> float:
    """Lists of half the errors, less by the number of ways to split them and what cancels (a bound for MMT, BJMM,
    May-Ozerov)."""
    return patterns(problem, unknowns, errors / 2) - errors


def lee_brickell(problem: Problem) -> float:
    """Prange and Lee-Brickell in the smallest subset that may exist."""
    return decoding(problem, smallest_subset(problem), enumerated)


def stern(problem: Problem) -> float:
    """Stern, Dumer and SD, and the enumeration of Esser and Santini, in the smallest subset that may exist."""
    return decoding(problem, smallest_subset(problem), collided)


def representations(problem: Problem) -> float:
    """Representations (BJMM), also on regular noise, in the smallest subset that may exist."""
    return decoding(problem, smallest_subset(problem), represented)


def linearise(problem: Problem) -> float:
    """Two equations of a block are not both noisy: their product is zero, one equation in products of two unknowns,
    as sparse as (w + 1)^2. Guessed error-free equations times every unknown are more. Solved by Wiedemann over all
    products of two unknowns."""
    products = 2 * choose(problem.unknowns, 2) + math.log2(3 * (problem.weight + 1) ** 2)
    return products + min(guess for guess, _ in guesses_to_linearise(problem, 1))


def guesses_to_linearise(problem: Problem, share: float):
    """Guesses with which the products of degree 2 suffice: their bits, and the unknowns that they leave. They fall on
    a part of the blocks, evenly (the hybrid of Briaud and Oygarden, EUROCRYPT 2023)."""
    unknowns, size = share * problem.unknowns, equations_within(problem, share) / problem.trees
    parity = 1 if share >= 1 else 0
    unknowns -= parity * problem.trees
    for part in (1, 0.75, 0.5, 0.25):
        blocks = part * problem.trees

        def enough(guessed: float, blocks=blocks) -> bool:
            left, touched = unknowns - guessed * blocks, size - parity - guessed
            pairs = blocks * touched * max(0, touched - 1) + (problem.trees - blocks) * size * (size - 1)
            return pairs >= left * (left - 1)

        most = min(size - parity, unknowns / blocks)
        if enough(0):
            yield 0, unknowns
        elif enough(most):
            guessed = bisect(0, most, enough)
            if guessed < problem.block:
                yield -blocks * math.log2(1 - guessed / problem.block), unknowns - guessed * blocks


def linearise_reduced(problem: Problem) -> float:
    """The same where the guesses shorten the unknowns before products are made, yet leave the rows as sparse, in any
    subset."""
    best = math.inf
    for step in range(40, 101):
        for guess, left in guesses_to_linearise(problem, step / 100):
            products = 2 * choose(max(left, 2), 2) + math.log2(3 * (problem.weight + 1) ** 2)
            linear = 2 * math.log2(step / 100 * problem.unknowns) + math.log2(3 * problem.weight)
            best = min(best, guess + max(products, linear))
    return best


def algebraic(problem: Problem) -> float:
    """Products of degree 3 to 5 (Briaud and Oygarden): guesses in every block until the Hilbert series ends at that
    degree."""
    best = math.inf
    for degree in (3, 4, 5):

        def ends(guessed: float, degree=degree) -> bool:
            return min(series(problem, problem.block - 1 - int(guessed), degree)) <= 0

        if not ends(problem.block - 2):
            continue
        guessed = int(bisect(0, problem.block - 2, ends))
        left = max(degree, problem.unknowns - problem.trees * (1 + guessed))
        guess = -problem.trees * math.log2(1 - guessed / problem.block)
        best = min(best, guess + 2 * choose(left, degree) + math.log2(3 * (problem.weight + 1) ** 2))
    return best


def series(problem: Problem, size: int, degree: int) -> list[int]:
    """Coefficients of (1 + size z)^t / (1 + z)^(N - k), up to `degree`."""
    checks = problem.equations - problem.unknowns
    blocks = [math.comb(problem.trees, i) * size**i for i in range(degree + 1)]
    linear = [(-1) ** i * math.comb(checks + i - 1, i) for i in range(degree + 1)]
    return [sum(blocks[i] * linear[d - i] for i in range(d + 1)) for d in range(degree + 1)]


def words(problem: Problem, unknowns: float, weight: float) -> float:
    """Sums of `weight` of as many equations as unknowns in which no unknown is left: expected number (at most, by the
    largest term of the sum over characters)."""
    steps = (x / 1000 for x in range(1, 500))
    vanish = max(unknowns * (entropy(x) - 1) + problem.weight * weight * math.log2(1 - 2 * x) for x in steps)
    return choose(unknowns, weight) + max(vanish, -unknowns) + math.log2(unknowns)


def statistical(problem: Problem) -> float:
    """Statistical decoding: sums of h equations without unknowns, biased by (1 - 2/B)^h; as many as 1/bias^2 are
    needed. Low-weight words of the sparse code count as they occur; one trial is one subset's word. With `fixed`
    unknowns left to a transform (SD 2.0: Carrier, Debris-Alazard, Meyer-Hilfiger, Tillich, ASIACRYPT 2022)."""
    best, smallest = math.inf, smallest_subset(problem)
    for fixed in range(0, 257, 32):
        unknowns = smallest - fixed
        for step in range(1, 101):
            weight = unknowns * step / 200
            needed = -2 * weight * math.log2(1 - 2 / problem.block)
            cost = needed - min(0, words(problem, unknowns, weight))
            best = min(best, max(cost, fixed))
    return best


def bkw(problem: Problem) -> float:
    """Birthday: a rounds of sums of two equations that agree in a part of the unknowns, in the smallest subset that
    may exist, with equations without end (Blum, Kalai, Wasserman; the single round is the birthday attack)."""
    unknowns = smallest_subset(problem)
    noise = -2 * math.log2(1 - 2 / problem.block)
    return min(max(unknowns / (rounds + 1), noise * 2**rounds) for rounds in range(1, 40))


ATTACKS = {
    "gauss": gauss,
    "subset": subset,
    "lee-brickell": lee_brickell,
    "stern": stern,
    "representations": representations,
    "linearise": linearise,
    "linearise-reduced": linearise_reduced,
    "algebraic": algebraic,
    "statistical": statistical,
    "bkw": bkw,
}


def simulate(seed: int) -> tuple[int, float]:
    """The subset attack, run on a small problem: guesses it took on average to find the secret, and those
    foretold."""
    source = random.Random(seed)
    problem = Problem("small", trees=40, log_secret=6, depth=4, weight=4)
    size, runs, total = random_subset(problem) + 4, 40, 0
    for _ in range(runs):
        secret = source.getrandbits(problem.unknowns)
        rows = []
        for _ in range(problem.trees):
            noisy = source.randrange(problem.block)
            for place in range(problem.block):
                row = sum(1 << bit for bit in source.sample(range(problem.unknowns), problem.weight))
                rows.append((row, (row & secret).bit_count() & 1 ^ (place == noisy)))
        while True:
            total += 1
            mask = sum(1 << bit for bit in source.sample(range(problem.unknowns), round(size)))
            found = solve([row for row in rows if row[0] & ~mask == 0])
            if found is not None and all((secret >> bit & 1) == value for bit, value in found.items()):
                break
    return total / runs, 2 ** error_free(problem, problem.equations * (size / problem.unknowns) ** problem.weight)


def solve(rows: list[tuple[int, int]]) -> dict[int, int] | None:
    """The unknowns that the equations fix; none if they contradict each other."""
    pivots: dict[int, tuple[int, int]] = {}
    for row, value in rows:
        for bit, (pivot, pivot_value) in pivots.items():
            if row >> bit & 1:
                row, value = row ^ pivot, value ^ pivot_value
        if row == 0:
            if value:
                return None
            continue
        bit = row.bit_length() - 1
        for other, (pivot, pivot_value) in pivots.items():
            if pivot >> bit & 1:
                pivots[other] = (pivot ^ row, pivot_value ^ value)
        pivots[bit] = (row, value)
    return {bit: value for bit, (row, value) in pivots.items() if row == 1 << bit}


def parse(text: str) -> Problem:
    name, *numbers = text.split(":")
    return Problem(name, *map(int, numbers), read_problems()[0].weight)


def main() -> int:
    parser = argparse.ArgumentParser(description="Costs of attacks on the sets of silent oblivious transfer, in bits.")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--set", action="append", type=parse, metavar="NAME:TREES:LOG_SECRET:DEPTH", help="other sets")
    parser.add_argument("--simulate", action="store_true", help="run the subset attack on a small problem as well")
    options = parser.parse_args()
    problems = options.set or read_problems()
    bits = {p.name: {name: round(attack(p), 1) for name, attack in ATTACKS.items()} for p in problems}
    weak = [f"{name}: {attack}" for name, row in bits.items() for attack, cost in row.items() if cost < LEAST]
    if options.json:
        sizes = {
            p.name: {"trees": p.trees, "log_secret": p.log_secret, "depth": p.depth, "bits_per_ot": p.bits_per_ot}
            for p in problems
        }
        print(json.dumps({"least": LEAST, "sets": sizes, "bits": bits, "weak": weak}, indent=2))
    else:
        heads = [f"{p.name} (t={p.trees}, k=2^{p.log_secret}, B=2^{p.depth})" for p in problems]
        print(" | ".join(["bit operations, log2 ", *heads]))
        for name in ATTACKS:
            print(
                " | ".join(
                    [
                        f"{name:<21}",
                        *(f"{bits[p.name][name]:>{len(h)}.1f}" for p, h in zip(problems, heads, strict=True)),
                    ]
                )
            )
        print(
            " | ".join(
                [
                    f"{'bits an OT':<21}",
                    *(f"{p.bits_per_ot:>{len(h)}.3f}" for p, h in zip(problems, heads, strict=True)),
                ]
            )
        )
        print(f"below 2^{LEAST}: {', '.join(weak)}" if weak else f"every attack on every set costs 2^{LEAST} or more")
    if options.simulate:
        took, foretold = simulate(1)
        print(f"subset attack on a small problem: {took:.0f} guesses, foretold {foretold:.0f}", file=sys.stderr)
    return 1 if weak else 0


if __name__ == "__main__":
    sys.exit(main())
