"""What a model ends in: probabilities are no scores, and a loss takes scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import covey
from test_training import compiled, table
from test_training_modules import F, due, near, nn, torch, trained

SGD = covey.SGD(0.3)


class Ends(nn.Module):
    """A layer, and what follows it."""

    def __init__(self, outputs: int, end: Callable[[Any], Any]) -> None:
        super().__init__()
        self.layer, self.end = nn.Linear(5, outputs), end

    def forward(self, x: Any) -> Any:
        return self.end(self.layer(x))


def binary(shares: Any, labels: Any) -> Any:
    return F.binary_cross_entropy(shares.reshape(labels.shape), labels.double())


@pytest.mark.parametrize(
    ("outputs", "end"),
    [
        (1, torch.sigmoid),
        (1, lambda z: torch.sigmoid(2 * z)[:, 0]),
        (1, lambda z: 1 / (1 + torch.exp(-z))),
        (4, lambda z: torch.cat([part.unsqueeze(1) for part in torch.sigmoid(z).split(2, dim=1)], 1)),
    ],
)
def test_a_sigmoid_at_the_end_is_that_of_the_loss(outputs: int, end: Callable[[Any], Any]) -> None:
    torch.manual_seed(0)
    module = Ends(outputs, end).eval()
    x = table()[0]
    labels = (x[:, :outputs] > 0).astype(np.int64).reshape(len(x), *module(torch.zeros(1, 5)).shape[1:])
    options: dict[str, Any] = {"loss": "binary-cross-entropy", "optimizer": SGD, "example_inputs": torch.zeros(2, 5)}
    job = compiled(module, (x, labels), **options)
    near(trained(job, (x, labels)), due(module, (x, labels), binary))
    served = compiled(module, (x, labels), serve=True, **options).served
    assert served is not None
    assert any(node["computes"] == "Table" for node in covey.Program(served.program_bytes).nodes), (
        "it keeps the Sigmoid"
    )


def test_mse_takes_what_a_sigmoid_returns() -> None:
    torch.manual_seed(0)
    module = Ends(1, torch.sigmoid).eval()
    data = table()[0], (table()[0][:, :1] > 0).astype(np.float64)
    job = compiled(module, data, loss="mse", optimizer=SGD, example_inputs=torch.zeros(2, 5))
    near(trained(job, data), due(module, data, F.mse_loss))


@pytest.mark.parametrize(
    ("loss", "outputs", "end"),
    [
        ("cross-entropy", 9, lambda z: torch.softmax(z.reshape(-1, 3, 3), 1)),
        ("cross-entropy", 9, lambda z: torch.log_softmax(z.reshape(-1, 3, 3), 1)),
        ("binary-cross-entropy", 2, lambda z: torch.softmax(z, 1)),
        ("binary-cross-entropy", 3, lambda z: torch.softmax(z, 1)[:, 1]),
        ("binary-cross-entropy", 1, F.hardsigmoid),
        ("binary-cross-entropy", 2, lambda z: torch.cat([torch.sigmoid(z[:, :1]), z[:, 1:]], 1)),
    ],
)
def test_probabilities_that_are_no_scores_are_refused(loss: str, outputs: int, end: Callable[[Any], Any]) -> None:
    module = Ends(outputs, end).eval()
    labels = np.zeros((40, *module(torch.zeros(1, 5)).shape[1:]), dtype=np.int64)
    problem = "cannot leave out: have it return the scores before it|ends in Softmax, which binary-cross-entropy does"
    with pytest.raises(covey.OptionError, match=problem):
        compiled(module, (table()[0], labels), loss=loss, optimizer=SGD, example_inputs=torch.zeros(2, 5))


@pytest.mark.parametrize("weights", [None, [0.7, 1.3, 2.1]])
def test_cross_entropy_moves_scores_against_each_other_alone(weights: list[float] | None) -> None:
    # A shift of all scores changes no loss, so nothing would take back one that each step adds.
    torch.manual_seed(0)
    module = Ends(3, lambda z: z).eval()
    with torch.no_grad():
        module.layer.weight *= 20
    x = table(400)[0]
    data = x, module(torch.from_numpy(x).float()).argmax(1).numpy()
    job = compiled(module, data, optimizer=SGD, example_inputs=torch.zeros(2, 5), class_weights=weights)
    found = trained(job, data)

    def loss(scores: Any, labels: Any) -> Any:
        of_classes = None if weights is None else torch.tensor(weights, dtype=scores.dtype)
        return F.cross_entropy(scores, labels, of_classes, reduction="none").mean()

    near(found, due(module, data, loss), 2e-3)
    for name, parameter in module.named_parameters():
        np.testing.assert_allclose(found[name].sum(0), parameter.detach().sum(0).numpy(), atol=1e-4, err_msg=name)
