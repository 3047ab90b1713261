"""Count the lines of product code by crate: no test modules, no generated code, no blank lines.

`make lines` prints the table; `--against REVISION` counts that one too, by `git archive`.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEST_CRATES = {"conformance", "fuzz"}
GENERATED = {"crates/operators/src/wire.rs", "python/covey/_proto"}
TEST_MODULE = re.compile(
    r"^[ \t]*#\[cfg\(test\)\]\n(?:[ \t]*#\[[^\n]*\]\n)*[ \t]*(?:pub(?:\(\w+\))? )?mod (\w+)( \{|;)", re.M
)


def product(path: Path) -> tuple[str, set[Path]]:
    """A file's code without its test modules, and those that are in files of their own, without their suffix."""
    text, elsewhere = path.read_text(), set()
    home = path.parent if path.stem in ("lib", "main", "mod") else path.with_suffix("")
    while found := TEST_MODULE.search(text):
        end = found.end()
        if found[2] == ";":
            named = re.search(r'#\[path = "([^"]+)\.rs"\]', found[0])
            elsewhere.add(path.parent / named[1] if named else home / found[1])
        else:
            indent = found[0][: len(found[0]) - len(found[0].lstrip(" \t"))]
            closing = re.compile(rf"^{indent}\}}$", re.M).search(text, end)
            end = closing.end() if closing else len(text)
        text = text[: found.start()] + text[end:]
    return text, elsewhere


def rust(crate: Path) -> int:
    """Lines of a crate's sources that ship, with kernels of GPUs."""
    read = {path: product(path) for path in sorted((crate / "src").rglob("*.rs"))}
    tests = set().union(*(elsewhere for _, elsewhere in read.values()))
    generated = {crate.parents[1] / path for path in GENERATED}
    ships = (path for path in read if path not in generated and tests.isdisjoint({path.with_suffix(""), *path.parents}))
    kernels = (path.read_text() for path in (crate / "src").rglob("*.cu"))
    return sum(map(lines, chain((read[path][0] for path in ships), kernels)))


def lines(text: str) -> int:
    """Lines that are not blank."""
    return sum(bool(line.strip()) for line in text.splitlines())


def count(root: Path) -> Counter[str]:
    """Lines by crate, and of the Python package."""
    found = Counter(
        {crate.name: rust(crate) for crate in sorted((root / "crates").iterdir()) if (crate / "src").is_dir()}
    )
    for crate in TEST_CRATES:
        del found[crate]
    package = (root / "python/covey").rglob("*.py")
    shipped = (path for path in package if path.parent.relative_to(root).as_posix() not in GENERATED)
    found["python"] = sum(lines(path.read_text()) for path in shipped)
    return found


def of_revision(revision: str) -> Counter[str]:
    """The same of a revision of the repository."""
    archive = subprocess.run(
        ["git", "archive", revision, "crates", "python/covey"], cwd=ROOT, check=True, capture_output=True
    ).stdout
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
        return count(Path(folder))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", metavar="REVISION", help="a revision of the repository to count too")
    parser.add_argument("--json", action="store_true", help="print JSON for machines")
    asked = parser.parse_args()
    try:
        before = of_revision(asked.against) if asked.against else None
    except subprocess.CalledProcessError as error:
        sys.exit(error.stderr.decode().strip())
    now = count(ROOT)
    if asked.json:
        print(json.dumps({"now": now, "total": now.total(), "before": before}, indent=2))
        return
    for name in sorted({*now, *(before or ())}, key=lambda name: -now[name]):
        print(f"{name:<12} {now[name]:>8,}" + (f" {now[name] - before[name]:>+8,}" if before else ""))
    print(f"{'total':<12} {now.total():>8,}" + (f" {now.total() - before.total():>+8,}" if before else ""))


if __name__ == "__main__":
    main()
