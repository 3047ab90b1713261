"""Convolutions whose kernels are secret values of the run, such as weights that are trained."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from covey._proto import program_pb2 as pb
from covey.interval import Array, Interval, of_centre, of_sums
from covey.ir import Node, Op, Shape, Value, spatial
from covey.lowering import Lowered, Lowering
from covey.ops.window import Window


@dataclass(frozen=True)
class ConvOfSecrets(Op):
    """x [N, .., C, H, W] with kernels [N, O, C / groups, KH, KW] and optional bias [N, O] to [N, .., O, OH, OW]."""

    window: Window
    groups: int = 1
    widens = True

    def shape(self, *inputs: Value) -> Shape:
        x, kernels, *bias = inputs
        lead, channels, height, width = spatial(x)
        if not kernels.batched or len(kernels.shape) != 4 or kernels.shape[2:] != self.window.kernel:
            raise ValueError(f"kernels {kernels} are not [N, O, C / groups, {', '.join(map(str, self.window.kernel))}]")
        if kernels.shape[1] * self.groups != channels or kernels.shape[0] % self.groups:
            raise ValueError(f"kernels {kernels} in {self.groups} group(s) do not read {channels} channels")
        if any(each.shape != kernels.shape[:1] or not each.batched for each in bias):
            raise ValueError(f"bias {bias[0]} is not one number for each of {kernels.shape[0]} channels")
        return (*lead, kernels.shape[0], *self.window.output(height, width))

    def reference(self, *inputs: Array) -> Array:
        return np.stack([self._one(*of_sample) for of_sample in zip(*inputs, strict=True)])

    def _one(self, x: Array, kernels: Array, bias: Array | None = None) -> Array:
        images = x.reshape(-1, *x.shape[-3:])
        outputs = kernels.shape[0]
        flat = kernels.reshape(self.groups, outputs // self.groups, -1)
        views = self.window.slide(images, 0.0)
        count, _, rows, columns, *_ = views.shape
        # One product for all images: gradients of kernels are many images of few positions.
        patches = views.transpose(1, 4, 5, 0, 2, 3).reshape(self.groups, -1, count * rows * columns)
        results = np.matmul(flat, patches).reshape(outputs, count, rows, columns).swapaxes(0, 1)
        results = results if bias is None else results + bias[:, None, None]
        return np.asarray(results).reshape(*x.shape[:-3], outputs, rows, columns)

    def interval(self, *inputs: Interval) -> Interval:
        x, kernels, *bias = inputs
        product = self._products(x, kernels)
        if not bias:
            return product
        beside = (slice(None), *(None,) * (x.low.ndim - 4), slice(None), None, None)
        return product + Interval(bias[0].low[beside], bias[0].high[beside])

    def _products(self, x: Interval, kernels: Interval) -> Interval:
        terms = math.prod(kernels.low.shape[-3:])
        most = x.magnitude * kernels.magnitude
        if x.is_whole and kernels.is_whole:
            return self._whole(x, kernels, terms, most)
        centre = self.reference(x.centre, kernels.centre)
        radius = self.reference(np.abs(x.centre), kernels.radius)
        radius = radius + self.reference(x.radius, np.abs(kernels.centre) + kernels.radius)
        return of_centre(centre, radius, terms=terms, products=most)

    def _whole(self, x: Interval, kernels: Interval, terms: int, most: float) -> Interval:
        """Every sum has at most as many products of the same intervals: at a border fewer."""
        one = (1,) * x.low.ndim
        ends = [end.ravel()[:1].reshape(one) for end in (x.low, x.high, kernels.low, kernels.high)]
        product = Interval(*ends[:2]) * Interval(*ends[2:])
        low, high = np.minimum(product.low, 0.0) * terms, np.maximum(product.high, 0.0) * terms
        total = of_sums(low, high, terms, terms * most)
        rows, columns = self.window.output(*x.low.shape[-2:])
        shape = (*x.low.shape[:-3], kernels.low.shape[1], rows, columns)
        return Interval(np.broadcast_to(total.low, shape), np.broadcast_to(total.high, shape))

    def lower(self, low: Lowering, node: Node) -> Lowered:
        x, kernels, *bias = (low.value(name) for name in node.inputs)
        scale = x.scale + kernels.scale
        names = node.inputs[2:]
        raised = [low.shift_left(node, each, scale, low.magnitude(n)) for each, n in zip(bias, names, strict=True)]
        return low.emit(
            node,
            pb.Conv2d(window=self.window.proto(), groups=self.groups),
            [x, kernels, *raised],
            shape=low.graph.values[node.output].shape,
            scale=scale,
            interval=self.interval(x.interval, kernels.interval, *(each.interval for each in raised)),
        )
