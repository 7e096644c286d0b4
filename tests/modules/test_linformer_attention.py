"""The attention module against naive references, and as a drop-in for fairseq's."""

import pytest
import torch
import torch.utils.checkpoint
from fairseq.modules import MultiheadAttention
from hypothesis import given
from hypothesis import strategies as st

from linformer_fairseq import LinformerMultiheadAttention
from linformer_fairseq.benchmark.memory import peak_bytes
from linformer_fairseq.modules import KINDS, LinearProjection, MeanPool
from linformer_fairseq.modules.ops.folded_attention import folding_pays
from linformer_fairseq.modules.ops.projected_scores import projecting_scores_pays
from tests.reference import make_attention, naive_attention

SHARINGS = ("none", "headwise", "key-value")
everything = pytest.mark.parametrize("sharing", SHARINGS)
every_kind = pytest.mark.parametrize("kind", KINDS)
compiles_own_gradients = pytest.mark.skipif(
    tuple(map(int, torch.__version__.split(".")[:2])) < (2, 4),
    reason="this torch does not compile a function with its own gradient whose outputs may be None",
)


def padding_mask(lengths: list[int], n: int | None = None) -> torch.Tensor:
    n = n or max(lengths)
    return torch.arange(n) >= torch.tensor(lengths)[:, None]


@every_kind
@everything
@given(lengths=st.lists(st.integers(1, 16), min_size=1, max_size=3), k=st.integers(1, 16), masked=st.booleans())
def test_equals_naive_reference(kind: str, sharing: str, lengths: list[int], k: int, masked: bool) -> None:
    attention = make_attention(kind, sharing, k=k, n=16, mask_empty_slots=masked)
    x = torch.randn(max(lengths), len(lengths), 8, dtype=torch.float64)
    out, weights = attention(x, x, x, key_padding_mask=padding_mask(lengths), need_weights=False)
    assert weights is None
    expected = naive_attention(attention, x, x, lengths)[0]
    torch.testing.assert_close(out, expected)


