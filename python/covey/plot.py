"""A profile as a picture. matplotlib draws it and is asked for only then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from covey.errors import CoveyError, OptionError
from covey.result import NodeProfile, Profile

MOST_NODES = 40
"""Nodes that are drawn; what is left over is one bar."""


def check_plot(path: Path | None) -> None:
    """Refuse, before anything runs, a picture that cannot be drawn. Raises `OptionError`."""
    if path is None:
        return
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise OptionError(
            f"a plot is a .png, .svg or .pdf file, not '{path.name}': use --plot {path.with_suffix('.png')}"
        )
    if not path.absolute().parent.is_dir():
        raise OptionError(f"folder '{path.parent}' for the plot does not exist: make it first")
    _figure()


def draw(profile: Profile, path: Path, title: str) -> None:
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
    try:
        figure.savefig(path, dpi=120)
    except OSError as error:
        raise CoveyError(f"cannot write plot '{path}': {error.strerror}") from None


def _shown(nodes: list[NodeProfile]) -> list[NodeProfile]:
    """All nodes, or the dearest ones in their order and the others together."""
    if len(nodes) <= MOST_NODES:
        return nodes
    dearest = sorted(range(len(nodes)), key=lambda index: nodes[index].bytes, reverse=True)[: MOST_NODES - 1]
    rest = Profile([node for index, node in enumerate(nodes) if index not in dearest], 0.0).total
    left = NodeProfile(
        f"{len(nodes) - len(dearest)} others",
        "",
        rest.milliseconds,
        rest.rounds,
        rest.offline_bytes,
        rest.online_bytes,
        [],
        rest.waiting_milliseconds,
    )
    return [*(nodes[index] for index in sorted(dearest)), left]


def _figure() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise OptionError("--plot needs matplotlib, which is not installed: pip install 'covey[plot]'") from None
    return Figure
