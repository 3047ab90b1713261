"""Training of PyTorch modules and exported programs: what they say of their parameters holds, or is refused by name."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import covey
from covey.clear import ClearSession
from covey.model import load
from covey.training.calibration import rehearse
from covey.training.files import write
from covey.training.losses import LABELS
from covey.training.step import make
from test_training import BATCH, CLASSES, Data, compiled, table

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional

SGD = covey.SGD(0.3)


def trained(job: covey.Job, data: Data) -> dict[str, np.ndarray]:
    """The weights after a step on each minibatch of the data."""
    trainer = covey.Trainer(ClearSession(load(job.compiled)))
    for start in range(0, len(data[0]) - job.batch + 1, job.batch):
        trainer.step(*(array[start : start + job.batch] for array in data))
    return trainer.weights()


def due(module: Any, data: Data, loss: Any, make: Any = lambda p: torch.optim.SGD(p, 0.3)) -> dict[str, np.ndarray]:
    """The same by PyTorch in float64, by name; parameters that share their numbers have them under each."""
    module = copy.deepcopy(module).double().train()
    optimizer = make([parameter for parameter in module.parameters() if parameter.requires_grad])
    x, labels = (torch.from_numpy(array) for array in data)
    for start in range(0, len(x) - BATCH + 1, BATCH):
        optimizer.zero_grad()
        loss(module(x[start : start + BATCH]), labels[start : start + BATCH]).backward()
        optimizer.step()
    return {name: tensor.detach().numpy() for name, tensor in module.state_dict().items()}


def near(found: dict[str, np.ndarray], expected: dict[str, np.ndarray], tolerance: float = 1e-3) -> None:
    for name, array in found.items():
        np.testing.assert_allclose(array, expected[name].reshape(array.shape), atol=tolerance, err_msg=name)


class Scaled(nn.Module):
    """A layer times a single number."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, CLASSES)
        self.factor = nn.Parameter(torch.tensor(2.0))

    def forward(self, x: Any) -> Any:
        return self.layer(x) * self.factor


def test_a_single_number_is_trained() -> None:
    torch.manual_seed(0)
    module = Scaled().eval()
    job = compiled(module, table(), optimizer=SGD, example_inputs=torch.zeros(2, 5))
    found = trained(job, table())
    near(found, due(module, table(), F.cross_entropy))
    covey.load_trained(module, found)
    assert module.factor.shape == () and abs(float(module.factor.detach()) - 2.0) > 1e-3


def test_a_module_of_torch_compile_is_trained() -> None:
    torch.manual_seed(0)
    module = Scaled().eval()
    job = compiled(torch.compile(module), table(), optimizer=SGD)
    found = trained(job, table())
    near(found, due(module, table(), F.cross_entropy))
    covey.load_trained(torch.compile(module), found)
    assert abs(float(module.factor.detach()) - 2.0) > 1e-3


def test_what_was_trained_is_loaded_into_a_module_of_these_tensors_alone() -> None:
    module = nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 3))
    for name, array, problem in (
        ("2.weight", np.ones((4, 5)), "the model has no '2.weight': give the model that the job was compiled from"),
        ("0.weight", np.ones((5, 4)), "the model has a '0.weight' of another shape"),
    ):
        before = copy.deepcopy(module.state_dict())
        with pytest.raises(covey.ModelError, match=problem):
            covey.load_trained(module, {"0.bias": np.ones(4), name: array})
        assert all(torch.equal(tensor, before[each]) for each, tensor in module.state_dict().items())
    with pytest.raises(covey.ModelError, match="an object of type str is no model to load into"):
        covey.load_trained("m.pt2", {})


