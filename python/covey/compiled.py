"""Compiling a model: importer, passes, scale choice, files."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from rich.console import RenderableType

from covey import data, reference, report
from covey._proto import program_pb2 as pb
from covey.arguments import check_flags, check_real
from covey.carrying import Carry, declare, graph_of_runs, program_of_runs, ranges_of_carried
from covey.emit import program_file, weights_file, write_files
from covey.errors import DoesNotFitError, NodeError, OptionError, UnsupportedError
from covey.importers.sklearn import is_sklearn
from covey.importers.sklearn_results import check_results
from covey.importers.source import Source, examine, examples_of
from covey.inputs import Data
from covey.ir import Graph
from covey.lowering import Division, Settings, Truncation
from covey.measure import Measured, Samples
from covey.ops.quotient import Quotient
from covey.ops.scalar import CLIP, Scalar
from covey.passes import rewrite
from covey.passes.compared_inputs import measure_needed_bits, round_thresholds
from covey.passes.enforced_ranges import enforce_ranges as put_in_ranges
from covey.passes.masked_softmax import settle_empty_rows
from covey.passes.missing_values import heeds_missing
from covey.passes.scale_choice import Choice
from covey.passes.winograd import matching, write_winograd, written
from covey.passes.winograd_choice import send_less
from covey.search import MAX_ERROR, search
from covey.shown import Shown

RINGS = range(16, 65)
"""Bits of the rings that programs are compiled for. Two parties compute in any of them, others in 32 or 64."""

NO_DATA = "not measured against floating point: that takes calibration data (--calibration data.npy)"
NO_RUNTIME = "not measured against floating point: the runtime is not installed"

OFF, AUTO, ALL = "off", "auto", "all"
"""What `winograd` may be beside patterns."""

_Choice = TypeVar("_Choice", bound=Enum)


@dataclass(frozen=True)
class Compiled(Shown):
    """A compiled model.

    `program_bytes` is the public program file, `weights` the secret parameters as ring integers (int32 or int64) by
    value name, `report` the compile report as plain data, and `graph` the rewritten network in floating point.
    """

    program_bytes: bytes = field(repr=False)
    program_hash: str
    weights: dict[str, np.ndarray] = field(repr=False)
    report: dict[str, Any] = field(repr=False)
    graph: Graph = field(repr=False)

    @cached_property
    def weights_bytes(self) -> bytes:
        """The weights file."""
        return weights_file(self.weights, self.program_hash)

    def rendered(self) -> RenderableType:
        """The report for a terminal (print it with rich)."""
        return report.render(self.report)

    def rows(self) -> list[dict[str, Any]]:
        """The report's steps: node, operator, what it computes, scale, bits, bound and largest value."""
        return [dict(row) for row in self.report["nodes"]]

    def save(self, path: str | os.PathLike[str]) -> tuple[Path, Path, Path]:
        """Write `model.covey`, `model.weights.safetensors` (readable by its owner only) and `model.report.json`.

        `path` names the first; all three are written or none. Returns their paths.
        """
        program = Path(path)
        stem = program.with_suffix("") if program.suffix == ".covey" else program
        program = stem.parent / f"{stem.name}.covey"
        weights = stem.parent / f"{stem.name}.weights.safetensors"
        summary = stem.parent / f"{stem.name}.report.json"
        contents = {
            program: self.program_bytes,
            weights: self.weights_bytes,
            summary: (json.dumps(self.report, indent=2) + "\n").encode(),
        }
        write_files(contents, private=frozenset([weights]))
        return program, weights, summary


