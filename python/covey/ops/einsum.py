"""Einsum as products of matrices between moves: of one or two operands, and of more two at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from string import ascii_letters

import numpy as np

from covey.importers.onnx_node import IMPORTERS, OnnxNode, from_onnx
from covey.importers.torch_node import TorchNode, from_torch
from covey.ir import Value
from covey.ops.average_pool import SumPool
from covey.ops.gather import flat
from covey.ops.mul import Mul
from covey.ops.reduce import reduce
from covey.ops.reshape import Reshape
from covey.ops.transpose import Transpose

WRITE_OUT = "use MatMul, Mul, Reshape and Transpose, as the equation says"


@dataclass(frozen=True)
class _Operand:
    """An activation, or a constant without the batch, and its labels without that of the batch."""

    value: Value | None
    constant: str
    labels: str


@from_onnx("Einsum")
def _einsum(node: OnnxNode) -> None:
    """Of labels: those of both operands and the result are a stack, those of both alone are multiplied over."""
    terms, result = _equation(node)
    first = next((index for index in range(len(terms)) if not node.is_constant(index)), None)
    if first is None:
        raise node.unsupported("it has no operand that depends on the input", "repair the model")
    node.inputs, terms = _without_diagonals(node, terms)
    if len(terms) > 2:
        _in_pairs(node, terms, result, terms[first][:1])
        return
    batch = terms[first][:1]
    for index, term in enumerate([*terms, result]):
        known = index < len(terms) and node.is_constant(index)
        if len(set(term)) < len(term) or (batch in term if known else not term.startswith(batch)):
            raise node.unsupported("its equation mixes the samples of a batch, or does not put them first", WRITE_OUT)
    result = result[1:]
    operands = [_operand(node, index, term, batch) for index, term in enumerate(terms)]
    if not operands[0].value:
        operands.reverse()
    sizes = _sizes(node, operands)
    kept = set(result).union(*(operand.labels for operand in operands[1:]))
    x = _summed(node, operands[0], kept, "first")
    if len(operands) == 1:
        _ordered(node, x, result)
        return
    y = operands[1]
    if y.value is not None:
        y = _summed(node, y, set(result) | set(x.labels), "second")
    elif set(y.labels) - set(result) - set(x.labels):
        raise node.unsupported("it sums over a dimension of a constant alone", "sum the constant before")
    shared = [label for label in x.labels if label in y.labels]
    stack, inner = [label for label in shared if label in result], [label for label in shared if label not in result]
    rows = [label for label in x.labels if label not in shared]
    columns = [label for label in y.labels if label not in shared]
    extents = [prod(sizes[label] for label in group) for group in (stack, rows, inner, columns)]
    lead = (extents[0],) if stack else ()
    left = _matrix(node, x, [*stack, *rows, *inner], (*lead, extents[1], extents[2]), "left")
    right = _matrix(node, y, [*stack, *inner, *columns], (*lead, extents[2], extents[3]), "right")
    product = f"{node.outputs[0]}.product"
    if extents[1:] == [1, 1, 1]:
        array = node.scope.constants.get(right)
        other = node.parameter(node.finite(array, "operand", right), right) if array is not None else None
        made = node.emit(
            Mul(), [node.scope.graph.values[left], other or node.scope.graph.values[right]], output=product
        )
    else:
        name = node.scope.graph.fresh(product)
        IMPORTERS["MatMul"](OnnxNode(node.scope, node.name, node.op_type, [left, right], [name], {}))
        found = node.scope.activation(name)
        assert found is not None
        made = found
    shape = tuple(sizes[label] for label in (*stack, *rows, *columns))
    made = node.emit(Reshape(shape), [made], output=f"{node.outputs[0]}.shaped")
    _ordered(node, _Operand(made, "", "".join((*stack, *rows, *columns))), result)


def _without_diagonals(node: OnnxNode, terms: list[str]) -> tuple[list[str], list[str]]:
    """Operands and their labels, of which none stands twice: the elements at which both places are the same."""
    names, found = list(node.inputs), []
    for index, term in enumerate(terms):
        labels = "".join(dict.fromkeys(term))
        found.append(labels)
        if labels == term:
            continue
        names[index] = node.scope.graph.fresh(f"{node.outputs[0]}.diagonal{index}")
        if node.is_constant(index):
            node.scope.constants[names[index]] = np.einsum(f"{term}->{labels}", node.constant(index, "operand"))
            continue
        value = _operand(node, index, term, term[:1]).value
        if value is None or term[0] in term[1:]:
            raise node.unsupported("its equation mixes the samples of a batch", WRITE_OUT)
        places = np.einsum(f"{term[1:]}->{labels[1:]}", np.arange(value.size).reshape(value.shape))
        value = node.emit(flat(places), [value], output=f"{names[index]}_elements")
        names[index] = node.emit(Reshape(places.shape), [value], output=names[index]).name
    return names, found


def _in_pairs(node: OnnxNode, terms: list[str], result: str, batch: str) -> None:
    """The first two operands, with the labels that the rest has, in their place."""
    rest = set(result).union(*terms[2:])
    kept = "".join(label for label in dict.fromkeys(batch + terms[0] + terms[1]) if label in rest)
    pair, name = f"{terms[0]},{terms[1]}", node.scope.graph.fresh(f"{node.outputs[0]}.pair{len(terms)}")
    if node.is_constant(0) and node.is_constant(1):
        kept = kept.removeprefix(batch)
        operands = (node.constant(index, "operand") for index in range(2))
        node.scope.constants[name] = np.einsum(f"{pair}->{kept}", *operands)
    else:
        _einsum(_part(node, node.inputs[:2], name, f"{pair}->{kept}"))
    _einsum(_part(node, [name, *node.inputs[2:]], node.outputs[0], ",".join([kept, *terms[2:]]) + f"->{result}"))
    node.note("products of matrices")


def _part(node: OnnxNode, inputs: list[str], output: str, equation: str) -> OnnxNode:
    return OnnxNode(node.scope, node.name, node.op_type, inputs, [output], {"equation": equation})


def _equation(node: OnnxNode) -> tuple[list[str], str]:
    equation = str(node.attribute("equation", "")).replace(" ", "")
    left, arrow, result = equation.partition("->")
    terms = left.split(",")
    if not arrow:
        labels = "".join(terms).replace("...", "")
        result = "..." if "..." in left else ""
        result += "".join(sorted(label for label in set(labels) if labels.count(label) == 1))
    if "..." in left and len(terms) == len(node.inputs):
        terms, result = _labelled(node, terms, result)
    if len(terms) != len(node.inputs) or not set(result) <= set("".join(terms)):
        raise node.unsupported(f"its equation '{equation}' does not fit its operands", "repair the model")
    node.note("a product of matrices")
    return terms, result


def _labelled(node: OnnxNode, terms: list[str], result: str) -> tuple[list[str], str]:
    """The terms and the result with labels in the place of dots, which stand for dimensions aligned at their end."""
    ranks = []
    for index in range(len(terms)):
        known = node.is_constant(index)
        ranks.append(node.constant(index, "operand").ndim if known else node.activation(index, "operand").rank)
    counts = [rank - len(term.replace("...", "")) for rank, term in zip(ranks, terms, strict=True) if "..." in term]
    used = set("".join(terms))
    free = [letter for letter in ascii_letters if letter not in used][: max(counts)]
    if min(counts) < 0 or len(free) < max(counts):
        raise node.unsupported("its equation does not fit its operands", "repair the model")
    own = ["".join(free[len(free) - count :]) for count in counts]
    dots = iter(own)
    return [term.replace("...", next(dots)) if "..." in term else term for term in terms], result.replace(
        "...", "".join(free)
    )


def _operand(node: OnnxNode, index: int, term: str, batch: str) -> _Operand:
    if node.is_constant(index):
        if node.constant(index, "operand").ndim != len(term):
            raise node.unsupported(f"its operand {index} has other dimensions than '{term}'", "repair the model")
        return _Operand(None, node.inputs[index], term)
    value = node.activation(index, f"operand {index}")
    if value.rank != len(term):
        raise node.unsupported(f"its operand {value} has other dimensions than '{term}'", "repair the model")
    return _Operand(value, "", term[len(batch) :])


def _sizes(node: OnnxNode, operands: Sequence[_Operand]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for operand in operands:
        shape = operand.value.shape if operand.value else node.scope.constants[operand.constant].shape
        for label, size in zip(operand.labels, shape, strict=True):
            if sizes.setdefault(label, size) != size:
                raise node.unsupported(f"its label '{label}' has the sizes {sizes[label]} and {size}", WRITE_OUT)
    return sizes


def _summed(node: OnnxNode, operand: _Operand, kept: set[str], hint: str) -> _Operand:
    """An activation's sums over the labels that nothing else has."""
    assert operand.value is not None
    places = [place for place, label in enumerate(operand.labels, start=1) if label not in kept]
    if not places:
        return operand
    name = node.scope.graph.fresh(f"{node.outputs[0]}.{hint}")
    value = reduce(node, operand.value, places, SumPool, False, output=name)
    return _Operand(value, "", "".join(label for label in operand.labels if label in kept))


def _matrix(node: OnnxNode, operand: _Operand, labels: Sequence[str], shape: tuple[int, ...], hint: str) -> str:
    """The operand with its labels in this order, as matrices: the name of an activation or of a constant."""
    order = [operand.labels.index(label) for label in labels]
    name = f"{node.outputs[0]}.{hint}"
    if operand.value is None:
        array = node.scope.constants[operand.constant].transpose(order).reshape(shape)
        name = node.scope.graph.fresh(name)
        node.scope.constants[name] = np.ascontiguousarray(array)
        return name
    value = operand.value
    if order != sorted(order):
        value = node.emit(Transpose((0, *(place + 1 for place in order))), [value], output=f"{name}_turned")
    return node.emit(Reshape(shape), [value], output=name).name


def _ordered(node: OnnxNode, operand: _Operand, result: str) -> None:
    """The node's result."""
    assert operand.value is not None
    order = [operand.labels.index(label) for label in result]
    node.emit(Transpose((0, *(place + 1 for place in order))), [operand.value])


@from_torch("aten.einsum.default")
def _einsum_aten(node: TorchNode) -> None:
    node.ignore("path")
    node.become("Einsum", *node.argument("tensors"), equation=str(node.argument("equation")))
