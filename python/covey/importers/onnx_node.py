"""One ONNX node as an operator's importer sees it, and the table of importers.

An operator's file in `covey.ops` registers a function with `@from_onnx("Name")`; it reads the node through `OnnxNode`
and emits graph nodes. An attribute that no importer asks for is an error, so nothing is ignored in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import numpy_helper

from covey.errors import CoveyError, ParameterError, UnsupportedError
from covey.interval import Array
from covey.ir import DType, Graph, Node, Op, Value

BATCH = 7919
"""Stands for the batch size while shape arithmetic of the model is folded: a prime, so products show."""

OTHER_BATCH = 13
"""Another, with which constants that may depend on the batch size are folded again: those that differ do."""

MOST_ELEMENTS = 1 << 26
"""Most elements of one sample of a value: no network has more, a broken model may."""

LEAST = float(np.finfo(np.float32).min)
"""Stands for minus infinity in constants that may be masks of a Softmax."""

Importer = Callable[["OnnxNode"], None]

IMPORTERS: dict[str, Importer] = {}
"""The importer of every operator of the default ONNX domain."""

ML_DOMAIN = "ai.onnx.ml"
ML_IMPORTERS: dict[str, Importer] = {}
"""The importer of every operator of that domain, which holds what is not a neural network."""

MS_DOMAIN = "com.microsoft"
MS_IMPORTERS: dict[str, Importer] = {}
"""The importer of every operator of onnxruntime's own domain, which its optimiser writes."""

OWN_DOMAIN = "covey"
"""Of nodes that stand for what no other domain has, in models that Covey itself converts."""

DOMAINS: dict[str, dict[str, Importer]] = {
    "": IMPORTERS,
    ML_DOMAIN: ML_IMPORTERS,
    MS_DOMAIN: MS_IMPORTERS,
    OWN_DOMAIN: {},
}
"""The importers of every domain."""


def of_one_sample(constant: npt.NDArray[Any], rank: int, batch: int | None = None) -> npt.NDArray[Any]:
    """A constant beside an activation of `rank` dimensions, without the first where all samples have the same.

    If the model was exported with a fixed `batch`, rows of another number are not its samples: they would repeat it.
    One of more dimensions stays as it is: it would give all results those dimensions, in front of the batch.
    """
    rows = constant.shape[0] if constant.ndim == rank else 0
    of_samples = rows > 0 and (batch is None or rows in (batch, BATCH))
    if rows == 1 or (of_samples and (constant == constant[:1]).all()):
        constant = constant[0]
    return constant


@contextmanager
def well_formed(name: str, op: str) -> Iterator[None]:
    """Give what an importer fails at in a model that no check found damaged one clear line, too."""
    try:
        yield
    except CoveyError:
        raise
    except (ArithmeticError, LookupError, RuntimeError, StopIteration, ValueError) as error:
        text = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        raise UnsupportedError(name, op, f"it is malformed ({text})", "repair the model or export it again") from None


def from_onnx(*names: str, domain: str = "") -> Callable[[Importer], Importer]:
    """Register the importer of the named operators."""
    table = DOMAINS[domain]

    def register(importer: Importer) -> Importer:
        for name in names:
            table[name] = importer
        return importer

    return register


