"""Token ids and categories as inputs: shared one-hot, looked up exactly, refused where they are no class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import builders
import covey
import interpreter
from agreement import agree
from command import Command
from covey import _core, structure
from covey.clear import run_clear
from covey.comparison import float_reference
from covey.inputs import random_inputs, read_inputs
from covey.model import load

RNG = np.random.default_rng(0)
INTEGER = TensorProto.INT64
PROTOCOLS = ["trio", "quad", "two-party", "beaver"]


def drawn(*counts: int, samples: int = 6) -> np.ndarray:
    """Whole numbers [N, len(counts)], each below its count."""
    return np.stack([RNG.integers(0, count, samples) for count in counts], axis=1).astype(np.float64)


def whole_model(
    nodes: Sequence[onnx.NodeProto], ids: Sequence[Any], constants: Mapping[str, np.ndarray], **options: Any
) -> onnx.ModelProto:
    """A model of one int64 input `ids`."""
    return builders.model(nodes, {"ids": ids}, ["y"], constants, types={"ids": INTEGER}, **options)


def bag(tokens: int = 5, vocabulary: int = 20, width: int = 8) -> onnx.ModelProto:
    """A text classifier: the mean of the tokens' embeddings, and a layer on it."""
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["e"], name="embedding"),
        helper.make_node("ReduceMean", ["e"], ["mean"], name="mean", axes=[1], keepdims=0),
        helper.make_node("Gemm", ["mean", "w", "b"], ["y"], name="classes"),
    ]
    rng = np.random.default_rng(1)
    constants = {"table": rng.normal(size=(vocabulary, width)), "w": rng.normal(size=(width, 3)), "b": np.zeros(3)}
    return whole_model(nodes, ["N", tokens], constants)


def tabular() -> onnx.ModelProto:
    """A row of categories of which one is embedded, one made one-hot, and one a number, beside two measurements."""
    nodes = [
        helper.make_node("Split", ["ids", "ones"], ["a", "b", "c"], name="columns", axis=1),
        helper.make_node("Squeeze", ["a", "axis"], ["town"], name="town"),
        helper.make_node("Gather", ["towns", "town"], ["p"], name="town embedding"),
        helper.make_node("Squeeze", ["b", "axis"], ["colour"], name="colour"),
        helper.make_node("OneHot", ["colour", "depth", "values"], ["q"], name="colours"),
        helper.make_node("Cast", ["c"], ["r"], name="age", to=TensorProto.FLOAT),
        helper.make_node("Mul", ["r", "hundredth"], ["s"], name="centuries"),
        helper.make_node("Concat", ["p", "q", "s", "x"], ["all"], name="all", axis=1),
        helper.make_node("Gemm", ["all", "w", "b1"], ["h"], name="hidden"),
        helper.make_node("Relu", ["h"], ["k"], name="relu"),
        helper.make_node("MatMul", ["k", "v"], ["y"], name="score"),
    ]
    rng = np.random.default_rng(2)
    constants = {
        "ones": np.ones(3, np.int64),
        "axis": np.array([1]),
        "towns": rng.normal(size=(9, 4)),
        "depth": np.array(3),
        "values": np.array([0.0, 1.0]),
        "hundredth": np.array(0.01),
        "w": rng.normal(size=(4 + 3 + 1 + 2, 6)),
        "b1": rng.normal(size=6),
        "v": rng.normal(size=(6, 2)),
    }
    return builders.model(nodes, {"ids": ["N", 3], "x": ["N", 2]}, ["y"], constants, types={"ids": INTEGER})


TABULAR_RANGE = {"ids": (18, 99), "x": (-1, 1)}


def people(samples: int = 6) -> dict[str, np.ndarray]:
    ids = drawn(9, 3, 80, samples=samples)
    ids[:, 2] += 18
    return {"ids": ids, "x": RNG.uniform(-1, 1, (samples, 2)).astype(np.float32).astype(np.float64)}


