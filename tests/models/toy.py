"""Small models with random weights, built as fairseq builds them."""

from argparse import Namespace
from collections.abc import Iterator, Sequence

import torch
from fairseq.data import Dictionary, data_utils
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, BaseFairseqModel
from fairseq.models.roberta import RobertaModel
from fairseq.models.transformer import TransformerModelBase
from fairseq.sequence_generator import SequenceGenerator
from fairseq.sequence_scorer import SequenceScorer
from fairseq.tasks import FairseqTask
from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask
from fairseq.tasks.translation import TranslationConfig, TranslationTask

import linformer_fairseq  # noqa: F401
from linformer_fairseq.models.config import PLACES

SIZES: dict[str, object] = {
    "encoder_embed_dim": 16,
    "encoder_ffn_embed_dim": 16,
    "encoder_attention_heads": 2,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "decoder_attention_heads": 2,
    "max_source_positions": 64,
    "max_target_positions": 64,
    "dropout": 0.0,
    "share_all_embeddings": True,
}
ROBERTA_SIZES: dict[str, object] = {
    "encoder_embed_dim": 16,
    "encoder_ffn_embed_dim": 16,
    "encoder_attention_heads": 2,
    "encoder_layers": 2,
    "max_positions": 64,
    "dropout": 0.0,
    "attention_dropout": 0.0,
}
EVERYWHERE = ",".join(PLACES)
"""The value of `--linformer-attention` that projects every attention module."""
SLOTS_FOR_ALL = {"linformer_k": "64", "linformer_mask_empty_slots": True}
"""With an identity as E and F, slots for all tokens: full attention."""


def small(kind: str, k: str = "4", window: int = 4) -> dict[str, object]:
    """Returns the flags with which a kind sees less than all tokens of a short text; full attention sees them all."""
    flag = "linformer_window_size" if kind == "window" else "linformer_k"
    return {} if kind == "full" else {flag: window if kind == "window" else k}


def toy_words() -> Dictionary:
    """Returns a dictionary of twelve words."""
    words = Dictionary()
    for word in range(12):
        words.add_symbol(f"w{word}")
    return words


def toy_task(left_pad_target: bool = False) -> TranslationTask:
    """Returns a translation task over twelve words."""
    words = toy_words()
    return TranslationTask(TranslationConfig(left_pad_target=left_pad_target), words, words)


def toy_masked_lm_task() -> MaskedLMTask:
    """Returns the task of masked language models over the same words."""
    return MaskedLMTask(MaskedLMConfig(), toy_words())


def toy_args(arch: str = "linformer_transformer", **flags: object) -> Namespace:
    """Returns the namespace that fairseq's parser would give for `--arch ARCH` and the flags."""
    return _args(arch, {**SIZES, **flags})


def toy_roberta_args(arch: str = "linformer_roberta", **flags: object) -> Namespace:
    """Returns the same of a masked language model."""
    return _args(arch, {**ROBERTA_SIZES, **flags})


def _args(arch: str, flags: dict[str, object]) -> Namespace:
    args = Namespace(arch=arch, **flags)
    ARCH_CONFIG_REGISTRY[arch](args)
    return args


def toy_model(
    arch: str = "linformer_transformer", task: TranslationTask | None = None, *, random: bool = True, **flags: object
) -> TransformerModelBase:
    """Returns a model in evaluation mode; `random` gives it large weights, so that outputs are distinct."""
    return _model(toy_args(arch, **flags), task or toy_task(), random)


def toy_roberta(arch: str = "linformer_roberta", *, random: bool = True, **flags: object) -> RobertaModel:
    """Returns the same of a masked language model."""
    return _model(toy_roberta_args(arch, **flags), toy_masked_lm_task(), random)


def _model(args: Namespace, task: FairseqTask, random: bool) -> BaseFairseqModel:
    model = ARCH_MODEL_REGISTRY[args.arch].build_model(args, task)
    if random:
        torch.manual_seed(3)
        for name, parameter in model.named_parameters():
            if "layer_norm" not in name:
                torch.nn.init.normal_(parameter, std=0.4)
    return model.eval()


def sentence(task: FairseqTask, length: int, seed: int = 0) -> torch.Tensor:
    """Returns `length` random tokens, the last of them the end of the sentence."""
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(4, len(task.source_dictionary), (length - 1,), generator=generator)
    return torch.cat([words, torch.tensor([task.source_dictionary.eos()])])


def batch(task: FairseqTask, sentences: list[torch.Tensor], left_pad: bool) -> dict[str, dict[str, torch.Tensor]]:
    """Returns the batch that the task's dataset would collate."""
    tokens = data_utils.collate_tokens(sentences, task.source_dictionary.pad(), left_pad=left_pad)
    lengths = torch.tensor([len(s) for s in sentences])
    return {"net_input": {"src_tokens": tokens, "src_lengths": lengths}}


def net_input(task: TranslationTask, lengths: Sequence[int] = (12, 5), target: int = 6) -> dict[str, torch.Tensor]:
    """Returns a model's arguments: left-padded sources of these lengths, all with one target of `target` tokens."""
    sources = [sentence(task, length, seed) for seed, length in enumerate(lengths, 1)]
    tokens = previous_tokens(task, sentence(task, target, 3)[None].expand(len(lengths), -1))
    return {**batch(task, sources, left_pad=True)["net_input"], "prev_output_tokens": tokens}


def translate(
    task: TranslationTask,
    model: TransformerModelBase | list[TransformerModelBase],
    sample: dict,
    beam: int = 4,
    **options: object,
) -> list[list[dict[str, torch.Tensor]]]:
    """Returns the hypotheses of each sentence by beam search with a model or an ensemble."""
    models = model if isinstance(model, list) else [model]
    generator = SequenceGenerator(models, task.target_dictionary, beam_size=beam, **{"max_len_b": 12, **options})
    return generator.generate(models, sample)


def previous_tokens(task: TranslationTask, target: torch.Tensor) -> torch.Tensor:
    """Returns the decoder input for teacher forcing, the target moved by one, (B, T)."""
    return torch.cat([target.new_full((len(target), 1), task.target_dictionary.eos()), target[:, :-1]], 1)


def scored(
    task: TranslationTask, models: list[TransformerModelBase], source: torch.Tensor, tokens: torch.Tensor
) -> torch.Tensor:
    """Returns the scores of a translation's tokens by one parallel pass."""
    sample = batch(task, [source], left_pad=True)
    sample["target"] = tokens[None]
    sample["net_input"]["prev_output_tokens"] = previous_tokens(task, tokens[None])
    return SequenceScorer(task.target_dictionary).generate(models, sample)[0][0]["positional_scores"]


def check_scores(
    task: TranslationTask,
    models: list[TransformerModelBase],
    sources: list[torch.Tensor],
    hypotheses: list[list[dict]],
    tolerance: float = 1e-5,
) -> None:
    """Asserts that a search gives its hypotheses the scores of a parallel pass."""
    assert len(hypotheses) == len(sources)
    for index, hypothesis in each_hypothesis(hypotheses):
        torch.testing.assert_close(
            hypothesis["positional_scores"],
            scored(task, models, sources[index], hypothesis["tokens"]),
            rtol=1e-5,
            atol=tolerance,
            check_dtype=False,
        )


def each_hypothesis(hypotheses: list[list[dict]]) -> Iterator[tuple[int, dict]]:
    for index, beams in enumerate(hypotheses):
        for hypothesis in beams:
            yield index, hypothesis
