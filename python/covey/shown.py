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
        plain = Console(file=stream, width=WIDTH, color_system=None, highlight=False, markup=False, emoji=False)
        plain.print(self.rendered())
        return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())

    def _repr_html_(self) -> str:
        """What notebooks show."""
        console = Console(file=StringIO(), record=True, width=WIDTH, highlight=False, markup=False, emoji=False)
        console.print(self.rendered())
        return console.export_html(code_format=_HTML, inline_styles=True)
