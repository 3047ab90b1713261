"""What the pages say in blocks that no test runs, and in which words."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from command import DIGITS, Command

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").glob("*.md"))]
SOURCES = sorted((ROOT / "python" / "covey").rglob("*.py")) + sorted((ROOT / "examples").rglob("*.py"))
COMPILE = re.compile(r"^(?:\w+\$ )?(covey (?:compile|tune) .*)$", re.MULTILINE)
OBSCURE = re.compile(
    r"dearest|values alive|: alive\"|clear against clear|(?<!--)phase joint|(?:is|was|were|are) due\b|"
    r"accuracy certificate",
    re.IGNORECASE,
)
"""Words of ours that a newcomer cannot know."""


def lines(page: Path) -> list[str]:
    """The commands of a page that compile a model."""
    return [line.split("  #")[0] for line in COMPILE.findall(page.read_text("utf-8").replace("\\\n", " "))]


@pytest.mark.parametrize("page", [page for page in PAGES if lines(page)], ids=lambda page: page.name)
def test_compile_lines_say_what_the_inputs_are(page: Path) -> None:
    for line in lines(page):
        assert "--calibration" in line or "--input-range" in line, line


@pytest.mark.parametrize("page", [page for page in PAGES if lines(page)], ids=lambda page: page.name)
def test_owners_calibrate_on_data_of_their_own(page: Path) -> None:
    for line in lines(page):
        words = shlex.split(line)
        if "--calibration" in words and words[2].startswith("owner/"):
            assert words[words.index("--calibration") + 1].startswith("owner/"), line


def test_the_compile_line_of_three_hosts_runs(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (line,) = lines(ROOT / "docs" / "three-hosts.md")
    shutil.copy(DIGITS / "digits.onnx", tmp_path / "model.onnx")
    shutil.copy(DIGITS / "calibration.npy", tmp_path / "calibration.npy")
    monkeypatch.chdir(tmp_path)
    command.succeeds(*shlex.split(line)[1:])
    assert (tmp_path / "model.covey").exists()


@pytest.mark.parametrize("path", [*PAGES, *SOURCES], ids=lambda path: path.name)
def test_words_are_plain(path: Path) -> None:
    found = [match[0] for match in OBSCURE.finditer(path.read_text("utf-8"))]
    assert found == []
