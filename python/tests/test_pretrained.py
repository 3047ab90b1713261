"""Transformers of Hugging Face, from small configurations: against the modules themselves, and what is refused."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import covey
from covey import reference
from covey.importers.torch_export import examine
from covey.passes import rewrite

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

WORDS, LENGTH = 50, 8
SIZES: dict[str, Any] = {
    "vocab_size": WORDS,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 34,
    "initializer_range": 0.3,
}
DISTIL = {"vocab_size": WORDS, "dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 24, "max_position_embeddings": 32}
GPT = {"vocab_size": WORDS, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 32, "initializer_range": 0.3}
PATCHES = {name: size for name, size in SIZES.items() if name not in ("vocab_size", "max_position_embeddings")}
PATCHES |= {"image_size": 16, "patch_size": 8}
GROUPED = {**SIZES, "num_key_value_heads": 1}

T5 = {"vocab_size": WORDS, "d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
SOUND = {name: size for name, size in PATCHES.items() if name != "image_size"} | {"max_length": 16, "num_mel_bins": 8}

MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert": ("BertModel", "BertConfig", SIZES),
    "bert for classes": ("BertForSequenceClassification", "BertConfig", SIZES),
    "bert for answers": ("BertForQuestionAnswering", "BertConfig", SIZES),
    "roberta": ("RobertaModel", "RobertaConfig", SIZES),
    "distilbert": ("DistilBertModel", "DistilBertConfig", DISTIL),
    "clip for texts": (
        "CLIPTextModelWithProjection",
        "CLIPTextConfig",
        {**SIZES, "projection_dim": 6, "eos_token_id": 2},
    ),
    "vit for classes": ("ViTForImageClassification", "ViTConfig", PATCHES),
    "deit": ("DeiTModel", "DeiTConfig", PATCHES),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", GPT),
    "llama": ("LlamaForCausalLM", "LlamaConfig", GROUPED),
    "mistral": ("MistralForCausalLM", "MistralConfig", {**GROUPED, "sliding_window": 4}),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", GROUPED),
}


def model(case: str, **options: Any) -> Any:
    torch.manual_seed(0)
    kind, config, sizes = MODELS[case]
    return getattr(transformers, kind)(getattr(transformers, config)(**sizes, **options)).eval()


def texts(samples: int = 4, length: int = LENGTH) -> dict[str, np.ndarray]:
    """Ids of which ever fewer count."""
    ids = np.random.default_rng(1).integers(2, WORDS, (samples, length))
    counted = (np.arange(length) < np.maximum(length - 2 * np.arange(samples)[:, None], 1)).astype(np.int64)
    return {"input_ids": ids, "attention_mask": counted}


def results(module: Any, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    """What the module of transformers itself computes: its logits, or its states where tokens count."""
    with torch.no_grad():
        found = module(**{name: torch.from_numpy(array) for name, array in inputs.items()})
    if "logits" in found:
        return [found.logits.numpy()]
    if "start_logits" in found:
        return [found.start_logits.numpy(), found.end_logits.numpy()]
    if "text_embeds" in found:
        return [found.text_embeds.numpy()]
    return [found.last_hidden_state.numpy()]


def where_counted(array: np.ndarray, inputs: dict[str, np.ndarray]) -> np.ndarray:
    """The values of tokens that count, where there are tokens."""
    counted = inputs.get("attention_mask")
    tokens = counted is not None and array.ndim > 1 and array.shape[1] == LENGTH
    return array[counted == 1] if tokens else array


@pytest.mark.parametrize("case", MODELS)
def test_a_module_is_compiled(case: str) -> None:
    module = model(case)
    compiled = covey.from_pretrained(module, sequence=LENGTH, max_error=0.01)
    assert isinstance(compiled, covey.Compiled)
    if compiled.graph.inputs == ["pixel_values"]:
        inputs = {"pixel_values": np.random.default_rng(1).uniform(-1, 1, (2, 3, 16, 16)).astype(np.float32)}
    else:
        inputs = texts()
        assert compiled.graph.classes == {"input_ids": (WORDS,), "attention_mask": (0,)}
    floats = {name: array.astype(np.float64) for name, array in inputs.items()}
    verdict = covey.verify(compiled, "clear", data=inputs)
    assert verdict.passed, verdict.failure
    for got, due in zip(reference.outputs(compiled.graph, floats), results(module, inputs), strict=True):
        got = got.reshape(due.shape)
        np.testing.assert_allclose(where_counted(got, inputs), where_counted(due, inputs), atol=2e-4)


def test_several_choices() -> None:
    """Their dimension is merged with the batch, mask and all."""
    torch.manual_seed(0)
    module = transformers.BertForMultipleChoice(transformers.BertConfig(**SIZES))
    texts_of = np.random.default_rng(2).integers(2, WORDS, (4, 3, LENGTH))
    counted = (np.arange(LENGTH) < np.random.default_rng(3).integers(2, LENGTH + 1, (4, 3, 1))).astype(np.int64)
    inputs = {"input_ids": texts_of, "attention_mask": counted}
    graph = rewritten(Two(module), {name: array[:2] for name, array in inputs.items()})
    arrays = zip(graph.inputs, (array.astype(np.float64) for array in inputs.values()), strict=True)
    (got,) = reference.outputs(graph, dict(arrays))
    np.testing.assert_allclose(got, results(module, inputs)[0], atol=2e-4)
    assert graph.truths == {"counted"}


@pytest.mark.parametrize("case", ["bert for classes", "llama"])
def test_a_program_is_private(case: str) -> None:
    compiled = covey.from_pretrained(model(case), sequence=LENGTH, calibration=texts(), max_error=0.01)
    verdict = covey.verify(compiled, "trio", data=texts())
    assert verdict.passed, verdict.failure


class Two(torch.nn.Module):  # type: ignore[misc, name-defined]
    """A model of ids and of which count, written as users do."""

    def __init__(self, module: Any, numbers: bool = False) -> None:
        super().__init__()
        self.module, self.numbers = module, numbers

    def forward(self, ids: Any, counted: Any) -> Any:
        if self.numbers:  # as versions before 5 write it
            counted = (1.0 - counted[:, None, None, :].to(torch.float32)) * torch.finfo(torch.float32).min
        return self.module(input_ids=ids, attention_mask=counted, use_cache=False)[0]


def rewritten(module: Any, inputs: dict[str, np.ndarray]) -> covey.ir.Graph:
    graph, errors = examine(module.eval(), example_inputs=tuple(map(torch.from_numpy, inputs.values())))
    assert [*errors, *rewrite(graph)] == []
    return graph


@pytest.mark.parametrize(
    ("case", "how"), [("bert", "sdpa"), ("bert", "eager"), ("bert", "numbers"), ("gpt2", "sdpa"), ("gpt2", "eager")]
)
def test_masks_are_left_out(case: str, how: str) -> None:
    """What is secret of a mask is one row of it, however the model writes masks; causality is public."""
    module = model(case, attn_implementation="sdpa" if how == "numbers" else how)
    graph = rewritten(Two(module, numbers=how == "numbers"), texts())
    (softmax,) = (node for node in graph.nodes if node.op.label == "Softmax")
    assert graph.values[softmax.inputs[1]].shape == (1, 1, LENGTH)
    assert (softmax.op.mask is not None) == (case == "gpt2")
    assert graph.truths == {"counted"}


@pytest.mark.parametrize("case", ["distilbert"])
def test_modules_take_inputs_by_name(case: str) -> None:
    module, inputs = model(case, use_cache=False), texts()
    compiled = covey.compile(module, inputs, max_error=0.01)
    assert compiled.graph.inputs == ["input_ids", "attention_mask"]
    (got,) = reference.outputs(compiled.graph, {name: np.float64(array) for name, array in inputs.items()})
    np.testing.assert_allclose(got, results(module, inputs)[0], atol=2e-4)


def test_positions_that_the_network_counts() -> None:
    """RoBERTa's own: how many tokens before are no padding, which is a secret of the ids."""
    module, inputs = model("roberta"), texts()
    inputs["input_ids"][inputs["attention_mask"] == 0] = 1
    inputs["input_ids"][0, 2] = 1
    graph = rewritten(Two(module), inputs)
    (got,) = reference.outputs(graph, dict(zip(graph.inputs, map(np.float64, inputs.values()), strict=True)))
    np.testing.assert_allclose(got, results(module, inputs)[0], atol=2e-4)
    compiled = covey.compile(Two(module).eval(), tuple(inputs.values()), max_error=0.01)
    verdict = covey.verify(compiled, "clear", data=dict(zip(graph.inputs, inputs.values(), strict=True)))
    assert verdict.passed, verdict.failure


