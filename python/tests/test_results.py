"""covey.check, explain, verify and tune as functions: results that print, tabulate and plot, the commands' own."""

from __future__ import annotations

import ast
import json
import pkgutil
import subprocess
import sys
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import covey
from command import DIGITS, Command
from covey.result import NodeProfile, Profile
from covey.shown import WIDTH, Shown

ONNX = DIGITS / "digits.onnx"
DATA = DIGITS / "test-images.npy"
LABELS = DIGITS / "test-labels.npy"
BOUNDS: dict[str, Any] = {"calibration": DIGITS / "calibration.npy", "input_range": (0, 1)}


class Words(HTMLParser):
    """The text of a piece of HTML."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text = ""
        self.feed(html)

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def results() -> dict[str, Shown]:
    compiled = covey.compile(ONNX, **BOUNDS)
    images = np.load(DATA)
    with covey.local("clear") as parties:
        result = parties.run(compiled, images[:3])
    assert result.profile is not None
    return {
        "check": covey.check(ONNX),
        "compile": compiled,
        "explain": covey.explain(compiled, "quad", batch=2),
        "compare": covey.compare([compiled, ONNX], ["trio", "beaver"], **BOUNDS),
        "verify": covey.verify(compiled, "clear", data=images, samples=5, layers=True),
        "tune": covey.tune(ONNX, images, np.load(LABELS), **BOUNDS),
        "run": result,
        "profile": result.profile,
    }


KINDS = ("check", "compile", "explain", "compare", "verify", "tune", "run", "profile")


@pytest.mark.parametrize("kind", KINDS)
def test_results_print(results: dict[str, Shown], kind: str) -> None:
    text = str(results[kind])
    assert len(text.splitlines()) > 3
    assert max(map(len, text.splitlines())) <= WIDTH
    assert "\x1b" not in text
    assert len(repr(results[kind])) < 5000


@pytest.mark.parametrize("kind", KINDS)
def test_notebooks_show_the_same(results: dict[str, Shown], kind: str) -> None:
    words = Words(results[kind]._repr_html_()).text.split()
    assert words == str(results[kind]).split()


def test_a_kernel_shows_a_result_once(results: dict[str, Shown], monkeypatch: pytest.MonkeyPatch) -> None:
    text, html = str(results["check"]), results["check"]._repr_html_()
    shown: list[object] = []
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("rich.jupyter.display", lambda *parts: shown.append(parts))
    assert (str(results["check"]), results["check"]._repr_html_()) == (text, html)
    assert shown == []


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_of_one_form(results: dict[str, Shown], kind: str) -> None:
    rows = results[kind].rows()
    assert len(rows) > 2
    assert len({tuple(row) for row in rows}) == 1
    json.dumps(rows)  # plain data


@pytest.mark.parametrize("kind", KINDS)
def test_rows_make_a_dataframe(results: dict[str, Shown], kind: str) -> None:
    pandas = pytest.importorskip("pandas")
    frame = results[kind].to_dataframe()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == list(results[kind].rows()[0])
    assert len(frame) == len(results[kind].rows())


def test_without_pandas(results: dict[str, Shown], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(covey.OptionError, match="pip install pandas, or use rows"):
        results["check"].to_dataframe()


def test_rows_say_what_the_results_hold(results: dict[str, Shown]) -> None:
    explained, run, tuned = results["explain"], results["run"], results["tune"]
    assert isinstance(explained, covey.Explanation) and isinstance(run, covey.Result) and isinstance(tuned, covey.Tuned)
    assert sum(row["online_bytes"] for row in explained.rows()) == explained.total.online_bytes > 0
    logits = np.array([[row[f"fc2_out[{k}]"] for k in range(10)] for row in run.rows()])
    assert np.array_equal(logits, run.outputs["fc2_out"])
    chosen = {row["search"]: row for row in tuned.rows() if row["chosen"]}
    assert chosen["scale"]["scale"] == chosen["ring"]["scale"] == 8
    assert chosen["ring"]["correct"] == tuned.record.fixed_correct


def test_a_name_from_the_model_is_no_html() -> None:
    profile = Profile([NodeProfile("<b>[red]x", "Relu", 1.0, 1, 1, 1, [])], 0.1)
    assert "<b>" not in profile._repr_html_()
    assert "<b>[red]x" in str(profile) and "<b>[red]x" in Words(profile._repr_html_()).text


def test_commands_print_what_functions_return(command: Command, digits: Path) -> None:
    def same(printed: str, result: Shown) -> bool:
        return [line.rstrip() for line in printed.splitlines()] == str(result).splitlines()

    assert same(command.succeeds("check", ONNX).out, covey.check(ONNX))
    assert same(command.succeeds("explain", digits, "--batch", 3).out, covey.explain(digits, batch=3))
    call = ("verify", digits, "--protocol", "clear", "--samples", 3, "--data", DATA, "--model", ONNX)
    assert same(command.succeeds(*call).out, covey.verify(digits, "clear", samples=3, data=DATA, float_model=ONNX))


def test_verify_judges(digits: Path, images: np.ndarray) -> None:
    verdict = covey.verify(digits, samples=4, data=images, float_model=ONNX)
    assert verdict.passed and verdict.failure is None and verdict.samples == 4
    against = {check.what: check.found for check in verdict.checks}
    assert against["fc2_out: trio against clear"] == "0 of 40 elements differ"
    flat = covey.verify(digits, "clear", data=np.zeros((2, 1, 8, 8)), float_model=ONNX)
    assert not any("against clear" in check.what for check in flat.checks)
    assert any("nothing was run privately" in note for note in flat.notes)


def test_a_failed_check_is_a_verdict_and_no_error(digits: Path, images: np.ndarray) -> None:
    import onnx
    from onnx import numpy_helper

    model = onnx.load(ONNX)
    (weight,) = (tensor for tensor in model.graph.initializer if tensor.name == "fc2.weight")
    weight.CopyFrom(numpy_helper.from_array(1.1 * numpy_helper.to_array(weight), weight.name))
    other = digits.parent / "other.onnx"
    onnx.save(model, other)
    verdict = covey.verify(digits, "clear", data=images, samples=4, float_model=other)
    assert not verdict.passed
    assert verdict.failure is not None and "relative L2 error" in verdict.failure
    assert [row["passed"] for row in verdict.rows()].count(False) >= 1


@pytest.mark.parametrize(
    ("call", "saying"),
    [
        (lambda path: covey.explain(path, batch=0), "batch is 0: use a whole number of at least 1"),
        (lambda path: covey.explain(path, round_bits=25), "round_bits is 25: use a whole number from 0 to 24"),
        (lambda path: covey.explain(path, "quintet"), "protocol 'quintet' is unknown"),
        (lambda path: covey.explain(path, "trio", parties=4), "trio always has 3 parties"),
        (lambda path: covey.explain(object()), "an object of type object cannot be run as it is: compile it first"),
        (lambda path: covey.verify(path, samples=1.5), "samples is 1.5"),
        (lambda path: covey.verify(path, "clear", layers=True), "name it with --model"),
        (lambda path: covey.tune(ONNX, DATA, np.zeros(3, int), **BOUNDS), "the labels array holds int64 [3]"),
    ],
)
def test_wrong_calls_are_one_line(digits: Path, call: Any, saying: str) -> None:
    with pytest.raises(covey.CoveyError) as caught:
        call(digits)
    assert saying in str(caught.value)


def test_profiles_name_devices() -> None:
    row = {"name": "conv1", "op": "Conv", "milliseconds": 2.0, "rounds": 1, "links": []}
    profile = Profile.of(json.dumps({"nodes": [row, {**row, "name": "conv2", "gpus": 2}]}), 0.1)
    assert [node["device"] for node in profile.to_json()["nodes"]] == ["cpu", "gpu"]
    assert [node["device"] for node in profile.rows()] == ["cpu", "gpu"]
    assert "GPUs" in str(profile)
    assert "GPUs" not in str(Profile(profile.nodes[:1], 0.1))


def test_profiles_plot(results: dict[str, Shown], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    profile = results["profile"]
    assert isinstance(profile, covey.Profile)
    plot = profile.plot()
    assert plot._repr_png_()[:8] == b"\x89PNG\r\n\x1a\n"
    profile.plot(tmp_path / "p.svg")
    assert "<svg" in (tmp_path / "p.svg").read_text()
    with pytest.raises(covey.OptionError, match=r"a plot is a \.png"):
        profile.plot(tmp_path / "p.txt")


def test_the_package_lists_what_users_call_and_nothing_else() -> None:
    code = "import covey; print(' '.join(dir(covey)))"
    names = set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())
    assert {"Client", "check", "compile", "explain", "local", "tune", "verify"} <= names
    assert names == set(covey.__all__)
    assert not names & {"Any", "TYPE_CHECKING", "annotations", "_interrupt", "import_module", "_MODULES"}


def test_no_module_stands_in_the_place_of_a_function() -> None:
    """An imported module becomes an attribute of its package, whatever was there before."""
    functions = {"check", "compare", "compile", "explain", "local", "pareto", "tune", "verify"}
    modules = {module.name for module in pkgutil.iter_modules(covey.__path__)}
    assert not functions & modules
    for name in functions:
        assert callable(getattr(covey, name))


def test_each_name_is_that_of_its_module() -> None:
    """What is loaded is what type checkers are told, name by name."""
    source = ast.parse(Path(covey.__file__).read_text())
    (told,) = (each for each in source.body if isinstance(each, ast.If))
    told_modules = {
        alias.name: statement.module
        for statement in told.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    assert told_modules.pop("schedules") == "covey.training"
    assert told_modules == covey._MODULES
    assert {*told_modules, "schedules", "__version__"} == set(covey.__all__)
    for name in covey.__all__:
        assert getattr(covey, name) is not None
    assert covey.compile is import_module("covey.compiled").compile


def test_a_command_imports_no_more_than_it_uses() -> None:
    """Each party and each command is a process: what it imports is waited for every time."""
    code = "import sys, covey.cli.remote; print(' '.join(sys.modules))"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"covey._core", "numpy", "onnx", "google.protobuf"} & set(modules)
