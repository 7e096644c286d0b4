"""Fairseq builds and runs the language model."""

from argparse import Namespace

import pytest
import torch
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY, build_model
from fairseq.models.transformer_lm import TransformerLanguageModel
from fairseq.sequence_generator import SequenceGenerator
from fairseq.tasks.language_modeling import LanguageModelingConfig, LanguageModelingTask
from omegaconf import OmegaConf
from torch import Tensor

from linformer_fairseq import CausalLinformerAttention
from linformer_fairseq.modules import CausalTwoLevelAttention
from linformer_fairseq.modules.linformer_attention import SHARINGS
from tests.models.toy import previous_tokens, sentence, toy_task
from tests.variants import variants

SIZES = {
    "decoder_embed_dim": 16,
    "decoder_ffn_embed_dim": 16,
    "decoder_layers": 2,
    "decoder_attention_heads": 2,
    "decoder_input_dim": 16,
    "decoder_output_dim": 16,
    "max_target_positions": 64,
    "tokens_per_sample": 64,
    "linformer_k": "4",
}


def toy_lm_args(arch: str = "linformer_transformer_lm_gpt2_tiny", **flags: object) -> Namespace:
    """Returns the namespace that fairseq's parser would give for `--arch ARCH` and the flags."""
    args = Namespace(arch=arch, **{**SIZES, **flags})
    ARCH_CONFIG_REGISTRY[arch](args)
    for name, default in vars(MODEL_DATACLASS_REGISTRY["linformer_transformer_lm"]()).items():
        if not hasattr(args, name):
            setattr(args, name, default)
    return args


def toy_lm(arch: str = "linformer_transformer_lm_gpt2_tiny", **flags: object) -> TransformerLanguageModel:
    """Returns a model with large random weights, as `--arch` and the flags build it."""
    words = toy_task().source_dictionary
    task = LanguageModelingTask(LanguageModelingConfig(), words)
    model = ARCH_MODEL_REGISTRY[arch].build_model(toy_lm_args(arch, **flags), task)
    torch.manual_seed(3)
    for name, parameter in model.named_parameters():
        if "layer_norm" not in name:
            torch.nn.init.normal_(parameter, std=0.4)
    return model.eval()


def check_steps(model: TransformerLanguageModel, tokens: Tensor) -> Tensor:
    """Asserts that a model decodes token by token as in one pass, and returns the output of that."""
    parallel = model(tokens)[0]
    state: dict = {}
    for i in range(tokens.size(1)):
        step = model.decoder(tokens[:, : i + 1], incremental_state=state)[0]
        torch.testing.assert_close(step[:, 0], parallel[:, i])
    return parallel


@torch.no_grad()
@pytest.mark.parametrize(
    ("sharing", "window", "slots"),
    variants(
        [(sharing, window, slots) for sharing in SHARINGS for window, slots in ((0, 8), (5, 3), (None, 8))],
        default=[("headwise", 5, 3), ("key-value", None, 8), ("layerwise", 5, 3)],
    ),
)
def test_step_by_step_equals_a_parallel_pass(sharing: str, window: int | None, slots: int) -> None:
    """The window is a part of k."""
    model = toy_lm(linformer_k="8", linformer_sharing=sharing, linformer_window=window).double()
    for layer in model.decoder.layers:
        assert layer.self_attn.window == 8 - slots
        assert layer.self_attn.key_projection.projected_dim == slots
    assert all(type(layer.self_attn) is CausalLinformerAttention for layer in model.decoder.layers)
    task = toy_task()
    tokens = previous_tokens(task, torch.stack([sentence(task, 50, seed) for seed in range(2)]))
    check_steps(model, tokens)


