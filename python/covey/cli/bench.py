"""bench: what Covey takes of machines and networks, as tables and as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from covey.cli import bench_pipelines, bench_roles, bench_training, console
from covey.cli.bench_options import (
    Adder,
    Batch,
    Cache,
    Check,
    Classes,
    Cores,
    Images,
    Layers,
    MedianRepetitions,
    ModelName,
    ModelPhase,
    Network,
    Operator,
    Phase,
    Pool,
    Protocols,
    Ring,
    Rows,
    Sequence,
    Shape,
    Side,
    Size,
    WarmUp,
    Width,
)
from covey.cli.options import Device, Json, KeyBits, Lanes, LinearMethod, PartyCount, Protocol, Threads, check_served
from covey.errors import CoveyError, OptionError
from covey.protocols import PROTOCOLS, device_option, threads_option

if TYPE_CHECKING:
    from covey.bench.cells import Cell
    from covey.bench.model import Setting
    from covey.bench.networks import NetworkProfile
    from covey.bench.runs import BenchPhase
    from covey.models import Spec

app = typer.Typer(
    help="Measure kernels, protocol primitives and models on this machine.", no_args_is_help=True, add_completion=False
)

app.command()(bench_pipelines.calibrate)
app.command()(bench_pipelines.pipelines)
app.command()(bench_roles.roles)
app.command()(bench_training.training)


@app.command()
def kernels(
    every: Annotated[bool, typer.Option("--all", help="Many more shapes than those with targets.")] = False,
    as_json: Json = False,
) -> None:
    """What the kernels reach on one thread, beside a float library."""
    from covey.bench import kernels as bench
    from covey.cli.bench_tables import kernels_table

    with console.progress(quiet=as_json) as report:
        floats, figures = bench.measure(every, report)
    amx = bench.has_amx()
    if as_json:
        yardstick = {"engine": floats.engine, "gmacs": floats.gmacs}
        rows = [figure.to_json() for figure in figures]
        console.print_json({"processor": bench.processor(), "amx": amx, "yardstick": yardstick, "kernels": rows})
        return
    console.say(bench.processor())
    rates = ", ".join(f"{rate:.1f} at {shape}" for shape, rate in floats.gmacs.items())
    console.say(f"float products ({floats.engine}), GMAC/s: {rates}")
    if amx is False:
        console.say("no AMX (int8) here: products use what the table names, and their targets are out of reach")
    console.say("instruction set: " + ", ".join(dict.fromkeys(figure.instruction_set for figure in figures)))
    console.out().print(kernels_table(figures))


@app.command()
def gpu(
    device: Device = "cuda",
    every: Annotated[bool, typer.Option("--all", help="The convolutions of every network of the zoo.")] = False,
    layers: Annotated[int, typer.Option(min=0, help="Dense layers of random sizes.")] = 12,
    batch: Annotated[int, typer.Option(min=1, help="Images of a convolution.")] = 1,
    parts: Annotated[int, typer.Option(min=1, max=4, help="Products that a party adds up, as protocols do.")] = 2,
    as_json: Json = False,
) -> None:
    """Linear maps and masks on a GPU against one core, bit for bit; copies to the GPU and back count."""
    from covey.bench import gpu as bench
    from covey.cli.bench_tables import generator_table, gpu_table

    with console.progress(quiet=as_json) as report:
        measured = bench.measure(device or "cuda", every, layers, batch, parts, report)
    if as_json:
        console.print_json(measured.to_json())
    else:
        console.say(measured.used)
        console.out().print(generator_table(measured.generators))
        relu = measured.relu
        by_gpu = {"copies": relu.copy_seconds, "draws": relu.draw_seconds, "planes": relu.plane_seconds}
        by_core = {"draws": relu.core_draw_seconds, "planes": relu.core_plane_seconds}
        for name, parts_of in (("the GPU would take", by_gpu), ("one core takes", by_core)):
            of = ", ".join(f"{part} {console.duration(seconds)}" for part, seconds in parts_of.items())
            total = console.duration(sum(parts_of.values()))
            console.say(f"local work of a ReLU, {relu.elements:,} elements of 32 bits: {name} {total} ({of})")
        console.out().print(gpu_table(measured.rows))
        console.say(f"{measured.differing:,} of {measured.elements:,} elements differ")
    if measured.differing:
        raise typer.Exit(1)


@app.command()
def primitives(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Only those that begin so.")] = None,
    protocol: Protocol = "trio",
    parties: PartyCount = None,
    ring: Annotated[int, typer.Option(help="Bits of the ring: 32 or 64; 16 to 64 for two-party.")] = 32,
    phase: Phase = "joint",
    network: Network = "loopback",
    adder: Adder = None,
    linear: LinearMethod = None,
    threads: Threads = None,
    repetitions: MedianRepetitions = 5,
    warm_up: WarmUp = 1,
    as_json: Json = False,
) -> None:
    """Multiplications, comparisons, products and layers, each as a program of its own."""
    from covey.bench import primitives as bench
    from covey.bench.networks import network as find_network
    from covey.bench.runs import session_options
    from covey.cli.bench_tables import primitives_table

    info = PROTOCOLS[check_served(protocol)]
    count, rings = info.count(parties), info.rings
    if ring not in rings:
        known = f"{rings[0]} or {rings[-1]}" if len(rings) == 2 else f"{rings[0]} to {rings[-1]}"
        raise OptionError(f"{protocol} has no ring of {ring} bits: use {known}")
    profile = find_network(network)
    options = {"adder": adder, "linear": linear, **_preprocessed(protocol, phase)}
    session_options(options)
    chosen = bench.select(names or [], protocol)
    times: dict[str, Any] = {"repetitions": repetitions, "warm_up": warm_up}
    with console.progress(quiet=as_json) as report:
        rows = bench.measure(
            chosen,
            protocol=protocol,
            computing=count,
            ring=ring,
            network=profile,
            options=options,
            **times,
            progress=report,
            phase=_phase(phase),
            threads=threads,
        )
    if as_json:
        console.print_json(
            {
                "protocol": protocol,
                "parties": count,
                "ring": ring,
                "network": str(profile),
                **times,
                "rows": [row.to_json() for row in rows],
            }
        )
    else:
        console.say(
            f"{info.label(count)} on {profile}, phase {phase}, Z_2^{ring}, exact, over TLS; "
            f"medians of {repetitions} runs"
        )
        console.out().print(primitives_table(rows))
        console.say(
            "time: the slowest party's in the node. CPU: seconds, less those of a twin that only adds its inputs.\n"
            "bits: per element, on all links (in brackets: of the gates, for what was planned). GMAC/s: per core "
            "of one party's CPU."
        )
    wrong = [row.name for row in rows if row.differing]
    if wrong:
        raise CoveyError(f"{', '.join(wrong)}: results differ from clear; please report it")
    unplanned = [row.name for row in rows if not row.as_planned]
    if unplanned:
        raise CoveyError(f"{', '.join(unplanned)}: the meter counted other than the plan; please report it")


@app.command()
def model(
    name: ModelName,
    shape: Shape = None,
    pool: Pool = None,
    operator: Operator = None,
    size: Size = None,
    classes: Classes = None,
    width: Width = None,
    sequence: Sequence = None,
    layers: Layers = None,
    batch: Batch = 1,
    protocol: Protocol = "trio",
    parties: PartyCount = None,
    ring: Ring = "auto",
    phase: ModelPhase = "joint",
    adder: Adder = None,
    linear: LinearMethod = None,
    key_bits: KeyBits = None,
    network: Network = "loopback",
    repetitions: MedianRepetitions = 3,
    warm_up: WarmUp = 1,
    check: Check = True,
    lanes: Lanes = None,
    device: Device = None,
    threads: Threads = None,
    nodes: Annotated[bool, typer.Option("--nodes", help="Show time, bytes and rounds node by node.")] = False,
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """A model of the zoo, run privately and in plaintext."""
    from covey.bench.model import measure
    from covey.cli.bench_tables import print_outcome
    from covey.models import find

    count = PROTOCOLS[check_served(protocol)].count(parties)
    options = {"adder": adder, "linear": linear, "key_bits": key_bits, **_preprocessed(protocol, phase)}
    options["lanes"] = lanes
    spec = find(name, shape, pool, sequence, layers, operator=operator, size=size, classes=classes, width=width)
    setting = _setting(
        spec, network, options,
        protocol=protocol, parties=count, batch=batch, ring=ring, phase=phase,
        repetitions=repetitions, warm_up=warm_up, check=check, device=device_option(device, protocol),
        threads=threads_option(threads, protocol),
    )  # fmt: skip
    with console.progress(quiet=as_json) as report:
        outcome = measure(setting, _cache(cache), report)
    if as_json:
        console.print_json(outcome.to_json())
    else:
        print_outcome(outcome, nodes=nodes)
    if outcome.differing and key_bits is None:
        raise CoveyError(
            f"{outcome.differing} of {outcome.elements} outputs differ from clear; please report it with the command"
        )


@app.command()
def phases(
    name: ModelName = "lenet5",
    shape: Shape = None,
    pool: Pool = None,
    operator: Operator = None,
    size: Size = None,
    classes: Classes = None,
    width: Width = None,
    sequence: Sequence = None,
    layers: Layers = None,
    batch: Batch = 1,
    protocol: Protocol = "trio",
    parties: PartyCount = None,
    ring: Ring = "auto",
    adder: Adder = None,
    linear: LinearMethod = None,
    network: Network = "loopback",
    repetitions: MedianRepetitions = 3,
    warm_up: WarmUp = 1,
    check: Check = True,
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """A model with its phases interleaved, against preprocessing, online and check one after the other."""
    from covey.bench.phases import measure_phases
    from covey.cli.bench_tables import phases_table
    from covey.models import find

    info = PROTOCOLS[check_served(protocol)]
    count = info.count(parties)
    spec = find(name, shape, pool, sequence, layers, operator=operator, size=size, classes=classes, width=width)
    _can_preprocess(spec)
    setting = _setting(
        spec, network, {"adder": adder, "linear": linear},
        protocol=protocol, parties=count, batch=batch, ring=ring, repetitions=repetitions, warm_up=warm_up, check=check,
    )  # fmt: skip
    with console.progress(quiet=as_json) as report:
        outcome = measure_phases(setting, _cache(cache), report)
    if as_json:
        console.print_json(outcome.to_json())
    else:
        console.say(
            f"{setting.spec.label}, batch {batch}, {info.label(count)} on {setting.network}, {outcome.joint.ring}, "
            f"exact, over TLS; medians of {repetitions} runs"
        )
        console.out().print(phases_table(outcome))
        console.say(f"interleaved over one after the other: {outcome.ratio:.2f}. CPU: of all parties.")
    if outcome.differing:
        raise CoveyError(f"{outcome.differing} outputs differ from clear; please report it with the command")


@app.command()
def paper(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="cryptflow2-figure1, cryptflow2-table4, 5, 6, 7; mpc-pipe-figure1, 4, 6, 7, 9, 10; "
            "mpc-pipe-table1, 2, 3, 4, 5, 6; mpc-pipe-section5.5; mpc-pipe-first-figure5, 6, 7, 8; "
            "mpc-pipe-training-figure8, 9, 10; mpc-pipe-training-table3, 4, 5; training-steps; "
            "pigeon-table1, 4, 5, 6, 7, 8, 9, 10; pigeon-figure2, 4, 7; vgg16-cifar; "
            "efficient-models-table1, 2; efficient-models-figure3; two-party-linear.",
        ),
    ],
    size: Side = None,
    batch: Images = None,
    protocols: Protocols = None,
    linear: LinearMethod = None,
    rows: Rows = None,
    cores: Cores = None,
    device: Device = None,
    repetitions: MedianRepetitions = 3,
    as_json: Json = False,
) -> None:
    """A figure or table of a paper, measured here; what would take over ten minutes is planned and says so.

    Those of efficient-models are planned throughout, for parties with so many --cores. --batch, --rows and
    --protocols make tables of PIGEON smaller, --rows also two-party-linear; --device is for those that do not compare
    devices themselves.
    """
    from covey.bench.papers import find
    from covey.cli.bench_tables import print_cells

    preset = find(name)
    options = {
        "size": size, "batch": batch, "protocols": _names(protocols), "linear": linear, "rows": _names(rows),
        "cores": cores, "device": device_option(device, name),
    }  # fmt: skip
    cells: list[Cell] = []
    complete = False
    try:
        with console.progress(quiet=as_json) as report:
            for cell in preset.cells(repetitions, report, options):
                cells.append(cell)
        complete = True
    finally:  # what is measured when it fails is shown
        if as_json and (cells or complete):
            made = [cell.to_json() for cell in cells]
            about = {"title": preset.title, "note": preset.note, "repetitions": repetitions}
            console.print_json({**about, "complete": complete, "cells": made})
        elif cells:
            print_cells(preset, cells)


@app.command()
def gallery(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Only these networks; or .covey files.")
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="As docs/gallery.md has it.")] = False,
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """Standard networks and their cost in every protocol, planned: nothing runs."""
    from covey.bench import gallery as bench
    from covey.cli.bench_tables import print_gallery

    with console.progress(quiet=as_json) as report:
        rows = bench.rows(names or [], _cache(cache), report)
    if as_json:
        console.print_json({"rows": [row.to_json() for row in rows]})
        return
    made = bench.tables(rows, console.amount, console.duration)
    if markdown:
        console.say(bench.markdown(made))
    else:
        print_gallery(made)


@app.command()
def gains(
    name: ModelName = "vgg16",
    shape: Shape = None,
    pool: Pool = None,
    operator: Operator = None,
    size: Size = None,
    classes: Classes = None,
    width: Width = None,
    sequence: Sequence = None,
    layers: Layers = None,
    batch: Batch = 1,
    protocol: Protocol = "trio",
    ring: Ring = "auto",
    network: Network = "loopback",
    repetitions: MedianRepetitions = 3,
    warm_up: WarmUp = 1,
    cache: Cache = None,
    brief: Annotated[bool, typer.Option("--brief", help="Kernels of one layer instead of five.")] = False,
    as_json: Json = False,
) -> None:
    """What each of Covey's ideas brings, switched off one by one."""
    from covey.bench.gains import measure_gains, measure_kernel_gains
    from covey.cli.bench_tables import gains_table, kernel_gains_table
    from covey.models import MODELS, find

    if check_served(protocol) != "trio":
        raise OptionError(f"{protocol} has no switches to measure: use trio")
    spec = find(
        name,
        shape,
        pool or ("avg" if name in MODELS else None),
        sequence,
        layers,
        operator=operator,
        size=size,
        classes=classes,
        width=width,
    )
    setting = _setting(spec, network, {}, batch=batch, ring=ring, repetitions=repetitions, warm_up=warm_up)
    with console.progress(quiet=as_json) as report:
        rows = measure_gains(setting, _cache(cache), report)
        kernels = measure_kernel_gains(report, 1 if brief else 5)
    if as_json:
        whole, parts = [row.to_json() for row in rows], [row.to_json() for row in kernels]
        console.print_json({"model": whole, "kernels": parts})
    else:
        console.say(f"{setting.spec.label}, batch {batch}, trio on {setting.network}, exact, over TLS")
        console.out().print(gains_table(rows))
        console.out().print(kernel_gains_table(kernels))
    wrong = [row.name for row in rows if row.outcome.differing]
    if wrong:
        raise CoveyError(f"{', '.join(wrong)}: outputs differ from clear; please report it")


