"""The notebooks in examples/ run from top to bottom, and show what their cells end with.

Their code cells are executed in order in one namespace, as a kernel would: they are plain Python, so that no kernel and
none of Jupyter's packages have to be installed for it. Jupyter's own syntax (`%magic`, `!command`) fails here.
"""

from __future__ import annotations

import ast
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))
NEEDS = "needs-"
"""Begins the tag of a cell that a package has to be installed for."""


def read(path: Path) -> list[dict[str, Any]]:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["metadata"]["kernelspec"]["language"]) == (4, "python")
    cells: list[dict[str, Any]] = notebook["cells"]
    assert len({cell["id"] for cell in cells}) == len(cells)
    return cells


def missing(cell: dict[str, Any]) -> list[str]:
    """The packages that a cell says it needs and that are not installed."""
    needed = [tag.removeprefix(NEEDS) for tag in cell["metadata"].get("tags", []) if tag.startswith(NEEDS)]
    return [name for name in needed if importlib.util.find_spec(name) is None]


def execute(source: str, where: str, namespace: dict[str, Any]) -> object:
    """Run a cell; the value of the expression it ends with, if it does."""
    body = ast.parse(source, where).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), where, "exec"), namespace)
    return eval(compile(ast.Expression(last.value), where, "eval"), namespace) if isinstance(last, ast.Expr) else None


def shown(value: object) -> str | bytes:
    """What a notebook shows of a value."""
    for name in ("_repr_html_", "_repr_png_"):
        if hasattr(value, name):
            made: str | bytes = getattr(value, name)()
            return made
    return repr(value)


def test_there_are_notebooks() -> None:
    assert [path.name for path in NOTEBOOKS] == ["first_steps.ipynb"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_no_outputs_are_kept(path: Path) -> None:
    code = [cell for cell in read(path) if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_the_cells_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    results = 0
    for number, cell in enumerate(read(path)):
        if cell["cell_type"] == "code" and not missing(cell):
            value = execute("".join(cell["source"]), f"{path.name}, cell {number}", namespace)
            if value is not None:
                results += 1
                assert len(shown(value)) > 20
    assert results >= 7
    assert namespace["verdict"].passed
    classes = next(iter(namespace["result"].outputs.values())).argmax(axis=1)
    assert (classes == namespace["labels"][:8]).all()


def test_a_failing_cell_is_named() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        execute("x = 1\nx / 0", "some.ipynb, cell 3", {})
    assert "some.ipynb, cell 3" in str(caught.traceback[-1].path)
