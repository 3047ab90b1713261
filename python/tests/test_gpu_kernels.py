"""The kernels of GPUs, run on the processor from their own source: bit for bit what numpy computes, without races.

Not run here are the kernels for Hopper (`#ifdef HOPPER`); test_gpu_sources compiles them.
"""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import aes
import gpu_kernels
from gpu_kernels import CUDA, Convolution, Emulator, Map, Wrong, address, ceil, dense, draw, fits, moduli, recombine

pytestmark = pytest.mark.skipif(
    gpu_kernels.compiler() is None, reason="no C++ compiler was found to emulate GPU kernels"
)

CONVOLUTIONS = {
    "one channel": Convolution(1, 1, 1, (5, 5), (3, 3), pads=(1, 1, 1, 1)),
    "stride": Convolution(3, 20, 1, (11, 10), (5, 5), (2, 2), (3, 3, 3, 3), batch=2),
    "everything uneven": Convolution(
        40, 48, 2, (9, 11), (3, 2), (2, 1), (1, 0, 1, 2), (1, 2), batch=3, parts=3, used=2
    ),
    "four tiles": Convolution(17, 130, 1, (12, 12), (1, 1)),
    "tiles of groups": Convolution(6, 6, 3, (7, 19), (2, 2), batch=1, parts=2, used=2),
    "a long sum": Convolution(100, 3, 1, (5, 5), (3, 3), pads=(1, 1, 1, 1), parts=2, used=2),
    # Rows and columns as far apart as 16 bits hold.
    "far down": Convolution(1, 2, 1, (16383, 1), (2, 1), (8191, 1), (16383, 0, 16383, 0), (8191, 1)),
    "far right": Convolution(1, 2, 1, (1, 16383), (1, 2), (1, 8191), (0, 16383, 0, 16383), (1, 8191)),
    "little input": Convolution(18, 5, 1, (2, 1), (3, 3), pads=(4, 3, 2, 5), dilations=(2, 1), batch=2),
}

DEPTHWISE = {
    "uneven": Convolution(5, 10, 5, (9, 7), (3, 2), (2, 1), (1, 0, 1, 2), (1, 2), batch=3, parts=3, used=2),
    "two blocks": Convolution(2, 2, 2, (17, 19), (3, 3), pads=(1, 1, 1, 1)),
}

DENSE = {
    # Samples, inputs, outputs, parts, used parts, rows of the weight that are packed at once.
    "one": (1, 1, 1, 1, 1, 16),
    "uneven": (5, 37, 133, 3, 2, 16),
    "whole pieces": (130, 32, 24, 2, 2, 1 << 20),
    "a long sum": (3, 300, 2, 4, 4, 112),
}

EXTREMES = {
    32: [0, 1, 2**31 - 1, 2**31, 2**32 - 1, 0x80808080],
    64: [0, 1, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1, 2**64 - 2**32, 0x8080808080808080],
}

