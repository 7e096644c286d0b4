"""Every kind of attention equals its formula, and has fairseq's signature with its own refusals."""

import pytest
import torch
from fairseq.data import Dictionary
from fairseq.modules import MultiheadAttention
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from linformer_fairseq import LinformerMultiheadAttention
from linformer_fairseq.modules import CAUSAL_KINDS, CROSS_KINDS, KINDS, LinearProjection
from linformer_fairseq.modules.linformer_attention import SHARINGS
from linformer_fairseq.modules.ops.padding import padding_of
from tests.reference import (
    REFERENCED,
    assert_checkpointing_changes_nothing,
    assert_same_gradients,
    make_attention,
    naive_attention,
    padding_mask,
)
from tests.variants import NEWER_TORCH, variants

N = 16
ALL = [*((kind, False) for kind in KINDS), *((kind, True) for kind in CAUSAL_KINDS)]
every_kind = pytest.mark.parametrize(("kind", "causal"), ALL)
every_source_kind = pytest.mark.parametrize("kind", KINDS)
every_referenced_kind = pytest.mark.parametrize(
    ("kind", "causal"), [x for x in ALL if (CAUSAL_KINDS if x[1] else KINDS)[x[0]].attention in REFERENCED]
)
OPTIONS = st.fixed_dictionaries(
    {
        "sharing": st.sampled_from(SHARINGS),
        "k": st.integers(1, N),
        "num_heads": st.sampled_from([1, 2, 4]),
        "mask_empty_slots": st.booleans(),
        "window": st.sampled_from([0, 1, 5, 20]),
        "open_slots": st.sampled_from([None, 1, 2, 5]),
        "slot_width": st.sampled_from([None, 1, 2, 3]),
        "block_size": st.sampled_from([None, 1, 2, 3, 7, 20]),
        "exact_below": st.sampled_from([0, 0, 9]),
        "window_size": st.sampled_from([1, 2, 3, 6, 40]),
        "bias": st.booleans(),
    }
)
"""Options of all kinds, of which each kind takes its own."""


@every_referenced_kind
@settings(max_examples=40)
@given(
    options=OPTIONS,
    lengths=st.lists(st.integers(1, N), min_size=1, max_size=3),
    padded=st.integers(0, 3),
    queries=st.integers(1, 9),
    given_apart=st.sampled_from(["nothing", "queries", "values"]),
)
def test_values_weights_and_gradients_equal_the_naive_reference(
    kind: str, causal: bool, options: dict, lengths: list[int], padded: int, queries: int, given_apart: str
) -> None:
    """Sentences are shorter and longer than k, and padding may reach beyond N."""

    def tokens(length: int, width: int = 8) -> Tensor:
        return torch.randn(length, len(lengths), width, dtype=torch.float64, requires_grad=True)

    if kind == "window":
        given_apart = "nothing"
    n = max(lengths) + padded
    key_width, value_width = (8, 8) if causal or given_apart != "values" else (6, 10)
    key = tokens(n, key_width)
    query = key if given_apart == "nothing" else tokens(n if causal else queries)
    value = tokens(n, value_width) if given_apart == "values" else key
    place = "self_attention" if causal or query is key else "encoder_decoder_attention"
    attention = make_attention(kind, causal=causal, n=N, kdim=key_width, vdim=value_width, **{place: True}, **options)
    mask = padding_mask(lengths, n)
    expected, expected_weights = naive_attention(attention, query, key, lengths, value)
    fast, no_weights = attention(query, key, value, key_padding_mask=mask, need_weights=False)
    slow, weights = attention(query, key, value, key_padding_mask=mask, need_head_weights=True)
    _, mean = attention(query, key, value, key_padding_mask=mask)
    assert no_weights is None
    assert (weights >= 0).all()
    torch.testing.assert_close(mean, weights.mean(0))
    if causal or (kind == "window" and query is key):  # whose queries end with their sentence
        expected, fast, slow = (x.masked_fill(mask.t()[..., None], 0.0) for x in (expected, fast, slow))
        weights = weights.masked_fill(mask[..., None], 0.0)
    torch.testing.assert_close(weights, expected_weights, rtol=1e-9, atol=1e-9)
    total = weights.sum(3)
    torch.testing.assert_close(total[total > 0], torch.ones_like(total[total > 0]))  # 0 beyond a target's end
    inputs = [*{id(x): x for x in (query, key, value)}.values(), *attention.parameters()]
    for out in (fast, slow):
        torch.testing.assert_close(out, expected, rtol=1e-9, atol=1e-9)
        assert_same_gradients(out, expected, inputs, rtol=1e-8, atol=1e-8)


