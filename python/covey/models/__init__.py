"""Standard networks with seeded, untrained weights as ONNX, for verifying and timing Covey.

    model = covey.models.build("resnet18", shape="cifar")
    images = covey.models.samples("cifar", 4)
    bert = covey.models.find("bert-base", sequence=128, layers=1)
    model, inputs = bert.build(), bert.samples(4)

| model | mnist 1×28×28 | cifar 3×32×32 | tinyimagenet 3×64×64 | imagenet 3×224×224 |
|---|---|---|---|---|
| lenet5 | yes | yes | | |
| alexnet, vgg11, vgg16, vgg19 | | yes | yes | yes |
| resnet18, resnet34, resnet50, resnet101, resnet152 | | yes | yes | yes |
| squeezenet, densenet121, shufflenetv2, efficientnet-b0 | | yes | yes | yes |
| mobilenetv2, mobilenetv3-small, mobilenetv3-large | | yes | yes | yes |
| resnet32, minionn | | yes | | |

Their classes are ten, 200 on tinyimagenet and a thousand on imagenet, or any number by `classes`. Pooling between
layers is `max` or `avg`. Networks with an average over the map before their classifier take images of any `size`: all
but lenet5, alexnet, VGGs and minionn. ResNets but resnet32, densenet121, MobileNets, shufflenetv2 and efficientnet-b0
have four forms of their convolutions (`covey.models.forms`), by `operator`: dense, factorised, shuffle and x. A `width`
of 0.5 gives ResNets but resnet32, and shufflenetv2, half of their channels throughout.

| model | reads | gives | layers |
|---|---|---|---|
| bert-base, bert-large | token ids and a mask [N, S] | the last hidden state [N, S, H] | 12, 24 |
| bert-base-layer, xlm-layer | hidden states [N, S, H] | the same | 1 |
| vit-b | an image 3×224×224 | a thousand classes | 12 |
| gpt2 | one token, and what a session carries of those before it | the next token | 12 |

S is the `sequence`; fewer `layers` make a smaller model. The same call gives the same model, bit for bit.
"""

from __future__ import annotations

import onnx

from covey.errors import OptionError
from covey.models.architectures import Pool
from covey.models.counting import multiplications
from covey.models.forms import OPERATORS, Operator
from covey.models.images import Floats, pseudo_images
from covey.models.network import Network
from covey.models.specs import (
    MODELS,
    SAMPLE_SEED,
    SHAPES,
    TRANSFORMERS,
    Architecture,
    ImageSpec,
    Samples,
    Spec,
    TransformerSpec,
    find,
)

__all__ = [
    "MODELS",
    "OPERATORS",
    "SAMPLE_SEED",
    "SHAPES",
    "TRANSFORMERS",
    "Architecture",
    "Floats",
    "ImageSpec",
    "Network",
    "Operator",
    "Pool",
    "Samples",
    "Spec",
    "TransformerSpec",
    "build",
    "find",
    "multiplications",
    "pseudo_images",
    "samples",
]


def build(
    model: str,
    shape: str | None = None,
    pool: Pool | None = None,
    *,
    sequence: int | None = None,
    layers: int | None = None,
    operator: Operator | None = None,
    size: int | None = None,
    classes: int | None = None,
    width: float | None = None,
) -> onnx.ModelProto:
    """A model of the zoo, by default of the smallest shape. Raises `OptionError` for one there is not."""
    return find(
        model, shape, pool, sequence, layers, operator=operator, size=size, classes=classes, width=width
    ).build()


def samples(shape: str, count: int, seed: int = SAMPLE_SEED) -> Floats:
    """`count` pseudo-images of a shape, none of them from the batch that networks are built with."""
    if shape not in SHAPES:
        raise OptionError(f"shape '{shape}' is unknown: use {', '.join(SHAPES)}")
    return pseudo_images(count, SHAPES[shape], seed)
