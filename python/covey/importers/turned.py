"""Einsum of values whose batch the model has moved: its equation with the batch's label in front."""

from __future__ import annotations

from string import ascii_letters
from typing import TYPE_CHECKING

from covey.importers.doubts import value_of
from covey.importers.layouts import Layout
from covey.importers.onnx_node import BATCH
from covey.ir import Shape, Value

if TYPE_CHECKING:
    from covey.importers.moved import Frame


def einsum(frame: Frame) -> None:
    """Every activation has the batch at a place of its own, which one label stands for.

    What the batch is merged with, in all activations alike, has labels of its own.
    """
    node = frame.node
    equation = str(node.attribute("equation", "")).replace(" ", "")
    left, arrow, result = equation.partition("->")
    terms = left.split(",")
    if not arrow or "." in equation or len(terms) != len(node.inputs):
        raise frame.refused(f"its equation '{equation}' does not say where the batch is")
    parts = frame.x.merged - 1
    unused = [letter for letter in ascii_letters if letter not in equation]
    if parts > len(unused):
        raise frame.refused(f"its equation '{equation}' leaves no letters for what is merged")
    more = "".join(unused[:parts])
    inputs, batch = [], set()
    for index, (name, term) in enumerate(zip(node.inputs, terms, strict=True)):
        value = value_of(node.scope, name)
        if value is not None:
            if len(term) != value.rank or _merged(value) != _merged(frame.x):
                raise frame.refused(f"its term '{term}' names dimensions that are merged in another way")
            label = term[value.place]
            batch.add(label)
            terms[index] = f"{label}{term[: value.place]}{more}{term[value.place + 1 :]}"
        inputs.append(name if value is None else node.scope.moved.get(value.name, value.name))
    for index, name in enumerate(node.inputs):
        for label in batch & set(terms[index]) if name in node.scope.constants else ():
            terms[index], inputs[index] = _of_one_sample(frame, index, terms[index], label)
    if len(batch) != 1 or not batch <= set(result):
        raise frame.refused(f"its equation '{equation}' mixes the samples of a batch")
    (label,) = batch
    place = result.index(label)
    turned = f"{','.join(terms)}->{label}{result[:place]}{more}{result[place + 1 :]}"
    layout = Layout(place + frame.x.at - frame.x.first, parts + 1, place) if parts else Layout(place)
    frame.become(inputs, layout, equation=turned)


def _of_one_sample(frame: Frame, index: int, term: str, label: str) -> tuple[str, str]:
    """The term and name of a constant that repeats the same for each sample, for one of them."""
    array, axis = frame.node.constant(index, "operand"), term.index(label)
    first = array.take([0], axis)
    samples = array.shape[axis] in (1, BATCH, frame.node.scope.exported_batch)
    if frame.x.merged > 1 or term.count(label) > 1 or not samples or not (array == first).all():
        raise frame.refused(f"the constant of its term '{term}' differs between the samples")
    return term.replace(label, ""), frame.constant(first.squeeze(axis))


def _merged(value: Value) -> tuple[int, Shape]:
    """What the batch is merged with, and where it stands among that."""
    if value.merged == 1:
        return 0, ()
    return value.at - value.first, value.shape[value.first : value.first + value.merged - 1]
