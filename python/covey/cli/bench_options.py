"""Options that commands of `covey bench` share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from covey.bench.networks import NETWORKS

BALANCED = "balanced"
"""Where communication takes as long as computation without pipelines, among the names of networks."""

ModelName = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="lenet5, alexnet, vgg11/16/19, resnet18/32/34/50/101/152, squeezenet, densenet121, mobilenetv2, "
        "mobilenetv3-small, mobilenetv3-large, shufflenetv2, efficientnet-b0 or minionn; "
        "bert-base, bert-large, bert-base-layer, xlm-layer, vit-b or gpt2.",
    ),
]
Shape = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Of images: mnist, cifar, tinyimagenet or imagenet; by default the network's own."
    ),
]
Operator = Annotated[
    str | None,
    typer.Option(
        "--operator",
        metavar="NAME",
        help="Of ResNets, densenet121, MobileNets, shufflenetv2 and efficientnet-b0: what stands in place of dense "
        "convolutions: dense, factorised, shuffle or x; by default what the network was published with.",
    ),
]
Size = Annotated[
    int | None,
    typer.Option(metavar="PIXELS", help="The side of square images, for networks that take any, from 32 to 1024."),
]
Classes = Annotated[int | None, typer.Option(metavar="N", help="Logits of a network of images.")]
Width = Annotated[
    float | None,
    typer.Option(metavar="PART", help="Channels of a ResNet or shufflenetv2, as a part of those published."),
]
Protocols = Annotated[
    str | None, typer.Option("--protocols", metavar="NAMES", help="The protocols, separated by commas.")
]
Rows = Annotated[
    str | None,
    typer.Option(
        "--rows", metavar="NAMES", help="Rows of a table, separated by commas, such as DD,SX,SXW or vgg16-cifar."
    ),
]
Cores = Annotated[
    int | None,
    typer.Option(
        "--cores", metavar="N", min=1, help="How many cores each party is planned to compute on; by default one."
    ),
]
Side = Annotated[int | None, typer.Option("--size", metavar="PIXELS", help="The side of square images.")]
Images = Annotated[
    int | None, typer.Option("--batch", metavar="N", min=1, help="Images of one inference, in place of the table's.")
]
Pool = Annotated[str | None, typer.Option(metavar="KIND", help="max or avg, for convolutional networks.")]
Sequence = Annotated[
    int | None,
    typer.Option(help="Tokens of a Transformer's sequence, or of GPT-2's context; by default 128, xlm-layer's 512."),
]
Layers = Annotated[int | None, typer.Option(help="A Transformer's layers, where fewer will do.")]
Batch = Annotated[int, typer.Option(min=1, help="Samples in one inference.")]
Ring = Annotated[str, typer.Option(metavar="BITS", help="auto, 32 or 64.")]
Network = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="loopback; or emulated: " + ", ".join(list(NETWORKS)[1:]) + ", or any rate in Gbit/s such as 2.5g.",
    ),
]
NetworkOrBalanced = Annotated[
    str, typer.Option(metavar="NAME", help="The network to choose for; balanced, or as for the others.")
]
Networks = Annotated[
    list[str] | None,
    typer.Option("--network", metavar="NAME", help="As for the others; 1g by default. May be given several times."),
]
NetworksOrBalanced = Annotated[
    list[str] | None,
    typer.Option(
        "--network",
        metavar="NAME",
        help="As for the others, a rate such as 2.5g, or balanced: where communication takes as long as computation "
        "without pipelines. May be given several times.",
    ),
]
Phase = Annotated[str, typer.Option(metavar="NAME", help="joint; or online: preprocessing apart, before each run.")]
ModelPhase = Annotated[
    str,
    typer.Option(
        "--phase",
        metavar="NAME",
        help="joint; online: preprocessing apart, before each run; or stored: the same, on disk (covey store).",
    ),
]
Adder = Annotated[
    str | None,
    typer.Option(
        "--adder",
        "--comparison",
        metavar="NAME",
        help="How comparisons are done: auto, fewest-bytes (of lattice encryption too), balanced, fewest-rounds, "
        "digits, log-depth or ripple.",
    ),
]
Repetitions = Annotated[int, typer.Option(min=1, help="How often each is measured.")]
MedianRepetitions = Annotated[int, typer.Option(min=1, help="How often each is measured; medians are shown.")]
WarmUp = Annotated[int, typer.Option(min=0, help="Runs before that, which do not count.")]
Check = Annotated[bool, typer.Option("--check/--no-check", help="Compare the first inference with clear.")]
Cache = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="Where built models are kept; by default ~/.cache/covey/bench.")
]