@dataclass
class Scope:
    """What is known while a model is imported: the graph so far, constants, the batch size it was exported with."""

    graph: Graph
    opset: int
    constants: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    folded_again: dict[str, npt.NDArray[Any] | None] = field(default_factory=dict)
    """Constants that come from the batch size, as `OTHER_BATCH` makes them; None where it makes none."""
    aliases: dict[str, str] = field(default_factory=dict)
    exported_batch: int | None = None
    used: set[str] = field(default_factory=set)
    """The ONNX names that some node reads or the model gives."""
    moved: dict[str, str] = field(default_factory=dict)
    """The graph's value behind each that the model has moved the batch of (see `covey.importers.moved`)."""
    movers: dict[str, tuple[str, str]] = field(default_factory=dict)
    """The node that took the batch of such a value from the front: its name and operator."""
    otherwise: dict[str, list[str]] = field(default_factory=dict)
    """Values with the batch elsewhere, for each whose batch is or was in doubt (see `covey.importers.doubts`)."""
    originals: dict[str, str] = field(default_factory=dict)
    """The model's own names of those."""
    tentative: set[str] = field(default_factory=set)
    """What was computed, and which parameters it has, while the batch was in doubt."""
    dropout: bool = False
    """Whether Dropout drops elements: the model is imported for training."""
    trained: bool = False
    """Whether no weight may be added to another or scaled: the model is imported for training."""
    first_last: set[str] = field(default_factory=set)
    """Scores of two classes of which the first's stands second."""
    labels: set[str] = field(default_factory=set)
    """The ONNX names of class labels, which the result's owner reads off the scores."""
    categories: set[str] = field(default_factory=set)
    """The ONNX names that nothing but encoders of categories reads."""
    types: dict[str, int] = field(default_factory=dict)
    """The types of elements that the model has, by ONNX name."""
    types_within: dict[tuple[str, ...], dict[str, int]] = field(default_factory=dict)
    """The same of control flow's bodies, by the node's outputs and the body's attribute."""

    def activation(self, name: str) -> Value | None:
        """The graph's value that the ONNX name stands for, if it is one."""
        return self.graph.values.get(self.aliases.get(name, name))

    def dims(self, value: Value, batch: int = BATCH) -> list[int]:
        """All dimensions of a value, with the stand-in for the batch size if its place is certain."""
        return value.dims(1 if value.name in self.otherwise else batch)

    def depends_on_batch(self, name: str) -> npt.NDArray[np.bool_]:
        """Which elements of a constant depend on the batch size; how many of them there are may, too."""
        one = self.constants[name]
        if name not in self.folded_again:
            return np.zeros(one.shape, dtype=bool)
        other = self.folded_again[name]
        if other is None or one.ndim != other.ndim:
            return np.ones(one.shape, dtype=bool)
        common = tuple(slice(0, min(sizes)) for sizes in zip(one.shape, other.shape, strict=True))
        return np.asarray(one[common] != other[common])


