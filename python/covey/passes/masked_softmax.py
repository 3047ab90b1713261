"""Finds masks: constants that make numbers so small before a Softmax that nothing is left of them.

A model writes a mask as the addition of minus infinity, of the least float32 or of -10,000, as the subtraction of such
a number's opposite, or as a Where by constants. The Softmax then leaves such elements out, so that no sum has to hold
numbers of this size. Where the mask is an input, the product of such a constant and of the mask, or of its opposite,
is added or subtracted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from covey import reference
from covey.errors import NodeError, ParameterError, UnsupportedError
from covey.importers.onnx_node import LEAST
from covey.interval import Array
from covey.ir import DType, Graph, Node, Op, Value
from covey.ops.add import Add
from covey.ops.affine import Affine
from covey.ops.comparison import Not
from covey.ops.concat import Concat
from covey.ops.gather import Gather, flat
from covey.ops.mul import Mul
from covey.ops.number import Number
from covey.ops.reshape import Reshape
from covey.ops.softmax import MASKING, Mask, Softmax
from covey.ops.sub import Sub
from covey.ops.transpose import Transpose
from covey.ops.where import Where
from covey.ops.whole_numbers import Encode
from covey.passes.dead_nodes import remove_dead_nodes

ABSORBING = -1e9
"""Of a float32 that is added to that or less, nothing is left."""

_MOVES = Encode | Gather | Number | Reshape | Transpose


def find_masks(graph: Graph) -> list[NodeError]:
    """Give every Softmax its mask; the errors of masks that leave nothing of a row, and of other infinite numbers."""
    errors: list[NodeError] = []
    _add_subtracted(graph)
    for node in list(graph.nodes):
        if isinstance(node.op, Softmax):
            _find_public(graph, node)
            if _find_secret(graph, node):
                _find_public(graph, node)
            if len(node.inputs) > 1:
                _part(graph, node)
            try:
                node.op.shape(*graph.operands(node))
            except ValueError as error:
                errors.append(UnsupportedError(node.name, node.source_op, str(error), "repair its mask"))
    for node in graph.nodes:
        constants = [graph.parameters[name] for name in node.inputs if name in graph.parameters]
        if isinstance(node.op, Add) and any((constant <= LEAST).any() for constant in constants):
            reason = "it fills in or adds minus infinity where no Softmax over the last axis reads the result next"
            errors.append(ParameterError(node.name, node.source_op, reason, "use a finite number such as -1e4"))
    return errors


def settle_empty_rows(graph: Graph, samples: Mapping[str, Array]) -> None:
    """Note at every Softmax how many rows of samples [N, ..] its masks leave nothing of; without one, drop `even`."""
    for node in graph.nodes:
        if not isinstance(node.op, Softmax) or len(node.inputs) < 2:
            continue
        part = replace(graph, outputs=[node.inputs[1]], notes={})
        remove_dead_nodes(part)
        empty = total = 0
        for some in reference.parts(part, samples):
            counted = reference.run(part, some)[node.inputs[1]] > 0.5
            if node.op.mask is not None:
                counted = counted & ~node.op.mask
            rows = np.broadcast_to(counted, (len(counted), *graph.values[node.inputs[0]].shape)).any(axis=-1)
            empty, total = empty + int((~rows).sum()), total + rows.size
        if empty:
            how = "their scores count unmasked" if node.op.even is None else "all elements weigh the same there"
            graph.note_more(node, f"masks {empty} of {total} rows of the calibration data throughout: {how}")
        else:
            node.op = replace(node.op, even=None)


def _add_subtracted(graph: Graph) -> None:
    """Add the opposite of what is subtracted where it may be a public mask."""
    for node in graph.nodes:
        constant = graph.parameters.get(node.inputs[1]) if isinstance(node.op, Sub) else None
        if constant is not None and (constant >= -MASKING).any():
            node.op, node.inputs = (
                Add(),
                [node.inputs[0], graph.add_parameter(f"{node.inputs[1]}.negated", -constant).name],
            )


def _find_public(graph: Graph, softmax: Node) -> None:
    """Let a Softmax leave out itself what constants before it do."""
    while (mask := _taken(graph, softmax)) is not None:
        assert isinstance(softmax.op, Softmax)
        even = None if softmax.op.even is None else softmax.op.even & ~mask
        softmax.op = replace(_without(softmax.op, mask), even=even)
        graph.note_more(softmax, "leaves out the elements that a constant masks")


def _without(op: Softmax, mask: Mask) -> Softmax:
    return replace(op, mask=mask if op.mask is None else op.mask | mask)


def _weigh_evenly(softmax: Node) -> None:
    """Let all elements that no constant masks weigh the same in rows of which a secret mask leaves nothing."""
    assert isinstance(softmax.op, Softmax)
    even = np.ones((1,), dtype=np.bool_) if softmax.op.mask is None else ~softmax.op.mask
    softmax.op = replace(softmax.op, even=even)


def _taken(graph: Graph, softmax: Node) -> Mask | None:
    """The mask among the sums of constants before a Softmax, which is then taken out of them."""
    name = softmax.inputs[0]
    while (node := graph.producer(name)) is not None and isinstance(node.op, Add):
        constants = [index for index, each in enumerate(node.inputs) if each in graph.parameters]
        if len(constants) != 1 or graph.only_consumer(name) is None:
            return None
        (index,) = constants
        constant = graph.parameters[node.inputs[index]]
        mask = constant <= MASKING
        source = node.inputs[1 - index]
        if mask.any() and _reaches(graph, source):
            return None
        if mask.any():
            rest = np.where(mask, 0.0, constant)
            if rest.any() or graph.values[source].shape != graph.values[name].shape:
                node.inputs[index] = graph.add_parameter(f"{node.inputs[index]}.unmasked", rest).name
            else:
                for reader in graph.consumers(name):
                    reader.inputs = [source if each == name else each for each in reader.inputs]
                graph.remove([node])
                graph.note(node, f"a mask of {softmax.name}")
            return mask
        name = source
    return None


def _reaches(graph: Graph, name: str) -> bool:
    """Whether a constant makes a value so large that a mask does not leave its element out for certain.

    What is added to the value itself may be a mask as well, which makes it no larger.
    """
    node, added = graph.producer(name), True
    while node is not None and isinstance(node.op, Add | Affine | Gather | Mul | Reshape | Sub | Transpose):
        added = added and isinstance(node.op, Add) and graph.only_consumer(node.output) is not None
        constants = [graph.parameters[each] for each in node.inputs if each in graph.parameters]
        factor = abs(node.op.factor) if isinstance(node.op, Affine) else 0.0
        largest = (constant.max() if added else np.abs(constant).max() for constant in constants)
        if factor >= -MASKING or any(each >= -MASKING for each in largest):
            return True
        operands = [each for each in node.inputs if each not in graph.parameters]
        node = graph.producer(operands[0]) if len(operands) == 1 else None
    return False


def _find_secret(graph: Graph, softmax: Node) -> bool:
    """Let a Softmax read a secret mask itself, in the place of a sum with what it was made to, or of a choice."""
    total = graph.producer(softmax.inputs[0])
    if total is None or len(softmax.inputs) > 1:
        return False
    if isinstance(total.op, Where):
        return _find_choice(graph, softmax, total)
    if not isinstance(total.op, Add | Sub):
        return False
    subtracted = isinstance(total.op, Sub)
    for index, name in enumerate(total.inputs):
        scores = total.inputs[1 - index]
        if subtracted and index == 0:
            continue
        if name in graph.parameters or scores in graph.parameters or graph.only_consumer(total.output) is not softmax:
            continue
        if graph.values[scores].shape != graph.values[total.output].shape:
            continue
        sign = -1.0 if subtracted else 1.0
        found = _choice(graph, softmax, name, sign) or _sum(graph, name, sign)
        if found is not None:
            bias, kept, fill = found
            if fill <= ABSORBING:
                _weigh_evenly(softmax)
            if bias is not None:
                total.inputs = [scores, bias]
                softmax.inputs = [total.output, kept]
            else:
                softmax.inputs = [scores, kept]
                graph.remove([total])
            _prune(graph, name)
            graph.note(total, f"a mask of {softmax.name}")
            graph.note_more(softmax, "leaves out the elements that an input masks")
            return True
    return False


def _sum(graph: Graph, name: str, sign: float) -> tuple[str | None, str, float] | None:
    """Of a mask, perhaps with a constant added that differs between scores: that constant, and as `_kept`."""
    mask, bias = _bias(graph, name) or (name, None)
    kept = _kept(graph, mask, sign)
    return None if kept is None else (bias, *kept)


def _bias(graph: Graph, name: str) -> tuple[str, str] | None:
    """Of a mask to which a constant is added that differs between scores, such as of positions: both by name."""
    node = graph.producer(name)
    if node is None or not isinstance(node.op, Add):
        return None
    constants = [each for each in node.inputs if each in graph.parameters]
    if len(constants) != 1 or (graph.parameters[constants[0]] == graph.parameters[constants[0]].flat[0]).all():
        return None
    return next(each for each in node.inputs if each not in graph.parameters), constants[0]


def _find_choice(graph: Graph, softmax: Node, choice: Node) -> bool:
    """The same where a secret truth value chooses between scores and a masking constant."""
    found = _choice(graph, softmax, choice.output)
    if found is None or graph.only_consumer(choice.output) is not softmax:
        return False
    if graph.values[found[0]].shape != graph.values[choice.output].shape:
        return False
    softmax.inputs = list(found[:2])
    _weigh_evenly(softmax)
    graph.remove([choice])
    graph.note(choice, f"a mask of {softmax.name}")
    graph.note_more(softmax, "leaves out the elements that an input masks")
    return True


def _choice(graph: Graph, softmax: Node, name: str, sign: float = 1.0) -> tuple[str, str, float] | None:
    """Of a choice between numbers and what is, times `sign`, a masking constant: the numbers, where they count, it."""
    node = graph.producer(name)
    if node is None or not isinstance(node.op, Where):
        return None
    condition, *choices = node.inputs
    for index, each in enumerate(choices):
        constant = graph.parameters.get(each)
        if constant is not None and (sign * constant <= MASKING).all():
            kept = _computed(graph, softmax, Not(), condition) if index == 0 else condition
            return choices[1 - index], kept, float((sign * constant).max())
    return None


def _part(graph: Graph, softmax: Node) -> None:
    """Part what is public of a secret mask from it: zeros that moves put in, as those of causality.

    Where rows then differ in nothing else, the mask is that of one row, as padding is.
    """
    root, moves = softmax.inputs[1], list[Node]()
    while (node := graph.producer(root)) is not None and isinstance(node.op, Reshape | Transpose | Gather):
        moves.append(node)
        root = node.inputs[0]
    places = np.arange(1.0, graph.values[root].size + 1).reshape(1, *graph.values[root].shape)
    for node in reversed(moves):
        places = np.asarray(node.op.reference(places))
    _restrict(graph, root)
    shape, out = places.shape[1:], places[0] == 0
    if out.any():
        assert isinstance(softmax.op, Softmax)
        softmax.op = _without(softmax.op, out)
        graph.note_more(softmax, "leaves out the elements that a constant masks")
    rows = places.reshape(-1, shape[-1])
    of_all = rows.max(axis=0)
    if len(rows) > 1 and of_all.all() and ((rows == 0) | (rows == of_all)).all():
        taken = _computed(graph, softmax, flat(of_all.astype(np.int64) - 1), root)
        softmax.inputs[1] = _computed(graph, softmax, Reshape((*(1,) * (len(shape) - 1), len(of_all))), taken)


def _restrict(graph: Graph, mask: str) -> None:
    """Let an input that is a mask hold nothing but 0 and 1."""
    for name in _roots(graph, mask):
        if name in graph.inputs and graph.values[name].dtype is DType.FLOAT:
            graph.classes[name] = (0,)
        if graph.classes.get(name) == (0,):
            graph.truths.add(name)


def _roots(graph: Graph, name: str) -> set[str]:
    """The values whose elements, opposites and products moves and changes of type bring here."""
    roots, left, seen = set[str](), [name], set[str]()
    while left:
        if (name := left.pop()) in seen:
            continue
        seen.add(name)
        node = graph.producer(name)
        if node is None or not (isinstance(node.op, _MOVES | Concat | Mul) or _is_opposite(graph, node)):
            roots.add(name)
        else:
            left.extend(node.inputs)
    return roots


def _is_opposite(graph: Graph, node: Node) -> bool:
    """Whether a node computes 1 - x."""
    ones = isinstance(node.op, Sub) and node.inputs[0] in graph.parameters
    return node.op == Affine(-1.0, 1.0) or (ones and bool((graph.parameters[node.inputs[0]] == 1.0).all()))


def _computed(graph: Graph, reader: Node, op: Op, source: str) -> str:
    """The value of an operator on `source`, computed before its reader if no other node computes it before."""
    for node in graph.nodes[: graph.nodes.index(reader)]:
        if node.op == op and node.inputs == [source]:
            return node.output
    name = graph.fresh(f"{source}.counted")
    graph.add_value(Value(name, op.shape(graph.values[source]), dtype=graph.values[source].dtype))
    graph.nodes.insert(graph.nodes.index(reader), Node(reader.name, reader.source_op, op, [source], name))
    return name


def _prune(graph: Graph, name: str) -> None:
    """Remove what computes a value that nothing reads any more."""
    node = graph.producer(name)
    if node is not None and name not in graph.outputs and not graph.consumers(name):
        graph.remove([node])
        for each in node.inputs:
            _prune(graph, each)


def _kept(graph: Graph, name: str, sign: float) -> tuple[str, float] | None:
    """Of values that are, times `sign`, 0 or a masking number: 1 where they are 0, 0 where that number; and it."""
    moves: list[Node] = []
    node = graph.producer(name)
    while node is not None and isinstance(node.op, Reshape | Transpose | Gather):
        moves.append(node)
        node = graph.producer(node.inputs[0])
    steps: list[Node] = []
    kept: tuple[list[Node], str, tuple[float, float]] | None = None
    # The farthest numbers that are 0 and 1 are the mask as it came.
    while node is not None and isinstance(node.op, Add | Affine | Mul | Sub):
        operands = [each for each in node.inputs if each not in graph.parameters]
        constants = [graph.parameters[each] for each in node.inputs if each in graph.parameters]
        if len(operands) != 1 or any(not (constant == constant.flat[0]).all() for constant in constants):
            break
        steps.append(node)
        # What moves after the steps fits values of their shape alone.
        fits = not moves or graph.values[operands[0]].shape == graph.values[steps[0].output].shape
        found = _ends(graph, steps, operands[0], sign) if fits and _is_truth(graph, operands[0]) else None
        if found is not None:
            kept = (list(steps), operands[0], found)
        node = graph.producer(operands[0])
    if kept is None:
        return None
    steps, root, (low, high) = kept
    return _moved(graph, steps, moves, root, opposite=high < low), min(low, high)


def _is_truth(graph: Graph, name: str) -> bool:
    """Whether a value holds nothing but 0 and 1, or comes from inputs, which are then given no others."""
    roots = _roots(graph, name)
    constants = [graph.parameters[root] for root in roots if root in graph.parameters]
    return all(np.isin(constant, (0, 1)).all() for constant in constants) and all(
        root in graph.inputs or graph.values[root].dtype is not DType.FLOAT for root in roots - graph.parameters.keys()
    )


def _ends(graph: Graph, steps: list[Node], root: str, sign: float) -> tuple[float, float] | None:
    """What the steps make of 0 and of 1, times `sign`, if that is one number that masks and one that is nothing."""
    values = {root: np.array([0.0, 1.0])}
    for node in reversed(steps):
        operands = (
            np.asarray(graph.parameters[each].flat[0]) if each in graph.parameters else values[each]
            for each in node.inputs
        )
        values[node.output] = np.asarray(node.op.reference(*operands))
    low, high = (float(end) for end in sign * values[steps[0].output])
    far = min(low, high)
    return (low, high) if far <= MASKING and abs(max(low, high)) <= -far * 1e-6 else None


def _moved(graph: Graph, steps: list[Node], moves: list[Node], root: str, *, opposite: bool) -> str:
    """The mask where the values were: moved as they were, and turned over if they were masked where it is 1."""
    last = moves[0].output if moves else steps[0].output
    known = f"{last}.kept"
    if known in graph.values:
        return known
    chain: list[tuple[Op, str]] = [(move.op, move.output) for move in reversed(moves)]
    if opposite:
        chain.insert(0, (Affine(-1.0, 1.0), root))
    if not chain:
        return root
    name = root
    at = graph.nodes.index(moves[0] if moves else steps[0])
    for place, (op, like) in enumerate(chain):
        output = known if place + 1 == len(chain) else graph.fresh(f"{like}.mask")
        graph.add_value(Value(output, graph.values[like].shape))
        graph.nodes.insert(at + place, Node(steps[0].name, steps[0].source_op, op, [name], output))
        name = output
    return name
