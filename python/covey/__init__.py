"""Covey: private neural-network inference by secure multi-party computation.

`compile` turns an ONNX model into a public program and secret weights, `check` says what it would make of each node.
"""

from __future__ import annotations

from typing import Any

from covey._version import __version__
from covey.compile import Checked, Compiled, check, compile  # noqa: A004  (users write covey.compile)
from covey.errors import (
    CoveyError,
    DataError,
    DoesNotFitError,
    ModelError,
    NodeError,
    OptionError,
    ParameterError,
    UnsupportedError,
)

__all__ = [
    "Checked",
    "Compiled",
    "CoveyError",
    "DataError",
    "DoesNotFitError",
    "ModelError",
    "NodeError",
    "OptionError",
    "ParameterError",
    "UnsupportedError",
    "__version__",
    "check",
    "compile",
]

# What needs the native runtime is loaded when first asked for, so that compiling works without it.
_RUNTIME: dict[str, str] = {}


def __getattr__(name: str) -> Any:
    if name in _RUNTIME:
        from importlib import import_module

        return getattr(import_module(_RUNTIME[name]), name)
    raise AttributeError(f"module 'covey' has no attribute '{name}'")
