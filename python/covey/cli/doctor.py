"""doctor: can this machine and these parties work together?"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from covey._version import __version__
from covey.cli import console, holdings
from covey.cli.keys import EXPIRY_WARNING_DAYS, expiry
from covey.cli.options import Json
from covey.parties import machine_memory, processors

LEAST_MEMORY = 2 * 10**9

FAR_MS = 5.0
"""A round trip from which circuits of fewer rounds pay."""


@dataclass(frozen=True)
class Finding:
    """One line of the diagnosis: `ok`, `warning` or `error`."""

    what: str
    found: str
    verdict: str = "ok"
    usage: dict[str, Any] | None = None
    """Where it is about what a program takes at a party: bytes of disk and memory."""


def doctor(
    config: Annotated[
        Path | None, typer.Option(metavar="FILE.toml", help="client.toml, owner.toml or party.toml.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check this machine, and every party that a configuration file names: whether it would serve each program.

    Leaves with exit code 1 where something is refused. Shows the owner of programs what they take of disk and memory;
    on a party's host, with its party.toml, that of all programs.
    """
    findings = [*_machine(), _device(config)]
    if config is not None:
        findings += _configuration(config)
    if as_json:
        console.print_json([_json(finding) for finding in findings])
    else:
        table = console.table("", ["what", "found"], ["verdict"])
        table.columns[0].max_width, table.columns[1].max_width = 24, 44
        usage = [finding.usage for finding in findings if finding.usage is not None]
        for finding in findings:
            if finding.usage is None:
                table.add_row(console.cell(finding.what), console.cell(finding.found), finding.verdict)
        console.out().print(table)
        if usage:
            console.say("")
            console.out().print(holdings.usage_table(usage))
    errors = [finding for finding in findings if finding.verdict == "error"]
    if errors:
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        console.complain(f"{errors[0].what}: {errors[0].found}{more}")
        raise typer.Exit(1)


def _json(finding: Finding) -> dict[str, Any]:
    about = {"what": finding.what, "found": finding.found, "verdict": finding.verdict}
    return about if finding.usage is None else {**about, "usage": finding.usage}


def _machine() -> list[Finding]:
    from covey import _core

    cores = processors()
    findings = [
        Finding("covey", f"{__version__}, Python {platform.python_version()}"),
        Finding("runtime", str(_core.__version__), "ok" if _core.__version__ == __version__ else "error"),
        Finding("machine", f"{platform.system()} {platform.machine()}, {cores} cores"),
    ]
    memory = machine_memory()
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


def _device(config: Path | None) -> Finding:
    """What linear layers are computed on, as the configuration says if there is one."""
    from covey import _core
    from covey.config import read
    from covey.errors import CoveyError

    document = read(config) if config is not None else {}
    sections = [section for kind in ("party", "client") if isinstance(section := document.get(kind), dict)]
    try:
        return Finding("device", _core.use_device(str(sections[0].get("device", "auto")) if sections else "auto"))
    except CoveyError as error:
        return Finding("device", str(error), "error")


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
    findings.append(_certificate("own certificate", identity.days_left, f"expired on {expiry(identity):%Y-%m-%d}"))
    return findings + (_around_party(path) if is_party else _around_client(path))


def _around_client(path: Path) -> list[Finding]:
    """What the parties would answer to the client whose file this is."""
    from covey.client import Client

    diagnosis = Client(path).diagnose()
    findings = []
    for answer in diagnosis["parties"]:
        findings += _party(answer)
    for found in diagnosis["findings"]:
        what = "parties" if found["party"] is None else f"party {found['party']}"
        findings.append(Finding(what, found["what"], "error" if found["grave"] else "warning"))
    for program in diagnosis["programs"]:
        findings += _program(program)
    for answer in diagnosis["parties"]:
        usage = answer.get("status", {}).get("usage", [])
        findings += _usage({**entry, "party": answer["name"]} for entry in usage)
    if _all_answer(diagnosis["parties"]):
        findings += _links(path)
    return findings


