"""Writing the two files of a compiled model.

`model.covey` is the public program, `model.weights.safetensors` the secret parameters; ARCHITECTURE.md gives both
layouts. Both are written or neither.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np
from blake3 import blake3

from covey._proto import program_pb2 as pb
from covey._version import __version__
from covey.errors import CoveyError
from covey.files import write_whole

MAGIC = b"COVEY\0"
CONTAINER_VERSION = 1
FORMAT_VERSION = 1

HEADER_BYTES = len(MAGIC) + 2 + 32
"""What stands before the program: magic, version, a zero byte, the hash."""

_DTYPES = {np.dtype(np.int32): "I32", np.dtype(np.int64): "I64"}


def program_file(program: pb.Program, name: str) -> tuple[bytes, str]:
    """The container around a program, and the program hash in hex."""
    program.format_version = FORMAT_VERSION
    program.name = name
    program.producer = f"covey {__version__}"
    body = program.SerializeToString(deterministic=True)
    digest = blake3(body)
    return MAGIC + bytes([CONTAINER_VERSION, 0]) + digest.digest() + body, digest.hexdigest()


def weights_file(weights: Mapping[str, np.ndarray], program_hash: str) -> bytes:
    """A safetensors file of ring integers, bound to the program by its hash and to itself by a checksum."""
    checksum = blake3()
    header: dict[str, object] = {}
    blobs: list[bytes] = []
    offset = 0
    for name in sorted(weights, key=lambda text: text.encode()):
        array = weights[name]
        dtype = _DTYPES[array.dtype]
        blob = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
        shape = ",".join(str(size) for size in array.shape)
        checksum.update(f"{name}\0{dtype}\0{shape}\0".encode())
        checksum.update(blob)
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [offset, offset + len(blob)]}
        blobs.append(blob)
        offset += len(blob)
    metadata = {
        "format": "covey-weights",
        "version": "1",
        "program": program_hash,
        "checksum": checksum.hexdigest(),
    }
    text = json.dumps({"__metadata__": metadata, **header}, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(blobs)


def write_files(files: Mapping[Path, bytes], private: frozenset[Path] = frozenset()) -> None:
    """Write all files or none. Only their owner may read `private` ones."""
    try:
        for path in files:
            path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(
            {path: partial(_write, content) for path, content in files.items()},
            {path: 0o600 if path in private else 0o644 for path in files},
        )
    except OSError as error:
        reason = error.strerror or error
        raise CoveyError(f"cannot write '{error.filename}': {reason}; nothing was left half-written") from None


def _write(content: bytes, stream: BinaryIO) -> None:
    stream.write(content)