def compile(  # noqa: A001  (the name users type is covey.compile)
    path_or_model: Source,
    example_inputs: Any = None,
    *,
    calibration: Data | None = None,
    input_range: data.Ranges | None = None,
    truncation: Truncation | Literal["exact", "ulp", "probabilistic"] = "exact",
    ring: int | str = "auto",
    scale: int | None = None,
    public_weights: bool = False,
    keep_bn: bool = False,
    drop_channels: bool = False,
    hide_features: bool = False,
    missing: int | None = None,
    enforce_ranges: bool = False,
    division: Division | Literal["mul-shift", "exact"] = "mul-shift",
    max_error: float = MAX_ERROR,
    winograd: str = "off",
    carry: Carry | None = None,
    name: str | None = None,
) -> Compiled:
    """Compile a model to a public program and secret weights.

    The model is an `.onnx`, `.pt2`, `.keras` or `.h5` file, a SavedModel's folder, a loaded ONNX model, a PyTorch
    module or exported program, a Keras model, a TensorFlow function, a fitted scikit-learn model or pipeline, or
    a model of XGBoost or LightGBM. A module is exported with `example_inputs`, one array or tensor [N, ..] for each
    argument of its `forward`, in their order or by their names; they also say sizes that a Keras model leaves open.

    Bounds need to know the inputs: give `input_range` (low, high), which the data owner's client enforces, or
    `calibration` data [N, ..], or both. From calibration data alone the input range is its span, widened; the example
    inputs are the calibration data where neither is given. Data are NumPy arrays, tensors, PyTorch datasets or data
    loaders, or files. Bounds that interval analysis proves are preferred; where they do not fit the ring, the largest
    value over the calibration data times four stands in.

    With calibration data the program is measured on it, on 64 samples at most. `max_error` is the largest relative L2
    error against floating point that is accepted, over these samples and of the worst of them. Where a program comes
    near it, small weights get more bits, then all values, then 64 bits are taken; functions such as Sigmoid get tables
    as fine as they need. A program that is still above it is refused (`InaccurateError`). The report says what was
    measured.

    `keep_bn` leaves batch normalisation apart instead of folding it into the layers before it; `drop_channels` drops
    channels that are always zero or never read, which tells every party how many there were; `hide_features` keeps
    secret which feature each node of a tree compares, for a product with a secret matrix.

    `missing` is a whole number above all features that stands for a missing one: the data owner puts it in the place of
    NaN, as the compiler does in calibration data. Trees then take it as they take NaN, and imputers fill it in.

    `enforce_ranges` lets the parties put every input into its range, by two comparisons of all bits for each number:
    clients do it themselves, but for one that was changed.

    `winograd` says which convolutions are computed by Winograd's algorithm, with fewer products and more additions:
    "off"; "all" that can be; those whose names match patterns such as "layer1*,layer2.0.conv2"; or "auto", those that
    then send fewer bytes between two parties who multiply by oblivious transfer (docs/two-party.md).

    `carry` makes a program of a sequence's steps: it names inputs of the model and, for each, the output that it is in
    the next run of a session, such as `{"past": "present"}`. The parties keep these as shares; they are zeros in the
    first run. Calibration data give them like other inputs. Raises a `CoveyError` that says what is wrong and what to
    do.
    """
    check_flags(public_weights=public_weights)
    check_real("max_error", max_error)
    settings = Settings(
        ring_bits=32,
        scale=0,
        truncation=_option("truncation", Truncation, truncation),
        division=_option("division", Division, division),
        public_weights=public_weights,
    )
    rings = _rings(ring)
    _check_scale(scale, rings)

    def prepared(winograd: str | Collection[str]) -> Prepared:
        return prepare(
            path_or_model,
            example_inputs,
            calibration=calibration,
            input_range=input_range,
            keep_bn=keep_bn,
            drop_channels=drop_channels,
            hide_features=hide_features,
            missing=missing,
            enforce_ranges=enforce_ranges,
            winograd=winograd,
            carry=carry,
            name=name,
        )

    if not isinstance(winograd, str):
        raise OptionError(f"winograd is {winograd!r}: use off, auto, all, or patterns of convolutions' names")
    if winograd != AUTO:
        network = prepared(winograd)
        try:
            return network.compiled(settings, rings, scale, max_error)
        except DoesNotFitError as error:
            if error.node not in written(network.graph):
                raise
            raise error.advise(f"{error.way_out}, or leave it out of --winograd") from None
    plain = prepared(OFF).compiled(settings, rings, scale, max_error)
    chosen = send_less(plain, prepared, settings)
    if not chosen:
        return plain
    # In the same ring, and no coarser.
    return prepared(chosen).compiled(settings, (plain.report["ring_bits"],), plain.report["scale"], max_error)


