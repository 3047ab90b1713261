"""Modules that PyTorch cannot export, or not to anything useful: one line that says why, and the way out."""

from __future__ import annotations

import os
import sysconfig
import traceback
from collections.abc import Iterator
from typing import Any

from covey.errors import ModelError, UnsupportedError

_DEPENDS = ("data-dependent", "GuardOnDataDependent", "Dynamic control flow is not supported")
"""What PyTorch says where an `if` or a size depends on data."""


_UNQUANTISED = "compile the model as it was before prepare() and convert(): Covey chooses fixed-point numbers itself"

_OBSERVING = ("torch.ao.quantization.observer", "torch.ao.quantization.fake_quantize")
"""Where PyTorch has what watches the numbers of a model that is to be quantised."""

EXPERTS_APART = "batched_mm"
"""How `transformers` computes each token's experts by itself. Otherwise it sorts the tokens of all samples by them."""


def has_experts(part: Any) -> bool:
    """Whether a module of `transformers` has experts, and lets them be computed in several ways.

    The class of a model says whether any of its models can have some.
    """
    settable = getattr(type(part), "_can_set_experts_implementation", None)
    return settable is not None and bool(settable()) and any(hasattr(each, "_apply_gate") for each in part.modules())


def check_module(torch: Any, module: Any) -> None:
    """Refuse a module that is no code, has no weights, or computes in a way that is not supported."""
    if isinstance(module, torch.jit.ScriptModule):
        raise ModelError(
            f"{type(module).__name__} is a module of torch.jit: give the module that it was made from, or export it to "
            f"ONNX"
        )
    tensors = [*module.named_parameters(), *module.named_buffers()]
    empty = next((name for name, tensor in tensors if tensor.device.type == "meta"), None)
    if empty is not None:
        raise ModelError(f"'{empty}' is on the device meta, its weights are not loaded: load them on the CPU first")
    for path, part in module.named_modules():
        if isinstance(part, torch.nn.MultiheadAttention) and (part.bias_k is not None or part.add_zero_attn):
            option = "add_bias_kv" if part.bias_k is not None else "add_zero_attn"
            reason = f"its option {option} gives all samples a further key, which is not supported"
            raise UnsupportedError(path or "the model", type(part).__name__, reason, f"build it with {option}=False")
        if isinstance(part, torch.nn.Embedding | torch.nn.EmbeddingBag) and part.max_norm is not None:
            reason = "its option max_norm changes its weight as it runs"
            way_out = "renormalise the table once, and set max_norm to None"
            raise UnsupportedError(path or "the model", type(part).__name__, reason, way_out)
        if any(isinstance(each, torch.ScriptObject) and _is_quantised(each) for each in vars(part).values()):
            reason = "its weights are integers, packed for PyTorch's own kernels"
            raise UnsupportedError(path or "the model", type(part).__name__, reason, _UNQUANTISED)
        if any(kind.__module__.startswith(_OBSERVING) for kind in type(part).__mro__):
            reason = "it adapts the steps of a quantisation to each batch"
            raise UnsupportedError(path or "the model", type(part).__name__, reason, _UNQUANTISED)
        if has_experts(part) and part.config._experts_implementation != EXPERTS_APART:
            reason = "its experts sort the tokens of all samples together"
            way_out = f"call set_experts_implementation('{EXPERTS_APART}') on it first"
            raise UnsupportedError(path or "the model", type(part).__name__, reason, way_out)


def _is_quantised(packed: Any) -> bool:
    return "quantized" in str(packed._type())


def with_modes(torch: Any, module: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The parts of a module to which training is another mode, with their paths: all but graphs.

    Nodes of a graph are in modes of their own. PyTorch lets nobody call eval() on exported ones.
    """
    if isinstance(module, torch.fx.GraphModule):
        called = {node.target for node in module.graph.nodes if node.op == "call_module"}
        parts = [(name, part) for name, part in module.named_modules() if name in called]
        parts = [(name, part) for name, part in parts if not type(part).__module__.startswith("torch.export")]
    else:
        yield path, module
        parts = list(module.named_children())
    for name, part in parts:
        yield from with_modes(torch, part, f"{path}.{name}" if path else name)


def fixed_batch(error: Exception, shown: str) -> str:
    """Why PyTorch exports a module for one number of samples alone; `shown` is what PyTorch says."""
    if "specialized it to be a constant" in str(error):
        return "its code fixes their number: write x.shape[0] instead of len(x), int(x.shape[0]) or a number"
    violated = (line.strip()[2:] for line in str(error).splitlines() if line.startswith("  - "))
    return f"PyTorch says: {next(violated, shown)[:200]}"


def cannot_export(torch: Any, module: Any, error: Exception, shown: str) -> ModelError:
    """The error of a module that PyTorch does not export; `shown` is what PyTorch says."""
    way_out = "see torch.export's own advice, or export to ONNX"
    packed = torch.nn.utils.rnn.PackedSequence
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if any(isinstance(value, packed) for frame in frames for value in frame.f_locals.values()):
        way_out = "leave pack_padded_sequence out, and take the last state of each padded sequence by its index"
    if "quantized" in f"{error}":
        way_out = _UNQUANTISED
    depends = any(text in f"{type(error).__name__} {error}" for text in _DEPENDS)
    if depends and any(
        isinstance(part, torch.nn.TransformerEncoder | torch.nn.TransformerDecoder) for part in module.modules()
    ):
        way_out = "where it passes a mask to nn.TransformerEncoder or its kin, let it pass is_causal as well"
    elif depends:
        way_out = "an `if`, a loop or a size depends on the data: compute both ways and choose by torch.where"
    place = _place(torch, error)
    if place:
        # What PyTorch calls the data says nothing to the model's author.
        shown = f"at {place}" if depends else f"{shown}, at {place}"
    return ModelError(f"torch.export cannot export {type(module).__name__} ({shown}): {way_out}")


def _place(torch: Any, error: Exception) -> str:
    """The last line of the model's own code, or of a library's but PyTorch, that an error passed."""
    others = [os.path.dirname(path) for path in (torch.__file__, __file__)]
    python = sysconfig.get_path("stdlib")

    def is_own(path: str) -> bool:
        of_python = path.startswith((python, "<")) and "site-packages" not in path
        return not of_python and not path.startswith(tuple(others))

    own = [frame for frame in traceback.extract_tb(error.__traceback__) if is_own(frame.filename)]
    return f"{os.path.basename(own[-1].filename)} line {own[-1].lineno}: {own[-1].line}" if own else ""
