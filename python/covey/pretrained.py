"""A saved Transformer of Hugging Face, or such a module, as a compiled program.

The module is wrapped so that its inputs are what a client holds: token ids and which of them count, an image or a
sound. All else it takes, such as positions, is a constant. Token sequences have one of few public lengths, the buckets;
each is a program of its own. PyTorch and `transformers` are imported when a model is asked for, and nothing is
downloaded.
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from rich.console import Group, RenderableType

from covey import decoders
from covey.arguments import check_flags, check_number
from covey.compiled import Compiled
from covey.compiled import compile as compile_model
from covey.errors import DataError, ModelError, OptionError
from covey.inputs import Data, listed, load_arrays, numbers
from covey.shown import Shown
from covey.wrapping import (
    COUNTED,
    IDS,
    IMAGES,
    SEGMENTS,
    SOUNDS,
    TRANSLATORS,
    Pooling,
    check_kind,
    first_position,
    is_base,
    padding_of,
    wrapped,
)

Whole = npt.NDArray[np.int64]
TASKS = {
    "features": "AutoModel",
    "text-classification": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
    "question-answering": "AutoModelForQuestionAnswering",
    "fill-mask": "AutoModelForMaskedLM",
    "text-generation": "AutoModelForCausalLM",
    "image-classification": "AutoModelForImageClassification",
    "audio-classification": "AutoModelForAudioClassification",
    "speech-recognition": "AutoModelForCTC",
}
"""What a model is for, and the class of `transformers` that loads it."""

MOST_TOKENS = 1 << 16
"""In a sequence, of a model without a limit."""

IMAGE_SIZE = 224
"""Of images where neither model nor preprocessor says it."""

NOT_HERE = {"path_or_model", "example_inputs", "calibration", "carry"}
"""Arguments of `compile` that `from_pretrained` gives itself."""

EXAMPLES = 4
"""Samples that stand in for calibration data."""


@dataclass(frozen=True)
class Buckets(Shown):
    """One compiled program for each length of token sequences, by that length. `padding` is the id that fills up."""

    programs: dict[int, Compiled]
    padding: int = field(repr=False)

    def fit(self, inputs: Mapping[str, Any]) -> tuple[Compiled, dict[str, Whole]]:
        """The program of the smallest bucket that holds these sequences, and the sequences padded to it.

        `inputs` has `input_ids` and, if some do not count, `attention_mask`, each [N, length] or N lists of ids. The
        client runs this: lengths within a bucket stay secret. Raises `DataError` for longer sequences.
        """
        segmented = any(SEGMENTS in compiled.graph.inputs for compiled in self.programs.values())
        columns = _columns(inputs, self.padding, segmented)
        longest = _longest(columns[COUNTED])
        length = next((each for each in sorted(self.programs) if each >= longest), None)
        if length is None:
            raise DataError(
                f"input '{IDS}' has {longest} tokens where the largest bucket has {max(self.programs)}: shorten the "
                f"text, or compile with a larger bucket"
            )
        compiled = self.programs[length]
        return compiled, {name: _to_length(columns[name], length, self._fill(name)) for name in compiled.graph.inputs}

    def save(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write the files of every program into a folder (see `Compiled.save`); returns the programs' paths."""
        return [each.save(Path(folder) / f"{each.graph.name}.covey")[0] for _, each in sorted(self.programs.items())]

    def rendered(self) -> RenderableType:
        """The programs' reports for a terminal (print it with rich)."""
        return Group(*(compiled.rendered() for _, compiled in sorted(self.programs.items())))

    def rows(self) -> list[dict[str, Any]]:
        """One row for each bucket: its length, ring, scale, and the error measured on calibration data."""
        rows = []
        for length, compiled in sorted(self.programs.items()):
            report = compiled.report
            error = (report["measured"] or {}).get("error")
            rows.append({"bucket": length, "ring_bits": report["ring_bits"], "scale": report["scale"], "error": error})
        return rows

    def _fill(self, name: str) -> int:
        return self.padding if name == IDS else 0


