"""What classifiers of the domain ai.onnx.ml make of their raw scores, and regressors of their results."""

from __future__ import annotations

import numpy as np

from covey.functions import SIGMOID
from covey.importers.onnx_node import OnnxNode
from covey.ir import Graph, Note, Value
from covey.ops.concat import Concat
from covey.ops.features import shown_labels
from covey.ops.gather import ABSENT, flat
from covey.ops.scalar import Scalar
from covey.ops.softmax import Softmax
from covey.ops.sub import Sub

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC")

LARGEST = "that of the largest score"
SMALLER = "that of the smaller of this node's two scores"
"""How labels follow from scores."""


def transform(node: OnnxNode) -> str:
    """The node's post-transformation. Refuses those that no program computes."""
    name = str(node.attribute("post_transform", "NONE"))
    if name not in TRANSFORMS:
        raise node.unsupported(
            f"its post-transformation is {name}", f"export the model with one of {', '.join(TRANSFORMS)}"
        )
    return name


def labels(node: OnnxNode, numbers: str = "classlabels_int64s", rule: str = LARGEST) -> tuple[int, str]:
    """How many classes there are, and what the output of scores is called.

    The label output is dropped, with a note that names the classes and the rule by which they follow from the scores.
    """
    if len(node.outputs) < 2 or not node.outputs[1]:
        raise node.unsupported("it gives labels alone", "export the model with its scores")
    whole, texts = node.attribute(numbers), node.attribute("classlabels_strings")
    node.drop_label()
    node.note(f"the label is left to the result's owner: {rule}, of the classes {shown_labels(whole, texts)} in order")
    return len(texts or whole or []), node.outputs[1]


def finish(node: OnnxNode, raw: Value, how: str, output: str) -> None:
    """Emit the scores named `output` from one raw score for each class. `raw` is the node's own if nothing is done."""
    if how == "SOFTMAX":
        node.emit(Softmax(), [raw], output=output)
    elif how == "LOGISTIC":
        node.emit(Scalar(SIGMOID), [raw], output=output)


def finish_two(node: OnnxNode, score: Value, how: str, output: str, *, share: bool = False) -> None:
    """Emit the scores of two classes from that of the second, which the first's mirrors.

    1 / (1 + exp(-z)) and what it leaves of 1 are the softmax of (0, z), which the result's owner computes. Without a
    post-transformation they are (1 - z, z) where z is a `share` of 1, else (-z, z).
    """
    if how != "NONE":
        if how == "SOFTMAX":
            raise node.unsupported("its SOFTMAX has one score for two classes", "export a score for each")
        pair = node.emit(flat(np.array([ABSENT, 0])), [score], output=f"{output}.pair")
        node.emit(Softmax(), [pair], output=output)
        return
    whole = node.parameter(np.array([1.0 if share else 0.0]), f"{output}.whole")
    other = node.emit(Sub(), [whole, score], output=f"{output}.first")
    node.emit(Concat(1), [other, score], output=output)


def exchange(graph: Graph, scores: str) -> None:
    """Put the two scores that `finish_two` made in the order of their classes, as the model's own output has them not.

    By onnxruntime's convention a support vector machine gives the decision for the first of two classes second.
    """
    last = graph.producer(scores)
    assert last is not None
    pair = graph.producer(last.inputs[0]) if isinstance(last.op, Softmax) else last
    assert pair is not None
    if isinstance(pair.op, Concat):
        pair.inputs.reverse()
    else:
        pair.op = flat(np.array([0, ABSENT]))
    note = graph.notes[last.name]
    text = f"{note.text.replace(SMALLER, LARGEST)}; runtimes give its two scores in the other order"
    graph.notes[last.name] = Note(note.node, note.op, note.status, text)
