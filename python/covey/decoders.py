"""One step of a language model from Hugging Face, as a module that PyTorch can export: one token in, the next one out.

The keys and values of earlier tokens are inputs and outputs of the step, which the session carries from run to run.
They are windows of a fixed length that move on by one token: the newest is last, and the mask says how many of them are
tokens of the sequence. So every step is the same program, and takes the same time and messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from covey.arrays import to_numpy
from covey.errors import DataError, ModelError

if TYPE_CHECKING:
    from covey.compiled import Compiled

INPUTS = ("input_ids", "position_ids", "attention_mask")
"""What a step is given beside keys and values: the token, its position, and which slots of the window hold tokens."""

LLAMA_LIKE = ("gemma", "granite", "llama", "mistral", "qwen2", "qwen3", "smollm3", "starcoder2")
"""Decoders that normalise before attention and before the layers behind it, and turn queries and keys."""

CALIBRATED = 16
"""Steps that bounds and scales are taken from; of more texts than that, one each."""

MASKED = -1e9
"""What is added to the scores of slots without a token."""


def step_of(model: Any, sequence: int, next_token: str = "argmax") -> Any:
    """The step of a GPT-2 or a Llama-like model (`LLAMA_LIKE`), for up to `sequence` tokens.

    Its first output is the next token ("argmax") or its scores ("logits"); then come keys and values, layer by layer.
    Raises `ModelError` for other models.
    """
    import torch

    config = model.config
    kind = str(config.model_type)
    parts = _gpt2 if kind == "gpt2" else _llama if kind in LLAMA_LIKE else None
    if parts is None or not hasattr(model, "lm_head"):
        raise ModelError(
            f"{type(model).__name__} ({kind}) cannot generate here: give GPT2LMHeadModel, or a causal model of "
            f"{', '.join(LLAMA_LIKE)}"
        )
    if model.training:
        raise ModelError("the model is in training mode: call eval() on it first")
    most = int(getattr(config, "max_position_embeddings", 0) or config.n_positions)
    if isinstance(sequence, bool) or not isinstance(sequence, int) or not 2 <= sequence <= most:
        raise ModelError(f"a sequence of {sequence!r} tokens: this model takes 2 to {most}")
    if next_token not in ("argmax", "logits"):
        raise ModelError(f"next_token '{next_token}' is unknown: use argmax or logits")
    embed, layers, finish = parts(torch, model, sequence)

    class Step(torch.nn.Module):  # type: ignore[misc]
        """One token through the model."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Any, position_ids: Any, attention_mask: Any, *past: Any) -> Any:
            x, place = embed(input_ids, position_ids)
            hidden = (1.0 - attention_mask[:, None, None, :].to(torch.float32)) * MASKED
            carried = []
            for index, layer in enumerate(layers):
                x, keys, values = layer(x, place, hidden, past[2 * index], past[2 * index + 1])
                carried += [keys[:, :, 1:], values[:, :, 1:]]
            scores = finish(x)[:, 0]
            return (torch.argmax(scores, dim=-1) if next_token == "argmax" else scores, *carried)

    return Step().eval()


def compiled(
    model: Any,
    sequence: int,
    next_token: str = "argmax",
    *,
    calibration: Any = None,
    name: str | None = None,
    **options: Any,
) -> Compiled:
    """The program of a model's steps for sequences of up to `sequence` tokens.

    `calibration` are token ids [N, T] that bounds and scales are taken from; random ones where there are none.
    `options` are those of `covey.compile`.
    """
    import torch

    from covey.compiled import compile as compile_model

    step = step_of(model, sequence, next_token)
    samples = steps(step, _tokens(calibration, int(model.config.vocab_size), sequence), sequence, CALIBRATED)
    return compile_model(
        step,
        tuple(torch.from_numpy(np.ascontiguousarray(array)) for array in samples.values()),
        calibration=samples,
        carry=carry(step),
        name=name or type(model).__name__,
        **options,
    )


