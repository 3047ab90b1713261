"""Compile scikit-learn's models, predict privately over every protocol, and compare with scikit-learn.

    python examples/sklearn_models.py [NAME ...] [--samples N] [--trees N] [--protocols trio,quad]

Forests have 100 trees of depth 6. Each model is fitted on a half of its data set and predicts samples of the other. For
each protocol the table says in how many integers it differs from `clear`, the fixed-point specification. Needs
`pip install 'covey[sklearn]'`. Exit code 1 if an integer differs or the accuracy falls by more than a point.
"""

import argparse
import sys
import time

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

import covey

PROTOCOLS = ("trio", "quad", "two-party", "beaver")
DATA = {"breast_cancer": load_breast_cancer, "digits": load_digits}
LOSS = 0.01
"""How much of scikit-learn's accuracy may be lost."""


def models(trees: int) -> dict[str, ClassifierMixin]:
    """A model for each name, not yet fitted."""
    return {
        "RandomForest": RandomForestClassifier(trees, max_depth=6, random_state=0),
        "GradientBoosting": GradientBoostingClassifier(n_estimators=trees, max_depth=6, random_state=0),
        "LogisticRegression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
        "LinearSVC": make_pipeline(StandardScaler(), LinearSVC(random_state=0)),
        "MLP": make_pipeline(StandardScaler(), MLPClassifier((32,), max_iter=300, random_state=0)),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(models(1))}; all by default")
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--trees", type=int, default=100)
    parser.add_argument("--protocols", default=",".join(PROTOCOLS))
    arguments = parser.parse_args()
    protocols = arguments.protocols.split(",")
    known = models(arguments.trees)
    if unknown := set(arguments.names) - known.keys():
        parser.error(f"unknown models {', '.join(sorted(unknown))}: take some of {', '.join(known)}")
    columns = ["model", "data", "ring", "scikit-learn", "clear", "agree", *protocols]
    widths = [max(len(column), 18 if index < 2 else 12) for index, column in enumerate(columns)]
    print("  ".join(column.ljust(width) for column, width in zip(columns, widths, strict=True)))
    failed = False
    for name in arguments.names or known:
        for data, load in DATA.items():
            cells, bad = row(name, load, arguments.trees, arguments.samples, protocols)
            failed |= bad
            line = [name, data, *cells]
            print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)), flush=True)
    return int(failed)


def row(name: str, load, trees: int, samples: int, protocols: list[str]) -> tuple[list[str], bool]:
    """The cells of a model and a data set, and whether it falls short."""
    features, classes = load(return_X_y=True)
    train, test, train_classes, test_classes = train_test_split(features, classes, random_state=0, test_size=0.5)
    model = models(trees)[name].fit(train, train_classes)
    compiled = covey.compile(model, calibration=train)
    test, test_classes = test[:samples], test_classes[:samples]
    results = {}
    for protocol in ["clear", *protocols]:
        with covey.local(protocol=protocol) as parties:
            begun = time.perf_counter()
            results[protocol] = (parties.run(compiled, test), time.perf_counter() - begun)
    due = results["clear"][0]
    (scores,) = due.outputs.values()
    (integers,) = due.integers.values()
    predicted, wanted = model.classes_[scores.argmax(axis=1)], model.predict(test)
    here, there = np.mean(predicted == test_classes), np.mean(wanted == test_classes)
    cells = [str(compiled.report["ring_bits"]), f"{there:.1%}", f"{here:.1%}", f"{np.mean(predicted == wanted):.1%}"]
    bad = there - here > LOSS
    for protocol in protocols:
        result, seconds = results[protocol]
        (got,) = result.integers.values()
        different = int((got != integers).sum())
        bad |= different > 0
        cells.append(f"{different} ({seconds:.1f} s)")
    return cells, bad


if __name__ == "__main__":
    sys.exit(main())
