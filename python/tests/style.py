"""Find sentences that a stranger reads twice: too long, with an obscure phrase, or with a word of ours for a term.

    python python/tests/style.py [PAGE]...

Checked are README.md, SECURITY.md and the pages in docs, outside code blocks and backticks. A sentence may have 25
words; tables and headings are not measured, and symbols of formulas are no words. The words of ours are those in the
column "not" of docs/glossary.md. Prints file, line and reason for each finding; exit code 1 if there is any.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

NOT_YET_REWRITTEN = frozenset(
    {
        "docs/how-to-add-a-layer.md",
        "docs/program-format.md",
    }
)
"""Pages that are not yet rewritten. A page leaves this list when it passes."""

LIMIT = 25

PHRASES = {
    r"what was given": "say which thing",
    r"lest": "so that .. not",
    r"(?:is|are) due": "say who must do it",
    r"beside": "next to, or besides",
    r"of those that": "say which ones",
}

OPENINGS = {
    r"(?-i:What|Who|Whose)|whoever": "begin with the noun",
    r"of (?:an?|the)": "begin with the subject",
}

WORD = re.compile(r"[^\W\d_]{2}|^[aAI]$|^P\d")
"""What makes a piece of text a word: two letters, or the name of a party."""

END = re.compile(r"(?<!\.)[.!?](?=[\"')\]*_]*(?:\s|$))")
ITEM = re.compile(r"\s*(?:[-*]|\d+\.)\s+")


@dataclass(frozen=True)
class Finding:
    line: int
    reason: str


@dataclass(frozen=True)
class Block:
    """A paragraph, a list item or a row of a table: its first line and its text, code and addresses taken out."""

    line: int
    text: str
    is_table: bool


def main() -> int:
    names = sys.argv[1:] or pages()
    words = glossary_words((ROOT / "docs/glossary.md").read_text("utf-8"))
    count = 0
    for name in names:
        for finding in findings((ROOT / name).read_text("utf-8"), words):
            print(f"{name}:{finding.line}: {finding.reason}")
            count += 1
    return 1 if count else 0


def pages() -> list[str]:
    """The pages that must pass."""
    found = ["README.md", "SECURITY.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
    return [name for name in found if name not in NOT_YET_REWRITTEN]


def glossary_words(text: str) -> dict[str, str]:
    """The words in backticks of each row's last cell, and the term that stands in the row's first one."""
    rows = [line.strip().strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    return {word: row[0].strip() for row in rows for word in re.findall(r"`([^`]+)`", row[-1])}


def findings(text: str, words: dict[str, str]) -> Iterator[Finding]:
    phrases = {_phrase(phrase): hint for phrase, hint in PHRASES.items()}
    phrases |= {_phrase(re.escape(word)): f"the term is {term!r}" for word, term in words.items()}
    openings = {re.compile(rf"(?:{opening})\b", re.IGNORECASE): hint for opening, hint in OPENINGS.items()}
    for block in blocks(text):
        for pattern, hint in phrases.items():
            for match in pattern.finditer(block.text):
                yield Finding(_line(block, match.start()), f"“{' '.join(match[0].split())}”: {hint}")
        for start, sentence in sentences(block.text):
            bare = sentence.lstrip("*_\"'(")
            for pattern, hint in openings.items():
                if begins := pattern.match(bare):
                    yield Finding(_line(block, start), f"a sentence begins with “{begins[0]}”: {hint}")
            length = sum(bool(WORD.search(word)) for word in re.split(r"[\s/]+", sentence))
            if length > LIMIT and not block.is_table:
                yield Finding(_line(block, start), f"a sentence of {length} words: {' '.join(sentence.split())[:60]}")


def blocks(text: str) -> Iterator[Block]:
    """What is prose: no fenced or indented code, no heading, no rule of a table."""
    gathered: list[str] = []
    first, fenced = 1, False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        is_row = line.startswith("|")
        starts = bool(ITEM.match(line)) or is_row or line.startswith(("#", "```")) or not line.strip() or fenced
        if gathered and (starts or gathered[0].startswith("|")):
            yield _block(first, gathered)
            gathered = []
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced and line.strip() and not line.startswith("#"):
            is_code = not gathered and line.startswith("    ") and not ITEM.match(line)
            if not is_code and not re.fullmatch(r"[|:\s-]+", line):
                first = first if gathered else number
                gathered.append(line)


def _block(first: int, lines: list[str]) -> Block:
    text = "\n".join(lines)
    text = re.sub(r"`[^`]+`", lambda match: "`code`" + "\n" * match[0].count("\n"), text)
    text = re.sub(r"\]\([^)\s]*\)", "]", text)
    text = ITEM.sub("", text, count=1) if ITEM.match(text) else text
    return Block(first, text, lines[0].startswith("|"))


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """Where each sentence starts, and its text."""
    start = 0
    for end in [*(match.end() for match in END.finditer(text)), len(text)]:
        sentence = text[start:end].lstrip("\"')]*_ \n")
        if sentence:
            yield end - len(sentence), sentence
        start = end


def _phrase(pattern: str) -> re.Pattern[str]:
    """A pattern whose spaces are line ends, too."""
    spaced = re.sub(r"\\? ", lambda _: r"\s+", pattern)
    return re.compile(rf"\b{spaced}\b", re.IGNORECASE)


def _line(block: Block, position: int) -> int:
    return block.line + block.text[:position].count("\n")


if __name__ == "__main__":
    sys.exit(main())
