"""Train networks in four forms and thinned ones on Fashion-MNIST, and set their accuracies beside their bytes.

    python examples/accuracies.py --data /usr/share/datasets/fashion-mnist [--out docs/figures]

`FAMILIES` says which networks: each form, and the dense one with a part of its channels throughout. All are trained by
the same recipe. Those of the first seed are compiled; their bytes are planned, and their accuracy in fixed point is
counted. Runs and costs are kept in the working folder as they are found, so a run that was stopped continues: delete it
after a change of the recipe. It writes accuracies.csv, for `covey pareto`, and plots. It prints each form beside a
thinned network of equal bytes. Needs `pip install torch matplotlib`; half an hour or more on one core. The data are in
Debian's package dataset-fashion-mnist.
"""

import argparse
import csv
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import image_data
import numpy as np
import onnx
import torch
from image_data import Images
from train_images import Recipe, accuracy, built, logits_of, train

import covey
from covey.clear import run_clear
from covey.model import load
from covey.models import multiplications
from covey.nn import ZooNetwork
from covey.trade_off import Point, TradeOff

IMAGES, VALIDATION = 5000, 2000
"""The first so many of the training images and of the test images."""

RECIPE = Recipe(epochs=2, batch=32, learning_rate=0.05)

CALIBRATION = 128
"""Training images that programs are calibrated with."""

IN_THE_CLEAR = 200
"""Test images that the compiled programs classify, too."""

FORMS = ("dense", "x", "factorised", "shuffle")

COSTS = {
    "two_party_ot_bytes": ("two-party", "ot"),
    "two_party_bytes": ("two-party", None),
    "trio_bytes": ("trio", None),
}
"""Columns, and what they are counted with: the protocol, and how two parties multiply."""

PLOTTED = {
    "two_party_ot_bytes": "bytes between two parties by oblivious transfer",
    "trio_bytes": "bytes among three parties (Trio)",
}

