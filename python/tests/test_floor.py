"""Whole parts and remainders against NumPy and PyTorch: fractions of a power of two are exact in fixed point."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import helper

import builders
import covey
from covey.clear import run_clear
from covey.model import load

RNG = np.random.default_rng(0)
X = np.concatenate([RNG.integers(-72, 72, (300, 8)) / 8, np.arange(-40, 40).reshape(10, 8) / 2]).astype(np.float32)
"""Eighths, and all halves, which lie between two whole numbers."""


def computed(model: Any, x: npt.NDArray[Any] = X, **options: Any) -> npt.NDArray[Any]:
    """What the program gives, in the clear."""
    program = covey.compile(model, calibration=x, **options)
    (y,) = run_clear(load(program), x).outputs.values()
    return np.asarray(y)


def one_node(op: str, divisor: float | None = None, **attributes: Any) -> onnx.ModelProto:
    """One operator, with a divisor or without."""
    names = ["x"] if divisor is None else ["x", "divisor"]
    constants = {} if divisor is None else {"divisor": np.array(divisor)}
    return builders.model([helper.make_node(op, names, ["y"], **attributes)], {"x": ["N", 8]}, ["y"], constants)


@pytest.mark.parametrize(("op", "function"), [("Floor", np.floor), ("Ceil", np.ceil), ("Round", np.rint)])
def test_whole_parts(op: str, function: Callable[..., Any]) -> None:
    np.testing.assert_array_equal(computed(one_node(op)), function(X))


@pytest.mark.parametrize("division", ["mul-shift", "exact"])
@pytest.mark.parametrize("ring", [32, 64])
def test_a_mean_of_whole_numbers_is_none(ring: int, division: str) -> None:
    nodes = [
        helper.make_node("Floor", ["x"], ["whole"]),
        helper.make_node("ReduceMean", ["whole"], ["y"], axes=[1], keepdims=0),
    ]
    model = builders.model(nodes, {"x": ["N", 8]}, ["y"])
    got = computed(model, ring=ring, division=division)
    np.testing.assert_allclose(got, np.floor(X).mean(1), atol=1e-2)


def test_halves_go_to_the_even_number_with_any_rounding() -> None:
    halves = np.arange(-8, 8).reshape(2, 8) / 2
    for truncation in ("exact", "ulp", "probabilistic"):
        rounded = computed(one_node("Round"), halves.astype(np.float32), truncation=truncation)
        np.testing.assert_array_equal(rounded, np.rint(halves))


@pytest.mark.parametrize("divisor", [1.0, 3.0, 0.25, 4.0, 1.5, 6.125, 40.0, -3.0, -0.5])
def test_remainders(divisor: float) -> None:
    np.testing.assert_array_equal(computed(one_node("Mod", divisor)), np.remainder(X, divisor))
    np.testing.assert_array_equal(computed(one_node("Mod", divisor, fmod=1)), np.fmod(X, divisor))


def test_remainders_of_every_number_and_divisor() -> None:
    """A small ring's numbers, divided by every number of units: the reciprocal is one too low for some of each."""
    x = (np.arange(-256, 256) / 16).astype(np.float32).reshape(-1, 8)
    for units in range(1, 64):
        remainder = computed(one_node("Mod", units / 16), x, scale=4, ring="32")
        np.testing.assert_array_equal(remainder, np.remainder(x, units / 16), err_msg=f"{units} / 16")


def test_bounds_are_kept() -> None:
    """What is behind a remainder knows that it is below the divisor."""
    nodes = [helper.make_node("Mod", ["x", "d"], ["r"]), helper.make_node("Sqrt", ["r"], ["y"])]
    model = builders.model(nodes, {"x": ["N", 8]}, ["y"], {"d": np.array(2.0)})
    assert np.abs(computed(model) - np.sqrt(np.remainder(X, 2.0))).max() < 0.02


def test_refusals() -> None:
    for divisor in (0.0, np.inf, np.nan):
        with pytest.raises(covey.UnsupportedError, match="divide by another number"):
            computed(one_node("Mod", divisor))
    with pytest.raises(covey.CoveyError, match="is 0 at scale"):
        computed(one_node("Mod", 1e-9))
    nodes = [helper.make_node("Mod", ["x", "x"], ["y"], fmod=1)]
    with pytest.raises(covey.UnsupportedError, match="divisor must be a constant"):
        computed(builders.model(nodes, {"x": ["N", 8]}, ["y"]))


