"""compare: what several models cost in several protocols."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from covey.cli import console
from covey.cli.options import (
    Batch,
    Calibration,
    InputRange,
    Json,
    KeyBits,
    LinearMethod,
    PartyCount,
    PreprocessLinear,
    RoundBits,
    parse_range,
)


def compare(
    models: Annotated[
        list[Path], typer.Argument(metavar="MODEL", help="Compiled .covey files, or trained models' files.")
    ],
    protocols: Annotated[
        str, typer.Option(metavar="NAMES", help="The protocols, separated by commas.")
    ] = "trio,quad,two-party,beaver",
    parties: PartyCount = None,
    batch: Batch = 1,
    calibration: Calibration = None,
    input_range: InputRange = None,
    key_bits: KeyBits = None,
    linear: LinearMethod = None,
    preprocess_linear: PreprocessLinear = False,
    round_bits: RoundBits = 0,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE.png", help="Draw the bytes (needs matplotlib).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what several models cost in several protocols, and which bytes linear layers take."""
    from covey.api import compare as compare_models
    from covey.plot import check_plot

    check_plot(plot)
    compared = compare_models(
        models,
        [name.strip() for name in protocols.split(",")],
        parties=parties,
        batch=batch,
        calibration=calibration,
        input_range=parse_range(input_range),
        key_bits=key_bits,
        linear=linear,
        preprocess_linear=preprocess_linear,
        round_bits=round_bits,
    )
    if plot is not None:
        compared.plot(plot)
    if as_json:
        console.print_json(compared.to_json())
        return
    for line in compared.notes:
        console.note(line)
    console.out().print(compared.rendered())
