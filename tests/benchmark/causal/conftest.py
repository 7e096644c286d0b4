"""Sizes at which a benchmark takes seconds."""

import pytest

from linformer_fairseq.benchmark.causal.settings import CausalSettings


@pytest.fixture
def settings() -> CausalSettings:
    return CausalSettings(
        k=8,
        dim=16,
        heads=2,
        layers=2,
        ffn_dim=16,
        words=20,
        sentences=2,
        source_length=5,
        beams=(1, 3),
        positions=(4,),
        batch=2,
        lengths=(16,),
        eager_limit=16,
        chunk_sizes=(4,),
    )
