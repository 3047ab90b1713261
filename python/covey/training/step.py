"""A training step of a model as a graph: forward, backward, and what the optimiser makes of the weights."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from covey.arguments import is_whole
from covey.errors import ModelError, NodeError, OptionError, UnsupportedError
from covey.importers.source import Source, examine, is_torch
from covey.importers.torch_programs import as_written
from covey.inputs import listed
from covey.interval import Array
from covey.ir import DType, Graph, Node, Op, Value
from covey.ops.add import Add
from covey.ops.dropout import Dropout
from covey.passes import recognise
from covey.passes.conv_expansion import expand_convolutions
from covey.passes.dead_nodes import remove_dead_nodes
from covey.passes.pool_before_relu import pool_before_relu
from covey.passes.relu_before_moves import relu_before_moves
from covey.training.builder import Builder
from covey.training.differentiate import differentiate
from covey.training.ending import scores_of
from covey.training.losses import LABELS, Loss, loss_of, weights_of
from covey.training.opening import LOSS, RIGHT, Sum, output_name, summed
from covey.training.optimizers import Next, Optimizer, Variable
from covey.training.parameters import Computed, Part, View, chosen, model_of, views
from covey.training.serving import Emission, Serving, inference

OPENED = "trained."
"""What the names of values that open at the end begin with; the model's own name follows."""


@dataclass(frozen=True)
class Trained:
    """A tensor of the model that training changes."""

    name: str
    initial: Array = field(repr=False)
    change: str
    """The carried value that holds how much it has changed."""
    after: str
    """What that is after a step."""
    statistic: bool = False
    """Whether it follows the data, as running statistics do, and not the gradient."""


@dataclass(frozen=True)
class Step:
    """The graph of one step on a minibatch; its inputs are the model's, the labels and what is carried."""

    graph: Graph
    batch: int
    data: list[str]
    """The inputs of the data owner, the labels last."""
    trained: list[Trained]
    growing: dict[str, float]
    reach: dict[str, float]
    spans: dict[str, tuple[float, float]]
    labels: int
    """Labels of a minibatch."""
    loss: str
    """The mean loss of the minibatch, which may not open."""
    right: str | None
    """How many labels the minibatch got right."""
    sums: list[Sum]
    """What opens in place of them, where that is sums over steps."""
    serving: Serving | None = None
    """The network that the parties keep the trained weights for, if that is asked for."""


