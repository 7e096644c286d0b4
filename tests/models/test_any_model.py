"""Attention that is swapped in place leaves what any of fairseq's models computes as it is, where it is exact."""

import random
from argparse import Namespace
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple

import numpy
import pytest
import torch
from fairseq.models import ARCH_CONFIG_REGISTRY, MODEL_REGISTRY, BaseFairseqModel, build_model
from fairseq.tasks.multilingual_translation import MultilingualTranslationTask
from torch import Tensor

from linformer_fairseq.models.config import AttentionConfig
from linformer_fairseq.models.swap import FAST_PATH_PARAMETERS, places_of, swap
from linformer_fairseq.modules import BaseAttention
from tests.models.toy import each_hypothesis, toy_task, toy_words, translate

WORDS = toy_words()
FEATURES = 8
ALL, SEQUENCES, CROSS = {"encoder", "cross", "decoder"}, {"encoder", "cross"}, {"cross"}
SIZES = {f"{side}_{name}": 16 for side in ("encoder", "decoder") for name in ("embed_dim", "ffn_embed_dim")} | {
    **{f"{side}_{name}": 2 for side in ("encoder", "decoder") for name in ("layers", "attention_heads")},
    **{"decoder_input_dim": 16, "decoder_output_dim": 16, "decoder_transformer_layers": 2},
    **{f"max_{name}positions": 64 for name in ("", "source_", "target_")},
    **{f"{name}dropout": 0.0 for name in ("", "attention_", "activation_", "prenet_", "postnet_", "var_pred_")},
    **{"tokens_per_sample": 64, "criterion": "", "task": "", "label_smoothing": 0.0, "fp16": False},
}
SPEECH = {"input_feat_per_channel": FEATURES, "input_channels": 1, "conv_channels": 16, "conv_out_channels": 4}
SPOKEN = {"output_frame_dim": FEATURES, "n_frames_per_step": 1, "target_speaker_embed": False}
WAVES = {
    **{"conv_feature_layers": "[(16, 10, 5), (16, 3, 2)]", "extractor_mode": "layer_norm", "final_dim": 16},
    **{"dropout_input": 0.0, "dropout_features": 0.0, "encoder_layerdrop": 0.0, "label_rate": 50.0},
}
KERNELS = {f"{side}_kernel_size_list": [3, 3] for side in ("encoder", "decoder")} | {
    **{f"{side}_conv_type": "lightweight" for side in ("encoder", "decoder")},
    **{"weight_softmax": True, "weight_dropout": 0.0},
}
PITCHES = {"pitch_min": 0.0, "pitch_max": 1.0, "energy_min": 0.0, "energy_max": 1.0}


class Case(NamedTuple):
    inputs: str
    """What the model is called with."""
    places: set[str]
    """Those of its attention."""
    flags: dict[str, Any] = {}  # noqa: RUF012  which nothing changes


CASES = {
    "transformer": Case("text", ALL, {"share_all_embeddings": True}),
    "bart_base": Case("text", ALL),
    "transformer_align": Case("text", ALL, {"alignment_heads": 1, "alignment_layer": 1}),
    "roberta_enc_dec": Case("text", ALL),
    "multilingual_transformer": Case("text", ALL, {"share_encoders": True}),
    "lightconv": Case("text", CROSS, KERNELS),
    "nonautoregressive_transformer": Case("edited", SEQUENCES),
    "levenshtein_transformer": Case("edited", SEQUENCES),
    "cmlm_transformer": Case("edited", SEQUENCES),
    "iterative_nonautoregressive_transformer": Case("edited", SEQUENCES),
    "roberta": Case("tokens", {"encoder"}),
    "masked_lm": Case("tokens", {"encoder"}),
    "xmod_base": Case("tokens", {"encoder"}, {"languages": ["en_XX"]}),
    "transformer_lm": Case("begun", {"decoder"}),
    "transformer_ulm": Case("units", {"decoder"}),
    "speech_dlm": Case("channels", {"decoder"}, {"main_and_cross_weights": "0.5,0.5"}),
    "s2t_transformer": Case("speech", ALL, SPEECH),
    "s2t_conformer": Case("speech", ALL, SPEECH),
    "convtransformer": Case("speech", ALL, SPEECH),
    "s2ut_transformer": Case("speech", ALL, SPEECH | SPOKEN),
    "s2spect_transformer": Case("speech to speech", ALL, SPEECH | SPOKEN),
    "tts_transformer": Case("text to speech", ALL, SPOKEN),
    "fastspeech2": Case("spoken text", {"encoder"}, SPOKEN | PITCHES),
    "wav2vec2": Case("waves", {"encoder"}, WAVES),
    "hubert": Case("waves", {"encoder"}, WAVES),
}


