"""Operators that take elements at public positions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import builders
import covey
import interpreter
from agreement import agree, image
from covey.importers.onnx import import_model
from covey.ops.gather import ABSENT, Gather


@pytest.mark.parametrize(
    ("starts", "ends", "axes", "steps"),
    [
        ([1], [3], [1], [1]),
        ([0, 0], [2**31 - 1, 2], [0, 2], [1, 1]),
        ([-3, 5], [-1, -9], [1, 2], [1, -2]),
        ([100], [-100], [2], [-1]),
        ([1], [-1], [-1], [2]),
    ],
)
def test_slice(starts: list[int], ends: list[int], axes: list[int], steps: list[int]) -> None:
    constants = {"s": np.array(starts), "e": np.array(ends), "a": np.array(axes), "t": np.array(steps)}
    agree(builders.single("Slice", ["N", 4, 6], constants), image(2, 4, 6))


def test_slice_before_opset_10() -> None:
    agree(builders.single("Slice", ["N", 4, 6], opset=9, starts=[1, 2], ends=[3, 9], axes=[1, 2]), image(2, 4, 6))


@pytest.mark.parametrize(("opset", "options"), [(18, {"num_outputs": 3}), (17, {}), (11, {"split": [1, 2, 3]})])
def test_split(opset: int, options: dict[str, Any]) -> None:
    node = helper.make_node("Split", ["x"], ["a", "b", "c"], axis=-1, **options)
    proto = builders.model([node], {"x": ["N", 2, 6]}, ["a", "b", "c"], opset=opset)
    compiled = agree(proto, image(2, 2, 6))
    assert [node.WhichOneof("op") for node in interpreter.program_of(compiled).nodes] == ["gather"] * 3


def test_split_into_given_parts() -> None:
    node = helper.make_node("Split", ["x", "parts"], ["a", "b"], axis=1)
    agree(builders.model([node], {"x": ["N", 5, 2]}, ["a", "b"], {"parts": np.array([1, 4])}), image(2, 5, 2))


@pytest.mark.parametrize("indices", [[2, 0, -1], [[0, 1], [3, 3]], 2])
@pytest.mark.parametrize("axis", [1, -1])
def test_gather(indices: Any, axis: int) -> None:
    agree(builders.single("Gather", ["N", 4, 5], {"i": np.array(indices)}, axis=axis), image(2, 4, 5))


@pytest.mark.parametrize(("op", "constant"), [("Tile", [1, 2, 3]), ("Expand", [1, 4, 5]), ("Expand", [5])])
def test_repeats(op: str, constant: list[int]) -> None:
    agree(builders.single(op, ["N", 4, 1], {"c": np.array(constant)}), image(2, 4, 1))


@pytest.mark.parametrize(
    "mode", ["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"]
)
@pytest.mark.parametrize("nearest", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
@pytest.mark.parametrize("to", [np.array([1.0, 1.0, 2.0, 1.5]), np.array([2, 3, 4, 11])])
def test_resize(mode: str, nearest: str, to: np.ndarray) -> None:
    by_scale = to.dtype.kind == "f"
    first = ["x", "", "to"] if by_scale else ["x", "", "", "to"]
    node = helper.make_node(
        "Resize", first, ["y"], coordinate_transformation_mode=mode, nearest_mode=nearest, mode="nearest"
    )
    stored = to.astype(np.float32) if by_scale else to
    proto = builders.model([node], {"x": [2, 3, 5, 6]}, ["y"], {"to": stored}, opset=19)
    agree(proto, image(2, 3, 5, 6))


@pytest.mark.parametrize("coordinates", ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("to", [np.array([1.0, 1.0, 2.0, 1.5]), np.array([2, 3, 4, 11]), np.array([2, 3, 1, 6])])
def test_interpolation(coordinates: str, mode: str, to: np.ndarray) -> None:
    by_scale = to.dtype.kind == "f"
    first = ["x", "", "to"] if by_scale else ["x", "", "", "to"]
    node = helper.make_node("Resize", first, ["y"], coordinate_transformation_mode=coordinates, mode=mode)
    stored = to.astype(np.float32) if by_scale else to
    proto = builders.model([node], {"x": [2, 3, 5, 6]}, ["y"], {"to": stored}, opset=19)
    compiled = agree(proto, image(2, 3, 5, 6))
    kinds = [node.WhichOneof("op") for node in interpreter.program_of(compiled).nodes]
    # Weights that few bits hold need one rounding at the end, others one a dimension.
    assert kinds.count("truncate") <= 2
    assert set(kinds) <= {"gather", "mul", "add", "truncate"}


def test_interpolation_to_twice_the_size_rounds_once() -> None:
    scales = {"s": np.array([1.0, 1.0, 2.0, 2.0])}
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], mode="linear")
    proto = builders.model([node], {"x": ["N", 2, 4, 4]}, ["y"], {"s": scales["s"]})
    compiled = agree(proto, image(2, 2, 4, 4))
    kinds = [node.WhichOneof("op") for node in interpreter.program_of(compiled).nodes]
    assert kinds.count("truncate") == 1
    agree(builders.single("Upsample", ["N", 2, 3, 2], scales, opset=9, mode="linear"), image(2, 2, 3, 2))


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("exclude", [0, 1])
@pytest.mark.parametrize("to", [np.array([1.0, 1.0, 0.6, 0.4]), np.array([2, 3, 7, 2])])
def test_shrinking_with_a_wider_filter(mode: str, exclude: int, to: np.ndarray) -> None:
    by_scale = to.dtype.kind == "f"
    first = ["x", "", "to"] if by_scale else ["x", "", "", "to"]
    node = helper.make_node("Resize", first, ["y"], mode=mode, antialias=1, exclude_outside=exclude)
    stored = to.astype(np.float32) if by_scale else to
    agree(builders.model([node], {"x": [2, 3, 5, 6]}, ["y"], {"to": stored}, opset=19), image(2, 3, 5, 6))


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("region", [[0, 0, 0.2, 0.15, 1, 1, 0.75, 0.6], [0, 0, 0.9, -0.2, 1, 1, 0.1, 1.3]])
def test_resizing_a_region(mode: str, region: list[float]) -> None:
    """Turned round in one dimension and larger than the image in the other, too."""
    constants = {"region": np.array(region, np.float32), "sizes": np.array([2, 2, 4, 5])}
    node = helper.make_node(
        "Resize", ["x", "region", "", "sizes"], ["y"], mode=mode, coordinate_transformation_mode="tf_crop_and_resize"
    )
    agree(builders.model([node], {"x": [2, 2, 5, 6]}, ["y"], constants, opset=19), image(2, 2, 5, 6))


@pytest.mark.parametrize("scale", [1.4, 0.7, 0.6, 2.2])
@pytest.mark.parametrize("coordinates", ["half_pixel", "pytorch_half_pixel", "asymmetric"])
@pytest.mark.parametrize("nearest", ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
def test_scales_are_float32(scale: float, coordinates: str, nearest: str) -> None:
    """Five times that of 1.4 is 7, and less than 7 in float64."""
    how = {"mode": "nearest", "nearest_mode": nearest, "coordinate_transformation_mode": coordinates}
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], **how)
    scales = np.array([1, 1, scale, 1], np.float32)
    for size in (5, 7, 10):
        proto = builders.model([node], {"x": ["N", 2, size, 1]}, ["y"], {"s": scales}, opset=19)
        agree(proto, image(2, 2, size, 1))


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_corners_of_a_part_of_an_element_are_refused(mode: str) -> None:
    how = {"mode": mode, "coordinate_transformation_mode": "align_corners"}
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], **how)
    proto = builders.model([node], {"x": ["N", 1, 5, 6]}, ["y"], {"s": np.array([1, 1, 1.5, 1.5])}, opset=19)
    with pytest.raises(covey.UnsupportedError, match=r"it makes 5 elements 7\.5, .*; export the model with sizes"):
        import_model(proto)


@pytest.mark.parametrize(("scale", "taken"), [(0.5, True), (0.7, False)])
def test_shrinking_before_opset_11(scale: float, taken: bool) -> None:
    """onnxruntime rounds up then, and the operator does not say how to."""
    proto = builders.single("Resize", ["N", 2, 6, 1], {"s": np.array([1, 1, scale, 1])}, opset=10)
    if taken:
        agree(proto, image(2, 2, 6, 1))
        return
    with pytest.raises(covey.UnsupportedError, match=r"runtimes round in two ways; export the model with opset 11"):
        import_model(proto)


def test_resize_before_opset_11_and_upsample() -> None:
    scales = {"s": np.array([1.0, 1.0, 2.0, 3.0])}
    agree(builders.single("Resize", ["N", 2, 3, 2], scales, opset=10), image(2, 2, 3, 2))
    agree(builders.single("Upsample", ["N", 2, 3, 2], scales, opset=9), image(2, 2, 3, 2))


@pytest.mark.parametrize("op", ["ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin"])
@pytest.mark.parametrize("axes", [[1], [3], [1, 3], [2, 3], [-1, 1, 2]])
@pytest.mark.parametrize("keep", [0, 1])
def test_reductions(op: str, axes: list[int], keep: int) -> None:
    shape = ["N", 3, 4, 5]
    if op == "ReduceSum":
        proto = builders.single(op, shape, {"a": np.array(axes)}, keepdims=keep)
    else:
        proto = builders.single(op, shape, axes=axes, keepdims=keep)
    agree(proto, image(2, 3, 4, 5))


def test_reduction_with_axes_as_an_operand() -> None:
    agree(builders.single("ReduceMax", ["N", 3, 4], {"a": np.array([1])}, opset=18), image(2, 3, 4))


def test_shape_arithmetic_of_an_exporter_folds() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["n"]),
        helper.make_node("Unsqueeze", ["n", "axes"], ["row"]),
        helper.make_node("Concat", ["row", "rest"], ["wanted"], axis=0),
        helper.make_node("Expand", ["x", "wanted"], ["y"]),
    ]
    constants = {"zero": np.array(0), "axes": np.array([0]), "rest": np.array([3, 4])}
    agree(builders.model(nodes, {"x": ["N", 1, 4]}, ["y"], constants), image(2, 1, 4))


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_and_space(mode: str) -> None:
    agree(builders.single("DepthToSpace", ["N", 8, 2, 3], blocksize=2, mode=mode), image(2, 8, 2, 3))
    agree(builders.single("SpaceToDepth", ["N", 2, 4, 6], blocksize=2), image(2, 2, 4, 6))


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
def test_padding_with_what_is_there(mode: str) -> None:
    proto = builders.single("Pad", ["N", 2, 4, 5], {"p": np.array([0, 0, 1, 2, 0, 1, 3, 0])}, opset=19, mode=mode)
    compiled = agree(proto, image(2, 2, 4, 5))
    assert [node.WhichOneof("op") for node in interpreter.program_of(compiled).nodes] == ["gather"]


def test_negative_pads_crop() -> None:
    pads = np.array([0, -1, 0, 1, 0, 0, -2, -3])
    agree(builders.single("Pad", ["N", 2, 4, 5], {"p": pads, "v": np.array(0.5)}), image(2, 2, 4, 5))
    agree(builders.single("Pad", ["N", 4], {"p": np.array([0, -1, 0, -2])}), image(2, 4))


@pytest.mark.parametrize(("lead", "stack"), [((2, 3), (2, 3)), ((2, 3), (1, 3)), ((1, 3), (2, 1)), ((2, 3), (3,))])
@pytest.mark.parametrize("left", [False, True])
def test_products_with_a_stack_of_constant_matrices(lead: tuple[int, ...], stack: tuple[int, ...], left: bool) -> None:
    weight = np.random.default_rng(0).normal(size=(*stack, *((2, 4) if left else (5, 2))))
    first = ["w", "x"] if left else ["x", "w"]
    compiled = agree(
        builders.model([helper.make_node("MatMul", first, ["y"])], {"x": ["N", *lead, 4, 5]}, ["y"], {"w": weight}),
        image(2, *lead, 4, 5),
    )
    assert "conv2d" in [node.WhichOneof("op") for node in interpreter.program_of(compiled).nodes]


def test_the_size_of_a_sample_folds() -> None:
    nodes = [
        helper.make_node("Size", ["x"], ["all"]),
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["batch"], axis=0),
        helper.make_node("Div", ["all", "batch"], ["each"]),
        helper.make_node("Concat", ["batch", "each"], ["wanted"], axis=0),
        helper.make_node("Reshape", ["x", "wanted"], ["y"]),
    ]
    nodes[3:4] = [
        helper.make_node("Unsqueeze", ["all", "zero"], ["row"]),
        helper.make_node("Div", ["row", "batch"], ["each"]),
    ]
    agree(builders.model(nodes, {"x": ["N", 3, 4]}, ["y"], {"zero": np.array([0])}), image(2, 3, 4))


def test_products_of_two_activations_broadcast() -> None:
    nodes = [
        helper.make_node("Reshape", ["x", "one"], ["a"]),
        helper.make_node("Reshape", ["x", "many"], ["b"]),
        helper.make_node("MatMul", ["a", "b"], ["y"]),
    ]
    constants = {"one": np.array([-1, 1, 3, 8]), "many": np.array([-1, 3, 8, 1])}
    agree(builders.model(nodes, {"x": ["N", 24]}, ["y"], constants), image(2, 24))


def test_positions_and_repeats() -> None:
    move = Gather(((3, ABSENT), (0, 2)))
    np.testing.assert_array_equal(move.positions, [[3, 5], [-1, -1]])
    assert move.repeats
    assert not Gather(((0, 2), (0, 1))).repeats
    assert Gather(((0, 1), (0, 1))).repeats


def test_moves_of_truth_values_stay_truth_values() -> None:
    nodes = [
        helper.make_node("Less", ["x", "k"], ["t"]),
        helper.make_node("Transpose", ["t"], ["u"], perm=[0, 2, 1]),
        helper.make_node("Not", ["u"], ["y"]),
    ]
    proto = builders.model(nodes, {"x": ["N", 3, 4]}, ["y"], {"k": np.array(0.1)}, output_dtype=TensorProto.BOOL)
    agree(proto, image(2, 3, 4))