def make(
    source: Source,
    example_inputs: Any = None,
    *,
    loss: str,
    optimizer: Optimizer,
    batch: int,
    class_weights: Any = None,
    freeze: Sequence[str] = (),
    batch_norm: str = "train",
    open_weights: bool = False,
    open_losses: int = 1,
    serve: bool = False,
    dropout: bool = False,
    stochastic_rounding: bool = False,
    seed: int = 0,
    name: str | None = None,
) -> Step:
    """The step of a model. Raises a `CoveyError` that names what cannot be trained."""
    if not is_whole(batch) or batch < 1:
        raise OptionError(f"minibatches of {batch!r} samples: give a whole number, at least 1")
    if batch_norm not in ("train", "frozen"):
        raise OptionError(f"batch_norm '{batch_norm}' is unknown: use train or frozen")
    if not isinstance(optimizer, Optimizer):
        raise OptionError("the optimizer is none of Covey's: make one, such as covey.SGD(0.1)")
    optimizer.check()
    emit_loss = loss_of(loss)
    found = model_of(source)
    every = chosen(found.tensors, freeze)
    _check_parametrizations(found.tensors, every)
    probe, drawn = found.probe(every)
    learned = {alias: tensor for tensor in every for alias in (tensor, *found.tensors[tensor].others)}
    model, errors = _imported(probe, name or _name_of(source), example_inputs, dropout, learned)
    if errors:
        raise errors[0]
    if dropout and not any(isinstance(node.op, Dropout) for node in model.nodes):
        raise OptionError("the model has no layer that drops elements: leave dropout out")
    if len(model.outputs) != 1:
        raise ModelError(f"the model has {len(model.outputs)} outputs: train one with a single output")
    _check_inputs(model)
    seen, computed = _read(model, drawn, learned)
    read = {*(view.tensor for view in seen.values()), *(computed.tensors if computed is not None else ())}
    unread = [name for name in every if name not in read]
    if unread:
        raise OptionError(f"the network does not read {listed(unread)} as it is: freeze it (freeze=['{unread[0]}'])")
    if serve and computed is not None:
        tensor = computed.tensors[0]
        raise OptionError(
            f"the network computes with '{tensor}' alone, which no weights of a program that serves can be made of: "
            f"open the weights instead, or freeze it (freeze=['{tensor}'])"
        )
    build = Builder(model.name, batch, seed)
    # A model may have anything of these names: what trainers look for is called so all the same.
    build.graph.reserved = {LABELS, *(f"{OPENED}{name}" for name in found.tensors)}
    build.batch_statistics = batch_norm == "train"
    build.stochastic_rounding = stochastic_rounding
    stacked = _Stacking(build, model, every, seen, scores_of(model, loss), computed)
    scores = stacked.run()
    _check_loss(loss, scores)
    weights = weights_of(loss, class_weights, scores.shape[1:])
    with build.at("loss", loss, "loss"):
        made = emit_loss(build, scores, weights)
    gradients = differentiate(build, {scores.name: made.gradient})
    nexts, trained = _stepped(build, stacked, optimizer, made, gradients)
    if open_weights:
        _opened(build, trained)
    serving = None
    if serve:
        plain, errors = model, []
        if dropout:
            plain, errors = _imported(probe, name or _name_of(source), example_inputs, False, learned)
        if errors:
            raise errors[0]
        serving = Emission(build, trained).of(inference(plain, drawn, {running.name for running in build.running}))
    opens = made
    sums: list[Sum] = []
    if open_losses > 1:
        opens, carried, sums = summed(build, made, open_losses)
        nexts += carried
    return _finished(build, model, (made, opens, open_losses), nexts, trained, sums, serving)


def _name_of(source: Source) -> str | None:
    """What a file calls the model."""
    if isinstance(source, str | os.PathLike):
        return os.path.splitext(os.path.basename(os.fspath(source)))[0]
    return None if not is_torch(source) or hasattr(source, "graph_signature") else type(as_written(source)).__name__


def _imported(
    source: Source, name: str | None, example_inputs: Any, dropout: bool, trained: Container[str]
) -> tuple[Graph, list[NodeError]]:
    """The network, rewritten as far as no weight is merged with another."""
    graph, errors = examine(source, name, example_inputs, dropout=dropout, trained=trained)
    for each in filter(None, (graph, graph.mirror)):
        errors = errors or recognise(each)
        expand_convolutions(each, transposed=False)
        pool_before_relu(each)
        relu_before_moves(each)
        remove_dead_nodes(each)
    return graph, errors


def _read(
    model: Graph, drawn: dict[str, Array], names: dict[str, str]
) -> tuple[dict[str, View | Part], Computed | None]:
    """What the model's parameters are of its tensors, and of what it computes of these alone.

    `names` are those of tensors, by all names that they have.
    """
    origin, mirror, model.computed, model.mirror = model.computed, model.mirror, None, None
    tensors = {} if origin is None else origin.tensors
    sources = {} if origin is None else {name: names[origin.sources(name)[0]] for name in tensors}
    seen = views(model, {**tensors, **drawn}, sources)
    if mirror is not None and (node := _of_numbers(model, mirror, seen)) is not None:
        reason = "it reads something that is computed of weights which are trained, and of no input"
        raise UnsupportedError(node.name, node.source_op, reason, "freeze the weights that it reads")
    read = {name for node in model.nodes for name in node.inputs}
    made = sorted({view.tensor for name, view in seen.items() if name in read} & tensors.keys())
    if origin is None or not made:
        return seen, None
    program, inputs = origin.network(made)
    graph, errors = _imported(program, "weights", None, False, ())
    if errors:
        way_out = f"freeze '{sources[made[0]]}' (freeze=['{sources[made[0]]}'])"
        raise type(errors[0])(errors[0].node, errors[0].op, errors[0].reason, way_out)
    return seen, Computed(graph, [names[tensor] for tensor in inputs], made)