@every_kind
@given(options=OPTIONS, lengths=st.lists(st.integers(1, N), min_size=3, max_size=3))
def test_neither_padding_nor_other_sentences_matter(kind: str, causal: bool, options: dict, lengths: list[int]) -> None:
    """Full attention leaves padding where it is, which must hold numbers as it does in fairseq's."""
    attention = make_attention(kind, causal=causal, n=N, **options)
    lengths = [N, *lengths]
    mask = padding_mask(lengths)
    x = torch.randn(N, 4, 8, dtype=torch.float64)
    poisons = [0.0, 1e9, torch.inf, torch.nan]
    if attention.moves(padding_of(mask)) == "nothing":
        poisons = [0.0, 1.0, -1e9, 1e9]
    poisoned = torch.where(mask.t()[..., None], x.new_tensor(poisons)[:, None], x)
    for need_weights in (False, True):
        clean, clean_weights = attention(x, x, x, key_padding_mask=mask, need_weights=need_weights)
        dirty, dirty_weights = attention(x, poisoned, poisoned, key_padding_mask=mask, need_weights=need_weights)
        if kind == "full" and causal:  # where padding sees other padding
            clean, dirty = (out.masked_fill(mask.t()[..., None], 0.0) for out in (clean, dirty))
            if need_weights:
                clean_weights, dirty_weights = (
                    weights.masked_fill(mask[..., None], 0.0) for weights in (clean_weights, dirty_weights)
                )
        torch.testing.assert_close(dirty, clean, rtol=0, atol=0)
        torch.testing.assert_close(dirty_weights, clean_weights, rtol=0, atol=0)
        for sentence, n in enumerate(lengths):
            one = x[:n, sentence : sentence + 1]
            alone, alone_weights = attention(one, one, one, need_weights=need_weights)
            torch.testing.assert_close(clean[:n, sentence], alone[:, 0], rtol=1e-9, atol=1e-9)
            if need_weights:
                torch.testing.assert_close(clean_weights[sentence, :n, :n], alone_weights[0], rtol=1e-9, atol=1e-9)
                assert not clean_weights[sentence, :, n:].any()


@every_source_kind
@given(
    options=OPTIONS,
    lengths=st.lists(st.integers(0, N), min_size=1, max_size=3),
    queries=st.sampled_from([None, 1, 5]),
    data=st.data(),
)
def test_padding_may_be_anywhere(
    kind: str, options: dict, lengths: list[int], queries: int | None, data: st.DataObject
) -> None:
    """On the left, on both sides or between tokens: sentences are what they are without it."""
    queries = None if kind == "window" else queries
    place = "self_attention" if queries is None else "encoder_decoder_attention"
    attention = make_attention(kind, n=N, **{place: True}, **options)
    x, mask = torch.randn(N, len(lengths), 8, dtype=torch.float64), padding_mask(lengths, N)
    places = [sorted(data.draw(st.permutations(range(N)))[:length]) for length in lengths]
    moved, moved_mask = torch.full_like(x, 1e6), torch.ones_like(mask)
    for sentence, own in enumerate(places):
        moved[own, sentence] = x[: len(own), sentence]
        moved_mask[sentence, own] = False
    query = None if queries is None else torch.randn(queries, len(lengths), 8, dtype=torch.float64)
    expected, expected_weights = attention(x if query is None else query, x, x, mask)
    out, weights = attention(moved if query is None else query, moved, moved, moved_mask)
    for sentence, own in enumerate(places):
        rows, moved_rows = (slice(len(own)), own) if query is None else (slice(None), slice(None))
        if own:  # what queries read where there is no token at all is left open
            torch.testing.assert_close(out[moved_rows, sentence], expected[rows, sentence])
        found = weights[sentence, moved_rows]
        torch.testing.assert_close(found[:, own], expected_weights[sentence, rows, : len(own)])
        assert not found.masked_fill(~moved_mask[sentence], 0.0).any()


