"""Every mistake a user can make with inputs, files, keys, parties and disks, over every protocol.

Each ends with one clear line that names the thing and the way out, and with an exit code that is not 0; the parties go
on serving, with the state they had. `bad_input.py` prints which row of the table each test stands for.
"""

from __future__ import annotations

import itertools
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import builders
import covey
from command import Command
from covey.clear import run_clear
from covey.model import load
from served import (
    PROTOCOLS,
    SERVED,
    TIMEOUT,
    Place,
    client_folder,
    environment,
    network,
    one_line,
    parametrize_protocols,
    place,
    program_with_ring,
    run_command,
    samples,
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize_protocols(metafunc, anywhere=PROTOCOLS, served=SERVED)


@pytest.fixture(scope="module")
def anywhere(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with place(request.param, tmp_path_factory.mktemp(request.param)) as made:
        yield made


@pytest.fixture(scope="module")
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with place(request.param, tmp_path_factory.mktemp(request.param)) as made:
        yield made


def damaged(source: Path, target: Path, *, keep: float = 1.0, flip: int | None = None) -> Path:
    content = bytearray(source.read_bytes())
    if flip is not None:
        content[flip] ^= 1
    target.write_bytes(content[: int(len(content) * keep)])
    return target


# Inputs.

INPUTS: dict[str, tuple[object, str]] = {
    "nan": (np.array([[0, np.nan, 0]]), "nan at [0, 1]"),
    "infinite": (np.array([[0.5, 0, 0], [0, 0, -np.inf]]), "-inf at [1, 2]"),
    "range": (np.array([[0, 0, 1.5]]), "1.5 at [0, 2], outside its declared range [-1, 1]"),
    "shape": (np.zeros((1, 4)), "has shape [1, 4], expected [N, 3]"),
    "rank": (np.zeros(3), "add the batch dimension"),
    "dtype": (np.array([["a", "b", "c"]]), "dtype <U1"),
    "complex": (np.zeros((1, 3), complex), "dtype complex128"),
    "batch": (np.zeros((0, 3)), "has no samples"),
    "zero": (np.zeros((1, 0)), "has shape [1, 0], expected [N, 3]"),
}


@pytest.mark.parametrize("kind", INPUTS)
def test_inputs(anywhere: Place, command: Command, tmp_path: Path, kind: str) -> None:
    array, saying = INPUTS[kind]
    np.save(tmp_path / "x.npy", array)
    line = command.refuses(*anywhere.call(x=tmp_path / "x.npy"), "--output", tmp_path / "y.npy", saying=saying)
    assert "'x'" in line
    assert [path.name for path in tmp_path.iterdir()] == ["x.npy"]
    anywhere.check_sound(command, tmp_path)


# Files.


def test_missing_files(anywhere: Place, command: Command, tmp_path: Path) -> None:
    sound = anywhere.program.with_name("sound.npy")
    command.refuses(*anywhere.call(x=tmp_path / "absent.npy"), saying="absent.npy' does not exist")
    command.refuses(*anywhere.call(program=tmp_path / "absent.covey", x=sound), saying="absent.covey' does not exist")
    command.refuses(*anywhere.share(weights=tmp_path / "absent.safetensors"), saying="absent.safetensors")
    if anywhere.protocol != "clear":
        command.refuses(*anywhere.call(x=sound, config=tmp_path / "absent.toml"), saying="absent.toml")
    anywhere.check_sound(command, tmp_path)


def test_damaged_programs(anywhere: Place, command: Command, tmp_path: Path) -> None:
    sound, bad = anywhere.program.with_name("sound.npy"), tmp_path / "bad.covey"
    size = anywhere.program.stat().st_size
    for flip in (0, 6, 7, 20, size // 2, size - 1):
        damaged(anywhere.program, bad, flip=flip)
        command.refuses(*anywhere.call(program=bad, x=sound), saying="bad.covey")
    for keep in (0.0, 0.02, 0.9):
        damaged(anywhere.program, bad, keep=keep)
        command.refuses(*anywhere.call(program=bad, x=sound), saying="bad.covey")
    anywhere.check_sound(command, tmp_path)


def test_damaged_weights(anywhere: Place, command: Command, tmp_path: Path) -> None:
    bad = tmp_path / "bad.safetensors"
    size = anywhere.weights.stat().st_size
    for flip in (3, 12, size - 1):
        damaged(anywhere.weights, bad, flip=flip)
        command.refuses(*anywhere.share(weights=bad), saying="bad.safetensors")
    for keep in (0.0, 0.5, 0.99):
        damaged(anywhere.weights, bad, keep=keep)
        command.refuses(*anywhere.share(weights=bad), saying="bad.safetensors")
    anywhere.check_sound(command, tmp_path)


def test_weights_of_another_program(anywhere: Place, command: Command, tmp_path: Path) -> None:
    other = covey.compile(builders.single("Relu", ["N", 3]), input_range=(-1, 1))
    weights = other.save(tmp_path / "other.covey")[1]
    line = command.refuses(*anywhere.share(weights=weights), saying="other.weights.safetensors")
    assert other.program_hash[:8] in line
    anywhere.check_sound(command, tmp_path)


def test_programs_of_another_kind(anywhere: Place, command: Command, tmp_path: Path) -> None:
    sound = anywhere.program.with_name("sound.npy")
    for name, content in {"model.onnx": b"no model at all", "x.covey": b"\x93NUMPY"}.items():
        (tmp_path / name).write_bytes(content)
        command.refuses(*anywhere.call(program=tmp_path / name, x=sound), saying=name)
    command.refuses(*anywhere.call(program=tmp_path, x=sound), saying=str(tmp_path))
    anywhere.check_sound(command, tmp_path)


def test_rings_a_protocol_does_not_support(served: Place, command: Command, tmp_path: Path) -> None:
    ring = {"pow2": 12} if served.protocol == "two-party" else {"odd": 65_521}
    program, weights = program_with_ring(tmp_path / "narrow.covey", **ring)
    command.refuses(*served.share(program=program, weights=weights), saying="Z_")
    command.refuses("explain", program, "--protocol", served.protocol, saying="Z_")
    served.check_sound(command, tmp_path)


# Weights at the parties.


def test_stale_weights(served: Place, command: Command, tmp_path: Path) -> None:
    """One role alone has the version before: a computing party, or a dealer, whose masks are of that version."""
    np.save(tmp_path / "x.npy", samples(1))
    for role in served.last:
        (kept,) = served.state(role).glob("*.share")
        old = kept.read_bytes()
        command.succeeds(*served.share())
        kept.write_bytes(old)
        served.restart(role)
        line = command.refuses(*served.call(x=tmp_path / "x.npy"), saying="share them again")
        assert served.served.parties[role].name in line
        command.succeeds(*served.share())
        served.check_sound(command, tmp_path)


def test_weights_missing_at_a_party(served: Place, command: Command, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", samples(1))
    for role in served.last:
        for kept in served.state(role).glob("*.share"):
            kept.unlink()
        served.restart(role)
        line = command.refuses(*served.call(x=tmp_path / "x.npy"), saying="holds no weights of program")
        assert served.served.parties[role].name in line
        assert "share" in line
        command.succeeds(*served.share())
        served.check_sound(command, tmp_path)


def test_programs_nobody_shared(served: Place, command: Command, tmp_path: Path) -> None:
    other = network(2).save(tmp_path / "other.covey")[0]
    np.save(tmp_path / "x.npy", samples(1))
    line = command.refuses(*served.call(program=other, x=tmp_path / "x.npy"), saying="holds no weights of program")
    assert load(other).program.hash[:8] in line
    served.check_sound(command, tmp_path)


def test_damaged_state(served: Place, command: Command, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", samples(1))
    for role in served.last:
        (kept,) = served.state(role).glob("*.share")
        sound = kept.read_bytes()
        for content in (sound[:-1], sound[:40], b"", bytes([sound[0] ^ 1]) + sound[1:]):
            kept.write_bytes(content)
            served.restart(role)
            line = command.refuses(*served.call(x=tmp_path / "x.npy"), saying="state file")
            assert served.served.parties[role].name in line
            assert kept.name in line
        kept.write_bytes(sound)
        served.restart(role)
        served.check_sound(command, tmp_path)


# Keys and rights.


def test_wrong_keys(served: Place, command: Command, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", samples(1))
    config = client_folder(served.served, tmp_path)
    stranger = command.succeeds("keys", "new", "stranger", "--out", tmp_path).out.strip()
    call = served.call(x=tmp_path / "x.npy", config=config)
    right = config.read_text()
    # A party with another key than the one that is pinned; two parties whose addresses are exchanged.
    command.succeeds("keys", "pin", config, "beta", stranger)
    command.refuses(*call, saying="beta")
    addresses = [line.split('"')[1] for line in right.splitlines() if line.startswith("address")]
    config.write_text(
        right.replace(addresses[0], "PLACE").replace(addresses[1], addresses[0]).replace("PLACE", addresses[1])
    )
    command.refuses(*call, saying="pinned")
    # A client whom no party knows.
    config.write_text(right)
    shutil.copy(tmp_path / "stranger.pem", config.parent / "key.pem")
    command.refuses(*call, saying="not pinned")
    served.check_sound(command, tmp_path)


def test_clients_without_the_right(served: Place, command: Command, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", samples(1))
    owner, data = served.served.owner_config, served.served.client_config
    line = command.refuses(*served.call(x=tmp_path / "x.npy", config=owner), saying="may not infer")
    assert "model-owner" in line
    share = ["share-weights", served.program, "--config", data, "--protocol", served.protocol]
    line = command.refuses(*share, saying="may not share-weights")
    assert "data-owner" in line
    served.check_sound(command, tmp_path)


# Parties that are gone, silent, or meet rubbish.


def test_a_dead_party(served: Place, command: Command, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", samples(1))
    for party in served.served.parties:
        party.kill()
        start = time.monotonic()
        command.refuses(*served.call(x=tmp_path / "x.npy"), saying=party.name)
        assert time.monotonic() - start < 3 * TIMEOUT
        party.spawn()
        party.wait_until_ready()
        served.check_sound(command, tmp_path)


def test_a_stalled_party(served: Place, command: Command, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", samples(1))
    for party in served.served.parties:
        assert party.pid is not None
        os.kill(party.pid, signal.SIGSTOP)
        try:
            start = time.monotonic()
            command.refuses(*served.call(x=tmp_path / "x.npy"), saying=party.name)
            assert time.monotonic() - start < 4 * TIMEOUT
        finally:
            os.kill(party.pid, signal.SIGCONT)
        time.sleep(0.2)
        served.check_sound(command, tmp_path)


RUBBISH = [
    b"",
    b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    bytes(4096),
    bytes(range(256)) * 16,
    b"\x16\x03\x01\xff\xff" + b"\xff" * 300,
    b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00",
    b"SSH-2.0-OpenSSH_9.9\r\n",
]


def address_of(config: Path, key: str = "listen") -> tuple[str, int]:
    line = next(line for line in config.read_text().splitlines() if line.startswith(key))
    host, port = line.split('"')[1].rsplit(":", 1)
    return host, int(port)


def test_rubbish_on_a_port(served: Place, command: Command, tmp_path: Path) -> None:
    waiting = []
    for party in served.served.parties:
        for rubbish in RUBBISH:
            with socket.create_connection(address_of(party.config), timeout=5) as stream:
                stream.sendall(rubbish)
        # These say nothing and stay.
        waiting.append(socket.create_connection(address_of(party.config), timeout=5))
    served.check_sound(command, tmp_path)
    for stream in waiting:
        stream.settimeout(4 * TIMEOUT)
        assert stream.recv(100) == b"", "a caller who says nothing is not waited for"
        stream.close()
    for party in served.served.parties:
        assert "panicked" not in party.log.read_text()


# Plans.


def test_batches_above_the_plan(served: Place, command: Command, tmp_path: Path) -> None:
    """More samples than were preprocessed for, and more than any run takes."""
    parties = served.served
    model = served.model
    parties.preprocess(model, 2, 1)
    with pytest.raises(covey.CoveyError, match="preprocess") as caught:
        parties.run(model, samples(1, 3), phase="online")
    assert "\n" not in str(caught.value)
    parties.preprocess(model, 2, 1)
    result = parties.run(model, samples(2, 2), phase="online")
    expected = run_clear(model, samples(2, 2))
    for name, integers in expected.integers.items():
        np.testing.assert_array_equal(result.integers[name], integers)
    command.refuses("explain", served.program, "--protocol", served.protocol, "--batch", 1 << 31, saying="samples")
    served.check_sound(command, tmp_path)


def test_overflow_in_the_clear(command: Command, tmp_path: Path) -> None:
    """Bounds taken from calibration data, and data far beyond it."""
    names = ["x", "a", "b", "y"]
    nodes = [
        helper.make_node("MatMul", [before, "w"], [after], name=f"to_{after}")
        for before, after in itertools.pairwise(names)
    ]
    model = builders.model(nodes, {"x": ["N", 16]}, ["y"], {"w": np.full((16, 16), 4.0)})
    data = np.random.default_rng(0).uniform(-0.01, 0.01, (8, 16))
    # The few bits that such a bound leaves are off by more than the usual limit.
    compiled = covey.compile(model, input_range=(-1, 1), calibration=data, ring=32, max_error=1.0)
    program = compiled.save(tmp_path / "m.covey")[0]
    np.save(tmp_path / "x.npy", np.ones((1, 16)))
    line = command.refuses("run", program, "--protocol", "clear", "--input", tmp_path / "x.npy", saying="'to_")
    assert "bound" in line
    np.save(tmp_path / "x.npy", data)
    command.succeeds("run", program, "--protocol", "clear", "--input", tmp_path / "x.npy")


def test_variance_zero_without_epsilon() -> None:
    constants = {name: np.ones(3) for name in "sbm"} | {"v": np.zeros(3)}
    model = builders.single("BatchNormalization", ["N", 3, 2, 2], constants, epsilon=0.0)
    with pytest.raises(covey.CoveyError, match=r"'the_node' \(BatchNormalization\): its variance"):
        covey.compile(model, input_range=(-1, 1))


# Stores.


def test_stores(command: Command, tmp_path: Path) -> None:
    """Correlated OTs serve any program of the two; those of other parties are refused, and so is a damaged store."""
    with place("two-party", tmp_path) as made:
        other = network(2).save(tmp_path / "other.covey")[0]
        parties = made.served
        parties.share(load(other))
        fill = ["store", "fill", "--config", parties.client_config]
        command.succeeds(*fill, other, "--inferences", 2)
        made.check_sound(command, tmp_path)
        # P0's store at P1: it is of the other role.
        for role in (0, 1):
            parties.parties[role].kill()
        (mine,) = (made.state(0) / "correlated-ots").iterdir()
        (theirs,) = (made.state(1) / "correlated-ots").iterdir()
        shutil.rmtree(theirs)
        shutil.copytree(mine, theirs)
        for role in (0, 1):
            parties.parties[role].spawn()
            parties.parties[role].wait_until_ready()
        made.check_sound(command, tmp_path)
        assert "panicked" not in parties.parties[1].log.read_text()
        command.succeeds(*fill, other, "--inferences", 1)
        made.check_sound(command, tmp_path)


# Disks.


def limit_files(pid: int | None, size: int) -> None:
    """Let no file of a running party grow beyond `size`, as on a full disk; -1 takes the limit away."""
    assert pid is not None
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))


def test_a_full_disk_at_a_party(served: Place, command: Command, tmp_path: Path) -> None:
    """The log lies there too."""
    for party in served.served.parties:
        limit_files(party.pid, 100)
        try:
            line = command.refuses(*served.share(), saying=party.name)
            assert "cannot store the weights" in line
        finally:
            limit_files(party.pid, -1)
        assert not [path.name for path in (party.config.parent / "state").glob(".partial-*")]
        served.check_sound(command, tmp_path)


def test_a_full_disk_while_a_store_is_filled(command: Command, tmp_path: Path) -> None:
    with place("two-party", tmp_path) as made:
        fill = ["store", "fill", "--config", made.served.client_config, made.program]
        party = made.served.parties[0]
        limit_files(party.pid, 100_000)
        try:
            command.refuses(
                *fill, saying="cannot write it: File too large (os error 27); raise the limit of file sizes"
            )
        finally:
            limit_files(party.pid, -1)
        made.check_sound(command, tmp_path)
        command.succeeds(*fill)
        made.check_sound(command, tmp_path)


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_full_disk_at_a_client(anywhere: Place, tmp_path: Path) -> None:
    x = tmp_path / "x.npy"
    np.save(x, samples(3, 400))
    done = run_command(*anywhere.call(x=x), "--output", tmp_path / "y.npy", full=True)
    assert done.returncode == 1
    assert "y.npy" in one_line(done.stderr)
    assert left(tmp_path) == ["x.npy"]


def test_a_full_disk_while_compiling(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    model = builders.single("MatMul", ["N", 30], {"w": np.ones((30, 30))})
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    for name in ("compile", "tune"):
        data = tmp_path / "x.npy"
        np.save(data, np.random.default_rng(0).uniform(-1, 1, (8, 30)))
        more = ["--data", data] if name == "tune" else ["--input-range", "-1,1"]
        done = run_command(name, tmp_path / "m.onnx", *more, "-o", tmp_path / "out" / "m.covey", full=True)
        assert done.returncode == 1, done
        assert "m." in one_line(done.stderr) and "None" not in done.stderr
        assert left(tmp_path / "out") == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_standard_output_on_a_full_disk(anywhere: Place, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", samples(1))
    call = [sys.executable, "-m", "covey", *map(str, anywhere.call(x=tmp_path / "x.npy"))]
    with open("/dev/full", "w") as full:
        done = subprocess.run(call, stdout=full, stderr=subprocess.PIPE, text=True, env=environment(), timeout=60)
    assert done.returncode == 1
    assert "No space left" in one_line(done.stderr)


def read_only(folder: Path) -> Path:
    """A folder in which nothing can be made, even by root."""
    if os.geteuid() != 0:
        place = folder / "read-only"
        place.mkdir(mode=0o555)
        return place
    place = Path("/sys/kernel")
    if not place.is_dir():
        pytest.skip("root may write everywhere on this system")
    return place


def test_output_that_is_read_only(anywhere: Place, command: Command, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", samples(1))
    output = read_only(tmp_path) / "covey-y.npy"
    command.refuses(*anywhere.call(x=tmp_path / "x.npy"), "--output", output, saying=str(output))
    anywhere.check_sound(command, tmp_path)


def test_a_read_only_place_for_files(command: Command, tmp_path: Path) -> None:
    model = builders.single("MatMul", ["N", 3], {"w": np.ones((3, 3))})
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    place = read_only(tmp_path)
    command.refuses("compile", tmp_path / "m.onnx", "--input-range", "-1,1", "-o", place / "m.covey", saying=str(place))
    command.refuses("keys", "new", "alpha", "--out", place, saying=str(place))


def test_a_read_only_state(served: Place, command: Command, tmp_path: Path) -> None:
    party = served.served.parties[0]
    folder = tmp_path / "party"
    shutil.copytree(party.config.parent, folder, ignore=shutil.ignore_patterns("state"))
    config = folder / "party.toml"
    state = read_only(tmp_path) / "covey-state"
    config.write_text(config.read_text().replace('state = "state"', f'state = "{state}"'))
    command.refuses("party", "--config", config, saying=str(state))


# Devices.


def test_devices_that_are_none(anywhere: Place, command: Command, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", samples(3, 2))
    call = ["run", anywhere.program, "--input", tmp_path / "x.npy", "--local", "--protocol", anywhere.protocol]
    command.refuses(*call, "--device", "gpu", saying="use auto, cpu, cuda or cuda:<number>")
    if anywhere.parties is not None:
        party = anywhere.parties.parties[0]
        command.refuses("party", "--config", party.config, "--device", "gpu", saying="use auto, cpu, cuda")


def test_a_gpu_that_is_missing(served: Place, command: Command, tmp_path: Path) -> None:
    """A number that no machine has: the test needs no machine without one."""
    np.save(tmp_path / "x.npy", samples(3, 2))
    call = ["run", served.program, "--input", tmp_path / "x.npy", "--local", "--protocol", served.protocol]
    command.refuses(*call, "--device", "cuda:99", saying="cuda:99 cannot be used")
    party = served.served.parties[0]
    command.refuses("party", "--config", party.config, "--device", "cuda:99", saying="cuda:99 cannot be used")


# Two clients at once.


def test_two_clients_at_once(served: Place, command: Command, tmp_path: Path) -> None:
    """Each gets its own result, and both get one."""
    running = []
    for client in range(2):
        np.save(tmp_path / f"x{client}.npy", samples(20 + client, 5))
        call = [*served.call(x=tmp_path / f"x{client}.npy"), "--output", tmp_path / f"y{client}.npy"]
        command_line = [sys.executable, "-m", "covey", *map(str, call)]
        pipe = subprocess.PIPE
        running.append(subprocess.Popen(command_line, stdout=pipe, stderr=pipe, text=True, env=environment()))
    for client, process in enumerate(running):
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        expected = next(iter(run_clear(served.model, samples(20 + client, 5)).outputs.values()))
        np.testing.assert_array_equal(np.load(tmp_path / f"y{client}.npy"), expected)
    served.check_sound(command, tmp_path)
