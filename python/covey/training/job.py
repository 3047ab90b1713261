"""Compiling a training job: the program of one step, its scale and bounds from a few steps in floating point."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from covey import data as calibration_data
from covey.arguments import check_flags, is_whole
from covey.compiled import Compiled, Prepared
from covey.errors import DataError, DoesNotFitError, OptionError
from covey.importers.source import Source, examples_of
from covey.inputs import Data
from covey.interval import Array
from covey.ir import Graph
from covey.lowering import MARGIN, Settings
from covey.ops.quotient import Inverse, Quotient
from covey.ops.scalar import Scalar
from covey.passes.dead_nodes import remove_dead_nodes
from covey.passes.scale_choice import Choice, choose
from covey.search import runtime
from covey.training.calibration import Rehearsal, rehearse
from covey.training.losses import LABELS, check_labels
from covey.training.minibatches import Form, check_early, check_seed, read, shuffled
from covey.training.optimizers import Optimizer
from covey.training.step import Step, Trained, make

RING = 64
"""Bits of the ring that training takes: products of gradients and weights have to fit."""

SCALES = (20, 18, 16, 14, 12, 10)
"""Fractional bits tried, best first."""

FINER_BITS = 8
"""How many more weights and moments have: a step changes them by less than a unit of other values."""

BEYOND = 8.0
"""How much further than that of inference a bound reaches: values of later steps may be larger than the first ones'."""

FEWEST_STEPS, MOST_STEPS = 8, 64
"""How many steps in floating point bounds and scales are taken from."""

REHEARSED = 2e8
"""So many elements are computed in these steps, or little more, as far as the fewest of them allow."""

MOST_STEPS_OF_A_SUM = 1 << 16
"""The most steps that losses are summed over before they open."""

DIVERGED = 1e3
"""So many times the first loss is that of no training."""

TABLE_ERROR = 2.0**-13
"""The largest error of a table."""


@dataclass(frozen=True)
class Job:
    """A compiled training job: the program of one step on a minibatch, and what training needs to know of the model."""

    compiled: Compiled
    step: Step = field(repr=False)
    rehearsal: Rehearsal = field(repr=False)
    served: Compiled | None = None
    """The inference program that the parties keep trained weights for, with the model's weights before training."""

    @property
    def batch(self) -> int:
        """Samples of a minibatch."""
        return self.step.batch

    @property
    def trained(self) -> list[Trained]:
        """The tensors of the model that training changes."""
        return self.step.trained

    def rendered(self) -> Any:
        """The compile report for a terminal."""
        return self.compiled.rendered()


