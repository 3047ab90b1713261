"""covey compare and covey pareto: models side by side, linear layers apart from the rest, and the Pareto front."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import covey
from command import DIGITS, Command
from covey import _core, models
from covey.bench.networks import NetworkProfile
from covey.cost_split import PARTS
from covey.trade_off import Point, TradeOff

PROTOCOLS = ("trio", "quad", "two-party", "beaver")
NAMES = ("dense", "a-name-that-is-longer-than-its-column")


def network(path: Path, channels: int) -> Path:
    """Convolution, ReLU, convolution, addition of the first, ReLU, average, dense layer; the seed is the width."""
    rng = np.random.default_rng(channels)
    weights = {
        "w1": rng.normal(size=(channels, 3, 3, 3)) / 4,
        "w2": rng.normal(size=(channels, channels, 3, 3)) / (3 * channels**0.5),
        "w3": rng.normal(size=(channels, 4)),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], name="conv1", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], name="relu1"),
        helper.make_node("Conv", ["b", "w2"], ["c"], name="conv2", pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c", "b"], ["d"], name="add"),
        helper.make_node("Relu", ["d"], ["e"], name="relu2"),
        helper.make_node("MaxPool", ["e"], ["f"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["f"], ["g"], name="average"),
        helper.make_node("Flatten", ["g"], ["h"], name="flatten"),
        helper.make_node("Gemm", ["h", "w3"], ["scores"], name="classes"),
    ]
    graph = helper.make_graph(
        nodes,
        path.stem,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 6, 6])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["N", 4])],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> list[covey.Compiled]:
    folder = tmp_path_factory.mktemp("compare")
    return [
        covey.compile(network(folder / f"{name}.onnx", width), input_range=(0, 1))
        for name, width in zip(NAMES, (8, 4), strict=True)
    ]


@pytest.fixture(scope="module")
def compared(compiled: list[covey.Compiled]) -> covey.CostComparison:
    return covey.compare(compiled, linear="ot", batch=2)


def linear(protocol: str) -> dict[str, Any]:
    return {"linear": "ot"} if protocol == "two-party" else {}


# Costs.


def test_costs_are_those_of_explain(compiled: list[covey.Compiled], compared: covey.CostComparison) -> None:
    rows = compared.rows()
    assert [(row["protocol"], row["model"]) for row in rows] == list(product(PROTOCOLS, NAMES))
    for row in rows:
        protocol = row["protocol"]
        alone, first = (
            covey.explain(compiled[index], protocol, batch=2, **linear(protocol))
            for index in (NAMES.index(row["model"]), 0)
        )
        assert (row["offline_bytes"], row["online_bytes"]) == (alone.total.offline_bytes, alone.total.online_bytes)
        assert row["rounds"] == alone.total.rounds and row["parties"] == alone.parties
        lan, wan = (estimate["seconds"] for estimate in alone.plan["estimates"])
        assert (row["lan_seconds"], row["wan_seconds"]) == (lan, wan)
        assert row["reduction"] == first.total.bytes / alone.total.bytes


NETWORKS = {"LAN": NetworkProfile("", 10_000, 0.2), "WAN": NetworkProfile("", 1_000, 70.0)}
"""10 Gbit/s with a round trip of 0.2 ms, and 1 Gbit/s with 70 ms."""


def test_seconds_follow_from_the_busiest_machine(compared: covey.CostComparison) -> None:
    for cost in compared.costs:
        wire = NETWORKS["LAN"].wire_seconds(cost.busiest_bytes, cost.rounds)
        assert cost.seconds["LAN"] == pytest.approx(wire)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_estimates_are_of_sessions_set_up_for_the_network(compiled: list[covey.Compiled], protocol: str) -> None:
    program = covey.Program(compiled[0].program_bytes)
    explained = covey.explain(compiled[0], protocol, **linear(protocol)).plan["estimates"]
    assert [estimate["network"]["name"] for estimate in explained] == list(NETWORKS)
    if protocol == "trio":  # whose maxima take fewer rounds and more bytes there
        assert explained[1]["rounds"] < explained[0]["rounds"]
    for estimate, network in zip(explained, NETWORKS.values(), strict=True):
        options = {**network.session, **linear(protocol)}
        there = json.loads(_core.plan(program, protocol, 1, estimates=True, **options))
        assert estimate["rounds"] == there["total"]["rounds"] and estimate in there["estimates"]
        assert estimate["seconds"] == pytest.approx(network.wire_seconds(estimate["busiest_bytes"], estimate["rounds"]))


def test_multiplications_are_counted_from_programs(compared: covey.CostComparison) -> None:
    due = [36 * width * 27 + 36 * width * width * 9 + width * 4 for width in (8, 4)]
    assert list(compared.multiplications.values()) == due


def test_multiplications_are_those_of_the_zoo(command: Command, tmp_path: Path) -> None:
    model = models.build("lenet5")
    onnx.save(model, tmp_path / "lenet.onnx")
    call = ("compare", tmp_path / "lenet.onnx", "--input-range", "0,1", "--protocols", "trio")
    (found,) = json.loads(command.succeeds(*call, "--json").out)["models"]
    assert found["multiplications"] == models.multiplications(model)
    assert "compiled lenet.onnx on the fly" in command.succeeds(*call).err


# The split.


def test_parts_add_up(compared: covey.CostComparison) -> None:
    for row in compared.rows():
        parts = [row[f"{part}_bytes"] for part in PARTS]
        assert sum(parts) == row["offline_bytes"] + row["online_bytes"]
        assert min(parts) > 0, row


@pytest.mark.parametrize(("protocol", "elements"), [("trio", 3), ("quad", 5)])
def test_a_fused_layer_is_split_into_what_its_parts_send(
    compiled: list[covey.Compiled], protocol: str, elements: int
) -> None:
    """A product sends so many ring elements for each of its own, whatever is fused with it (docs/trio.md, quad.md)."""
    program = covey.Program(compiled[0].program_bytes)
    row = covey.compare([program], [protocol]).rows()[0]
    explained = covey.explain(program, protocol)
    assert any("+relu" in node.name for node in explained.nodes)
    element = elements * program.ring_bits // 8
    assert row["convolution_bytes"] == 2 * 8 * 36 * element
    assert row["other_linear_bytes"] == 4 * element
    session = ("inputs", "outputs", "check")
    assert row["other_bytes"] == sum(node.bytes for node in explained.nodes if node.name in session)


@pytest.mark.parametrize(("protocol", "elements"), [("trio", 3), ("quad", 5)])
def test_two_layers_that_are_opened_as_one_count_once(protocol: str, elements: int) -> None:
    rng = np.random.default_rng(0)
    shapes = {"first": (8, 3, 3, 3), "long": (8, 8, 3, 3), "short": (8, 8, 1, 1)}
    nodes = [
        helper.make_node("Conv", ["x", "first"], ["a"], name="first", pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["a", "long"], ["b"], name="long", pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["a", "short"], ["c"], name="short"),
        helper.make_node("Add", ["b", "c"], ["d"], name="add"),
        helper.make_node("Relu", ["d"], ["y"], name="relu"),
    ]
    graph = helper.make_graph(
        nodes,
        "branches",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 6, 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 8, 6, 6])],
        [
            numpy_helper.from_array(rng.normal(size=shape).astype(np.float32) / 8, name)
            for name, shape in shapes.items()
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    program = covey.Program(covey.compile(model, input_range=(0, 1)).program_bytes)
    assert "long+short+add+relu" in [node.name for node in covey.explain(program, protocol).nodes]
    row = covey.compare([program], [protocol]).rows()[0]
    assert row["convolution_bytes"] == 2 * 8 * 36 * elements * program.ring_bits // 8
    assert min(row["non_linear_bytes"], row["shift_bytes"]) > 0


def test_products_within_softmax_are_no_linear_layer() -> None:
    """Trio sends three elements for each element of a product, and of these only two are layers."""
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="first"),
        helper.make_node("Softmax", ["a"], ["b"], name="softmax"),
        helper.make_node("MatMul", ["b", "v"], ["y"], name="second"),
    ]
    graph = helper.make_graph(
        nodes,
        "softmax",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4, 3])],
        [
            numpy_helper.from_array(rng.normal(size=shape).astype(np.float32) / 3, name)
            for name, shape in (("w", (8, 6)), ("v", (6, 3)))
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    compiled = covey.compile(model, input_range=(-1, 1), calibration=rng.uniform(-1, 1, (32, 4, 8)))
    program = covey.Program(compiled.program_bytes)
    assert any(node["name"] == "softmax" and node["computes"] == "Mul" for node in program.nodes)
    (row,) = covey.compare([compiled], ["trio"]).rows()
    assert row["other_linear_bytes"] == (4 * 6 + 4 * 3) * 3 * program.ring_bits // 8
    assert row["non_linear_bytes"] > row["other_linear_bytes"]


def test_key_bits_are_for_protocols_that_take_them(compiled: list[covey.Compiled]) -> None:
    costs = [covey.compare(compiled[:1], ["trio", "quad"], key_bits=bits) for bits in (None, 8)]
    assert [cost.notes for cost in costs] == [[], ["quad: exact, without key bits"]]
    exact, read = (cost.rows() for cost in costs)
    assert read[0]["non_linear_bytes"] < exact[0]["non_linear_bytes"]
    assert read[1] == exact[1]
    with pytest.raises(covey.OptionError, match="masks, which quad refuses: leave it out"):
        covey.compare(compiled[:1], ["quad"], key_bits=8)


def test_products_between_two_parties_cost_in_proportion(compared: covey.CostComparison) -> None:
    wide, narrow = (row for row in compared.rows() if row["protocol"] == "two-party")
    ratio = (8 * 27 + 64 * 9) / (4 * 27 + 16 * 9)
    assert wide["convolution_bytes"] / narrow["convolution_bytes"] == pytest.approx(ratio, rel=0.1)
    assert wide["convolution_bytes"] > wide["non_linear_bytes"]


def test_winograd_layers_count_as_convolutions(compiled: list[covey.Compiled], tmp_path: Path) -> None:
    path = network(tmp_path / "fewer.onnx", 8)
    fewer = covey.compile(path, input_range=(0, 1), winograd="all")
    plain, short = covey.compare([compiled[0], fewer], ["two-party"], linear="ot").rows()
    assert short["multiplications"] < plain["multiplications"]
    assert 0 < short["convolution_bytes"] < plain["convolution_bytes"]
    assert short["other_linear_bytes"] == plain["other_linear_bytes"]


# What is shown.


def test_tables_fit_80_columns(compared: covey.CostComparison) -> None:
    text = str(compared)
    assert max(map(len, text.splitlines())) <= 80
    for protocol in PROTOCOLS:
        assert text.count(protocol) == 4  # two models in two tables


def test_tables_of_large_models_fit_80_columns(compared: covey.CostComparison) -> None:
    """As large as the largest networks of the efficient-models paper: 2.63 TB."""
    large = [
        replace(cost, offline_bytes=123_000_000_000, online_bytes=2_630_000_000_000, rounds=12_345)
        for cost in compared.costs
    ]
    large = [replace(cost, seconds={"LAN": 2_200.0, "WAN": 22_000.0}, parts=dict.fromkeys(PARTS, 1)) for cost in large]
    text = str(replace(compared, costs=large))
    assert "2.63 TB" in text and "366.7 min" in text
    assert max(map(len, text.splitlines())) <= 80


def test_the_command_prints_what_the_function_returns(
    command: Command, compiled: list[covey.Compiled], tmp_path: Path
) -> None:
    paths = [each.save(tmp_path / f"{name}.covey")[0] for name, each in zip(NAMES, compiled, strict=True)]
    due = covey.compare(compiled, ["beaver", "two-party"], parties=3, linear="ot")
    call = ("compare", *paths, "--protocols", "beaver, two-party", "--parties", 3, "--linear", "ot")
    printed = command.succeeds(*call).out
    assert [line.rstrip() for line in printed.splitlines()] == str(due).splitlines()
    assert [row["parties"] for row in due.rows()] == [3, 3, None, None]
    found = json.loads(command.succeeds(*call, "--json").out)
    assert found == due.to_json()
    assert set(found) == {"batch", "models", "costs"}
    assert all(set(row) == {"model", "ring", "multiplications"} for row in found["models"])
    keys = {"model", "protocol", "parties", "offline_bytes", "online_bytes", "rounds", "lan_seconds", "wan_seconds"}
    keys |= {"multiplications", "reduction", *(f"{part}_bytes" for part in PARTS)}
    assert all(set(row) == keys for row in found["costs"])


def test_models_of_one_name_are_told_apart(compiled: list[covey.Compiled]) -> None:
    same = covey.compare([compiled[0]] * 3, ["trio"])
    assert list(same.rings) == ["dense", "dense (2)", "dense (3)"]
    assert {row["reduction"] for row in same.rows()} == {1.0}


def test_plots(compared: covey.CostComparison, command: Command, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    compared.plot(tmp_path / "costs.svg")
    assert "<svg" in (tmp_path / "costs.svg").read_text()
    table = written(tmp_path, "name,accuracy,cost\n$a_{b,1,2\nb,2,3\n")
    command.succeeds("pareto", table, "--plot", tmp_path / "front.png")
    assert (tmp_path / "front.png").read_bytes()[:4] == b"\x89PNG"
    command.refuses("pareto", table, "--plot", tmp_path / "front.txt", saying="a plot is a .png")


@pytest.mark.parametrize(
    ("options", "saying"),
    [
        (["--protocols", "trio,quintet"], "protocol 'quintet' is unknown"),
        (["--protocols", "trio,quad", "--linear", "ot"], "--linear says how two parties multiply"),
        (["--protocols", "quad", "--preprocess-linear"], "--preprocess-linear"),
        (["--protocols", "trio,two-party", "--parties", "3"], "trio always has 3 parties"),
        (["--protocols", "trio,beaver", "--parties", "9"], "beaver takes 2 to 8 parties"),
        (["--input-range", "0"], "low,high"),
        ([], "--input-range"),
    ],
)
def test_wrong_comparisons_are_refused(command: Command, options: list[str], saying: str) -> None:
    command.refuses("compare", DIGITS / "digits.onnx", *options, saying=saying)


def test_a_comparison_needs_models_and_protocols(compiled: list[covey.Compiled]) -> None:
    with pytest.raises(covey.OptionError, match="not a list of models"):
        covey.compare("model.covey")
    with pytest.raises(covey.OptionError, match="not a list of models"):
        covey.compare([])
    with pytest.raises(covey.OptionError, match="no list of protocols"):
        covey.compare(compiled, "trio")
    with pytest.raises(covey.OptionError, match="batch is 0"):
        covey.compare(compiled, batch=0)


# The Pareto front.


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "points.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize("seed", range(20))
def test_the_front_is_that_of_the_definition(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    # Few values, so that points tie in one number or in both.
    drawn = [(f"m{index}", draw.randint(0, 6), draw.randint(0, 6)) for index in range(draw.randint(1, 30))]
    lines = "\n".join(f"{cost},{name},{accuracy}" for name, accuracy, cost in drawn)
    found = covey.pareto(written(tmp_path, f"cost,name,accuracy\n{lines}\n"))
    due = {
        name
        for name, accuracy, cost in drawn
        if not any(a >= accuracy and c <= cost and (a > accuracy or c < cost) for _, a, c in drawn)
    }
    assert {row["name"] for row in found.rows() if row["front"]} == due
    assert len(found.rows()) == len(drawn)


def test_pareto_takes_columns_by_name(command: Command, tmp_path: Path) -> None:
    table = written(tmp_path, '\ufeffmodel,AUC,note,GB\n"a, b",0.9,,3\n\nc,0.8,x,3\nd,0.7,y,1e0\n')
    call = ("pareto", table, "--name", "model", "--accuracy", "AUC", "--cost", "GB")
    found = json.loads(command.succeeds(*call, "--json").out)
    assert found["columns"] == {"accuracy": "AUC", "cost": "GB"}
    points = [("d", 0.7, 1.0, True), ("a, b", 0.9, 3.0, True), ("c", 0.8, 3.0, False)]
    keys = ("name", "accuracy", "cost", "front")
    assert found["points"] == [dict(zip(keys, point, strict=True)) for point in points]
    shown = command.succeeds(*call).out
    assert "AUC" in shown and "2 of 3 points" in shown
    assert "2 of 3 points" in str(TradeOff([Point("d", 0.7, 1), Point("a", 0.9, 3), Point("c", 0.8, 3)]))


@pytest.mark.parametrize(
    ("text", "saying"),
    [
        ("name,accuracy,cost\na,1,2\nb,high,3\n", "line 3, column 'accuracy': 'high' is not a finite number"),
        ("name,accuracy,cost\na,1,inf\n", "line 2, column 'cost': 'inf' is not a finite number"),
        ("name,accuracy,cost\na,1\n", "line 2, column 'cost': the cell is empty"),
        ("name,accuracy,cost\n ,1,2\n", "line 2, column 'name': the cell is empty"),
        ("name,accuracy\na,1\n", "line 1: no column is called 'cost', the columns are name, accuracy"),
        ("name,accuracy,cost,cost\na,1,2,3\n", "line 1: two columns are called 'cost'"),
        ("name,accuracy,cost\n", "no line below the first"),
        ("", "line 1: no column is called 'name', the columns are none"),
        ('name,accuracy,cost\na,1,2\n"b,1,2\n', "line 3: "),
        (b"name,accuracy,cost\n\xff,1,2\n", "not text in UTF-8"),
    ],
)
def test_wrong_points_are_refused(command: Command, tmp_path: Path, text: str | bytes, saying: str) -> None:
    command.refuses("pareto", written(tmp_path, text), saying=saying)


def test_absent_points_are_refused(command: Command, tmp_path: Path) -> None:
    command.refuses("pareto", tmp_path / "absent.csv", saying="cannot read points")
    command.refuses("pareto", tmp_path, saying="cannot read points")
