"""The zoo's Transformers: sound in float, with what a session carries as onnxruntime computes it; and their benchmarks.

All but the sizes of their layers is as in the zoo: full ones take minutes.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from command import Command
from covey import models
from covey.bench import mpc_pipe, pipelines
from covey.bench.networks import NETWORKS
from covey.errors import OptionError
from covey.models import specs, transformers
from covey.models.network import BATCH_SEED
from covey.models.sequences import SequenceNetwork

onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

SMALL = {"hidden": 16, "heads": 2, "inner": 32, "classes": 5}
LENGTH = 8


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Narrow layers, few words and a small image."""
    for name, kind in models.TRANSFORMERS.items():
        few = {"vocabulary": min(kind.sizes.vocabulary, 50), "image": min(kind.sizes.image, 32)}
        monkeypatch.setitem(models.TRANSFORMERS, name, replace(kind, sizes=replace(kind.sizes, **SMALL, **few)))


def spec_of(name: str, layers: int = 2) -> models.Spec:
    return models.find(name, sequence=None if name == "vit-b" else LENGTH, layers=layers)


def run(model: onnx.ModelProto, inputs: models.Samples, *names: str) -> list[Any]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(list(names) or None, inputs))


@pytest.mark.parametrize("name", models.TRANSFORMERS)
def test_a_model_is_valid_moderate_and_tells_samples_apart(name: str) -> None:
    spec = spec_of(name)
    model, inputs = spec.build(), spec.calibration()
    onnx.checker.check_model(model, full_check=True)
    for value in (*model.graph.input, *model.graph.output):
        assert value.type.tensor_type.shape.dim[0].dim_param == "batch"
    assert model.SerializeToString() == spec.build().SerializeToString()
    for output in run(model, inputs):
        assert np.isfinite(output).all()
        assert output.dtype == np.int64 or 0.1 < np.abs(output).max() < 30
        assert np.abs(output[0] - output[-1]).max() > 0
    assert set(spec.samples(2)) | set(spec.carry) == set(inputs)


@pytest.mark.parametrize("name", ["bert-base-layer", "xlm-layer", "vit-b"])
def test_the_builder_agrees_with_the_graph(name: str) -> None:
    spec = spec_of(name)
    assert isinstance(spec, models.TransformerSpec)
    net, inputs = SequenceNetwork("model"), spec.samples(1, BATCH_SEED)
    spec.kind.build(net, spec.sizes, *inputs.values())
    shapes = onnx.shape_inference.infer_shapes(net.proto).graph
    floats = [
        value for value in shapes.value_info if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    ]  # fmt: skip
    del net.proto.graph.output[1:]
    net.proto.graph.output.extend(floats)
    largest = max(float(np.abs(value).max()) for value in run(net.proto, inputs))
    assert net.largest == pytest.approx(largest, rel=1e-4)


def test_padding_changes_nothing_before_it() -> None:
    spec = spec_of("bert-base")
    inputs = spec.samples(4)
    assert inputs["attention_mask"].sum(axis=1).tolist() == [8, 6, 4, 2]
    other = {**inputs, "input_ids": np.where(inputs["attention_mask"] == 1, inputs["input_ids"], 0)}
    (first,), (second,) = (run(spec.build(), given) for given in (inputs, other))
    kept = inputs["attention_mask"] == 1
    np.testing.assert_allclose(first[kept], second[kept], atol=1e-5)
    assert np.abs(first[~kept] - second[~kept]).max() > 0.1


