"""The tables of `covey bench`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from covey.bench.model import Outcome
from covey.bench.runs import links
from covey.bench.statistics import Summary
from covey.cli import console
from covey.protocols import PROTOCOLS

if TYPE_CHECKING:
    from covey.bench import gallery
    from covey.bench.cells import Cell, Preset
    from covey.bench.gains import KernelGain
    from covey.bench.gains import Row as GainsRow
    from covey.bench.gpu import Generator
    from covey.bench.gpu import Row as GpuRow
    from covey.bench.kernels import Figure
    from covey.bench.phases import Phases
    from covey.bench.primitives import Row as PrimitiveRow


def kernels_table(figures: list[Figure]) -> Table:
    """One line a kernel."""
    table = console.table("kernels, one thread, fastest run", ["kernel"], ["rate", "to float", "target", ""])
    for figure in figures:
        least = "" if figure.target is None else f"≥ {figure.target:g}{' ×' if figure.ratio is not None else ''}"
        table.add_row(
            console.cell(figure.name),
            f"{figure.value:,.1f} {figure.unit}",
            "" if figure.ratio is None else f"{figure.ratio:.2f} ×",
            least,
            {None: "", True: "reached", False: "missed"}[figure.reached],
        )
    return table


def generator_table(generators: list[Generator]) -> Table:
    """One line a width of words."""
    numbers = ["GPU", "one core", "copy to the GPU", "packed, drawn there", "drawn by a core", "differ"]
    table = console.table("masks: words of the generator, and a weight of them", ["bits"], numbers)
    for of in generators:
        rates = [f"{of.rate(seconds):,.1f} GB/s" for seconds in (of.seconds, of.core_seconds, of.copy_seconds)]
        packed = [console.duration(seconds) for seconds in (of.packed_seconds, of.brought_seconds)]
        table.add_row(str(of.bits), *rates, *packed, f"{of.differing:,}")
    return table


def gpu_table(rows: list[GpuRow]) -> Table:
    """One line a map and a width of words."""
    numbers = ["bits", "GPU", "TMAC/s", "one core", "faster", "than its twin", "differ"]
    table = console.table("linear maps by the GPU and by one core", ["map"], numbers)
    for row in rows:
        table.add_row(
            console.cell(row.name),
            str(row.bits),
            console.duration(row.seconds),
            f"{row.rate:.2f}",
            console.duration(row.core_seconds),
            f"{row.gain:.1f} ×",
            "" if row.twin_seconds is None else f"{row.twin_seconds / row.seconds:.1f} ×",
            f"{row.differing:,}",
        )
    return table


def primitives_table(rows: list[PrimitiveRow]) -> Table:
    """One line a primitive."""
    checked = any(row.check_wall for row in rows)
    parties = " ".join(f"P{number}" for number in range(max(len(row.cpu_seconds) for row in rows)))
    numbers = ["time", "spread", *(["check"] if checked else []), f"CPU {parties}", "bits", "rounds", "GMAC/s"]
    table = console.table("primitives", ["primitive"], numbers)
    for row in rows:
        rate = row.gmacs_per_core
        table.add_row(
            console.cell(row.name),
            console.duration(row.wall.median),
            f"{row.wall.spread:.0%}",
            *([console.duration(row.check_wall.median) if row.check_wall else ""] if checked else []),
            " ".join("-" if seconds is None else f"{seconds:.2f}" for seconds in row.cpu_seconds),
            f"{row.bits:,.1f}"
            + ("" if row.as_planned else f" ({row.gate_bits:,.1f} for {row.planned_gate_bits:,.1f})"),
            f"{row.rounds:,}" + ("" if row.as_planned else f" ({row.planned_rounds:,})"),
            "" if rate is None else f"{rate:.1f}",
        )
    return table


def print_cells(preset: Preset, cells: list[Cell]) -> None:
    """A paper's figure or table, made again: one table, or one for each domain where the preset has its own columns."""
    out = console.out()
    if not preset.columns:
        out.print(cells_table(preset.title, cells))
    else:
        console.say(preset.title)
    for domain in dict.fromkeys(cell.domain for cell in cells if preset.columns):
        of_domain = [cell for cell in cells if cell.domain == domain]
        planned = ", planned" if all(cell.planned for cell in of_domain) else ""
        table = console.table(f"{domain}{planned}", ["what"], [column.heading for column in preset.columns])
        for cell in of_domain:
            table.add_row(console.cell(cell.what), *(column.text(cell) for column in preset.columns))
        out.print("", table)
    console.say(preset.note)


