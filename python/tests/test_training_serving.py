"""Jobs whose trained weights serve an inference program: what they name, the integers, and what the network gives."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from onnx import helper
from rich.console import Console

import covey
import training_networks as networks
from covey._core import Program, Weights
from covey._proto import program_pb2 as pb
from covey.clear import ClearSession, run_clear
from covey.emit import HEADER_BYTES, program_file, weights_file
from covey.interval import Interval
from covey.lowering import Lowering, Settings
from covey.model import Model, load
from covey.ops.conv import Conv2d
from covey.ops.dense import Dense
from covey.ops.window import Window
from covey.training.calibration import rehearse
from covey.training.job import FINER_BITS, forms
from covey.training.minibatches import Arrays, read, shuffled
from covey.training.serving import Serving
from covey.training.step import make
from served import SERVED
from test_training import compiled, images, network

torch = pytest.importorskip("torch")
nn = torch.nn
BATCH, STEPS = 4, 6


def mlp() -> Any:
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


def cnn() -> Any:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.AvgPool2d(2), nn.Dropout(0.2),
        nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3),
    )  # fmt: skip


class Recurrent(nn.Module):  # type: ignore[misc,name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.LSTM(3, 4, batch_first=True), nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        return self.head(self.layer(x)[0][:, -1])


def normalised() -> Any:
    return nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 8), nn.PReLU(), nn.Linear(8, 3))


class Shared(nn.Module):  # type: ignore[misc,name-defined]
    """One layer twice, and an embedding whose table also makes the scores."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.layer = nn.Embedding(3, 4), nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        y = torch.relu(self.layer(torch.relu(self.layer(self.words(x).mean(1)))))
        return nn.functional.linear(y, self.words.weight)


VECTOR, IMAGE, SEQUENCE, WORDS = (6,), (1, 8, 8), (5, 3), (4,)

CASES: dict[str, tuple[Any, tuple[int, ...], dict[str, Any]]] = {
    "perceptron": (mlp, VECTOR, {}),
    "convolutions": (cnn, IMAGE, {}),
    "dropout": (cnn, IMAGE, {"dropout": True}),
    "weights that open as well": (cnn, IMAGE, {"open_weights": True, "open_losses": None}),
    "statistics that stay": (cnn, IMAGE, {"batch_norm": "frozen"}),
    "frozen layers": (cnn, IMAGE, {"freeze": ["0.*", "1.*"]}),
    "layers that stay as they are": (cnn, IMAGE, {"freeze": ["0.*", "1.*"], "batch_norm": "frozen"}),
    "recurrent": (Recurrent, SEQUENCE, {"optimizer": covey.Adam(0.01)}),
    "normalised": (normalised, VECTOR, {}),
    "shared weights": (Shared, WORDS, {}),
    "attention": (lambda: networks.transformer(torch), (6,), {}),
}
"""Networks, the shape of a sample, and options."""

EXACT = [name for name in CASES if name not in ("dropout", "frozen layers", "layers that stay as they are")]
"""Those that are trained here as PyTorch trains them."""


def data(case: str, samples: int = 24) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    shape = CASES[case][1]
    words = {"shared weights": 3, "attention": 20}.get(case)
    x = rng.uniform(-1, 1, (samples, *shape)) if words is None else rng.integers(0, words, (samples, *shape))
    return x, rng.integers(0, 3, samples)


def example(x: np.ndarray) -> Any:
    made = torch.from_numpy(x[:2])
    return (made.float() if made.is_floating_point() else made,)


def module(case: str) -> Any:
    made = networks.build(torch, lambda _: CASES[case][0](), seed=3)
    for layer in made.modules():
        if isinstance(layer, nn.BatchNorm2d):  # as training that came before leaves them
            with torch.no_grad():
                layer.running_mean.uniform_(-0.5, 0.5)
                layer.running_var.uniform_(0.05, 0.5)
                layer.weight.uniform_(0.5, 1.5)
                layer.bias.uniform_(-0.5, 0.5)
    return made


def of(case: str, **options: Any) -> covey.Job:
    x, y = data(case)
    settings: dict[str, Any] = {"loss": "cross-entropy", "optimizer": covey.SGD(0.1), "batch": BATCH, "serve": True}
    return covey.compile_training(
        module(case), example(x), calibration=(x, y), **settings | CASES[case][2] | options
    )  # fmt: skip


def message(compiled: covey.Compiled) -> pb.Program:
    return pb.Program.FromString(compiled.program_bytes[HEADER_BYTES:])


@dataclass
class Found:
    """A job that took some steps in the clear: what the parties would keep, by the served program's names."""

    job: covey.Job
    integers: Arrays
    changes: Arrays

    def weights(self) -> Arrays:
        """All weights of the served program."""
        assert self.job.served is not None
        return {**self.job.served.weights, **self.integers}