def from_pretrained(
    source: Any,
    *,
    task: str | None = None,
    sequence: int = 128,
    buckets: Sequence[int] | None = None,
    pooling: Pooling | None = None,
    pairs: bool = False,
    size: int | None = None,
    next_token: Literal["argmax", "logits"] | None = None,
    calibration: Data | None = None,
    **options: Any,
) -> Compiled | Buckets:
    """Compile a model of Hugging Face: encoders such as BERT, decoders such as Llama, networks for images and sounds.

    `covey.wrapping` lists the architectures.

    `source` is a folder that `save_pretrained` wrote, or a module of `transformers` in evaluation mode. `task` says
    which head of the folder's model to load, one of `TASKS`; by default the one that was saved. The inputs of text
    models are `input_ids` [N, sequence] and `attention_mask` [N, sequence], 1 where a token counts, and with `pairs`
    also `token_type_ids`. The output is the model's own: `logits`, or the states of all tokens, of which `pooling`
    makes one vector a sample.

    `next_token` makes a program for generation out of GPT-2, Llama or its like: each run takes one token, and the
    parties carry keys and values on (`covey.generate`). It reveals the next token ("argmax") or its scores ("logits"),
    for up to `sequence` tokens. Its `calibration` are token ids [N, T].

    `buckets` are several lengths instead of one `sequence`: the result is then a `Buckets`. `calibration` holds inputs
    by name, padded or shorter; without it random ids stand in, which are further from real text. Images have
    the range and the size that the folder's preprocessor gives them, else -1 to 1 and the model's size; `size` pixels a
    side where it is given. Sounds are as long as those of `calibration`, as the feature extractor gives them. Further
    `options` are those of `compile`.
    Raises a `CoveyError`.
    """
    model, name = _model(source, task)
    kind = model.config.model_type
    if pooling not in (None, "mean", "cls"):
        raise OptionError(f"pooling '{pooling}' is unknown: use mean, cls or None")
    if pooling is not None and not is_base(model):
        raise OptionError(f"pooling is for the states of {kind}, not for {type(model).__name__}: use task='features'")
    known = inspect.signature(compile_model).parameters.keys() - NOT_HERE
    for option in options.keys() - known:
        raise OptionError(f"from_pretrained has no option '{option}': use its own, or {listed(sorted(known))}")
    check_flags(pairs=pairs)
    name = options.pop("name", None) or name
    if size is not None:
        check_number("size", size, 1)
        if kind not in IMAGES:
            raise OptionError(f"size is that of images, and '{kind}' takes none: leave it out")
    if next_token is not None:
        if buckets is not None or pairs or pooling is not None:
            raise OptionError("a program for generation takes one token a run: leave out buckets, pairs and pooling")
        return decoders.compiled(model, sequence, next_token, calibration=calibration, name=name, **options)
    if kind in IMAGES:
        if buckets is not None or pairs:
            raise OptionError(f"'{kind}' takes images: leave out buckets and pairs")
        options.setdefault("input_range", _image_range(source))
        images = _images(model.config, options["input_range"], size or _image_size(source))
        data = images if calibration is None else calibration
        return compile_model(wrapped(model, pooling), images, calibration=data, name=name, **options)
    if kind in SOUNDS:
        if buckets is not None or pairs:
            raise OptionError(f"'{kind}' takes sounds: leave out buckets and pairs")
        sounds = _sounds(kind, calibration)
        return compile_model(wrapped(model, pooling), sounds, calibration=calibration, name=name, **options)
    if pairs and getattr(model.config, "type_vocab_size", 0) < 2:
        raise OptionError(f"'{kind}' tells no pairs of texts apart: leave out pairs")
    padding = padding_of(model.config)
    programs: dict[int, Compiled] = {}
    for length in _lengths(model, sequence, buckets):
        examples = _texts(model.config, length, padding, pairs)
        data = None if calibration is None else _of_length(calibration, length, padding, pairs)
        called = f"{name}-{length}" if buckets is not None else name
        module = wrapped(model, pooling, length=length, pairs=pairs)
        programs[length] = compile_model(module, examples, calibration=data, name=called, **options)
    return programs[sequence] if buckets is None else Buckets(programs, padding)


def _model(source: Any, task: str | None) -> tuple[Any, str]:
    """The module, loaded from a folder or as it is, and what its program is called."""
    shown = f"'{os.fspath(source)}'" if isinstance(source, str | os.PathLike) else "the model"
    try:
        import torch
        import transformers
    except ImportError as error:
        package = "transformers" if error.name != "torch" else "PyTorch"
        install = "pip install transformers" if error.name != "torch" else "pip install 'covey[torch]'"
        raise ModelError(f"{shown} needs {package}, which is not installed: {install}") from None
    if isinstance(source, str | os.PathLike):
        return _load(transformers, Path(source), task), Path(source).resolve().name
    if not isinstance(source, transformers.PreTrainedModel):
        raise ModelError(
            f"{type(source).__name__} is neither a folder nor a model of transformers: compile other modules with "
            f"covey.compile"
        )
    if task is not None:
        raise OptionError("a module has the head it was made with: leave out task")
    check_kind(source.config.model_type)
    if any(weight.dtype in (torch.float16, torch.bfloat16) for weight in source.parameters()):
        raise ModelError("the model computes in 16 bits: call float() on it first")
    return source, type(source).__name__


