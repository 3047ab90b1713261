"""The zoo's networks are sound in float: they build, their signals stay alive and moderate, samples differ."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import covey
from covey import models
from covey.clear import run_clear
from covey.closeness import relative_error
from covey.errors import OptionError
from covey.model import load
from covey.models.network import BATCH_SEED

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "python" / "covey" / "data" / "digits"

Floats = npt.NDArray[np.float32]


def load_script(path: Path) -> ModuleType:
    """Import a script that belongs to no package."""
    name = f"covey_examples_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their own module up
    spec.loader.exec_module(module)
    return module


script = load_script(ROOT / "examples" / "models.py")

# The others differ from these in sizes only; building them takes longer than all of these together.
SPECS = [
    models.ImageSpec("lenet5", "mnist"),
    models.ImageSpec("lenet5", "cifar", "avg"),
    models.ImageSpec("alexnet", "cifar"),
    models.ImageSpec("vgg16", "cifar", "avg"),
    models.ImageSpec("resnet18", "cifar"),
    models.ImageSpec("resnet32", "cifar", "avg"),
    models.ImageSpec("minionn", "cifar"),
    models.ImageSpec("resnet50", "imagenet", "avg"),
    models.ImageSpec("squeezenet", "imagenet"),
    models.ImageSpec("densenet121", "imagenet", "avg"),
    models.ImageSpec("resnet18", "imagenet", operator="x", size=64, classes=14),
    models.ImageSpec("densenet121", "imagenet", operator="shuffle", size=64),
    models.ImageSpec("mobilenetv3-large", "imagenet", size=64),
    models.ImageSpec("mobilenetv3-large", "imagenet", operator="dense", size=64),
    models.ImageSpec("shufflenetv2", "imagenet", size=64),
    models.ImageSpec("shufflenetv2", "cifar"),
    models.ImageSpec("squeezenet", "cifar", "avg"),
    models.ImageSpec("vgg11", "cifar"),
    models.ImageSpec("resnet34", "tinyimagenet"),
    models.ImageSpec("mobilenetv2", "tinyimagenet"),
    models.ImageSpec("mobilenetv3-small", "cifar"),
    models.ImageSpec("efficientnet-b0", "tinyimagenet"),
]
DEEPEST = ("resnet50", "efficientnet-b0")
CLASSES = {"cifar": 10, "mnist": 10, "tinyimagenet": 200, "imagenet": 1000}
Network = tuple[models.ImageSpec, onnx.ModelProto, models.Network, dict[str, Floats]]


def run_float(model: onnx.ModelProto, images: Floats) -> dict[str, Floats]:
    """Every node's output by node name; onnxruntime where it is installed, else the ONNX reference."""
    tapped = onnx.ModelProto()
    tapped.CopyFrom(model)
    kept = {output.name for output in model.graph.output}
    names = {node.output[0]: node.name for node in model.graph.node}
    tapped.graph.output.extend(helper.make_empty_tensor_value_info(value) for value in names if value not in kept)
    feed = {model.graph.input[0].name: images}
    try:
        import onnxruntime
    except ImportError:
        values: Any = ReferenceEvaluator(tapped).run(list(names), feed)
    else:
        session = onnxruntime.InferenceSession(tapped.SerializeToString(), providers=["CPUExecutionProvider"])
        values = session.run(list(names), feed)
    return dict(zip(names.values(), values, strict=True))


@pytest.fixture(scope="module", params=SPECS, ids=lambda spec: spec.label)
def network(request: pytest.FixtureRequest) -> Network:
    """A network, with every activation for four samples."""
    spec: models.ImageSpec = request.param
    model, net = spec.network()
    return spec, model, net, run_float(model, spec.samples(4)["image"])


def test_model_is_valid_and_has_a_dynamic_batch(network: Network) -> None:
    """The checker accepts it, nodes are named, and any batch may be fed."""
    _, model, _, _ = network
    onnx.checker.check_model(model, full_check=True)
    assert all(node.name for node in model.graph.node)
    for value in (*model.graph.input, *model.graph.output):
        assert value.type.tensor_type.shape.dim[0].dim_param == "batch"


def test_signals_are_alive_and_moderate(network: Network) -> None:
    """At least a tenth of the values after every ReLU is positive, and nothing outgrows 30; 64 in the deepest."""
    spec, model, _, values = network
    relus = [node.name for node in model.graph.node if node.op_type == "Relu"]
    assert relus or spec.model in ("mobilenetv2", "efficientnet-b0")  # which have ReLU6 and swish
    for name in relus:
        assert (values[name] > 0).mean() >= 0.1, name
    for name, value in values.items():
        assert np.isfinite(value).all() and np.abs(value).max() < (64 if spec.model in DEEPEST else 30), name