def compile_training(
    model: Source,
    example_inputs: Any = None,
    *,
    loss: str,
    optimizer: Optimizer,
    batch: int,
    calibration: tuple[Data, Any],
    input_range: calibration_data.Ranges | None = None,
    class_weights: Any = None,
    freeze: Sequence[str] = (),
    batch_norm: str = "train",
    open_weights: bool = False,
    open_losses: int | None = 1,
    serve: bool = False,
    dropout: bool = False,
    stochastic_rounding: bool = False,
    scale: int | None = None,
    seed: int = 0,
    name: str | None = None,
) -> Job:
    """Compile the training of a model: a program whose runs are steps of `optimizer` on minibatches of `batch` samples.

    The model is a file or a loaded model as `compile` takes it; a PyTorch module is in evaluation mode and has
    `example_inputs`. `loss` is "cross-entropy" (labels are classes), "binary-cross-entropy" (labels are 0 or 1) or
    "mse". `calibration` are samples and labels of at least one minibatch: a few steps on them, in floating point, say
    how large values become. `input_range` is what the data owner's client enforces, by default what these samples
    span, widened. `class_weights` has a number for each class: losses of that label are multiplied by it.
    For binary-cross-entropy they are two, of the labels 0 and 1, or two rows with a number for each output. `freeze`
    is a pattern or several, such as ["features.*"], of parameters that stay. With `batch_norm`
    "frozen" batch normalisation takes the model's own statistics. With `dropout` the model's Dropout layers drop
    elements, other ones in each step, whatever mode a module is in. With `stochastic_rounding` weights are rounded up
    or down at random, right on average, and not to the nearest. With `open_weights` what was trained opens to the data
    owner where it ends the training; otherwise it never opens. The loss of each step opens to it, and how many labels
    were right; with `open_losses` the sums over so many steps do, and with None nothing. With `serve` the job has an
    inference program of the model (`Job.served`): at the end of training the parties can keep their shares of the
    trained weights as that program's, and nothing opens. The order of the calibration data and all public coins follow
    from `seed`.

    Raises a `CoveyError` that names what cannot be trained, and the way out.
    """
    check_flags(open_weights=open_weights, serve=serve, dropout=dropout, stochastic_rounding=stochastic_rounding)
    if open_losses is not None and not (is_whole(open_losses) and 1 <= open_losses <= MOST_STEPS_OF_A_SUM):
        raise OptionError(
            f"losses over {open_losses!r} steps: give a number of steps from 1 to {MOST_STEPS_OF_A_SUM}, or open none"
        )
    if scale is not None and not (is_whole(scale) and 4 <= scale <= RING // 2 - 2):
        raise OptionError(f"scale {scale!r} does not fit Z_2^{RING}: use a whole number from 4 to {RING // 2 - 2}")
    check_seed(seed)
    if not isinstance(calibration, tuple | list) or len(calibration) != 2:
        raise OptionError("calibration is no pair of samples and labels: give both, as in calibration=(x, y)")
    check_early(*calibration)
    step = make(
        model,
        examples_of(model, example_inputs, calibration[0]),
        loss=loss,
        optimizer=optimizer,
        batch=batch,
        class_weights=class_weights,
        freeze=freeze,
        batch_norm=batch_norm,
        open_weights=open_weights,
        open_losses=open_losses or 1,
        serve=serve,
        dropout=dropout,
        stochastic_rounding=stochastic_rounding,
        seed=seed,
        name=name,
    )
    ranges = _declared(step, input_range)
    records = read(calibration[0], calibration[1], forms(step.graph, batch, ranges), batch)
    steps = _steps_to_rehearse(step.graph)
    first = shuffled(len(records), seed, 1)[: steps * batch]
    samples = {name: each[first] for name, each in records.arrays.items()}
    check_labels(loss, class_weights, samples[LABELS])
    orders = (shuffled(len(records), seed, epoch) for epoch in itertools.count(1))
    every = (minibatch for order in orders for minibatch in records.minibatches(batch, order))
    found = rehearse(step, itertools.islice(every, steps), _runs_to_rehearse(optimizer, steps))
    if not found.losses[-1] <= DIVERGED * max(found.losses[0], 1.0):
        raise DataError(
            f"in floating point the loss is {found.losses[-1]:.3g} after {len(found.losses)} steps: use a smaller "
            f"learning rate, or normalise the data"
        )
    if open_losses is None:
        step.graph.outputs = [name for name in step.graph.outputs if name not in (step.loss, step.right)]
        remove_dead_nodes(step.graph)
    try:
        return _compiled(step, found, ranges, scale, steps, samples)
    except DoesNotFitError as error:
        if scale is not None or found.losses[-1] <= found.losses[0]:
            raise
        raise error.advise(
            f"in floating point the loss rises from {found.losses[0]:.3g} to {found.losses[-1]:.3g} in "
            f"{len(found.losses)} steps: use a smaller learning rate, or normalise the data"
        ) from None


def _steps_to_rehearse(graph: Graph) -> int:
    """As many as do not take long."""
    elements = sum(graph.values[node.output].size for node in graph.nodes)
    return max(FEWEST_STEPS, min(MOST_STEPS, int(REHEARSED / elements)))


def _runs_to_rehearse(optimizer: Optimizer, steps: int) -> Sequence[int]:
    """The numbers of the steps in training: all of a schedule in little time, so that none of its rates is missed."""
    length = steps if optimizer.schedule is None else len(optimizer.schedule.factors)
    return [index * max(length, steps) // steps for index in range(steps)]


def _declared(step: Step, input_range: calibration_data.Ranges | None) -> dict[str, tuple[float, float]]:
    """What is known of the inputs' ranges before any data."""
    ranges = calibration_data.ranges_of_classes(step.graph)
    if input_range is not None:
        open_ones = [name for name in step.data if name not in ranges]
        if not (isinstance(input_range, Mapping) and LABELS in input_range):
            open_ones = [name for name in open_ones if name != LABELS]
        ranges |= calibration_data.read_ranges(input_range, step.graph, open_ones)
    return ranges


def forms(graph: Graph, batch: int, ranges: dict[str, tuple[float, float]]) -> list[Form]:
    """What the data owner gives, for one sample."""
    return [
        Form(
            name,
            graph.values[name].shape[1:],
            graph.classes.get(name),
            *ranges.get(name, (-math.inf, math.inf)),
        )
        for name in graph.inputs
        if name not in graph.carried
    ]


def _compiled(
    step: Step,
    found: Rehearsal,
    ranges: dict[str, tuple[float, float]],
    scale: int | None,
    steps: int,
    samples: Mapping[str, Array],
) -> Job:
    graph, serving = step.graph, step.serving
    for norm in serving.norms if serving is not None else []:
        norm.note(step, found.spans)
    magnitudes = {
        name: max(max(abs(low), abs(high)) * step.growing.get(name, 1.0), step.reach.get(name, 0.0)) * BEYOND
        for name, (low, high) in found.spans.items()
    }
    for each in step.sums:
        # Labels that are right may be all of them, however few were so in calibration.
        most = step.labels if each.of == step.right else magnitudes[each.of]
        magnitudes |= dict.fromkeys(each.values, each.steps * most)
    sources = dict.fromkeys(ranges, "declared")
    for name in graph.inputs:
        if name in graph.carried:
            ranges[name] = _range_of_carried(step, name, magnitudes)
            sources[name] = "the calibration steps', widened"
        elif name not in ranges:
            ranges[name] = _widened(*found.spans[name])
            sources[name] = "the calibration data's, widened"
    _note_spans(step, found)
    prepared = Prepared(graph, ranges, sources, magnitudes, steps, None)
    if serving is None:
        choice, _ = _choose(prepared, scale)
        return Job(prepared.finished(choice, carrying=True), step, found)
    network = serving.prepared(step, found, samples, (ranges, sources), magnitudes, BEYOND)
    choice, of_network = _choose(prepared, scale, lambda settings: serving.choose(network, graph, settings))
    assert of_network is not None
    served = network.finished(of_network)
    if network.few is not None and runtime():
        served = network.finished(of_network, measured=network.few.measure(served))
    return Job(prepared.finished(choice, carrying=True, serves=served.program_hash), step, found, served)


def _widened(low: float, high: float) -> tuple[float, float]:
    margin = 0.1 * ((high - low) or max(abs(high), 1.0))
    return low - margin, high + margin


def _range_of_carried(step: Step, name: str, magnitudes: dict[str, float]) -> tuple[float, float]:
    """A power of two: weights may move as far as they are large, and as the steps seen would take them."""
    after = step.graph.carried[name]
    most = MARGIN * max(magnitudes[name], magnitudes[after])
    initial = next((entry.initial for entry in step.trained if entry.change == name), None)
    if initial is not None:
        most = max(most / BEYOND * MARGIN, MARGIN * float(np.abs(initial).max(initial=0.0)), 1.0)
    reach = 2.0 ** math.ceil(math.log2(max(most, 2.0**-8)))
    return -reach, reach


def _note_spans(step: Step, found: Rehearsal) -> None:
    """Where inputs of functions without a bound lie."""
    for node in step.graph.nodes:
        if isinstance(node.op, Scalar | Quotient) and not node.op.function.needs_range:
            continue
        if isinstance(node.op, Scalar | Quotient | Inverse):
            name = node.inputs[-1]
            low, high = found.spans[name]
            high *= step.growing.get(name, 1.0)
            if name in step.spans:
                low, high = min(low, step.spans[name][0]), max(high, step.spans[name][1])
            step.graph.spans[name] = (low, high)


def _choose(
    prepared: Prepared, scale: int | None, network: Callable[[Settings], Choice] | None = None
) -> tuple[Choice, Choice | None]:
    """The largest scale that fits, and the choice for a `network` whose weights the step makes at these settings."""
    refusal: DoesNotFitError | None = None
    for fractional in [scale] if scale is not None else SCALES:
        settings = Settings(
            ring_bits=RING,
            scale=fractional,
            finer_bits=FINER_BITS,
            whole_bounds=True,
            table_error=max(TABLE_ERROR, 2.0 ** (2 - fractional)),
        )
        try:
            served = None if network is None else network(settings)
            step = choose(prepared.graph, settings, prepared.ranges, prepared.magnitudes, (RING,), fractional)
        except DoesNotFitError as error:
            refusal = error.with_traceback(None)
        else:
            return step, served
    assert refusal is not None
    raise refusal


def initial_weights(job: Job) -> dict[str, Array]:
    """The model's tensors before training."""
    return {entry.name: entry.initial for entry in job.trained}
