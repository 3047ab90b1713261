"""The commands that a page documents, and running them in one shell, in order, as a reader would paste them.

Blocks marked ```bash are run line by line and blocks marked ```python in one go; blocks marked ```toml whose first line
is a comment that names a file are written there. Unmarked blocks are shown only, except for lines such as
`alpha$ covey …`: what the machine alpha runs. Each such machine is a folder and an address of its own here; a daemon
that it starts serves until the page ends; `covey:…` after a name is the fingerprint which that name's machine printed;
`scp` copies between the folders.

A fence may say why its block is not run: ```bash not run: takes an hour.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote

FENCE = re.compile(r"^```(\w*)(?: +not run: (.*\S))? *$")
FILE = re.compile(r"# (\S+\.toml)$")
PROMPT = re.compile(r"^(\w+)\$ +(.*)$")
FINGERPRINT = re.compile(r"(\w+) covey:…")
SECONDS = 3600
"""A page that takes longer has failed."""

PREAMBLE = r"""
set -o pipefail
scp() { cp "$1" "../${2%%.*}/${2#*:}"; }
listening() {
    for _ in $(seq 600); do grep -q ^ready "$1/log" && return; sleep 0.1; done
    cat "$1/log"
    return 1
}
"""


@dataclass(frozen=True)
class Step:
    """A command, a block of Python or a file of a page."""

    line: int
    title: str
    script: str
    """What bash runs for it."""
    unrun: str | None = None
    """Why it is not run."""


@dataclass(frozen=True)
class Done:
    """What became of a step: ok, FAILED or not run, and what it printed or why."""

    step: Step
    verdict: str
    said: str
    seconds: float = 0.0


def steps(text: str) -> list[Step]:
    """What a page documents, in order."""
    found: list[Step] = []
    machines = sorted({match[1] for line in text.splitlines() if (match := PROMPT.match(line))})
    for line, language, unrun, body in blocks(text):
        if language == "bash":
            found += [Step(at, command, command, unrun) for at, command in _commands(line, body)]
        elif language == "python":
            found.append(Step(line, "python block", _given("python -", body), unrun))
        elif language == "toml" and body and (named := FILE.match(body[0])):
            found.append(Step(line, f"write {named[1]}", _given(f"cat > {quote(named[1])}", body), unrun))
        elif not language:
            for at, command in _commands(line, body):
                if prompt := PROMPT.match(command):
                    script = _on_machine(prompt[1], prompt[2], machines)
                    found.append(Step(at, command, script, unrun))
    return found


def blocks(text: str) -> Iterator[tuple[int, str, str | None, list[str]]]:
    """The number of the first line, the language, why it is not run, and the lines of each block."""
    body: list[str] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if body is None and (fence := FENCE.match(line)):
            start, body = (number + 1, fence[1], fence[2]), []
        elif body is not None and line.startswith("```"):
            yield (*start, body)
            body = None
        elif body is not None:
            body.append(line)


def _commands(line: int, body: list[str]) -> Iterator[tuple[int, str]]:
    """The commands of a block and their lines; a backslash at the end joins two."""
    begun, at = "", line
    for number, text in enumerate(body, line):
        at = at if begun else number
        begun += text
        if begun.endswith("\\"):
            begun = begun[:-1]
            continue
        command, begun = begun.split("  #")[0].strip(), ""
        if command and not command.startswith("#"):
            yield at, command


def _given(command: str, body: list[str]) -> str:
    """A command that reads lines."""
    return f"{command} <<'END_OF_BLOCK'\n" + "\n".join(body) + "\nEND_OF_BLOCK"


def _on_machine(name: str, command: str, machines: list[str]) -> str:
    """What stands for `command` on a machine of its own."""
    address = {machine: f"127.0.1.{number}" for number, machine in enumerate(machines, 1)}
    for machine, its_own in address.items():
        command = re.sub(rf"\b{machine}\.example:(?=\d)", f"{its_own}:", command)
    command = command.replace("0.0.0.0:", f"{address[name]}:")
    command = FINGERPRINT.sub(r"\1 $(cat ../\1/fingerprint)", command)
    folder = f"mkdir -p {name} && ln -sfn ../examples {name}/examples"
    if re.match(r"covey (party|dealer) ", command):
        return f"{folder}\n( cd {name} && exec {command} ) > {name}/log 2>&1 &\necho $! > {name}/pid\nlistening {name}"
    kept = " | tee fingerprint" if re.match(r"covey (init|keys new) ", command) else ""
    return f"{folder} && ( cd {name} && {command}{kept} )"


def run(
    page: str,
    text: str,
    folder: Path,
    environment: Mapping[str, str],
    unrun: Callable[[str], str | None],
    start: str = "",
) -> list[Done]:
    """Run a page's steps in one shell in `folder`, after the commands `start`; `unrun` says why one is not run."""
    found = [step if step.unrun else replace(step, unrun=unrun(step.script)) for step in steps(text)]
    script = [PREAMBLE, start]
    for number, step in enumerate(found):
        if step.unrun is None:
            begin, end = f"printf '\\036%s %s\\n' {number}", 'printf "\\036= %s %s\\n" $?'
            script += [f"{begin} ${{EPOCHREALTIME:-0}}", step.script, f"{end} ${{EPOCHREALTIME:-0}}"]
    said, timed_out = _shell("\n".join(script) + "\n", folder, environment)
    outcomes: dict[int, tuple[str, str]] = {}
    seconds: dict[int, float] = {}
    last, began = -1, 0.0
    for piece in said.split("\036")[1:]:
        head, _, rest = piece.partition("\n")
        match head.split():
            case ["=", code, ended]:
                outcomes[last] = ("ok" if code == "0" else "FAILED", outcomes[last][1])
                seconds[last] = float(ended) - began
            case [place, started]:
                last, began = int(place), float(started)
                outcomes[last] = ("FAILED", rest)
    done = []
    for number, step in enumerate(found):
        if step.unrun is not None:
            done.append(Done(step, "not run", step.unrun))
            continue
        verdict, output = outcomes.get(number, ("FAILED", "the shell did not come to this command\n"))
        late = f"not done after {SECONDS} s\n" if timed_out and number == last else ""
        done.append(Done(step, verdict, output + late, seconds.get(number, 0.0)))
    report(page, done)
    return done


