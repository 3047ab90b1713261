"""Optimisers: what a step makes of weights, gradients and moments, with the learning rate as a public number."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from covey.arguments import check_flags, is_finite
from covey.errors import OptionError
from covey.ir import Op, Value
from covey.ops.affine import Affine
from covey.ops.clip import Clip
from covey.ops.combined import Combined
from covey.ops.quotient import Inverse
from covey.ops.standardising import SquareMean
from covey.ops.window import MOST_STEPS
from covey.training.builder import Builder
from covey.training.schedules import Schedule


@dataclass(frozen=True)
class Variable:
    """What is trained: its name, its value in this step, how much it has changed so far, and its gradient.

    `mean` times the gradient is that of the loss.
    """

    name: str
    value: Value
    change: Value
    gradient: Value
    mean: float


@dataclass(frozen=True)
class Next:
    """A value that is carried, and what it is in the next step."""

    carried: Value
    after: Value


@dataclass(frozen=True)
class Shared:
    """What is carried for all variables together, and a secret factor of their steps."""

    nexts: list[Next]
    rate: Value | None = None
    largest: float = 1.0
    """What the factor is at most."""


@dataclass(frozen=True)
class Optimizer(ABC):
    """`lr` is the learning rate; `clip` bounds each element of the gradients, `clip_norm` the norm of all together.

    A `schedule` (`covey.schedules`) says what part of the learning rate each step takes.
    """

    lr: float
    weight_decay: float = 0.0
    clip: float | None = None
    clip_norm: float | None = None
    schedule: Schedule | None = field(default=None, kw_only=True)

    def check(self) -> None:
        """Raise `OptionError` for numbers that make no step."""
        if not (is_finite(self.lr) and self.lr > 0):
            raise OptionError(f"learning rate {self.lr!r}: give a positive number")
        if self.schedule is not None and not isinstance(self.schedule, Schedule):
            raise OptionError("the schedule is none: make one, such as covey.schedules.cosine(1000)")
        if not (is_finite(self.weight_decay) and self.weight_decay >= 0):
            raise OptionError(f"weight decay {self.weight_decay!r}: give 0 or a positive number")
        for name, bound, what in (("clip", self.clip, "elements"), ("clip_norm", self.clip_norm, "norm")):
            if bound is not None and not (is_finite(bound) and bound > 0):
                raise OptionError(f"{name} {bound!r}: give a positive bound of the gradients' {what}, or leave it out")

    def limited(self, build: Builder, gradients: Mapping[str, Value], mean: float) -> dict[str, Value]:
        """Gradients that together are no longer than `clip_norm`: all times the same secret factor."""
        if self.clip_norm is None:
            return dict(gradients)
        # Of sums over the minibatch, as the gradients are: from 1 on, so that LEAST_NORM is little beside its square.
        bound = self.clip_norm / mean
        raised = max(0, 1 - math.frexp(bound)[1])
        if raised > MOST_RAISED:
            least = mean * 2.0**-MOST_RAISED
            raise OptionError(f"clip_norm {self.clip_norm:g} is too small to compute with: give at least {least:.2g}")
        parts = [_squares(build, build.affine(gradient, 2.0**raised)) for gradient in gradients.values()]
        # A little more keeps it positive.
        total = build.affine(build.total(parts), 1.0, LEAST_NORM)
        bound = math.ldexp(bound, raised) ** 2
        build.spans[total.name] = (LEAST_NORM, bound)
        factor = build.emit(Clip(None, 1.0), build.emit(Inverse(2, bound), total, hint="factor"), hint="at_most_one")
        build.reach |= {factor.name: 1.0, build.graph.nodes[-2].output: (bound / LEAST_NORM) ** 0.5}
        return {name: build.mul(gradient, factor) for name, gradient in gradients.items()}

    def prepare(self, build: Builder) -> Shared:
        """What all variables share."""
        return Shared([])

    @abstractmethod
    def step(self, build: Builder, variable: Variable, shared: Shared) -> list[Next]:
        """The nodes that make one step of a variable."""

    def _gradient(self, build: Builder, variable: Variable) -> tuple[Value, float]:
        """The gradient, clipped where that is asked for, and what it has to be multiplied by."""
        if self.clip is None:
            return variable.gradient, variable.mean
        mean = _finer(build, Combined((variable.mean,)), variable.gradient, hint="mean")
        clipped = build.emit(Clip(-self.clip, self.clip), mean, hint="clipped")
        build.graph.finer.add(clipped.name)
        return clipped, 1.0

    def _moved(self, build: Builder, variable: Variable, terms: list[tuple[Value, float]]) -> Next:
        """A weight's next change; the terms have the learning rate in their factors."""
        dither = build.coins() if build.stochastic_rounding else None
        op = Combined((1.0, *(factor for _, factor in terms)), schedule=self.schedule, dither=dither)
        return Next(variable.change, _finer(build, op, variable.change, *(x for x, _ in terms), hint="after"))


