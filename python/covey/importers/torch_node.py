"""One node of a PyTorch program as an operator's importer sees it, and the table of importers. Needs no PyTorch.

An operator's file in `covey.ops` registers a function with `@from_torch("aten.name.overload")` beside its ONNX
importer. It reads the arguments by the names in the operator's schema and says which ONNX operators they amount to, so
that both ways into the graph share one importer and give the same nodes. An argument nobody asks for must have its
default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

from covey.errors import UnsupportedError
from covey.importers import moved
from covey.importers.onnx_node import BATCH, IMPORTERS, OnnxNode, Scope
from covey.importers.replacements import no_secure_form
from covey.ir import DType, Value

OPSET = 18
"""The version of the ONNX operators that importers write attributes for."""

RANDOM = ("it is random", "call eval() on the module before exporting it, or take the numbers as an input")
"""Why a node that draws numbers is refused, and the way out."""

TorchImporter = Callable[["TorchNode"], None]

TORCH_IMPORTERS: dict[str, TorchImporter] = {}
"""The importer of every operator, by its name and overload."""


def from_torch(*names: str) -> Callable[[TorchImporter], TorchImporter]:
    """Register the importer of the named operators, `aten.relu.default` and the like."""

    def register(importer: TorchImporter) -> TorchImporter:
        for name in names:
            TORCH_IMPORTERS[name] = importer
        return importer

    return register


@dataclass(frozen=True)
class Constant:
    """A tensor known at compile time, under the name its parameter has in the module."""

    name: str
    array: npt.NDArray[Any] = field(repr=False)
    repeated: int | None = None
    """The dimension in which the model repeats this for all samples, if it does (`covey.importers.repeated`)."""

    @property
    def of_all(self) -> npt.NDArray[Any]:
        """The array as the model has it, for the batch that stands for any."""
        return self.of(BATCH)

    def of(self, samples: int) -> npt.NDArray[Any]:
        """The array as the model has it for so many samples."""
        if self.repeated is None:
            return self.array
        times = [samples if axis == self.repeated else 1 for axis in range(self.array.ndim)]
        return np.tile(self.array, times)

    @property
    def of_one(self) -> npt.NDArray[Any]:
        """The array without its first dimension, where it holds the samples alone and all have the same."""
        return self.array[0] if self.repeated == 0 and len(self.array) == 1 else self.array


def is_batch(size: Any) -> bool:
    """Whether a size has the factor that stands for the number of samples."""
    return isinstance(size, int) and not isinstance(size, bool) and size > 0 and size % BATCH == 0


Operand: TypeAlias = "Value | Constant | npt.NDArray[Any] | float | int"
"""What an operator is applied to: an activation, a constant with or without a name, a number."""

_Given = TypeVar("_Given")


@dataclass
class TorchNode:
    """A view of one node. Errors it raises name the module path, the operator and the line of the model's source."""

    scope: Scope
    name: str
    op_type: str
    output: str
    arguments: Mapping[str, Any]
    """By schema name, the absent ones with their defaults: `Value`, `Constant`, numbers, texts, lists of them, None."""
    given: frozenset[str]
    """The arguments that differ from their defaults."""
    asked: frozenset[int] = frozenset()
    """Which of several results anything reads."""
    read: set[str] = field(default_factory=set)
    rewritten: str | None = None
    known: Constant | None = None
    """The result where it does not depend on the network's input after all."""
    results: list[Value | Constant | None] | None = None
    """What `getitem` finds, for operators with several results; None in the place of one that is not supported."""
    _constants: int = 0

    # Arguments

    def argument(self, name: str) -> Any:
        """An argument as it is."""
        self.read.add(name)
        return self.arguments.get(name)

    def ignore(self, *names: str) -> None:
        """Arguments that have no bearing on inference."""
        self.read.update(names)

    def has(self, name: str) -> bool:
        """Whether the argument is there and not None."""
        return self.argument(name) is not None

    def activation(self, name: str) -> Value:
        """The argument as a value that depends on the network's input."""
        value = self.argument(name)
        if not isinstance(value, Value):
            raise self.unsupported(f"its {name} does not depend on the network's input", "compute it before the model")
        return value

    def operand(self, name: str) -> Operand:
        """The argument as what an operator may be applied to; whole numbers become real ones."""
        value = self.argument(name)
        if isinstance(value, Constant) and value.array.dtype.kind in "iub":
            return replace(value, array=value.array.astype(np.float64))
        if isinstance(value, Value | Constant):
            return value
        return self.number(name)

    def constant(self, name: str) -> npt.NDArray[Any]:
        """The argument as an array. Refuses what depends on the network's input."""
        value = self.argument(name)
        if isinstance(value, Value):
            raise self.unsupported(f"its {name} must be a constant", "make it a parameter or buffer of the module")
        return value.of_all if isinstance(value, Constant) else np.asarray(value)

    def number(self, name: str) -> float:
        """The argument as a number."""
        value = self.argument(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.unsupported(f"its {name} is no number", "make it one")
        if is_batch(value):
            raise self.unsupported(f"its {name} is the number of samples", "make it a constant")
        return float(value)

    def flag(self, name: str) -> bool:
        """A truth value."""
        return bool(self.argument(name))

    def integers(self, name: str, rank: int | None = None) -> list[int]:
        """A list of integers, one repeated `rank` times where there is but one."""
        value = self.argument(name)
        values = [value] if isinstance(value, int) else list(value or [])
        if any(isinstance(entry, bool) or not isinstance(entry, int) for entry in values):
            raise self.unsupported(f"its {name} depends on the data", "make it a constant")
        return values * rank if rank is not None and len(values) == 1 else values

    def axis(self, name: str, rank: int) -> int:
        """A dimension, counted from the front."""
        (value,) = self.integers(name)
        return value + rank if value < 0 else value

    def inner_axes(self, name: str, x: Value) -> list[int]:
        """Dimensions of x, counted from the front. Refuses the batch."""
        axes = [axis + x.rank if axis < 0 else axis for axis in self.integers(name)]
        if x.place in axes:
            raise self.unsupported("it runs over the batch", "keep the batch out of its dims")
        return axes

    # Results

    def apply(self, operator: str, *operands: Operand | None, suffix: str = "step", **attributes: Any) -> Value:
        """The result of an ONNX operator on the operands, for the next one to read."""
        return self._apply(operator, operands, self._fresh(f"{self.output}.{suffix}"), attributes)

    def become(self, operator: str, *operands: Operand | None, **attributes: Any) -> None:
        """The node's own result is that of an ONNX operator on the operands."""
        self._apply(operator, operands, self.output, attributes)

    def numbers(self, given: _Given, *, truth: bool = True) -> _Given | Value:
        """An operand, where it is places or whole numbers of an input, as numbers like others.

        So are truth values, unless the result would be such.
        """
        if not isinstance(given, Value) or given.dtype is DType.FLOAT or (given.dtype is DType.BOOL and not truth):
            return given
        return self.apply("Cast", given, to=TensorProto.FLOAT, suffix="numbers")

    def alias(self, value: Value) -> None:
        """The node's result is `value` itself."""
        self.scope.aliases[self.output] = value.name

    def become_several(self, operator: str, count: int, *operands: Operand | None, **attributes: Any) -> None:
        """The node has `count` results, those of an ONNX operator on the operands."""
        self.results = list(self.apply_several(operator, count, *operands, **attributes))

    def apply_several(self, operator: str, count: int, *operands: Operand | None, **attributes: Any) -> list[Value]:
        """The `count` results of an ONNX operator on the operands, for the next one to read."""
        names = [self._fresh(f"{self.output}.{index}") for index in range(count)]
        self.scope.used.update(names)
        self._run(operator, self._node(operator, operands, names, attributes))
        values = [self.scope.activation(name) for name in names]
        assert all(values), f"the importer of {operator} gave less than {count} results"
        return [value for value in values if value is not None]

    def first_of(self, operator: str, *operands: Operand | None, **attributes: Any) -> None:
        """The node has several results, of which only the first is supported: that of an ONNX operator."""
        self.become(operator, *operands, **attributes)
        self.results = [self.scope.activation(self.output)]

    def give(self, operator: str, *operands: Operand | None, **attributes: Any) -> None:
        """`become`, or `first_of` where this is the operator's native form, which has several results."""
        native = self.op_type.startswith(("aten.native_", "aten._"))
        (self.first_of if native else self.become)(operator, *operands, **attributes)

    def constant_result(self, array: npt.NDArray[Any], *, repeated: int | None = None) -> None:
        """The node's result is a constant, whatever the network's input is; `repeated` as in `Constant`."""
        self.known = Constant(self.output, array, repeated)
        self.rewritten = "constant, whatever it reads"

    @property
    def result(self) -> Value | None:
        """The node's own result, once it is there."""
        return self.scope.activation(self.output)

    def note(self, text: str) -> None:
        """Say that the node is imported as something else."""
        self.rewritten = text

    def unsupported(self, reason: str, way_out: str) -> UnsupportedError:
        """The error that refuses this node."""
        return UnsupportedError(self.name, self.op_type, reason, way_out)

    def _apply(self, operator: str, operands: Sequence[Any], output: str, attributes: dict[str, Any]) -> Value:
        self._run(operator, self._node(operator, operands, [output], attributes))
        value = self.scope.activation(output)
        assert value is not None, f"the importer of {operator} gave no result"
        return value

    def _node(self, operator: str, operands: Sequence[Any], outputs: list[str], attributes: dict[str, Any]) -> OnnxNode:
        if operator not in IMPORTERS:
            raise no_secure_form(self.name, self.op_type)
        names = [self._operand_name(operand) for operand in operands]
        while names and names[-1] == "":
            names.pop()
        return OnnxNode(self.scope, self.name, self.op_type, names, outputs, attributes)

    def _run(self, operator: str, node: OnnxNode) -> None:
        moved.run(IMPORTERS[operator], operator, node)
        unread = sorted(set(node.attributes) - node.read)
        if unread:
            raise self.unsupported(f"its '{unread[0]}' is not supported", "leave it at its default")
        self.rewritten = self.rewritten or node.rewritten

    def _operand_name(self, operand: Operand | None) -> str:
        """The name under which the ONNX importer finds an operand."""
        if operand is None:
            return ""
        if isinstance(operand, Value):
            return operand.name
        if isinstance(operand, Constant):
            name, array = operand.name, operand.array
        else:
            self._constants += 1
            name = self._fresh(f"{self.output}.constant{self._constants}")
            array = np.asarray(operand, dtype=None if isinstance(operand, np.ndarray) else np.float64)
        graph, hint, count = self.scope.graph, name, 1
        # An input or a node may be called like a parameter, and several parameters of one sharing like each other.
        while self.scope.constants.get(name) is not array and (
            name in self.scope.constants
            or name in self.scope.aliases
            or (name in graph.values and name not in graph.parameters)
        ):
            count += 1
            name = f"{hint}.{count}"
        self.scope.constants[name] = array
        return name

    def _fresh(self, hint: str) -> str:
        name, count = hint, 1
        while name in self.scope.constants or name in self.scope.graph.values or name in self.scope.aliases:
            count += 1
            name = f"{hint}.{count}"
        return name
