"""Follow README.md and every page in docs literally, as a new user: from a copy of the repository, with nothing built.

    python3 python/tests/new_user.py                      # from nothing: takes a full build
    python3 python/tests/new_user.py --folder F PAGE ...  # in F, where an earlier call left what it built

The shell has an empty home, what README lists as needed and the usual tools of Unix in its path, and a clean
environment but for what pip, cargo and rustup are told (`PIP_*`, `CARGO_*`, `RUSTUP_*`, `*_proxy`). README comes first;
each other page starts where README's install step ends, and what it left is removed after it. Needs no package beside
Python's own.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import documented

ROOT = Path(__file__).resolve().parents[2]

NEEDED: Mapping[str, tuple[str, ...]] = {
    "Rust": ("cargo", "rustc"),
    "Python": ("python3",),
    "C compiler": ("cc", "gcc", "as", "ld", "ar", "ranlib", "nm", "strip"),
    "make": ("make",),
}
"""What README says one needs, and the commands that come with it."""
UNIX = """
sh bash ls cp mv rm ln mkdir rmdir chmod cat head tail tee wc sort uniq tr cut seq sleep date env id uname touch mktemp
basename dirname readlink realpath pwd echo printf test true false expr nproc install stat
sed grep awk find xargs tar gzip cmp diff
"""
"""What every Unix has."""
PASSED = ("PIP_*", "CARGO_*", "RUSTUP_*", "*_proxy", "*_PROXY")
"""Variables that reach the shell: how to get at packages."""
KEPT = {".venv", "target", ".page.sh", ".page.log"}
"""What README's install step leaves in the folder."""
UNRUN = {
    "make test": "all that must hold takes an hour; continuous integration runs it on a fresh clone (.ci/run)",
}
ENTER = ". .venv/bin/activate"
"""The end of README's install step: how a terminal for any other page starts."""


def unrun(command: str) -> str | None:
    return UNRUN.get(command)


def copy_repository(into: Path) -> None:
    """The tracked files as they stand, and those that would be tracked."""
    listed = subprocess.run(
        ["git", "-C", os.fspath(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        check=True,
        capture_output=True,
        text=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        source, target = ROOT / name, into / name
        if not source.is_file():  # removed, and not yet committed
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists() or target.read_bytes() != source.read_bytes():  # make looks at the time
            shutil.copy(source, target)


def path_of_tools(folder: Path) -> str:
    """A folder with what README lists and the tools of Unix, and nothing else. Exits where one is missing."""
    folder.mkdir(exist_ok=True)
    for name in (*UNIX.split(), *(command for commands in NEEDED.values() for command in commands)):
        found = _tool(name)
        if found is None:
            sys.exit(f"error: '{name}' is missing on this machine: install it first")
        call = folder / name
        call.unlink(missing_ok=True)
        call.write_text(f'#!{shutil.which("sh")}\nexec {found} "$@"\n')  # a link would hide from it where it lives
        call.chmod(0o755)
    return os.fspath(folder)


def _tool(name: str) -> str | None:
    if name == "python3":
        return os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    if name in NEEDED["Rust"] and shutil.which("rustc"):
        sysroot = subprocess.run(["rustc", "--print", "sysroot"], check=True, capture_output=True, text=True)
        return shutil.which(name, path=f"{sysroot.stdout.strip()}/bin")
    return shutil.which(name)


def environment(home: Path, path: str, callers: Mapping[str, str]) -> dict[str, str]:
    """The shell's variables."""
    passed = {
        name: value
        for name, value in callers.items()
        # Not where others build: here is built from nothing.
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in PASSED) and name != "CARGO_TARGET_DIR"
    }
    return {**passed, "HOME": os.fspath(home), "PATH": path, "LANG": "C.UTF-8"}


def follow(pages: list[str], base: Path) -> dict[str, list[documented.Done]]:
    """Run the pages in a copy of the repository in `base`."""
    repository, home = base / "covey", base / "home"
    for folder in (repository, home):
        folder.mkdir(exist_ok=True)
    copy_repository(repository)
    variables = environment(home, path_of_tools(base / "bin"), os.environ)
    found = {}
    for page in pages:
        text = (ROOT / page).read_text(encoding="utf-8")
        before = {entry.name for entry in repository.iterdir()} | KEPT
        start = "" if page == "README.md" else ENTER
        found[page] = documented.run(page, text, repository, variables, unrun, start)
        for entry in repository.iterdir():
            if entry.name not in before:
                shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    return found


def main() -> int:
    documents = sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))
    parser = argparse.ArgumentParser(description="Follow README and the pages in docs as a new user.")
    parser.add_argument("pages", nargs="*", metavar="PAGE", help="such as docs/two-hosts.md; by default all")
    parser.add_argument("--folder", type=Path, help="where to work, kept afterwards; by default one that is removed")
    arguments = parser.parse_args()
    known = ["README.md", *documents]
    if unknown := [page for page in arguments.pages if page not in known]:
        parser.error(f"there is no page {unknown[0]}: name one such as {known[-1]}")
    pages = [page for page in known if page in (arguments.pages or known)]
    if arguments.folder is not None:
        arguments.folder.mkdir(parents=True, exist_ok=True)
        return documented.summary(follow(pages, arguments.folder.resolve()))
    with tempfile.TemporaryDirectory(prefix="covey-new-user-") as folder:
        return documented.summary(follow(pages, Path(folder)))


if __name__ == "__main__":
    sys.exit(main())
