"""Benchmarks: what they measure is what was run, on small programs and the smallest model of the zoo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

from command import Command
from covey import _core, models
from covey.bench import (
    cache,
    gains,
    gallery,
    kernels,
    linear_ways,
    one_network,
    papers,
    plaintext,
    primitives,
)
from covey.bench.cells import Cell, Preset
from covey.bench.networks import NETWORKS, network
from covey.bench.primitives import MEGA, PRIMITIVES, Primitive
from covey.bench.runs import session_options
from covey.bench.statistics import Summary
from covey.clear import run_clear
from covey.cli.bench_tables import primitives_table
from covey.client import Progress
from covey.errors import CoveyError, OptionError
from covey.model import Model
from covey.parties import Parties
from covey.result import Result

LINUX = sys.platform == "linux"


def silent(done: int, total: int, what: str) -> None:
    del done, total, what


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that the tests of this file share."""
    return tmp_path_factory.mktemp("bench")


def test_summaries() -> None:
    summary = Summary.of([3.0, 1.0, 2.0])
    assert (summary.median, summary.least, summary.most, summary.spread) == (2.0, 1.0, 3.0, 1.0)


def test_networks() -> None:
    assert network("loopback").options == {}
    assert network("loopback").use(10**9, 1.0) is None
    assert network("wan").options == {"latency_ms": 35.0, "bandwidth_mbit": 1000}
    assert network("wan").session == {"latency_us": 35_000, "bandwidth": 10**9}
    assert network("loopback").session == {}
    assert network("1g").use(10**9 // 8, 2.0) == pytest.approx(0.5)
    with pytest.raises(OptionError, match=", ".join(NETWORKS)):
        network("dial-up")


def test_options_that_sessions_have_not_are_refused() -> None:
    assert session_options({"adder": "ripple", "tile": None}) == {"adder": "ripple"}
    with pytest.raises(OptionError, match="--far-too-clever"):
        session_options({"far_too_clever": 1})


SMALL = [
    Primitive("multiplication", 2000, 2000, primitives._products(2, 1000)),
    *(Primitive(f"relu {k}", 1000, 0, primitives.relu(1000, k)) for k in (None, 24)),
    *(Primitive(f"layer {k}", 4 * 64, 4 * 4 * 64, primitives._linear(4, 8, k)) for k in (None, 20)),
    Primitive("matmul", 3 * 16 * 16, 3 * 16**3, primitives._matmul(3, 16)),
    Primitive("conv", 2 * 4 * 64, 2 * 4 * 4 * 9 * 64, primitives.conv(4, 8, 3, 2)),
    Primitive("maxpool", 4 * 16, 0, primitives._max_pool(4, 8)),
]


def test_primitives_of_a_protocol_that_checks() -> None:
    (row,) = primitives.measure(
        SMALL[:1],
        protocol="quad",
        ring=32,
        network=network("loopback"),
        options={},
        repetitions=1,
        warm_up=0,
        progress=silent,
        threads=2,
    )
    assert row.differing == 0 and row.as_planned
    assert row.bits == 5 * 32
    assert row.check_wall is not None and row.check_wall.median > 0
    assert row.to_json()["check_wall"]["median"] == row.check_wall.median
    assert "check" in [column.header for column in primitives_table([row]).columns]


@pytest.mark.parametrize("ring", [32, 64])
def test_primitives(ring: int) -> None:
    rows = primitives.measure(
        SMALL,
        protocol="trio",
        ring=ring,
        network=network("loopback"),
        options={},
        repetitions=1,
        warm_up=0,
        progress=silent,
    )
    assert [row.name for row in rows] == [primitive.name for primitive in SMALL]
    bits = {row.name: row.bits for row in rows}
    for row in rows:
        assert row.differing == 0, row
        assert row.as_planned, row
        assert row.rounds > 0 and row.wall.median > 0
        assert row.check_wall is None
        assert all(seconds is not None for seconds in row.cpu_seconds) or not LINUX
    # A deal and an exchange of one ring element each way.
    assert bits["multiplication"] == bits["matmul"] == bits["conv"] == 3 * ring
    assert bits["relu 24"] < bits["relu None"]
    assert bits["layer 20"] < bits["layer None"]


def test_every_listed_primitive_is_as_large_as_it_says() -> None:
    """Without running them: the result of the program has the elements that figures are divided by."""
    for primitive in primitives.select(["relu", "layer", "maxpool", "conv"]):
        case = primitive.build(32)
        (output,) = case.model.program.outputs
        assert case.samples * int(np.prod(output["shape"])) == primitive.elements, primitive.name
    assert {primitive.elements for primitive in PRIMITIVES if "2^20" in primitive.name} == {MEGA, MEGA // 4}
    with pytest.raises(OptionError, match="multiplication"):
        primitives.select(["logarithm"])


def test_the_figures_of_a_paper(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    assert papers.activations("minionn") == [65536] * 2 + [16384] * 2 + [4096] * 2 + [1024]
    assert len(papers.activations("resnet32")) == 31
    monkeypatch.setattr(papers, "activations", lambda *_: [100, 200, 100])
    (cell, _) = papers.PRESETS["cryptflow2-table6"].measure(1, silent)
    assert (cell.planned, cell.seconds > 0, "0.32 s" in cell.paper) == (False, True, True)
    monkeypatch.setattr(papers, "LONGEST", 0.0)
    monkeypatch.setattr(one_network, "LONGEST", 0.0)
    (planned, _) = papers.PRESETS["cryptflow2-table6"].measure(1, silent)
    assert planned.planned
    assert (planned.rounds, round(planned.bytes)) == (cell.rounds, round(cell.bytes))
    networks = [cell for cell in papers.PRESETS["cryptflow2-table5"].measure(1, silent) if cell.what.endswith("auto")]
    assert [cell.planned for cell in networks] == [True, True] and all(cell.bytes > 1e6 for cell in networks)
    command.refuses("bench", "paper", "cryptflow3", saying="cryptflow2-figure1")


def test_an_interrupted_table_shows_what_it_has(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Cell("first", "Z_2^37", "lan", 1.5, 1e6, 3, False, "")

    def measure(_: int, __: Progress) -> Iterator[Cell]:
        yield first
        raise KeyboardInterrupt

    monkeypatch.setitem(papers.PRESETS, "cryptflow2-table4", Preset("a table", "a note", measure))
    shown = command("bench", "paper", "cryptflow2-table4")
    assert shown.code == 130 and "1.5 s" in shown.out and "interrupted" in shown.err
    printed = command("bench", "paper", "cryptflow2-table4", "--json")
    made = json.loads(printed.out)
    assert printed.code == 130 and (made["complete"], made["cells"]) == (False, [first.to_json()])
    refused = command("bench", "paper", "cryptflow2-table4", "--rows", "none", "--json")
    assert refused.code == 1 and not refused.out and "--rows is not for" in refused.err


def test_ways_of_multiplying_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_ways, "NETWORKS_SHOWN", linear_ways.NETWORKS_SHOWN[:1])
    monkeypatch.setattr(linear_ways, "PROFILES", ("loopback",))
    cells = list(linear_ways.PRESETS["two-party-linear"].measure(1, silent))
    assert [(cell.domain, cell.what) for cell in cells] == [
        ("lenet5 in Z_2^37", f"loopback, {way}") for way in ("ot", "lattice", "auto")
    ]
    assert all(not cell.planned and cell.figures["differing"] == 0 for cell in cells)
    *both, _ = (cell.figures["over_better"] for cell in cells)
    assert None not in both and min(ratio for ratio in both if ratio) == 1.0
    by_ot, by_lattice, by_auto = (cell.bytes for cell in cells)
    assert by_auto <= by_lattice < by_ot / 5


def test_a_model_as_json(command: Command, folder: Path) -> None:
    arguments = ["bench", "model", "lenet5", "--batch", 2, "--repetitions", 2, "--warm-up", 0, "--cache", folder]
    figures = json.loads(command.succeeds(*arguments, "--json").out)
    assert figures["differing_from_clear"] == 0
    assert figures["elements"] == 20
    assert figures["relative_error"] < 0.02
    assert figures["bytes"] == sum(link["offline_bytes"] + link["online_bytes"] for link in figures["links"])
    assert figures["rounds"] == sum(node["rounds"] for node in figures["nodes"]) > 0
    assert (figures["bytes"], figures["rounds"]) == (figures["planned_bytes"], figures["planned_rounds"])
    assert len(figures["planned_memory_bytes"]) == 3
    assert figures["images_per_second"] == pytest.approx(2 / figures["wall_seconds"]["median"])
    assert figures["wall_seconds"]["median"] >= figures["nodes_wall_seconds"]["least"]
    assert len(figures["cpu_seconds"]) == len(figures["peak_memory_bytes"]) == 3
    if LINUX:
        assert all(0 <= seconds < 60 for seconds in figures["cpu_seconds"])
        assert all(peak > 10 << 20 for peak in figures["peak_memory_bytes"])
    sent = [
        sum(link["offline_bytes"] + link["online_bytes"] for link in figures["links"] if link["from"] == party)
        for party in range(3)
    ]
    assert all(
        0 < due < socket < 1.5 * due + 10_000 for due, socket in zip(sent, figures["socket_bytes_sent"], strict=True)
    )


def test_a_model_online_on_an_emulated_network(command: Command, folder: Path) -> None:
    common = [
        "bench",
        "model",
        "lenet5",
        "--shape",
        "cifar",
        "--pool",
        "avg",
        "--network",
        "1g",
        "--cache",
        folder,
        "--json",
    ]
    once = ["--repetitions", 1, "--warm-up", 0]
    joint = json.loads(command.succeeds(*common, *once).out)
    online = json.loads(command.succeeds(*common, *once, "--phase", "online").out)
    assert online["differing_from_clear"] == 0
    assert sum(link["offline_bytes"] for link in online["links"]) == 0
    assert sum(link["offline_bytes"] for link in online["preprocessing"]["links"]) > 0
    assert online["bytes"] == joint["bytes"]
    assert 0 < online["link_use"] < 1
    # Every round waits for a message to cross.
    assert online["wall_seconds"]["median"] > online["rounds"] * 0.15e-3


@pytest.mark.parametrize("protocol", ["trio", "quad"])
def test_phases(command: Command, folder: Path, protocol: str) -> None:
    arguments = ["bench", "phases", "lenet5", "--protocol", protocol, "--repetitions", 2, "--warm-up", 0]
    figures = json.loads(command.succeeds(*arguments, "--cache", folder, "--json").out)
    rows = {row["name"]: row for row in figures["rows"]}
    checks = ["of it the check", "check"] if protocol == "quad" else []
    expected = ["interleaved", *checks[:1], "preprocessing", "online", *checks[1:], "one after the other"]
    assert list(rows) == expected
    parts = [rows[name] for name in ("preprocessing", "online", *checks[1:])]
    whole, together = rows["interleaved"], rows["one after the other"]
    assert all(row["wall"] > 0 for row in rows.values())
    assert together["wall"] == pytest.approx(sum(part["wall"] for part in parts))
    online = figures["separate"]
    assert together["wall"] == pytest.approx(
        online["wall_seconds"]["median"] + online["preprocessing"]["wall_seconds"]["median"]
    )
    for name in ("bytes", "rounds"):
        assert whole[name] == together[name] == sum(part[name] for part in parts), name
    assert figures["interleaved_over_separate"] == pytest.approx(whole["wall"] / together["wall"])
    assert figures["interleaved"]["differing_from_clear"] == online["differing_from_clear"] == 0
    for run in (figures["interleaved"], online):
        assert (run["check_wall_seconds"] is not None) == (protocol == "quad")
    if protocol == "quad":
        # The dealer rests online and comes to the check first: its wait for the others is not the check's time.
        assert rows["check"]["wall"] < rows["online"]["wall"]
        assert rows["check"]["rounds"] == rows["of it the check"]["rounds"] == 5
    if LINUX:
        assert together["cpu_seconds"] == pytest.approx(sum(part["cpu_seconds"] or 0.0 for part in parts))


def test_phases_as_a_table(command: Command, folder: Path) -> None:
    outcome = command.succeeds(
        "bench", "phases", "--protocol", "quad", "--repetitions", 1, "--warm-up", 0, "--cache", folder
    )
    assert "one after the other" in outcome.out and "interleaved over one after the other:" in outcome.out
    assert max(map(len, outcome.out.splitlines())) <= 100


def test_samples_that_do_not_fit_a_party_run_one_after_the_other(
    command: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole: list[int] = []

    def in_the_clear(model: Model, data: dict[str, np.ndarray]) -> Result:
        whole.extend(map(len, data.values()))
        return run_clear(model, data)

    monkeypatch.setattr("covey.portions.SMALL", 0)
    monkeypatch.setattr("covey.portions.AT_ONCE_BYTES", 1)
    monkeypatch.setattr("covey.bench.model.run_clear", in_the_clear)
    arguments = ["bench", "model", "lenet5", "--batch", 3, "--repetitions", 1, "--warm-up", 0, "--cache", folder]
    figures = json.loads(command.succeeds(*arguments, "--json").out)
    assert (figures["differing_from_clear"], figures["elements"], whole) == (0, 30, [1, 1, 1])
    assert figures["relative_error"] < 0.02
    assert (figures["bytes"], figures["rounds"]) == (figures["planned_bytes"], figures["planned_rounds"])


def test_a_model_as_a_table(command: Command, folder: Path) -> None:
    outcome = command.succeeds(
        "bench", "model", "lenet5", "--repetitions", 1, "--warm-up", 0, "--nodes", "--cache", folder
    )
    assert "equal in all 10 outputs" in outcome.out
    assert "conv1" in outcome.out
    assert max(map(len, outcome.out.splitlines())) <= 100


ON_CORES = """
import os, sys
at = sys.argv.index("--")
os.sched_setaffinity(0, set(map(int, sys.argv[1:at])))
os.execv(sys.argv[at + 1], sys.argv[at + 1:])
"""
"""A program that runs another one on some cores alone."""


def test_the_gallery_page_is_what_the_command_prints(folder: Path) -> None:
    """In a process of its own on two cores, as the page was made: planned memory depends on the number of threads."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "gallery.md").read_text().splitlines()
    small = ["digits", "lenet5-mnist", "lenet5-cifar"]
    command = [sys.executable, "-m", "covey", "bench", "gallery", *small, "--markdown", "--cache", str(folder)]
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))[:2]
        command = [sys.executable, "-c", ON_CORES, *map(str, cores), "--", *command]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert sum(line.startswith("| digits |") for line in printed) == 1 + len(gallery.PROTOCOLS_SHOWN)
    assert [line for line in printed if line and line not in page] == []
    names = [line.split(" | ")[0].removeprefix("| ") for line in page if line.startswith("| ") and "sent" not in line]
    shown = [name for name in gallery.NAMES if name in names]
    assert [name for name in names if name != "network"] == shown * (1 + len(gallery.PROTOCOLS_SHOWN))


def test_the_gallery_takes_programs_and_refuses_what_it_has_not(command: Command, folder: Path) -> None:
    program = cache.kept(models.ImageSpec("lenet5", "mnist"), "auto", folder, silent).program
    outcome = json.loads(command.succeeds("bench", "gallery", program, "lenet5-mnist", "--cache", folder, "--json").out)
    own, named = outcome["rows"]
    assert (own.pop("name"), named.pop("name")) == ("model", "lenet5-mnist")
    assert own == named
    # Two convolutions and three fully connected layers, by hand; ReLU moved behind the pools.
    assert named["products"] == 28 * 28 * 6 * 25 + 10 * 10 * 16 * 150 + 400 * 120 + 120 * 84 + 84 * 10
    assert named["comparisons"] == 14 * 14 * 6 + 5 * 5 * 16 + 120 + 84
    plan = json.loads(_core.plan(_core.Program(program), "trio", 1))
    assert named["costs"]["trio"]["rounds"] == plan["total"]["rounds"]
    assert named["costs"]["trio"]["bytes"] == sum(link["bytes"] for link in plan["total"]["links"])
    command.refuses("bench", "gallery", "lenet6", saying="lenet5-mnist")


def test_wrong_calls_are_refused_before_anything_runs(command: Command, folder: Path) -> None:
    command.refuses("bench", "model", "vgg16", "--operator", "x", saying="--shape, --pool and --classes")
    command.refuses("bench", "model", "resnet18", "--size", "8", saying="use 32 to 1024")
    bench = ["bench", "model"]
    command.refuses(*bench, "lenet6", saying="resnet50")
    command.refuses(*bench, "lenet5", "--shape", "imagenet", saying="mnist or cifar")
    command.refuses(*bench, "lenet5", "--pool", "min", saying="max or avg")
    command.refuses(*bench, "lenet5", "--network", "dial-up", saying="loopback")
    command.refuses(*bench, "lenet5", "--protocol", "clear", saying="use trio")
    command.refuses(*bench, "lenet5", "--phase", "later", saying="joint, online or stored")
    command.refuses(*bench, "lenet5", "--ring", "16", saying="32 or 64")
    command.refuses("bench", "primitives", "logarithm", saying="multiplication")
    taken = folder / "a file"
    taken.write_text("")
    command.refuses(*bench, "lenet5", "--cache", taken, saying="--cache")


def test_models_are_kept_until_their_sources_change(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = models.ImageSpec("lenet5", "mnist", "avg")
    first = cache.kept(spec, "32", folder, silent)
    written = first.program.stat().st_mtime_ns
    assert cache.kept(spec, "32", folder, silent) == first
    assert first.program.stat().st_mtime_ns == written
    other = cache.kept(spec, "64", folder, silent)
    assert other.program != first.program
    monkeypatch.setattr(cache, "_fingerprint", lambda _: "other sources")
    renewed = cache.kept(spec, "32", folder, silent)
    assert renewed.program != first.program
    assert renewed.program.exists() and other.program.exists() and not first.program.exists()
    assert not list(folder.glob(".making-*"))


def test_gains(command: Command, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    switches = [gains.Switch("small tiles", {"tile": 64}), gains.Switch("one tile", {"window": 1})]
    monkeypatch.setattr(gains, "SWITCHES", switches)
    arguments = ["bench", "gains", "lenet5", "--repetitions", 1, "--warm-up", 0, "--brief", "--cache", folder]
    both = json.loads(command.succeeds(*arguments, "--json").out)
    assert {row["name"].split(",")[0] for row in both["kernels"]} == {
        "fused product",
        "packed weights",
        "fewer products",
    }
    assert len(both["kernels"]) == 3  # of one layer
    assert all(row["gmac_per_second"] > 0 < row["gmac_per_second_without"] for row in both["kernels"])
    rows = both["model"]
    assert [row["name"] for row in rows] == ["all on", "without small tiles", "without one tile", "all off"]
    assert rows[0]["wall_ratio"] == rows[0]["bytes_ratio"] == 1
    assert [row["outcome"]["options"] for row in rows] == [{}, {"tile": 64}, {"window": 1}, {"tile": 64, "window": 1}]
    assert all(row["outcome"]["differing_from_clear"] == 0 for row in rows)
    assert rows[3]["outcome"]["rounds"] > rows[0]["outcome"]["rounds"]


def test_the_switches_are_options_of_sessions() -> None:
    for switch in gains.SWITCHES:
        session_options(switch.off)


def test_plaintext(folder: Path) -> None:
    files = cache.kept(models.ImageSpec("lenet5", "mnist"), "auto", folder, silent)
    images = models.samples("mnist", 2)
    # Of both samples one after the other.
    measured = plaintext.measure(files.onnx, [{"image": images[:1]}, {"image": images[1:]}], 2)
    assert measured is not None
    assert measured.wall.least > 0
    from onnx.reference import ReferenceEvaluator

    (due,) = ReferenceEvaluator(onnx.load(files.onnx)).run(None, {"image": images})
    np.testing.assert_allclose(measured.outputs, due, atol=1e-4)


@pytest.mark.parametrize("pool", ["max", "avg"])
def test_torch_computes_what_onnxruntime_does(tmp_path: Path, pool: models.Pool) -> None:
    pytest.importorskip("torch")
    onnx.save(models.build("resnet18", "cifar", pool), tmp_path / "model.onnx")
    images = models.samples("cifar", 2)
    results = [
        engine(tmp_path / "model.onnx")[1]({"image": images}) for engine in (plaintext._torch, plaintext._onnxruntime)
    ]
    np.testing.assert_allclose(*results, rtol=1e-3, atol=1e-3)


def test_kernels(command: Command) -> None:
    figures = json.loads(command.succeeds("bench", "kernels", "--json").out)
    names = [row["name"] for row in figures["kernels"]]
    for start in (*kernels.RATES, *kernels.RATIOS):
        assert sum(name.startswith(start) for name in names) == 1, start
    assert all(row["value"] > 0 for row in figures["kernels"])
    assert set(figures["yardstick"]["gmacs"]) == set(kernels.SHAPES)


def test_figures_and_their_targets() -> None:
    floats = kernels.Yardstick("a library", {kernels.SQUARE: 50.0, kernels.CONVOLUTION: 40.0})

    def figure(name: str, unit: str, value: float) -> kernels.Figure:
        return kernels.figure({"name": name, "unit": unit, "value": value, "instruction_set": "AVX2"}, floats)

    square = figure("product u32 1024 x 1024 x 1024", "GMAC/s", 100.0)
    assert (square.ratio, square.target, square.reached) == (2.0, 1.5, True)
    convolution = figure("1 x convolution u64 64 to 64, 224², 3² / 1, batch 1", "GMAC/s", 10.0)
    assert (convolution.ratio, convolution.target, convolution.reached) == (0.25, 0.4, False)
    other = figure("product u32 8 x 8 x 8", "GMAC/s", 10.0)
    assert (other.ratio, other.target, other.reached) == (0.2, None, None)
    cipher = figure("AES-128-CTR, 65536 B", "GB/s", 16.0)
    assert (cipher.ratio, cipher.target, cipher.reached) == (None, 17.0, False)
    assert figure("u32 add", "GB/s", 1.0).reached is None


def test_yardstick_without_a_float_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    floats = kernels.yardstick({"small": (8, 8, 8)})
    assert floats.engine == "NumPy"
    assert floats.gmacs["small"] > 0


def test_processor_time_that_comes_in_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    finer = time.process_time
    monkeypatch.setattr(time, "process_time", lambda: finer() // 0.01 * 0.01)
    floats = kernels.yardstick({"small": (8, 8, 8)})
    assert 0 < floats.gmacs["small"] < float("inf")


def test_results_say_what_the_parties_used(parties: Parties, digits: Path, images: np.ndarray) -> None:
    result = parties.run(digits, images[:2])
    assert [party.name for party in result.parties] == ["alpha", "beta", "gamma"]
    for party in result.parties:
        assert party.socket_bytes_sent > 0
        if LINUX:
            assert party.cpu_seconds is not None and party.cpu_seconds >= 0
            assert party.peak_memory_bytes is not None and party.peak_memory_bytes > 10 << 20


def test_the_cache_names_what_it_cannot_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CoveyError, match="--cache"):
        cache.kept(models.ImageSpec("lenet5", "mnist"), "32", tmp_path / "file", silent)
