"""Operators of PyTorch that no importer knows, written as others by PyTorch's own rules where these have importers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from covey.importers.torch_node import TORCH_IMPORTERS

ROUNDS = 4
"""A rule may give operators that take a rule themselves, so often."""

WRONG = ("aten.nll_loss.default", "aten.hinge_embedding_loss.default", "aten.margin_ranking_loss.default")
"""Operators whose rules in PyTorch read `reduction` as another argument: they take the mean of all samples, or fail."""

CHECKS = ("aten._assert", "aten.sym_constrain", "aten._assert_scalar", "aten._assert_tensor_metadata")
"""Nodes that check what the compiler checks itself, or what a module asserts of its data, and compute nothing."""

UNWRITTEN = tuple(f"aten.{name}." for name in ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty"))
"""Nodes whose result holds anything until it is written to."""

LIKE = tuple(
    f"aten.{name}."
    for name in (
        "zeros_like", "ones_like", "full_like", "empty_like", "new_zeros", "new_ones", "new_full", "new_empty", "fill",
    )
)  # fmt: skip
"""Nodes that read no more of their first operand than its type and, of one sample, its shape."""


@contextmanager
def without_wrong_rules(torch: Any) -> Iterator[None]:
    """Hides PyTorch's wrong rules, from which it also takes shapes."""
    rules = torch._decomp.decomposition_table
    hidden = {each: rules.pop(each) for each in list(rules) if str(each) in WRONG}
    try:
        yield
    finally:
        rules.update(hidden)


def reads_shape(target: str, rest_depends: bool) -> bool:
    """Whether a node reads only the type and shape of its first operand, and the `rest` depends on no input."""
    return target.startswith(LIKE) and not rest_depends


def checking(graph: Any) -> set[Any]:
    """The nodes of a program that check, and those whose results nothing but these reads."""
    found: set[Any] = set()
    for node in reversed(graph.nodes):
        checks = node.op == "call_function" and str(node.target).startswith(CHECKS)
        if checks or (node.op == "call_function" and node.users and all(user in found for user in node.users)):
            found.add(node)
    return found


def decomposed(torch: Any, program: Any) -> Any:
    """The program without the operators that have such rules; the others stay, to be refused by their own names."""
    unknown = _unknown(program)
    if not unknown:
        return program
    rules = {**torch.export.default_decompositions(), **torch._decomp.decomposition_table}
    ruled = sorted((each for each in unknown if each in rules), key=str)
    # A trace of the program for all at once, and where some rules lead nowhere, one for each.
    for kinds in [ruled, *([each] for each in ruled if len(ruled) > 1)]:
        found = _without(program, set(kinds), rules) if unknown.issuperset(kinds) else None
        if found is not None:
            program, unknown = found, unknown - set(kinds)
    return program


def _without(program: Any, kinds: set[Any], rules: Mapping[Any, Any]) -> Any:
    """The program with operators of these kinds written as others, if there are importers of all of these."""
    stay = _unknown(program) - kinds
    for _ in range(ROUNDS):
        left = _unknown(program) - stay
        if not left:
            return program
        if any(each not in rules for each in left):
            return None
        try:
            program = program.run_decompositions({each: rules[each] for each in left})
        except Exception:  # a rule that cannot be followed raises anything
            return None
    return None if _unknown(program) - stay else program


def _unknown(program: Any) -> set[Any]:
    """The operators without an importer that read what depends on the program's inputs."""
    inputs = set(program.graph_signature.user_inputs)
    depending: set[Any] = set()
    found, skipped = set(), checking(program.graph)
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name in inputs:
            depending.add(node)
        if node.op != "call_function" or node in skipped or not any(each in depending for each in node.all_input_nodes):
            continue
        target = str(node.target)
        rest_depends = any(each in depending for each in node.all_input_nodes[1:])
        if target.startswith("aten.sym_size") or reads_shape(target, rest_depends):
            continue
        depending.add(node)
        if hasattr(node.target, "_schema") and target not in TORCH_IMPORTERS:
            found.add(node.target)
    return found
