"""Real processes over mutual TLS: local parties, the remote commands against them, the demo."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

import builders
import covey
from command import DIGITS, Command
from covey.clear import run_clear
from covey.model import load
from covey.parties import Parties, free_addresses, processors, write_configuration


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(condition: object, seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


def hear_interrupts() -> None:
    """In a new process: hear Ctrl-C even where the tests themselves run in the background and ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def started(call: list[str], **environment: str) -> Iterator[subprocess.Popen[str]]:
    """`call` as a process that uses this package, hears Ctrl-C, and ends with the test."""
    variables = {**os.environ, "PYTHONPATH": str(Path(covey.__file__).parents[1]), **environment}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        call, stdout=pipe, stderr=pipe, text=True, env=variables, preexec_fn=hear_interrupts
    ) as running:
        try:
            yield running
        finally:
            running.kill()


def test_private_equals_clear(parties: Parties, digits: Path, images: np.ndarray) -> None:
    private = parties.run(digits, images[:20])
    clear = run_clear(load(digits), images[:20])
    assert list(private.outputs) == list(clear.outputs)
    for name, integers in clear.integers.items():
        np.testing.assert_array_equal(private.integers[name], integers)
        np.testing.assert_array_equal(private.outputs[name], clear.outputs[name])
    labels = np.load(DIGITS / "test-labels.npy")[:20]
    assert np.mean(next(iter(private.outputs.values())).argmax(axis=1) == labels) > 0.9
    assert private.profile is not None
    assert {"conv1+relu1", "fc2"} <= {node.name for node in private.profile.nodes}
    assert private.profile.total.online_bytes > 0


def test_weights_are_shared_once(parties: Parties, digits: Path, images: np.ndarray) -> None:
    parties.run(digits, images[:1])
    model = load(digits)
    without = load(covey.Program(digits))
    assert without.weights is None
    again = parties.run(without, images[1:3])  # the parties hold the shares already
    np.testing.assert_array_equal(
        next(iter(again.integers.values())), next(iter(run_clear(model, images[1:3]).integers.values()))
    )


def test_online_after_preprocessing(parties: Parties, digits: Path, images: np.ndarray) -> None:
    model = load(digits)
    parties.preprocess(model, 2, 1)
    online = parties.run(model, images[:2], phase="online")
    clear = run_clear(model, images[:2])
    np.testing.assert_array_equal(*(next(iter(result.integers.values())) for result in (online, clear)))
    assert online.profile is not None
    assert online.profile.total.offline_bytes == 0
    with pytest.raises(covey.CoveyError, match="preprocess"):
        parties.run(model, images[:2], phase="online")


def test_the_plan_is_what_was_sent(parties: Parties, command: Command, digits: Path, images: np.ndarray) -> None:
    profile = parties.run(digits, images[:3]).profile
    assert profile is not None
    plan = json.loads(command.succeeds("explain", digits, "--batch", 3, "--json").out)

    def links(row: dict[str, object]) -> list[tuple[object, ...]]:
        return sorted(tuple(link.values()) for link in row["links"])  # type: ignore[attr-defined]

    planned = {row["name"]: links(row) for row in plan["nodes"]}
    sent = {row["name"]: links(row) for row in profile.to_json()["nodes"] if row["links"]}
    assert {name: rows for name, rows in planned.items() if rows} == sent


def test_remote_commands(parties: Parties, command: Command, tmp_path: Path, digits: Path, images: np.ndarray) -> None:
    np.save(tmp_path / "x.npy", images[:4])
    shared = command.succeeds("share-weights", "--config", parties.owner_config, digits)
    assert "P2" in shared.out
    outcome = command.succeeds(
        "infer",
        "--config",
        parties.client_config,
        digits,
        "--input",
        tmp_path / "x.npy",
        "--output",
        tmp_path / "y.npy",
    )
    assert "sample 3: class" in outcome.out
    expected = next(iter(run_clear(load(digits), images[:4]).outputs.values()))
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), expected)
    findings = json.loads(command.succeeds("doctor", "--config", parties.client_config, "--json").out)
    assert not [finding for finding in findings if finding["verdict"] == "error"]
    assert any("digits" in finding["found"] for finding in findings)
    for party in parties.parties:
        findings = json.loads(command.succeeds("doctor", "--config", party.config, "--json").out)
        assert sum("reachable" in finding["found"] for finding in findings) == 2
    # Whoever may not ask is told so.
    infer = ["infer", "--config", parties.owner_config, digits, "--input", tmp_path / "x.npy"]
    command.refuses(*infer, saying="refused")
    command.refuses("share-weights", "--config", parties.client_config, digits, saying="refused")
    # The only program beside the configuration is taken without being named.
    here = tmp_path / "here"
    shutil.copytree(parties.client_config.parent, here)
    infer = ["infer", "--config", here / "client.toml", "--input", tmp_path / "x.npy"]
    command.refuses(*infer, saying="MODEL")
    shutil.copy(digits, here)
    command.succeeds(*infer)


