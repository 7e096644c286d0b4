"""Compares the outputs of a converted model with those of the trained one, by the length of the text."""

import csv
import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from fairseq import models
from fairseq.data import Dictionary, data_utils
from fairseq.models.transformer_lm import TransformerLanguageModel
from fairseq.tasks import FairseqTask
from torch import Tensor

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.files import replacing
from linformer_fairseq.cli.progress import bar
from linformer_fairseq.cli.tables import table
from linformer_fairseq.modules import BaseAttention, CausalTwoLevelAttention, TwoLevelAttention
from linformer_fairseq.modules.full import CausalFullAttention, FullAttention
from linformer_fairseq.trained import Split

ANY_LENGTH = 1 << 20
"""The longest text where there is no limit."""
LONGEST = 2048
"""Where lengths end that nobody has named: full attention to longer texts takes much memory."""
BATCH_TOKENS = 4096
PORTION = 512
"""Tokens whose predictions over all words are in memory at a time."""
BOS, PAD, EOS, FIRST_WORD = 0, 1, 2, 4
"""As fairseq numbers them in every dictionary."""
FORMS = {"Texts": ",", "Perplexity before": ".2f", "Perplexity after": ".2f", "Divergence": ".4f", "Same best": ".1%"}
"""How the table's numbers are written, by the title of their column."""

Sample = tuple[dict[str, Any], Tensor, Sequence[int]]
"""What models are called with, the tokens that they should predict, (B, T), and the tokens of each text; of a
translation, those of the longer of source and target."""


def longest_text(model: models.BaseFairseqModel) -> int:
    """Returns the tokens of the longest text that a model takes, as a source or as a target."""
    longest = model.max_positions()
    return max(x or 0 for x in (longest if isinstance(longest, tuple) else (longest,))) or ANY_LENGTH


def exact_length(*compared: models.BaseFairseqModel) -> int:
    """Returns up to how many tokens texts get full attention in all models; 0 where some do not for more than k."""
    exact = ANY_LENGTH
    for module in (module for model in compared for module in model.modules()):
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


def can_compare(model: models.BaseFairseqModel, on_text: bool) -> bool:
    """Returns whether a model predicts words one by one, and reads words too unless it gets its task's samples."""
    known = (models.transformer.TransformerModelBase, TransformerLanguageModel, models.roberta.RobertaModel)
    known += (models.FairseqEncoderDecoderModel,) if on_text else ()
    return isinstance(model, known) and not isinstance(model, models.nat.FairseqNATModel)


def split_samples(split: Split) -> Iterator[Sample]:
    """Yields the sentences of a split; of a masked language model's, the masked tokens count."""
    sentences = split.sentences
    order = sorted(split.indices, key=sentences.num_tokens)
    most = max(BATCH_TOKENS, sentences.num_tokens(order[-1]))
    for indices in data_utils.batch_by_size(order, sentences.num_tokens, max_tokens=most):
        sample = sentences.collater([sentences[index] for index in indices])
        inputs, target = sample["net_input"], sample["target"]
        outputs = inputs.get("prev_output_tokens", inputs.get("src_tokens"))
        if target.is_floating_point() or target.shape != outputs.shape:
            raise UserError("the data has no word for each output of the model: give --texts 0 to compare nothing.")
        lengths = torch.maximum((target != PAD).sum(1), inputs.get("src_lengths", torch.zeros(1, dtype=torch.long)))
        yield inputs, target, lengths.tolist()


def random_samples(
    model: models.BaseFairseqModel, task: FairseqTask, lengths: Sequence[int], texts: int, seed: int
) -> Iterator[Sample]:
    """Yields so many texts of random words of each length; sources and targets of a translation are equally long."""
    generator = torch.Generator().manual_seed(seed)

    def random_text(dictionary: Dictionary, length: int) -> Tensor:
        words = len(dictionary)
        text = torch.randint(min(FIRST_WORD, words - 1), words, (1, length), generator=generator)
        text[:, -1] = EOS
        return text

    for length in (length for length in lengths for _ in range(texts)):
        target = random_text(task.target_dictionary, length)
        inputs = {"src_tokens": target.roll(1, 1)}  # the end of a text comes first, as in fairseq
        if isinstance(model, models.FairseqEncoderDecoderModel):
            target = target[:, -model.max_decoder_positions() :]
            source = random_text(task.source_dictionary, min(length, model.encoder.max_positions()))
            inputs = {"src_tokens": source, "prev_output_tokens": target.roll(1, 1)}
        elif isinstance(model, models.FairseqEncoderModel):
            target[:, 0] = BOS
            inputs = {"src_tokens": target}
        inputs["src_lengths"] = torch.tensor([inputs["src_tokens"].size(1)])
        yield inputs, target, [length]


@torch.no_grad()
def compare(
    trained: models.BaseFairseqModel,
    converted: models.BaseFairseqModel,
    samples: Iterable[Sample],
    number: int,
    ends: Sequence[int],
    on_text: bool,
) -> list[dict[str, Any]]:
    """Returns a row for every range of lengths in which there are texts, by the titles of its columns; of samples that
    are no text, perplexities would say nothing.

    The models predict each token from those before it, or from the text around it where they have no decoder.
    """
    # texts, tokens, their losses before and after, the divergence of new predictions, and how often the best stays
    sums = torch.zeros(len(ends) + 1, 6, dtype=torch.float64)
    with bar(number, "comparing", "text") as progress:
        for inputs, targets, lengths in samples:
            outputs = [(model, model(**inputs)[0]) for model in (trained, converted)]
            for row, (target, length) in enumerate(zip(targets, lengths, strict=True)):
                places, found = (target != PAD).nonzero()[:, 0], sums[bisect_left(ends, length)]
                found[0] += len(places) > 0
                for some in places.split(PORTION):
                    before, after = (
                        model.get_normalized_probs((output[row, None, some], None), log_probs=True)[0].double()
                        for model, output in outputs
                    )
                    losses = [-x.gather(-1, target[some, None]).sum() for x in (before, after)]
                    divergence = (before.exp() * (before - after)).sum()
                    same = (before.argmax(-1) == after.argmax(-1)).sum()
                    found[1:] += torch.stack([torch.tensor(len(some)), *losses, divergence, same])
            progress.update(len(targets))
    rows = []
    for end, (texts, tokens, *totals) in zip([*map(str, ends), "longer"], sums.tolist(), strict=True):
        if texts:
            before, after, divergence, same = (total / tokens for total in totals)
            perplexities = {"Perplexity before": math.exp(before), "Perplexity after": math.exp(after)}
            moved = {"Divergence": max(0.0, divergence), "Same best": same}  # rounding can make it negative
            rows.append({"Up to": end, "Texts": int(texts), **(perplexities if on_text else {}), **moved})
    return rows


def told(rows: Sequence[dict[str, Any]], path: Path | None) -> str:
    """Returns the table that is printed, and writes it to a file with all digits where one is named."""
    if path is not None:
        with replacing(path) as part, open(part, "w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([list(rows[0]), *(row.values() for row in rows)])
    return table(list(rows[0]), [[format(x, FORMS.get(title, "")) for title, x in row.items()] for row in rows])