class Tied(nn.Module):
    """A table that is read at the beginning and at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.hidden = nn.Embedding(6, 4), nn.Linear(4, 4)
        self.scores = nn.Linear(4, 6, bias=False)
        self.scores.weight = self.table.weight

    def forward(self, x: Any) -> Any:
        return self.scores(torch.tanh(self.hidden(self.table(x))))


def words(samples: int = 16) -> Data:
    rng = np.random.default_rng(4)
    return rng.integers(0, 6, (samples, 3)), rng.integers(0, 6, (samples, 3))


def of_words(scores: Any, labels: Any) -> Any:
    return F.cross_entropy(scores.reshape(-1, scores.shape[-1]), labels.reshape(-1))


def given(module: Any, example: Any, form: str, folder: Path) -> dict[str, Any]:
    """A module as it is, exported, or as a file."""
    if form == "module":
        return {"model": module, "example_inputs": example}
    program = torch.export.export(module, (example,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    if form == "file":
        torch.export.save(program, folder / "m.pt2")
    return {"model": program if form == "exported" else folder / "m.pt2"}


FORMS = pytest.mark.parametrize("form", ["module", "exported", "file"])


@FORMS
def test_parameters_without_a_gradient_stay(form: str, tmp_path: Path) -> None:
    module = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, CLASSES)).eval()
    module[0].requires_grad_(False)
    job = compiled(data=table(), optimizer=SGD, **given(module, torch.zeros(2, 5), form, tmp_path))
    assert [tensor.name for tensor in job.trained] == ["2.weight", "2.bias"]


@FORMS
def test_a_parameter_of_two_names_is_one(form: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = Tied().eval()
    model = given(module, torch.zeros(2, 3, dtype=torch.long), form, tmp_path)
    job = compiled(data=words(), optimizer=SGD, **model)
    assert {tensor.name for tensor in job.trained} == {"table.weight", "hidden.weight", "hidden.bias"}
    found = trained(job, words())
    expected = due(module, words(), of_words)
    near(found, expected)
    other = Tied()
    covey.load_trained(other, found)
    near({name: tensor.numpy() for name, tensor in other.state_dict().items()}, expected)
    for name in ("table.weight", "scores.weight"):
        frozen = compiled(data=words(), optimizer=SGD, freeze=[name], **model)
        assert {tensor.name for tensor in frozen.trained} == {"hidden.weight", "hidden.bias"}
    if form == "file":
        write(tmp_path / "trained.pt2", found, tmp_path / "m.pt2")
        state = torch.export.load(tmp_path / "trained.pt2").state_dict
        for name in ("table.weight", "scores.weight"):
            np.testing.assert_allclose(state[name].detach().numpy(), found["table.weight"], atol=1e-6)


class Straight(nn.Module):
    """Parts through which no gradient goes: by `detach`, and without gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.scores = nn.Linear(5, 4), nn.Linear(4, CLASSES)

    def forward(self, x: Any) -> Any:
        hidden = self.layer(x)
        with torch.no_grad():
            gate = torch.sigmoid(hidden * 3)
            gate, other = gate * 2, torch.relu(hidden)
        return self.scores(hidden * gate + hidden.detach().tanh() + other)