@everything
def test_linear_gradients_equal_naive_reference(sharing: str) -> None:
    torch.manual_seed(1)
    attention = make_attention("linear", sharing, k=5, n=12)
    x = torch.randn(12, 3, 8, dtype=torch.float64, requires_grad=True)
    inputs = [x, *attention.parameters()]
    assert len(inputs) == 1 + 8 + (1 if sharing == "key-value" else 2)
    target = torch.randn(12, 3, 8, dtype=torch.float64)
    outs = (
        attention(x, x, x, need_weights=False)[0],
        attention(x, x, x)[0],
        naive_attention(attention, x, x, [12] * 3)[0],
    )
    fast, with_weights, naive = (
        torch.autograd.grad(y, inputs, target, allow_unused=True, materialize_grads=True) for y in outs
    )
    for a, b, c in zip(fast, with_weights, naive, strict=True):
        torch.testing.assert_close(a, c, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(b, c, rtol=1e-10, atol=1e-10)


@every_kind
@everything
@pytest.mark.parametrize("poison", [1e9, float("inf"), float("nan")])
def test_padding_never_reaches_an_output(kind: str, sharing: str, poison: float) -> None:
    attention = make_attention(kind, sharing)
    lengths = [20, 7, 1]
    mask = padding_mask(lengths)
    x = torch.randn(20, 3, 8, dtype=torch.float64)
    poisoned = x.masked_fill(mask.t()[:, :, None], poison)
    for need_weights in (False, True):
        clean, clean_weights = attention(x, x, x, key_padding_mask=mask, need_weights=need_weights)
        dirty, dirty_weights = attention(x, poisoned, poisoned, key_padding_mask=mask, need_weights=need_weights)
        torch.testing.assert_close(dirty, clean, rtol=0, atol=0)
        torch.testing.assert_close(dirty_weights, clean_weights, rtol=0, atol=0)


@every_kind
@everything
@given(length=st.integers(1, 8), longest=st.integers(8, 32))
def test_a_sentence_does_not_depend_on_its_batch(kind: str, sharing: str, length: int, longest: int) -> None:
    attention = make_attention(kind, sharing, dtype=torch.float32)
    x = torch.randn(longest, 2, 8)
    alone = x[:length, :1]
    mask = padding_mask([length, longest])
    expected, expected_weights = attention(alone, alone, alone)
    out, weights = attention(x, x, x, key_padding_mask=mask)
    torch.testing.assert_close(out[:length, :1], expected, rtol=0, atol=1e-5)
    torch.testing.assert_close(weights[:1, :length, :length], expected_weights, rtol=0, atol=1e-5)
    assert (weights[0, :, length:] == 0).all()


def full_attention(attention: LinformerMultiheadAttention, **options: object) -> MultiheadAttention:
    """fairseq's attention with the same weights."""
    full = MultiheadAttention(attention.embed_dim, attention.num_heads, **options)
    state = {name: weight for name, weight in attention.state_dict().items() if "projection" not in name}
    full.load_state_dict(state)
    return full.to(attention.q_proj.weight.dtype).eval()


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("pooled-linear", {}),
        ("mean-pool", {}),
        ("max-pool", {}),
        ("linear", {"init": "identity", "mask_empty_slots": True}),
    ],
)
@everything
@pytest.mark.parametrize("place", ["self_attention", "encoder_decoder_attention"])
def test_starts_as_full_attention_where_k_covers_the_sentence(
    kind: str, options: dict[str, object], sharing: str, place: str
) -> None:
    torch.manual_seed(0)
    attention = make_attention(kind, sharing, k=16, random=False, dtype=torch.float32, **{place: True}, **options)
    torch.nn.init.normal_(attention.k_proj.bias)
    torch.nn.init.normal_(attention.v_proj.bias)
    full = full_attention(attention, **{place: True})
    lengths = [16, 3, 9]
    mask = padding_mask(lengths)
    x = torch.randn(16, 3, 8)
    cross = place == "encoder_decoder_attention"  # where alone fairseq gives the weights of each head
    for head_weights in (False, True) if cross else (False,):
        options = {"key_padding_mask": mask, "need_head_weights": head_weights, "static_kv": cross}
        expected, expected_weights = full(x, x, x, **options)
        out, weights = attention(x, x, x, **options)
        torch.testing.assert_close(out, expected, rtol=0, atol=1e-5)
        torch.testing.assert_close(weights, expected_weights, rtol=0, atol=1e-5)


@everything
def test_weights_are_probabilities_times_f(sharing: str) -> None:
    attention = make_attention("linear", sharing, k=3, n=10)
    x = torch.randn(10, 2, 8, dtype=torch.float64)
    _, by_head = attention(x, x, x, need_head_weights=True)
    assert by_head.shape == (2, 2, 10, 10)
    # weights over tokens reproduce the output: out = weights V, with V the unprojected values without bias
    values = torch.nn.functional.linear(x, attention.v_proj.weight).view(10, 2, 2, 4)
    out = torch.einsum("hbtn,nbhd->tbhd", by_head, values).reshape(10, 2, 8) + attention.v_proj.bias
    expected, mean = attention(x, x, x)
    torch.testing.assert_close(attention.out_proj(out), expected)
    torch.testing.assert_close(mean, by_head.mean(0))


@pytest.mark.parametrize("kind", ["pooled-linear", "mean-pool", "conv"])
@everything
def test_weights_over_tokens_of_the_other_kinds(kind: str, sharing: str) -> None:
    """They reproduce the output as above, for sentences shorter and longer than k."""
    attention = make_attention(kind, sharing, k=3, n=12)
    x, mask = torch.randn(12, 2, 8, dtype=torch.float64), padding_mask([12, 2])
    _, weights = attention(x, x, x, key_padding_mask=mask, need_head_weights=True)
    values = torch.nn.functional.linear(x, attention.v_proj.weight).view(12, 2, 2, 4)
    out = torch.einsum("hbtn,nbhd->tbhd", weights, values).reshape(12, 2, 8) + attention.v_proj.bias
    expected, _ = attention(x, x, x, key_padding_mask=mask)
    torch.testing.assert_close(attention.out_proj(out), expected)


