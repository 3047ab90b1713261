"""Scalar functions that a network applies to each number: what they are, and what becomes of them far from zero.

A function that comes near a line on one side is drawn up to there and is that line beyond (`covey.drawing`). One that
does not needs to know where its input lies.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from covey.interval import Array

Exact = Callable[[Array], Array]

ROOT_TWO_OVER_PI = math.sqrt(2 / math.pi)

ERF_STEPS = 128
"""Places for each unit at which the error function's values are known."""


@dataclass(frozen=True)
class Line:
    """slope · x + offset."""

    slope: float
    offset: float

    def __call__(self, x: Array) -> Array:
        return np.asarray(self.slope * x + self.offset)

    def __str__(self) -> str:
        if self.slope == 0:
            return f"{self.offset:g}"
        line = "x" if self.slope == 1 else f"{self.slope:g} x"
        return f"{line} {'+' if self.offset > 0 else '-'} {abs(self.offset):g}" if self.offset else line


ZERO, ONE, SAME = Line(0.0, 0.0), Line(0.0, 1.0), Line(1.0, 0.0)


@dataclass(frozen=True)
class Function:
    """`exact` on floats. Two of one `name` and equal `parameters` are the same.

    `left` and `right` are the lines it comes near, None where there is none. It is smooth but for 0, where it may be
    `bent`. It has values strictly between `low` and `high`, and at an end that is `closed`. One `from_zero` is given no
    numbers below 0, whatever the network's inputs are.
    """

    name: str
    parameters: tuple[float, ...] = ()
    exact: Exact = field(compare=False, repr=False, default=np.asarray)
    left: Line | None = field(compare=False, default=None)
    right: Line | None = field(compare=False, default=None)
    bent: bool = field(compare=False, default=False)
    low: float = field(compare=False, default=-math.inf)
    high: float = field(compare=False, default=math.inf)
    closed: bool = field(compare=False, default=False)
    from_zero: bool = field(compare=False, default=False)

    def __call__(self, x: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(self.exact(np.asarray(x, dtype=np.float64)))

    def __str__(self) -> str:
        return self.name + (f"({', '.join(f'{p:g}' for p in self.parameters)})" if self.parameters else "")

    def holds(self, low: float, high: float) -> bool:
        """Whether it has values on all of [low, high]."""
        if self.closed:
            return self.low <= low and high <= self.high
        return self.low < low and high < self.high

    @property
    def needs(self) -> str:
        """Which numbers it has values for."""
        text = f"{self} needs numbers {'at least' if self.closed else 'above'} {self.low:.4g}"
        if math.isfinite(self.high):
            text += f" and {'at most' if self.closed else 'below'} {self.high:.4g}"
        return text

    @property
    def slope(self) -> float:
        """That of its rising line, 0 where there is none."""
        return next((line.slope for line in (self.right, self.left) if line is not None and line.slope), 0.0)

    @property
    def needs_range(self) -> bool:
        """Whether it has to be drawn as far as its input reaches on one side at least."""
        return self.left is None or self.right is None


def _logistic(x: Array) -> Array:
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * x)))


@cache
def _erf_grid() -> tuple[Array, Array]:
    places = np.arange(-6 * ERF_STEPS, 6 * ERF_STEPS + 1) / ERF_STEPS
    return places, np.array([math.erf(place) for place in places.tolist()])


def _erf(x: Array) -> Array:
    """NumPy has none: the Taylor series at the nearest place of a grid. Beyond 6 it is 1 to the last bit."""
    places, values = _erf_grid()
    x = np.clip(x, -6.0, 6.0)
    index = np.rint((np.nan_to_num(x) + 6.0) * ERF_STEPS).astype(np.int64)
    a = places[index]
    h = x - a
    # Derivatives are Hermite polynomials times the first one.
    series = 1 - h * (
        a - h * ((2 * a * a - 1) / 3 - h * ((2 * a**3 - 3 * a) / 6 - h * (4 * a**4 - 12 * a * a + 3) / 30))
    )
    return np.asarray(values[index] + 2 / math.sqrt(math.pi) * np.exp(-a * a) * h * series)


def _softplus(x: Array) -> Array:
    return np.asarray(np.logaddexp(x, 0.0))


def _exponential(alpha: float, beta: float) -> Exact:
    return lambda x: np.asarray(alpha * np.expm1(np.minimum(x, 0.0) / beta))