def _load(transformers: Any, folder: Path, task: str | None) -> Any:
    if not (folder / "config.json").is_file():
        raise ModelError(
            f"'{folder}' is no folder with a config.json: save the model with save_pretrained first, for Covey "
            f"downloads nothing"
        )
    if task is not None and task not in TASKS:
        raise OptionError(f"task '{task}' is unknown: use one of {', '.join(TASKS)}")
    try:
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # transformers raises many kinds
        raise ModelError(
            f"'{folder}' has no readable config.json ({_first_line(error)}): save the model again"
        ) from None
    check_kind(config.model_type)
    saved = (config.architectures or ["AutoModel"])[0]
    loader = getattr(transformers, TASKS[task] if task is not None else saved, None)
    if loader is None:
        raise ModelError(f"'{folder}' holds a {saved}, which transformers lacks: choose a task of {', '.join(TASKS)}")
    try:
        model, loading = loader.from_pretrained(
            folder, local_files_only=True, use_safetensors=True, output_loading_info=True, dtype="float32"
        )
    except Exception as error:  # transformers raises many kinds
        raise ModelError(
            f"the model in '{folder}' cannot be loaded ({_first_line(error)}): save it with save_pretrained"
        ) from None
    # What pools for a head is not part of a model's states.
    lacking = sorted(name for name in loading["missing_keys"] if not (is_base(model) and "pooler" in name))
    if lacking:
        raise ModelError(
            f"'{folder}' has no weights for '{lacking[0]}' of {type(model).__name__}: choose the task that it was "
            f"trained for"
        )
    return model.eval()


def _lengths(model: Any, sequence: int, buckets: Sequence[int] | None) -> list[int]:
    """The lengths to compile for, within what the model has positions for."""
    config = model.config
    if isinstance(buckets, str) or not isinstance(buckets, Iterable | None):
        raise OptionError(f"buckets is {buckets!r}: give several lengths, such as (32, 64, 128)")
    lengths = [sequence] if buckets is None else list(buckets)
    limits = (getattr(config, name, None) for name in ("max_position_embeddings", "n_positions"))
    # Some know how far tokens are from each other, and have no table of positions.
    most = next((limit for limit in limits if limit), MOST_TOKENS)
    most -= first_position(model)
    for length in lengths or [0]:
        if isinstance(length, bool) or not isinstance(length, int) or length < 1:
            raise OptionError(f"a sequence of {length!r} tokens is none: give whole numbers of at least 1")
        if length > most:
            raise OptionError(f"a sequence of {length} tokens is longer than the model's {most} positions: shorten it")
    return sorted(set(lengths))