def _of_numbers(model: Graph, mirror: Graph, seen: Container[str]) -> Node | None:
    """The first node that depends on the numbers of trained tensors otherwise than by moves of these."""

    def differs(name: str) -> bool:
        mine, its = model.parameters.get(name), mirror.parameters.get(name)
        return mine is not None and name not in seen and not (its is not None and np.array_equal(mine, its))

    for node, other in zip(model.nodes, mirror.nodes, strict=False):
        if node.inputs != other.inputs or repr(node.op) != repr(other.op) or any(map(differs, node.inputs)):
            return node
    return None if len(model.nodes) == len(mirror.nodes) else model.nodes[-1]


def _check_parametrizations(names: Iterable[str], trained: Container[str]) -> None:
    """Refuse spectral_norm, whose vectors follow the steps in PyTorch."""
    for name in names:
        place, vector, rest = f".{name}".rpartition("._u")
        if not vector or rest or ".parametrizations." not in place:
            continue
        weight = place.rpartition(".")[0]
        if f"{weight}.original"[1:] in trained:
            part = weight.partition(".parametrizations.")[0][1:] or "the module"
            raise OptionError(
                f"{part} has its weights divided by a norm that follows the steps, as spectral_norm does: call "
                f"torch.nn.utils.parametrize.remove_parametrizations on it, or freeze them (freeze=['{weight[1:]}.*'])"
            )


def _check_inputs(model: Graph) -> None:
    for name in model.inputs:
        if name in (LABELS, LOSS, RIGHT):
            raise OptionError(f"the model has an input '{name}', which names something else in training: rename it")


def _check_loss(loss: str, scores: Value) -> None:
    if loss == "cross-entropy" and len(scores.shape) < 2:
        raise OptionError(f"cross-entropy needs scores of classes: the output '{scores.name}' is one number a sample")


