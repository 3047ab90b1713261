"""Results as pictures. matplotlib draws them and is asked for only then."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from covey.cost_split import PARTS
from covey.errors import CoveyError, OptionError
from covey.result import NodeProfile, Profile

if TYPE_CHECKING:
    from covey.cost_comparison import CostComparison
    from covey.trade_off import TradeOff
    from covey.training.trainer import Epoch

DOTS = 120
"""Dots an inch."""

MOST_NODES = 40
"""Nodes that are drawn; what is left over is one bar."""


def drawn(draw: Callable[[], Plot], path: str | os.PathLike[str] | None) -> Plot:
    """What `draw` draws, saved at `path` if there is one, which is checked first. Raises `OptionError`."""
    check_plot(Path(path) if path is not None else None)
    picture = draw()
    if path is not None:
        picture.save(path)
    return picture


def check_plot(path: Path | None) -> None:
    """Refuse, before anything runs, a picture that cannot be drawn. Raises `OptionError`."""
    if path is None:
        return
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise OptionError(f"a plot is a .png, .svg or .pdf file, not '{path.name}': name it {path.with_suffix('.png')}")
    if not path.absolute().parent.is_dir():
        raise OptionError(f"folder '{path.parent}' for the plot does not exist: make it first")
    _figure()


@dataclass(frozen=True)
class Plot:
    """A picture that notebooks show; `figure` is matplotlib's, to change or to put elsewhere."""

    figure: Any = field(repr=False)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it as .png, .svg or .pdf. Raises `CoveyError`."""
        try:
            self.figure.savefig(path, dpi=DOTS)
        except OSError as error:
            raise CoveyError(f"cannot write plot '{path}': {error.strerror}") from None

    def _repr_png_(self) -> bytes:
        stream = BytesIO()
        self.figure.savefig(stream, format="png", dpi=DOTS)
        return stream.getvalue()


def draw(profile: Profile, title: str) -> Plot:
    """Bars of milliseconds, computing and waiting, and of bytes, offline and online, in the order of execution."""
    nodes = _shown(profile.nodes)
    labels = [f"{node.name} ({node.op})" if node.op else node.name for node in nodes]
    places = list(range(len(nodes)))
    figure = _figure()(figsize=(11, max(3.0, 0.28 * len(nodes) + 1.2)), layout="constrained")
    times, traffic = figure.subplots(1, 2, sharey=True)
    waiting = [min(node.waiting_milliseconds, node.milliseconds) for node in nodes]
    computing = [node.milliseconds - wait for node, wait in zip(nodes, waiting, strict=True)]
    times.barh(places, computing, color="tab:gray", label="computing")
    times.barh(places, waiting, left=computing, color="tab:red", label="waiting for others")
    times.set_xlabel("milliseconds")
    times.legend(loc="lower right")
    times.set_yticks(places, labels, fontsize=8)
    times.invert_yaxis()
    offline, online = ([getattr(node, name) / 1e6 for node in nodes] for name in ("offline_bytes", "online_bytes"))
    traffic.barh(places, offline, color="tab:blue", label="offline")
    traffic.barh(places, online, left=offline, color="tab:orange", label="online")
    traffic.set_xlabel("megabytes sent by all")
    traffic.legend(loc="lower right")
    total = profile.total
    figure.suptitle(f"{title}: {profile.seconds:.3g} s, {total.bytes / 1e6:.3g} MB, {total.rounds} rounds")
    return Plot(figure)


def draw_costs(comparison: CostComparison) -> Plot:
    """Bars of bytes by what they are for, a panel for each protocol and a bar for each model."""
    protocols = list(dict.fromkeys(cost.protocol for cost in comparison.costs))
    models = list(comparison.rings)
    places = list(range(len(models)))
    size = (2.0 + 3.0 * len(protocols), max(3.0, 0.4 * len(models) + 1.6))
    figure = _figure()(figsize=size, layout="constrained")
    panels = figure.subplots(1, len(protocols), sharey=True, squeeze=False)[0]
    for panel, protocol in zip(panels, protocols, strict=True):
        costs = [cost for cost in comparison.costs if cost.protocol == protocol]
        left = [0.0] * len(costs)
        for part, label in PARTS.items():
            lengths = [cost.parts[part] / 1e6 for cost in costs]
            panel.barh(places, lengths, left=left, label=label)
            left = [start + length for start, length in zip(left, lengths, strict=True)]
        panel.set_title(protocol)
        panel.set_xlabel("megabytes sent by all")
    panels[0].set_yticks(places, models, fontsize=8)
    panels[0].invert_yaxis()
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize=8)
    return Plot(figure)


def draw_trade_off(trade_off: TradeOff) -> Plot:
    """Every point at its cost and accuracy, with its name; the line is the best accuracy for at most a cost."""
    figure = _figure()(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    points, front = trade_off.points, trade_off.front
    axes.scatter([point.cost for point in points], [point.accuracy for point in points], color="tab:gray")
    costs, accuracies = ([getattr(point, name) for point in front] for name in ("cost", "accuracy"))
    axes.plot(costs, accuracies, color="tab:red", marker="o", drawstyle="steps-post", label="front")
    if points[0].cost > 0:
        axes.set_xscale("log")
    within = axes.transAxes.inverted()
    for index, point in enumerate(points):
        # Dollar signs of a name would be formulas.
        label, place = point.name.replace("$", r"\$"), (point.cost, point.accuracy)
        # Names of neighbours go below and above, and those at the right end to the left, where there is room.
        right = within.transform(axes.transData.transform(place))[0] > 0.75
        offset = (-4 if right else 4, 5 if index % 2 else -11)
        axes.annotate(
            label,
            place,
            offset,
            textcoords="offset points",
            fontsize=8,
            horizontalalignment="right" if right else "left",
        )
    axes.set_xlabel(trade_off.cost.replace("$", r"\$"))
    axes.set_ylabel(trade_off.accuracy.replace("$", r"\$"))
    axes.legend(loc="best")
    return Plot(figure)


def draw_training(epochs: Sequence[Epoch], title: str) -> Plot:
    """The losses that opened, by the steps of each, and their mean in each epoch; the accuracy of each epoch."""
    figure = _figure()(figsize=(9, 4), layout="constrained")
    rated = [epoch for epoch in epochs if epoch.accuracy is not None]
    panels = figure.subplots(1, 2 if rated else 1, squeeze=False)[0]
    middles, steps, losses = [], [], []
    for epoch in epochs:
        # A run that was continued may lack the first ones.
        before = (epoch.number - 1) * epoch.steps
        between = epoch.steps / max(len(epoch.losses), 1)
        steps += [before + between * (index + 1) for index in range(len(epoch.losses))]
        losses += epoch.losses
        middles.append(before + epoch.steps / 2)
    panels[0].plot(steps, losses, color="tab:gray", linewidth=0.8, label="opened in a step")
    means = [(middle, epoch.loss) for middle, epoch in zip(middles, epochs, strict=True) if epoch.loss is not None]
    panels[0].plot(*zip(*means, strict=True), color="tab:red", marker="o", label="mean of an epoch")
    panels[0].set_xlabel("steps")
    panels[0].set_ylabel("loss")
    panels[0].legend(loc="upper right")
    if rated:
        panels[1].plot([epoch.number for epoch in rated], [epoch.accuracy for epoch in rated], marker="o")
        panels[1].set_xlabel("epochs")
        panels[1].set_ylabel("part of labels right before each step")
    figure.suptitle(title)
    return Plot(figure)


def _shown(nodes: list[NodeProfile]) -> list[NodeProfile]:
    """All nodes, or those that send most in their order and the others together."""
    if len(nodes) <= MOST_NODES:
        return nodes
    most = sorted(range(len(nodes)), key=lambda index: nodes[index].bytes, reverse=True)[: MOST_NODES - 1]
    rest = Profile([node for index, node in enumerate(nodes) if index not in most], 0.0).total
    left = NodeProfile(
        f"{len(nodes) - len(most)} others",
        "",
        rest.milliseconds,
        rest.rounds,
        rest.offline_bytes,
        rest.online_bytes,
        [],
        rest.waiting_milliseconds,
    )
    return [*(nodes[index] for index in sorted(most)), left]


def _figure() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise OptionError("a plot needs matplotlib, which is not installed: pip install 'covey[plot]'") from None
    return Figure
