"""The operators, one file each: shape rule, float reference, interval rule, quantised form, and their ONNX names.

Importing this package fills `covey.importers.onnx_node.IMPORTERS`.
"""

from covey.ops import (
    add,
    arg_max,
    average_pool,
    batch_normalization,
    clip,
    concat,
    conv,
    dense,
    identity,
    matmul,
    max_pool,
    mul,
    pad,
    reduce_mean,
    relu,
    reshape,
    softmax,
    sub,
    transpose,
)

__all__ = [
    "add",
    "arg_max",
    "average_pool",
    "batch_normalization",
    "clip",
    "concat",
    "conv",
    "dense",
    "identity",
    "matmul",
    "max_pool",
    "mul",
    "pad",
    "reduce_mean",
    "relu",
    "reshape",
    "softmax",
    "sub",
    "transpose",
]
