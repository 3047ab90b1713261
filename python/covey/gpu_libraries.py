"""Where Python packages put the library that compiles kernels for GPUs."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

VARIABLE = "COVEY_CUDA_LIBRARIES"
"""Names folders to the core, which looks there where the system has no such library."""


def announce() -> None:
    """Tell the core of this process, and of those it starts, where NVRTC is among the installed packages.

    `pip install nvidia-cuda-nvrtc` puts it in a folder that the system does not search; PyTorch brings it along.
    """
    if VARIABLE in os.environ:
        return
    folders = installed()
    if folders:
        os.environ[VARIABLE] = os.pathsep.join(str(folder) for folder in folders)


def installed() -> list[Path]:
    """Folders of packages that hold NVRTC, the newest first."""
    package = find_spec("nvidia")
    places = [Path(place) for place in (package.submodule_search_locations or [])] if package is not None else []
    found = [folder for place in places for folder in place.glob("*/lib") if any(folder.glob("libnvrtc.so*"))]
    return sorted(found, reverse=True)
