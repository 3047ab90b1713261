"""Masks that moves part from the Softmax which reads them: the moves come first.

So does attention pooling fill in minus infinity in a column of scores and take the Softmax of the transposed row.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from covey.ir import Graph, Node, Value
from covey.ops.gather import Gather, flat
from covey.ops.reshape import Reshape
from covey.ops.softmax import MASKING, Softmax
from covey.ops.transpose import Transpose
from covey.ops.where import Where


def put_masks_last(graph: Graph) -> None:
    """Let every choice between scores and a masking constant come behind the moves before a Softmax."""
    for node in list(graph.nodes):
        if isinstance(node.op, Softmax):
            _put_last(graph, node)


def _put_last(graph: Graph, softmax: Node) -> None:
    moves: list[Node] = []
    name = softmax.inputs[0]
    while graph.only_consumer(name) is not None and (node := graph.producer(name)) is not None and _moves(node):
        moves.append(node)
        name = node.inputs[0]
    choice = graph.producer(name)
    if not moves or choice is None or type(choice.op) is not Where or graph.only_consumer(name) is None:
        return
    shape, final = graph.values[name].shape, graph.values[moves[0].output].shape
    for index, other in ((1, 2), (2, 1)):
        constant, scores = graph.parameters.get(choice.inputs[index]), choice.inputs[other]
        if constant is None or (constant > MASKING).any() or graph.values[scores].shape != shape:
            continue
        condition = graph.values[choice.inputs[0]]
        positions = np.arange(condition.size, dtype=np.float64).reshape(condition.shape)
        places = np.broadcast_to(positions, (1, *shape))
        for move in reversed(moves):
            places = np.asarray(move.op.reference(places))
        taken, moved = (graph.fresh(f"{condition.name}.{hint}") for hint in ("taken", "moved"))
        graph.add_value(Value(taken, (places.size,), dtype=condition.dtype))
        graph.add_value(Value(moved, final, dtype=condition.dtype))
        graph.add_value(replace(graph.values[name], shape=final))
        fill = graph.add_parameter(f"{choice.inputs[index]}.fill", constant.max())
        moves[-1].inputs = [scores]
        choice.inputs[0], choice.inputs[index], choice.inputs[other] = moved, fill.name, moves[0].output
        softmax.inputs[0] = name
        graph.remove([choice])
        at = graph.nodes.index(softmax)
        graph.nodes[at:at] = [
            Node(choice.name, choice.source_op, flat(places.astype(np.int64)), [condition.name], taken),
            Node(choice.name, choice.source_op, Reshape(final), [taken], moved),
            choice,
        ]
        return


def _moves(node: Node) -> bool:
    return isinstance(node.op, Reshape | Transpose) or (isinstance(node.op, Gather) and not node.op.has_absent)
