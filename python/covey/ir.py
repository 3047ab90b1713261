"""The graph every importer produces and every pass works on.

A graph is a list of nodes in execution order over named values. Activations carry a batch dimension, which is symbolic:
a value's `shape` leaves it out and `batched` is true. Parameters (weights and other constants) are not batched.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from covey.interval import Array, Interval

if TYPE_CHECKING:
    from covey.importers.computed import Computed
    from covey.lowering import Lowered, Lowering
    from covey.training.builder import Builder

Shape = tuple[int, ...]


class DType(Enum):
    """What a value's numbers mean."""

    FLOAT = "float"
    INDEX = "index"
    BOOL = "bool"


@dataclass(frozen=True)
class Value:
    """A named tensor. `shape` is without the batch dimension when `batched`.

    While a model is imported, a value may stand for another one that the model has moved the batch of: the model has it
    `at` another place, or `merged` it with dimensions beside it, so many in all from the dimension `first` on.
    """

    name: str
    shape: Shape
    batched: bool = True
    dtype: DType = DType.FLOAT
    at: int = 0
    merged: int = 1
    first: int = 0

    @property
    def batch_first(self) -> bool:
        """Whether the batch is first and alone, as in every graph."""
        return self.at == 0 and self.merged == 1

    @property
    def place(self) -> int:
        """The dimension, among those the model has, that holds the batch."""
        return self.first if self.merged > 1 else self.at

    def dims(self, batch: int) -> list[int]:
        """All dimensions as the model has them, for so many samples."""
        if not self.batched:
            return list(self.shape)
        dims = [*self.shape[: self.at], batch, *self.shape[self.at :]]
        end = self.first + self.merged
        return [*dims[: self.first], int(math.prod(dims[self.first : end])), *dims[end:]]

    @property
    def rank(self) -> int:
        """Dimensions, the batch included."""
        return len(self.shape) + self.batched - (self.merged - 1)

    @property
    def size(self) -> int:
        """Elements of one sample."""
        return int(math.prod(self.shape))

    def __str__(self) -> str:
        dims = [str(d) for d in self.shape]
        if self.batched:
            dims.insert(self.at, "N")
        end = self.first + self.merged
        dims = [*dims[: self.first], "·".join(dims[self.first : end]), *dims[end:]] if dims else []
        return f"{self.name}[{', '.join(dims)}]"


class Op(ABC):
    """One operator with its attributes. Subclasses are frozen dataclasses, one file each in `covey.ops`."""

    widens: ClassVar[bool] = False
    """Whether the fixed-point result stands at the sum of the operands' scales."""

    free_scale: ClassVar[bool] = False
    """Whether the fixed-point result stays at the scale that `lower` gives it."""

    reads_wide: ClassVar[bool] = False
    """Whether operands may stand at a product's scale, which the operator's own shift brings down."""

    elementwise: ClassVar[bool] = False
    """Whether the operands broadcast."""

    gives_places: ClassVar[bool] = False
    """Whether the result says where elements of the operand stand, and holds none of them."""

    @abstractmethod
    def shape(self, *inputs: Value) -> Shape:
        """Shape of the result for one sample. Raises `ValueError` with the reason when the operands do not fit."""

    @abstractmethod
    def reference(self, *inputs: Array) -> Array:
        """The result in floating point; activations with the batch dimension first."""

    def interval(self, *inputs: Interval) -> Interval:
        """Where the result lies. This default is right for operators that decrease in none of their operands."""
        return Interval(self.reference(*(i.low for i in inputs)), self.reference(*(i.high for i in inputs)))

    @abstractmethod
    def lower(self, low: Lowering, node: Node) -> Lowered:
        """Emit the program nodes that compute the result on integers."""

    def in_run(self, run: int) -> Op:
        """The operator as it is in a run of a sequence, counted from 0: most are the same in each."""
        return self

    def stacked(self, build: Builder, *inputs: Value) -> Value:
        """The result for a minibatch, whose samples are a dimension in front of the operands' own.

        It is written with operators that have a gradient, which reuses what the result was computed by.
        """
        return build.emit(self, *(build.aligned(*inputs) if self.elementwise else inputs))

    def gradient(
        self, build: Builder, inputs: Sequence[Value], result: Value, gradient: Value
    ) -> Sequence[Value | None]:
        """The gradient at each operand of the stacked form, given that at the result; None where there is none."""
        raise build.unsupported(f"{self.label} has no gradient")

    def of_secrets(self, build: Builder, *inputs: Value) -> Value:
        """The result where weights may be activations, by products of secrets."""
        return build.emit(self, *inputs)

    def operand_scale(self, low: Lowering, node: Node) -> int:
        """Fractional bits of the operand that the graph calls `narrow`."""
        return low.scale

    @property
    def label(self) -> str:
        """The operator's name in listings."""
        return type(self).__name__


