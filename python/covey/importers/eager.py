"""Whether a PyTorch module computes what its exported program does, and for any number of samples.

An export follows one way through the module: that of the examples' batch size, and of tensors that carry gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from covey.errors import ModelError

SAMPLES = 4
"""Samples that the module and a program for any number of them compute."""

TOLERANCE = 1e-3
"""The largest relative L2 error between two ways to compute the same result."""

COARSE = 5e-2
"""The same in formats of 16 bits."""


def check_module(torch: Any, module: Any, program: Any, examples: Mapping[str, Any], named: bool) -> None:
    """Refuse a module whose results are not those of its exported program, or depend on the number of samples.

    Both run on a few samples, or as many as the program is fixed to. Where one of them cannot, nothing is compared.
    Raises `ModelError`.
    """
    fixed, name = _fixed_batch(program), type(module).__name__

    def run(what: Any, rows: Mapping[str, Any]) -> list[Any] | None:
        own = {key: tensor.clone() for key, tensor in rows.items()}  # a module may change its inputs
        return _tensors(torch, lambda: what(**own) if named else what(*own.values()))

    twice = {
        key: torch.cat([tensor, tensor]) if len(tensor) == 1 else tensor[:SAMPLES] for key, tensor in examples.items()
    }
    rows = twice if fixed is None else {key: tensor[:fixed] for key, tensor in examples.items()}
    count = min(len(tensor) for tensor in rows.values())
    # Parts that torch.compile was given would build kernels for each of these runs.
    eagerly = torch.compiler.set_stance("force_eager")
    with torch.no_grad(), torch.random.fork_rng(devices=[]), eagerly:
        due = run(module, rows)
        if due is None:
            return
        if _differ(torch, due, run(program.module(), rows)):
            if _differ(torch, due, run(module, rows)):
                raise ModelError(f"{name} has other results each time that it runs: let it draw no random numbers")
            raise ModelError(
                f"the program that torch.export makes of {name} has other results: {_way_out(torch, module)}"
            )
        other = 2 if count == 1 else 1
        others = {key: tensor[:other] for key, tensor in (twice if count == 1 else rows).items()}
        found = run(module, others)
        repeated = run(module, {key: torch.cat([tensor, tensor]) for key, tensor in rows.items()})
    if not all(len(tensor) == count for tensor in due):
        return
    # One sample alone; and all of them behind themselves, which shows what is written to the first of them.
    for many, ours, theirs in (
        (other, [tensor[:1] for tensor in due], found and [tensor[:1] for tensor in found]),
        (2 * count, [torch.cat([tensor, tensor]) for tensor in due], repeated),
    ):
        if _differ(torch, ours, theirs):
            raise ModelError(
                f"{name} has other results for a sample in a batch of {count} than in one of {many}: let no "
                f"result depend on the number of samples"
            )


def _way_out(torch: Any, module: Any) -> str:
    encoders = [part for part in module.modules() if isinstance(part, torch.nn.TransformerEncoder)]
    if any(encoder.enable_nested_tensor for encoder in encoders):
        return (
            "make nn.TransformerEncoder with enable_nested_tensor=False, which gives padded positions as a program does"
        )
    return "let them depend on tensors alone, or export it to ONNX"


def _fixed_batch(program: Any) -> int | None:
    """The batch size that a program is fixed to, if it is."""
    fakes = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    sizes = [fakes[name].shape[0] for name in program.graph_signature.user_inputs if hasattr(fakes.get(name), "shape")]
    return sizes[0] if sizes and isinstance(sizes[0], int) else None


def _tensors(torch: Any, run: Callable[[], Any]) -> list[Any] | None:
    """The tensors of a result; None where the run fails or one has no batch."""
    try:
        leaves, _ = torch.utils._pytree.tree_flatten(run())
    except Exception:  # a batch of another size that the module does not take, a device that is not there
        return None
    tensors = [leaf.detach() for leaf in leaves if isinstance(leaf, torch.Tensor)]
    return None if not tensors or any(tensor.dim() == 0 for tensor in tensors) else tensors


def _differ(torch: Any, due: Sequence[Any], found: Sequence[Any] | None) -> bool:
    return found is not None and (
        [tensor.shape for tensor in due] != [tensor.shape for tensor in found]
        or any(_differs(torch, a, b) for a, b in zip(due, found, strict=True))
    )


def _differs(torch: Any, due: Any, found: Any) -> bool:
    """Whether two results are more than rounding apart; where one is not finite, there is nothing to compare."""
    coarse = due.dtype in (torch.float16, torch.bfloat16)
    due, found = due.double(), found.double()
    finite = torch.isfinite(due) & torch.isfinite(found)
    due, found = due[finite], found[finite]
    return bool((due - found).norm() > (COARSE if coarse else TOLERANCE) * due.norm())
