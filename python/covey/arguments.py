"""What callers give, checked before it reaches the extension, which knows fixed-width integers alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

from covey.errors import OptionError

MOST = 2**63 - 1

WHOLE_OPTIONS: Mapping[str, tuple[int, int | None]] = {
    "bandwidth": (0, None),
    "key_bits": (2, 64),
    "lanes": (0, None),
    "latency_us": (0, 2**32 - 1),
    "tile": (0, None),
    "window": (0, None),
}
"""Options of a session that are whole numbers, from the least to the most that the extension can read."""

FLAGS = ("inner_layer", "inter_linear", "preprocess_linear")
"""Options of a session that are True or False."""


def is_whole(value: Any) -> bool:
    """Whether it is a whole number, which True and False are not here."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_finite(value: Any) -> bool:
    """Whether it is a finite real number, which a text, a tensor, True and False are not here."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def check_number(name: str, value: Any, least: int = 0, most: int | None = None) -> None:
    """Refuse what is no whole number in [least, most]. Raises `OptionError`."""
    if not is_whole(value) or value < least or value > (MOST if most is None else most):
        span = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise OptionError(f"{name} is {value!r}: use a whole number {span}")


def check_real(name: str, value: Any, least: float = 0.0, most: float = math.inf) -> None:
    """Refuse what is no real number in [least, most], such as a text or NaN. Raises `OptionError`."""
    real = isinstance(value, Real) and not isinstance(value, bool)
    if not real or not least <= value <= most:
        span = f"of at least {least:g}" if most == math.inf else f"from {least:g} to {most:g}"
        raise OptionError(f"{name} is {value!r}: use a number {span}")


def check_flags(**flags: Any) -> None:
    """Refuse what is neither True nor False, such as "no", which Python takes for true. Raises `OptionError`."""
    for name, value in flags.items():
        # NumPy's are no subclass, and commands that import this file do without NumPy.
        if not isinstance(value, bool) and getattr(getattr(value, "dtype", None), "kind", "") != "b":
            raise OptionError(f"{name} is {value!r}: use True or False")


def check_options(options: Any) -> None:
    """Refuse options of a session that are no whole numbers or flags where they should be. Raises `OptionError`."""
    if not isinstance(options, Mapping):
        raise OptionError(f"options is {options!r}: give options of a session by name, such as {{'lanes': 2}}")
    for name, (least, most) in WHOLE_OPTIONS.items():
        if name in options:
            check_number(name, options[name], least, most)
    check_flags(**{name: options[name] for name in FLAGS if name in options})