def batches(job: covey.Job, case: str, steps: int) -> list[Arrays]:
    records = read(*data(case), forms(job.step.graph, BATCH, {}), BATCH)
    return list(records.minibatches(BATCH, shuffled(len(records), 0, 1)))[:steps]


def stepped(case: str, job: covey.Job, steps: int = STEPS) -> Found:
    """The job's program with what it would keep, and what it carries, as further outputs."""
    program = message(job.compiled)
    kept = {entry.parameter: entry.value for entry in program.serving.weights}
    carried = {program.values[entry.value].name: entry.next for entry in program.carried}
    program.ClearField("serving")
    program.outputs.extend(dict.fromkeys([*kept.values(), *carried.values()]))
    content, digest = program_file(program, program.name)
    opens = Program(content)
    session = ClearSession(Model(opens, Weights(weights_file(job.compiled.weights, digest), opens)))
    integers = session.infer_all(batches(job, case, steps)).results[-1].integers
    values = [
        {name: integers[program.values[value].name][0] for name, value in values.items()} for values in (kept, carried)
    ]
    return Found(job, *values)


@cache
def run_of(case: str) -> Found:
    return stepped(case, of(case))


@pytest.fixture(params=CASES)
def found(request: pytest.FixtureRequest) -> tuple[str, Found]:
    return request.param, run_of(request.param)


def served(job: covey.Job, weights: Arrays | None = None) -> Model:
    compiled = job.served
    assert compiled is not None
    return load(compiled if weights is None else replace(compiled, weights=weights))


def test_what_a_job_names_fits_the_program_that_it_serves(found: tuple[str, Found]) -> None:
    case, run = found
    job = run.job
    assert job.served is not None
    step, network = message(job.compiled), message(job.served)
    assert step.serving.program.hex() == job.served.program_hash
    assert step.ring.pow2 == network.ring.pow2 == 64
    parameters = {value.name: value for value in network.values if value.kind == pb.Value.PARAMETER}
    named = [entry.parameter for entry in step.serving.weights]
    values = [entry.value for entry in step.serving.weights]
    assert len(named) == len(set(named)) == len(set(values)) > 0
    for entry in step.serving.weights:
        value, parameter = step.values[entry.value], parameters[entry.parameter]
        assert (value.kind, value.visibility) == (pb.Value.INTERMEDIATE, pb.Value.SECRET)
        assert parameter.visibility == pb.Value.SECRET
        assert (list(value.shape), value.scale) == (list(parameter.shape), parameter.scale), entry.parameter
        assert value.bound.bits <= parameter.bound.bits, entry.parameter
    rest = parameters.keys() - set(named)
    frozen = {"frozen layers": ["0.weight"], "layers that stay as they are": ["0.weight", "1.factor", "1.summand"]}
    assert len(rest) == len(frozen.get(case, [])), rest
    assert job.served.weights.keys() == parameters.keys()


def test_integers_are_the_weights_before_training_and_what_they_changed_by(found: tuple[str, Found]) -> None:
    """Exactly, for all that are a trained tensor's own numbers."""
    _, run = found
    step, job = run.job.step, run.job
    assert step.serving is not None and job.served is not None
    moved = False
    change = {entry.name: entry.change for entry in step.trained}
    for name, view in step.serving.network.views.items():
        for weight in step.graph.served[step.serving.values[name]]:
            left = weight.scale - job.compiled.report["scale"] - FINER_BITS
            due = view.of_array(run.changes[change[view.tensor]].astype(np.float64)).astype(np.int64) << left
            assert (run.integers[weight.parameter] == job.served.weights[weight.parameter] + due).all(), name
            moved |= bool(due.any())
    assert moved


def test_normalisations_are_of_the_trained_statistics(found: tuple[str, Found]) -> None:
    case, run = found
    step, scale = run.job.step, run.job.compiled.report["scale"] + FINER_BITS
    assert step.serving is not None
    tensors = {entry.name: entry.initial + np.ldexp(run.changes[entry.change], -scale) for entry in step.trained}
    norms = [norm for norm in step.serving.network.norms if norm.factor in step.serving.values]
    assert len(norms) == (case == "layers that stay as they are" or 2 * (CASES[case][0] is cnn))
    for norm in norms:
        for name, due in norm.arrays(tensors).items():
            (weight,) = step.graph.served[step.serving.values[name]]
            numbers = np.ldexp(run.integers[weight.parameter].astype(np.float64), -weight.scale)
            assert np.abs(numbers - due).max() <= 1e-3 * max(1.0, np.abs(due).max()), name


