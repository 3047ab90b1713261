"""The test vectors of the `onnx` package through the compiler and the bit-exact interpreter: `make onnx-vectors`.

Cases are those `onnx.backend.test.case.node` generates and the models bundled in `onnx/backend/test/data`. ONNX knows
neither a batch nor who owns what, so a case is read in several ways: all its floating-point and truth-value inputs
are secret activations, or only the first of them and the others belong to the model, or those that are as long as the
first one; and the first dimension of the activations is the batch, or a batch of one is put in front (`batched.py`
says what that changes in each operator). Recurrent operators have a batch of their own.
Whole-number inputs (axes, shapes, indices) always belong to the model. Every reading that Covey accepts must give the
vector's outputs; a case passes if there is one, and is unsupported, with the reason, if there is none.

The exit status is 1 if any reading gives wrong results or breaks, or if an operator that Covey lists has no passing
case.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.version_converter
from onnx import TensorProto, numpy_helper

import covey
from batched import RECURRENT, NotBatchableError, Reading, with_batch_brought_first, with_batch_of_one
from covey.clear import run_clear
from covey.importers.onnx import OLDEST_OPSET
from covey.importers.onnx_node import IMPORTERS
from covey.model import load

LISTED_TEXT = """
    Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh Attention AveragePool BatchNormalization Celu Clip
    Concat Conv ConvTranspose Cos Cosh CumSum DepthToSpace Div Einsum Elu Erf Exp Expand Flatten GRU Gather
    GatherElements GatherND Gelu Gemm GlobalAveragePool GlobalMaxPool Greater GreaterOrEqual GroupNormalization
    Hardmax HardSigmoid HardSwish InstanceNormalization LSTM LayerNormalization LeakyRelu Less LessOrEqual Log
    LogSoftmax LpNormalization MatMul Max MaxPool Mean Min Mish Mul Neg Not Or PRelu Pad Pow RMSNormalization RNN
    Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum
    ReduceSumSquare Relu Reshape Resize ScatterElements Selu Shrink Sigmoid Sign Sin Sinh Slice Softmax Softplus
    Softsign SpaceToDepth Split Sqrt Squeeze Sub Sum Swish Tan Tanh ThresholdedRelu Tile TopK Transpose Unsqueeze
    Upsample Where Xor
"""
LISTED = LISTED_TEXT.split()
"""Operators that must have a passing case. (Identity, Cast and Dropout alone only rename an
input, which is refused; the vectors of Equal are all of whole numbers; those of RotaryEmbedding turn each sample by
angles of its own.)"""

TAKEN = IMPORTERS.keys()
"""Operators that Covey has some form of."""

FEW_REASONS = 15

SEVERAL = "several operators"
"""Functions written out, and small networks."""

SCALE = 20

BATCHES: dict[str, Callable[..., Reading] | None] = {
    "the first dimension is the batch": None,
    "a batch of one in front": with_batch_of_one,
    "the batch behind the sequence": with_batch_brought_first,
}
"""Where a reading has the batch, and how the model is changed for it."""


class RefusedError(Exception):
    """Covey does not compile the reading, and says why."""


@dataclass(frozen=True)
class Case:
    """A model with inputs and the outputs due."""

    name: str
    model: onnx.ModelProto
    inputs: list[Any]
    outputs: list[Any]
    rtol: float = 1e-3

    @property
    def operators(self) -> set[str]:
        return {node.op_type for node in self.model.graph.node}

    @property
    def row(self) -> str:
        """Where the table counts it."""
        return self.operators.pop() if len(self.operators) == 1 else SEVERAL


@dataclass
class Verdict:
    """What came of a case."""

    passed: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    others: list[str] = field(default_factory=list)
    """Why the case has no such reading at all."""

    @property
    def reason(self) -> str:
        """The most telling one."""
        return [*self.others, *self.refused][-1]

    @property
    def kind(self) -> str:
        return "wrong" if self.wrong else "pass" if self.passed else "unsupported"


def node_cases() -> Iterator[Case]:
    """Those generated for single operators, and for the functions some of them stand for."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        collected = collect_testcases("")
    for case in collected:
        for inputs, outputs in case.data_sets:
            yield Case(case.name, _modern(case.model), _arrays(inputs), _arrays(outputs), case.rtol)