def cells_table(title: str, cells: list[Cell]) -> Table:
    """A paper's figure or table, made again."""
    says, compares = any(cell.here for cell in cells), any(cell.paper for cell in cells)
    numbers = ["time", "sent", "rounds", *(["here"] if says else []), *(["the paper's"] if compares else [])]
    table = console.table(title, ["what", "ring, network"], numbers)
    for cell in cells:
        table.add_row(
            console.cell(cell.what),
            f"{cell.domain}\n{cell.network}",
            console.duration(cell.seconds) + ("\nplanned" if cell.planned else ""),
            console.amount(round(cell.bytes)),
            f"{cell.rounds:,}",
            *([cell.here.replace("; ", "\n")] if says else []),
            *([cell.paper.replace("; ", "\n")] if compares else []),
        )
    return table


def print_outcome(outcome: Outcome, *, nodes: bool) -> None:
    """A model's figures: the run as a whole, party by party, link by link."""
    setting, runs = outcome.setting, outcome.runs
    out = console.out()
    many = f"{setting.repetitions} repetitions after {setting.warm_up} warm-up"
    out.print(f"{setting.title}  {outcome.parameters:,} parameters  batch {setting.batch}")
    key_bits = setting.options.get("key_bits")
    meaning = f"approximate ({key_bits} key bits)" if key_bits else "exact"
    out.print(
        f"{PROTOCOLS[setting.protocol].label(setting.parties)} on {setting.network}, phase {setting.phase}, "
        f"{outcome.ring}, scale {outcome.scale}, "
        f"{meaning}, over TLS; {many}\n"
    )
    out.print(_figures(outcome), "")
    out.print(_parties(outcome), "")
    out.print(_links(outcome))
    if nodes:
        out.print()
        out.print(console.profile_table(runs.profile.nodes, runs.profile.total))


def _figures(outcome: Outcome) -> Table:
    setting, runs = outcome.setting, outcome.runs
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_row("wall", _spread(runs.wall))
    table.add_row("throughput", f"{outcome.images_per_second:.3g} {setting.spec.unit}/s")
    if runs.preparation is not None:
        preprocessing = runs.preparation.profile
        table.add_row(
            "preprocessed",
            f"{console.duration(preprocessing.seconds)}, {console.amount(preprocessing.total.bytes)} before it",
        )
    if runs.check_wall is not None:
        table.add_row(
            "the check", f"{console.duration(runs.check_wall.median)} of it, once all parties have come to it"
        )
    planned = "as planned" if outcome.bytes == outcome.planned_bytes else f"planned {outcome.planned_bytes:,} B"
    table.add_row("sent on all links", f"{console.amount(outcome.bytes)}, {planned}")
    planned = "" if runs.profile.total.rounds == outcome.planned_rounds else f", planned {outcome.planned_rounds:,}"
    table.add_row("rounds", f"{runs.profile.total.rounds:,}{planned}")
    total = runs.total_cpu_seconds
    if total is not None:
        table.add_row("CPU of the parties", f"{total:.2f} s; the client's {runs.client_cpu_seconds:.2f} s")
    busiest, use = outcome.busiest_link(), outcome.link_use
    if busiest is not None and use is not None:
        table.add_row("busiest link", f"{busiest[0]}, {use:.0%} of what {setting.network.name} offers")
    plain = outcome.plaintext
    if plain is not None:
        table.add_row(
            "plaintext", f"{console.duration(plain.wall.median)}, {plain.cpu_seconds:.3f} s CPU, {plain.engine}"
        )
        if outcome.cpu_ratio is not None:
            table.add_row("CPU over plaintext", f"{outcome.cpu_ratio:.1f} ×")
        if outcome.relative_error is not None:
            table.add_row("error to plaintext", f"{outcome.relative_error:.4%} (relative L2)")
        if outcome.same_answers is not None:
            table.add_row("answers as plaintext's", f"{outcome.same_answers:,} of {outcome.elements:,}")
    if outcome.differing is not None:
        different = "differs" if outcome.setting.options.get("key_bits") else "DIFFERS"
        equal = "equal in all" if not outcome.differing else f"{different} in {outcome.differing:,} of"
        table.add_row("against clear", f"{equal} {outcome.elements:,} {setting.compared}")
    return table


