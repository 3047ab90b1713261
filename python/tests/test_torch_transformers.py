"""Normalisation, attention and encoders as torch.export writes them, against PyTorch itself."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import covey
import interpreter
from covey.ops.comparison import Less
from covey.ops.softmax import Softmax

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn, functional = torch.nn, torch.nn.functional

from test_torch import Apply, agrees, image  # noqa: E402

IMAGE, TOKENS = (2, 4, 9, 8), (2, 5, 12)


class Attention(nn.Module):
    """Heads that are split and joined by hand around PyTorch's attention."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options
        self.into, self.out = nn.Linear(12, 36), nn.Linear(12, 12)

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        parts = self.into(x).reshape(batch, length, 3, 3, 4).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(parts[0], parts[1], parts[2], **self.options)
        return self.out(attended.transpose(1, 2).reshape(batch, length, width))


CASES: dict[str, tuple[Any, tuple[int, ...]]] = {
    "layer norm": (lambda: nn.LayerNorm(12), TOKENS),
    "layer norm without weights": (lambda: nn.LayerNorm(12, elementwise_affine=False), TOKENS),
    "layer norm of two dimensions": (lambda: nn.LayerNorm((9, 8)), IMAGE),
    "rms norm": (lambda: nn.RMSNorm(12, eps=1e-5), TOKENS),
    "group norm": (lambda: nn.GroupNorm(2, 4), IMAGE),
    "instance norm": (lambda: nn.InstanceNorm2d(4, affine=True), IMAGE),
    "attention": (Attention, TOKENS),
    "causal attention": (lambda: Attention(is_causal=True), TOKENS),
    "attention of another scale": (lambda: Attention(scale=0.3), TOKENS),
    "attention under a mask": (lambda: Attention(attn_mask=torch.ones(5, 5, dtype=torch.bool).tril(1)), TOKENS),
    "gelu behind a norm": (lambda: nn.Sequential(nn.LayerNorm(12), nn.Linear(12, 6), nn.GELU("tanh")), TOKENS),
    "softmax of scores by hand": (
        lambda: Apply(lambda self, x: torch.softmax(x @ x.transpose(1, 2) / 3.4, -1) @ x),
        TOKENS,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_module(case: str) -> None:
    torch.manual_seed(1)
    make, shape = CASES[case]
    module = make()
    for part in module.parameters():
        nn.init.normal_(part, std=0.5)
    agrees(module, image(*shape))


class Own(nn.Module):
    """A module's attention to its own tokens, or to others, under what may be public or secret masks."""

    def __init__(self, part: Any, how: Any) -> None:
        super().__init__()
        self.part, self.how = part, how

    def forward(self, *inputs: Any) -> Any:
        return self.how(self.part, *inputs)


def encoder(**options: Any) -> Any:
    layer = nn.TransformerEncoderLayer(12, 3, 20, batch_first=True, **options)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def attention(**options: Any) -> Any:
    return nn.MultiheadAttention(12, 3, batch_first=True, **options)


class Learned(nn.Module):
    """Attention with queries, or keys and values, that are the module's own."""

    def __init__(self) -> None:
        super().__init__()
        self.attend, self.second = attention(), nn.MultiheadAttention(12, 3)
        self.own = nn.Parameter(torch.randn(7, 12))

    def each(self, x: Any) -> Any:
        return self.own.expand(len(x), -1, -1)

    def queries(self, x: Any, weights: bool = False) -> Any:
        return self.attend(self.each(x), x, x, need_weights=weights)[0]

    def memory(self, x: Any, weights: bool = False) -> Any:
        return self.attend(x, self.each(x), self.each(x), need_weights=weights)[0]

    def turned(self, x: Any) -> Any:
        memory = x.transpose(0, 1)
        return self.second(self.own[:, None].repeat(1, x.shape[0], 1), memory, memory)[0].transpose(0, 1)

    def product(self, x: Any, **options: Any) -> Any:
        return functional.scaled_dot_product_attention(self.own.expand(x.shape[0], -1, -1), x, x, **options)


def padding(samples: int, length: int) -> Any:
    """1 where a token is none, in each sample at another place."""
    return torch.arange(length)[None] >= torch.tensor([length, 3, 2, 1, length - 1])[:samples, None]


OTHERS = image(4, 6, 12)
ENCODERS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "layer": (lambda: nn.TransformerEncoderLayer(12, 3, 20, batch_first=True), ()),
    "layer of gelu with its norm first": (
        lambda: nn.TransformerEncoderLayer(12, 3, 20, batch_first=True, activation="gelu", norm_first=True),
        (),
    ),
    "encoder": (encoder, ()),
    "decoder layer": (lambda: nn.TransformerDecoderLayer(12, 3, 20, batch_first=True), (OTHERS,)),
    "attention": (lambda: Own(attention(), lambda part, x: part(x, x, x, need_weights=False)[0]), ()),
    "attention and its weights": (lambda: Own(attention(), lambda part, x: part(x, x, x)), ()),
    "learned queries": (lambda: Own(Learned(), lambda part, x: part.queries(x)), ()),
    "learned queries and their weights": (lambda: Own(Learned(), lambda part, x: part.queries(x, weights=True)), ()),
    "learned memory": (lambda: Own(Learned(), lambda part, x: part.memory(x)), ()),
    "learned memory and its weights": (lambda: Own(Learned(), lambda part, x: part.memory(x, weights=True)), ()),
    "learned queries, the batch second": (lambda: Own(Learned(), lambda part, x: part.turned(x)), ()),
    "learned queries, causal": (lambda: Own(Learned(), lambda part, x: part.product(x, is_causal=True)), ()),
    "learned queries, a mask": (
        lambda: Own(
            Learned(),
            lambda part, x, none: part.product(x, attn_mask=~none[:, None] | torch.eye(7, 5, dtype=torch.bool)),
        ),
        (padding(4, 5),),
    ),
    "attention to other sizes": (
        lambda: Own(attention(kdim=12, vdim=8), lambda part, x, y: part(x, y, y[:, :, :8])[0]),
        (OTHERS,),
    ),
    "attention that is turned within": (
        lambda: Own(
            nn.MultiheadAttention(12, 3),
            lambda part, x: part(*[x.transpose(0, 1)] * 3, need_weights=False)[0].transpose(0, 1),
        ),
        (),
    ),
    "causal encoder": (
        lambda: Own(
            encoder(),
            lambda part, x: part(x, nn.Transformer.generate_square_subsequent_mask(x.shape[1]), is_causal=True),
        ),
        (),
    ),
    "padded encoder": (
        lambda: Own(encoder(), lambda part, x, none: part(x, src_key_padding_mask=none)),
        (padding(4, 5),),
    ),
    "padded attention": (
        lambda: Own(attention(), lambda part, x, none: part(x, x, x, key_padding_mask=none, need_weights=False)[0]),
        (padding(4, 5),),
    ),
    "padded where a mask of whole numbers is 0": (
        lambda: Own(attention(), lambda part, x, mask: part(x, x, x, key_padding_mask=mask == 0)[0]),
        (1 - padding(4, 5).long(),),
    ),
}


@pytest.mark.parametrize("case", ENCODERS)
def test_encoder(case: str) -> None:
    torch.manual_seed(1)
    make, more = ENCODERS[case]
    graph = agrees(make(), image(4, 5, 12), *more)
    softmaxes = [node for node in graph.nodes if isinstance(node.op, Softmax)]
    assert softmaxes
    if "padded" in case:
        assert all(len(node.inputs) == 2 for node in softmaxes)
    if "causal" in case:
        assert all(node.op.mask is not None and len(node.inputs) == 1 for node in softmaxes)


def test_an_encoder_whose_tokens_come_first_is_refused() -> None:
    module = nn.TransformerEncoderLayer(12, 3, 20).eval()
    with pytest.raises(covey.UnsupportedError, match="make modules of attention with batch_first=True, or transpose"):
        covey.compile(module, (image(5, 4, 12),))


@pytest.mark.parametrize("padded", [False, True])
def test_an_encoder_is_private(padded: bool) -> None:
    torch.manual_seed(1)
    x = image(4, 5, 12)
    if padded:
        module, inputs = ENCODERS["padded encoder"][0](), (x, padding(4, 5))
    else:
        module, inputs = encoder(), (x,)
    compiled = covey.compile(module.eval(), inputs, max_error=0.01)
    data = {name: tensor.numpy() for name, tensor in zip(compiled.graph.inputs, inputs, strict=True)}
    verdict = covey.verify(compiled, "trio", data=data, samples=4)
    assert verdict.passed, verdict.failure


class Biased(nn.Module):  # type: ignore[misc]
    """Attention whose mask holds a bias of positions, and masks the keys that do not count, as T5 writes it."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(1, 3, 5, 5))

    def forward(self, x: Any, counted: Any) -> Any:
        heads = x.reshape(x.shape[0], 5, 3, 4).transpose(1, 2)
        least = torch.finfo(torch.float32).min
        mask = torch.where(counted[:, None, None, :].to(torch.bool).expand(-1, -1, 5, 5), self.bias, least)
        once = functional.scaled_dot_product_attention(heads, heads, heads, attn_mask=mask)
        return functional.scaled_dot_product_attention(once, once, once, attn_mask=mask)


def test_a_mask_that_holds_a_bias() -> None:
    torch.manual_seed(1)
    module, x = Biased().eval(), torch.randn(3, 5, 12)
    counted = (torch.arange(5) < torch.tensor([[5], [3], [1]])).to(torch.int64)
    agrees(module, x, counted)


LEAST = torch.finfo(torch.float32).min


class Masked(nn.Module):  # type: ignore[misc]
    """Scores under a mask of keys, as BERT writes it."""

    def forward(self, x: Any, mask: Any) -> Any:
        scores = x + (1 - mask[:, None].float()) * LEAST
        return scores.softmax(-1) @ x


def tril(x: Any) -> Any:
    return torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()


EMPTY_ROWS: dict[str, Any] = {
    "least": lambda x, mask: (x + (1 - mask) * LEAST).softmax(-1) @ x,
    "long rows": lambda x, mask: (x + (1 - mask) * LEAST).softmax(-1) @ x[..., :1],
    "-1e9": lambda x, mask: (x + (1 - mask) * -1e9).softmax(-1) @ x,
    "-1e4": lambda x, mask: (x + (1 - mask) * -1e4).softmax(-1) @ x,
    "filled": lambda x, mask: x.masked_fill(mask < 0.5, -1e4).softmax(-1) @ x,
    "chosen": lambda x, mask: (x + torch.where(mask > 0.5, 0.0, LEAST)).softmax(-1) @ x,
    "causal": lambda x, mask: (x + torch.where((mask > 0.5) & tril(x), 0.0, LEAST)).softmax(-1) @ x[..., :1],
    "causal, infinite": lambda x, mask: (
        ((x + (1 - mask) * LEAST) + torch.zeros(4, 4).masked_fill(~tril(x), -math.inf)).softmax(-1) @ x[..., :1]
    ),
}


@pytest.mark.parametrize("case", EMPTY_ROWS)
def test_rows_that_an_input_masks_throughout(case: str) -> None:
    """As PyTorch has them, whether or not the mask leaves something of their scores."""

    class Masked(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any, mask: Any) -> Any:
            return EMPTY_ROWS[case](x, mask[:, None].float())

    x, mask = 2 * image(3, 4, 4), torch.tensor([[1, 1, 1, 0], [0, 0, 0, 0], [0, 0, 1, 1]])
    graph = agrees(Masked(), x, mask, atol=1e-5 if case != "-1e4" else 2e-3)
    with torch.no_grad():
        due = Masked()(x, mask).numpy()
    for ring in (32, 64):
        compiled = covey.compile(Masked().eval(), (x, mask), ring=ring)
        (got,) = interpreter.run(compiled, dict(zip(graph.inputs, (x.numpy(), mask.numpy()), strict=True)))
        np.testing.assert_allclose(got, due, atol=5e-3)


@pytest.mark.parametrize(
    ("last", "fill", "how"),
    [
        (0, LEAST, "masks 4 of 8 rows of the calibration data throughout: all elements weigh the same there"),
        (0, -1e4, "masks 4 of 8 rows of the calibration data throughout: their scores count unmasked"),
        (1, LEAST, ""),
    ],
)
def test_rows_that_an_input_masks_throughout_are_noted(last: int, fill: float, how: str) -> None:
    class Masked(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any, mask: Any) -> Any:
            return (x + (1 - mask[:, None].float()) * fill).softmax(-1) @ x

    mask = torch.tensor([[1, 1, 1, 0], [0, 0, 0, last]])
    compiled = covey.compile(Masked().eval(), (image(2, 4, 4), mask))
    noted = " ".join(entry["how"] for entry in compiled.report["rewrites"])
    assert how in noted
    assert ("throughout" in noted) == (how != "")
    # What makes them even is paid for where calibration data have such rows.
    assert any(node.WhichOneof("op") == "pad" for node in interpreter.program_of(compiled).nodes) == ("same" in how)


OF_PARTS: dict[str, Any] = {
    "joined": lambda m: torch.cat([m[:, None].expand(-1, 4, -1)[..., :1], m[:, None, 1:].expand(-1, 4, -1)], 2),
    "times ones": lambda mask: torch.ones_like(mask)[:, :, None] * mask[:, None],
    "of keys and queries": lambda mask: mask[:, None] * torch.cat([mask[:, :1]] * 4, 1)[:, :, None],
}


@pytest.mark.parametrize("case", OF_PARTS)
def test_masks_made_of_parts(case: str) -> None:
    class Joined(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any, mask: Any) -> Any:
            out = (1 - OF_PARTS[case](mask.float())[:, None])[:, 0]
            return (x @ x.transpose(1, 2) + out * LEAST).softmax(-1) @ x

    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]])
    graph = agrees(Joined(), image(2, 4, 8), mask)
    assert graph.classes == {"mask": (0,)}
    assert graph.truths == {"mask"}
    covey.compile(Joined().eval(), (image(2, 4, 8), mask))


def test_a_mask_that_chooses_other_biases() -> None:
    """As Falcon has it, whose positions come from the mask: a mask of numbers is compared with one."""

    class Alibi(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any, mask: Any) -> Any:
            counted = mask[:, None].bool() & torch.ones(4, 4, dtype=torch.bool).tril()
            numbers = torch.where(counted, 0.0, LEAST)
            alibi = ((mask.cumsum(-1) - 1) * mask)[:, None].float()
            bias = torch.masked_fill(alibi / 2.5, numbers < -1, LEAST)
            once = (x @ x.transpose(1, 2) + bias).softmax(-1) @ x
            return (once @ once.transpose(1, 2) + bias).softmax(-1) @ x

    graph = agrees(Alibi(), image(2, 4, 8), torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]]))
    assert [len(node.inputs) for node in graph.nodes if isinstance(node.op, Softmax)] == [2, 2]
    assert not any(isinstance(node.op, Less) for node in graph.nodes)


DECIDED: dict[str, Any] = {
    "above": lambda truth: truth * 3.0 - 1.0 > 0.0,
    "at least": lambda truth: 2.0 - truth * 3.0 >= 2.0,
    "below": lambda truth: 0.5 - truth < 0.25,
    "at most": lambda truth: truth * 1e30 <= -2.0 + 1e30,
    "equal": lambda truth: truth * 4.0 == 4.0,
    "never": lambda truth: truth * 4.0 == 3.0,
    "always": lambda truth: truth != 5.0,
    "not zero": lambda truth: (1.0 - truth).bool(),
    "by element": lambda truth: truth * torch.tensor([1.0, -1.0, 0.0, 0.0]) + torch.linspace(0.0, 1.5, 4) > 0.2,
    "moved": lambda truth: (1.0 - truth)[:, :1, None].transpose(2, 3).flatten(1)[:, None] * -1e30 < -1.0,
    "of more elements": lambda truth: truth[:, :, :1] + torch.linspace(0.0, 1.5, 4) > 1.2,
}


@pytest.mark.parametrize("case", DECIDED)
def test_conditions_that_a_truth_value_decides(case: str) -> None:
    class Deciding(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return torch.where(DECIDED[case]((x > 0.1).float()), x, -x * x)

    graph = agrees(Deciding(), image(3, 2, 4))
    assert sum(isinstance(node.op, Less) for node in graph.nodes) == 1


SUBTRACTED: dict[str, Any] = {
    "plain": lambda scores, mask: scores - 1e30 * (1 - mask),
    "of scores that the mask zeroes": lambda scores, mask: scores * mask - 1e4 * (1 - mask),
    "with a bias": lambda scores, mask: scores - (torch.where(mask > 0.5, 0.0, 1e30) + torch.linspace(-1, 1, 4)),
}


@pytest.mark.parametrize("case", SUBTRACTED)
def test_a_mask_that_is_subtracted(case: str) -> None:
    class Subtracting(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any, mask: Any) -> Any:
            return SUBTRACTED[case](x @ x.transpose(1, 2), mask[:, None].float()).softmax(-1) @ x

    x, mask = image(2, 4, 8), torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]])
    graph = agrees(Subtracting(), x, mask)
    assert [len(node.inputs) for node in graph.nodes if isinstance(node.op, Softmax)] == [2]
    assert covey.compile(Subtracting().eval(), (x, mask)).report["ring_bits"] == 32


def test_a_mask_that_no_softmax_reads_is_told() -> None:
    class Unread(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any, mask: Any) -> Any:
            return (x + (1 - mask[:, None].float()) * LEAST).amax(-1)

    with pytest.raises(
        covey.CoveyError, match=r"its constant -3.403e\+38 fits no ring: if it belongs to a mask.* such as -1e4"
    ):
        covey.compile(Unread().eval(), (image(2, 4, 4), torch.ones(2, 4, dtype=torch.int64)))


POOLED: dict[str, Any] = {
    "over a dimension": lambda x, out: x.masked_fill(out, -torch.inf).softmax(1).transpose(1, 2),
    "transposed": lambda x, out: x.masked_fill(out, -torch.inf).transpose(1, 2).softmax(-1),
    "squeezed": lambda x, out: x[..., :1].masked_fill(out, -1e9).squeeze(-1).softmax(-1)[:, None],
    "turned round": lambda x, out: torch.where(out, -1e4, x).permute(0, 2, 1).flip(-1).softmax(-1),
}


@pytest.mark.parametrize("case", POOLED)
def test_moves_between_a_mask_and_its_softmax(case: str) -> None:
    class Pooling(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any, mask: Any) -> Any:
            return POOLED[case](x, mask[..., None] == 0) @ x

    x, mask = image(2, 4, 3), torch.tensor([[1, 1, 1, 0], [0, 1, 0, 1]])
    graph = agrees(Pooling(), x, mask)
    assert [len(node.inputs) for node in graph.nodes if isinstance(node.op, Softmax)] == [2]
    assert covey.compile(Pooling().eval(), (x, mask)).report["ring_bits"] == 32


LARGEST: dict[str, Any] = {
    "filled": lambda x, mask: x.masked_fill(mask == 0, -torch.inf).amax(1),
    "chosen": lambda x, mask: torch.where(mask.bool(), x, LEAST).amax(1),
    "turned": lambda x, mask: x.masked_fill(mask == 0, -torch.inf).transpose(1, 2).amax(-1, keepdim=True),
    "with places": lambda x, mask: sum(x.masked_fill(mask == 0, -torch.inf).max(1)),
}


@pytest.mark.parametrize("case", LARGEST)
def test_the_largest_of_what_a_mask_leaves(case: str) -> None:
    class Masking(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 5)

        def forward(self, x: Any, mask: Any) -> Any:
            return LARGEST[case](self.layer(x) - 30.0, mask[..., None])

    x, mask = image(3, 4, 3), torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 1, 0]])
    agrees(Masking(), x, mask)
    torch.manual_seed(0)
    module = Masking().eval()
    compiled = covey.compile(module, (x, mask), calibration=(x, mask))
    assert compiled.report["ring_bits"] == 32
    with covey.local("clear") as parties:
        found = parties.run(compiled, {"x": x, "mask": mask}).outputs
    np.testing.assert_allclose(next(iter(found.values())), module(x, mask).detach(), atol=0.02)


def test_a_mask_of_more_than_maxima_is_told() -> None:
    class Read(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any, mask: Any) -> Any:
            filled = x.masked_fill(mask[..., None] == 0, -torch.inf)
            return filled.amax(1) + filled.sum(1)

    with pytest.raises(covey.CoveyError, match=r"its constant -3.403e\+38 fits no ring"):
        covey.compile(Read().eval(), (image(2, 4, 4), torch.ones(2, 4, dtype=torch.int64)))


WINDOWS: dict[str, Any] = {
    "plain": lambda x, keys: {},
    "causal": lambda x, keys: {"is_causal": True, "scale": 0.3},
    "constant truth": lambda x, keys: {"attn_mask": torch.eye(3).bool() | (torch.arange(2) > 0)[:, None, None]},
    "constant bias": lambda x, keys: {"attn_mask": torch.linspace(-1, 1, 18).reshape(2, 3, 3)},
    "secret truth": lambda x, keys: {"attn_mask": keys[:, None, None, None].bool()},
    "secret numbers": lambda x, keys: {"attn_mask": (1.0 - keys[:, None, None, None].float()) * LEAST},
}


@pytest.mark.parametrize("case", WINDOWS)
def test_attention_of_windows_and_heads(case: str) -> None:
    class Windows(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any, keys: Any) -> Any:
            parts = x.reshape(-1, 2, 2, 3, 4)
            return functional.scaled_dot_product_attention(parts, parts * 2, parts + 1, **WINDOWS[case](x, keys))

    keys = torch.tensor([[1, 1, 0], [0, 1, 1], [0, 0, 1]])
    if "secret" in case:
        graph = agrees(Windows(), image(3, 48), keys)
        assert [len(node.inputs) for node in graph.nodes if isinstance(node.op, Softmax)] == [2]
    else:
        agrees(Apply(lambda m, x: Windows()(x, keys)), image(3, 48))


@pytest.mark.parametrize("windows", [1, 2])
def test_attention_without_heads_under_what_is_computed(windows: int) -> None:
    class Without(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            parts = x.reshape(-1, 3, 8)
            bias = parts @ parts.transpose(1, 2)
            return functional.scaled_dot_product_attention(parts, parts, parts, attn_mask=bias).reshape(x.shape)

    agrees(Without(), image(3, windows * 24))


AHEAD = torch.triu(torch.ones(4, 4, dtype=torch.bool), 1)


@pytest.mark.parametrize("add", [False, True])
def test_exponentials_of_a_constant_mask(add: bool) -> None:
    """As Mamba 2 has them: zeros where a position lies ahead."""

    class Decays(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            gaps = x.cumsum(-1)
            masked = (
                gaps + torch.zeros(4, 4).masked_fill(AHEAD, -torch.inf) if add else gaps.masked_fill(AHEAD, -torch.inf)
            )
            return torch.exp(masked) @ x

    x = image(2, 4, 4)
    agrees(Decays(), x)
    verdict = covey.verify(covey.compile(Decays().eval(), (x,), max_error=0.01), "clear", data=x.numpy())
    assert verdict.passed, verdict.failure


def test_a_bound_beyond_all_rings_is_dropped() -> None:
    """As RWKV has it, before its first token."""

    class Bounded(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            low, high = torch.full((4, 4), -1e38), torch.full((1, 1, 4), 1e38)
            return torch.minimum(torch.maximum(x @ x.transpose(1, 2), low), high)

    graph = agrees(Bounded(), image(2, 4, 8))
    assert not any(node.op.label == "Extreme" for node in graph.nodes)


def test_truth_values_of_whole_numbers() -> None:
    """As masks of token ids: the client shares 0 and 1 as they are, and refuses other numbers."""
    ids = torch.tensor([[3, 1, 0], [2, 2, 1]])
    counted = torch.tensor([[1, 1, 0], [1, 0, 1]])
    table = nn.Embedding(4, 6)

    class Padded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = table

        def forward(self, ids: Any, counted: Any) -> Any:
            kept = counted.to(torch.bool) & ids.ne(1) & torch.tensor([True, True, False])
            return self.table(ids) * kept.unsqueeze(-1).float() + (ids == 2).float().unsqueeze(-1)

    graph = agrees(Padded(), ids, counted)
    assert graph.classes == {"ids": (4,), "counted": (0,)}
    assert not any(node.op.label == "Less" for node in graph.nodes)
    compiled = covey.compile(Padded().eval(), (ids, counted))
    assert [entry["range_from"] for entry in compiled.report["inputs"]] == ["its classes", "its truth values"]
    wrong = {"ids": ids.numpy(), "counted": np.array([[1, 2, 0], [0, 0, 0]])}
    with pytest.raises(
        covey.DataError, match=r"'counted' holds 2 in sample 0 at \[1\]: give whole numbers from 0 to 1"
    ):
        covey.verify(compiled, "clear", data=wrong)


def test_what_is_counted() -> None:
    """Sums of truth values are whole numbers, by which a table may be read; others are refused."""
    table = nn.Embedding(7, 4)

    class Positions(nn.Module):
        def __init__(self, table: Any) -> None:
            super().__init__()
            self.table = table

        def forward(self, ids: Any, x: Any) -> Any:
            real = ids.ne(3).int()
            return self.table((torch.cumsum(real, 1).type_as(real) * real).long() + 1) * x.unsqueeze(-1)

    ids = torch.tensor([[1, 3, 0, 4, 2], [3, 3, 3, 2, 3]])
    graph = agrees(Positions(table), ids, image(2, 5))
    assert graph.classes == {"ids": (0,)}
    with pytest.raises(covey.UnsupportedError, match="are from 1 to 6, and there are 6 elements"):
        covey.compile(Positions(nn.Embedding(6, 4)).eval(), (ids, image(2, 5)))


VISION: dict[str, Any] = {
    "vit": lambda models: models.vision_transformer.VisionTransformer(32, 16, 1, 2, 16, 24, num_classes=5),
    "swin": lambda models: models.swin_transformer.SwinTransformer(
        [4, 4], 8, [2, 1], [1, 2], [4, 4], stochastic_depth_prob=0.1, num_classes=5
    ),
    "convnext": lambda models: models.convnext.ConvNeXt(
        [models.convnext.CNBlockConfig(8, 16, 1), models.convnext.CNBlockConfig(16, None, 1)], num_classes=5
    ),
}


@pytest.mark.parametrize("case", VISION)
def test_networks_of_torchvision(case: str) -> None:
    torchvision = pytest.importorskip("torchvision", reason="torchvision is not installed")
    torch.manual_seed(1)
    module = VISION[case](torchvision.models)
    for name, part in module.named_parameters():
        if name.startswith("head"):
            nn.init.normal_(part, std=0.3)
    x = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    agrees(module, x)
    compiled = covey.compile(module, (x,), max_error=0.01)
    verdict = covey.verify(compiled, "clear", data=x.numpy())
    assert verdict.passed, verdict.failure
