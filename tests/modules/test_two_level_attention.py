"""Two-level attention in both of its forms against loops over queries and windows, and against full attention."""

import pytest
import torch
from fairseq.modules import MultiheadAttention
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from linformer_fairseq import TwoLevelAttention
from linformer_fairseq.modules.ops import two_level
from linformer_fairseq.modules.ops.naive import pooling_matrix
from linformer_fairseq.modules.ops.windows import even_windows, window_means
from tests.reference import naive_attention

WIDTH, N = 16, 40


def make(k: int, opened: int, heads: int = 2, dtype: torch.dtype = torch.float64) -> TwoLevelAttention:
    sizes = {"projected_dim": k, "max_positions": N, "open_slots": opened}
    attention = TwoLevelAttention(WIDTH, heads, encoder_decoder_attention=True, **sizes)
    for parameter in attention.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return attention.to(dtype).eval()


def padding(lengths: list[int]) -> torch.Tensor:
    return torch.arange(max(lengths)) >= torch.tensor(lengths)[:, None]


@given(st.lists(st.integers(1, N), min_size=1, max_size=4), st.integers(1, N))
def test_windows_are_those_of_the_pool(lengths: list[int], k: int) -> None:
    n = max(lengths)
    windows = even_windows(n, torch.tensor(lengths), k)
    x = torch.randn(n, len(lengths), 3, dtype=torch.float64)
    x.masked_fill_(padding(lengths).t()[..., None], 0.0)
    pooled = window_means(x, windows)
    for sentence, length in enumerate(lengths):
        matrix = pooling_matrix(length, k)
        filled = len(matrix)
        assert windows.sizes[sentence].tolist() == [*(matrix > 0).sum(1).tolist(), *[0] * (min(k, n) - filled)]
        assert windows.of_tokens[sentence, :length].tolist() == (matrix > 0).int().argmax(0).tolist()
        assert (windows.of_tokens[sentence, length:] == min(k, n)).all()
        torch.testing.assert_close(pooled[:filled, sentence], matrix @ x[:length, sentence])
        assert not pooled[filled:, sentence].any()


@pytest.mark.parametrize("tiles", [False, True])
@given(
    lengths=st.lists(st.integers(1, N), min_size=1, max_size=3),
    queries=st.integers(1, 9),
    k=st.integers(1, 12),
    opened=st.integers(1, 5),
    heads=st.sampled_from([1, 2, 4]),
    padded=st.integers(0, 3),
)
def test_values_and_gradients_equal_naive_reference(
    tiles: bool, lengths: list[int], queries: int, k: int, opened: int, heads: int, padded: int
) -> None:
    attention = make(k, opened, heads)
    key = torch.randn(min(N, max(lengths) + padded), len(lengths), WIDTH, dtype=torch.float64, requires_grad=True)
    query = torch.randn(queries, len(lengths), WIDTH, dtype=torch.float64, requires_grad=True)
    inputs = [query, key, *(x for name, x in attention.named_parameters() if name != "k_proj.bias")]
    expected, _ = naive_attention(attention, query, key, lengths)
    mask = torch.arange(len(key)) >= torch.tensor(lengths)[:, None]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(two_level, "in_tiles_pays", lambda *_: tiles)
        out, weights = attention(query, key, key, key_padding_mask=mask, static_kv=True, need_weights=False)
    assert weights is None
    torch.testing.assert_close(out, expected)
    upstream = torch.randn_like(out)
    for one, other in zip(*(torch.autograd.grad(y, inputs, upstream) for y in (out, expected)), strict=True):
        torch.testing.assert_close(one, other)


@given(
    lengths=st.lists(st.integers(1, N), min_size=1, max_size=3),
    k=st.integers(1, 12),
    opened=st.integers(1, 5),
    padded=st.integers(0, 3),
)
def test_weights_equal_naive_reference(lengths: list[int], k: int, opened: int, padded: int) -> None:
    attention = make(k, opened)
    key = torch.randn(max(lengths) + padded, len(lengths), WIDTH, dtype=torch.float64)
    query = torch.randn(4, len(lengths), WIDTH, dtype=torch.float64)
    mask = torch.arange(len(key)) >= torch.tensor(lengths)[:, None]
    _, expected = naive_attention(attention, query, key[: max(lengths)], lengths)
    with torch.no_grad():
        without, _ = attention(query, key[:N], key[:N], mask[:, :N], static_kv=True, need_weights=False)
        out, by_head = attention(query, key, key, mask, static_kv=True, need_head_weights=True)
        _, mean = attention(query, key, key, mask, static_kv=True)
    torch.testing.assert_close(out, without)
    assert not by_head[..., max(lengths) :].any()
    torch.testing.assert_close(by_head[..., : max(lengths)], expected)
    torch.testing.assert_close(mean, by_head.mean(0))
    torch.testing.assert_close(by_head.sum(-1), torch.ones_like(by_head[..., 0]))


