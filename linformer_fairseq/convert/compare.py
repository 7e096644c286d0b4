"""Compares the outputs of a converted model with those of the trained one, by the length of the text."""

import csv
import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from fairseq.data import Dictionary, data_utils
from fairseq.models import BaseFairseqModel, FairseqEncoderDecoderModel, FairseqEncoderModel, FairseqLanguageModel
from fairseq.models.nat import FairseqNATModel
from fairseq.models.roberta import RobertaModel
from fairseq.models.transformer import TransformerModelBase
from fairseq.models.transformer_lm import TransformerLanguageModel
from fairseq.tasks import FairseqTask
from torch import Tensor

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.files import replacing
from linformer_fairseq.cli.progress import bar
from linformer_fairseq.cli.tables import table
from linformer_fairseq.modules import (
    BaseAttention,
    CausalFullAttention,
    CausalTwoLevelAttention,
    FullAttention,
    TwoLevelAttention,
)
from linformer_fairseq.trained import Split

ANY_LENGTH = 1 << 20
"""The longest text where there is no limit."""
LONGEST = 2048
"""Where lengths end that nobody has named: full attention to longer texts takes much memory."""
BATCH_TOKENS = 4096
PORTION = 512
"""Tokens whose predictions over all words are in memory at a time."""
BOS, EOS, FIRST_WORD = 0, 2, 4
"""As fairseq numbers them in every dictionary."""
FORMS = {"Texts": ",", "Perplexity before": ".2f", "Perplexity after": ".2f", "Divergence": ".4f", "Same best": ".1%"}
"""How the table's numbers are written, by the title of their column."""


class Sample(NamedTuple):
    """What models are called with, the tokens that they should predict and whether these count, (B, T), and the tokens
    of each text; of a translation, those of the longer of source and target."""

    net_input: dict[str, Any]
    target: Tensor
    is_token: Tensor
    lengths: list[int]


def longest_text(model: BaseFairseqModel) -> int:
    """Returns the tokens of the longest text that a model takes, as a source or as a target."""
    longest = model.max_positions()
    return max(x or 0 for x in (longest if isinstance(longest, tuple) else (longest,))) or ANY_LENGTH


def exact_length(*models: BaseFairseqModel) -> int:
    """Returns up to how many tokens texts get full attention in all models; 0 where some do not for more than k."""
    exact = ANY_LENGTH
    for module in (module for model in models for module in model.modules()):
        if isinstance(module, CausalTwoLevelAttention):
            exact = min(exact, module.exact)
        elif isinstance(module, TwoLevelAttention):
            _, last, _ = next(module.rule.ranges(ANY_LENGTH))
            exact = min(exact, last)
        elif isinstance(module, BaseAttention) and not isinstance(module, FullAttention | CausalFullAttention):
            return 0
    return exact


def default_lengths(longest: int, exact: int) -> tuple[int, ...]:
    """Returns powers of two from 8 on up to the longest text or `LONGEST`, and the last length that is exact."""
    longest = min(longest, LONGEST)
    lengths = {8 << power for power in range(longest.bit_length())} | {longest, exact or longest}
    return tuple(sorted(length for length in lengths if length <= longest))


def can_compare(model: BaseFairseqModel, on_text: bool) -> bool:
    """Returns whether a model predicts words one by one, and reads words too unless it gets its task's samples."""
    of_words = (TransformerModelBase, TransformerLanguageModel, RobertaModel)
    of_samples = (FairseqEncoderDecoderModel, FairseqLanguageModel, FairseqEncoderModel)
    return isinstance(model, of_samples if on_text else of_words) and not isinstance(model, FairseqNATModel)


def split_samples(task: FairseqTask, split: Split) -> Iterator[Sample]:
    """Yields the sentences of a split; of a masked language model's, the masked tokens count.

    Raises:
        UserError: the task has other targets than words.
    """
    sentences = split.sentences
    order = sorted(split.indices, key=sentences.num_tokens)
    most = max(BATCH_TOKENS, sentences.num_tokens(order[-1]))
    for indices in data_utils.batch_by_size(order, sentences.num_tokens, max_tokens=most):
        sample = sentences.collater([sentences[index] for index in indices])
        inputs, target = sample["net_input"], sample["target"]
        if target.shape != inputs.get("prev_output_tokens", inputs.get("src_tokens")).shape:
            raise UserError("the data has no word for each output of the model: give --texts 0 to compare nothing.")
        is_token = target != task.target_dictionary.pad()
        of_targets = is_token.sum(1)
        yield Sample(
            inputs, target, is_token, torch.maximum(inputs.get("src_lengths", of_targets), of_targets).tolist()
        )


