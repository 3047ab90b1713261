"""Run every command that README.md and the pages in docs document, a page in one shell in a scratch folder.

Pages run side by side, but for those that stand for several machines: these have the same addresses.
What is installed already serves: `make` and `pip` lines have steps of their own and are not run again. `new_user.py`
runs all of it from nothing; `documented.py` has what the two share.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import documented

ROOT = Path(__file__).resolve().parents[2]
EXTRAS = re.compile(r"^pip install '\.\[([\w,]+)\]'$", re.MULTILINE)
NEEDS = {
    "torch": ("torch",),
    "transformers": ("torch", "transformers"),
    "sklearn": ("sklearn", "skl2onnx"),
    "boosting": ("sklearn", "skl2onnx", "onnxmltools", "lightgbm"),
    "tensorflow": ("tensorflow", "tf2onnx"),
    "plot": ("matplotlib",),
}
"""The modules of each extra, and what the page trains with."""
INSTALLS = re.compile(r"(make|pip install|python3 -m venv|\. \.venv/)")


WORKERS = 2
"""Pages at a time: their commands compute less than they start and wait."""
MACHINES = threading.Lock()
"""Held by the page that has the addresses of machines."""


def pages() -> list[str]:
    """All pages, README first."""
    return ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]


def missing(text: str) -> str | None:
    """A package that a page says one needs and that is not installed here."""
    needed = [module for extras in EXTRAS.findall(text) for extra in extras.split(",") for module in NEEDS[extra]]
    return next((name for name in needed if importlib.util.find_spec(name) is None), None)


def installed(command: str) -> str | None:
    """Why a command is not run where everything is installed."""
    return "part of what is prepared here" if INSTALLS.match(command) else None


def run(page: str) -> list[documented.Done]:
    text = (ROOT / page).read_text(encoding="utf-8")
    if (name := missing(text)) is not None:
        print(f"skipped {page}: {name} is not installed", flush=True)
        return []
    # Two pages at a time keep two cores busy: threads of NumPy and PyTorch in each would wait for each other.
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    environment = {**os.environ, **threads, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    machines = any(map(documented.PROMPT.match, text.splitlines()))
    with tempfile.TemporaryDirectory(prefix="covey-docs-") as folder, MACHINES if machines else nullcontext():
        for name in ("docs", "examples", "python", "packaging"):
            (Path(folder) / name).symlink_to(ROOT / name)
        return documented.run(page, text, Path(folder), environment, installed)


if __name__ == "__main__":
    chosen = [page for page in pages() if page in (sys.argv[1:] or pages())]
    with ThreadPoolExecutor(WORKERS) as workers:
        sys.exit(documented.summary(dict(zip(chosen, workers.map(run, chosen), strict=True))))
