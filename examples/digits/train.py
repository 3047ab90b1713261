"""Train the digits network of `covey demo` and write it with its held-out and calibration images.

    python examples/digits/train.py [--out FOLDER]

The data are scikit-learn's digits: 1,797 grey images of 8 × 8 pixels, scaled here from 0..16 to [0, 1]. 450 of them are
held out. The network is trained with NumPy alone, on the CPU, in well under a minute, and is written as ONNX:

    conv1 3×3 1→16 · bn1 · relu1 · conv2 3×3 16→32 · relu2 · pool 2×2 · flatten
    · fc1 512→64 · relu3 · fc2 64→10 · softmax

Everything is seeded. The last bits of the weights may still differ from machine to machine, because a BLAS is free to
choose the order in which it adds.
"""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

Floats = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]
Parameters = dict[str, Floats]

DATA = Path(__file__).resolve().parents[2] / "python" / "covey" / "data" / "digits"
HELD_OUT = 450
CALIBRATION = 100
EPOCHS = 30
BATCH = 64
LEARNING_RATE = 2e-3
WEIGHT_DECAY = 1e-2
EPSILON = 1e-5


def load() -> tuple[Floats, Floats, Labels, Labels]:
    """Training images, held-out images, training labels, held-out labels; images are [N, 1, 8, 8] in [0, 1]."""
    digits = load_digits()
    images = (digits.images[:, None] / 16).astype(np.float32)
    labels = digits.target.astype(np.int64)
    train_x, test_x, train_y, test_y = train_test_split(
        images, labels, test_size=HELD_OUT, stratify=labels, random_state=0
    )
    return train_x, test_x, train_y, test_y


def initial_parameters(rng: np.random.Generator) -> Parameters:
    """He-initialised weights, zero biases."""

    def he(*shape: int) -> Floats:
        fan_in = int(np.prod(shape[1:]))
        weight: Floats = (rng.standard_normal(shape) * np.sqrt(2 / fan_in)).astype(np.float32)
        return weight

    def constant(value: float, size: int) -> Floats:
        return np.full(size, value, np.float32)

    return {
        "conv1.weight": he(16, 1, 3, 3),
        "bn1.scale": constant(1, 16),
        "bn1.bias": constant(0, 16),
        "conv2.weight": he(32, 16, 3, 3),
        "conv2.bias": constant(0, 32),
        "fc1.weight": he(64, 512),
        "fc1.bias": constant(0, 64),
        "fc2.weight": he(10, 64),
        "fc2.bias": constant(0, 10),
    }


# Layers. A convolution is 3 × 3 with stride 1 and padding 1; every other shape rule is ONNX's.


def columns(x: Floats) -> Floats:
    """Every 3 × 3 neighbourhood of x [N, C, H, W], as rows [N·H·W, C·9]."""
    n, c, h, w = x.shape
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return windows.transpose(0, 2, 3, 1, 4, 5).reshape(n * h * w, c * 9)


def convolve(x: Floats, weight: Floats) -> Floats:
    """x [N, C, H, W] with weight [O, C, 3, 3] gives [N, O, H, W]."""
    n, _, h, w = x.shape
    return (columns(x) @ weight.reshape(len(weight), -1).T).reshape(n, h, w, -1).transpose(0, 3, 1, 2)


def convolve_gradients(x: Floats, weight: Floats, dy: Floats) -> tuple[Floats, Floats]:
    """Gradients for the input and the weight. The input's is a convolution with the kernel turned by 180 degrees."""
    rows = dy.transpose(0, 2, 3, 1).reshape(-1, len(weight))
    dweight = (rows.T @ columns(x)).reshape(weight.shape)
    return convolve(dy, weight[:, :, ::-1, ::-1].swapaxes(0, 1)), dweight


def per_channel(v: Floats) -> Floats:
    """[C] as [C, 1, 1], to broadcast over [N, C, H, W]."""
    return v[:, None, None]