def test_the_network_gives_what_pytorch_does_before_training(found: tuple[str, Found]) -> None:
    case, run = found
    x = data(case)[0]
    due = module(case).double()(torch.from_numpy(x)).detach().numpy()
    (scores,) = run_clear(served(run.job), x).outputs.values()
    assert np.linalg.norm(scores - due) <= 1e-3 * np.linalg.norm(due)


@pytest.mark.parametrize("case", EXACT)
def test_the_network_gives_what_pytorch_does_after_training(case: str) -> None:
    options, run = CASES[case][2], run_of(case)
    job, trained, x = run.job, module(case).double(), data(case)[0]
    before = trained.eval()(torch.from_numpy(x)).detach().numpy()
    made = torch.optim.Adam if "optimizer" in options else torch.optim.SGD
    layers = [layer for layer in trained.modules() if isinstance(layer, nn.BatchNorm2d | nn.Dropout)]
    optimizer = made(trained.parameters(), lr=0.01 if "optimizer" in options else 0.1)
    trained.train()
    for layer in layers:
        layer.train(isinstance(layer, nn.BatchNorm2d) and options.get("batch_norm") != "frozen")
    for batch in batches(job, case, STEPS):
        inputs = torch.from_numpy(next(iter(batch.values()))[0])
        inputs = inputs if isinstance(x.flat[0], np.floating) else inputs.long()
        optimizer.zero_grad()
        networks.cross_entropy(torch)(trained(inputs), torch.from_numpy(batch["labels"][0])).backward()
        optimizer.step()
    due = trained.eval()(torch.from_numpy(x)).detach().numpy()
    (scores,) = run_clear(served(job, run.weights()), x).outputs.values()
    assert np.linalg.norm(scores - due) <= 0.03 * np.linalg.norm(due - before)


def test_a_file_is_served_with_the_names_that_an_ordinary_program_has() -> None:
    """A network that ends in Softmax, which its owner computes as ever."""
    model = network()
    model.graph.node.append(helper.make_node("Softmax", ["scores"], ["classes"], name="softmax", axis=1))
    model.graph.output[0].name = "classes"
    job = compiled(model, images(), serve=True)
    assert job.served is not None
    due, found = (message(each) for each in (covey.compile(model, calibration=images()[0], ring=64), job.served))
    for of_program in (lambda p: [p.values[i].name for i in p.inputs], lambda p: [p.values[i].name for i in p.outputs]):
        assert of_program(found) == of_program(due)
    assert list(found.postprocess) == list(due.postprocess) == [pb.Postprocess.SOFTMAX]
    ordinary = load(covey.compile(model, calibration=images()[0], ring=64))
    (same,), (classes,) = (run_clear(each, images()[0]).outputs.values() for each in (ordinary, served(job)))
    assert np.abs(classes - same).max() < 1e-3 and np.allclose(classes.sum(1), 1)


def test_a_job_that_serves_opens_no_weights_and_says_what_it_serves() -> None:
    job = run_of("perceptron").job
    assert job.served is not None
    line = f"trained weights may serve program {job.served.program_hash[:12]}"
    assert not any(entry.HasField("opens") for entry in message(job.compiled).carried)
    assert any(line in each for each in covey.explain(job.compiled, "trio").reveals)
    console = Console(width=200)
    with console.capture() as shown:
        console.print(job.rendered())
    assert line in shown.get()


def test_other_jobs_and_programs_serve_nothing() -> None:
    job = compiled(network(), images())
    assert job.served is None and not message(job.compiled).HasField("serving")
    assert not any("may serve" in line for line in covey.explain(job.compiled, "trio").reveals)


@pytest.mark.parametrize("protocol", SERVED)
def test_every_protocol_computes_the_served_program(protocol: str) -> None:
    run = run_of("convolutions")
    assert run.job.served is not None
    x = data("convolutions")[0][:2]
    kept = replace(run.job.served, weights=run.weights())
    with covey.local(protocol) as parties:
        private = parties.session(kept).infer(x)
    (due,), (found,) = (each.integers.values() for each in (run_clear(load(kept), x), private))
    assert (found == due).all()


def test_a_network_that_needs_room_has_a_smaller_scale_than_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = Serving.prepared

    def larger(*arguments: Any) -> Any:
        made = prepared(*arguments)
        ranges = {name: (low * 2.0**10, high * 2.0**10) for name, (low, high) in made.ranges.items()}
        return replace(made, ranges=ranges, magnitudes=dict.fromkeys(made.magnitudes, 2.0**30))

    monkeypatch.setattr(Serving, "prepared", larger)
    job = of("perceptron")
    assert job.served is not None
    assert job.served.report["scale"] < job.compiled.report["scale"]
    scales = {value.name: value.scale for value in message(job.served).values if value.kind == pb.Value.PARAMETER}
    assert scales["1.weight"] == job.compiled.report["scale"] + FINER_BITS
    x = data("perceptron")[0]
    (scores,) = run_clear(served(job), x).outputs.values()
    due = module("perceptron").double()(torch.from_numpy(x)).detach().numpy()
    assert np.linalg.norm(scores - due) <= 5e-2 * np.linalg.norm(due)