def test_modules() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    functions: dict[str, Callable[[Any], Any]] = {
        "floor": torch.floor,
        "ceil": torch.ceil,
        "round": torch.round,
        "trunc": torch.trunc,
        "frac": torch.frac,
        "remainder": lambda x: x % 3,
        "remainder of a tensor": lambda x: torch.remainder(x, torch.tensor(-2.5)),
        "fmod": lambda x: torch.fmod(x, -1.5),
        "floor_divide": lambda x: x // 3,
        "negative": lambda x: x // -0.5,
        "towards zero": lambda x: torch.div(x, -0.75, rounding_mode="trunc"),
        "towards zero by a tensor": lambda x: torch.div(x, torch.tensor(3.0), rounding_mode="trunc"),
        "downwards": lambda x: torch.div(x, 1.25, rounding_mode="floor"),
        "no rounding": lambda x: torch.div(x, 4.0, rounding_mode=None),
        "one decimal": lambda x: torch.round(x, decimals=1),
    }

    class All(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return torch.cat([function(x) for function in functions.values()], dim=1)

    x = torch.tensor(X)
    program = covey.compile(All().eval(), x, calibration=X)
    (y,) = run_clear(load(program), X).outputs.values()
    for index, (name, function) in enumerate(functions.items()):
        part = np.asarray(y)[:, index * 8 : (index + 1) * 8]
        tolerance = 0.005 if name == "one decimal" else 0
        np.testing.assert_allclose(part, function(x).numpy(), atol=tolerance, rtol=0, err_msg=name)


WHOLE: dict[str, Callable[[Any], Any]] = {
    "remainder": lambda i: i % 3,
    "floor": lambda i: (i - 4) // 3,
    "towards zero": lambda i: torch_div(i - 4, -3),
    "of places": lambda i: (i * 1.0).argmax(1, keepdim=True) % 2,
    "half a place": lambda i: ((i * 1.0).argmax(1) / 2)[:, None],
    "products so far": lambda i: i[:, :2].cumprod(1),
    "the most so far": lambda i: i.cummax(1)[0],
    "sums so far": lambda i: i.cumsum(1),
    "a sum": lambda i: i.int().sum(1, keepdim=True),
    "the most and the least": lambda i: i.amax(1, keepdim=True) + i.min(1, keepdim=True)[0],
    "added at places": lambda i: i.scatter_add(1, torch_row(0, 2, 0, 0).expand(len(i), -1), i),
    "added to rows": lambda i: i.index_add(1, torch_row(3, 1), i[:, 1:3], alpha=2),
    "put at places": lambda i: torch_put(i.clone(), [2, 0], i[:, :2]),
    "what is 0": lambda i: i.logical_not(),
    "one of both": lambda i: i.logical_xor(torch_row(2, 0, 1, 0)),
    "above 4, or not": lambda i: (i > 4) != torch_row(0, 1, 1, 0),
    "an input in few bits": lambda i: i.char() * 9 + i.short(),
    "bytes of truths": lambda i: (i > 4).byte() * 2 + (i > 6).byte(),
    "clamped bytes": lambda i: (i * 50.5).clamp(0, 255).byte()[:, 1:].float(),
    "clamped to 8 bits": lambda i: ((i - 4) * 10.5).clamp(-30, 42).char() * 2,
}


def torch_row(*places: int) -> Any:
    import torch

    return torch.tensor(places)


def torch_put(x: Any, places: list[int], values: Any) -> Any:
    x[:, places] = values
    return x


def torch_div(x: Any, divisor: int) -> Any:
    return x.div(divisor, rounding_mode="trunc")


def test_whole_numbers_of_modules() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

    class All(torch.nn.Module):  # type: ignore[misc]
        def forward(self, i: Any) -> Any:
            return torch.cat([function(i).float() for function in WHOLE.values()], dim=1)

    i = torch.tensor(np.random.default_rng(0).integers(0, 9, (40, 4)))
    program = load(covey.compile(All().eval(), i, calibration=i.numpy()))
    (y,) = run_clear(program, i.numpy()).outputs.values()
    np.testing.assert_array_equal(y, All()(i).numpy())


WRAPPED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "bytes": (lambda x: (x * 500).byte().float(), "and uint8 wraps around; put a clamp to 0..255 before it"),
    "a sum of bytes": (lambda x: (x.clamp(0, 255).byte() + 250).float(), "may lie from 250 to 2"),
    "places": (lambda x: x.repeat(1, 50).argmax(1).byte() * 1.0, "uint8 may not hold its whole numbers"),
    "32 bits": (lambda x: (x * 1e5).int() * 100000 * 1e-6, "int32 wraps around"),
}


