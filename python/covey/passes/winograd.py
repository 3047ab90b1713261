"""Writes convolutions in Winograd's form: fewer products, more additions (`covey.ops.winograd`).

It pays where products are what is sent: between two parties that multiply by oblivious transfer. Where a product is
opened once it is summed up, or a lattice's polynomials multiply as a convolution does, it costs more than it saves.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

import numpy as np

from covey.errors import OptionError
from covey.ir import Graph, Node, Value
from covey.ops.conv import Conv2d
from covey.ops.window import Pair, Window
from covey.ops.winograd import Plain, Tile, TiledOutput, TileProducts, TransformedInput, product_window

TILES = {3: (Tile(2, 3), Tile(4, 3)), 5: (Tile(2, 5),)}
"""By the taps of a kernel. Larger tiles, and more taps, would take matrices of larger numbers."""

PLAIN = 1
"""A tile of one output is a plain convolution."""


def multiplications(outputs: Pair, taps: int, tile: int) -> int:
    """Products of one image and one channel with `taps` x `taps` taps, by tiles of `tile` x `tile` outputs."""
    height, width = Tile(tile, taps).counts(*outputs)
    return height * width * (tile + taps - 1) ** 2


def write_winograd(graph: Graph, names: Iterable[str]) -> None:
    """Rewrite the convolutions of these names, of which `obstacle` has nothing to say."""
    chosen = set(names)
    for node in [node for node in graph.nodes if node.name in chosen and _is_plain(node)]:
        if not obstacle(graph, node):
            _write(graph, node)


def written(graph: Graph) -> list[str]:
    """The names of convolutions that are written so."""
    return [node.name for node in graph.nodes if isinstance(node.op, TiledOutput)]


def candidates(graph: Graph) -> list[str]:
    """The names of convolutions that can be written so."""
    return list(dict.fromkeys(node.name for node in graph.nodes if _is_plain(node) and not obstacle(graph, node)))


def matching(graph: Graph, patterns: str) -> list[str]:
    """The candidates that a list of patterns names, such as `layer1*,layer2.0.conv2`. Raises `OptionError`."""
    convolutions = {node.name: node for node in graph.nodes if _is_plain(node)}
    possible, found = candidates(graph), set[str]()
    for pattern in (part.strip() for part in patterns.split(",")):
        named = [name for name in convolutions if fnmatchcase(name, pattern)]
        if not named:
            known = ", ".join(list(convolutions)[:4]) or "there is none"
            raise OptionError(f"no convolution is called '{pattern}': use off, auto, all or names, such as {known}")
        fitting = [name for name in named if name in possible]
        if not fitting:
            reason = obstacle(graph, convolutions[named[0]])
            raise OptionError(f"convolution '{named[0]}' has no Winograd form: {reason}; leave it out of --winograd")
        found.update(fitting)
    return [name for name in possible if name in found]


def obstacle(graph: Graph, node: Node) -> str:
    """What stands in the way of writing a convolution so; nothing, if it can be."""
    assert isinstance(node.op, Conv2d)
    window, x = node.op.window, graph.values[node.inputs[0]]
    if node.inputs[1] not in graph.parameters or any(name not in graph.parameters for name in node.inputs[2:]):
        return "its weight is computed"
    if len(x.shape) != 3:
        return f"its input {x} has more dimensions than an image"
    if window.strides != (1, 1):
        return f"its strides are {list(window.strides)}"
    if window.dilations != (1, 1):
        return f"its dilations are {list(window.dilations)}"
    if window.kernel[0] != window.kernel[1] or window.kernel[0] not in TILES:
        return f"its kernel is {window.kernel[0]} x {window.kernel[1]}"
    if best_tile(_image(graph, node), window.kernel[0]) is None:
        return "its result is so small that there are no fewer products"
    return ""


def best_tile(outputs: Pair, taps: int) -> Tile | None:
    """The tile with the fewest products, the smaller of equals; none, where a plain convolution has no more."""

    def products(tile: Tile) -> int:
        return multiplications(outputs, taps, tile.outputs)

    best = min(TILES[taps], key=products)
    return best if products(best) < multiplications(outputs, taps, PLAIN) else None


def _is_plain(node: Node) -> bool:
    return isinstance(node.op, Conv2d) and not isinstance(node.op, TileProducts)


def _image(graph: Graph, node: Node) -> Pair:
    height, width = graph.values[node.output].shape[-2:]
    return height, width


def _write(graph: Graph, node: Node) -> None:
    op = node.op
    assert isinstance(op, Conv2d)
    name, weight_name, *bias = node.inputs
    image, x = _image(graph, node), graph.values[name]
    tile = best_tile(image, op.window.kernel[0])
    assert tile is not None
    weight = graph.parameters[weight_name]
    transform = TransformedInput(tile, product_window(op.window, tile, x.shape[-2:]).pads)
    places = graph.add_value(Value(graph.fresh(f"{node.output}.transformed"), transform.shape(x)))
    transformed = graph.add_parameter(f"{weight_name}.transformed", tile.transformed(weight))
    typical = float(np.sqrt(np.mean(weight**2)))
    multiply = TileProducts(Window((1, 1)), op.groups * tile.size**2, tile, typical)
    products = graph.add_value(Value(graph.fresh(f"{node.output}.products"), multiply.shape(places, transformed)))
    output = TiledOutput(tile, image, Plain(name, weight_name, op.window, op.groups))
    made = [
        Node(node.name, node.source_op, transform, [name], places.name),
        Node(node.name, node.source_op, multiply, [places.name, transformed.name], products.name),
        Node(node.name, node.source_op, output, [products.name, *bias], node.output),
    ]
    at = next(index for index, other in enumerate(graph.nodes) if other is node)
    graph.nodes[at : at + 1] = made
    before, after = (multiplications(image, tile.taps, size) for size in (PLAIN, tile.outputs))
    graph.note_more(
        node,
        f"Winograd's form, tiles of {tile.outputs} x {tile.outputs} outputs: {before / after:.2f} times fewer products",
    )
