"""Training jobs: near floating point, the same bits in every protocol, what opens, and mistakes."""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import builders
import covey
from command import Command
from covey.clear import ClearSession
from covey.cli.train import _show
from covey.client import Session
from covey.model import load
from covey.parties import Parties
from covey.training import job as job_module
from covey.training.calibration import rehearse
from covey.training.job import forms
from covey.training.minibatches import Arrays, Form, read, shuffled
from covey.training.trainer import Epoch

BATCH, CLASSES = 4, 3
Data = tuple[np.ndarray, np.ndarray]


def node(op: str, inputs: str, output: str, **attributes: Any) -> Any:
    return helper.make_node(op, inputs.split(), [output], name=output, **attributes)


def network(seed: int = 0) -> onnx.ModelProto:
    """A convolution with batch normalisation, overlapping maximum pooling and a dense layer."""
    rng = np.random.default_rng(seed)
    nodes = [
        node("Conv", "x w", "conv", pads=[1, 1, 1, 1]),
        node("BatchNormalization", "conv scale shift mean variance", "norm"),
        node("Relu", "norm", "relu"),
        node("MaxPool", "relu", "pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Flatten", "pool", "flat"),
        node("Gemm", "flat v c", "scores", transB=1),
    ]
    constants = {
        "w": builders.weights(rng, 2, 1, 3, 3), "scale": np.ones(2), "shift": np.zeros(2), "mean": np.zeros(2),
        "variance": np.ones(2), "v": builders.weights(rng, CLASSES, 18), "c": np.zeros(CLASSES),
    }  # fmt: skip
    return builders.model(nodes, {"x": ["N", 1, 6, 6]}, ["scores"], constants)


def perceptron(outputs: int = CLASSES, dropout: float = 0.0) -> onnx.ModelProto:
    rng = np.random.default_rng(1)
    nodes = [node("Gemm", "x w b", "hidden", transB=1), node("Relu", "hidden", "relu")]
    if dropout:
        nodes.append(node("Dropout", "relu rate", "kept"))
    nodes.append(node("Gemm", "kept v c" if dropout else "relu v c", "scores", transB=1))
    constants = {"w": builders.weights(rng, 8, 5), "b": np.zeros(8), "v": builders.weights(rng, outputs, 8)}
    if dropout:
        constants["rate"] = np.array(dropout)
    return builders.model(nodes, {"x": ["N", 5]}, ["scores"], {**constants, "c": np.zeros(outputs)})


def table(samples: int = 40) -> Data:
    rng = np.random.default_rng(2)
    x = rng.uniform(-1, 1, (samples, 5))
    return x, (x @ rng.normal(size=(5, CLASSES))).argmax(1)


def images(samples: int = 24) -> Data:
    rng = np.random.default_rng(3)
    return rng.uniform(0, 1, (samples, 1, 6, 6)), rng.integers(0, CLASSES, samples)


def compiled(model: Any, data: Data, **options: Any) -> covey.Job:
    settings: dict[str, Any] = {"loss": "cross-entropy", "optimizer": covey.SGD(0.1, momentum=0.9), "batch": BATCH}
    return covey.compile_training(model, **{"calibration": data, "open_weights": True, **settings, **options})


def minibatches(job: covey.Job, data: Data, epochs: int = 1) -> list[Arrays]:
    records = read(*data, forms(job.step.graph, job.batch, {}), job.batch)
    orders = [shuffled(len(records), 0, epoch) for epoch in range(1, epochs + 1)]
    return [minibatch for order in orders for minibatch in records.minibatches(job.batch, order)]


@pytest.fixture(scope="module")
def job() -> covey.Job:
    return compiled(network(), images())


@pytest.mark.parametrize(
    ("loss", "optimizer", "tolerance"),
    [
        ("cross-entropy", covey.SGD(0.2), 1e-3),
        ("cross-entropy", covey.SGD(0.05, 0.01, momentum=0.9, nesterov=True), 1e-3),
        ("cross-entropy", covey.SGD(0.2, clip=0.05), 2e-3),
        ("cross-entropy", covey.SGD(0.2, clip_norm=0.3), 5e-3),
        ("cross-entropy", covey.Adam(0.01, 0.01), 2e-2),
        ("binary-cross-entropy", covey.adamw(0.01), 2e-2),
        ("mse", covey.SGD(0.1, momentum=0.5), 1e-3),
    ],
)
def test_steps_in_the_clear_follow_floating_point(loss: str, optimizer: Any, tolerance: float) -> None:
    x, classes = table()
    labels = {
        "cross-entropy": classes,
        "binary-cross-entropy": np.eye(CLASSES)[classes],
        "mse": np.eye(CLASSES)[classes],
    }
    data = x, labels[loss]
    job = compiled(perceptron(), data, loss=loss, optimizer=optimizer)
    batches = minibatches(job, data, epochs=2)
    due = rehearse(job.step, batches)
    trainer = covey.Trainer(ClearSession(load(job.compiled)))
    epochs = list(trainer.fit(*data, epochs=2))
    np.testing.assert_allclose([loss for epoch in epochs for loss in epoch.losses], due.losses, atol=2e-3)
    if loss != "mse":
        assert [epoch.right for epoch in epochs] == [sum(due.right[:10]), sum(due.right[10:])]
    weights, trained = trainer.weights(), due.trained(job.step)
    assert weights.keys() == trained.keys() == {"w", "b", "v", "c"}
    for entry in job.trained:
        moved = np.linalg.norm(trained[entry.name] - entry.initial)
        assert moved > 1e-3
        assert np.linalg.norm(weights[entry.name] - trained[entry.name]) < tolerance * moved, entry.name


