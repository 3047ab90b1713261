"""covey check: honest counts, one row a cause, and a replacement for every operator."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import builders
import covey
from command import Command
from covey import reference
from covey.importers.onnx_node import IMPORTERS
from covey.importers.replacements import CUT, no_secure_form

RNG = np.random.default_rng(3)


def test_check_reports_every_node() -> None:
    nodes = [
        helper.make_node("Bernoulli", ["x"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"], name="between"),
        helper.make_node("RandomNormalLike", ["b"], ["c"], name="second"),
        helper.make_node("Identity", ["c"], ["y"], name="last"),
    ]
    checked = covey.check(builders.model(nodes, {"x": ["N", 4]}, ["y"]))
    assert not checked.ok
    assert [(note.node, note.status.value) for note in checked.notes] == [
        ("first", "unsupported"),
        ("between", "ok"),
        ("second", "unsupported"),
        ("last", "rewritten"),
    ]
    with pytest.raises(covey.UnsupportedError, match="and 1 more: run covey check"):
        covey.compile(builders.model(nodes, {"x": ["N", 4]}, ["y"]), input_range=(0, 1))


def hidden() -> onnx.ModelProto:
    """Behind a node of unknown shape: two more operators without a secure form, and one with."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], name="relu"),
        helper.make_node("Relu", ["r"], ["a"], name="fused"),
        helper.make_node("Relu", ["a"], ["b"], name="between"),
        helper.make_node("Bernoulli", ["b"], ["c"], name="wave"),
        helper.make_node("Det", ["c"], ["d"], name="determinant"),
        helper.make_node("Abs", ["d"], ["y"], name="last"),
    ]
    proto = builders.model(nodes, {"x": ["N", 4]}, ["y"])
    proto.graph.node[1].op_type, proto.graph.node[1].domain = "FusedConv", "com.microsoft"
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    del proto.graph.value_info[:]
    return proto


def test_nothing_hides_behind_an_unsupported_node(command: Command, tmp_path: Path) -> None:
    checked = covey.check(hidden())
    assert [(note.node, note.status.value) for note in checked.notes] == [
        ("relu", "ok"),
        ("fused", "unsupported"),
        ("between", "not checked"),
        ("wave", "unsupported"),
        ("determinant", "unsupported"),
        ("last", "not checked"),
    ]
    assert checked.summary == (
        "1 of 6 nodes can run privately; 3 cannot, for 3 reasons; 2 were not checked, because they read what those "
        "compute"
    )
    assert [(cause.op, cause.behind) for cause in checked.causes] == [("FusedConv", 2), ("Bernoulli", 0), ("Det", 0)]
    onnx.save(hidden(), tmp_path / "m.onnx")
    outcome = command("check", tmp_path / "m.onnx")
    assert outcome.code == 1 and "3 cannot, for 3 reasons" in outcome.out
    every = command("check", tmp_path / "m.onnx", "--nodes").out
    assert all(note.node in every for note in checked.notes)


def test_one_cause_is_one_row(command: Command, tmp_path: Path) -> None:
    nodes = [helper.make_node("Bernoulli", [f"v{i}"], [f"v{i + 1}"], name=f"coin{i}") for i in range(50)]
    nodes.append(helper.make_node("Softmax", ["v50"], ["s"], name="soft", axis=0))
    nodes.append(helper.make_node("Relu", ["s"], ["y"]))
    onnx.save(builders.model(nodes, {"v0": ["N", 4, 3]}, ["y"]), tmp_path / "m.onnx")
    outcome = command("check", tmp_path / "m.onnx")
    assert outcome.code == 1
    assert "coin0, coin1, coin2 and 47 more" in " ".join(outcome.out.split())
    assert len(outcome.out.splitlines()) < 20
    causes = json.loads(command("check", tmp_path / "m.onnx", "--json").out)["causes"]
    assert [(cause["op"], len(cause["nodes"])) for cause in causes] == [("Bernoulli", 50), ("Softmax", 1)]


def test_causes_differ_in_more_than_names_and_shapes() -> None:
    nodes = [
        helper.make_node("Transpose", ["x"], ["a"], name="one", perm=[1, 0, 2]),
        helper.make_node("Transpose", ["x"], ["b"], name="two", perm=[2, 1, 0]),
        helper.make_node("ReduceMean", ["x"], ["c"], name="three", axes=[0]),
    ]
    checked = covey.check(builders.model(nodes, {"x": ["N", 4, 3]}, ["a", "b", "c"]))
    assert [cause.nodes for cause in checked.causes] == [["one", "two"], ["three"]]


