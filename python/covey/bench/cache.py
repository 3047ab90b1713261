"""Models of the zoo as files: built and compiled once, kept in a folder under what they depend on."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache as remembered
from pathlib import Path

import onnx
from blake3 import blake3

import covey
from covey import _interrupt, models
from covey.client import Progress
from covey.compiled import Compiled
from covey.compiled import compile as compile_model
from covey.errors import CoveyError

SOURCES = ("models", "importers", "ops", "passes", "_proto", "*.py", "bench/cache.py")
"""What decides how a model is built and compiled, below the package's folder."""

Compile = Callable[[onnx.ModelProto], Compiled]


@dataclass(frozen=True)
class Kept:
    """The files of one model: the float network, the program, its weights."""

    onnx: Path
    program: Path
    weights: Path

    @staticmethod
    def under(folder: Path) -> Kept:
        """In a folder of their own."""
        return Kept(folder / "model.onnx", folder / "model.covey", folder / "model.weights.safetensors")


def default_folder() -> Path:
    """`~/.cache/covey/bench`, or below `$XDG_CACHE_HOME`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "covey" / "bench"


def kept(spec: models.Spec, ring: str, folder: Path, progress: Progress, *, public_weights: bool = False) -> Kept:
    """The files of a model for inference, made unless they are there already."""

    def compiled(model: onnx.ModelProto) -> Compiled:
        return compile_model(
            model,
            calibration=spec.calibration(),
            input_range=spec.input_range,
            carry=spec.carry,
            ring=ring,
            name=spec.label,
            public_weights=public_weights,
        )

    label = f"{spec.label}-ring-{ring}" + ("-public" if public_weights else "")
    return kept_as(label, spec, compiled, folder, progress)


def kept_as(
    label: str,
    spec: models.Spec,
    compiled: Compile,
    folder: Path,
    progress: Progress,
    sources: tuple[str, ...] = SOURCES,
) -> Kept:
    """Files under a label, made unless they are there already. Files made from other sources are removed."""
    place = folder / f"{label}-{_fingerprint(sources)}"
    if not place.is_dir():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for stale in folder.glob(f"{label}-{'[0-9a-f]' * 16}"):
                shutil.rmtree(stale)
            _make(spec, compiled, folder, place, progress)
        except OSError as error:
            raise CoveyError(
                f"cannot keep models in '{folder}': {error.strerror or error}; name another folder with --cache"
            ) from None
    return Kept.under(place)


def _make(spec: models.Spec, compiled: Compile, folder: Path, place: Path, progress: Progress) -> None:
    _interrupt.untidy()
    temporary = Path(tempfile.mkdtemp(prefix=".making-", dir=folder))
    try:
        files = Kept.under(temporary)
        progress(0, 3, f"building {spec.label}")
        model = spec.build()
        onnx.save(model, files.onnx)
        progress(1, 3, f"compiling {spec.label}")
        made = compiled(model)
        progress(2, 3, f"writing {spec.label}")
        made.save(files.program)
        os.replace(temporary, place)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@remembered
def _fingerprint(sources: tuple[str, ...]) -> str:
    """A hash of the sources that decide what the files hold."""
    root = Path(covey.__file__).parent
    digest = blake3(covey.__version__.encode())
    for pattern in sources:
        found = root.glob(pattern if "*" in pattern or pattern.endswith(".py") else f"{pattern}/*.py")
        for path in sorted(found):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
