"""Every mistake a user can make, over every protocol: runs the tests that stand for each row of a table, and prints it.

    python python/tests/bad_input.py

A row is ok where all its tests passed, and not applicable where it says why. Exit code 1 if one failed or is missing.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROTOCOLS = ("trio", "quad", "two-party", "beaver", "clear")

NO_PARTIES = "one process, no parties"
NO_SECRETS = "values are shared: only the compiler, `verify` and clear see one leave its bound"
NO_DEALER = "no dealer"
NO_RUNS = "keeps correlated OTs and no runs"
NO_TRANSFER = "no oblivious transfer"


@dataclass(frozen=True)
class Row:
    """A mistake; for each protocol its tests, or why there are none."""

    title: str
    cells: dict[str, tuple[str, ...] | str]


def row(title: str, *tests: str, clear: str | None = None, **reasons: str) -> Row:
    """A row of the same tests for each protocol; `{}` in them is its name. A reason stands where there are none."""
    cells: dict[str, tuple[str, ...] | str] = {
        protocol: tuple(test.replace("{}", protocol) for test in tests) for protocol in PROTOCOLS
    }
    if clear is not None:
        cells["clear"] = clear
    for name, reason in reasons.items():
        cells[name.replace("_", "-")] = reason
    return Row(title, cells)


def mine(name: str) -> str:
    """A test of test_bad_input.py."""
    return f"test_bad_input.py::{name}"


def parties(name: str) -> str:
    """A test of the party daemon, in Rust."""
    return f"covey-node --test parties {name}"


def unit(package: str, name: str) -> str:
    """A test inside a crate."""
    return f"{package} --lib {name}"


ROWS = [
    row("NaN in the input", mine("test_inputs[{}-nan]")),
    row("infinity in the input", mine("test_inputs[{}-infinite]")),
    row("input out of its range", mine("test_inputs[{}-range]")),
    row("wrong shape", mine("test_inputs[{}-shape]"), mine("test_inputs[{}-rank]")),
    row("wrong dtype", mine("test_inputs[{}-dtype]"), mine("test_inputs[{}-complex]")),
    row("batch 0", mine("test_inputs[{}-batch]")),
    row("zero-size tensors", mine("test_inputs[{}-zero]"), "test_refusals.py::test_bad_models[zero size]"),
    row("missing file", mine("test_missing_files[{}]"), "test_refusals.py::test_damaged_files"),
    row("file of another kind", mine("test_programs_of_another_kind[{}]"), "test_cli.py::test_damaged_onnx_is_refused"),
    row(
        "damaged program",
        mine("test_damaged_programs[{}]"),
        unit("covey-program", "tests::corruption::damaged_programs_are_refused"),
    ),
    row(
        "damaged weights",
        mine("test_damaged_weights[{}]"),
        unit("covey-program", "tests::corruption::damaged_weights_are_refused"),
    ),
    row("damaged state of a party", mine("test_damaged_state[{}]"), clear=NO_PARTIES),
    row("weights of another program", mine("test_weights_of_another_program[{}]")),
    row("program nobody shared", mine("test_programs_nobody_shared[{}]"), clear=NO_PARTIES),
    row("weights missing at a party", mine("test_weights_missing_at_a_party[{}]"), clear=NO_PARTIES),
    row("stale version of the weights", mine("test_stale_weights[{}]"), clear=NO_PARTIES),
    row(
        "unsupported node",
        "test_cli.py::test_unsupported_nodes_are_named",
        "test_refusals.py::test_bad_models[unsupported]",
    ),
    row(
        "NaN or infinite weight",
        "test_refusals.py::test_bad_models[nan weight]",
        "test_refusals.py::test_bad_models[infinite weight]",
    ),
    row(
        "BatchNorm variance <= 0",
        "test_refusals.py::test_bad_models[variance]",
        mine("test_variance_zero_without_epsilon"),
    ),
    row("program that cannot fit its ring", "test_refusals.py::test_a_program_that_cannot_fit"),
    row(
        "ring a protocol does not support",
        mine("test_rings_a_protocol_does_not_support[{}]"),
        clear="takes every ring a program can have",
    ),
    row(
        "overflow",
        mine("test_overflow_in_the_clear"),
        trio=NO_SECRETS,
        quad=NO_SECRETS,
        two_party=NO_SECRETS,
        beaver=NO_SECRETS,
    ),
    row("batch above the plan", mine("test_batches_above_the_plan[{}]"), clear="plans and preprocesses nothing"),
    row(
        "bad calibration data",
        "test_cli.py::test_calibration_with_nan_is_refused",
        "test_refusals.py::test_damaged_calibration_file",
    ),
    row("wrong, unknown or swapped key", mine("test_wrong_keys[{}]"), clear=NO_PARTIES),
    row(
        "expired certificate",
        unit("covey-transport", "hostile_tests::expired_certificates_are_refused_with_the_remedy"),
        clear=NO_PARTIES,
    ),
    row("damaged key file", "test_cli.py::test_damaged_keys_are_refused", clear=NO_PARTIES),
    row(
        "bad configuration",
        "test_cli.py::test_bad_configurations_are_refused",
        parties("refused::configurations"),
        clear=NO_PARTIES,
    ),
    row(
        "no dealer, a wrong one, or one too many",
        "test_dealer.py::test_configurations_without_or_with_the_wrong_dealer",
        parties("dealer::the_wrong_dealer_is_refused"),
        clear=NO_PARTIES,
    ),
    row("wrong number of parties", "test_dealer.py::test_the_number_of_parties_is_checked"),
    row("client without the right", mine("test_clients_without_the_right[{}]"), clear=NO_PARTIES),
    row("parties told different things", parties("refused::requests_that_differ_or_make_no_sense"), clear=NO_PARTIES),
    row("dead party", mine("test_a_dead_party[{}]"), clear=NO_PARTIES),
    row("stalled party", mine("test_a_stalled_party[{}]"), clear=NO_PARTIES),
    row("port in use", "test_local.py::test_a_taken_port_is_named", clear=NO_PARTIES),
    row("rubbish on a port", mine("test_rubbish_on_a_port[{}]"), clear=NO_PARTIES),
    row(
        "other version, broken messages",
        parties("refused::other_versions_and_broken_messages"),
        unit("covey-transport", "hostile_tests::malformed_frames_of_the_set_up_blame_their_sender"),
        unit("covey-messages", "tests::versions_and_rubbish_are_told_apart"),
        clear=NO_PARTIES,
    ),
    row(
        "malformed OT messages",
        "covey-ot --test ot hostile::points_that_are_none_are_refused",
        "covey-ot --test ot hostile::random_messages_end_without_a_panic",
        trio=NO_TRANSFER,
        quad=NO_TRANSFER,
        beaver=NO_TRANSFER,
        clear=NO_TRANSFER,
    ),
    row(
        "store of other parties, damaged store",
        mine("test_stores"),
        "covey-ot --test ot stock::",
        trio=NO_TRANSFER,
        quad=NO_TRANSFER,
        beaver=NO_TRANSFER,
        clear=NO_PARTIES,
    ),
    row(
        "stored runs put back, lost, damaged",
        parties("stored_runs"),
        two_party=NO_RUNS,
        clear=NO_PARTIES,
    ),
    row(
        "dealer away: runs in store, and when they end",
        "test_store.py::test_stored_runs_need_no_dealer",
        parties("without_dealer"),
        trio=NO_DEALER,
        quad=NO_DEALER,
        two_party=NO_DEALER,
        clear=NO_PARTIES,
    ),
    row("disk full at a party", mine("test_a_full_disk_at_a_party[{}]"), clear=NO_PARTIES),
    row(
        "disk full: store",
        mine("test_a_full_disk_while_a_store_is_filled"),
        trio=NO_TRANSFER,
        quad=NO_TRANSFER,
        beaver=NO_TRANSFER,
        clear=NO_PARTIES,
    ),
    row(
        "disk full: outputs", mine("test_a_full_disk_at_a_client[{}]"), mine("test_standard_output_on_a_full_disk[{}]")
    ),
    row("disk full: compiler", mine("test_a_full_disk_while_compiling")),
    row("read-only output", mine("test_output_that_is_read_only[{}]"), mine("test_a_read_only_place_for_files")),
    row("read-only state of a party", mine("test_a_read_only_state[{}]"), clear=NO_PARTIES),
    row("device that is none", mine("test_devices_that_are_none[{}]")),
    row("GPU that is missing", mine("test_a_gpu_that_is_missing[{}]"), clear="computes on the processor"),
    row("two clients at once", mine("test_two_clients_at_once[{}]"), clear=NO_PARTIES),
    row("Ctrl-C: inference", "test_interrupts.py::test_runs[{}]"),
    row("Ctrl-C: local run", "test_interrupts.py::test_local_runs[{}]", clear=NO_PARTIES),
    row("Ctrl-C: sharing weights", "test_interrupts.py::test_sharing_weights[{}]", clear=NO_PARTIES),
    row(
        "Ctrl-C: filling a store",
        "test_interrupts.py::test_filling_a_store",
        trio=NO_TRANSFER,
        quad=NO_TRANSFER,
        beaver=NO_TRANSFER,
        clear=NO_PARTIES,
    ),
    row("Ctrl-C: compiler, keys", "test_interrupts.py::test_compiling", "test_interrupts.py::test_making_keys"),
    row("Ctrl-C: party", "test_local.py::test_a_party_takes_leave_when_asked", clear=NO_PARTIES),
]


def run_python(tests: set[str]) -> dict[str, bool]:
    """Whether each test passed, by `file.py::name`."""
    folder = Path(__file__).parent
    with tempfile.NamedTemporaryFile(suffix=".xml") as report:
        calls = sorted(str(folder / test) for test in tests)
        # The package that is installed, as in CI.
        pytest = [sys.executable, "-m", "pytest", "-q", "-o", "pythonpath=", "--junitxml", report.name]
        subprocess.run([*pytest, *calls], cwd=ROOT, env={**os.environ, "COVEY_IN_FULL": "1"})
        cases = ElementTree.parse(report.name).iter("testcase")
        return {
            f"{case.get('classname', '').rsplit('.', 1)[-1]}.py::{case.get('name')}": case.find("failure") is None
            and case.find("error") is None
            and case.find("skipped") is None
            for case in cases
        }


def run_rust(tests: set[str]) -> dict[str, bool]:
    """Whether each test passed, by `package target name`."""
    targets: dict[str, set[str]] = defaultdict(set)
    for test in tests:
        package, *target, name = test.split() if "stock" not in test else [*test.split(), ""]
        targets[" ".join([package, *target])].add(name)
    outcomes = {}
    for target, names in sorted(targets.items()):
        _, *more = target.split()
        filters = [] if "" in names else sorted(names)
        # As `make test` builds them: for a package alone, with fewer features, dependencies would be compiled again.
        call = ["cargo", "test", "--locked", "--workspace", *more, "--", *filters]
        print(" ".join(call), flush=True)
        done = subprocess.run(call, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        print(done.stdout, flush=True)
        for name, verdict in re.findall(r"^test (\S+) \.\.\. (\w+)", done.stdout, re.MULTILINE):
            outcomes[f"{target} {name}"] = verdict == "ok"
        outcomes[target] = done.returncode == 0
    return outcomes


def verdict(test: str, outcomes: dict[str, bool]) -> bool:
    """Whether a test passed, in each of its cases, or a module in each of its tests."""
    cases = [passed for name, passed in outcomes.items() if name == test or name.startswith((f"{test}[", f"{test}::"))]
    return bool(cases) and all(cases)


def main() -> int:
    wanted = {test for row in ROWS for cell in row.cells.values() if isinstance(cell, tuple) for test in cell}
    python = {test for test in wanted if "::" in test.split()[0]}
    outcomes = {**run_rust(wanted - python), **run_python(python)}
    width = max(len(row.title) for row in ROWS)
    print("\n" + f"{'':<{width}}" + "".join(f"  {protocol:<10}" for protocol in PROTOCOLS))
    counts: dict[str, int] = defaultdict(int)
    reasons: dict[str, list[str]] = defaultdict(list)
    for entry in ROWS:
        shown = []
        for protocol, cell in entry.cells.items():
            if isinstance(cell, str):
                shown.append("n/a")
                reasons[f"{protocol}: {cell}"].append(entry.title)
            else:
                failed = [test for test in cell if not verdict(test, outcomes)]
                shown.append("FAILED" if failed else "ok")
                reasons[f"FAILED {protocol}"] += failed
            counts[shown[-1]] += 1
        print(f"{entry.title:<{width}}" + "".join(f"  {cell:<10}" for cell in shown))
    print("\nnot applicable:")
    for reason, titles in reasons.items():
        if titles and not reason.startswith("FAILED"):
            print(f"  {reason} ({len(titles)})")
    for reason, tests in reasons.items():
        if reason.startswith("FAILED") and tests:
            print(f"{reason}: {', '.join(tests)}")
    print(f"\n{len(ROWS)} rows: {counts['ok']} ok, {counts['n/a']} not applicable, {counts['FAILED']} failed")
    return 1 if counts["FAILED"] else 0


if __name__ == "__main__":
    sys.exit(main())