@pytest.mark.parametrize(("batch", "bound"), [(1, 0.05), (1, 2.0**-8), (8, 0.002), (4, 100.0)])
def test_a_bound_of_the_norm_is_kept_and_shrinks_nothing_below(batch: int, bound: float) -> None:
    x, labels = table()

    def moved(**options: Any) -> float:
        job = compiled(perceptron(), (x, labels), optimizer=covey.SGD(0.1, **options), batch=batch)
        trainer = covey.Trainer(ClearSession(load(job.compiled)))
        trainer.step(x[:batch], labels[:batch])
        weights = trainer.weights()
        return 10 * math.sqrt(sum(((weights[entry.name] - entry.initial) ** 2).sum() for entry in job.trained))

    whole = moved()
    assert moved(clip_norm=bound) == pytest.approx(min(bound, whole), rel=4e-3)
    assert moved(clip_norm=1.1 * whole) == pytest.approx(whole, rel=1e-3)


def test_a_bound_of_the_norm_that_is_too_small_is_refused() -> None:
    with pytest.raises(covey.OptionError, match=r"clip_norm 0.0001 is too small to compute with: give at least 0.0009"):
        compiled(perceptron(), table(), optimizer=covey.SGD(0.1, clip_norm=1e-4))


@pytest.fixture(scope="module", params=["trio", "quad", "beaver", "two-party"])
def every(request: pytest.FixtureRequest) -> Iterator[Parties]:
    with covey.local(request.param, timeout=60) as running:
        yield running


def test_steps_and_weights_equal_the_specification_in_every_protocol(job: covey.Job, every: Parties) -> None:
    batches = minibatches(job, images())[:3]
    clear = ClearSession(load(job.compiled))
    due, due_weights = clear.infer_all(batches), clear.end()
    session = every.session(job.compiled)
    first = session.infer_all(batches[:2])
    rest = session.infer(batches[2], continues=True)
    for result, expected in zip([*first.results, rest], due.results, strict=True):
        assert result.integers.keys() == {"loss", "right"}
        for name, integers in expected.integers.items():
            np.testing.assert_array_equal(result.integers[name], integers)
    weights = session.end()
    assert weights.integers.keys() == due_weights.integers.keys()
    for name, integers in due_weights.integers.items():
        np.testing.assert_array_equal(weights.integers[name], integers)
    # What was trained is gone with the sequence, and a new one begins with the model's weights.
    with pytest.raises(covey.CoveyError, match="begin a new sequence first"):
        session.infer(batches[0], continues=True)
    again = session.infer(batches[0])
    np.testing.assert_array_equal(again.integers["loss"], due.results[0].integers["loss"])


@pytest.mark.parametrize(
    ("loss", "weights"), [("cross-entropy", [0.5, 0.0, 9.0]), ("binary-cross-entropy", [[1.0] * CLASSES, [2.0, 3, 4]])]
)
def test_class_weights_are_exact_in_every_protocol(loss: str, weights: list[Any], every: Parties) -> None:
    x, classes = table()
    data = x, classes if loss == "cross-entropy" else np.eye(CLASSES)[classes]
    weighted = compiled(perceptron(), data, loss=loss, class_weights=weights, optimizer=covey.SGD(0.05))
    batches = minibatches(weighted, data)[:3]
    clear, session = ClearSession(load(weighted.compiled)), every.session(weighted.compiled)
    due, found = clear.infer_all(batches), session.infer_all(batches)
    exact = rehearse(weighted.step, batches)
    for result, expected, loss_of_step in zip(found.results, due.results, exact.losses, strict=True):
        np.testing.assert_array_equal(result.integers["loss"], expected.integers["loss"])
        assert expected.outputs["loss"].item() == pytest.approx(loss_of_step, abs=5e-3)
    opened, due_weights = session.end(), clear.end()
    for name, integers in due_weights.integers.items():
        np.testing.assert_array_equal(opened.integers[name], integers)
    for entry in weighted.trained:
        trained = next(array for name, array in due_weights.values.items() if f".{entry.name}@" in name)
        moved = np.linalg.norm(exact.trained(weighted.step)[entry.name] - entry.initial)
        assert np.linalg.norm(trained - exact.trained(weighted.step)[entry.name]) < 2e-3 * moved, entry.name


