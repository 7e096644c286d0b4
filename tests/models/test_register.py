"""fairseq's models are registered once more, with the flags of the attention."""

from argparse import Namespace

import pytest
from fairseq.models import (
    ARCH_CONFIG_REGISTRY,
    ARCH_MODEL_INV_REGISTRY,
    ARCH_MODEL_NAME_REGISTRY,
    MODEL_DATACLASS_REGISTRY,
    MODEL_REGISTRY,
)
from omegaconf import OmegaConf

from linformer_fairseq.models.config import PREFIXES, AttentionConfig, default_flags
from linformer_fairseq.models.register import WITHOUT_ATTENTION, SwappedModel

NAMES = [name.removeprefix("linformer_") for name, model in MODEL_REGISTRY.items() if issubclass(model, SwappedModel)]


def test_all_of_fairseqs_models_with_attention_are_there() -> None:
    assert {"transformer", "transformer_lm", "roberta", "bart", "transformer_align", "s2t_transformer"} <= set(NAMES)
    assert {"multilingual_transformer", "wav2vec2", "hubert", "masked_lm", "fastspeech2", "lightconv"} <= set(NAMES)
    assert not WITHOUT_ATTENTION & set(NAMES)
    assert MODEL_REGISTRY.keys() >= WITHOUT_ATTENTION


@pytest.mark.parametrize("name", NAMES)
def test_architectures_mirror_fairseq(name: str) -> None:
    """Each is fairseq's with a kind of attention, whose flags a checkpoint records."""
    for arch in ARCH_MODEL_INV_REGISTRY[name]:
        for prefix, kind in PREFIXES.items():
            assert ARCH_MODEL_NAME_REGISTRY[prefix + arch] == f"linformer_{name}"
            ours, theirs = Namespace(), Namespace()
            ARCH_CONFIG_REGISTRY[prefix + arch](ours)
            ARCH_CONFIG_REGISTRY[arch](theirs)
            assert vars(ours) == {**vars(theirs), **default_flags(kind)}


@pytest.mark.parametrize("arch", ["full_transformer_lm", "two_level_transformer_lm_gpt", "full_wav2vec2"])
def test_a_dataclass_leaves_the_kind_to_the_architecture(arch: str) -> None:
    """fairseq-hydra-train fills its defaults in before it asks the architecture."""
    name = ARCH_MODEL_NAME_REGISTRY[arch]
    config = OmegaConf.structured(MODEL_DATACLASS_REGISTRY[name]())
    OmegaConf.set_struct(config, False)
    ARCH_CONFIG_REGISTRY[arch](config)
    kind = next(kind for prefix, kind in PREFIXES.items() if arch.startswith(prefix))
    assert AttentionConfig.from_namespace(config).kind_of("encoder").name == kind