@dataclass
class Node:
    """One operation. `name` and `source_op` are the model's own; every node has one result."""

    name: str
    source_op: str
    op: Op
    inputs: list[str]
    output: str


class Status(Enum):
    """What became of a node of the model."""

    OK = "ok"
    REWRITTEN = "rewritten"
    UNSUPPORTED = "unsupported"
    UNCHECKED = "not checked"


@dataclass(frozen=True)
class Note:
    """What became of one node of the model, and how or why."""

    node: str
    op: str
    status: Status
    text: str = ""
    behind: str = ""
    """Of a node that was not checked: the node that stands in the way."""


class Postprocess(Enum):
    """What the result's owner does in the clear."""

    NOTHING = 0
    SOFTMAX = 1


@dataclass(frozen=True)
class Weight:
    """A parameter of a program whose numbers training makes: integers at a scale, at most `largest` in size."""

    parameter: str
    scale: int
    largest: float


@dataclass
class Graph:
    """A network: nodes in execution order, the values they connect, float parameters by name."""

    name: str
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    values: dict[str, Value] = field(default_factory=dict)
    parameters: dict[str, Array] = field(default_factory=dict, repr=False)
    nodes: list[Node] = field(default_factory=list)
    exported: list[str] = field(default_factory=list)
    """What an ONNX model itself calls the outputs, in the same order."""
    exchanged: set[str] = field(default_factory=set)
    """Those of them whose two scores stand in the other order than in the model itself."""
    compared: dict[str, int] = field(default_factory=dict)
    """The inputs that are only compared with constants, and the fractional bits that this needs at most."""
    enforced: set[str] = field(default_factory=set)
    """The inputs whose range the parties enforce."""
    classes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """The inputs of whole numbers, and how many classes their numbers have (see `covey.whole`)."""
    truths: set[str] = field(default_factory=set)
    """Those among them whose numbers have no classes and are 0 or 1."""
    examples_of_truths: set[str] = field(default_factory=set)
    """Inputs of whole numbers that are 0 and 1 alone in the model's own examples, if it has any."""
    narrow_inputs: set[str] = field(default_factory=set)
    """Inputs of whole numbers that the model takes as int32."""
    carried: dict[str, str] = field(default_factory=dict)
    """The inputs that a session carries from run to run, and the output that each is in the next run."""
    opened: dict[str, str] = field(default_factory=dict)
    """What opens to the data owner where it ends a sequence, by the carried input that it is kept beside."""
    reach: dict[str, float] = field(default_factory=dict)
    """Parameters that training makes: the largest absolute value that each may have. Their numbers are one example."""
    served: dict[str, list[Weight]] = field(default_factory=dict)
    """Values that become weights of another program where the data owner ends a sequence, and which they become."""
    spans: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Where the values lie over the calibration data whose range decides how a function of them is drawn."""
    finer: set[str] = field(default_factory=set)
    """The values of a training step that have more fractional bits than others: weights, and what moves them."""
    narrow: dict[str, str] = field(default_factory=dict)
    """Results of linear layers that may have fewer fractional bits than others, and the value whose node decides it."""
    postprocess: dict[str, Postprocess] = field(default_factory=dict)
    computed: Computed | None = field(default=None, repr=False, compare=False)
    """What a PyTorch program computes of tensors that are trained."""
    mirror: Graph | None = field(default=None, repr=False, compare=False)
    """The same network imported with other numbers in the tensors that are trained: 2 less these."""
    notes: dict[str, Note] = field(default_factory=dict)
    reserved: set[str] = field(default_factory=set)
    """Names that values to come shall have, and no others."""
    whole: dict[str, bool] = field(default_factory=dict, repr=False, compare=False)
    """Whether results of nodes are whole numbers, as far as an importer has asked (see `covey.ops.counting`)."""
    walked: list[Node] = field(default_factory=list, repr=False, compare=False)
    """The nodes of which it is known, from the first."""

    def fresh(self, hint: str) -> str:
        """A value name not in use, `hint` if possible."""
        name, count = hint, 1
        while name in self.values or name in self.reserved:
            count += 1
            name = f"{hint}.{count}"
        return name

    def add_value(self, value: Value) -> Value:
        """Register a value."""
        self.values[value.name] = value
        return value

    def add_parameter(self, hint: str, array: Array) -> Value:
        """Register a parameter under `hint`, or a name like it."""
        value = Value(self.fresh(hint), tuple(array.shape), batched=False)
        self.parameters[value.name] = np.asarray(array, dtype=np.float64, order="C")
        return self.add_value(value)

    def operands(self, node: Node) -> list[Value]:
        """The values a node reads."""
        return [self.values[name] for name in node.inputs]

    def holds_input(self, name: str) -> bool:
        """Whether a value holds whole numbers of an input, moved or as they are."""
        return self.input_behind(name) is not None

    def input_behind(self, name: str) -> str | None:
        """The input whose whole numbers a value holds, moved or as they are."""
        while self.values[name].dtype is DType.INDEX:
            if name in self.inputs:
                return name
            node = self.producer(name)
            if node is None or node.op.gives_places:
                return None
            name = node.inputs[0]
        return None

    def producer(self, name: str) -> Node | None:
        """The node that computes a value."""
        return next((node for node in self.nodes if node.output == name), None)

    def consumers(self, name: str) -> list[Node]:
        """The nodes that read a value."""
        return [node for node in self.nodes if name in node.inputs]

    def only_consumer(self, name: str) -> Node | None:
        """The one node that reads a value, if there is just one and the value is not kept besides."""
        readers = self.consumers(name)
        return readers[0] if len(readers) == 1 and not self.keeps(name) else None

    def keeps(self, name: str) -> bool:
        """Whether a value is wanted whoever reads it."""
        return name in self.outputs or name in self.opened.values() or name in self.served

    def redirect(self, old: str, new: str) -> None:
        """Let every reader of `old` read `new`, the graph's outputs included."""
        for node in self.nodes:
            node.inputs = [new if name == old else name for name in node.inputs]
        self.outputs = [new if name == old else name for name in self.outputs]
        self.carried = {name: new if output == old else output for name, output in self.carried.items()}
        if old in self.postprocess:
            self.postprocess[new] = self.postprocess.pop(old)

    def remove(self, nodes: Iterable[Node]) -> None:
        """Drop nodes."""
        gone = {id(node) for node in nodes}
        self.nodes = [node for node in self.nodes if id(node) not in gone]

    def note(self, node: Node, text: str) -> None:
        """Record that a node of the model was rewritten."""
        self.notes[node.name] = Note(node.name, node.source_op, Status.REWRITTEN, text)

    def note_more(self, node: Node, text: str) -> None:
        """Record a further rewriting of a node beside what is recorded of it."""
        before = self.notes.get(node.name)
        self.note(node, f"{before.text}; {text}" if before is not None and before.text else text)

    def __str__(self) -> str:
        lines = [f"{self.name}({', '.join(str(self.values[name]) for name in self.inputs)})"]
        for node in self.nodes:
            reads = ", ".join(str(value) for value in self.operands(node))
            lines.append(f"  {self.values[node.output]} = {node.op.label}({reads})  # {node.name}")
        lines.append(f"  return {', '.join(self.outputs)}")
        return "\n".join(lines)