def test_samples_and_outputs_differ(network: Network) -> None:
    """No two samples are alike, and their logits are further apart than fixed point could blur."""
    spec, model, _, values = network
    images = spec.samples(4)["image"]
    assert images.dtype == np.float32 and images.min() >= 0 and images.max() <= 1
    logits = values[model.graph.node[-1].name]
    assert logits.shape == (4, spec.classes or CLASSES[spec.shape])
    for i in range(4):
        for j in range(i):
            assert np.abs(images[i] - images[j]).max() > 0.1
            assert np.linalg.norm(logits[i] - logits[j]) > 0.05 * np.linalg.norm(logits[i])


def test_the_builder_agrees_with_the_graph(network: Network) -> None:
    """What was computed while the network was built is what the graph computes."""
    spec, model, net, _ = network
    values = run_float(model, models.pseudo_images(net.batch, net.input_shape, BATCH_SEED))
    largest = max(float(np.abs(value).max()) for value in values.values())
    assert net.largest == pytest.approx(largest, rel=1e-3)
    if spec.model == "resnet18":  # and so BatchNormalization's statistics are those of this batch
        for node in (node for node in model.graph.node if node.op_type == "BatchNormalization"):
            scale, bias = (onnx.numpy_helper.to_array(t) for t in model.graph.initializer if t.name in node.input[1:3])
            np.testing.assert_allclose(values[node.name].mean(axis=(0, 2, 3)), bias, atol=1e-2)
            np.testing.assert_allclose(values[node.name].std(axis=(0, 2, 3)), np.abs(scale), rtol=1e-2)


def test_pooling_is_as_asked() -> None:
    """One kind of pooling each, in the same places."""
    graphs = [models.build("lenet5", "mnist", pool).graph.node for pool in ("max", "avg")]
    kinds = [[node.op_type for node in graph] for graph in graphs]
    assert "MaxPool" in kinds[0] and "MaxPool" not in kinds[1]
    assert [kind.replace("MaxPool", "AveragePool") for kind in kinds[0]] == kinds[1]


def test_what_the_zoo_lacks_is_named() -> None:
    """One line, with what there is."""
    for arguments, way_out in [
        (("vgg13", "cifar"), "vgg16"),
        (("lenet5", "imagenet"), "cifar"),
        (("vgg16", "b"), "cifar"),
    ]:
        with pytest.raises(OptionError, match=way_out):
            models.build(*arguments)
    with pytest.raises(OptionError, match="max or avg"):
        models.ImageSpec("lenet5", "mnist", "min")  # type: ignore[arg-type]
    for model, chosen, way_out in [
        ("lenet5", {"operator": "x"}, "it takes --shape, --pool and --classes$"),
        ("vgg16", {"size": 64}, "it takes --shape, --pool and --classes$"),
        ("squeezenet", {"operator": "x"}, "--classes and --size$"),
        ("resnet18", {"sequence": 4}, "--operator, --size and --width$"),
        ("bert-base", {"size": 64}, "it takes --sequence and --layers$"),
        ("resnet18", {"operator": "y"}, "dense, factorised, shuffle, x$"),
        ("resnet18", {"size": 31}, "32 to 1024$"),
        ("resnet18", {"classes": 0}, "at least 1$"),
    ]:
        with pytest.raises(OptionError, match=way_out):
            models.find(model, **chosen)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="mnist"):
        models.samples("tiny", 1)


TORCHVISION = {
    "resnet34": "resnet34",
    "resnet152": "resnet152",
    "squeezenet": "squeezenet1_1",
    "densenet121": "densenet121",
    "mobilenetv2": "mobilenet_v2",
    "mobilenetv3-small": "mobilenet_v3_small",
    "mobilenetv3-large": "mobilenet_v3_large",
    "shufflenetv2": "shufflenet_v2_x1_0",
    "efficientnet-b0": "efficientnet_b0",
}


@pytest.mark.parametrize("name", TORCHVISION)
def test_parameters_are_those_of_torchvision(name: str) -> None:
    """As many, and convolutions and dense layers of the same shapes; images are small, which changes neither."""
    torch = pytest.importorskip("torch")
    torchvision = pytest.importorskip("torchvision")
    with torch.device("meta"):
        module = getattr(torchvision.models, TORCHVISION[name])(weights=None)
    due = [tuple(parameter.shape) for parameter in module.parameters()]
    graph = models.build(name, "imagenet", size=64).graph
    learned = [tensor for tensor in graph.initializer if tensor.data_type == onnx.TensorProto.FLOAT and tensor.dims]
    found = [tuple(tensor.dims) for tensor in learned if not tensor.name.endswith((".mean", ".variance"))]
    assert sorted(found) == sorted(due)


