"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from covey.errors import OptionError
from covey.protocols import PROTOCOLS, protocol

ModelArgument = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL", help="A compiled .covey file, or a trained model: .onnx, .pt2, .keras, a SavedModel."
    ),
]
Weights = Annotated[
    Path | None, typer.Option(help="The weights file; by default the .weights.safetensors beside the model.")
]
Calibration = Annotated[
    Path | None,
    typer.Option(metavar="X.npy", help="Sample inputs that bounds and ranges are taken from (for trained models)."),
]
InputRange = Annotated[
    str | None, typer.Option(metavar="LOW,HIGH", help="What the inputs lie between (for trained models), such as 0,1.")
]
Protocol = Annotated[str, typer.Option(help="; ".join(info.help for info in PROTOCOLS.values()) + ".")]
ServedProtocol = Annotated[
    str | None,
    typer.Option(
        "--protocol",
        help="; ".join(info.help for info in PROTOCOLS.values() if info.served)
        + ". By default what the file says, or else what the parties that it lists are for.",
    ),
]
PartyCount = Annotated[
    int | None,
    typer.Option(
        "--parties", metavar="N", help="How many parties compute, beside the dealer (beaver: 2 to 8, else 2)."
    ),
]
Batch = Annotated[int, typer.Option(min=1, help="Samples in one inference.")]
RoundBits = Annotated[
    int,
    typer.Option(min=0, max=24, metavar="N", help="Outputs lose N bits, as the parties' `round_bits` makes them."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
KeyBits = Annotated[
    int | None,
    typer.Option(
        min=2,
        max=64,
        metavar="N",
        help="Approximate comparisons of N bits: values near 0 pass for either sign.",
    ),
]
LinearMethod = Annotated[
    str | None,
    typer.Option(
        "--linear",
        metavar="NAME",
        help="How two parties multiply by weights: ot, lattice, or auto for the faster one of each layer.",
    ),
]
PreprocessLinear = Annotated[
    bool,
    typer.Option(
        "--preprocess-linear",
        help="Two parties: layers by lattice encryption multiply random masks ahead, and send one element an input.",
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="What parties on this machine compute linear layers on: cpu, cuda, cuda:<number>, or auto, the default, "
        "for a GPU where there is one.",
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="How many threads each party on this machine computes on; by default the processors, shared among them.",
    ),
]
Lanes = Annotated[
    int | None,
    typer.Option(min=1, max=8, metavar="K", help="Split the inputs into K mini-batches and compute them side by side."),
]
AtOnce = Annotated[
    int | None,
    typer.Option(
        "--at-once",
        min=1,
        metavar="N",
        help="Samples under way at a time; the others follow in further runs. By default as many as are planned to "
        "take 4 GB of a party's memory.",
    ),
]
LaneRoles = Annotated[
    str | None,
    typer.Option(
        "--roles",
        metavar="fixed|turned",
        help="turned: the parties take all roles in turn, lane by lane, and load their networks alike. By default what "
        "suits the links in client.toml.",
    ),
]
InputFile = Annotated[
    Path, typer.Option("--input", metavar="X.npy", help="The inputs, [N, ..]: .npy, or .npz by input name.")
]
OutputFile = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="Y.npy", help="Where the outputs go: .npy, or .npz by name.")
]


def parse_range(text: str | None) -> tuple[float, float] | None:
    """The two numbers of --input-range. Raises `OptionError`."""
    if text is None:
        return None
    parts = text.split(",")
    try:
        low, high = (float(part) for part in parts)
    except ValueError:
        raise OptionError(f"input range '{text}' is not two numbers: write it as low,high, such as 0,1") from None
    return low, high


def check_protocol(name: str) -> str:
    """A protocol's name. Raises `OptionError` for one nobody has heard of."""
    return protocol(name).name


def check_served(name: str) -> str:
    """The name of a protocol that runs among servers. Raises `OptionError`."""
    if not protocol(name).served:
        served = " or ".join(known for known, info in PROTOCOLS.items() if info.served)
        raise OptionError(f"{name} has no parties: use {served}")
    return name