@pytest.mark.parametrize("kind", [kind for kind in CAUSAL_KINDS if kind != "full"])
def test_causal_attention_refuses_padding_before_a_token(kind: str) -> None:
    x = torch.randn(9, 2, 8, dtype=torch.float64)
    for mask in (padding_mask([9, 4]).flip(1), padding_mask([9, 4]).roll(1, 1)):
        with pytest.raises(ValueError, match="supports padding on the right only"):
            make_attention(kind, causal=True)(x, x, x, key_padding_mask=mask)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("mean-pool", {}),
        ("max-pool", {}),
        ("linear", {}),  # whose E and F begin as the identity, with empty slots masked
        ("two-level", {}),
        ("two-level", {"k": 4}),  # shorter than `exact_below`
        ("two-level", {"exact_below": 0}),
        ("two-level", {"k": 4, "open_slots": 4, "exact_below": 0}),
    ],
)
def test_is_fairseqs_attention_where_k_covers_the_sentence(kind: str, options: dict) -> None:
    """Two levels also are where the sentence is short, or where they open every window."""
    mask = padding_mask([N, 3, 9])
    query, key = torch.randn(5, 3, 8, dtype=torch.float64), torch.randn(N, 3, 8, dtype=torch.float64)
    settings = {"k": N, "n": 32, "random": False, "encoder_decoder_attention": True, **options}
    attention = make_attention(kind, **settings)
    if kind == "linear":
        identity = LinearProjection(N, 32, mask_empty_slots=True)
        identity.start_as_identity()
        place = {"encoder_decoder_attention": True}
        attention = LinformerMultiheadAttention(8, 2, key_projection=identity, **place).double().eval()
    torch.nn.init.normal_(attention.k_proj.bias)
    torch.nn.init.normal_(attention.v_proj.bias)
    full = MultiheadAttention(8, 2, encoder_decoder_attention=True).double().eval()
    full.load_state_dict({name: w for name, w in attention.state_dict().items() if "projection" not in name})
    for head_weights in (False, True):
        out, weights = attention(query, key, key, mask, static_kv=True, need_head_weights=head_weights)
        expected, expected_weights = full(query, key, key, mask, static_kv=True, need_head_weights=head_weights)
        torch.testing.assert_close(out, expected, rtol=0, atol=1e-5)  # fairseq's softmax is in float32
        torch.testing.assert_close(weights, expected_weights, rtol=0, atol=1e-5, check_dtype=False)


@every_kind
def test_only_learned_projections_have_a_longest_length(kind: str, causal: bool) -> None:
    """Padding may reach beyond it."""
    attention = make_attention(kind, causal=causal, n=N)
    x = torch.randn(20, 2, 8, dtype=torch.float64)
    side = "target" if causal else "source"
    for sentence, given_mask in (("20", None), ("18", padding_mask([18, 5], 20))):
        if kind != "linear":
            out, weights = attention(x, x, x, key_padding_mask=given_mask)
            assert out.isfinite().all()
            assert weights.shape == (2, 20, 20)
            continue
        with pytest.raises(
            ValueError, match=f"{side} of {sentence} tokens is longer than the {N} .* larger --max-{side}-positions"
        ):
            attention(x, x, x, key_padding_mask=given_mask)
    mask = padding_mask([N, 5], 20)
    out, weights = attention(x, x, x, key_padding_mask=mask)
    expected, expected_weights = attention(x[:N], x[:N], x[:N], key_padding_mask=mask[:, :N])
    torch.testing.assert_close(out[:N], expected)
    torch.testing.assert_close(weights[:, :N, :N], expected_weights)
    assert weights.shape == (2, 20, 20)
    assert not weights[..., N:].any()


