"""verify: does the private run compute what it should?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from covey.cli import console
from covey.cli.options import (
    Calibration,
    Device,
    InputRange,
    Json,
    KeyBits,
    LinearMethod,
    ModelArgument,
    PartyCount,
    Protocol,
    Weights,
    check_protocol,
    parse_range,
)
from covey.cli.run import Timeout


def verify(
    model: ModelArgument,
    protocol: Protocol = "trio",
    parties: PartyCount = None,
    samples: Annotated[int, typer.Option(min=1, help="How many samples to run.")] = 8,
    float_model: Annotated[
        Path | None,
        typer.Option("--model", metavar="MODEL", help="The float model that it came from: .onnx, .pt2, .keras .."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="X.npy", help="Samples; by default random ones in the declared range.")
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(metavar="Y.npy", help="The samples' classes, to measure an accuracy record again.")
    ] = None,
    layers: Annotated[bool, typer.Option("--layers", help="Show the error layer by layer.")] = False,
    weights: Weights = None,
    calibration: Calibration = None,
    input_range: InputRange = None,
    timeout: Timeout = 10.0,
    key_bits: KeyBits = None,
    linear: LinearMethod = None,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Run a model privately and compare it with the specification and with floating point."""
    from covey.api import verify as verify_model

    with console.progress(quiet=as_json) as report:
        verdict = verify_model(
            model,
            check_protocol(protocol),
            parties=parties,
            samples=samples,
            float_model=float_model,
            data=data,
            labels=labels,
            layers=layers,
            weights=weights,
            calibration=calibration,
            input_range=parse_range(input_range),
            timeout=timeout,
            key_bits=key_bits,
            linear=linear,
            device=device,
            progress=report,
        )
    if as_json:
        console.print_json(verdict.to_json())
    else:
        console.out().print(verdict.rendered())
    if verdict.failure is not None:
        console.complain(verdict.failure)
        raise typer.Exit(1)