def loss_and_gradients(p: Parameters, x: Floats, labels: Labels) -> tuple[float, Parameters]:
    """Mean cross-entropy of a batch and its gradient for every parameter; bn1 uses the batch's own statistics."""
    n = len(x)
    # Forward.
    c1 = convolve(x, p["conv1.weight"])
    deviation = np.sqrt(c1.var(axis=(0, 2, 3)) + EPSILON)
    normal = (c1 - per_channel(c1.mean(axis=(0, 2, 3)))) / per_channel(deviation)
    b1 = normal * per_channel(p["bn1.scale"]) + per_channel(p["bn1.bias"])
    r1 = np.maximum(b1, 0)
    c2 = convolve(r1, p["conv2.weight"]) + per_channel(p["conv2.bias"])
    r2 = np.maximum(c2, 0)
    tiles = r2.reshape(n, 32, 4, 2, 4, 2)
    pooled = tiles.max(axis=(3, 5), keepdims=True)
    flat = pooled.reshape(n, 512)
    f1 = flat @ p["fc1.weight"].T + p["fc1.bias"]
    r3 = np.maximum(f1, 0)
    logits = r3 @ p["fc2.weight"].T + p["fc2.bias"]
    exps = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities = exps / exps.sum(axis=1, keepdims=True)
    loss = float(-np.log(probabilities[np.arange(n), labels] + 1e-12).mean())

    # Backward. A tie in a pooling window shares the gradient; after ReLU ties are almost always zeros, which pass none.
    g: Parameters = {}
    d = probabilities
    d[np.arange(n), labels] -= 1
    d /= n
    g["fc2.weight"], g["fc2.bias"] = d.T @ r3, d.sum(axis=0)
    d = (d @ p["fc2.weight"]) * (f1 > 0)
    g["fc1.weight"], g["fc1.bias"] = d.T @ flat, d.sum(axis=0)
    d = (d @ p["fc1.weight"]).reshape(pooled.shape)
    winners = tiles == pooled
    d = d * winners / winners.sum(axis=(3, 5), keepdims=True, dtype=np.float32)
    d = d.reshape(c2.shape) * (c2 > 0)
    g["conv2.bias"] = d.sum(axis=(0, 2, 3))
    d, g["conv2.weight"] = convolve_gradients(r1, p["conv2.weight"], d)
    d = d * (b1 > 0)
    g["bn1.scale"], g["bn1.bias"] = (d * normal).sum(axis=(0, 2, 3)), d.sum(axis=(0, 2, 3))
    # Batch normalisation: the mean and the variance depend on every element too.
    d = d - per_channel(d.mean(axis=(0, 2, 3))) - normal * per_channel((d * normal).mean(axis=(0, 2, 3)))
    d = d * per_channel(p["bn1.scale"] / deviation)
    _, g["conv1.weight"] = convolve_gradients(x, p["conv1.weight"], d)
    return loss, g


def batches(rng: np.random.Generator, size: int) -> Iterator[npt.NDArray[np.int64]]:
    """One epoch's index sets, in random order; a short last one is left out."""
    order = rng.permutation(size)
    for start in range(0, size - BATCH + 1, BATCH):
        yield order[start : start + BATCH]


