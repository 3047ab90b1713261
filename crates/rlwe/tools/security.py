"""Estimate the security of the parameter sets of crates/rlwe, without dependencies.

    python crates/rlwe/tools/security.py

A set is LWE with n = N, a ternary secret of variance 2/3 and errors of standard deviation 3.24 modulo q. Two attacks
are costed. Both reduce a lattice by BKZ of block size beta, whose root Hermite factor is

    delta(beta) = (beta / (2 pi e) (pi beta)^(1 / beta))^(1 / (2 (beta - 1))).

Primal attack: (e, zeta s, 1) is the shortest vector of a lattice of dimension d = m + n + 1 and volume q^m zeta^n.
The factor zeta = sigma_e / sigma_s makes both parts equally long. BKZ finds that vector if

    sigma_e sqrt(beta) <= delta^(2 beta - d - 1) (q^m zeta^n)^(1 / d).

Dual attack: BKZ finds vectors of length l = delta^d (q / zeta)^(n / d) in the lattice of (w, v / zeta) with v = w A
modulo q, of dimension d = m + n. One of them distinguishes with the advantage eps = exp(-2 pi^2 (l sigma_e / q)^2),
so the attack needs 1 / eps^2 of them. A sieve yields 2^(0.2075 beta) at once.

Both attacks take the best number of samples m <= 2 n.

The cost of BKZ on a classical computer is 8 d calls of a sieve (Becker, Ducas, Gama, Laarhoven, SODA 2016), in bits
0.292 beta + 16.4 + log2(8 d). This model decides: the program fails if an attack takes less than 128 bits, or if log2
q exceeds the cap of the Security Guidelines for Implementing Homomorphic Encryption (Bossuat et al., ePrint 2024/463)
for ternary secrets at 128 bits. Those caps rest on the Lattice Estimator, which costs more attacks than this program.
The core-SVP cost, 0.292 beta, counts one call of a sieve without any overhead; it is printed for comparison.

The estimate ignores attacks that use the structure of the ring, for none is known that is faster at these parameters.
It ignores guessing of parts of the secret, for the secret is dense.
"""

import math
import re
import sys
from pathlib import Path

SIGMA_ERROR = math.sqrt(10.5)
SIGMA_SECRET = math.sqrt(2 / 3)
LEAST = 128.0
# The largest log2 q at 128 bits (classical), ternary secrets, by degree: ePrint 2024/463.
STANDARD = {1024: 26, 2048: 53, 4096: 106, 8192: 214, 16384: 430, 32768: 868}


def sets() -> list[tuple[int, int, int]]:
    """Read degree, bits of a prime and number of primes of each set from the source of the crate."""
    source = (Path(__file__).parent.parent / "src" / "parameters.rs").read_text()
    table = re.search(r"const SETS: [^=]*= \[(.*?)\];", source, re.DOTALL)
    if table is None:
        sys.exit("security.py: parameters.rs has no table SETS")
    found = re.findall(r"\((\d+), (\d+), (\d+)\)", table.group(1))
    return [(int(degree), int(bits), int(count)) for degree, bits, count in found]


def log_delta(beta: int) -> float:
    """Give log2 of the root Hermite factor that BKZ reaches with this block size."""
    return math.log2(beta / (2 * math.pi * math.e) * (math.pi * beta) ** (1 / beta)) / (2 * (beta - 1))


def cost(beta: int, dimension: int) -> float:
    """Give log2 of the operations of BKZ."""
    return math.log2(8 * dimension) + 0.292 * beta + 16.4


def samples(n: int) -> range:
    """List the numbers of samples that are tried."""
    return range(n // 4, 2 * n + 1, 16)


def primal_finds(n: int, log_q: float, beta: int) -> int:
    """Give the smallest dimension in which the primal attack succeeds with this block size, or 0."""
    log_zeta = math.log2(SIGMA_ERROR / SIGMA_SECRET)
    left = math.log2(SIGMA_ERROR) + math.log2(beta) / 2
    delta = log_delta(beta)
    for m in samples(n):
        d = m + n + 1
        if left <= (2 * beta - d - 1) * delta + (m * log_q + n * log_zeta) / d:
            return d
    return 0


def primal(n: int, log_q: float) -> tuple[int, float]:
    """Give block size and cost of the primal attack."""
    low, high = 60, 4 * n
    while low < high:
        beta = (low + high) // 2
        low, high = (low, beta) if primal_finds(n, log_q, beta) else (beta + 1, high)
    return low, cost(low, primal_finds(n, log_q, low))


def dual_cost(n: int, log_q: float, beta: int) -> float:
    """Give the least cost of the dual attack with this block size over the numbers of samples."""
    log_zeta = math.log2(SIGMA_ERROR / SIGMA_SECRET)
    delta = log_delta(beta)
    least = math.inf
    for m in samples(n):
        d = m + n
        log_length = d * delta + n / d * (log_q - log_zeta)
        relative = 2 ** min(64.0, log_length + math.log2(SIGMA_ERROR) - log_q)
        log_vectors = 4 * math.pi**2 * relative**2 / math.log(2)
        least = min(least, cost(beta, d) + max(0.0, log_vectors - 0.2075 * beta))
    return least


def dual(n: int, log_q: float) -> tuple[int, float]:
    """Give block size and cost of the best dual attack."""
    best = min((dual_cost(n, log_q, beta), beta) for beta in range(60, n, 16))
    best = min((dual_cost(n, log_q, beta), beta) for beta in range(max(60, best[1] - 16), best[1] + 17))
    return best[1], best[0]


def main() -> int:
    """Print a table; fail if a set has too little security or exceeds the standard's cap."""
    weak = []
    print("    N  log2 q  cap  primal beta  bits  core-SVP  dual beta  bits  core-SVP")
    for degree, bits, count in sets():
        log_q = float(bits * count)
        (primal_beta, primal_bits), (dual_beta, dual_bits) = primal(degree, log_q), dual(degree, log_q)
        print(
            f"{degree:5}  {log_q:6.0f}  {STANDARD[degree]:3}"
            f"  {primal_beta:11}  {primal_bits:4.0f}  {0.292 * primal_beta:8.0f}"
            f"  {dual_beta:9}  {dual_bits:4.0f}  {0.292 * dual_beta:8.0f}"
        )
        if min(primal_bits, dual_bits) < LEAST or log_q > STANDARD[degree]:
            weak.append(f"N = {degree}, {count} primes of {bits} bits")
    for name in weak:
        print(f"security.py: {name}: below {LEAST:.0f} bits or above the cap", file=sys.stderr)
    return 1 if weak else 0


if __name__ == "__main__":
    sys.exit(main())
