"""Training jobs of networks of the zoo: what they minimise, by which optimiser, on which samples and labels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import onnx

from covey.bench.cache import SOURCES, Kept, kept_as
from covey.client import Progress
from covey.compiled import Compiled
from covey.errors import OptionError
from covey.models import SAMPLE_SEED, Spec
from covey.models.specs import CALIBRATION_SEED
from covey.training.job import compile_training
from covey.training.losses import LABELS
from covey.training.minibatches import forms_of
from covey.training.optimizers import SGD, Adam, Optimizer, adamw

if TYPE_CHECKING:
    from covey._core import Program

OPTIMIZERS: dict[str, Optimizer] = {
    "sgd": SGD(0.01),
    "momentum": SGD(0.01, momentum=0.9),
    "adam": Adam(0.001),
    "adamw": adamw(0.001),
}
"""By the names that benchmarks give them. A step costs the same at any rate."""

JOB_SOURCES = (*SOURCES, "training", "bench/jobs.py")
"""What decides how a job is compiled."""

FACTOR = ".factor"
"""How names of constants end that a Transformer of the zoo multiplies by: these are no weights."""

Arrays = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Job:
    """The training of a network of the zoo on minibatches. Raises `OptionError` for what there is not."""

    spec: Spec
    batch: int
    optimizer: str = "sgd"

    def __post_init__(self) -> None:
        if self.optimizer not in OPTIMIZERS:
            raise OptionError(f"optimizer '{self.optimizer}' is unknown: use {', '.join(OPTIMIZERS)}")
        if self.spec.carry:
            raise OptionError(
                f"a run of {self.spec.model} needs what the run before left, and such models are not trained: use "
                f"bert-base-layer or another"
            )

    @property
    def label(self) -> str:
        """Of its files."""
        return f"{self.spec.label}-training-{self.optimizer}-batch-{self.batch}"

    @property
    def rates(self) -> Optimizer:
        """The optimiser with its numbers."""
        return OPTIMIZERS[self.optimizer]

    def kept(self, folder: Path, progress: Progress) -> Kept:
        """The network and the program of one step, made unless they are there already. Raises a `CoveyError` for a
        network that is not trained."""
        return kept_as(self.label, self.spec, self._compiled, folder, progress, JOB_SOURCES)

    def _compiled(self, model: onnx.ModelProto) -> Compiled:
        samples = self.spec.samples(max(self.batch, _calibrating(self.spec)), CALIBRATION_SEED)
        outputs = [dim.dim_value for dim in model.graph.output[0].type.tensor_type.shape.dim][1:]
        classes = outputs[0] if len(outputs) == 1 else None
        count = len(next(iter(samples.values())))
        labels = _labels((count, *(outputs if classes is None else ())), classes, CALIBRATION_SEED)
        return compile_training(
            model,
            loss="mse" if classes is None else "cross-entropy",
            optimizer=self.rates,
            batch=self.batch,
            calibration=(samples, labels),
            input_range=self.spec.input_range,
            freeze=[tensor.name for tensor in model.graph.initializer if tensor.name.endswith(FACTOR)],
            open_weights=True,
            name=self.spec.label,
        ).compiled

    def minibatches(self, program: Program, count: int) -> list[Arrays]:
        """Inputs of so many steps, all different."""
        forms, batch = forms_of(program)
        (truth,) = (form for form in forms if form.name == LABELS)
        classes = None if truth.classes is None else truth.classes[0]
        samples: Arrays = dict(self.spec.samples(batch * count, SAMPLE_SEED))
        samples[LABELS] = _labels((batch * count, *truth.shape), classes, SAMPLE_SEED)
        return [
            {name: array[None, start : start + batch] for name, array in samples.items()}
            for start in range(0, batch * count, batch)
        ]


def _calibrating(spec: Spec) -> int:
    """How many samples calibrate the network for inference."""
    return len(next(iter(spec.calibration().values())))


def _labels(shape: tuple[int, ...], classes: int | None, seed: int) -> npt.NDArray[np.float64]:
    """Random classes, or random targets where outputs are no scores of classes."""
    rng = np.random.default_rng(seed)
    drawn = rng.uniform(-1, 1, shape) if classes is None else rng.integers(0, classes, shape)
    return drawn.astype(np.float64)
