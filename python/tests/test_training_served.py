"""Parties that serve what they trained: the bits of the clear, in every protocol that keeps weights in shares."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import covey
from command import Command
from covey import _core
from covey.clear import ClearSession, run_clear
from covey.model import Model, load
from test_training import BATCH, compiled, images, network, perceptron, table

EPOCHS = 2


def job_of(model: Any, data: Any, **options: Any) -> covey.Job:
    settings: dict[str, Any] = {"loss": "cross-entropy", "optimizer": covey.SGD(0.1, momentum=0.9), "batch": BATCH}
    return covey.compile_training(model, calibration=data, serve=True, **settings | options)


def in_the_clear(job: covey.Job, data: Any) -> Model:
    """The program that serves, with what the job makes of its weights."""
    session = ClearSession(load(job.compiled))
    for _ in covey.Trainer(session).fit(*data, EPOCHS):
        pass
    assert job.served is not None
    made = session.served_weights()
    assert set(made) <= set(job.served.weights)
    changed = [name for name in made if (made[name].reshape(-1) != job.served.weights[name].reshape(-1)).any()]
    assert changed == list(made), "training changes what serves"
    return load(replace(job.served, weights={**job.served.weights, **made}))


@pytest.mark.parametrize("protocol", ["trio", "quad", "beaver"])
def test_trained_weights_serve_in_shares_as_in_the_clear(protocol: str) -> None:
    job, data = job_of(network(), images()), images()
    assert job.served is not None
    others = np.random.default_rng(9).uniform(0, 1, (5, 1, 6, 6))
    due = run_clear(in_the_clear(job, data), others)
    with covey.local(protocol) as parties:
        parties.share(job.served)
        trainer = covey.Trainer(parties.session(job.compiled))
        before = parties.run(job.served, others)
        assert (before.integers["scores"] == run_clear(load(job.served), others).integers["scores"]).all()
        with pytest.raises(covey.OptionError, match="no step was taken"):
            trainer.serve()
        for _ in trainer.fit(*data, EPOCHS):
            pass
        assert len(trainer.serve()) == 32
        found = parties.run(job.served, others)
    assert (found.integers["scores"] == due.integers["scores"]).all()
    # What trained weights cost is what the owner's would.
    plan = covey.explain(job.served, batch=5, protocol=protocol)
    assert found.profile is not None
    total = found.profile.total
    assert (total.offline_bytes, total.online_bytes) == (plan.total.offline_bytes, plan.total.online_bytes)


def test_a_job_that_serves_none_and_protocols_that_cannot_say_so() -> None:
    job = job_of(perceptron(), table())
    assert job.served is not None
    trainer = covey.Trainer(ClearSession(load(job.compiled)))
    for _ in trainer.fit(*table()):
        pass
    with pytest.raises(covey.OptionError, match=r"protocol clear has no parties .*: open them \(open_weights=True\)"):
        trainer.serve()
    plain = compiled(perceptron(), table())
    assert plain.served is None
    with pytest.raises(covey.OptionError, match=r"serves no program: compile it with serve=True \(--serve\)"):
        covey.Trainer(ClearSession(load(plain.compiled))).serve()
    with covey.local("two-party") as parties:
        parties.share(job.served)
        trainer = covey.Trainer(parties.session(job.compiled))
        trainer.step(table()[0][:BATCH], table()[1][:BATCH])
        with pytest.raises(covey.CoveyError, match=r"two-party keeps weights at one party.*\(--open-weights\)$"):
            trainer.serve()


def test_the_command(command: Command, tmp_path: Path) -> None:
    x, y = tmp_path / "x.npy", tmp_path / "y.npy"
    np.save(x, table()[0])
    np.save(y, table()[1])
    (tmp_path / "m.onnx").write_bytes(perceptron().SerializeToString())
    job, program = tmp_path / "job.covey", tmp_path / "served.covey"
    call = ["train", tmp_path / "m.onnx", "--data", x, "--labels", y, "--batch", BATCH]
    for wrong in ([*call, "--serve", program], ["train", job, *call[2:], "--serve", program, "--compile", job]):
        command.refuses(*wrong, saying="--serve names the file of a program that is compiled with the job")
    written = command.succeeds(*call, "--serve", program, "--compile", job).out.split()
    assert {Path(path).name for path in written} >= {"job.covey", "served.covey", "served.weights.safetensors"}
    named = _core.Program(job).serving
    assert named is not None
    assert named["program"] == _core.Program(program).hash
    assert named["program"][:12] in command.succeeds("explain", job).out
    with covey.local("trio") as parties:
        config = ["--config", parties.client_config]
        run = ["train", job, "--data", x, "--labels", y, "--epochs", EPOCHS, *config]
        covey.Client(parties.owner_config).share_weights(job)
        refused = command.refuses(*run, saying="it holds no weights of program")
        assert "share them first" in refused and "step" not in refused
        covey.Client(parties.owner_config).share_weights(program)
        first = command.succeeds("infer", program, "--input", x, "--output", tmp_path / "first.npy", *config)
        assert "serve" not in first.err
        command.succeeds(*run, "--no-serve")
        command.succeeds("infer", program, "--input", x, "--output", tmp_path / "same.npy", *config)
        assert (np.load(tmp_path / "first.npy") == np.load(tmp_path / "same.npy")).all()
        said = command.succeeds(*run).err
        assert f"program {named['program'][:12]} computes with the trained weights from now on: version" in said
        command.succeeds("infer", program, "--input", x, "--output", tmp_path / "after.npy", *config)
        assert (np.load(tmp_path / "first.npy") != np.load(tmp_path / "after.npy")).any()
        right = (np.load(tmp_path / "after.npy").argmax(1) == table()[1]).mean()
        assert right > (np.load(tmp_path / "first.npy").argmax(1) == table()[1]).mean()
