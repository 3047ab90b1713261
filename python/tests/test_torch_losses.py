"""Losses of each sample, against PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

import covey
from covey.importers import decomposed

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn, functional = torch.nn, torch.nn.functional

from test_torch import agrees, image  # noqa: E402

WEIGHT = torch.tensor([0.5, 1.0, 2.0, 0.25, 1.5])
CLASSES = torch.tensor([0, 4, 2])
OF_PIXELS = torch.tensor([[[0, 1], [4, 2]], [[3, 3], [1, 0]], [[2, 4], [0, 1]]])
ENTROPIES: dict[str, dict[str, Any]] = {
    "plain": {},
    "weighted": {"weight": WEIGHT},
    "of classes that are ignored": {"ignore_index": 2},
    "smoothed": {"label_smoothing": 0.1, "weight": WEIGHT, "ignore_index": 4},
}


class Loss(nn.Module):  # type: ignore[misc]
    def __init__(self, how: Any) -> None:
        super().__init__()
        self.how = how

    def forward(self, scores: Any, target: Any) -> Any:
        return self.how(scores, target)


@pytest.mark.parametrize("case", ENTROPIES)
@pytest.mark.parametrize("target", ["classes", "pixels", "shares"])
def test_cross_entropy(case: str, target: str) -> None:
    scores = image(3, 5, 2, 2) if target == "pixels" else image(3, 5)
    due = {"classes": CLASSES, "pixels": OF_PIXELS, "shares": (image(3, 5) * 3).softmax(1)}[target]
    options = {name: value for name, value in ENTROPIES[case].items() if target != "shares" or name != "ignore_index"}
    agrees(Loss(lambda x, y: functional.cross_entropy(x, y, reduction="none", **options)), scores, due)


@pytest.mark.parametrize("options", [{}, {"weight": WEIGHT}, {"ignore_index": 2}])
@pytest.mark.parametrize("pixels", [False, True])
def test_negative_logarithms(options: dict[str, Any], pixels: bool) -> None:
    scores, due = (image(3, 5, 2, 2), OF_PIXELS) if pixels else (image(3, 5), CLASSES)

    def loss(x: Any, y: Any) -> Any:
        return functional.nll_loss(x.log_softmax(1), y, reduction="none", **options)

    agrees(Loss(loss), scores, due)


HINGE = functional.hinge_embedding_loss
RANKING = functional.margin_ranking_loss


@pytest.mark.parametrize(
    "how",
    [
        lambda x, y: functional.cross_entropy(x, y, reduction="none").reshape(x.shape[0], -1),
        lambda x, y: functional.nll_loss(x.log_softmax(1), y, reduction="none").reshape(-1, 1),
        lambda x, y: HINGE(x, (y > 1)[:, None] * 2.0 - 1, reduction="none").reshape(x.shape[0], -1),
        lambda x, y: RANKING(x, 1 - x, (y > 1)[:, None] * 2.0 - 1, reduction="none").reshape(x.shape[0], -1),
    ],
)
def test_losses_of_each_sample_keep_the_batch(how: Any) -> None:
    agrees(Loss(how), image(3, 5), CLASSES)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("how", [functional.cross_entropy, functional.nll_loss])
def test_losses_of_all_samples_are_refused(how: Any, reduction: str) -> None:
    module = Loss(lambda x, y: how(x.log_softmax(1), y, reduction=reduction))
    with pytest.raises(covey.CoveyError, match=r"its sum runs over the batch .*; give reduction='none', and average"):
        covey.compile(module.eval(), (image(3, 5), CLASSES))


def test_the_last_round_of_rules_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decomposed, "ROUNDS", 1)
    agrees(Loss(lambda x, y: functional.poisson_nll_loss(x, y, reduction="none")), image(3, 5), image(3, 5).exp())


def test_a_loss_is_exact_in_fixed_point() -> None:
    module = Loss(lambda x, y: (1 - torch.exp(-functional.cross_entropy(x, y, reduction="none"))) ** 2)
    compiled = covey.compile(module.eval(), (image(3, 5), CLASSES), max_error=0.01)
    verdict = covey.verify(compiled, "clear", data={"scores": image(3, 5).numpy(), "target": CLASSES.numpy()})
    assert verdict.passed, verdict.failure
