"""Convolutions in Winograd's form: exact transforms, the same results, which are chosen, and what they save."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

import builders
import covey
import interpreter
from agreement import agree, image
from command import Command
from covey import _core
from covey.errors import CoveyError, DoesNotFitError, OptionError
from covey.ops.winograd import Tile, TiledOutput, TileProducts, TransformedInput
from covey.passes.winograd import TILES, best_tile, multiplications, written
from rewriting import ops

EVERY_TILE = [tile for tiles in TILES.values() for tile in tiles]
FORM = ["TransformedInput", "TileProducts", "TiledOutput"]


def fractions(rng: np.random.Generator, *shape: int) -> np.ndarray:
    numbers = [Fraction(int(a), int(b)) for a, b in rng.integers(1, 50, (int(np.prod(shape)), 2))]
    return np.array(numbers, dtype=object).reshape(shape)


@pytest.mark.parametrize("tile", EVERY_TILE, ids=str)
def test_transforms_are_exact(tile: Tile) -> None:
    rng = np.random.default_rng(tile.outputs)
    above, taps, below = (np.array(matrix, dtype=object) for matrix in tile.matrices)
    inputs, weight = fractions(rng, tile.size, tile.size), fractions(rng, tile.taps, tile.taps)
    found = above @ ((taps @ weight @ taps.T) * (below @ inputs @ below.T)) @ above.T
    for row in range(tile.outputs):
        for column in range(tile.outputs):
            window = inputs[row : row + tile.taps, column : column + tile.taps]
            assert found[row, column] == (window * weight).sum()


@pytest.mark.parametrize("tile", EVERY_TILE, ids=str)
def test_transforms_of_what_is_shared_are_whole(tile: Tile) -> None:
    for matrix in (tile.output_matrix, tile.input_matrix):
        assert (matrix == np.rint(matrix)).all()
        assert np.abs(matrix).max() <= 64


def test_products_are_as_many_as_in_the_literature() -> None:
    """320 x 320 under 3 x 3 taps (appendix of the efficient models paper): plain, one tile for all, tiles of 6 x 6."""
    outputs = (318, 318)
    assert multiplications(outputs, 3, 1) == 910_116
    assert multiplications(outputs, 3, 318) == 102_400
    assert multiplications(outputs, 3, 4) == 230_400


def test_the_tile_is_the_one_with_the_fewest_products() -> None:
    assert best_tile((56, 56), 3) == Tile(4, 3)
    assert best_tile((2, 2), 3) == Tile(2, 3)
    assert best_tile((5, 6), 3) == Tile(2, 3)  # 144 by either
    assert best_tile((14, 14), 5) == Tile(2, 5)
    assert best_tile((1, 1), 3) is None


def convolution(shape: tuple[int, int, int], taps: int, outputs: int, groups: int, pads: list[int]) -> onnx.ModelProto:
    rng = np.random.default_rng(sum(shape) + taps)
    constants = {
        "w": rng.normal(size=(outputs * groups, shape[0], taps, taps)) * 0.2,
        "b": rng.normal(size=outputs * groups),
    }
    return builders.single("Conv", ["N", shape[0] * groups, *shape[1:]], constants, group=groups, pads=pads)


@given(
    st.tuples(st.integers(1, 3), st.integers(5, 11), st.integers(5, 11)),
    st.sampled_from([3, 5]),
    st.integers(1, 3),
    st.integers(1, 2),
    st.lists(st.integers(0, 3), min_size=4, max_size=4),
)
@settings(max_examples=25, deadline=None)
def test_any_size_and_padding(
    shape: tuple[int, int, int], taps: int, outputs: int, groups: int, pads: list[int]
) -> None:
    """The network in floating point, the program on integers, and onnxruntime."""
    proto = convolution(shape, taps, outputs, groups, pads)
    if (
        multiplications((shape[1] + pads[0] + pads[2] - taps + 1, shape[2] + pads[1] + pads[3] - taps + 1), taps, 1)
        < 64
    ):
        pads = [pad + 2 for pad in pads]
        proto = convolution(shape, taps, outputs, groups, pads)
    data = image(2, shape[0] * groups, *shape[1:])
    compiled = agree(proto, data, winograd="all", ring=64, tolerance=0.002)
    assert ops(compiled.graph) == FORM
    expected = builders.float_results(proto, data)
    np.testing.assert_allclose(covey.reference.outputs(compiled.graph, data), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("taps", [3, 5])
def test_a_weight_without_rounding_gives_the_integers_of_a_plain_convolution(taps: int) -> None:
    """Multiples of 24² have whole transforms."""
    scale = 12
    rng = np.random.default_rng(0)
    weight = rng.integers(-3, 4, (4, 3, taps, taps)) * 576 / 2.0**scale
    constants = {"w": weight, "b": rng.integers(-99, 99, 4) / 2.0**scale}
    proto = builders.single("Conv", ["N", 3, 9, 7], constants, pads=[1, 2, 0, 1])
    data = image(2, 3, 9, 7)
    results = [
        interpreter.run(covey.compile(proto, input_range=(-1, 1), ring=64, scale=scale, winograd=which), data)[0]
        for which in ("off", "all")
    ]
    np.testing.assert_array_equal(*results)


def test_bounds_hold_where_inputs_are_as_large_as_they_may_be() -> None:
    """And are as tight as those of a plain convolution, but for a bit. The interpreter checks every value."""
    rng = np.random.default_rng(3)
    weight = rng.normal(size=(1, 2, 3, 3))
    proto = builders.single("Conv", ["N", 2, 12, 12], {"w": weight})
    plain, tiled = (covey.compile(proto, input_range=(-1, 1), ring=64, winograd=which) for which in ("off", "all"))
    bits = [compiled.rows()[-1]["bits"] for compiled in (plain, tiled)]
    assert bits[0] <= bits[1] <= bits[0] + 1
    signs = np.sign(np.tile(weight[0], (1, 4, 4)))[None]
    for data in (signs, -signs, np.sign(rng.normal(size=(8, 2, 12, 12)))):
        interpreter.run(tiled, {"x": data})


def residual(channels: int = 4, size: int = 9) -> onnx.ModelProto:
    """Convolutions that have the form, one of them added to, and a stride, a kernel of one, a dilation between."""
    rng = np.random.default_rng(7)
    constants: dict[str, np.ndarray] = {
        name: rng.normal(size=(channels, inputs, taps, taps)) / (taps * np.sqrt(inputs))
        for name, inputs, taps in (("w1", 3, 3), ("w2", channels, 3), ("w3", channels, 1), ("w4", channels, 3))
    }
    constants |= {"w5": constants["w4"][:, :, ::-1] * 1.0, "w6": rng.normal(size=(channels, channels, 5, 5)) / 10}
    constants |= {f"b{index}": rng.normal(size=channels) / 4 for index in range(1, 7)}

    def conv(index: int, source: str, **attributes: Any) -> onnx.NodeProto:
        inputs = [source, f"w{index}", f"b{index}"]
        return helper.make_node("Conv", inputs, [f"c{index}"], name=f"conv{index}", **attributes)

    nodes = [
        conv(1, "x", pads=[1] * 4),
        helper.make_node("Relu", ["c1"], ["r1"], name="relu1"),
        conv(2, "r1", pads=[1] * 4),
        conv(3, "r1"),
        helper.make_node("Add", ["c2", "c3"], ["sum"], name="sum"),
        helper.make_node("Relu", ["sum"], ["r2"], name="relu2"),
        conv(4, "r2", strides=[2, 2], pads=[1] * 4),
        helper.make_node("Relu", ["c4"], ["r4"], name="relu4"),
        conv(5, "r4", dilations=[2, 2], pads=[2] * 4),
        helper.make_node("Relu", ["c5"], ["r5"], name="relu5"),
        conv(6, "r5", pads=[2] * 4),
    ]
    return builders.model(nodes, {"x": ["N", 3, size, size]}, ["c6"], constants)


def chosen(compiled: covey.Compiled) -> list[str]:
    """The convolutions in Winograd's form."""
    return written(compiled.graph)


