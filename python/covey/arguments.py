"""What callers give, checked before it reaches the extension, which knows fixed-width integers alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from covey.errors import OptionError

MOST = 2**63 - 1

WHOLE_OPTIONS = frozenset({"bandwidth", "key_bits", "lanes", "latency_us", "tile", "window"})
"""Options of a session that are whole numbers."""


def check_number(name: str, value: Any, least: int = 0, most: int | None = None) -> None:
    """Refuse what is no whole number in [least, most]. Raises `OptionError`."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < least or value > (MOST if most is None else most):
        span = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise OptionError(f"{name} is {value!r}: use a whole number {span}")


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse options of a session that are no whole numbers where they should be. Raises `OptionError`."""
    for name in WHOLE_OPTIONS & options.keys():
        check_number(name, options[name])
