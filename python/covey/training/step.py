"""A training step of a model as a graph: forward, backward, and what the optimiser makes of the weights."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from covey.arguments import is_whole
from covey.errors import ModelError, NodeError, OptionError
from covey.importers.source import Source, examine, is_torch
from covey.importers.torch_programs import as_written
from covey.inputs import listed
from covey.interval import Array
from covey.ir import DType, Graph, Node, Value
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
from covey.training.parameters import Part, View, chosen, held, model_of, views
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
    probe, drawn = found.probe(every)
    model, errors = _imported(probe, name or _name_of(source), example_inputs, dropout)
    if errors:
        raise errors[0]
    if dropout and not any(isinstance(node.op, Dropout) for node in model.nodes):
        raise OptionError("the model has no layer that drops elements: leave dropout out")
    if len(model.outputs) != 1:
        raise ModelError(f"the model has {len(model.outputs)} outputs: train one with a single output")
    _check_inputs(model)
    if (detached := held(drawn, model.detached)) is not None:
        raise OptionError(f"the network detaches '{detached}', which has a gradient elsewhere: freeze '{detached}'")
    seen = views(model, drawn)
    unread = [name for name in every if name not in {view.tensor for view in seen.values()}]
    if unread:
        computed = next((name for name in unread if ".parametrizations." in f".{name}"), None)
        if computed is not None:
            part = f".{computed}".partition(".parametrizations.")[0].lstrip(".") or "the module"
            raise OptionError(
                f"{part} computes its weights from others, as weight_norm does: call "
                f"torch.nn.utils.parametrize.remove_parametrizations on it, or freeze these (freeze=['{computed}'])"
            )
        raise OptionError(f"the network does not read {listed(unread)} as it is: freeze it (freeze=['{unread[0]}'])")
    build = Builder(model.name, batch, seed)
    # A model may have anything of these names: what trainers look for is called so all the same.
    build.graph.reserved = {LABELS, *(f"{OPENED}{name}" for name in found.tensors)}
    build.batch_statistics = batch_norm == "train"
    build.stochastic_rounding = stochastic_rounding
    stacked = _Stacking(build, model, every, seen, scores_of(model, loss))
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
        plain, errors = _imported(probe, name or _name_of(source), example_inputs, False) if dropout else (model, [])
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


def _imported(source: Source, name: str | None, example_inputs: Any, dropout: bool) -> tuple[Graph, list[NodeError]]:
    """The network, rewritten as far as no weight is merged with another."""
    graph, errors = examine(source, name, example_inputs, dropout=dropout, trained=True)
    if errors:
        return graph, errors
    errors = recognise(graph)
    expand_convolutions(graph, transposed=False)
    pool_before_relu(graph)
    relu_before_moves(graph)
    remove_dead_nodes(graph)
    return graph, errors


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
    ) -> None:
        self.build, self.model, self.every, self.seen, self.left_out = build, model, every, seen, left_out
        self.variables: dict[str, Value] = {}
        self.known: dict[str, Value] = {}

    def run(self) -> Value:
        build, model = self.build, self.model
        for name in model.inputs:
            value = model.values[name]
            self.known[name] = build.input(name, (build.count, *value.shape), value.dtype)
            classes = model.classes.get(name)
            if classes is not None:
                build.graph.classes[name] = classes if len(classes) == 1 else classes * build.count
        build.graph.truths.update(model.truths)
        for node in model.nodes:
            if node is self.left_out:
                self.known[node.output] = self._operand(node.inputs[0])
                continue
            with build.at(node.name, node.source_op, node.output):
                inputs = [self._operand(name) for name in node.inputs]
                result = node.op.stacked(build, *inputs)
                due = model.values[node.output]
                if result.shape != (build.count, *due.shape):
                    raise build.unsupported(f"{node.op.label} has no form for minibatches", "replace it")
                if due.dtype is not result.dtype:
                    result = build.graph.add_value(replace(result, dtype=due.dtype))
                self.known[node.output] = result
        names = {value.name: name for name, value in self.known.items()}
        build.running = [replace(running, name=names[running.parameter]) for running in build.running]
        return self.known[model.outputs[0]]

    def _operand(self, name: str) -> Value:
        if name in self.known:
            return self.known[name]
        view = self.seen.get(name)
        if view is None:
            self.known[name] = self.build.parameter(name, self.model.parameters[name])
        else:
            with self.build.at(view.tensor, "Parameter", view.tensor):
                self.known[name] = view.of(self.build, self._variable(view.tensor))
        return self.known[name]

    def _variable(self, name: str) -> Value:
        if name not in self.variables:
            initial = self.every[name]
            value = self.variables[name] = self.build.variable(name, initial, initial.shape)
            self.build.learned.add(value.name)
        return self.variables[name]


def _stepped(
    build: Builder, stacked: _Stacking, optimizer: Optimizer, loss: Loss, gradients: dict[str, Value]
) -> tuple[list[Next], list[tuple[str, Array, Next]]]:
    """What is carried to the next step."""
    with build.at("optimizer", type(optimizer).__name__, "optimizer"):
        shared = optimizer.prepare(build)
        found = {name: gradients[value.name] for name, value in stacked.variables.items() if value.name in gradients}
        found = optimizer.limited(build, found, loss.mean)
    nexts, trained = list(shared.nexts), []
    for name, value in stacked.variables.items():
        gradient = found.get(name)
        if gradient is None:
            raise OptionError(f"'{name}' has no bearing on the loss: freeze it")
        change = build.graph.values[build.producers[value.name].inputs[1]]
        with build.at(name, type(optimizer).__name__, name):
            made = optimizer.step(build, Variable(name, value, change, gradient, loss.mean), shared)
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