@pytest.fixture(scope="module")
def data() -> np.ndarray:
    return np.random.default_rng(8).uniform(-1, 1, (3, 3, 9, 9))


@pytest.fixture(scope="module")
def compiled(data: np.ndarray) -> covey.Compiled:
    return covey.compile(residual(), calibration=data, ring=64, scale=18, winograd="all")


def test_what_has_no_such_form_is_left_as_it_is(compiled: covey.Compiled) -> None:
    assert chosen(compiled) == ["conv1", "conv2", "conv6"]
    kinds = [type(node.op) for node in compiled.graph.nodes]
    assert [kinds.count(kind) for kind in (TransformedInput, TileProducts, TiledOutput)] == [3, 3, 3]
    assert "1.93 times fewer products" in next(
        entry["how"] for entry in compiled.report["rewrites"] if entry["node"] == "conv6"
    )


def test_names_say_which(data: np.ndarray) -> None:
    def by(patterns: str) -> list[str]:
        return chosen(covey.compile(residual(), calibration=data, ring=64, winograd=patterns))

    assert by("conv2") == ["conv2"]
    assert by("conv[1-5]") == ["conv1", "conv2"]
    assert by("conv6, conv1") == ["conv1", "conv6"]
    assert by("off") == []


@pytest.mark.parametrize("protocol", ["trio", "two-party"])
def test_a_private_run_equals_the_specification(compiled: covey.Compiled, data: np.ndarray, protocol: str) -> None:
    found = covey.verify(
        compiled, protocol, data=data, samples=2, layers=True, linear="ot" if protocol == "two-party" else None
    )
    assert found.passed
    assert found.layers is not None
    by_name = {layer.node: layer for layer in found.layers}
    assert by_name["conv6"].differing == by_name["conv1"].differing == 0
    assert all(layer.relative_error < 1e-3 for layer in found.layers)


