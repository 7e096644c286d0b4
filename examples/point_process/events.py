"""The task, the model and the criterion of event sequences."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from fairseq import data
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from fairseq.models import register_model
from fairseq.models.transformer import TransformerDecoder
from fairseq.models.transformer_lm import TransformerLanguageModel, TransformerLanguageModelConfig
from fairseq.tasks import register_task
from fairseq.tasks.language_modeling import LanguageModelingConfig, LanguageModelingTask
from torch import Tensor, nn
from torch.distributions import Categorical, LogNormal, MixtureSameFamily

from linformer_fairseq.models.config import one_sentence
from linformer_fairseq.models.register import register_with_attention

COMPONENTS = 8  # log-normals in a mixture


def read(path: Path, types: data.Dictionary, learns: bool = False) -> tuple[list[Tensor], list[Tensor]]:
    """The types of the events in a file, and the waiting times before them, by sequence.

    A ValueError tells of anything but events, times that do not rise, and types unknown to `types`, unless it `learns`.
    """
    sequences, waiting = list[Tensor](), list[Tensor]()
    for number, lines in enumerate(re.split(r"\n\s*\n", path.read_text(encoding="utf-8").strip()), 1):
        where = f"sequence {number} of {path} has"
        try:
            kinds, times = zip(*map(str.split, lines.splitlines()), strict=True)
            waits = np.diff(np.array(times, float), prepend=0)
        except ValueError:
            raise ValueError(f"{where} a line without an event, or none: give a type and a time on each") from None
        if not ((waits > 0) & (waits < np.inf)).all():
            raise ValueError(f"{where} times that fall or stand still: give times that rise, from above 0")
        found = [types.add_symbol(kind) if learns else types.index(kind) for kind in kinds]
        if min(found) < types.nspecial:
            kind = kinds[found.index(min(found))]
            raise ValueError(f"{where} an event of type {kind}, which is not in train.txt: leave it out")
        sequences.append(torch.tensor(found))
        waiting.append(torch.from_numpy(waits))
    return sequences, waiting


def write_dictionary(text: str, to: str) -> None:
    """Writes the types in train.txt of a folder, where that, valid.txt and test.txt can be read."""
    types = data.Dictionary()
    with one_sentence():
        for split in ("train", "valid", "test"):
            read(Path(text, f"{split}.txt"), types, learns=split == "train")
    types.save(f"{to}/dict.txt")


@register_task("event_sequences", dataclass=LanguageModelingConfig)
class EventSequencesTask(LanguageModelingTask):
    """Learns which event comes next and when, from sequences of up to `--tokens-per-sample` events."""

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> None:
        with one_sentence():
            types, waits = read(Path(self.args.data, f"{split}.txt"), self.dictionary)
            sizes, most = np.array([len(x) for x in types]), self.args.tokens_per_sample
            if sizes.max() > most:
                told = f"{split}.txt has a sequence of {sizes.max()} events, longer than the {most} of the model"
                raise ValueError(f"{told}: cut it, or train with a larger --tokens-per-sample")
        with data.data_utils.numpy_seed(self.args.seed):
            shuffled = np.random.permutation(len(sizes))
        kinds, times = data.ListDataset(types, sizes), data.ListDataset(waits, sizes)
        padded = {
            "src_tokens": data.RightPadDataset(kinds, pad_idx=self.dictionary.pad()),
            "waits": data.RightPadDataset(times, pad_idx=1.0),  # float64, which --fp16 leaves as it is
        }
        fields = {"id": data.IdDataset(), "net_input": padded, "ntokens": data.NumelDataset(kinds, reduce=True)}
        self.datasets[split] = data.SortDataset(data.NestedDictionaryDataset(fields, [sizes]), [shuffled, sizes])


class EventDecoder(TransformerDecoder):
    """fairseq's Transformer decoder over events, whose times take the place of positions."""

    def build_output_projection(self, args: Any, dictionary: data.Dictionary, embed_tokens: nn.Embedding) -> None:
        self.bos, types = dictionary.bos(), len(dictionary) - dictionary.nspecial
        self.wait_projection = nn.Linear(1, self.embed_dim)
        self.output_projection = nn.Linear(self.embed_dim, types * (1 + 3 * COMPONENTS))

    def forward(self, src_tokens: Tensor, waits: Tensor) -> tuple[Tensor, Tensor]:
        """Predicts each event from those before it: logits of types, and parameters of a mixture of times for each.

        From types (B, n), padded on the right, and the waits before events, to (B, n, K) and (B, n, K, 3, M).
        """
        earlier = F.pad(src_tokens[:, :-1], (1, 0), value=self.bos)
        times, log_waits = (F.pad(x[:, :-1], (1, 0))[..., None] for x in (waits.cumsum(1), waits.log()))
        angles = times * torch.logspace(1, -3, self.embed_dim // 2).to(times)  # 10 to 0.001 radians per unit of time
        x = self.embed_scale * self.embed_tokens(earlier)
        x = x + torch.cat([angles.sin(), angles.cos()], 2).to(x) + self.wait_projection(log_waits.to(x))
        x, padding = self.dropout_module(x).transpose(0, 1), src_tokens.eq(self.padding_idx)
        for layer in self.layers:
            mask = self.buffered_future_mask(x)
            x, *_ = layer(x, self_attn_mask=mask, self_attn_padding_mask=padding if padding.any() else None)
        x = x if self.layer_norm is None else self.layer_norm(x)
        out = self.output_projection(x.transpose(0, 1)).float().unflatten(2, (-1, 1 + 3 * COMPONENTS))
        return out[..., 0], out[..., 1:].unflatten(3, (3, COMPONENTS))


@register_model("event_transformer", dataclass=TransformerLanguageModelConfig)
class EventTransformer(TransformerLanguageModel):
    """A causal Transformer of events, with the flags of fairseq's `transformer_lm`."""

    @classmethod
    def build_model(cls, args: Any, task: EventSequencesTask) -> "EventTransformer":
        args.max_target_positions = args.tokens_per_sample
        args.decoder_input_dim = args.decoder_output_dim = args.decoder_embed_dim
        args.no_token_positional_embeddings = True
        embed_tokens = cls.build_embedding(args, task.dictionary, args.decoder_embed_dim)
        return cls(EventDecoder(args, task.dictionary, embed_tokens, no_encoder_attn=True))


register_with_attention("event_transformer")


def waiting_time(parameters: Tensor) -> MixtureSameFamily:
    """A mixture of log-normals (Shchur et al., 2020), from logits, means and logarithms of scales, (..., 3, M)."""
    weights, means, scales = parameters.unbind(-2)
    each = LogNormal(means, scales.clamp(-5, 1).exp(), validate_args=False)
    return MixtureSameFamily(Categorical(logits=weights, validate_args=False), each, validate_args=False)


@register_criterion("event_sequences", dataclass=FairseqDataclass)
class EventLikelihood(FairseqCriterion):
    """The negative log-likelihood of types and waiting times, in nats per event."""

    def forward(self, model: nn.Module, sample: dict[str, Any]) -> tuple[Tensor, int, dict[str, Any]]:
        logits, parameters = model(**sample["net_input"])
        there = sample["net_input"]["src_tokens"].ne(self.task.dictionary.pad())
        logits, parameters, waits = logits[there], parameters[there], sample["net_input"]["waits"][there].float()
        types = sample["net_input"]["src_tokens"][there] - self.task.dictionary.nspecial
        own = waiting_time(parameters[torch.arange(len(types), device=types.device), types])
        loss = F.cross_entropy(logits, types, reduction="sum") - own.log_prob(waits).sum()
        counts = {"ntokens": len(types), "nsentences": len(there), "sample_size": len(types)}
        logged = {"loss": loss.detach(), **counts}
        if not model.training:
            expected = (logits.softmax(1) * waiting_time(parameters).mean).sum(1)
            logged |= {"correct": 100 * logits.argmax(1).eq(types).sum(), "squared": (expected - waits).square().sum()}
        return loss, len(types), logged

    @classmethod
    def reduce_metrics(cls, logging_outputs: Sequence[Mapping[str, Any]]) -> None:
        events = sum(own["sample_size"] for own in logging_outputs)
        for name in logging_outputs[0].keys() & {"loss", "correct", "squared"}:
            metrics.log_scalar(name, sum(float(own[name]) for own in logging_outputs) / events, events, round=5)