def _texts(config: Any, length: int, padding: int, pairs: bool) -> tuple[Any, ...]:
    """Random ids as example inputs, each sample shorter than the one before."""
    import torch

    rng = np.random.default_rng(0)
    ids = rng.integers(0, config.vocab_size, (EXAMPLES, length))
    lengths = np.array([[max(1, length * part // EXAMPLES)] for part in range(EXAMPLES, 0, -1)])
    counted = np.arange(length) < lengths
    if config.model_type in TRANSLATORS and config.eos_token_id is not None:
        np.put_along_axis(ids, lengths - 1, config.eos_token_id, 1)  # by which they classify a text
    segments = np.broadcast_to(np.arange(length) >= length // 2, ids.shape)
    columns = [np.where(counted, ids, padding), counted, *([segments] if pairs else [])]
    return tuple(torch.from_numpy(column.astype(np.int64)) for column in columns)


def _images(config: Any, span: tuple[float, float], size: int | None) -> Any:
    import torch

    sides = size or getattr(config, "image_size", None) or IMAGE_SIZE
    height, width = (sides, sides) if isinstance(sides, int) else sides
    rng = np.random.default_rng(0)
    images = rng.uniform(*span, (EXAMPLES, config.num_channels, height, width))
    return torch.from_numpy(images.astype(np.float32))


def _sounds(kind: str, calibration: Data | None) -> Any:
    """The example inputs of a model for sounds, which say how long these are."""
    import torch

    name = SOUNDS[kind]
    if calibration is None:
        raise OptionError(f"'{kind}' takes sounds of one length: give calibration, '{name}' of a few sounds")
    sounds = load_arrays(calibration, [name], "calibration")[name]
    return torch.from_numpy(numbers(sounds, name).astype(np.float32))


def _image_range(source: Any) -> tuple[float, float]:
    """Where the values of an image are that the folder's preprocessor has normalised."""
    found = _preprocessor(source)
    try:
        mean, deviation = np.array(found["image_mean"]), np.array(found["image_std"])
        return (float((-mean / deviation).min()), float(((1 - mean) / deviation).max()))
    except (ValueError, KeyError, TypeError):
        return (-1.0, 1.0)


def _image_size(source: Any) -> int | None:
    """The side of the square images that the folder's preprocessor makes, if it makes such."""
    found = _preprocessor(source)
    for name, made in (("crop_size", "do_center_crop"), ("size", "do_resize")):
        sides = found.get(name) if found.get(made, True) else None
        if isinstance(sides, Mapping) and sides.get("height") == sides.get("width"):
            sides = sides.get("height")
        if isinstance(sides, int):
            return sides
    return None


def _preprocessor(source: Any) -> dict[str, Any]:
    """What a folder says of the images that its model takes."""
    if not isinstance(source, str | os.PathLike):
        return {}
    try:
        found = json.loads((Path(source) / "preprocessor_config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _columns(inputs: Any, padding: int, pairs: bool) -> dict[str, Whole]:
    """Ids, which of them count, and segments, each [N, length]; lists of several lengths are filled up."""
    names = (IDS, COUNTED, SEGMENTS)
    if not isinstance(inputs, Mapping):
        raise DataError(f"the data are no inputs by name, but a {type(inputs).__name__}: give '{IDS}' and '{COUNTED}'")
    for name in inputs:
        if name not in names:
            raise DataError(f"input data names '{name}', which is no input: the inputs are {listed(names)}")
    if IDS not in inputs:
        raise DataError(f"input data lacks the input '{IDS}': give the token ids")
    ids, ones = _filled(IDS, inputs[IDS], padding)
    counted = _filled(COUNTED, inputs[COUNTED], 0)[0] if COUNTED in inputs else ones
    segments = _filled(SEGMENTS, inputs[SEGMENTS], 0)[0] if SEGMENTS in inputs else np.zeros_like(ids)
    if segments.any() and not pairs:
        raise DataError(
            f"input '{SEGMENTS}' tells two texts apart, which the program does not: compile with pairs=True"
        )
    columns = {IDS: ids, COUNTED: counted, SEGMENTS: segments}
    for name, column in columns.items():
        if column.shape != ids.shape:
            raise DataError(f"input '{name}' has shape {list(column.shape)}, '{IDS}' {list(ids.shape)}: give the same")
    return columns


def _filled(name: str, source: Any, fill: int) -> tuple[Whole, Whole]:
    """Rows of whole numbers, filled up to the longest, and 1 where a number was given."""
    try:
        rows = [np.asarray(row) for row in source]
    except (TypeError, ValueError):  # a number, or rows of lists of several lengths
        rows = []
    if not rows or any(row.ndim != 1 or row.dtype.kind not in "iub" for row in rows):
        raise DataError(f"input '{name}' is no list of samples of whole numbers: give [N, length]")
    longest = max(len(row) for row in rows)
    found, given = np.full((len(rows), longest), fill), np.zeros((len(rows), longest), dtype=np.int64)
    for index, row in enumerate(rows):
        found[index, : len(row)], given[index, : len(row)] = row, 1
    return found, given


def _longest(counted: Whole) -> int:
    """Tokens up to the last one that counts in any sample."""
    return int(np.flatnonzero(counted.any(axis=0)).max(initial=-1)) + 1


def _to_length(column: Whole, length: int, fill: int) -> Whole:
    missing = max(0, length - column.shape[1])
    return np.pad(column[:, :length], ((0, 0), (0, missing)), constant_values=fill)


def _of_length(calibration: Data, length: int, padding: int, pairs: bool) -> dict[str, Whole]:
    """Calibration data of one length: longer samples are cut."""
    columns = _columns(calibration, padding, pairs)
    names = (IDS, COUNTED, SEGMENTS) if pairs else (IDS, COUNTED)
    return {name: _to_length(columns[name], length, padding if name == IDS else 0) for name in names}


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__