class _Stacking:
    """The forward part of a step: the model's nodes on minibatches, what is trained as activations."""

    def __init__(
        self,
        build: Builder,
        model: Graph,
        every: dict[str, Array],
        seen: dict[str, View | Part],
        left_out: Node | None = None,
        computed: Computed | None = None,
    ) -> None:
        self.build, self.model, self.every, self.seen, self.left_out = build, model, every, seen, left_out
        self.variables: dict[str, Value] = {}
        self.of_tensors, self.computed = computed, dict[str, Value]()
        self.known: dict[str, Value] = {}

    def _computed(self, of: Computed) -> dict[str, Value]:
        """What is computed of tensors alone."""
        build, graph = self.build, of.graph
        with build.samples(1):
            known = {
                name: build.reshape(self._variable(tensor), (1, *graph.values[name].shape))
                for name, tensor in zip(graph.inputs, of.tensors, strict=True)
            }
            self._nodes(graph, known, lambda name: build.parameter(name, graph.parameters[name]))
        values = (known[name] for name in graph.outputs)
        return {
            name: build.reshape(value, value.shape[1:] or (1,)) for name, value in zip(of.names, values, strict=True)
        }

    def run(self) -> Value:
        build, model = self.build, self.model
        for name in model.inputs:
            value = model.values[name]
            self.known[name] = build.input(name, (build.count, *value.shape), value.dtype)
            classes = model.classes.get(name)
            if classes is not None:
                build.graph.classes[name] = classes if len(classes) == 1 else classes * build.count
        build.graph.truths.update(model.truths)
        if self.of_tensors is not None:
            self.computed = self._computed(self.of_tensors)
        self._nodes(model, self.known, self._parameter)
        names = {value.name: name for name, value in self.known.items()}
        build.running = [replace(running, name=names[running.parameter]) for running in build.running]
        return self.known[model.outputs[0]]

    def _nodes(self, graph: Graph, known: dict[str, Value], parameter: Callable[[str], Value]) -> None:
        """The nodes of a network; what they read is known, or a parameter."""
        build = self.build

        def operand(name: str) -> Value:
            if name not in known:
                known[name] = parameter(name)
            return known[name]

        for node in graph.nodes:
            if node is self.left_out:
                known[node.output] = operand(node.inputs[0])
                continue
            with build.at(node.name, node.source_op, node.output):
                inputs = [operand(name) for name in node.inputs]
                none = build.unsupported(f"{node.op.label} has no form for minibatches", "replace it")
                try:
                    result = node.op.stacked(build, *inputs)
                except UnsupportedError as error:
                    raise (none if type(node.op).stacked is Op.stacked else error) from None
                due = graph.values[node.output]
                if result.shape != (build.count, *due.shape):
                    raise none
                if due.dtype is not result.dtype:
                    result = build.graph.add_value(replace(result, dtype=due.dtype))
                known[node.output] = result

    def _parameter(self, name: str) -> Value:
        view = self.seen.get(name)
        if view is None:
            return self.build.parameter(name, self.model.parameters[name])
        with self.build.at(view.tensor, "Parameter", view.tensor):
            return view.of(self.build, self._variable(view.tensor))

    def _variable(self, name: str) -> Value:
        if name in self.computed:
            return self.computed[name]
        if name not in self.variables:
            initial = self.every[name]
            value = self.variables[name] = self.build.variable(name, initial, initial.shape)
            self.build.learned.add(value.name)
        return self.variables[name]


def _stepped(
    build: Builder, stacked: _Stacking, optimizer: Optimizer, loss: Loss, gradients: dict[str, Value]
) -> tuple[list[Next], list[tuple[str, Array, Next]]]:
    """What is carried to the next step."""
    for name, value in stacked.variables.items():
        if value.name not in gradients:
            raise OptionError(f"'{name}' has no bearing on the loss: freeze it")
    with build.at("optimizer", type(optimizer).__name__, "optimizer"):
        shared = optimizer.prepare(build)
        found = {name: gradients[value.name] for name, value in stacked.variables.items()}
        found = optimizer.limited(build, found, loss.mean)
    nexts, trained = list(shared.nexts), []
    for name, value in stacked.variables.items():
        change = build.graph.values[build.producers[value.name].inputs[1]]
        with build.at(name, type(optimizer).__name__, name):
            made = optimizer.step(build, Variable(name, value, change, found[name], loss.mean), shared)
        nexts += made
        trained.append((name, stacked.every[name], made[-1]))
    for running in build.running:
        with build.at(running.name, "BatchNormalization", running.parameter):
            made_running = _running(build, running.parameter, running.statistic, running.momentum)
        nexts.append(made_running)
        trained.append((running.name, build.graph.parameters[running.parameter], made_running))
    return nexts, trained


def _opened(build: Builder, trained: list[tuple[str, Array, Next]]) -> None:
    """What is trained, as it is after a step: it opens where the data owner ends the sequence."""
    for name, _, entry in trained:
        build.graph.reserved.discard(f"{OPENED}{name}")
        with build.at(name, "Parameter", f"{OPENED}{name}"):
            value = build.emit(Add(), build.beginnings[entry.carried.name], entry.after)
        build.graph.finer.add(value.name)
        build.graph.opened[entry.carried.name] = value.name


