"""The unit of systemd and the container file: what they run is what the command line and the pages have."""

from __future__ import annotations

import ctypes
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer

import documented
from covey.cli import parser
from served import environment, hear_interrupts

ROOT = Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"
UNIT = PACKAGING / "covey-party.service"
DEPLOYMENT = (ROOT / "docs" / "deployment.md").read_text("utf-8")
DENY_WRITE_EXECUTE = 65
"""PR_SET_MDWE of prctl(2)."""


def settings() -> dict[str, list[str]]:
    """The unit's settings by name."""
    found: dict[str, list[str]] = {}
    for line in UNIT.read_text("utf-8").splitlines():
        if line and line[0] not in "#[":
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


def instructions() -> list[str]:
    """The container file's, each on one line."""
    text = (PACKAGING / "Containerfile").read_text("utf-8").replace("\\\n", " ")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def check_call(arguments: list[str]) -> None:
    """A call of `covey` that its parser takes."""
    root = typer.main.get_command(parser())
    command, context = root, root.make_context("covey", ["--help"], resilient_parsing=True)
    while hasattr(command, "get_command"):
        name, *arguments = arguments
        found = command.get_command(context, name)
        assert found is not None, name
        command = found
    command.make_context(command.name, arguments)


def test_the_unit_calls_the_command_as_it_is() -> None:
    (start,) = settings()["ExecStart"]
    program, *arguments = shlex.split(start)
    assert Path(program).is_absolute() and Path(program).name == "covey"
    check_call(arguments)


def test_the_unit_and_the_page_agree() -> None:
    found = settings()
    (start,) = found["ExecStart"]
    calls = [step.title for step in documented.steps(DEPLOYMENT)]
    assert f"python3 -m venv {Path(shlex.split(start)[0]).parents[1]}" in calls
    assert any(call.startswith("useradd ") and call.endswith(f" {found['User'][0]}") for call in calls)
    config = Path(shlex.split(start)[-1])
    inits = [call for call in calls if "covey init party" in call]
    assert inits
    for call in inits:
        options = shlex.split(call)
        assert options[options.index("--out") + 1] == str(config.parent)
        assert options[options.index("--state") + 1] == f"/var/lib/{found['StateDirectory'][0]}"


def test_the_unit_is_hardened() -> None:
    found = {key: values[-1] for key, values in settings().items()}
    assert found["NoNewPrivileges"] == found["MemoryDenyWriteExecute"] == found["ProtectHome"] == "yes"
    assert found["ProtectSystem"] == "strict" and found["LimitCORE"] == "0" and found["CapabilityBoundingSet"] == ""
    assert found["User"] != "root" and found["Restart"] == "on-failure"
    assert found["ExecReload"].endswith("kill -HUP $MAINPID")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    (start,) = settings()["ExecStart"]
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text("utf-8").replace(shlex.split(start)[0], sys.executable), "utf-8")
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True)
    assert done.returncode == 0 and UNIT.name not in done.stderr, done.stderr


def under_the_unit() -> None:
    """In a new process: no memory that is written and executed, and no new privileges."""
    hear_interrupts()
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(DENY_WRITE_EXECUTE, 1, 0, 0, 0) != 0 or library.prctl(38, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def test_a_run_needs_no_memory_that_is_written_and_executed(tmp_path: Path) -> None:
    """All parties and the client of a run, with what the unit denies a party."""
    if ctypes.CDLL(None).prctl(66, 0, 0, 0, 0) < 0:
        pytest.skip("this kernel does not know PR_SET_MDWE")
    call = [sys.executable, "-m", "covey", "demo", "--protocol", "trio"]
    done = subprocess.run(
        call, env=environment(), cwd=tmp_path, preexec_fn=under_the_unit, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr


def test_the_image_is_built_as_readme_says() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    runs = [line.removeprefix("RUN ") for line in instructions() if line.startswith("RUN ")]
    assert "`pip install .`" in readme and "/opt/covey/bin/pip install ." in runs
    calls = [step.title for step in documented.steps(DEPLOYMENT)]
    for call in ("python3 -m venv /opt/covey", "/opt/covey/bin/pip install ."):
        assert call in runs and call in calls
    first, *_ = (line for line in instructions() if line.startswith("FROM "))
    assert re.search(r"/rust:.*bookworm AS build$", first)
    assert {"gcc", "make", "python3", "python3-venv"} <= set(runs[0].split())


def test_the_image_holds_no_secret_and_runs_as_nobody_in_particular() -> None:
    lines = instructions()
    copies = [line.split() for line in lines if line.startswith("COPY ") and "--from" not in line]
    copied = [part for words in copies for part in words[1:-1]]
    assert copied
    for name in copied:  # named one by one: what else lies in the folder stays out
        assert name != "." and "*" not in name and (ROOT / name).exists(), name
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", *copied], capture_output=True, text=True, check=True)
    tracked = listed.stdout
    assert tracked and not re.search(r"\.pem$|(party|dealer|owner|client)\.toml$", tracked, re.MULTILINE)
    assert not [line for line in lines if line.startswith(("ARG ", "ENV "))]
    last = max(number for number, line in enumerate(lines) if line.startswith("FROM "))
    assert "debian:12" in lines[last] and "USER covey" in lines[last:]
    (volumes,) = [line for line in lines if line.startswith("VOLUME ")]
    assert "/var/lib/covey" in volumes and "/etc/covey" in volumes


def test_the_image_calls_the_command_as_it_is() -> None:
    (call,) = [line.removeprefix("CMD ") for line in instructions() if line.startswith("CMD ")]
    check_call([word.strip(' "') for word in call.strip("[]").split(",")])
    assert 'ENTRYPOINT ["/opt/covey/bin/covey"]' in instructions()