def test_calibration_has_samples_of_the_class_that_weighs_most() -> None:
    x, labels = table()
    weights = {"cross-entropy": [1.0, 1.0, 60.0], "binary-cross-entropy": [1.0, 60.0]}
    lacking = {
        "cross-entropy": (x[labels != 2], labels[labels != 2]),
        "binary-cross-entropy": (x, np.zeros((len(x), CLASSES))),
    }
    for loss, data in lacking.items():
        problem = f"none of the {len(data[0])} samples that calibration takes has the largest of class_weights, 60"
        with pytest.raises(covey.DataError, match=problem):
            compiled(perceptron(), data, loss=loss, class_weights=weights[loss])


def test_a_job_reveals_losses_and_weights_alone(job: covey.Job) -> None:
    program = load(job.compiled).program
    assert [entry["name"] for entry in program.inputs] == ["x", "labels"]
    assert [entry["name"] for entry in program.outputs] == ["loss", "right"]
    opened = {entry["opens"] for entry in program.carried if entry["opens"] is not None}
    assert {name.split("@")[0] for name in opened} == {
        f"trained.{name}" for name in ("w", "scale", "shift", "mean", "variance", "v", "c")
    }


def test_explain_says_what_opens(job: covey.Job) -> None:
    explained = covey.explain(job)
    assert f"1 step(s) of {BATCH} samples" in str(explained)
    told = explained.reveals
    assert any("once, where it ends a sequence: trained.w@" in line for line in told)
    assert any("they tell about its records, and so do weights that open" in line for line in told)


def test_weights_open_only_where_the_job_says_so() -> None:
    closed = compiled(perceptron(), table(), optimizer=covey.SGD(0.1))
    closed = covey.compile_training(
        perceptron(), loss="cross-entropy", optimizer=covey.SGD(0.1), batch=BATCH, calibration=table()
    )
    session = ClearSession(load(closed.compiled))
    trainer = covey.Trainer(session)
    trainer.step(*(array[:BATCH] for array in table()))
    with pytest.raises(covey.OptionError, match="this job opens no weights: compile it with open_weights=True"):
        trainer.weights()
    with pytest.raises(covey.CoveyError, match="'test' opens nothing at the end of a sequence"):
        session.end()


def test_no_epoch_follows_the_opening_of_weights() -> None:
    job = compiled(perceptron(), table(), optimizer=covey.SGD(0.1))
    trainer = covey.Trainer(ClearSession(load(job.compiled)))
    epochs = trainer.fit(*table(), epochs=3)
    next(epochs)
    once = trainer.weights()
    with pytest.raises(covey.OptionError, match="the weights opened, which ended this training, and epochs are left"):
        next(epochs)
    # After the last epoch, or out of the loop, all is well, and another training begins with the job's weights.
    for epoch in trainer.fit(*table(), epochs=2):
        if epoch.number == 2:
            twice = trainer.weights()
    for _ in trainer.fit(*table(), epochs=2):
        again = trainer.weights()
        break
    assert all(np.array_equal(once[name], again[name]) for name in once)
    assert not np.array_equal(once["v"], twice["v"])


def test_frozen_parameters_stay_and_only_others_are_carried() -> None:
    job = compiled(perceptron(), table(), optimizer=covey.SGD(0.1), freeze=["w", "b"])
    assert [entry.name for entry in job.trained] == ["v", "c"]
    program = load(job.compiled).program
    assert [entry["name"] for entry in program.carried] == ["v.change", "c.change"]
    # The frozen layer is an ordinary one, whose weight is prepared once.
    computed = {node["name"]: node["computes"] for node in program.nodes if node["computes"] in ("Dense", "Matmul")}
    assert (computed["hidden"], computed["scores"]) == ("Dense", "Matmul")
    trainer = covey.Trainer(ClearSession(load(job.compiled)))
    list(trainer.fit(*table(), epochs=2))
    assert trainer.weights().keys() == {"v", "c"}