def test_a_saved_model_with_a_head_of_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "topics"
    model("bert for classes").save_pretrained(folder)
    compiled = covey.from_pretrained(folder, sequence=LENGTH)
    assert compiled.graph.name == "topics"
    (logits,) = (compiled.graph.values[name].shape for name in compiled.graph.outputs)
    assert logits == (2,)
    states = covey.from_pretrained(folder, task="features", sequence=LENGTH, name="states")
    assert states.graph.name == "states"
    assert [states.graph.values[name].shape for name in states.graph.outputs] == [(LENGTH, 16)]
    with pytest.raises(covey.ModelError, match=r"no weights for 'qa_outputs.bias' of BertForQuestionAnswering"):
        covey.from_pretrained(folder, task="question-answering", sequence=LENGTH)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_pooling(pooling: Any) -> None:
    module, inputs = model("bert"), texts()
    compiled = covey.from_pretrained(module, sequence=LENGTH, pooling=pooling, calibration=inputs, max_error=0.01)
    (states,) = results(module, inputs)
    counted = inputs["attention_mask"][..., None]
    due = (states * counted).sum(axis=1) / counted.sum(axis=1) if pooling == "mean" else states[:, 0]
    with covey.local("clear") as parties:
        (got,) = parties.run(compiled, inputs).outputs.values()
    assert np.linalg.norm(got - due) <= 0.01 * np.linalg.norm(due)