SIGMOID = Function("Sigmoid", (), _logistic, ZERO, ONE)
FALLING_SIGMOID = Function("Sigmoid of minus", (), lambda x: _logistic(-x), ONE, ZERO)
TANH = Function("Tanh", (), np.tanh, Line(0.0, -1.0), ONE)
ERF = Function("Erf", (), _erf, Line(0.0, -1.0), ONE)
GELU = Function("Gelu", (), lambda x: 0.5 * x * (1.0 + _erf(x * math.sqrt(0.5))), ZERO, SAME)
GELU_TANH = Function(
    "Gelu, by tanh",
    (),
    lambda x: 0.5 * x * (1.0 + np.tanh(ROOT_TWO_OVER_PI * (x + 0.044715 * x**3))),
    ZERO,
    SAME,
)
SOFTPLUS = Function("Softplus", (), _softplus, ZERO, SAME)
MISH = Function("Mish", (), lambda x: x * np.tanh(_softplus(x)), ZERO, SAME)
SOFTSIGN = Function("Softsign", (), lambda x: x / (1.0 + np.abs(x)))
EXP = Function("Exp", (), np.exp, ZERO)
DECAY = Function("Exp of minus", (), lambda x: np.exp(-x), ONE, ZERO, from_zero=True)
LOG = Function("Log", (), np.log, low=0.0)
SQRT = Function("Sqrt", (), np.sqrt, low=0.0, closed=True)
RECIPROCAL = Function("Reciprocal", (), lambda x: 1.0 / x, low=0.0)
RSQRT = Function("Rsqrt", (), lambda x: 1.0 / np.sqrt(x), low=0.0)
UNBOUNDED = {
    name: Function(name, (), exact)
    for name, exact in {
        "Sin": np.sin,
        "Cos": np.cos,
        "Sinh": np.sinh,
        "Cosh": np.cosh,
        "Asinh": np.arcsinh,
        "Atan": np.arctan,
    }.items()
} | {
    "Tan": Function("Tan", (), np.tan, low=-math.pi / 2, high=math.pi / 2),
    "Asin": Function("Asin", (), np.arcsin, low=-1.0, high=1.0, closed=True),
    "Acos": Function("Acos", (), np.arccos, low=-1.0, high=1.0, closed=True),
    "Acosh": Function("Acosh", (), np.arccosh, low=1.0, closed=True),
    "Atanh": Function("Atanh", (), np.arctanh, low=-1.0, high=1.0),
}
"""Functions that come near no line soon enough: they are drawn as far as their input reaches."""


def swish(alpha: float = 1.0) -> Function:
    """x · Sigmoid(alpha · x), alpha not 0."""
    ends = (ZERO, SAME) if alpha > 0 else (SAME, ZERO)
    return Function("Swish", (alpha,), lambda x: x * _logistic(alpha * x), *ends)


def elu(alpha: float = 1.0, gamma: float = 1.0) -> Function:
    """gamma · x above 0, gamma · alpha · (exp(x) - 1) below: Elu, and Selu."""
    low = _exponential(gamma * alpha, 1.0)
    left, right = Line(0.0, -gamma * alpha), Line(gamma, 0.0)
    return Function("Elu", (alpha, gamma), lambda x: gamma * np.maximum(x, 0.0) + low(x), left, right, bent=True)


def celu(alpha: float = 1.0) -> Function:
    """x above 0, alpha · (exp(x / alpha) - 1) below."""
    low = _exponential(alpha, alpha)
    left = Line(0.0, -alpha)
    return Function("Celu", (alpha,), lambda x: np.maximum(x, 0.0) + low(x), left, SAME, bent=True)


def power(exponent: float) -> Function:
    """x to a constant power, on positive numbers where that is not a positive whole one."""
    whole = float(exponent).is_integer() and exponent > 0
    return Function(
        "Pow",
        (exponent,),
        lambda x: np.power(x, exponent),
        low=-math.inf if whole else 0.0,
        closed=exponent > 0,
    )


def derived(function: Function) -> tuple[float, Function] | None:
    """A factor and the function that is the derivative with it; None where it is unknown or follows from the result."""
    known = {"Softplus": SIGMOID, "Log": RECIPROCAL, "Sin": UNBOUNDED["Cos"], "Sinh": UNBOUNDED["Cosh"]}
    if function.name in known:
        return 1.0, known[function.name]
    if function.name == "Cos":
        return -1.0, UNBOUNDED["Sin"]
    if function.name == "Cosh":
        return 1.0, UNBOUNDED["Sinh"]
    if function.name == "Sqrt":
        return 0.5, RSQRT
    if function.name == "Pow":
        (exponent,) = function.parameters
        return exponent, power(exponent - 1.0)
    exact = _slopes(function)
    if exact is None:
        return None
    left, right = (None if line is None else Line(0.0, line.slope) for line in (function.left, function.right))
    name = f"slope of {function.name}"
    return 1.0, Function(name, function.parameters, exact, left, right, low=function.low, high=function.high)


def _slopes(function: Function) -> Exact | None:
    """Derivatives that need a table of their own."""
    if function.name == "Swish":
        (alpha,) = function.parameters
        return lambda x: _logistic(alpha * x) * (1.0 + alpha * x * (1.0 - _logistic(alpha * x)))
    return {
        "Erf": lambda x: 2.0 / math.sqrt(math.pi) * np.exp(-x * x),
        "Gelu": lambda x: 0.5 * (1.0 + _erf(x * math.sqrt(0.5))) + x * np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi),
        "Gelu, by tanh": _slope_of_gelu_tanh,
        "Mish": lambda x: np.tanh(_softplus(x)) + x * _logistic(x) * (1.0 - np.tanh(_softplus(x)) ** 2),
        "Softsign": lambda x: 1.0 / (1.0 + np.abs(x)) ** 2,
        "Asinh": lambda x: 1.0 / np.sqrt(1.0 + x * x),
        "Atan": lambda x: 1.0 / (1.0 + x * x),
        "Asin": lambda x: 1.0 / np.sqrt(1.0 - x * x),
        "Acos": lambda x: -1.0 / np.sqrt(1.0 - x * x),
        "Acosh": lambda x: 1.0 / np.sqrt(x * x - 1.0),
        "Atanh": lambda x: 1.0 / (1.0 - x * x),
    }.get(function.name)


def _slope_of_gelu_tanh(x: Array) -> Array:
    inner = np.tanh(ROOT_TWO_OVER_PI * (x + 0.044715 * x**3))
    slope = ROOT_TWO_OVER_PI * (1.0 + 3 * 0.044715 * x * x)
    return np.asarray(0.5 * (1.0 + inner) + 0.5 * x * (1.0 - inner**2) * slope)
