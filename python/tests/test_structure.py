"""covey diff: what is the same structure, and how differences are named."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import builders
import covey
from command import Command
from covey.structure import compare, read


def save(model: onnx.ModelProto, path: Path, **options: object) -> Path:
    return covey.compile(model, input_range=(0, 1), **options).save(path)[0]  # type: ignore[arg-type]


def residual(*, swapped: bool = False, late: bool = False, kernel: int = 3) -> onnx.ModelProto:
    """Two branches that are added: written in either order, added in either order."""
    rng = np.random.default_rng(0)
    pad = kernel // 2
    left = helper.make_node("Conv", ["x", "w1"], ["l"], name="left", pads=[pad] * 4)
    right = helper.make_node("Conv", ["x", "w2"], ["r"], name="right")
    total = helper.make_node("Add", ["r", "l"] if swapped else ["l", "r"], ["s"], name="sum")
    branches = [right, left] if late else [left, right]
    relu = helper.make_node("Relu", ["s"], ["y"], name="relu")
    constants = {"w1": builders.weights(rng, 2, 2, kernel, kernel), "w2": builders.weights(rng, 2, 2, 1, 1)}
    return builders.model([*branches, total, relu], {"x": ["N", 2, 6, 6]}, ["y"], constants)


def test_names_weights_and_order_do_not_matter(tmp_path: Path, command: Command) -> None:
    here = save(residual(), tmp_path / "a.covey")
    renamed = residual(swapped=True, late=True)
    for node in renamed.graph.node:
        node.name += "_other"
    there = save(renamed, tmp_path / "b.covey")
    assert "the same structure: 5 nodes, 2 parameters, Z_2^32" in command.succeeds("diff", here, there).out
    assert json.loads(command.succeeds("diff", here, there, "--json").out)["equal"] is True


def test_bounds_are_counted_apart(tmp_path: Path, command: Command) -> None:
    model = residual()
    here = save(model, tmp_path / "a.covey")
    first = model.graph.initializer[0]
    first.CopyFrom(onnx.numpy_helper.from_array(2 * onnx.numpy_helper.to_array(first), first.name))
    there = save(model, tmp_path / "b.covey")
    assert compare(read(here), read(there)).equal
    assert "bounds of" in command.succeeds("diff", here, there).out


@pytest.mark.parametrize(
    ("other", "options", "saying"),
    [
        ({}, {"scale": 10}, "inputs [N, 2, 6, 6] at scale 12 in [0, 1] / [N, 2, 6, 6] at scale 10 in [0, 1]"),
        ({}, {"ring": 64, "scale": 12}, "in 1 places, first at the program: ring Z_2^32 / Z_2^64"),
        ({"kernel": 5}, {}, "window.kernel [3, 3] / [5, 5]"),
    ],
)
def test_differences_are_named(
    tmp_path: Path, command: Command, other: dict[str, int], options: dict[str, int], saying: str
) -> None:
    here = save(residual(), tmp_path / "a.covey")
    there = save(residual(**other), tmp_path / "b.covey", **options)  # type: ignore[arg-type]
    outcome = command("diff", here, there)
    assert outcome.code == 1
    assert saying in " ".join((outcome.out + outcome.err).split())


def test_a_node_too_many(tmp_path: Path) -> None:
    model = residual()
    here = save(model, tmp_path / "a.covey")
    model.graph.node.append(helper.make_node("MaxPool", ["y"], ["z"], name="pool", kernel_shape=[2, 2]))
    model.graph.output[0].name = "z"
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    there = save(onnx.shape_inference.infer_shapes(model), tmp_path / "b.covey")
    differences = compare(read(here), read(there)).differences
    assert any("max_pool" in entry.what for entry in differences)
    assert compare(read(there), read(there)).equal


def test_the_same_value_computed_twice_is_a_difference(tmp_path: Path) -> None:
    def doubled(twice: bool) -> onnx.ModelProto:
        nodes = [helper.make_node("Relu", ["x"], ["a"], name="a"), helper.make_node("Relu", ["x"], ["b"], name="b")]
        nodes.append(helper.make_node("Add", ["a", "b" if twice else "a"], ["y"], name="sum"))
        return builders.model(nodes if twice else nodes[::2], {"x": ["N", 3]}, ["y"])

    here, there = (save(doubled(twice), tmp_path / f"{twice}.covey") for twice in (False, True))
    (difference,) = compare(read(here), read(there)).differences
    assert (difference.here, difference.what) == ("", "nothing / relu [N, 3] at scale 12")


def test_outputs_in_another_order(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Neg", ["x"], ["b"])]
    here, there = (
        save(builders.model(nodes, {"x": ["N", 3]}, outputs), tmp_path / f"{outputs[0]}.covey")
        for outputs in (["a", "b"], ["b", "a"])
    )
    (difference,) = compare(read(here), read(there)).differences
    assert "order" in difference.what


def test_bad_files(command: Command, tmp_path: Path) -> None:
    (tmp_path / "bad.covey").write_bytes(b"no program")
    command.refuses("diff", tmp_path / "bad.covey", tmp_path / "bad.covey", saying="bad.covey")
    command.refuses("diff", tmp_path / "none.covey", tmp_path / "bad.covey", saying="none.covey")