class ToyTask(MultilingualTranslationTask):
    """What models ask of the tasks that build them."""

    dictionary = source_dictionary = target_dictionary = output_dictionary = src_dict = tgt_dict = WORDS
    dictionaries = (WORDS,)
    source_dictionaries = target_dictionaries = dict.fromkeys(("a", "b"), WORDS)
    channels, channel_names, channel_sizes = ("a", "b"), ("token", "duration", "f0"), (16, 1, 1)
    multitask_tasks: ClassVar[dict] = {}
    cfg = SimpleNamespace(
        **dict.fromkeys(("discrete_duration", "discrete_f0", "ignore_duration_input", "ignore_f0_input"), False),
        **{"sample_rate": 16000, "label_rate": 50.0, "fine_tuning": False},
    )

    def __init__(self, target_is_code: bool) -> None:
        args = Namespace(lang_pairs=["en-de", "de-en"], target_is_code=target_is_code)
        super().__init__(args, dict.fromkeys(("en", "de"), WORDS), training=True)
        self.cfg = type(self).cfg

    def max_positions(self) -> int:
        return 64

    def get_speaker_embeddings(self, args: Namespace) -> None:
        return None


def seed(number: int) -> None:
    """Seeds all that fairseq's models draw from."""
    torch.manual_seed(number)
    random.seed(number)
    numpy.random.seed(number)


def built(arch: str, kind: str | None = None, **flags: object) -> BaseFairseqModel:
    """Returns fairseq's model with random weights, or that with a kind of attention; skips what fairseq lacks."""
    if arch not in {*ARCH_CONFIG_REGISTRY, *MODEL_REGISTRY}:
        pytest.skip(f"this fairseq has no {arch}")
    if arch == "levenshtein_transformer":
        pytest.importorskip("fairseq.libnat", reason="this fairseq was built without its extension for edits")
    seed(0)
    flags = {**SIZES, **(CASES[arch].flags if arch in CASES else {}), **flags}
    args = Namespace(arch=arch, **flags)
    if kind is not None:
        args = Namespace(**{**vars(args), "arch": f"linformer_{arch}", "linformer_projection": kind})
    if args.arch in ARCH_CONFIG_REGISTRY:
        ARCH_CONFIG_REGISTRY[args.arch](args)
    return build_model(args, ToyTask(target_is_code=arch.startswith("s2ut")))


def inputs(kind: str, padding: str) -> tuple[dict[str, Any], list[Tensor]]:
    """Returns what a model of two sequences is called with, and masks of what is no padding in its outputs.

    Args:
        padding: where the source of the second is padded: "left", "right", or "between" its tokens.
    """
    words = torch.randint(4, len(WORDS), (2, 12))
    words[:, -1] = WORDS.eos()
    padded = {"left": slice(0, 5), "right": slice(7, 12), "between": slice(3, 8)}[padding]
    source = words.clone()
    source[1, padded] = WORDS.pad()
    begun = torch.cat([words[:, -1:], words[:, :6]], 1)
    begun[0, 4:] = WORDS.pad()
    lengths, spoken = torch.tensor([12, 7]), torch.randn(2, 9, FEATURES)
    frames = torch.tensor([9, 9])  # the layers behind a decoder of speech read padding, which may have other states
    text = {"src_tokens": source, "src_lengths": lengths, "prev_output_tokens": begun}
    speech = {"src_tokens": torch.randn(2, 40, FEATURES), "src_lengths": torch.tensor([40, 26])}
    to_speech = {"prev_output_tokens": spoken, "target_lengths": frames}
    silent = torch.arange(400).expand(2, -1) >= torch.tensor([[400], [250]])
    is_token, is_begun = source != WORDS.pad(), begun != WORDS.pad()
    heard = torch.arange(39) < torch.tensor([39, 24])[:, None]
    return {
        "text": (text, [is_token, is_begun]),
        "edited": ({**text, "tgt_tokens": begun}, [is_token, is_begun]),
        "tokens": ({"src_tokens": source}, [is_token]),
        "begun": ({"src_tokens": begun}, [is_begun]),
        "units": ({"src_tokens": begun, "dur_src": torch.rand(2, 7), "f0_src": torch.rand(2, 7)}, [is_begun]),
        "channels": ({"src_tokens": {"a": begun, "b": begun}}, [is_begun]),
        "speech": ({**speech, "prev_output_tokens": begun}, [is_begun]),
        "speech to speech": ({**speech, **to_speech}, []),
        "text to speech": ({"src_tokens": source, "src_lengths": lengths, **to_speech}, []),
        "spoken text": ({"src_tokens": source, "src_lengths": lengths, "durations": 2 * is_token.long()}, [is_token]),
        "waves": (
            {"source": torch.randn(2, 400), "padding_mask": silent, "mask": False, "features_only": True},
            [heard],
        ),
    }[kind]


