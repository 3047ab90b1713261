"""Results that show themselves: printed, in a notebook, in a DataFrame. The command line prints the same."""

from __future__ import annotations

from abc import ABC, abstractmethod
from io import StringIO
from typing import Any

from rich.console import Console, RenderableType

from covey.errors import OptionError

WIDTH = 100
"""Columns of text that a printed result takes at most."""

_HTML = '<pre style="line-height: 1.3; overflow-x: auto">{code}</pre>'


class Shown(ABC):
    """A result with a text for people and rows for programs."""

    @abstractmethod
    def rendered(self) -> RenderableType:
        """The result for a terminal (print it with rich)."""

    @abstractmethod
    def rows(self) -> list[dict[str, Any]]:
        """The result as one dict a row, all with the same keys: what `pandas.DataFrame` takes."""

    def to_dataframe(self) -> Any:
        """The rows as a `pandas.DataFrame`. Raises `OptionError` where pandas is not installed."""
        try:
            import pandas
        except ImportError:
            raise OptionError(
                "to_dataframe needs pandas, which is not installed: pip install pandas, or use rows(), a list of dicts"
            ) from None
        return pandas.DataFrame(self.rows())

    def __str__(self) -> str:
        stream = StringIO()
        _console(stream, color_system=None).print(self.rendered())
        return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())

    def _repr_html_(self) -> str:
        """What notebooks show."""
        console = _console(StringIO(), record=True)
        console.print(self.rendered())
        return console.export_html(code_format=_HTML, inline_styles=True)


def _console(stream: StringIO, **more: Any) -> Console:
    # Within Jupyter, rich would show what it prints by itself.
    plain: dict[str, Any] = {"highlight": False, "markup": False, "emoji": False, "force_jupyter": False}
    return Console(file=stream, width=WIDTH, **plain, **more)
