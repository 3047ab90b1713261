"""Where a model has the batch, and where a Reshape may have it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from covey.importers.onnx_node import BATCH
from covey.ir import Shape, Value


@dataclass(frozen=True)
class Layout:
    """Where the model has the batch: see `Value`."""

    at: int
    merged: int = 1
    first: int = 0

    @property
    def place(self) -> int:
        """The model's dimension that holds the batch."""
        return self.first if self.merged > 1 else self.at

    def apart(self, place: int) -> int:
        """Another of the model's dimensions, counted with those apart that are merged."""
        return place + (self.merged - 1) * (place > self.place)

    def behind(self, place: int) -> int:
        """The same dimension of the value behind the model's one."""
        axis = self.apart(place)
        return axis + 1 if axis < self.at else axis

    def shifted(self, dimensions: int) -> Layout:
        """With so many more dimensions in front."""
        return Layout(self.at + dimensions, self.merged, self.first + dimensions if self.merged > 1 else 0)


FIRST = Layout(0)
"""The batch is first and alone, as in every graph."""


def layout_of(value: Value) -> Layout:
    return Layout(value.at, value.merged, value.first)


BEHIND = ".batch_first"
"""Ends the names of values that stand behind a model's own, which have the batch elsewhere."""

Place = tuple[Layout, Shape]
"""Where the batch is, and the shape of a sample behind it."""


def reshaped(x: Value, wanted: list[int], copies: bool, exported: int | None) -> list[Place]:
    """Where a Reshape of x to `wanted` may have the batch, the likeliest place first, if its samples stay whole.

    Several places are left only if the model was exported with one sample: a size of 1 or of a neighbour may hold it.
    """
    dims = x.dims(BATCH)
    target = [dims[i] if size == 0 and copies and i < len(dims) else size for i, size in enumerate(wanted)]
    if target.count(-1) > 1:
        return []
    sizes = [(batch, full) for batch in filter(None, (BATCH, exported)) if (full := _filled(target, batch * x.size))]
    if exported == 1:
        found = [place for batch, full in sizes for place in _alone(x, full, batch)]
        found += [place for batch, full in sizes for place in _merged(x, full, batch)]
        return list(dict.fromkeys(found))
    found = [place for batch, full in sizes for place in (*_alone(x, full, batch), *_merged(x, full, batch))]
    return found[:1]


def _filled(target: list[int], total: int) -> list[int]:
    """The target without its -1; empty if it does not have so many elements."""
    sizes = list(target)
    known = prod(size for size in sizes if size != -1)
    if -1 in sizes and known > 0 and total % known == 0:
        sizes[sizes.index(-1)] = total // known
    return sizes if prod(sizes) == total and min(sizes, default=1) >= 1 else []


def _alone(x: Value, sizes: list[int], batch: int) -> list[Place]:
    """Dimensions that are the batch, the nearest to where it was first."""
    before, behind = prod(x.shape[: x.at]), prod(x.shape[x.at :])
    places = [
        at
        for at, size in enumerate(sizes)
        if size == batch and prod(sizes[:at]) == before and prod(sizes[at:]) == batch * behind
    ]
    places.sort(key=lambda at: abs(at - x.at))
    return [(Layout(at), (*sizes[:at], *sizes[at + 1 :])) for at in places]


def _merged(x: Value, sizes: list[int], batch: int) -> Iterator[Place]:
    """Dimensions that the batch is merged in. What is merged with it is one dimension on either side of it."""
    before, behind = prod(x.shape[: x.at]), prod(x.shape[x.at :])
    for first, size in enumerate(sizes):
        lead, tail = before // prod(sizes[:first]), behind // prod(sizes[first + 1 :])
        if lead * tail > 1 and size == lead * batch * tail and prod(sizes[:first]) * lead == before:
            parts = [(lead,) * (lead > 1), (tail,) * (tail > 1)]
            layout = Layout(first + len(parts[0]), 1 + sum(map(len, parts)), first)
            yield layout, (*sizes[:first], *parts[0], *parts[1], *sizes[first + 1 :])
