"""Serving a trained model that never opens: the inference network, and what a step makes of its weights.

The network is the model as training reads it, no weight merged with another. Its parameters are moves of trained
tensors; those of batch normalisation are a factor and a summand of each channel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from covey import reference
from covey.compiled import Prepared, note_spans
from covey.errors import DoesNotFitError, UnsupportedError
from covey.interval import Array
from covey.ir import Graph, Node, Value, Weight
from covey.lowering import MARGIN, Lowering, Settings
from covey.measure import Samples
from covey.ops.add import Add
from covey.ops.batch_normalization import BatchNormalization
from covey.ops.concat import Concat
from covey.ops.mul import Mul
from covey.ops.quotient import Inverse
from covey.passes.conv_expansion import expand_convolutions
from covey.passes.dead_nodes import remove_dead_nodes
from covey.passes.scale_choice import Choice, lowered
from covey.training.builder import Builder
from covey.training.optimizers import Next
from covey.training.parameters import Part, View, views

if TYPE_CHECKING:
    from covey.training.calibration import Rehearsal
    from covey.training.step import Step

Spans: TypeAlias = "Mapping[str, tuple[float, float]]"

SMALLER_SCALES = (18, 16, 14, 12, 10)
"""Fractional bits of a network's values that are tried where those of the training job do not fit."""

STATISTICS_MOVE = 8.0
"""How many times as large or as small as in calibration a running variance may become."""


@dataclass(frozen=True)
class Norm:
    """A batch normalisation of the network: the parameters `factor` and `summand` that stand for four.

    These are scale, shift, mean and variance, each a trained tensor or an array that stays.
    """

    op: BatchNormalization
    factor: str
    summand: str
    shape: tuple[int, ...]
    operands: tuple[View | Part | Array, ...] = field(repr=False)

    def arrays(self, tensors: Mapping[str, Array]) -> dict[str, Array]:
        """Both parameters, given what is trained."""
        found = (
            each if isinstance(each, np.ndarray) else each.of_array(tensors[each.tensor]) for each in self.operands
        )
        factor, summand = self.op.affine(*found)
        return {self.factor: factor.reshape(self.shape), self.summand: summand.reshape(self.shape)}


@dataclass(frozen=True)
class Network:
    """The inference network of a model that is trained, and which tensors its parameters are made of."""

    graph: Graph
    views: dict[str, View | Part]
    norms: list[Norm]

    def arrays(self, tensors: Mapping[str, Array]) -> dict[str, Array]:
        """The parameters that are made of trained tensors, given these."""
        found = {name: view.of_array(tensors[view.tensor]) for name, view in self.views.items()}
        for norm in self.norms:
            found |= norm.arrays(tensors)
        return found


def inference(model: Graph, drawn: Mapping[str, Array], running: Container[str]) -> Network:
    """The network of an imported model whose trained tensors hold the `drawn` numbers.

    `running` are parameters that follow the minibatches.
    """
    graph = replace(
        model,
        nodes=[replace(node, inputs=list(node.inputs)) for node in model.nodes],
        values=dict(model.values),
        parameters=dict(model.parameters),
        notes=dict(model.notes),
    )
    expand_convolutions(graph)
    try:
        found = _share_equal_parameters(graph, views(graph, drawn))
    except UnsupportedError as error:
        reason = f"as a part of a network that is served, {error.reason}"
        raise UnsupportedError(error.node, error.op, reason, f"{error.way_out}, or open the weights instead") from None
    norms = []
    for node in list(graph.nodes):
        if isinstance(node.op, BatchNormalization):
            operands = tuple(_operand(graph, name, found, running) for name in node.inputs[1:])
            norms.append(_written_out(graph, node, node.op, operands))
    remove_dead_nodes(graph)
    return Network(graph, {name: view for name, view in found.items() if name in graph.parameters}, norms)


def _share_equal_parameters(graph: Graph, found: Mapping[str, View | Part]) -> dict[str, View | Part]:
    """Those of these parameters that stay: of all that hold the same numbers in the same places, one."""
    first: dict[tuple[tuple[int, ...], bytes], str] = {}
    for name in found:
        array = graph.parameters[name]
        kept = first.setdefault((array.shape, array.tobytes()), name)
        if kept != name:
            graph.redirect(name, kept)
    remove_dead_nodes(graph)
    return {name: found[name] for name in first.values() if name in graph.parameters}


