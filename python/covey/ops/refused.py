"""Operators with a reason of their own for being refused."""

from __future__ import annotations

from covey.importers.onnx_node import OnnxNode, from_onnx
from covey.importers.replacements import NORMALISE


@from_onnx("LRN")
def _local_response_normalization(node: OnnxNode) -> None:
    raise node.unsupported(
        "local response normalisation divides by a power of secret sums, which Covey has no secure form of",
        NORMALISE,
    )