@every_kind
def test_an_empty_sentence_harms_no_other(kind: str, causal: bool) -> None:
    attention = make_attention(kind, causal=causal)
    x = torch.randn(9, 2, 8, dtype=torch.float64)
    for need_weights in (False, True):
        out, _ = attention(x, x, x, padding_mask([9, 0]), need_weights=need_weights)
        assert out.isfinite().all()
        out[:, 0].sum().backward()
        assert all(parameter.grad.isfinite().all() for parameter in attention.parameters())


@every_kind
@pytest.mark.parametrize("need_weights", [False, True])
def test_there_may_be_no_tokens_or_no_sentences(kind: str, causal: bool, need_weights: bool) -> None:
    attention = make_attention(kind, causal=causal, exact_below=0)
    for shape in ((0, 2, 8), (5, 0, 8), (1, 0, 8)):
        x = torch.zeros(shape, dtype=torch.float64)
        out, weights = attention(x, x, x, x.new_zeros(shape[1], shape[0]), need_weights=need_weights)
        assert out.shape == shape
        assert (weights is not None) == need_weights
    if causal:
        x, state = torch.randn(20, 2, 8, dtype=torch.float64), {}
        outs = [attention(part, part, part, None, state, need_weights)[0] for part in x.split([3, 0, 1, 0, 16])]
        torch.testing.assert_close(torch.cat(outs), attention(x, x, x)[0])


