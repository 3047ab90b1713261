"""Every architecture of Hugging Face that is wrapped, from small configurations, against the module itself.

`make test` takes one for each way of computing; COVEY_IN_FULL=1 takes all.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from covey import reference
from covey.errors import UnsupportedError
from covey.importers.modules import has_experts
from covey.importers.torch_export import examine
from covey.passes import rewrite
from covey.wrapping import IMAGES, SOUNDS, TEXT, TRANSLATORS, wrapped

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
transformers.logging.set_verbosity_error()

WORDS, LENGTH, SIDE, PADDING, END = 60, 12, 32, 0, 2

TEXTS: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48, "vocab_size": WORDS,
    "max_position_embeddings": 40, "pad_token_id": PADDING,
}  # fmt: skip
DECODES = {**TEXTS, "num_key_value_heads": 1, "bos_token_id": 1, "eos_token_id": 2}
HEADS = {**DECODES, "head_dim": 16}
EXPERTS = {
    **DECODES, "num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
    "shared_expert_intermediate_size": 24,
}  # fmt: skip
OLDER = {"vocab_size": WORDS, "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 40, "pad_token_id": PADDING}
POSITIONS = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}
PATCHES = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48, "image_size": SIDE,
    "patch_size": 8,
}  # fmt: skip
WINDOWS = {
    "embed_dim": 8, "depths": [2, 1], "num_heads": [1, 2], "window_size": 4, "image_size": SIDE, "patch_size": 4,
}  # fmt: skip
PYRAMID = {
    "image_size": SIDE, "hidden_sizes": [8, 16, 16, 16], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 2, 2, 2],
    "mlp_ratios": [2, 2, 2, 2],
}  # fmt: skip
STAGES = {"hidden_sizes": [8, 16], "depths": [1, 1]}

HALVES = {
    "vocab_size": WORDS, "d_model": 32, "encoder_layers": 2, "decoder_layers": 1, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "max_position_embeddings": 40,
    "pad_token_id": PADDING, "bos_token_id": 1, "eos_token_id": END, "decoder_start_token_id": 1,
}  # fmt: skip
RELATIVE = {
    "vocab_size": WORDS, "d_model": 32, "d_kv": 16, "d_ff": 48, "num_layers": 2, "num_heads": 2, "eos_token_id": END,
    "decoder_start_token_id": PADDING,
}  # fmt: skip
WAVES = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48, "vocab_size": 32,
    "conv_dim": (16, 16), "conv_stride": (5, 2), "conv_kernel": (10, 3), "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2,
}  # fmt: skip
SHAPES = {"audio-spectrogram-transformer": (32, 16), "whisper": (8, 32)}
"""Of one sound; others are 400 numbers."""

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "albert": ("Albert", {**TEXTS, "embedding_size": 16}),
    "bert": ("Bert", TEXTS),
    "bloom": ("Bloom", {"hidden_size": 32, "n_layer": 2, "n_head": 2, "vocab_size": WORDS, "pad_token_id": PADDING}),
    "camembert": ("Camembert", TEXTS),
    "clip_text_model": ("CLIPText", TEXTS),
    "deberta": ("Deberta", {**TEXTS, **POSITIONS}),
    "deberta-v2": ("DebertaV2", {**TEXTS, **POSITIONS, "position_buckets": 8, "share_att_key": True}),
    "distilbert": (
        "DistilBert",
        {"vocab_size": WORDS, "dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 48, "max_position_embeddings": 40},
    ),
    "electra": ("Electra", {**TEXTS, "embedding_size": 16}),
    "ernie": ("Ernie", TEXTS),
    "falcon": ("Falcon", TEXTS),
    "gemma": ("Gemma", HEADS),
    "gemma2": ("Gemma2", {**HEADS, "sliding_window": 4}),
    "gemma3_text": ("Gemma3Text", {**HEADS, "sliding_window": 4}),
    "gpt2": (
        "GPT2",
        {"n_embd": 32, "n_layer": 2, "n_head": 2, "vocab_size": WORDS, "n_positions": 40, "pad_token_id": PADDING},
    ),
    "gpt_neo": (
        "GPTNeo",
        {
            "hidden_size": 32, "num_layers": 2, "num_heads": 2, "attention_types": [[["global", "local"], 1]],
            "intermediate_size": 48, "vocab_size": WORDS, "max_position_embeddings": 40, "window_size": 4,
            "pad_token_id": PADDING,
        },
    ),
    "gpt_neox": ("GPTNeoX", TEXTS),
    "granite": ("Granite", DECODES),
    "llama": ("Llama", DECODES),
    "mistral": ("Mistral", {**DECODES, "sliding_window": 4}),
    "mobilebert": (
        "MobileBert", {**TEXTS, "embedding_size": 16, "intra_bottleneck_size": 16, "num_feedforward_networks": 2},
    ),
    "modernbert": (
        "ModernBert",
        {**TEXTS, "global_attn_every_n_layers": 2, "local_attention": 8, "cls_token_id": 1, "sep_token_id": 2},
    ),
    "mpnet": ("MPNet", TEXTS),
    "olmo": ("Olmo", DECODES),
    "olmo2": ("Olmo2", DECODES),
    "opt": ("OPT", {**TEXTS, "ffn_dim": 48, "word_embed_proj_dim": 32}),
    "phi": ("Phi", TEXTS),
    "phi3": ("Phi3", DECODES),
    "qwen2": ("Qwen2", DECODES),
    "qwen3": ("Qwen3", HEADS),
    "granitemoe": ("GraniteMoe", EXPERTS),
    "mixtral": ("Mixtral", EXPERTS),
    "olmoe": ("Olmoe", EXPERTS),
    "qwen2_moe": ("Qwen2Moe", EXPERTS),
    "qwen3_moe": ("Qwen3Moe", {**EXPERTS, "head_dim": 16}),
    "roberta": ("Roberta", TEXTS),
    "roberta-prelayernorm": ("RobertaPreLayerNorm", TEXTS),
    "roformer": ("RoFormer", {**TEXTS, "embedding_size": 32}),
    "smollm3": ("SmolLM3", DECODES),
    "squeezebert": (
        "SqueezeBert",
        {
            **TEXTS, "embedding_size": 32, "q_groups": 2, "k_groups": 2, "v_groups": 2, "post_attention_groups": 1,
            "intermediate_groups": 2, "output_groups": 2,
        },
    ),
    "stablelm": ("StableLm", DECODES),
    "starcoder2": ("Starcoder2", DECODES),
    "xlm-roberta": ("XLMRoberta", TEXTS),
    "apertus": ("Apertus", DECODES),
    "arcee": ("Arcee", DECODES),
    "biogpt": ("BioGpt", TEXTS),
    "codegen": ("CodeGen", {**OLDER, "n_embd": 64, "n_head": 4, "rotary_dim": 8}),
    "cohere": ("Cohere", DECODES),
    "cohere2": ("Cohere2", {**DECODES, "sliding_window": 8}),
    "convbert": (
        "ConvBert", {**TEXTS, "embedding_size": 32, "head_ratio": 2, "conv_kernel_size": 3, "num_groups": 1},
    ),
    "funnel": (
        "Funnel",
        {
            "vocab_size": WORDS, "d_model": 32, "n_head": 2, "d_head": 16, "d_inner": 48, "block_sizes": [1, 1],
            "num_decoder_layers": 1, "pad_token_id": PADDING,
        },
    ),
    "mpt": (
        "Mpt",
        {"d_model": 32, "n_heads": 2, "n_layers": 2, "max_seq_len": 40, "vocab_size": WORDS, "pad_token_id": PADDING},
    ),
    "xglm": (
        "XGLM",
        {
            "vocab_size": WORDS, "d_model": 32, "ffn_dim": 48, "num_layers": 2, "attention_heads": 2,
            "max_position_embeddings": 40, "pad_token_id": PADDING,
        },
    ),
    "data2vec-text": ("Data2VecText", TEXTS),
    "ernie4_5": ("Ernie4_5", HEADS),
    "esm": ("Esm", {**TEXTS, "position_embedding_type": "rotary", "mask_token_id": 4}),
    "exaone4": ("Exaone4", {**DECODES, "sliding_window": 8}),
    "glm": ("Glm", HEADS),
    "glm4": ("Glm4", HEADS),
    "gpt_bigcode": ("GPTBigCode", OLDER),
    "gptj": ("GPTJ", {**OLDER, "rotary_dim": 8}),
    "helium": ("Helium", HEADS),
    "hunyuan_v1_dense": ("HunYuanDenseV1", HEADS),
    "ibert": ("IBert", TEXTS),
    "layoutlm": ("LayoutLM", TEXTS),
    "luke": ("Luke", {**TEXTS, "entity_vocab_size": 10}),
    "megatron-bert": ("MegatronBert", TEXTS),
    "ministral": ("Ministral", {**HEADS, "sliding_window": 8}),
    "nemotron": ("Nemotron", DECODES),
    "nystromformer": ("Nystromformer", TEXTS),
    "olmo3": ("Olmo3", {**DECODES, "sliding_window": 8}),
    "persimmon": ("Persimmon", TEXTS),
    "rembert": ("RemBert", {**TEXTS, "input_embedding_size": 16, "output_embedding_size": 32}),
    "roc_bert": ("RoCBert", {**TEXTS, "enable_pronunciation": False, "enable_shape": False}),
    "seed_oss": ("SeedOss", HEADS),
    "splinter": ("Splinter", TEXTS),
    "xlm-roberta-xl": ("XLMRobertaXL", TEXTS),
    "beit": ("Beit", PATCHES),
    "dinov2_with_registers": ("Dinov2WithRegisters", PATCHES),
    "focalnet": (
        "FocalNet",
        {
            "image_size": SIDE, "embed_dim": 8, "depths": [1, 1], "hidden_sizes": [8, 16], "focal_levels": [1, 1],
            "focal_windows": [3, 3], "patch_size": 4,
        },
    ),
    "data2vec-vision": ("Data2VecVision", PATCHES),
    "hgnet_v2": ("HGNetV2", {}),
    "hiera": (
        "Hiera",
        {"embed_dim": 8, "image_size": [SIDE, SIDE], "depths": [1, 1, 1, 1], "num_heads": [1, 2, 4, 8]},
    ),
    "ijepa": ("IJepa", PATCHES),
    "mobilenet_v1": ("MobileNetV1", {"image_size": SIDE, "depth_multiplier": 0.25}),
    "swiftformer": ("SwiftFormer", {"image_size": SIDE, "depths": [1, 1, 1, 1], "embed_dims": [8, 16, 16, 16]}),
    "textnet": ("TextNet", {}),
    "mobilevit": (
        "MobileViT",
        {"image_size": SIDE, "hidden_sizes": [16, 24, 32], "neck_hidden_sizes": [8, 8, 16, 16, 24, 24, 32]},
    ),
    "pvt": ("Pvt", PYRAMID),
    "pvt_v2": ("PvtV2", PYRAMID),
    "vit_msn": ("ViTMSN", PATCHES),
    "clip_vision_model": ("CLIPVision", PATCHES),
    "convnext": ("ConvNext", {**STAGES, "num_stages": 2}),
    "convnextv2": ("ConvNextV2", {**STAGES, "num_stages": 2}),
    "deit": ("DeiT", PATCHES),
    "dinov2": ("Dinov2", PATCHES),
    "dinov3_vit": ("DINOv3ViT", PATCHES),
    "mobilenet_v2": ("MobileNetV2", {"image_size": SIDE, "depth_multiplier": 0.35}),
    "poolformer": ("PoolFormer", {"depths": [1, 1, 1, 1], "hidden_sizes": [8, 8, 16, 16]}),
    "regnet": ("RegNet", {**STAGES, "embedding_size": 8, "groups_width": 4}),
    "resnet": ("ResNet", {**STAGES, "embedding_size": 8, "layer_type": "basic"}),
    "segformer": (
        "Segformer",
        {
            "num_encoder_blocks": 2, "depths": [1, 1], "sr_ratios": [2, 1], "hidden_sizes": [8, 16],
            "patch_sizes": [7, 3], "strides": [4, 2], "num_attention_heads": [1, 2], "mlp_ratios": [2, 2],
            "decoder_hidden_size": 16,
        },
    ),
    "siglip_vision_model": ("SiglipVision", PATCHES),
    "swin": ("Swin", WINDOWS),
    "swinv2": ("Swinv2", WINDOWS),
    "vit": ("ViT", PATCHES),
    "big_bird": ("BigBird", {**TEXTS, "attention_type": "original_full"}),
    "siglip_text_model": ("SiglipText", TEXTS),
    "ctrl": ("CTRL", {**OLDER, "dff": 48}),
    "openai-gpt": ("OpenAIGPT", OLDER),
    "mamba": ("Mamba", {"vocab_size": WORDS, "hidden_size": 16, "num_hidden_layers": 1, "state_size": 4}),
    "bart": ("Bart", HALVES),
    "marian": ("Marian", HALVES),
    "mbart": ("MBart", HALVES),
    "pegasus": ("Pegasus", HALVES),
    "t5": ("T5", RELATIVE),
    "mt5": ("MT5", RELATIVE),
    "umt5": ("UMT5", RELATIVE),
    "audio-spectrogram-transformer": (
        "AST",
        {
            "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48,
            "patch_size": 8, "max_length": 32, "num_mel_bins": 16,
        },
    ),
    "hubert": ("Hubert", WAVES),
    "wav2vec2": ("Wav2Vec2", {**WAVES, "feat_extract_norm": "layer", "do_stable_layer_norm": True}),
    "wavlm": ("WavLM", WAVES),
    "whisper": ("Whisper", {**HALVES, "num_mel_bins": 8, "max_source_positions": 16, "max_target_positions": 20}),
}  # fmt: skip
"""By what `config.json` calls it: how its classes begin, and a small configuration."""

SHORT = (
    "albert",
    "t5",
    "wav2vec2",
    "deberta-v2",
    "modernbert",
    "bloom",
    "mixtral",
    "opt",
    "phi3",
    "gemma2",
    "convnextv2",
    "swin",
    "swinv2",
)

HEADS_OF = ("ForSequenceClassification", "ForImageClassification", "ForCTC", "ForCausalLM", "Model")
"""The first of these that an architecture has."""


def module_of(kind: str, head: str | None = None) -> Any:
    torch.manual_seed(0)
    begins, sizes = CASES[kind]
    config = getattr(transformers, f"{begins}Config")(**sizes)
    heads = (
        (head,)
        if head is not None
        else ("Model",)
        if kind in (*TRANSLATORS, "clip_text_model", "siglip_text_model", "whisper")
        else HEADS_OF
    )
    names = [f"{start}{head}" for head in heads for start in (begins, begins.removesuffix("Text"))]
    module = next(found for name in names if (found := getattr(transformers, name, None)))(config).eval()
    # As initialised, weights are so small that much of what a network computes would not be seen.
    for weight in module.parameters():
        if weight.dim() > 1 and weight.std() < 0.1:
            torch.nn.init.normal_(weight, std=0.2)
    return module


def inputs_of(kind: str, samples: int) -> dict[str, Any]:
    rng = np.random.default_rng(samples)
    if kind in IMAGES:
        return {"pixel_values": rng.uniform(-1, 1, (samples, 3, SIDE, SIDE)).astype(np.float32)}
    if kind in SOUNDS:
        return {SOUNDS[kind]: rng.normal(size=(samples, *SHAPES.get(kind, (400,)))).astype(np.float32)}
    counted = (np.arange(LENGTH) < rng.integers(4, LENGTH + 1, (samples, 1))).astype(np.int64)
    return {"input_ids": np.where(counted, rng.integers(3, WORDS, counted.shape), PADDING), "attention_mask": counted}


@pytest.mark.parametrize("head", ["ForSequenceClassification", "ForQuestionAnswering"])
@pytest.mark.parametrize("kind", ["bart", "mbart", "t5"])
def test_a_text_that_both_halves_read(kind: str, head: str) -> None:
    module, inputs = module_of(kind, head), inputs_of(kind, 3)
    np.put_along_axis(inputs["input_ids"], inputs["attention_mask"].sum(1, keepdims=True) - 1, END, 1)
    given = {name: torch.from_numpy(array) for name, array in inputs.items()}
    graph, errors = examine(wrapped(module, None, length=LENGTH), example_inputs=tuple(given.values()))
    assert [*errors, *rewrite(graph)] == []
    with torch.no_grad():
        found = module(**given)
    due = [found[name].numpy() for name in ("logits", "start_logits", "end_logits") if name in found]
    outputs = reference.outputs(graph, {name: array.astype(np.float64) for name, array in inputs.items()})
    counted = inputs["attention_mask"] == 1 if len(due) > 1 else slice(None)
    for got, expected in zip(outputs, due, strict=True):
        np.testing.assert_allclose(got[counted], expected[counted], atol=2e-4 * np.abs(expected).max())


def test_experts_that_sort_the_tokens_of_all_samples_are_refused() -> None:
    ids = torch.from_numpy(inputs_of("mixtral", 2)["input_ids"])
    saying = r"\(Mixtral\w+\): its experts sort .*; call set_experts_implementation\('batched_mm'\) on it first"
    with pytest.raises(UnsupportedError, match=saying):
        examine(module_of("mixtral"), example_inputs=(ids,))


def test_a_model_without_experts_whose_class_may_have_some() -> None:
    config = transformers.JambaConfig(num_experts=1, num_experts_per_tok=1, use_mamba_kernels=False, **DECODES)
    assert not has_experts(transformers.JambaModel(config))
    assert has_experts(module_of("mixtral"))


def test_all_architectures_are_here() -> None:
    assert set(CASES) == {*TEXT, *IMAGES, *SOUNDS}


@pytest.mark.parametrize("kind", CASES if "COVEY_IN_FULL" in os.environ else SHORT)
def test_an_architecture_is_the_module(kind: str) -> None:
    module = module_of(kind)
    assert module.config.model_type == kind
    examples = tuple(torch.from_numpy(array) for array in inputs_of(kind, 2).values())
    graph, errors = examine(wrapped(module, None, length=LENGTH), example_inputs=examples)
    assert [*errors, *rewrite(graph)] == []
    inputs = inputs_of(kind, 3)
    whole = module.get_encoder() if kind in (*TRANSLATORS, "whisper") else module
    with torch.no_grad():
        found = whole(**{name: torch.from_numpy(array) for name, array in inputs.items()})
    due = (found.logits if "logits" in found else found.last_hidden_state).numpy()
    (got,) = reference.outputs(graph, {name: array.astype(np.float64) for name, array in inputs.items()})
    got = got.reshape(due.shape)
    if due.ndim == 3 and "attention_mask" in inputs:
        got, due = (array[inputs["attention_mask"] == 1] for array in (got, due))
    np.testing.assert_allclose(got, due, atol=2e-4 * np.abs(due).max())
