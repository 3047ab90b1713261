"""`covey.explain`, `covey.compare`, `covey.verify` and `covey.tune`, which the commands of the same names call, too."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from covey import tuning
from covey.arguments import check_flags, check_number, check_real
from covey.certificate import classes_of, read_labels
from covey.clear import run_clear
from covey.comparison import origin
from covey.compiled import RINGS, prepare
from covey.cost_comparison import SERVED, CostComparison, settings, side_by_side
from covey.data import Ranges, check_within, read_samples
from covey.errors import OptionError
from covey.explanation import Explanation, explanation
from covey.goals import Validation
from covey.importers.source import Source as Trained
from covey.importers.source import is_model_file
from covey.inputs import Data, batch_of, random_inputs, read_inputs
from covey.ir import DType
from covey.layers import Layer, opened
from covey.layers import compare as compare_layers
from covey.model import Model, Source, is_compiled_here, load
from covey.parties import Parties, local
from covey.protocols import device_option, session_options
from covey.protocols import protocol as find_protocol
from covey.tuned import Tuned
from covey.verification import Verification, check_certificate, judge

if TYPE_CHECKING:
    from covey.client import Progress
    from covey.ir import Graph
    from covey.result import Floats

Labels = str | os.PathLike[str] | npt.NDArray[Any] | Any
"""The class of each sample: a .npy file, or whole numbers [N] as an array, a tensor or a list."""


def explain(
    model: Source,
    protocol: str = "trio",
    *,
    parties: int | None = None,
    batch: int = 1,
    calibration: Data | None = None,
    input_range: Ranges | None = None,
    key_bits: int | None = None,
    linear: str | None = None,
    preprocess_linear: bool = False,
    round_bits: int = 0,
) -> Explanation:
    """Say what a run of `batch` samples protects, reveals and costs, before anything runs.

    `model` is what `compile` returned, a `.covey` file, or a model file that is compiled with `calibration` or
    `input_range`. `parties` is how many compute where the protocol takes any number; `key_bits` makes comparisons read
    that many bits, and outputs lose `round_bits` low bits. `linear` is how two parties multiply by weights: "ot",
    "lattice", or "auto"; with `preprocess_linear`, layers by lattice encryption are preprocessed on random masks.
    Raises a `CoveyError`.
    """
    info = find_protocol(protocol)
    count = info.count(parties)
    options = session_options(key_bits, info.name, linear=linear, preprocess_linear=preprocess_linear)
    check_number("batch", batch, 1, None)
    check_number("round_bits", round_bits, 0, 24)
    loaded = load(model, calibration=calibration, input_range=input_range)
    return explanation(loaded, info.name, count, batch, round_bits, options)


def compare(
    models: Sequence[Source],
    protocols: Sequence[str] = SERVED,
    *,
    parties: int | None = None,
    batch: int = 1,
    calibration: Data | None = None,
    input_range: Ranges | None = None,
    key_bits: int | None = None,
    linear: str | None = None,
    preprocess_linear: bool = False,
    round_bits: int = 0,
) -> CostComparison:
    """Say what runs of several models cost in several protocols, side by side, before anything runs.

    Models and options are those of `explain`, the same for all models. An option that only some of the protocols have
    is for these: `parties` for those of any number, `linear` and `preprocess_linear` for two-party. Raises a
    `CoveyError`.
    """
    if isinstance(models, str | os.PathLike) or not isinstance(models, Sequence) or not models:
        raise OptionError("models is not a list of models: give at least one, such as ['a.onnx', 'b.onnx']")
    chosen = settings(protocols, parties, key_bits, linear, preprocess_linear)
    check_number("batch", batch, 1, None)
    check_number("round_bits", round_bits, 0, 24)
    # Models that are compiled already need no data, beside others that are yet to be.
    new = [is_compiled_here(model) for model in models]
    known: dict[str, Any] = {"calibration": calibration, "input_range": input_range}
    loaded = [load(model, **(known if new[index] or not any(new) else {})) for index, model in enumerate(models)]
    return side_by_side(loaded, chosen, batch, round_bits)


def verify(
    model: Source,
    protocol: str = "trio",
    *,
    parties: int | None = None,
    samples: int = 8,
    float_model: str | os.PathLike[str] | None = None,
    data: Data | None = None,
    labels: Labels | None = None,
    layers: bool = False,
    weights: str | os.PathLike[str] | None = None,
    calibration: Data | None = None,
    input_range: Ranges | None = None,
    timeout: float = 10.0,
    key_bits: int | None = None,
    linear: str | None = None,
    device: str | None = None,
    progress: Progress | None = None,
) -> Verification:
    """Run a model privately on this machine and compare it with the specification and with floating point.

    `data` [N, ..] gives the samples, of which at most `samples` are run; by default they are random, in the declared
    range. `float_model` is the model file that the program came from; with `labels` its accuracy record is measured
    again; `layers` compares every layer. `device` is what the parties compute on (`covey.local`). A check that fails is
    no error: see `passed`. Raises a `CoveyError` where the run itself fails.
    """
    info = find_protocol(protocol)
    count = info.count(parties)
    options = session_options(key_bits, info.name, linear=linear)
    device = device_option(device, info.name)
    check_number("samples", samples, 1, None)
    check_flags(layers=layers)
    if not isinstance(float_model, str | os.PathLike | None):
        raise OptionError(f"float_model is a {type(float_model).__name__}: name the file that the program came from")
    if labels is not None and data is None:
        raise OptionError("labels are those of given data: give data, too, or leave labels out")
    tell = progress or _silent
    loaded = load(model, weights=weights, data=data, calibration=calibration, input_range=input_range)
    loaded.need_weights()
    if float_model is not None:  # also for a model that was compiled here: this is the one to compare with
        loaded = replace(loaded, graph=origin(Path(float_model), loaded.program))
    elif isinstance(model, str | os.PathLike) and is_model_file(model):
        float_model = model
    source = Path(float_model) if float_model is not None else None
    graph = _float_graph(loaded) if layers else None
    program = loaded.program
    if not program.outputs:
        raise OptionError(f"'{program.name}' opens no output that could be compared: verify one that does")
    given = read_inputs(data, program) if data is not None else random_inputs(program, samples)
    if labels is not None:
        classes = classes_of(program.outputs[0]["shape"])
        labels = read_labels(labels, batch_of(given, program), classes)
    batched = {entry["name"] for entry in program.inputs if entry["batched"]}
    inputs = {name: values[:samples] if name in batched else values for name, values in given.items()}

    tell(0, 0, "the specification, in the clear")
    clear = run_clear(loaded, inputs)
    with local(info.name, parties=count, timeout=timeout, options=options, device=device, progress=tell) as running:
        private = running.run(loaded, inputs, progress=tell)
        rows = _layers(loaded, graph, inputs, running, tell) if graph is not None else None
    tell(0, 0, "floating point")
    checks, notes = judge(loaded, source, inputs, clear, private, info.name, approximate=key_bits is not None)
    tell(0, 0, "the accuracy record")
    recorded, remarks = check_certificate(loaded, given if data is not None else None, labels)
    if loaded.note is not None:
        notes = [loaded.note, *notes]
    return Verification(
        program=program.name,
        program_hash=program.hash,
        protocol=info.name,
        samples=max(len(values) for values in inputs.values()),
        source="given" if data is not None else "random",
        checks=[*checks, *recorded],
        notes=[*notes, *remarks],
        layers=rows,
    )


def tune(
    model: Trained,
    data: Data,
    labels: Labels | None = None,
    *,
    protocol: str = "trio",
    tolerance: float | None = None,
    regression: bool = False,
    calibration: Data | None = None,
    input_range: Ranges | None = None,
    example_inputs: Any = None,
    name: str | None = None,
    progress: Progress | None = None,
) -> Tuned:
    """Find the smallest scale and ring that keep a classifier's accuracy, or other outputs, on validation data [N, ..].

    `labels` are the samples' classes, by default what the float model answers; `tolerance` is the part of the samples
    that the accuracy may lose, 0 to 1, by default 0.002. With `regression`, or where the first output has no classes,
    it is the largest relative L2 error of the outputs, by default 0.01. Bounds come from `calibration`, by default the
    validation data, and `input_range`. `name` is what the program's accuracy record calls the data, by default the
    file's name. Raises `OptionError` when no scale is good enough.
    """
    info = find_protocol(protocol)
    check_flags(regression=regression)
    if tolerance is not None:
        check_real("tolerance", tolerance, 0, 1)
    prepared = prepare(
        model, example_inputs, calibration=data if calibration is None else calibration, input_range=input_range
    )
    inputs = read_samples(data, prepared.graph, "validation")
    check_within(inputs, prepared.ranges)
    first = prepared.graph.values[prepared.graph.outputs[0]]
    known = None if first.dtype is DType.INDEX or regression else classes_of(first.shape)
    classes = read_labels(labels, len(next(iter(inputs.values()))), known) if labels is not None else None
    called = name or (Path(data).name if isinstance(data, str | os.PathLike) else "validation data")
    rings = [ring for ring in info.rings if ring in RINGS]
    found = tuning.tune(
        prepared,
        Validation(inputs, classes, called),
        rings=rings,
        tolerance=tolerance,
        regression=regression,
        progress=progress or _silent,
    )
    return replace(found, protocol=info.name)


def _float_graph(loaded: Model) -> Graph:
    if loaded.graph is None:
        raise OptionError(
            "comparing layers takes the float model: name it with --model model.onnx or model.pt2 (float_model)"
        )
    return loaded.graph


def _layers(loaded: Model, graph: Graph, inputs: Mapping[str, Floats], parties: Parties, tell: Progress) -> list[Layer]:
    """Every layer privately, in the clear and in floating point, by a program whose outputs they all are."""
    whole = opened(loaded)
    return compare_layers(whole, graph, inputs, parties.run(whole, inputs, progress=tell))


def _silent(done: int, total: int, what: str) -> None:
    pass
