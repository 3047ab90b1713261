"""Labelled images for train_images.py, square and normalised: a folder like CheXpert's or MNIST's, or digits.

| what is named | what is read | labels |
|---|---|---|
| a folder with train.csv and valid.csv | CheXpert's layout: a column Path, one for each of 14 labels | any number |
| a folder with train-images-idx3-ubyte.gz and the like | MNIST's layout, four files | one of ten classes |
| digits | scikit-learn's 1,797 digits of 8 × 8 pixels, 450 held out | one of ten classes |

Grey images become three equal channels, as the networks of `covey.models` have. What is wrong with the data is a
`covey.DataError` of one line.
"""

import csv
import gzip
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch.nn import functional

from covey import DataError

LABELS = (
    *("No Finding", "Enlarged Cardiomediastinum", "Cardiomegaly", "Lung Opacity", "Lung Lesion", "Edema"),
    *("Consolidation", "Pneumonia", "Atelectasis", "Pneumothorax", "Pleural Effusion", "Pleural Other"),
    *("Fracture", "Support Devices"),
)
"""Of CheXpert (Irvin and others, arXiv:1901.07031)."""

UNCERTAIN = {"ones": 1.0, "zeros": 0.0}
"""What a label counts as that is -1 in a table. The efficient-models paper (arXiv:2209.00411) takes ones."""

CHEXPERT = (0.533, 0.0349)
"""Mean and standard deviation of its pixels in the efficient-models paper."""

DIGITS_HELD_OUT = 450


class Part(Protocol):
    """Images and their labels: classes int64 [N], or float32 [N, labels] of 0 and 1."""

    labels: torch.Tensor

    def images(self, places: Sequence[int]) -> torch.Tensor:
        """The normalised images at these places, [n, 3, size, size]."""


@dataclass(frozen=True)
class Images:
    """A data set: what to train on, what to validate on, the number of logits, and their names if they have any."""

    train: Part
    valid: Part
    classes: int
    names: tuple[str, ...]
    range: tuple[float, float]
    """Two numbers that no normalised pixel lies beyond."""


def load(source: str, size: int, uncertain: str = "ones") -> Images:
    """The data set of this name or in this folder, with images of `size` × `size` pixels."""
    if source == "digits":
        return digits(size)
    folder = Path(source)
    if (folder / "train-images-idx3-ubyte.gz").is_file():
        return like_mnist(folder, size)
    if (folder / "train.csv").is_file():
        return like_chexpert(folder, size, uncertain)
    raise DataError(f"data '{source}': no folder with train.csv or train-images-idx3-ubyte.gz, and not 'digits'")


# Images of one size that fit the memory.


class Held:
    """Grey pixels uint8 [N, H, W], enlarged when they are asked for."""

    def __init__(self, pixels: np.ndarray, labels: np.ndarray, size: int, mean: float, deviation: float) -> None:
        self.pixels = torch.from_numpy(pixels.copy())
        self.labels = torch.from_numpy(labels.astype(np.int64))
        self.size, self.mean, self.deviation = size, mean, deviation

    def images(self, places: Sequence[int]) -> torch.Tensor:
        grey = (self.pixels[places][:, None].float() / 255 - self.mean) / self.deviation
        grey = functional.interpolate(grey, size=(self.size, self.size), mode="bilinear", align_corners=False)
        return grey.expand(-1, 3, -1, -1)


def digits(size: int) -> Images:
    """scikit-learn's digits, in an order drawn from a fixed seed."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise DataError("digits need scikit-learn, which is not installed: pip install scikit-learn") from None
    found = load_digits()
    order = np.random.default_rng(0).permutation(len(found.target))
    pixels, classes = (found.images[order] * (255 / 16)).round().astype(np.uint8), found.target[order]
    parts = (slice(DIGITS_HELD_OUT, None), slice(None, DIGITS_HELD_OUT))
    return _held([(pixels[part], classes[part]) for part in parts], size)


def like_mnist(folder: Path, size: int) -> Images:
    """MNIST's layout: four compressed files, as Fashion-MNIST has them (Xiao and others, arXiv:1708.07747)."""
    parts = []
    for kind in ("train", "t10k"):
        pixels = _idx(folder / f"{kind}-images-idx3-ubyte.gz", 3)
        classes = _idx(folder / f"{kind}-labels-idx1-ubyte.gz", 1)
        if len(pixels) != len(classes):
            raise DataError(f"data '{folder}': {len(pixels)} images of '{kind}' and {len(classes)} labels")
        if classes.max() > 9:
            raise DataError(f"data '{folder}': a label of '{kind}' is {classes.max()}, not one of 0 to 9")
        parts.append((pixels, classes))
    return _held(parts, size)


