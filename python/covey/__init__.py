"""Covey: private neural-network inference by secure multi-party computation.

`compile` turns an ONNX model into a public program and secret weights, `check` says what it would make of each node.
`local` runs the parties as processes on this machine; `Client` talks to parties on other machines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from covey import _interrupt

_interrupt.starting()  # before all that takes time to import

# ruff: noqa: E402
from covey._version import __version__
from covey.compile import Checked, Compiled, check, compile  # noqa: A004  (users write covey.compile)
from covey.errors import (
    CoveyError,
    DataError,
    DoesNotFitError,
    InaccurateError,
    ModelError,
    NodeError,
    OptionError,
    ParameterError,
    UnsupportedError,
)
from covey.local import local  # users write covey.local

if TYPE_CHECKING:
    from covey._core import Program, Weights
    from covey.client import Client
    from covey.result import Result

__all__ = [
    "Checked",
    "Client",
    "Compiled",
    "CoveyError",
    "DataError",
    "DoesNotFitError",
    "InaccurateError",
    "ModelError",
    "NodeError",
    "OptionError",
    "ParameterError",
    "Program",
    "Result",
    "UnsupportedError",
    "Weights",
    "__version__",
    "check",
    "compile",
    "local",
]

# What needs the native runtime is loaded when first asked for, so that compiling works without it.
_RUNTIME: dict[str, str] = {
    "Client": "covey.client",
    "Program": "covey._core",
    "Result": "covey.result",
    "Weights": "covey._core",
}


def __getattr__(name: str) -> Any:
    if name in _RUNTIME:
        from importlib import import_module

        return getattr(import_module(_RUNTIME[name]), name)
    raise AttributeError(f"module 'covey' has no attribute '{name}'")