def train(images: Floats, labels: Labels, rng: np.random.Generator) -> Parameters:
    """Adam with decoupled weight decay and a learning rate that falls to zero along a cosine."""
    p = initial_parameters(rng)
    first = {name: np.zeros_like(value) for name, value in p.items()}
    second = {name: np.zeros_like(value) for name, value in p.items()}
    steps = EPOCHS * (len(images) // BATCH)
    step = 0
    for epoch in range(1, EPOCHS + 1):
        losses = []
        for chosen in batches(rng, len(images)):
            loss, gradients = loss_and_gradients(p, images[chosen], labels[chosen])
            losses.append(loss)
            rate = LEARNING_RATE * 0.5 * (1 + np.cos(np.pi * step / steps))
            step += 1
            for name, gradient in gradients.items():
                first[name] = 0.9 * first[name] + 0.1 * gradient
                second[name] = 0.999 * second[name] + 0.001 * gradient**2
                update = first[name] / (1 - 0.9**step) / (np.sqrt(second[name] / (1 - 0.999**step)) + 1e-8)
                if name.endswith(".weight"):
                    update = update + WEIGHT_DECAY * p[name]
                p[name] = (p[name] - rate * update).astype(np.float32)
        if epoch % 5 == 0:
            print(f"epoch {epoch:2d} of {EPOCHS}   loss {np.mean(losses):.4f}", flush=True)
    return p


def export(p: Parameters, images: Floats) -> onnx.ModelProto:
    """The network as ONNX, [batch, 1, 8, 8] to probabilities [batch, 10]; bn1's statistics are those of `images`."""
    c1 = convolve(images, p["conv1.weight"])
    tensors = dict(p, **{"bn1.mean": c1.mean(axis=(0, 2, 3)), "bn1.variance": c1.var(axis=(0, 2, 3))})
    same: dict[str, Any] = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    layers: list[tuple[str, str, list[str], dict[str, Any]]] = [
        ("conv1", "Conv", ["conv1.weight"], same),
        ("bn1", "BatchNormalization", ["bn1.scale", "bn1.bias", "bn1.mean", "bn1.variance"], {"epsilon": EPSILON}),
        ("relu1", "Relu", [], {}),
        ("conv2", "Conv", ["conv2.weight", "conv2.bias"], same),
        ("relu2", "Relu", [], {}),
        ("pool", "MaxPool", [], {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ("flatten", "Flatten", [], {"axis": 1}),
        ("fc1", "Gemm", ["fc1.weight", "fc1.bias"], {"transB": 1}),
        ("relu3", "Relu", [], {}),
        ("fc2", "Gemm", ["fc2.weight", "fc2.bias"], {"transB": 1}),
        ("softmax", "Softmax", [], {"axis": -1}),
    ]
    nodes, value = [], "image"
    for name, op, inputs, attributes in layers:
        output = "probabilities" if op == "Softmax" else f"{name}_out"
        nodes.append(helper.make_node(op, [value, *inputs], [output], name=name, **attributes))
        value = output
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 1, 8, 8])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", 10])],
        [numpy_helper.from_array(np.ascontiguousarray(tensor, np.float32), name) for name, tensor in tensors.items()],
    )
    # IR version 8 goes with opset 17, so that older runtimes read the file too.
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model.producer_name = "covey examples/digits/train.py"
    onnx.checker.check_model(model, full_check=True)
    return model


def accuracy(model: onnx.ModelProto, images: Floats, labels: Labels) -> float:
    """Share of images whose most likely class, by the ONNX reference implementation, is the label."""
    outputs: Any = ReferenceEvaluator(model).run(["probabilities"], {"image": images})
    return float((outputs[0].argmax(axis=1) == labels).mean())


def main() -> None:
    """Train, write four files, report the accuracy of the model as written."""
    parser = argparse.ArgumentParser(description="Train the digits network of `covey demo`.")
    parser.add_argument("--out", type=Path, default=DATA, help="folder to write (default: the package's data)")
    out: Path = parser.parse_args().out
    train_x, test_x, train_y, test_y = load()
    started = time.monotonic()
    parameters = train(train_x, train_y, np.random.Generator(np.random.PCG64(0)))
    print(f"trained on {len(train_x)} images in {time.monotonic() - started:.1f} s")

    out.mkdir(parents=True, exist_ok=True)
    onnx.save(export(parameters, train_x), out / "digits.onnx")
    np.save(out / "test-images.npy", np.ascontiguousarray(test_x))
    np.save(out / "test-labels.npy", test_y)
    np.save(out / "calibration.npy", np.ascontiguousarray(train_x[:CALIBRATION]))
    for name in ("digits.onnx", "test-images.npy", "test-labels.npy", "calibration.npy"):
        print(f"wrote {name}, {(out / name).stat().st_size:,} bytes")

    model = onnx.load(out / "digits.onnx")
    print(f"float accuracy: {accuracy(model, train_x, train_y):.2%} of {len(train_y)} training images")
    print(f"float accuracy: {accuracy(model, test_x, test_y):.2%} of {len(test_y)} held-out images")


if __name__ == "__main__":
    main()
