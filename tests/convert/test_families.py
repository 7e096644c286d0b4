"""The flags of a conversion become the attention of a family of models, and are told again for a training."""

import shlex
from argparse import Namespace
from pathlib import Path

import pytest

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.convert.arguments import parse
from linformer_fairseq.convert.families import (
    FAMILIES,
    LANGUAGE_MODEL,
    MASKED_LANGUAGE_MODEL,
    TRANSLATION,
    Family,
    architecture_of,
    family_of,
)
from linformer_fairseq.models.config import AttentionConfig
from tests.convert.toy_checkpoints import lm_state_of, roberta_state_of, state_of
from tests.fairseq_commands import ALL_PLACES, LINFORMER

LINEAR_DECODER = ["--linformer-decoder-projection", "linear"]
every = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.model)


def config(family: Family, *given: str) -> AttentionConfig:
    return family.config(parse(["a.pt", "b.pt", *given]).flags)


@every
def test_two_levels_in_all_places_by_default(family: Family) -> None:
    own = config(family)
    assert own.linformer_projection == "two-level"
    assert {own.kind_of(place).attention.__name__ for place in own.places - {"decoder"}} <= {"TwoLevelAttention"}
    places = {
        TRANSLATION: {"encoder", "cross", "decoder"},
        LANGUAGE_MODEL: {"decoder"},
        MASKED_LANGUAGE_MODEL: {"encoder"},
    }
    assert own.places == places[family]
    if "decoder" in own.places:
        assert own.kind_of("decoder").attention.__name__ == "CausalTwoLevelAttention"


def test_empty_slots_of_learned_projections_are_masked() -> None:
    for family in FAMILIES:
        assert not config(family).linformer_mask_empty_slots
        assert config(family, *LINFORMER).linformer_mask_empty_slots
    assert config(TRANSLATION, *LINEAR_DECODER).linformer_mask_empty_slots
    assert config(TRANSLATION, *LINEAR_DECODER).linformer_window is None  # half of k
    assert config(TRANSLATION, *ALL_PLACES, *LINFORMER).linformer_window == 0


@every
def test_the_flags_for_a_training_give_the_same_attention(family: Family) -> None:
    for given in (
        [],
        ["--linformer-k", "8", *LINFORMER],
        ["--linformer-k", "8", "--linformer-exact-below", "0", "--linformer-open-slots", "2"],
    ):
        own = config(family, *given)
        told = shlex.split(family.flags(own))
        again = config(family, *told)
        assert again == own
    assert shlex.split(family.flags(config(family))) == ["--linformer-projection", "two-level"]


def test_flags_of_other_families_are_refused() -> None:
    parsed = parse(["a.pt", "b.pt", *ALL_PLACES])
    assert TRANSLATION.config(parsed.flags)
    with pytest.raises(UserError, match=r"^--linformer-attention is not for language models: leave it out\.$"):
        LANGUAGE_MODEL.config(parsed.flags)
    with pytest.raises(UserError, match=r"^--linformer-attention is not for masked language models: leave it out\.$"):
        MASKED_LANGUAGE_MODEL.config(parsed.flags)
    assert config(MASKED_LANGUAGE_MODEL, "--linformer-projection", "mean-pool")
    with pytest.raises(
        UserError, match=r"^--linformer-projection is one of linear, two-level, window, not 'mean-pool'\.$"
    ):
        config(LANGUAGE_MODEL, "--linformer-projection", "mean-pool")


def test_architectures_of_language_models_are_known_by_name() -> None:
    path = Path("trained.pt")
    state = lm_state_of()
    assert architecture_of(Namespace(**state["cfg"]["model"])) == "transformer_lm_gpt2_tiny"
    assert family_of(state, path) is LANGUAGE_MODEL
    state["cfg"]["model"]["_name"] = "transformer_lm"  # as fairseq-hydra-train names it
    assert family_of(state, path) is LANGUAGE_MODEL
    assert family_of(state_of(), path) is TRANSLATION
    state["cfg"]["model"]["_name"] = "fconv_lm"
    said = (
        r"^trained\.pt holds a fconv_lm: name the checkpoint of a translation model \(transformer\), a language model "
        r"\(transformer_lm\) or a masked language model \(roberta\) of fairseq's\.$"
    )
    with pytest.raises(UserError, match=said):
        family_of(state, path)
    assert family_of(roberta_state_of(), path) is MASKED_LANGUAGE_MODEL
