"""One forward pass of a whole model over a batch without padding."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.models.transformer import TransformerModelBase
from torch import Tensor

from linformer_fairseq.models.decoder import NO_LAYER

ENCODER = "encoder"
WHOLE = "encoder and decoder"
"""As fairseq calls a model: with the attention weights of the last layer over the source, (H, B, T, n) numbers."""
WITHOUT_WEIGHTS = "encoder and decoder, no attention weights"


def shapes(tokens: int, lengths: Iterable[int]) -> list[tuple[int, int]]:
    """Returns batches of `tokens` tokens, as (tokens in a sentence, sentences); longer sentences are left out."""
    return [(length, tokens // length) for length in lengths if length <= tokens]


def random_tokens(words: Dictionary, sentences: int, length: int, device: torch.device) -> Tensor:
    """Returns random words, (B, n)."""
    return torch.randint(words.nspecial, len(words), (sentences, length), device=device)


def forward(part: str, model: TransformerModelBase, tokens: Tensor) -> Any:
    """Passes source tokens (B, n) through a part of the model.

    The target is the same tokens, and all of its positions are computed at once, as in training.
    """
    lengths = torch.full((len(tokens),), tokens.size(1), device=tokens.device)
    if part == ENCODER:
        return model.encoder(tokens, src_lengths=lengths)
    if part == WHOLE:
        return model(tokens, lengths, tokens)
    if part == WITHOUT_WEIGHTS:
        return model(tokens, lengths, tokens, alignment_layer=NO_LAYER)
    raise ValueError(f"no part of a model: {part!r}")


def forward_call(part: str, model: TransformerModelBase, tokens: Tensor) -> Callable[[int], Any]:
    """Returns a call that runs `forward` and ignores its number, for `timing.interleaved`."""
    return lambda run: forward(part, model, tokens)
