"""Full attention is that of its formula and of fairseq, whatever is padding, in one pass and in a search."""

from functools import partial

import pytest
import torch
from fairseq.modules import MultiheadAttention
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from linformer_fairseq.modules import BaseAttention
from tests.memory import peak_bytes
from tests.operations import computing_operations
from tests.reference import assert_same_gradients, make_attention, naive_attention, padding_mask
from tests.steps import check_steps_of_cross_attention
from tests.variants import NEWER_TORCH

PLACES = ("encoder", "cross", "decoder")
every_place = pytest.mark.parametrize("place", PLACES)


def make(place: str, **options: object) -> BaseAttention:
    if place == "cross":
        options["encoder_decoder_attention"] = True
    return make_attention("full", causal=place == "decoder", **options)


def fairseqs(attention: BaseAttention) -> MultiheadAttention:
    """Returns fairseq's attention with the same weights."""
    place = {name: getattr(attention, name) for name in ("self_attention", "encoder_decoder_attention")}
    full = MultiheadAttention(8, 2, **place).double().eval()
    full.load_state_dict(attention.state_dict())
    return full


def future(n: int) -> Tensor:
    return torch.full((n, n), -torch.inf, dtype=torch.float64).triu(1)


@every_place
@given(
    masks=st.lists(st.lists(st.booleans(), min_size=1, max_size=12), min_size=1, max_size=3),
    hypotheses=st.integers(1, 3),
    queries=st.integers(1, 5),
    num_heads=st.sampled_from([1, 2, 4]),
)
def test_sentences_are_what_their_formula_says_wherever_padding_is(
    place: str, masks: list[list[bool]], hypotheses: int, queries: int, num_heads: int
) -> None:
    attention, n = make(place, num_heads=num_heads), max(map(len, masks)) + 1
    mask = torch.tensor([[*row, *[True] * (n - 1 - len(row)), False] for row in masks])  # the last one is a token
    rows = len(masks) * hypotheses if place == "cross" else len(masks)
    key = torch.randn(n, len(masks), 8, dtype=torch.float64, requires_grad=True)
    query = torch.randn(queries, rows, 8, dtype=torch.float64, requires_grad=True) if place == "cross" else key
    fast, _ = attention(query, key, key, mask, need_weights=False)
    slow, weights = attention(query, key, key, mask, need_head_weights=True)
    found, expected = [], []
    for row in range(rows):
        sentence = row // (rows // len(masks))
        tokens = (~mask[sentence]).nonzero()[:, 0]
        own = slice(None) if place == "cross" else tokens
        out, of_tokens = naive_attention(
            attention, query[own, row : row + 1], key[tokens, sentence : sentence + 1], [len(tokens)]
        )
        expected.append(out)
        found.append((fast[own, row : row + 1], slow[own, row : row + 1]))
        torch.testing.assert_close(weights[:, row][:, own][..., tokens], of_tokens[:, 0], rtol=1e-9, atol=1e-9)
        assert not weights[:, row, :, mask[sentence]].any()
    for outs in zip(*found, strict=True):
        torch.testing.assert_close(torch.cat(outs), torch.cat(expected), rtol=1e-9, atol=1e-9)
        assert_same_gradients(
            torch.cat(outs), torch.cat(expected), [query, key, *attention.parameters()], rtol=1e-8, atol=1e-8
        )


@every_place
@pytest.mark.parametrize("padded", ["nowhere", "left", "right"])
@pytest.mark.parametrize("options", [{"need_weights": False}, {}, {"need_head_weights": True}])
def test_is_fairseqs_attention(place: str, padded: str, options: dict) -> None:
    attention, mask = make(place), padding_mask([9, 4, 7])
    if padded == "nowhere":
        mask = mask & False
    if padded == "left":
        mask = mask.flip(1)
    key = torch.randn(9, 3, 8, dtype=torch.float64)
    query = torch.randn(5, 3, 8, dtype=torch.float64) if place == "cross" else key
    own = {"static_kv": True} if place == "cross" else {"attn_mask": future(9)} if place == "decoder" else {}
    full = fairseqs(attention)
    full.skip_embed_dim_check = "need_head_weights" in options  # torch's function, which it calls else, knows none
    (out, weights), (expected, expected_weights) = (
        module(query, key, key, mask, **own, **options) for module in (attention, full)
    )
    if place == "decoder":  # whose queries of padding see other padding here, and in fairseq may see nothing
        out, expected = (x.masked_fill(mask.t()[..., None], 0.0) for x in (out, expected))
        if weights is not None:
            weights, expected_weights = (x.masked_fill(mask[..., None], 0.0) for x in (weights, expected_weights))
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-5)  # fairseq's softmax is in float32
    torch.testing.assert_close(weights, expected_weights, rtol=0, atol=1e-5, check_dtype=False)