def test_generation() -> None:
    task = toy_task()
    model = toy_lm().double()
    generator = SequenceGenerator([model], task.target_dictionary, beam_size=4, max_len_b=20)
    prefix = torch.stack([sentence(task, 6, 1)[:5], sentence(task, 6, 2)[:5]])
    sample = {"net_input": {"src_tokens": prefix, "src_lengths": torch.tensor([5, 5])}}
    for tokens, hypotheses in zip(prefix, generator.generate([model], sample, prefix_tokens=prefix), strict=True):
        for hypothesis in hypotheses:
            assert torch.equal(hypothesis["tokens"][:5], tokens)
            target = hypothesis["tokens"][None]
            scores = model(previous_tokens(task, target))[0].log_softmax(-1).gather(2, target[:, :, None])[0, :, 0]
            torch.testing.assert_close(
                hypothesis["positional_scores"][5:], scores[5:], rtol=1e-5, atol=1e-5, check_dtype=False
            )


@torch.no_grad()
@pytest.mark.parametrize("exact_below", [0, 32, 65])
def test_two_levels_step_by_step_equal_a_parallel_pass(exact_below: int) -> None:
    """Below the exact length both equal fairseq's model with the same weights."""
    sizes = {"linformer_slot_width": 4, "linformer_open_slots": 2, "linformer_block_size": 8}
    model = toy_lm("two_level_transformer_lm_gpt2_tiny", linformer_exact_below=exact_below, **sizes).double()
    assert all(type(layer.self_attn) is CausalTwoLevelAttention for layer in model.decoder.layers)
    task = toy_task()
    tokens = previous_tokens(task, torch.stack([sentence(task, 60, seed) for seed in range(2)]))
    parallel = check_steps(model, tokens)
    full = toy_lm("transformer_lm_gpt2_tiny").double()
    full.load_state_dict(model.state_dict())
    exact = max(exact_below, 16)  # two windows can be opened from the third block on
    same = (full(tokens)[0] - parallel).abs().amax((0, 2)) < 1e-4  # fairseq's softmax is in float32
    assert same[:exact].all()
    assert not same[exact:].any()


def test_adaptive_inputs_and_softmax() -> None:
    """Fairseq builds the embeddings and the output of `_wiki103`, which stay tied."""
    cutoffs = {"adaptive_input_cutoff": "4,8", "adaptive_softmax_cutoff": "4,8"}
    model = toy_lm("linformer_transformer_lm_wiki103", **cutoffs)
    assert model.decoder.embed_tokens.embeddings[1][0].weight is model.decoder.adaptive_softmax.tail[0][2].weight
    assert model(sentence(toy_task(), 9)[None])[0].shape == (1, 9, 16)


@pytest.mark.parametrize(
    ("flags", "sentence_start"),
    [
        ({"linformer_k": "65"}, "--linformer-k 65 is larger than the longest target, 64 tokens"),
        (
            {"linformer_window_size": 5},
            "--linformer-window-size 5 has no effect on this attention .linear at decoder.:",
        ),
        ({"linformer_sharing": "some"}, "--linformer-sharing is one of headwise"),
    ],
)
def test_bad_flags_end_in_one_sentence(flags: dict[str, object], sentence_start: str) -> None:
    with pytest.raises(SystemExit, match=f"^error: {sentence_start}"):
        toy_lm(**flags)


def test_what_a_checkpoint_recorded_and_is_gone() -> None:
    """Its configuration is read by fairseq, which has words of its own for a value that is no choice."""
    args = {**SIZES, "_name": "linformer_transformer_lm", "tpu": False}
    task = LanguageModelingTask(LanguageModelingConfig(), toy_task().source_dictionary)
    assert build_model(OmegaConf.create({**args, "linformer_init": "normal"}), task, from_checkpoint=True)
    with pytest.raises(SystemExit, match=r"^error: --linformer-sharing is one of headwise, key-value, layerwise, not"):
        build_model(OmegaConf.create({**args, "linformer_sharing": "none"}), task, from_checkpoint=True)


def test_checkpoints_of_another_model_are_refused() -> None:
    with pytest.raises(SystemExit, match=r"^error: the checkpoint's \S+ has shape \(4, 64\), this model's \(8, 64\)"):
        toy_lm(linformer_k="8").load_state_dict(toy_lm().state_dict())
    with pytest.raises(
        SystemExit, match=r"is in the checkpoint only: give the .* and number of layers that the checkpoint"
    ):
        toy_lm().load_state_dict(toy_lm(decoder_layers=3).state_dict())
