"""Run every command that README.md documents, in a scratch folder, as a reader would.

Blocks marked ```bash are run line by line with the installed `covey`, blocks marked ```python in one go; other blocks
are shown only. `make` targets have steps of their own and are not run again.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def commands(text: str) -> list[tuple[str, list[str]]]:
    """What to run: a title and the call."""
    calls: list[tuple[str, list[str]]] = []
    for language, body in BLOCK.findall(text):
        if language == "python":
            calls.append(("python block", [sys.executable, "-c", body]))
            continue
        for line in body.replace("\\\n", " ").splitlines():
            line = line.split("  #")[0].strip()
            if line and not line.startswith(("#", "make ")):
                calls.append((line, ["bash", "-euo", "pipefail", "-c", line]))
    return calls


def main() -> int:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    failed = 0
    with tempfile.TemporaryDirectory(prefix="covey-docs-") as folder:
        for name in ("examples", "python"):
            (Path(folder) / name).symlink_to(ROOT / name)
        calls = commands((ROOT / "README.md").read_text(encoding="utf-8"))
        for title, call in calls:
            environment = {**os.environ, "PATH": path}
            done = subprocess.run(
                call, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300
            )
            print(f"{'ok    ' if done.returncode == 0 else 'FAILED'} {title}", flush=True)
            if done.returncode != 0:
                failed += 1
                print(done.stdout + done.stderr)
    print(f"{len(calls) - failed} of {len(calls)} documented commands run")
    return 1 if failed or not calls else 0


if __name__ == "__main__":
    sys.exit(main())