def _tokens(calibration: Any, vocabulary: int, sequence: int) -> np.ndarray:
    """Token ids [N, T] to calibrate with, as given or drawn."""
    if calibration is None:
        return np.asarray(np.random.default_rng(0).integers(0, vocabulary, (CALIBRATED // 4, sequence)))
    try:
        tokens = np.asarray(to_numpy(calibration, [], "calibration"))
    except ValueError:  # lists of several lengths
        raise DataError("calibration data are lists of several lengths: give whole numbers [N, T]") from None
    if tokens.ndim != 2 or tokens.dtype.kind not in "iu" or not tokens.size:
        raise DataError(f"calibration data of shape {list(tokens.shape)} are no token ids: give whole numbers [N, T]")
    if tokens.min() < 0 or tokens.max() >= vocabulary:
        raise DataError(f"calibration data hold token {tokens.max()}: give numbers from 0 to {vocabulary - 1}")
    return tokens[:, :sequence]


def carry(step: Any) -> dict[str, int]:
    """What a session carries from one step to the next."""
    return {f"past_{index}": 1 + index for index in range(2 * int(step.model.config.num_hidden_layers))}


def steps(step: Any, tokens: Any, sequence: int, keep: int) -> dict[str, np.ndarray]:
    """What the steps of `spread_steps` over `tokens` [N, T] are given: samples by input name, in that order."""
    import torch

    count = tokens.shape[1]
    kept = spread_steps(len(tokens), count, keep)
    found: dict[tuple[int, int], list[np.ndarray]] = {}
    with torch.no_grad():
        past = tuple(empty(step, len(tokens), sequence))
        for place in range(count):
            given = inputs(tokens[:, place : place + 1], place, sequence)
            arrays = [*given.values(), *(array.numpy() for array in past)]
            for text in (text for text, where in kept if where == place):
                found[text, place] = [array[text].copy() for array in arrays]  # a view would keep those of all texts
            past = tuple(step(*(torch.from_numpy(array) for array in given.values()), *past)[1:])
    names = [*INPUTS, *carry(step)]
    return {name: np.stack([found[one][index] for one in kept]) for index, name in enumerate(names)}


def spread_steps(texts: int, length: int, keep: int) -> list[tuple[int, int]]:
    """`keep` steps, or one a text where that is more: the text and the place of each, over all texts and all places.

    Programs of large models are measured on the first few of them alone, so these are spread, too: the last place and
    the first are in front, then come those that halve the gaps between places again and again.
    """
    count = max(keep, texts)
    last, bits = count - 1, count.bit_length()
    halving = sorted(range(last), key=lambda index: f"{index:0{bits}b}"[::-1])
    places = np.rint(np.linspace(0, length - 1, count)).astype(int).tolist()
    # Short texts have fewer steps than that.
    return list(dict.fromkeys((index % texts, places[index]) for index in (last, *halving)))


def inputs(tokens: np.ndarray, place: int, sequence: int) -> dict[str, np.ndarray]:
    """What the step of the tokens [N, 1] at `place` in their sequences is given, beside what is carried."""
    mask = np.zeros((len(tokens), sequence), dtype=np.int64)
    mask[:, sequence - 1 - place :] = 1
    return {
        "input_ids": tokens.astype(np.int64),
        "position_ids": np.full((len(tokens), 1), place, dtype=np.int64),
        "attention_mask": mask,
    }


def empty(step: Any, samples: int, sequence: int) -> Iterator[Any]:
    """Keys and values before the first token."""
    import torch

    config = step.model.config
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    for _ in range(2 * int(config.num_hidden_layers)):
        yield torch.zeros(samples, heads, sequence - 1, size)


def _heads(x: Any, count: int) -> Any:
    """[N, 1, count * size] as [N, count, 1, size]."""
    return x.reshape(x.shape[0], 1, count, -1).transpose(1, 2)


def _attend(torch: Any, query: Any, keys: Any, values: Any, hidden: Any, factor: float) -> Any:
    """The attention of one query over the window, heads side by side: [N, 1, heads * size]."""
    groups = query.shape[1] // keys.shape[1]
    if groups > 1:
        query = query.reshape(query.shape[0], keys.shape[1], groups, query.shape[3])
    scores = torch.matmul(query, keys.transpose(2, 3)) * factor + hidden
    mixed = torch.matmul(torch.softmax(scores, dim=-1), values)
    return mixed.reshape(mixed.shape[0], 1, -1)


def _gpt2(torch: Any, model: Any, sequence: int) -> tuple[Any, list[Any], Any]:
    config, body = model.config, model.transformer
    heads = config.num_attention_heads
    scale = (config.hidden_size // heads) ** -0.5 if config.scale_attn_weights else 1.0
    places = body.wpe.weight[:sequence].detach().clone()

    def embed(ids: Any, positions: Any) -> tuple[Any, Any]:
        return body.wte(ids) + torch.nn.functional.embedding(positions, places), None

    def layer(block: Any, factor: float) -> Any:
        def run(x: Any, _: Any, hidden: Any, keys: Any, values: Any) -> tuple[Any, Any, Any]:
            query, key, value = block.attn.c_attn(block.ln_1(x)).split(config.hidden_size, dim=2)
            query, key, value = (_heads(part, heads) for part in (query, key, value))
            keys, values = torch.cat([keys, key], dim=2), torch.cat([values, value], dim=2)
            mixed = _attend(torch, query, keys, values, hidden, factor)
            x = x + block.attn.c_proj(mixed)
            return x + block.mlp(block.ln_2(x)), keys, values

        return run

    inverse = config.scale_attn_by_inverse_layer_idx
    layers = [layer(block, scale / (index + 1 if inverse else 1)) for index, block in enumerate(body.h)]
    return embed, layers, lambda x: model.lm_head(body.ln_f(x))


def _llama(torch: Any, model: Any, sequence: int) -> tuple[Any, list[Any], Any]:
    config, body = model.config, model.model
    window = getattr(config, "sliding_window", None) if getattr(config, "use_sliding_window", True) else None
    if window is not None and window < sequence:
        raise ModelError(f"this model attends to {window} tokens only: compile it for a sequence of {window} or less")
    turns = getattr(config, "rope_parameters", None) or {}
    short = turns.get("original_max_position_embeddings") or sequence
    if turns.get("rope_type") == "longrope" and short < sequence:
        reason = f"this model turns its positions otherwise beyond {short} tokens"
        raise ModelError(f"{reason}: compile it for a sequence of {short} or less")
    heads, groups = config.num_attention_heads, config.num_key_value_heads
    # The rotary embedding of the positions, as a table that is looked up like another embedding.
    ids = torch.arange(sequence)[None]
    cosines, sines = body.rotary_emb(torch.zeros(1, 1, 1), ids)
    table = torch.cat([cosines[0], sines[0]], dim=1).detach().clone()
    size = cosines.shape[-1]

    def embed(ids: Any, positions: Any) -> tuple[Any, Any]:
        turn = torch.nn.functional.embedding(positions, table)[:, :, None]
        x = body.embed_tokens(ids) * getattr(config, "embedding_multiplier", 1.0)
        return x, (turn[..., :size].transpose(1, 2), turn[..., size:].transpose(1, 2))

    def turned(x: Any, place: Any) -> Any:
        half = x.shape[-1] // 2
        return x * place[0] + torch.cat([-x[..., half:], x[..., :half]], dim=-1) * place[1]

    def layer(block: Any) -> Any:
        attention = block.self_attn
        added = getattr(config, "residual_multiplier", 1.0)

        def placed(x: Any, count: int, norm: str, place: Any) -> Any:
            x = getattr(attention, norm, torch.nn.Identity())(_heads(x, count))
            return turned(x, place) if getattr(attention, "use_rope", True) else x

        def run(x: Any, place: Any, hidden: Any, keys: Any, values: Any) -> tuple[Any, Any, Any]:
            read = block.input_layernorm(x)
            query = placed(attention.q_proj(read), heads, "q_norm", place)
            key = placed(attention.k_proj(read), groups, "k_norm", place)
            keys = torch.cat([keys, key], dim=2)
            values = torch.cat([values, _heads(attention.v_proj(read), groups)], dim=2)
            x = x + attention.o_proj(_attend(torch, query, keys, values, hidden, attention.scaling)) * added
            return x + block.mlp(block.post_attention_layernorm(x)) * added, keys, values

        return run

    def finish(x: Any) -> Any:
        return model.lm_head(body.norm(x)) / getattr(config, "logits_scaling", 1.0)

    return embed, [layer(block) for block in body.layers], finish