@pytest.mark.parametrize(
    ("name", "convolutions", "parameters"), [("vgg11", 8, 132_863_336), ("vgg19", 16, 143_667_240)]
)
def test_vggs(name: str, convolutions: int, parameters: int) -> None:
    """The published parameters, counted from smaller images, of which the first dense layer reads 2 × 2, not 7 × 7."""
    graph = models.build(name, "tinyimagenet").graph
    sizes = {tensor.name: int(np.prod(tensor.dims)) for tensor in graph.initializer}
    assert sum(node.op_type == "Conv" for node in graph.node) == convolutions
    assert sum(sizes.values()) + 4096 * 512 * (49 - 4) + 4097 * (1000 - 200) == parameters


def test_small_images_keep_their_size_for_longer() -> None:
    """The first two strides are one on CIFAR's images, in networks that divide the side by 32."""
    for name in ("mobilenetv2", "mobilenetv3-small", "shufflenetv2"):
        for shape, side in (("cifar", 4), ("tinyimagenet", 2)):
            graph = onnx.shape_inference.infer_shapes(models.build(name, shape)).graph
            (pool,) = (node for node in graph.node if node.name == "pool")
            (value,) = (value for value in graph.value_info if value.name == pool.input[0])
            assert [dim.dim_value for dim in value.type.tensor_type.shape.dim[2:]] == [side, side], (name, shape)


def test_a_network_for_small_images_compiles() -> None:
    """SqueezeNet on CIFAR's images: what is compiled computes what the graph does."""
    spec = models.ImageSpec("squeezenet", "cifar", "avg")
    model, images = spec.build(), spec.samples(2)["image"]
    program = covey.compile(model, calibration=spec.samples(8, 3)["image"], input_range=(0, 1), ring=32)
    due = run_float(model, images)[model.graph.node[-1].name]
    assert relative_error(run_clear(load(program), images).outputs["logits"], due.astype(np.float64)) < 0.015


def test_building_twice_gives_the_same_model() -> None:
    """Weights come from one seed."""
    first, second = models.build("lenet5", "mnist"), models.build("lenet5", "mnist")
    assert first.SerializeToString() == second.SerializeToString()


def test_command_line_writes_model_and_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`models.py lenet5 OUT --samples 3 --data NPY`."""
    model, data = tmp_path / "lenet5.onnx", tmp_path / "x.npy"
    monkeypatch.setattr(sys, "argv", ["models.py", "lenet5", str(model), "--samples", "3", "--data", str(data)])
    script.main()
    onnx.checker.check_model(onnx.load(model))
    np.testing.assert_array_equal(np.load(data), models.samples("mnist", 3))


def test_digits_accuracy() -> None:
    """The committed network recognises the committed held-out images."""
    model = onnx.load(DIGITS / "digits.onnx")
    onnx.checker.check_model(model, full_check=True)
    images, labels = np.load(DIGITS / "test-images.npy"), np.load(DIGITS / "test-labels.npy")
    assert images.shape == (450, 1, 8, 8) and images.dtype == np.float32
    assert labels.shape == (450,) and labels.dtype == np.int64
    values = run_float(model, images)
    assert (values["softmax"].argmax(axis=1) == labels).mean() >= 0.97
    for name in ("relu1", "relu2", "relu3"):
        assert (values[name] > 0).mean() >= 0.1, name


def test_digits_data_are_the_documented_split() -> None:
    """The files hold scikit-learn's digits; calibration images come from the training part."""
    pytest.importorskip("sklearn")
    script = load_script(ROOT / "examples" / "digits" / "train.py")
    train_x, test_x, _, test_y = script.load()
    np.testing.assert_array_equal(np.load(DIGITS / "test-images.npy"), test_x)
    np.testing.assert_array_equal(np.load(DIGITS / "test-labels.npy"), test_y)
    np.testing.assert_array_equal(np.load(DIGITS / "calibration.npy"), train_x[: script.CALIBRATION])


def test_digits_gradients_match_finite_differences() -> None:
    """Every parameter's hand-written gradient agrees with central differences, in double precision."""
    pytest.importorskip("sklearn")
    script = load_script(ROOT / "examples" / "digits" / "train.py")
    rng = np.random.Generator(np.random.PCG64(3))
    parameters = {name: value.astype(np.float64) for name, value in script.initial_parameters(rng).items()}
    images, labels = rng.random((6, 1, 8, 8)), rng.integers(0, 10, 6)
    _, gradients = script.loss_and_gradients(parameters, images, labels)
    step = 1e-7  # small enough that no ReLU or MaxPool changes its mind between the two points
    for name, value in parameters.items():
        direction = rng.standard_normal(value.shape)
        losses = []
        for sign in (1, -1):
            moved = dict(parameters, **{name: value + sign * step * direction})
            losses.append(script.loss_and_gradients(moved, images, labels)[0])
        expected = (losses[0] - losses[1]) / (2 * step)
        assert float((gradients[name] * direction).sum()) == pytest.approx(expected, rel=1e-5, abs=1e-6), name
