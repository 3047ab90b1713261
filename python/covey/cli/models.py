"""check, compile, explain: what needs a model file and nothing else."""

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
    ModelArgument,
    PartyCount,
    PreprocessLinear,
    Protocol,
    RoundBits,
    check_protocol,
    parse_range,
)
from covey.errors import OptionError

Trained = Annotated[
    Path, typer.Argument(metavar="MODEL", help="The trained model: .onnx, .pt2 of PyTorch, .keras, a SavedModel.")
]


def check(
    model: Trained,
    nodes: Annotated[bool, typer.Option("--nodes", help="List every node also where some cannot run.")] = False,
    as_json: Json = False,
) -> None:
    """Say of every node whether it is supported, rewritten or unsupported, and what stands in the way."""
    from covey.checked import check as check_model

    checked = check_model(model)
    if as_json:
        console.print_json(checked.to_json())
    else:
        console.out().print(checked.rendered(every_node=nodes))
    if not checked.ok:
        console.complain(str(checked.errors[0]))
        raise typer.Exit(1)


def compile_(
    model: Trained,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="MODEL.covey")] = None,
    calibration: Calibration = None,
    input_range: InputRange = None,
    truncation: Annotated[str, typer.Option(help="exact, ulp or probabilistic.")] = "exact",
    ring: Annotated[str, typer.Option(help="auto (32 or 64), or the number of bits.")] = "auto",
    scale: Annotated[int | None, typer.Option(help="Fractional bits; by default as many as fit.")] = None,
    public_weights: Annotated[bool, typer.Option(help="Let every party know the weights.")] = False,
    hide_features: Annotated[
        bool, typer.Option("--hide-features", help="Keep secret which feature each node of a tree compares.")
    ] = False,
    missing: Annotated[
        int | None, typer.Option(metavar="NUMBER", help="What stands for NaN, above all features: trees heed it.")
    ] = None,
    enforce_ranges: Annotated[
        bool,
        typer.Option("--enforce-ranges", help="Let the parties put inputs into their ranges, whoever shared them."),
    ] = False,
    drop_channels: Annotated[
        bool, typer.Option("--drop-channels", help="Drop channels that are always zero; parties see how many stay.")
    ] = False,
    keep_bn: Annotated[bool, typer.Option("--keep-bn", help="Leave batch normalisation unfolded.")] = False,
    winograd: Annotated[
        str,
        typer.Option(
            metavar="WHICH",
            help="Convolutions with fewer products: off, all, patterns of names (layer1*,conv2), or auto, for what "
            "then sends less between two parties by oblivious transfer.",
        ),
    ] = "off",
    division: Annotated[str, typer.Option(help="How averages divide: mul-shift or exact.")] = "mul-shift",
    max_error: Annotated[
        float,
        typer.Option(min=0, metavar="PERCENT", help="How far outputs may be from floating point on calibration data."),
    ] = 2.0,
    as_json: Json = False,
) -> None:
    """Compile a model: a public program, its secret weights and a report, three files."""
    from covey.compiled import compile as compile_model

    if output is not None and output.suffix != ".covey":
        raise OptionError(f"the program goes to a .covey file, not '{output}': use -o {output.with_suffix('.covey')}")
    compiled = compile_model(
        model,
        calibration=calibration,
        input_range=parse_range(input_range),
        truncation=truncation,  # type: ignore[arg-type]  # checked there
        ring=ring,
        scale=scale,
        public_weights=public_weights,
        keep_bn=keep_bn,
        drop_channels=drop_channels,
        hide_features=hide_features,
        missing=missing,
        enforce_ranges=enforce_ranges,
        winograd=winograd,
        division=division,  # type: ignore[arg-type]
        max_error=max_error / 100,
    )
    program, weights, report = compiled.save(output or model.with_suffix(".covey"))
    if as_json:
        files = {"program": str(program), "weights": str(weights), "report": str(report)}
        console.print_json({**compiled.report, "files": files})
        return
    console.out().print(compiled.rendered())
    console.say(f"{program}  the program: public, for every party and client")
    console.say(f"{weights}  the weights: secret, for their owner alone")
    console.say(f"{report}  this report")


def explain(
    model: ModelArgument,
    protocol: Protocol = "trio",
    parties: PartyCount = None,
    batch: Batch = 1,
    calibration: Calibration = None,
    input_range: InputRange = None,
    key_bits: KeyBits = None,
    linear: LinearMethod = None,
    preprocess_linear: PreprocessLinear = False,
    round_bits: RoundBits = 0,
    as_json: Json = False,
) -> None:
    """Say what a run protects, reveals and costs, before anything runs."""
    from covey.api import explain as explain_model

    explained = explain_model(
        model,
        check_protocol(protocol),
        parties=parties,
        batch=batch,
        calibration=calibration,
        input_range=parse_range(input_range),
        key_bits=key_bits,
        linear=linear,
        preprocess_linear=preprocess_linear,
        round_bits=round_bits,
    )
    if as_json:
        console.print_json(explained.to_json())
        return
    if explained.note:
        console.note(explained.note)
    console.out().print(explained.rendered())