def _operand(graph: Graph, name: str, found: Mapping[str, View | Part], running: Container[str]) -> View | Part | Array:
    if name in found:
        return found[name]
    array = graph.parameters[name]
    if name in running:
        return View(name, tuple(range(array.ndim)), array.shape)
    return array


def _written_out(graph: Graph, node: Node, op: BatchNormalization, operands: tuple[View | Part | Array, ...]) -> Norm:
    """A normalisation as a multiplication and an addition, whose parameters get their numbers later."""
    x = graph.values[node.inputs[0]]
    shape = (x.shape[0], *(1,) * (len(x.shape) - 1))
    factor = graph.add_parameter(f"{node.output}.factor", np.ones(shape))
    summand = graph.add_parameter(f"{node.output}.summand", np.zeros(shape))
    product = graph.add_value(Value(graph.fresh(f"{node.output}.product"), x.shape))
    place = next(index for index, other in enumerate(graph.nodes) if other is node)
    graph.nodes[place : place + 1] = [
        Node(node.name, node.source_op, Mul(), [x.name, factor.name], product.name),
        Node(node.name, node.source_op, Add(), [product.name, summand.name], node.output),
    ]
    graph.note(node, "one multiplication and one addition per element: its parameters are made of trained weights")
    return Norm(op, factor.name, summand.name, shape, operands)


@dataclass(frozen=True)
class Leaf:
    """What an operand of a normalisation may be: a step's values, and an array that it begins as or stays."""

    values: tuple[str, ...]
    array: Array = field(repr=False)

    def span(self, spans: Spans) -> tuple[float, float]:
        """Its least and its largest number in calibration."""
        lows, highs = zip(*(spans[name] for name in self.values), (self.array.min(), self.array.max()), strict=True)
        return float(min(lows)), float(max(highs))

    def renamed(self, names: Mapping[str, str]) -> Leaf:
        """The same with other names of values."""
        return replace(self, values=tuple(names[name] for name in self.values))


FACTOR, SUMMAND = "factor", "summand"


@dataclass(frozen=True)
class Emitted:
    """The values by which a step makes the parameters of normalisations: of all together, and of each."""

    norms: tuple[tuple[BatchNormalization, tuple[Leaf, ...]], ...]
    together: dict[str, str]
    """What values are."""
    each: tuple[dict[str, str], ...]

    def renamed(self, names: Mapping[str, str]) -> Emitted:
        """The same with other names of values."""
        norms = tuple((op, tuple(leaf.renamed(names) for leaf in leaves)) for op, leaves in self.norms)
        together, *each = ({names[value]: what for value, what in of.items()} for of in (self.together, *self.each))
        return Emitted(norms, together, tuple(each))

    def note(self, step: Step, spans: Spans) -> None:
        """Have the step's bounds hold for statistics anywhere between the model's and those of minibatches."""
        for (op, leaves), values in zip(self.norms, self.each, strict=True):
            scale, shift, mean, variance = (leaf.span(spans) for leaf in leaves)
            least, most = (end + op.epsilon for end in variance)
            inverse = least**-0.5
            factor = _largest(scale) * inverse
            product = _largest(mean) * factor
            reach = {"total": most, "inverse": inverse, FACTOR: factor, "product": product}
            reach[SUMMAND] = _largest(shift) + product
            for value, what in (*values.items(), *self.together.items()):
                step.reach[value] = max(step.reach.get(value, 0.0), reach[what])
                if what == "total":
                    low, high = step.spans.get(value, (least, most))
                    step.spans[value] = (min(low, least / STATISTICS_MOVE), max(high, most * STATISTICS_MOVE))


def _largest(span: tuple[float, float]) -> float:
    return max(abs(span[0]), abs(span[1]))


