"""Nothing is timed before it computes what it should."""

import torch
from fairseq.models.transformer import TransformerModelBase
from torch import Tensor

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.modules import CausalTwoLevelAttention
from linformer_fairseq.modules.ops.causal import causal_attention
from linformer_fairseq.modules.ops.naive import causal_linformer_attention
from linformer_fairseq.modules.ops.thresholds import thresholds

LOG_PROB_TOLERANCE = 1e-3
PRODUCT_TOLERANCE = 1e-8
"""In float64."""
TARGET_LENGTH = 100
"""Tokens that are decoded step by step, and of the causal product."""
BLOCKS = 2
"""How many blocks of causal two-level attention are decoded after those with full attention."""


@torch.no_grad()
def check_decoding(name: str, model: TransformerModelBase, device: torch.device) -> None:
    """Compares the log-probabilities of a decoder's single steps with the parallel pass; for models in float32.

    Raises:
        UserError: they differ.
    """
    words, length = model.decoder.dictionary, _checked_length(model)
    source, target = (torch.randint(words.nspecial, len(words), (2, n), device=device) for n in (7, length))
    encoded = model.encoder(source, torch.full((2,), source.size(1), device=device))
    whole = torch.log_softmax(model.decoder(target, encoder_out=encoded)[0], dim=-1)
    state: dict[str, dict[str, Tensor | None]] = {}
    steps = [
        model.decoder(target[:, : step + 1], encoder_out=encoded, incremental_state=state)[0] for step in range(length)
    ]
    difference = (torch.log_softmax(torch.cat(steps, dim=1), dim=-1) - whole).abs().max().item()
    if not difference < LOG_PROB_TOLERANCE:
        raise UserError(
            f"{name}: decoding step by step differs from the parallel pass by {difference:.2g}. Nothing was "
            "timed; please report this."
        )


def _checked_length(model: TransformerModelBase) -> int:
    """Returns so many target tokens that two levels, if the model has them, close windows; no more than it takes."""
    attentions = [layer.self_attn for layer in model.decoder.layers]
    lengths = [x.exact + BLOCKS * x.sizes.block for x in attentions if isinstance(x, CausalTwoLevelAttention)]
    return min(max(TARGET_LENGTH, *lengths, 0), model.decoder.max_positions())


def check_product(heads: int, head_dim: int, k: int, chunk_sizes: tuple[int, ...], device: torch.device) -> None:
    """Compares the causal product in chunks, and its gradients, with the formula.

    Raises:
        UserError: they differ.
    """
    shape = (TARGET_LENGTH, 2, heads, head_dim)
    factory = {"dtype": torch.float64, "device": device, "requires_grad": True}
    tokens = [torch.randn(shape, **factory) for _ in range(3)]
    matrices = [torch.randn(1, k, TARGET_LENGTH, **factory) for _ in range(2)]
    inputs = [*tokens, *matrices]
    upstream = torch.randn(shape, dtype=torch.float64, device=device)
    expected = _by_formula(*inputs)
    gradients = torch.autograd.grad(expected, inputs, upstream)
    limits = thresholds(device)
    for chunk_size in sorted({limits.chunk_size, limits.longest_single_chunk, *chunk_sizes}):
        out, _, _ = causal_attention(*inputs, chunk_size=chunk_size)
        pairs = zip((out, *torch.autograd.grad(out, inputs, upstream)), (expected, *gradients), strict=True)
        if not all(torch.allclose(x, y, PRODUCT_TOLERANCE, PRODUCT_TOLERANCE) for x, y in pairs):
            raise UserError(
                f"the causal product in chunks of {chunk_size} differs from its formula. Nothing was timed; please "
                "report this."
            )


def _by_formula(query: Tensor, key: Tensor, value: Tensor, key_matrix: Tensor, value_matrix: Tensor) -> Tensor:
    """Returns the product, (T, B, H, d), head by head; the queries come scaled."""
    unscaled = query * query.size(-1) ** 0.5
    heads = zip(*(x.flatten(1, 2).unbind(1) for x in (unscaled, key, value)), strict=True)
    outputs = [causal_linformer_attention(*head, key_matrix[0], value_matrix[0])[0] for head in heads]
    return torch.stack(outputs, dim=1).view_as(query)
