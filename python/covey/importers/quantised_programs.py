"""PyTorch programs that were quantised after their export (PT2E), as the floating-point programs that they stand for.

Quantisers leave an activation's numbers to integers and bring them back right behind: that is fake quantisation. Where
the steps are chosen by each run's data (dynamic quantisation), activations stay as they are. Integers of weights
are constants, which PyTorch itself brings back.
"""

from __future__ import annotations

import importlib
import operator
from contextlib import suppress
from typing import Any

_NAMESPACE = "quantized_decomposed"

_FAKE = {
    "per_tensor.default": "fake_quantize_per_tensor_affine.default",
    "per_tensor.tensor": "fake_quantize_per_tensor_affine.tensor_qparams",
    "per_channel.default": "fake_quantize_per_channel_affine.default",
}
"""What quantisation and its way back come to together; the rest of quantisation is dynamic."""

_TO, _BACK, _CHOSEN = (f"{_NAMESPACE}.{name}" for name in ("quantize_", "dequantize_", "choose_qparams"))


def register_operators() -> None:
    """Let PyTorch know the operators of such programs, which a file of one names. Packages for quantisation do so."""
    with suppress(ImportError):
        importlib.import_module("torch.ao.quantization.fx._decomposed")


def dequantised(torch: Any, program: Any) -> Any:
    """The program, changed in place: pairs of its nodes are fake quantisation. What has no partner stays."""
    graph, found = program.graph, False
    for node in list(graph.nodes):
        if not str(node.target).startswith(_BACK):
            continue
        before = node.args[0]
        form = str(node.target).removeprefix(_BACK)
        if str(getattr(before, "target", "")) != _TO + form or _steps(before) != _steps(node):
            continue
        x, steps, found = before.args[0], _steps(node), True
        if any(_is_chosen(step) for step in steps.values()):
            node.replace_all_uses_with(x)
        elif form in _FAKE:
            name, _, overload = _FAKE[form].partition(".")
            del steps["dtype"]
            with graph.inserting_before(node):
                fake = graph.call_function(getattr(getattr(torch.ops.aten, name), overload), (x, *steps.values()))
            fake.meta = dict(node.meta)
            node.replace_all_uses_with(fake)
    for node in reversed(list(graph.nodes)) if found else ():
        of_pair = str(node.target).startswith(_NAMESPACE) or node.target is operator.getitem
        if of_pair and not node.users:
            graph.erase_node(node)
    program.graph_module.recompile()
    return program


def is_dynamic(torch: Any, source: Any) -> bool:
    """Whether a module chooses steps by its data, so that a sample's results depend on the others."""
    graphs = [part.graph for part in source.modules() if isinstance(part, torch.fx.GraphModule)]
    return any(str(node.target).startswith(_CHOSEN) for graph in graphs for node in graph.nodes)


def _steps(node: Any) -> dict[str, Any]:
    """The arguments that say which integers stand for which numbers, in the schema's order."""
    names = [argument.name for argument in node.target._schema.arguments if argument.name != "out_dtype"]
    given = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
    return {name: given[name] for name in names[1:] if name in given}


def _is_chosen(step: Any) -> bool:
    """Whether a step is chosen by the data."""
    source = step.args[0] if getattr(step, "target", None) is operator.getitem else step
    return str(getattr(source, "target", "")).startswith(_CHOSEN)