def test_what_cannot_follow_a_moved_batch_names_the_move() -> None:
    nodes = [
        helper.make_node("Transpose", ["x"], ["a"], name="moves", perm=[1, 0, 2]),
        helper.make_node("ReduceMean", ["a"], ["b"], name="mean", axes=[0]),
        helper.make_node("Flatten", ["b"], ["y"], name="flat"),
    ]
    checked = covey.check(builders.model(nodes, {"x": [2, 4, 3]}, ["y"]))
    assert [error.node for error in checked.errors] == ["flat"]
    assert "where node 'moves' has moved the batch" in checked.errors[0].reason
    assert [note.status.value for note in checked.notes] == ["rewritten", "rewritten", "unsupported"]


def test_shapes_of_what_is_unknown_are_no_cause_of_their_own() -> None:
    nodes = [
        helper.make_node("Compress", ["x", "c"], ["a"], name="cut", axis=1),
        helper.make_node("Shape", ["a"], ["b"], name="shape"),
        helper.make_node("ConstantOfShape", ["b"], ["y"], name="zeros"),
    ]
    checked = covey.check(builders.model(nodes, {"x": ["N", 4]}, ["y"], {"c": np.array([True, False, True, True])}))
    assert [error.node for error in checked.errors] == ["cut"]


def test_functions_that_need_a_range_are_named(command: Command, tmp_path: Path) -> None:
    """compile refuses them where neither a proof nor calibration data tell it."""
    nodes = [
        helper.make_node("Sigmoid", ["x"], ["a"], name="bounded"),
        helper.make_node("Exp", ["x"], ["b"], name="power"),
        helper.make_node("Div", ["a", "b"], ["c"], name="quotient"),
        helper.make_node("LpNormalization", ["c"], ["d"], name="norm"),
        helper.make_node("Neg", ["d"], ["y"], name="last"),
    ]
    proto = builders.model(nodes, {"x": ["N", 4]}, ["y"])
    checked = covey.check(proto)
    assert checked.ok
    assert checked.unbounded == ["power", "quotient"]
    assert checked.summary == "5 nodes: all can run privately, where compile knows the range of what 2 of them read"
    assert "Exp needs the range of its input: compile it with calibration data" in checked.notes[1].text
    with pytest.raises(covey.UnsupportedError, match=r"'power' .Exp.: its input may be anything from -60 to 60"):
        covey.compile(proto, input_range=(-60, 60))
    onnx.save(proto, tmp_path / "m.onnx")
    outcome = command("check", tmp_path / "m.onnx", "--json")
    assert outcome.code == 0
    assert json.loads(outcome.out)["needs_range"] == ["power", "quotient"]
    assert covey.check(builders.single("Sigmoid", ["N", 3])).unbounded == []


def test_every_operator_has_a_way_out() -> None:
    schemas = {s.name for s in onnx.defs.get_all_schemas() if s.domain == "" and not s.deprecated}
    cut = []
    for operator in sorted(schemas - IMPORTERS.keys()):
        way_out = no_secure_form("node", operator).way_out
        advised = {word for word in re.findall(r"[A-Z]\w+", way_out) if word in schemas}
        assert advised <= IMPORTERS.keys(), f"{operator}: {way_out}"
        if way_out == CUT:
            cut.append(operator)
    # Functions that nothing replaces: trigonometry, rounding, bits, text, pictures, shapes that depend on data.
    assert len(cut) < 40, cut
    for operator in ("CumProd", "ScatterND", "Bernoulli"):
        assert operator not in cut


@pytest.mark.parametrize("operator", ["aten.var"])
def test_operators_of_pytorch_have_a_way_out(operator: str) -> None:
    assert no_secure_form("node", operator).way_out != CUT


@pytest.mark.parametrize("case", ["Add", "Gemm", "Where"])
def test_a_constant_of_identical_rows_is_the_same_for_all_samples(case: str) -> None:
    row = RNG.normal(size=(1, 3))

    def build(constant: np.ndarray) -> onnx.ModelProto:
        if case == "Gemm":
            return builders.single("Gemm", [2, 3], {"w": np.eye(3), "c": constant})
        if case == "Where":
            nodes = [helper.make_node("Where", ["mask", "x", "zero"], ["y"], name="the_node")]
            return builders.model(nodes, {"x": [2, 3]}, ["y"], {"mask": constant > 0, "zero": np.zeros(())})
        return builders.single("Add", [2, 3], {"k": constant})

    compiled = covey.compile(build(np.repeat(row, 2, axis=0)), input_range=(-1, 1))
    x = RNG.uniform(-1, 1, (5, 3))
    (got,) = reference.outputs(compiled.graph, {"x": x})
    expected = np.where(row > 0, x, 0) if case == "Where" else x + row
    assert got == pytest.approx(expected, abs=1e-6)
    with pytest.raises(covey.UnsupportedError, match="between samples"):
        covey.compile(build(np.concatenate([row, -row])), input_range=(-1, 1))
