"""Ctrl-C at moments spread over a whole command: exit code 130, one line, nothing half-written or left running."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import builders
import covey
from command import Command
from covey import interrupts
from covey.parties import Parties
from served import PROTOCOLS, Place, environment, hear_interrupts, parametrize_protocols, place, samples
from strikes import struck_at

MOMENTS = int(os.environ.get("COVEY_INTERRUPTS", "2"))
"""How often each command is interrupted."""

SCRIPT = """\
import os
from covey import _interrupt
os.close(int(os.environ.pop("STARTED")))
from covey.cli import main
main()
"""
"""The command `covey`, which closes a pipe as soon as it handles Ctrl-C itself."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize_protocols(metafunc, anywhere=PROTOCOLS)


@pytest.fixture(scope="module")
def anywhere(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with place(request.param, tmp_path_factory.mktemp(request.param)) as made:
        yield made


def run(call: list[str], folder: Path, strike_after: float | None) -> tuple[int, str, float]:
    """Exit code, stderr and seconds of a command that uses `folder` for its temporary files."""
    started, write = os.pipe()
    variables = {**environment(), "TMPDIR": str(folder), "STARTED": str(write)}
    script = folder / "covey"
    script.write_text(SCRIPT)
    start = time.monotonic()
    with subprocess.Popen(
        [sys.executable, script, *call],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=variables,
        pass_fds=[write],
        preexec_fn=hear_interrupts,
    ) as process:
        os.close(write)
        # Before the interpreter has read our package there is nobody who could say anything.
        os.read(started, 1)
        os.close(started)
        if strike_after is not None:
            time.sleep(strike_after)
            process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        # Where the signal struck code that the interpreter was given as a string, it ends by that signal in the end,
        # whoever handled it: a shell says 130 of both.
        code = 130 if process.returncode == -signal.SIGINT else process.returncode
        return code, err, time.monotonic() - start


def strike_all(call: list[object], folder: Path, *, ends_with: int = 0) -> list[int]:
    """Run a command to its end, then interrupt it at moments spread over that time; how each of them ended."""
    arguments = [str(part) for part in call]
    temporary = folder / "temporary"
    temporary.mkdir()
    before = sorted(path.name for path in folder.iterdir())
    code, err, seconds = run(arguments, temporary, None)
    assert code == ends_with, err
    whole = sorted(path.name for path in folder.iterdir())
    codes = []
    for moment in range(MOMENTS):
        for name in set(whole) - set(before):
            (folder / name).unlink(missing_ok=True)
        code, err, _ = run(arguments, temporary, seconds * moment / MOMENTS)
        codes.append(code)
        left = sorted(path.name for path in folder.iterdir())
        assert code in (130, ends_with), (moment, code, err)
        assert "Traceback" not in err and "Exception ignored" not in err, err
        if code == 130:
            lines = [line for line in err.splitlines() if not line.startswith(("warning: ", "compiled "))]
            assert lines == ["error: interrupted"], err
            assert left in (before, whole), "all files or none"
        else:
            assert left == whole, "it came too late, and all was done"
        assert not list(temporary.glob("covey-*")), "keys and logs of local parties are gone"
    assert 130 in codes, codes
    return codes


def test_runs(anywhere: Place, command: Command, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", samples(1, 50))
    strike_all([*anywhere.call(x=tmp_path / "x.npy"), "--output", tmp_path / "y.npy"], tmp_path)
    anywhere.check_sound(command, tmp_path)


def test_local_runs(anywhere: Place, command: Command, tmp_path: Path) -> None:
    """The parties are processes of their own, and end with the command."""
    if anywhere.protocol == "clear":
        pytest.skip("clear has no parties")
    np.save(tmp_path / "x.npy", samples(1, 50))
    call = ["run", anywhere.program, "--local", "--protocol", anywhere.protocol, "--input", tmp_path / "x.npy"]
    strike_all(call, tmp_path)
    deadline = time.monotonic() + 10
    while (left := processes_about(tmp_path)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left


def test_ctrl_c_at_every_line_of_starting_and_ending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it strikes, keys and processes are gone. The parties only wait until they are told to end."""
    party = tmp_path / "party"
    party.write_text('#!/bin/sh\nmkdir "${5%/*}/state"\necho ready\ncat\n')
    party.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(party))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def start_and_end() -> None:
        with covey.local("two-party"):
            pass

    line, sources = 0, [inspect.getsourcefile(Parties), interrupts.__file__]
    while struck_at(line, sources, start_and_end):
        assert [path.name for path in tmp_path.iterdir()] == ["party"], line
        assert not processes_about(tmp_path), line
        line += 1
    assert line > 100


def test_sigterm_while_ctrl_c_is_ignored_ends_the_command_and_not_what_it_forks(tmp_path: Path) -> None:
    """Scripts start jobs in the background so. It comes where Ctrl-C would wait."""
    script = tmp_path / "covey"
    script.write_text(
        "import os, signal\nfrom covey import cli\nfrom covey.interrupts import uninterrupted\n"
        "def run():\n"
        "    child = os.fork()\n"
        "    if child == 0:\n        signal.raise_signal(signal.SIGTERM)\n        os._exit(0)\n"
        "    print(os.waitpid(child, 0)[1], flush=True)\n"
        "    with uninterrupted():\n        signal.raise_signal(signal.SIGTERM)\n        print('whole', flush=True)\n"
        "    print('too far')\n"
        "cli._run = run\ncli.main()\n"
    )
    ignoring = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", sys.executable, script]
    done = subprocess.run(ignoring, capture_output=True, text=True, timeout=15, env=environment())
    assert (done.returncode, done.stdout, done.stderr) == (143, "15\nwhole\n", "error: terminated\n")


def test_programs_that_import_the_package_keep_their_signals() -> None:
    code = (
        "import signal\ndef now():\n    return [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGHUP)]\n"
        "before = now()\nfrom covey import _interrupt\n_interrupt.running()\nprint(now() == before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment())
    assert done.stdout == "True\n"


def test_nothing_is_imported_before_ctrl_c_is_handled(tmp_path: Path) -> None:
    script = tmp_path / "covey"
    script.write_text(
        "import os, signal, sys\nbefore = set(sys.modules)\n"
        "def handled(*call):\n    print(*sorted(set(sys.modules) - before), flush=True)\n    os._exit(0)\n"
        "signal.signal = handled\nimport covey\n"
    )
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, env=environment(), preexec_fn=hear_interrupts
    )
    assert done.stdout == "__future__ covey covey._interrupt\n"


@pytest.mark.parametrize("untidy", [False, True])
def test_a_second_ctrl_c_ends_a_long_import_at_once(tmp_path: Path, untidy: bool) -> None:
    (tmp_path / "struck.py").write_text(
        "import signal, time\nsignal.raise_signal(signal.SIGINT)\nsignal.raise_signal(signal.SIGINT)\n"
        "time.sleep(0.2)\nprint('whole', flush=True)\n"
    )
    script = tmp_path / "covey"
    script.write_text(
        "import time\nfrom covey import _interrupt, cli\n"
        f"if {untidy}:\n    _interrupt.untidy()\n"
        "def run():\n    import struck\n    time.sleep(20)\n"
        "cli._run = run\ncli.main()\n"
    )
    call = [sys.executable, script]
    done = subprocess.run(
        call, capture_output=True, text=True, timeout=15, env=environment(), preexec_fn=hear_interrupts
    )
    assert (done.returncode, done.stderr) == (130, "error: interrupted\n")
    assert done.stdout == ("whole\n" if untidy else "")


def test_ctrl_c_waits_until_a_module_is_imported(tmp_path: Path) -> None:
    (tmp_path / "struck.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\nwhole = True\n")
    script = tmp_path / "covey"
    script.write_text(
        "import signal, time\nfrom covey import _interrupt\n_interrupt.running()\n"
        "try:\n    import struck\n    print(struck.whole, flush=True)\n    time.sleep(20)\n"
        "except KeyboardInterrupt:\n    print('interrupted')\n"
    )
    call = [sys.executable, script]
    done = subprocess.run(
        call, capture_output=True, text=True, timeout=15, check=True, env=environment(), preexec_fn=hear_interrupts
    )
    assert done.stdout == "True\ninterrupted\n"


def processes_about(folder: Path) -> list[str]:
    """Processes whose command line names the folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if str(folder) in line and str(os.getpid()) != entry.parent.name:
            found.append(line)
    return found


def test_sharing_weights(anywhere: Place, command: Command, tmp_path: Path) -> None:
    """The parties have the version before or the new one, or say that they differ and how to go on."""
    if anywhere.protocol == "clear":
        pytest.skip("clear shares nothing")
    strike_all(anywhere.share(), tmp_path)
    command.succeeds(*anywhere.share())
    anywhere.check_sound(command, tmp_path)


def test_filling_a_store(command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with place("two-party", tmp_path) as made:
        strike_all(["store", "fill", made.program, "--config", made.served.client_config], folder)
        made.check_sound(command, folder)
        command.succeeds("store", "fill", made.program, "--config", made.served.client_config)
        made.check_sound(command, folder)


@pytest.mark.parametrize("name", ["check", "compile", "explain", "tune", "verify"])
def test_compiling(tmp_path: Path, name: str) -> None:
    model = builders.single("MatMul", ["N", 30], {"w": np.random.default_rng(0).normal(size=(30, 30))})
    source = tmp_path / "m.onnx"
    source.write_bytes(model.SerializeToString())
    np.save(tmp_path / "x.npy", np.random.default_rng(1).uniform(-1, 1, (64, 30)))
    data, interval = ["--data", tmp_path / "x.npy"], ["--input-range", "-1,1"]
    more: dict[str, list[object]] = {
        "check": [],
        "compile": [*interval, "-o", tmp_path / "m.covey"],
        "explain": interval,
        "tune": [*data, *interval, "-o", tmp_path / "m.covey"],
        "verify": [*data, "--protocol", "clear"],
    }
    strike_all([name, source, *more[name]], tmp_path)


def test_making_keys(tmp_path: Path) -> None:
    strike_all(["keys", "new", "alpha", "--out", tmp_path], tmp_path)
