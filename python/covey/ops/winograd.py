"""Convolution by Winograd's algorithm, in three steps of which the middle one alone multiplies secrets.

A tile of m × m outputs of a convolution with K × K taps reads n × n inputs, n = m + K - 1. With d the inputs and g
the taps it is Aᵀ [(G g Gᵀ) ⊙ (Bᵀ d B)] A: n² products in place of m² K² (Lavin and Gray, CVPR 2016). Bᵀ and Aᵀ are
public and whole, so the steps around the product are local in every protocol. Channels are added up before the last
step, which is linear. So secrets meet in n² products of matrices, one for each place of a tile, which are groups of one
convolution.

G g Gᵀ is computed here, in floating point, and rounded once. Its rounding errors are multiplied by the entries of Bᵀ
and Aᵀ. So the transformed weight has more fractional bits than other weights, as far as that makes a difference.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from covey._proto import program_pb2 as pb
from covey.interval import Array, Interval, of_centre
from covey.ir import Node, Op, Shape, Value, spatial
from covey.linear import emit_linear, half_unit
from covey.lowering import Lowered, Lowering
from covey.ops.conv import Conv2d
from covey.ops.gather import Gather, strides
from covey.ops.window import Window
from covey.steps import interim

POINTS = (0, 1, -1, 2, -2)
"""Where the polynomials are evaluated, beside infinity: the smallest whole numbers."""

NEGLIGIBLE = 2.0**-12
"""The error of a layer, beside its results, that rounding the transformed weight may make whatever its bits."""

UNIFORM = 12.0**-0.5
"""The root mean square of a rounding error, in units of the last place."""


@dataclass(frozen=True)
class Tile:
    """F(m × m, K × K): `outputs` m and `taps` K along either dimension."""

    outputs: int
    taps: int

    @property
    def size(self) -> int:
        """Inputs along a dimension, n."""
        return self.outputs + self.taps - 1

    @cached_property
    def matrices(self) -> tuple[list[list[Fraction]], list[list[Fraction]], list[list[Fraction]]]:
        """Aᵀ [m, n], G [n, K] and Bᵀ [n, n] of Toom and Cook's algorithm, exact; Aᵀ and Bᵀ are whole.

        y = Aᵀ [(G g) ⊙ (Bᵀ d)] are the sums y_i = Σ_k g_k d_(i+k).
        """
        points = [Fraction(point) for point in POINTS[: self.size - 1]]
        assert len(points) == self.size - 1, f"too few points for tiles of {self.size}"
        above, taps, below = [], [], []
        for point in points:
            others = [other for other in points if other != point]
            product = math.prod((point - other for other in others), start=Fraction(1))
            above.append([point**power for power in range(self.outputs)])
            taps.append([point**power / abs(product) for power in range(self.taps)])
            row = [*_polynomial(others), Fraction(0)]
            below.append([entry if product > 0 else -entry for entry in row])
        above.append([Fraction(power == self.outputs - 1) for power in range(self.outputs)])
        taps.append([Fraction(power == self.taps - 1) for power in range(self.taps)])
        below.append(_polynomial(points))
        return [list(column) for column in zip(*above, strict=True)], taps, below

    @cached_property
    def output_matrix(self) -> Array:
        """Aᵀ on both sides: [m², n²]."""
        return _both_sides(self.matrices[0])

    @cached_property
    def weight_matrix(self) -> Array:
        """G on both sides: [n², K²]."""
        return _both_sides(self.matrices[1])

    @cached_property
    def input_matrix(self) -> Array:
        """Bᵀ on both sides: [n², n²]."""
        return _both_sides(self.matrices[2])

    @cached_property
    def loss(self) -> float:
        """Bits that rounding the weight costs: log2 of how much larger the error is than in a plain convolution.

        Of independent roundings and independent inputs of one size, as root mean squares over a tile's outputs.
        """
        error = self.output_matrix**2 @ (self.input_matrix**2).sum(axis=1)
        return math.log2(math.sqrt(float(error.mean())) / self.taps)

    def counts(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of tiles that cover so many outputs."""
        return -(-height // self.outputs), -(-width // self.outputs)

    def transformed(self, weight: Array) -> Array:
        """G g Gᵀ of a weight [O, I, K, K], place by place: [n² O, I, 1, 1]."""
        outputs, inputs = weight.shape[:2]
        places = self.weight_matrix @ weight.reshape(outputs * inputs, -1).T
        return np.asarray(places.reshape(-1, inputs, 1, 1))


def _polynomial(roots: list[Fraction]) -> list[Fraction]:
    """The coefficients of the product of x - root, that of the lowest power first."""
    coefficients = [Fraction(1)]
    for root in roots:
        raised = [Fraction(0), *coefficients]
        coefficients = [high - root * low for high, low in zip(raised, [*coefficients, Fraction(0)], strict=True)]
    return coefficients


def _both_sides(matrix: list[list[Fraction]]) -> Array:
    """X -> M X Mᵀ as one matrix on the elements of X in a row."""
    rows = np.array([[float(entry) for entry in row] for row in matrix])
    return np.kron(rows, rows)


@dataclass(frozen=True)
class TransformedInput(Op):
    """Bᵀ d B of each tile of x [N, C, H, W], its place in the tile first: [N, n² C, rows, columns]. Local."""

    tile: Tile
    pads: tuple[int, int, int, int]
    """Of the image, zeros: those of the convolution, and behind them what completes the last tiles."""

    @property
    def window(self) -> Window:
        """The tiles of an image."""
        return Window((self.tile.size,) * 2, (self.tile.outputs,) * 2, self.pads)

    def shape(self, *inputs: Value) -> Shape:
        _, channels, height, width = spatial(inputs[0])
        return (self.tile.size**2 * channels, *self.window.output(height, width))

    def reference(self, *inputs: Array) -> Array:
        return self._with(inputs[0], self.tile.input_matrix)

    def _with(self, x: Array, matrix: Array) -> Array:
        tiles = self.window.slide(x, 0.0)
        batch, _, rows, columns, *_ = tiles.shape
        places = tiles.reshape(-1, len(matrix)) @ matrix.T
        moved = np.moveaxis(places.reshape(*tiles.shape[:4], -1), -1, 1)
        return np.ascontiguousarray(moved).reshape(batch, -1, rows, columns)

    def interval(self, *inputs: Interval) -> Interval:
        (x,), matrix = inputs, self.tile.input_matrix
        centre, radius = self._with(x.centre, matrix), self._with(x.radius, np.abs(matrix))
        return of_centre(centre, radius, terms=len(matrix), products=float(np.abs(matrix).max()) * x.magnitude)

    def lower(self, low: Lowering, node: Node) -> Lowered:
        x, n = low.value(node.inputs[0]), self.tile.size
        channels, height, width = x.shape
        _, rows, columns = low.graph.values[node.output].shape
        images, by_channel = (channels, 1, height, width), (channels, n * n, rows, columns)
        apart = interim(low, node, pb.Reshape(), [x], images, x.interval.reshape((1, *images)), "images")
        matrix = low.constant(node, "matrix", self.tile.input_matrix.reshape(n * n, 1, n, n), 0)
        by_place = self.interval(x.interval).reshape((n * n, channels, rows, columns))
        places = low.emit(
            node,
            pb.Conv2d(window=self.window.proto(), groups=1),
            [apart, matrix],
            shape=by_channel,
            scale=x.scale,
            interval=Interval(by_place.low.swapaxes(0, 1)[None], by_place.high.swapaxes(0, 1)[None]),
            name=f"{node.output}.tiles",
        )
        step = strides(by_channel)
        first = tuple(place * step[1] + channel * step[0] for place in range(n * n) for channel in range(channels))
        return _moved(low, node, places, Gather((first, _steps(rows, step[2]), _steps(columns, 1))))


@dataclass(frozen=True)
class TileProducts(Conv2d):
    """The products of a tile's places: a convolution of single elements, a group for each place."""

    tile: Tile = Tile(2, 3)
    typical: float = 1.0
    """The root mean square of the weight before it was transformed."""

    def lower(self, low: Lowering, node: Node) -> Lowered:
        op = pb.Conv2d(window=self.window.proto(), groups=self.groups)
        return emit_linear(low, node, op, self._further_bits(low))

    def _further_bits(self, low: Lowering) -> int:
        """So many that the layer's error from rounding is that of a plain convolution, or negligible."""
        loss = self.tile.loss
        if low.settings.fine_weights:
            return math.ceil(loss)
        error = math.ldexp(UNIFORM * 2.0**loss, -low.scale) / max(self.typical, np.finfo(float).tiny)
        return max(0, math.ceil(min(loss, math.log2(error / NEGLIGIBLE))))


@dataclass(frozen=True)
class Plain:
    """The convolution that three steps stand for: its input and weight by name, its window and groups."""

    x: str
    weight: str
    window: Window
    groups: int


@dataclass(frozen=True)
class TiledOutput(Op):
    """Aᵀ M A of each tile, side by side, cut to the image, plus an optional bias [O]: [N, O, H, W]. Local."""

    tile: Tile
    image: tuple[int, int]
    plain: Plain

    widens = True
    reads_wide = True

    def shape(self, *inputs: Value) -> Shape:
        return (inputs[0].shape[0] // self.tile.size**2, *self.image)

    def reference(self, *inputs: Array) -> Array:
        result = self._cut(self._with(inputs[0], self.tile.output_matrix))
        return result + inputs[1][:, None, None] if len(inputs) > 1 else result

    def _with(self, products: Array, matrix: Array) -> Array:
        """The places of each tile's outputs: [N, O, m², rows, columns]."""
        batch, _, rows, columns = products.shape
        flat = products.reshape(batch, self.tile.size**2, -1)
        places = np.matmul(matrix, flat).reshape(batch, len(matrix), -1, rows, columns)
        return np.asarray(places.swapaxes(1, 2))

    def _cut(self, places: Array) -> Array:
        """The tiles side by side, without what reaches over the image."""
        batch, outputs, _, rows, columns = places.shape
        m = self.tile.outputs
        apart = places.reshape(batch, outputs, m, m, rows, columns).transpose(0, 1, 4, 2, 5, 3)
        whole = apart.reshape(batch, outputs, rows * m, columns * m)
        return np.asarray(whole[..., : self.image[0], : self.image[1]])

    def _tiles(self, image: Array) -> Array:
        """What `_cut` puts side by side, of whole tiles."""
        batch, outputs, height, width = image.shape
        m = self.tile.outputs
        apart = image.reshape(batch, outputs, height // m, m, width // m, m).transpose(0, 1, 3, 5, 2, 4)
        return np.asarray(apart.reshape(batch, outputs, m * m, height // m, width // m))

    def interval(self, *inputs: Interval) -> Interval:
        places = self._of_products(inputs[0])
        cut = Interval(self._cut(places.low), self._cut(places.high))
        return cut + inputs[1].reshape((-1, 1, 1)) if len(inputs) > 1 else cut

    def _of_products(self, products: Interval) -> Interval:
        matrix = self.tile.output_matrix
        return of_centre(
            self._with(products.centre, matrix),
            self._with(products.radius, np.abs(matrix)),
            terms=len(matrix[0]),
            products=float(np.abs(matrix).max()) * products.magnitude,
        )

    def _of_inputs(self, low: Lowering, node: Node, scale: int) -> Interval:
        """Where the tiles' outputs lie by what they are: a convolution of x, but for the rounding of its weight.

        The products' intervals alone would give a hundred times as much.
        """
        plain, tile = self.plain, self.tile
        x = low.value(plain.x)
        (product,) = (each for each in low.graph.nodes if each.output == node.inputs[0])
        window = product_window(plain.window, tile, x.shape[-2:])
        weight = low.integers(plain.weight, scale)
        of_weight = Conv2d(window, plain.groups).interval(x.interval, Interval.constant(weight))
        exact = tile.transformed(weight).reshape(tile.size**2, len(weight), -1)
        rounded = low.integers(product.inputs[1], scale).reshape(exact.shape)
        # And what float64 may be off by, of sums of 25 products at most that add up to twice the largest weight.
        slack = np.ldexp(np.abs(weight).max(initial=0.0), -46)
        errors = (np.abs(rounded - exact) + slack).sum(axis=2)
        reach = np.abs(tile.output_matrix) * np.abs(tile.input_matrix).sum(axis=1)
        most = (reach @ errors).max(axis=0) * x.interval.magnitude * (1 + 2.0**-20)
        off = np.ceil(most)[:, None, None]
        widened = of_weight + Interval(-off, off)
        return Interval(self._tiles(widened.low), self._tiles(widened.high))

    def lower(self, low: Lowering, node: Node) -> Lowered:
        product, bias = low.value(node.inputs[0]), node.inputs[1:]
        n, m = self.tile.size, self.tile.outputs
        rows, columns = product.shape[1:]
        outputs, step = product.shape[0] // (n * n), strides(product.shape)
        along = (_steps(outputs, step[0]), _steps(n * n, outputs * step[0]), _steps(rows, step[1]), _steps(columns, 1))
        turned = _moved(low, node, product, Gather(along), f"{node.output}.products")
        matrix = low.constant(node, "matrix", self.tile.output_matrix.reshape(m * m, n * n, 1, 1), 0)
        found = self._of_products(product.interval)
        plain = self._of_inputs(low, node, product.scale - low.value(self.plain.x).scale)
        magnitude = low.magnitude_sum(node.output, *bias)
        places = low.emit(
            node,
            pb.Conv2d(window=Window((1, 1)).proto(), groups=1),
            [turned, matrix],
            shape=(outputs, m * m, rows, columns),
            scale=product.scale,
            interval=Interval(np.maximum(found.low, plain.low), np.minimum(found.high, plain.high)),
            name=f"{node.output}.tiles",
            magnitude=magnitude,
        )
        if not bias:
            return _moved(low, node, places, self._side_by_side(places.shape))
        image = _moved(low, node, places, self._side_by_side(places.shape), f"{node.output}.image", magnitude)
        # With half a unit of what the truncation behind leaves, as in `covey.linear`.
        integers = low.integers(bias[0], product.scale) + half_unit(low, node, product.scale)
        shift = low.whole_parameter(node, bias[0], integers.reshape(-1, 1, 1), product.scale)
        return low.emit(
            node,
            pb.Add(),
            [image, shift],
            shape=image.shape,
            scale=product.scale,
            interval=image.interval + shift.interval,
        )

    def _side_by_side(self, places: Shape) -> Gather:
        """`_cut` as a move of a sample of this shape."""
        m, step = self.tile.outputs, strides(places)
        height, width = (range(size) for size in self.image)
        return Gather(
            (
                _steps(places[0], step[0]),
                tuple(row % m * m * step[1] + row // m * step[2] for row in height),
                tuple(column % m * step[1] + column // m for column in width),
            )
        )


def _steps(count: int, step: int) -> tuple[int, ...]:
    return tuple(range(0, count * step, step))


def _moved(
    low: Lowering, node: Node, x: Lowered, move: Gather, name: str | None = None, magnitude: float | None = None
) -> Lowered:
    return low.emit(
        node,
        move.proto(),
        [x],
        shape=tuple(len(axis) for axis in move.axes),
        scale=x.scale,
        interval=move.interval(x.interval),
        name=name,
        magnitude=math.ldexp(x.interval.magnitude, -x.scale) if magnitude is None else magnitude,
    )


def product_window(window: Window, tile: Tile, image: Shape) -> Window:
    """The convolution's window, padded behind until whole tiles cover its outputs."""
    counts = tile.counts(*window.output(*image))
    top, left = window.pads[:2]
    bottom, right = (
        count * tile.outputs + tile.taps - 1 - size - before
        for count, size, before in zip(counts, image, (top, left), strict=True)
    )
    return Window(window.kernel, window.strides, (top, left, bottom, right))
