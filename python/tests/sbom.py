"""Write what a build of Covey is made of: a software bill of materials in CycloneDX 1.5.

    python python/tests/sbom.py [--output FILE]

Crates that the Python extension and the lone binary link or are built with, for this platform, from `cargo metadata`,
with the checksums of `Cargo.lock`; and the Python packages that the installed `covey` needs. What only tests use is
left out. The same sources and installed packages give the same file.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import re
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
BUILT = ["covey-py", "covey-node"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, help="by default standard output")
    arguments = parser.parse_args()
    text = json.dumps(document(crates(), packages()), indent=2) + "\n"
    if arguments.output is None:
        print(text, end="")
    else:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(text)
    return 0


def document(crates: list[dict[str, Any]], packages: list[dict[str, Any]]) -> dict[str, Any]:
    version = re.search(r'^version = "([^"]+)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)
    assert version is not None
    product = {"type": "application", "name": "covey", "version": version[1], "bom-ref": "covey"}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": product},
        "components": crates + packages,
    }


def crates() -> list[dict[str, Any]]:
    """Crates of others, by name and version."""
    host = re.search(r"^host: (\S+)$", run("rustc", "-vV"), re.MULTILINE)
    assert host is not None
    options = ["--format-version", "1", "--locked", "--filter-platform", host[1]]
    metadata = json.loads(run("cargo", "metadata", *options))
    about = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    waiting = [key for key, package in about.items() if package["name"] in BUILT]
    reached = set(waiting)
    while waiting:
        for dependency in nodes[waiting.pop()]["deps"]:
            used = any(kind["kind"] != "dev" for kind in dependency["dep_kinds"])
            if used and dependency["pkg"] not in reached:
                reached.add(dependency["pkg"])
                waiting.append(dependency["pkg"])
    sums = checksums()
    others = sorted((about[key]["name"], about[key]["version"], key) for key in reached if about[key]["source"])
    found = []
    for name, version, key in others:
        component = {"type": "library", "name": name, "version": version, "purl": f"pkg:cargo/{name}@{version}"}
        component["hashes"] = [{"alg": "SHA-256", "content": sums[name, version]}]
        if about[key]["license"]:
            component["licenses"] = [{"expression": about[key]["license"].replace("/", " OR ")}]
        found.append({**component, "bom-ref": component["purl"]})
    return found


def checksums() -> dict[tuple[str, str], str]:
    """SHA-256 of each crate's archive, by name and version."""
    entry = r'\[\[package\]\]\nname = "([^"]+)"\nversion = "([^"]+)"\nsource = "[^"]+"\nchecksum = "([0-9a-f]{64})"'
    found = re.findall(entry, (ROOT / "Cargo.lock").read_text())
    return {(name, version): checksum for name, version, checksum in found}


def packages() -> list[dict[str, Any]]:
    """Python packages that the installed `covey` needs, without its extras."""
    waiting: list[str] = ["covey"]
    found: dict[str, str] = {}
    while waiting:
        for line in importlib.metadata.requires(waiting.pop()) or []:
            named = re.match(r"[\w.-]+", line)
            name = re.sub(r"[-_.]+", "-", named[0]).lower() if named else ""
            if not name or "extra ==" in line or name in found:
                continue
            try:
                found[name] = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                continue  # for another platform or another Python
            waiting.append(name)
    return [
        {"type": "library", "name": name, "version": version, "purl": f"pkg:pypi/{name}@{version}"}
        | {"bom-ref": f"pkg:pypi/{name}@{version}"}
        for name, version in sorted(found.items())
    ]


def run(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    raise SystemExit(main())
