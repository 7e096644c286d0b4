"""A state that is filled must be one that decoding could have left."""

import pytest
import torch
from torch import Tensor

from linformer_fairseq.benchmark.causal.beam_search import Search
from linformer_fairseq.benchmark.causal.models import LINFORMERS, TRANSFORMER, build_models
from linformer_fairseq.benchmark.causal.settings import CausalSettings

POSITION = 7


def layout(x: Tensor | None) -> tuple | None:
    return None if x is None else (x.shape, x.dtype, x.stride(), x.device)


@pytest.fixture
def searches(request: pytest.FixtureRequest, settings: CausalSettings) -> tuple[Search, Search]:
    """Two searches with one model: decoded to the position, and filled up to it."""
    name, beam = request.param
    model = build_models(settings, target_positions=32)[name]
    source = torch.randint(4, 20, (settings.sentences, settings.source_length))
    with torch.no_grad():
        decoded, filled = (Search(model, source, beam, 32) for _ in range(2))
        decoded.first_step()
        for position in range(1, POSITION):
            decoded.step(position, decoded.random_order())
        filled.first_step()
        filled.fill(POSITION)
    return decoded, filled


every_model = pytest.mark.parametrize(
    "searches", [(name, beam) for name in (TRANSFORMER, *LINFORMERS) for beam in (1, 3)], indirect=True, ids=str
)


@every_model
def test_filled_state_is_like_a_decoded_one(searches: tuple[Search, Search]) -> None:
    decoded, filled = searches
    assert filled.state.keys() == decoded.state.keys()
    for key, buffer in decoded.state.items():
        assert {name: layout(x) for name, x in filled.state[key].items()} == {
            name: layout(x) for name, x in buffer.items()
        }
        if "tokens" in buffer:
            assert filled.state[key]["tokens"] == buffer["tokens"] == POSITION
    assert filled.state_bytes() == decoded.state_bytes()


@every_model
@torch.no_grad()
def test_search_goes_on_from_a_filled_state(searches: tuple[Search, Search]) -> None:
    results = [search.step(POSITION, search.random_order()) for search in searches]
    assert [layout(x) for x in results[0]] == [layout(x) for x in results[1]]
    assert results[1][0].isfinite().all()
    assert searches[0].state_bytes() == searches[1].state_bytes()


@pytest.mark.parametrize("name", [TRANSFORMER, *LINFORMERS])
@torch.no_grad()
def test_size_is_known_before_filling(name: str, settings: CausalSettings) -> None:
    search = Search(build_models(settings, target_positions=32)[name], torch.full((2, 5), 4), 3, 32)
    search.first_step()
    foretold = search.bytes_at(POSITION)
    search.fill(POSITION)
    # the number of tokens is not foretold
    numbers = sum(buffer["tokens"].nbytes for buffer in search.state.values() if "tokens" in buffer)
    assert search.state_bytes()[0] == foretold + numbers


@pytest.mark.parametrize("searches", [(TRANSFORMER, 1), (TRANSFORMER, 3)], indirect=True, ids=str)
def test_orders_stay_within_a_sentence(searches: tuple[Search, Search]) -> None:
    search = searches[0]
    order = search.random_order()
    assert torch.equal(order // search.beam, torch.arange(search.rows) // search.beam)