def _shell(script: str, folder: Path, environment: Mapping[str, str]) -> tuple[str, bool]:
    """What a shell that runs `script` prints, and whether it took too long. Nothing that it started outlives it."""
    file, log = folder / ".page.sh", folder / ".page.log"
    file.write_text(script, encoding="utf-8")
    with open(log, "wb") as stream:
        shell = subprocess.Popen(
            ["bash", file.name],
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            shell.wait(SECONDS)
            late = False
        except subprocess.TimeoutExpired:
            late = True
        finally:
            _end(shell)
    said = log.read_text("utf-8", "replace")
    file.unlink()
    log.unlink()
    return said, late


def _end(shell: subprocess.Popen[bytes]) -> None:
    """End a shell and what it started: gently, if that lets itself be."""
    with suppress(ProcessLookupError):
        os.killpg(shell.pid, signal.SIGTERM)
        for _ in range(100):
            shell.poll()
            os.killpg(shell.pid, 0)
            time.sleep(0.05)
        os.killpg(shell.pid, signal.SIGKILL)
    shell.wait()


def report(page: str, done: list[Done]) -> None:
    """Say what became of each step, with the output of failed ones."""
    for each in done:
        reason = f": {each.said}" if each.verdict == "not run" else ""
        print(f"{each.verdict:8}{page}:{each.step.line}: {each.step.title}{reason}", flush=True)
        if each.verdict == "FAILED":
            print(each.said, flush=True)


def summary(pages: Mapping[str, list[Done]]) -> int:
    """Say how many commands ran; 1 if any failed or none ran, else 0."""
    every = [(page, each) for page, done in pages.items() for each in done]
    run = [(page, each) for page, each in every if each.verdict != "not run"]
    failed = [f"{page}:{each.step.line}" for page, each in run if each.verdict == "FAILED"]
    slowest = sorted(run, key=lambda each: -each[1].seconds)[:8]
    print("slowest: " + ", ".join(f"{page}:{each.step.line} {each.seconds:.0f} s" for page, each in slowest))
    print(f"{len(run) - len(failed)} of {len(run)} documented commands run, {len(every) - len(run)} not run on purpose")
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed or not run else 0