@dataclass
class OnnxNode:
    """A view of one node. Errors it raises name the node and its operator."""

    scope: Scope
    name: str
    op_type: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Any]
    read: set[str] = field(default_factory=set)
    rewritten: str | None = None
    emitted: int = 0

    @property
    def opset(self) -> int:
        """Version of the default operator set."""
        return self.scope.opset

    # Attributes

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute's value, or the default."""
        self.read.add(name)
        return self.attributes.get(name, default)

    def has_attribute(self, name: str) -> bool:
        """Whether the attribute is given."""
        return name in self.attributes

    def integers(self, name: str, default: Sequence[int] | None = None) -> list[int] | None:
        """A list of integers."""
        value = self.attribute(name, default)
        return None if value is None else [int(v) for v in value]

    def numbers(self, name: str, most: float | None = None) -> Array:
        """A list of floating-point numbers, also from `name_as_tensor`; empty where there is none.

        Where infinite ones have a meaning, `most` stands for them.
        """
        tensor = self.attribute(f"{name}_as_tensor")
        array = np.array(self.attribute(name, []), dtype=np.float64)
        if tensor is not None:
            array = numpy_helper.to_array(tensor).ravel()
        if most is not None:
            array = np.clip(array, -most, most)
        return self.finite(array, f"attribute '{name}'", self.name) if array.size else array

    def flag(self, name: str, default: int = 0) -> bool:
        """An integer attribute used as a truth value."""
        return bool(self.attribute(name, default))

    def ignore(self, *names: str) -> None:
        """Attributes that have no bearing on inference."""
        self.read.update(names)

    # Operands

    def has(self, index: int) -> bool:
        """Whether the optional operand is there."""
        return index < len(self.inputs) and self.inputs[index] != ""

    def is_constant(self, index: int) -> bool:
        """Whether the operand is known at compile time."""
        return self.has(index) and self.inputs[index] in self.scope.constants

    def constant(self, index: int, what: str, *, sizes: bool = False) -> npt.NDArray[Any]:
        """The operand's value at compile time. Refuses operands that depend on the network's input.

        Only `sizes` may depend on the number of samples, which is not known before a run.
        """
        if not self.is_constant(index):
            raise self.unsupported(f"its {what} must be a constant", "export the model with it fixed")
        if not sizes and self.scope.depends_on_batch(self.inputs[index]).any():
            raise self.unsupported(f"its {what} comes from the number of samples", "use a constant instead")
        return self.scope.constants[self.inputs[index]]

    def constant_integers(self, index: int, what: str) -> list[int]:
        """A constant operand as integers, which may be sizes."""
        array = self.constant(index, what, sizes=True)
        if array.dtype.kind not in "iub":
            raise ParameterError(self.name, self.op_type, f"its {what} has dtype {array.dtype}", "store it as int64")
        return [int(v) for v in np.atleast_1d(array).ravel()]

    def one_integer(self, index: int, what: str) -> int:
        """A constant operand of one element as an integer."""
        self.one_number(index, what)
        return self.constant_integers(index, what)[0]

    def one_number(self, index: int, what: str) -> float:
        """A constant operand of one element as a number."""
        array = self.constant(index, what)
        if array.size != 1:
            reason = f"its {what} has {array.size} elements"
            raise ParameterError(self.name, self.op_type, reason, "give it one element")
        return float(array.ravel()[0])

    def places(self, axes: Sequence[int], rank: int) -> list[int]:
        """Axes counted from the front. Refuses those outside `rank` dimensions, and repeated ones."""
        found = [axis + rank if axis < 0 else axis for axis in axes]
        if any(not 0 <= place < rank for place in found) or len(set(found)) < len(found):
            raise self.unsupported(f"its axes {list(axes)} do not fit {rank} dimensions", "repair the model")
        return found

    def weights(self, index: int, what: str) -> Array:
        """A constant operand as finite float64. Refuses NaN, infinity, and integers where no operand is whole."""
        return self.finite(self.constant(index, what), what, self.inputs[index])

    def finite(self, array: npt.NDArray[Any], what: str, name: str) -> Array:
        """Weights as finite float64; `name` is what errors call them. Refuses the same."""
        if array.dtype.kind in "iu" and self._reads_whole():
            array = array.astype(np.float64)
        if array.dtype.kind not in "f" and array.dtype.name != "bfloat16":
            raise ParameterError(
                self.name,
                self.op_type,
                f"its {what} has dtype {array.dtype}",
                "store it as float32, float64 or float16",
            )
        if array.size == 0:
            raise ParameterError(self.name, self.op_type, f"its {what} has no elements", "remove the node")
        floats = array.astype(np.float64)
        if not np.isfinite(floats).all():
            first = int(np.flatnonzero(~np.isfinite(floats).ravel())[0])
            raise ParameterError(
                self.name,
                self.op_type,
                f"its {what} '{name}' holds {floats.ravel()[first]} at index {first}",
                "only finite weights can be shared; repair or retrain the model",
            )
        return floats

    def activation(self, index: int, what: str = "input", *, index_allowed: bool = False) -> Value:
        """The operand as a value that depends on the network's input."""
        name = self.inputs[index] if self.has(index) else ""
        value = self.scope.activation(name)
        if value is None:
            why = "is missing" if name == "" else "is a constant" if self.is_constant(index) else "is unknown"
            raise self.unsupported(f"its {what} '{name}' {why}", "it must come from the network's input")
        if not value.batch_first:
            raise self.unsupported(
                f"its {what} {value} does not have the batch first and alone", "move the batch back to the front"
            )
        if value.dtype is DType.INDEX and not index_allowed:
            return self._number(value, index)
        if value.dtype is DType.BOOL and not index_allowed:
            raise self.unsupported(f"its {what} '{name}' holds truth values", "put a Cast to float before it")
        return value

    def _number(self, value: Value, index: int) -> Value:
        """Places and whole numbers of an input as numbers like others, which they are exactly."""
        from covey.ops.number import Number  # which imports what imports this module

        graph = self.scope.graph
        for made in graph.consumers(value.name):
            if made.name == self.name and isinstance(made.op, Number):
                return graph.values[made.output]
        return self.emit(Number(), [value], output=f"{self.outputs[0]}.number{index}")

    def boolean(self, index: int, what: str) -> Value:
        """The operand as truth values that depend on the network's input."""
        value = self.activation(index, what, index_allowed=True)
        if value.dtype is not DType.BOOL:
            raise self.unsupported(
                f"its {what} '{value.name}' holds no truth values", "compare it with something first"
            )
        return value

    def whole_numbers(self, index: int, what: str) -> Value:
        """The operand as whole numbers of the network's input, moved or as they are."""
        value = self.activation(index, what, index_allowed=True)
        if not self.scope.graph.holds_input(value.name):
            raise self.unsupported(
                f"its {what} '{value.name}' are no whole numbers of an input",
                "let it read an input of type int64, which the client shares one-hot",
            )
        return value

    def operand(self, index: int, what: str) -> Value:
        """The operand as an activation, or as a parameter when it is a constant."""
        if not self.is_constant(index):
            return self.activation(index, what)
        return self.parameter(self.weights(index, what), self.inputs[index])

    def _reads_whole(self) -> bool:
        """Whether an operand is whole numbers of an input, or such as the network computes."""
        from covey.ops.counting import is_whole  # which imports this module

        values = map(self.scope.activation, self.inputs)
        return any(value is not None and is_whole(self.scope.graph, value.name) for value in values)

    def parameter(self, array: Array, hint: str) -> Value:
        """A parameter of the graph; an equal one under the same name is used again."""
        graph = self.scope.graph
        known = graph.parameters.get(hint)
        if known is not None and known.shape == array.shape and np.array_equal(known, array):
            return graph.values[hint]
        return graph.add_parameter(hint, array)

    def beside(self, index: int, what: str, activation: Value, *, masking: bool = False) -> Value:
        """A constant operand of an element-wise operation, without the dimensions that would meet the batch.

        One that may be `masking` what a Softmax reads has `LEAST` in the place of minus infinity.
        """
        array = self.constant(index, what)
        if masking and array.dtype.kind == "f" and np.isneginf(array).any():
            array = np.where(np.isneginf(array), LEAST, array.astype(np.float64))
        if masking and array.dtype.kind == "f" and np.isposinf(array).any():
            reason = "it fills in or adds infinity, which no ring holds"
            raise ParameterError(self.name, self.op_type, reason, "use a finite number such as 1e4")
        array = self.finite(array, what, self.inputs[index])
        axis = self._old_axis(activation, array)
        if axis is not None:
            array = array.reshape(*array.shape, *(1,) * (activation.rank - axis - array.ndim))
        array = of_one_sample(array, activation.rank, self.scope.exported_batch)
        if array.ndim > activation.rank:
            raise self.more_dimensions(what, array, activation)
        if array.ndim == activation.rank:
            raise self.unsupported(
                f"its {what} of shape {list(array.shape)} differs between samples of a batch",
                "make it independent of the batch",
            )
        return self.parameter(array, self.inputs[index])

    def more_dimensions(self, what: str, array: npt.NDArray[Any], activation: Value) -> UnsupportedError:
        """The error for a constant that would put dimensions in front of the batch."""
        shape = list(array.shape)
        return self.unsupported(
            f"its {what} of shape {shape} has more dimensions than {activation}", "reshape it to at most as many"
        )

    def _old_axis(self, activation: Value, array: Array) -> int | None:
        """Where the constant's first dimension stands before opset 7, where a node may name it."""
        if self.opset >= 7:
            return None
        self.read.update(("axis", "broadcast"))
        if self.op_type == "PRelu" and array.ndim == 1:
            return 1
        axis = self.attributes.get("axis")
        if axis is None:
            return None
        (axis,) = self.places([int(axis)], activation.rank)
        if axis + array.ndim > activation.rank:
            raise self.unsupported(f"its axis {axis} does not fit {activation}", "repair the model")
        return axis

    # Results

    def emit(self, op: Op, inputs: Sequence[Value], *, output: str | None = None, dtype: DType = DType.FLOAT) -> Value:
        """Append a graph node. Without `output` its result is the node's own first output."""
        graph = self.scope.graph
        try:
            shape = op.shape(*inputs)
        except ValueError as error:
            raise self.unsupported(str(error), "check the model's shapes") from None
        self.check_shape(shape)
        name = graph.fresh(output) if output is not None else self.outputs[0]
        graph.nodes.append(Node(self.name, self.op_type, op, [value.name for value in inputs], name))
        self.emitted += 1
        return graph.add_value(Value(name, tuple(int(size) for size in shape), dtype=dtype))

    def check_shape(self, shape: Sequence[int]) -> None:
        """Refuse results that are empty or larger than any network's."""
        wrong = "which is empty" if any(size < 1 for size in shape) else None
        if prod(shape) > MOST_ELEMENTS:
            wrong = f"more than {MOST_ELEMENTS} elements"
        if wrong is not None:
            raise self.unsupported(f"its result has shape {list(shape)}, {wrong}", "check the model's shapes")

    def alias(self, value: Value) -> None:
        """The node's first output is `value` itself."""
        self.scope.aliases[self.outputs[0]] = value.name

    def drop_label(self) -> None:
        """The node's first output holds class labels: no program computes them."""
        self.scope.labels.update(filter(None, self.outputs[:1]))

    def only_first_output(self, what: str) -> None:
        """Refuse nodes whose further outputs are used."""
        if any(name in self.scope.used for name in self.outputs[1:]):
            raise self.unsupported(f"its second output ({what}) is asked for", "export the model for inference")

    def note(self, text: str) -> None:
        """Say that the node is imported as something else."""
        self.rewritten = text

    def unsupported(self, reason: str, way_out: str) -> UnsupportedError:
        """The error that refuses this node."""
        return UnsupportedError(self.name, self.op_type, reason, way_out)
