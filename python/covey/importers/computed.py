"""What a PyTorch program computes of trained tensors alone, such as `scale.exp()`: a network of its own.

Its inputs are the tensors, as if they were samples, so that each operator has the gradient that it has elsewhere.
Moves of elements alone stay with the program: training knows tensors by their numbers, wherever these are moved.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from covey.errors import ModelError
from covey.importers.repeated import for_samples
from covey.importers.torch_node import Constant
from covey.importers.torch_programs import first_line, quiet
from covey.interval import Array

MOVES = frozenset(
    f"aten.{name}"
    for name in (
        "alias.default", "as_strided.default", "clone.default", "contiguous.default", "diagonal.default",
        "embedding.default", "expand.default", "flip.default", "index.Tensor", "index_select.default",
        "lift_fresh_copy.default", "movedim.int", "permute.default", "repeat.default", "reshape.default",
        "roll.default", "select.int", "slice.Tensor", "split.Tensor", "split_with_sizes.default", "squeeze.default",
        "squeeze.dim", "squeeze.dims", "t.default", "transpose.int", "unbind.int", "unfold.default",
        "unsqueeze.default", "view.default", "_unsafe_view.default",
    )
)  # fmt: skip
"""Operators whose results hold elements of the first operand, and nothing else."""

SHAPES = tuple(f"aten.{kind}" for kind in ("empty_", "full_", "new_", "ones_", "zeros_"))
"""How operators begin that read the shape of a tensor alone."""

WIDTH = 13
"""So many copies of the tensors stand for samples where the network is exported: hardly a dimension has as many."""

NUMBERS = 1 << 22
"""Numbers from 2 to 3, of which a program has each once."""

ODD = 2654435761
"""A factor that brings these numbers into another order."""


def _weight_norm(v: Any, g: Any, dim: int = 0) -> Any:
    axes = [axis for axis in range(v.dim()) if axis != dim % v.dim()]
    return v * (g / (v * v).sum(axes, keepdim=True).sqrt())


RULES = {"aten._weight_norm.default": _weight_norm}
"""The meaning of operators that PyTorch has no form of for several samples."""


@dataclass
class _Step:
    """One call, the constants it reads in the place of their numbers, and its results."""

    target: Any
    arguments: Any
    results: list[Constant]


class Computed:
    """The constants of a program that depend on tensors that are trained."""

    def __init__(self, trained: Container[str], mirrored: bool = False) -> None:
        self.trained, self.mirrored = trained, mirrored
        self.tensors: dict[str, Array] = {}
        """What is computed, by name: numbers that are nowhere else stand for it."""
        self._steps: list[_Step] = []
        self._holders: dict[int, _Step | None] = {}
        """The step that made a constant; None of a tensor itself."""
        self._kept: list[Constant] = []
        self._drawn = 0

    def seen(self, constant: Constant) -> Constant:
        """One of the model's tensors, with 2 less its numbers if they are mirrored and it is trained."""
        if constant.name not in self.trained:
            return constant
        if self.mirrored:
            constant = Constant(constant.name, 2 - constant.array, constant.repeated)
        self._hold(constant, None)
        return constant

    def read(self, operands: Any) -> list[Constant]:
        """The constants among the operands that depend on trained tensors."""
        return [each for each in _constants(operands) if id(each) in self._holders]

    def learns(self, target: str, operands: Any) -> list[Constant]:
        """The constants among them on which the result of an operator depends."""
        return [] if target.startswith(SHAPES) else self.read(operands)

    def add(self, name: str, target: Any, arguments: Any, result: Any) -> Any:
        """The result of a node that reads such constants; numbers of its own stand for what is not moved alone.

        Raises `ValueError` with the reason where that is none.
        """
        several = isinstance(result, list)
        results: list[Constant] = list(result) if several else [result]
        if not all(isinstance(each, Constant) for each in results):
            raise ValueError("it reads a number of a tensor that is trained")
        if str(target) == "aten.embedding.default" and len(arguments[0]) > 2:
            raise ValueError("it reads rows of a table with a row for padding at constant indices")
        if not self._moves(str(target), arguments[0]):
            results = [self._replaced(each) if _is_float(each) else each for each in results]
        step = _Step(target, arguments, results)
        self._steps.append(step)
        for each in results:
            self._hold(each, step)
        return results if several else results[0]

    def _moves(self, target: str, arguments: Any) -> bool:
        """Whether a result holds elements of one of these constants."""
        first, *others = arguments
        moved = isinstance(first, Constant) and _is_float(first) and not self.read(others)
        return moved and (target in MOVES or target == "aten._to_copy.default")

    def inverse(self, name: str, constant: Constant) -> Constant:
        """1 / x of one of these constants."""
        import torch

        inverse = Constant(f"{name}.inverse", np.ones_like(constant.array), constant.repeated)
        made: list[Constant] = self.add(name, torch.ops.aten.reciprocal.default, [[constant], {}], [inverse])
        return made[0]

    def _hold(self, constant: Constant, step: _Step | None) -> None:
        self._holders[id(constant)] = step
        self._kept.append(constant)

    def _replaced(self, constant: Constant) -> Constant:
        places = (np.arange(constant.array.size) + self._drawn) * ODD % NUMBERS
        self._drawn += constant.array.size
        numbers = 2.0 + places / NUMBERS
        numbers = (2 - numbers if self.mirrored else numbers).reshape(constant.array.shape).astype(constant.array.dtype)
        name = constant.name
        while name in self.trained or name in self.tensors:
            name += "'"
        self.tensors[name] = np.atleast_1d(numbers).astype(np.float64)
        return Constant(name, numbers, constant.repeated)

    def sources(self, computed: str | Constant) -> list[str]:
        """The names of the tensors that something is computed of."""
        constant = computed if isinstance(computed, Constant) else self._made(computed)
        return [tensor.name for tensor in self._behind([constant])[1]]

    def network(self, names: list[str]) -> tuple[Any, list[str]]:
        """A program that computes these, and the names of the tensors that its inputs are. Raises `ModelError`."""
        import torch

        made = [self._made(name) for name in names]
        steps, tensors = self._behind(made)

        def run(*given: Any) -> Any:
            known = {id(tensor): value for tensor, value in zip(tensors, given, strict=True)}
            for step in steps:
                args, kwargs = _with(step.arguments, known)
                found = RULES.get(str(step.target), step.target)(*args, **kwargs)
                several = found if isinstance(found, list | tuple) else [found]
                known.update({id(each): value for each, value in zip(step.results, several, strict=True)})
            return tuple(known[id(constant)] for constant in made)

        class Samples(torch.nn.Module):  # type: ignore[misc]
            def forward(self, *given: Any) -> Any:
                return torch.vmap(run)(*given)

        examples = tuple(torch.from_numpy(np.stack([tensor.array] * WIDTH)) for tensor in tensors)
        try:
            with quiet():
                return torch.export.export(Samples().eval(), examples), [tensor.name for tensor in tensors]
        except Exception as error:  # PyTorch raises many kinds
            raise ModelError(
                f"what the model computes of '{tensors[0].name}' alone cannot be exported ({first_line(error)}): "
                f"freeze it (freeze=['{tensors[0].name}'])"
            ) from None

    def _made(self, name: str) -> Constant:
        return next(each for step in self._steps for each in step.results if each.name == name)

    def _behind(self, constants: list[Constant]) -> tuple[list[_Step], list[Constant]]:
        """The steps that these take, in order, and the tensors that they begin with."""
        needed: set[int] = set()
        tensors: dict[str, Constant] = {}
        left = list(constants)
        while left:
            constant = left.pop()
            step = self._holders[id(constant)]
            if step is None:
                tensors[constant.name] = constant
            elif id(step) not in needed:
                needed.add(id(step))
                left += self.read(step.arguments)
        return [step for step in self._steps if id(step) in needed], list(tensors.values())


def _is_float(constant: Constant) -> bool:
    return bool(constant.array.dtype.kind == "f")


def _constants(operands: Any) -> Iterator[Constant]:
    if isinstance(operands, Constant):
        yield operands
    elif isinstance(operands, list | tuple):
        for each in operands:
            yield from _constants(each)
    elif isinstance(operands, dict):
        yield from _constants(list(operands.values()))


def _with(argument: Any, known: dict[int, Any]) -> Any:
    """Arguments with tensors in the place of constants, for one sample."""
    import torch

    if isinstance(argument, Constant):
        return known[id(argument)] if id(argument) in known else torch.from_numpy(np.array(argument.of(1)))
    if isinstance(argument, list | tuple):
        return [_with(each, known) for each in argument]
    if isinstance(argument, dict):
        return {key: _with(each, known) for key, each in argument.items()}
    return for_samples(argument, 1)
