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


def check_output_path(path: Path | None, outputs: int) -> None:
    """Refuse, before anything runs, a file that the outputs cannot go to."""
    if path is None:
        return
    if outputs == 0:
        raise OptionError("the program opens no output: leave out --output")
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
    """Write the outputs, whole or not at all, for their owner alone to read."""

    def write(stream: BinaryIO) -> None:
        if path.suffix == ".npz":
            np.savez(stream, allow_pickle=False, **result.outputs)
        else:
            np.save(stream, next(iter(result.outputs.values())), allow_pickle=False)

    try:
        write_whole({path: write}, {path: 0o600})
    except OSError as error:
        raise CoveyError(f"cannot write outputs '{path}': {error.strerror or error}") from None


def show(result: Result, *, output: Path | None, profile: bool, as_json: bool) -> None:
    """Save the outputs where asked to, and print predictions or shapes, and the profile where asked for."""
    if output is not None:
        save(output, result)
    if as_json:
        console.print_json(_plain(result, output, profile))
        return
    for line in result.lines:
        console.say(line)
    for line in result.warnings:
        console.note(line)
    if output is not None:
        console.say(f"saved to {output}")
    if result.profile is None:
        return
    if profile:
        console.say("")
        console.out().print(console.profile_table(result.profile.nodes, result.profile.total))
    console.say(result.profile.summary)


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
