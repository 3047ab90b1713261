"""The host's part of linear maps on GPUs, for kernels that run in the emulator (gpu_emulator).

Parameters and the order of operands follow crates/kernels/src/cuda; constants are computed here anew.
"""

from __future__ import annotations

import ctypes
import math
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
CUDA = ROOT / "crates/kernels/src/cuda"
EMULATOR = Path(__file__).with_name("gpu_emulator")

LIMBS = 4
MOST_RESIDUES, MOST_PARTS = 19, 4
THREADS = 256
TILE = 128
SHARED = 3 * 2 * TILE * 128
"""Bytes of shared memory of `*_by_warps`: three stages, each of a tile of both operands with 128 bytes a row."""

POINTER, INT, LONG = ctypes.c_uint64, ctypes.c_int, ctypes.c_int64


def source() -> str:
    """The kernels, in the order in which build.rs compiles them."""
    names = re.findall(r'include_str!\("(\w+\.cu)"\)', (CUDA / "build.rs").read_text())
    return "\n".join((CUDA / name).read_text() for name in names)


def moduli() -> list[int]:
    """The largest numbers from 256 down that are pairwise coprime: their signed residues are bytes."""
    found: list[int] = []
    for number in range(256, 1, -1):
        if len(found) < MOST_RESIDUES and all(math.gcd(number, other) == 1 for other in found):
            found.append(number)
    return found


def residues_for(terms: int) -> int:
    """How many moduli a sum of `terms` products of words takes."""
    return next(n for n in range(1, 20) if fits(n, terms))


def fits(count: int, terms: int) -> bool:
    """Whether a sum of products of signed words is below half of the product of the moduli, by a 512th of that."""
    return 1024 * terms * 2**126 <= 511 * math.prod(moduli()[:count])


def struct(name: str, **fields: Any) -> type[ctypes.Structure]:
    return type(name, (ctypes.Structure,), {"_fields_": list(fields.items())})


def fields(names: str, of: Any) -> dict[str, Any]:
    return dict.fromkeys(names.split(), of)


U32S, U64S = ctypes.c_uint32 * MOST_RESIDUES, ctypes.c_uint64 * MOST_RESIDUES
WINDOW = "stride_down stride_right pad_top pad_left"

Map = struct(
    "Map",
    **fields("a b out pieces", POINTER),
    **fields("a_plane b_plane out_plane out_row", LONG),
    **fields("rows columns count a_row image place group height width first start run across", INT),
    **fields(WINDOW + " slices planes", INT),
    **fields("modulus reciprocal offset factor", U32S),
)
Residues = struct("Residues", **fields("modulus reciprocal high sign", U32S))
Channels = struct(
    "Channels",
    words=POINTER,
    out=POINTER,
    plane=LONG,
    **fields("images places groups channels image place planes", INT),
    residues=Residues,
)
Rows = struct(
    "Rows",
    words=POINTER,
    out=POINTER,
    plane=LONG,
    **fields("rows channels elements row planes", INT),
    residues=Residues,
)
Recombined = struct(
    "Recombined",
    residues=POINTER,
    out=POINTER,
    plane=LONG,
    count=LONG,
    planes=INT,
    product=ctypes.c_uint64,
    cofactor=U64S,
    fraction=U64S,
)
Plain = struct(
    "Plain",
    a=POINTER * MOST_PARTS,
    b=POINTER * MOST_PARTS,
    out=POINTER,
    out_row=LONG,
    **fields("parts groups rows columns channels kernel_down kernel_right dilation_down dilation_right", INT),
    **fields("height width first start run across " + WINDOW, INT),
)
Drawn = struct(
    "Drawn",
    keys=POINTER,
    out=POINTER,
    nonce=ctypes.c_uint64,
    start=LONG,
    count=LONG,
    **fields("adds wide", INT),
)


def compiler() -> str | None:
    """The system's C++ compiler."""
    return next(filter(None, map(shutil.which, [os.environ.get("CXX", "c++"), "g++", "clang++"])), None)


