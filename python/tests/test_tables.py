"""Scalar functions by tables: every integer of their domains, what holds beyond, what is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import builders
import covey
import interpreter
from agreement import image
from covey import functions
from covey.compiled import prepare
from covey.drawing import Wanted, draw
from covey.functions import Function
from covey.integer_table import IntegerTable
from covey.interval import Interval
from covey.lowering import Settings
from covey.ops.scalar import Scalar

BAR = 4.5e-4
"""The largest error of a function's table at 12 fractional bits."""

FAR = 300.0

BOUNDED: dict[str, tuple[str, dict[str, Any], Function]] = {
    "Sigmoid": ("Sigmoid", {}, functions.SIGMOID),
    "Tanh": ("Tanh", {}, functions.TANH),
    "Erf": ("Erf", {}, functions.ERF),
    "Gelu": ("Gelu", {}, functions.GELU),
    "Gelu, by tanh": ("Gelu", {"approximate": "tanh"}, functions.GELU_TANH),
    "Swish": ("Swish", {}, functions.swish()),
    "Swish of 1.5": ("Swish", {"alpha": 1.5}, functions.swish(1.5)),
    "Swish of -1": ("Swish", {"alpha": -1.0}, functions.swish(-1.0)),
    "Softplus": ("Softplus", {}, functions.SOFTPLUS),
    "Mish": ("Mish", {}, functions.MISH),
    "Elu": ("Elu", {}, functions.elu()),
    "Elu of 0.3": ("Elu", {"alpha": 0.3}, functions.elu(float(np.float32(0.3)))),
    "Celu": ("Celu", {"alpha": 2.0}, functions.celu(2.0)),
}
"""Functions with a line on either side: operator, attributes, meaning."""

RANGED: dict[str, tuple[str, Function, float, float]] = {
    "Exp": ("Exp", functions.EXP, -FAR, 0.0),
    "Softsign": ("Softsign", functions.SOFTSIGN, -8.0, 8.0),
    "Sqrt": ("Sqrt", functions.SQRT, 0.25, 16.0),
    "Log": ("Log", functions.LOG, 0.25, 8.0),
    "Reciprocal": ("Reciprocal", functions.RECIPROCAL, 0.5, 4.0),
    "Sin": ("Sin", functions.UNBOUNDED["Sin"], -4.0, 4.0),
    "Atan": ("Atan", functions.UNBOUNDED["Atan"], -8.0, 8.0),
    "Acosh": ("Acosh", functions.UNBOUNDED["Acosh"], 1.5, 8.0),
}
"""Functions that are drawn as far as their input reaches."""


def model(op: str, **attributes: Any) -> onnx.ModelProto:
    return builders.single(op, ["N", 64], opset=24 if op == "Swish" else 20, **attributes)