@dataclass(frozen=True)
class Prepared:
    """A rewritten network with what is known of its inputs and values, ready to be lowered as often as one likes.

    `magnitudes` are the largest absolute values over the calibration data, of which there are `samples`; programs are
    measured on a `few` of them.
    """

    graph: Graph
    ranges: dict[str, tuple[float, float]]
    range_sources: dict[str, str]
    magnitudes: Mapping[str, float] | None = field(repr=False)
    samples: int
    few: Samples | None = field(repr=False)

    def compiled(
        self, settings: Settings, rings: tuple[int, ...], scale: int | None, max_error: float = MAX_ERROR
    ) -> Compiled:
        """The program in the first of `rings` that fits and, as far as the samples show, is fine enough.

        Raises `DoesNotFitError` and `InaccurateError`.
        """
        choice, measured = search(self, settings, rings, scale, max_error)
        return self.finished(choice, measured=measured, max_error=max_error, carrying=True)

    def finished(
        self,
        choice: Choice,
        certificate: pb.Certificate | None = None,
        measured: Measured | None = None,
        max_error: float = MAX_ERROR,
        carrying: bool = False,
        serves: str | None = None,
    ) -> Compiled:
        """The files of a lowered network, with what was measured of it.

        Without `carrying`, carried values are inputs and outputs, as they are while a program is measured. `serves` is
        the hash of the program that the network makes weights for.
        """
        if certificate is not None:
            choice.lowering.program.certificate.CopyFrom(certificate)
        lowering = choice.lowering
        carried = lowering.carried if carrying else {}
        program = program_of_runs(lowering.program, carried, lowering.opened, lowering.served, serves)
        graph = graph_of_runs(self.graph) if carrying else self.graph
        program_bytes, program_hash = program_file(program, self.graph.name)
        summary = report.build(graph, choice, self.range_sources, self.samples, program_hash, serves)
        summary["measured"] = None if measured is None else measured.to_json(self.samples, max_error)
        summary["not_measured"] = "" if measured is not None else self._not_measured()
        return Compiled(program_bytes, program_hash, choice.lowering.weights, summary, graph)

    def _not_measured(self) -> str:
        return NO_RUNTIME if self.few is not None else NO_DATA


def prepare(
    path_or_model: Source,
    example_inputs: Any = None,
    *,
    calibration: Data | None = None,
    input_range: data.Ranges | None = None,
    keep_bn: bool = False,
    drop_channels: bool = False,
    hide_features: bool = False,
    missing: int | None = None,
    enforce_ranges: bool = False,
    winograd: str | Collection[str] = "off",
    carry: Carry | None = None,
    name: str | None = None,
) -> Prepared:
    """Import a model, rewrite it and run it on the calibration data; the arguments are those of `compile`.

    `winograd` may list names, and is not "auto".
    """
    check_flags(
        keep_bn=keep_bn, drop_channels=drop_channels, hide_features=hide_features, enforce_ranges=enforce_ranges
    )
    if missing is not None and (isinstance(missing, bool) or not isinstance(missing, int) or abs(missing) >= 2**24):
        raise OptionError(f"missing is {missing!r}: give a whole number above all features, below {2**24:,}")
    if not isinstance(name, str | None):
        raise OptionError(f"name is {name!r}: give a text, or leave it out")
    graph, errors = examine(path_or_model, name, examples_of(path_or_model, example_inputs, calibration))
    if not errors:
        declare(graph, carry or {})
        heeds = heeds_missing(graph)
        errors = rewrite(graph, keep_bn=keep_bn, drop_channels=drop_channels, hidden=hide_features, missing=missing)
    if errors:
        raise _with_count(errors)
    if winograd != OFF:
        patterns = "*" if winograd == ALL else winograd
        write_winograd(graph, matching(graph, patterns) if isinstance(patterns, str) else patterns)
    if calibration is None and input_range is None and example_inputs is not None:
        calibration = _by_name(example_inputs, graph)
    samples = data.read_samples(calibration, graph, missing=missing, heeds=heeds) if calibration is not None else None
    ranges, sources = _input_ranges(graph, input_range, samples)
    if is_sklearn(path_or_model):
        check_results(path_or_model, graph, samples or data.drawn(graph, ranges), missing)
    if missing is not None:
        ranges, sources = data.with_missing(missing, ranges, sources)
    if enforce_ranges:
        put_in_ranges(graph, ranges)
    if samples is not None:
        round_thresholds(graph, samples)
        measure_needed_bits(graph, samples)
        settle_empty_rows(graph, samples)
    magnitudes = note_spans(graph, reference.spans(graph, samples)) if samples is not None else None
    if magnitudes is not None:
        ranges |= ranges_of_carried(graph, magnitudes)
        sources |= dict.fromkeys(graph.carried, "the calibration data's, times four")
    count = len(next(iter(samples.values()))) if samples else 0
    few = Samples.of(graph, samples) if samples is not None else None
    return Prepared(graph, ranges, sources, magnitudes, count, few)


