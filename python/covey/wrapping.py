"""Models of Hugging Face as modules of a client's inputs alone: token ids and which count, an image, or a sound."""

from __future__ import annotations

from typing import Any, Literal

from covey.errors import ModelError
from covey.importers.modules import EXPERTS_APART, has_experts

Pooling = Literal["mean", "cls"]
"""How the states of all tokens become one: their mean over those that count, or the first one."""

ENCODERS = (
    "albert", "bert", "big_bird", "camembert", "clip_text_model", "convbert", "data2vec-text", "deberta", "deberta-v2",
    "distilbert", "electra", "ernie", "esm", "funnel", "ibert", "layoutlm", "luke", "megatron-bert", "mobilebert",
    "modernbert", "mpnet", "nystromformer", "rembert", "roberta", "roberta-prelayernorm", "roc_bert", "roformer",
    "siglip_text_model", "splinter", "squeezebert", "xlm-roberta", "xlm-roberta-xl",
)  # fmt: skip
TRANSLATORS = ("bart", "marian", "mbart", "mt5", "pegasus", "t5", "umt5")
"""Kinds that make a text of a text. Of those without a head for questions or classes the half that reads is wrapped."""

_READ_BY_BOTH = ("ForSequenceClassification", "ForQuestionAnswering")
"""Of such kinds, the models in which the half that writes reads the same text."""

DECODERS = (
    "apertus", "arcee", "biogpt", "bloom", "codegen", "cohere", "cohere2", "ctrl", "ernie4_5", "exaone4", "falcon",
    "gemma", "gemma2", "gemma3_text", "glm", "glm4", "gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox", "gptj", "granite",
    "granitemoe", "helium", "hunyuan_v1_dense", "llama", "mamba", "ministral", "mistral", "mixtral", "mpt", "nemotron",
    "olmo", "olmo2", "olmo3", "olmoe", "openai-gpt", "opt", "persimmon", "phi", "phi3", "qwen2", "qwen2_moe", "qwen3",
    "qwen3_moe", "seed_oss", "smollm3", "stablelm", "starcoder2", "xglm",
)  # fmt: skip
TEXT = (*ENCODERS, *TRANSLATORS, *DECODERS)
IMAGES = (
    "beit", "clip_vision_model", "convnext", "convnextv2", "data2vec-vision", "deit", "dinov2", "dinov2_with_registers",
    "dinov3_vit", "focalnet", "hgnet_v2", "hiera", "ijepa", "mobilenet_v1", "mobilenet_v2", "mobilevit", "poolformer",
    "pvt", "pvt_v2", "regnet", "resnet", "segformer", "siglip_vision_model", "swiftformer", "swin", "swinv2", "textnet",
    "vit", "vit_msn",
)  # fmt: skip
SOUNDS = {
    "audio-spectrogram-transformer": "input_values",
    "hubert": "input_values",
    "wav2vec2": "input_values",
    "wavlm": "input_values",
    "whisper": "input_features",
}
"""The architectures that are wrapped, by what their `config.json` calls them; of those for sounds, what they take."""

COUNTS_TOKENS = (
    "camembert", "data2vec-text", "ibert", "luke", "mpnet", "roberta", "roberta-prelayernorm", "xlm-roberta",
    "xlm-roberta-xl",
)  # fmt: skip
"""Kinds that count tokens for their positions, from behind the id of padding on."""

TRUTHS = ("bloom", "deberta", "deberta-v2", "opt")
"""Kinds that compute with the mask, for which it must be truth values."""

IDS, COUNTED, SEGMENTS, PIXELS = "input_ids", "attention_mask", "token_type_ids", "pixel_values"


def check_kind(kind: str) -> None:
    """Raises `ModelError` for an architecture that is not wrapped."""
    if kind not in (*TEXT, *IMAGES, *SOUNDS):
        raise ModelError(
            f"models of type '{kind}' are not wrapped (docs/transformers.md lists those that are): write a module "
            f"whose forward takes tensors alone, and compile it with covey.compile"
        )


def reader(model: Any) -> Any:
    """The half of a model that reads, where another one writes; else the model. Raises `ModelError`."""
    kind = model.config.model_type
    if kind not in (*TRANSLATORS, "whisper"):
        return model
    if type(model).__name__.endswith((*_READ_BY_BOTH, "ForTokenClassification", "ForAudioClassification")):
        return model
    if not is_base(model) or hasattr(model, "lm_head"):
        raise ModelError(
            f"{type(model).__name__} writes text: take the states of the half that reads, by task='features' or as "
            f"the base model"
        )
    return model.get_encoder()


def is_base(model: Any) -> bool:
    """Whether a model gives states, without a head."""
    return model is getattr(model, model.base_model_prefix, model) or type(model).__name__.endswith("Model")


