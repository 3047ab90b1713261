"""PyTorch programs whose parts without gradients, under `torch.no_grad`, say so by `detach`, for training."""

from __future__ import annotations

import copy
from typing import Any


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
