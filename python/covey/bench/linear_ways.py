"""The ways in which two parties multiply by weights, side by side: oblivious transfer, lattice encryption, and the way
that the planner takes for each layer."""

from __future__ import annotations

from collections.abc import Sequence

from covey.bench.cells import Cell, Preset, selected
from covey.bench.one_network import one_network
from covey.client import Progress
from covey.models import ImageSpec

NETWORKS_SHOWN = (
    (ImageSpec("lenet5", "mnist", "max"), 37),
    (ImageSpec("minionn", "cifar", "avg"), 41),
    (ImageSpec("squeezenet", "imagenet", "avg"), 32),
)
"""Networks and their bits."""

WAYS = ("ot", "lattice", "auto")
PROFILES = ("loopback", "cryptflow2-lan", "cryptflow2-wan")


def _side_by_side(times: int, say: Progress, rows: Sequence[str] | None = None) -> list[Cell]:
    chosen = selected("two-party-linear", "row", [spec.model for spec, _ in NETWORKS_SHOWN], rows)
    return [
        one_network(spec, bits, linear, profile, "", times, say, warm_up=1)
        for spec, bits in NETWORKS_SHOWN
        for profile in PROFILES
        for linear in WAYS
        if spec.model in chosen
    ]


PRESETS = {
    "two-party-linear": Preset(
        "Two parties: linear layers by OT, by lattice encryption, and by the faster of both",
        "No paper's. One image each, after one to warm up; preprocessing included. So many outputs differ from "
        "clear's; processor seconds are those of both parties. Auto plans each layer for the network: where its bytes "
        "and rounds are those of lattice, it sends the same messages. What sends more than 20 GB or takes more than "
        "ten minutes on the wire is planned.",
        _side_by_side,
        ("rows",),
    ),
}
"""By name."""
