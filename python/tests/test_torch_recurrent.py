"""Recurrent layers as torch.export writes them, against PyTorch itself."""

from __future__ import annotations

from typing import Any

import pytest

import covey

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = torch.nn

from test_torch import agrees, image  # noqa: E402

SEQUENCE = (3, 5, 4)


class Tagger(nn.Module):
    """All states, and the last ones, of a recurrent layer, with the sequence or the batch first inside."""

    def __init__(self, kind: str, *, batch_first: bool, given: bool = False, **options: Any) -> None:
        super().__init__()
        self.layer = getattr(nn, kind)(4, 6, batch_first=batch_first, **options)
        self.batch_first, self.given, self.kind = batch_first, given, kind
        self.state = self.layer.proj_size or 6
        self.first = nn.Linear(4, self.layer.num_layers * (2 if self.layer.bidirectional else 1) * 6)

    def forward(self, x: Any) -> Any:
        state = None
        if self.given:
            state = self.first(x[:, 0]).reshape(x.shape[0], -1, 6).transpose(0, 1)
            state = (state[..., : self.state].contiguous(), -state) if self.kind == "LSTM" else state
        y, ends = self.layer(x if self.batch_first else x.transpose(0, 1), state)
        y = y if self.batch_first else y.transpose(0, 1)
        ends = ends if isinstance(ends, tuple) else (ends,)
        return (y, *(end.transpose(0, 1) for end in ends))


class Rows(Tagger):
    """The same of several sequences in each sample."""

    def forward(self, x: Any) -> Any:
        return tuple(each.reshape(*x.shape[:2], *each.shape[1:]) for each in super().forward(x.flatten(0, 1)))


OPTIONS: dict[str, dict[str, Any]] = {
    "one layer": {},
    "no bias": {"bias": False},
    "two layers, both ways": {"num_layers": 2, "bidirectional": True},
    "given states": {"num_layers": 2, "given": True},
}


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("case", OPTIONS)
def test_recurrent(case: str, kind: str, batch_first: bool) -> None:
    agrees(Tagger(kind, batch_first=batch_first, **OPTIONS[case]), image(*SEQUENCE))


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("case", OPTIONS)
def test_sequences_of_a_sample(case: str, kind: str, batch_first: bool) -> None:
    """As of the rows of an image, in Sequencer2d."""
    agrees(Rows(kind, batch_first=batch_first, **OPTIONS[case]), image(3, 2, *SEQUENCE[1:]))


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("case", OPTIONS)
def test_a_state_that_is_projected(case: str, batch_first: bool) -> None:
    agrees(Tagger("LSTM", batch_first=batch_first, proj_size=3, **OPTIONS[case]), image(*SEQUENCE))
    agrees(Rows("LSTM", batch_first=batch_first, proj_size=3, **OPTIONS[case]), image(3, 2, *SEQUENCE[1:]))


def test_relu() -> None:
    agrees(Tagger("RNN", batch_first=True, nonlinearity="relu", bidirectional=True), image(*SEQUENCE))


def test_refusals() -> None:
    with pytest.raises(
        covey.UnsupportedError, match=r"the batch is in another dimension than it says.*batch_first=True"
    ):
        covey.compile(nn.GRU(4, 6).eval(), image(*SEQUENCE))