RUN_COLUMNS = ("name", "seed", "accuracy", "seconds")
COST_COLUMNS = ("name", "parameters", "multiplications", *COSTS, "float_accuracy", "clear_accuracy")
COLUMNS = ("name", "size", "accuracy", "deviation", "seeds", *COST_COLUMNS[1:])
"""Of the table: `deviation` between seeds; the last two are of IN_THE_CLEAR images, before and after compiling."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Variant:
    """A network of the zoo: its form, and the part of its channels that it has."""

    model: str
    size: int
    operator: str
    width: float

    def __str__(self) -> str:
        return f"{self.model} {self.operator} {self.width:g} at {self.size}"


@dataclass(frozen=True)
class Family:
    """A network in its forms at one width, and the dense one at smaller widths."""

    model: str
    size: int
    width: float
    thinner: tuple[float, ...]
    seeds: int

    @property
    def variants(self) -> list[Variant]:
        forms = [Variant(self.model, self.size, form, self.width) for form in FORMS]
        return forms + [Variant(self.model, self.size, "dense", width) for width in self.thinner]


FAMILIES = (
    Family("resnet18", 64, 0.5, (0.125, 0.18, 0.25, 0.35), 2),
    Family("shufflenetv2", 32, 1.0, (0.25, 0.35, 0.5, 0.7), 1),
)


def kept(path: Path, columns: tuple[str, ...]) -> list[Row]:
    """The rows found so far."""
    if not path.exists():
        path.write_text(",".join(columns) + "\n", "utf-8")
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def keep(path: Path, row: Row) -> None:
    """Add a row, and print it."""
    with path.open("a", newline="", encoding="utf-8") as stream:
        csv.writer(stream, lineterminator="\n").writerow(row.values())
    print(*(f"{name} {value}" for name, value in row.items()), sep=", ", flush=True)


def file_of(each: Variant, work: Path) -> Path:
    """Where the network of the first seed is kept."""
    return work / f"{str(each).replace(' ', '-')}.onnx"


def trained(each: Variant, seed: int, data: Images, work: Path) -> Row:
    """One run: the accuracy on the test images."""
    network = ZooNetwork(built(each.model, data.classes, each.size, each.operator, each.width))
    start = time.monotonic()
    train(network, data.train, IMAGES, replace(RECIPE, seed=seed), lambda line: None)
    found = accuracy(logits_of(network, data.valid, VALIDATION), data.valid.labels[:VALIDATION].numpy())
    if seed == 0:
        onnx.save(network.to_onnx(), file_of(each, work))
    values = (str(each), seed, f"{found:.4f}", round(time.monotonic() - start))
    return dict(zip(RUN_COLUMNS, values, strict=True))


def cost(each: Variant, data: Images, work: Path) -> Row:
    """What the network of the first seed costs, and its accuracy on some test images, in float and compiled."""
    model = onnx.load(file_of(each, work))
    calibration = data.train.images(range(CALIBRATION)).numpy()
    compiled = covey.compile(model, calibration=calibration, input_range=data.range)
    images, classes = data.valid.images(range(IN_THE_CLEAR)).numpy(), data.valid.labels[:IN_THE_CLEAR].numpy()
    (logits,) = run_clear(load(compiled), {"image": images}).outputs.values()
    float_logits = logits_of(ZooNetwork(model).eval(), data.valid, IN_THE_CLEAR)
    parameters = sum(parameter.numel() for parameter in ZooNetwork(model).parameters())
    planned = [covey.explain(compiled, protocol, linear=linear).total.bytes for protocol, linear in COSTS.values()]
    accuracies = [f"{accuracy(scores, classes):.4f}" for scores in (float_logits, logits)]
    values = (str(each), parameters, multiplications(model), *planned, *accuracies)
    return dict(zip(COST_COLUMNS, values, strict=True))


def results(data: str, work: Path) -> Iterator[tuple[Variant, list[float], Row]]:
    """Every network with its accuracies and its costs, after running what is missing."""
    work.mkdir(parents=True, exist_ok=True)
    loaded = {family.size: image_data.load(data, family.size) for family in FAMILIES}
    runs, costs = work / "runs.csv", work / "costs.csv"
    accuracies: dict[str, dict[int, float]] = defaultdict(dict)
    for row in kept(runs, RUN_COLUMNS):
        accuracies[row["name"]][int(row["seed"])] = float(row["accuracy"])
    known = {row["name"]: row for row in kept(costs, COST_COLUMNS)}
    for seed in range(max(family.seeds for family in FAMILIES)):
        for family in FAMILIES:
            for each in family.variants if seed < family.seeds else ():
                if seed not in accuracies[str(each)]:
                    row = trained(each, seed, loaded[each.size], work)
                    keep(runs, row)
                    accuracies[str(each)][seed] = float(row["accuracy"])
    for family in FAMILIES:
        for each in family.variants:
            if str(each) not in known:
                known[str(each)] = cost(each, loaded[each.size], work)
                keep(costs, known[str(each)])
            yield each, list(accuracies[str(each)].values()), known[str(each)]


def main() -> int:
    parser = argparse.ArgumentParser(description="Accuracies of forms and of thinned networks, beside their costs.")
    parser.add_argument("--data", required=True, help="the folder of Fashion-MNIST's four files")
    parser.add_argument("--out", type=Path, default=Path("docs/figures"), help="the folder of the table and the plots")
    parser.add_argument("--work", type=Path, default=Path("target/accuracies"), help="what is kept between runs")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    try:
        rows = []
        for each, accuracies, costs in results(chosen.data, chosen.work):
            numbers = (f"{np.mean(accuracies):.4f}", f"{np.std(accuracies):.4f}", len(accuracies))
            rows.append(dict(zip(COLUMNS, (str(each), each.size, *numbers, *list(costs.values())[1:]), strict=True)))
        chosen.out.mkdir(parents=True, exist_ok=True)
        with (chosen.out / "accuracies.csv").open("w", newline="", encoding="utf-8") as stream:
            writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        draw(rows, chosen.out)
        print(*beside_thinned(rows), sep="\n")
    except covey.CoveyError as error:
        sys.exit(f"error: {error}")
    return 0


def draw(rows: list[Row], folder: Path) -> None:
    """Accuracy against bytes, a plot for each network and cost."""
    for family in FAMILIES:
        for column, what in PLOTTED.items():
            points = [
                Point(f"{each.operator} {each.width:g}", float(row["accuracy"]), float(row[column]))
                for row, each in members(rows, family)
            ]
            points.sort(key=lambda point: (point.cost, -point.accuracy))
            title = f"{family.model} on {family.size} × {family.size} images: {what}"
            TradeOff(points, "accuracy", title).plot(
                folder / f"{family.model}-{family.size}-{column.removesuffix('_bytes').replace('_', '-')}.png"
            )


def members(rows: list[Row], family: Family) -> list[tuple[Row, Variant]]:
    """The rows of a family, each with what it is of."""
    named = {str(each): each for each in family.variants}
    return [(row, named[row["name"]]) for row in rows if row["name"] in named]


def beside_thinned(rows: list[Row]) -> Iterator[str]:
    """Each form's accuracy less that of a thinned dense network of equal bytes, in points of a hundred.

    The latter is interpolated between the dense networks, along the logarithm of their bytes. One that is less accurate
    than another of fewer bytes counts as that one. Beyond their range it is the nearest's.
    """
    yield f"{'form':<36}" + "".join(f"{column:>22}" for column in COSTS)
    for family in FAMILIES:
        found = members(rows, family)
        dense = [row for row, each in found if each.operator == "dense"]
        for row in (row for row, each in found if each.operator != "dense"):
            cells = []
            for column in COSTS:
                thinned = sorted((np.log(float(each[column])), float(each["accuracy"])) for each in dense)
                logs, accuracies = zip(*thinned, strict=True)
                accuracies = np.maximum.accumulate(accuracies)
                here = np.log(float(row[column]))
                difference = 100 * (float(row["accuracy"]) - np.interp(here, logs, accuracies))
                beyond = " (more)" if here > logs[-1] else " (fewer)" if here < logs[0] else ""
                cells.append(f"{difference:+.1f}{beyond}")
            yield f"{row['name']:<36}" + "".join(f"{cell:>22}" for cell in cells)


if __name__ == "__main__":
    sys.exit(main())