def _all_answer(answers: list[dict[str, Any]]) -> bool:
    return all("error" not in answer or answer["refused"] for answer in answers)


def _links(path: Path) -> list[Finding]:
    """Where parties are far and the client's file does not say so: circuits are then chosen for a local network."""
    from covey import _core

    if _core.links(os.fspath(path)) is not None:
        return []
    far = max((trip for trip in _core.round_trips(os.fspath(path)) if trip is not None), default=0.0)
    if far < FAR_MS:
        return []
    advice = "if the parties are as far from each other, say [links] with round_trip_ms, for circuits of fewer rounds"
    return [Finding("links", f"a round trip from here takes up to {far:.3g} ms: {advice}", "warning")]


def _program(program: dict[str, Any]) -> list[Finding]:
    called = f"{program['name']} ({program['program'][:12]})"
    if program["verdict"] == "served":
        version = program["weights_version"][:12]
        return [Finding("program", f"{called}: served with {program['protocol']}, weights {version}")]
    verdict = "error" if program["verdict"] == "refused" else "warning"
    findings = []
    for found in program["findings"]:
        who = "" if found["party"] is None or found["what"].startswith(found["party"]) else f"{found['party']}: "
        findings.append(Finding("program", f"{called}: {who}{found['what']}", verdict))
    return findings


def _around_party(path: Path) -> list[Finding]:
    """What the party's own daemon and the other parties say; what its state folder holds where it does not serve."""
    from covey import _core
    from covey.errors import CoveyError

    findings = []
    answers = json_status(path)
    for answer in answers:
        findings += _party(answer, asked_by_party=True)
    if _all_answer(answers):
        for answer, trip in zip(answers, _core.round_trips(os.fspath(path)), strict=True):
            if trip is not None:
                findings.append(Finding(f"{answer['name']}: round trip", f"{trip:.3g} ms"))
    folder = Path(_core.state_folder(os.fspath(path)))
    status = None
    try:
        status = holdings.own_status(path)
    except CoveyError as error:
        findings.append(Finding("own daemon", f"could not be asked: {error}", "error"))
    else:
        findings += _own_daemon(status)
    try:
        usage, problems = holdings.host_usage(status, folder)
        findings += [Finding("state folder", problem, "warning") for problem in problems]
        findings += _usage(usage)
    except CoveyError as error:
        findings.append(Finding("state folder", str(error), "warning"))
    return findings


def _own_daemon(status: dict[str, Any] | None) -> list[Finding]:
    if status is None:
        return [Finding("own daemon", "does not serve: start it with `covey party`", "warning")]
    problems = [
        Finding("own daemon", problem["what"], "error" if problem["grave"] else "warning")
        for problem in status["problems"]
    ]
    return [Finding("own daemon", f"serves, {status['sessions']} sessions"), *problems]


def _usage(entries: Iterable[dict[str, Any]]) -> list[Finding]:
    findings = []
    for entry in entries:
        kinds = ("share_bytes", "runs_bytes", "masks_bytes", "checkpoints_bytes", "ots_bytes")
        sizes = [entry.get(key, 0) for key in kinds]
        what = "correlated OTs" if "ots_bytes" in entry else f"program {entry['name']}"
        at = f" at {entry['party']}" if entry["party"] else ""
        findings.append(Finding("usage", f"{what}{at}: {console.amount(sum(sizes))} on disk", usage=entry))
    return findings


def json_status(path: Path) -> list[dict[str, Any]]:
    """What each party a configuration file names says about itself."""
    import json

    from covey import _core

    answers: list[dict[str, Any]] = json.loads(_core.status(os.fspath(path)))
    return answers


def _party(answer: dict[str, Any], asked_by_party: bool = False) -> list[Finding]:
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


def _certificate(what: str, days: int, expired: str = "has expired") -> Finding:
    if days < 0:
        return Finding(what, f"{expired}: make a new key with `covey keys new`", "error")
    if days < EXPIRY_WARNING_DAYS:
        return Finding(what, f"expires in {days} days: make a new key with `covey keys new` soon", "warning")
    return Finding(what, f"valid for {days} days")
