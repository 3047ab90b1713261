"""The presets of `covey bench paper`: what they measure, on networks and layers small enough to run here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from command import Command
from covey.bench import model, mpc_pipe, one_image, runs
from covey.bench import primitives as bench_primitives
from covey.bench.cells import Cell, selected
from covey.bench.model import Setting
from covey.bench.networks import NetworkProfile
from covey.bench.papers import PRESETS, find
from covey.bench.pigeon import latency, layers, primitives, rows, throughput
from covey.errors import OptionError
from covey.models import ImageSpec
from covey.parties import Parties

SMALL = ImageSpec("lenet5", "mnist", "avg")


def silent(done: int, total: int, what: str) -> None:
    del done, total, what


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that the tests of this file share."""
    return tmp_path_factory.mktemp("bench")


@pytest.fixture(autouse=True)
def borrowed(monkeypatch: pytest.MonkeyPatch, parties: Parties) -> Iterator[None]:
    """Runs in Trio take the parties that all tests share, which start in seconds, with the options of the run."""

    @contextmanager
    def running(protocol: str, network: NetworkProfile, options: Mapping[str, Any], *more: Any) -> Iterator[Parties]:
        if protocol != "trio":
            with runs.parties(protocol, network, options, *more) as others:
                yield others
            return
        parties._drop_session()
        parties.options = {**network.session, **runs.session_options(options)}
        yield parties

    monkeypatch.setattr(model, "parties", running)
    monkeypatch.setattr(bench_primitives, "parties", running)
    yield
    parties._drop_session()
    parties.options = {}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, folder: Path) -> list[Setting]:
    """Settings of PIGEON's rows run LeNet-5 in place of their networks; the settings that were asked for."""
    asked: list[Setting] = []

    def setting(*arguments: Any, **options: Any) -> Setting:
        asked.append(rows.setting(*arguments, **options))
        return replace(asked[-1], spec=SMALL)

    for module in (latency, throughput, layers):
        monkeypatch.setattr(module, "setting", setting)
        monkeypatch.setattr(module, "default_folder", lambda: folder)
    return asked


def test_the_command_names_every_preset(command: Command) -> None:
    text = re.sub(r"[│\s]+", " ", command.succeeds("bench", "paper", "--help").out)
    named: list[str] = []
    stem = ""
    for name in re.split(r"[,;] ", text[text.index("cryptflow2-figure1") : text.index("[required]")].strip(" .")):
        stem = stem if name[0].isdigit() else re.sub(r"[\d.]+$", "", name)
        named.append(stem + name if name[0].isdigit() else name)
    assert sorted(named) == sorted(PRESETS)


def test_options_go_to_the_presets_that_have_them(command: Command) -> None:
    paper = ("bench", "paper")
    command.refuses(*paper, "pigeon-table4", "--device", "cpu", saying="it takes --batch, --rows, --protocols")
    command.refuses(*paper, "pigeon-table4", "--rows", "lenet5-mnist", saying="use alexnet-cifar")
    command.refuses(*paper, "pigeon-figure7", "--protocols", "beaver", saying="use trio, quad")
    command.refuses(*paper, "mpc-pipe-figure7", "--device", "tpu", saying="cuda")
    command.refuses(*paper, "mpc-pipe-figure4", "--device", "cpu", saying="no options but --repetitions")
    assert selected("t", "row", ("a", "b"), None) == ["a", "b"]
    assert selected("t", "row", ("a", "b"), ("b", "b")) == ["b"]
    with pytest.raises(OptionError, match="t has no row 'c': use a, b"):
        selected("t", "row", ("a", "b"), ("a", "c"))


def test_rows_are_networks_of_the_zoo() -> None:
    tables = (throughput.TABLE_4, throughput.TABLE_6, throughput.TABLE_7, layers.TABLE_5, *latency.LATENCY.values())
    for table in tables:
        for row in table:
            name, *shape = row.removesuffix("-large").split("-")
            ImageSpec(name, shape[0] if shape else "imagenet")


def test_throughput(small: list[Setting]) -> None:
    cells = list(find("pigeon-table7").measure(1, silent, batch=2, rows=["vgg16-cifar"], protocols=["trio"]))
    assert [(run.spec.label, run.protocol, run.ring, run.device, run.batch) for run in small] == [
        ("vgg16-cifar-avg", "trio", "64", device, 2) for device in ("cpu", "auto")
    ]
    assert [cell.paper for cell in cells] == ["76.85/s; Piranha 5.08/s", "Piranha 5.08/s"]
    assert [cell.what for cell in cells] == [f"vgg16-cifar, {device}, batch 2 for 192" for device in ("CPU", "GPU")]
    for cell in cells:
        assert cell.domain == "3PC, Z_2^64"
        assert float(cell.here.split("/s")[0]) == pytest.approx(2 / cell.seconds, rel=1e-3)