def test_training_learns_what_there_is_to_learn() -> None:
    data = table(120)
    job = compiled(perceptron(), data, optimizer=covey.SGD(0.05, momentum=0.9), batch=8)
    epochs = list(covey.Trainer(ClearSession(load(job.compiled))).fit(*data, epochs=12))
    assert epochs[-1].loss < 0.4 * epochs[0].loss
    assert epochs[-1].accuracy is not None and epochs[-1].accuracy > 0.9


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"labels": lambda y: y + 1}, "the labels hold 3 in sample"),
        ({"labels": lambda y: y - 0.5}, "where whole numbers from 0 to 2 go"),
        ({"labels": lambda y: 0 * y + 1.0000001}, "the labels hold 1.0000001 in sample 0, where whole numbers"),
        ({"labels": lambda y: y[:-1]}, "data and labels have different numbers of samples"),
        ({"x": lambda x: x[:0]}, "the data for 'x' have no samples: give at least one"),
        ({"x": lambda x: x[:3], "labels": lambda y: y[:3]}, "3 samples do not fill a minibatch of 4: give more"),
        ({"x": lambda x: x[:, :4]}, "the data for 'x' have shape [40, 4], expected [N, 5]: reshape them"),
        (
            {"x": lambda x: np.where(x > 0.99, np.nan, x) + np.nan},
            "the data for 'x' hold nan in sample 0: clean them first",
        ),
        ({"x": lambda x: 9 * x}, "the data for 'x' hold"),
    ],
)
def test_data_that_cannot_be_trained_on_are_refused_in_one_line(change: dict[str, Any], problem: str) -> None:
    x, labels = table()
    job = compiled(perceptron(), (x, labels), optimizer=covey.SGD(0.1))
    trainer = covey.Trainer(ClearSession(load(job.compiled)))
    wrong = change.get("x", lambda x: x)(x), change.get("labels", lambda y: y)(labels)
    with pytest.raises(covey.DataError, match=re.escape(problem)):
        list(trainer.fit(*wrong))
    if "hold" not in problem or "labels" in problem:
        with pytest.raises(covey.DataError, match=re.escape(problem)):
            compiled(perceptron(), wrong)


