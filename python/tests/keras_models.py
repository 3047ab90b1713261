"""Small Keras models of every layer that is said to be supported, and the files that tf2onnx makes of a few.

Tests without TensorFlow read these files, with TensorFlow's own inputs and outputs beside them:

    python python/tests/keras_models.py        writes them again
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

GOLDEN = Path(__file__).parent / "golden" / "tf2onnx"
"""What tf2onnx wrote, as name.onnx, and name.npz with the arrays `input` and `output`."""

SAMPLES = 8
WORDS = 20
IMAGE = (8, 8, 3)


def _sequential(shape: tuple[int, ...], *layers: Any, dtype: str = "float32") -> Any:
    import keras

    return keras.Sequential([keras.layers.Input(shape, dtype=dtype, name="input"), *layers])


def _functional(shape: tuple[int, ...], build: Callable[[Any, Any], Any]) -> Any:
    import keras

    x = keras.layers.Input(shape, name="input")
    return keras.Model(x, build(keras.layers, x))


def _activations(k: Any, x: Any) -> Any:
    x = k.Conv2D(2, 3)(x)
    names = ("elu", "celu", "silu", "hard_silu", "mish", "softplus", "softsign", "selu", "tanh", "hard_sigmoid")
    layers = [k.LeakyReLU(0.1), k.PReLU("random_uniform", shared_axes=[1, 2]), *map(k.Activation, names)]
    return k.Dense(3)(k.Flatten()(k.Concatenate()([layer(x) for layer in layers])))


def _residual(k: Any, x: Any) -> Any:
    x = k.ReLU()(k.BatchNormalization()(k.Conv2D(6, 3, padding="same", use_bias=False)(x)))
    y = k.BatchNormalization()(k.Conv2D(6, 3, padding="same")(x))
    x = k.ReLU(6.0)(k.Add()([x, y]))
    x = k.Concatenate()([x, k.Conv2D(2, 1)(x)])
    x = k.MaxPooling2D(3, 2, padding="same")(k.Conv2D(8, 3, 2, padding="same")(x))
    return k.Dense(5, activation="softmax")(k.GlobalAveragePooling2D()(x))


def _squeezed(k: Any, x: Any) -> Any:
    x = k.Conv2D(8, 3)(x)
    y = k.Conv2D(2, 1, activation="relu")(k.GlobalAveragePooling2D(keepdims=True)(x))
    return k.Flatten()(k.Multiply()([x, k.Conv2D(8, 1, activation="hard_sigmoid")(y)]))


def _merged(k: Any, x: Any) -> Any:
    a, b = k.Dense(6)(x), k.Dense(6)(x)
    parts = [kind()([a, b]) for kind in (k.Multiply, k.Maximum, k.Minimum, k.Average, k.Subtract)]
    return k.Dense(3)(k.Concatenate()(parts))


def _transformer(k: Any, x: Any) -> Any:
    x = k.LayerNormalization()(k.Add()([x, k.MultiHeadAttention(2, 4)(x, x, use_causal_mask=True)]))
    y = k.Dense(8)(k.Dense(16, activation="gelu")(x))
    return k.Dense(3)(k.GlobalAveragePooling1D()(k.LayerNormalization()(k.Add()([x, y]))))


def _adapted(k: Any) -> Any:
    layer = k.Normalization()
    layer.adapt(np.random.default_rng(1).random((64, *IMAGE)))
    return _sequential(IMAGE, layer, k.Rescaling(0.5, -1.0), k.Conv2D(4, 3), k.Flatten(), k.Dense(3))


def _words(k: Any, *layers: Any) -> Any:
    return _sequential((5,), k.Embedding(WORDS, 6), *layers, k.Dense(3), dtype="int32")


MODELS: dict[str, Callable[[Any], Any]] = {
    "residual": lambda k: _functional(IMAGE, _residual),
    "images_out": lambda k: _sequential(IMAGE, k.Conv2D(4, 3, padding="same", activation="relu"), k.Conv2D(2, 1)),
    "depthwise": lambda k: _sequential(
        IMAGE, k.DepthwiseConv2D(3, 2, padding="same"), k.ReLU(6.0), k.SeparableConv2D(6, 3, padding="same"),
        k.DepthwiseConv2D(3, depth_multiplier=2), k.GlobalMaxPooling2D(),
    ),
    "strides": lambda k: _sequential(
        (9, 9, 3), k.Conv2D(6, 5, 3, padding="same"), k.AveragePooling2D(3, 2, padding="same"), k.Flatten(), k.Dense(3)
    ),
    "grouped": lambda k: _sequential(
        (8, 8, 4), k.Conv2D(8, 3, groups=2, padding="same"), k.ReLU(), k.Conv2D(2, 3, dilation_rate=2, padding="same")
    ),
    "transposed": lambda k: _sequential(
        (4, 4, 3), k.Conv2DTranspose(4, 3, 2, padding="same"), k.ReLU(), k.Conv2DTranspose(2, 2, 2)
    ),
    "resized": lambda k: _sequential(
        (4, 4, 3), k.Conv2D(4, 1), k.UpSampling2D(2), k.UpSampling2D(2, interpolation="bilinear"), k.ZeroPadding2D(1),
        k.Cropping2D(2), k.Resizing(6, 6),
    ),
    "squeezed": lambda k: _functional(IMAGE, _squeezed),
    "one_dimension": lambda k: _sequential(
        (12, 3), k.Conv1D(6, 3, padding="causal", activation="relu"), k.MaxPooling1D(2), k.Flatten(), k.Dense(3)
    ),
    "three_dimensions": lambda k: _sequential(
        (4, 4, 4, 2), k.Conv3D(3, 3, padding="same", activation="relu"), k.MaxPooling3D(), k.Flatten(), k.Dense(3)
    ),
    "activations": lambda k: _functional(IMAGE, _activations),
    "gelu": lambda k: _sequential(IMAGE, k.Conv2D(4, 3, activation="gelu"), k.Flatten(), k.Dense(3)),
    "group_norm": lambda k: _sequential(IMAGE, k.Conv2D(4, 3), k.GroupNormalization(2), k.GlobalAveragePooling2D()),
    "adapted": _adapted,
    "merged": lambda k: _functional((8,), _merged),
    "reshaped": lambda k: _sequential(
        IMAGE, k.Conv2D(4, 3, padding="same"), k.Reshape((64, 4)), k.Permute((2, 1)), k.Dense(3), k.Flatten()
    ),
    "every_step": lambda k: _sequential((3, 6, 6, 2), k.TimeDistributed(k.Conv2D(2, 3)), k.Flatten(), k.Dense(3)),
    "transformer": lambda k: _functional((5, 8), _transformer),
    "bag_of_words": lambda k: _words(k, k.GlobalAveragePooling1D()),
    "lstm": lambda k: _sequential((5, 4), k.LSTM(6, return_sequences=True), k.Bidirectional(k.LSTM(4)), k.Dense(3)),
    "gru_of_words": lambda k: _words(k, k.GRU(4)),
    "simple_rnn": lambda k: _sequential((5, 4), k.SimpleRNN(6, return_sequences=True), k.Flatten(), k.Dense(3)),
}  # fmt: skip

KEPT = ("residual", "images_out", "gelu", "gru_of_words")
"""Those whose ONNX files are kept."""


def model(name: str) -> Any:
    """One of the models: weights from a seed, statistics of BatchNormalization those of its inputs."""
    import keras

    keras.utils.set_random_seed(0)
    made = MODELS[name](keras.layers)
    norms = [layer for layer in made.layers if isinstance(layer, keras.layers.BatchNormalization)]
    for layer in norms:
        layer.momentum = 0.0
    if norms:
        made(inputs(made), training=True)
    return made


def inputs(made: Any) -> np.ndarray:
    """Samples [8, ..] for a model with one input, from a seed."""
    rng = np.random.default_rng(0)
    shape = (SAMPLES, *made.inputs[0].shape[1:])
    if "int" in str(made.inputs[0].dtype):
        return rng.integers(0, WORDS, shape).astype(np.int32)
    return rng.random(shape, dtype=np.float32)


def outputs(made: Any, samples: np.ndarray) -> np.ndarray:
    """What Keras computes."""
    return np.asarray(made(samples, training=False))


def write() -> None:
    """Write the files that are kept."""
    from covey.importers import tensorflow

    GOLDEN.mkdir(parents=True, exist_ok=True)
    for name in KEPT:
        made = model(name)
        samples = inputs(made)
        (GOLDEN / f"{name}.onnx").write_bytes(tensorflow.convert(made).SerializeToString())
        np.savez(GOLDEN / f"{name}.npz", input=samples, output=outputs(made, samples))


if __name__ == "__main__":
    write()
