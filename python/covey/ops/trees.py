"""All trees of an ensemble at once: the comparisons of every node, the leaf that each tree reaches, their sum.

A comparison with a constant is exact on the fixed-point numbers. x is X / 2^s for a whole X, so x <= t holds just where
X < floor(t * 2^s) + 1, and x < t just where X < ceil(t * 2^s). Where X was rounded, t * 2^s is first rounded as well:
thresholds are often values of the training data, and equal numbers should stay equal.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from google.protobuf.message import Message

from covey._proto import program_pb2 as pb
from covey.interval import Array, Interval
from covey.ir import Node, Op, Shape, Value
from covey.lowering import Lowered, Lowering
from covey.ops.comparison import below_zero, negated
from covey.ops.dense import Dense
from covey.steps import interim


@dataclass(frozen=True)
class Below(Op):
    """x [N, F], thresholds [M]: 1 where feature `features[m]` of x is below threshold m, or `closed[m]` and equal.

    With a third operand, the matrix [F, M] that has a 1 where feature f is that of m and else 0, the program does not
    say which feature that is: the matrix is secret, as weights are.

    `missing` says of each node whether a feature that is missing counts as below. It has no bearing unless a number
    stands for missing ones. Then comparisons behind those of the nodes are 1 where a feature is there, and `there`
    holds for each node which of them, counted from 1, is to be 1; 0 where the node does without.

    Fewer than `exact_bits[m]` fractional bits do not hold feature `features[m]` exactly; without any, all do.
    """

    features: tuple[int, ...]
    closed: tuple[bool, ...]
    missing: tuple[bool, ...] = ()
    there: tuple[int, ...] = ()
    exact_bits: tuple[int, ...] = ()

    def shape(self, *inputs: Value) -> Shape:
        if len(inputs[0].shape) != 1 or max(self.features) >= inputs[0].size:
            raise ValueError(f"it compares features that {inputs[0]} does not have")
        return (self.nodes,)

    @property
    def nodes(self) -> int:
        """How many nodes it decides."""
        return len(self.there) or len(self.features)

    def reference(self, *inputs: Array) -> Array:
        x, thresholds = inputs[0][:, list(self.features)], inputs[1]
        if np.array_equal(thresholds, thresholds.astype(np.float32)):
            x = x.astype(np.float32)  # as models do whose thresholds are float32
        bits = np.asarray((x < thresholds) | ((x == thresholds) & np.array(self.closed)), dtype=np.float64)
        if not self.there:
            return bits
        absent = np.concatenate([np.zeros((len(bits), 1)), 1 - bits[:, self.nodes :]], axis=1)
        return np.asarray(bits[:, : self.nodes] + absent[:, list(self.there)])

    def interval(self, *inputs: Interval) -> Interval:
        return _bits(self.nodes)

    def lower(self, low: Lowering, node: Node) -> Lowered:
        name, thresholds, *selection = node.inputs
        x, count = low.value(name), len(self.features)
        magnitude = low.magnitude(name)
        picked = list(self.features)
        gather = pb.Gather(sizes=[count], offsets=[feature + 1 for feature in picked])
        taken = low.emit(
            node,
            pb.Dense() if selection else gather,
            [x, *(low.parameter(node, matrix, 0) for matrix in selection)],
            shape=(count,),
            scale=x.scale,
            interval=Interval(x.interval.low[:, picked], x.interval.high[:, picked]),
            name=f"{node.output}.features",
            magnitude=magnitude,
        )
        limits = low.whole_parameter(node, thresholds, self.limits(low, thresholds, taken), x.scale)
        difference = low.emit(
            node,
            pb.Sub(),
            [taken, limits],
            shape=(count,),
            scale=x.scale,
            interval=taken.interval - limits.interval,
            name=f"{node.output}.difference",
            magnitude=None if magnitude is None else 2 * magnitude,
        )
        if not self.there:
            return below_zero(low, node, difference)
        bits = below_zero(low, node, difference, "bits")
        absent = negated(low, node, bits, f"{node.output}.absent")
        last = self.nodes
        parts = [
            interim(low, node, pb.Gather(sizes=[last], offsets=offsets), [of], (last,), _bits(last), hint)
            for of, offsets, hint in (
                (bits, range(1, last + 1), "decided"),
                (absent, [place and last + place for place in self.there], "missing"),
            )
        ]
        # No number that stands for missing features is below a threshold: at most one of the two is 1.
        return low.emit(
            node, pb.Add(), parts, shape=(last,), scale=0, interval=_bits(last), unconditional=True, magnitude=1.0
        )

    def limits(self, low: Lowering, thresholds: str, x: Lowered) -> Array:
        """The integers that x's are below just where the comparison holds, no farther out than x reaches."""
        scaled = np.ldexp(self.as_held(low.graph.parameters[thresholds], x.scale), x.scale)
        limits = np.where(np.array(self.closed), np.floor(scaled) + 1, np.ceil(scaled))
        return np.clip(limits, x.interval.low[0], x.interval.high[0] + 1)

    def as_held(self, thresholds: Array, bits: int) -> Array:
        """The thresholds for x of so many fractional bits: to the nearest, where these do not hold x exactly.

        One half-way between two such numbers keeps to its own side of both.
        """
        scaled = np.ldexp(thresholds, bits)
        nearest = np.where(np.array(self.closed), np.ceil(scaled - 0.5), np.floor(scaled + 0.5))
        rounded = np.array(self.exact_bits or 0) > bits
        return np.asarray(np.where(rounded, np.ldexp(nearest, -bits), thresholds))


