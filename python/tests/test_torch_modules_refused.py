"""Modules of PyTorch that cannot be compiled: one line each that says why, and the way out."""

from __future__ import annotations

from typing import Any

import pytest

import covey

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = torch.nn


class Counter(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: Any) -> Any:
        self.count += 1
        return x * self.count


class Branch(nn.Module):  # type: ignore[misc, name-defined]
    def forward(self, x: Any) -> Any:
        return x * 2 if x.sum() > 0 else x


class Masked(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(4, 1, 4, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.register_buffer("mask", torch.ones(3, 3).triu(1).bool())

    def forward(self, x: Any) -> Any:
        return self.encoder(x, self.mask)


class Attention(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, **options: bool) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(4, 1, batch_first=True, **options)

    def forward(self, x: Any) -> Any:
        return self.inner(x, x, x, need_weights=False)[0]


CASES: dict[str, tuple[Any, str]] = {
    "scripted": (lambda: torch.jit.script(nn.ReLU()), "module of torch.jit: give the module that it was made from"),
    "without weights": (
        lambda: nn.Linear(4, 4, device="meta"),
        "'weight' is on the device meta, its weights are not lo",
    ),
    "counting": (Counter, "changes 'count' as it runs: .* assign to no buffer"),
    "branching": (Branch, "cannot export Branch .*: an `if`, .* depends on the data: .* torch.where"),
    "with a mask": (Masked, "let it pass is_causal as well"),
    "a key of zeros": (lambda: Attention(add_zero_attn=True), "its option add_zero_attn"),
    "a learned key": (
        lambda: Attention(add_bias_kv=True),
        r"'inner' \(MultiheadAttention\): its option add_bias_kv .*; build it with add_bias_kv=False",
    ),
}


@pytest.mark.filterwarnings("ignore:.*torch.jit:FutureWarning", "ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("case", CASES)
def test_one_line(case: str) -> None:
    make, saying = CASES[case]
    with pytest.raises(covey.CoveyError, match=saying) as caught:
        covey.compile(make().eval(), (torch.ones(2, 3, 4),), input_range=(-1, 1))
    assert "\n" not in str(caught.value)