def test_pairs_of_texts() -> None:
    module, inputs = model("bert"), texts()
    inputs["token_type_ids"] = np.broadcast_to(np.arange(LENGTH) >= 3, (4, LENGTH)).astype(np.int64)
    compiled = covey.from_pretrained(module, sequence=LENGTH, pairs=True, calibration=inputs, max_error=0.01)
    assert compiled.graph.classes["token_type_ids"] == (2,)
    floats = {name: array.astype(np.float64) for name, array in inputs.items()}
    (got,), (due,) = reference.outputs(compiled.graph, floats), results(module, inputs)
    np.testing.assert_allclose(where_counted(got, inputs), where_counted(due, inputs), atol=2e-4)


def test_ids_that_are_no_word_are_refused() -> None:
    compiled = covey.from_pretrained(model("bert"), sequence=LENGTH)
    wrong = texts()
    wrong["input_ids"][1, 3] = WORDS
    saying = r"input 'input_ids' holds 50 in sample 1 at \[3\]: give whole numbers from 0 to 49, its 50 classes"
    with pytest.raises(covey.DataError, match=saying):
        covey.verify(compiled, "clear", data=wrong)


def test_the_half_of_a_saved_model_that_reads(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = transformers.T5ForConditionalGeneration(transformers.T5Config(**T5, decoder_start_token_id=0)).eval()
    module.save_pretrained(tmp_path / "t5")
    inputs = texts()
    compiled = covey.from_pretrained(
        tmp_path / "t5", task="features", sequence=LENGTH, pooling="mean", calibration=inputs, max_error=0.02
    )
    (states,) = results(module.get_encoder(), inputs)
    counted = inputs["attention_mask"][..., None]
    due = (states * counted).sum(axis=1) / counted.sum(axis=1)
    with covey.local("clear") as parties:
        (got,) = parties.run(compiled, inputs).outputs.values()
    assert np.linalg.norm(got - due) <= 0.02 * np.linalg.norm(due)


def test_a_sound() -> None:
    torch.manual_seed(0)
    module = transformers.ASTForAudioClassification(transformers.ASTConfig(**SOUND, num_labels=3)).eval()
    inputs = {"input_values": np.random.default_rng(1).normal(size=(3, 16, 8)).astype(np.float32)}
    compiled = covey.from_pretrained(module, calibration=inputs)
    assert compiled.graph.inputs == ["input_values"]
    (due,) = results(module, inputs)
    with covey.local("clear") as parties:
        (got,) = parties.run(compiled, inputs["input_values"]).outputs.values()
    assert np.linalg.norm(got - due) <= 0.02 * np.linalg.norm(due)


def test_buckets(tmp_path: Path) -> None:
    module = model("roberta")
    found = covey.from_pretrained(module, buckets=(8, 4), name="text", calibration=texts(length=6))
    assert isinstance(found, covey.Buckets)
    assert [row["bucket"] for row in found.rows()] == [4, 8]
    # As lists of any length, of which only ids that count take room.
    compiled, inputs = found.fit({"input_ids": [[5, 6, 7], [8]]})
    assert compiled is found.programs[4]
    assert inputs["input_ids"].tolist() == [[5, 6, 7, 1], [8, 1, 1, 1]]
    assert inputs["attention_mask"].tolist() == [[1, 1, 1, 0], [1, 0, 0, 0]]
    data = texts(2)
    data["attention_mask"][:, 3:] = 0
    assert found.fit(data)[0] is found.programs[4]
    compiled, inputs = found.fit(texts(2, 6))
    assert compiled is found.programs[8]
    with covey.local("clear") as parties:
        (got,) = parties.run(compiled, inputs).outputs.values()
    (due,) = results(module, texts(2, 6))
    counted = texts(2, 6)["attention_mask"] == 1
    assert np.linalg.norm(got[:, :6][counted] - due[counted]) <= 0.02 * np.linalg.norm(due[counted])
    with pytest.raises(covey.DataError, match="'input_ids' has 9 tokens where the largest bucket has 8: shorten"):
        found.fit(texts(1, 9))
    segments = {"input_ids": [[5, 6]], "token_type_ids": [[0, 1]]}
    with pytest.raises(covey.DataError, match=r"'token_type_ids' tells two texts apart.*: compile with pairs=True"):
        found.fit(segments)
    assert found.fit({**segments, "token_type_ids": [[0, 0]]})[1].keys() == {"input_ids", "attention_mask"}
    for wrong in (3, None, [[1.5]], [1, 2], [[1, [2]]]):
        with pytest.raises(covey.DataError, match="'input_ids' is no list of samples of whole numbers"):
            found.fit({"input_ids": wrong})
    (tmp_path / "file").touch()
    with pytest.raises(covey.CoveyError, match=r"cannot write '.*file"):
        found.save(tmp_path / "file")
    assert [path.name for path in found.save(tmp_path / "new")] == ["text-4.covey", "text-8.covey"]
    assert [path.name for path in found.save(tmp_path)] == ["text-4.covey", "text-8.covey"]
    assert "text-8" in str(found)


def test_what_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bert = model("bert")
    other = transformers.FNetConfig(vocab_size=WORDS, hidden_size=16, num_hidden_layers=1, intermediate_size=16)
    transformers.FNetModel(other).save_pretrained(tmp_path / "fnet")
    writer = transformers.T5ForConditionalGeneration(transformers.T5Config(**T5, decoder_start_token_id=0)).eval()
    heard = transformers.ASTModel(transformers.ASTConfig(**SOUND)).eval()
    apart = {"input_ids": [[1, 2]], "token_type_ids": [[0, 1]]}
    cases: list[tuple[str, Any, dict[str, Any]]] = [
        ("'bert-base-uncased' is no folder with a config.json: save the model", "bert-base-uncased", {}),
        ("models of type 'fnet' are not wrapped .docs/transformers.md lists", tmp_path / "fnet", {}),
        ("T5ForConditionalGeneration writes text: take the states.*task='features'", writer, {"sequence": 8}),
        ("takes sounds of one length: give calibration, 'input_values'", heard, {}),
        ("takes sounds: leave out buckets and pairs", heard, {"pairs": True}),
        ("Linear is neither a folder nor a model of transformers", torch.nn.Linear(2, 2), {}),
        ("a sequence of 99 tokens is longer than the model's 34 positions", bert, {"sequence": 99}),
        ("a sequence of 33 tokens is longer than the model's 32 positions", model("roberta"), {"sequence": 33}),
        ("a sequence of 0 tokens is none", bert, {"sequence": 0}),
        ("pooling 'max' is unknown: use mean, cls or None", bert, {"pooling": "max"}),
        ("pooling is for the states of bert", model("bert for classes"), {"pooling": "mean"}),
        ("a module has the head it was made with", bert, {"task": "features"}),
        ("'gpt2' tells no pairs of texts apart", model("gpt2"), {"pairs": True}),
        ("'vit' takes images", model("vit for classes"), {"buckets": (8,)}),
        ("is in training mode: call eval", model("bert").train(), {"sequence": 4}),
        ("the data are no inputs by name, but a ndarray", bert, {"sequence": 8, "calibration": np.zeros((2, 8))}),
        ("tells two texts apart.*: compile with pairs=True", bert, {"sequence": 8, "calibration": apart}),
        ("input 'input_ids' is no list of samples", bert, {"sequence": 8, "calibration": {"input_ids": 3}}),
        ("buckets is 4: give several lengths", bert, {"buckets": 4}),
        ("a sequence of '8' tokens is none", bert, {"buckets": (4, "8")}),
        ("from_pretrained has no option 'rings'", bert, {"sequence": 8, "rings": 32}),
        ("pairs is 'no': use True or False", bert, {"sequence": 8, "pairs": "no"}),
        ("size is -1: use a whole number", model("vit for classes"), {"size": -1}),
        ("the model computes in 16 bits: call float", model("bert").bfloat16(), {"sequence": 8}),
        ("input data lacks the input 'input_ids'", bert, {"sequence": 8, "calibration": {"attention_mask": [[1]]}}),
    ]
    for saying, source, options in cases:
        with pytest.raises(covey.CoveyError, match=saying):
            covey.from_pretrained(source, **options)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(covey.ModelError, match="'saved' needs transformers, which is not installed: pip install trans"):
        covey.from_pretrained("saved")
