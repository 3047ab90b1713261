"""What tests of bad input share: a small network, and somewhere to run it under each protocol."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import builders
import covey
from command import Command
from covey._proto import program_pb2 as pb
from covey.clear import run_clear
from covey.emit import HEADER_BYTES, program_file, weights_file
from covey.model import Model, load
from covey.parties import Parties
from covey.protocols import DEALER

IN_FULL = "COVEY_IN_FULL" in os.environ

TIMEOUT = 3.0
"""Seconds in the configuration files of every party and client."""

PROTOCOLS = ("trio", "quad", "two-party", "beaver", "clear")
SERVED = ("trio", "quad", "two-party", "beaver")


def parametrize_protocols(metafunc: pytest.Metafunc, **fixtures: tuple[str, ...]) -> None:
    """Runs a test on each of its fixture's protocols where COVEY_IN_FULL is set, as in `make bad-input`, else on two.

    Which two differs from test to test, so that every protocol meets some mistakes in `make test`.
    """
    for fixture, protocols in fixtures.items():
        if fixture in metafunc.fixturenames:
            at = zlib.crc32(metafunc.function.__name__.encode())
            two = {(at + step) % len(protocols) for step in (0, 2)}
            chosen = [protocol for place, protocol in enumerate(protocols) if IN_FULL or place in two]
            metafunc.parametrize(fixture, chosen, indirect=True, scope="module")


def network(seed: int) -> covey.Compiled:
    """A dense layer, ReLU, a dense layer: x [N, 3] to y [N, 2]."""
    rng = np.random.default_rng(seed)
    nodes = [
        helper.make_node("MatMul", ["x", "v"], ["h"], name="first"),
        helper.make_node("Relu", ["h"], ["r"], name="relu"),
        helper.make_node("MatMul", ["r", "w"], ["y"], name="second"),
    ]
    constants = {"v": rng.normal(size=(3, 4)), "w": rng.normal(size=(4, 2))}
    return covey.compile(builders.model(nodes, {"x": ["N", 3]}, ["y"], constants), input_range=(-1, 1))


def samples(seed: int, count: int = 2) -> np.ndarray:
    """Inputs of that network."""
    return np.random.default_rng(seed).uniform(-1, 1, (count, 3))


class Place:
    """Somewhere to run a program under one protocol: parties of this machine, or nothing for `clear`."""

    def __init__(self, protocol: str, program: Path, parties: Parties | None) -> None:
        self.protocol = protocol
        self.program = program
        self.model: Model = load(program)
        self.weights = program.with_name(f"{program.stem}.weights.safetensors")
        self.parties = parties

    @property
    def served(self) -> Parties:
        """The parties, of a protocol that has them."""
        assert self.parties is not None
        return self.parties

    def call(self, *, program: Path | None = None, x: object, config: Path | None = None) -> list[object]:
        """The command that runs a program."""
        program = program or self.program
        if self.parties is None:
            return ["run", program, "--protocol", "clear", "--weights", self.weights, "--input", x]
        config = config or self.parties.client_config
        return ["infer", program, "--config", config, "--protocol", self.protocol, "--input", x]

    def share(self, *, program: Path | None = None, weights: Path | None = None) -> list[object]:
        """The command that brings a program's weights to whoever computes."""
        program = program or self.program
        if self.parties is None:
            x = program.with_name("sound.npy")
            return ["run", program, "--protocol", "clear", "--weights", weights or self.weights, "--input", x]
        owner = self.parties.owner_config
        return [
            "share-weights",
            program,
            "--config",
            owner,
            "--protocol",
            self.protocol,
            "--weights",
            weights or self.weights,
        ]

    @property
    def last(self) -> list[int]:
        """The last role that computes, and the dealer's behind it where there is one."""
        count = len(self.served.parties)
        return [count - 2, count - 1] if self.served.names[-1] == DEALER else [count - 1]

    def restart(self, role: int) -> None:
        """End a party's process and start it again."""
        party = self.served.parties[role]
        party.kill()
        party.spawn()
        party.wait_until_ready()

    def state(self, role: int) -> Path:
        """A party's state folder."""
        return self.served.parties[role].config.parent / "state"

    def check_sound(self, command: Command, folder: Path) -> None:
        """Whatever came before: a run gives what the specification gives."""
        x, y = folder / "sound-x.npy", folder / "sound-y.npy"
        inputs = samples(9)
        np.save(x, inputs)
        command.succeeds(*self.call(x=x), "--output", y)
        expected = next(iter(run_clear(self.model, inputs).outputs.values()))
        np.testing.assert_array_equal(np.load(y), expected)
        x.unlink()
        y.unlink()


@contextmanager
def place(protocol: str, folder: Path) -> Iterator[Place]:
    """A place with weights already shared."""
    program = network(1).save(folder / "network.covey")[0]
    np.save(folder / "sound.npy", samples(9))
    if protocol == "clear":
        yield Place(protocol, program, None)
        return
    with covey.local(protocol, timeout=TIMEOUT) as parties:
        made = Place(protocol, program, parties)
        parties.share(made.model)
        yield made


def client_folder(parties: Parties, folder: Path) -> Path:
    """A copy of the data owner's folder, to spoil; its configuration file."""
    copy = folder / "client"
    shutil.copytree(parties.client_config.parent, copy)
    return copy / "client.toml"


def environment() -> dict[str, str]:
    """That in which a process uses this package."""
    return {**os.environ, "PYTHONPATH": str(Path(covey.__file__).parents[1])}


def hear_interrupts() -> None:
    """In a new process: hear Ctrl-C even where the tests themselves run in the background and ignore it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def no_room() -> None:
    """In a new process: no file may grow beyond this, as on a full disk. Python ignores the signal for it."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))


def run_command(*arguments: object, full: bool = False) -> subprocess.CompletedProcess[str]:
    """`covey` in a process of its own, on a full disk if need be."""
    call = [sys.executable, "-m", "covey", *map(str, arguments)]
    limit = no_room if full else None
    return subprocess.run(call, capture_output=True, text=True, env=environment(), preexec_fn=limit, timeout=120)


def one_line(err: str) -> str:
    """The only error line of a process' stderr, which holds no traceback."""
    lines = [line for line in err.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, err
    assert "Traceback" not in err and "internal error" not in err, err
    return lines[0]


def program_with_ring(path: Path, **ring: int) -> tuple[Path, Path]:
    """A program of one ReLU over a ring the compiler does not choose, and its weights, which are none."""
    compiled = covey.compile(builders.single("Relu", ["N", 3]), input_range=(-1, 1), scale=3)
    program = pb.Program.FromString(compiled.program_bytes[HEADER_BYTES:])
    program.ring.Clear()
    for kind, number in ring.items():
        setattr(program.ring, kind, number)
    content, digest = program_file(program, "narrow")
    path.write_bytes(content)
    weights = path.with_suffix(".weights.safetensors")
    weights.write_bytes(weights_file({}, digest))
    return path, weights
