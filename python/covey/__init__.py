"""Covey: private neural-network inference by secure multi-party computation.

`check` says what Covey would make of each node of a model, `compile` turns it into a public program and secret weights,
and `tune` finds the smallest numbers that keep its accuracy. `explain` says what a run protects, reveals and costs,
`compare` what several models cost, `pareto` which of them no other beats in accuracy and cost, and `verify` whether a
run computes what it should. `local` runs the parties as processes on this machine; `Client` talks to parties on other
machines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from covey import _interrupt

_interrupt.starting()  # before all that takes time to import

# ruff: noqa: E402
from covey._version import __version__
from covey.checked import Checked, check
from covey.compile import Compiled, compile  # noqa: A004  (users write covey.compile)
from covey.errors import (
    CoveyError,
    DataError,
    DoesNotFitError,
    InaccurateError,
    ModelError,
    NodeError,
    OptionError,
    ParameterError,
    PartyLostError,
    UnsupportedError,
)
from covey.local import local  # users write covey.local
from covey.pretrained import Buckets, from_pretrained
from covey.training import schedules  # users write covey.schedules

if TYPE_CHECKING:
    from covey._core import Program, Weights
    from covey.api import compare, explain, tune, verify
    from covey.client import Client
    from covey.cost_comparison import CostComparison
    from covey.explanation import Explanation
    from covey.generation import Generator, generate
    from covey.result import Profile, Result
    from covey.trade_off import TradeOff, pareto
    from covey.training.job import Job, compile_training
    from covey.training.optimizers import SGD, Adam, adamw
    from covey.training.shared import SharedData
    from covey.training.trainer import Trainer
    from covey.tuned import Tuned
    from covey.verification import Verification

__all__ = [
    "SGD",
    "Adam",
    "Buckets",
    "Checked",
    "Client",
    "Compiled",
    "CostComparison",
    "CoveyError",
    "DataError",
    "DoesNotFitError",
    "Explanation",
    "Generator",
    "InaccurateError",
    "Job",
    "ModelError",
    "NodeError",
    "OptionError",
    "ParameterError",
    "PartyLostError",
    "Profile",
    "Program",
    "Result",
    "SharedData",
    "TradeOff",
    "Trainer",
    "Tuned",
    "UnsupportedError",
    "Verification",
    "Weights",
    "__version__",
    "adamw",
    "check",
    "compare",
    "compile",
    "compile_training",
    "explain",
    "from_pretrained",
    "generate",
    "local",
    "pareto",
    "schedules",
    "tune",
    "verify",
]

# What needs the native runtime is loaded when first asked for, so that compiling works without it. No module of the
# package may be called as one of these: once imported, it would stand in its place.
_RUNTIME: dict[str, str] = {
    "Adam": "covey.training.optimizers",
    "Client": "covey.client",
    "CostComparison": "covey.cost_comparison",
    "Explanation": "covey.explanation",
    "Generator": "covey.generation",
    "Job": "covey.training.job",
    "Profile": "covey.result",
    "Program": "covey._core",
    "Result": "covey.result",
    "SGD": "covey.training.optimizers",
    "SharedData": "covey.training.shared",
    "TradeOff": "covey.trade_off",
    "Trainer": "covey.training.trainer",
    "Tuned": "covey.tuned",
    "Verification": "covey.verification",
    "Weights": "covey._core",
    "adamw": "covey.training.optimizers",
    "compare": "covey.api",
    "compile_training": "covey.training.job",
    "explain": "covey.api",
    "generate": "covey.generation",
    "pareto": "covey.trade_off",
    "tune": "covey.api",
    "verify": "covey.api",
}


def __getattr__(name: str) -> Any:
    if name in _RUNTIME:
        from importlib import import_module

        return getattr(import_module(_RUNTIME[name]), name)
    raise AttributeError(f"module 'covey' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
