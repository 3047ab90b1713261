"""Schedules of the learning rate: what part of it each step takes, as public numbers that are known before training."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np

from covey.arguments import is_finite, is_whole
from covey.errors import OptionError

MOST_STEPS = 1 << 20
"""The most steps until the last change of the learning rate."""

LEAST = 0.01
"""What part of the learning rate is left at the end unless something else is asked for."""


@dataclass(frozen=True)
class Schedule:
    """`factors[i]` times the learning rate is that of step i, counted from 0; the last factor stays."""

    factors: tuple[float, ...] = field(repr=False)

    def __post_init__(self) -> None:
        if not self.factors:
            raise OptionError("a schedule of no steps: give at least one factor of the learning rate")
        for step, factor in enumerate(self.factors, start=1):
            if not (is_finite(factor) and factor > 0):
                raise OptionError(f"a schedule's factor {factor!r} at step {step}: give positive numbers")

    def at(self, step: int) -> float:
        """The factor of a step."""
        return self.factors[min(step, len(self.factors) - 1)]

    @cached_property
    def ends(self) -> tuple[float, float]:
        """The least factor and the largest."""
        return min(self.factors), max(self.factors)

    def integers(self, factor: float, bits: int) -> tuple[list[int], list[int]]:
        """`factor` times the schedule's, in units of 2^-bits, and for how many steps each but the last is in force."""
        scaled = np.rint(np.ldexp(factor * np.array(self.factors), bits))
        first = [0, *(np.flatnonzero(np.diff(scaled)) + 1).tolist()]
        return [int(integer) for integer in scaled[first]], np.diff(first).tolist()


def constant(*, warmup: int = 0) -> Schedule:
    """The learning rate itself, to which it rises in a line over the first `warmup` steps."""
    return _schedule([1.0], warmup)


def step(milestones: Sequence[int], gamma: float = 0.1, *, warmup: int = 0) -> Schedule:
    """After each number of steps in `milestones` the rate is `gamma` times as large, as `MultiStepLR` has it.

    Over the first `warmup` steps, fewer than the last milestone, it rises in a line. Raises `OptionError` for numbers
    that make no schedule.
    """
    _check_gamma(gamma)
    milestones = _rising(milestones)
    _check_length(milestones[-1], warmup)
    factors: list[float] = []
    for passed, after in enumerate(milestones):
        factors += [gamma**passed] * (after - len(factors))
    return _schedule([*factors, gamma ** len(milestones)], warmup)


def exponential(gamma: float, every: int = 1, *, least: float = LEAST, warmup: int = 0) -> Schedule:
    """After each `every` steps the rate is `gamma` times as large, as `ExponentialLR` has it, until `least` is left.

    Over the first `warmup` steps it rises in a line.
    """
    _check_gamma(gamma)
    _check_least(least)
    if not is_whole(every) or every < 1:
        raise OptionError(f"an exponential schedule that changes every {every!r} steps: give a whole number from 1 on")
    changes = math.ceil(math.log(least) / math.log(gamma) - 1e-9)
    _check_length(max(changes * every, 1), 0)
    factors = [gamma**passed for passed in range(changes) for _ in range(every)]
    return _schedule([*factors, least], warmup)


def cosine(steps: int, *, least: float = LEAST, warmup: int = 0) -> Schedule:
    """Half a cosine from the rate to `least` of it, which stays, as `CosineAnnealingLR` has it.

    Of the `steps` in all, the first `warmup` rise to the rate in a line.
    """
    _check_least(least)
    _check_length(steps, warmup)
    length = steps - warmup
    curve = [least + (1 - least) * (1 + math.cos(math.pi * step / length)) / 2 for step in range(length + 1)]
    return _schedule([*[1.0] * warmup, *curve], warmup)


def named(text: str | None, steps: int, warmup: int = 0) -> Schedule | None:
    """The schedule that a command names, whose epochs have so many `steps`; None where the rate stays as it is.

    `cosine:EPOCHS`, `step:EPOCH,EPOCH`, `exponential:GAMMA`, or nothing. Raises `OptionError` for others.
    """
    if text is None:
        return constant(warmup=warmup) if warmup else None
    kind, _, numbers = text.partition(":")
    try:
        if kind == "cosine":
            return cosine(int(numbers) * steps, warmup=warmup)
        if kind == "step":
            return step([int(epoch) * steps for epoch in numbers.split(",")], warmup=warmup)
        if kind == "exponential":
            return exponential(float(numbers), steps, warmup=warmup)
    except ValueError:
        pass
    raise OptionError(f"schedule '{text}' is unknown: use cosine:EPOCHS, step:EPOCH,EPOCH or exponential:GAMMA")


def _schedule(factors: list[float], warmup: int) -> Schedule:
    """The factors, the first ones of them less by a rising line."""
    _check_warmup(warmup)
    _check_length(max(warmup, 1), 0)
    rising: Iterable[float] = ((index + 1) / warmup for index in range(warmup))
    factors = factors + factors[-1:] * (warmup - len(factors))
    return Schedule((*(factor * part for factor, part in zip(factors, rising, strict=False)), *factors[warmup:]))


def _rising(milestones: Iterable[int]) -> list[int]:
    """The milestones, checked."""
    if isinstance(milestones, Iterable):
        steps = list(milestones)
        if not steps:
            raise OptionError("a schedule of no steps: give the steps after which the learning rate changes")
        if all(is_whole(after) and after >= 1 for after in steps) and all(a < b for a, b in pairwise(steps)):
            return steps
    raise OptionError(f"milestones {milestones!r}: give rising whole numbers of steps, from 1 on")


def _check_warmup(warmup: int) -> None:
    if not is_whole(warmup) or warmup < 0:
        raise OptionError(f"a warm-up of {warmup!r} steps: give a whole number, 0 or more")


def _check_gamma(gamma: float) -> None:
    if not (is_finite(gamma) and 0 < gamma < 1):
        raise OptionError(f"gamma {gamma!r}: give a number between 0 and 1")


def _check_least(least: float) -> None:
    if not (is_finite(least) and 0 < least <= 1):
        raise OptionError(f"a schedule that ends at {least!r} of the learning rate: give more than 0, and at most 1")


def _check_length(steps: int, warmup: int) -> None:
    if not is_whole(steps) or steps < 1:
        raise OptionError(f"a schedule of {steps!r} steps: give a whole number, at least 1")
    if steps > MOST_STEPS:
        raise OptionError(f"a schedule that changes until step {steps}: it may until step {MOST_STEPS} at most")
    _check_warmup(warmup)
    if warmup >= steps:
        raise OptionError(f"a warm-up of {warmup} steps in a schedule of {steps}: let it be shorter")
