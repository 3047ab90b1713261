"""run: one inference with the parties on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from covey.cli import console
from covey.cli.options import (
    AtOnce,
    Calibration,
    Device,
    InputFile,
    InputRange,
    Json,
    KeyBits,
    LaneRoles,
    Lanes,
    LinearMethod,
    ModelArgument,
    OutputFile,
    PartyCount,
    Protocol,
    Threads,
    Weights,
    check_protocol,
    parse_range,
)
from covey.errors import OptionError
from covey.protocols import PROTOCOLS, device_option, session_options, threads_option

ProfileFlag = Annotated[bool, typer.Option("--profile", help="Show time, bytes and rounds node by node.")]
PlotFile = Annotated[
    Path | None, typer.Option("--plot", metavar="FILE.png", help="Draw time and bytes node by node (needs matplotlib).")
]
Local = Annotated[bool, typer.Option("--local", help="Run the parties as processes on this machine.")]
Timeout = Annotated[float, typer.Option(min=0.5, max=600, help="Seconds a silent party is waited for.")]


def run(
    model: ModelArgument,
    input_file: InputFile,
    local: Local = False,
    protocol: Protocol = "trio",
    parties: PartyCount = None,
    output: OutputFile = None,
    weights: Weights = None,
    calibration: Calibration = None,
    input_range: InputRange = None,
    profile: ProfileFlag = False,
    plot: PlotFile = None,
    timeout: Timeout = 10.0,
    key_bits: KeyBits = None,
    linear: LinearMethod = None,
    lanes: Lanes = None,
    at_once: AtOnce = None,
    roles: LaneRoles = None,
    device: Device = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Run a model on inputs, with all parties as processes on this machine."""
    from covey.cli.outputs import check_output_path, show
    from covey.inputs import read_inputs
    from covey.model import load
    from covey.parties import local as local_parties
    from covey.plot import check_plot

    kind = check_protocol(protocol)
    if kind != "clear" and not local:
        raise OptionError(
            "say --local to run the parties on this machine; for parties on other machines there is "
            "`covey infer --config client.toml`"
        )
    if kind == "clear" and at_once is not None:
        raise OptionError("--at-once is for private runs: leave it out with --protocol clear")
    count = PROTOCOLS[kind].count(parties)
    options = session_options(key_bits, kind, lanes, linear, roles=roles)
    device, threads = device_option(device, kind), threads_option(threads, kind)
    check_plot(plot)
    given = parse_range(input_range)
    loaded = load(model, weights=weights, data=input_file, calibration=calibration, input_range=given)
    check_output_path(output, len(loaded.program.outputs))
    loaded.need_weights()
    inputs = read_inputs(input_file, loaded.program)
    if loaded.note:
        console.note(loaded.note)
    with (
        console.progress(quiet=as_json) as report,
        local_parties(
            kind, parties=count, timeout=timeout, options=options, device=device, threads=threads, progress=report
        ) as running,
    ):
        result = running.run(loaded, inputs, at_once=at_once, progress=report)
    show(result, output=output, profile=profile, as_json=as_json)
    if plot is not None and result.profile is not None:
        result.profile.plot(plot, title=f"{loaded.program.name} on {kind}")
