"""Quantised activations of PyTorch: fake quantisation, quantised tensors, programs quantised after their export."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import covey
from covey import reference
from covey.importers.quantised_programs import register_operators
from covey.importers.torch_export import examine
from covey.ops.clip import Clip

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = torch.nn

from test_torch import agrees, image  # noqa: E402

register_operators()
DECOMPOSED = torch.ops.quantized_decomposed
BYTES = (-128, 127, torch.int8)


def _there_and_back(x: Any, *steps: Any, back: Any = None) -> Any:
    """As quantisers of exported programs write it."""
    return DECOMPOSED.dequantize_per_tensor(DECOMPOSED.quantize_per_tensor(x, *steps), *(back or steps))


def _steps_of_the_data(x: Any) -> Any:
    scale, zero = DECOMPOSED.choose_qparams(x, -128, 127, 1e-3, torch.int8)
    return _there_and_back(x, scale, zero, *BYTES)


def _of_channels(x: Any) -> Any:
    scales, zeros = torch.tensor([0.125, 0.0625, 0.0625] * 4), torch.tensor([3, 0, -2] * 4)
    back = DECOMPOSED.quantize_per_channel(x, scales, zeros, 1, -8, 7, torch.int8)
    return DECOMPOSED.dequantize_per_channel(back, scales, zeros, 1, -8, 7, torch.int8)


QUANTISED: dict[str, Any] = {
    "on fake steps": lambda x: torch.fake_quantize_per_tensor_affine(x, 0.125, 2, -4, 11),
    "on fake steps of a buffer": lambda x: torch.fake_quantize_per_tensor_affine(
        x, torch.tensor(0.125), torch.tensor(2), -4, 11
    ),
    "in bytes": lambda x: torch.quantize_per_tensor(x, 0.125, 4, torch.quint8).flip(1).dequantize(),
    "in signed bytes": lambda x: torch.quantize_per_tensor(x, 0.125, 127, torch.qint8).dequantize(),
    "in 32 bits": lambda x: torch.quantize_per_tensor(x, 0.125, 0, torch.qint32).dequantize(),
    "there and back": lambda x: _there_and_back(x, 0.125, 120, *BYTES),
    "on steps of a buffer": lambda x: _there_and_back(x, torch.tensor(0.125), torch.tensor(120), *BYTES),
}


@pytest.mark.filterwarnings("ignore:.*quantized tensor creation:UserWarning")
@pytest.mark.parametrize("case", QUANTISED)
def test_quantised_activations(case: str) -> None:
    """Cut off where their integers end; that they are rounded is left out, so they are whole steps here."""

    class Quantised(nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return QUANTISED[case](x * 1.0)

    graph = agrees(Quantised(), torch.arange(-12, 12).reshape(2, 12) * 0.125)
    assert any(isinstance(node.op, Clip) for node in graph.nodes) == (case != "in 32 bits")


CHANNELS: dict[str, Any] = {
    "fake": lambda x: torch.fake_quantize_per_channel_affine(
        x, torch.tensor([0.125, 0.0625, 0.0625] * 4), torch.tensor([3, 0, -2] * 4, dtype=torch.int32), 1, -8, 7
    ),
    "there and back": _of_channels,
}


@pytest.mark.parametrize("case", CHANNELS)
def test_quantised_channels(case: str) -> None:
    class Quantised(nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return CHANNELS[case](x * 1.0)

    agrees(Quantised(), torch.arange(-12, 12).reshape(2, 12) * 0.125)


def test_steps_that_the_data_choose_leave_activations_as_they_are() -> None:
    class Dynamic(nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return 2 * _steps_of_the_data(x)

    x = image(4, 12)
    program = torch.export.export(Dynamic().eval(), (x,))
    for source, examples in ((program, None), (program.module(), x)):
        graph, errors = examine(source, example_inputs=examples)
        assert errors == [] and len(graph.nodes) == 1
        np.testing.assert_allclose(reference.outputs(graph, {"x": x.double().numpy()})[0], 2 * x, atol=1e-6)


def test_integers_that_do_not_come_straight_back_are_refused() -> None:
    class Others(nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return _there_and_back(x, 0.125, 0, *BYTES, back=(0.25, 0, *BYTES))

    with pytest.raises(covey.UnsupportedError, match=r"'quantize_per_tensor' .*no secure form of the operator"):
        covey.compile(Others().eval(), image(4, 12))
