"""generate: tokens by a language model, each as it comes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from covey.cli import console
from covey.cli.options import Device, Json, PartyCount, Protocol, Weights, check_protocol
from covey.cli.remote import protocol_of
from covey.cli.run import Local, Timeout
from covey.cli.sessions import session_of
from covey.errors import OptionError

if TYPE_CHECKING:
    pass

REPLACEMENT = "\ufffd"
"""What stands in text for bytes that are no character."""

ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", help="A .covey file that was compiled for generation.")]
Prompt = Annotated[str | None, typer.Option(metavar="IDS", help="The prompt's token ids, such as 464,3290.")]
Text = Annotated[str | None, typer.Option(help="The prompt as text; needs --tokenizer.")]
Tokenizer = Annotated[
    Path | None,
    typer.Option(metavar="tokenizer.json", help="Turns text into token ids and back here (pip install tokenizers)."),
]
Tokens = Annotated[int, typer.Option(min=1, help="Tokens to generate at most.")]
Stop = Annotated[int | None, typer.Option(metavar="ID", help="The token that ends the text.")]
Temperature = Annotated[
    float, typer.Option(min=0, help="0 takes the likeliest token; needs a program that gives scores.")
]
Seed = Annotated[int | None, typer.Option(help="Draw the same tokens again (with --temperature).")]
Config = Annotated[
    Path | None, typer.Option(metavar="client.toml", help="Parties on other machines, which hold the weights' shares.")
]


def generate(
    model: ModelFile,
    prompt: Prompt = None,
    text: Text = None,
    tokenizer: Tokenizer = None,
    tokens: Tokens = 16,
    stop: Stop = None,
    local: Local = False,
    config: Config = None,
    protocol: Protocol = "trio",
    parties: PartyCount = None,
    weights: Weights = None,
    temperature: Temperature = 0.0,
    seed: Seed = None,
    timeout: Timeout = 60.0,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Generate tokens privately: the parties learn neither prompt nor answer, and keep what they computed as shares."""
    from covey.generation import Generator
    from covey.model import load

    encode, decode = _tokenizer(tokenizer)
    ids = _prompt(prompt, text, encode)
    loaded = load(model, weights=weights)
    kind = protocol_of(config, None) if config is not None else check_protocol(protocol)
    with session_of(loaded, kind, config, local, parties, timeout, device, as_json) as session:
        generator = Generator(session, temperature=temperature, seed=seed)
        seconds, sent, made, before = 0.0, 0, list[int](), ""
        for index, token in enumerate(generator.generate(ids, tokens, stop=stop)):
            made.append(token.id)
            shown = decode(made)
            if as_json:
                console.say(json.dumps({"index": index, **asdict(token), "text": shown}))
            elif shown is None:
                console.say(
                    f"{token.id:>8}  {token.seconds:.3f} s  {console.amount(token.bytes)}, {token.rounds:,} rounds"
                )
            else:
                # A character may span tokens: until the last of them, its bytes are shown as replacements.
                settled = shown.rstrip(REPLACEMENT)
                if settled.startswith(before):
                    _print(settled.removeprefix(before))
                    before = settled
            # What the prompt takes is not what a token takes.
            seconds, sent = (0.0, 0) if index == 0 else (seconds + token.seconds, sent + token.bytes)
        if not as_json and (whole := decode(made)):
            _print(whole[len(before) :] + "\n")
    if not as_json and len(made) > 1:
        each = len(made) - 1
        console.say(
            f"{len(made)} tokens; {seconds / each:.3f} s and {console.amount(sent // each)} a token after the prompt"
        )


def _print(text: str) -> None:
    console.out().print(text, end="", markup=False, highlight=False)


def _tokenizer(path: Path | None) -> tuple[Callable[[str], list[int]] | None, Callable[[list[int]], str | None]]:
    """Text to token ids, and back; `None` where there is no tokenizer."""
    if path is None:
        return None, lambda ids: None
    try:
        import tokenizers
    except ImportError:
        raise OptionError(
            "--tokenizer needs the package tokenizers: pip install tokenizers, or give --prompt"
        ) from None
    try:
        loaded: Any = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the package raises plain exceptions
        raise OptionError(f"'{path}' is no tokenizer ({error}): give a tokenizer.json of Hugging Face") from None
    return lambda text: list(loaded.encode(text).ids), lambda ids: str(loaded.decode(ids))


def _prompt(prompt: str | None, text: str | None, encode: Callable[[str], list[int]] | None) -> list[int]:
    if (prompt is None) == (text is None):
        raise OptionError("give the prompt once: --prompt with token ids, or --text with --tokenizer")
    if text is not None:
        if encode is None:
            raise OptionError("--text needs --tokenizer tokenizer.json: the model reads token ids")
        return encode(text)
    try:
        return [int(part) for part in (prompt or "").split(",")]
    except ValueError:
        raise OptionError(f"prompt '{prompt}' is not token ids: write them as 464,3290") from None