@FORMS
def test_gradients_stop_where_pytorch_stops_them(form: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = Straight().eval()
    job = compiled(data=table(), optimizer=SGD, serve=True, **given(module, torch.zeros(2, 5), form, tmp_path))
    found = trained(job, table())
    near(found, due(module, table(), F.cross_entropy), 2e-3)
    assert job.served is not None
    x = table()[0]
    with covey.local("clear") as parties:
        scores = next(iter(parties.run(job.served, x).outputs.values()))
    np.testing.assert_allclose(scores, module(torch.from_numpy(x).float()).detach(), atol=0.02)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_weights_that_cannot_be_copied_are_told() -> None:
    module = nn.Sequential(torch.nn.utils.weight_norm(nn.Linear(5, CLASSES))).eval()
    with pytest.raises(covey.CoveyError, match=r"the module cannot be copied .*: undo what computes weights, such as"):
        compiled(module, table(), optimizer=SGD, example_inputs=torch.zeros(2, 5))


class Computing(nn.Module):
    """A layer, numbers for each class and one for all, of which something is computed."""

    def __init__(self, how: Any) -> None:
        super().__init__()
        self.layer, self.how = nn.Linear(5, CLASSES), how
        self.factors, self.factor = nn.Parameter(torch.tensor([0.5, -0.75, 0.25])), nn.Parameter(torch.tensor(0.4))

    def forward(self, x: Any) -> Any:
        return self.how(self, self.layer(x)) * self.factors + self.factor * x[:, :1]


OF_WEIGHTS: dict[str, Any] = {
    "an absolute value": lambda m, z: z * m.factors.abs(),
    "a power": lambda m, z: z * m.factor.exp(),
    "a square": lambda m, z: z + m.factors * m.factors,
    "a cut": lambda m, z: z + m.factors.clamp(-0.5, 0.4),
    "a row over its norm": lambda m, z: F.linear(z, F.normalize(m.layer.weight[:, :CLASSES], dim=1)),
    "a mean": lambda m, z: z - m.layer.weight.mean(1),
    "joined": lambda m, z: z * torch.cat([m.factors[1:], m.factor[None]]),
    "a half of it": lambda m, z: z + 0.5 * m.layer.weight[:, 0],
    "a product": lambda m, z: z @ (m.layer.weight @ m.layer.weight.t()),
    "a quotient": lambda m, z: z / (m.factors + 2),
    "an inverse": lambda m, z: z / m.layer.bias,
    "for each sample": lambda m, z: z + (m.factors.expand(z.shape[0], -1) + m.factor),
    "chosen": lambda m, z: z + torch.where(m.factors > 0, m.factors, 2 * m.factors),
    "zeros": lambda m, z: z + torch.zeros_like(m.factors),
    "detached": lambda m, z: z * m.factors.detach(),
    "detached in part": lambda m, z: z + z[:, :2] @ m.layer.weight.t().detach()[:2],
}


@pytest.mark.parametrize("case", OF_WEIGHTS)
def test_what_is_computed_of_weights_alone_is_trained(case: str) -> None:
    torch.manual_seed(0)
    module, data = Computing(OF_WEIGHTS[case]).eval(), table(12)
    step = make(module, (torch.zeros(7, 5),), loss="cross-entropy", optimizer=SGD, batch=BATCH)
    batches = [
        {step.data[0]: data[0][None, start : start + BATCH], LABELS: data[1][None, start : start + BATCH]}
        for start in range(0, 12, BATCH)
    ]
    found, expected = rehearse(step, batches).trained(step), due(module, data, F.cross_entropy)
    assert found.keys() == expected.keys()
    near(found, expected, 1e-9)


@pytest.mark.parametrize("case", ["a power", "a row over its norm", "detached"])
def test_what_is_computed_of_weights_alone_is_trained_in_fixed_point(case: str) -> None:
    torch.manual_seed(0)
    module = Computing(OF_WEIGHTS[case]).eval()
    options = {"data": table(), "optimizer": SGD, "example_inputs": torch.zeros(7, 5)}
    near(trained(compiled(module, **options), table()), due(module, table(), F.cross_entropy), 5e-3)
    with pytest.raises(covey.OptionError, match=r"alone, which no weights of a program that serves can be made of"):
        compiled(module, serve=True, **options)


def test_weights_of_a_parametrization_are_trained() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(torch.nn.utils.parametrizations.weight_norm(nn.Linear(5, CLASSES))).eval()
    job = compiled(module, table(), optimizer=SGD, example_inputs=torch.zeros(7, 5))
    near(trained(job, table()), due(module, table(), F.cross_entropy), 5e-3)


def test_weights_over_a_norm_that_follows_the_steps_are_refused() -> None:
    module = nn.Sequential(torch.nn.utils.parametrizations.spectral_norm(nn.Linear(5, 4)), nn.Linear(4, CLASSES)).eval()
    options: dict[str, Any] = {"loss": "cross-entropy", "optimizer": SGD, "batch": BATCH}
    with pytest.raises(covey.OptionError, match=r"0 has its weights divided by .*'0\.parametrizations\.weight\.\*'"):
        make(module, (torch.zeros(7, 5),), **options)
    frozen = make(module, (torch.zeros(7, 5),), freeze="0.parametrizations.weight.*", **options)
    assert [tensor.name for tensor in frozen.trained] == ["0.bias", "1.weight", "1.bias"]


@pytest.mark.parametrize(
    ("how", "problem"),
    [
        (lambda m, z: z * (m.factors > 0), r"truth values that are computed of weights .*freeze=\['factors'\]"),
        (
            lambda m, z: z * m.factors[m.factors.argmax()],
            r"reads a number of a tensor that is trained .*freeze=\['factors'\]",
        ),
    ],
)
def test_what_cannot_be_computed_of_weights_is_told(how: Any, problem: str) -> None:
    module = Computing(how).eval()
    with pytest.raises(covey.CoveyError, match=problem):
        make(module, (torch.zeros(7, 5),), loss="cross-entropy", optimizer=SGD, batch=BATCH)
    frozen = make(module, (torch.zeros(7, 5),), loss="cross-entropy", optimizer=SGD, batch=BATCH, freeze="factors")
    assert len(frozen.trained) == 3


class _Turned(torch.autograd.Function):  # type: ignore[misc]
    """A layer that turns gradients around, as adversaries of domains have it."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return -gradients[0]


def test_gradients_of_the_users_own_are_refused() -> None:
    options: dict[str, Any] = {"loss": "cross-entropy", "optimizer": SGD, "batch": BATCH}
    turned = Past(_Turned.apply).eval()
    with pytest.raises(
        covey.ModelError, match=r"computes gradients of its own in '_Turned', a torch.autograd.Function"
    ):
        make(turned, (torch.zeros(7, 5),), **options)
    assert covey.compile(turned, torch.zeros(7, 5), input_range=(-1, 1))
    hooks = [
        lambda module: module.layer.weight.register_hook(lambda gradient: 2 * gradient),
        lambda module: module.layer.register_full_backward_hook(lambda layer, inputs, outputs: None),
    ]
    for hook, name in zip(hooks, ("layer.weight", "layer"), strict=True):
        module = Past(torch.tanh).eval()
        hook(module)
        with pytest.raises(covey.OptionError, match=rf"'{re.escape(name)}' has a hook on its gradient"):
            make(module, (torch.zeros(7, 5),), **options)


def test_parameters_that_share_their_numbers_are_one() -> None:
    torch.manual_seed(0)
    tied = Tied().eval()
    shared = copy.deepcopy(tied)
    shared.scores.weight = nn.Parameter(shared.table.weight)
    job = compiled(shared, words(), optimizer=SGD, example_inputs=torch.zeros(7, 3, dtype=torch.long))
    assert {tensor.name for tensor in job.trained} == {"table.weight", "hidden.weight", "hidden.bias"}
    near(trained(job, words()), due(tied, words(), of_words))


def test_a_model_without_a_gradient_is_refused_by_name_with_every_optimizer() -> None:
    module = Past(lambda z: z.detach()).eval()
    for optimizer in (SGD, covey.SGD(0.1, clip_norm=1.0)):
        with pytest.raises(covey.OptionError, match=r"'layer\.weight' has no bearing on the loss: freeze it"):
            make(module, (torch.zeros(7, 5),), loss="cross-entropy", optimizer=optimizer, batch=BATCH)


KINKS: dict[str, Any] = {
    "relu6": F.relu6,
    "a cut": lambda z: z.clamp(-1, 0.5),
    "hard sigmoid": lambda z: F.hardsigmoid(3 * z),
    "hard swish": lambda z: F.hardswish(3 * z),
}


@pytest.mark.parametrize("case", KINKS)
def test_at_its_bounds_a_cut_has_no_gradient(case: str) -> None:
    class Module(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.numbers = nn.Parameter(torch.tensor([0.0, 6.0, -1.0, 0.5, 1.0, 0.25]))

        def forward(self, x: Any) -> Any:
            return KINKS[case](x * self.numbers)

    module, data = Module().eval(), (np.ones((BATCH, 6)), np.full(BATCH, 2))
    step = make(module, (torch.ones(7, 6),), loss="cross-entropy", optimizer=SGD, batch=BATCH)
    found = rehearse(step, [{step.data[0]: data[0][None], LABELS: data[1][None]}]).trained(step)
    near(found, due(module, data, F.cross_entropy), 1e-7)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("learned", [True, False])
def test_initial_states_are_trained_or_kept(kind: str, learned: bool) -> None:
    class Module(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.scores = getattr(nn, kind)(1, 4, batch_first=True), nn.Linear(4, CLASSES)
            self.state = nn.Parameter(torch.randn(1, 1, 4), requires_grad=learned)

        def forward(self, x: Any) -> Any:
            state = self.state.expand(1, x.shape[0], -1).contiguous()
            return self.scores(self.layer(x[..., None], (state, state) if kind == "LSTM" else state)[0][:, -1])

    torch.manual_seed(0)
    module, data = Module().eval(), table(BATCH)
    step = make(module, (torch.zeros(7, 5),), loss="cross-entropy", optimizer=SGD, batch=BATCH)
    found = rehearse(step, [{step.data[0]: data[0][None], LABELS: data[1][None]}]).trained(step)
    assert ("state" in found) == learned
    near(found, due(module, data, F.cross_entropy), 1e-7)


class Read(nn.Module):
    """A table that is read at what a function makes of ids."""

    def __init__(self, how: Any, padding: int | None) -> None:
        super().__init__()
        self.table, self.scores, self.how = nn.Embedding(11, 4, padding_idx=padding), nn.Linear(4, CLASSES), how

    def forward(self, x: Any) -> Any:
        return self.scores(self.table(self.how(x)).sum(1))


@pytest.mark.parametrize("padding", [None, 5])
@pytest.mark.parametrize(
    "how",
    [lambda x: x + torch.tensor([0, 4, 3]), lambda x: 10 - x, lambda x: x.clamp(min=2)],
    ids=["of columns", "turned", "cut"],
)
def test_tables_at_ids_made_of_one_are_trained(how: Any, padding: int | None) -> None:
    torch.manual_seed(0)
    rng = np.random.default_rng(5)
    data = rng.integers(0, 7, (24, 3)), rng.integers(0, CLASSES, 24)
    module = Read(how, padding).eval()
    job = compiled(module, data, optimizer=SGD, example_inputs=torch.zeros(2, 3, dtype=torch.long))
    near(trained(job, data), due(module, data, F.cross_entropy))


PAST: dict[str, Any] = {
    "a truth value": lambda z: z * (z > 0.1).float(),
    "a count": lambda z: z / (z > 0).sum(-1, keepdim=True).clamp(min=1),
    "a one-hot row": lambda z: z * F.one_hot(z.argmax(-1), CLASSES),
    "writing at an index": lambda z: z + torch.zeros_like(z).scatter(1, z.argmax(1, keepdim=True), 1.0),
}


class Past(nn.Module):
    """Numbers that a layer's results decide on, and that have no gradient."""

    def __init__(self, how: Any) -> None:
        super().__init__()
        self.layer, self.how = nn.Linear(5, CLASSES), how

    def forward(self, x: Any) -> Any:
        return self.how(self.layer(x))


@pytest.mark.parametrize("case", PAST)
def test_truth_values_have_no_gradient(case: str) -> None:
    torch.manual_seed(0)
    module = Past(PAST[case]).eval()
    job = compiled(module, table(), optimizer=SGD, example_inputs=torch.zeros(2, 5))
    near(trained(job, table()), due(module, table(), F.cross_entropy), 5e-3)


def _gated(z: Any) -> Any:
    values, places = z.topk(2, dim=1)
    return torch.zeros_like(z).scatter(1, places, values.softmax(-1)) * 2 + 0.1 * z


ORDERED: dict[str, Any] = {
    "sorted": lambda z: z.sort(dim=1, descending=True)[0],
    "less its median": lambda z: z - z.median(1, keepdim=True).values,
    "gates of the two largest": _gated,
}


@pytest.mark.parametrize("case", ORDERED)
def test_elements_in_order_are_trained(case: str) -> None:
    torch.manual_seed(0)
    module = Past(ORDERED[case]).eval()
    job = compiled(module, table(), optimizer=SGD, example_inputs=torch.zeros(7, 5))
    near(trained(job, table()), due(module, table(), F.cross_entropy), 5e-3)


class Largest(nn.Module):
    """The largest of those rows that a mask leaves."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.scores = nn.Linear(1, 4), nn.Linear(4, CLASSES)

    def forward(self, x: Any) -> Any:
        rows = self.layer(x[..., None]).masked_fill(x[..., None] < -0.5, -torch.inf)
        return self.scores(rows.amax(1))


def test_a_masked_maximum_is_trained() -> None:
    torch.manual_seed(0)
    x, labels = table()
    data = np.where(x.max(1, keepdims=True) < -0.5, -x, x), labels
    module = Largest().eval()
    job = compiled(module, data, optimizer=SGD, example_inputs=torch.zeros(2, 5))
    found = trained(job, data)
    near(found, due(module, data, F.cross_entropy), 5e-3)
    assert np.abs(found["layer.weight"] - module.layer.weight.detach().numpy()).max() > 0.02


class Named(nn.Module):
    """Names of its parts are those that training uses itself."""

    def __init__(self) -> None:
        super().__init__()
        self.trained, self.loss = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4)), nn.Linear(4, CLASSES)
        self.labels, self.right = nn.Parameter(torch.ones(CLASSES)), nn.Parameter(torch.zeros(CLASSES))
        self.add_module("1", nn.BatchNorm1d(CLASSES))
        self.register_buffer("losses_of_2_steps", torch.full((CLASSES,), 0.5))

    def forward(self, x: Any) -> Any:
        scores = getattr(self, "1")(self.loss(self.trained(x))) * self.labels + self.right
        return scores + self.losses_of_2_steps


@pytest.mark.parametrize("open_losses", [1, 2])
def test_parts_of_a_model_may_have_the_names_that_training_has(open_losses: int) -> None:
    torch.manual_seed(0)
    module = Named().eval()
    example = torch.zeros(2, 5)
    job = compiled(module, table(), optimizer=SGD, example_inputs=example, open_losses=open_losses)
    found = trained(job, table())
    expected = due(module, table(), F.cross_entropy)
    assert found.keys() == {name for name in expected if "num_batches" not in name and "losses" not in name}
    near(found, expected)


def test_an_input_of_a_name_that_training_has_is_refused() -> None:
    class Input(nn.Linear):
        def forward(self, labels: Any) -> Any:
            return super().forward(labels)

    with pytest.raises(covey.OptionError, match="the model has an input 'labels', which names something else in"):
        compiled(Input(5, CLASSES).eval(), table(), optimizer=SGD, example_inputs=torch.zeros(2, 5))


class Embedded(nn.Module):
    """The sum of a table's rows, one of them padding, and a layer."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.table, self.layer = nn.Embedding(6, 4, padding_idx=1, **options), nn.Linear(4, CLASSES)

    def forward(self, x: Any) -> Any:
        return self.layer(self.table(x).sum(1))


def texts() -> Data:
    tokens = words()[0]
    tokens[:, 2] = 1
    return tokens, np.random.default_rng(5).integers(0, CLASSES, len(tokens))


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_the_row_for_padding_has_no_gradient(decay: float) -> None:
    torch.manual_seed(0)
    module = Embedded().eval()
    with torch.no_grad():
        module.table.weight[1] = 0.5
    example = torch.zeros(2, 3, dtype=torch.long)
    job = compiled(module, texts(), optimizer=covey.SGD(0.3, decay), example_inputs=example)
    found = trained(job, texts())
    near(found, due(module, texts(), F.cross_entropy, lambda p: torch.optim.SGD(p, 0.3, weight_decay=decay)))


def test_gradients_by_frequency_are_refused_where_the_table_is_trained() -> None:
    module, example = Embedded(scale_grad_by_freq=True).eval(), torch.zeros(2, 3, dtype=torch.long)
    with pytest.raises(covey.CoveyError, match=r"scale_grad_by_freq.*; freeze its table, or train it without"):
        compiled(module, texts(), optimizer=SGD, example_inputs=example)
    compiled(module, texts(), optimizer=SGD, example_inputs=example, freeze=["table.*"])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_numbers_too_coarse_to_train_are_named(dtype: str) -> None:
    kind = getattr(torch, dtype)
    module = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, CLASSES)).eval().to(kind)
    with pytest.raises(covey.OptionError, match=rf"'0.weight' has numbers of {dtype}, too coarse to train: give the"):
        compiled(module, table(), optimizer=SGD, example_inputs=torch.zeros(2, 5, dtype=kind))


def test_statistics_that_two_layers_share_are_refused_by_name() -> None:
    norm = nn.BatchNorm1d(4)
    module = nn.Sequential(nn.Linear(5, 4), norm, nn.ReLU(), nn.Linear(4, 4), norm, nn.Linear(4, CLASSES)).eval()
    with pytest.raises(covey.CoveyError, match="two layers share its running statistics; give each its own"):
        compiled(module, table(), optimizer=SGD, example_inputs=torch.zeros(2, 5))


def test_a_cumulative_average_is_refused_by_name() -> None:
    module = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4, momentum=None), nn.Linear(4, CLASSES)).eval()
    with pytest.raises(covey.CoveyError, match="its momentum is 0, or None for a cumulative average; give it a"):
        compiled(module, table(), optimizer=SGD, example_inputs=torch.zeros(2, 5))
    compiled(module, table(), optimizer=SGD, example_inputs=torch.zeros(2, 5), batch_norm="frozen")
