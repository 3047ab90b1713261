"""pareto: accuracy against cost, and which models no other model beats."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from covey.cli import console
from covey.cli.options import Json


def pareto(
    points: Annotated[Path, typer.Argument(metavar="POINTS.csv", help="A line for each model, below a line of names.")],
    name: Annotated[str, typer.Option(metavar="COLUMN", help="The column of the models' names.")] = "name",
    accuracy: Annotated[str, typer.Option(metavar="COLUMN", help="The column of which more is better.")] = "accuracy",
    cost: Annotated[str, typer.Option(metavar="COLUMN", help="The column of which less is better.")] = "cost",
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE.png", help="Draw accuracy against cost (needs matplotlib).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say which models no other model beats in both accuracy and cost (the Pareto front)."""
    from covey.plot import check_plot
    from covey.trade_off import pareto as find_front

    check_plot(plot)
    found = find_front(points, name=name, accuracy=accuracy, cost=cost)
    if plot is not None:
        found.plot(plot)
    if as_json:
        console.print_json(found.to_json())
    else:
        console.out().print(found.rendered())