@dataclass(frozen=True)
class Serving:
    """A network, the values of a step that become its parameters, and how the step makes those of normalisations."""

    network: Network
    values: dict[str, str]
    norms: list[Emitted]

    def renamed(self, names: Mapping[str, str]) -> Serving:
        """The same with other names of values."""
        values = {parameter: names[value] for parameter, value in self.values.items()}
        return replace(self, values=values, norms=[norm.renamed(names) for norm in self.norms])

    def prepared(
        self,
        step: Step,
        found: Rehearsal,
        samples: Mapping[str, Array],
        inputs: tuple[dict[str, tuple[float, float]], dict[str, str]],
        of_step: Mapping[str, float],
        beyond: float,
    ) -> Prepared:
        """The network ready to be lowered, with the initial weights.

        `inputs` are the ranges of a step's inputs and where they come from, `of_step` the largest values of a step, and
        a value may become `beyond` times as large as calibration shows it.
        """
        graph = self.network.graph
        ranges, sources = inputs
        samples = {name: samples[name] for name in graph.inputs}
        initial = {entry.name: entry.initial for entry in step.trained}
        spans: dict[str, tuple[float, float]] = {}
        for tensors in (found.trained(step), initial):
            graph.parameters |= self.network.arrays(tensors)
            for name, (low, high) in reference.spans(graph, samples).items():
                least, most = spans.get(name, (low, high))
                spans[name] = (min(low, least), max(high, most))
        graph.reach = self._reach(step, ranges, of_step)
        magnitudes = {name: largest * beyond for name, largest in note_spans(graph, spans).items()}
        count = len(next(iter(samples.values())))
        return Prepared(
            graph,
            {name: ranges[name] for name in graph.inputs},
            {name: sources[name] for name in graph.inputs},
            magnitudes,
            count,
            Samples.of(graph, samples),
        )

    def choose(self, network: Prepared, step: Graph, settings: Settings) -> Choice:
        """The network's program for a step with these settings: of the same scale, or the largest one that fits.

        Notes in the step's graph which weights the program has. Raises `DoesNotFitError` where no scale fits.
        """
        trained, refusal = settings.scale + settings.finer_bits, None
        for scale in (settings.scale, *(each for each in SMALLER_SCALES if each < settings.scale)):
            finer = trained - scale
            error = max(settings.table_error, 2.0 ** (2 - scale))
            its_own = replace(settings, scale=scale, finer_bits=finer, table_error=error)
            try:
                lowering = lowered(network.graph, its_own, network.ranges, network.magnitudes)
            except DoesNotFitError as error_of_scale:
                refusal = refusal or error_of_scale.with_traceback(None)
                continue
            step.served = {value: self._weights(lowering, name) for name, value in self.values.items()}
            return Choice(lowering, f"scale {scale} in Z_2^{settings.ring_bits}, for trained weights of {trained} bits")
        assert refusal is not None
        raise refusal

    def _weights(self, lowering: Lowering, name: str) -> list[Weight]:
        """The program's weights that hold a parameter: at least one, if anything reads it."""
        found = lowering.trained.get(name, [])
        readers = self.network.graph.consumers(name)
        if readers and not found:
            reason = f"it takes '{name}' in a form that no trained tensor has"
            raise UnsupportedError(
                readers[0].name, readers[0].source_op, reason, "freeze it, or open the weights instead"
            )
        return found

    def _reach(self, step: Step, ranges: Spans, of_step: Mapping[str, float]) -> dict[str, float]:
        """What parameters may become: where a tensor begins, and as far from it as its change is carried."""
        farthest = {
            entry.name: ranges[entry.change][1] + float(np.abs(entry.initial).max(initial=0.0))
            for entry in step.trained
        }
        found = {name: farthest[view.tensor] for name, view in self.network.views.items()}
        for parameter in self.values.keys() - found.keys():
            most = MARGIN * of_step[self.values[parameter]]
            found[parameter] = 2.0 ** math.ceil(math.log2(max(most, 1.0)))
        return found


