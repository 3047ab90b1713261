"""doctor: can this machine and these parties work together?"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from covey._version import __version__
from covey.cli import console
from covey.cli.keys import EXPIRY_WARNING_DAYS
from covey.cli.options import Json

LEAST_MEMORY = 2 * 10**9


@dataclass(frozen=True)
class Finding:
    """One line of the diagnosis: `ok`, `warning` or `error`."""

    what: str
    found: str
    verdict: str = "ok"


def doctor(
    config: Annotated[
        Path | None, typer.Option(metavar="FILE.toml", help="client.toml, owner.toml or party.toml.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check this machine, and every party that a configuration file names."""
    findings = _machine()
    if config is not None:
        findings += _configuration(config)
    if as_json:
        console.print_json([{"what": f.what, "found": f.found, "verdict": f.verdict} for f in findings])
    else:
        table = console.table("", ["what", "found"], ["verdict"])
        table.columns[1].max_width = 60
        for finding in findings:
            table.add_row(console.cell(finding.what), console.cell(finding.found), finding.verdict)
        console.out().print(table)
    errors = [finding for finding in findings if finding.verdict == "error"]
    if errors:
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        console.complain(f"{errors[0].what}: {errors[0].found}{more}")
        raise typer.Exit(1)


def _machine() -> list[Finding]:
    from covey import _core

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    findings = [
        Finding("covey", f"{__version__}, Python {platform.python_version()}"),
        Finding("runtime", str(_core.__version__), "ok" if _core.__version__ == __version__ else "error"),
        Finding("machine", f"{platform.system()} {platform.machine()}, {cores} cores"),
    ]
    memory = _memory()
    if memory is not None:
        findings.append(Finding("memory", console.amount(memory), "ok" if memory >= LEAST_MEMORY else "warning"))
    kernels = str(_core.instruction_set())
    slow = kernels == "portable" and platform.machine().lower() in ("x86_64", "amd64")
    findings.append(
        Finding(
            "kernels", kernels + (": no AVX2, so several times slower" if slow else ""), "warning" if slow else "ok"
        )
    )
    findings.append(Finding("key exchange", f"{_core.KEY_EXCHANGE}: hybrid post-quantum, on every link"))
    return findings


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _configuration(path: Path) -> list[Finding]:
    from covey import _core
    from covey.config import read
    from covey.errors import CoveyError

    document = read(path)
    is_party = isinstance(document.get("party"), dict)
    section = document["party"] if is_party else document.get("client")
    key = section.get("key") if isinstance(section, dict) else None
    if not isinstance(key, str):
        raise CoveyError(f"'{path}' is no configuration file: [party] or [client] with `name` and `key` is missing")
    findings = []
    try:
        identity = _core.Identity.load(path.parent / key)
    except CoveyError as error:
        return [Finding("own key", str(error), "error")]
    findings.append(_certificate("own certificate", identity.days_left))
    answers = json_status(path)
    programs: dict[str, int] = {}
    for answer in answers:
        findings += _party(answer, is_party)
        for program in answer.get("status", {}).get("programs", []):
            line = f"{program['name']} ({program['program'][:12]}, weights {program['sharing'][:12]})"
            programs[line] = programs.get(line, 0) + 1
    for line, count in sorted(programs.items()):
        everywhere = count == len(answers)
        advice = "" if everywhere else f" on {count} of {len(answers)} parties only: share its weights again"
        findings.append(Finding("program", line + advice, "ok" if everywhere else "warning"))
    return findings


def json_status(path: Path) -> list[dict[str, Any]]:
    """What each party a configuration file names says about itself."""
    import json

    from covey import _core

    answers: list[dict[str, Any]] = json.loads(_core.status(os.fspath(path)))
    return answers


def _party(answer: dict[str, Any], asked_by_party: bool) -> list[Finding]:
    who = f"party {answer['name']} ({answer['address']})"
    if asked_by_party and answer.get("refused"):
        # It knows our key and answered under its own; what it holds, it tells clients only.
        return [Finding(who, "reachable, key as pinned; it tells its clients more")]
    if "error" in answer:
        return [Finding(who, answer["error"], "error")]
    status = answer["status"]
    same = status["covey"] == __version__
    version = f"covey {status['covey']}" + (
        "" if same else f", this is {__version__}: install the same release everywhere"
    )
    findings = [
        Finding(who, f"reachable, key as pinned, {status['sessions']} sessions"),
        Finding(f"{answer['name']}: version", version, "ok" if same else "error"),
    ]
    if status["name"] != answer["name"]:
        findings.append(Finding(f"{answer['name']}: name", f"calls itself '{status['name']}'", "warning"))
    findings.append(_certificate(f"{answer['name']}: certificate", status["certificate_days_left"]))
    return findings


def _certificate(what: str, days: int) -> Finding:
    if days < 0:
        return Finding(what, f"expired {-days} days ago: make a new key with `covey keys new`", "error")
    if days < EXPIRY_WARNING_DAYS:
        return Finding(what, f"expires in {days} days: make a new key with `covey keys new` soon", "warning")
    return Finding(what, f"valid for {days} days")