def integers(low: float, high: float, scale: int = 12) -> np.ndarray:
    """All fixed-point numbers of a range, in rows of 64."""
    numbers = np.arange(round(low * 2**scale), round(high * 2**scale) + 1) / 2.0**scale
    return np.resize(numbers, (-(-len(numbers) // 64), 64))


def kinds(compiled: covey.Compiled) -> list[str]:
    return [node.WhichOneof("op") for node in interpreter.program_of(compiled).nodes]


def errors(compiled: covey.Compiled, function: Function, x: np.ndarray) -> np.ndarray:
    (y,) = interpreter.run(compiled, {"x": x})
    return np.abs(y - function(x))


@pytest.mark.parametrize("case", BOUNDED)
def test_every_integer_and_what_lies_beyond(case: str) -> None:
    op, attributes, function = BOUNDED[case]
    compiled = covey.compile(model(op, **attributes), input_range=(-FAR, FAR), ring=32, scale=12)
    (table,) = compiled.report["tables"]
    assert table["every_integer"]
    domain = integers(table["low"], table["high"])
    found = errors(compiled, function, domain).max()
    # The report's error is that of the integers, and of the lines beyond.
    assert found <= table["error"] + 1e-12 <= BAR
    beyond = integers(-FAR, FAR, 3)
    outside = errors(
        compiled,
        function,
        beyond[(beyond < table["low"] - 1) | (beyond > table["high"] + 1)][:, None].repeat(64, axis=1),
    )
    assert outside.max() <= table["error"]
    assert max(found, outside.max()) >= 0.9 * table["error"]


@pytest.mark.parametrize("case", RANGED)
def test_every_integer_of_a_range(case: str) -> None:
    op, function, low, high = RANGED[case]
    compiled = covey.compile(model(op), input_range=(low, high), ring=32, scale=12)
    (table,) = compiled.report["tables"]
    found = errors(compiled, function, integers(max(low, -40.0), high)).max()
    size = max(1.0, float(np.abs(function(np.array([low, high]))).max()))
    assert table["every_integer"]
    assert found <= table["error"] <= BAR * size


def test_rising_lines_are_exact() -> None:
    for op in ("Gelu", "Softplus", "Mish", "Elu", "Swish"):
        compiled = covey.compile(model(op), input_range=(-FAR, FAR), ring=32, scale=12)
        x = integers(20, 40, 6)
        assert np.array_equal(interpreter.run(compiled, {"x": x})[0], x), op
        x = integers(-40, -20, 6)
        assert np.array_equal(interpreter.run(compiled, {"x": x})[0], np.full(x.shape, -1.0 if op == "Elu" else 0.0))


def test_selu_is_its_factor_of_elu() -> None:
    compiled = covey.compile(model("Selu"), input_range=(-20, 20), ring=32, scale=12)
    op = compiled.graph.nodes[0].op
    assert isinstance(op, Scalar)
    x = integers(-20, 20)
    # The factor 1.0507 is rounded as every constant is.
    assert (errors(compiled, op.function, x) <= BAR + 2.0**-13 * np.abs(x)).all()


@pytest.mark.parametrize(
    ("name", "segments", "error"),
    # What tools/tables/err.py of the design gives for as many segments.
    [("Sigmoid", 128, 2.7e-4), ("Gelu", 128, 3.5e-4), ("Tanh", 128, 4.3e-4), ("Erf", 128, 3.8e-4)],
)
def test_as_few_segments_as_the_design_says(name: str, segments: int, error: float) -> None:
    (table,) = covey.compile(model(name), input_range=(-FAR, FAR), ring=32, scale=12).report["tables"]
    assert table["segments"] == segments
    assert table["error"] <= error


@pytest.mark.parametrize(
    ("function", "low", "high", "bits"), [(functions.RECIPROCAL, 1.0, 2.0, 6), (functions.RSQRT, 1.0, 4.0, 7)]
)
@pytest.mark.parametrize("scale", [12, 14])
def test_normalised_domains_keep_a_relative_error(
    function: Function, low: float, high: float, bits: int, scale: int
) -> None:
    ends = (round(low * 2**scale), round(high * 2**scale) - 1)
    drawing = draw(Wanted(function, *ends, scale, 14, 1.5e-4, 30, relative=True))
    assert drawing is not None and drawing.exhaustive
    assert drawing.table.index_bits <= bits
    x = np.arange(ends[0], ends[1] + 1)
    due = function(x / 2.0**scale)
    found = np.abs(drawing.table(x) / 2.0**14 - due) / due
    assert found.max() == pytest.approx(drawing.error)
    assert drawing.error <= 1.5e-4


def test_a_proved_range_needs_no_comparison() -> None:
    assert kinds(covey.compile(model("Gelu"), input_range=(-3, 3))) == ["table"]
    assert kinds(covey.compile(model("Gelu"), input_range=(-FAR, FAR))) == ["clip", "clip", "table", "add"]
    assert kinds(covey.compile(model("Gelu"), input_range=(-1, FAR))) == ["clip", "table", "add"]
    assert kinds(covey.compile(model("Sigmoid"), input_range=(-FAR, FAR))) == ["clip", "table"]
    assert kinds(covey.compile(model("Exp"), input_range=(-FAR, 0))) == ["clip", "table"]


@pytest.mark.parametrize("name", ["Sigmoid", "Erf", "Gelu", "Swish", "Softplus", "Elu"])
def test_flat_lines_begin_within_the_domain(name: str) -> None:
    drawing = draw(Wanted(BOUNDED[name][2], -(1 << 19), (1 << 19) - 1, 12, 12, BAR, 29))
    assert drawing is not None
    with_line = drawing.table.plus(drawing.factor)
    assert with_line.slopes[0] == 0
    # On the other side the line rises where the input is added.
    assert drawing.factor != 0 or with_line.slopes[-1] == 0


def test_a_calibrated_range_is_clipped() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"]),
        helper.make_node("Relu", ["product"], ["relu"]),
        helper.make_node("Mul", ["relu", "small"], ["scaled"]),
        helper.make_node("Sigmoid", ["scaled"], ["y"], name="curve"),
    ]
    proto = builders.model(nodes, {"x": ["N", 1]}, ["y"], {"w": np.ones((1, 1)), "small": np.array([0.05])})
    # The product of the whole range does not fit 24 bits at this scale, so its bound is four times what the data show.
    options = {"calibration": {"x": np.full((8, 1), 0.8)}, "ring": 24, "scale": 10, "max_error": 1}
    compiled = covey.compile(proto, input_range=(-20, 20), **options)
    bounds = {row["computes"]: row["bound"] for row in compiled.report["nodes"] if row["node"] == "curve"}
    assert bounds == {"Clip": "proved", "Table": "proved"}


@pytest.mark.parametrize("op", ["Exp", "Log", "Sqrt", "Reciprocal"])
def test_calibration_data_stand_in_for_a_range_that_is_too_wide(op: str) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"]),
        helper.make_node(op, ["product"], ["y"], name="the_node"),
    ]
    proto = builders.model(nodes, {"x": ["N", 8]}, ["y"], {"w": np.full((8, 3), 0.25)})
    x = np.random.default_rng(0).uniform(0.5, 1.5, (40, 8))
    with pytest.raises(covey.CoveyError, match=r"node 'the_node' .*give calibration data"):
        covey.compile(proto, input_range=(-29, 29))
    compiled = covey.compile(proto, calibration=x, input_range=(-29, 29), max_error=0.5)
    (y,) = interpreter.run(compiled, {"x": x})
    np.testing.assert_allclose(y, builders.float_results(proto, {"x": x})[0], rtol=2e-3, atol=2e-3)
    # Beyond the data's range the function stays what it is at its end.
    (low, high) = (interpreter.run(compiled, {"x": np.full((1, 8), end)})[0] for end in (-29.0, 29.0))
    (table,) = compiled.report["tables"]
    assert "clipped" in table["above"]
    assert np.isfinite(low).all() and np.isfinite(high).all()


@pytest.mark.parametrize(
    ("op", "low", "high", "saying"),
    [
        ("Log", -1.0, 1.0, r"'the_node' \(Log\): its input may be anything from -1 to 1, where Log needs .* above 0"),
        ("Sqrt", -1.0, 1.0, r"needs numbers at least 0; give calibration data \(--calibration data.npy\)"),
        ("Asin", -2.0, 1.0, r"needs numbers at least -1 and at most 1"),
        ("Exp", -1.0, 40.0, r"\(Exp\): its input may be anything from -1 to 40: no table of 4096 segments is within"),
        ("Reciprocal", -0.001, 8.0, r"where Reciprocal needs numbers above 0; .* or put a Clip before it"),
        ("Tan", -1.57, 1.0, r"no table of 4096 segments .* or put a Clip before it"),
    ],
)
def test_ranges_that_no_table_holds_are_refused(op: str, low: float, high: float, saying: str) -> None:
    with pytest.raises(covey.UnsupportedError, match=saying):
        covey.compile(model(op), input_range=(low, high))


@pytest.mark.parametrize("exponent", [0.5, -0.5, -1.0, 1.5, 5.0, -2.0])
def test_powers(exponent: float) -> None:
    low = 0.5
    proto = builders.single("Pow", ["N", 64], {"e": np.array(exponent)})
    compiled = covey.compile(proto, input_range=(low, 2.0), ring=32, scale=12)
    (table,) = compiled.report["tables"]
    x = integers(low, 2.0)
    (y,) = interpreter.run(compiled, {"x": x})
    assert np.abs(y - x**exponent).max() <= table["error"] <= BAR * max(1.0, low**exponent, 2.0**exponent)


def test_division_by_positive_numbers() -> None:
    nodes = [
        helper.make_node("Add", ["x", "three"], ["d"]),
        helper.make_node("Div", ["x", "d"], ["q"], name="quotient"),
        helper.make_node("Div", ["one", "d"], ["r"], name="inverse"),
        helper.make_node("Add", ["q", "r"], ["y"]),
    ]
    constants = {"three": np.array(3.0), "one": np.array(1.0)}
    proto = builders.model(nodes, {"x": ["N", 4]}, ["y"], constants)
    x = image(20, 4)
    (y,) = interpreter.run(covey.compile(proto, input_range=(-1, 1)), x)
    np.testing.assert_allclose(y, builders.float_results(proto, x)[0], atol=2e-3)


@pytest.mark.parametrize("scale", [8, 10, 16, 20])
@pytest.mark.parametrize("case", ["Sigmoid", "Gelu", "Elu"])
def test_other_scales(case: str, scale: int) -> None:
    op, attributes, function = BOUNDED[case]
    ready = prepare(model(op, **attributes), input_range=(-20, 20))
    compiled = ready.compiled(Settings(64 if scale > 12 else 32, scale), (64 if scale > 12 else 32,), scale)
    (table,) = compiled.report["tables"]
    x = np.rint(np.random.default_rng(0).uniform(-20, 20, (2000, 64)) * 2.0**scale) / 2.0**scale
    assert errors(compiled, function, x).max() <= table["error"] <= max(BAR, 0.75 * 2.0**-scale)


@pytest.mark.parametrize("error", [1e-4, 1e-5])
def test_a_finer_table_is_drawn_where_it_is_wanted(error: float) -> None:
    ready = prepare(model("Sigmoid"), input_range=(-20, 20))
    compiled = ready.compiled(Settings(64, 20, table_error=error), (64,), 20)
    (table,) = compiled.report["tables"]
    x = np.rint(np.random.default_rng(0).uniform(-20, 20, (2000, 64)) * 2.0**20) / 2.0**20
    assert errors(compiled, functions.SIGMOID, x).max() <= table["error"] <= error


@pytest.mark.parametrize("seed", range(8))
def test_the_interval_of_a_table_is_its_extremes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count, step = int(rng.integers(2, 40)), int(rng.integers(0, 5))
    values, slopes = rng.integers(-5000, 5000, count), rng.integers(-300, 300, count)
    table = IntegerTable(int(rng.integers(-90, 90)), step, values, slopes, int(rng.integers(0, 6)))
    x = rng.integers(table.low, table.end, (2, 50))
    low, high = x.min(axis=0), x.max(axis=0)
    found = table.interval(Interval(low.astype(float), high.astype(float)))
    for a, b, least, most in zip(low, high, found.low, found.high, strict=True):
        y = table(np.arange(a, b + 1))
        assert (y.min(), y.max()) == (least, most)
    assert IntegerTable.of(table.message()).message() == table.message()
    assert np.array_equal(table.plus(3)(x), table(x) + 3 * x)


def test_drawing_takes_milliseconds() -> None:
    wanted = Wanted(functions.GELU, -(2**20), 2**20, 12, 12, BAR, 30)
    assert draw(wanted) is draw(wanted)
    assert math.isclose(functions.ERF(np.array([0.7]))[0], math.erf(0.7), rel_tol=1e-15)


def test_the_report_tells_domain_error_and_what_holds_beyond() -> None:
    report = covey.compile(model("Gelu"), input_range=(-FAR, FAR)).report
    (table,) = report["tables"]
    assert (table["low"], table["high"], table["below"], table["above"]) == (-4.0, 4.0, "the line 0", "the line x")
    from test_measure import text_of

    text = text_of(covey.compile(model("Gelu"), input_range=(-FAR, FAR)))
    assert "table the_node: Gelu by 128 segments on [-4, 4), off by at most 0.00035; below the line 0" in text


def written_out(name: str) -> onnx.ModelProto:
    """A function by other operators, as exporters write it."""
    constants = {
        "half": np.array(0.5),
        "one": np.array(1.0),
        "root": np.array(math.sqrt(2.0)),
        "cubic": np.array(0.044715),
        "three": np.array(3.0),
        "inner": np.array(math.sqrt(2.0 / math.pi)),
        "alpha": np.array(1.702),
    }
    steps = {
        "Gelu": "Div h root d; Erf d e; Add e one a; Mul h a m; Mul m half y",
        "Gelu, halved first": "Mul h half b; Div h root d; Erf d e; Add e one a; Mul b a y",
        "Gelu, by tanh": "Pow h three p; Mul p cubic q; Add h q r; Mul r inner s; Tanh s t; Add t one a; Mul h half b; "
        "Mul b a y",
        "Swish(1)": "Sigmoid h s; Mul h s y",
        "Swish(1.702)": "Mul h alpha a; Sigmoid a s; Mul s h y",
        "Softplus": "Exp h e; Add e one a; Log a y",
        "Mish": "Softplus h s; Tanh s t; Mul h t y",
        "Sigmoid": "Neg h n; Exp n e; Add one e a; Div one a y",
        "Softsign": "Abs h b; Add b one a; Div h a y",
    }[name]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"])]
    for step in steps.split("; "):
        op, *operands, result = step.split()
        nodes.append(helper.make_node(op, operands, [result], name=f"{op} {result}"))
    used = {operand for node in nodes for operand in node.input}
    constants = {key: value for key, value in constants.items() if key in used}
    return builders.model(nodes, {"x": ["N", 4]}, ["y"], constants | {"w": np.eye(4)})


@pytest.mark.parametrize(
    "name",
    [
        "Gelu",
        "Gelu, halved first",
        "Gelu, by tanh",
        "Swish(1)",
        "Swish(1.702)",
        "Softplus",
        "Mish",
        "Sigmoid",
        "Softsign",
    ],
)
def test_functions_that_are_written_out_are_one_table(name: str) -> None:
    x = {"x": np.random.default_rng(0).uniform(-6, 6, (50, 4))}
    compiled = covey.compile(written_out(name), input_range=(-6, 6))
    (table,) = compiled.report["tables"]
    assert table["function"] == name.replace(", halved first", "")
    assert kinds(compiled)[:2] == ["dense", "truncate"] and set(kinds(compiled)[2:]) <= {"clip", "table", "add"}
    (y,) = interpreter.run(compiled, x)
    np.testing.assert_allclose(y, builders.float_results(written_out(name), x)[0], atol=2e-3)


def test_what_others_read_stays() -> None:
    proto = written_out("Gelu")
    proto.graph.output.add().CopyFrom(helper.make_tensor_value_info("e", onnx.TensorProto.FLOAT, ["N", 4]))
    compiled = covey.compile(proto, input_range=(-6, 6))
    assert [table["function"] for table in compiled.report["tables"]] == ["Erf"]


def test_thresholded_relu_takes_one_comparison() -> None:
    compiled = covey.compile(model("ThresholdedRelu", alpha=0.5), input_range=(-4, 4))
    x = integers(-4, 4, 6)
    assert np.array_equal(interpreter.run(compiled, {"x": x})[0], np.where(x > 0.5, x, 0.0))
    assert kinds(compiled).count("less_than_zero") == 1
