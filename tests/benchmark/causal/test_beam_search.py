"""A state that is filled must be one that decoding could have left."""

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from linformer_fairseq.benchmark.causal.beam_search import Search
from linformer_fairseq.benchmark.causal.models import OURS, TRANSFORMER, build_models
from linformer_fairseq.benchmark.causal.settings import CausalSettings
from linformer_fairseq.benchmark.models import TWO_LEVEL_FLAGS, build
from linformer_fairseq.modules.ops import thresholds
from linformer_fairseq.modules.ops.causal_two_level_steps import History

POSITION = 7
EXACT, BLOCK = 12, 4
ROOM = ("keys", "values", "mean_keys", "mean_values")
"""The tensors of a history that are as long as the target; a step would copy them if their memory were in disorder."""


def layout(x: Any, strides: bool = True) -> Any:
    """What a state is, without the numbers in its tensors; small ones of lists and histories may be views or not."""
    if isinstance(x, Tensor):
        return (x.shape, x.dtype, x.device, x.stride() if strides else None)
    if isinstance(x, dict):
        return {name: layout(own, strides) for name, own in x.items()}
    if isinstance(x, (list, tuple)):
        return [layout(own, False) for own in x]
    if isinstance(x, History):
        return {name: layout(own, name in ROOM) for name, own in vars(x).items()}
    return x


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("name", [TRANSFORMER, *OURS])
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
        assert layout(own) == layout(buffer)
        if "tokens" in buffer:
            assert own["tokens"].size(2) == buffer["tokens"].size(2) == POSITION
    assert filled.state_bytes() == decoded.state_bytes()

    results = [search.step(POSITION, search.random_order()) for search in (decoded, filled)]
    assert [layout(x) for x in results[0]] == [layout(x) for x in results[1]]
    assert results[1][0].isfinite().all()
    assert filled.state_bytes() == decoded.state_bytes()


@pytest.mark.parametrize("position", [EXACT - 1, EXACT, EXACT + 1, EXACT + BLOCK, 32, 39])
@torch.no_grad()
def test_filled_state_of_two_levels_that_close_windows(
    position: int, settings: CausalSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In both attentions of the decoder, at either end of a block, and where room has grown."""
    # the state would depend on which hypotheses descend from the same one
    monkeypatch.setitem(thresholds._BY_TYPE, "cpu", thresholds.CPU._replace(shares_rows=False))
    settings = dataclasses.replace(settings, source_length=20)
    sizes = {"exact_below": 10, "open_slots": 2, "slot_width": 2, "block_size": BLOCK}
    flags: dict[str, Any] = {**TWO_LEVEL_FLAGS, "linformer_k": "8"}
    flags |= {f"linformer_{name}": size for name, size in sizes.items()}
    model = build(flags, settings.model, settings.model.task(), 64).eval()
    model.make_generation_fast_(need_attn=False)
    attention = model.decoder.layers[0].self_attn
    assert (attention.exact, attention.sizes.block) == (EXACT, BLOCK)
    source = torch.randint(4, 20, (settings.sentences, settings.source_length))
    decoded, filled = (Search(model, source, 3, 64) for _ in range(2))
    decoded.first_step()
    for step in range(1, position):
        decoded.step(step, decoded.random_order())
    filled.first_step()
    filled.fill(position)
    assert layout(filled.state) == layout(decoded.state)
    assert filled.state_bytes() == decoded.state_bytes()
    scores = [search.step(position, search.random_order())[0] for search in (decoded, filled)]
    assert scores[1].isfinite().all()
    assert layout(filled.state) == layout(decoded.state)


@torch.no_grad()
def test_orders_stay_within_a_sentence(settings: CausalSettings) -> None:
    model = build_models(settings, target_positions=32)[TRANSFORMER]
    search = Search(model, torch.full((settings.sentences, 5), 4), 3, 32)
    order = torch.stack([search.random_order() for _ in range(5)])
    assert torch.equal(order // 3, torch.arange(3 * settings.sentences).expand(5, -1) // 3)
    assert len(order.unique(dim=0)) > 1