@pytest.mark.parametrize(("k", "opened"), [(20, 1), (5, 5), (4, 9)])
def test_is_full_attention_where_every_token_is_met(k: int, opened: int) -> None:
    """With a slot for every token, or all slots opened."""
    attention = make(k, opened)
    full = MultiheadAttention(WIDTH, 2, encoder_decoder_attention=True).double().eval()
    full.load_state_dict(attention.state_dict())
    lengths = [16, 7, 1]
    key, query = torch.randn(16, 3, WIDTH).double(), torch.randn(5, 3, WIDTH).double()
    mask = padding(lengths)
    for options in ({"need_weights": False}, {}):
        out, weights = attention(query, key, key, mask, static_kv=True, **options)
        expected, expected_weights = full(query, key, key, mask, static_kv=True, **options)
        torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)  # fairseq's softmax is in float32
        if options == {}:
            torch.testing.assert_close(weights, expected_weights, check_dtype=False, rtol=1e-5, atol=1e-5)


def test_opened_tokens_are_met_as_they_are() -> None:
    """The value of one token in an opened slot comes through alone, where a mean would blur it."""
    attention = make(4, 1, heads=1)
    for linear in (attention.q_proj, attention.k_proj, attention.v_proj, attention.out_proj):
        torch.nn.init.eye_(linear.weight)
        torch.nn.init.zeros_(linear.bias)
    key = torch.eye(WIDTH).double()[:, None] * 100
    out, weights = attention(key[5:6], key, key, static_kv=True)
    torch.testing.assert_close(out, key[5:6])
    assert weights[0, 0].argmax() == 5