@every_kind
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("sharing", "n", "k"), [("headwise", 600, 16), ("key-value", 5, 20)])
def test_half_precision(kind: str, causal: bool, dtype: torch.dtype, sharing: str, n: int, k: int) -> None:
    """Half precision, by itself and under autocast, is close to float64 with the same weights. The 600 tokens need
    several chunks, windows and blocks. Rounding may open another window, but only one with nearly the same score."""
    sizes = {"k": k, "n": 600, "embed_dim": 32, "num_heads": 4, "random": False, "exact_below": 0}
    half, single, exact = (
        make_attention(kind, sharing, causal=causal, dtype=t, **sizes) for t in (dtype, torch.float32, torch.float64)
    )
    for attention in (single, exact):
        attention.load_state_dict(half.state_dict())
    x = torch.randn(n, 2, 32).to(dtype)
    mask = padding_mask([n, n - n // 3])
    for need_weights in (False, True):
        expected, expected_weights = exact(*[x.double()] * 3, key_padding_mask=mask, need_weights=need_weights)
        for attention, tokens in ((half, x.clone().requires_grad_()), (single, x.float().requires_grad_())):
            with torch.autocast("cpu", dtype, enabled=attention is single):
                out, weights = attention(*[tokens] * 3, key_padding_mask=mask, need_weights=need_weights)
            assert out.dtype == dtype
            assert (out - expected).norm() < 0.05 * expected.norm()
            if need_weights:
                assert (weights - expected_weights).norm() < 0.05 * expected_weights.norm()
            attention.zero_grad()
            out.float().square().mean().backward()
            assert tokens.grad.isfinite().all()
            assert tokens.grad.any()
            for parameter in attention.parameters():
                assert parameter.grad.dtype == parameter.dtype
                assert parameter.grad.isfinite().all()


@every_kind
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("autocast", [False, True])
def test_very_large_activations_stay_finite_in_half_precision(
    kind: str, causal: bool, dtype: torch.dtype, autocast: bool
) -> None:
    """Their scores exceed 65,504, the largest number of float16."""
    if dtype is torch.float16 and not NEWER_TORCH:
        pytest.skip("on a processor this torch's own attention makes scores in float16")
    used = torch.float32 if autocast else dtype
    sizes = {"k": 16, "n": 200, "embed_dim": 32, "exact_below": 0}
    attention = make_attention(kind, causal=causal, dtype=used, random=False, **sizes)
    x = (300 * torch.randn(200, 2, 32)).to(used).requires_grad_()
    mask = padding_mask([200, 150])
    for need_weights in (False, True):
        with torch.autocast("cpu", dtype, enabled=autocast):
            out, weights = attention(x, x, x, key_padding_mask=mask, need_weights=need_weights)
        assert out.isfinite().all()
        assert weights is None or weights.isfinite().all()
        (gradient,) = torch.autograd.grad(out.float().mean(), x)
        assert gradient.isfinite().all()


@every_kind
@pytest.mark.parametrize(("n", "k"), [(9, 4), (9, 1), (5, 20)])
def test_dropout_falls_on_the_weights(kind: str, causal: bool, n: int, k: int) -> None:
    """Linformer attention has fewer slots than tokens, one slot, and more slots than tokens."""
    attention = make_attention(kind, k=k, causal=causal, dropout=0.5)
    x = torch.randn(n, 1, 8, dtype=torch.float64).expand(n, 5000, 8)
    expected = attention(x[:, :1], x[:, :1], x[:, :1])[0]
    attention.train()
    for need_weights in (False, True):
        out = attention(x, x, x, need_weights=need_weights)[0]
        assert not torch.equal(out[:, 0], out[:, 1])
        torch.testing.assert_close(out.mean(1, keepdim=True), expected, rtol=0, atol=0.1 * expected.std().item())


@every_kind
@pytest.mark.parametrize("k", [4, 20])
def test_quantisation_noise_is_drawn_once_a_pass(kind: str, causal: bool, k: int) -> None:
    """Fairseq draws it, and changes the weights, whenever a layer is called."""
    attention = make_attention(kind, k=k, causal=causal, q_noise=0.5, qn_block_size=4).train()
    calls = []
    for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
        getattr(attention, name).register_forward_hook(lambda *_, name=name: calls.append(name))
    x = torch.randn(9, 2, 8, dtype=torch.float64)
    out = attention(x, x, x)[0]
    assert sorted(calls) == ["k_proj", "out_proj", "q_proj", "v_proj"]
    assert not torch.equal(out, attention(x, x, x)[0])


@every_kind
@pytest.mark.parametrize("k", [4, 20])
def test_linear_layers_may_be_quantised(kind: str, causal: bool, k: int) -> None:
    attention = make_attention(kind, k=k, causal=causal, dtype=torch.float32, random=False)
    quantised = torch.ao.quantization.quantize_dynamic(attention, {torch.nn.Linear})
    x = torch.randn(9, 2, 8)
    expected = attention(x, x, x)[0]
    assert (quantised(x, x, x)[0] - expected).norm() < 0.5 * expected.norm()  # there may be other clusters of keys


@every_kind
@pytest.mark.parametrize(("n", "k"), [(10, 4), (5, 20)])
def test_activations_may_be_checkpointed(kind: str, causal: bool, n: int, k: int) -> None:
    assert_checkpointing_changes_nothing(make_attention(kind, k=k, causal=causal).train(), [n, n - 4])


@every_kind
def test_parameters_have_fairseqs_names(kind: str, causal: bool) -> None:
    names = {*MultiheadAttention(8, 2).state_dict()}
    if kind in ("linear", "conv"):
        names |= {"key_projection.weight", "value_projection.weight"}
    assert {*make_attention(kind, causal=causal).state_dict()} == names


@every_kind
def test_takes_what_fairseq_leaves_out(kind: str, causal: bool) -> None:
    """Keys may default to the queries, values to the keys; a state may be empty, and a dictionary is kept."""
    words = Dictionary()
    attention = make_attention(kind, causal=causal, dictionary=words)
    assert attention.dictionary is words
    x = torch.randn(9, 2, 8, dtype=torch.float64)
    expected, _ = attention(x, x, x)
    for key in (x, None):
        torch.testing.assert_close(attention(x, key, None)[0], expected)
    assert attention.reorder_incremental_state({}, torch.tensor([1, 0])) == {}


@every_kind
@pytest.mark.parametrize(
    ("option", "value"), [("add_bias_kv", True), ("add_zero_attn", True), ("xformers_att_config", "{'name': 'x'}")]
)
def test_refuses_to_be_built_with(kind: str, causal: bool, option: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"does not support {option}; leave it out"):
        make_attention(kind, causal=causal, **{option: value})


@every_kind
def test_refuses_to_be_called_with(kind: str, causal: bool) -> None:
    attention = make_attention(kind, causal=causal)
    x = torch.randn(9, 4, 8, dtype=torch.float64)
    refused: list[tuple[str, dict]] = [
        ("attn_mask", {"attn_mask": torch.zeros(9, 9)}),
        ("before_softmax", {"before_softmax": True}),
        ("keys for every sentence of the queries, not for 2 of 4", {"key": x[:, :2], "value": x[:, :2]}),
    ]
    if causal:
        refused.append(("does not support static_kv", {"incremental_state": {}, "static_kv": True}))
    else:
        refused.append(("incremental_state without static_kv", {"incremental_state": {}}))
    for sentence, options in refused:
        with pytest.raises(ValueError, match=sentence):
            attention(**{"query": x, "key": x, "value": x, **options})
    with pytest.raises(ValueError, match="pass a key for every query, not 5 for 9"):
        attention(x, x[:5], x[:5])
    if kind in CROSS_KINDS and not causal:
        cross = make_attention(kind, encoder_decoder_attention=True)
        with pytest.raises(ValueError, match="needs a key; only cached static keys can be left out"):
            cross(x, None, None, static_kv=True)
        with pytest.raises(ValueError, match="keys for every sentence of the queries, not for 3 of 4"):
            cross(x, x[:, :3], x[:, :3], static_kv=True)


COMPILED = {
    "slots": ("linear", False, {"k": 4}),
    "more slots than tokens": ("linear", False, {"k": 20}),
    "causal": ("linear", True, {"k": 4}),
    "causal with a window": ("linear", True, {"k": 4, "window": 3}),
    "key clusters": ("key-clusters", False, {"k": 4}),
    "two levels": ("two-level", False, {"k": 4, "open_slots": 2, "exact_below": 0}),
    "two levels of sentences of several forms": ("two-level", False, {"k": 4, "open_slots": 2, "exact_below": 7}),
    "a convolution": ("two-level", False, {"k": 4, "open_slots": 2, "exact_below": 7, "value_convolution": 5}),
    "causal two levels": (
        "two-level",
        True,
        {"n": 12, "slot_width": 1, "open_slots": 2, "block_size": 2, "exact_below": 0},
    ),
    "window": ("window", False, {"window_size": 4}),
    "full": ("full", False, {}),
    "causal full": ("full", True, {}),
    "causal window": ("window", True, {"window_size": 4}),
}


@pytest.mark.parametrize(
    ("name", "training"),
    variants(
        [(name, training) for name in COMPILED for training in (False, True)],
        default=[
            ("slots", True),
            ("causal with a window", True),
            ("a convolution", True),  # beside two levels
            ("causal two levels", True),
            ("window", True),
        ],
    ),
)
def test_compiles_without_a_graph_break(name: str, training: bool) -> None:
    kind, causal, options = COMPILED[name]
    if not NEWER_TORCH and (causal or kind in ("two-level", "window")):
        pytest.skip("this torch compiles neither a function of its own gradient nor the properties of a named tuple")
    torch._dynamo.reset()
    attention = make_attention(kind, causal=causal, **options).train(training)
    compiled = torch.compile(attention, fullgraph=True, backend="aot_eager")
    n = 10
    x = torch.randn(n, 2, 8, dtype=torch.float64, requires_grad=training)
    mask = padding_mask([n, n - 4])
    for need_weights in (False, True):
        out, expected = (
            a(x, x, x, key_padding_mask=mask, need_weights=need_weights)[0].masked_fill(mask.t()[..., None], 0.0)
            for a in (compiled, attention)
        )
        torch.testing.assert_close(out, expected)
        if training:
            assert_same_gradients(out, expected, [x, *attention.parameters()])
