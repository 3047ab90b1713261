"""Generation: each step equals the specification, and greedy tokens are those of the model in floating point."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import covey
from command import Command
from covey import decoders
from covey.clear import ClearSession
from covey.errors import CoveyError
from covey.generation import Generator
from covey.model import Model, load
from covey.parties import Parties

torch = pytest.importorskip("torch", reason="models for generation are PyTorch modules: pip install torch")
transformers = pytest.importorskip("transformers", reason="the models are of Hugging Face: pip install transformers")

SEQUENCE, VOCABULARY = 16, 31
PROMPT, TOKENS = [3, 1, 4, 1, 5], 8
NO_ENDS = {"bos_token_id": None, "eos_token_id": None, "initializer_range": 0.3}


def gpt2(**changes: Any) -> Any:
    options = {"n_layer": 2, "n_head": 2, "n_embd": 16, "vocab_size": VOCABULARY, "n_positions": 32}
    torch.manual_seed(1)
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**(options | NO_ENDS | changes))).eval()


def llama(**changes: Any) -> Any:
    options = {
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "hidden_size": 32,
        "intermediate_size": 48,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 32,
    }
    torch.manual_seed(1)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**(options | NO_ENDS | changes))).eval()


def llama_like(kind: str) -> Any:
    """A small model of another kind, whose factors are none of 1."""
    sizes = {
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 32, "head_dim": 8,
        "intermediate_size": 48, "vocab_size": VOCABULARY, "max_position_embeddings": 32, "pad_token_id": 0,
    }  # fmt: skip
    factors = ("embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling")
    more = {
        "granite": dict(zip(factors, (1.5, 0.7, 0.3, 1.25), strict=True)),
        "mistral": {"sliding_window": SEQUENCE},
        "smollm3": {"no_rope_layers": [1, 0]},
    }
    config = transformers.AutoConfig.for_model(kind, **(sizes | NO_ENDS | more.get(kind, {})))
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    for weight in model.parameters():
        if weight.dim() == 1:  # norms and biases, which begin as nothing
            torch.nn.init.normal_(weight, mean=weight[0].item(), std=0.1)
    return model


def greedy(model: Any, prompt: list[int] = PROMPT, tokens: int = TOKENS) -> list[int]:
    ids = list(prompt)
    with torch.no_grad():
        for _ in range(tokens):
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    return ids[len(prompt) :]


def steps(model: Any, next_token: str = "argmax") -> covey.Compiled:
    compiled = covey.from_pretrained(model, sequence=SEQUENCE, next_token=next_token)
    assert isinstance(compiled, covey.Compiled)
    return compiled


@pytest.fixture(scope="module")
def small() -> Model:
    return load(steps(gpt2()))


GPT2 = {
    "gpt2": {},
    "gpt2 that divides attention by layers": {"scale_attn_by_inverse_layer_idx": True},
    "gpt2 without a scale of attention": {"scale_attn_weights": False},
}


@pytest.mark.parametrize("kind", [*GPT2, *decoders.LLAMA_LIKE])
def test_a_step_computes_what_the_whole_model_does(kind: str) -> None:
    model = gpt2(**GPT2[kind]) if kind in GPT2 else llama_like(kind)
    step = decoders.step_of(model, SEQUENCE, "logits")
    ids = torch.randint(0, VOCABULARY, (2, 10))
    with torch.no_grad():
        due = model(ids).logits
        past = tuple(decoders.empty(step, 2, SEQUENCE))
        for place in range(10):
            given = decoders.inputs(ids[:, place : place + 1].numpy(), place, SEQUENCE)
            scores, *past = step(*(torch.from_numpy(array) for array in given.values()), *past)
            assert torch.allclose(scores, due[:, place], atol=1e-5)


@pytest.mark.parametrize("make", [gpt2, llama])
def test_tokens_are_those_of_the_model_in_the_clear_and_by_parties(make: Any, parties: Parties) -> None:
    model = make()
    due, loaded = greedy(model), load(steps(model))
    assert len(set(due)) > 1, "the tokens say nothing"
    clear = [token.id for token in Generator(ClearSession(loaded)).generate(PROMPT, TOKENS)]
    private = list(Generator(parties.session(loaded)).generate(PROMPT, TOKENS))
    assert clear == due == [token.id for token in private]
    # A token takes the same however long the sequence is, and a prompt as much for each of its tokens.
    first, *rest = private
    assert len({(token.bytes, token.rounds) for token in rest}) == 1
    assert first.bytes == len(PROMPT) * rest[0].bytes > 0


def test_scores_are_chosen_from_by_the_client() -> None:
    loaded = load(steps(gpt2(), next_token="logits"))
    likeliest = [token.id for token in Generator(ClearSession(loaded)).generate(PROMPT, TOKENS)]
    assert likeliest == greedy(gpt2())

    def drawn(seed: int) -> list[int]:
        generator = Generator(ClearSession(loaded), temperature=2.0, seed=seed)
        return [token.id for token in generator.generate(PROMPT, TOKENS)]

    assert drawn(1) == drawn(1)
    assert len({tuple(drawn(seed)) for seed in range(4)}) > 1


def test_a_sequence_goes_on_and_stops(small: Model) -> None:
    generator = Generator(ClearSession(small))
    parts = [generator.feed(PROMPT[:2]), generator.feed(PROMPT[2:])]
    whole = Generator(ClearSession(small)).feed(PROMPT)
    assert parts[-1].id == whole.id
    stopped = list(Generator(ClearSession(small)).generate(PROMPT, TOKENS, stop=whole.id))
    assert [token.id for token in stopped] == [whole.id]


def test_a_further_prompt_comes_after_the_whole_answer(small: Model) -> None:
    generator, model = Generator(ClearSession(small)), gpt2()

    def answer(prompt: list[int], tokens: int) -> list[int]:
        return [token.id for token in generator.generate(prompt, tokens)]

    said = [*PROMPT, *answer(PROMPT, 3), 7, 2]
    found = answer([7, 2], 2)
    assert found == greedy(model, said, 2)
    said += found
    with pytest.raises(CoveyError, match="12 tokens and 6 new ones: the program was compiled for sequences of 16"):
        answer([], 6)
    going_on = generator.generate([], 3)
    said.append(next(going_on).id)  # and the others are not asked for
    assert generator.feed([9]).id == greedy(model, [*said, 9], 1)[0]
    assert generator.feed([4]).id == greedy(model, [*said, 9, 4], 1)[0]
    assert said[-1] == greedy(model, said[:-1], 1)[0]


def test_tokens_that_are_fed_by_hand_are_appended_once(small: Model) -> None:
    generator, ids = Generator(ClearSession(small)), list(PROMPT)
    latest = generator.feed(ids)
    for _ in range(3):
        ids.append(latest.id)
        latest = generator.feed([latest.id])
    assert [*ids[len(PROMPT) :], latest.id] == greedy(gpt2(), PROMPT, 4)
    found = [token.id for token in generator.generate([latest.id, 7], 2)]
    assert found == greedy(gpt2(), [*ids, latest.id, 7], 2)


def test_a_session_carries_one_sequence(small: Model, parties: Parties) -> None:
    for session in (ClearSession(small), parties.session(small)):
        first, second = Generator(session), Generator(session)
        first.feed(PROMPT)
        second.feed(PROMPT[:2])
        with pytest.raises(CoveyError, match="this sequence cannot go on: another one began in its session"):
            first.feed([1])
        assert second.feed(PROMPT[2:]).id == greedy(gpt2())[0]
        session.infer(decoders.inputs(np.array([[1]]), 0, SEQUENCE))
        with pytest.raises(CoveyError, match="this sequence cannot go on"):
            second.feed([1])


def test_a_sequence_does_not_go_on_after_a_run_that_failed(small: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    session = ClearSession(small)
    generator = Generator(session)
    generator.feed(PROMPT)
    whole = session.infer_all

    def half(inputs: Any, *, continues: bool = False) -> Any:
        whole(inputs[:1], continues=continues)
        raise CoveyError("a party is gone")

    monkeypatch.setattr(session, "infer_all", half)
    with pytest.raises(CoveyError, match="a party is gone"):
        generator.feed([1, 2])
    monkeypatch.undo()
    with pytest.raises(CoveyError, match="another one began in its session, or a run"):
        generator.feed([1, 2])


@pytest.mark.parametrize(
    ("prompt", "tokens", "problem"),
    [
        ([], 1, "the prompt is empty"),
        ([3, VOCABULARY], 1, f"token {VOCABULARY} at 1 is not in the model's vocabulary: give numbers from 0 to 30"),
        ([-1], 1, "token -1 at 0 is not in the model's vocabulary"),
        (PROMPT, 13, "5 tokens and 13 new ones: the program was compiled for sequences of 16"),
        (PROMPT, 0, "tokens is 0: use a whole number of at least 1"),
        (PROMPT, 2.5, "tokens is 2.5: use a whole number of at least 1"),
        (PROMPT, True, "tokens is True: use a whole number of at least 1"),
        ([3.7, 1], 1, "token 3.7 at 0 is no whole number: give one list of token ids"),
        ([3, True], 1, "token True at 1 is no whole number"),
        ([PROMPT], 1, "token [3, 1, 4, 1, 5] at 0 is no whole number"),
        (torch.tensor([PROMPT]), 1, "at 0 is no whole number"),
        ("314", 1, "the prompt is '314': give token ids, such as [464, 3290]"),
        (None, 1, "the prompt is None: give token ids"),
    ],
)
def test_what_cannot_be_generated_is_refused(small: Model, prompt: Any, tokens: Any, problem: str) -> None:
    with pytest.raises(CoveyError, match=re.escape(problem)):
        list(Generator(ClearSession(small)).generate(prompt, tokens))


@pytest.mark.parametrize(
    "prompt", [np.array(PROMPT), torch.tensor(PROMPT), tuple(PROMPT)], ids=["array", "tensor", "tuple"]
)
def test_prompts_are_ids_of_any_kind(small: Model, prompt: Any) -> None:
    assert Generator(ClearSession(small)).feed(prompt).id == greedy(gpt2())[0]


def test_any_of_several_tokens_ends_an_answer(small: Model) -> None:
    due = greedy(gpt2())
    other = next(token for token in range(VOCABULARY) if token not in due)
    for stop in (due[0], np.int64(due[0]), [other, due[0]], {due[0]}, torch.tensor([due[0], other]).numpy()):
        found = list(Generator(ClearSession(small)).generate(PROMPT, 3, stop=stop))
        assert [token.id for token in found] == due[:1]
    for wrong in ("0", 1.0, True, [1, "0"], VOCABULARY, -1):
        with pytest.raises(CoveyError, match=r"stop is .*: use a whole number from 0 to 30"):
            next(Generator(ClearSession(small)).generate(PROMPT, 3, stop=wrong))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"temperature": "1"}, "temperature is '1': use a number of at least 0"),
        ({"temperature": float("nan")}, "temperature is nan: use a number of at least 0"),
        ({"temperature": float("inf")}, "temperature is inf: give 0 for the likeliest token"),
        ({"seed": -1}, "seed is -1: use a whole number of at least 0"),
        ({"seed": 1.5}, "seed is 1.5: use a whole number of at least 0"),
    ],
)
def test_options_of_a_generator(small: Model, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(CoveyError, match=re.escape(problem)):
        Generator(ClearSession(small), **options)


def test_a_generator_takes_a_session(small: Model) -> None:
    with pytest.raises(CoveyError, match=r"a Generator takes a session, not a Model: give it parties\.session"):
        Generator(small)  # type: ignore[arg-type]


def test_a_model_is_compiled_before_it_generates() -> None:
    with pytest.raises(CoveyError, match=r"compile it first with covey\.compile, or with covey\.from_pretrained"):
        next(covey.generate(gpt2(), PROMPT, 1))


def test_temperature_needs_scores(small: Model) -> None:
    with pytest.raises(CoveyError, match="gives the next token alone"):
        Generator(ClearSession(small), temperature=1.0)


def test_models_that_have_no_steps_are_refused() -> None:
    bert = transformers.BertModel(
        transformers.BertConfig(
            num_hidden_layers=1, hidden_size=8, num_attention_heads=2, intermediate_size=8, vocab_size=9
        )
    ).eval()
    with pytest.raises(CoveyError, match="cannot generate here: give GPT2LMHeadModel, or a causal model of gemma, "):
        decoders.step_of(bert, SEQUENCE)
    with pytest.raises(CoveyError, match="a sequence of 64 tokens: this model takes 2 to 32"):
        decoders.step_of(gpt2(), 64)
    with pytest.raises(CoveyError, match=r"call eval\(\) on it first"):
        decoders.step_of(gpt2().train(), SEQUENCE)
    scaling = {
        "rope_type": "longrope", "original_max_position_embeddings": 4, "factor": 8.0, "short_factor": [1.0] * 4,
        "long_factor": [2.0] * 4,
    }  # fmt: skip
    with pytest.raises(CoveyError, match="turns its positions otherwise beyond 4 tokens"):
        decoders.step_of(llama(rope_scaling=scaling), SEQUENCE)


def test_the_command_prints_tokens_as_they_come(small: Model, tmp_path: Path, command: Command) -> None:
    program, _, _ = steps(gpt2()).save(tmp_path / "small.covey")
    prompt = ",".join(map(str, PROMPT))
    out = command.succeeds("generate", program, "--prompt", prompt, "--tokens", 3, "--protocol", "clear", "--json").out
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["id"] for row in rows] == greedy(gpt2())[:3]
    shown = command.succeeds("generate", program, "--prompt", prompt, "--tokens", 3, "--local").out
    assert shown.splitlines()[-1].startswith("3 tokens; ")
    command.refuses("generate", program, "--local", saying="give the prompt once")
    command.refuses("generate", program, "--prompt", "a,b", "--local", saying="prompt 'a,b' is not token ids")
    command.refuses("generate", program, "--prompt", prompt, saying="say --local to run the parties on this machine")
    command.refuses("generate", program, "--text", "hello", "--local", saying="--text needs --tokenizer")


def test_a_tokenizer_turns_text_into_ids_and_back(tmp_path: Path, command: Command) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="text needs a tokenizer: pip install tokenizers")
    words = {f"w{index}": index for index in range(VOCABULARY)}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "tokenizer.json"))
    program, _, _ = steps(gpt2()).save(tmp_path / "small.covey")
    text = " ".join(f"w{token}" for token in PROMPT)
    arguments = ["--tokens", 3, "--protocol", "clear", "--tokenizer", tmp_path / "tokenizer.json"]
    out = command.succeeds("generate", program, "--text", text, *arguments).out
    assert out.splitlines()[0] == " ".join(f"w{token}" for token in greedy(gpt2())[:3])
    (tmp_path / "bad.json").write_text("{")
    command.refuses(
        "generate", program, "--text", text, "--tokenizer", tmp_path / "bad.json", saying="bad.json' is no tokenizer"
    )


def test_characters_that_span_tokens_are_printed_once(tmp_path: Path, command: Command) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="text needs a tokenizer: pip install tokenizers")
    # The answer ends with the two bytes of é, as byte-level tokenizers write them, and what is before is text as it is.
    answer = greedy(gpt2())[:3]
    words = dict(zip("\u00c3\u00a9", answer[1:], strict=True))
    others = (token for token in range(VOCABULARY) if token not in answer[1:])
    words |= {chr(ord("A") + index): token for index, token in enumerate(others)}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(words, []))
    made.decoder = tokenizers.decoders.ByteLevel()
    made.save(str(tmp_path / "tokenizer.json"))
    assert made.decode(answer).endswith("é") and made.decode(answer[:2]).endswith("\ufffd")
    program, _, _ = steps(gpt2()).save(tmp_path / "small.covey")
    prompt = ",".join(map(str, PROMPT))
    for tokens, text in ((3, made.decode(answer)), (2, made.decode(answer[:2]))):
        arguments = ["--tokens", tokens, "--protocol", "clear", "--tokenizer", tmp_path / "tokenizer.json"]
        assert command.succeeds("generate", program, "--prompt", prompt, *arguments).out.splitlines()[0] == text


def test_what_calibrates_generation_is_checked() -> None:
    for options, problem in (
        ({"calibration": [[1, 2], [3]]}, "calibration data are lists of several lengths: give whole numbers [N, T]"),
        ({"sequence": "8"}, "a sequence of '8' tokens: this model takes 2 to 32"),
        ({"sequence": 24.0}, "a sequence of 24.0 tokens: this model takes 2 to 32"),
        ({"carry": {}}, "from_pretrained has no option 'carry'"),
        ({"size": 5}, "size is that of images, and 'gpt2' takes none"),
    ):
        given: dict[str, Any] = {"sequence": SEQUENCE, "next_token": "argmax", **options}
        with pytest.raises(CoveyError, match=re.escape(problem)):
            covey.from_pretrained(gpt2(), **given)
    with pytest.raises(CoveyError, match=r"the model computes in 16 bits: call float\(\) on it first"):
        covey.from_pretrained(gpt2().bfloat16(), sequence=SEQUENCE, next_token="argmax")


def test_samples_of_steps_are_spread_over_the_sequence() -> None:
    step = decoders.step_of(gpt2(), SEQUENCE)
    tokens = np.arange(20, dtype=np.int64).reshape(2, 10)
    samples = decoders.steps(step, tokens, SEQUENCE, 6)
    places = samples["position_ids"][:, 0]
    assert places.tolist() == [9, 0, 7, 4, 2, 5]
    assert samples["input_ids"][:, 0].tolist() == [19, 0, 7, 4, 12, 15]
    assert samples["attention_mask"].sum(axis=1).tolist() == (places + 1).tolist()
    assert samples["past_0"].shape == (6, 2, SEQUENCE - 1, 8)
    assert not samples["past_0"][1].any() and samples["past_0"][0].any()


@pytest.mark.parametrize("texts", [1, 2, 8, 9, 16, 17, 64])
def test_every_text_and_the_ends_of_the_sequence_are_among_the_steps(texts: int) -> None:
    steps = decoders.spread_steps(texts, 48, decoders.CALIBRATED)
    assert {text for text, _ in steps} == set(range(texts))
    assert len(steps) == len(set(steps)) == max(texts, decoders.CALIBRATED)
    # Of large models four samples are measured.
    assert {place for _, place in steps[:2]} == {0, 47} and len({place for _, place in steps[:4]}) == 4
    assert max(np.diff(sorted(place for _, place in steps))) <= 4


def test_short_texts_give_all_their_steps() -> None:
    assert sorted(decoders.spread_steps(2, 3, 16)) == [(text, place) for text in range(2) for place in range(3)]


@pytest.mark.parametrize("texts", [9, 64])
def test_many_texts_say_as_much_as_few(texts: int) -> None:
    model, length = gpt2(initializer_range=0.1, n_embd=32), 32
    calibration = np.random.default_rng(3).integers(0, VOCABULARY, (texts, length))
    compiled = covey.from_pretrained(model, sequence=length, next_token="logits", calibration=calibration)
    assert isinstance(compiled, covey.Compiled)
    ids = np.random.default_rng(1).integers(0, VOCABULARY, length)
    with torch.no_grad():
        due = model(torch.from_numpy(ids[None])).logits[0].numpy()
    steps = [decoders.inputs(np.array([[token]]), place, length) for place, token in enumerate(ids)]
    done = ClearSession(load(compiled)).infer_all(steps)  # a value beyond its bound would end it
    scores = np.concatenate([next(iter(result.outputs.values())) for result in done.results])
    assert np.linalg.norm(scores - due) <= 0.02 * np.linalg.norm(due)