def plain(name: str) -> str:
    """A name as a program may hold it: no control characters, at most a thousand bytes."""
    printable = "".join("_" if ord(c) < 32 or 127 <= ord(c) < 160 else c for c in name)
    return printable.encode()[:1000].decode(errors="ignore")


def broadcast(left: Value, right: Value) -> Shape:
    """The shape two operands broadcast to, for one sample. Raises `ValueError` if they do not."""
    if left.batched and right.batched and len(left.shape) != len(right.shape):
        raise ValueError(f"operands {left} and {right} differ in rank, so one's batch would meet the other's data")
    activation, other = (left, right) if left.batched else (right, left)
    if not other.batched and len(other.shape) > len(activation.shape):
        raise ValueError(f"the constant {other} has more dimensions than a sample of {activation}")
    try:
        return tuple(np.broadcast_shapes(left.shape, right.shape))
    except ValueError:
        raise ValueError(f"operands {left} and {right} do not broadcast") from None


def spatial(value: Value) -> tuple[Shape, int, int, int]:
    """What leads, channels, height and width of an image-shaped activation. Raises `ValueError` otherwise."""
    if not value.batched or len(value.shape) < 3:
        raise ValueError(f"needs an input of shape [N, C, H, W], got {value}")
    *lead, channels, height, width = value.shape
    return tuple(lead), channels, height, width


def types(values: Sequence[Value]) -> str:
    """The values as a listing shows them."""
    return ", ".join(str(value) for value in values)
