"""Place the package's sources next to the extension that cargo built with the tests, for `make test`.

    python python/tests/built.py requirements            # what the package and its tests need, a line each
    python python/tests/built.py place EXTENSION FOLDER  # the package in a folder for PYTHONPATH

A release takes minutes to compile, and tests need none: those of Rust compile nearly all of the extension anyway.
The script needs Python alone.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

try:
    import tomllib
except ImportError:  # Python 3.10
    from pip._vendor import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]


def project() -> dict[str, Any]:
    """What pyproject.toml says of the package."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def requirements() -> list[str]:
    """What the package and its tests need, as pip reads it."""
    about = project()
    return [*about["dependencies"], *about["optional-dependencies"]["test"]]


def place(extension: Path, folder: Path) -> None:
    """The package's files, the extension and what an installed package says of itself, in place of what was there."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "python/covey", folder / "covey", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    shutil.copy2(extension, folder / "covey/_core.abi3.so")
    about = project()
    lines = ["Metadata-Version: 2.1", f"Name: {about['name']}", f"Version: {about['version']}"]
    lines += [f"Requires-Dist: {each}" for each in about["dependencies"]]
    for extra, needed in about["optional-dependencies"].items():
        lines += [f"Provides-Extra: {extra}", *(f'Requires-Dist: {each}; extra == "{extra}"' for each in needed)]
    metadata = folder / f"{about['name']}-{about['version']}.dist-info/METADATA"
    metadata.parent.mkdir()
    metadata.write_text("\n".join([*lines, ""]), "utf-8")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["requirements"]:
            print("\n".join(requirements()))
        case ["place", extension, folder]:
            place(Path(extension), Path(folder))
        case _:
            sys.exit(__doc__)