def test_static_keys_are_projected_once_and_reordered() -> None:
    attention = make_attention(k=4, encoder_decoder_attention=True, kdim=6, vdim=6)
    lengths = [20, 7, 11]
    key = torch.randn(20, 3, 6, dtype=torch.float64)
    query = torch.randn(5, 3, 8, dtype=torch.float64)
    mask = padding_mask(lengths)
    whole, whole_weights = attention(query, key, key, key_padding_mask=mask, static_kv=True)
    state: dict = {}
    for step in range(5):
        given_key = key if step == 0 else None
        out, weights = attention(
            query[step : step + 1], given_key, given_key, mask if step == 0 else None, state, static_kv=True
        )
        torch.testing.assert_close(out, whole[step : step + 1])
        torch.testing.assert_close(weights, whole_weights[:, step : step + 1])
    (buffer,) = state.values()
    assert buffer["keys"].shape == (3, 2, 4, 4)
    assert all(buffer[name].is_contiguous() for name in ("keys", "values"))  # as every step reads them
    order = torch.tensor([2, 2, 0, 0, 1, 1])
    attention.reorder_incremental_state(state, order)
    out, _ = attention(query[:1, order], None, None, None, state, static_kv=True)
    torch.testing.assert_close(out, whole[:1, order])


@every_kind
@pytest.mark.parametrize("options", [{"need_weights": False}, {}, {"need_head_weights": True}])
@pytest.mark.parametrize("length", [1, 3])
def test_beams_may_share_their_sentence(kind: str, options: dict, length: int) -> None:
    """As where each has keys of its own, at the first step and after a sentence has ended."""
    alone = make_attention(kind, k=4, encoder_decoder_attention=True)
    key = torch.randn(9, 3, 8, dtype=torch.float64).repeat_interleave(3, 1)
    mask = padding_mask([9, 4, 7]).repeat_interleave(3, 0)
    shared = make_attention(kind, k=4, encoder_decoder_attention=True)
    shared.load_state_dict(alone.state_dict())
    shared.set_beam_size(3)
    ends = torch.tensor([2, 1, 1, 7, 6, 8])  # the second sentence; hypotheses change places
    states: tuple[dict, dict] = ({}, {})
    for tokens, order in ((key, torch.arange(9)), (None, ends)):
        query = torch.randn(length, len(order), 8, dtype=torch.float64)
        if tokens is None:
            mask = None
            for attention, state in zip((alone, shared), states, strict=True):
                attention.reorder_incremental_state(state, order)
        expected, out = (
            attention(query, tokens, tokens, mask, state, static_kv=True, **options)
            for attention, state in zip((alone, shared), states, strict=True)
        )
        torch.testing.assert_close(out, expected)
    sizes = [next(iter(state.values()))["keys"].size(0) for state in states]
    assert sizes == [6, 2]


def test_a_beam_of_another_search_does_no_harm() -> None:
    """Fairseq's search sets it and leaves it set: for whatever comes after, in training and in steps of its own."""
    attention = make_attention(k=4, encoder_decoder_attention=True)
    key, query = torch.randn(9, 6, 8, dtype=torch.float64), torch.randn(2, 6, 8, dtype=torch.float64)
    mask, order = padding_mask([9, 4, 7, 5, 9, 1]), torch.tensor([5, 3, 3])
    expected, _ = attention(query, key, key, mask, static_kv=True)
    attention.set_beam_size(3)
    out, _ = attention(query, key, key, mask, static_kv=True)
    torch.testing.assert_close(out, expected)
    state: dict = {}
    out, _ = attention(query[:1], key, key, mask, state, static_kv=True)
    torch.testing.assert_close(out, expected[:1])
    attention.reorder_incremental_state(state, order)
    out, _ = attention(query[1:, order], None, None, None, state, static_kv=True)
    torch.testing.assert_close(out, expected[1:, order])
    one_key = key[:, :1].expand(-1, 6, -1)  # whose padding differs
    expected, _ = attention(query, one_key, one_key, mask, static_kv=True)
    out, _ = attention(query, one_key, one_key, mask, {}, static_kv=True)
    torch.testing.assert_close(out, expected)


