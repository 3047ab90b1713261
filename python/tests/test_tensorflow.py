"""Keras models and TensorFlow functions: compiled as they are, computed privately, with TensorFlow's own results."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import covey
import keras_models
from covey.parties import Parties

ALONE = "COVEY_TENSORFLOW"
if os.environ.get(ALONE) != "1":
    pytest.skip(
        f"PyTorch's Triton ends a process that TensorFlow is in: run this file by itself ({ALONE}=1)",
        allow_module_level=True,
    )
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed: pip install tensorflow")
pytest.importorskip("tf2onnx", reason="tf2onnx, which converts TensorFlow's models, is not installed")
keras = tf.keras
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:When providing:UserWarning")

RANGE = (0, 1)


def clear(compiled: covey.Compiled, x: Any) -> dict[str, np.ndarray]:
    with covey.local(protocol="clear") as parties:
        return dict(parties.run(compiled, x).outputs)


def near(found: np.ndarray, due: np.ndarray) -> bool:
    return found.shape == due.shape and bool(np.linalg.norm(found - due) <= 0.015 * np.linalg.norm(due))


@pytest.mark.parametrize("name", keras_models.MODELS)
def test_layers_compute_what_keras_does(name: str) -> None:
    model = keras_models.model(name)
    x = keras_models.inputs(model)
    compiled = covey.compile(model, calibration=x)
    (found,) = clear(compiled, x).values()
    assert near(found, keras_models.outputs(model, x))
    assert [entry["name"] for entry in compiled.report["inputs"]] == ["input"]


@pytest.fixture(scope="module")
def network() -> Any:
    """Images [N, 8, 8, 3] to scores."""
    return keras_models.model("residual")


@pytest.fixture(scope="module")
def images(network: Any) -> np.ndarray:
    return keras_models.inputs(network)


@pytest.fixture(scope="module")
def scores(network: Any, images: np.ndarray) -> np.ndarray:
    """What the specification makes of the images."""
    (found,) = clear(covey.compile(network, calibration=images, input_range=RANGE), images).values()
    return found


@pytest.mark.parametrize("file", ["net.keras", "net.h5", "net"])
def test_files_compute_what_the_model_does(
    network: Any, images: np.ndarray, scores: np.ndarray, file: str, tmp_path: Path, parties: Parties
) -> None:
    path = tmp_path / file
    if path.suffix:
        network.save(path)
    else:
        network.export(path, verbose=False)
    compiled = covey.compile(path, calibration=images, input_range=RANGE)
    assert compiled.report["model"] == "net"
    (found,) = parties.run(compiled, images).outputs.values()
    np.testing.assert_array_equal(found, scores)


def test_verify_compares_with_tensorflow(network: Any, images: np.ndarray, tmp_path: Path) -> None:
    network.save(tmp_path / "net.keras")
    found = covey.verify(tmp_path / "net.keras", "trio", samples=2, data=images, input_range=RANGE)
    assert found.passed
    assert any("TensorFlow" in check.what for check in found.checks)
    assert not any("not installed" in note or "cannot run" in note for note in found.notes)


def test_check_names_the_nodes_of_the_model(network: Any) -> None:
    checked = covey.check(network)
    assert checked.ok
    assert {"Conv", "Transpose", "MaxPool"} <= {note.op for note in checked.notes}


def test_functions_keep_their_layout() -> None:
    kernel = tf.constant(np.random.default_rng(1).normal(size=(3, 3, 3, 4)), tf.float32)

    @tf.function(input_signature=[tf.TensorSpec((None, 9, 9, 3), tf.float32, name="image")])
    def net(image: Any) -> Any:
        return tf.nn.relu(tf.nn.conv2d(image, kernel, 2, "SAME"))

    x = np.random.default_rng(0).random((6, 9, 9, 3), dtype=np.float32)
    compiled = covey.compile(net, calibration=tf.constant(x))
    assert compiled.report["model"] == "net"
    assert near(clear(compiled, x)["output_0"], net(x).numpy())
    again = covey.compile(net.get_concrete_function(), calibration=x)
    assert again.program_hash == compiled.program_hash


def test_several_inputs_and_outputs_go_by_name() -> None:
    k = keras.layers
    image, row = k.Input((6, 6, 1), name="image"), k.Input((3,), name="age")
    joined = k.Concatenate()([k.Flatten()(k.Conv2D(2, 3)(image)), row])
    model = keras.Model({"z": image, "a": row}, {"risk": k.Dense(2)(joined), "age": k.Dense(1)(row)})
    rng = np.random.default_rng(0)
    x = {"image": rng.random((8, 6, 6, 1), dtype=np.float32), "age": rng.random((8, 3), dtype=np.float32)}
    found = clear(covey.compile(model, calibration=x), x)
    due = model({"z": x["image"], "a": x["age"]})
    assert found.keys() == {"risk", "age.output"}
    assert near(found["risk"], due["risk"].numpy())
    assert near(found["age.output"], due["age"].numpy())


def test_example_inputs_say_open_sizes(images: np.ndarray) -> None:
    k = keras.layers
    model = keras.Sequential([k.Input((None, None, 3)), k.Conv2D(4, 3), k.GlobalAveragePooling2D()])
    (found,) = clear(covey.compile(model, images, input_range=RANGE), images).values()
    assert near(found, model(images).numpy())

    class Written(keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.dense = k.Dense(3)

        def call(self, x: Any, y: Any) -> Any:
            return self.dense(x) * y

    written = Written()
    rows = np.random.default_rng(0).random((2, 8, 3))
    compiled = covey.compile(written, {"x": rows[0], "y": rows[1]})
    (found,) = clear(compiled, {"x": rows[0], "y": rows[1]}).values()
    assert near(found, written(rows[0].astype("f"), rows[1].astype("f")).numpy())

    bare = tf.function(lambda x: tf.nn.relu(x) * 2.0)
    (found,) = clear(covey.compile(bare, rows[0]), rows[0]).values()
    assert near(found, 2 * rows[0])


def test_models_can_be_trained(network: Any, images: np.ndarray) -> None:
    classes = np.arange(len(images)) % 5
    job = covey.compile_training(
        network, loss="cross-entropy", optimizer=covey.SGD(0.1), batch=8, calibration=(images, classes),
        open_weights=True,
    )  # fmt: skip
    with covey.local("clear") as parties:
        trainer = covey.Trainer(parties.session(job.compiled))
        losses = [trainer.step(images, classes).loss for _ in range(4)]
    assert losses[-1] < losses[0]


def test_refusals_are_one_line_with_a_way_out(tmp_path: Path, images: np.ndarray) -> None:
    k = keras.layers
    (tmp_path / "broken.keras").write_bytes(b"PK broken")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "saved_model.pb").write_bytes(b"broken")
    unsafe = keras.Sequential([k.Input((3,)), k.Lambda(lambda x: x + 1)])
    unsafe.save(tmp_path / "unsafe.keras")
    inverse = keras.Sequential([k.Input((3, 3)), k.Lambda(tf.linalg.inv, name="inverse"), k.Flatten()])
    cases: list[tuple[Any, str]] = [
        (tmp_path / "none.keras", "does not exist: check the path"),
        (tmp_path / "broken.keras", "not a readable model of Keras or TensorFlow.*save it again"),
        (tmp_path / "folder", "not a readable model of Keras or TensorFlow.*save it again"),
        (tmp_path / "unsafe.keras", "not a readable model.*load it in Python"),
        (keras.Sequential([k.Input((None, 3)), k.Conv1D(2, 3)]), r"'input.*|'keras.* has open sizes .*example inputs"),
        (keras.Sequential([k.Dense(2)]), "does not say what it takes: give example inputs"),
        (tf.function(lambda x: x), "cannot trace .*give example inputs"),
        (object(), "object of type object is no model that can be compiled"),
        (inverse, r"inverse.*\(MatrixInverse\): .*end the model before it"),
    ]
    for model, message in cases:
        with pytest.raises(covey.CoveyError, match=message) as caught:
            covey.compile(model, input_range=RANGE)
        assert "\n" not in str(caught.value)
    with pytest.raises(covey.CoveyError, match="has 1 inputs: give as many"):
        covey.compile(inverse, (images, images))


@pytest.mark.parametrize("package", ["tensorflow", "tf2onnx"])
def test_without_packages_the_way_out_is_named(
    network: Any, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network.save(tmp_path / "net.keras")
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(covey.ModelError, match=rf"needs {package}, which is .* pip install 'covey\[tensorflow\]'"):
        covey.compile(tmp_path / "net.keras", input_range=RANGE)