def test_labels_may_lack_dimensions_of_one_element_and_have_no_other_layout() -> None:
    form = Form("labels", (3, 1, 2), None, -9.0, 9.0)
    x, labels = Form("x", (1,), None, -9.0, 9.0), np.arange(24.0).reshape(4, 3, 2) / 24
    for same in (labels, labels[:, :, None], labels[:, None, :, :, None]):
        read_in = read(np.zeros((4, 1)), same, [x, form], 1).arrays["labels"]
        np.testing.assert_array_equal(read_in, labels[:, :, None])
    for other in (labels.transpose(0, 2, 1), labels.reshape(4, 6), labels.reshape(4, 6, 1)):
        with pytest.raises(covey.DataError, match=r"the labels have shape .*, expected \[N, 3, 1, 2\]: reshape them"):
            read(np.zeros((4, 1)), other, [x, form], 1)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"optimizer": covey.SGD(0.0)}, "learning rate 0.0: give a positive number"),
        ({"optimizer": covey.SGD(1e-14)}, "rounds to 0 at the program's scale"),
        ({"optimizer": covey.SGD(0.1, momentum=1.0)}, "momentum 1.0: give a number from 0 to below 1"),
        ({"optimizer": covey.SGD(0.1, clip=-1.0)}, "clip -1.0: give a positive bound"),
        ({"optimizer": covey.SGD(0.1, clip=math.inf)}, "clip inf: give a positive bound"),
        ({"optimizer": covey.SGD(0.1, clip_norm=0.0)}, "clip_norm 0.0: give a positive bound"),
        ({"optimizer": covey.SGD(0.1, clip_norm=math.inf)}, "clip_norm inf: give a positive bound"),
        ({"optimizer": covey.SGD("0.1")}, "learning rate '0.1': give a positive number"),
        ({"optimizer": covey.SGD(None)}, "learning rate None: give a positive number"),
        ({"optimizer": covey.SGD(np.ones(1))}, "learning rate array([1.]): give a positive number"),
        ({"optimizer": covey.SGD(0.1, momentum="a")}, "momentum 'a': give a number from 0 to below 1"),
        ({"optimizer": covey.SGD(0.1, momentum=0.9, nesterov="no")}, "nesterov is 'no': use True or False"),
        ({"optimizer": covey.SGD(0.1, "a")}, "weight decay 'a': give 0 or a positive number"),
        ({"optimizer": covey.SGD(0.1, clip="x")}, "clip 'x': give a positive bound"),
        ({"optimizer": covey.Adam(0.1, beta1="x")}, "beta1 'x': give a number between 0 and 1"),
        ({"optimizer": covey.Adam(0.1, epsilon=None)}, "epsilon None: give a small positive number"),
        ({"optimizer": covey.Adam(0.1, decoupled=1)}, "decoupled is 1: use True or False"),
        ({"optimizer": covey.SGD}, "the optimizer is none of Covey's: make one, such as covey.SGD(0.1)"),
        ({"optimizer": "sgd"}, "the optimizer is none of Covey's"),
        ({"seed": True}, "seed True: give a whole number from 0 on"),
        ({"seed": -1}, "seed -1: give a whole number from 0 on"),
        ({"batch": 2.5}, "minibatches of 2.5 samples: give a whole number"),
        ({"batch": True}, "minibatches of True samples: give a whole number"),
        ({"batch": 0}, "minibatches of 0 samples: give a whole number, at least 1"),
        ({"batch": 64}, "40 samples do not fill a minibatch of 64"),
        ({"loss": "hinge"}, "loss 'hinge' is unknown: use one of cross-entropy, binary-cross-entropy, mse"),
        ({"loss": ["mse"]}, "loss ['mse'] is unknown: use one of cross-entropy"),
        ({"class_weights": [1, 2]}, "class_weights have shape [2]: cross-entropy on this model takes [3]"),
        ({"class_weights": "1,2,3"}, "class_weights is '1,2,3': give a number for each class, such as [1.0, 4.0]"),
        ({"class_weights": [1, 2, -3]}, "class_weights: give finite numbers from 0 on that are not all 0"),
        ({"class_weights": [1, 2, np.nan]}, "class_weights: give finite numbers from 0 on that are not all 0"),
        ({"class_weights": [0, 0, 0]}, "class_weights: give finite numbers from 0 on that are not all 0"),
        (
            {"loss": "mse", "class_weights": [1, 2, 3], "calibration": (table()[0], np.eye(3)[table()[1]])},
            "class_weights are for cross-entropy and binary-cross-entropy: mse has no classes",
        ),
        (
            {"loss": "binary-cross-entropy", "class_weights": [1, 2, 3]},
            "class_weights have shape [3]: binary-cross-entropy on this model takes [2] or [2, 3]",
        ),
        ({"freeze": "q"}, "freeze 'q' matches no parameter"),
        ({"freeze": None}, "freeze is None: give names or patterns of parameters"),
        ({"freeze": [0]}, "freeze is [0]: give names or patterns of parameters"),
        ({"freeze": ["q"]}, "freeze 'q' matches no parameter: the model trains 'w', 'b', 'v', 'c'"),
        ({"freeze": ["*"]}, "every parameter is frozen and none is left to train"),
        ({"batch_norm": "off"}, "batch_norm 'off' is unknown: use train or frozen"),
        ({"scale": 40}, "scale 40 does not fit Z_2^64"),
        ({"scale": "8"}, "scale '8' does not fit Z_2^64: use a whole number from 4 to 30"),
        ({"scale": 10.5}, "scale 10.5 does not fit Z_2^64: use a whole number"),
        ({"calibration": None}, "calibration is no pair of samples and labels: give both, as in calibration=(x, y)"),
        ({"calibration": table()[:1]}, "calibration is no pair of samples and labels"),
        ({"calibration": table()[0]}, "calibration is no pair of samples and labels"),
        ({"optimizer": covey.SGD(1e6)}, "in floating point the loss is"),
        ({"optimizer": covey.SGD(100.0)}, "62; in floating point the loss rises from "),
        ({"calibration": (table()[0], None)}, "the labels are missing: training takes samples and the label of each"),
    ],
)
def test_options_that_make_no_training_are_refused_in_one_line(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(covey.CoveyError, match=re.escape(problem)):
        compiled(perceptron(), table(), **options)


def test_data_may_be_lists_of_numbers() -> None:
    x, labels = table()
    job = compiled(perceptron(), (x.tolist(), labels.tolist()), optimizer=covey.SGD(0.1))
    assert (
        job.compiled.program_hash == compiled(perceptron(), (x, labels), optimizer=covey.SGD(0.1)).compiled.program_hash
    )
    trainer = covey.Trainer(ClearSession(load(job)))
    assert trainer.step(x[:BATCH].tolist(), labels[:BATCH].tolist()).steps == 1
    for data, wrong in (([[1.0] * 5, [1.0]], "data for 'x'"), ([["a"] * 5] * BATCH, "data for 'x'")):
        with pytest.raises(covey.DataError, match=f"the {wrong} are no array of numbers"):
            trainer.step(data, labels[:BATCH])
    with pytest.raises(covey.DataError, match="the labels are no array of numbers"):
        trainer.step(x[:BATCH], [[1], [1, 2]])


def test_missing_labels_are_called_so(job: covey.Job) -> None:
    trainer = covey.Trainer(ClearSession(load(job)))
    for call in (lambda: trainer.fit(images()[0]), lambda: trainer.step(images()[0], None)):
        with pytest.raises(covey.DataError, match="the labels are missing: training takes samples and the label"):
            call()


@pytest.mark.parametrize("epochs", [0, 1.5, True, "2", None])
def test_epochs_are_whole_numbers(job: covey.Job, epochs: Any) -> None:
    trainer = covey.Trainer(ClearSession(load(job.compiled)))
    with pytest.raises(covey.OptionError, match=f"{epochs!r} epochs: ask for a whole number, at least 1"):
        trainer.fit(*images(), epochs)


@pytest.mark.parametrize("every", [0, 1.5, True, "2"])
def test_steps_between_checkpoints_are_whole_numbers(job: covey.Job, every: Any, tmp_path: Path) -> None:
    unasked: Any = None
    session = Session(load(job).program, unasked, "trio")
    with pytest.raises(covey.OptionError, match=f"a checkpoint every {every!r} steps: ask for a whole number"):
        covey.Trainer(session, checkpoints=tmp_path / "run.json", every=every)


def test_one_pattern_freezes_as_a_list_of_it() -> None:
    job = compiled(perceptron(), table(), freeze="[wb]")
    assert [entry.name for entry in job.trained] == ["v", "c"]


def test_values_beyond_their_bounds_are_named_with_node_and_step() -> None:
    # Calibrated on samples that teach nothing, then trained on others: its weights leave their bounds.
    x = table()[0]
    quiet = 0.01 * x, np.zeros((len(x), 1))
    job = compiled(
        perceptron(1), quiet, loss="mse", optimizer=covey.SGD(0.5), input_range={"x": (-4, 4), "labels": (-99, 99)}
    )
    loud = 4 * np.sign(x), np.full((len(x), 1), 99.0)
    epochs = covey.Trainer(ClearSession(load(job.compiled))).fit(*loud, epochs=20)
    with pytest.raises(covey.CoveyError, match=r"step \d+: node '.+': the value -?\d+ passes its bound of \d+ bits"):
        list(epochs)


def test_other_programs_are_no_training_jobs() -> None:
    plain = covey.compile(perceptron(), input_range=(-1, 1))
    with pytest.raises(covey.ModelError, match="'test' is no training job: make one with"):
        covey.Trainer(ClearSession(load(plain)))


def test_the_command_trains_and_writes_the_model(tmp_path: Path, command: Command) -> None:
    x, labels = table()
    onnx.save(perceptron(), tmp_path / "model.onnx")
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", labels)
    data = ["--data", str(tmp_path / "x.npy"), "--labels", str(tmp_path / "y.npy"), "--batch", "8"]
    options = ["--lr", "0.3", "--momentum", "0.9", "--epochs", "3", "--protocol", "clear"]
    trained = tmp_path / "trained.onnx"
    shown = command.succeeds("train", str(tmp_path / "model.onnx"), *data, *options, "--out", str(trained))
    lines = shown.out.splitlines()
    assert len(lines) == 3 and re.fullmatch(r"epoch 3  loss 0\.\d{4}  \d+\.\d% right  5 steps, .* each", lines[2])
    asked = ["train", str(tmp_path / "model.onnx"), *data, *options, "--json", "--open-weights"]
    epochs = [json.loads(line) for line in command.succeeds(*asked).out.splitlines()]
    assert [epoch["number"] for epoch in epochs] == [1, 2, 3]
    assert f"{epochs[2]['loss']:.4f}" in lines[2]
    before, after = (builders.float_results(proto, {"x": x})[0] for proto in (perceptron(), onnx.load(trained)))
    assert (after.argmax(1) == labels).mean() > (before.argmax(1) == labels).mean() + 0.1
    assert "leaves out" not in shown.err
    weighted = [*asked, "--class-weights", "1,2,0"]
    first = json.loads(command.succeeds(*weighted).out.splitlines()[0])
    assert first["loss"] != pytest.approx(epochs[0]["loss"], abs=1e-2)
    command.refuses(*asked, "--class-weights", "1,2", saying="class_weights have shape [2]")
    others = command.succeeds(*asked[:-2], "--batch", "9")  # the last of an option counts
    assert f"each epoch leaves out {len(x) % 9} samples, which fill no minibatch of 9" in others.err


def test_a_narrow_terminal_breaks_an_epoch_between_its_parts(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    epoch = Epoch(loss=0.5, right=3, labels=4, steps=20, seconds=2.0, bytes=4_040_000, rounds=9, number=1, taken=20)
    line = "epoch 1  loss 0.5000  75.0% right  20 steps, 0.1 s and 202 kB each"
    _show(epoch, as_json=False)
    assert capfd.readouterr().out == line + "\n"
    monkeypatch.setenv("FORCE_COLOR", "1")  # stdout counts as a terminal
    for columns, shown in ((len(line), [line]), (60, [line[:33], line[33:]])):
        monkeypatch.setenv("COLUMNS", str(columns))
        _show(epoch, as_json=False)
        assert capfd.readouterr().out.splitlines() == shown


def test_a_compiled_job_is_trained_by_parties_elsewhere(tmp_path: Path, command: Command, parties: Parties) -> None:
    x, labels = table()
    onnx.save(perceptron(), tmp_path / "model.onnx")
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", labels)
    data = ["--data", str(tmp_path / "x.npy"), "--labels", str(tmp_path / "y.npy")]
    job, out = tmp_path / "job.covey", tmp_path / "trained.npz"
    made = ["--batch", "8", "--lr", "0.3", "--open-weights", "--compile", str(job)]
    assert str(job) in command.succeeds("train", str(tmp_path / "model.onnx"), *data, *made).out
    command.succeeds("share-weights", str(job), "--config", str(parties.owner_config))
    asked = ["train", str(job), *data, "--config", str(parties.client_config), "--out", str(out), "--json"]
    (epoch,) = (json.loads(line) for line in command.succeeds(*asked).out.splitlines())
    trainer = covey.Trainer(ClearSession(load(job)))
    (due,) = trainer.fit(x, labels)
    assert epoch["losses"] == due.losses
    written = np.load(out)
    for name, array in trainer.weights().items():
        np.testing.assert_array_equal(written[name], array.astype(np.float32))


def test_mistakes_of_the_command_are_one_line(tmp_path: Path, command: Command) -> None:
    onnx.save(perceptron(), tmp_path / "model.onnx")
    model = str(tmp_path / "model.onnx")
    for wrong, problem in (
        ([], "give --data x.npy and --labels y.npy"),
        (["--data", "x.npy", "--labels", "y.npy", "--out", "w.pt"], "'w.pt' is no file for weights"),
        (["--data", "x.npy", "--labels", "y.npy", "--optimizer", "lion"], "optimizer 'lion' is unknown"),
        (["--data", "x.npy", "--labels", "y.npy", "--protocol", "clear"], "training file 'x.npy' does not exist"),
    ):
        command.refuses("train", model, *wrong, saying=problem)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("--epochs 0", "0 epochs: ask for a whole number, at least 1"),
        ("--epochs -1", "-1 epochs"),
        ("--data nan.npy", "the data hold nan in sample 3: clean them first"),
        ("--labels few.npy", "different numbers of samples ({'data': 40, 'labels': 39})"),
    ],
)
def test_what_fits_no_model_is_refused_before_one_is_traced(
    options: str, problem: str, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_module, "make", None)
    monkeypatch.chdir(tmp_path)
    x, labels = table()
    onnx.save(perceptron(), "model.onnx")
    np.save("x.npy", x[:40])
    np.save("nan.npy", np.where(np.arange(40)[:, None] == 3, np.nan, x[:40]))
    np.save("y.npy", labels[:40])
    np.save("few.npy", labels[:39])
    call = ["train", "model.onnx", "--data", "x.npy", "--labels", "y.npy", "--protocol", "clear"]
    command.refuses(*call, *options.split(), saying=problem)