BROKEN = {
    # What is replaced, by what, what is computed, and what the emulator says; without words results differ.
    "swizzle": ("((column ^ (row % 8)) << 4)", "((broken ? column : column ^ (row % 8)) << 4)", "u32", None),
    "copies": (
        "await_copies<STAGES - 2>();",
        "if (broken) await_copies<STAGES - 1>(); else await_copies<STAGES - 2>();",
        "u32",
        "before its copy was awaited",
    ),
    "barrier": (
        "__syncthreads();\n        int stage",
        "if (!broken) __syncthreads();\n        int stage",
        "u32",
        "before its copy was awaited|without a barrier",
    ),
    "stage": (
        "(stage + STAGES - 1) % STAGES * Load::BYTES",
        "(stage + STAGES - (broken ? 2 : 1)) % STAGES * Load::BYTES",
        "u64",
        "two copies|before its copy was awaited|without a barrier",
    ),
    "bytes": (
        "multiply<RESIDUES>(sums[i][j]",
        "(broken ? multiply<!RESIDUES> : multiply<RESIDUES>)(sums[i][j]",
        "u32",
        None,
    ),
    "shift": ("sums[i][j][k] <<= 8", "sums[i][j][k] <<= broken ? 9 : 8", "u32", None),
    "rows": (
        "if (row >= map.rows || column >= map.columns) return;\n    u32*",
        "if (row >= map.rows && !broken || column >= map.columns) return;\n    u32*",
        "u32",
        "in no buffer",
    ),
    "pieces": ("bool has = piece < map.count", "bool has = broken || piece < map.count", "u32", "in no buffer"),
    "pairs": ("both && map.out_row % 2 == 0", "both && (broken || map.out_row % 2 == 0)", "u32", "undefined behaviour"),
    "slices": ("atomicAdd(out, first)", "(broken ? *out = first : atomicAdd(out, first))", "slices", None),
    "signed sums": ("reduced(sums[i] + offset,", "reduced(sums[i] + (broken ? 0 : offset),", "u64", None),
    "eight bytes": (
        "column + 8 <= map.columns && map.out_row % 8 == 0",
        "(broken || column + 8 <= map.columns) && (broken || map.out_row % 8 == 0)",
        "u64",
        "undefined behaviour",
    ),
    "nearest": ("+ ((u64)1 << 55) >> 56", "+ (broken ? 0 : (u64)1 << 55) >> 56", "u64", None),
    "negative words": ("residues.sign[plane]", "(broken ? 0 : residues.sign[plane])", "dense", None),
    "first barrier": (
        "__syncthreads();\n#pragma unroll\n            for (int i = 0",
        "if (!broken) __syncthreads();\n#pragma unroll\n            for (int i = 0",
        "product",
        None,
    ),
    "second barrier": (
        "__syncthreads();\n#pragma unroll\n            for (int k = 0",
        "if (!broken) __syncthreads();\n#pragma unroll\n            for (int k = 0",
        "product",
        None,
    ),
    "constant of the S-box": ("? 0x63 >> bit", "? (broken ? 0x62 : 0x63) >> bit", "draw", None),
    "rows shifted": ("((lane + row) & 3))", "((lane + (broken ? 4 - row : row)) & 3))", "draw", None),
    "reduced": ("if (bit > 0 && 0x1B", "if (bit > (broken ? 1 : 0) && 0x1B", "draw", None),
    "the first word": (
        "32 * i >= from && 32 * i < to) out",
        "(broken || 32 * i >= from) && 32 * i < to) out",
        "draw",
        "no buffer",
    ),
    "the last word": ("32 * i < to) out[32 * i] = x", "(broken || 32 * i < to)) out[32 * i] = x", "draw", "no buffer"),
    "carries": ("taken >> i & 1;", "(broken ? 0 : taken >> i & 1);", "draw", None),
    "high words": ("wide && lane % 2 ? below", "wide && (broken || lane % 2) ? below", "draw", None),
    "wiped keys": (
        "__syncthreads();\n    for (int i = threadIdx",
        "if (!broken) __syncthreads();\n    for (int i = threadIdx",
        "draw",
        None,
    ),
    "keys": ("(u32*)masks);\n    __syncthreads();", "(u32*)masks);\n    if (!broken) __syncthreads();", "draw", None),
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Emulator:
    return Emulator(gpu_kernels.build(tmp_path_factory.mktemp("emulator"), gpu_kernels.source()))


@pytest.fixture
def emulator(library: Emulator) -> Iterator[Emulator]:
    yield library
    library.release()
    library.seed, library.at_start = 0, False


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Emulator:
    """The kernels with every mistake, of which one at a time is made."""
    text = gpu_kernels.source()
    for number, (right, wrong, *_) in enumerate(BROKEN.values(), 1):
        assert text.count(right) == 1, right
        text = text.replace(right, wrong.replace("broken", f"(mistake == {number})"))
    choice = 'static int mistake;\nextern "C" void make(int number) { mistake = number; }\n'
    return Emulator(gpu_kernels.build(tmp_path_factory.mktemp("broken"), choice + text))


def words(values: list[int], shape: tuple[int, ...], bits: int, rng: np.random.Generator) -> np.ndarray:
    return rng.choice(np.array(values, f"u{bits // 8}"), shape)


def of(name: str, cases: dict[str, Any]) -> int:
    return list(cases).index(name)


def test_parameters_have_the_size_that_the_kernels_expect(emulator: Emulator) -> None:
    structs = [
        Map,
        gpu_kernels.Channels,
        gpu_kernels.Rows,
        gpu_kernels.Recombined,
        gpu_kernels.Plain,
        gpu_kernels.Drawn,
    ]
    for struct in structs:
        assert ctypes.sizeof(struct) == emulator.library.size_of(struct.__name__.encode())


@pytest.mark.parametrize(("bits", "slices"), [(32, 1), (32, 3), (64, 1)])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(emulator: Emulator, name: str, bits: int, slices: int) -> None:
    convolution = CONVOLUTIONS[name]
    # Every order of threads and both ends of buffers come up.
    emulator.seed = of(name, CONVOLUTIONS) + slices
    emulator.at_start = emulator.seed % 2 == 0
    xs, ws = convolution.random(bits, np.random.default_rng())
    out = convolution.by_tensor_cores(emulator, xs, ws, slices)
    np.testing.assert_array_equal(out, convolution.expected(xs, ws))


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_the_twin(emulator: Emulator, name: str, bits: int, seed: int) -> None:
    convolution = CONVOLUTIONS[name]
    emulator.seed, emulator.at_start = seed, seed == 1
    xs, ws = convolution.random(bits, np.random.default_rng())
    np.testing.assert_array_equal(convolution.by_words(emulator, xs, ws, "product"), convolution.expected(xs, ws))


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("name", DEPTHWISE)
def test_depthwise_convolutions(emulator: Emulator, name: str, bits: int) -> None:
    convolution = DEPTHWISE[name]
    for emulator.at_start in (False, True):
        xs, ws = convolution.random(bits, np.random.default_rng())
        np.testing.assert_array_equal(convolution.by_words(emulator, xs, ws, "depthwise"), convolution.expected(xs, ws))


@pytest.mark.parametrize("bits", [32, 64])
def test_a_window_of_a_convolution(emulator: Emulator, bits: int) -> None:
    """Some positions of the last images."""
    convolution = CONVOLUTIONS["everything uneven"]
    xs, ws = convolution.random(bits, np.random.default_rng())
    out = convolution.by_tensor_cores(emulator, xs, ws, window=(1, 5, 13, 2))
    np.testing.assert_array_equal(out, convolution.expected(xs, ws)[:, 1:, 5:18])


@pytest.mark.parametrize(("bits", "slices"), [(32, 1), (32, 7), (64, 1)])
@pytest.mark.parametrize("name", DENSE)
def test_dense_layers(emulator: Emulator, name: str, bits: int, slices: int) -> None:
    samples, inputs, outputs, parts, used, step = DENSE[name]
    emulator.seed, emulator.at_start = of(name, DENSE), slices == 1
    rng = np.random.default_rng()
    xs = [rng.integers(0, 2**bits, (samples, inputs), f"u{bits // 8}") for _ in range(used)]
    ws = [rng.integers(0, 2**bits, (inputs, outputs), f"u{bits // 8}") for _ in range(parts)]
    out = dense(emulator, xs, ws, slices, step)
    np.testing.assert_array_equal(out, sum(x @ w for x, w in zip(xs, ws, strict=False)))


@pytest.mark.parametrize("bits", [32, 64])
def test_words_at_the_ends_of_their_range(emulator: Emulator, bits: int) -> None:
    """Rows of one word each, of which every pair is multiplied, and rows of several."""
    rng, values = np.random.default_rng(), EXTREMES[bits]
    x = words(values, (2 * len(values), 48), bits, rng)
    w = words(values, (48, 2 * len(values)), bits, rng)
    for index, value in enumerate(values):
        x[index] = w[:, index] = value
    np.testing.assert_array_equal(dense(emulator, [x], [w]), x @ w)


def test_the_cipher_that_kernels_are_compared_with() -> None:
    """FIPS 197, appendix C.1."""
    key, block = bytes(range(16)), np.frombuffer(bytes.fromhex("00112233445566778899aabbccddeeff"), np.uint8)
    assert aes.encrypted(key, block).tobytes().hex() == "69c4e0d86a7b0430d8cdb78070b4c55a"


DRAWS = [
    # Start and count.
    (0, 1),
    (0, 1024),
    (1, 2),
    (3, 8192),
    (511, 513),
    (1023, 1026),
    (5, 8191),
    (1 << 20, 5000),
    # Where the low half of the counter ends, and where no start of a tensor is.
    (2**34 - 700, 1500),
    (2**40 + 123, 999),
]


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("draw_number", range(len(DRAWS)))
def test_drawn_words(emulator: Emulator, draw_number: int, bits: int) -> None:
    """From any element on, in place of what is there and added to it, also up to numbers of 64 bits that carry."""
    start, count = DRAWS[draw_number]
    rng = np.random.default_rng()
    key, nonce = rng.bytes(16), int(rng.integers(0, 2**64, dtype=np.uint64))
    keys = aes.round_keys(key).reshape(-1).view(np.uint32)
    expected = aes.stream(key, nonce, start, count, bits)
    emulator.seed = draw_number
    for emulator.at_start in (False, True):
        out = emulator.array((count,), f"u{bits // 8}")
        draw(emulator, keys, nonce, start, out)
        np.testing.assert_array_equal(out, expected)
        added = rng.choice(np.array([0, 1, 2**bits - 1, 2**32 - 1], f"u{bits // 8}"), count)
        out[:] = added
        draw(emulator, keys, nonce, start, out, adds=True)
        np.testing.assert_array_equal(out, expected + added)


def test_places_beyond_32_bits(emulator: Emulator) -> None:
    """The last pieces that an operand may have, and rows that are further apart than 4 GiB."""
    first, columns, a_row, out_row = 2**31 - 150, 150, 2**30, 2**32 + 2
    try:
        left = emulator.array((1, 2, a_row, 16), np.uint8, sparse=True)
        right = emulator.array((1, 2**31, 16), np.uint8, sparse=True)
        out = emulator.array((3, out_row), np.uint32, sparse=True)
    except MemoryError:
        pytest.skip("this system does not let a process map 130 GiB that it does not use")
    rng = np.random.default_rng()
    x, w = rng.integers(0, 256, (2, 16), np.uint8), rng.integers(0, 256, (columns, 16), np.uint8)
    left[0, :, 0], right[0, first:] = x, w
    map_ = Map(address(left), address(right), address(out), address(emulator.copy(np.zeros((1, 4), np.int32))))
    # Every limb of a word is the same byte.
    map_.out_row, map_.rows, map_.columns, map_.count, map_.a_row = out_row, 2, columns, 1, a_row
    map_.image, map_.first = 1, first
    map_.height = map_.width = map_.run = map_.across = map_.slices = 1
    emulator.launch("limbs_by_warps", map_, [2, 1, 1], gpu_kernels.SHARED)
    words = np.uint32(0x01010101) * x.astype(np.uint32) @ (np.uint32(0x01010101) * w.astype(np.uint32)).T
    np.testing.assert_array_equal(out[:2, :columns], words)
    assert not out[2, :columns].any()


def test_the_moduli_are_the_largest_and_sums_stay_below_half_of_their_product() -> None:
    text = (CUDA / "moduli.rs").read_text()
    (listed,) = re.findall(r"MODULI: \[u32; MOST_RESIDUES\] =\s*\[([^]]*)\]", text)
    assert [int(number) for number in listed.split(",")] == moduli()
    for count, terms in longest():
        assert fits(count, terms)


def longest() -> list[tuple[int, int]]:
    """LONGEST of moduli.rs."""
    text = (CUDA / "moduli.rs").read_text().replace("_", "")
    (pairs,) = re.findall(r"LONGEST: \[\(usize, usize\); 3\] = \[(.*)\];", text)
    return [(int(count), int(terms)) for count, terms in re.findall(r"\((\d+), (\d+)\)", pairs)]


@pytest.mark.parametrize(("count", "terms"), longest())
def test_the_greatest_sums_are_recombined(emulator: Emulator, count: int, terms: int) -> None:
    most = terms * 2**126
    rng = np.random.default_rng()
    sums = [most, -most, most - 1, 1 - most, 0, 1, -1, 2**63, 2**64, -(2**64)]
    sums += [int.from_bytes(rng.bytes(24), "little") % (2 * most + 1) - most for _ in range(2000)]
    product = math.prod(moduli()[:count])
    residues = emulator.array((count, ceil(len(sums), 16) * 16), np.uint8)
    for row, m in zip(residues, moduli()[:count], strict=True):
        row[: len(sums)] = [value * pow(product // m, -1, m) % m for value in sums]
    out = emulator.array((len(sums),), np.uint64)
    recombine(emulator, residues, out)
    assert [int(word) for word in out] == [value % 2**64 for value in sums]


def test_accumulators_of_32_bits_hold_the_longest_sums(emulator: Emulator) -> None:
    """Of bytes at the ends of their range; the modulus divides no power of two, so that an overflow would show."""
    terms = max(terms for _, terms in longest())
    assert terms * 128**2 < 2**31 and all(terms * 128**2 + ceil(2**31, m) * m < 2**32 for m in moduli())
    values, count, m = [127, -127, -128], terms // 16, 255
    rows = np.array(values, np.int8).reshape(1, 3, 1).repeat(count * 16, 2)
    left, right = emulator.copy(rows), emulator.copy(rows)
    table = np.zeros((count, 4), np.int32)
    table[:, 2] = np.arange(count)
    map_ = Map(address(left), address(right), 0, address(emulator.copy(table)), rows.size, rows.size)
    map_.rows = map_.columns = map_.out_row = 3
    map_.count = map_.a_row = map_.image = count
    map_.height = map_.width = map_.run = map_.across = map_.slices = map_.planes = 1
    map_.modulus[0], map_.reciprocal[0], map_.offset[0], map_.factor[0] = m, 2**32 // m, ceil(2**31, m) * m, 1
    out = emulator.array((3, 3), np.uint8)
    map_.out, map_.out_plane = address(out), out.size
    emulator.launch("residues_by_warps", map_, [1, 1, 1], gpu_kernels.SHARED)
    assert out.tolist() == [[terms * a * b % m for b in values] for a in values]


@pytest.mark.parametrize("name", ["right", *BROKEN])
def test_mistakes_are_found(broken: Emulator, name: str) -> None:
    """Each of them, in kernels that have nothing else wrong."""
    kinds, said = ["u32", "u64", "slices", "product", "dense", "draw"], None
    if name in BROKEN:
        *_, kind, said = BROKEN[name]
        kinds = [kind]
    broken.library.make(of(name, BROKEN) + 1 if name in BROKEN else 0)
    for kind in kinds:
        try:
            if said is None:
                assert is_right(broken, kind) == (name == "right")
            else:
                with pytest.raises(Wrong, match=said):
                    is_right(broken, kind)
        finally:
            broken.release()


def is_right(emulator: Emulator, kind: str) -> bool:
    """Whether the result is that of numpy."""
    if kind == "draw":
        key, same = np.random.default_rng().bytes(16), []
        for emulator.at_start in (True, False):
            out, adds = emulator.array((2500,), np.uint64), emulator.at_start
            out[:] = 2**64 - 1
            draw(emulator, aes.round_keys(key).reshape(-1).view(np.uint32), 5, 513, out, adds)
            same.append(np.array_equal(out, aes.stream(key, 5, 513, 2500, 64) - np.uint64(adds)))
        return all(same)
    if kind == "dense":
        # Sums that only signed words keep below half of the product of the moduli.
        x = np.full((2, 48), 2**64 - 1, np.uint64)
        return np.array_equal(dense(emulator, [x], [x.T]), x @ x.T)
    convolution = Convolution(40, 3, 1, (5, 5), (3, 3), pads=(1, 1, 1, 1))
    xs, ws = convolution.random(64 if kind == "u64" else 32, np.random.default_rng())
    if kind == "product":
        out = convolution.by_words(emulator, xs, ws, "product")
    else:
        out = convolution.by_tensor_cores(emulator, xs, ws, 3 if kind == "slices" else 1)
    return np.array_equal(out, convolution.expected(xs, ws))
