"""The ways in which two parties multiply by weights, side by side: oblivious transfer, lattice encryption, and the way
that the planner takes for each layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from covey.bench.cells import COLUMNS, Cell, Column, Preset, selected
from covey.bench.one_network import one_network
from covey.client import Progress
from covey.models import ImageSpec
from covey.tables import duration

NETWORKS_SHOWN = (
    (ImageSpec("lenet5", "mnist", "max"), 37),
    (ImageSpec("minionn", "cifar", "avg"), 41),
    (ImageSpec("squeezenet", "imagenet", "avg"), 32),
)
"""Networks and their bits."""

WAYS = ("ot", "lattice", "auto")
PROFILES = ("loopback", "cryptflow2-lan", "cryptflow2-wan")


def _side_by_side(times: int, say: Progress, rows: Sequence[str] | None = None) -> Iterator[Cell]:
    chosen = selected("two-party-linear", "row", [spec.model for spec, _ in NETWORKS_SHOWN], rows)
    return (
        cell
        for spec, bits in NETWORKS_SHOWN
        for profile in PROFILES
        if spec.model in chosen
        for cell in _ways(spec, bits, profile, times, say)
    )


def _ways(spec: ImageSpec, bits: int, profile: str, times: int, say: Progress) -> list[Cell]:
    """One network on one link by each way, its seconds as parts of those of the better of the first two."""
    cells = {way: one_network(spec, bits, way, profile, "", times, say, warm_up=1) for way in WAYS}
    better = min(cells["ot"].seconds, cells["lattice"].seconds)
    return [
        replace(
            cell,
            what=f"{profile}, {way}",
            domain=f"{spec.model} in {cell.domain}",
            figures={**cell.figures, "over_better": cell.seconds / better},
        )
        for way, cell in cells.items()
    ]


def _cpu(cell: Cell) -> str:
    cpu = cell.figures.get("cpu_seconds")
    return "" if cpu is None else duration(cpu)


def _differ(cell: Cell) -> str:
    differing = cell.figures.get("differing")
    return "planned" if differing is None else f"{differing:,.0f}"


PRESETS = {
    "two-party-linear": Preset(
        "Two parties: linear layers by OT, by lattice encryption, and by the faster of both",
        "One image each, after one to warm up; preprocessing included. The ratio is to the better of OT and lattice; "
        "CPU is that of both parties; outputs that differ from clear's are counted. Auto plans each layer for the "
        "network: where its bytes and rounds are those of lattice, it sends the same messages. What sends more than "
        "20 GB or takes more than ten minutes on the wire is planned.",
        _side_by_side,
        ("rows",),
        (
            *COLUMNS[:3],
            Column("ratio", lambda cell: f"{cell.figures['over_better']:.2f}"),
            Column("CPU", _cpu),
            Column("differ", _differ),
        ),
    ),
}
"""By name."""
