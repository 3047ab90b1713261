"""Showing and saving the outputs of a run."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from covey.cli import console
from covey.errors import CoveyError, OptionError
from covey.files import write_whole
from covey.result import Result

SHOWN_SAMPLES = 10
SHOWN_CLASSES = 3


def check_output_path(path: Path | None, outputs: int) -> None:
    """Refuse, before anything runs, a file that the outputs cannot go to."""
    if path is None:
        return
    if path.suffix not in (".npy", ".npz"):
        raise OptionError(
            f"outputs are saved as .npy or .npz, not '{path.name}': use --output {path.with_suffix('.npy')}"
        )
    if outputs > 1 and path.suffix == ".npy":
        raise OptionError(
            f"the model has {outputs} outputs and .npy holds one: use --output {path.with_suffix('.npz')}"
        )
    if not path.absolute().parent.is_dir():
        raise OptionError(f"folder '{path.parent}' for the outputs does not exist: make it first")


def save(path: Path, result: Result) -> None:
    """Write the outputs, whole or not at all."""

    def write(stream: BinaryIO) -> None:
        if path.suffix == ".npz":
            np.savez(stream, allow_pickle=False, **result.outputs)
        else:
            np.save(stream, next(iter(result.outputs.values())), allow_pickle=False)

    try:
        write_whole({path: write})
    except OSError as error:
        raise CoveyError(f"cannot write outputs '{path}': {error.strerror or error}") from None


def show(result: Result, *, output: Path | None, profile: bool, as_json: bool) -> None:
    """Save the outputs where asked to, and print predictions or shapes, and the profile where asked for."""
    if output is not None:
        save(output, result)
    if as_json:
        console.print_json(_plain(result, output, profile))
        return
    for name, values in result.outputs.items():
        _show_one(name, values)
    for name in result.at_bound:
        console.note(
            f"output '{name}' touches the bound that the calibration data gave it, so it may be wrong: compile with "
            f"more --calibration data or a larger ring"
        )
    if output is not None:
        console.say(f"saved to {output}")
    if result.profile is None:
        return
    total = result.profile.total
    if profile:
        console.say("")
        console.out().print(console.profile_table(result.profile.nodes, total))
    traffic = f", {console.amount(total.bytes)} sent by all, {total.rounds:,} rounds" if total.links else ""
    console.say(f"{console.duration(result.profile.seconds)}{traffic}")


def _show_one(name: str, values: np.ndarray[Any, Any]) -> None:
    shape = "[" + ", ".join(map(str, values.shape)) + "]"
    console.say(f"{name} {shape}")
    if values.ndim != 2 or values.shape[1] < 2:
        flat = values.reshape(len(values), -1) if values.ndim and len(values) else values.reshape(1, -1)
        for index, row in enumerate(flat[:SHOWN_SAMPLES]):
            more = " ..." if len(row) > 8 else ""
            console.say(f"  sample {index}: {', '.join(f'{value:.5g}' for value in row[:8])}{more}")
    else:
        for index, row in enumerate(values[:SHOWN_SAMPLES]):
            best = np.argsort(-row, kind="stable")[:SHOWN_CLASSES]
            console.say(f"  sample {index}: " + ", ".join(f"class {k} ({row[k]:.4g})" for k in best))
    if len(values) > SHOWN_SAMPLES:
        console.say(f"  ... and {len(values) - SHOWN_SAMPLES} more")


def _plain(result: Result, output: Path | None, profile: bool) -> dict[str, Any]:
    data: dict[str, Any] = {
        "outputs": {
            name: {"shape": list(values.shape), "scale": result.scales[name], "values": values.tolist()}
            for name, values in result.outputs.items()
        }
    }
    if result.at_bound:
        data["at_bound"] = result.at_bound
    if output is not None:
        data["saved"] = str(output)
    if result.profile is not None:
        data["seconds"] = result.profile.seconds
        if result.parties:
            data["parties"] = [asdict(party) for party in result.parties]
        if profile:
            data["profile"] = result.profile.to_json()
    return data
