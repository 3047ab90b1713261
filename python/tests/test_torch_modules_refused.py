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


class Function(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


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


class Transform(nn.Module):  # type: ignore[misc, name-defined]
    def forward(self, x: Any) -> Any:
        return torch.fft.rfft2(x).abs()


class Complex(nn.Module):  # type: ignore[misc, name-defined]
    def forward(self, x: Any) -> Any:
        turn = torch.polar(torch.ones(2), torch.linspace(0, 1, 2))
        return torch.view_as_real(torch.view_as_complex(x.reshape(-1, 3, 2, 2)) * turn)


class Packed(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.LSTM(4, 2, batch_first=True)

    def forward(self, x: Any) -> Any:
        lengths = (x[:, :, 0] > 0).sum(1)
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return self.inner(packed)[1][0]


def prepared(how: str) -> Any:
    """A layer on its way to integers."""
    quantisation = torch.ao.quantization
    module = nn.Sequential(nn.Linear(4, 4))
    if how == "converted":
        return quantisation.quantize_dynamic(module, {nn.Linear})
    if how == "trained":
        module.qconfig = quantisation.get_default_qat_qconfig("x86")
        return quantisation.prepare_qat(module.train())
    module.qconfig = quantisation.get_default_qconfig("x86")
    return quantisation.prepare(module.eval())


CASES: dict[str, tuple[Any, str]] = {
    "scripted": (lambda: torch.jit.script(nn.ReLU()), "module of torch.jit: give the module that it was made from"),
    "without weights": (
        lambda: nn.Linear(4, 4, device="meta"),
        "'weight' is on the device meta, its weights are not lo",
    ),
    "of integers": (
        lambda: prepared("converted"),
        r"\(LinearPackedParams\): its weights are integers, .*; compile the model as it was before prepare\(\)",
    ),
    "observed": (
        lambda: prepared("observed"),
        r"'0.activation_post_process' \(HistogramObserver\): it adapts the steps",
    ),
    "trained for integers": (
        lambda: prepared("trained"),
        r"'0.weight_fake_quant' \(FusedMovingAvgObsFakeQuantize\): it adapts the steps of a quantisation to each batch",
    ),
    "counting": (Counter, "changes 'count' as it runs: .* assign to no buffer"),
    "branching": (
        Branch,
        r"cannot export Branch \(at test_torch_modules_refused.py line \d+: return x \* 2 if x.sum\(\) > 0 else x\): "
        r"an `if`, .* depends on the data: .* torch.where",
    ),
    "choosing a way": (
        lambda: Function(lambda x: torch.cond(torch.ones(()) > 0, lambda x: x * 2, lambda x: x + 1, (x,))),
        r"'cond' \(torch.cond\): .*; compute both ways and choose by torch.where",
    ),
    "looping": (
        lambda: Function(
            lambda x: torch.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (torch.tensor(0), x))[1]
        ),
        r"'while_loop' \(torch.while_loop\): .*; write its steps as a loop of Python",
    ),
    "a constant result": (
        lambda: Function(lambda x: {"a": x * 2, "b": torch.ones(3)}),
        "output 'ones' of the model is a constant, .*: remove it",
    ),
    "nothing": (lambda: Function(lambda x: None), "the model returns no tensor: let its forward return what"),
    "with a mask": (Masked, "let it pass is_causal as well"),
    "of packed sequences": (Packed, "leave pack_padded_sequence out, and take the last state of each padded"),
    "a table with a largest norm": (
        lambda: nn.Embedding(4, 2, max_norm=1.0),
        r"\(Embedding\): its option max_norm changes its weight as it runs; renormalise .* max_norm to None",
    ),
    "a transform": (Transform, "use MatMul with a constant matrix of the transform"),
    "complex numbers": (Complex, "compute with real and imaginary parts as tensors of their own"),
    "a key of zeros": (lambda: Attention(add_zero_attn=True), "its option add_zero_attn"),
    "a learned key": (
        lambda: Attention(add_bias_kv=True),
        r"'inner' \(MultiheadAttention\): its option add_bias_kv .*; build it with add_bias_kv=False",
    ),
}


@pytest.mark.filterwarnings(
    "ignore:.*torch.jit:FutureWarning",
    "ignore:.*torch.jit:DeprecationWarning",
    "ignore:.*torch.ao.quantization:DeprecationWarning",
    "ignore:.*reduce_range:UserWarning",
    "ignore:.*quantized tensor creation:UserWarning",
)
@pytest.mark.parametrize("case", CASES)
def test_one_line(case: str) -> None:
    make, saying = CASES[case]
    with pytest.raises(covey.CoveyError, match=saying) as caught:
        covey.compile(make().eval(), (torch.ones(2, 3, 4),), input_range=(-1, 1))
    assert "\n" not in str(caught.value)