@pytest.mark.parametrize(
    "option",
    [
        *("--lr 0.01", "--momentum 0.5", "--batch 4", "--loss mse", "--optimizer adam", "--freeze w", "--open-weights"),
        "--class-weights 1,2,3",
        *("--compile other.covey", "--schedule cosine:2", "--steps-per-epoch 3", "--dropout", "--input-range 0,1"),
    ],
)
def test_options_that_a_compiled_job_decides_are_refused(option: str, tmp_path: Path, command: Command) -> None:
    call = ["train", tmp_path / "job.covey", "--data", "x.npy", "--labels", "y.npy", "--protocol", "clear"]
    name, *value = option.split()
    command.refuses(*call, name, *value, saying=f"{name} is part of the job")


def test_weights_that_will_not_open_are_known_before_any_step(tmp_path: Path, command: Command) -> None:
    job = covey.compile_training(
        perceptron(), loss="cross-entropy", optimizer=covey.SGD(0.1), batch=BATCH, calibration=table()
    )
    (file, *_), x, labels = job.compiled.save(tmp_path / "job.covey"), *table()
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", labels)
    call = ["train", file, "--data", tmp_path / "x.npy", "--labels", tmp_path / "y.npy", "--protocol", "clear"]
    (tmp_path / "folder.npz").mkdir()
    for out, problem in (("w.npz", "this job opens no weights"), ("folder.npz", "is a folder: name the file")):
        outcome = command(*call, "--out", tmp_path / out)
        assert outcome.code == 1 and problem in outcome.err and "epoch" not in outcome.out
    assert "epoch 1" in command.succeeds(*call).out


