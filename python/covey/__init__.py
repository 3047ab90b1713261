"""Covey: private neural-network inference by secure multi-party computation.

`check` says what Covey would make of each node of a model, `compile` turns it into a public program and secret weights,
and `tune` finds the smallest numbers that keep its accuracy. `explain` says what a run protects, reveals and costs,
`compare` what several models cost, `pareto` which of them no other beats in accuracy and cost, and `verify` whether a
run computes what it should. `local` runs the parties as processes on this machine; `Client` talks to parties on other
machines.
"""

from __future__ import annotations

from covey import _interrupt

_interrupt.starting()  # before all that takes time to import

# ruff: noqa: E402
from importlib import import_module
from typing import TYPE_CHECKING, Any

from covey._version import __version__

if TYPE_CHECKING:
    from covey._core import Program, Weights
    from covey.api import compare, explain, tune, verify
    from covey.checked import Checked, check
    from covey.client import Client
    from covey.compiled import Compiled, compile  # noqa: A004  (users write covey.compile)
    from covey.cost_comparison import CostComparison
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
    from covey.explanation import Explanation
    from covey.generation import Generator, generate
    from covey.parties import local
    from covey.pretrained import Buckets, from_pretrained
    from covey.result import Profile, Result
    from covey.trade_off import TradeOff, pareto
    from covey.training import schedules
    from covey.training.job import Job, compile_training
    from covey.training.optimizers import SGD, Adam, adamw
    from covey.training.parameters import load_trained
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
    "load_trained",
    "local",
    "pareto",
    "schedules",
    "tune",
    "verify",
]

# Each is loaded when first asked for, so that a command or a party imports no more than it uses. No module may
# be called as one of these: once imported, it would stand in its place.
_MODULES: dict[str, str] = {
    "Adam": "covey.training.optimizers",
    "Buckets": "covey.pretrained",
    "Checked": "covey.checked",
    "Client": "covey.client",
    "Compiled": "covey.compiled",
    "CostComparison": "covey.cost_comparison",
    "CoveyError": "covey.errors",
    "DataError": "covey.errors",
    "DoesNotFitError": "covey.errors",
    "Explanation": "covey.explanation",
    "Generator": "covey.generation",
    "InaccurateError": "covey.errors",
    "Job": "covey.training.job",
    "ModelError": "covey.errors",
    "NodeError": "covey.errors",
    "OptionError": "covey.errors",
    "ParameterError": "covey.errors",
    "PartyLostError": "covey.errors",
    "Profile": "covey.result",
    "Program": "covey._core",
    "Result": "covey.result",
    "SGD": "covey.training.optimizers",
    "SharedData": "covey.training.shared",
    "TradeOff": "covey.trade_off",
    "Trainer": "covey.training.trainer",
    "Tuned": "covey.tuned",
    "UnsupportedError": "covey.errors",
    "Verification": "covey.verification",
    "Weights": "covey._core",
    "adamw": "covey.training.optimizers",
    "check": "covey.checked",
    "compare": "covey.api",
    "compile": "covey.compiled",
    "compile_training": "covey.training.job",
    "explain": "covey.api",
    "from_pretrained": "covey.pretrained",
    "generate": "covey.generation",
    "load_trained": "covey.training.parameters",
    "local": "covey.parties",
    "pareto": "covey.trade_off",
    "tune": "covey.api",
    "verify": "covey.api",
}


def __getattr__(name: str) -> Any:
    if name == "schedules":
        return import_module("covey.training.schedules")
    if name not in _MODULES:
        raise AttributeError(f"module 'covey' has no attribute '{name}'")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
