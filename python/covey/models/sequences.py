"""The operations of networks of sequences [N, S, H], as exporters of today write them, built while they are evaluated.

Normalisation takes its statistics of each row, so weights alone decide what a network does: no batch is needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, helper, numpy_helper

from covey.functions import GELU, GELU_TANH
from covey.models.network import Construction, Value

Array = npt.NDArray[Any]

KINDS = {"f": TensorProto.FLOAT, "i": TensorProto.INT64}


@dataclass
class SequenceNetwork(Construction):
    """A network of sequences under construction."""

    VERSIONS: ClassVar[tuple[int, int]] = (9, 20)

    def given(self, name: str, batch: Array) -> Value:
        """An input [N, ..] of the kind of its batch: float32 or int64."""
        shape = ["batch", *batch.shape[1:]]
        self.proto.graph.input.append(helper.make_tensor_value_info(name, KINDS[batch.dtype.kind], shape))
        return Value(name, batch)

    def result(self, name: str, value: Value) -> None:
        """Give a value [N, ..] that no node reads the name of an output."""
        shape, kind = ["batch", *value.batch.shape[1:]], KINDS[value.batch.dtype.kind]
        node = next(node for node in reversed(self.proto.graph.node) if node.output[0] == value.name)
        node.output[0] = name
        self.proto.graph.output.append(helper.make_tensor_value_info(name, kind, shape))

    def parameter(self, name: str, values: Array) -> Value:
        """A weight, to be used as often as one likes."""
        return Value(self.tensor(name, values), values)

    def whole(self, name: str, values: Sequence[int] | Array) -> str:
        """Store constant whole numbers; returns their name."""
        self.proto.graph.initializer.append(numpy_helper.from_array(np.array(values, np.int64), name))
        return name

    def dense(self, name: str, x: Value, size: int, gain: float = 1.0) -> Value:
        """A fully connected layer of every row: [.., K] to [.., size]."""
        width = x.batch.shape[-1]
        weight = self.parameter(f"{name}.weight", self.normal((width, size), gain / math.sqrt(width)))
        return self.add(f"{name}.add", self.matmul(name, x, weight), self.parameter(f"{name}.bias", self.small(size)))

    def matmul(self, name: str, x: Value, y: Value) -> Value:
        """Products of matrices, of activations or weights."""
        return self.add_node("MatMul", name, [x.name, y.name], x.batch @ y.batch)

    def times(self, name: str, x: Value, factor: float) -> Value:
        """x times a constant."""
        constant = self.tensor(f"{name}.factor", np.array(factor, np.float32))
        return self.add_node("Mul", name, [x.name, constant], x.batch * np.float32(factor))

    def layer_norm(self, name: str, x: Value, epsilon: float) -> Value:
        """Every row with mean 0 and deviation 1, times a scale near 1, plus an offset near 0."""
        width = x.batch.shape[-1]
        scale, bias = 1 + self.small(width), self.small(width)
        centred = x.batch - x.batch.mean(axis=-1, keepdims=True)
        deviation = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + np.float32(epsilon))
        inputs = [x.name, self.tensor(f"{name}.weight", scale), self.tensor(f"{name}.bias", bias)]
        y = centred / deviation * scale + bias
        return self.add_node("LayerNormalization", name, inputs, y, axis=-1, epsilon=epsilon)

    def gelu(self, name: str, x: Value, tanh: bool = False) -> Value:
        """GELU by the error function, or its form by tanh."""
        function = GELU_TANH if tanh else GELU
        return self.add_node(
            "Gelu", name, [x.name], function(x.batch).astype(np.float32), approximate="tanh" if tanh else "none"
        )

    def softmax(self, name: str, x: Value) -> Value:
        """Over the last axis."""
        powers = np.exp(x.batch - x.batch.max(axis=-1, keepdims=True))
        return self.add_node("Softmax", name, [x.name], powers / powers.sum(axis=-1, keepdims=True), axis=-1)

    def embedding(self, name: str, table: Value, ids: Value) -> Value:
        """The rows of a table [K, H] at whole numbers."""
        return self.add_node("Gather", name, [table.name, ids.name], table.batch[ids.batch], axis=0)

    def at(self, name: str, x: Value, index: int) -> Value:
        """x [N, S, H] at one position: [N, H]."""
        inputs = [x.name, self.whole(f"{name}.index", np.array(index))]
        return self.add_node("Gather", name, inputs, x.batch[:, index], axis=1)

    def reshape(self, name: str, x: Value, sizes: Sequence[int]) -> Value:
        """To [N, *sizes], where 0 is the size there was."""
        kept = [size or x.batch.shape[axis] for axis, size in enumerate(sizes, 1)]
        inputs = [x.name, self.whole(f"{name}.shape", [0, *sizes])]
        return self.add_node("Reshape", name, inputs, x.batch.reshape(len(x.batch), *kept))

    def transpose(self, name: str, x: Value, order: Sequence[int]) -> Value:
        """Axes in another order."""
        return self.add_node("Transpose", name, [x.name], x.batch.transpose(order), perm=list(order))

    def split(self, name: str, x: Value, count: int) -> list[Value]:
        """Equal parts of the last axis."""
        parts = [Value(f"{name}_out{number}", part) for number, part in enumerate(np.split(x.batch, count, axis=-1))]
        names = [part.name for part in parts]
        node = helper.make_node("Split", [x.name], names, name=name, axis=-1, num_outputs=count)
        self.proto.graph.node.append(node)
        return parts

    def later(self, name: str, x: Value, axis: int) -> Value:
        """x without the first along an axis."""
        bounds = [self.whole(f"{name}.{what}", [number]) for what, number in (("from", 1), ("to", 1 << 31))]
        inputs = [x.name, *bounds, self.whole(f"{name}.axis", [axis])]
        return self.add_node("Slice", name, inputs, np.delete(x.batch, 0, axis))

    def for_each(self, name: str, row: Value, x: Value) -> Value:
        """A weight [1, K, H] for each sample of x."""
        count = f"{name}.count_out"
        self.proto.graph.node.append(helper.make_node("Shape", [x.name], [count], name=f"{name}.count", start=0, end=1))
        rest = self.whole(f"{name}.rest", row.batch.shape[1:])
        shape = helper.make_node("Concat", [count, rest], [f"{name}.shape_out"], name=f"{name}.shape", axis=0)
        self.proto.graph.node.append(shape)
        y = np.broadcast_to(row.batch, (len(x.batch), *row.batch.shape[1:]))
        return self.add_node("Expand", name, [row.name, f"{name}.shape_out"], y)

    def hidden(self, name: str, mask: Value, hides: float) -> Value:
        """What is added to scores [N, heads, M, S] for a mask [N, S] of 0 and 1: `hides` where it is 0."""
        numbers = self.add_node("Cast", f"{name}.float", [mask.name], mask.batch, to=TensorProto.FLOAT)
        axes = self.whole(f"{name}.axes", [1, 2])
        spread = self.add_node("Unsqueeze", f"{name}.spread", [numbers.name, axes], numbers.batch[:, None, None])
        one = self.tensor(f"{name}.one", np.array(1.0, np.float32))
        opposite = self.add_node("Sub", f"{name}.opposite", [one, spread.name], 1 - spread.batch)
        return self.times(name, opposite, hides)

    def largest_of(self, name: str, x: Value) -> Value:
        """The place of the largest in each row."""
        place = self.add_node("ArgMax", name, [x.name], x.batch.argmax(axis=-1), axis=-1, keepdims=0)
        return Value(place.name, x.batch.argmax(axis=-1))