def _modern(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model, converted as Covey's message advises where it is too old for it."""
    versions = [entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")]
    if not versions or versions[0] >= OLDEST_OPSET:
        return model
    try:
        return onnx.version_converter.convert_version(model, 13)
    except Exception:  # the converter raises kinds of its own; Covey then says that the model is too old
        return model


def _arrays(values: Sequence[Any]) -> list[Any]:
    """Numbers as tensors without dimensions."""
    return [np.asarray(value) if isinstance(value, np.generic) else value for value in values]


def bundled_cases() -> Iterator[Case]:
    """Those in the package's data: PyTorch's operators and layers, and small models. The networks in `light` have equal
    weights throughout and answer evenly whatever they are given; those in `real` are but addresses of downloads."""
    data = Path(onnx.__file__).parent / "backend" / "test" / "data"
    for folder in sorted(data.glob("*/*")):
        if not (folder / "model.onnx").exists():
            continue
        model = onnx.load(folder / "model.onnx")
        for vectors in sorted(folder.glob("test_data_set_*")):
            try:
                inputs = [_tensor(vectors / f"input_{i}.pb") for i in range(len(list(vectors.glob("input_*.pb"))))]
                outputs = [_tensor(vectors / f"output_{i}.pb") for i in range(len(list(vectors.glob("output_*.pb"))))]
            except Exception:  # sequences, which are no tensors
                inputs = outputs = [None]
            yield Case(f"{folder.parent.name}/{folder.name}", model, inputs, outputs)


def _tensor(path: Path) -> np.ndarray:
    proto = TensorProto()
    proto.ParseFromString(path.read_bytes())
    if proto.data_type == TensorProto.UNDEFINED:
        raise ValueError("no tensor")
    return numpy_helper.to_array(proto)


def examine(case: Case) -> Verdict:
    """Run every reading of a case."""
    verdict = Verdict()
    names = [value.name for value in case.model.graph.input]
    initial = {tensor.name for tensor in case.model.graph.initializer}
    names = [name for name in names if name not in initial]
    arrays = [*case.inputs, *[None] * (len(names) - len(case.inputs))]
    if any(not isinstance(array, np.ndarray) for array in [*arrays, *case.outputs]):
        verdict.refused.append("an input or output is no tensor")
        return verdict
    known = dict(zip(names, arrays, strict=False))
    secret = [name for name in names if known[name].dtype.kind in "fb"]
    if not secret:
        verdict.refused.append("no input holds floating-point numbers or truth values")
    alike = [name for name in secret if known[name].shape[:1] == known[secret[0]].shape[:1]]
    ways = {"all secret": secret, "the first secret": secret[:1], "those as long as the first secret": alike}
    for owner, chosen in ways.items() if secret else []:
        if chosen in list(ways.values())[: list(ways).index(owner)]:
            continue
        for where, change in BATCHES.items():
            if change is with_batch_brought_first and not case.operators <= RECURRENT:
                continue
            reading = f"{owner}, {where}"
            try:
                attempt(case, known, chosen, change)
            except RefusedError as error:
                verdict.refused.append(str(error))
            except NotBatchableError as error:
                verdict.others.append(str(error))
            except AssertionError as error:
                verdict.wrong.append(f"{reading}: {' '.join(str(error).split())[:200]}")
            except Exception as error:
                verdict.wrong.append(f"{reading}: breaks with {type(error).__name__}: {error}")
            else:
                verdict.passed.append(reading)
    return verdict


def attempt(
    case: Case, known: dict[str, np.ndarray], secret: Sequence[str], change: Callable[..., Reading] | None
) -> None:
    """One reading. Raises `RefusedError`, `NotBatchableError`, or `AssertionError` where the results are wrong."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    for name, array in known.items():
        if name not in secret:
            model.graph.initializer.append(numpy_helper.from_array(array, name))
    inputs = {name: known[name] for name in secret}
    outputs = case.outputs
    if change is not None:
        model, inputs, outputs = change(model, inputs, outputs)
    elif len({array.shape[:1] for array in inputs.values()}) > 1:
        raise NotBatchableError("its inputs differ in their first dimension")
    if not all(np.isfinite(array).all() for array in inputs.values()):
        raise RefusedError("an input is not finite, which clients refuse to share")
    ranges = {name: _span(array) for name, array in inputs.items()}
    try:
        compiled = covey.compile(model, input_range=ranges, ring=64, scale=SCALE, name="case")
    except covey.CoveyError as error:
        raise RefusedError(" ".join(str(error).split())) from None
    result = run_clear(load(compiled), {name: array.astype(np.float64) for name, array in inputs.items()})
    slack = sum(entry["error"] for entry in compiled.report["tables"])  # each as the report states it
    for got, due in zip(result.outputs.values(), outputs, strict=False):
        assert got.shape == due.shape, f"shape {list(got.shape)} where {list(due.shape)} is due"
        due = due.astype(np.float64)
        largest = float(np.abs(due).max(initial=0.0))
        tolerance = case.rtol * np.abs(due) + 1e-4 * (1 + largest) + slack * (1 + largest)
        worst = np.abs(got - due) - tolerance
        assert (worst <= 0).all(), (
            f"off by {np.abs(got - due).max():.3g} where {due.ravel()[worst.argmax()]:.3g} is due"
        )


def _span(array: np.ndarray) -> tuple[float, float]:
    """Where the numbers lie; 0 is among them where they are all one or none."""
    low, high = (float(array.min()), float(array.max())) if array.size else (0.0, 0.0)
    return (low, high) if low < high else (min(low, 0.0), max(high, 0.0))


def main() -> int:
    """Run all cases, print the table, and say what is amiss."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--details", type=Path, help="write every case with its readings or reasons to this file")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    options = parser.parse_args()
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    reasons: dict[str, Counter[str]] = defaultdict(Counter)
    details, wrong = [], []
    total: Counter[str] = Counter()
    inside: Counter[str] = Counter()
    for case in [*bundled_cases(), *node_cases()]:
        if options.only not in case.name:
            continue
        verdict = examine(case)
        total[verdict.kind] += 1
        counts[case.row][verdict.kind] += 1
        if verdict.kind == "unsupported":
            reasons[case.row][_short(verdict.reason)] += 1
            if case.operators <= TAKEN:
                inside[_short(verdict.reason)] += 1
        wrong += [f"{case.name}: {problem}" for problem in verdict.wrong]
        told = {
            "pass": verdict.passed,
            "wrong": verdict.wrong,
            "unsupported": dict.fromkeys([*verdict.refused, *verdict.others]),
        }
        details.append(f"{verdict.kind:12} {case.name}: {' | '.join(told[verdict.kind])}")
    if options.details:
        options.details.parent.mkdir(parents=True, exist_ok=True)
        options.details.write_text("\n".join(details) + "\n")
    _print_table(counts, reasons, total)
    _print_unsupported(total["unsupported"], inside)
    amiss = list(wrong)
    if not options.only:
        amiss += [f"{operator} has no passing case" for operator in LISTED if not counts[operator]["pass"]]
    for line in amiss:
        print(f"amiss: {line}")
    return 1 if amiss else 0


def _short(reason: str) -> str:
    """A reason without the node's name and the way out."""
    text = reason.split("): ", 1)[-1].split("; ", 1)[0]
    return text if len(text) <= 70 else text[:67] + "..."


def _print_table(counts: dict[str, Counter[str]], reasons: dict[str, Counter[str]], total: Counter[str]) -> None:
    print(f"{'operator':20} {'pass':>5} {'unsupported':>12} {'wrong':>6}  why unsupported, most often")
    known = [*sorted(LISTED), SEVERAL]
    for operator in known:
        row = counts[operator]
        why = ", ".join(f"{reason} ({count})" for reason, count in reasons[operator].most_common(2))
        print(f"{operator:20} {row['pass']:5} {row['unsupported']:12} {row['wrong']:6}  {why}")
    others = Counter[str]()
    for operator in counts.keys() - set(known):
        others.update(counts[operator])
    print(f"{'all other operators':20} {others['pass']:5} {others['unsupported']:12} {others['wrong']:6}")
    kinds = ", ".join(f"{total[kind]} {kind}" for kind in ("pass", "unsupported", "wrong"))
    print(f"\n{sum(total.values())} cases: {kinds}")


def _print_unsupported(total: int, inside: Counter[str]) -> None:
    """How many of the unsupported cases are of operators that Covey takes, and why those are not."""
    count = sum(inside.values())
    print(f"of the unsupported, {total - count} hold an operator that Covey does not list; {count} do not, because:")
    for reason, cases in inside.most_common(FEW_REASONS):
        print(f"{cases:6}  {reason}")
    rest = inside.most_common()[FEW_REASONS:]
    print(f"{sum(cases for _, cases in rest):6}  {len(rest)} more reasons, each of few cases (--details)")


if __name__ == "__main__":
    sys.exit(main())