@given(st.integers(0, 10_000))
def test_one_slot_may_be_opened_by_all_queries(seed: int) -> None:
    """The worst case for tiles: whatever slots the pairs have, each has a place of its own in a tile of its slot."""
    generator = torch.Generator().manual_seed(seed)
    pairs, slots = (int(torch.randint(1, 30, (), generator=generator)) for _ in range(2))
    allowed = int(torch.randint(1, slots + 1, (), generator=generator))
    of_pairs = torch.randint(0, allowed, (3, pairs), generator=generator)
    tiles = two_level._tiles(of_pairs, slots)
    for places, pair_slots, tile_slots in zip(tiles.places, of_pairs, tiles.slots, strict=True):
        assert len(set(places.tolist())) == pairs
        assert places.max() < len(tile_slots) * tiles.size
        assert torch.equal(tile_slots[places // tiles.size], pair_slots)
    x = torch.randn(3, pairs, 2)
    assert torch.equal(tiles.collect(tiles.spread(x)), x)


def test_padding_never_matters() -> None:
    attention = make(3, 2)
    key, query = torch.randn(12, 2, WIDTH).double(), torch.randn(5, 2, WIDTH).double()
    mask = padding([12, 7])
    for tiles in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(two_level, "in_tiles_pays", lambda *_, tiles=tiles: tiles)
            out, _ = attention(query, key, key, mask, static_kv=True, need_weights=False)
            poisoned = key.masked_fill(mask.t()[..., None], 1e9)
            again, _ = attention(query, poisoned, poisoned, mask, static_kv=True, need_weights=False)
            alone, _ = attention(query[:, 1:], key[:7, 1:], key[:7, 1:], static_kv=True, need_weights=False)
        assert torch.equal(again, out)
        torch.testing.assert_close(alone, out[:, 1:])


@pytest.mark.parametrize("way", ["dense", "tiles", "weights"])
def test_an_empty_sentence_harms_no_other(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two_level, "in_tiles_pays", lambda *_: way == "tiles")
    attention = make(3, 2)
    key, query = torch.randn(9, 2, WIDTH).double(), torch.randn(4, 2, WIDTH).double()
    out, _ = attention(query, key, key, padding([9, 0]), static_kv=True, need_weights=way == "weights")
    assert out.isfinite().all()
    gradients = torch.autograd.grad(out[:, 0].sum(), list(attention.parameters()), allow_unused=True)
    assert all(gradient is None or gradient.isfinite().all() for gradient in gradients)


def test_each_slot_is_opened_once_in_half_precision() -> None:
    """Where a sentence has fewer tokens than slots are opened, its empty slots are: never one slot twice."""
    windows = even_windows(9, torch.tensor([2]), 5)
    for score in (-100.0, -60000.0):
        scores = torch.full((1, 1, 1, 5), score, dtype=torch.float16)
        assert sorted(two_level._best_slots(scores, windows, 4).flatten().tolist()) == [0, 1, 2, 3]


def test_no_query(monkeypatch: pytest.MonkeyPatch) -> None:
    key = torch.randn(9, 2, WIDTH).double()
    for tiles in (False, True):
        monkeypatch.setattr(two_level, "in_tiles_pays", lambda *_, tiles=tiles: tiles)
        out, _ = make(3, 2)(key[:0], key, key, static_kv=True, need_weights=False)
        assert out.shape == (0, 2, WIDTH)


def test_tiles_multiply_less_for_long_sources() -> None:
    """Counted by torch: at 4,096 tokens, 64 slots and 3 opened ones less than a sixth of full attention."""
    n, k = 4096, 64
    sizes = {"projected_dim": k, "max_positions": n}
    attention = TwoLevelAttention(WIDTH, 2, encoder_decoder_attention=True, **sizes).eval()
    x = torch.randn(n, 1, WIDTH)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        attention(x, x, x, static_kv=True, need_weights=False)
    full = 2 * 2 * n * n * WIDTH
    linear_layers = 2 * 4 * n * WIDTH * WIDTH
    assert counter.get_total_flops() - linear_layers < full / 6


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_keeps_the_mean(dtype: torch.dtype) -> None:
    attention = make(4, 2, dtype=dtype)
    query, key = torch.randn(1, 1, WIDTH, dtype=dtype), torch.randn(12, 1, WIDTH, dtype=dtype)
    expected, _ = attention(query, key, key, static_kv=True, need_weights=False)
    attention.dropout_module.p = 0.3
    attention.train()
    many = query.expand(4000, 1, WIDTH)
    for tiles in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(two_level, "in_tiles_pays", lambda *_, tiles=tiles: tiles)
            out, _ = attention(many, key, key, static_kv=True, need_weights=False)
        assert out.float().std(0).max() > 0.01
        torch.testing.assert_close(out.float().mean(0), expected[0].float(), rtol=0.05, atol=0.08)


@pytest.mark.skipif(
    tuple(map(int, torch.__version__.split(".")[:2])) < (2, 4),
    reason="this torch does not compile a named tuple's properties",
)
@pytest.mark.parametrize("tiles", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_compiles_without_a_graph_break(tiles: bool, training: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch._dynamo.reset()
    monkeypatch.setattr(two_level, "in_tiles_pays", lambda *_: tiles)
    attention = make(4, 2).train(training)
    compiled = torch.compile(attention, fullgraph=True, backend="aot_eager")
    key = torch.randn(12, 2, WIDTH, dtype=torch.float64, requires_grad=training)
    query = torch.randn(5, 2, WIDTH, dtype=torch.float64)
    for options in ({"need_weights": False}, {}):
        out, expected = (
            a(query, key, key, padding([12, 7]), static_kv=True, **options)[0] for a in (compiled, attention)
        )
        torch.testing.assert_close(out, expected)
        if training:
            one, other = (torch.autograd.grad(y.square().sum(), key)[0] for y in (out, expected))
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize("tiles", [False, True])
def test_activations_may_be_checkpointed(tiles: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two_level, "in_tiles_pays", lambda *_: tiles)
    attention = make(4, 2).train()
    key = torch.randn(12, 2, WIDTH, dtype=torch.float64, requires_grad=True)

    def run(x: torch.Tensor) -> torch.Tensor:
        return attention(x, x, x, padding([12, 7]), need_weights=False)[0]

    kept, recomputed = run(key), torch.utils.checkpoint.checkpoint(run, key, use_reentrant=False)
    one, other = (torch.autograd.grad(y.square().sum(), key)[0] for y in (kept, recomputed))
    torch.testing.assert_close(one, other)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("tiles", [False, True])
def test_half_precision(dtype: torch.dtype, tiles: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By itself and under autocast, against float64 with the same weights."""
    monkeypatch.setattr(two_level, "in_tiles_pays", lambda *_: tiles)
    attention = make(4, 4, dtype=dtype)  # all slots opened, so that rounding changes no choice
    exact = make(4, 4)
    exact.load_state_dict(attention.state_dict())
    query, key = torch.randn(5, 2, WIDTH), torch.randn(12, 2, WIDTH)
    mask = padding([12, 7])
    expected, _ = exact(query.double(), key.double(), key.double(), mask, static_kv=True)
    for weights in (False, True):
        halves = [x.to(dtype) for x in (query, key, key)]
        out, _ = attention(*halves, mask, static_kv=True, need_weights=weights)
        assert out.dtype == dtype
        torch.testing.assert_close(out.double(), expected, rtol=0.1, atol=0.3)
        with torch.autocast("cpu", dtype):
            mixed, _ = exact.float()(query, key, key, mask, static_kv=True, need_weights=weights)
        torch.testing.assert_close(mixed.double(), expected, rtol=0.1, atol=0.3)
        exact.double()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_means_of_long_windows_stay_in_half_precision(dtype: torch.dtype) -> None:
    """Whose sums do not."""
    windows = even_windows(4000, torch.tensor([4000, 3000]), 2)
    x = torch.full((4000, 2, 1), 100.0, dtype=dtype)
    assert torch.equal(window_means(x, windows), torch.full((2, 2, 1), 100.0, dtype=dtype))


def test_refusals() -> None:
    for sizes, sentence in (
        ({"projected_dim": 4, "open_slots": 0}, "opens must be at least 1, not 0"),
        ({"projected_dim": 0}, "k must be at least 1, not 0"),
        ({"projected_dim": 9}, "k = 9 is larger than the longest length N = 8"),
    ):
        with pytest.raises(ValueError, match=sentence):
            TwoLevelAttention(8, 2, self_attention=True, max_positions=8, **sizes)
