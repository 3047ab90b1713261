"""What `covey-fuzz` calls for the parsers that are written in Python: `fuzz_worker.py TARGET` answers inputs.

An input is its length (u32, little-endian) and its bytes, on standard input. An answer is a letter (a accepted,
r refused, p broke), the length of the words and the words. `fuzz_worker.py --seed FOLDER` writes the first inputs of
each corpus.
"""

from __future__ import annotations

import os
import resource
import struct
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import numpy as np
import onnx
from onnx import helper

import builders
import covey
from covey import certificate
from covey._core import Program
from covey._proto import program_pb2 as pb
from covey.emit import HEADER_BYTES, program_file
from covey.inputs import read_inputs

LONGEST_LINE = 2000
Parse = Callable[[Path], object]


def read_model(folder: Path) -> Callable[[bytes], None]:
    """A model file: checked, and compiled where it is sound."""

    def parse(content: bytes) -> None:
        path = folder / "model.onnx"
        path.write_bytes(content)
        checked = covey.check(path)
        assert all("\n" not in f"{note}" for note in checked.notes)
        covey.compile(path, input_range=(-1, 1))

    return parse


def read_accuracy(folder: Path) -> Callable[[bytes], None]:
    """A program with an accuracy certificate: what `covey verify` reads of it before it measures."""

    def parse(content: bytes) -> None:
        path = folder / "model.covey"
        path.write_bytes(content)
        found = certificate.of(Program(path))
        if found is not None:
            certificate.holds(found)

    return parse


def read_array(folder: Path) -> Callable[[bytes], None]:
    """An .npy or .npz file, as input of a small program."""
    compiled = covey.compile(builders.single("Relu", ["N", 3]), input_range=(-1, 1))
    program = Program(compiled.program_bytes)

    def parse(content: bytes) -> None:
        path = folder / "x.npy"
        path.write_bytes(content)
        read_inputs(path, program)

    return parse


TARGETS: dict[str, Callable[[Path], Callable[[bytes], None]]] = {
    "onnx": read_model,
    "accuracy": read_accuracy,
    "array": read_array,
}


def answer(parse: Callable[[bytes], None], content: bytes) -> tuple[bytes, str]:
    """The letter and the words."""
    try:
        parse(content)
    except covey.CoveyError as refusal:
        line = str(refusal)
        if not line or "\n" in line or len(line) > LONGEST_LINE:
            return b"p", f"a refusal that is not one line: {line!r}"[:LONGEST_LINE]
        return b"r", line
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if f"covey{os.sep}" in frame.filename] or frames
        place = f"{Path(own[-1].filename).name}:{own[-1].lineno}"
        return b"p", f"{place}: {type(error).__name__}: {error}"[:LONGEST_LINE]
    return b"a", ""


def limit_memory() -> None:
    """Allocations fail beyond what this process has and what an input may take."""
    allowance = int(os.environ.get("COVEY_FUZZ_MEMORY", 512 << 20))
    with open("/proc/self/statm") as statm:
        own = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (own + allowance, own + allowance))


def serve(name: str, requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer until there are no more inputs."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="covey-fuzz-", dir=memory if memory.is_dir() else None) as folder:
        parse = TARGETS[name](Path(folder))
        limit_memory()
        while len(length := requests.read(4)) == 4:
            letter, words = answer(parse, requests.read(struct.unpack("<I", length)[0]))
            encoded = words.encode("utf-8", "replace")
            answers.write(letter + struct.pack("<I", len(encoded)) + encoded)
            answers.flush()


def models() -> dict[str, onnx.ModelProto]:
    """Small models that between them use most operators."""
    rng = np.random.default_rng(0)
    node = helper.make_node
    weight = builders.weights(rng, 4, 4, 3, 3)
    residual = builders.model(
        [
            node("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1]),
            node("Add", ["c", "x"], ["s"], name="add"),
            node("Clip", ["s", "low", "high"], ["k"], name="clip"),
            node("AveragePool", ["k"], ["p"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
            node("Concat", ["p", "p"], ["j"], name="join", axis=1),
            node("GlobalAveragePool", ["j"], ["g"], name="global"),
            node("Flatten", ["g"], ["f"], name="flatten"),
            node("ArgMax", ["f"], ["y"], name="class", axis=1),
        ],
        {"x": ["N", 4, 6, 6]},
        ["y"],
        {"w": weight, "low": np.array(0.0), "high": np.array(6.0)},
        output_dtype=onnx.TensorProto.INT64,
    )
    moves = builders.model(
        [
            node("Transpose", ["x"], ["t"], name="turn", perm=[0, 2, 1]),
            node("Slice", ["t", "from", "to", "along"], ["s"], name="slice"),
            node("Pad", ["s", "pads"], ["p"], name="pad"),
            node("Gather", ["p", "at"], ["g"], name="gather", axis=1),
            node("Reshape", ["g", "shape"], ["r"], name="reshape"),
            node("Split", ["r"], ["a", "b"], name="split", axis=1),
            node("Mul", ["a", "b"], ["m"], name="square"),
            node("ReduceMean", ["m"], ["y"], name="mean", axes=[1]),
        ],
        {"x": ["N", 4, 4]},
        ["y"],
        {
            "from": np.array([1, 0]),
            "to": np.array([3, 100]),
            "along": np.array([1, 2]),
            "pads": np.array([0, 0, 1, 0, 0, 1]),
            "at": np.array([1, 0, 1]),
            "shape": np.array([-1, 18]),
        },
    )
    curved = builders.model(
        [
            node("Gemm", ["x", "w", "b"], ["h"], name="dense", transB=1),
            node("Sigmoid", ["h"], ["s"], name="sigmoid"),
            node("LeakyRelu", ["s"], ["l"], name="leaky"),
            node("Softmax", ["l"], ["y"], name="softmax"),
        ],
        {"x": ["N", 5]},
        ["y"],
        {"w": rng.normal(size=(3, 5)), "b": rng.normal(size=3)},
    )
    return {"cnn": builders.small_cnn(rng), "residual": residual, "moves": moves, "curved": curved}


def write_corpus(corpus: Path) -> None:
    """The first inputs of each target."""
    for target in TARGETS:
        (corpus / target).mkdir(parents=True, exist_ok=True)
    for name, model in models().items():
        covey.compile(model, input_range=(-1, 1))
        (corpus / "onnx" / f"{name}.onnx").write_bytes(model.SerializeToString(deterministic=True))
    compiled = covey.compile(builders.single("Relu", ["N", 3]), input_range=(-1, 1))
    program = pb.Program.FromString(compiled.program_bytes[HEADER_BYTES:])
    right = {"samples": 50, "float_correct": 49, "fixed_correct": 48}
    program.certificate.CopyFrom(pb.Certificate(data="x.npy", digest=bytes(32), labelled=True, tolerance=0.05, **right))
    (corpus / "accuracy" / "certified.covey").write_bytes(program_file(program, "certified")[0])
    values = np.linspace(-1, 1, 6).reshape(2, 3)
    np.save(corpus / "array" / "x.npy", values)
    np.save(corpus / "array" / "single.npy", values.astype(np.float32))
    np.savez(corpus / "array" / "named.npz", x=values)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if sys.argv[1] == "--seed":
        write_corpus(Path(sys.argv[2]))
    else:
        answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints is no answer
        serve(sys.argv[1], sys.stdin.buffer, answers)