def input_of(compiled: covey.Compiled) -> Any:
    return next(v for v in interpreter.program_of(compiled).values if v.name == "ids")


def operations(compiled: covey.Compiled) -> list[str]:
    return [str(node.WhichOneof("op")) for node in interpreter.program_of(compiled).nodes]


# What the compiler makes of them


def test_a_row_of_a_table_is_exact_and_bounded_by_the_table() -> None:
    table = RNG.uniform(-3, 3, (200, 4))
    proto = whole_model([helper.make_node("Gather", ["table", "ids"], ["y"], name="g")], ["N", 7], {"table": table})
    ids = drawn(*[200] * 7)
    compiled = covey.compile(proto)
    assert operations(compiled) == ["dense"]
    scale = compiled.report["scale"]
    (got,) = interpreter.run(compiled, {"ids": ids})
    rows = np.rint(np.ldexp(table.astype(np.float32).astype(np.float64), scale))
    assert np.array_equal(np.ldexp(got, scale), rows[ids.astype(int)])
    program = interpreter.program_of(compiled)
    # Not 200 times as much: one row is read.
    assert program.values[program.outputs[0]].bound.bits == scale + 2


def test_the_program_says_how_an_input_is_shared() -> None:
    compiled = covey.compile(bag())
    shared = input_of(compiled)
    assert (list(shared.shape), shared.scale, list(shared.whole.shape), list(shared.whole.classes)) == (
        [5, 20],
        0,
        [5],
        [20],
    )
    (entry,) = _core.Program(compiled.program_bytes).inputs
    assert (entry["shape"], entry["classes"]) == ([5], [20])
    assert "from whole numbers [5] one-hot of 20" in _core.Program(compiled.program_bytes).dump()
    assert compiled.report["inputs"][0]["whole"] == "whole numbers below 20, one-hot"
    assert "in [0, 19] (its classes), whole numbers below 20, one-hot" in str(compiled)


def test_mean_of_embeddings() -> None:
    agree(bag(), {"ids": drawn(*[20] * 5)}, input_range=None)


@pytest.mark.parametrize("shape", [(), (2, 3)])
@pytest.mark.parametrize("rest", [(), (2, 3)])
def test_tables_and_indices_of_any_rank(shape: tuple[int, ...], rest: tuple[int, ...]) -> None:
    table = RNG.normal(size=(6, *rest))
    proto = whole_model([helper.make_node("Gather", ["table", "ids"], ["y"])], ["N", *shape], {"table": table})
    ids = RNG.integers(0, 6, (4, *shape)).astype(np.float64)
    agree(proto, {"ids": ids}, input_range=None)


def test_int32() -> None:
    proto = builders.model(
        [helper.make_node("Gather", ["table", "ids"], ["y"])],
        {"ids": ["N", 2]},
        ["y"],
        {"table": RNG.normal(size=(6, 3))},
        types={"ids": TensorProto.INT32},
    )
    agree(proto, {"ids": drawn(6, 6)}, input_range=None)


def test_categories_and_numbers_in_one_input() -> None:
    compiled = agree(tabular(), people(), input_range=TABULAR_RANGE)
    shared = input_of(compiled)
    assert (list(shared.shape), list(shared.whole.classes)) == ([9 + 3 + 1], [9, 3, 0])
    assert (shared.range.low, shared.range.high) == (0, 99)


def test_ranges_of_numbers_come_from_samples() -> None:
    compiled = covey.compile(tabular(), calibration=people(40))
    assert compiled.report["inputs"][0]["range_from"].startswith("the calibration data's")
    shared = input_of(compiled)
    assert float(shared.range.low).is_integer() and shared.range.high >= 90


