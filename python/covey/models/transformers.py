"""The Transformers of the zoo, as their authors published them, with seeded, untrained weights.

BERT: arXiv:1810.04805, normalised after each block. ViT-B/16: arXiv:2010.11929, and GPT-2 of 124 million parameters
(Radford and others, 2019): both normalised before. XLM-R's layer (arXiv:1911.02116) is that of MPC-Pipe's
measurements, with ReLU between its dense layers. GPT-2 is one step: a token goes in, and the next one comes out.

Weights have the deviations that trained ones have: 0.05 for BERT's embeddings and 0.14 for GPT-2's, elsewhere such that
signals keep their size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from covey.models.network import Value
from covey.models.sequences import SequenceNetwork

Ids = npt.NDArray[np.int64]
Past = list[tuple[Value, Value]]
"""Keys and values of earlier tokens, layer by layer."""

HIDDEN = float(np.finfo(np.float32).min)
"""What BERT adds to the scores of padding."""

LATER = -1e9
"""What GPT-2 adds to the scores of slots without a token."""


@dataclass(frozen=True)
class Sizes:
    """Of a Transformer: the width of its rows, heads, the width between its dense layers, and layers."""

    hidden: int
    heads: int
    inner: int
    layers: int
    vocabulary: int = 0
    positions: int = 0
    image: int = 0
    patch: int = 0
    classes: int = 0
    epsilon: float = 1e-12

    @property
    def head(self) -> int:
        """The width of a head."""
        return self.hidden // self.heads

    @property
    def branch(self) -> float:
        """What a block's last weights are scaled by where sums are normalised only later: 1 / sqrt(blocks)."""
        return 1 / math.sqrt(2 * self.layers)


def bert(net: SequenceNetwork, sizes: Sizes, ids: Ids, mask: Ids) -> None:
    """BERT's encoder: ids and mask [N, S], the last hidden state [N, S, H]."""
    tokens, kept = net.given("input_ids", ids), net.given("attention_mask", mask)
    table = net.parameter("word.table", net.normal((sizes.vocabulary, sizes.hidden), 0.05))
    places = net.parameter("position.table", net.normal((sizes.positions, sizes.hidden), 0.02))
    kinds = net.parameter("kind.table", net.normal((2, sizes.hidden), 0.02))
    length = ids.shape[1]
    x = net.embedding("word", table, tokens)
    for name, rows, numbers in (("position", places, np.arange(length)), ("kind", kinds, np.zeros(length))):
        constant = numbers.astype(np.int64)[None]
        row = net.embedding(name, rows, Value(net.whole(f"{name}.ids", constant), constant))
        x = net.add(f"{name}.add", x, row)
    x = net.layer_norm("norm", x, sizes.epsilon)
    hidden = net.hidden("mask", kept, HIDDEN)
    for index in range(sizes.layers):
        x = _normalised_after(net, f"layer{index}", sizes, x, net.gelu, hidden)
    net.result("last_hidden_state", x)


def encoder_layers(net: SequenceNetwork, sizes: Sizes, rows: npt.NDArray[np.float32]) -> None:
    """Layers of BERT on hidden states [N, S, H], without embeddings and padding."""
    _layers(net, sizes, rows, net.gelu)


def relu_layers(net: SequenceNetwork, sizes: Sizes, rows: npt.NDArray[np.float32]) -> None:
    """The same with ReLU."""
    _layers(net, sizes, rows, net.relu)