@dataclass(frozen=True)
class SGD(Optimizer):
    """Stochastic gradient descent as `torch.optim.SGD` has it."""

    momentum: float = 0.0
    nesterov: bool = False

    def check(self) -> None:
        super().check()
        if not (is_finite(self.momentum) and 0 <= self.momentum < 1):
            raise OptionError(f"momentum {self.momentum!r}: give a number from 0 to below 1")
        check_flags(nesterov=self.nesterov)
        if self.nesterov and not self.momentum:
            raise OptionError("nesterov needs a momentum: give one, such as 0.9")

    def step(self, build: Builder, variable: Variable, shared: Shared) -> list[Next]:
        gradient, mean = self._gradient(build, variable)
        terms = [(gradient, mean)]
        if self.weight_decay:
            terms.append((variable.value, self.weight_decay))
        if not self.momentum:
            return [self._moved(build, variable, [(x, -self.lr * factor) for x, factor in terms])]
        velocity = build.variable(f"{variable.name}.momentum", None, variable.value.shape)
        after = _sum(build, [(velocity, self.momentum), *terms], "momentum")
        build.growing[after.name] = 1.0 / (1.0 - self.momentum)
        moves = [(x, self.lr * factor) for x, factor in terms] if self.nesterov else []
        moves.append((after, self.lr * (self.momentum if self.nesterov else 1.0)))
        step = self._moved(build, variable, [(x, -factor) for x, factor in moves])
        return [Next(velocity, after), step]


