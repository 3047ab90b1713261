"""Generating tokens: the client's part of a program whose runs are the steps of a language model.

The client gives each step one token, its position and which slots of the window hold tokens; keys and values of the
tokens before stay with the parties, as shares. It gets the next token, or the scores to choose it by, and nothing else.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from covey.arguments import check_number, check_real
from covey.arrays import to_numpy
from covey.decoders import INPUTS, inputs
from covey.errors import DataError, ModelError, OptionError
from covey.model import Source
from covey.parties import local

if TYPE_CHECKING:
    from covey._core import Program
    from covey.inputs import Data
    from covey.result import Result

Stop: TypeAlias = "int | Iterable[int] | None"
"""The token that ends an answer, or several of which each does."""

AT_ONCE = 16
"""So many tokens of a prompt are one request."""


class Runs(Protocol):
    """A session with the parties, or one in the clear."""

    program: Program
    sequence: int

    def infer_all(self, inputs: Sequence[Data], *, continues: bool = False) -> Any:
        """One run for each of `inputs`, one after the other."""


@dataclass(frozen=True)
class Token:
    """A token that was generated, and what it took. `bytes` is the payload on all links, offline included."""

    id: int
    seconds: float
    bytes: int
    rounds: int


class Generator:
    """A sequence of tokens in a session: a prompt, then what the model makes of it.

    A session carries one sequence: where another one begins in it, this one cannot go on and says so.
    """

    def __init__(self, session: Runs, *, temperature: float = 0.0, seed: int | None = None) -> None:
        if not hasattr(session, "infer_all"):
            raise OptionError(
                f"a Generator takes a session, not a {type(session).__name__}: give it parties.session(program) or "
                f"client.session(program)"
            )
        check_real("temperature", temperature)
        if not math.isfinite(temperature):
            raise OptionError(f"temperature is {temperature:g}: give 0 for the likeliest token, or a positive number")
        if seed is not None:
            check_number("seed", seed)
        self.program = session.program
        self.classes, self.sequence = shape_of(self.program)
        self.temperature = temperature
        if temperature and self.program.outputs[0]["shape"] == []:
            raise OptionError("the program gives the next token alone: compile it with next_token='logits' to draw it")
        self._session = session
        self._draws = np.random.default_rng(seed)
        self._length = 0
        self._number: int | None = None
        """Which sequence of the session this is, while it can go on."""
        self._open: list[int] = []
        """The token that `generate` gave last, which is part of the sequence and has not been appended yet."""

    def feed(self, ids: Sequence[int]) -> Token:
        """Append tokens to the sequence; what the model gives after the last of them, which is not appended.

        Raises `DataError` for tokens that the model does not know, or more than its sequence holds.
        """
        return self._append([*self._open, *self._checked(ids)])

    def _append(self, ids: list[int]) -> Token:
        if not ids:
            raise DataError("the prompt is empty: give at least one token")
        self._need_room(len(ids))
        if self._length and self._number != self._session.sequence:
            raise OptionError(
                "this sequence cannot go on: another one began in its session, or a run of it failed; make a new "
                "Generator, and a session for each of several"
            )
        self._number = None  # until all went well: a run that fails may leave keys and values of some of the tokens
        start = time.perf_counter()
        sent, rounds = 0, 0
        for first in range(0, len(ids), AT_ONCE):
            part = ids[first : first + AT_ONCE]
            places = range(self._length, self._length + len(part))
            given = [
                inputs(np.array([[token]]), place, self.sequence) for token, place in zip(part, places, strict=True)
            ]
            done = self._session.infer_all(given, continues=self._length > 0)
            self._length += len(part)
            sent += done.work.profile.total.bytes
            rounds += done.work.profile.total.rounds
            last = done.results[-1]
        self._number = self._session.sequence
        self._open = []
        return Token(self._choose(last), time.perf_counter() - start, sent, rounds)

    def generate(self, prompt: Sequence[int], tokens: int, *, stop: Stop = None) -> Iterator[Token]:
        """Up to `tokens` tokens after the prompt, each as it comes; fewer where the token `stop`, or one of it, comes.

        They are part of the sequence: a further prompt comes after the last of them, and may be empty.
        """
        check_number("tokens", tokens, 1)
        ends = self._ends(stop)
        ids = [*self._open, *self._checked(prompt)]
        if self._length + len(ids) + tokens - 1 > self.sequence:
            raise DataError(
                f"{self._length + len(ids)} tokens and {tokens} new ones: the program was compiled for sequences of "
                f"{self.sequence}; compile it for longer ones, or ask for fewer"
            )
        for _ in range(tokens):
            latest = self._append(ids)
            self._open = ids = [latest.id]
            yield latest
            if latest.id in ends:
                return

    def _checked(self, ids: Sequence[int]) -> list[int]:
        found = to_numpy(ids, [], "prompt")
        if isinstance(found, np.ndarray):
            found = found.tolist() if found.ndim == 1 else [found]
        if not isinstance(found, Iterable) or isinstance(found, str | bytes):
            raise DataError(f"the prompt is {ids!r}: give token ids, such as [464, 3290]")
        found = list(found)
        for index, token in enumerate(found):
            if not isinstance(token, int | np.integer) or isinstance(token, bool):
                raise DataError(f"token {token!r} at {index} is no whole number: give one list of token ids")
            if not 0 <= token < self.classes:
                raise DataError(
                    f"token {token} at {index} is not in the model's vocabulary: give numbers from 0 to "
                    f"{self.classes - 1}"
                )
        return [int(token) for token in found]

    def _ends(self, stop: Stop) -> frozenset[int]:
        """The tokens that end an answer."""
        ends: list[Any] = []
        if stop is not None:
            ends = [*stop] if isinstance(stop, Iterable) and not isinstance(stop, str | bytes) else [stop]
        for end in ends:
            check_number("stop", end, 0, self.classes - 1)
        return frozenset(int(end) for end in ends)

    def _need_room(self, more: int) -> None:
        if self._length + more > self.sequence:
            raise DataError(
                f"a sequence of {self._length + more} tokens: the program was compiled for {self.sequence}; "
                f"compile it for longer ones"
            )

    def _choose(self, result: Result) -> int:
        output = next(iter(result.outputs.values()))[0]
        if output.ndim == 0:
            return int(output)
        if not self.temperature:
            return int(output.argmax())
        powers = np.exp((output - output.max()) / self.temperature)
        return int(self._draws.choice(len(output), p=powers / powers.sum()))


def generate(
    model: Source,
    prompt: Sequence[int],
    tokens: int,
    *,
    protocol: str = "trio",
    stop: Stop = None,
    temperature: float = 0.0,
    seed: int | None = None,
    timeout: float = 60.0,
    device: str | None = None,
) -> Iterator[Token]:
    """Up to `tokens` tokens after the prompt by parties on this machine, each as it comes.

    With parties elsewhere: `Generator(client.session(program)).generate(prompt, tokens)`.
    """
    with local(protocol, timeout=timeout, device=device) as parties:
        generator = Generator(parties.session(model), temperature=temperature, seed=seed)
        yield from generator.generate(prompt, tokens, stop=stop)


def shape_of(program: Program) -> tuple[int, int]:
    """The vocabulary's size and the longest sequence of a program for generation. Raises `ModelError` for others."""
    found = {entry["name"]: entry for entry in program.inputs}
    if set(found) != set(INPUTS) or not program.carried or not found["input_ids"].get("classes"):
        raise ModelError(
            f"'{program.name}' is no program for generation: make one with covey.from_pretrained and "
            f"next_token='argmax'"
        )
    return int(found["input_ids"]["classes"][0]), int(found["attention_mask"]["shape"][0])