def test_a_trained_program_of_pytorch_is_written(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from covey.training.files import write

    module = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.ReLU(), torch.nn.Linear(4, 3)).eval()
    shapes = ({0: torch.export.Dim("batch")},)
    torch.export.save(torch.export.export(module, (torch.zeros(2, 5),), dynamic_shapes=shapes), tmp_path / "m.pt2")
    job = compiled(tmp_path / "m.pt2", table(), optimizer=covey.SGD(0.1))
    trainer = covey.Trainer(ClearSession(load(job.compiled)))
    list(trainer.fit(*table()))
    weights = trainer.weights()
    write(tmp_path / "trained.pt2", weights, tmp_path / "m.pt2")
    write(tmp_path / "trained.safetensors", weights)
    covey.load_trained(module, weights)
    x = torch.from_numpy(table()[0]).float()
    torch.testing.assert_close(torch.export.load(tmp_path / "trained.pt2").module()(x), module(x))
    program = torch.export.load(tmp_path / "m.pt2")
    covey.load_trained(program, weights)
    torch.testing.assert_close(program.module()(x), module(x))
    safetensors = pytest.importorskip("safetensors.numpy")
    written = safetensors.load_file(tmp_path / "trained.safetensors")
    assert written.keys() == weights.keys()
    np.testing.assert_array_equal(written["0.weight"], weights["0.weight"].astype(np.float32))