@pytest.mark.parametrize("need_weights", [False, True])
def test_dropout_falls_on_the_weights(need_weights: bool) -> None:
    torch.manual_seed(0)
    attention = make_attention(dropout=0.5)
    x = torch.randn(9, 1, 8, dtype=torch.float64).expand(9, 20000, 8)
    expected = attention(x[:, :1], x[:, :1], x[:, :1])[0]
    out = attention.train()(x, x, x, need_weights=need_weights)[0]
    assert not torch.equal(out[:, 0], out[:, 1])
    torch.testing.assert_close(out.mean(1, keepdim=True), expected, rtol=0, atol=0.05 * expected.std().item())


def test_padding_may_go_beyond_the_longest_length_but_tokens_not() -> None:
    attention = make_attention(k=4, n=16)
    x = torch.randn(20, 2, 8, dtype=torch.float64)
    mask = padding_mask([16, 5], 20)
    out, weights = attention(x, x, x, key_padding_mask=mask)
    expected, expected_weights = attention(x, x[:16], x[:16], key_padding_mask=mask[:, :16])
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(weights[:, :, :16], expected_weights)
    assert weights.shape == (2, 20, 20)
    with pytest.raises(ValueError, match="longer than the 16 positions"):
        attention(x, x, x)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@every_kind
@everything
def test_half_precision_stays_finite(dtype: torch.dtype, kind: str, sharing: str) -> None:
    torch.manual_seed(0)
    options = {"k": 64, "n": 1024, "embed_dim": 64, "num_heads": 4, "random": False}
    attention = make_attention(kind, sharing, dtype=dtype, **options)
    x = torch.randn(1024, 2, 64, dtype=dtype, requires_grad=True)
    mask = padding_mask([1024, 600])
    for need_weights in (False, True):
        out, weights = attention(x, x, x, key_padding_mask=mask, need_weights=need_weights)
        out.float().sum().backward()
        assert out.isfinite().all()
        assert weights is None or weights.isfinite().all()
        assert x.grad.isfinite().all()
        assert all(p.grad is None or p.grad.isfinite().all() for p in attention.parameters())
        attention.zero_grad()


def test_quantisation_noise() -> None:
    attention = make_attention(k=4, q_noise=0.5, qn_block_size=4).train()
    x = torch.randn(9, 2, 8, dtype=torch.float64)
    assert not torch.equal(attention(x, x, x)[0], attention(x, x, x)[0])
    with pytest.raises(ValueError, match=r"quantisation noise \(--quant-noise-pq\)"):
        make_attention(sharing="none", q_noise=0.5)


@pytest.mark.parametrize(
    ("option", "value"), [("add_bias_kv", True), ("add_zero_attn", True), ("xformers_att_config", "{'name': 'x'}")]
)
def test_refuses_to_be_built_with(option: str, value: object) -> None:
    with pytest.raises(ValueError, match=option):
        make_attention(**{option: value})


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("attn_mask", {"attn_mask": torch.zeros(9, 9)}),
        ("before_softmax", {"before_softmax": True}),
        ("incremental_state", {"incremental_state": {}}),
    ],
)
def test_refuses_to_be_called_with(name: str, options: dict[str, object]) -> None:
    attention = make_attention()
    x = torch.randn(9, 2, 8, dtype=torch.float64)
    with pytest.raises(ValueError, match=name):
        attention(x, x, x, **options)


@pytest.mark.parametrize("causal", [False, True])
def test_refuses_keys_of_another_batch(causal: bool) -> None:
    attention = make_attention(causal=causal)
    x = torch.randn(9, 4, 8, dtype=torch.float64)
    with pytest.raises(ValueError, match="keys for every sentence of the queries, not for 2 of 4"):
        attention(x, x[:, :2], x[:, :2])


def test_refuses_projections_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="made for 3 heads, but the attention has 2"):
        LinformerMultiheadAttention(8, 2, key_projection=LinearProjection(4, 8, num_heads=3))
    for other in (LinearProjection(5, 8), LinearProjection(4, 9), LinearProjection(4, 8, 2), MeanPool(4, 8)):
        with pytest.raises(ValueError, match="must agree"):
            LinformerMultiheadAttention(8, 2, key_projection=LinearProjection(4, 8), value_projection=other)


