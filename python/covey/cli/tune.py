"""tune: the smallest scale and ring that keep the accuracy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from covey.cli import console
from covey.cli.models import Trained
from covey.cli.options import Calibration, InputRange, Json, Protocol, check_protocol, parse_range
from covey.errors import OptionError


def tune(
    model: Trained,
    data: Annotated[Path, typer.Option(metavar="X.npy", help="Validation samples.")],
    labels: Annotated[
        Path | None, typer.Option(metavar="Y.npy", help="Their classes; by default what the float model answers.")
    ] = None,
    protocol: Protocol = "trio",
    tolerance: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=100,
            metavar="PERCENT",
            help="Points that the accuracy may lose (0.2), or how far outputs without classes may be off (1).",
        ),
    ] = None,
    regression: Annotated[
        bool, typer.Option("--regression", help="The first output [N, K] is numbers, not scores of K classes.")
    ] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="MODEL.covey")] = None,
    calibration: Calibration = None,
    input_range: InputRange = None,
    as_json: Json = False,
) -> None:
    """Find the smallest scale and ring that keep the accuracy, or the outputs, and record it in the program."""
    from covey.api import tune as tune_model

    kind = check_protocol(protocol)
    if output is not None and output.suffix != ".covey":
        raise OptionError(f"the program goes to a .covey file, not '{output}': use -o {output.with_suffix('.covey')}")
    with console.progress(quiet=as_json) as report:
        tuned = tune_model(
            model,
            data,
            labels,
            protocol=kind,
            tolerance=None if tolerance is None else tolerance / 100,
            regression=regression,
            calibration=calibration,
            input_range=parse_range(input_range),
            progress=report,
        )
    files = tuned.compiled.save(output or model.with_suffix(".covey"))
    if as_json:
        paths = dict(zip(("program", "weights", "report"), map(str, files), strict=True))
        console.print_json({**tuned.to_json(), "files": paths})
        return
    console.out().print(tuned.rendered())
    for path in files:
        console.say(str(path))