def pairs(one: object, other: object) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields the tensors in what two models return, but for attention weights that one of them leaves out."""
    if isinstance(one, dict):
        one, other = list(one.values()), list(other.values())
    if isinstance(one, Tensor) and isinstance(other, Tensor) and one.is_floating_point():
        yield one, other
    elif isinstance(one, list | tuple) and other is not None:
        for parts in zip(one, other, strict=True):
            yield from pairs(*parts)


def tokens(x: Tensor, masks: list[Tensor]) -> Tensor:
    """Returns the part of an output that is no padding."""
    for mask in masks:
        if x.shape[:2] == mask.shape:
            return x[mask]
        if x.shape[1::-1] == mask.shape:
            return x[mask.t()]
    return x


CAN_BE_PADDED = {"text", "edited", "tokens", "text to speech", "spoken text"}
PADDED = [
    (arch, padding)
    for arch, case in CASES.items()
    for padding in (("left", "right", "between") if case.inputs in CAN_BE_PADDED else ("right",))
]


@pytest.mark.parametrize(
    ("arch", "padding", "kind"),
    # two levels are full attention to such short texts
    [*((*case, "full") for case in PADDED), *((*case, "two-level") for case in dict(PADDED).items())],
)
def test_outputs_and_gradients_are_those_of_fairseq(arch: str, padding: str, kind: str) -> None:
    """They differ by rounding, as cross-attention multiplies in another order; most others not at all."""
    plain, model = built(arch), built(arch, kind)
    given, masks = inputs(CASES[arch].inputs, padding)
    for training in (False, True):
        found = []
        for whole in (plain.train(training), model.train(training)):
            seed(1)
            found.append([part(**given) for part in getattr(whole, "models", {"": whole}).values()])
        outputs = [[tokens(x, masks) for x in pair] for pair in pairs(*found)]
        assert outputs
        for expected, output in outputs:
            torch.testing.assert_close(output, expected, rtol=1e-5, atol=5e-6)
    for one in zip(*outputs, strict=True):
        sum(x.sin().sum() for x in one).backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    for name, parameter in plain.named_parameters():
        if parameter.grad is not None:
            torch.testing.assert_close(gradients[name], parameter.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("arch", CASES)
def test_weights_stay_what_they_are(arch: str) -> None:
    model = built(arch)
    before = dict(model.named_parameters())
    assert places_of(model) == CASES[arch].places
    config = AttentionConfig.from_namespace(Namespace(linformer_projection="two-level"))
    assert swap(model, config, Namespace(**SIZES)) == CASES[arch].places
    after = dict(model.named_parameters())
    assert {name.rpartition(".")[2] for name in before.keys() ^ after.keys()} <= set(FAST_PATH_PARAMETERS)
    assert all(before[name] is parameter for name, parameter in after.items())


@pytest.mark.parametrize("arch", [arch for arch, case in CASES.items() if case.inputs in ("text", "speech")])
def test_a_search_finds_what_it_finds_in_fairseq(arch: str) -> None:
    """The four hypotheses of a sentence share its row, as in fairseq's BART, but for a decoder of convolutions."""
    plain, model = built(arch).eval(), built(arch, "two-level").eval()
    for parameter in plain.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    model.load_state_dict(plain.state_dict())
    given, _ = inputs(CASES[arch].inputs, "left")
    del given["prev_output_tokens"]
    rows: list[tuple[int, int]] = []
    for attention in [x for x in model.modules() if isinstance(x, BaseAttention) and x.encoder_decoder_attention]:
        attention.register_forward_pre_hook(
            lambda _, args, given: rows.append((given["query"].size(1), given["key"].size(1))), with_kwargs=True
        )
    found, expected = (
        each_hypothesis(translate(toy_task(), next(iter(getattr(m, "models", {"": m}).values())), {"net_input": given}))
        for m in (model, plain)
    )
    for (_, one), (_, other) in zip(found, expected, strict=True):
        assert torch.equal(one["tokens"], other["tokens"])
        torch.testing.assert_close(one["positional_scores"], other["positional_scores"], rtol=1e-4, atol=1e-4)
    assert {keys for _, keys in rows} == {8 if arch == "lightconv" else 2}


@pytest.mark.parametrize(
    ("arch", "flags", "sentence"),
    [
        ("lstm", {}, "LSTMModel has no attention of fairseq's, MultiheadAttention, to replace"),
        (
            "wav2vec2",
            {},
            "linear attention is built for a longest text, and this model has none of fewer than 100,000 tokens: "
            "choose another kind",
        ),
        ("cmlm_transformer", {"linformer_attention": "encoder,decoder"}, "this model has no causal self-attention"),
        ("transformer_lm", {"linformer_attention": "encoder"}, "names encoder, and this model has no self-attention"),
        ("transformer", {"cross_self_attention": True, "linformer_projection": "full"}, "--cross-self-attention does"),
    ],
)
def test_what_cannot_be_is_refused(arch: str, flags: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        swap(built(arch, **flags), AttentionConfig.from_namespace(Namespace(**flags)))


@torch.no_grad()
def test_other_decoders_give_their_weights_in_evaluation() -> None:
    """As alignments are printed from them; only fairseq's Transformer decoders can be asked for those of one layer."""
    seed(1)
    source, _ = inputs(CASES["lightconv"].inputs, "left")
    (_, plain), (_, full) = (built("lightconv", kind).eval()(**source) for kind in (None, "full"))
    torch.testing.assert_close(full["attn"], plain["attn"])