class Emission:
    """Writes into a step what it makes of a network's parameters, where the data owner ends the sequence."""

    def __init__(self, build: Builder, trained: list[tuple[str, Array, Next]]) -> None:
        self.build = build
        self.trained = {name: (initial, entry) for name, initial, entry in trained}
        self.statistics = {running.name: running.statistic.name for running in build.running}
        # The sum of a carried change and what it is a change of.
        self.initial = {
            node.inputs[1]: build.graph.values[node.inputs[0]]
            for node in build.graph.nodes
            if isinstance(node.op, Add) and node.inputs[0] in build.graph.parameters
        }
        self.made: dict[str, Value] = {}

    def of(self, network: Network) -> Serving:
        """The values of all parameters that are made of trained tensors."""
        values, norms = {}, []
        for name, view in network.views.items():
            with self.build.at(view.tensor, "Parameter", f"served.{name}"):
                values[name] = self._moved(view).name
        kinds: dict[tuple[bool, ...], list[Norm]] = {}
        for norm in network.norms:
            kinds.setdefault(tuple(isinstance(each, np.ndarray) for each in norm.operands), []).append(norm)
        for alike in kinds.values():
            with self.build.at(alike[0].factor, "BatchNormalization", f"served.{alike[0].factor}"):
                emitted, made = self._norms(alike)
            values |= made
            norms.append(emitted)
        return Serving(network, values, norms)

    def _tensor(self, name: str) -> Value:
        """A trained tensor as it is after the step."""
        if name in self.made:
            return self.made[name]
        build, entry = self.build, self.trained[name][1]
        opened = build.graph.opened.get(entry.carried.name)
        if opened is not None:
            value = build.graph.values[opened]
        else:
            value = build.emit(Add(), self.initial[entry.carried.name], entry.after, hint="trained")
            build.graph.finer.add(value.name)
        self.made[name] = value
        return value

    def _moved(self, view: View | Part) -> Value:
        return view.of(self.build, self._tensor(view.tensor))

    def _norms(self, norms: list[Norm]) -> tuple[Emitted, dict[str, str]]:
        """Factors and summands as `BatchNormalization.affine` has them; what only arrays make is one.

        All channels at once: a root takes as many rounds for one as for all.
        """
        build = self.build
        rows = []
        for norm in norms:
            *others, variance = (each if isinstance(each, np.ndarray) else self._moved(each) for each in norm.operands)
            if isinstance(variance, Value):
                of_norm = build.affine(variance, 1.0, norm.op.epsilon)
                build.graph.finer.add(of_norm.name)
                rows.append((*others, of_norm))
            else:
                rows.append((*others, variance + norm.op.epsilon))
        scale, shift, mean, total = (self._end_to_end(column) for column in zip(*rows, strict=True))
        inverse = build.emit(Inverse(2, 1.0), total, hint="inverse") if isinstance(total, Value) else total**-0.5
        factor = self._joined(build.mul, np.multiply, scale, inverse)
        product = self._joined(build.mul, np.multiply, mean, factor)
        summand = self._joined(build.sub, np.subtract, shift, product)
        together = {"total": total, "inverse": inverse, FACTOR: factor, "product": product, SUMMAND: summand}
        made, each_of, end = {}, [], 0
        for norm, (*_, own) in zip(norms, rows, strict=True):
            start, end = end, end + norm.shape[0]
            values = {own.name: "total"} if isinstance(own, Value) else {}
            for what, parameter, value in ((FACTOR, norm.factor, factor), (SUMMAND, norm.summand, summand)):
                if isinstance(value, Value):
                    picked = build.pick_along(value, 0, range(start, end))
                    shaped = build.reshape(picked, norm.shape)
                    values |= {picked.name: what, shaped.name: what}
                    made[parameter] = shaped.name
            each_of.append(values)
        leaves = tuple((norm.op, tuple(self._leaf(each) for each in norm.operands)) for norm in norms)
        names = {value.name: what for what, value in together.items() if isinstance(value, Value)}
        return Emitted(leaves, names, tuple(each_of)), made

    def _end_to_end(self, parts: Sequence[Value | Array]) -> Value | Array:
        """Numbers of channels as one row; all are values, or all arrays."""
        values = [each for each in parts if isinstance(each, Value)]
        if not values:
            return np.concatenate([each for each in parts if isinstance(each, np.ndarray)])
        return values[0] if len(values) == 1 else self.build.emit(Concat(1), *values, hint="channels")

    def _joined(
        self,
        of_values: Callable[[Value, Value], Value],
        of_arrays: Callable[[Array, Array], Array],
        x: Value | Array,
        y: Value | Array,
    ) -> Value | Array:
        if isinstance(x, np.ndarray) and isinstance(y, np.ndarray):
            return of_arrays(x, y)
        return of_values(
            *(self.build.parameter("kept", each) if isinstance(each, np.ndarray) else each for each in (x, y))
        )

    def _leaf(self, operand: View | Part | Array) -> Leaf:
        if isinstance(operand, np.ndarray):
            return Leaf((), operand)
        initial = self.trained[operand.tensor][0]
        statistic = self.statistics.get(operand.tensor)
        return Leaf((self._tensor(operand.tensor).name, *([statistic] if statistic is not None else [])), initial)
