"""PyTorch modules made for private inference, and rewriting a model to use them.

Ganesan and others (arXiv:2209.00411) build networks from operators with few multiplications: additions, permutations of
channels and concatenations are local to each party. `rewrite` puts them in place of a model's convolutions:

    rewritten = covey.nn.rewrite(model, "x", example_inputs=images)
    print(rewritten)
    train(rewritten.model)

`ZooNetwork` makes networks of `covey.models` trainable.

All are ordinary modules: `torch.export`, `torch.onnx.export` and `covey.compile` take them. Needs PyTorch.
"""

try:
    import torch as _torch  # noqa: F401
except ImportError:
    raise ImportError("covey.nn needs PyTorch, which is not installed: pip install 'covey[torch]'") from None

from covey.nn.operators import (
    ChannelShuffle,
    FactorisedConv2d,
    GroupedPointwiseConv2d,
    ParallelShuffle,
    ShuffleBlock,
    ShuffleConv2d,
    XConv2d,
    XOperator,
)
from covey.nn.rewriting import Change, Rewritten, rewrite
from covey.nn.zoo_network import ZooNetwork

__all__ = [
    "Change",
    "ChannelShuffle",
    "FactorisedConv2d",
    "GroupedPointwiseConv2d",
    "ParallelShuffle",
    "Rewritten",
    "ShuffleBlock",
    "ShuffleConv2d",
    "XConv2d",
    "XOperator",
    "ZooNetwork",
    "rewrite",
]
