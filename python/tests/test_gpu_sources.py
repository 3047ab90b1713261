"""NVRTC compiles the kernels for every generation of GPUs, as build.rs has it do: all entries, no spilled registers."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

import nvrtc
from gpu_kernels import CUDA, source

GENERATIONS = ["sm_80", "sm_90a", "sm_100"]

MOST_SHARED = {"BY_WARPS": 99 << 10, "BY_WARPGROUPS": 227 << 10}
"""Bytes of shared memory that a block may have: of any GPU since Ampere, and of Hopper."""


def run(*options: str) -> str:
    done = subprocess.run([sys.executable, nvrtc.__file__, *options], input=source(), capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout


def options(architecture: str) -> list[str]:
    """As build.rs has them, which names no others."""
    (body,) = re.findall(r"fn options\(self\).*?\n    }\n", (CUDA / "build.rs").read_text(), re.DOTALL)
    assert re.findall(r'"([^"]*)"', body) == ["--gpu-architecture=sm_{}{}", "a", "", "--std=c++17", "-DHOPPER"]
    return [f"--gpu-architecture={architecture}", "--std=c++17", *["-DHOPPER"] * (architecture == "sm_90a")]


def loaded(architecture: str) -> set[str]:
    """The entries that gpu.rs loads."""
    names = set(re.findall(r'kernel\(c"(\w+)"', (CUDA / "gpu.rs").read_text()))
    assert len(names) == 14
    other = "_by_warps" if architecture == "sm_90a" else "_by_warpgroups"
    return {name for name in names if not name.endswith(other)}


@pytest.mark.skipif(nvrtc.library() is None, reason=nvrtc.MISSING)
@pytest.mark.parametrize("architecture", GENERATIONS)
def test_nvrtc_compiles_the_kernels(architecture: str) -> None:
    if architecture.strip("sm_a") not in run().split():
        pytest.skip(f"this NVRTC does not know {architecture}")
    log = run(*options(architecture), "--ptxas-options=-v")
    parts = re.split(r"Compiling entry function '(\w+)' for '(\w+)'", log)[1:]
    entries = dict(zip(parts[::3], parts[2::3], strict=True))
    assert loaded(architecture) <= set(entries) and set(parts[1::3]) == {architecture}
    for name, properties in entries.items():
        assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in properties, name
    # C7510 and its like: the compiler has products of warpgroups wait for one another.
    assert not re.search(r"C75\d\d|wgmma|warning", log), log


@pytest.mark.parametrize("name", MOST_SHARED)
def test_a_block_has_room_for_its_stages(name: str) -> None:
    (factors,) = re.findall(rf"const {name}: u32 = ([\d *+()]+);", (CUDA / "gpu.rs").read_text())
    assert 0 < eval(factors) <= MOST_SHARED[name]