def _setting(
    spec: Spec,
    network: str,
    options: dict[str, Any],
    **more: Any,
) -> Setting:
    """What to run. Raises `OptionError` for what there is not, before anything is built or started."""
    from covey.bench.model import Setting
    from covey.bench.networks import network as find_network
    from covey.bench.runs import session_options

    protocol = more.get("protocol", Setting.protocol)
    ring, rings = more.get("ring", "auto"), PROTOCOLS[protocol].rings
    if ring != "auto" and (not ring.isdigit() or int(ring) not in rings):
        known = f"{rings[0]} or {rings[-1]}" if len(rings) == 2 else f"a number from {rings[0]} to {rings[-1]}"
        raise OptionError(f"{protocol} has no ring of '{ring}' bits: use auto, or {known}")
    if _model_phase(more.get("phase", "joint")) != "joint":
        _can_preprocess(spec)
    session_options(options)
    profile: NetworkProfile = find_network(network)
    return Setting(spec=spec, network=profile, options=options, **more)


def _names(text: str | None) -> list[str] | None:
    """What is separated by commas."""
    return None if text is None else [name.strip() for name in text.split(",")]


def _can_preprocess(spec: Spec) -> None:
    if spec.carry:
        raise OptionError(
            f"a run of {spec.model} needs what the run before left and is not preprocessed: use covey bench model, "
            f"--phase joint"
        )


def _preprocessed(protocol: str, phase: str) -> dict[str, bool]:
    """What makes two parties preprocess linear layers, too, where preprocessing is apart."""
    return {"preprocess_linear": True} if protocol == "two-party" and phase != "joint" else {}


def _model_phase(name: str) -> BenchPhase:
    if name == "stored":
        return "stored"
    if name in ("joint", "online"):
        return _phase(name)
    raise OptionError(f"phase '{name}' is unknown: use joint, online or stored")


def _phase(name: str) -> Literal["joint", "online"]:
    if name == "joint":
        return "joint"
    if name == "online":
        return "online"
    raise OptionError(f"phase '{name}' is unknown: use joint or online")


def _cache(folder: Path | None) -> Path:
    from covey.bench.cache import default_folder

    return folder if folder is not None else default_folder()
