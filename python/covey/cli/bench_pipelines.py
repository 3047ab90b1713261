"""bench calibrate, bench pipelines: how computation and communication overlap on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from covey.cli import console
from covey.cli.bench_options import (
    BALANCED,
    Batch,
    Cache,
    Layers,
    ModelName,
    NetworkOrBalanced,
    NetworksOrBalanced,
    Pool,
    Repetitions,
    Ring,
    Sequence,
    Shape,
)
from covey.cli.options import Json, PartyCount, Protocol, check_served
from covey.protocols import PROTOCOLS

if TYPE_CHECKING:
    from covey.bench.calibrate import Calibration
    from covey.bench.pipelines import Bed, Row
    from covey.client import Progress
    from covey.models import Spec


def calibrate(
    name: ModelName = "resnet18",
    shape: Shape = None,
    pool: Pool = None,
    sequence: Sequence = None,
    layers: Layers = None,
    batch: Batch = 1,
    protocol: Protocol = "beaver",
    parties: PartyCount = None,
    ring: Ring = "auto",
    network: NetworkOrBalanced = BALANCED,
    repetitions: Repetitions = 2,
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """Find the tile, window and lanes for this machine, and the rate at which communication equals computation."""
    from covey.bench.calibrate import calibrate as measure
    from covey.bench.networks import network as find_network
    from covey.models import find

    profile = None if network == BALANCED else find_network(network)
    with console.progress(quiet=as_json) as report:
        with _bed(find(name, shape, pool, sequence, layers), batch, protocol, parties, ring, cache, report) as bed:
            result = measure(bed, profile, repetitions, report)
        label = bed.spec.label
    if as_json:
        console.print_json({"model": label, "protocol": protocol, **result.to_json()})
        return
    _print_calibration(label, protocol, result)


def pipelines(
    name: ModelName = "resnet18",
    shape: Shape = None,
    pool: Pool = None,
    sequence: Sequence = None,
    layers: Layers = None,
    batch: Batch = 1,
    protocol: Protocol = "beaver",
    parties: PartyCount = None,
    ring: Ring = "64",
    network: NetworksOrBalanced = None,
    brief: Annotated[bool, typer.Option("--brief", help="None and all, without each by itself.")] = False,
    repetitions: Repetitions = 2,
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """What each pipeline brings: latency, throughput, and how links and cores are used."""
    from covey.bench import pipelines as bench
    from covey.bench.networks import NETWORKS
    from covey.bench.networks import network as find_network
    from covey.models import find

    named = [None if each == BALANCED else find_network(each) for each in network or [BALANCED]]
    variants = (bench.NONE, bench.TWO, bench.ALL) if brief else bench.VARIANTS
    with console.progress(quiet=as_json) as report:
        with _bed(find(name, shape, pool, sequence, layers), batch, protocol, parties, ring, cache, report) as bed:
            networks = [
                each or bench.need_balanced(bed.measure(bench.NONE, NETWORKS["loopback"], repetitions, report))
                for each in named
            ]
            rows = bench.table(bed, networks, variants, repetitions, report)
        label = bed.spec.label
    if as_json:
        console.print_json({"model": label, "protocol": protocol, "rows": [row.to_json() for row in rows]})
        return
    info = PROTOCOLS[protocol]
    console.say(f"{label}, batch {batch}, {info.label(info.count(parties))}, online, exact, over TLS")
    for profile in networks:
        of_network = [row for row in rows if row.network is profile]
        console.out().print("", _table(of_network))
    console.say(
        "latency: one inference by itself. throughput: several in a row, or as many at a time as there are lanes. "
        "waiting: of an inference by itself.\nlink: of the rate of one, while throughput was measured; cores: "
        "processor seconds of a party over seconds, then. The parties share this machine's processors."
    )


@contextmanager
def _bed(
    spec: Spec,
    batch: int,
    protocol: str,
    parties: int | None,
    ring: str,
    cache: Path | None,
    report: Progress,
) -> Iterator[Bed]:
    from covey.bench.cache import default_folder
    from covey.bench.pipelines import bed

    count = PROTOCOLS[check_served(protocol)].count(parties)
    folder = cache or default_folder()
    with bed(spec, folder, report, protocol=protocol, parties=count, ring=ring, batch=batch) as made:
        yield made


def _table(rows: list[Row]) -> Table:
    base = rows[0]
    table = console.table(
        f"pipelines on {base.network}",
        ["on"],
        ["latency", "less", "waiting", "per minute", "more", "link", "cores", "online"],
    )
    for row in rows:
        cores = " ".join("-" if use is None else f"{use:.2f}" for use in row.core_use)
        use = row.link_use
        link = f"{row.link_bits_per_second / 1e9:.2f} Gbit/s" + ("" if use is None else f" ({use:.0%})")
        table.add_row(
            console.cell(row.variant.name),
            console.duration(row.latency.median),
            f"{row.less_latency(base):+.0%}",
            f"{row.waiting_seconds / (row.waiting_seconds + row.computing_seconds):.0%}",
            f"{row.per_minute:.3g}",
            f"{row.more_throughput(base):+.0%}",
            link,
            cores,
            console.amount(row.bytes),
        )
    return table


def _print_calibration(label: str, protocol: str, result: Calibration) -> None:
    base = result.unpipelined
    as_long = "its rounds take longer than that on any local network"
    if result.balanced is not None:
        as_long = f"communicates as long at {result.balanced.name.removesuffix('g')} Gbit/s"
    computes = console.duration(base.computing_seconds)
    console.say(f"{label} with {protocol}: without pipelines an inference computes for {computes} and {as_long}")
    table = console.table(f"settings on {result.network}", ["option", "value"], ["seconds", ""])
    for trial in result.trials:
        table.add_row(
            trial.option, f"{trial.value:,}", console.duration(trial.seconds), "chosen" if trial.chosen else ""
        )
    console.out().print(table)
    options = ", ".join(f"{name}={value}" for name, value in result.options.items())
    console.say(f"for a session on this machine and network: client.session(model, {protocol!r}, {options})")