def test_two_tables_over_one_input_take_what_both_have() -> None:
    nodes = [
        helper.make_node("Gather", ["small", "ids"], ["p"]),
        helper.make_node("Gather", ["large", "ids"], ["q"]),
        helper.make_node("Add", ["p", "q"], ["y"]),
    ]
    constants = {"small": RNG.normal(size=(5, 3)), "large": RNG.normal(size=(8, 3))}
    compiled = agree(whole_model(nodes, ["N", 2], constants), {"ids": drawn(5, 5)}, input_range=None)
    assert list(input_of(compiled).whole.classes) == [5]


def test_an_index_that_is_a_number_too() -> None:
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["p"]),
        helper.make_node("Cast", ["ids"], ["n"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["n", "p"], ["y"]),
    ]
    proto = whole_model(nodes, ["N", 4], {"table": np.random.default_rng(0).uniform(-0.25, 0.25, 12)})
    compiled = agree(proto, {"ids": drawn(*[12] * 4)}, input_range=None)
    assert list(input_of(compiled).whole.classes) == [12]


def test_one_input_in_part_one_hot_read_as_numbers() -> None:
    """Numbers that are shared as they are and such that are not, in the order of the model."""
    nodes = [
        helper.make_node("Gather", ["ids", "middle"], ["m"], axis=1),
        helper.make_node("Gather", ["table", "m"], ["p"]),
        helper.make_node("Cast", ["ids"], ["n"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["n", "p"], ["y"]),
    ]
    proto = whole_model(nodes, ["N", 3], {"middle": np.array([1]), "table": RNG.normal(size=(7, 3))}, opset=13)
    # [N, 1, 3] + [N, 3] would broadcast over the batch.
    proto.graph.node[1].input[1] = "flat"
    proto.graph.node.insert(1, helper.make_node("Squeeze", ["m", "axis"], ["flat"]))
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1]), "axis"))
    compiled = agree(proto, {"ids": drawn(50, 7, 50)}, input_range=(0, 49))
    assert list(input_of(compiled).whole.classes) == [0, 7, 0]


def test_whole_numbers_alone_need_no_scale() -> None:
    nodes = [
        helper.make_node("Cast", ["ids"], ["n"], to=TensorProto.FLOAT),
        helper.make_node("MatMul", ["n", "w"], ["y"]),
    ]
    proto = whole_model(nodes, ["N", 3], {"w": RNG.normal(size=(3, 2)) / 50})
    compiled = agree(proto, {"ids": drawn(90, 90, 90) - 20}, input_range=(-20.5, 70.9))
    assert (input_of(compiled).range.low, input_of(compiled).range.high) == (-20, 70)
    with pytest.raises(covey.OptionError, match="holds no whole number"):
        covey.compile(proto, input_range=(0.2, 0.8))


@pytest.mark.parametrize("axis", [-1, 1])
@pytest.mark.parametrize("values", [[0.0, 1.0], [-1.0, 2.5]])
def test_one_hot(axis: int, values: list[float]) -> None:
    node = helper.make_node("OneHot", ["ids", "depth", "values"], ["y"], axis=axis)
    constants = {"depth": np.array([4]), "values": np.array(values)}
    agree(whole_model([node], ["N", 3], constants), {"ids": drawn(4, 4, 4)}, input_range=None)


def test_a_layer_on_one_hot_rows_looks_up() -> None:
    nodes = [
        helper.make_node("OneHot", ["ids", "depth", "values"], ["h"], name="hot"),
        helper.make_node("MatMul", ["h", "w"], ["y"], name="layer"),
    ]
    constants = {"depth": np.array(60), "values": np.array([0.0, 1.0]), "w": RNG.uniform(-1, 1, (60, 2))}
    compiled = agree(whole_model(nodes, ["N", 3], constants), {"ids": drawn(60, 60, 60)}, input_range=None)
    assert operations(compiled) == ["dense"]