@dataclass(frozen=True)
class Leaves(Op):
    """From the bits of all inner nodes [N, M], by levels from the roots down, to a bit for each leaf that is reached.

    A level of n nodes has 2 n children: those taken where the bits are 1, then those where they are 0. `parents` holds,
    for each level below the roots, where its nodes stand among the children of the level above; `leaves` where the
    leaves stand among the children of all levels. One product a node tells its two children apart.
    """

    roots: int
    parents: tuple[tuple[int, ...], ...]
    leaves: tuple[int, ...]

    def shape(self, *inputs: Value) -> Shape:
        if inputs[0].shape != (self.roots + sum(map(len, self.parents)),):
            raise ValueError(f"{inputs[0]} has not one bit for each node")
        return (len(self.leaves),)

    def reference(self, *inputs: Array) -> Array:
        bits, first = inputs[0], self.roots
        children = np.concatenate([bits[:, :first], 1 - bits[:, :first]], axis=1)
        levels = [children]
        for parents in self.parents:
            reached = children[:, list(parents)]
            ones = reached * bits[:, first : first + len(parents)]
            children = np.concatenate([ones, reached - ones], axis=1)
            levels.append(children)
            first += len(parents)
        return np.asarray(np.concatenate(levels, axis=1)[:, list(self.leaves)])

    def interval(self, *inputs: Interval) -> Interval:
        return _bits(len(self.leaves))

    def lower(self, low: Lowering, node: Node) -> Lowered:
        bits = low.value(node.inputs[0])

        def step(op: Message, inputs: list[Lowered], count: int, hint: str | None) -> Lowered:
            name = None if hint is None else f"{node.output}.{hint}"
            return low.emit(
                node, op, inputs, shape=(count,), scale=0, interval=_bits(count), name=name, unconditional=True
            )

        def take(x: Lowered, positions: list[int], hint: str | None) -> Lowered:
            offsets = [position + 1 for position in positions]
            return step(pb.Gather(sizes=[len(offsets)], offsets=offsets), [x], len(offsets), hint)

        ones = take(bits, list(range(self.roots)), "level0.ones")
        zeros = negated(low, node, ones, name=f"{node.output}.level0.zeros")
        levels, first = [step(pb.Concat(axis=1), [ones, zeros], 2 * self.roots, "level0")], self.roots
        for index, parents in enumerate(self.parents, start=1):
            level, count = f"level{index}", len(parents)
            reached = take(levels[-1], list(parents), f"{level}.reached")
            decided = take(bits, list(range(first, first + count)), f"{level}.bits")
            ones = step(pb.Mul(), [reached, decided], count, f"{level}.ones")
            zeros = step(pb.Sub(), [reached, ones], count, f"{level}.zeros")
            levels.append(step(pb.Concat(axis=1), [ones, zeros], 2 * count, level))
            first += count
        children = levels[0] if len(levels) == 1 else step(pb.Concat(axis=1), levels, 2 * first, "children")
        return take(children, list(self.leaves), None)


@dataclass(frozen=True)
class LeafSum(Dense):
    """The sum of the weights of the leaves reached: one in each tree. `trees` holds each leaf's tree."""

    trees: tuple[int, ...]

    def interval(self, *inputs: Interval) -> Interval:
        weight = inputs[1].low
        ends = []
        for smallest in (True, False):
            best = np.full((max(self.trees) + 1, weight.shape[1]), np.inf if smallest else -np.inf)
            (np.minimum if smallest else np.maximum).at(best, list(self.trees), weight)
            ends.append(np.where(np.isfinite(best), best, 0.0).sum(axis=0, keepdims=True))
        sums = Interval(*ends).outward()
        return sums + inputs[2] if len(inputs) > 2 else sums


def _bits(count: int) -> Interval:
    return Interval(np.zeros((1, count)), np.ones((1, count)))