def test_programs_the_parties_do_not_know(
    parties: Parties, command: Command, tmp_path: Path, images: np.ndarray
) -> None:
    other = covey.compile(DIGITS / "digits.onnx", calibration=DIGITS / "calibration.npy", input_range=(0, 2))
    program = other.save(tmp_path / "other.covey")[0]
    np.save(tmp_path / "x.npy", images[:1])
    infer = ["infer", "--config", parties.client_config, program, "--input", tmp_path / "x.npy"]
    command.refuses(*infer, saying="refused")


def test_wrong_pins_are_named(
    parties: Parties, command: Command, tmp_path: Path, digits: Path, images: np.ndarray
) -> None:
    folder = tmp_path / "client"
    shutil.copytree(parties.client_config.parent, folder)
    stranger = command.succeeds("keys", "new", "stranger", "--out", tmp_path).out.strip()
    np.save(tmp_path / "x.npy", images[:1])
    infer = ["infer", "--config", folder / "client.toml", digits, "--input", tmp_path / "x.npy"]
    command.succeeds("keys", "pin", folder / "client.toml", "beta", stranger)
    assert "pinned" in command.refuses(*infer, saying="beta")
    shutil.copytree(parties.client_config.parent, folder, dirs_exist_ok=True)
    shutil.copy(tmp_path / "stranger.pem", folder / "key.pem")
    command.refuses(*infer, saying="alpha")


