"""The bill of materials names what a build links, with checksums, and nothing that only tests use."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).with_name("sbom.py")


def test_the_bill_of_materials_is_complete_and_repeats(tmp_path: Path) -> None:
    file = tmp_path / "covey.cdx.json"
    subprocess.run([sys.executable, SCRIPT, "--output", file], check=True)
    bill = json.loads(file.read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    components = bill["components"]
    references = [component["bom-ref"] for component in components]
    assert len(set(references)) == len(references) > 100
    crates = {component["name"]: component for component in components if component["purl"].startswith("pkg:cargo/")}
    assert {"rustls", "ring", "blake3", "aes", "curve25519-dalek", "pyo3"} <= crates.keys()
    assert not {"proptest", "rand_chacha"} & crates.keys()
    assert all(len(crate["hashes"][0]["content"]) == 64 and crate["licenses"] for crate in crates.values())
    packages = {component["name"] for component in components if component["purl"].startswith("pkg:pypi/")}
    assert {"numpy", "onnx", "protobuf"} <= packages and "pytest" not in packages
    again = subprocess.run([sys.executable, SCRIPT], check=True, stdout=subprocess.PIPE, text=True).stdout
    assert again == file.read_text()
