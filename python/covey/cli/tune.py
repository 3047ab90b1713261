"""tune: the smallest scale and ring that keep the accuracy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from covey.cli import console
from covey.cli.models import Trained
from covey.cli.options import Calibration, InputRange, Json, Protocol, check_protocol, parse_range
from covey.errors import OptionError
from covey.protocols import PROTOCOLS

if TYPE_CHECKING:
    from covey.goals import Attempt
    from covey.tune import Tuned


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
    """Find the smallest scale and ring that keep the accuracy, or the outputs, and certify it in the program."""
    from covey.certificate import read_labels
    from covey.compile import RINGS, prepare
    from covey.data import check_within, read_samples
    from covey.goals import Validation
    from covey.tune import tune as search

    kind = check_protocol(protocol)
    if output is not None and output.suffix != ".covey":
        raise OptionError(f"the program goes to a .covey file, not '{output}': use -o {output.with_suffix('.covey')}")
    prepared = prepare(model, calibration=calibration or data, input_range=parse_range(input_range))
    inputs = read_samples(data, prepared.graph, "validation")
    check_within(inputs, prepared.ranges)
    count = len(next(iter(inputs.values())))
    classes = read_labels(labels, count) if labels is not None else None
    rings = [ring for ring in PROTOCOLS[kind].rings if ring in RINGS]
    validation = Validation(inputs, classes, data.name)
    with console.progress(quiet=as_json) as report:
        allowed = None if tolerance is None else tolerance / 100
        tuned = search(prepared, validation, rings=rings, tolerance=allowed, regression=regression, progress=report)
    files = tuned.compiled.save(output or model.with_suffix(".covey"))
    if as_json:
        paths = dict(zip(("program", "weights", "report"), map(str, files), strict=True))
        chosen = {key: tuned.compiled.report[key] for key in ("program_hash", "scale", "ring_bits")}
        console.print_json({**chosen, **tuned.compiled.report["tuning"], "files": paths})
        return
    _print(tuned, kind)
    for path in files:
        console.say(str(path))


def _print(tuned: Tuned, protocol: str) -> None:
    report = tuned.compiled.report
    out = console.out()
    correct = tuned.float_correct
    accuracy = "" if correct is None else f", float accuracy {correct / tuned.samples:.2%}"
    out.print(f"{report['model']}: {tuned.samples} validation samples{accuracy}\n")
    columns = _errors if correct is None else _accuracies
    out.print(columns("scales, in 64 bits", "scale", [(a.scale, a) for a in tuned.scales], tuned, report["scale"]))
    out.print()
    title = f"rings that {protocol} computes in, at scale {report['scale']}"
    out.print(columns(title, "bits", [(a.ring, a) for a in tuned.rings], tuned, report["ring_bits"]))
    found = tuned.certificate
    kept = (
        f"outputs {found.relative_error:.2%} off"
        if correct is None
        else f"accuracy {_share(found.fixed_correct, tuned)}"
    )
    out.print(
        f"\nchosen: scale {report['scale']} in Z_2^{report['ring_bits']}, {kept}; the program holds a certificate of it"
    )


def _share(correct: int, tuned: Tuned) -> str:
    return f"{correct / tuned.samples:.2%}"


def _accuracies(title: str, key: str, rows: list[tuple[int, Attempt]], tuned: Tuned, chosen: int) -> Any:
    right = "right" if tuned.certificate.labelled else "as the float model"
    table = console.table(title, [], [key, right, "accuracy", "against float"])
    table.add_column("", overflow="fold", max_width=50)
    for number, attempt in rows:
        if attempt.correct is None:
            table.add_row(str(number), "-", "-", "-", console.cell(attempt.why_not))
            continue
        change = (attempt.correct - (tuned.float_correct or 0)) / tuned.samples
        mark = "chosen" if number == chosen else ""
        table.add_row(str(number), str(attempt.correct), _share(attempt.correct, tuned), f"{100 * change:+.2f}", mark)
    return table


def _errors(title: str, key: str, rows: list[tuple[int, Attempt]], tuned: Tuned, chosen: int) -> Any:
    table = console.table(title, [], [key, "off float, relative L2"])
    table.add_column("", overflow="fold", max_width=50)
    for number, attempt in rows:
        error = "-" if attempt.error is None else f"{attempt.error:.3%}"
        mark = attempt.why_not or ("chosen" if number == chosen else "")
        table.add_row(str(number), error, console.cell(mark))
    return table
