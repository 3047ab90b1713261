"""Small whole powers, which are products of a value with itself."""

from __future__ import annotations

import numpy as np

from covey.importers.onnx_node import OnnxNode, from_onnx
from covey.ops.mul import Mul


@from_onnx("Pow")
def _pow(node: OnnxNode) -> None:
    x = node.activation(0, "base")
    exponents = np.unique(node.constant(1, "exponent").astype(np.float64))
    if exponents.size != 1 or exponents[0] not in (1.0, 2.0, 3.0):
        shown = ", ".join(f"{exponent:g}" for exponent in exponents[:4])
        raise node.unsupported(f"it raises to the power {shown}", "only the powers 1, 2 and 3 are supported")
    if exponents[0] == 1.0:
        node.alias(x)
        node.note("removed: it raises to the power 1")
        return
    if exponents[0] == 2.0:
        node.emit(Mul(), [x, x])
    else:
        node.emit(Mul(), [node.emit(Mul(), [x, x], output=f"{node.outputs[0]}.square"), x])
    node.note("a product of the value with itself")
