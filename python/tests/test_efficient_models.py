"""Tables 1 and 2 and figure 3 of the efficient-models paper: rows by name, costs as compiled models have, ratios."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import covey
from command import Command
from covey.bench import efficient_models, papers
from covey.bench.cells import Cell
from covey.bench.efficient_models import BACKBONES, OPERATORS, TABLE_2, Variant, variant
from covey.bench.networks import network
from covey.computation import RATES
from covey.cost_comparison import SERVED
from covey.cost_split import PARTS

SIZE, ROWS = 32, ("SX", "SXW", "MF")
PROTOCOLS = ("two-party", "trio")
DOCUMENTED = Path(__file__).resolve().parents[2] / "docs" / "benchmarks.md"


def silent(done: int, total: int, what: str) -> None:
    del done, total, what


@pytest.fixture(scope="module")
def cells() -> list[Cell]:
    """Rows of table 2 and the baseline, in two protocols."""
    return efficient_models.table_2(1, silent, size=SIZE, protocols=PROTOCOLS, rows=ROWS)


def test_rows_are_what_their_names_say() -> None:
    plain = {f"{backbone}{operator}" for backbone in BACKBONES for operator in OPERATORS}
    # Winograd's form for every dense network, and for every form of ShuffleNetV2.
    assert set(TABLE_2) == plain | {f"{backbone}DW" for backbone in BACKBONES} | {f"S{each}W" for each in OPERATORS}
    assert variant("R'DW") == Variant("resnet18", "dense", True)
    assert variant("RD") == Variant("resnet50", "dense", False)
    assert variant("MS") == Variant("mobilenetv3-large", "shuffle", False)
    assert len({variant(name) for name in TABLE_2}) == len(TABLE_2) == 28


@pytest.mark.parametrize("name", ROWS)
def test_costs_are_those_of_compiled_models(cells: list[Cell], name: str) -> None:
    each = variant(name)
    spec = each.spec(SIZE)
    compiled = covey.compile(
        spec.build(), calibration=spec.calibration()["image"][:1], input_range=(0, 1), ring=60, scale=23,
        winograd="all" if each.winograd else "off",
    )  # fmt: skip
    due = covey.explain(compiled, "two-party", linear="ot")
    cell = next(cell for cell in cells if cell.what.startswith(f"{name} "))
    assert (cell.bytes, cell.rounds, cell.planned) == (due.total.bytes, due.total.rounds, True)


def test_ratios_are_to_the_baseline_in_the_same_protocol(cells: list[Cell]) -> None:
    names = [
        "DD densenet121 dense",
        "SX shufflenetv2 x",
        "SXW shufflenetv2 x, Winograd",
        "MF mobilenetv3-large factorised",
    ]
    domains = ["two-party by ot, Z_2^60, 32 × 32", "trio, Z_2^64, 32 × 32"]
    assert [(cell.domain, cell.what) for cell in cells] == [(domain, name) for domain in domains for name in names]
    for base, *others in (cells[:4], cells[4:]):
        assert (base.figures["reduction"], base.figures["speedup"], base.figures["difference"]) == (1, 1, 0)
        for cell, name in zip(others, ROWS, strict=True):
            reduction, speedup = base.bytes / cell.bytes, base.seconds / cell.seconds
            paper, paper_speedup, auc = TABLE_2[name]
            assert cell.figures == {
                "wire": cell.figures["wire"],
                "compute": cell.figures["compute"],
                "reduction": pytest.approx(reduction),
                "paper_reduction": paper,
                "difference": pytest.approx(reduction / paper - 1),
                "speedup": pytest.approx(speedup),
                "paper_speedup": paper_speedup,
                "paper_auc": auc,
            }
    # By oblivious transfer bytes follow the multiplications; among three parties they do not.
    assert cells[0].bytes / cells[1].bytes > 15 > cells[4].bytes / cells[5].bytes


def test_seconds_are_those_of_the_papers_network(cells: list[Cell]) -> None:
    assert (network("efficient-models").megabits, network("efficient-models").round_trip_ms) == (16_000, 0.7)
    for cell in cells:
        wire, compute = cell.figures["wire"], cell.figures["compute"]
        assert wire is not None and compute is not None
        assert cell.rounds * 0.35e-3 < wire < cell.rounds * 0.35e-3 + cell.bytes * 8 / 16e9
        assert cell.seconds == pytest.approx(wire + compute)


@pytest.mark.parametrize("protocol", ["two-party", "trio"])
def test_computation_is_shared_among_cores(cells: list[Cell], protocol: str) -> None:
    """And bytes, rounds and the wire stay as they are."""
    on_one = [cell for cell in cells if cell.domain.startswith(protocol)][:2]
    on_four = efficient_models.table_2(1, silent, size=SIZE, protocols=[protocol], rows=["SX"], cores=4)
    for one, four in zip(on_one, on_four, strict=True):
        assert (four.what, four.bytes, four.rounds) == (one.what, one.bytes, one.rounds)
        assert four.figures["wire"] == one.figures["wire"]
        assert one.figures["compute"] == pytest.approx(4 * (four.figures["compute"] or 0))
        assert one.seconds - four.seconds == pytest.approx(0.75 * (one.figures["compute"] or 0))


def test_computation_follows_multiplications_and_bytes(cells: list[Cell]) -> None:
    compiled = covey.compile(
        variant("SX").spec(SIZE).build(), calibration=variant("SX").spec(SIZE).calibration()["image"][:1],
        input_range=(0, 1), ring=64, scale=23, winograd="off",
    )  # fmt: skip
    compared = covey.compare([compiled], protocols=["trio"])
    (cost,), (multiplications,) = compared.costs, compared.multiplications.values()
    rates = RATES["trio"]
    linear = cost.parts["convolution"] + cost.parts["other_linear"]
    due = multiplications * rates.multiplication + linear * rates.linear_byte
    due += sum(cost.parts[part] for part in ("shift", "non_linear", "other")) * rates.other_byte
    assert multiplications > 1e6 and linear > 1e5
    assert cells[5].what == "SX shufflenetv2 x" and cells[5].domain.startswith("trio")
    assert cells[5].figures["compute"] == pytest.approx(due / 1e9)


def test_rates_are_of_every_protocol_and_method() -> None:
    methods = {f"two-party by {method}" for method in ("ot", "lattice", "auto")}
    assert RATES.keys() == {*SERVED, *methods} - {"two-party"}
    by_ot = RATES["two-party by ot"]
    # Each count by its own rate.
    assert by_ot.seconds(0, 10**9, 0) == pytest.approx(by_ot.linear_byte)
    assert by_ot.seconds(0, 0, 0, 10**9) == pytest.approx(by_ot.correlated_ot)
    assert RATES["quad"].seconds(10**9, 0, 10**9) == pytest.approx(
        RATES["quad"].multiplication + RATES["quad"].other_byte
    )


def test_two_parties_compute_for_products_and_correlated_ots(cells: list[Cell]) -> None:
    """Networks of few multiplications still make correlated OTs, so their computation falls less than their bytes."""
    dense, x = cells[:2]
    assert (dense.what[:2], x.what[:2]) == ("DD", "SX")
    assert dense.bytes / x.bytes > 1.2 * (dense.figures["compute"] or 0) / (x.figures["compute"] or 1) > 5


def test_shares_add_up() -> None:
    rows = ("shufflenetv2", "mobilenetv3-large")
    shown = efficient_models.table_1(1, silent, size=SIZE, protocols=PROTOCOLS, rows=rows)
    assert [cell.what for cell in shown] == [*rows] * 2
    shares = [{name: share for name, share in cell.figures.items() if share is not None} for cell in shown]
    for each in shares:
        assert sum(each[part] for part in PARTS) == pytest.approx(1)
    assert shares[0]["paper_convolution"] == 0.9282
    # By oblivious transfer convolutions send nearly all; among three parties they do not.
    assert shares[0]["convolution"] > 0.9 > shares[2]["convolution"] > 0


def test_shares_of_the_paper_add_up() -> None:
    for shares in efficient_models.TABLE_1.values():
        assert sum(shares) == pytest.approx(1)


def test_figure_3_by_size() -> None:
    by_size = {size: efficient_models.figure_3(1, silent, size=size) for size in (16, 32)}
    for size, (dense, factorised, shuffle) in by_size.items():
        assert (dense.what, dense.figures["reduction"]) == (f"{size} × {size}, dense", 1)
        assert dense.bytes > 5 * factorised.bytes > 5 * shuffle.bytes
    assert by_size[32][0].bytes == pytest.approx(4 * by_size[16][0].bytes, rel=0.1)


def test_the_command_prints_a_table_for_each_protocol(command: Command) -> None:
    call = ("bench", "paper", "efficient-models-table2", "--size", SIZE, "--rows", "SX", "--protocols", "quad, beaver")
    printed = command.succeeds(*call).out
    assert printed.count("densenet121 dense") == printed.count("(30.15)") == 2
    assert "quad, Z_2^64, 32 × 32, planned" in printed and "nothing runs" in printed
    assert max(map(len, printed.splitlines()[:-1])) <= 100
    assert "wire" in printed and "compute" in printed
    found = json.loads(command.succeeds(*call, "--json").out)
    assert [cell["planned"] for cell in found["cells"]] == [True] * 4
    assert found["cells"][1]["figures"]["paper_reduction"] == 30.15
    method = command.succeeds("bench", "paper", "efficient-models-figure3", "--size", 16, "--linear", "lattice").out
    assert "two-party by lattice, Z_2^60" in method


@pytest.mark.parametrize(
    ("call", "saying"),
    [
        (["efficient-models-table2", "--rows", "DD,DFW"], "table 2 has no row 'DFW': use DD, DDW"),
        (["efficient-models-table1", "--rows", "vgg16"], "table 1 has no row 'vgg16': use densenet121"),
        (["efficient-models-table2", "--rows", ""], "table 2 has no row ''"),
        (["efficient-models-table2", "--size", 16], "use 32 to 1024"),
        (["efficient-models-table2", "--protocols", "clear"], "clear sends nothing to compare"),
        (["efficient-models-table2", "--protocols", "quintet"], "protocol 'quintet' is unknown"),
        (["efficient-models-table2", "--protocols", "trio", "--linear", "ot"], "--linear says how two parties"),
        (["efficient-models-table2", "--rows", "SX", "--size", 32, "--linear", "fast"], "fast"),
        (["efficient-models-figure3", "--size", 20], "figure 3 has no images of 20 × 20: use 16, 32"),
        (["efficient-models-figure3", "--rows", "SX"], "--rows is not for"),
        (["efficient-models-table1", "--cores", 2], "--cores is not for"),
        (["cryptflow2-table6", "--size", 32], "no options but --repetitions"),
    ],
)
def test_wrong_options_are_refused(command: Command, call: list[str], saying: str) -> None:
    command.refuses("bench", "paper", *call, saying=saying)


def test_every_preset_is_documented_and_found() -> None:
    page = DOCUMENTED.read_text("utf-8")
    for name, preset in efficient_models.PRESETS.items():
        assert papers.find(name) is preset
        assert f"`{name}`" in page