def test_throughput_by_adder(small: list[Setting], monkeypatch: pytest.MonkeyPatch) -> None:
    assert [tweak.name for tweak in throughput.TWEAKS] == ["automatic", "PPA", "RCA", "RCA8", "ON, RCA8"]
    monkeypatch.setattr(throughput, "TWEAKS", [throughput.TWEAKS[index] for index in (0, 4)])
    monkeypatch.setitem(throughput.TABLE_6, "vgg16-cifar-large", {"GPU": (573.51,)})
    automatic, online = find("pigeon-table6").measure(1, silent, batch=2, rows=["vgg16-cifar-large"])
    assert [(run.phase, run.options["adder"], run.options["key_bits"]) for run in small] == [
        ("joint", None, None),
        ("online", "ripple", 8),
    ]
    assert automatic.rounds < online.rounds and (automatic.paper, online.paper) == ("", "573.51/s")
    assert online.what.endswith("ON, RCA8, batch 2 for 12,288") and throughput.LARGE_HERE < throughput.LARGE


def test_latency(small: list[Setting], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "DEVICES", {"CPU": "cpu"})
    monkeypatch.setattr(latency, "LATENCY", {64: {"alexnet-cifar": {"3PC": (0.11, 0.21), "4PC": (None, 0.16)}}})
    (cell,) = find("pigeon-table9").measure(1, silent, rows=["alexnet-cifar"], protocols=["quad"])
    assert cell.paper == "0.16 s" and cell.here.endswith("; 0 differ") and [run.protocol for run in small] == ["quad"]


def test_layers(small: list[Setting], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(layers.TABLE_5, "lenet5", layers.TABLE_5["vgg16"])
    monkeypatch.setattr(layers, "DEVICES", {"CPU": "cpu"})
    cells = list(find("pigeon-table5").measure(1, silent, batch=2, rows=["vgg16"]))
    assert [cell.what for cell in cells] == ["Conv, ReLU", "average pools", "dense layers", "all"]
    *kinds, total = cells
    assert kinds[0].paper.startswith("CONV2D 29.80 s; 10.40 GB, 2.79 Gbit/s; ACTIVATION 12.29 s")
    assert total.paper == "Total 40.32 s; 56.11 GB, 11.13 Gbit/s" and "busiest link" in total.here
    # Sharing the inputs and opening the outputs make up the rest.
    assert 0.8 * total.bytes < sum(cell.bytes for cell in kinds) < total.bytes
    for cell in kinds:
        rate = cell.bytes * 8 / 3 / cell.seconds / 1e9
        assert float(cell.here.split(" Gbit/s")[0]) == pytest.approx(rate, rel=1e-2)


def test_single_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(primitives, "RELUS", 256)
    monkeypatch.setattr(primitives, "cores", lambda _: 2)
    monkeypatch.setattr(primitives, "DEVICES", {"CPU": "cpu"})
    monkeypatch.setattr(primitives, "IMAGES", (8,))
    monkeypatch.setattr(primitives, "SIDE", 6)
    monkeypatch.setattr(primitives, "CHANNELS", 4)
    monkeypatch.setattr(primitives, "POWERS", (3, 6))

    def made(name: str, protocols: Sequence[str]) -> list[Cell]:
        return list(find(name).measure(1, silent, protocols=protocols))

    one, two = made("pigeon-figure2", ["trio"])
    assert (one.paper, two.paper) == ("", "nearly 100 % of 25 Gbit/s")
    assert two.bytes == pytest.approx(2 * one.bytes, rel=0.1)
    (images,) = made("pigeon-figure4", ["trio"])
    # A deal and an exchange of one ring element each way.
    assert (images.what, images.bytes) == ("8 images, CPU", 8 * 3 * 4 * 4 * 36)
    few, many, *wide = made("pigeon-figure7", ["quad"])
    assert [cell.domain for cell in (few, many, *wide)] == ["4PC, Z_2^32"] * 2 + ["4PC, Z_2^64"] * 2
    assert few.bytes < many.bytes < wide[1].bytes and "2 %" in many.paper and not few.paper


def test_one_image_with_preprocessing_and_without(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(one_image, "SPEC", SMALL)
    monkeypatch.setattr(one_image, "default_folder", lambda: folder)
    cells = list(find("vgg16-cifar").measure(1, silent, protocols=["beaver"], device="cpu"))
    assert [(cell.domain, cell.what) for cell in cells] == [("beaver, Z_2^64", phase) for phase in ("joint", "online")]
    assert all("0 differ" in cell.here for cell in cells)
    joint, online = cells
    assert online.bytes < joint.bytes and "CrypTen" in online.paper and not joint.paper


def test_use_of_the_network_and_bytes_by_parties(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(mpc_pipe, "MODELS", {"VGG16": SMALL})
    monkeypatch.setattr(mpc_pipe, "default_folder", lambda: folder)
    none, both = find("mpc-pipe-section5.5").measure(1, silent, device="cpu")
    assert "5.91 Gbit/s" in none.paper and "8.85 Gbit/s" in both.paper and both.here.endswith("%")
    planned = list(find("mpc-pipe-figure10").measure(1, silent))
    assert all(cell.planned for cell in planned) and planned[1].paper == "roughly 17 GB"
    # Every further party costs as much to send to and to receive from.
    two, three, four, five = (cell.bytes for cell in planned)
    assert 0 < three - two == pytest.approx(five - four, rel=0.2)