def _held(parts: list[tuple[np.ndarray, np.ndarray]], size: int) -> Images:
    """Normalised by the training part's mean and deviation."""
    (pixels, _), _ = parts
    mean, deviation = float(pixels.mean() / 255), float(pixels.std() / 255)
    train, valid = (Held(*part, size, mean, deviation) for part in parts)
    return Images(train, valid, 10, (), _range(mean, deviation))


def _idx(path: Path, dimensions: int) -> np.ndarray:
    """An array of bytes in MNIST's format: 0, 0, 8, the number of dimensions, each as four bytes, the elements."""
    try:
        content = gzip.decompress(path.read_bytes())
    except (OSError, EOFError) as error:
        raise DataError(f"cannot read '{path}': {getattr(error, 'strerror', None) or error}") from None
    shape = np.frombuffer(content[4 : 4 + 4 * dimensions], ">u4").astype(int).tolist()
    elements = np.frombuffer(content, np.uint8)[4 + 4 * dimensions :]
    if content[:4] != bytes([0, 0, 8, dimensions]) or 0 in shape or elements.size != np.prod(shape):
        raise DataError(f"'{path}' holds no array of bytes in {dimensions} dimensions in MNIST's format")
    return elements.reshape(shape)


# Images in files, named by a table.


class Filed:
    """Image files of any size and colour, read when they are asked for, scaled and cropped at the centre."""

    def __init__(self, paths: list[Path], labels: list[list[float]], size: int) -> None:
        self.paths, self.size = paths, size
        self.labels = torch.tensor(labels, dtype=torch.float32)
        self.readers = ThreadPoolExecutor(8)

    def images(self, places: Sequence[int]) -> torch.Tensor:
        grey = np.stack(list(self.readers.map(self._read, [self.paths[place] for place in places])))
        mean, deviation = CHEXPERT
        return ((torch.from_numpy(grey)[:, None].float() / 255 - mean) / deviation).expand(-1, 3, -1, -1)

    def _read(self, path: Path) -> np.ndarray:
        from PIL import Image, ImageOps

        try:
            with Image.open(path) as image:
                return np.asarray(ImageOps.fit(image.convert("L"), (self.size, self.size), Image.Resampling.BILINEAR))
        except (OSError, SyntaxError, ValueError) as error:  # as Pillow reports damaged files
            raise DataError(f"cannot read image '{path}': {str(error) or type(error).__name__}") from None


def like_chexpert(folder: Path, size: int, uncertain: str = "ones") -> Images:
    """CheXpert's layout: paths are relative to the folder or to the one that it lies in."""
    try:
        import PIL  # noqa: F401
    except ImportError:
        raise DataError("image files need Pillow, which is not installed: pip install pillow") from None
    parts = [Filed(*_table(folder, name, UNCERTAIN[uncertain]), size) for name in ("train.csv", "valid.csv")]
    return Images(*parts, len(LABELS), LABELS, _range(*CHEXPERT))


def _range(mean: float, deviation: float) -> tuple[float, float]:
    """Of black and white, rounded away from 0 to the fourth place."""
    return math.floor(-mean / deviation * 1e4) / 1e4, math.ceil((1 - mean) / deviation * 1e4) / 1e4


def _table(folder: Path, name: str, uncertain: float) -> tuple[list[Path], list[list[float]]]:
    """Paths and labels of a table; a blank label, of which the report says nothing, counts as 0."""
    table, paths, labels = folder / name, [], []
    values = {"": 0.0, "0": 0.0, "0.0": 0.0, "1": 1.0, "1.0": 1.0, "-1": uncertain, "-1.0": uncertain}
    try:
        with table.open(encoding="utf-8-sig", newline="") as stream:
            rows = csv.DictReader(stream)
            if absent := [each for each in ("Path", *LABELS) if each not in (rows.fieldnames or ())]:
                raise DataError(f"'{table}' has no column {', '.join(absent)}")
            for row in rows:
                where = f"'{table}', line {rows.line_num}"
                paths.append(_image(folder, row["Path"] or "", where))
                cells = [(row[label] or "").strip() for label in LABELS]
                for label, cell in zip(LABELS, cells, strict=True):
                    if cell not in values:
                        raise DataError(f"{where}: {label} is '{cell}', not 1, 0, -1 or blank")
                labels.append([values[cell] for cell in cells])
    except OSError as error:
        raise DataError(f"cannot read '{table}': {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"'{table}' is no table in UTF-8: {error}") from None
    if not paths:
        raise DataError(f"'{table}' has no line below the first: add one for each image")
    return paths, labels


def _image(folder: Path, path: str, where: str) -> Path:
    for found in (folder / path, folder.parent / path):
        if found.is_file():
            return found
    raise DataError(f"{where}: there is no image '{path}' in '{folder}' or beside it")
