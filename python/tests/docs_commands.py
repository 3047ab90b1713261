"""Run every command that README.md and the task pages in docs document, in a scratch folder each, as a reader would.

Blocks marked ```bash are run line by line with the installed `covey`, blocks marked ```python in one go; blocks marked
```toml whose first line is a comment that names a file are written there. Other blocks are shown only.
`make` targets have steps of their own and are not run again.
"""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES: dict[str, tuple[str, ...]] = {
    "README.md": (),
    "docs/two-hosts.md": (),
    "docs/gallery.md": (),
    "docs/quad.md": (),
    "docs/n-parties.md": (),
    "docs/pipelines.md": (),
    "docs/python.md": (),
    "docs/reports.md": ("matplotlib",),
    "docs/pytorch.md": ("torch",),
    "docs/scikit-learn.md": ("sklearn", "skl2onnx"),
    "docs/tuning.md": ("torch", "sklearn"),
}
"""The pages, and the packages that each needs beside Covey's own. `docs_commands.py PAGE ...` runs some of them."""
BLOCK = re.compile(r"^```(bash|python|toml)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (\S+\.toml)\n")


def commands(text: str) -> list[tuple[str, list[str]]]:
    """What to run: a title and the call."""
    calls: list[tuple[str, list[str]]] = []
    for language, body in BLOCK.findall(text):
        if language == "python":
            calls.append(("python block", [sys.executable, "-c", body]))
            continue
        if language == "toml":
            if named := FILE.match(body):
                write = "import sys; open(sys.argv[1], 'w').write(sys.argv[2])"
                calls.append((f"write {named[1]}", [sys.executable, "-c", write, named[1], body]))
            continue
        for line in body.replace("\\\n", " ").splitlines():
            line = line.split("  #")[0].strip()
            if line and not line.startswith(("#", "make ")):
                calls.append((line, ["bash", "-euo", "pipefail", "-c", line]))
    return calls


def run(page: str, environment: dict[str, str]) -> tuple[int, int]:
    """Run a page's commands; how many there are, and how many failed."""
    failed = 0
    with tempfile.TemporaryDirectory(prefix="covey-docs-") as folder:
        for name in ("examples", "python"):
            (Path(folder) / name).symlink_to(ROOT / name)
        calls = commands((ROOT / page).read_text(encoding="utf-8"))
        for title, call in calls:
            done = subprocess.run(
                call, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600
            )
            print(f"{'ok    ' if done.returncode == 0 else 'FAILED'} {title}", flush=True)
            if done.returncode != 0:
                failed += 1
                print(done.stdout + done.stderr)
        for pid in Path(folder).glob("*/pid"):  # what a failure above left running
            with suppress(OSError, ValueError):
                os.kill(int(pid.read_text()), signal.SIGTERM)
    return len(calls), failed


def main() -> int:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    results = []
    for page, needs in PAGES.items():
        missing = [name for name in needs if importlib.util.find_spec(name) is None]
        if missing:
            print(f"skipped {page}: {missing[0]} is not installed", flush=True)
        elif page in (sys.argv[1:] or PAGES):
            results.append(run(page, {**os.environ, "PATH": path}))
    calls, failed = (sum(counts) for counts in zip(*results, strict=True))
    print(f"{calls - failed} of {calls} documented commands run")
    return 1 if failed or not results or any(count == 0 for count, _ in results) else 0


if __name__ == "__main__":
    sys.exit(main())