def padding_of(config: Any) -> int:
    """The id that fills sequences up."""
    return int(getattr(config, "pad_token_id", None) or 0)


def first_position(model: Any) -> int:
    """The position of the first token."""
    return int(model.base_model.embeddings.padding_idx) + 1 if model.config.model_type in COUNTS_TOKENS else 0


def wrapped(model: Any, pooling: Pooling | None, *, length: int = 0, pairs: bool = False) -> Any:
    """A module of the client's inputs alone, in their order."""
    import torch

    kind = model.config.model_type
    model = reader(model)
    if has_experts(model):
        model.set_experts_implementation(EXPERTS_APART)
    fixed: dict[str, Any] = {}
    if kind in COUNTS_TOKENS:
        # The model itself counts tokens. Behind padding, positions have no bearing.
        first = first_position(model)
        fixed = {"position_ids": torch.arange(first, first + length)[None]}
        if not pairs and hasattr(model.config, "type_vocab_size"):
            fixed[SEGMENTS] = torch.zeros(1, length, dtype=torch.int64)
    elif getattr(model.config, "use_cache", False):
        fixed = {"use_cache": False}

    def result(counted: Any, **inputs: Any) -> Any:
        if kind in TRUTHS:
            inputs[COUNTED] = counted.to(torch.bool)
        if kind in TRANSLATORS and type(model).__name__.endswith(_READ_BY_BOTH):
            inputs |= _shifted(model, inputs[IDS], counted)
        if _classifies(model) and kind in DECODERS:
            head = getattr(model, "score", None) or model.classifier  # as CTRL calls it
            return head(_last(model.base_model(**inputs, **fixed).last_hidden_state, counted))
        if _classifies(model) and kind in TRANSLATORS:
            states = model.base_model(**inputs, **fixed).last_hidden_state
            return model.classification_head(_last(states, inputs[IDS] == model.config.eos_token_id))
        found = model(**inputs, **fixed)
        if "logits" in found:
            return found.logits
        if "start_logits" in found:
            return found.start_logits, found.end_logits
        for embedded in ("image_embeds", "text_embeds"):
            if embedded in found:
                return found[embedded]
        if not is_base(model) or "last_hidden_state" not in found:
            raise ModelError(f"{type(model).__name__} gives neither logits nor states: use another head")
        states = found.last_hidden_state
        if pooling == "cls":
            return states[:, 0]
        if pooling is None:
            return states
        if counted is None:
            return states.mean(1)
        weights = counted.to(states.dtype).unsqueeze(-1)
        return (states * weights).sum(1) / weights.sum(1).clamp(min=1.0)

    class Wrapped(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model
            self.training = False

    class Text(Wrapped):
        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            return result(attention_mask, input_ids=input_ids, attention_mask=attention_mask)

    class Pair(Wrapped):
        def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> Any:
            inputs = {IDS: input_ids, COUNTED: attention_mask, SEGMENTS: token_type_ids}
            return result(attention_mask, **inputs)

    class Image(Wrapped):
        def forward(self, pixel_values: Any) -> Any:
            return result(None, pixel_values=pixel_values)

    class Waveform(Wrapped):
        def forward(self, input_values: Any) -> Any:
            return result(None, input_values=input_values)

    class Spectrogram(Wrapped):
        def forward(self, input_features: Any) -> Any:
            return result(None, input_features=input_features)

    if kind in SOUNDS:
        return Waveform() if SOUNDS[kind] == "input_values" else Spectrogram()
    return Image() if kind in IMAGES else Pair() if pairs else Text()


def _shifted(model: Any, ids: Any, counted: Any) -> dict[str, Any]:
    """A text for the half that writes, shifted by a token, as far as the model does not do so itself."""
    import torch

    if hasattr(model, "_shift_right"):
        return {"decoder_input_ids": model._shift_right(ids)}
    if model.config.model_type != "mbart":
        return {}
    # The text's last token, which tells its language, comes first.
    embedded = model.get_input_embeddings()(ids)
    return {"decoder_inputs_embeds": torch.cat([_last(embedded, counted).unsqueeze(1), embedded[:, :-1]], 1)}


def _classifies(model: Any) -> bool:
    """Whether a model classifies texts. One that writes does so by the state of a text's last token, or of its end."""
    return type(model).__name__.endswith("ForSequenceClassification")


def _last(states: Any, counted: Any) -> Any:
    """The state of the last token that counts; 0 where none does."""
    import torch

    ones = counted.to(states.dtype)
    length = ones.shape[1]
    behind = ones @ torch.tril(torch.ones(length, length), -1)
    return (states * torch.relu(ones - behind).unsqueeze(-1)).sum(1)