@pytest.mark.parametrize("raw", [True, False])
def test_what_was_trained_is_loaded_into_an_onnx_model(raw: bool, tmp_path: Path) -> None:
    model = perceptron()
    if not raw:
        for entry in model.graph.initializer:
            array = numpy_helper.to_array(entry)
            entry.CopyFrom(helper.make_tensor(entry.name, entry.data_type, entry.dims, array.ravel()))
    before = copy.deepcopy(model)
    job = compiled(model, table(), optimizer=covey.SGD(0.5), freeze="[wb]")
    trainer = covey.Trainer(ClearSession(load(job.compiled)))
    list(trainer.fit(*table()))
    weights = trainer.weights()
    np.savez(tmp_path / "trained.npz", **weights)
    covey.load_trained(model, np.load(tmp_path / "trained.npz"))
    onnx.checker.check_model(model)
    arrays, old = (
        {entry.name: numpy_helper.to_array(entry) for entry in each.graph.initializer} for each in (model, before)
    )
    assert weights.keys() == {"v", "c"} and arrays.keys() == old.keys()
    for name, array in old.items():
        np.testing.assert_array_equal(arrays[name], weights.get(name, array).astype(array.dtype))
    assert np.abs(arrays["v"] - old["v"]).max() > 1e-3
    with pytest.raises(covey.ModelError, match="the model has a 'v' of another shape"):
        covey.load_trained(model, {"c": np.ones(CLASSES), "v": np.ones((1, 8))})
    np.testing.assert_array_equal(numpy_helper.to_array(model.graph.initializer[-1]), arrays["c"])


def test_two_readers_of_one_weight_train_it_once() -> None:
    rng = np.random.default_rng(7)
    nodes = [node("MatMul", "x w", "a"), node("Relu", "a", "r"), node("MatMul", "r w", "z")]
    model = builders.model(nodes, {"x": ["N", 3]}, ["z"], {"w": builders.weights(rng, 3, 3)})
    x = rng.uniform(-1, 1, (8, 3))
    job = compiled(model, (x, x), loss="mse", optimizer=covey.SGD(0.1))
    assert [entry.name for entry in job.trained] == ["w"]
    assert replace(job.trained[0]) == job.trained[0]


def test_a_minibatch_may_be_one_sample(parties: Parties) -> None:
    """The mean of one loss is that loss: nothing is left to divide by."""
    job = compiled(perceptron(), table(), batch=1)
    assert [entry["name"] for entry in covey.Program(job.compiled.program_bytes).outputs] == ["loss", "right"]
    x, labels = table()
    due, private = (covey.Trainer(one) for one in (ClearSession(load(job.compiled)), parties.session(job.compiled)))
    for index in range(2):
        loss, other = (trainer.step(x[index : index + 1], labels[index : index + 1]).loss for trainer in (due, private))
        assert loss == other is not None


def test_trainers_of_one_program_train_apart(job: covey.Job, parties: Parties) -> None:
    x, labels = images()
    minibatches = [(x[start : start + BATCH], labels[start : start + BATCH]) for start in (0, BATCH)]
    private = [covey.Trainer(parties.session(job.compiled)) for _ in minibatches]
    due = [covey.Trainer(ClearSession(load(job.compiled))) for _ in minibatches]
    for _ in range(2):
        for one, other, minibatch in zip(private, due, minibatches, strict=True):
            assert one.step(*minibatch).loss == other.step(*minibatch).loss


def test_a_trainer_in_whose_session_others_run_says_so(job: covey.Job) -> None:
    session = ClearSession(load(job.compiled))
    x, labels = images()
    first, second = covey.Trainer(session), covey.Trainer(session)
    first.step(x[:BATCH], labels[:BATCH])
    second.step(x[:BATCH], labels[:BATCH])
    for go_on in (lambda: first.step(x[:BATCH], labels[:BATCH]), first.weights):
        with pytest.raises(covey.OptionError, match="cannot go on: other runs began in its session; give each Trainer"):
            go_on()
    second.step(x[:BATCH], labels[:BATCH])


def test_each_weight_is_one_parameter(job: covey.Job) -> None:
    assert covey.Program(job.compiled.program_bytes).parameters == sum(entry.initial.size for entry in job.trained)
