"""The zoo's networks with every operator in every protocol, which must come to the bits of the specification.

    python python/tests/variants.py [--size 64] [--models densenet121,resnet50] [--operators x,shuffle]
        [--protocols trio,quad] [--json]

Each form of each network (docs/efficient-models.md) is built with 14 classes, as for CheXpert's labels, compiled, and
run on one pseudo-image. Every output must equal that of `clear`, every shuffle and concatenation must send nothing, and
what was sent must be what `covey explain` says. Prints a table; exit code 1 if any of that fails.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import covey
from covey import models
from covey._proto import program_pb2 as pb
from covey.bench.gallery import products
from covey.clear import run_clear
from covey.comparison import compare
from covey.emit import HEADER_BYTES
from covey.model import Model, load

MODELS = "densenet121,resnet50,resnet18,mobilenetv3-large,shufflenetv2"
PROTOCOLS = "trio,quad,beaver,two-party"
CLASSES, CALIBRATION = 14, 4
MOVES = ("gather", "concat")
"""Nodes that move elements, which is local."""

Row = dict[str, Any]


def compiled(spec: models.ImageSpec, folder: Path) -> Path:
    """The program of a network, as a file."""
    samples = spec.samples(CALIBRATION, seed=models.SAMPLE_SEED + 1)
    return covey.compile(spec.build(), calibration=samples, input_range=(0, 1)).save(folder / f"{spec.label}.covey")[0]


def described(spec: models.ImageSpec, model: Model) -> Row:
    """What the table says of a network, and whether its moves are among the steps that send nothing."""
    content = pb.Program.FromString(model.program.to_bytes()[HEADER_BYTES:])
    moves = {node.name for node in content.nodes if node.WhichOneof("op") in MOVES}
    return {
        "model": spec.model,
        "operator": spec.operator,
        "multiplications": products(content),
        "ring": model.program.ring_bits,
        "moves": sorted(moves),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=64, help="the side of images, by default 64")
    parser.add_argument("--models", default=MODELS, help=f"by default {MODELS}")
    parser.add_argument("--operators", default=",".join(models.OPERATORS), help="by default all")
    parser.add_argument("--protocols", default=PROTOCOLS, help=f"by default {PROTOCOLS}")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args()
    say = (lambda text: None) if arguments.json else (lambda text: print(text, flush=True))
    specs = [
        models.ImageSpec(name, "imagenet", operator=operator, size=arguments.size, classes=CLASSES)
        for name in arguments.models.split(",")
        for operator in arguments.operators.split(",")
    ]
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as scratch:
        files = {spec: compiled(spec, Path(scratch)) for spec in specs}
        for protocol in arguments.protocols.split(","):
            say(f"{protocol}\n{'network':<30}{'multiplications':>16}{'ring':>6}{'MB':>9}{'rounds':>8}  against clear")
            with covey.local(protocol, timeout=120) as parties:
                for spec, program in files.items():
                    row = measured(spec, load(program), parties, protocol)
                    rows.append(row)
                    wrong = [row[reason] for reason in ("differing", "sending", "unplanned") if row[reason]]
                    say(
                        f"{row['model'] + ' ' + row['operator']:<30}{row['multiplications']:>16,}{row['ring']:>6}"
                        f"{row['bytes'] / 1e6:>9.1f}{row['rounds']:>8}  {wrong or 'equal'}"
                    )
    if arguments.json:
        print(json.dumps(rows, indent=2))
    failed = sum(bool(row["differing"] or row["sending"] or row["unplanned"]) for row in rows)
    say(f"{len(rows)} runs, {failed} failed")
    return 1 if failed else 0


def measured(spec: models.ImageSpec, model: Model, parties: Any, protocol: str) -> Row:
    """One private run: elements that differ from clear, moves that sent something, and bytes beside the plan."""
    images = spec.samples(1)
    result = parties.run(model, images)
    row = described(spec, model)
    sent = {node.name: node.bytes for node in result.profile.nodes}
    planned = covey.explain(model, protocol).total.bytes
    total = result.profile.total.bytes
    return {
        **row,
        "protocol": protocol,
        "moves": len(row["moves"]),
        "sending": [name for name in row["moves"] if sent.get(name, 0)],
        "differing": sum(each.differing for each in compare(run_clear(model, images).integers, result.integers)),
        "bytes": total,
        "rounds": result.profile.total.rounds,
        # How many correlated OTs two parties make varies with what earlier runs left.
        "unplanned": 0 if protocol == "two-party" else total - planned,
    }


if __name__ == "__main__":
    sys.exit(main())