@torch.no_grad()
@given(
    prefix=st.integers(1, 5),
    lengths=st.lists(st.integers(1, 12), min_size=3, max_size=3),
    data=st.data(),
)
def test_a_search_is_that_of_fairseq(prefix: int, lengths: list[int], data: st.DataObject) -> None:
    """Hypotheses begin with several tokens, change places, multiply and vanish; some are padded for a while."""
    attention = make("decoder")
    modules, states = (attention, fairseqs(attention)), ({}, {})
    rows, mask, position = 3, padding_mask(lengths, 12), 0
    while position < 12:
        if position:
            order = torch.tensor(data.draw(st.lists(st.integers(0, rows - 1), min_size=1, max_size=5)))
            rows, mask = len(order), mask[order]
            for module, state in zip(modules, states, strict=True):
                module.reorder_incremental_state(state, order)
        part = slice(position, position + (1 if position else prefix))
        x = torch.randn(part.stop - part.start, rows, 8, dtype=torch.float64)
        padding = mask[:, part] if mask[:, part].any() else None
        hidden = None if position else future(prefix)
        (out, weights), (expected, expected_weights) = (
            module(x, x, x, padding, state, attn_mask=hidden) for module, state in zip(modules, states, strict=True)
        )
        tokens = ~mask[:, part]
        torch.testing.assert_close(out.transpose(0, 1)[tokens], expected.transpose(0, 1)[tokens], rtol=0, atol=1e-5)
        torch.testing.assert_close(weights[tokens], expected_weights[tokens], rtol=0, atol=1e-5, check_dtype=False)
        position = part.stop


@given(
    lengths=st.lists(st.integers(1, 60), min_size=3, max_size=3),
    steps=st.lists(st.sampled_from([1, 1, 2, 5, 30]), min_size=1, max_size=5),
    hypotheses=st.integers(1, 3),
)
def test_steps_of_cross_attention_equal_one_pass(lengths: list[int], steps: list[int], hypotheses: int) -> None:
    check_steps_of_cross_attention(make("cross"), lengths, steps, hypotheses)


@given(steps=st.lists(st.sampled_from([1, 1, 2, 5, 30]), min_size=1, max_size=9))
@torch.no_grad()
def test_steps_of_a_decoder_equal_one_pass(steps: list[int]) -> None:
    attention, x = make("decoder"), torch.randn(sum(steps), 2, 8, dtype=torch.float64)
    state: dict = {}
    parts = [attention(part, part, part, None, state) for part in x.split(steps)]
    expected, expected_weights = attention(x, x, x)
    torch.testing.assert_close(torch.cat([out for out, _ in parts]), expected)
    for part, (_, weights) in zip(expected_weights.split(steps, 1), parts, strict=True):
        torch.testing.assert_close(weights, part[..., : weights.size(2)])


@given(changed=st.integers(0, 99), length=st.integers(1, 100))
def test_nothing_of_the_future_matters(changed: int, length: int) -> None:
    """The difference is exactly 0."""
    attention, mask = make("decoder"), padding_mask([100, length])
    x = torch.randn(100, 2, 8, dtype=torch.float64)
    other = x.clone()
    other[changed:] = 10 * torch.randn_like(other[changed:])
    for need_weights in (False, True):
        outs = [attention(y, y, y, mask, need_weights=need_weights)[0][:changed] for y in (x, other)]
        assert torch.equal(*outs)


@pytest.mark.parametrize(
    ("kind", "options", "times"),
    [("full", {}, 0), ("two-level", {}, 0), ("linear", {}, 1), ("window", {}, 2)],
)
def test_tokens_are_moved_where_a_kind_needs_their_order(kind: str, options: dict, times: int) -> None:
    """Keys of padding on the left, and queries, which are put back."""
    attention, mask = make_attention(kind, k=4, dtype=torch.float32, **options), padding_mask([30, 20]).flip(1)
    x = torch.randn(30, 2, 8)
    run = partial(attention, x, x, x, mask, need_weights=False)
    run()  # which looks at the mask
    moves = [name for name in computing_operations(run) if name.startswith("aten.gather")]
    assert len(moves) == times


@pytest.mark.skipif(not NEWER_TORCH, reason="on a processor this torch has no fused attention with a mask")
@every_place
def test_nothing_grows_with_the_square_of_the_length(place: str) -> None:
    """Twice the tokens take twice the memory, padded or not."""
    attention = make(place)
    for mask in (None, padding_mask([2048, 1500]).flip(1) if place != "decoder" else padding_mask([2048, 1500])):
        most = []
        for n in (1024, 2048):
            x = torch.randn(n, 2, 8, dtype=torch.float64, requires_grad=True)
            own = None if mask is None else mask[:, -n:].clone()
            run = partial(attention, x, x, x, own, need_weights=False)
            run()
            most.append(peak_bytes(lambda run=run: run()[0].sum().backward()))
        assert most[1] <= 2.1 * most[0]