def test_keys_and_values_are_those_of_the_steps_before() -> None:
    spec = spec_of("gpt2")
    model, calibration = spec.build(), spec.calibration()
    rng = np.random.default_rng(specs.CALIBRATION_SEED)
    ids = rng.integers(0, 50, (specs.CALIBRATION_SEQUENCES, LENGTH))
    past = {name: np.zeros((len(ids), 2, LENGTH - 1, 8), np.float32) for name in spec.carry}
    seen = 0
    for place in range(LENGTH):
        step = {
            "input_ids": ids[:, place : place + 1],
            "position_ids": np.full((len(ids), 1), place),
            "attention_mask": transformers.window([place] * len(ids), LENGTH),
        }
        at = (calibration["position_ids"] == place).ravel()
        seen += int(at.sum())
        for name, array in {**step, **past}.items() if at.any() else ():
            np.testing.assert_allclose(calibration[name][at], array, atol=1e-5, err_msg=name)
        past = dict(zip(past, run(model, {**step, **past}, *spec.carry.values()), strict=True))
    assert seen == len(calibration["input_ids"]) == 16


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("bert-base", ("--sequence", 4, "--batch", 2)),
        ("gpt2", ("--sequence", 4, "--protocol", "quad")),
        ("vit-b", ()),
        ("xlm-layer", ("--sequence", 4, "--protocol", "beaver", "--ring", 64)),
    ],
)
def test_a_benchmark(command: Command, tmp_path: Path, name: str, options: tuple[object, ...]) -> None:
    arguments = ("bench", "model", name, "--layers", 1, *options, "--repetitions", 1, "--warm-up", 0)
    figures = json.loads(command.succeeds(*arguments, "--cache", tmp_path, "--json").out)
    assert figures["differing_from_clear"] == 0
    assert figures["model"]["model"] == name and figures["model"]["layers"] == 1
    assert (figures["bytes"], figures["rounds"]) == (figures["planned_bytes"], figures["planned_rounds"])
    assert figures["scale"] >= 10
    assert "onnxruntime" in figures["plaintext"]["engine"]
    if name == "gpt2":
        assert (figures["relative_error"], figures["same_answers"], figures["elements"]) == (None, 1, 1)
    else:
        assert figures["relative_error"] < 0.02 and figures["same_answers"] is None


def silent(done: int, total: int, what: str) -> None:
    del done, total, what


def test_a_transformer_by_kinds_of_layers(tmp_path: Path) -> None:
    with pipelines.bed(models.TransformerSpec("xlm-layer", 4), tmp_path, silent) as made:
        row = made.measure(pipelines.ALL, NETWORKS["loopback"], 1, silent)
    assert row.attention == {"layer0.scores", "layer0.mixed"}
    kinds = pipelines.by_kind(row)
    assert all(kinds[kind] > 0 for kind in ("linear", "attention", "softmax", "normalisation"))
    assert sum(kinds.values()) == pytest.approx(sum(node.milliseconds for node in row.nodes) / 1e3)


def test_the_papers_transformer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(mpc_pipe.MODELS, "Transformer", models.TransformerSpec("xlm-layer", 4))
    monkeypatch.setattr(mpc_pipe, "default_folder", lambda: tmp_path)
    cells = list(mpc_pipe.PRESETS["mpc-pipe-first-figure5"].measure(1, silent))
    whole = [cell for cell in cells if "layers" not in cell.what]
    assert [cell.paper for cell in whole] == ["8.19 % faster", "12.60 % faster"]
    parts = [cell.what for cell in cells if "softmax" in cell.what or "attention" in cell.what]
    assert len(parts) == 4 and whole[1].bytes > whole[0].bytes > 0


def test_options_that_do_not_fit_are_refused(command: Command) -> None:
    bench = ("bench", "model")
    command.refuses(
        *bench, "bert-base", "--shape", "cifar", saying="no shape to choose: it takes --sequence and --layers"
    )
    command.refuses(
        *bench, "lenet5", "--layers", 2, saying="no layers to choose: it takes --shape, --pool and --classes"
    )
    command.refuses(*bench, "vit-b", "--sequence", 9, saying="no sequence to choose: it takes --layers")
    command.refuses(*bench, "gpt2", "--sequence", 1, saying="use 2 to 1024")
    command.refuses(*bench, "bert-base", "--layers", 13, saying="use 1 to 12")
    command.refuses(*bench, "bert-huge", saying="bert-large")
    command.refuses("bench", "pipelines", "gpt2", saying="runs cannot overlap")
    command.refuses("bench", "phases", "gpt2", saying="is not preprocessed")
    command.refuses(*bench, "gpt2", "--phase", "online", saying="is not preprocessed")
    with pytest.raises(OptionError, match="use 1 to 512"):
        models.build("bert-base", sequence=513)
