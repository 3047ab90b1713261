"""Convolutions and pooling over one, two and three dimensions, and transposed convolutions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper

import builders
import covey
import interpreter
from agreement import agree, image
from covey import reference
from covey.importers.onnx import import_model
from covey.passes import rewrite

QUICK = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
SIZES = (7, 5, 6)


@st.composite
def geometry(draw: st.DrawFn, *, ranks: tuple[int, ...] = (1, 3)) -> dict[str, Any]:
    """Window attributes that fit an input of the first of `SIZES`."""
    rank = draw(st.sampled_from(ranks))

    def numbers(low: int, high: int) -> list[int]:
        return [draw(st.integers(low, high)) for _ in range(rank)]

    kernel, dilations, strides = numbers(1, 3), numbers(1, 2), numbers(1, 3)
    pads = [draw(st.integers(0, min(2, kernel[i % rank] - 1))) for i in range(2 * rank)]
    return {"kernel_shape": kernel, "strides": strides, "dilations": dilations, "pads": pads}


def sizes(window: dict[str, Any]) -> tuple[int, ...]:
    return SIZES[: len(window["kernel_shape"])]


@QUICK
@given(geometry(), st.sampled_from([1, 2, 4]), st.booleans())
def test_conv(window: dict[str, Any], groups: int, with_bias: bool) -> None:
    rng = np.random.default_rng(0)
    constants = {"w": builders.weights(rng, 8, 4 // groups, *window["kernel_shape"])}
    if with_bias:
        constants["b"] = rng.normal(size=8)
    shape = (4, *sizes(window))
    agree(builders.single("Conv", ["N", *shape], constants, group=groups, **window), image(2, *shape))


@QUICK
@given(geometry(ranks=(1, 2, 3)), st.sampled_from([1, 2]), st.booleans(), st.data())
def test_conv_transpose(window: dict[str, Any], groups: int, with_bias: bool, data: st.DataObject) -> None:
    rng = np.random.default_rng(0)
    constants = {"w": builders.weights(rng, 4, 6 // groups, *window["kernel_shape"])}
    if with_bias:
        constants["b"] = rng.normal(size=6)
    extra = [data.draw(st.integers(0, stride - 1)) for stride in window["strides"]]
    shape = (4, *sizes(window))
    proto = builders.single("ConvTranspose", ["N", *shape], constants, group=groups, output_padding=extra, **window)
    agree(proto, image(2, *shape), tolerance=0.03)


@pytest.mark.parametrize(
    "attributes", [{"output_shape": [9, 13]}, {"auto_pad": "SAME_UPPER"}, {"auto_pad": "SAME_LOWER"}]
)
def test_conv_transpose_to_a_size(attributes: dict[str, Any]) -> None:
    weight = {"w": builders.weights(np.random.default_rng(0), 2, 3, 3, 3)}
    proto = builders.single("ConvTranspose", ["N", 2, 5, 6], weight, strides=[2, 2], **attributes)
    agree(proto, image(2, 2, 5, 6))


@QUICK
@given(geometry(), st.booleans())
def test_max_pool(window: dict[str, Any], ceil: bool) -> None:
    shape = (3, *sizes(window))
    agree(builders.single("MaxPool", ["N", *shape], ceil_mode=int(ceil), **window), image(2, *shape))


@QUICK
@given(geometry(), st.booleans(), st.booleans())
def test_average_pool(window: dict[str, Any], ceil: bool, include: bool) -> None:
    window = {key: value for key, value in window.items() if key != "dilations"}
    shape = (3, *sizes(window))
    options = {"ceil_mode": int(ceil), "count_include_pad": int(include)}
    agree(builders.single("AveragePool", ["N", *shape], opset=19, **options, **window), image(2, *shape))


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize(
    ("size", "taken", "attributes"),
    [
        (5, False, {"auto_pad": "VALID", "ceil_mode": 1, "kernel_shape": [2], "strides": [2]}),
        (6, True, {"auto_pad": "VALID", "ceil_mode": 1, "kernel_shape": [2], "strides": [2]}),
        (6, False, {"auto_pad": "SAME_UPPER", "kernel_shape": [2], "dilations": [2]}),
        (7, False, {"auto_pad": "SAME_LOWER", "kernel_shape": [1], "strides": [4]}),
        (7, True, {"auto_pad": "SAME_LOWER", "kernel_shape": [1], "strides": [2]}),
        (6, True, {"auto_pad": "SAME_UPPER", "kernel_shape": [3], "strides": [2]}),
    ],
)
def test_automatic_pads_of_pools(op: str, size: int, taken: bool, attributes: dict[str, Any]) -> None:
    proto = builders.single(op, ["N", 1, size], opset=19, **attributes)
    if taken:
        agree(proto, image(2, 1, size))
        return
    with pytest.raises(covey.UnsupportedError, match=r"its auto_pad .* differs between runtimes; export .* with pads"):
        import_model(proto)


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER"])
def test_windows_short_of_their_strides(auto_pad: str) -> None:
    weight = {"w": np.ones((1, 1, 2))}
    proto = builders.single("ConvTranspose", ["N", 1, 5], weight, strides=[3], auto_pad=auto_pad)
    with pytest.raises(covey.UnsupportedError, match="gives 15 elements where its windows reach 14; export"):
        import_model(proto)
    conv = builders.single("Conv", ["N", 1, 8], {"w": np.ones((1, 1, 1))}, strides=[4], auto_pad=auto_pad)
    with pytest.raises(covey.UnsupportedError, match="over 8 elements differs between runtimes"):
        import_model(conv)


@pytest.mark.parametrize("op", ["GlobalAveragePool", "GlobalMaxPool"])
@pytest.mark.parametrize("shape", [(3, 7), (3, 4, 2, 5)])
def test_global_pools(op: str, shape: tuple[int, ...]) -> None:
    agree(builders.single(op, ["N", *shape]), image(2, *shape))


def normalised(op: str, weight: tuple[int, ...], shape: tuple[int, ...], **attributes: Any) -> Any:
    """A layer, BatchNormalization and Relu."""
    rng = np.random.default_rng(0)
    channels = weight[1] * attributes.get("group", 1) if op == "ConvTranspose" else weight[0]
    nodes = [
        helper.make_node(op, ["x", "w"], ["t"], name="layer", **attributes),
        helper.make_node("BatchNormalization", ["t", "s", "b", "m", "v"], ["n"], name="norm"),
        helper.make_node("Relu", ["n"], ["y"], name="relu"),
    ]
    constants = {"w": builders.weights(rng, *weight)}
    constants |= {name: rng.uniform(0.5, 1.5, channels) for name in ("s", "b", "m", "v")}
    return builders.model(nodes, {"x": ["N", *shape]}, ["y"], constants)


@pytest.mark.parametrize(
    ("op", "weight", "shape", "attributes"),
    [
        ("Conv", (4, 3, 3), (3, 8), {}),
        ("Conv", (4, 1, 3, 2, 2), (2, 5, 4, 4), {"group": 2}),
        ("ConvTranspose", (4, 3, 3), (4, 6), {"strides": [2]}),
        ("ConvTranspose", (4, 3, 3, 2), (4, 4, 5), {"group": 2, "strides": [2, 2]}),
    ],
)
def test_batch_norm_and_relu_join_every_kind(
    op: str, weight: tuple[int, ...], shape: tuple[int, ...], attributes: dict[str, Any]
) -> None:
    proto = normalised(op, weight, shape, **attributes)
    after = import_model(proto)
    assert rewrite(after) == []
    labels = [node.op.label for node in after.nodes]
    place = labels.index("Conv2d")
    assert labels[place + 1] == "Relu"
    assert labels.count("Relu") == 1
    assert not {"Mul", "Add", "BatchNormalization"} & set(labels)
    data = image(2, *shape)
    before = reference.outputs(import_model(proto), data)
    np.testing.assert_allclose(reference.outputs(after, data)[0], before[0], atol=1e-9)
    agree(proto, data)


def test_keep_bn_leaves_a_multiplication_and_an_addition() -> None:
    proto = normalised("Conv", (4, 3, 3, 3), (3, 6, 6))
    compiled = agree(proto, image(2, 3, 6, 6), keep_bn=True)
    kinds = [node.WhichOneof("op") for node in interpreter.program_of(compiled).nodes]
    assert kinds == ["conv2d", "truncate", "mul", "add", "truncate", "relu"]


@pytest.mark.parametrize(("kernel", "shape"), [([2], (3, 8)), ([2, 2, 2], (2, 4, 4, 4))])
def test_pools_over_rows_and_volumes_move_before_relu_too(kernel: list[int], shape: tuple[int, ...]) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], name="relu"),
        helper.make_node("MaxPool", ["r"], ["y"], name="pool", kernel_shape=kernel, strides=kernel),
    ]
    proto = builders.model(nodes, {"x": ["N", *shape]}, ["y"])
    compiled = agree(proto, image(2, *shape))
    rows = [node for node in interpreter.program_of(compiled).nodes if node.WhichOneof("op") == "relu"]
    program = interpreter.program_of(compiled)
    assert len(rows) == 1
    assert np.prod(program.values[rows[0].outputs[0]].shape) == np.prod(shape) // 2 ** len(kernel)
