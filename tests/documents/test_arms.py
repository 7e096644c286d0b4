"""The models of the study."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linformer_fairseq.documents.arms import ARMS, for_length
from linformer_fairseq.modules.level_sizes import CROSS, ENCODER, SizeRule
from tests.models.toy import toy_model

TWO_LEVELS = ("two-level", "two-level-all", "two-level-convolution", "converted")


def test_only_two_levels_change_with_the_length() -> None:
    for name, arm in ARMS.items():
        assert for_length(arm, 2048, 2048, 64) == for_length(arm, 512, 2048, 64) == {}
        assert bool(for_length(arm, 2049, 2048, 64)) == (name in TWO_LEVELS)
    assert for_length(ARMS["two-level"], 4096, 2048, 64) == {"linformer_k": "128"}
    assert for_length(ARMS["two-level-all"], 4096, 2048, 64) == {"linformer_k": "128", "linformer_decoder_k": "64"}
    assert for_length(ARMS["two-level"], 4097, 2048, 64)["linformer_k"] == "192"


@pytest.mark.parametrize("name", TWO_LEVELS)
def test_models_take_what_changes(name: str) -> None:
    arm = ARMS[name]
    own, longer = (
        toy_model(
            linformer_attention=arm.attention,
            linformer_projection=arm.projection,
            **{"linformer_k": "4", **for_length(arm, longest, 30, 4)},
        )
        for longest in (30, 60)
    )
    assert longer.encoder.layers[0].self_attn.rule.projected_dim == 8
    assert longer.decoder.layers[0].encoder_attn.rule.projected_dim == 8
    assert repr(longer.decoder.layers[0].self_attn) == repr(own.decoder.layers[0].self_attn)


@given(st.integers(1, 5000), st.integers(1, 5000), st.integers(1, 300))
def test_windows_are_no_wider_than_in_training(longest: int, trained: int, k: int) -> None:
    changed = int(for_length(ARMS["two-level"], longest, trained, k).get("linformer_k", k))
    for shares in (ENCODER, CROSS):
        assert SizeRule(changed, shares).cut(longest).width <= SizeRule(k, shares).cut(trained).width
