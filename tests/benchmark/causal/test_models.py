"""The models that are compared."""

import pytest

from linformer_fairseq.benchmark.causal.models import LINFORMERS, build_models
from linformer_fairseq.benchmark.causal.settings import CausalSettings
from linformer_fairseq.modules import (
    CausalLinformerAttention,
    LinearProjection,
    LinformerMultiheadAttention,
    ProjectedAttention,
)


@pytest.mark.parametrize("name", LINFORMERS)
def test_slots_alone(name: str, settings: CausalSettings) -> None:
    """Published figures are of k learned slots and no window, whatever the models' defaults are."""
    modules = build_models(settings, target_positions=32)[name].modules()
    attentions = [module for module in modules if isinstance(module, ProjectedAttention)]
    assert len(attentions) == settings.layers * len(LINFORMERS[name].split(","))
    for attention in attentions:
        assert type(attention) in (LinformerMultiheadAttention, CausalLinformerAttention)
        assert type(attention.key_projection) is LinearProjection
        assert attention.key_projection.projected_dim == settings.k
        assert getattr(attention, "window", 0) == 0
