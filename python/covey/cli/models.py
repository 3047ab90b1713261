"""check, compile, explain: what needs a model file and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from covey.cli import console
from covey.cli.options import (
    Calibration,
    InputRange,
    Json,
    KeyBits,
    ModelArgument,
    PartyCount,
    Protocol,
    check_protocol,
    parse_range,
    session_options,
)
from covey.errors import OptionError
from covey.protocols import PROTOCOLS, ProtocolInfo

Trained = Annotated[Path, typer.Argument(metavar="MODEL", help="The trained model: .onnx, or PyTorch's .pt2.")]


def check(model: Trained, as_json: Json = False) -> None:
    """Say of every node whether it is supported, rewritten or unsupported, and why."""
    from covey.compile import check as check_model
    from covey.ir import Status

    checked = check_model(model)
    if as_json:
        notes = [{"node": n.node, "op": n.op, "status": n.status.value, "text": n.text} for n in checked.notes]
        console.print_json({"ok": checked.ok, "nodes": notes})
    else:
        table = console.table("", ["node", "operator", "status", "why"], [])
        for entry in checked.notes:
            table.add_row(console.cell(entry.node), entry.op, entry.status.value, console.cell(entry.text))
        console.out().print(table)
        unsupported = sum(note.status is Status.UNSUPPORTED for note in checked.notes)
        console.say(
            f"\n{len(checked.notes)} nodes: all can run privately"
            if checked.ok
            else f"\n{unsupported} of {len(checked.notes)} nodes cannot run privately"
        )
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
    drop_channels: Annotated[
        bool, typer.Option("--drop-channels", help="Drop channels that are always zero; parties see how many stay.")
    ] = False,
    keep_bn: Annotated[bool, typer.Option("--keep-bn", help="Leave batch normalisation unfolded.")] = False,
    division: Annotated[str, typer.Option(help="How averages divide: mul-shift or exact.")] = "mul-shift",
    max_error: Annotated[
        float,
        typer.Option(min=0, metavar="PERCENT", help="How far outputs may be from floating point on calibration data."),
    ] = 2.0,
    as_json: Json = False,
) -> None:
    """Compile a model: a public program, its secret weights and a report, three files."""
    from covey.compile import compile as compile_model

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
        division=division,  # type: ignore[arg-type]
        max_error=max_error / 100,
    )
    program, weights, report = compiled.save(output or model.with_suffix(".covey"))
    if as_json:
        files = {"program": str(program), "weights": str(weights), "report": str(report)}
        console.print_json({**compiled.report, "files": files})
        return
    console.out().print(compiled.rendered_report())
    console.say(f"{program}  the program: public, for every party and client")
    console.say(f"{weights}  the weights: secret, for their owner alone")
    console.say(f"{report}  this report")


def explain(
    model: ModelArgument,
    protocol: Protocol = "trio",
    parties: PartyCount = None,
    batch: Annotated[int, typer.Option(min=1, help="Samples in one inference.")] = 1,
    calibration: Calibration = None,
    input_range: InputRange = None,
    key_bits: KeyBits = None,
    round_bits: Annotated[
        int,
        typer.Option(min=0, max=24, metavar="N", help="Outputs lose N bits, as the parties' `round_bits` makes them."),
    ] = 0,
    as_json: Json = False,
) -> None:
    """Say what a run protects, reveals and costs, before anything runs."""
    from covey import _core
    from covey.model import load

    info = PROTOCOLS[check_protocol(protocol)]
    count = info.count(parties)
    options = session_options(key_bits, protocol)
    loaded = load(model, calibration=calibration, input_range=parse_range(input_range))
    program = loaded.program
    plan = json.loads(_core.plan(program, protocol, batch, round_bits, count, **options))
    reveals = what_a_run_reveals(program, round_bits)
    if key_bits is not None:
        reveals.append(f"nothing more by reading {key_bits} bits a comparison; but results are approximate")
    if as_json:
        header = {"model": program.name, "program_hash": program.hash, "ring": program.ring}
        console.print_json({**header, "security": info.security, "reveals": reveals, **plan})
        return
    if loaded.note:
        console.note(loaded.note)
    _print_plan(program, info, count, plan, reveals)


def what_a_run_reveals(program: Any, round_bits: int = 0) -> list[str]:
    """Who learns what from a run, one line each."""
    from covey import certificate

    rounded = f", rounded to multiples of 2^{round_bits} before it opens" if round_bits else ""
    softmax = " (a final softmax is computed by its owner, in the clear)"
    postprocessed = any(entry["postprocess"] == "softmax" for entry in program.outputs)
    names = ", ".join(entry["name"] for entry in program.outputs)
    lines = [
        "to every party: the architecture with node names, shapes and scales, the ring, the declared input ranges, a "
        "power-of-two bound for each tensor, batch size and timing",
        f"to the result's owner alone: the output {names}{rounded}{softmax if postprocessed else ''}",
    ]
    if program.calibrated:
        lines.append(
            f"bounds of {len(program.calibrated)} nodes come from calibration data; an input beyond them gives a wrong "
            f"result, not a leak"
        )
    if certificate.of(program) is not None:
        lines.append("to every party: the accuracy certificate, with what its data are called and how many they are")
    if program.public_weights:
        lines.append("the weights are public: every party knows them")
    return lines


def _print_plan(
    program: Any, protocol: ProtocolInfo, parties: int | None, plan: dict[str, Any], reveals: list[str]
) -> None:
    from rich.padding import Padding

    from covey.result import NodeProfile

    out = console.out()
    out.print(f"{program.name}  ring {program.ring}  program {program.hash[:12]}  {plan['batch']} sample(s) at once\n")
    out.print(protocol.security)
    out.print("\nA run reveals")
    for line in reveals:
        out.print(Padding("- " + line, (0, 0, 0, 2)))
    out.print()
    nodes = [NodeProfile.of(row) for row in plan["nodes"]]
    total = NodeProfile.of(plan["total"])
    out.print(console.profile_table(nodes, total, timed=False))
    if total.links:
        out.print()
        out.print(_links_table(total, lambda number: protocol.peer(number, parties)))
        out.print()
        out.print(_dearest(nodes, total))
        if plan["weights"]:
            once = NodeProfile.of(plan["weights"])
            out.print(f"preparing the weights together, once for a version of them: {console.amount(once.bytes)}")
    out.print()
    for estimate in plan["estimates"]:
        network = estimate["network"]
        out.print(
            f"{network['name']} ({network['bits_per_second'] / 1e9:g} Gbit/s, {2e3 * network['one_way_seconds']:g} ms "
            f"round trip): {console.duration(estimate['seconds'])} on the wire, "
            f"{console.duration(estimate['online_seconds'])} of it once preprocessed; computation comes on top"
        )
    if any(plan["transfers"]):
        ots = " and ".join(f"{count:,}" for count in plan["transfers"])
        out.print(
            f"correlated OTs: {ots}, by the party that holds the correlation; with these in store (`covey store`), "
            f"'correlated randomness' is not sent"
        )
    if any(plan["memory"]):
        sizes = enumerate(plan["memory"])
        peaks = ", ".join(f"{protocol.peer(role, parties)} {console.amount(peak)}" for role, peak in sizes)
        out.print(f"peak memory, about: {peaks}")


def _links_table(total: Any, called: Callable[[int], str]) -> Any:
    table = console.table("link by link", ["from", "to"], ["offline bytes", "online bytes", "messages"])
    rows: dict[tuple[int, int], list[int]] = {}
    for link in total.links:
        row = rows.setdefault((link["from"], link["to"]), [0, 0, 0])
        row[0 if link["offline"] else 1] += link["bytes"]
        row[2] += link["messages"]
    for (sender, receiver), row in sorted(rows.items()):
        table.add_row(called(sender), called(receiver), *(f"{count:,}" for count in row))
    return table


def _dearest(nodes: list[Any], total: Any) -> Any:
    table = console.table("five dearest nodes", ["node", "operator"], ["bytes", "share", "rounds"])
    for node in sorted(nodes, key=lambda node: node.bytes, reverse=True)[:5]:
        if node.bytes:
            share = f"{node.bytes / total.bytes:.0%}"
            table.add_row(console.cell(node.name), node.op, f"{node.bytes:,}", share, f"{node.rounds:,}")
    return table
