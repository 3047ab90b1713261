"""Bad models, options and data: one clear line each, naming the thing and the way out, and nothing half-written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import builders
import covey
from covey.importers.onnx import import_model

RNG = np.random.default_rng(0)


def spoiled(value: float) -> onnx.ModelProto:
    weight = RNG.normal(size=(3, 4))
    weight[1, 2] = value
    return builders.single("MatMul", ["N", 3], {"w": weight})


def normalisation(variance: float) -> onnx.ModelProto:
    constants = {name: np.ones(3) for name in "sbm"} | {"v": np.array([1.0, variance, 1.0])}
    return builders.single("BatchNormalization", ["N", 3, 2, 2], constants)


def two_of(op: str, **attributes: Any) -> onnx.ModelProto:
    """The operator, then Relu, so that it is not the last."""
    nodes = [
        helper.make_node(op, ["x"], ["t"], name="the_node", **attributes),
        helper.make_node("Relu", ["t"], ["y"], name="after"),
    ]
    return builders.model(nodes, {"x": ["N", 4]}, ["y"])


def sliced(size: int) -> onnx.ModelProto:
    """All but the first of so many elements."""
    constants = {"starts": np.array([1]), "ends": np.array([size]), "axes": np.array([1])}
    return builders.single("Slice", ["N", size], constants)


def foreign_domain() -> onnx.ModelProto:
    node = helper.make_node("FusedConv", ["x"], ["y"], name="the_node", domain="com.microsoft")
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4])],
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)], ir_version=10
    )


MODELS: list[tuple[str, Callable[[], onnx.ModelProto], str]] = [
    ("nan weight", lambda: spoiled(np.nan), r"'the_node' \(MatMul\): its input B 'w' holds nan at index 6"),
    ("infinite weight", lambda: spoiled(np.inf), "holds inf at index 6"),
    (
        "integer weight",
        lambda: builders.single("Add", ["N", 3], {"k": np.ones(3, np.int64)}, first=["x"]),
        "its second operand has dtype int64",
    ),
    ("variance", lambda: normalisation(-1.0), r"'the_node' \(BatchNormalization\): its variance -1 plus epsilon 1e-05"),
    (
        "unsupported",
        lambda: two_of("Bernoulli"),
        r"'the_node' \(Bernoulli\): Covey has no secure form .*export the model with its result stored",
    ),
    ("domain", foreign_domain, r"\(FusedConv\): .* of domain 'com.microsoft'"),
    ("softmax axis", lambda: two_of("Softmax", axis=0), "'the_node' .*it runs over axis 0 of .*keep the batch out"),
    (
        "4-D convolution",
        lambda: builders.single("Conv", ["N", 1, 4, 4, 4, 4], {"w": np.ones((1, 1, 2, 2, 2, 2))}),
        "1-D, 2-D and 3-D convolution",
    ),
    ("third powers", lambda: builders.single("LpPool", ["N", 3, 4], kernel_shape=[2], p=3), "the norm of 3-th powers"),
    ("secret exponent", lambda: builders.single("Pow", ["N", 3], first=["x", "x"]), "exponent must be a constant"),
    (
        "several powers",
        lambda: builders.single("Pow", ["N", 3], {"e": np.array([4.0, 5, 6])}),
        "to powers that differ .4, 5, 6.",
    ),
    ("power of a negative", lambda: builders.single("Pow", ["N", 3], {"e": np.array(0.3)}), "needs numbers at least 0"),
    ("batch sliced", lambda: builders.single("Slice", ["N", 3], {"a": np.array([1]), "b": np.array([2])}), "axis 0"),
    ("axis longer than memory", lambda: sliced(1 << 40), "more than 67108864 elements"),
    ("indices longer than memory", lambda: sliced(1 << 23), "more than 4194304 indices"),
    ("batch tiled", lambda: builders.single("Tile", ["N", 3], {"r": np.array([2, 1])}), "repeats the batch"),
    ("index outside", lambda: builders.single("Gather", ["N", 3], {"i": np.array([3])}, axis=1), "do not lie"),
    (
        "resized batch",
        lambda: builders.single("Resize", ["N", 1, 4], {"r": np.array([]), "s": np.array([2.0, 1, 2])}, mode="linear"),
        "resize the batch",
    ),
    ("pad mode", lambda: builders.single("Pad", ["N", 3], {"p": np.array([0, 1, 0, 1])}, mode="other"), "'other'"),
    ("cropping", lambda: builders.single("Pad", ["N", 3], {"p": np.array([0, -2, 0, -1])}), "crop all of"),
    ("padded batch", lambda: builders.single("Pad", ["N", 3], {"p": np.array([1, 0, 0, 0])}), "pad the batch"),
    (
        "cropping by mirroring",
        lambda: builders.single("Pad", ["N", 3], {"p": np.array([0, -1, 0, 2])}, mode="reflect"),
        "crop what they pad with in mode 'reflect'",
    ),
    (
        "padding of billions",
        lambda: builders.single("Pad", ["N", 3], {"p": np.array([0, 1 << 40, 0, 1])}, mode="edge"),
        "more than 67108864 elements",
    ),
    (
        "resized by infinity",
        lambda: builders.single("Resize", ["N", 4], {"r": np.array([]), "s": np.array([1.0, np.inf])}),
        r"resizes by \[1\.0, inf\]",
    ),
    (
        "resized to billions",
        lambda: builders.single("Resize", ["N", 4], {"r": np.array([]), "s": np.array([1.0, 1e12])}, mode="linear"),
        "more than 67108864 elements",
    ),
    (
        "a filter of billions",
        lambda: builders.single(
            "Resize",
            ["N", 4],
            {"roi": np.array([0, 0, 1, 1e9]), "s": np.array([1, 1e-9])},
            opset=19,
            mode="linear",
            antialias=1,
            coordinate_transformation_mode="tf_crop_and_resize",
        ),
        "more than 4194304 indices",
    ),
    (
        "stack over the batch",
        lambda: builders.single("MatMul", ["N", 4], {"w": np.ones((3, 4, 2))}),
        "has more dimensions than x",
    ),
    ("batch moved", lambda: builders.single("Transpose", ["N", 3], perm=[1, 0]), "moves the batch"),
    ("batch merged", lambda: builders.single("Flatten", ["N", 3, 4], axis=0), "merges the batch"),
    ("batch reshaped", lambda: builders.single("Reshape", ["N", 4], {"t": np.array([-1, 2])}), "moves the batch"),
    ("batch squeezed", lambda: builders.single("Squeeze", [1, 4], {"a": np.array([0])}), "not all of size 1"),
    ("transA", lambda: builders.single("Gemm", ["N", 3], {"w": np.ones((4, 2))}, transA=1), "transA"),
    (
        "division by activation",
        lambda: builders.single("Div", ["N", 3], first=["x", "x"]),
        "numbers above 0",
    ),
    ("division by zero", lambda: builders.single("Div", ["N", 3], {"k": np.zeros(3)}), "divides by zero"),
    (
        "clip",
        lambda: builders.single("Clip", ["N", 3], {"a": np.array(2.0), "b": np.array(1.0)}),
        "exceeds its maximum",
    ),
    (
        "training",
        lambda: builders.single("Dropout", ["N", 3], {"r": np.array(0.5), "t": np.array(True)}),
        "training mode",
    ),
    (
        "training of constants",
        lambda: builders.model(
            [helper.make_node("Dropout", ["k", "r", "t"], ["d"]), helper.make_node("Mul", ["x", "d"], ["y"])],
            {"x": ["N", 3]},
            ["y"],
            {"k": np.ones(3), "r": np.array(0.5), "t": np.array(True)},
        ),
        "training mode",
    ),
    ("mean of the batch", lambda: builders.single("ReduceMean", ["N", 3, 4], axes=[0]), "it runs over the batch"),
    ("per-sample constant", lambda: builders.single("Add", [2, 3], {"k": RNG.normal(size=(2, 3))}), "between samples"),
    ("old opset", lambda: builders.single("Relu", ["N", 3], opset=5), "opset 5, older than 6.*version_converter"),
    ("symbolic size", lambda: builders.single("Relu", ["N", "width"]), "symbolic size 'width' in dimension 1"),
    ("zero size", lambda: builders.single("Relu", ["N", 0]), "size 0 in dimension 1"),
    (
        "small integer input",
        lambda: builders.model([helper.make_node("Abs", ["x"], ["y"])], {"x": ["N", 3]}, ["y"], dtype=TensorProto.INT8),
        "input 'x' has TensorProto.INT8: Covey takes float16, float32, float64, int32, int64 or bool",
    ),
    ("output is input", lambda: builders.single("Identity", ["N", 3]), "same as an input"),
]


@pytest.mark.parametrize(("build", "message"), [case[1:] for case in MODELS], ids=[case[0] for case in MODELS])
def test_bad_models(build: Callable[[], onnx.ModelProto], message: str) -> None:
    with pytest.raises(covey.CoveyError, match=message) as caught:
        covey.compile(build(), input_range=(-1, 1))
    assert "\n" not in str(caught.value)
    assert ";" in str(caught.value) or ":" in str(caught.value)


NONE = np.zeros(0)
WHOLE = np.zeros(0, dtype=np.int64)

MALFORMED: list[tuple[str, list[Any], dict[str, np.ndarray], dict[str, Any], str]] = [
    ("CumSum", [3], {"axis": np.array([1, 1])}, {}, "its axis has 2 elements; give it one"),
    ("Trilu", [3, 3], {"k": WHOLE}, {}, "its diagonal has 0 elements"),
    ("TopK", [3], {"k": WHOLE}, {}, "its number k has 0 elements"),
    ("Unsqueeze", [3], {"axes": np.array([1, 1])}, {}, r"its axes \[1, 1\] do not fit 4 dimensions"),
    ("Unsqueeze", [3], {"axes": np.array([4])}, {}, r"its axes \[4\] do not fit 3 dimensions"),
    ("Squeeze", [1, 3], {"axes": np.array([-4])}, {}, r"its axes \[-4\] do not fit 3 dimensions"),
    ("Pow", [1], {"e": NONE}, {}, "its exponent has no elements"),
    ("Pad", [3], {"pads": np.array([0, 0, 0, 1]), "value": NONE}, {}, "its value has 0 elements"),
    ("Pad", [3], {"p": np.array([0, 1]), "v": np.array(0.0), "a": np.array([3])}, {}, r"its axes \[3\] do not fit 2"),
    ("ReduceMax", [3, 4], {"axes": np.array([-4])}, {}, r"its axes \[-4\] do not fit 3 dimensions"),
    ("ReduceSum", [3, 4], {"axes": np.array([1, -2])}, {}, r"its axes \[1, -2\] do not fit 3 dimensions"),
    ("MeanVarianceNormalization", [3, 4], {}, {"axes": [1, 2, 3]}, r"its axes \[1, 2, 3\] do not fit 3 dimensions"),
    ("Resize", [3], {"r": NONE, "s": np.ones(1)}, {"axes": [2]}, r"its axes \[2\] do not fit 2 dimensions"),
    ("Flatten", [1, 1], {}, {"axis": 4}, "axis 4 merges"),
    ("Where", [3], {"c": np.zeros((0, 3), dtype=bool), "w": np.ones(3)}, {}, "its constant condition differs"),
    ("GatherND", [3], {"i": np.array(0)}, {"batch_dims": 1}, r"its indices of shape \[\] are no list"),
    ("GatherND", [3], {"i": WHOLE}, {"batch_dims": 1}, r"its indices of shape \[0\] are no list"),
    (
        "GatherElements",
        [3],
        {"i": np.zeros((1, 2), int)},
        {"axis": 1},
        r"its indices of shape \[1, 2\] are not of every",
    ),
    ("Expand", [3], {"shape": np.array([1, 0])}, {}, r"its shape \[1, 0\] has a size under 1"),
    (
        "GRU",
        [3, 2],
        {"w": np.ones((1, 6, 2)), "r": np.array(1.0)},
        {"layout": 1},
        r"of shapes \[1, 6, 2\] and \[\] do not",
    ),
    (
        "LSTM",
        [3, 2],
        {"w": np.array(1.0), "r": np.ones((1, 8, 2))},
        {"layout": 1},
        r"of shapes \[\] and \[1, 8, 2\] do",
    ),
    ("Split", [3], {}, {"axis": 1, "num_outputs": 0}, "it is malformed"),
]


@pytest.mark.parametrize(("op", "shape", "constants", "attributes", "message"), MALFORMED)
def test_malformed_nodes(
    op: str, shape: list[Any], constants: dict[str, np.ndarray], attributes: dict[str, Any], message: str
) -> None:
    """The checker of ONNX lets them through."""
    names = [*list(constants)[:1], "x", *list(constants)[1:]] if op == "Where" else ["x", *constants]
    outputs = ["y", "places"] if op == "TopK" else ["y"]
    node = helper.make_node(op, names, outputs, name="the_node", **attributes)
    proto = builders.model([node], {"x": ["N", *shape]}, {"y": ["N", 3]}, constants, opset=18)
    with pytest.raises(covey.NodeError, match=f"'the_node' .*{message}") as caught:
        import_model(proto)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("op", "constants", "attributes", "message"),
    [
        ("OneHot", {"d": np.array(4), "v": np.zeros(1)}, {}, "it has 1 values; give it one for off and one for on"),
        ("OneHot", {"d": WHOLE, "v": np.zeros(2)}, {}, "its depth has 0 elements"),
        ("OneHot", {"d": np.array(4), "v": np.zeros(2)}, {"axis": 5}, r"its axes \[5\] do not fit 3 dimensions"),
        ("Gather", {"table": np.array(1.0)}, {}, r"its axes \[0\] do not fit 0 dimensions"),
        ("Gather", {"table": np.ones((4, 2))}, {"axis": 2}, r"its axes \[2\] do not fit 2 dimensions"),
    ],
)
def test_malformed_nodes_of_whole_numbers(
    op: str, constants: dict[str, np.ndarray], attributes: dict[str, Any], message: str
) -> None:
    names = [*constants, "x"] if op == "Gather" else ["x", *constants]
    node = helper.make_node(op, names, ["y"], name="the_node", **attributes)
    types = {"x": TensorProto.INT64}
    proto = builders.model([node], {"x": ["N", 3]}, {"y": ["N", 3, 4]}, constants, types=types)
    with pytest.raises(covey.NodeError, match=f"'the_node' .*{message}"):
        import_model(proto)


def test_an_empty_constant_beside_truth_values() -> None:
    nodes = [
        helper.make_node("Less", ["x", "zero"], ["b"]),
        helper.make_node("Or", ["b", "k"], ["o"], name="the_node"),
        helper.make_node("Cast", ["o"], ["y"], to=TensorProto.FLOAT),
    ]
    constants = {"zero": np.array(0.0), "k": np.zeros((0, 3), dtype=bool)}
    with pytest.raises(covey.UnsupportedError, match="its constant differs between samples"):
        import_model(builders.model(nodes, {"x": ["N", 3]}, {"y": ["N", 3]}, constants))


@pytest.mark.parametrize(("x", "y"), [("x\n", "y"), ("x" * 1001, "y"), ("x", "y\t"), ("x", "é" * 501)])
def test_names_that_no_program_may_hold(x: str, y: str) -> None:
    """Programs would have other names than data and results of the model."""
    proto = builders.model([helper.make_node("Mul", [x, x], [y], name="mul")], {x: ["N", 3]}, [y])
    with pytest.raises(
        covey.ModelError, match=f"^{'output' if x == 'x' else 'input'} '.*rename it in the model$"
    ) as caught:
        covey.compile(proto, input_range=(0, 1))
    assert len(str(caught.value)) < 200


def test_damaged_files(tmp_path: Path) -> None:
    good = builders.small_cnn(RNG).SerializeToString()
    for name, content in {"cut": good[: len(good) // 2], "garbage": b"\x00\xff" * 300, "empty": b""}.items():
        path = tmp_path / f"{name}.onnx"
        path.write_bytes(content)
        with pytest.raises(covey.ModelError, match=f"{name}.onnx' is not a"):
            covey.compile(path, input_range=(0, 1))
    with pytest.raises(covey.ModelError, match=r"absent\.onnx' does not exist"):
        covey.compile(tmp_path / "absent.onnx", input_range=(0, 1))
    with pytest.raises(covey.ModelError, match="is not a readable"):
        covey.compile(tmp_path, input_range=(0, 1))


def test_missing_external_weights(tmp_path: Path) -> None:
    proto = builders.single("MatMul", ["N", 40], {"w": RNG.normal(size=(40, 40))})
    path = tmp_path / "m.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="m.bin", size_threshold=0)
    (tmp_path / "m.bin").unlink()
    with pytest.raises(covey.ModelError, match=r"m\.onnx"):
        covey.compile(path, input_range=(0, 1))


OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({}, "give --input-range low,high or --calibration"),
    ({"input_range": (1, 0)}, "not an interval"),
    ({"input_range": (0, float("nan"))}, "not an interval"),
    ({"input_range": "wide"}, "not two numbers"),
    ({"input_range": {"other": (0, 1)}}, "for 'other': give one for each of the inputs 'x'"),
    ({"input_range": (0, 1), "ring": "8"}, "ring '8' is unknown: use auto, or a number of bits from 16 to 64"),
    ({"input_range": (0, 1), "truncation": "round"}, "truncation 'round' is unknown: use one of exact, ulp"),
    ({"input_range": (0, 1), "division": "float"}, "division 'float' is unknown"),
    ({"input_range": (0, 1), "scale": 31}, "scale 31 does not fit"),
    ({"input_range": (0, 1), "ring": 32, "scale": 15}, "from 1 to 14"),
    ({"calibration": "absent.npy"}, "'absent.npy' does not exist"),
    ({"calibration": np.zeros((4, 8, 8))}, r"shape \[4, 8, 8\], expected \[N, 1, 8, 8\]"),
    ({"calibration": np.zeros((0, 1, 8, 8))}, "no samples"),
    ({"calibration": np.full((2, 1, 8, 8), np.nan)}, r"holds nan at \[0, 0, 0, 0\]"),
    (
        {"calibration": np.full((2, 1, 8, 8), -np.inf)},
        r"holds -inf .*: clean the data first; let a mask be an input of",
    ),
    ({"calibration": np.zeros((2, 1, 8, 8), dtype=complex)}, "dtype complex128"),
    ({"calibration": {"y": np.zeros((2, 1, 8, 8))}}, "names 'y', which is no input"),
    ({"calibration": {}}, "lacks the input 'x'"),
    ({"calibration": np.full((2, 1, 8, 8), 2.0), "input_range": (0, 1)}, "outside the declared range"),
    ({"calibration": np.full((2, 1, 8, 8), 1 + 1e-9), "input_range": (0, 1)}, r"spans \[1.000000001, .* \[0, 1\]"),
    ({"calibration": [[1.0]]}, "give a NumPy array"),
    ({"calibration": np.ma.masked_less(np.zeros((2, 1, 8, 8)), 1)}, "a masked array lacks the values"),
    ({"input_range": (0, 1), "ring": "²"}, "ring '²' is unknown"),
    ({"input_range": (0, 1), "max_error": "0.1"}, "max_error is '0.1': use a number of at least 0"),
    ({"input_range": (0, 1), "max_error": None}, "max_error is None: use a number"),
    ({"input_range": (0, 1), "max_error": float("nan")}, "max_error is nan: use a number"),
    ({"input_range": (0, 1), "carry": "x"}, "carry is 'x': give the output for each input"),
    ({"input_range": (0, 1), "name": 5}, "name is 5: give a text"),
    *(
        ({"input_range": (0, 1), flag: "no"}, f"{flag} is 'no': use True or False")
        for flag in ("public_weights", "keep_bn", "drop_channels", "hide_features")
    ),
]


@pytest.mark.parametrize(("options", "message"), OPTIONS)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(covey.CoveyError, match=message) as caught:
        covey.compile(builders.small_cnn(RNG), **options)
    assert "\n" not in str(caught.value)


def test_a_program_is_not_compiled_again(tmp_path: Path) -> None:
    program, _, _ = covey.compile(builders.small_cnn(RNG), input_range=(0, 1)).save(tmp_path / "x.covey")
    with pytest.raises(covey.ModelError, match=r"x\.covey' is compiled already: run it"):
        covey.compile(program)


def test_damaged_calibration_file(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((2, 1, 8, 8)))
    damaged = tmp_path / "cut.npy"
    damaged.write_bytes((tmp_path / "x.npy").read_bytes()[:200])
    pickled = tmp_path / "pickled.npy"
    np.save(pickled, np.array([{}], dtype=object), allow_pickle=True)
    for path in (damaged, pickled):
        with pytest.raises(covey.DataError, match="not a readable"):
            covey.compile(builders.small_cnn(RNG), calibration=path)


def test_a_program_that_cannot_fit() -> None:
    layers = []
    for i in range(3):
        layers.append(helper.make_node("MatMul", ["x" if i == 0 else f"r{i}", "w"], [f"h{i + 1}"], name=f"fc{i}"))
        layers.append(helper.make_node("Relu", [f"h{i + 1}"], [f"r{i + 1}"], name=f"relu{i}"))
    proto = builders.model(layers[:-1], {"x": ["N", 16]}, ["h3"], {"w": np.full((16, 16), 4.0)})
    with pytest.raises(covey.DoesNotFitError) as caught:
        covey.compile(proto, input_range=(-1, 1), ring=32)
    error = caught.value
    assert error.node == "fc2"
    assert error.magnitude == pytest.approx(64**3)
    assert (error.scale, error.needed, error.available) == (16, 35, 30)
    assert "it would fit with --scale 5" in str(error)
    # What it advises is true.
    assert covey.compile(proto, input_range=(-1, 1), ring=32, scale=5).report["scale"] == 5
    with pytest.raises(covey.DoesNotFitError):
        covey.compile(proto, input_range=(-1, 1), ring=32, scale=6)
    auto = covey.compile(proto, input_range=(-1, 1))
    assert (auto.report["ring_bits"], auto.report["scale"]) == (64, 16)
    assert "node 'fc2' would need" in auto.report["why"]


def test_nothing_half_written(tmp_path: Path) -> None:
    compiled = covey.compile(builders.small_cnn(RNG), input_range=(0, 1))
    (tmp_path / "m.weights.safetensors").mkdir()
    with pytest.raises(covey.CoveyError, match="cannot write"):
        compiled.save(tmp_path / "m.covey")
    assert [path.name for path in tmp_path.iterdir()] == ["m.weights.safetensors"]
