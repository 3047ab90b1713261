"""Tables that are read at what a model makes of an input's whole numbers, against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import covey
from covey.ops.comparison import Less
from covey.ops.mul import Mul
from covey.ops.where import Where

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = torch.nn

from test_torch import agrees  # noqa: E402

ROWS = 12


def shifted(ids: Any) -> Any:
    """As BART gives its decoder the ids of its encoder."""
    behind = ids.new_zeros(ids.shape)
    behind[:, 1:] = ids[:, :-1].clone()
    behind[:, 0] = 2
    return behind.masked_fill(behind == -100, 1)


CASES: dict[str, Any] = {
    "joined to a constant": lambda ids: torch.cat([torch.full_like(ids[:, :1], 2), ids[:, :-1]], 1),
    "shifted": shifted,
    "replaced": lambda ids: torch.where(ids == 0, 3, ids),
    "masked": lambda ids: ids.masked_fill(ids == -100, 1),
    "twice": lambda ids: ids + ids,
    "from the end": lambda ids: torch.cat([11 - ids[:, :2], ids[:, 2:]], 1),
    "of several columns": lambda ids: ids + torch.tensor([0, 2, 5, 5]),
    "not below a number": lambda ids: ids.clamp(min=2),
}


class Reading(nn.Module):  # type: ignore[misc]
    def __init__(self, how: Any) -> None:
        super().__init__()
        self.how, self.table = how, nn.Embedding(ROWS, 3)

    def forward(self, ids: Any) -> Any:
        return self.table(self.how(ids))


IDS = torch.tensor([[0, 1, 5, 3], [4, 0, 2, 1], [3, 5, 0, 4]])


@pytest.mark.parametrize("case", CASES)
def test_rows_at_numbers_made_of_one(case: str) -> None:
    graph = agrees(Reading(CASES[case]), IDS)
    assert not any(isinstance(node.op, Mul | Where) for node in graph.nodes)


@pytest.mark.parametrize(("case", "classes"), [("twice", 6), ("replaced", 12), ("of several columns", (12, 10, 7, 7))])
def test_numbers_that_lead_outside_the_table_are_no_classes(case: str, classes: int | tuple[int, ...]) -> None:
    compiled = covey.compile(Reading(CASES[case]).eval(), (IDS,))
    assert compiled.graph.classes["ids"] == (classes if isinstance(classes, tuple) else (classes,))


MASKED: dict[str, Any] = {
    "times a mask": lambda ids, mask: ids * mask.bool(),
    "times a mask of each sample": lambda ids, mask: ids * mask.bool()[:, :1],
    "some of them": lambda ids, mask: torch.cat([ids[:, :2], (ids * mask.bool())[:, 2:]], 1),
    "filled where a number is": lambda ids, mask: ids.masked_fill(mask == 0, 1),
    "filled where either is": lambda ids, mask: ids.masked_fill((mask == 0) | (mask.flip(1) == 0), 1),
    "shifted behind": lambda ids, mask: torch.cat([torch.full_like(ids[:, :1], 2), (ids * mask.bool())[:, :-1]], 1),
    "of two orders": lambda ids, mask: torch.where(mask.bool(), ids, ROWS - 1 - ids),
    "where a number is large": lambda ids, x: torch.where(x > 0, ids, 0),
    "of truth values": lambda ids, mask: ids * mask,
    "times whole numbers": lambda ids, mask: ids * mask,
    "filled by whole numbers": lambda ids, mask: mask * ids + (1 - mask) * 3,
}
MASKS = {
    "where a number is large": torch.tensor([[-1.0, 2, 0.5, -2], [1, 1, -3, 1], [-1, -1, -1, 4]]),
    "of truth values": torch.tensor([[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1]]).bool(),
}


@pytest.mark.parametrize("case", MASKED)
def test_rows_that_a_truth_value_chooses(case: str) -> None:
    class Masked(Reading):
        def forward(self, ids: Any, mask: Any) -> Any:
            return self.table(self.how(ids, mask))

    mask = MASKS.get(case, torch.tensor([[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1]]))
    graph = agrees(Masked(MASKED[case]), IDS, mask)
    assert sum(isinstance(node.op, Where) for node in graph.nodes) == 1
    assert max(graph.classes["ids"]) == ROWS


@pytest.mark.parametrize(
    "how",
    [
        lambda ids, mask: torch.where(mask.bool(), ids, (ids + 1).clamp(max=ROWS - 1)),
        lambda ids, mask: torch.where(mask.bool(), ids, ROWS),
        lambda ids, mask: ids * mask.bool() + (mask.flip(1) == 0).long(),
    ],
    ids=["one case says of no number that it is no class", "beyond the table", "of two truth values"],
)
def test_other_choices_need_a_range(how: Any) -> None:
    class Masked(Reading):
        def forward(self, ids: Any, mask: Any) -> Any:
            return self.table(self.how(ids, mask))

    with pytest.raises(covey.UnsupportedError, match=r"an ArgMax, or say its range: .*, or bool\(\) of a mask"):
        covey.compile(Masked(how).eval(), (IDS.clamp(max=3), torch.ones_like(IDS)))


@pytest.mark.parametrize(("most", "mask"), [(1, 1), (3, 3)])
def test_examples_say_which_numbers_are_a_mask(most: int, mask: int) -> None:
    class Masked(Reading):
        def forward(self, ids: Any, mask: Any) -> Any:
            return self.table(ids * mask)

    with pytest.raises(covey.UnsupportedError, match=r"or bool\(\) of a mask of 0 and 1"):
        covey.compile(Masked(None).eval(), (IDS.clamp(max=most), IDS.clamp(max=mask)))


def test_a_mask_that_examples_show_holds_truth_values_alone() -> None:
    class Masked(Reading):
        def forward(self, ids: Any, mask: Any) -> Any:
            return self.table(ids * mask).sum(1) / mask.sum(1, keepdim=True)

    mask = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1]])
    module = Masked(None).eval()
    compiled = covey.compile(module, (IDS, mask))
    with covey.local("clear") as parties:
        found = parties.run(compiled, {"ids": IDS, "mask": mask}).outputs
        with pytest.raises(covey.DataError, match="input 'mask' holds 2 in sample 0"):
            parties.run(compiled, {"ids": IDS, "mask": 2 * mask})
    np.testing.assert_allclose(next(iter(found.values())), module(IDS, mask).detach(), atol=0.01)


REFUSED: dict[str, Any] = {
    "all numbers stay in the table": lambda ids: ids.clamp(max=9) + 2,
    "of two numbers": lambda ids: ids + ids.flip(1),
    "below the table": lambda ids: ids - 1,
    "that another decides on": lambda ids: ids * (ids.flip(1) > 1),
}


@pytest.mark.parametrize("case", REFUSED)
def test_other_numbers_need_a_range(case: str) -> None:
    module = Reading(REFUSED[case]).eval()
    with pytest.raises(covey.UnsupportedError, match=r"an ArgMax, or say its range: clamp\(0, most\), or bool\(\)"):
        covey.compile(module, (IDS + 1,))


def test_training_reads_no_constant_ids() -> None:
    labels = np.zeros((3, 4))
    problem = "in training it reads numbers of an input, not 'masked_fill', .*; compute these in the data"
    with pytest.raises(covey.UnsupportedError, match=problem):
        covey.compile_training(
            Reading(CASES["shifted"]).eval(), (IDS,), loss="cross-entropy", optimizer=covey.SGD(0.1), batch=2,
            calibration=(IDS.numpy(), labels),
        )  # fmt: skip


def test_a_number_that_is_no_class_is_nowhere() -> None:
    class Without(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(ROWS, 3)

        def forward(self, ids: Any) -> Any:
            return self.table(ids).masked_fill((ids == -100)[..., None], 0.0)

    graph = agrees(Without(), IDS)
    assert not any(isinstance(node.op, Less) for node in graph.nodes)


def test_positions_of_a_mask_of_whole_numbers() -> None:
    """As OPT has them: what is cast to truth values holds nothing but 0 and 1."""

    class Positions(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(ROWS, 3)

        def forward(self, x: Any, mask: Any) -> Any:
            chosen = torch.where(mask.bool(), x, 0.0)
            return self.table(mask.cumsum(1) * mask + 1) + chosen[..., None]

    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]])
    graph = agrees(Positions(), torch.randn(2, 4, generator=torch.Generator().manual_seed(0)), mask)
    assert graph.truths == {"mask"}


def test_rows_at_intervals() -> None:
    agrees(Reading(lambda x: torch.bucketize(x, torch.linspace(-2, 2, ROWS - 1))), torch.linspace(-3, 3, 8).view(2, 4))


def test_a_choice_between_counted_numbers_is_counted() -> None:
    class Counting(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(ROWS, 3)

        def forward(self, x: Any) -> Any:
            count = (x > 0).long().cumsum(1)
            return self.table(torch.where(x > 0, count, 7))

    agrees(Counting(), torch.randn(3, 4, generator=torch.Generator().manual_seed(0)))
