"""examples/train_images.py and accuracies.py: data of every layout, training, thinned networks, the committed table."""

from __future__ import annotations

import csv
import gzip
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import covey
from command import Command
from covey import models
from covey.errors import OptionError

torch = pytest.importorskip("torch", reason="needs PyTorch")
from covey.nn import ZooNetwork  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
FIGURES = ROOT / "docs" / "figures"
sys.path.append(str(ROOT / "examples"))
import accuracies  # noqa: E402
import image_data  # noqa: E402
import train_images  # noqa: E402


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    """The same weights in every run, and one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


# Tables of image files.

CELLS = ["1.0", "0.0", "-1.0", "", "1", "-1"]
"""Labels of one column, of six images."""


def labelled(folder: Path) -> Path:
    """A folder in CheXpert's layout: six grey and coloured images of several sizes, and labels of all kinds."""
    image = pytest.importorskip("PIL.Image", reason="needs Pillow")
    rng = np.random.default_rng(0)
    (folder / "train").mkdir(parents=True)
    lines = [["Path", "Sex", *image_data.LABELS]]
    for index, cell in enumerate(CELLS):
        shape = [(40, 50), (50, 40, 3)][index % 2]
        name = f"{folder.name}/train/{index}.png" if index < 3 else f"train/{index}.png"
        image.fromarray(rng.integers(0, 256, shape).astype(np.uint8)).save(folder / "train" / f"{index}.png")
        lines.append([name, "Female", cell, *("1.0" if index % 2 else "0.0" for _ in image_data.LABELS[1:])])
    for table in ("train.csv", "valid.csv"):
        with (folder / table).open("w", newline="") as stream:
            csv.writer(stream).writerows(lines)
    return folder