@pytest.mark.parametrize("case", WRAPPED)
def test_numbers_that_a_type_wraps_around_are_refused(case: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    function, saying = WRAPPED[case]

    class One(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return function(x)

    with pytest.raises(covey.CoveyError, match=saying):
        covey.compile(One().eval(), torch.tensor(X[:4]), calibration=X)


def test_an_input_that_a_type_may_not_hold() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

    class One(torch.nn.Module):  # type: ignore[misc]
        def forward(self, i: Any) -> Any:
            return i.byte() / 2

    i = torch.arange(300).reshape(100, 3)
    assert covey.compile(One().eval(), i, input_range=(0, 255))
    with pytest.raises(covey.CoveyError, match=r"may lie from 0 to 299, and uint8 wraps.*a clamp to 0\.\.255"):
        covey.compile(One().eval(), i, input_range=(0, 299))


def narrow(kind: int, divisor: float) -> onnx.ModelProto:
    """Real numbers, less some, in a type of few whole numbers, times 100."""
    nodes = [
        helper.make_node("Div", ["x", "divisor"], ["q"]),
        helper.make_node("Cast", ["q"], ["i"], name="to", to=kind),
        helper.make_node("Mul", ["i", "hundred"], ["h"], name="times"),
        helper.make_node("Cast", ["h"], ["y"], to=onnx.TensorProto.FLOAT),
    ]
    hundred = np.array(100, onnx.helper.tensor_dtype_to_np_dtype(kind))
    return builders.model(nodes, {"x": ["N", 8]}, ["y"], {"divisor": np.array(divisor), "hundred": hundred})


def test_narrow_types_of_onnx() -> None:
    """Nothing wraps around: what may is refused by the node's name."""
    model = narrow(onnx.TensorProto.INT32, 0.5)
    np.testing.assert_array_equal(computed(model), builders.float_results(model, {"x": X})[0])
    with pytest.raises(covey.CoveyError, match=r"'to' \(Cast\): .* from 0 to .*, and uint8 wraps.*clamp to 0\.\.255"):
        covey.compile(narrow(onnx.TensorProto.UINT8, 1.0), input_range=(0, 300))
    with pytest.raises(covey.CoveyError, match=r"'times' \(Mul\): .* may lie from -900 to 900, and int8 wraps around"):
        covey.compile(narrow(onnx.TensorProto.INT8, 1.0), input_range=(-9, 9))
    with pytest.raises(covey.CoveyError, match=r"'times' \(Mul\): .* and int32 wraps around"):
        covey.compile(narrow(onnx.TensorProto.INT32, 1e-7), input_range=(-9, 9))


def test_an_input_that_is_cast_to_32_bits() -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["i"], to=onnx.TensorProto.INT32),
        helper.make_node("Mod", ["i", "three"], ["m"]),
        helper.make_node("Cast", ["m"], ["y"], to=onnx.TensorProto.FLOAT),
    ]
    constants = {"three": np.array(3, np.int32)}
    model = builders.model(nodes, {"x": ["N", 8]}, ["y"], constants, types={"x": onnx.TensorProto.INT64})
    assert covey.compile(model, input_range=(0, 2**20), ring="64")
    with pytest.raises(covey.OptionError, match="may be from 0 to 4294967296, and the model takes it as int32"):
        covey.compile(model, input_range=(0, 2**32), ring="64")


def test_remainders_behind_a_cast_to_whole_numbers() -> None:
    nodes = [helper.make_node("ArgMax", ["x"], ["c"], axis=1), helper.make_node("Mod", ["c", "three"], ["m"])]
    nodes.append(helper.make_node("Cast", ["m"], ["y"], to=onnx.TensorProto.FLOAT))
    model = builders.model(nodes, {"x": ["N", 8]}, ["y"], {"three": np.array(3)})
    np.testing.assert_array_equal(computed(model), X.argmax(1, keepdims=True) % 3)
