"""A kind that registers itself becomes a choice of the models, and its options become flags."""

from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from fairseq import models
from fairseq.tasks.language_modeling import LanguageModelingConfig, LanguageModelingTask

from linformer_fairseq import LinformerRobertaModel, LinformerTransformerLanguageModel, LinformerTransformerModel
from linformer_fairseq.models.config import default_flags
from linformer_fairseq.modules import CAUSAL_KINDS, CROSS_KINDS, KINDS, BaseAttention
from linformer_fairseq.modules.registry import AttentionOptions, LayerShapes, register_attention
from tests.models.test_language_model import toy_lm_args
from tests.models.toy import toy_model, toy_roberta, toy_words
from tests.reference import tell_models


class NearbyAttention(BaseAttention):
    def __init__(self, *args: object, max_positions: int, reach: int, **options: object) -> None:
        super().__init__(*args, max_positions=max_positions, **options)
        self.reach = reach


class CausalNearbyAttention(NearbyAttention):
    causal = True


@dataclass
class NearbyOptions(AttentionOptions):
    linformer_reach: int = field(default=3, metadata={"help": "nearby: tokens on either side"})
    linformer_top_k: int | None = field(default=None, metadata={"help": "nearby: no projected dimension"})

    def validate(self) -> None:
        if self.linformer_reach < 1:
            raise ValueError(f"--linformer-reach must be at least 1, not {self.linformer_reach}")

    def arguments(self, layers: LayerShapes) -> list[dict]:
        return [{"max_positions": layers.max_positions, "reach": self.linformer_reach}] * len(layers.projected_dims)


@contextmanager
def registered() -> Iterator[None]:
    """Registers the kind when the models are there already, as a module of `--user-dir` does."""
    register = register_attention("nearby", NearbyOptions, "neighbours alone", defaults={"linformer_window": 2})
    register(NearbyAttention)
    register_attention("nearby", NearbyOptions, causal=True)(CausalNearbyAttention)
    try:
        yield
    finally:
        del KINDS["nearby"], CROSS_KINDS["nearby"], CAUSAL_KINDS["nearby"]
        tell_models()


def test_a_new_kind_becomes_flags_and_is_built(capsys: pytest.CaptureFixture) -> None:
    flags = {"linformer_projection": "nearby", "linformer_attention": "encoder,cross,decoder", "linformer_k": "9"}
    with registered():
        for family in (LinformerTransformerModel, LinformerRobertaModel, LinformerTransformerLanguageModel):
            parser = ArgumentParser(prog="train")
            family.add_args(parser)
            given = parser.parse_args(["--linformer-reach", "5", "--linformer-projection", "nearby"])
            assert given.linformer_reach == 5
            parser.print_help()
            assert "nearby (neighbours alone)" in " ".join(capsys.readouterr().out.split())
        assert default_flags("nearby")["linformer_window"] == default_flags("linear", "nearby")["linformer_window"] == 2
        model = toy_model(**flags, linformer_reach=5, linformer_top_k=4)
        # a model whose flags fairseq has from a dataclass, which was there before the kind
        flags_of_lm = {**flags, "linformer_attention": "decoder", "linformer_decoder_projection": "nearby"}
        args = toy_lm_args(**flags_of_lm, linformer_reach=7)
        args._name = "linformer_transformer_lm"
        decoder = models.build_model(args, LanguageModelingTask(LanguageModelingConfig(), toy_words())).decoder
        encoder = toy_roberta(linformer_projection="nearby", linformer_reach=5).encoder.sentence_encoder
        with pytest.raises(SystemExit, match=r"^error: --linformer-reach must be at least 1, not 0"):
            toy_model(**flags, linformer_reach=0)
        with pytest.raises(SystemExit, match=r"^error: --linformer-top-k 4 has no effect on this attention \(linear"):
            toy_model(linformer_top_k=4)
    for attention in (
        model.encoder.layers[0].self_attn,
        model.decoder.layers[1].encoder_attn,
        encoder.layers[0].self_attn,
    ):
        assert type(attention) is NearbyAttention
        assert attention.reach == 5
    assert decoder.layers[0].self_attn.reach == 7
    assert type(model.decoder.layers[0].self_attn) is CausalNearbyAttention
    with pytest.raises(SystemExit, match=r"^error: --linformer-projection is one of linear, .*, not 'nearby'"):
        toy_model(**flags)


def test_a_name_stands_for_one_kind() -> None:
    for causal, kinds in ((False, KINDS), (True, CAUSAL_KINDS)):
        before = dict(kinds)
        with pytest.raises(ValueError, match="there is a kind 'linear' of attention already; choose another name"):
            register_attention("linear", AttentionOptions, causal=causal)(BaseAttention)
        assert kinds == before