def note_spans(graph: Graph, spans: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """The largest absolute value of every activation; notes the range of inputs of functions without a bound."""
    for node in graph.nodes:
        if isinstance(node.op, Scalar | Quotient) and node.op.function.needs_range:
            name = node.inputs[-1]
            graph.spans[name] = low, high = spans[name]
            if not node.op.function.holds(low, high):
                reason = (
                    f"its input is from {low:.4g} to {high:.4g} on the calibration data, where {node.op.function.needs}"
                )
                raise UnsupportedError(node.name, node.source_op, reason, CLIP)
    return {name: max(abs(low), abs(high)) for name, (low, high) in spans.items()}


def _by_name(example_inputs: Any, graph: Graph) -> Data:
    if isinstance(example_inputs, Mapping):
        return example_inputs
    values = example_inputs if isinstance(example_inputs, tuple | list) else (example_inputs,)
    return dict(zip(graph.inputs, values, strict=False))


def _with_count(errors: list[NodeError]) -> NodeError:
    if len(errors) > 1:
        first = errors[0]
        first.args = (f"{first} (and {len(errors) - 1} more: run covey check)",)
    return errors[0]


def _option(what: str, kind: type[_Choice], value: object) -> _Choice:
    try:
        return kind(value)
    except ValueError:
        allowed = ", ".join(str(member.value) for member in kind)
        raise OptionError(f"{what} '{value}' is unknown: use one of {allowed}") from None


def _rings(ring: object) -> tuple[int, ...]:
    if ring == "auto":
        return (32, 64)
    if isinstance(ring, bool) or not str(ring).isdecimal() or int(str(ring)) not in RINGS:
        raise OptionError(f"ring '{ring}' is unknown: use auto, or a number of bits from {RINGS[0]} to {RINGS[-1]}")
    return (int(str(ring)),)


def _check_scale(scale: int | None, rings: tuple[int, ...]) -> None:
    # Both operands of a product have the scale, and the product must have room.
    most = rings[-1] // 2 - 2
    if scale is not None and (isinstance(scale, bool) or not isinstance(scale, int) or not 1 <= scale <= most):
        raise OptionError(f"scale {scale} does not fit Z_2^{rings[-1]}: use a whole number from 1 to {most}")


def _input_ranges(
    graph: Graph, input_range: data.Ranges | None, samples: Mapping[str, np.ndarray] | None
) -> tuple[dict[str, tuple[float, float]], dict[str, str]]:
    ranges = data.ranges_of_classes(graph)
    sources = {name: data.said_by(graph, name) for name in ranges}
    # What is carried lies where calibration data say, or else where it is declared to.
    open_ones = [name for name in graph.inputs if name not in ranges and (samples is None or name not in graph.carried)]
    if input_range is not None:
        found = data.read_ranges(input_range, graph, open_ones)
        source = "declared"
    elif not open_ones:
        return ranges, sources
    elif samples is None:
        raise OptionError("the inputs' range is unknown: give --input-range low,high or --calibration data.npy")
    else:
        found = data.ranges_of_samples(graph, {name: samples[name] for name in open_ones})
        source = "the calibration data's, widened by a tenth on either side"
    if samples is not None:
        data.check_within(samples, found)
    data.check_narrow(graph, found)
    return {**ranges, **found}, {**sources, **dict.fromkeys(found, source)}
