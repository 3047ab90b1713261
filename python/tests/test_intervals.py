"""Intervals hold every value that integers can take, also where float64 rounds: Python's integers are the measure."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import builders
from covey.clear import run_clear
from covey.compiled import compile as compile_model
from covey.interval import Interval
from covey.ir import Op
from covey.model import load
from covey.ops.add import Add
from covey.ops.average_pool import SumPool
from covey.ops.conv import Conv2d
from covey.ops.dense import Dense
from covey.ops.leaky_relu import TwoSlopes
from covey.ops.matmul import Matmul
from covey.ops.mul import Mul
from covey.ops.sub import Sub
from covey.ops.window import Window

Integers = np.ndarray


def whole(rng: np.random.Generator, bits: int, *shape: int) -> np.ndarray:
    """Whole numbers of up to so many bits, as float64 holds them; some next to a power of two."""
    values = rng.uniform(-1, 1, shape) * 2.0 ** rng.integers(1, bits + 1, shape)
    near = np.sign(values) * (2.0 ** rng.integers(1, bits + 1, shape) - rng.integers(0, 3, shape))
    return np.rint(np.where(rng.random(shape) < 0.3, near, values))


def interval(rng: np.random.Generator, bits: int, *shape: int) -> Interval:
    ends = np.sort(np.stack([whole(rng, bits, 1, *shape), whole(rng, bits, 1, *shape)]), axis=0)
    if rng.random() < 0.5:  # narrow and far from zero: what rounding loses is all there is
        width = rng.integers(0, 1000, ends[0].shape).astype(np.float64)
        ends[1] = ends[0] + width
    return Interval(ends[0], ends[1])


def exact(values: np.ndarray) -> Integers:
    """The same whole numbers as Python's."""
    return np.array([int(value) for value in values.ravel()], dtype=object).reshape(values.shape)


def linear(op: Op, x: Interval, weight: np.ndarray, bias: np.ndarray) -> tuple[Integers, Integers]:
    """The least and the most a linear layer gives: each input at the end that the weight's sign asks for."""
    low, high = exact(x.low), exact(x.high)
    up, down = exact(np.maximum(weight, 0)), exact(np.minimum(weight, 0))
    zero = exact(np.zeros_like(bias))
    least = op.reference(low, up, exact(bias)) + op.reference(high, down, zero)
    most = op.reference(high, up, exact(bias)) + op.reference(low, down, zero)
    return least, most


def held(found: Interval, least: Integers, most: Integers) -> None:
    assert found.low.shape == least.shape
    assert (exact(found.low) <= least).all(), (found.low, least)
    assert (exact(found.high) >= most).all(), (found.high, most)


SEEDS = pytest.mark.parametrize("seed", range(40))


@SEEDS
def test_linear_layers_heed_their_bias(seed: int) -> None:
    rng = np.random.default_rng(seed)
    bits = int(rng.integers(4, 31))
    for op, shape, weights in (
        (Dense(), (7,), (7, 3)),
        (Conv2d(Window((2, 2))), (2, 3, 3), (3, 2, 2, 2)),
    ):
        x, weight = interval(rng, bits, *shape), whole(rng, 61 - bits, *weights)
        bias = whole(rng, 62, 3)
        held(op.interval(x, Interval.constant(weight), Interval.constant(bias)), *linear(op, x, weight, bias))


@SEEDS
def test_sums_differences_and_products(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = interval(rng, 62, 3, 4), interval(rng, 62, 3, 4)
    (a, b), (c, d) = ((exact(i.low), exact(i.high)) for i in (x, y))
    held(Add().interval(x, y), a + c, b + d)
    held(Sub().interval(x, y), a - d, b - c)
    products = [a * c, a * d, b * c, b * d]
    held(Mul().interval(x, y), np.minimum.reduce(products), np.maximum.reduce(products))
    held(x.widen(1.0), a - 1, b + 1)
    held(x.scaled(5461.0), a * 5461, b * 5461)
    held(x.shifted_right(7), a >> 7, b >> 7)
    for divisor in (3, 49, 1 << 10):
        held(x.divided(divisor), a // divisor, b // divisor)


@SEEDS
def test_sums_over_windows_and_matrix_products(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = interval(rng, 60, 2, 3, 4)
    pool = SumPool(Window((3, 4)))
    held(pool.interval(x), pool.reference(exact(x.low)), pool.reference(exact(x.high)))
    bits = int(rng.integers(4, 55))
    x, y = interval(rng, bits, 2, 5), interval(rng, 59 - bits, 5, 3)
    products = [exact(p)[..., :, None] * exact(q)[:, None] for p in (x.low, x.high) for q in (y.low, y.high)]
    held(
        Matmul().interval(x, y),
        np.minimum.reduce(products).sum(axis=-2),
        np.maximum.reduce(products).sum(axis=-2),
    )


@SEEDS
def test_slopes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = interval(rng, 58, 50)
    a, b = exact(x.low), exact(x.high)
    for below, above in ((-1, 1), (3, 16), (7, -2)):
        ends = [np.where(end < 0, below, above) * end for end in (a, b)]
        ends += [np.where((a <= 0) & (b >= 0), 0, ends[0])]
        held(TwoSlopes(below, above).interval(x), np.minimum.reduce(ends), np.maximum.reduce(ends))


def test_a_bound_above_2_to_53_holds_what_cancels() -> None:
    """(x + c) - c: what float64 rounds off the sum is all that is left of the difference."""
    nodes = [
        helper.make_node("Add", ["x", "large"], ["s"], name="sum"),
        helper.make_node("Sub", ["s", "large"], ["d"], name="difference"),
        helper.make_node("Relu", ["d"], ["y"], name="relu"),
    ]
    end = 60 * 2.0**-29
    model = builders.model(nodes, {"x": ["N", 1]}, ["y"], {"large": np.full(1, 2.0**31)})
    loaded = load(compile_model(model, ring=64, scale=29, input_range=(-end, end)))
    result = run_clear(loaded, np.array([[end], [-end], [0.0]]))
    assert result.integers["y"].ravel().tolist() == [60, 0, 0]


def test_a_magnitude_that_cannot_be_computed_stays_so() -> None:
    for low, high in [(1.0, np.nan), (np.nan, 1.0)]:
        assert np.isnan(Interval(np.array([low]), np.array([high])).magnitude)


def test_whole_intervals_are_computed_once() -> None:
    """They are what the same intervals with an end for each element are, rounding included, and take its memory."""
    rng = np.random.default_rng(4)
    methods = [
        lambda x, y: x + y, lambda x, y: x - y, lambda x, y: x * y, lambda x, y: x * Interval.constant(y.low),
        lambda x, y: x.clamp(1e9).widen(2.0), lambda x, y: x.shifted_left(3).divided(7),
        lambda x, y: x.shifted_right(5),
    ]  # fmt: skip
    for bits in (20, 62):
        for method in methods:
            x, y = interval(rng, bits, 3, 4).whole, interval(rng, bits, 4).whole
            spelt = [Interval(one.low.copy(), one.high.copy()) for one in (x, y)]
            found, due = method(x, y), method(*spelt)
            assert found.is_whole and not due.is_whole and found.magnitude == due.magnitude
            assert not any(found.low.strides)
            np.testing.assert_array_equal((found.low, found.high), (due.low, due.high))
    mixed = interval(rng, 20, 3, 4)
    assert not (mixed + interval(rng, 20, 4).whole).is_whole