def _running(build: Builder, parameter: str, statistic: Value, momentum: float) -> Next:
    from covey.ops.combined import Combined

    initial = build.graph.parameters[parameter]
    value = build.variable(f"{parameter}.running", initial, initial.shape)
    change = build.graph.values[build.producers[value.name].inputs[1]]
    op = Combined((1.0, -momentum, momentum))
    after = build.emit(op, change, value, statistic, hint="after")
    build.graph.finer.add(after.name)
    return Next(change, after)


def _finished(
    build: Builder,
    model: Graph,
    losses: tuple[Loss, Loss, int],
    nexts: list[Next],
    trained: list[tuple[str, Array, Next]],
    sums: list[Sum],
    serving: Serving | None,
) -> Step:
    """The graph with products of secrets in the place of layers whose weights are trained.

    `losses` are that of a step, what opens of it, and over how many steps that is.
    """
    graph, (loss, opens, steps) = build.graph, losses
    graph.outputs = [opens.loss.name, *([opens.right.name] if opens.right is not None else [])]
    graph.outputs += [each.after.name for each in nexts]
    graph.carried = {each.carried.name: each.after.name for each in nexts}
    final = Builder(graph.name, build.count)
    names = output_name(LOSS, steps), output_name(RIGHT, steps)
    final.graph.reserved = {*names, *graph.opened.values()}
    known: dict[str, Value] = {}
    for name in graph.inputs:
        value = graph.values[name]
        known[name] = final.input(name, value.shape, value.dtype)
    final.graph.classes, final.graph.truths = graph.classes, graph.truths
    final.graph.finer.update(name for name in graph.finer if name in known)
    for node in graph.nodes:
        if node.output in graph.opened.values():
            final.graph.reserved.discard(node.output)
        with final.at(node.name, node.source_op, node.output):
            inputs = []
            for name in node.inputs:
                if name not in known:
                    known[name] = final.parameter(name, graph.parameters[name])
                inputs.append(known[name])
            result = node.op.of_secrets(final, *inputs)
            dtype = graph.values[node.output].dtype
            if result.dtype is not dtype:
                result = final.graph.add_value(replace(result, dtype=dtype))
            if node.output in graph.finer:
                final.graph.finer.add(result.name)
        known[node.output] = result
    made = final.graph
    made.outputs = [known[name].name for name in graph.outputs]
    made.carried = {name: known[after].name for name, after in graph.carried.items()}
    made.opened = {name: known[opens].name for name, opens in graph.opened.items()}
    if serving is not None:
        serving = serving.renamed({name: value.name for name, value in known.items()})
        made.served = {name: [] for name in serving.values.values()}
    remove_dead_nodes(made)
    opened = {opens.loss.name: _name_output(made, 0, names[0], DType.FLOAT)}
    if opens.right is not None:
        opened[opens.right.name] = _name_output(made, 1, names[1], DType.INDEX if steps == 1 else DType.FLOAT)
    final_name = {name: opened.get(name, value.name) for name, value in known.items()}
    statistics = {running.name for running in build.running}
    entries = [
        Trained(name, initial, each.carried.name, known[each.after.name].name, name in statistics)
        for name, initial, each in trained
    ]
    return Step(
        made,
        build.count,
        [*model.inputs, LABELS],
        entries,
        {known[name].name: factor for name, factor in build.growing.items()},
        {known[name].name: most for name, most in build.reach.items()},
        {known[name].name: span for name, span in build.spans.items()},
        graph.values[LABELS].size,
        final_name[loss.loss.name],
        None if loss.right is None else final_name[loss.right.name],
        [Sum(tuple(final_name[name] for name in each.values), final_name[each.of], each.steps) for each in sums],
        serving,
    )


def _name_output(graph: Graph, index: int, name: str, dtype: DType) -> str:
    """Give an output the name that users see."""
    old = graph.outputs[index]
    graph.reserved.discard(name)
    name = graph.fresh(name)
    node = graph.producer(old)
    assert node is not None, "a loss is computed"
    node.output = name
    graph.values[name] = replace(graph.values.pop(old), name=name, dtype=dtype)
    graph.redirect(old, name)
    return name