def vit(net: SequenceNetwork, sizes: Sizes, images: npt.NDArray[np.float32]) -> None:
    """A vision Transformer: images [N, 3, size, size], logits [N, classes]."""
    image = net.given("image", images)
    x = net.conv("patches", image, sizes.hidden, sizes.patch, stride=sizes.patch)
    x = net.transpose("rows", net.reshape("flat", x, [sizes.hidden, (sizes.image // sizes.patch) ** 2]), (0, 2, 1))
    token = net.parameter("token", net.normal((1, 1, sizes.hidden), 0.5))
    x = net.concat("tokens", [net.for_each("token", token, image), x], axis=1)
    x = net.add("places", x, net.parameter("position", net.normal((1, *x.batch.shape[1:]), 0.5)))
    for index in range(sizes.layers):
        name = f"layer{index}"
        y = net.layer_norm(f"{name}.norm1", x, sizes.epsilon)
        x = net.add(f"{name}.add1", x, _attention(net, name, sizes, y, gain=sizes.branch))
        y = net.layer_norm(f"{name}.norm2", x, sizes.epsilon)
        x = net.add(f"{name}.add2", x, _between(net, name, sizes, y, net.gelu, gain=sizes.branch))
    x = net.at("first", net.layer_norm("norm", x, sizes.epsilon), 0)
    net.result("logits", net.dense("classifier", x, sizes.classes))


def gpt2(net: SequenceNetwork, sizes: Sizes, ids: Ids, places: Ids, mask: Ids) -> None:
    """One step of GPT-2: a token and its place [N, 1], the mask of a window [N, S]; the next token [N].

    `past_0`, `past_1` and so on are keys and values [N, heads, S - 1, size] of the window's other tokens, layer by
    layer, and `present_0` and so on those of the next step. They are zeros while the network is built.
    """
    length = mask.shape[1]
    x, table = _embedded(net, sizes, net.given("input_ids", ids), net.given("position_ids", places), length)
    hidden = net.hidden("mask", net.given("attention_mask", mask), LATER)
    empty = np.zeros((len(ids), sizes.heads, length - 1, sizes.head), np.float32)
    given = [net.given(f"past_{index}", empty) for index in range(2 * sizes.layers)]
    past = list(zip(given[::2], given[1::2], strict=True))
    x, present = _decoder(net, sizes, x, hidden, past)
    turned = net.transpose("head.weight", table, (1, 0))
    scores = net.matmul("head", net.at("last", net.layer_norm("norm", x, sizes.epsilon), 0), turned)
    net.result("next_token", net.largest_of("largest", scores))
    values = [each for pair in present for each in pair]
    for index, value in enumerate(values):
        net.result(f"present_{index}", net.later(f"present{index}", value, axis=2))


def gpt2_keys_and_values(sizes: Sizes, ids: Ids) -> list[npt.NDArray[np.float32]]:
    """Keys and values [N, heads, S, size] of sequences of tokens [N, S], layer by layer, as `gpt2`'s weights give them.

    A network of whole sequences draws the same weights in the same order.
    """
    net = SequenceNetwork("sequences")
    length = ids.shape[1]
    x, _ = _embedded(net, sizes, Value("ids", ids), Value("places", np.arange(length)[None]), length)
    causal = np.where(np.tri(length, dtype=bool), np.float32(0), np.float32(LATER))
    _, present = _decoder(net, sizes, x, Value("causal", causal), None)
    return [each.batch for pair in present for each in pair]


Activation = Callable[[str, Value], Value]


def _layers(net: SequenceNetwork, sizes: Sizes, rows: npt.NDArray[np.float32], activation: Activation) -> None:
    x = net.given("hidden_states", rows)
    for index in range(sizes.layers):
        x = _normalised_after(net, f"layer{index}", sizes, x, activation)
    net.result("last_hidden_state", x)


def _normalised_after(
    net: SequenceNetwork, name: str, sizes: Sizes, x: Value, activation: Activation, hidden: Value | None = None
) -> Value:
    """A layer whose sums are normalised: x [N, S, H] to [N, S, H]."""
    y = net.add(f"{name}.add1", _attention(net, name, sizes, x, hidden), x)
    x = net.layer_norm(f"{name}.norm1", y, sizes.epsilon)
    y = net.add(f"{name}.add2", _between(net, name, sizes, x, activation), x)
    return net.layer_norm(f"{name}.norm2", y, sizes.epsilon)


def _attention(
    net: SequenceNetwork, name: str, sizes: Sizes, x: Value, hidden: Value | None = None, gain: float = 1.0
) -> Value:
    """All rows attend to all; `hidden` is added to their scores."""
    query, key, value = (net.dense(f"{name}.{part}", x, sizes.hidden) for part in ("query", "key", "value"))
    query, key, value = (_heads(net, part, sizes) for part in (query, key, value))
    return _attended(net, name, sizes, query, key, value, hidden, gain)


def _heads(net: SequenceNetwork, x: Value, sizes: Sizes) -> Value:
    """[N, S, H] as [N, heads, S, size]."""
    name = x.name.removesuffix("_out")
    return net.transpose(f"{name}.turned", net.reshape(f"{name}.parted", x, [0, sizes.heads, sizes.head]), (0, 2, 1, 3))


def _attended(
    net: SequenceNetwork,
    name: str,
    sizes: Sizes,
    query: Value,
    key: Value,
    value: Value,
    hidden: Value | None,
    gain: float,
) -> Value:
    turned = net.transpose(f"{name}.key.transposed", key, (0, 1, 3, 2))
    scores = net.times(f"{name}.scaled", net.matmul(f"{name}.scores", query, turned), sizes.head**-0.5)
    if hidden is not None:
        scores = net.add(f"{name}.masked", scores, hidden)
    mixed = net.matmul(f"{name}.mixed", net.softmax(f"{name}.softmax", scores), value)
    joined = net.reshape(f"{name}.joined", net.transpose(f"{name}.back", mixed, (0, 2, 1, 3)), [0, sizes.hidden])
    return net.dense(f"{name}.out", joined, sizes.hidden, gain)


def _between(
    net: SequenceNetwork, name: str, sizes: Sizes, x: Value, activation: Activation, gain: float = 1.0
) -> Value:
    """Two dense layers and what stands between them."""
    inner = activation(f"{name}.activation", net.dense(f"{name}.inner", x, sizes.inner, gain=math.sqrt(2)))
    return net.dense(f"{name}.outer", inner, sizes.hidden, gain)


def _embedded(net: SequenceNetwork, sizes: Sizes, ids: Value, places: Value, length: int) -> tuple[Value, Value]:
    """The rows of GPT-2's tokens and the table they are from; of places there are only those of the window."""
    table = net.parameter("word.table", net.normal((sizes.vocabulary, sizes.hidden), 0.14))
    rows = net.normal((sizes.positions, sizes.hidden), 0.02)[:length]
    words = net.embedding("word", table, ids)
    return net.add("embedded", words, net.embedding("position", net.parameter("position.table", rows), places)), table


def _decoder(net: SequenceNetwork, sizes: Sizes, x: Value, hidden: Value, past: Past | None) -> tuple[Value, Past]:
    """GPT-2's layers, and the keys and values that they attended to."""
    present: Past = []
    for index in range(sizes.layers):
        name = f"layer{index}"
        y = net.dense(f"{name}.into", net.layer_norm(f"{name}.norm1", x, sizes.epsilon), 3 * sizes.hidden)
        query, key, value = (_heads(net, part, sizes) for part in net.split(f"{name}.parts", y, 3))
        if past is not None:
            key, value = (
                net.concat(f"{name}.{what}", [before, new], axis=2)
                for what, before, new in zip(("keys", "values"), past[index], (key, value), strict=True)
            )
        present.append((key, value))
        x = net.add(f"{name}.add1", x, _attended(net, name, sizes, query, key, value, hidden, sizes.branch))
        y = net.layer_norm(f"{name}.norm2", x, sizes.epsilon)
        x = net.add(f"{name}.add2", x, _between(net, name, sizes, y, _by_tanh(net), sizes.branch))
    return x, present


def _by_tanh(net: SequenceNetwork) -> Activation:
    return lambda name, x: net.gelu(name, x, tanh=True)


def padded(count: int, length: int) -> Ids:
    """Masks [N, S] of sequences that are as long as S, three quarters, a half and a quarter of it, in turn."""
    lengths = [max(1, length * (4 - index % 4) // 4) for index in range(count)]
    return (np.arange(length) < np.array(lengths)[:, None]).astype(np.int64)


def window(places: Sequence[int], length: int) -> Ids:
    """Masks [N, S] of GPT-2's window for tokens at these places of their sequences: the newest is last."""
    return (np.arange(length) >= length - 1 - np.array(places)[:, None]).astype(np.int64)
