"""One step of fairseq's beam search on one model, at any target position.

Decoding thousands of tokens to get there would take hours, so the model's state is filled instead: its shapes depend on
the position and the model's sizes alone, and the time of a step does not depend on the numbers in it.
"""

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.models.transformer import TransformerDecoderBase, TransformerModelBase
from fairseq.search import BeamSearch
from fairseq.sequence_generator import EnsembleModel
from torch import Tensor

from linformer_fairseq.modules.base import IncrementalState
from linformer_fairseq.modules.ops.causal_two_level_steps import History, history_of
from linformer_fairseq.modules.two_level_attention import Part

GROWING = ("prev_key", "prev_value")
"""The tensors of fairseq's self-attention that grow with the position p, (B, H, p, d)."""
POSITION = "tokens"
"""The tensor in whose shape the Linformer's keeps p, (B, 0, p)."""
HISTORY = "history"
"""Where causal two-level attention keeps all tokens so far."""
PARTS = "parts"
"""Where two-level cross-attention keeps what it chose, beside the number of past queries."""


class Search:
    """A beam search over a batch, of which single steps are taken.

    Args:
        model: in evaluation mode.
        source: tokens (S, n) of S sentences, without padding.
        beam: hypotheses per sentence.
        longest: target tokens at most.
    """

    def __init__(self, model: TransformerModelBase, source: Tensor, beam: int, longest: int) -> None:
        words = model.decoder.dictionary
        self.decoder: TransformerDecoderBase = model.decoder
        self.beam, self.sentences = beam, len(source)
        self.state: IncrementalState = {}
        self._ensemble = EnsembleModel([model])
        self._ensemble.set_decoder_beam_size(beam)
        self._search = BeamSearch(words)
        device = source.device
        self.tokens = torch.randint(words.nspecial, len(words), (beam * len(source), longest), device=device)
        self._scores = torch.zeros(self.sentences, beam, longest, device=device)
        lengths = torch.full((len(source),), source.size(1), device=device)
        encoded = self._ensemble.forward_encoder({"src_tokens": source, "src_lengths": lengths})
        copies = torch.arange(len(source), device=device).repeat_interleave(beam)
        self._encoded = self._ensemble.reorder_encoder_out(encoded, copies)

    def random_order(self) -> Tensor:
        """Returns the hypotheses that the next step continues, (S beam,): random ones of the same sentence."""
        device = self.tokens.device
        first = torch.arange(self.sentences, device=device)[:, None] * self.beam
        return (first + torch.randint(self.beam, (self.sentences, self.beam), device=device)).flatten()

    def first_step(self) -> None:
        """Takes the first target token, which makes the state."""
        self._ensemble.forward_decoder(self.tokens[:, :1], self._encoded, [self.state])

    def step(self, position: int, order: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Does what the search does between two tokens, after `position` tokens, at least one.

        Returns:
            Scores, words and hypotheses of the candidates, (S, 2 beam).
        """
        self._ensemble.reorder_incremental_state([self.state], order)
        self._encoded = self._ensemble.reorder_encoder_out(self._encoded, order)
        log_probs, _ = self._ensemble.forward_decoder(self.tokens[:, : position + 1], self._encoded, [self.state])
        log_probs = log_probs.view(self.sentences, self.beam, -1)
        return self._search.step(position, log_probs, self._scores[:, :, :position])

    def state_bytes(self) -> tuple[int, int]:
        """Returns the bytes of the self-attention's state, and those of all of it."""
        everything = _bytes(self.state)
        cross = [_bytes(layer.encoder_attn._get_input_buffer(self.state)) for layer in self.decoder.layers]
        return everything - sum(cross), everything

    def fill(self, position: int) -> None:
        """Gives the state after the first step the shapes of that after `position` tokens, with random numbers."""
        for layer in self.decoder.layers:
            attention = layer.self_attn
            filled = {name: _filled(name, x, position) for name, x in attention._get_input_buffer(self.state).items()}
            attention._set_input_buffer(self.state, filled)
            cross = layer.encoder_attn._get_input_buffer(self.state)
            if PARTS in cross:
                parts = [_filled_part(part, position) for part in cross[PARTS]]
                layer.encoder_attn._set_input_buffer(self.state, {PARTS: parts, "position": position})


def _filled(name: str, x: Any, position: int) -> Any:
    """Returns random numbers in the shape that the state `x` has at a position; `x` holds one token, or sums."""
    if name == HISTORY:
        return _filled_history(x, position)
    if x is None:
        return None
    if name == POSITION:
        return x.new_empty(len(x), 0, position)
    batch, heads, one, *rest = x.shape
    return x.new_empty(batch, heads, position if name in GROWING else one, *rest).uniform_(-1, 1)


def _filled_history(x: History, position: int) -> History:
    """Returns a history of random tokens, whose room has doubled as often as decoding them one by one doubles it."""
    _, hypotheses, heads, _, head_dim = x.keys.shape
    tokens = (x.keys.new_empty(position, hypotheses, heads, head_dim).uniform_(-1, 1) for _ in range(3))
    history = history_of(*tokens, x.sizes, x.exact)
    room = x.keys.size(0)
    while room < history.whole:
        room *= 2
    more = room - history.keys.size(0)
    grown = {
        name: F.pad(kept, (0, 0) * (kept.dim() - 1) + (0, more)).contiguous()
        for name, kept in vars(history).items()
        if name in ("keys", "values", "mean_keys", "mean_values")
    }
    history = replace(history, **grown, places=F.pad(history.places, (0, more)))
    start = (position - 1) // x.sizes.block * x.sizes.block
    if position % x.sizes.block == 0 and start >= x.exact:  # the last block keeps its windows until the next one begins
        windows = torch.arange(start // x.sizes.width - 1, device=x.keys.device)
        history = replace(history, ranked=windows.expand(hypotheses, heads, -1).contiguous())
    return history


def _filled_part(part: Part, position: int) -> Part:
    """Returns the same with random queries of the block that the last one is in."""
    if part.past is None:
        return part
    assert part.form.sizes is not None
    hypotheses, _, *shape = part.past.queries.shape
    queries = part.past.queries.new_empty(hypotheses, (position - 1) % part.form.sizes.block + 1, *shape)
    return part._replace(past=part.past._replace(queries=queries.uniform_(-1, 1)))


def _bytes(x: Any) -> int:
    """Returns the bytes of all tensors in a state, which may be nested."""
    if isinstance(x, Tensor):
        return x.numel() * x.element_size()
    if isinstance(x, dict):
        return sum(map(_bytes, x.values()))
    if isinstance(x, (list, tuple)):
        return sum(map(_bytes, x))
    return _bytes(vars(x)) if isinstance(x, History) else 0
