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


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("name", [TRANSFORMER, *LINFORMERS])
@torch.no_grad()
def test_filled_state_is_like_a_decoded_one(name: str, beam: int, settings: CausalSettings) -> None:
    model = build_models(settings, target_positions=32)[name]
    source = torch.randint(4, 20, (settings.sentences, settings.source_length))
    decoded, filled = (Search(model, source, beam, 32) for _ in range(2))
    decoded.first_step()
    for position in range(1, POSITION):
        decoded.step(position, decoded.random_order())
    filled.first_step()
    filled.fill(POSITION)
    assert filled.state.keys() == decoded.state.keys()
    for key, buffer in decoded.state.items():
        own = filled.state[key]
        assert {name: layout(x) for name, x in own.items()} == {name: layout(x) for name, x in buffer.items()}
        if "tokens" in buffer:
            assert own["tokens"].size(2) == buffer["tokens"].size(2) == POSITION
    assert filled.state_bytes() == decoded.state_bytes()

    results = [search.step(POSITION, search.random_order()) for search in (decoded, filled)]
    assert [layout(x) for x in results[0]] == [layout(x) for x in results[1]]
    assert results[1][0].isfinite().all()
    assert filled.state_bytes() == decoded.state_bytes()


@torch.no_grad()
def test_orders_stay_within_a_sentence(settings: CausalSettings) -> None:
    model = build_models(settings, target_positions=32)[TRANSFORMER]
    search = Search(model, torch.full((settings.sentences, 5), 4), 3, 32)
    order = torch.stack([search.random_order() for _ in range(5)])
    assert torch.equal(order // 3, torch.arange(3 * settings.sentences).expand(5, -1) // 3)
    assert len(order.unique(dim=0)) > 1
