"""verify: does the private run compute what it should?"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    Weights,
    check_protocol,
    parse_range,
    session_options,
)
from covey.cli.run import Timeout
from covey.errors import OptionError
from covey.protocols import PROTOCOLS

if TYPE_CHECKING:
    from covey._proto import program_pb2 as pb
    from covey.closeness import Agreement, Closeness, Disagreement
    from covey.ir import Graph
    from covey.layers import Layer
    from covey.local import Parties
    from covey.model import Model
    from covey.result import Floats, Result


SHOWN_DISAGREEMENTS = 3
"""Answers that differ from the float model's and are told one by one."""


@dataclass(frozen=True)
class Check:
    """One line of the verdict; `passed` is `None` for what is only told."""

    what: str
    found: str
    due: str
    passed: bool | None


def verify(
    model: ModelArgument,
    protocol: Protocol = "trio",
    parties: PartyCount = None,
    samples: Annotated[int, typer.Option(min=1, help="How many samples to run.")] = 8,
    float_model: Annotated[
        Path | None, typer.Option("--model", metavar="MODEL", help="The float model that it came from: .onnx or .pt2.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="X.npy", help="Samples; by default random ones in the declared range.")
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(metavar="Y.npy", help="The samples' classes, to measure a certificate again.")
    ] = None,
    layers: Annotated[bool, typer.Option("--layers", help="Show the error layer by layer.")] = False,
    weights: Weights = None,
    calibration: Calibration = None,
    input_range: InputRange = None,
    timeout: Timeout = 10.0,
    key_bits: KeyBits = None,
    as_json: Json = False,
) -> None:
    """Run a model privately and compare it with the specification and with floating point."""
    from covey.clear import run_clear
    from covey.importers.source import is_model_file
    from covey.inputs import random_inputs, read_inputs
    from covey.local import local
    from covey.model import load

    kind = check_protocol(protocol)
    count = PROTOCOLS[kind].count(parties)
    options = session_options(key_bits, kind)
    loaded = load(model, weights=weights, data=data, calibration=calibration, input_range=parse_range(input_range))
    loaded.need_weights()
    if loaded.note and not as_json:
        console.note(loaded.note)
    if float_model is None and is_model_file(model):
        float_model = model
    program = loaded.program
    graph = _float_graph(loaded, float_model) if layers else None
    given = read_inputs(data, program) if data is not None else random_inputs(program, samples)
    batched = {entry["name"] for entry in program.inputs if entry["batched"]}
    inputs = {name: values[:samples] if name in batched else values for name, values in given.items()}

    with console.progress(quiet=as_json) as report:
        report(0, 0, "the specification, in the clear")
        clear = run_clear(loaded, inputs)
        with local(kind, parties=count, timeout=timeout, options=options, progress=report) as running:
            private = running.run(loaded, inputs, progress=report)
            rows = _layers(loaded, graph, inputs, running, report) if graph is not None else []
        report(0, 0, "floating point")
        checks, notes = judge(loaded, float_model, inputs, clear, private, kind, approximate=key_bits is not None)
        report(0, 0, "the certificate")
        certified, remarks = check_certificate(loaded, given if data is not None else None, labels, float_model)
        checks, notes = [*checks, *certified], [*notes, *remarks]
    passed = all(check.passed is not False for check in checks)
    count = max(len(values) for values in inputs.values())
    if as_json:
        verdicts = [{"check": c.what, "found": c.found, "due": c.due, "passed": c.passed} for c in checks]
        plain = {"program_hash": program.hash, "samples": count, "passed": passed, "checks": verdicts, "notes": notes}
        console.print_json({**plain, **({"layers": [asdict(row) for row in rows]} if layers else {})})
    else:
        source = "given" if data is not None else "random"
        if layers:
            console.out().print(_layers_table(rows, kind))
        _print(f"{program.name} on {kind}, {count} {source} samples", checks, notes)
    if not passed:
        failed = [check for check in checks if check.passed is False]
        console.complain(
            f"{program.name} fails verification: {failed[0].what}: {failed[0].found} ({failed[0].due} is due)"
        )
        raise typer.Exit(1)


def _float_graph(loaded: Model, float_model: Path | None) -> Graph:
    from covey.verify import float_graph

    if loaded.graph is not None:
        return loaded.graph
    if float_model is None:
        raise OptionError("--layers compares with the float model: name it with --model model.onnx or model.pt2")
    return float_graph(float_model)


def _layers(loaded: Model, graph: Graph, inputs: dict[str, Floats], parties: Parties, report: Any) -> list[Layer]:
    """Every layer privately, in the clear and in floating point, by a program whose outputs they all are."""
    from covey.layers import compare, opened

    whole = opened(loaded)
    return compare(whole, graph, inputs, parties.run(whole, inputs, progress=report))


def _layers_table(rows: list[Layer], protocol: str) -> Any:
    numbers = ["scale", "largest", "error", "relative", f"{protocol} against clear"]
    table = console.table("layer by layer, clear against floating point", ["node", "operator"], numbers)
    for row in rows:
        differing = f"{row.differing} of {row.elements:,}" if row.differing is not None else ""
        table.add_row(
            *(console.cell(row.node), console.cell(row.op), str(row.scale), f"{row.largest:.4g}"),
            *(f"{row.largest_error:.2g}", f"{row.relative_error:.3%}", differing),
        )
    return table


def judge(
    loaded: Model,
    float_model: Path | None,
    inputs: dict[str, Floats],
    clear: Result,
    private: Result,
    protocol: str,
    *,
    approximate: bool = False,
) -> tuple[list[Check], list[str]]:
    """Every check, and what could not be checked. An `approximate` run may differ from clear."""
    from covey import verify as compare_with
    from covey.closeness import closeness

    checks: list[Check] = []
    notes: list[str] = []
    rounding, shifts = compare_with.rounding_of(loaded.program)
    for difference in compare_with.compare(clear.integers, private.integers):
        if shifts and protocol != "clear" and clear.scales[difference.output]:
            due, got = clear.integers[difference.output], private.integers.get(difference.output)
            found, within = compare_with.within_budget(due, got, shifts)
            most = f"at most {compare_with.APPROXIMATE_LIMIT:.0%}, or {shifts} units ({rounding} shifts)"
            checks.append(Check(f"{difference.output}: {protocol} against clear", found, most, within))
            continue
        found = f"{difference.differing:,} of {difference.elements:,} elements differ"
        if difference.first:
            found += f", the first {difference.first}"
        what, equal = f"{difference.output}: {protocol} against clear", difference.differing == 0
        told = approximate or shifts > 0  # a class number tells of any difference before it
        checks.append(Check(what, found, "approximate", None) if told else Check(what, found, "0", equal))

    if float_model is None and loaded.graph is None:
        checks += _distinct(inputs, private)
        notes.append("not compared with floating point: name the model it came from with --model")
        return checks, notes
    expected = compare_with.float_reference(float_model, loaded.graph, inputs)
    if expected.note:
        notes.append(expected.note)
    several = compare_with.distinct_samples(inputs) > 1
    for row in closeness(private, expected):
        judged, remarks = judge_closeness(row, expected.source, several)
        checks += judged
        notes += remarks
    for name, fraction in expected.alive.items():
        limit = compare_with.ALIVE_LIMIT
        checks.append(Check(f"{name}: alive", f"{fraction:.1%}", f"at least {limit:.0%}", fraction >= limit))
    return checks, notes


def _distinct(inputs: dict[str, Floats], private: Result) -> list[Check]:
    """What is left to judge without the float model."""
    from covey import verify as compare_with

    counts = compare_with.distinct(inputs, private)
    if counts is None:
        return []
    samples, outputs = counts
    found = f"{outputs} for {samples} distinct samples"
    return [Check("distinct outputs", found, str(samples), outputs >= samples)]


def judge_closeness(row: Closeness, source: str, several: bool) -> tuple[list[Check], list[str]]:
    """An output against floating point: its error, its answers, and whether it tells samples apart."""
    from covey import closeness as limits

    checks, notes = [], []
    if not row.classes:
        limit = limits.RELATIVE_ERROR_LIMIT
        found = f"{row.relative_error:.4%}, worst sample {row.worst_error:.4%} (number {row.worst_sample})"
        checks.append(Check(f"{row.output}: relative L2 error", found, f"at most {limit:.0%}", row.error <= limit))
    if row.unexplained is not None and several:
        most = f"at most {limits.VARIATION_LIMIT:.0%} of it is error"
        same = math.isinf(row.unexplained)
        found = "none: outputs do not depend on the input" if same else f"{row.unexplained:.2%} of it is error"
        good = row.unexplained <= limits.VARIATION_LIMIT
        checks.append(Check(f"{row.output}: variation between samples", found, most, good))
        if not good:
            notes.append(
                f"{row.output}: samples hardly change this output, so its error says little of what the network "
                f"computes: verify with samples that differ more, or with a trained network"
            )
    if row.agreement is not None:
        checks.append(_top1(row, row.agreement, source))
        notes += [f"{row.output}: {_told(other)}" for other in row.agreement.differing[:SHOWN_DISAGREEMENTS]]
    return checks, notes


def _top1(row: Closeness, agreement: Agreement, source: str) -> Check:
    from covey.closeness import DISAGREEING_LIMIT

    found = f"{agreement.fraction:.2%}"
    if agreement.differing:
        found += f", {agreement.near_ties} of {len(agreement.differing)} others a near-tie"
    if agreement.margin is not None and not agreement.differing:
        found += f", the smallest lead is {agreement.margin:,.1f} times what the error could turn"
    most = f"at least {1 - DISAGREEING_LIMIT:.0%}, near-ties aside"
    return Check(f"{row.output}: top-1 agreement with {source}", found, most, agreement.good)


def _told(found: Disagreement) -> str:
    answer = f"sample {found.sample} is {found.got} and in floating point {found.due}"
    if found.lead is None:
        return answer
    close = "a near-tie" if found.near_tie else "no near-tie"
    return f"{answer}, {close}: the float model's best two are {found.lead:.3g} apart"


def check_certificate(
    loaded: Model, given: dict[str, Floats] | None, labels: Path | None, float_model: Path | None = None
) -> tuple[list[Check], list[str]]:
    """The accuracy certificate in the program, measured again where the data it was made with are given."""
    from covey import certificate

    found = certificate.of(loaded.program)
    if found is None:
        return [], ["the program has no accuracy certificate: covey tune makes one"] if labels is not None else []
    if certificate.of_error(found):
        return _check_error(loaded, given, found, float_model)
    right = found.fixed_correct
    states = f"{right} of {found.samples} right on '{found.data}', the float model {found.float_correct}"
    limit = f"at most {100 * found.tolerance:g} points lower"
    checks = [Check("certificate: accuracy", states, limit, certificate.holds(found))]
    again = f"not measured again: give --data '{found.data}'" + (" and its --labels" if found.labelled else "")
    if given is None or (found.labelled and labels is None):
        return checks, [f"certificate: {again}"]
    classes = certificate.read_labels(labels, len(next(iter(given.values())))) if labels is not None else None
    if certificate.digest(given, classes if found.labelled else None) != found.digest:
        return checks, [f"certificate: these are other data than it was made with; {again}"]
    answers = certificate.fixed_classes(loaded, given)
    if classes is None or not found.labelled:
        if loaded.graph is None:
            return checks, ["certificate: without labels it is measured against the float model; verify that instead"]
        classes = certificate.float_classes(loaded.graph, given)
    measured = int((answers == classes).sum())
    checks.append(Check("certificate: measured again", f"{measured} right", str(right), measured == right))
    return checks, []


def _check_error(
    loaded: Model, given: dict[str, Floats] | None, found: pb.Certificate, float_model: Path | None
) -> tuple[list[Check], list[str]]:
    """The certificate of a network without classes."""
    from covey import certificate
    from covey.closeness import float_run
    from covey.goals import output_error
    from covey.verify import float_graph

    stated = found.relative_error
    states = f"{stated:.4%} off on {found.samples} samples of '{found.data}'"
    limit = f"at most {found.tolerance:.2%}"
    checks = [Check("certificate: relative L2 error", states, limit, certificate.holds(found))]
    if given is None or certificate.digest(given, None) != found.digest:
        return checks, [f"certificate: not measured again: give --data '{found.data}'"]
    if loaded.graph is None and float_model is None:
        return checks, ["certificate: not measured again: name the float model with --model"]
    graph = loaded.graph if float_model is None else float_graph(float_model)
    assert graph is not None
    measured = output_error(loaded, float_run(graph, given), given)
    same = math.isclose(measured, stated, rel_tol=1e-6)
    return [*checks, Check("certificate: measured again", f"{measured:.4%} off", f"{stated:.4%}", same)], []


def _print(title: str, checks: list[Check], notes: list[str]) -> None:
    from rich.text import Text

    marks: dict[bool | None, Any] = {True: Text("ok", "green"), False: Text("FAILED", "bold red"), None: Text("")}
    table = console.table(title, ["check", "found", "due"], [""])
    for check in checks:
        table.add_row(console.cell(check.what), console.cell(check.found), check.due, marks[check.passed])
    console.out().print(table)
    for line in notes:
        console.note(line)