def test_unreachable_parties_are_named(parties: Parties, command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "client"
    shutil.copytree(parties.client_config.parent, folder)
    text = (folder / "client.toml").read_text().replace("timeout = 5", "timeout = 1")
    address = next(line for line in text.splitlines() if line.startswith("address")).split('"')[1]
    (free,) = free_addresses(1)
    (folder / "client.toml").write_text(text.replace(address, free))
    line = command.refuses("doctor", "--config", folder / "client.toml", saying="alpha")
    assert free in line


@pytest.mark.parametrize(("name", "at_once"), [("quad", 4), ("two-party", 1)])
def test_the_processors_are_shared_among_the_parties_that_compute_at_once(name: str, at_once: int) -> None:
    with covey.local(name) as running:
        each = running.threads
        assert each == max(1, processors() // at_once)
        assert all(f"threads = {each}\n" in party.config.read_text() for party in running.parties)


def test_a_taken_port_is_named(command: Command, tmp_path: Path) -> None:
    first, *_ = write_configuration(tmp_path, ("alpha", "beta", "gamma"), 5.0)
    address = next(line for line in first.config.read_text().splitlines() if line.startswith("listen")).split('"')[1]
    host, port = address.rsplit(":", 1)
    with socket.socket() as taken:
        taken.bind((host, int(port)))
        taken.listen()
        command.refuses("party", "--config", first.config, saying=address)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_processes_with_secrets_leave_no_core_dump(parties: Parties, digits: Path) -> None:
    client = (
        "import contextlib, pathlib, sys; from covey import CoveyError, _core\n"
        "with contextlib.suppress(CoveyError):\n"
        "    _core.Session(pathlib.Path(sys.argv[1]), _core.Program(pathlib.Path(sys.argv[2])), 'trio')\n"
        "print(pathlib.Path('/proc/self/limits').read_text())"
    )
    with started([sys.executable, "-c", client, str(parties.client_config), str(digits)]) as running:
        limits = [running.communicate(timeout=60)[0]]
    limits += [Path(f"/proc/{party.pid}/limits").read_text() for party in parties.parties]
    for text in limits:
        (core,) = [line.split()[4:6] for line in text.splitlines() if line.startswith("Max core file size")]
        assert core == ["0", "0"]


def test_parties_end_with_the_block() -> None:
    seen: list[tuple[Path, list[int]]] = []

    def fail_inside() -> None:
        with covey.local() as parties:
            pids = [party.pid for party in parties.parties if party.pid is not None]
            assert parties.folder is not None
            assert parties.folder.stat().st_mode & 0o777 == 0o700
            assert len(pids) == 3
            assert all(alive(pid) for pid in pids)
            seen.append((parties.folder, pids))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_inside()
    folder, pids = seen[0]
    assert not folder.exists()
    assert not any(alive(pid) for pid in pids)


def test_parties_end_with_a_killed_parent() -> None:
    code = (
        "import covey, sys, time\n"
        "with covey.local() as parties:\n"
        "    print(*[party.pid for party in parties.parties], parties.folder, flush=True)\n"
        "    time.sleep(60)\n"
    )
    with started([sys.executable, "-c", code]) as parent:
        assert parent.stdout is not None
        *pids, folder = parent.stdout.readline().split()
        assert all(alive(int(pid)) for pid in pids)
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        wait_until(lambda: not any(alive(int(pid)) for pid in pids))
    shutil.rmtree(folder)


def test_a_killed_party_is_named_and_may_come_back(digits: Path, images: np.ndarray) -> None:
    with covey.local(timeout=3) as parties:
        parties.run(digits, images[:1])
        parties.parties[1].kill()
        with pytest.raises(covey.CoveyError, match="beta"):
            parties.run(digits, images[:1])
        parties.parties[1].spawn()
        parties.parties[1].wait_until_ready()
        parties.run(digits, images[:1])


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("command", ["party", "dealer"])
def test_a_party_takes_leave_when_asked(tmp_path: Path, command: str, how: signal.Signals) -> None:
    parties = write_configuration(tmp_path, ("alpha", "beta", "dealer"), 5.0)
    party = parties[0 if command == "party" else -1]
    call = [sys.executable, "-m", "covey", command, "--config", str(party.config)]
    with started(call) as running:
        assert running.stdout is not None
        assert running.stdout.readline().startswith("ready 127.0.0.1:")
        running.send_signal(how)
        _, err = running.communicate(timeout=20)
        assert running.returncode == 0, err
        assert err.splitlines()[-1] == "stopped"


def test_a_party_reads_its_file_again_at_sighup(tmp_path: Path) -> None:
    party = write_configuration(tmp_path, ("alpha", "beta", "gamma"), 5.0)[0]
    with started([sys.executable, "-m", "covey", "party", "--config", str(party.config)]) as running:
        assert running.stdout is not None and running.stderr is not None
        assert running.stdout.readline().startswith("ready ")
        running.send_signal(signal.SIGHUP)
        assert any("configuration read again" in line for line in running.stderr)
        running.send_signal(signal.SIGTERM)
        assert running.wait(timeout=20) == 0


@pytest.mark.parametrize(
    ("how", "code", "word"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated"), (signal.SIGHUP, 129, "hung up")],
)
def test_interrupting_ends_everything(digits: Path, tmp_path: Path, how: int, code: int, word: str) -> None:
    call = [sys.executable, "-m", "covey", "run", str(digits), "--local", "--input", str(DIGITS / "test-images.npy")]
    with started(call, TMPDIR=str(tmp_path)) as running:
        wait_until(lambda: any(tmp_path.glob("covey-*/*/state")), 30)
        running.send_signal(how)
        _, err = running.communicate(timeout=20)
        assert running.returncode == code, err
        assert err.splitlines()[-1] == f"error: {word}"
    assert not list(tmp_path.glob("covey-*"))


def test_verify_measures_approximate_comparisons(command: Command, digits: Path) -> None:
    data, model = DIGITS / "test-images.npy", DIGITS / "digits.onnx"
    verify = ["verify", digits, "--samples", 20, "--data", data, "--model", model, "--json"]
    verdict = json.loads(command.succeeds(*verify, "--key-bits", 14).out)
    checks = {check["check"]: check for check in verdict["checks"]}
    against_clear = checks["fc2_out: trio against clear"]
    assert against_clear["required"] == "approximate" and against_clear["passed"] is None
    assert not against_clear["found"].startswith("0 of")
    assert checks["fc2_out: relative L2 error"]["passed"]
    command.refuses(*verify, "--key-bits", 14, "--protocol", "clear", saying="clear has none")
    command.refuses(*verify, "--key-bits", 14, "--protocol", "quad", saying="which quad refuses: leave it out")


def test_verify_passes_the_digits(command: Command, digits: Path) -> None:
    data = DIGITS / "test-images.npy"
    model = DIGITS / "digits.onnx"
    verify = ["verify", digits, "--samples", 6, "--data", data, "--model", model, "--json"]
    verdict = json.loads(command.succeeds(*verify).out)
    assert verdict["passed"]
    found = {check["check"]: check["found"] for check in verdict["checks"]}
    assert any("relative L2 error" in name for name in found)
    assert sum(name.endswith(": values above zero") for name in found) == 3
    assert sum(name.endswith(": variation between samples") for name in found) == 1


@pytest.mark.parametrize("protocol", ["two-party", "quad"])
def test_two_and_four_parties_compute_the_same(
    command: Command, digits: Path, images: np.ndarray, protocol: str
) -> None:
    verify = ["verify", digits, "--protocol", protocol, "--samples", 4, "--data", DIGITS / "test-images.npy", "--json"]
    verdict = json.loads(command.succeeds(*verify).out)
    found = {check["check"]: check["found"] for check in verdict["checks"]}
    assert found[f"fc2_out: {protocol} against clear"] == "0 of 40 elements differ"
    plan = json.loads(command.succeeds("explain", digits, "--protocol", protocol, "--batch", 2, "--json").out)
    with covey.local(protocol, timeout=5) as parties:
        names = [party.name for party in parties.parties]
        assert names == ["alpha", "beta", "gamma", "delta"][: 4 if protocol == "quad" else 2]
        joint = parties.run(digits, images[:2])
        assert joint.profile is not None

        def links(node: dict[str, Any]) -> list[tuple[Any, ...]]:
            return sorted((row["offline"], row["from"], row["to"], row["bytes"]) for row in node["links"])

        due = {node["name"]: links(node) for node in plan["nodes"] if node["links"]}
        met = {node.name: links({"links": node.links}) for node in joint.profile.nodes if node.links}
        assert met == due
        model = load(digits)
        parties.preprocess(model, 2)
        online = parties.run(digits, images[:2], phase="online")
    assert {name: values.tolist() for name, values in online.integers.items()} == {
        name: values.tolist() for name, values in joint.integers.items()
    }
    assert online.profile is not None and all(not row["offline"] for node in online.profile.nodes for row in node.links)


@pytest.mark.parametrize("protocol", ["trio", "quad"])
def test_the_demo(command: Command, protocol: str) -> None:
    outcome = json.loads(command.succeeds("demo", "--protocol", protocol, "--json").out)
    assert outcome["outputs"] == 450
    assert outcome["outputs_differing"] == 0
    assert outcome["logits"] == 4500
    assert outcome["logits_differing"] == 0
    assert outcome["accuracy"]["private"] == outcome["accuracy"]["clear"] >= 0.97


def test_the_demo_in_the_clear_prints_its_verdict(command: Command) -> None:
    outcome = command.succeeds("demo", "--protocol", "clear")
    assert "0 of 450 outputs differ" in outcome.out
    assert "Who could have learnt what" in outcome.out
    assert max(map(len, outcome.out.splitlines())) <= 100


def linear_model(seed: int) -> covey.Compiled:
    """Two outputs of three inputs, each of weight 1, 2 or 3: models of all seeds have one program."""
    weight = np.random.default_rng(seed).permuted([[1, 1], [2, 2], [3, 3]], axis=0).astype(float)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="y")]
    model = builders.model(nodes, {"x": ["N", 3]}, ["y"], {"w": weight})
    return covey.compile(model, input_range=(-1, 1))


def test_models_of_one_program_have_their_own_weights() -> None:
    first, second = linear_model(0), linear_model(1)
    assert covey.Program(first.program_bytes).hash == covey.Program(second.program_bytes).hash
    x = np.random.default_rng(2).uniform(-1, 1, (4, 3))
    with covey.local("trio") as parties:
        session = parties.session(first)
        for model in (first, second, first):
            private, due = parties.run(model, x), run_clear(load(model), x)
            assert (private.integers["y"] == due.integers["y"]).all()
        # Without its weights at hand, and in a session that was open before.
        program = covey.Program(first.program_bytes)
        assert (parties.run(program, x).integers["y"] == due.integers["y"]).all()
        assert (session.infer(x).integers["y"] == due.integers["y"]).all()


def test_threads_and_interrupts_mix_no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    models, x = [linear_model(0), linear_model(1)], np.random.default_rng(2).uniform(-1, 1, (2, 3))
    due = [run_clear(load(model), x).integers["y"] for model in models]
    assert (due[0] != due[1]).any()
    shared = covey.Client.share_weights

    def interrupted(*arguments: Any, **options: Any) -> None:
        shared(*arguments, **options)
        raise KeyboardInterrupt

    with covey.local("trio") as parties, ThreadPoolExecutor(2) as threads:
        order = [0, 1, 1, 0, 1, 0]
        results = threads.map(lambda index: parties.run(models[index], x).integers["y"], order)
        assert all((result == due[index]).all() for index, result in zip(order, results, strict=True))
        parties.run(models[0], x)
        with monkeypatch.context() as patch:
            patch.setattr(covey.Client, "share_weights", interrupted)
            with pytest.raises(KeyboardInterrupt):
                parties.run(models[1], x)
        assert (parties.run(models[0], x).integers["y"] == due[0]).all()


def test_a_fork_has_sessions_of_its_own() -> None:
    model, x = linear_model(0), np.ones((1, 3))

    def forked(parties: Parties, session: covey.Session, pipe: Any) -> None:
        try:
            session.infer(x)
        except covey.CoveyError as error:
            pipe.send(str(error))
        session.close()
        pipe.send(parties.run(model, x).integers["y"])
        try:
            parties.run(linear_model(1), x)
        except covey.CoveyError as error:
            pipe.send(str(error))
        parties.close()

    context = multiprocessing.get_context("fork")
    with covey.local("trio", timeout=5) as parties:
        session = parties.session(model)
        due = parties.run(model, x).integers["y"]
        ours, theirs = context.Pipe()
        child = context.Process(target=forked, args=(parties, session, theirs))
        child.start()
        assert ours.poll(60) and "belongs to the process that forked this one: open another here" in ours.recv()
        assert ours.poll(60) and (ours.recv() == due).all()
        assert ours.poll(60) and "share them there, before it forks" in ours.recv()
        child.join(30)
        assert child.exitcode == 0
        # Ours are as they were.
        assert (session.infer(x).integers["y"] == due).all() and (parties.run(model, x).integers["y"] == due).all()


def test_what_opens_with_fewer_bits_and_what_comparisons_tell_is_said(digits: Path) -> None:
    def told(**options: Any) -> str:
        return "; ".join(covey.explain(digits, **options).reveals)

    assert "fc2_out, rounded to multiples of 2^4 before it opens" in told(round_bits=4)
    assert "rounded" not in told() and "comparisons read" not in told()
    assert "if an input repeats, as comparisons read 8 bits" in told(key_bits=8)


def test_layers_of_two_parties_by_lattice_encryption(digits: Path, images: np.ndarray) -> None:
    """Exact like those by oblivious transfer; what they show of the weights is told."""
    verdict = covey.verify(digits, "two-party", data=images[:2], samples=2, linear="lattice")
    assert verdict.passed, verdict
    explained = covey.explain(digits, "two-party", linear="lattice")
    exposure = explained.plan["exposure"]
    assert exposure["bits_each"] >= 40 and 20 < exposure["bits_total"] < exposure["bits_each"]
    assert any(line.startswith("to P1: of the weights") for line in explained.reveals)
    by_ot = covey.explain(digits, "two-party", linear="ot")
    assert by_ot.plan["exposure"] is None and by_ot.total.bytes > explained.total.bytes
    with pytest.raises(covey.CoveyError, match="two parties multiply by weights: trio has one way"):
        covey.explain(digits, linear="lattice")
    with pytest.raises(covey.CoveyError, match="linear layers by 'rot' are unknown"):
        covey.explain(digits, "two-party", linear="rot")