def test_keeps_the_names_of_fairseq() -> None:
    names = set(MultiheadAttention(8, 2).state_dict())
    shared = LinformerMultiheadAttention(
        8, 2, key_projection=LinearProjection(4, 32), value_projection=LinearProjection(4, 32)
    )
    assert set(shared.state_dict()) == names | {"key_projection.weight", "value_projection.weight"}
    assert shared.key_projection.weight.shape == (4, 32)
    heads = make_attention(sharing="none")
    assert heads.value_projection.weight.shape == (2, 4, 32)


@pytest.mark.parametrize(
    ("causal", "n", "k", "folded", "projected_scores"),
    [
        (False, 10, 1, True, False),
        (False, 10, 4, False, False),
        (False, 5, 20, False, True),
        pytest.param(True, 10, 4, False, False, marks=compiles_own_gradients),
        pytest.param(3, 10, 4, False, False, marks=compiles_own_gradients),
    ],
)
@pytest.mark.parametrize("training", [False, True])
def test_compiles_without_a_graph_break(
    causal: int, n: int, k: int, folded: bool, projected_scores: bool, training: bool
) -> None:
    """`causal` is the window where there is one."""
    torch._dynamo.reset()
    window = causal if causal > 1 else 0
    attention = make_attention("linear", k=k, causal=bool(causal), window=window).train(training)
    pair = attention.key_projection, attention.value_projection
    assert folding_pays(n, k, 2, attention.q_proj, attention.out_proj) == folded
    assert projecting_scores_pays(pair, (attention.k_proj, attention.v_proj), n, 2, n, True) == projected_scores
    compiled = torch.compile(attention, fullgraph=True, backend="aot_eager")
    x = torch.randn(n, 2, 8, dtype=torch.float64, requires_grad=training)
    mask = padding_mask([n, n - 4])
    for options in ({"need_weights": False}, {"need_weights": True}):
        out, _ = compiled(x, x, x, key_padding_mask=mask, **options)
        expected, _ = attention(x, x, x, key_padding_mask=mask, **options)
        torch.testing.assert_close(out, expected)
        if training:
            gradients = [torch.autograd.grad(y.square().sum(), [x, *attention.parameters()]) for y in (out, expected)]
            for one, other in zip(*gradients, strict=True):
                torch.testing.assert_close(one, other)


@everything
@pytest.mark.parametrize(("n", "k"), [(10, 4), (5, 20)])
def test_activations_may_be_checkpointed(sharing: str, n: int, k: int) -> None:
    attention = make_attention("linear", sharing, k=k).train()
    x = torch.randn(n, 2, 8, dtype=torch.float64, requires_grad=True)
    inputs = [x, *attention.parameters()]

    def run(x: torch.Tensor) -> torch.Tensor:
        return attention(x, x, x, key_padding_mask=padding_mask([n, n - 4]), need_weights=False)[0]

    kept = run(x)
    recomputed = torch.utils.checkpoint.checkpoint(run, x, use_reentrant=False)
    gradients = [torch.autograd.grad(y.square().sum(), inputs) for y in (kept, recomputed)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


@torch.no_grad()
@pytest.mark.parametrize("padded", [False, True])
def test_memory_is_that_of_two_tensors_of_tokens_and_the_slots(padded: bool) -> None:
    """Queries and what attention gives, then that and the output: nothing is copied between them, and tokens cleared of
    padding are let go before."""
    n, sentences, width, k = 256, 4, 32, 64
    projections = {f"{side}_projection": LinearProjection(k, n) for side in ("key", "value")}
    attention = LinformerMultiheadAttention(width, 2, self_attention=True, **projections).eval()
    x = torch.randn(n, sentences, width)
    mask = padding_mask([n, *[n - 9] * (sentences - 1)]) if padded else None
    peak = peak_bytes(lambda: attention(x, x, x, key_padding_mask=mask, need_weights=False), torch.device("cpu"))
    slots = 2 * x.nbytes * k // n
    assert 2 * x.nbytes + slots <= peak < 2.4 * x.nbytes + slots