def test_rows_of_other_depths_than_the_classes() -> None:
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["p"]),
        helper.make_node("OneHot", ["ids", "few", "values"], ["q"]),
        helper.make_node("OneHot", ["ids", "many", "values"], ["r"]),
        helper.make_node("MatMul", ["q", "w"], ["s"]),
        helper.make_node("Concat", ["p", "r", "s"], ["y"], axis=2),
    ]
    constants = {
        "table": RNG.normal(size=(6, 2)),
        "few": np.array(4),
        "many": np.array(9),
        "values": np.array([0.0, 1.0]),
        "w": RNG.normal(size=(4, 3)),
    }
    agree(whole_model(nodes, ["N", 2], constants), {"ids": drawn(6, 6)}, input_range=None)


def test_an_embedding_and_the_layer_on_it_become_one_table() -> None:
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["e"], name="embedding"),
        helper.make_node("MatMul", ["e", "w"], ["y"], name="layer"),
    ]
    constants = {"table": RNG.normal(size=(6, 10)), "w": RNG.normal(size=(10, 3))}
    compiled = agree(whole_model(nodes, ["N", 2], constants), {"ids": drawn(6, 6)}, input_range=None)
    assert operations(compiled) == ["dense"]


REFUSED: dict[str, tuple[list[onnx.NodeProto], str]] = {
    "columns": (
        [helper.make_node("Gather", ["table", "ids"], ["y"], name="g", axis=1)],
        "node 'g' (Gather): it takes columns of a table by secret indices; transpose the table",
    ),
    "computed": (
        [
            helper.make_node("Cast", ["ids"], ["n"], name="n", to=TensorProto.FLOAT),
            helper.make_node("Floor", ["n"], ["i"], name="i"),
            helper.make_node("OneHot", ["i", "depth", "values"], ["y"], name="g"),
        ],
        "node 'g' (OneHot): its indices 'i' are no whole numbers of an input, and none that the network counts; let",
    ),
    "a quotient": (
        [
            helper.make_node("Add", ["ids", "ids"], ["i"]),
            helper.make_node("Div", ["ids", "i"], ["q"], name="q"),
            helper.make_node("Cast", ["q"], ["y"], to=TensorProto.FLOAT),
        ],
        "node 'q' (Div): it divides whole numbers by others that are no constant; put a Cast to float before it",
    ),
    "handed on": (
        [helper.make_node("Reshape", ["ids", "shape"], ["y"], name="r")],
        "output 'y' holds whole numbers of the input: remove it from the outputs",
    ),
    "before the batch": (
        [helper.make_node("OneHot", ["ids", "depth", "values"], ["y"], name="h", axis=0)],
        "node 'h' (OneHot): it puts the classes before the batch",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str) -> None:
    nodes, message = REFUSED[case]
    constants = {
        "table": RNG.normal(size=(6, 2)),
        "shape": np.array([-1, 1, 2]),
        "depth": np.array(6),
        "values": np.array([0.0, 1.0]),
    }
    proto = whole_model(nodes, ["N", 2], constants, output_dtype=INTEGER if case == "handed on" else None)
    with pytest.raises(covey.CoveyError) as caught:
        covey.compile(proto, input_range=(0, 5))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


# What clients make of data

BAD = {
    "too large": (20.0, "holds 20 in sample 1 at [3]: give whole numbers from 0 to 19"),
    "negative": (-1.0, "holds -1 in sample 1 at [3]: give whole numbers from 0 to 19"),
    "not whole": (2.5, "holds 2.5 in sample 1 at [3]: give whole numbers from 0 to 19"),
}


def spoiled(value: float) -> np.ndarray:
    ids = drawn(*[20] * 5, samples=3)
    ids[1, 3] = value
    return ids


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_class_is_refused(case: str) -> None:
    value, message = BAD[case]
    model = load(covey.compile(bag()))
    with pytest.raises(covey.DataError) as caught:
        run_clear(model, spoiled(value))
    assert str(caught.value) == f"input 'ids' {message}, its 20 classes"
    with pytest.raises(covey.DataError) as caught:
        covey.compile(bag(), calibration=spoiled(value))
    assert str(caught.value) == f"calibration data for 'ids' {message}, its 20 classes"
    # The runtime, which programs other than Python's call, says so itself.
    with pytest.raises(covey.CoveyError) as refused:
        _core.Clear(model.program, model.need_weights()).run({"ids": spoiled(value)})
    assert str(refused.value) == f"input 'ids' {message}"


def test_numbers_outside_their_range_are_refused() -> None:
    model = load(covey.compile(tabular(), input_range=TABULAR_RANGE))
    data = people()
    data["ids"][2, 2] = 100
    with pytest.raises(covey.DataError) as caught:
        read_inputs(data, model.program)
    assert str(caught.value) == "input 'ids' holds 100 in sample 2 at [2]: give whole numbers from 0 to 99"


def test_the_range_of_classes_is_not_declared() -> None:
    covey.compile(bag(), input_range=(-1, 1))  # one for all inputs that need one: there is none
    with pytest.raises(covey.OptionError, match="input range for 'ids': its classes already say it, leave it out"):
        covey.compile(bag(), input_range={"ids": (0, 19)})
    with pytest.raises(covey.OptionError, match="the inputs' range is unknown"):
        covey.compile(tabular())


def test_integers_are_taken_as_they_are() -> None:
    model = load(covey.compile(bag()))
    ids = drawn(*[20] * 5)
    expected = run_clear(model, ids).integers["y"]
    for dtype in (np.int64, np.int32, np.uint8):
        assert np.array_equal(run_clear(model, ids.astype(dtype)).integers["y"], expected)


def test_random_inputs_are_classes() -> None:
    program = _core.Program(covey.compile(tabular(), input_range=TABULAR_RANGE).program_bytes)
    drawn_inputs = random_inputs(program, 200)
    read_inputs(drawn_inputs, program)
    ids = drawn_inputs["ids"]
    assert ids[:, :2].max(axis=0).tolist() == [8, 2] and ids[:, 2].max() > 50


def test_onnxruntime_is_given_whole_numbers(tmp_path: Path) -> None:
    path = tmp_path / "tabular.onnx"
    onnx.save(tabular(), path)
    found = float_reference(path, None, people())
    assert (found.source, found.note) == ("onnxruntime", "")


def test_programs_of_other_classes_differ() -> None:
    programs = [interpreter.program_of(covey.compile(bag(vocabulary=size))) for size in (20, 21)]
    found = structure.compare(*programs)
    assert any("whole numbers below 20" in difference.what for difference in found.differences)


# Private runs


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("case", ["bag", "tabular"])
def test_private_runs_equal_the_specification(protocol: str, case: str, tmp_path: Path) -> None:
    proto, data = (bag(), drawn(*[20] * 5, samples=8)) if case == "bag" else (tabular(), people(8))
    path = tmp_path / f"{case}.onnx"
    onnx.save(proto, path)
    options: dict[str, Any] = {} if case == "bag" else {"input_range": TABULAR_RANGE}
    verdict = covey.verify(path, protocol, data=data, samples=8, **options)
    assert verdict.passed, verdict.failure
    equal = next(check for check in verdict.checks if check.what == f"y: {protocol} against clear")
    assert equal.found.startswith("0 of ")


@pytest.mark.parametrize("protocol", ["trio", "two-party"])
def test_a_client_refuses_before_it_sends(protocol: str) -> None:
    model = load(covey.compile(bag()))
    ids = drawn(*[20] * 5)
    with covey.local(protocol) as parties:
        assert np.array_equal(parties.run(model, ids).integers["y"], run_clear(model, ids).integers["y"])
        with pytest.raises(covey.DataError, match=r"input 'ids' holds 20 in sample 1 at \[3\]"):
            parties.run(model, spoiled(20))
        assert np.array_equal(parties.run(model, ids).integers["y"], run_clear(model, ids).integers["y"])


def test_commands(tmp_path: Path, command: Command) -> None:
    onnx.save(bag(), tmp_path / "bag.onnx")
    np.save(tmp_path / "ids.npy", drawn(*[20] * 5).astype(np.int64))
    np.save(tmp_path / "bad.npy", spoiled(20).astype(np.int64))
    program = tmp_path / "bag.covey"
    command.succeeds("compile", tmp_path / "bag.onnx", "-o", program)
    command.succeeds("run", program, "--input", tmp_path / "ids.npy", "--protocol", "clear")
    saying = "input 'ids' holds 20 in sample 1 at [3]: give whole numbers from 0 to 19"
    command.refuses("run", program, "--input", tmp_path / "bad.npy", "--protocol", "clear", saying=saying)
    command.succeeds("verify", program, "--model", tmp_path / "bag.onnx", "--protocol", "clear")


def test_tune() -> None:
    ids = drawn(*[20] * 5, samples=60)
    tuned = covey.tune(bag(), ids)
    record = covey.verify(tuned.compiled, "clear", data=ids, samples=60)
    assert record.passed, record.failure


# PyTorch


class TestTorch:
    @staticmethod
    def module() -> Any:
        torch = pytest.importorskip("torch")

        class Module(torch.nn.Module):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.embedding = torch.nn.Embedding(20, 8, padding_idx=0)
                self.position = torch.nn.Parameter(torch.randn(5, 8))
                self.fc = torch.nn.Linear(8, 3)

            def forward(self, ids: Any) -> Any:
                return self.fc((self.embedding(ids) + self.position).mean(dim=1)) + ids[:, :1].float() / 20

        torch.manual_seed(0)
        return torch, Module().eval()

    def test_embedding(self) -> None:
        torch, module = self.module()
        ids = torch.randint(0, 20, (6, 5))
        compiled = covey.compile(module, (ids,))
        (got,) = interpreter.run(compiled, {"ids": ids.double().numpy()})
        np.testing.assert_allclose(got, module(ids).detach().numpy(), atol=0.02)
        assert list(input_of(compiled).whole.classes) == [20]

    @pytest.mark.parametrize("options", [{"mode": "sum"}, {"mode": "mean", "padding_idx": 2}, {"mode": "max"}, {}])
    def test_bags(self, options: dict[str, Any]) -> None:
        torch, _ = self.module()
        bag = torch.nn.EmbeddingBag(9, 4, **options)
        torch.nn.init.normal_(bag.weight)
        ids = torch.tensor([[2, 2, 2], [2, 5, 8], [0, 1, 3], [7, 7, 7]])
        compiled = covey.compile(bag.eval(), (ids,))
        (got,) = interpreter.run(compiled, {compiled.graph.inputs[0]: ids.double().numpy()})
        np.testing.assert_allclose(got, bag(ids).detach().numpy(), atol=0.002)

    def test_bags_of_several_lengths(self) -> None:
        torch, _ = self.module()

        class Bags(torch.nn.EmbeddingBag):  # type: ignore[misc, name-defined]
            def forward(self, ids: Any) -> Any:
                return super().forward(ids.reshape(-1), torch.tensor([0, 2, 3]))

        with pytest.raises(covey.CoveyError, match="its bags begin elsewhere than its samples"):
            covey.compile(Bags(9, 4).eval(), (torch.zeros(3, 2, dtype=torch.int64),))

    def test_exported_to_onnx(self, tmp_path: Path) -> None:
        torch, module = self.module()
        ids = torch.randint(0, 20, (6, 5))
        path = tmp_path / "embedding.onnx"
        pytest.importorskip("onnxscript")
        torch.onnx.export(module, (ids,), str(path), input_names=["ids"], dynamo=True)
        verdict = covey.verify(path, "clear", data=ids.numpy())
        assert verdict.passed, verdict.failure
