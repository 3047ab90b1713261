"""The noise problems of silent oblivious transfer: what attacks cost, by the script that `make lpn` runs."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "crates/ot/tools/lpn.py"


def lpn(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def chosen() -> dict:
    ended = lpn("--json")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return json.loads(ended.stdout)


def test_every_attack_on_every_set_costs_128_bits(chosen: dict) -> None:
    assert len(chosen["bits"]) == 3 and chosen["least"] == 128 and chosen["weak"] == []
    assert all(len(row) == 10 and min(row.values()) >= 128 for row in chosen["bits"].values())


def test_the_sets_are_those_of_the_code_and_of_the_documentation(chosen: dict) -> None:
    code = (ROOT / "crates/ot/src/silent/parameters.rs").read_text()
    page = (ROOT / "docs/oblivious-transfer.md").read_text()
    for name, sizes in chosen["sets"].items():
        trees, log, depth = sizes["trees"], sizes["log_secret"], sizes["depth"]
        assert f'name: "{name}", trees: {trees}, log_secret: {log}, depth: {depth} }}' in code
        row = re.search(rf"^\| {name} \| ([\d,]+) \| ([\d,]+) \| 2\^(\d+) \| .* \| ([\d.]+) \|$", page, re.MULTILINE)
        assert row is not None
        outputs, documented, secret, bits = row.groups()
        assert [int(text.replace(",", "")) for text in (outputs, documented, secret)] == [trees << depth, trees, log]
        assert float(bits) == round(sizes["bits_per_ot"], 3)
    for attack in ("gauss", "subset", "stern", "representations", "linearise", "statistical", "algebraic"):
        costs = " | ".join(f"{row[attack]:.1f}" for row in chosen["bits"].values())
        assert f"(`{attack}`) | {costs} |" in page


def test_lpn_parameters_that_fall_short_are_refused() -> None:
    before = ["e10:850:16:10", "e11:1170:17:11", "e12:1520:18:12", "e13:1900:19:13"]
    ended = lpn("--json", *(word for text in before for word in ("--set", text)))
    assert ended.returncode == 1
    bits = json.loads(ended.stdout)["bits"].values()
    assert [round(row["linearise"]) for row in bits] == [122, 118, 115, 112]
    assert all(105 < row["subset"] < 108 for row in bits)


def test_fewer_blocks_are_safer() -> None:
    ended = lpn("--json", "--set", "few:600:17:10", "--set", "many:2400:17:10")
    few, many = json.loads(ended.stdout)["bits"].values()
    assert all(few[attack] >= many[attack] - 0.1 for attack in few)


def test_the_subset_attack_takes_as_many_guesses_as_foretold() -> None:
    sys.path.insert(0, str(SCRIPT.parent))
    try:
        import lpn as script
    finally:
        sys.path.remove(str(SCRIPT.parent))
    took, foretold = script.simulate(2)
    assert foretold / 4 < took < foretold * 4
