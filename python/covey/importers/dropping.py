"""PyTorch programs whose Dropout nodes drop, for training: whatever mode a program was exported in."""

from __future__ import annotations

from typing import Any

from covey.errors import UnsupportedError

OTHERS = ("feature_dropout", "alpha_dropout", "feature_alpha_dropout")
"""Operators that drop more than single elements."""


def check_modules(torch: Any, module: Any) -> None:
    """Refuse modules that drop inside of an operator: in evaluation mode nothing of it is left in a program."""
    for path, part in module.named_modules():
        if isinstance(part, torch.nn.MultiheadAttention | torch.nn.RNNBase) and part.dropout > 0:
            raise UnsupportedError(path, type(part).__name__, "it drops elements of its own", "set its dropout to 0")


def drop(torch: Any, program: Any) -> None:
    """Put an exported program's Dropout nodes into training mode. Raises `UnsupportedError` for other kinds."""
    for node in program.graph.nodes:
        kind = str(node.target).removeprefix("aten.").split(".")[0].rstrip("_")
        if kind in OTHERS:
            paths = [path for path, _ in (node.meta.get("nn_module_stack") or {}).values()]
            name = paths[-1] if paths else node.name
            raise UnsupportedError(name, f"aten.{kind}", "it drops more than single elements", "use Dropout instead")
        if kind == "dropout":
            names = (argument.name for argument in node.target._schema.arguments)
            x, rate, _ = {**dict(zip(names, node.args, strict=False)), **node.kwargs}.values()
            node.target, node.args, node.kwargs = torch.ops.aten.dropout.default, (x, rate, True), {}
    program.graph_module.recompile()