def test_the_result_is_near_floating_point_with_and_without(compiled: covey.Compiled, data: np.ndarray) -> None:
    plain = covey.compile(residual(), calibration=data, ring=64, scale=18)
    (expected,) = builders.float_results(residual(), {"x": data})
    for each in (plain, compiled):
        (found,) = interpreter.run(each, {"x": data.astype(np.float32).astype(np.float64)})
        assert np.linalg.norm(found - expected) < 1e-3 * np.linalg.norm(expected)


@pytest.mark.parametrize(("taps", "scale"), [(3, 8), (3, 12), (5, 10)])
def test_rounding_the_weights_makes_no_larger_error(taps: int, scale: int) -> None:
    """Than in a plain convolution, at scales where that error can be seen: the weights have more bits for it."""
    rng = np.random.default_rng(scale)
    constants = {"w": rng.normal(size=(8, 8, taps, taps)) / (taps * np.sqrt(8)), "b": rng.normal(size=8)}
    proto = builders.single("Conv", ["N", 8, 16, 16], constants, pads=[taps // 2] * 4)
    data = {"x": rng.normal(size=(4, 8, 16, 16)).astype(np.float32).astype(np.float64).clip(-4, 4)}
    (expected,) = builders.float_results(proto, data)

    def error(which: str) -> float:
        compiled = covey.compile(proto, input_range=(-4, 4), ring=64, scale=scale, winograd=which)
        return float(np.linalg.norm(interpreter.run(compiled, data)[0] - expected))

    assert error("all") < 1.2 * error("off")


@pytest.mark.parametrize(("scale", "bits"), [(12, 8), (16, 7), (23, 0)])
def test_a_larger_scale_needs_fewer_further_bits(scale: int, bits: int) -> None:
    weight = np.random.default_rng(0).choice([-0.025, 0.025], (4, 4, 3, 3))
    proto = builders.single("Conv", ["N", 4, 8, 8], {"w": weight}, pads=[1] * 4)
    compiled = covey.compile(proto, input_range=(-1, 1), ring=64, scale=scale, winograd="all")
    assert max(row["scale"] for row in compiled.rows()) == 2 * scale + bits


def sent(compiled: covey.Compiled, node: str) -> int:
    """Bytes of a convolution's own steps between two parties, by oblivious transfer."""
    plan = json.loads(_core.plan(_core.Program(compiled.program_bytes), "two-party", linear="ot"))
    return sum(link["bytes"] for row in plan["nodes"] if row["name"] == node for link in row["links"])


def test_a_layer_sends_a_third_by_oblivious_transfer() -> None:
    """3 x 3 taps, 60 bits of which 23 are fractional: 4 times fewer products."""
    proto = convolution((32, 28, 28), 3, 32, 1, [1] * 4)
    plain, tiled = (
        covey.compile(proto, input_range=(-1, 1), ring=60, scale=23, winograd=which) for which in ("off", "auto")
    )
    assert chosen(tiled) == ["the_node"]
    assert sent(plain, "the_node") >= 3 * sent(tiled, "the_node")


def test_what_has_no_room_is_not_chosen(data: np.ndarray) -> None:
    """In 32 bits these tiles would take fractional bits from everything else; in 42 bits one has room, in 48 all."""

    def scale_and_chosen(ring: int, which: str) -> tuple[int, list[str]]:
        compiled = covey.compile(residual(), calibration=data, ring=ring, winograd=which)
        return compiled.report["scale"], chosen(compiled)

    assert scale_and_chosen(32, "auto") == (12, [])
    with pytest.raises(DoesNotFitError, match="or leave it out of --winograd"):
        scale_and_chosen(32, "all")
    assert scale_and_chosen(42, "auto") == (16, ["conv6"])
    assert scale_and_chosen(48, "auto") == (16, ["conv1", "conv2", "conv6"])


def test_other_protocols_send_no_less(compiled: covey.Compiled, data: np.ndarray) -> None:
    plain = covey.compile(residual(), calibration=data, ring=64, scale=18)
    for protocol, options in (("trio", {}), ("two-party", {"linear": "lattice"})):
        before, after = (covey.explain(each, protocol, **options).total.bytes for each in (plain, compiled))
        assert after > before


@pytest.mark.parametrize(
    ("which", "line"),
    [
        ("conv9", "no convolution is called 'conv9'"),
        ("conv1,", "no convolution is called ''"),
        ("conv4", "its strides are [2, 2]"),
        ("conv5", "its dilations are [2, 2]"),
        ("conv3", "its kernel is 1 x 1"),
        (3, "winograd is 3"),
    ],
)
def test_mistakes_are_named(which: Any, line: str) -> None:
    with pytest.raises(OptionError) as caught:
        covey.compile(residual(), input_range=(-1, 1), winograd=which)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_network_without_convolutions_has_nothing_to_choose() -> None:
    proto = builders.single("Gemm", ["N", 4], {"w": np.ones((4, 2))})
    assert chosen(covey.compile(proto, input_range=(-1, 1), winograd="auto")) == []
    with pytest.raises(CoveyError, match="there is none"):
        covey.compile(proto, input_range=(-1, 1), winograd="all")


def test_command_line(command: Command, tmp_path: Path) -> None:
    model = tmp_path / "net.onnx"
    onnx.save(residual(), model)
    done = command("compile", model, "--input-range=-1,1", "--ring", "64", "--winograd", "conv1")
    assert done.code == 0
    assert "Winograd's form" in done.out
    done = command("compile", model, "--input-range=-1,1", "--winograd", "nothing*")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("error: no convolution is called 'nothing*'")
    assert len(done.err.splitlines()) == 1
