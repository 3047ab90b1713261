"""The multiplications of a module's layers, found by running it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from covey.errors import OptionError

LAYERS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)


def multiplications(model: nn.Module, examples: list[Any]) -> dict[str, int]:
    """How many multiplications each convolution and linear layer takes for one of the samples, by path.

    Of a layer that runs several times, those of all runs.
    """
    counts: dict[str, int] = {}

    def counter(path: str) -> Any:
        def count(layer: Any, inputs: Any, output: Any) -> None:
            counts[path] = counts.get(path, 0) + output.numel() // len(output) * layer.weight[0].numel()

        return count

    layers = [(path, each) for path, each in model.named_modules() if isinstance(each, LAYERS)]
    handles = [layer.register_forward_hook(counter(path)) for path, layer in layers]
    try:
        run(model, examples)
    finally:
        for handle in handles:
            handle.remove()
    return counts


def run(model: nn.Module, samples: list[Any]) -> Any:
    """The model's result, in evaluation mode. Raises `OptionError` for samples that it does not take."""
    with evaluating(model):
        try:
            return model(*samples)
        except SeenError:
            raise
        except Exception as error:  # a module's own code runs
            line = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise OptionError(f"{type(model).__name__} does not take the example inputs ({line})") from None


class SeenError(Exception):
    """Raised by a hook that has seen enough."""


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode and no gradients, for as long as the block lasts."""
    training = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, was in training.items():
            module.training = was
