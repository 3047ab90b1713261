"""demo: a small trained network on images that no party sees."""

from __future__ import annotations

import os
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from covey.cli import console
from covey.cli.options import Device, Json, PartyCount, Protocol, check_protocol
from covey.protocols import PROTOCOLS, device_option

if TYPE_CHECKING:
    from covey.cli.console import Report
    from covey.comparison import Difference
    from covey.result import Result

ACCURACY_LIMIT = 0.97


def demo(protocol: Protocol = "trio", parties: PartyCount = None, device: Device = None, as_json: Json = False) -> None:
    """Classify 450 images of handwritten digits that stay secret, with a model that stays secret."""
    import numpy as np

    kind = check_protocol(protocol)
    parties = PROTOCOLS[kind].count(parties)
    device = device_option(device, kind)
    with as_file(files("covey") / "data" / "digits") as folder, console.progress(quiet=as_json) as report:
        outcome = _run(Path(folder), kind, parties, device, report, quiet=as_json)
    private, clear, difference = outcome["private"], outcome["clear"], outcome["difference"]
    labels = outcome["labels"]
    accuracy = {
        "private": float(np.mean(_classes(private) == labels)),
        "clear": float(np.mean(_classes(clear) == labels)),
        "float": float(np.mean(outcome["float_classes"] == labels)),
    }
    if as_json:
        counts = {"outputs": len(labels), "outputs_differing": difference.rows_differing}
        logits = {"logits": difference.elements, "logits_differing": difference.differing}
        console.print_json({**counts, **logits, "accuracy": accuracy, "profile": private.profile.to_json()})
    else:
        _print(private, difference, accuracy, len(labels))
        console.out().print(PROTOCOLS[kind].learnt(len(labels), parties))
    if difference.differing:
        console.complain(f"the private result is not the specification's: {difference.first}")
        raise typer.Exit(1)
    if min(accuracy["private"], accuracy["clear"]) < ACCURACY_LIMIT:
        console.complain(f"the accuracy is below {ACCURACY_LIMIT:.0%}")
        raise typer.Exit(1)


def _run(
    folder: Path, protocol: str, count: int | None, device: str | None, report: Report, quiet: bool
) -> dict[str, Any]:
    """Compile, start, share, infer; then the same in the clear and in floating point."""
    import numpy as np

    from covey import reference
    from covey.clear import run_clear
    from covey.comparison import compare
    from covey.inputs import load_arrays, read_inputs
    from covey.model import load
    from covey.parties import counted, local

    def tell(text: str) -> None:
        if not quiet:
            console.say(text)

    report(0, 0, "compiling")
    loaded = load(folder / "digits.onnx", calibration=folder / "calibration.npy", input_range=(0.0, 1.0))
    program, graph = loaded.program, loaded.graph
    assert graph is not None
    ring = f"{program.ring}, {program.inputs[0]['scale']} fractional bits, {program.parameters:,} secret parameters"
    tell(f"compiled digits.onnx: {ring}")
    names = [entry["name"] for entry in program.inputs]
    images = load_arrays(folder / "test-images.npy", names)[names[0]]
    labels = np.load(folder / "test-labels.npy")
    inputs = read_inputs(images, program)
    # Two processes where that is all it takes: the model owner's server, and this one.
    alone = PROTOCOLS[protocol].data_owner_can_compute
    with local(protocol, parties=count, data_owner_computes=alone, device=device, progress=report) as parties:
        if parties.parties:
            listening = ", ".join(f"{party.name} (pid {party.pid})" for party in parties.parties)
            keys = "a key of its own" if alone else "keys of their own"
            tell(f"started {counted(parties.names)} with {keys}, mutual TLS 1.3 on loopback: {listening}")
        if alone:
            tell(f"the data owner's process (pid {os.getpid()}) is the other party")
        parties.share(loaded, report)
        tell("the model owner shared the weights")
        private = parties.run(loaded, inputs, progress=report)
        tell(f"the data owner shared {len(images)} images and opened the results")
    report(0, 0, "the same in the clear")
    clear = run_clear(loaded, inputs)
    float_classes = reference.outputs(graph, inputs)[0].argmax(axis=1)
    (difference,) = compare(clear.integers, private.integers)
    return {
        "private": private,
        "clear": clear,
        "difference": difference,
        "labels": labels,
        "float_classes": float_classes,
    }


def _classes(result: Result) -> Any:
    return next(iter(result.integers.values())).argmax(axis=1)


def _print(private: Result, difference: Difference, accuracy: dict[str, float], count: int) -> None:
    profile = private.profile
    assert profile is not None
    total = profile.total
    out = console.out()
    out.print()
    out.print(console.profile_table(profile.nodes, total))
    out.print(
        f"\n{count} images in {console.duration(profile.seconds)} ({console.duration(profile.seconds / count)} each), "
        f"{console.amount(total.bytes)} sent by all, {total.rounds} rounds"
    )
    out.print(
        f"accuracy: private {accuracy['private']:.2%}, fixed-point clear {accuracy['clear']:.2%}, "
        f"float {accuracy['float']:.2%}"
    )
    out.print(
        f"{difference.rows_differing} of {count} outputs differ from clear "
        f"({difference.differing:,} of {difference.elements:,} logits)"
    )