def build(folder: Path, text: str) -> Path:
    """The emulator as a library that has these kernels; undefined behaviour traps."""
    kernels, library = folder / "kernels.cu", folder / "emulator.so"
    kernels.write_text(text)
    options = ["-std=c++20", "-O2", "-fPIC", "-shared", "-pthread"]
    # Contexts leave stacks by longjmp, which the checks of fortified libraries take for an error.
    options += ["-w", "-U_FORTIFY_SOURCE", "-fsanitize=undefined", "-fsanitize-undefined-trap-on-error"]
    compile_it = [
        str(compiler()),
        *options,
        f'-DKERNELS="{kernels}"',
        str(EMULATOR / "emulator.cpp"),
        "-o",
        str(library),
    ]
    done = subprocess.run(compile_it, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return library


class Wrong(Exception):  # noqa: N818
    """What the emulator found: an access to no buffer, a race, undefined behaviour."""


class Emulator:
    """Kernels of a library, and buffers between pages that nothing may touch."""

    def __init__(self, library: Path) -> None:
        self.library = ctypes.CDLL(str(library))
        self.library.emulate.restype = ctypes.c_char_p
        self.library.allocate.restype = ctypes.c_void_p
        self.library.size_of.restype = ctypes.c_size_t
        self.seed = 0
        """How threads take turns: 0 is their order, 1 the reverse, anything else a random one."""
        self.at_start = False
        """Whether accesses below buffers are seen at once; otherwise those above are."""
        self.buffers: list[tuple[int, int]] = []

    def launch(self, name: str, parameter: ctypes.Structure, grid: Sequence[int], shared: int = 0) -> None:
        sizes = (ctypes.c_uint * 3)(*grid, *[1] * (3 - len(grid)))
        workers = min(2, os.cpu_count() or 1)
        wrong = self.library.emulate(name.encode(), ctypes.byref(parameter), sizes, shared, self.seed, workers)
        if wrong is not None:
            raise Wrong(f"{name}: {wrong.decode()}")

    def array(self, shape: Sequence[int], dtype: Any, sparse: bool = False) -> np.ndarray:
        """A buffer, in which nothing is zero; or everything, and it takes no memory where nothing is written."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        at = self.library.allocate(ctypes.c_size_t(size), ctypes.c_bool(self.at_start))
        if at is None:
            raise MemoryError
        self.buffers.append((at, size))
        filled = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(at))
        if not sparse:
            filled[:] = 0xEE
        return filled.view(dtype).reshape(shape)

    def copy(self, of: np.ndarray) -> np.ndarray:
        buffer = self.array(of.shape, of.dtype)
        buffer[...] = of
        return buffer

    def release(self) -> None:
        for at, size in self.buffers:
            self.library.give_back(ctypes.c_void_p(at), ctypes.c_size_t(size))
        self.buffers.clear()


def address(array: np.ndarray) -> int:
    return array.ctypes.data


def ceil(a: int, b: int) -> int:
    return -(-a // b)


def word_residues(planes: int, bits: int) -> ctypes.Structure:
    residues = Residues()
    for i, m in enumerate(moduli()[:planes] if bits == 64 else []):
        residues.modulus[i], residues.reciprocal[i] = m, 2**32 // m
        residues.high[i], residues.sign[i] = 2**32 % m, -(2**64) % m
    return residues


@dataclass
class Convolution:
    """A convolution of a batch: parts of weights and inputs, of which the first `used` have inputs."""

    channels: int
    filters: int
    groups: int
    input: tuple[int, int]
    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilations: tuple[int, int] = (1, 1)
    batch: int = 1
    parts: int = 1
    used: int = 1

    def __post_init__(self) -> None:
        spans = [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True)]
        padded = [self.input[i] + self.pads[i] + self.pads[i + 2] for i in (0, 1)]
        self.output = [(padded[i] - spans[i]) // self.strides[i] + 1 for i in (0, 1)]
        self.positions = self.output[0] * self.output[1]
        self.places = self.input[0] * self.input[1]
        self.depth, self.rows = self.channels // self.groups, self.filters // self.groups
        self.elements = self.kernel[0] * self.kernel[1]
        # Pieces of sixteen channels: of a group, of a place, and of a part's inner dimension.
        self.piece = ceil(self.depth, 16)
        self.place = self.piece * self.groups
        self.pieces = self.elements * self.piece

    def planes(self, bits: int) -> int:
        return LIMBS if bits == 32 else residues_for(self.parts * self.pieces * 16)

    def random(self, bits: int, rng: np.random.Generator) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Inputs and weights."""
        dtype = np.dtype(f"u{bits // 8}")

        def words(*shape: int) -> np.ndarray:
            return rng.integers(0, 2**bits, shape, dtype=dtype)

        xs = [words(self.batch, self.channels, *self.input) for _ in range(self.used)]
        return xs, [words(self.filters, self.depth, *self.kernel) for _ in range(self.parts)]

    def expected(self, xs: Sequence[np.ndarray], ws: Sequence[np.ndarray]) -> np.ndarray:
        """By numpy, [filter, image, position]: words wrap around as the kernels' do."""
        out = np.zeros((self.groups, self.rows, self.batch, *self.output), xs[0].dtype)
        top, left, bottom, right = self.pads
        for x, w in zip(xs, ws, strict=False):
            padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
            padded = padded.reshape(self.batch, self.groups, self.depth, *padded.shape[2:])
            weights = w.reshape(self.groups, self.rows, self.depth, *self.kernel)
            for i, j in np.ndindex(*self.kernel):
                down, to_right = i * self.dilations[0], j * self.dilations[1]
                seen = padded[..., down :: self.strides[0], to_right :: self.strides[1]]
                seen = seen[..., : self.output[0], : self.output[1]]
                out += np.einsum("grc,bgchw->grbhw", weights[..., i, j], seen)
        return out.reshape(self.filters, self.batch, self.positions)

    def by_tensor_cores(
        self,
        emulator: Emulator,
        xs: Sequence[np.ndarray],
        ws: Sequence[np.ndarray],
        slices: int = 1,
        window: tuple[int, int, int, int] | None = None,
    ) -> np.ndarray:
        """As weight.rs and running.rs do it; `window`: first image and position, positions of each image, images."""
        bits = xs[0].dtype.itemsize * 8
        planes = self.planes(bits)
        first, start, run, images = window or (0, 0, self.positions, self.batch)
        residues, suffix = word_residues(planes, bits), f"_u{bits}"
        row = self.parts * self.pieces
        left = emulator.array((planes, self.filters, row * 16), np.uint8)
        for part, w in enumerate(ws):
            to = address(left) + part * self.pieces * 16
            rows = Rows(address(emulator.copy(w)), to, self.filters * row * 16)
            rows.rows, rows.channels, rows.elements, rows.row = self.filters, self.depth, self.elements, row
            rows.planes, rows.residues = planes, residues
            emulator.launch("pack_rows" + suffix, rows, [ceil(self.filters * self.pieces, THREADS)])
        image = self.places * self.place
        right = emulator.array((planes, self.batch, self.used * image * 16), np.uint8)
        for part, x in enumerate(xs):
            to = address(right) + part * image * 16
            channels = Channels(address(emulator.copy(x)), to, right[0].size, self.batch, self.places, self.groups)
            channels.channels, channels.image, channels.place = self.depth, self.used * image, self.place
            channels.planes, channels.residues = planes, residues
            emulator.launch("pack_channels" + suffix, channels, [ceil(self.batch * image, THREADS)])
        table = emulator.copy(np.array(list(self.patches()), np.int32))
        map_ = Map(address(left), address(right), 0, address(table), left[0].size, right[0].size)
        map_.rows, map_.columns, map_.count, map_.a_row = self.rows, images * run, self.used * self.pieces, row
        map_.image, map_.place, map_.group = self.used * image, self.place, self.piece
        map_.height, map_.width = self.input
        map_.first, map_.start, map_.run, map_.across = first, start, run, self.output[1]
        map_.stride_down, map_.stride_right = self.strides
        map_.pad_top, map_.pad_left = self.pads[:2]
        out = multiply(emulator, map_, self.groups, planes, bits, slices)
        return out.reshape(self.filters, images, run)

    def patches(self) -> Any:
        """Where pieces of patches lie."""
        for part in range(self.parts):
            for i, j in np.ndindex(*self.kernel):
                down, right = i * self.dilations[0], j * self.dilations[1]
                ahead = (part * self.places + down * self.input[1] + right) * self.place
                for piece in range(self.piece):
                    yield down, right, ahead + piece, 0

    def by_words(
        self, emulator: Emulator, xs: Sequence[np.ndarray], ws: Sequence[np.ndarray], kernel: str
    ) -> np.ndarray:
        """By `product` or `depthwise`."""
        bits = xs[0].dtype.itemsize * 8
        columns = self.batch * self.positions
        out = emulator.array((self.filters, columns), xs[0].dtype)
        plain = Plain(out=address(out), out_row=columns, parts=self.used)
        for part, (x, w) in enumerate(zip(xs, ws, strict=False)):
            plain.a[part], plain.b[part] = address(emulator.copy(w)), address(emulator.copy(x))
        plain.groups, plain.rows, plain.columns, plain.channels = self.groups, self.rows, columns, self.depth
        plain.kernel_down, plain.kernel_right = self.kernel
        plain.dilation_down, plain.dilation_right = self.dilations
        plain.height, plain.width = self.input
        plain.run, plain.across = self.positions, self.output[1]
        plain.stride_down, plain.stride_right = self.strides
        plain.pad_top, plain.pad_left = self.pads[:2]
        grid = [ceil(columns, TILE), ceil(self.rows, TILE), self.groups]
        if kernel == "depthwise":
            grid = [ceil(columns, THREADS), self.filters]
        emulator.launch(f"{kernel}_u{bits}", plain, grid)
        return out.reshape(self.filters, self.batch, self.positions).copy()


def dense(
    emulator: Emulator, xs: Sequence[np.ndarray], ws: Sequence[np.ndarray], slices: int = 1, step: int = 1 << 20
) -> np.ndarray:
    """The sum of products x · w, as weight.rs and running.rs compute it; weights are packed `step` rows at a time."""
    (samples, inputs), outputs, bits = xs[0].shape, ws[0].shape[1], xs[0].dtype.itemsize * 8
    part, used, parts, suffix = ceil(inputs, 16), len(xs), len(ws), f"_u{bits}"
    planes = LIMBS if bits == 32 else residues_for(parts * part * 16)
    residues = word_residues(planes, bits)
    right = emulator.array((planes, outputs, parts * part * 16), np.uint8)
    for number, w in enumerate(ws):
        for first in range(0, inputs, step):
            words = emulator.copy(w[first : first + step])
            to = address(right) + number * part * 16 + first
            channels = Channels(address(words), to, right[0].size, 1, outputs, 1, len(words), 0, parts * part, planes)
            channels.residues = residues
            emulator.launch("pack_channels" + suffix, channels, [ceil(outputs * ceil(len(words), 16), THREADS)])
    left = emulator.array((planes, samples, used * part * 16), np.uint8)
    for number, x in enumerate(xs):
        to = address(left) + number * part * 16
        rows = Rows(address(emulator.copy(x)), to, left[0].size, samples, inputs, 1, used * part, planes, residues)
        emulator.launch("pack_rows" + suffix, rows, [ceil(samples * part, THREADS)])
    table = np.zeros((parts * part, 4), np.int32)
    table[:, 2] = np.arange(parts * part)
    map_ = Map(address(left), address(right), 0, address(emulator.copy(table)), left[0].size, right[0].size)
    map_.rows, map_.columns, map_.count, map_.a_row, map_.image = (
        samples,
        outputs,
        used * part,
        used * part,
        parts * part,
    )
    map_.height = map_.width = map_.run = map_.across = map_.stride_down = map_.stride_right = 1
    return multiply(emulator, map_, 1, planes, bits, slices)


def multiply(
    emulator: Emulator, map_: ctypes.Structure, groups: int, planes: int, bits: int, slices: int
) -> np.ndarray:
    """The product itself, as running.rs has it computed: rows of `columns` words."""
    map_.planes, map_.slices, map_.out_row = planes, 1, map_.columns
    shape = (groups * map_.rows, map_.columns)
    out = emulator.array(shape, f"u{bits // 8}")
    grid = [ceil(map_.columns, TILE), ceil(map_.rows, TILE), groups * (slices if bits == 32 else planes)]
    if bits == 32:
        map_.slices, map_.out = slices, address(out)
        if slices > 1:
            out[:] = 0
        emulator.launch("limbs_by_warps", map_, grid, SHARED)
        return out.copy()
    plane = ceil(out.size, 16) * 16
    bytes_ = emulator.array((planes, plane), np.uint8)
    product = math.prod(moduli()[:planes])
    for i, m in enumerate(moduli()[:planes]):
        map_.modulus[i], map_.reciprocal[i], map_.offset[i] = m, 2**32 // m, ceil(2**31, m) * m
        map_.factor[i] = pow(product // m, -1, m)
    map_.out, map_.out_plane = address(bytes_), plane
    emulator.launch("residues_by_warps", map_, grid, SHARED)
    recombine(emulator, bytes_, out)
    return out.copy()


def recombine(emulator: Emulator, residues: np.ndarray, out: np.ndarray) -> None:
    planes, plane = residues.shape
    product = math.prod(moduli()[:planes])
    of = Recombined(address(residues), address(out), plane, out.size, planes, product % 2**64)
    for i, m in enumerate(moduli()[:planes]):
        of.cofactor[i], of.fraction[i] = product // m % 2**64, 2**56 // m
    emulator.launch("recombine", of, [ceil(out.size, 4 * THREADS)])


RUN = 1024
"""Words of 32 bits that a warp draws."""


def draw(emulator: Emulator, keys: np.ndarray, nonce: int, start: int, out: np.ndarray, adds: bool = False) -> None:
    """Has `out` be the words of a stream from `start` on, as draw.rs does, or what it is and they."""
    narrow = out.dtype.itemsize // 4
    of = Drawn(address(emulator.copy(keys)), address(out), nonce, start * narrow, out.size * narrow, adds, narrow == 2)
    runs = ceil(of.start % RUN + of.count, RUN)
    emulator.launch("draw", of, [ceil(runs, THREADS // 32)])