def _spread(summary: Summary) -> str:
    ends = f"{console.duration(summary.least)} to {console.duration(summary.most)}"
    return f"{console.duration(summary.median)}   ({ends}, spread {summary.spread:.0%})"


def _parties(outcome: Outcome) -> Table:
    runs = outcome.runs
    gpus = any(runs.gpu_memory_bytes)
    numbers = ["CPU s", "peak memory", "planned", *(["of a GPU"] if gpus else []), "sent", "with framing and TLS"]
    table = console.table("party by party", ["party"], numbers)
    sent = dict.fromkeys(range(len(runs.cpu_seconds)), 0)
    for link in links(runs.profile):
        if link["from"] in sent:
            sent[link["from"]] += link["offline_bytes"] + link["online_bytes"]
    for number, (seconds, peak) in enumerate(zip(runs.cpu_seconds, runs.peak_memory_bytes, strict=True)):
        table.add_row(
            outcome.setting.peer(number),
            "-" if seconds is None else f"{seconds:.2f}",
            "-" if peak is None else console.amount(peak),
            console.amount(outcome.planned_memory_bytes[number]),
            *([console.amount(runs.gpu_memory_bytes[number] or 0)] if gpus else []),
            console.amount(sent[number]),
            console.amount(runs.socket_bytes_sent[number]),
        )
    return table


def _links(outcome: Outcome) -> Table:
    table = console.table("link by link", ["from", "to"], ["offline", "online", "messages"])
    for link in links(outcome.runs.profile):
        table.add_row(
            outcome.setting.peer(link["from"]),
            outcome.setting.peer(link["to"]),
            console.amount(link["offline_bytes"]),
            console.amount(link["online_bytes"]),
            f"{link['messages']:,}",
        )
    return table


def phases_table(phases: Phases) -> Table:
    """One line a phase, and their sum beside the run that interleaves them."""
    table = console.table("phases", ["phase"], ["wall", "spread", "CPU s", "sent", "rounds"])
    for row in phases.rows:
        if row.section:
            table.add_section()
        table.add_row(
            row.name,
            console.duration(row.wall),
            "" if row.spread is None else f"{row.spread:.0%}",
            "" if row.cpu_seconds is None else f"{row.cpu_seconds:.2f}",
            console.amount(row.bytes),
            f"{row.rounds:,}",
        )
    return table


def gains_table(rows: list[GainsRow]) -> Table:
    """One line a variant, each beside the first."""
    table = console.table("gains", ["variant"], ["wall", "×", "CPU s", "×", "sent", "×", "rounds", "peak"])
    for row in rows:
        runs = row.outcome.runs
        total = runs.total_cpu_seconds
        peaks = [peak for peak in runs.peak_memory_bytes if peak is not None]
        table.add_row(
            console.cell(row.name),
            console.duration(runs.wall.median),
            f"{row.wall_ratio:.2f}",
            "-" if total is None else f"{total:.2f}",
            "-" if row.cpu_ratio is None else f"{row.cpu_ratio:.2f}",
            console.amount(row.outcome.bytes),
            f"{row.bytes_ratio:.2f}",
            f"{runs.profile.total.rounds:,}",
            console.amount(max(peaks)) if peaks else "-",
        )
    return table


def kernel_gains_table(rows: list[KernelGain]) -> Table:
    """One line an idea and layer."""
    table = console.table("linear layers on one thread, GMAC/s", ["idea, layer"], ["with", "without", "gain"])
    for row in rows:
        table.add_row(
            console.cell(row.name),
            f"{row.with_it:.1f}",
            f"{row.without_it:.1f}",
            f"{row.with_it / row.without_it:.2f} ×",
        )
    return table


def print_gallery(made: list[gallery.Table]) -> None:
    """A table of networks, and one a protocol."""
    for title, headings, cells in made:
        table = console.table(title, headings[:1], headings[1:])
        for row in cells:
            table.add_row(console.cell(row[0]), *row[1:])
        console.out().print(table, "")
