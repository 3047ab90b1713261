"""Quantised ONNX models: the network that they stand for, next to the model before quantisation and to onnxruntime."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import builders
import covey
from covey.clear import run_clear
from covey.importers.onnx import load as load_onnx
from covey.model import load

RNG = np.random.default_rng(0)
X = RNG.normal(size=(32, 3, 8, 8)).astype(np.float32)

quantization = pytest.importorskip("onnxruntime.quantization", reason="onnxruntime cannot quantise here")


def network() -> onnx.ModelProto:
    """Convolutions with a ReLU, a ReLU6 and a sum, pools, dense layers."""
    rng = np.random.default_rng(1)
    constants = {
        "w1": builders.weights(rng, 8, 3, 3, 3),
        "w2": builders.weights(rng, 8, 8, 3, 3),
        "b2": rng.normal(size=8) * 0.2,
        "w3": builders.weights(rng, 8, 16),
        "b3": rng.normal(size=16) * 0.2,
        "w4": builders.weights(rng, 16, 5),
        "zero": np.array(0.0),
        "six": np.array(6.0),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], name="first", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("MaxPool", ["b"], ["c"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["c", "w2", "b2"], ["d"], name="second", pads=[1, 1, 1, 1]),
        helper.make_node("Clip", ["d", "zero", "six"], ["e"], name="relu6"),
        helper.make_node("Add", ["e", "c"], ["f"], name="sum"),
        helper.make_node("GlobalAveragePool", ["f"], ["g"], name="mean"),
        helper.make_node("Flatten", ["g"], ["h"], name="flat"),
        helper.make_node("Gemm", ["h", "w3", "b3"], ["i"], name="dense"),
        helper.make_node("Sigmoid", ["i"], ["j"], name="sigmoid"),
        helper.make_node("MatMul", ["j", "w4"], ["y"], name="last"),
    ]
    return builders.model(nodes, {"x": ["N", 3, 8, 8]}, ["y"], constants)


class Samples(quantization.CalibrationDataReader):  # type: ignore[misc]
    """The data that ranges come from."""

    def __init__(self) -> None:
        self.batches: Iterator[npt.NDArray[Any]] = iter(np.split(X, 4))

    def get_next(self) -> dict[str, npt.NDArray[Any]] | None:
        batch = next(self.batches, None)
        return None if batch is None else {"x": batch}


def quantised(form: str, path: Path) -> onnx.ModelProto:
    """The network with integers of 8 bits, in one of the forms that onnxruntime writes."""
    logging.disable(logging.WARNING)
    source = path / "float.onnx"
    onnx.save(network(), source)
    if form == "dynamic":
        quantization.quantize_dynamic(source, path / "q.onnx")
    else:
        quantization.quantize_static(
            source,
            path / "q.onnx",
            Samples(),
            quant_format=quantization.QuantFormat.QDQ if "qdq" in form else quantization.QuantFormat.QOperator,
            activation_type=quantization.QuantType.QInt8 if "signed" in form else quantization.QuantType.QUInt8,
            per_channel="channels" in form,
        )
    logging.disable(logging.NOTSET)
    return onnx.load(path / "q.onnx")


def relative(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> float:
    return float(np.linalg.norm(one - other) / np.linalg.norm(other))


def computed(model: onnx.ModelProto, x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    (y,) = run_clear(load(covey.compile(model, calibration=x)), x).outputs.values()
    return np.asarray(y)


@pytest.mark.parametrize(
    "form", ["qdq", "qdq signed", "qdq channels", "operators", "operators signed channels", "dynamic"]
)
def test_forms(form: str, tmp_path: Path) -> None:
    """Closer to the float model than the integers are, and as close to these as they are to it."""
    model = quantised(form, tmp_path)
    assert any("Quantize" in node.op_type for node in model.graph.node)
    (before,) = builders.float_results(network(), {"x": X})
    (integers,) = builders.float_results(model, {"x": X})
    lost = relative(integers, before)
    result = computed(model, X)
    assert relative(result, before) < max(0.01, lost / 2)
    assert relative(result, integers) < 1.5 * lost + 0.005
    onnx.checker.check_model(load_onnx(model))


def small(*nodes: onnx.NodeProto, opset: int = 17, **constants: npt.NDArray[Any]) -> onnx.ModelProto:
    """From x to y, four numbers a sample."""
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", "M"])]
    graph = helper.make_graph(list(nodes), "small", inputs, outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def pair(zero: npt.NDArray[Any], scale: float = 0.5, other: float | None = None, opset: int = 17) -> onnx.ModelProto:
    """To integers and back."""
    return small(
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], name="to"),
        helper.make_node("DequantizeLinear", ["q", "t", "z"], ["y"], name="back"),
        s=np.array(scale, np.float32),
        t=np.array(scale if other is None else other, np.float32),
        z=zero,
        opset=opset,
    )


def test_numbers_end_where_integers_do() -> None:
    x = np.linspace(-300, 300, 400, dtype=np.float32).reshape(100, 4)
    for zero, low, high in [
        (np.array(0, np.uint8), 0.0, 127.5),
        (np.array(-128, np.int8), 0.0, 127.5),
        (np.array(0, np.int8), -64.0, 63.5),
        (np.array(100, np.uint8), -50.0, 77.5),
    ]:
        for opset in (10, 17):
            np.testing.assert_allclose(computed(pair(zero, opset=opset), x), np.clip(x, low, high), atol=0.1)
    # Read on another grid, integers stand for other numbers.
    np.testing.assert_allclose(computed(pair(np.array(0, np.uint8), 0.5, 1.0), x), 2 * np.clip(x, 0, 127.5), atol=0.2)


def test_scales_for_channels() -> None:
    integers = RNG.integers(-128, 128, (4, 3)).astype(np.int8)
    scales, zeros = np.array([0.01, 0.02, 0.005], np.float32), np.array([3, 0, -7], np.int8)
    for axis, array in ((1, integers), (0, integers.T)):
        nodes = [helper.make_node("DequantizeLinear", ["w", "s", "z"], ["real"], axis=axis)]
        if axis == 0:
            nodes.append(helper.make_node("Transpose", ["real"], ["turned"], perm=[1, 0]))
        nodes.append(helper.make_node("MatMul", ["x", "turned" if axis == 0 else "real"], ["y"]))
        x = RNG.normal(size=(20, 4)).astype(np.float32)
        real = (integers.astype(float) - zeros) * scales
        np.testing.assert_allclose(computed(small(*nodes, w=array, s=scales, z=zeros), x), x @ real, atol=0.02)


def test_integers_as_such_are_refused() -> None:
    quantize = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], name="to")
    constants = {"s": np.array(0.5, np.float32), "z": np.array(0, np.uint8)}
    cast = helper.make_node("Cast", ["q"], ["y"], name="cast", to=TensorProto.FLOAT)
    with pytest.raises(covey.UnsupportedError, match=r"'cast'.*the integers of a quantised tensor"):
        covey.check(small(quantize, cast, **constants))
    last = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"], name="to")
    model = small(last, **constants)
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.UINT8
    with pytest.raises(covey.CoveyError, match="output 'y' is quantised: end the model with DequantizeLinear"):
        covey.check(model)
    scale = helper.make_node("ReduceMax", ["x"], ["m"], name="largest")
    secret = helper.make_node("QuantizeLinear", ["x", "m", "z"], ["q"], name="secret")
    back = helper.make_node("DequantizeLinear", ["q", "m", "z"], ["y"], name="back")
    assert "export the floating-point model" in str(covey.check(small(scale, secret, back, **constants)).errors[-1])
