"""Einsum of values whose batch the model has moved: its equation with the batch's label in front."""

from __future__ import annotations

from typing import TYPE_CHECKING

from covey.importers.doubts import value_of
from covey.importers.layouts import Layout

if TYPE_CHECKING:
    from covey.importers.moved import Frame


def einsum(frame: Frame) -> None:
    """Every activation has the batch at a place of its own, which one label stands for."""
    node = frame.node
    equation = str(node.attribute("equation", "")).replace(" ", "")
    left, arrow, result = equation.partition("->")
    terms = left.split(",")
    if not arrow or "." in equation or len(terms) != len(node.inputs):
        raise frame.refused(f"its equation '{equation}' does not say where the batch is")
    inputs, batch = [], set()
    for index, (name, term) in enumerate(zip(node.inputs, terms, strict=True)):
        value = value_of(node.scope, name)
        if value is not None and (value.merged > 1 or len(term) != value.rank):
            raise frame.refused(f"its term '{term}' names merged dimensions")
        if value is not None:
            label = term[value.place]
            batch.add(label)
            terms[index] = label + term[: value.place] + term[value.place + 1 :]
        inputs.append(name if value is None else node.scope.moved.get(value.name, value.name))
    if len(batch) != 1 or not batch <= set(result):
        raise frame.refused(f"its equation '{equation}' mixes the samples of a batch")
    (label,) = batch
    place = result.index(label)
    turned = f"{','.join(terms)}->{label}{result[:place]}{result[place + 1 :]}"
    frame.become(inputs, Layout(place), equation=turned)
