"""DepthToSpace and SpaceToDepth: channels become blocks of pixels, and blocks channels. Nothing is exchanged."""

from __future__ import annotations

import itertools

from covey.importers.onnx_node import OnnxNode, from_onnx
from covey.importers.torch_node import TorchNode, from_torch
from covey.ir import Value
from covey.ops.gather import Gather, strides

MODES = ("DCR", "CRD")
"""Depth, column, row, or the other way round: the order of channels and places in a block."""


@from_onnx("DepthToSpace")
def _depth_to_space(node: OnnxNode) -> None:
    x = _image(node)
    block, mode = int(node.attribute("blocksize", 1)), node.attribute("mode", "DCR")
    channels, height, width = x.shape
    if block < 1 or channels % block**2:
        raise node.unsupported(f"blocks of {block} by {block} do not divide the {channels} channels", "repair it")
    if mode not in MODES:
        raise node.unsupported(f"its mode is '{mode}'", "use DCR or CRD")
    step, kept = strides(x.shape), channels // block**2
    # Channel (row in block, column in block, channel), or with the channel in front.
    row, column, channel = (block * kept, kept, 1) if mode == "DCR" else (block, 1, block**2)
    move = Gather(
        (
            tuple(c * channel * step[0] for c in range(kept)),
            tuple(h * step[1] + i * row * step[0] for h in range(height) for i in range(block)),
            tuple(w + j * column * step[0] for w in range(width) for j in range(block)),
        )
    )
    node.emit(move, [x], dtype=x.dtype)


@from_onnx("SpaceToDepth")
def _space_to_depth(node: OnnxNode) -> None:
    x = _image(node)
    block, mode = int(node.attribute("blocksize", 1)), node.attribute("mode", "DCR")
    channels, height, width = x.shape
    if mode not in MODES:
        raise node.unsupported(f"its mode is '{mode}'", "use DCR or CRD")
    if block < 1 or height % block or width % block:
        raise node.unsupported(f"blocks of {block} by {block} do not divide {x}", "use images that they divide")
    step, inside = strides(x.shape), range(block)
    # (row in block, column in block, channel), or with the channel in front.
    offsets = [[c * step[0] + i * step[1] + j for c in range(channels)] for i in inside for j in inside]
    order = offsets if mode == "DCR" else list(zip(*offsets, strict=True))
    move = Gather(
        (
            tuple(itertools.chain.from_iterable(order)),
            tuple(h * block * step[1] for h in range(height // block)),
            tuple(w * block for w in range(width // block)),
        )
    )
    node.emit(move, [x], dtype=x.dtype)


def _image(node: OnnxNode) -> Value:
    x = node.activation(0, index_allowed=True)
    if len(x.shape) != 3:
        raise node.unsupported(f"its input {x} is not [N, C, H, W]", "reshape it before")
    return x


@from_torch("aten.pixel_shuffle.default")
def _pixel_shuffle_aten(node: TorchNode) -> None:
    (factor,) = node.integers("upscale_factor")
    node.become("DepthToSpace", node.activation("self"), blocksize=factor, mode="CRD")
