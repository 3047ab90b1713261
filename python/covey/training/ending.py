"""What a model ends in: a loss takes scores, and not the probabilities that many models make of them."""

from __future__ import annotations

from covey.errors import OptionError
from covey.functions import SIGMOID
from covey.ir import Graph, Node
from covey.ops.clip import Clip
from covey.ops.concat import Concat
from covey.ops.gather import Gather
from covey.ops.reshape import Reshape
from covey.ops.scalar import Scalar
from covey.ops.softmax import LogSoftmax, Softmax
from covey.ops.transpose import Transpose

BINARY, CLASSES = "binary-cross-entropy", "cross-entropy"


def scores_of(model: Graph, loss: str) -> Node | None:
    """The Sigmoid at a model's end that is left out, as binary-cross-entropy has one of its own; None where none is.

    Nothing else reads it: one output is all that a model has here. A Softmax over the last dimension is left out
    already. Raises `OptionError` where the loss would take probabilities for scores.
    """
    (name,) = model.outputs
    if name in model.postprocess:
        if loss != CLASSES:
            raise OptionError(f"the model ends in Softmax, which {loss} does not take: train it with cross-entropy")
        return None
    ends = _ends(model, name)
    for node in ends if loss in (BINARY, CLASSES) else ():
        moved = loss == CLASSES and isinstance(node.op, LogSoftmax) and node.output != name
        cut = loss == BINARY and isinstance(node.op, Clip) and _is_of_probabilities(node.op)
        if isinstance(node.op, Softmax) or moved or cut:
            _refuse(node, loss)
    sigmoids = [node for node in ends if node.op == Scalar(SIGMOID)]
    if loss != BINARY or not sigmoids:
        return None
    if len(ends) > 1:
        _refuse(sigmoids[0], loss)
    return sigmoids[0]


def _refuse(node: Node, loss: str) -> None:
    layout = ", classes in the last dimension" if loss == CLASSES else ""
    raise OptionError(
        f"the model ends in '{node.name}' ({node.source_op}), which {loss} cannot leave out: have it return the scores "
        f"before it{layout}"
    )


def _is_of_probabilities(op: Clip) -> bool:
    return op.low is not None and op.high is not None and op.low >= 0 and op.high <= 1


def _ends(model: Graph, name: str) -> list[Node]:
    """The nodes that compute a value's elements, whatever moves them."""
    node = model.producer(name)
    if node is None:
        return []
    if isinstance(node.op, Reshape | Transpose | Gather | Concat):
        found = [end for each in dict.fromkeys(node.inputs) for end in _ends(model, each)]
        return list({id(end): end for end in found}.values())
    return [node]