def random_samples(
    model: BaseFairseqModel, task: FairseqTask, lengths: Sequence[int], texts: int, seed: int
) -> Iterator[Sample]:
    """Yields so many texts of random words of each length; sources and targets of a translation are equally long."""
    generator = torch.Generator().manual_seed(seed)

    def random_text(dictionary: Dictionary, length: int) -> Tensor:
        words = len(dictionary)
        text = torch.randint(min(FIRST_WORD, words - 1), words, (1, length), generator=generator)
        text[:, -1] = EOS
        return text

    for length in (length for length in lengths for _ in range(texts)):
        inputs: dict[str, Any] = {}
        if isinstance(model, FairseqEncoderDecoderModel):
            longest_source, longest_target = model.max_positions()
            inputs["src_tokens"] = random_text(task.source_dictionary, min(length, longest_source))
            target = random_text(task.target_dictionary, min(length, longest_target))
            inputs["prev_output_tokens"] = target.roll(1, 1)  # it begins with the end of the text, as in fairseq
        else:
            target = random_text(task.source_dictionary, length)
            if isinstance(model, FairseqEncoderModel):
                target[:, 0] = BOS
            inputs["src_tokens"] = target if isinstance(model, FairseqEncoderModel) else target.roll(1, 1)
        inputs["src_lengths"] = torch.tensor([inputs["src_tokens"].size(1)])
        yield Sample(inputs, target, torch.ones_like(target, dtype=torch.bool), [length])


@torch.no_grad()
def compare(
    trained: BaseFairseqModel,
    converted: BaseFairseqModel,
    samples: Iterable[Sample],
    number: int,
    ends: Sequence[int],
    on_text: bool,
) -> list[dict[str, Any]]:
    """Returns a row for every range of lengths in which there are texts, by the titles of its columns.

    The models predict each token from those before it, or from the text around it where they have no decoder.

    Args:
        number: the texts in all samples.
        ends: where the ranges end.
        on_text: whether the texts are text: perplexities on random tokens would say nothing.
    """
    sums = torch.zeros(len(ends) + 1, 6, dtype=torch.float64)  # texts, and tokens with the columns of `_moves`
    with bar(number, "comparing", "text") as progress:
        for sample in samples:
            for row, of_text in enumerate(_moves(trained, converted, sample)):
                tokens = of_text[sample.is_token[row]]
                if len(tokens):
                    place = bisect_left(ends, sample.lengths[row])
                    sums[place] += torch.cat([sums.new_ones(1), tokens.sum(0)])
            progress.update(len(sample.target))
    rows = []
    for place, (texts, tokens, *totals) in enumerate(sums.tolist()):
        if texts:
            before, after, divergence, same = (total / tokens for total in totals)
            found: dict[str, Any] = {"Length": _span(ends, place, on_text), "Texts": int(texts)}
            if on_text:
                found |= {"Perplexity before": math.exp(before), "Perplexity after": math.exp(after)}
            rows.append(
                {**found, "Divergence": max(0.0, divergence), "Same best": same}
            )  # rounding can make it negative
    return rows


def _span(ends: Sequence[int], place: int, is_range: bool) -> str:
    """Returns a length, or a range of them, in words."""
    first = ends[place - 1] + 1 if place else 1
    if place == len(ends):
        return f"{first} and more"
    return f"{first} to {ends[place]}" if is_range and first < ends[place] else str(ends[place])


def _moves(trained: BaseFairseqModel, converted: BaseFairseqModel, sample: Sample) -> Tensor:
    """Returns for each token, (B, T, 5): 1, its loss before and after, the divergence of the new predictions from the
    old, and whether the best one is the same."""
    outputs = [model(**sample.net_input)[0].flatten(0, 1).split(PORTION) for model in (trained, converted)]
    moves = []
    for one, other, target in zip(*outputs, sample.target.flatten().split(PORTION), strict=True):
        before, after = (_log_probabilities(*pair) for pair in ((trained, one), (converted, other)))
        losses = [-x.gather(-1, target[:, None])[:, 0] for x in (before, after)]
        divergence = (before.exp() * (before - after)).sum(-1)
        same = (before.argmax(-1) == after.argmax(-1)).to(divergence)
        moves.append(torch.stack([torch.ones_like(same), *losses, divergence, same], -1).double())
    return torch.cat(moves).unflatten(0, sample.target.shape)


def _log_probabilities(model: BaseFairseqModel, outputs: Tensor) -> Tensor:
    """Returns the log-probabilities of all words, (n, V), in float32, for the outputs of n tokens."""
    return model.get_normalized_probs((outputs[None], None), log_probs=True)[0].float()


def table_of(rows: Sequence[dict[str, Any]]) -> str:
    """Returns the table that is printed."""
    cells = [[format(value, FORMS.get(title, "")) for title, value in row.items()] for row in rows]
    return table(list(rows[0]), cells)


def write_csv(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Writes the table with all digits."""
    with replacing(path) as part, open(part, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([list(rows[0]), *(row.values() for row in rows)])