@dataclass(frozen=True)
class Adam(Optimizer):
    """Adam as `torch.optim.Adam` has it, and AdamW where the decay is `decoupled`.

    Moments are sums of gradients, which are divided by what the factors of these sums add up to. The root is taken of
    the second moment and `epsilon` squared together, which differs for gradients near `epsilon` alone.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    decoupled: bool = False

    def check(self) -> None:
        super().check()
        for name, beta in (("beta1", self.beta1), ("beta2", self.beta2)):
            if not (is_finite(beta) and 0 < beta < 1):
                raise OptionError(f"{name} {beta!r}: give a number between 0 and 1")
        if not (is_finite(self.epsilon) and 0 < self.epsilon < 1):
            raise OptionError(f"epsilon {self.epsilon!r}: give a small positive number")
        check_flags(decoupled=self.decoupled)

    def prepare(self, build: Builder) -> Shared:
        nexts, sums = [], []
        for name, beta in (("first", self.beta1), ("second", self.beta2)):
            so_far = build.variable(f"adam.{name}.weight", None, (1,))
            kept = _finer(build, Combined((beta,)), so_far, hint=f"{name}_kept")
            after = _finer(build, Affine(1.0, 1.0), kept, hint=f"{name}_weight")
            build.growing[after.name] = 1.0 / (1.0 - beta)
            build.spans[after.name] = (1.0, 1.0 / (1.0 - beta))
            nexts.append(Next(so_far, after))
            sums.append(after)
        first = build.emit(Inverse(1, 1.0), sums[0], hint="first_inverse")
        second = build.mul(build.emit(Inverse(2, 1.0), sums[1], hint="second_inverse"), sums[1])
        rate = build.mul(first, second)
        largest = math.sqrt(1.0 / (1.0 - self.beta2))
        build.reach |= {first.name: 1.0, second.name: largest, rate.name: largest}
        return Shared(nexts, rate, largest)

    def step(self, build: Builder, variable: Variable, shared: Shared) -> list[Next]:
        gradient, mean = self._gradient(build, variable)
        if self.weight_decay and not self.decoupled:
            terms = [(gradient, 1.0), (variable.value, self.weight_decay / mean)]
            gradient = _sum(build, terms, "decayed")
        shape = variable.value.shape
        first = build.variable(f"{variable.name}.first", None, shape)
        second = build.variable(f"{variable.name}.second", None, shape)
        squares = build.mul(gradient, gradient)
        first_after = _sum(build, [(first, self.beta1), (gradient, 1.0)], "first")
        second_after = _sum(build, [(second, self.beta2), (squares, 1.0)], "second")
        floor = max((self.epsilon / mean) ** 2, LEAST_SQUARE)
        positive = _finer(build, Affine(1.0, floor), second_after, hint="positive")
        for value, beta in ((first_after, self.beta1), (second_after, self.beta2), (positive, self.beta2)):
            build.growing[value.name] = 1.0 / (1.0 - beta)
        build.spans[positive.name] = (floor, 0.0)
        inverse = build.emit(Inverse(2, 1.0), positive, hint="inverse")
        assert shared.rate is not None
        direction = build.mul(first_after, inverse)
        step = build.mul(direction, shared.rate)
        # By Cauchy and Schwarz a direction is at most the root of the sum of (beta1^2 / beta2)^i.
        largest = 1.0 / math.sqrt(max(1.0 - self.beta1**2 / self.beta2, 1.0 - self.beta2))
        build.reach |= {inverse.name: floor**-0.5, direction.name: largest, step.name: largest * shared.largest}
        moves = [(step, -self.lr)]
        if self.weight_decay and self.decoupled:
            moves.append((variable.value, -self.lr * self.weight_decay))
        return [Next(first, first_after), Next(second, second_after), self._moved(build, variable, moves)]


def adamw(lr: float, weight_decay: float = 0.01, **options: Any) -> Adam:
    """Adam whose weight decay does not pass through the moments, as `torch.optim.AdamW` has it."""
    return Adam(lr, weight_decay, decoupled=True, **options)


LEAST_SQUARE = 2.0**-26
"""The least that is added to a second moment, whose gradients are sums over the minibatch."""


LEAST_NORM = 2.0**-8
"""What is added to a squared norm."""

MOST_RAISED = 8
"""Gradients are multiplied by two so many times at most where their norm is compared with a small bound."""


def _squares(build: Builder, x: Value) -> Value:
    """The sum of squares of all elements, in rows that are not too long."""
    width = next(width for width in range(min(x.size, MOST_STEPS), 0, -1) if x.size % width == 0)
    rows = build.emit(SquareMean(1), build.reshape(x, (x.size // width, width)), hint="squares")
    return build.reshape(build.sum_over(rows, [0, 1]), (1,))


def _finer(build: Builder, op: Op, *inputs: Value, hint: str) -> Value:
    """A result with as many fractional bits as weights."""
    value = build.emit(op, *inputs, hint=hint)
    build.graph.finer.add(value.name)
    return value


def _sum(build: Builder, terms: list[tuple[Value, float]], hint: str) -> Value:
    """The sum of values times factors, as finely as weights."""
    return _finer(build, Combined(tuple(factor for _, factor in terms)), *(x for x, _ in terms), hint=hint)
