"""bench roles: what it brings that the parties take all roles in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from covey.cli import console
from covey.cli.bench_options import Batch, Cache, ModelName, Networks, Pool, Repetitions, Ring, Shape
from covey.cli.options import Json, Protocol, check_served
from covey.errors import OptionError
from covey.protocols import PROTOCOLS

if TYPE_CHECKING:
    from covey.bench.roles import Pair


def roles(
    name: ModelName = "lenet5",
    shape: Shape = None,
    pool: Pool = None,
    batch: Batch = 1,
    protocol: Protocol = "trio",
    ring: Ring = "auto",
    network: Networks = None,
    repetitions: Repetitions = 5,
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """Fixed against turned roles, a lane of each assignment: throughput, and bytes of the busiest interface."""
    from covey.bench.cache import default_folder
    from covey.bench.networks import network as find_network
    from covey.bench.pipelines import bed
    from covey.bench.roles import measure
    from covey.models import find

    if not PROTOCOLS[check_served(protocol)].roles_turn:
        turning = " or ".join(info.name for info in PROTOCOLS.values() if info.roles_turn)
        raise OptionError(f"roles do not turn in {protocol}: use {turning}")
    networks = [find_network(each) for each in network or ["1g"]]
    spec = find(name, shape, pool)
    with (
        console.progress(quiet=as_json) as report,
        bed(spec, cache or default_folder(), report, protocol=protocol, ring=ring, batch=batch) as made,
    ):
        pairs = measure(made, networks, repetitions, report)
    if as_json:
        rows = [pair.to_json() for pair in pairs]
        console.print_json({"model": spec.label, "protocol": protocol, "batch": batch, "rows": rows})
        return
    lanes = PROTOCOLS[protocol].computing[0]
    console.say(
        f"{spec.label}, {lanes} inferences of batch {batch} at a time, {protocol}, preprocessing included, "
        f"exact, over TLS; medians of {repetitions} requests of each, in turn"
    )
    console.out().print(_table(pairs))
    console.say(
        "interface: bytes sent or received, whichever is more, by the party where that is most, a sample. "
        "CPU: of all parties, a request."
    )


def _table(pairs: list[Pair]) -> Table:
    columns = ["samples a second", "ratio", "interface", "all links", "CPU"]
    table = console.table("fixed and turned roles", ["network", "roles"], columns)
    for pair in pairs:
        for row in (pair.fixed, pair.turned):
            ratio = pair.ratios
            table.add_row(
                row.network.name,
                row.roles,
                f"{row.samples_per_second:.3g}",
                f"{ratio.median:.2f} ({ratio.least:.2f} to {ratio.most:.2f})" if row is pair.turned else "",
                console.amount(row.interface_bytes // row.samples),
                console.amount(row.all_bytes // row.samples),
                "-" if None in row.cpu_seconds else console.duration(sum(used or 0.0 for used in row.cpu_seconds)),
            )
    return table
