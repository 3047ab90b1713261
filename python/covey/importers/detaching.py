"""What PyTorch's gradients leave out or change, for training: programs say so by `detach`, or are refused."""

from __future__ import annotations

import copy
from typing import Any

from covey.errors import ModelError


def detach_parts(torch: Any, program: Any) -> Any:
    """A program that detaches the results of such parts: bringing it to the core form leaves nothing else of them."""
    wrapped = getattr(torch.ops.higher_order, "wrap_with_set_grad_enabled", None)
    if not any(_bodies(program.graph_module, wrapped)):
        return program
    program = copy.deepcopy(program)
    for body in _bodies(program.graph_module, wrapped):
        (output,) = (node for node in body.graph.nodes if node.op == "output")
        for node in output.all_input_nodes:
            with body.graph.inserting_before(output):
                detached = body.graph.call_function(torch.ops.aten.detach.default, (node,))
            detached.meta = dict(node.meta)
            output.replace_input_with(node, detached)
        body.recompile()
    return program


def _bodies(module: Any, wrapped: Any) -> list[Any]:
    """The parts of a module for which gradients are turned off, those inside of other parts included."""
    found = []
    for node in module.graph.nodes:
        if node.op == "get_attr" and hasattr(part := getattr(module, node.target, None), "graph"):
            found += _bodies(part, wrapped)
        elif node.op == "call_function" and node.target is wrapped and node.args[0] is False:
            found.append(getattr(module, node.args[1].target))
    return found


def check_gradients(torch: Any, module: Any, examples: dict[str, Any], named: bool) -> None:
    """Refuse a module with functions that have a backward of their own: a program has what they compute forward."""
    with torch.enable_grad():
        outputs = module(**examples) if named else module(*examples.values())
    found = torch.utils._pytree.tree_leaves(outputs)
    left = [each.grad_fn for each in found if getattr(each, "grad_fn", None) is not None]
    seen = set(left)
    while left:
        node = left.pop()
        own = getattr(node, "_forward_cls", None)
        if own is not None and not own.__module__.startswith("torch."):
            raise ModelError(
                f"the module computes gradients of its own in '{own.__name__}', a torch.autograd.Function: write it by "
                f"PyTorch's operators and detach"
            )
        behind = {before for before, _ in node.next_functions if before is not None} - seen
        seen |= behind
        left += behind
