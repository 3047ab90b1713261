"""Normalisation and attention as torch.export writes them, against PyTorch itself."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn, functional = torch.nn, torch.nn.functional

from test_torch import Apply, agrees, image  # noqa: E402

IMAGE, TOKENS = (2, 4, 9, 8), (2, 5, 12)


class Attention(nn.Module):
    """Heads that are split and joined by hand around PyTorch's attention."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options
        self.into, self.out = nn.Linear(12, 36), nn.Linear(12, 12)

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        parts = self.into(x).reshape(batch, length, 3, 3, 4).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(parts[0], parts[1], parts[2], **self.options)
        return self.out(attended.transpose(1, 2).reshape(batch, length, width))


CASES: dict[str, tuple[Any, tuple[int, ...]]] = {
    "layer norm": (lambda: nn.LayerNorm(12), TOKENS),
    "layer norm without weights": (lambda: nn.LayerNorm(12, elementwise_affine=False), TOKENS),
    "layer norm of two dimensions": (lambda: nn.LayerNorm((9, 8)), IMAGE),
    "rms norm": (lambda: nn.RMSNorm(12, eps=1e-5), TOKENS),
    "group norm": (lambda: nn.GroupNorm(2, 4), IMAGE),
    "instance norm": (lambda: nn.InstanceNorm2d(4, affine=True), IMAGE),
    "attention": (Attention, TOKENS),
    "causal attention": (lambda: Attention(is_causal=True), TOKENS),
    "attention of another scale": (lambda: Attention(scale=0.3), TOKENS),
    "attention under a mask": (lambda: Attention(attn_mask=torch.ones(5, 5, dtype=torch.bool).tril(1)), TOKENS),
    "gelu behind a norm": (lambda: nn.Sequential(nn.LayerNorm(12), nn.Linear(12, 6), nn.GELU("tanh")), TOKENS),
    "softmax of scores by hand": (
        lambda: Apply(lambda self, x: torch.softmax(x @ x.transpose(1, 2) / 3.4, -1) @ x),
        TOKENS,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_module(case: str) -> None:
    torch.manual_seed(1)
    make, shape = CASES[case]
    module = make()
    for part in module.parameters():
        nn.init.normal_(part, std=0.5)
    agrees(module, image(*shape))
