"""Linear layers on integers: the scale of their weights, how they round, and the division they may take over.

A mean over n elements is their sum over n. A layer that reads it can as well read the sum and have weights w / n, with
log2 n more fractional bits so that they keep their digits: the mean then costs nothing. The product takes as many bits
more, which the ring must have room for.
"""

from __future__ import annotations

import numpy as np
from google.protobuf.message import Message

from covey.interval import Array, Interval, integer_bits
from covey.ir import Node
from covey.lowering import MARGIN, MOST_EXTRA_BITS, Lowered, Lowering, Truncation


def emit_linear(low: Lowering, node: Node, op: Message, needed: int = 0, finer: int = 0) -> Lowered:
    """Emit a linear layer on an activation, a weight and perhaps a bias, which has the product's scale.

    The bias carries half a unit of what the truncation behind leaves, so that its floor rounds to the nearest. The
    weight has `needed` further fractional bits, and up to `finer` as far as the ring has room for the product. With
    fine weights, one whose numbers are small is given the leading zeros they typically have as well, if these are
    more: between two parties a bit more is a transfer more.
    """
    name, *bias = node.inputs[1:]
    x = low.value_or_multiple(node.inputs[0])
    base = low.scale_of(name) - low.scale
    found, extra = _interval(low, node, x, base), needed
    if low.settings.fine_weights:
        finer = max(finer, typical_zeros(low.graph.parameters[name]))
    if finer and name not in low.graph.reach and not _summed_wide(low, node):
        taken = max(_bits(low, node, x, found), _bits_of_bias(low, node, _scale(low, x) + base))
        room = low.settings.available_bits - taken - needed
        extra += min(finer, max(0, room - 1))
    scale = _scale(low, x) + base + extra
    operands = [x, low.parameter(node, name, scale - x.scale, divisor=x.divisor)]
    operands += [low.parameter(node, entry, scale, _offset(low, node, entry, scale)) for entry in bias]
    return low.emit(
        node,
        op,
        operands,
        shape=low.graph.values[node.output].shape,
        scale=scale,
        interval=_interval(low, node, x, base + extra) if extra else found,
    )


def can_divide(low: Lowering, node: Node, sums: Lowered) -> bool:
    """Whether a linear layer has room to read sums for means, under a bound as good as it would have without.

    A sum of products is no place for it: its operands must have one scale.
    """
    if node.output in low.left_wide or not low.graph.reach.keys().isdisjoint(node.inputs):
        return False
    found, scale = _interval(low, node, sums, 0), _scale(low, sums)
    proved_without = not sums.calibrated and found.bits - _shift(sums) <= low.settings.available_bits
    bits = found.bits if proved_without else _bits(low, node, sums, found)
    return max(bits, _bits_of_bias(low, node, scale)) <= low.settings.available_bits


def _shift(x: Lowered) -> int:
    """Fractional bits a layer's weights get for the divisor they take over: never more than it takes from them."""
    return x.divisor.bit_length() - 1


def _scale(low: Lowering, x: Lowered) -> int:
    """The product's scale without further bits for the weights."""
    return x.scale + low.scale + _shift(x)


def _interval(low: Lowering, node: Node, x: Lowered, extra: int) -> Interval:
    """Where the product lies if the weights have so many further bits."""
    name, *bias = node.inputs[1:]
    scale = _scale(low, x) + extra
    weight = low.interval_of(name, scale - x.scale, x.divisor)
    shifts = [low.interval_of(entry, scale, offset=_offset(low, node, entry, scale)) for entry in bias]
    return node.op.interval(x.interval, weight, *shifts)


def _bits(low: Lowering, node: Node, x: Lowered, interval: Interval) -> int:
    """The bits of a product's bound: proved if it fits and the operand is proved, else what is calibrated."""
    magnitude = low.magnitude(node.output)
    if magnitude is not None and (x.calibrated or interval.bits > low.settings.available_bits):
        interval = interval.clamp(np.floor(np.ldexp(max(MARGIN * magnitude, 1.0), _scale(low, x))))
    return interval.bits


def _bits_of_bias(low: Lowering, node: Node, scale: int) -> int:
    """The bits of a bias at the product's scale, with what it carries of the rounding; 0 without a bias."""
    half = half_unit(low, node, scale)
    largest = (float(np.abs(low.integers(name, scale) + half).max(initial=0.0)) for name in node.inputs[2:])
    return max(map(integer_bits, largest), default=0)


def _summed_wide(low: Lowering, node: Node) -> bool:
    """Whether a sum reads the result before it is truncated: its operands must then have one scale."""
    readers = low.graph.consumers(node.output)
    return node.output in low.left_wide and any(len(reader.inputs) > 1 for reader in readers)


def _offset(low: Lowering, node: Node, bias: str, scale: int) -> float:
    """What a bias carries of a rounding to the nearest: nothing where training makes it."""
    return 0.0 if bias in low.graph.reach else half_unit(low, node, scale)


def half_unit(low: Lowering, node: Node, scale: int) -> float:
    """Half of what a truncation from `scale` leaves as one; 0 where another operand of a sum carries it."""
    settled = low.settled_scale(node.output)
    if low.settings.truncation is not Truncation.EXACT or scale <= settled:
        return 0.0
    if _summed_wide(low, node):
        (reader,) = low.graph.consumers(node.output)
        activations = [name for name in reader.inputs if not low.is_parameter(name)]
        if activations[0] != node.output or activations.count(node.output) > 1:
            return 0.0
    return float(2 ** (scale - settled - 1))


def typical_zeros(weight: Array) -> int:
    """Leading zero bits of a weight's root mean square, which its roundings are to be small beside."""
    typical = float(np.sqrt(np.mean(weight**2)))
    return min(MOST_EXTRA_BITS, max(0, -int(np.frexp(typical)[1]))) if typical > 0.0 else 0
