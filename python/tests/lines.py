"""Count the lines of product code by crate: no tests and nothing that only they use, no generated code, no blank lines.

`make lines` prints the table; `--against REVISION` counts that one too, by `git archive`.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEST_CRATES = {"conformance", "fuzz"}
GENERATED = {"crates/operators/src/wire.rs", "python/covey/_proto"}
TEST_MODULE = re.compile(
    r"^[ \t]*#\[cfg\(test\)\]\n(?:[ \t]*#\[[^\n]*\]\n)*[ \t]*(?:pub(?:\(\w+\))? )?mod (\w+)( \{|;)", re.M
)


def product(text: str) -> tuple[str, list[str]]:
    """Rust code without its test modules, and the names of those that are in files of their own."""
    elsewhere = []
    while found := TEST_MODULE.search(text):
        end = found.end()
        if found[2] == ";":
            elsewhere.append(found[1])
        else:
            indent = re.match(r"[ \t]*", found[0])
            closing = re.compile(rf"^{indent[0] if indent else ''}\}}$", re.M).search(text, end)
            end = closing.end() if closing else len(text)
        text = text[: found.start()] + text[end:]
    return text, elsewhere


def rust(crate: Path) -> int:
    """Lines of a crate's sources that ship."""
    kept, tests = {}, set()
    for path in sorted((crate / "src").rglob("*.rs")):
        kept[path], names = product(path.read_text())
        home = path.parent if path.stem in ("lib", "main", "mod") else path.with_suffix("")
        tests |= {home / name for name in names}
    ships = (path for path in kept if not any(part in tests for part in (path.with_suffix(""), *path.parents)))
    return sum(lines(kept[path]) for path in ships if path.relative_to(crate.parents[1]).as_posix() not in GENERATED)


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
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(folder, filter="data")
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
