"""Where Python packages put NVRTC, as the core is told."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from covey import gpu_libraries


def test_folders_with_the_library_are_announced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cu13", "cu12", "cudnn"):
        (tmp_path / "nvidia" / name / "lib").mkdir(parents=True)
    for name in ("cu13/lib/libnvrtc.so.13", "cu12/lib/libnvrtc.so.12", "cudnn/lib/libcudnn.so.9"):
        (tmp_path / "nvidia" / name).touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "nvidia", raising=False)
    monkeypatch.setenv(gpu_libraries.VARIABLE, "chosen")
    gpu_libraries.announce()
    assert os.environ[gpu_libraries.VARIABLE] == "chosen"
    monkeypatch.delenv(gpu_libraries.VARIABLE)
    gpu_libraries.announce()
    newest, older = (tmp_path / "nvidia" / name / "lib" for name in ("cu13", "cu12"))
    assert os.environ[gpu_libraries.VARIABLE] == f"{newest}{os.pathsep}{older}"


def test_nothing_is_announced_where_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "nvidia", raising=False)
    monkeypatch.delenv(gpu_libraries.VARIABLE, raising=False)
    gpu_libraries.announce()
    assert gpu_libraries.VARIABLE not in os.environ