@pytest.fixture(scope="module")
def x_rays(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return labelled(tmp_path_factory.mktemp("data") / "x-rays")


def test_labels_of_all_kinds(x_rays: Path) -> None:
    for uncertain, due in (("ones", [1, 0, 1, 0, 1, 1]), ("zeros", [1, 0, 0, 0, 1, 0])):
        data = image_data.load(str(x_rays), 32, uncertain)
        assert data.train.labels.shape == (6, 14)
        assert data.train.labels[:, 0].tolist() == due
        assert data.train.labels[:, 1:].tolist() == [[float(index % 2)] * 13 for index in range(6)]


def test_images_are_scaled_cropped_and_normalised(x_rays: Path) -> None:
    from PIL import Image

    data = image_data.load(str(x_rays), 40)
    images = data.train.images([2, 1])
    assert images.shape == (2, 3, 40, 40)
    assert data.range[0] <= images.min() and images.max() <= data.range[1]
    # The centre of a picture of 50 × 40 pixels, whose shorter side is as asked for.
    grey = np.asarray(Image.open(x_rays / "train" / "2.png"))[:, 5:45]
    np.testing.assert_allclose(images[0, 1], (grey / 255 - 0.533) / 0.0349, rtol=1e-4, atol=1e-4)


def test_a_folder_is_trained_on_and_written(x_rays: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--size", "32", "--operator", "x", "--width", "0.25", "--epochs", "1", "--batch", "3"]
    train_images.main(["shufflenetv2", "--data", str(x_rays), "--out", str(tmp_path / "made"), *options])
    said = capsys.readouterr().out
    assert "epoch 1 of 1: mean loss" in said and "mean AUC" in said and "over 14 labels of 6" in said
    made = {name: np.load(tmp_path / "made" / f"{name}.npy") for name in ("calibration", "images", "labels")}
    assert made["images"].shape == (6, 3, 32, 32) and made["labels"].shape == (6, 14)
    model = onnx.load(tmp_path / "made" / "network.onnx")
    onnx.checker.check_model(model, full_check=True)
    (low, high) = (float(each) for each in said.rsplit("--input-range ", 1)[1].split(","))
    compiled = covey.compile(model, calibration=made["calibration"], input_range=(low, high))
    with torch.inference_mode():
        due = ZooNetwork(model).eval()(torch.from_numpy(made["images"])).numpy()
    with covey.local("clear") as parties:
        (found,) = parties.run(compiled, made["images"]).outputs.values()
    np.testing.assert_allclose(found, due, atol=0.02 * np.abs(due).max())


def in_table(old: str, new: str) -> Callable[[Path], None]:
    """A folder whose training table says something else."""

    def change(folder: Path) -> None:
        text = (folder / "train.csv").read_text()
        assert old in text
        (folder / "train.csv").write_text(text.replace(old, new, 1))

    return change


def without_lines(folder: Path) -> None:
    (folder / "valid.csv").write_text((folder / "valid.csv").read_text().split("\n")[0])


def damaged(folder: Path) -> None:
    for path in (folder / "train").iterdir():
        path.write_bytes(b"not an image")


@pytest.mark.parametrize(
    ("change", "saying"),
    [
        (in_table("Path", "File"), "train.csv' has no column Path"),
        (in_table("Edema", "edema"), "train.csv' has no column Edema"),
        (in_table("train/3.png", "train/9.png"), "line 5: there is no image 'train/9.png'"),
        (in_table(",-1.0,", ",2.0,"), "line 4: No Finding is '2.0', not 1, 0, -1 or blank"),
        (in_table(",1.0,1.0,", ",1.0,yes,"), "is 'yes', not 1, 0, -1 or blank"),
        (without_lines, "valid.csv' has no line below the first"),
        (lambda folder: (folder / "valid.csv").unlink(), "cannot read '"),
        (lambda folder: (folder / "train.csv").write_bytes(b"Path\xff"), "is no table in UTF-8"),
        (lambda folder: (folder / "train.csv").unlink(), "no folder with train.csv"),
        (damaged, "cannot read image '"),
    ],
)
def test_wrong_tables_are_refused(x_rays: Path, tmp_path: Path, change: Callable[[Path], None], saying: str) -> None:
    folder = tmp_path / x_rays.name
    shutil.copytree(x_rays, folder)
    change(folder)
    call = ["shufflenetv2", "--data", str(folder), "--out", str(tmp_path / "made"), "--size", "32", "--width", "0.25"]
    with pytest.raises(SystemExit) as stopped:
        train_images.main(call)
    said = str(stopped.value)
    assert said.startswith("error: ") and saying in said and "\n" not in said


@pytest.mark.parametrize(
    ("options", "saying"),
    [
        (["--operator", "y"], "operator 'y' is unknown"),
        (["--width", "9"], r"width 9\.0: use 0\.05 to 4"),
        (["--size", "8"], "32 to 1024"),
        (["--images", "1"], "1 image to train on: give at least 2"),
    ],
)
def test_wrong_options_are_refused(x_rays: Path, tmp_path: Path, options: list[str], saying: str) -> None:
    with pytest.raises(SystemExit, match=saying):
        train_images.main(["resnet18", "--data", str(x_rays), "--out", str(tmp_path), "--size", "32", *options])


# MNIST's layout.


def idx(path: Path, array: np.ndarray) -> None:
    shape = b"".join(int(each).to_bytes(4, "big") for each in array.shape)
    path.write_bytes(gzip.compress(bytes([0, 0, 8, array.ndim]) + shape + array.astype(np.uint8).tobytes()))


@pytest.fixture
def clothes(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for kind, count in (("train", 12), ("t10k", 5)):
        idx(tmp_path / f"{kind}-images-idx3-ubyte.gz", rng.integers(0, 256, (count, 28, 28)))
        idx(tmp_path / f"{kind}-labels-idx1-ubyte.gz", rng.integers(0, 10, count))
    return tmp_path


def test_layout_of_mnist(clothes: Path) -> None:
    data = image_data.load(str(clothes), 28)
    assert data.classes == 10 and data.train.labels.shape == (12,) and data.valid.labels.shape == (5,)
    content = gzip.decompress((clothes / "train-images-idx3-ubyte.gz").read_bytes())[16:]
    pixels = np.frombuffer(content, np.uint8).reshape(12, 28, 28) / 255
    due = (pixels - pixels.mean()) / pixels.std()
    np.testing.assert_allclose(data.train.images(range(12))[:, 2], due, atol=1e-5)
    assert image_data.load(str(clothes), 64).valid.images([0]).shape == (1, 3, 64, 64)


@pytest.mark.parametrize(
    ("name", "content", "saying"),
    [
        ("train-labels-idx1-ubyte.gz", None, "cannot read"),
        ("train-labels-idx1-ubyte.gz", b"no gzip", "cannot read"),
        ("t10k-images-idx3-ubyte.gz", gzip.compress(b"\0\0\x08\3", mtime=0), "holds no array of bytes in 3 dimensions"),
        ("t10k-labels-idx1-ubyte.gz", np.zeros(4), "5 images of 't10k' and 4 labels"),
        ("t10k-labels-idx1-ubyte.gz", np.full(5, 10), "a label of 't10k' is 10, not one of 0 to 9"),
    ],
)
def test_wrong_layouts_of_mnist_are_refused(clothes: Path, name: str, content: Any, saying: str) -> None:
    if content is None:
        (clothes / name).unlink()
    elif isinstance(content, bytes):
        (clothes / name).write_bytes(content)
    else:
        idx(clothes / name, content)
    with pytest.raises(covey.DataError, match=saying):
        image_data.load(str(clothes), 32)


# Training.


def test_training_reduces_the_loss() -> None:
    pytest.importorskip("sklearn", reason="needs scikit-learn")
    data = image_data.load("digits", 32)
    assert len(data.train.labels) == 1797 - 450 and len(data.valid.labels) == 450
    network = ZooNetwork(models.build("lenet5", "cifar"))
    recipe = train_images.Recipe(epochs=2, batch=16, learning_rate=0.02)
    first, last = train_images.train(network, data.train, 200, recipe, lambda line: None)
    assert last < 0.8 * first
    logits = train_images.logits_of(network, data.valid, 100)
    assert train_images.accuracy(logits, data.valid.labels[:100].numpy()) > 0.3  # of ten classes


def test_the_area_under_the_curve_is_that_of_the_definition() -> None:
    rng = np.random.default_rng(0)
    scores, truth = rng.integers(0, 6, 40), rng.integers(0, 2, 40).astype(np.float32)
    pairs = scores[truth == 1][:, None] - scores[truth == 0][None]
    assert train_images.area(scores, truth) == pytest.approx(((pairs > 0) + (pairs == 0) / 2).mean())
    assert np.isnan(train_images.area(scores, np.ones(40)))


# Networks of the zoo as modules, and thinned.


@pytest.mark.parametrize(
    "spec",
    [
        models.find("resnet18", size=64, operator="x", width=0.25),
        models.find("shufflenetv2", size=32, operator="shuffle"),
        models.find("mobilenetv3-large", size=32),
        models.find("lenet5", pool="avg"),
    ],
    ids=lambda spec: spec.label,
)
def test_a_module_is_the_network_and_comes_back_as_it(spec: models.ImageSpec) -> None:
    from onnx.reference import ReferenceEvaluator

    model = spec.build()
    module = ZooNetwork(model).eval()
    images = spec.samples(2)["image"]
    with torch.inference_mode():
        found = module(torch.from_numpy(images)).numpy()
    (due,) = ReferenceEvaluator(model).run(None, {"image": images})
    np.testing.assert_allclose(found, due, rtol=1e-3, atol=1e-3)
    assert module.to_onnx().SerializeToString() == model.SerializeToString()
    train_images.redraw(module)
    changed = {tensor.name: numpy_helper.to_array(tensor) for tensor in module.to_onnx().graph.initializer}
    for tensor in model.graph.initializer:
        same = np.array_equal(changed[tensor.name], numpy_helper.to_array(tensor))
        drawn = tensor.name.endswith((".weight", ".bias")) and not tensor.name.endswith(".bn.bias")
        assert same is not drawn, tensor.name


def test_a_model_from_elsewhere_is_no_network_of_the_zoo() -> None:
    model = models.build("lenet5")
    model.producer_name = "pytorch"
    with pytest.raises(OptionError, match=r"none of covey\.models"):
        ZooNetwork(model)
    with pytest.raises(OptionError, match=r"no convolutional network of covey\.models has"):
        ZooNetwork(models.find("bert-base-layer", sequence=2).build())


@pytest.mark.parametrize("name", ["resnet18", "resnet50", "shufflenetv2"])
def test_a_width_is_a_part_of_the_channels(name: str) -> None:
    """As `covey.models` has it at a width of 1; of others, every layer has that part, to a multiple of four."""
    whole, same, thin = (
        models.build(name, size=64, classes=7, operator="x", width=width).graph for width in (None, 1.0, 0.35)
    )
    assert whole.node == same.node and whole.initializer == same.initializer
    for full, part in zip(whole.initializer, thin.initializer, strict=True):
        assert full.name == part.name
        if full.name.endswith(("starts", "ends", "axes", "steps")) or full.dims[0] in (3, 7):
            assert full.dims[0] == part.dims[0]  # colours and classes are as many as before
        else:
            assert abs(part.dims[0] / full.dims[0] - 0.35) <= 0.04, full.name
    halved, still = (
        [
            node.name
            for node in graph.node
            for attribute in node.attribute
            if (attribute.name, attribute.i) == ("group", 2)
        ]
        for graph in (whole, thin)
    )
    assert halved == still and halved


def test_networks_without_widths_say_so() -> None:
    with pytest.raises(OptionError, match="densenet121 has no width to choose"):
        models.build("densenet121", width=0.5)


# The committed table.


@pytest.fixture(scope="module")
def rows() -> list[dict[str, str]]:
    with (FIGURES / "accuracies.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_the_table_has_every_network(rows: list[dict[str, str]], command: Command) -> None:
    due = {str(each): family.seeds for family in accuracies.FAMILIES for each in family.variants}
    assert {row["name"]: int(row["seeds"]) for row in rows} == due
    for size in {row["size"] for row in rows}:
        assert sum(row["size"] == size for row in rows) >= 8
    for column in accuracies.COSTS:
        found = covey.pareto(FIGURES / "accuracies.csv", cost=column)
        assert len(found.points) == len(rows) and found.front
    assert "front" in command.succeeds("pareto", FIGURES / "accuracies.csv", "--cost", "trio_bytes").out


def test_the_table_counts_what_the_zoo_has(rows: list[dict[str, str]]) -> None:
    """Of the small networks, which are built quickly."""
    checked = 0
    for row, each in zip(rows, (each for family in accuracies.FAMILIES for each in family.variants), strict=True):
        if int(row["multiplications"]) > 4e6:
            continue
        checked += 1
        model = train_images.built(each.model, 10, each.size, each.operator, each.width)
        assert int(row["multiplications"]) == models.multiplications(model)
        assert int(row["parameters"]) == sum(parameter.numel() for parameter in ZooNetwork(model).parameters())
    assert checked >= 5


def test_forms_are_compared_with_thinned_networks_of_equal_bytes() -> None:
    """Half way, in powers of ten, between dense networks of 50 % and of 60 %; one of 40 % and more bytes is none."""
    (family, *_) = accuracies.FAMILIES
    thin, *_ = (each for each in family.variants if each.width < family.width)
    form = next(each for each in family.variants if each.operator == "x")
    full = next(each for each in family.variants if each.operator == "dense")
    worse = next(each for each in family.variants if each.operator == "dense" and each not in (thin, full))
    points = {thin: (0.5, 100), worse: (0.4, 101), form: (0.58, 1000), full: (0.6, 10000)}
    table = [
        {"name": str(each), "size": each.size, "accuracy": accuracy, **dict.fromkeys(accuracies.COSTS, cost)}
        for each, (accuracy, cost) in points.items()
    ]
    lines = list(accuracies.beside_thinned(table))
    assert len(lines) == 2 and lines[1].split() == [*str(form).split(), *["+3.0"] * len(accuracies.COSTS)]
    lines = list(accuracies.beside_thinned([{**row, "trio_bytes": 10 ** (5 if row["name"] == str(form) else index)}
                                            for index, row in enumerate(table)]))  # fmt: skip
    assert lines[1].split()[-2:] == ["-2.0", "(more)"]