def test_statistics_may_move_as_far_as_the_minibatches_are_from_them() -> None:
    """Running variances begin at 1 where those of minibatches are a thousandth."""
    step = make(
        network(), loss="cross-entropy", optimizer=covey.SGD(0.01), batch=BATCH, serve=True
    )  # fmt: skip
    x, y = images()
    records = read(0.01 * x, y, forms(step.graph, BATCH, {}), BATCH)
    found = rehearse(step, list(records.minibatches(BATCH, shuffled(len(records), 0, 1)))[:1])
    assert step.serving is not None
    (norms,) = step.serving.norms
    norms.note(step, found.spans)
    values = {what: value for value, what in norms.together.items()}
    assert found.spans[values["total"]][0] > 0.8 and step.spans[values["total"]][0] < 1e-3
    factor = step.serving.values[step.serving.network.norms[0].factor]
    assert step.reach[values["factor"]] == step.reach[factor] > 10 > 2 * found.spans[factor][1]


def test_weights_in_parts_with_gaps_are_refused_in_one_line() -> None:
    model = nn.Sequential(nn.ConvTranspose2d(1, 2, 3, stride=2), nn.Flatten(), nn.Linear(98, 3)).eval()
    x = np.random.default_rng(0).uniform(0, 1, (8, 1, 3, 3))
    settings: dict[str, Any] = {"loss": "cross-entropy", "optimizer": covey.SGD(0.1), "batch": BATCH}
    y = np.arange(8) % 3
    says = r"node '0' .*freeze=\['0.weight'\]\), or open the weights instead$"
    with pytest.raises(covey.UnsupportedError, match=says):
        covey.compile_training(model, example(x), calibration=(x, y), serve=True, **settings)
    assert covey.compile_training(model, example(x), calibration=(x, y), **settings).served is None


def test_a_reader_that_rounds_trained_weights_is_refused_in_one_line() -> None:
    job = run_of("perceptron").job
    assert job.served is not None
    graph = job.served.graph
    low = Lowering(graph, Settings(ring_bits=64, scale=20, finer_bits=FINER_BITS), {}, None)
    (reader,) = graph.consumers("1.weight")
    assert low.parameter(reader, "1.weight", 28).scale == 28
    for scale, offset, divisor in ((27, 0.0, 1), (30, 1.0, 1), (30, 0.0, 3)):
        with pytest.raises(covey.UnsupportedError, match=r"'1.weight' in a form .*; freeze it, or open the weights"):
            low.parameter(reader, "1.weight", scale, offset, divisor)
    with pytest.raises(covey.UnsupportedError, match="freeze it, or open the weights"):
        low.whole_parameter(reader, "1.weight", np.zeros((6, 8)), 28)


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(
    ("op", "shapes"),
    [
        (Dense(), [(4, 5), (5, 3), (3,)]),
        (Dense(), [(5,), (5, 3)]),
        (Conv2d(Window((3, 3), (2, 2), (1, 1, 1, 1)), 2), [(4, 5, 6), (6, 2, 3, 3), (6,)]),
        (Conv2d(Window((2, 2))), [(2, 4, 4), (3, 2, 2, 2)]),
    ],
)  # fmt: skip
def test_bounds_hold_for_all_weights_within_their_reach(op: Any, shapes: list[tuple[int, ...]], whole: bool) -> None:
    rng = np.random.default_rng(0)
    (sample, *others), ends = shapes, rng.integers(1, 50, len(shapes))
    centre = np.zeros((1, *sample)) if whole else rng.integers(-20, 20, (1, *sample)).astype(float)
    x = Interval(centre - ends[0], centre + ends[0])
    x = x.whole if whole else x
    weights = [
        Interval(*(np.broadcast_to(sign * float(end), shape) for sign in (-1, 1)))
        for shape, end in zip(others, ends[1:], strict=True)
    ]
    interval = op.interval(x, *weights)
    parts, largest = list(zip([(1, *sample), *others], map(float, ends), strict=True)), 0.0
    for index in range(50):
        # At the ends of all intervals, where results are largest.
        signs = [rng.choice([-1.0, 1.0], shape if index % 2 else ()) for shape, _ in parts]
        off = [np.broadcast_to(sign * end, shape) for sign, (shape, end) in zip(signs, parts, strict=True)]
        result = op.reference(centre + off[0], *off[1:])
        assert (result >= interval.low).all() and (result <= interval.high).all()
        largest = max(largest, float(np.abs(result).max()))
    assert interval.magnitude == largest or not whole
