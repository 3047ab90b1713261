"""The style of the pages: each kind of finding is found, and nothing else; the pages have none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import style

GLOSSARY = """| term | meaning | page | not |
|---|---|---|---|
| check | compares digests | [quad.md](quad.md) | `book`, `by the book` |
| ring | `no word of ours` | [tuning.md](tuning.md) | |
"""

LONG = " ".join(["word"] * 26)

FOUND = {
    "a long sentence": f"Short. {LONG}.",
    "a long sentence on two lines": f"{LONG[:50]}\n{LONG[50:]}",
    "a long item": f"- {LONG}",
    "a long sentence with code": f"`a b` {LONG[5:]}.",
    "what was given": "It prints what was\ngiven.",
    "lest": "Wait, lest it fail.",
    "is due": "An answer is due.",
    "are due": "Answers are due.",
    "beside": "The table beside it.",
    "of those that": "Any of those that fail.",
    "whoever": "It ends. Whoever asks is told.",
    "who": "It ends. Who asks is told.",
    "what": "- **What is asked** is told.",
    "of a": "Of a value nothing is known.",
    "of the": "- *Of the values* none is known.",
    "a word of ours": "It keeps a book.",
    "a word of ours in a table": "| a | by the\tbook |",
}

LET_THROUGH = {
    "25 words": f"{LONG[5:]}. {LONG[5:]}.",
    "symbols": f"{LONG[5:]} x + λ1 = 2^l.",
    "a long code": f"`{LONG}` and `{LONG}`.",
    "code over two lines": "`keeps\nbook`.",
    "a block of code": f"```\n{LONG} book\n```",
    "an indented block": f"So:\n\n    {LONG} book",
    "a heading": f"# {LONG} book",
    "a row of a table": f"| {LONG} |",
    "two items": f"- {LONG[65:]}\n- {LONG[65:]}",
    "an address": "[here](lest-beside-book.md).",
    "part of another word": "Besides, a bookshelf.",
    "an item of a list in a sentence": "- what it holds;",
    "not at the beginning": "It is one of the values of a tensor, whoever asks.",
}


@pytest.mark.parametrize("name", FOUND)
def test_each_kind_is_found(name: str) -> None:
    assert list(style.findings(FOUND[name], style.glossary_words(GLOSSARY)))


@pytest.mark.parametrize("name", LET_THROUGH)
def test_nothing_else_is_found(name: str) -> None:
    assert list(style.findings(LET_THROUGH[name], style.glossary_words(GLOSSARY))) == []


def test_a_finding_has_its_line() -> None:
    (finding,) = style.findings("# Title\n\nOne.\nTwo. Wait,\nlest it fail.\n", {})
    assert finding == style.Finding(5, "“lest”: so that .. not")


def test_the_last_column_of_the_glossary_names_the_words() -> None:
    assert style.glossary_words(GLOSSARY) == {"book": "check", "by the book": "check"}


def test_pages_that_are_not_yet_rewritten_exist() -> None:
    assert all((style.ROOT / name).exists() for name in style.NOT_YET_REWRITTEN)


@pytest.mark.parametrize("page", style.pages())
def test_the_pages_pass(page: str) -> None:
    words = style.glossary_words((style.ROOT / "docs/glossary.md").read_text("utf-8"))
    assert list(style.findings((style.ROOT / page).read_text("utf-8"), words)) == []


def test_the_command_names_file_line_and_reason(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("Wait, lest it fail.\n")
    ended = subprocess.run([sys.executable, style.__file__, page], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (1, f"{page}:1: “lest”: so that .. not\n")
