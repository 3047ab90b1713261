"""The `covey` command: what it prints, what it writes, and how it refuses."""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
import tomlkit
from onnx import TensorProto, helper

import covey
from command import DIGITS, Command
from covey import _core
from covey.parties import write_configuration

MODEL = DIGITS / "digits.onnx"


def listing(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def has_cuda() -> bool:
    """Whether a GPU's driver is here."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def save_images(path: Path, images: np.ndarray) -> Path:
    np.save(path, images)
    return path


def damaged(source: Path, target: Path, *, keep: float = 1.0, flip: int | None = None) -> Path:
    """A copy of a file, cut short or with one bit turned."""
    content = bytearray(source.read_bytes())
    if flip is not None:
        content[flip] ^= 1
    target.write_bytes(content[: int(len(content) * keep)])
    os.chmod(target, 0o600)
    return target


# Calls.


def test_version_and_help(command: Command) -> None:
    assert command.succeeds("--version").out == f"covey {covey.__version__}\n"
    help_text = command.succeeds("--help").out
    names = [
        "check",
        "compile",
        "explain",
        "compare",
        "pareto",
        "verify",
        "demo",
        "run",
        "keys",
        "party",
        "dealer",
        "share-weights",
        "infer",
        "doctor",
        "store",
        "weights",
    ]
    assert all(name in help_text for name in names)


@pytest.mark.parametrize("name", ["infer", "share-weights"])
def test_protocols_without_parties_are_not_offered_to_clients(command: Command, name: str) -> None:
    shown = " ".join(command.succeeds(name, "--help").out.split())
    assert "trio: three parties" in shown and "clear:" not in shown
    assert "clear:" in command.succeeds("run", "--help").out


@pytest.mark.parametrize("call", [["frobnicate"], ["run"], ["check", "a", "b"], ["compile", "--ring"]])
def test_wrong_calls_end_with_2(command: Command, call: list[str]) -> None:
    command.refuses(*call, saying="--help", code=2)


def test_tracebacks_only_on_demand(tmp_path: Path) -> None:
    call = [sys.executable, "-m", "covey", "check", str(tmp_path / "absent.onnx")]
    environment = {**os.environ, "PYTHONPATH": str(Path(covey.__file__).parents[1])}
    plain = subprocess.run(call, capture_output=True, text=True, env=environment)
    assert plain.returncode == 1
    assert plain.stderr.count("\n") == 1
    traced = subprocess.run(call, capture_output=True, text=True, env={**environment, "COVEY_TRACEBACK": "1"})
    assert traced.returncode == 1
    assert "Traceback" in traced.stderr


# check, compile, explain.


def test_check_lists_every_node(command: Command) -> None:
    outcome = command.succeeds("check", MODEL)
    for node in onnx.load(MODEL).graph.node:
        assert node.name in outcome.out
    assert "all can run privately" in outcome.out
    assert max(map(len, outcome.out.splitlines())) <= 100
    notes = json.loads(command.succeeds("check", MODEL, "--json").out)
    assert notes["ok"]
    assert {note["status"] for note in notes["nodes"]} == {"ok", "rewritten"}


def unsupported_model(path: Path) -> Path:
    node = helper.make_node("Bernoulli", ["x"], ["y"], name="coin")
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 4]) for name in "xy"]
    graph = helper.make_graph([node], "wavy", value[:1], value[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_unsupported_nodes_are_named(command: Command, tmp_path: Path) -> None:
    model = unsupported_model(tmp_path / "wavy.onnx")
    command.refuses("check", model, saying="node 'coin' (Bernoulli)")
    command.refuses("compile", model, "--input-range", "0,1", saying="node 'coin' (Bernoulli)")
    assert listing(tmp_path) == ["wavy.onnx"]


def test_compile_writes_three_files(command: Command, tmp_path: Path) -> None:
    target = tmp_path / "out" / "net.covey"
    calibration = DIGITS / "calibration.npy"
    outcome = command.succeeds("compile", MODEL, "-o", target, "--calibration", calibration, "--input-range", "0,1")
    assert listing(target.parent) == ["net.covey", "net.report.json", "net.weights.safetensors"]
    assert (target.parent / "net.weights.safetensors").stat().st_mode & 0o077 == 0
    assert max(map(len, outcome.out.splitlines())) <= 100 + len(str(tmp_path))
    assert _core.Program(target).hash in (target.parent / "net.report.json").read_text()


@pytest.mark.parametrize(
    ("options", "saying"),
    [
        ([], "--input-range"),
        (["--input-range", "0;1"], "low,high"),
        (["--input-range", "1,0"], "not an interval"),
        (["--input-range", "0,1", "--ring", "8"], "use auto, or a number of bits from 16 to 64"),
        (["--input-range", "0,1", "--truncation", "sloppy"], "exact"),
        (["--input-range", "0,1", "--calibration", "absent.npy"], "does not exist"),
        (["--input-range", "0,1", "--ring", "32", "--scale", "15"], "32"),
        (["--input-range", "0,1", "-o", "model.onnx"], ".covey"),
    ],
)
def test_compile_refuses(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], saying: str
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(MODEL, "digits.onnx")
    command.refuses("compile", "digits.onnx", *options, saying=saying)
    assert listing(tmp_path) == ["digits.onnx"]


def test_calibration_with_nan_is_refused(command: Command, tmp_path: Path, images: np.ndarray) -> None:
    spoilt = images[:4].copy()
    spoilt[2, 0, 3, 3] = np.nan
    data = save_images(tmp_path / "x.npy", spoilt)
    command.refuses("compile", MODEL, "-o", tmp_path / "m.covey", "--calibration", data, saying="[2, 0, 3, 3]")
    assert listing(tmp_path) == ["x.npy"]


def test_explain_adds_up(command: Command, digits: Path) -> None:
    outcome = command.succeeds("explain", digits, "--protocol", "trio", "--batch", "2")
    for text in ("semi-honest, one of three", "the nodes that send most", "LAN (", "WAN (", "conv1", "A run reveals"):
        assert text in outcome.out
    assert max(map(len, outcome.out.splitlines())) <= 100
    plan = json.loads(command.succeeds("explain", digits, "--batch", "2", "--json").out)
    links = [link for node in plan["nodes"] for link in node["links"]]
    assert sum(link["bytes"] for link in links) == sum(link["bytes"] for link in plan["total"]["links"]) > 0


def test_explain_takes_onnx(command: Command) -> None:
    outcome = command.succeeds("explain", MODEL, "--calibration", DIGITS / "calibration.npy")
    assert "compiled digits.onnx on the fly" in outcome.err
    command.refuses("explain", MODEL, saying="--input-range")


# Damaged and foreign files.


def test_damaged_programs_are_refused(command: Command, tmp_path: Path, digits: Path) -> None:
    size = digits.stat().st_size
    for flip in (0, 6, 20, 60, size - 1):
        command.refuses("explain", damaged(digits, tmp_path / "bad.covey", flip=flip), saying="bad.covey")
    for keep in (0.0, 0.001, 0.01, 0.5, 0.999):
        command.refuses("explain", damaged(digits, tmp_path / "bad.covey", keep=keep), saying="bad.covey")
    command.refuses("explain", tmp_path / "absent.covey", saying="does not exist")
    command.refuses("explain", tmp_path, saying=str(tmp_path))


def test_damaged_weights_are_refused(command: Command, tmp_path: Path, digits: Path, images: np.ndarray) -> None:
    weights = digits.with_name("digits.weights.safetensors")
    x = save_images(tmp_path / "x.npy", images[:1])
    run = ["run", digits, "--input", x, "--protocol", "clear", "--weights"]
    for bad in (
        damaged(weights, tmp_path / "bad.safetensors", flip=weights.stat().st_size - 1),
        damaged(weights, tmp_path / "short.safetensors", keep=0.7),
        damaged(weights, tmp_path / "empty.safetensors", keep=0.0),
    ):
        command.refuses(*run, bad, saying=bad.name)
    command.refuses(*run, tmp_path / "absent", saying="absent")
    shutil.copy(digits, tmp_path / "alone.covey")
    alone = ["run", tmp_path / "alone.covey", "--input", x, "--protocol", "clear"]
    command.refuses(*alone, saying="--weights")


def test_weights_of_another_program_are_refused(command: Command, tmp_path: Path, digits: Path) -> None:
    other = covey.compile(MODEL, calibration=DIGITS / "calibration.npy", input_range=(0, 1), ring=64)
    weights = other.save(tmp_path / "other.covey")[1]
    x = DIGITS / "test-images.npy"
    line = command.refuses("run", digits, "--input", x, "--protocol", "clear", "--weights", weights, saying="belong to")
    assert other.program_hash[:8] in line


def test_damaged_onnx_is_refused(command: Command, tmp_path: Path) -> None:
    command.refuses("check", damaged(MODEL, tmp_path / "short.onnx", keep=0.6), saying="short.onnx")
    command.refuses("check", damaged(MODEL, tmp_path / "empty.onnx", keep=0.0), saying="empty.onnx")
    (tmp_path / "text.onnx").write_text("no model at all")
    command.refuses("check", tmp_path / "text.onnx", saying="text.onnx")


# Inputs.


def bad_inputs(images: np.ndarray) -> dict[str, tuple[object, str]]:
    nan, infinite, wide = images[:2].copy(), images[:2].copy(), images[:2].copy()
    nan[1, 0, 2, 3] = np.nan
    infinite[0, 0, 7, 7] = -np.inf
    wide[1, 0, 0, 0] = 1.5
    near = images[:2].astype(np.float64)
    near[1, 0, 0, 0] = 1.0000001
    return {
        "nan": (nan, "nan at [1, 0, 2, 3]"),
        "infinite": (infinite, "-inf at [0, 0, 7, 7]"),
        "wide": (wide, "1.5 at [1, 0, 0, 0], outside its declared range [0, 1]"),
        "near": (near, "1.0000001 at [1, 0, 0, 0], outside its declared range [0, 1]"),
        "shape": (images[:2, :, :7], "expected [N, 1, 8, 8]"),
        "flat": (images[:2].reshape(2, 64), "expected [N, 1, 8, 8]"),
        "one": (images[0], "add the batch dimension"),
        "none": (images[:0], "no samples"),
        "text": (np.array(["a", "b"]), "dtype"),
        "complex": (images[:2].astype(complex), "dtype complex128"),
    }


def test_bad_inputs_are_refused_by_place(command: Command, tmp_path: Path, digits: Path, images: np.ndarray) -> None:
    for name, (array, saying) in bad_inputs(images).items():
        np.save(tmp_path / f"{name}.npy", array)
        call = ["run", digits, "--input", tmp_path / f"{name}.npy", "--local", "--output", tmp_path / "y.npy"]
        command.refuses(*call, saying=saying)
    np.savez(tmp_path / "named.npz", picture=images[:1])
    run = ["run", digits, "--protocol", "clear", "--input"]
    command.refuses(*run, tmp_path / "named.npz", saying="'picture'")
    (tmp_path / "pickled.npy").write_bytes(b"\x80\x04N.")
    command.refuses(*run, tmp_path / "pickled.npy", saying="not a readable")
    command.refuses(*run, tmp_path / "absent.npy", saying="does not exist")
    command.refuses(*run, tmp_path, saying="folder")
    assert not (tmp_path / "y.npy").exists()


def test_outputs_are_saved_whole_or_not_at_all(
    command: Command, tmp_path: Path, digits: Path, images: np.ndarray
) -> None:
    x = save_images(tmp_path / "x.npy", images[:3])
    run = ["run", digits, "--input", x, "--protocol", "clear", "--output"]
    outcome = command.succeeds(*run, tmp_path / "y.npy")
    assert "sample 2: class" in outcome.out
    outputs = np.load(tmp_path / "y.npy")
    assert outputs.shape == (3, 10)
    np.testing.assert_allclose(outputs.sum(axis=1), 1)
    command.succeeds(*run, tmp_path / "y.npz")
    command.refuses(*run, tmp_path / "y.csv", saying="y.npy")
    command.refuses(*run, tmp_path / "no" / "y.npy", saying="does not exist")
    assert listing(tmp_path) == ["x.npy", "y.npy", "y.npz"]


def test_run_says_what_it_chose_for_onnx(command: Command, tmp_path: Path, images: np.ndarray) -> None:
    x = save_images(tmp_path / "x.npy", images[:8])
    outcome = command.succeeds("run", MODEL, "--input", x, "--protocol", "clear", "--json")
    assert json.loads(outcome.out)["outputs"]
    assert "compiled digits.onnx on the fly" in outcome.err
    assert "given inputs" in outcome.err


def test_protocols_are_chosen_by_name(command: Command, digits: Path) -> None:
    x = DIGITS / "test-images.npy"
    command.refuses(
        "run", digits, "--input", x, "--protocol", "quintet", saying="use trio, quad, two-party, beaver or clear"
    )
    command.refuses("run", digits, "--input", x, saying="--local")
    command.refuses("explain", digits, "--protocol", "quintet", saying="use trio, quad, two-party, beaver or clear")
    command.refuses("demo", "--protocol", "quintet", saying="use trio, quad, two-party, beaver or clear")
    command.refuses("verify", digits, "--protocol", "quintet", saying="use trio, quad, two-party, beaver or clear")


@pytest.mark.parametrize("name", ["run", "verify", "demo", "bench", "generate", "train"])
def test_devices_are_chosen_by_name(command: Command, digits: Path, name: str) -> None:
    x, saying = DIGITS / "test-images.npy", "use auto, cpu, cuda or cuda:<number>"
    calls: dict[str, list[object]] = {
        "run": ["run", digits, "--input", x, "--local"],
        "verify": ["verify", digits],
        "demo": ["demo"],
        "bench": ["bench", "model", "lenet5"],
        "generate": ["generate", digits, "--prompt", "1", "--local"],
        "train": ["train", digits, "--data", x, "--labels", DIGITS / "test-labels.npy", "--local"],
    }
    command.refuses(*calls[name], "--device", "gpu", saying=saying)


@pytest.mark.skipif(has_cuda(), reason="this machine may have a GPU")
def test_a_gpu_that_is_missing_is_one_line(command: Command, digits: Path) -> None:
    call = ["run", digits, "--input", DIGITS / "test-images.npy", "--local"]
    assert "--device cpu" in command.refuses(*call, "--device", "cuda", saying="cuda:0 cannot be used")


def test_clear_has_no_device(command: Command, digits: Path) -> None:
    x = DIGITS / "test-images.npy"
    command.refuses("run", digits, "--input", x, "--protocol", "clear", "--device", "cpu", saying="clear computes")
    command.refuses("run", digits, "--input", x, "--protocol", "clear", "--threads", "2", saying="one thread")


@pytest.mark.parametrize("count", ["0", "-1", "1025", "99999999999999999999"])
def test_impossible_numbers_of_threads_are_refused(command: Command, digits: Path, tmp_path: Path, count: str) -> None:
    call = ["run", digits, "--input", DIGITS / "test-images.npy", "--local"]
    command.refuses(*call, "--threads", count, saying="use 1 to 1024")
    command.refuses("party", "--config", party_file(tmp_path), "--threads", count, saying="use 1 to 1024")


def test_results_do_not_depend_on_threads(command: Command, digits: Path, tmp_path: Path) -> None:
    x, outputs = DIGITS / "test-images.npy", []
    for count in ("1", "3"):
        file = tmp_path / f"{count}.npy"
        command("run", digits, "--input", x, "--local", "--threads", count, "--output", file)
        outputs.append(np.load(file))
    np.testing.assert_array_equal(*outputs)


# Keys.


def party_file(folder: Path) -> Path:
    """That of alpha, who can start."""
    return write_configuration(folder, ("alpha", "beta", "gamma"), 1.0)[0].config


def test_keys_are_made_shown_and_pinned(command: Command, tmp_path: Path) -> None:
    made = command.succeeds("keys", "new", "alpha", "--out", tmp_path)
    fingerprint = made.out.strip()
    assert fingerprint == _core.check_fingerprint(fingerprint)
    assert (tmp_path / "alpha.pem").stat().st_mode & 0o777 == 0o600
    shown = json.loads(command.succeeds("keys", "show", tmp_path / "alpha.pem", "--json").out)
    assert shown["fingerprint"] == fingerprint
    assert 363 <= shown["days_left"] <= 365
    assert "PRIVATE" not in command.succeeds("keys", "show", tmp_path / "alpha.pem").out
    command.refuses("keys", "new", "alpha", "--out", tmp_path, saying="exists already")
    command.refuses("keys", "new", "../beta", "--out", tmp_path, saying="'../beta'")
    command.refuses("keys", "new", "beta", "--out", tmp_path / "new", "--days", 0, saying="1 to 3650")
    assert not (tmp_path / "new").exists()
    command.succeeds("keys", "new", "beta", "--out", tmp_path / "new")
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "new/beta.pem").stat().st_mode & 0o777 == 0o600

    config = tmp_path / "client.toml"
    text = '# mine\n[client]\nname = "me"\nkey = "me.pem"\n\n[[party]]\nname = "alpha" # ours\naddress = "a:1"\n'
    config.write_text(text)
    os.chmod(config, 0o640)
    command.succeeds("keys", "pin", config, "alpha", fingerprint)
    pinned = config.read_text()
    assert pinned.startswith(text.rstrip())
    assert f'fingerprint = "{fingerprint}"' in pinned
    assert config.stat().st_mode & 0o777 == 0o640
    other = fingerprint[:-1] + ("0" if fingerprint[-1] != "0" else "1")
    assert fingerprint in command.succeeds("keys", "pin", config, "alpha", other).out
    assert config.read_text() == pinned.replace(fingerprint, other)
    before = config.read_text()
    several = tmp_path / "several.toml"
    several.write_text(f'[[client]]\nname = "data"\nfingerprints = ["{fingerprint}"]\n')
    for _ in range(2):
        command.succeeds("keys", "pin", several, "data", other)
    listed = tomlkit.parse(several.read_text()).unwrap()["client"]
    assert listed == [{"name": "data", "fingerprints": [fingerprint, other]}]
    # A party's key is replaced: both serve, then the new one alone.
    party = tmp_path / "party.toml"
    party.write_text(f'[[peer]]\nname = "beta"\nfingerprint = "{fingerprint}"\n[[client]]\nname = "data"\n')
    for _ in range(2):
        command.succeeds("keys", "pin", party, "beta", other, "--add")
    assert tomlkit.parse(party.read_text()).unwrap()["peer"] == [{"name": "beta", "fingerprints": [fingerprint, other]}]
    assert fingerprint in command.succeeds("keys", "pin", party, "beta", other, "--only").out
    kept = {"name": "beta", "fingerprint": other, "formerly": [fingerprint]}
    assert tomlkit.parse(party.read_text()).unwrap()["peer"] == [kept]
    command.succeeds("keys", "pin", several, "data", other, "--only")
    assert tomlkit.parse(several.read_text()).unwrap()["client"] == [{"name": "data", "fingerprint": other}]
    command.refuses("keys", "pin", party, "beta", other, "--add", "--only", saying="--add or --only")
    command.refuses("keys", "pin", config, "gamma", fingerprint, saying="names no 'gamma'")
    command.refuses("keys", "pin", config, "alpha", fingerprint, "gamma", fingerprint, saying="names no 'gamma'")
    command.refuses("keys", "pin", config, "alpha", fingerprint, "gamma", saying="'gamma' has no fingerprint")
    command.refuses("keys", "pin", config, "alpha", fingerprint, "alpha", fingerprint, saying="named twice")
    command.refuses("keys", "pin", config, "alpha", fingerprint[:-2], saying="no fingerprint")
    command.refuses("keys", "pin", tmp_path / "absent.toml", "alpha", fingerprint, saying="does not exist")
    assert config.read_text() == before


def test_expiry_is_announced(command: Command, tmp_path: Path) -> None:
    command.succeeds("keys", "new", "soon", "--out", tmp_path, "--days", 20)
    assert (
        "warning: the certificate of 'soon' expires in" in command.succeeds("keys", "show", tmp_path / "soon.pem").err
    )
    command.succeeds("keys", "new", "later", "--out", tmp_path, "--days", 40)
    assert not command.succeeds("keys", "show", tmp_path / "later.pem").err


def test_expired_certificates_say_when_they_expired(command: Command, tmp_path: Path, monkeypatch: Any) -> None:
    expired = SimpleNamespace(name="alpha", fingerprint="covey:1", expires=1_700_000_000, days_left=-1)
    config = party_file(tmp_path)
    monkeypatch.setattr(_core, "Identity", SimpleNamespace(load=lambda file: expired))
    shown = command.succeeds("keys", "show", tmp_path / "alpha/key.pem").out
    assert "expires      expired on 2023-11-14\n" in shown
    findings = json.loads(command("doctor", "--config", config, "--json").out)
    found = [finding["found"] for finding in findings if finding["what"] == "own certificate"]
    assert found == ["expired on 2023-11-14: make a new key with `covey keys new`"]


def test_doctor_tells_a_daemon_that_is_not_there_from_one_that_does_not_answer(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = party_file(tmp_path)
    address = tomlkit.parse(path.read_text()).unwrap()["party"]["listen"]
    path.write_text(re.sub(r"(?m)^timeout = .*", "timeout = 0.5", path.read_text()))

    def found() -> str:
        findings = json.loads(command("doctor", "--config", path, "--json").out)
        (line,) = [finding["found"] for finding in findings if finding["what"] == "own daemon"]
        return str(line)

    with monkeypatch.context() as patched:
        patched.setattr(_core, "own_status", None)  # nobody listens, so that nobody is asked
        assert found() == "does not serve: start it with `covey party`"
    with socket.create_server(("127.0.0.1", int(address.rpartition(":")[2]))):
        assert found().startswith("could not be asked: alpha: cannot be reached")


def test_damaged_keys_are_refused(command: Command, tmp_path: Path) -> None:
    command.succeeds("keys", "new", "alpha", "--out", tmp_path)
    key = tmp_path / "alpha.pem"
    middle = key.read_bytes().index(b"\n") + 20
    for bad in (
        damaged(key, tmp_path / "cut.pem", keep=0.5),
        damaged(key, tmp_path / "none.pem", keep=0.0),
        damaged(key, tmp_path / "flipped.pem", flip=middle),
    ):
        command.refuses("keys", "show", bad, saying=bad.name)
    os.chmod(key, 0o644)
    command.refuses("keys", "show", key, saying="chmod 600")
    command.refuses("keys", "show", tmp_path / "absent.pem", saying="absent.pem")


# Configuration files.


@pytest.mark.parametrize(
    ("text", "saying"),
    [
        ("[client", "line"),
        ("", "[party] or [client]"),
        ('[client]\nname = "me"\n', "`key`"),
        ('[client]\nname = "me"\nkey = "absent.pem"\n', "absent.pem"),
    ],
)
def test_bad_configurations_are_refused(command: Command, tmp_path: Path, text: str, saying: str) -> None:
    (tmp_path / "client.toml").write_text(text)
    command.refuses("doctor", "--config", tmp_path / "client.toml", saying=saying)
    command.refuses("party", "--config", tmp_path / "client.toml", saying="client.toml")


def test_doctor_examines_the_machine(command: Command) -> None:
    findings = json.loads(command.succeeds("doctor", "--json").out)
    assert {"covey", "runtime", "machine", "kernels"} <= {finding["what"] for finding in findings}
    (exchange,) = [finding["found"] for finding in findings if finding["what"] == "key exchange"]
    assert exchange.startswith("X25519MLKEM768:")
    assert sum(finding["what"] == "device" for finding in findings) == 1
    assert "cores" in command.succeeds("doctor").out
