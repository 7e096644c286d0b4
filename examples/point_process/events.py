"""The task, the model and the criterion of event sequences."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, make_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from fairseq import data
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from fairseq.models import FairseqLanguageModel, register_model
from fairseq.models.transformer import Embedding, TransformerConfig, TransformerDecoderBase
from fairseq.models.transformer_lm import TransformerLanguageModelConfig
from fairseq.tasks import FairseqTask, register_task
from omegaconf import MISSING
from torch import Tensor, nn
from torch.distributions import Categorical, LogNormal, MixtureSameFamily

from linformer_fairseq.models.config import one_sentence
from linformer_fairseq.models.register import register_with_attention

COMPONENTS = 8  # log-normals in a mixture
FLAGS = "activation_fn dropout attention_dropout decoder_embed_dim decoder_ffn_embed_dim decoder_layers"
FLAGS += " decoder_attention_heads decoder_normalize_before decoder_layerdrop checkpoint_activations"
CHOSEN = [(x.name, x.type, x) for x in fields(TransformerLanguageModelConfig) if x.name in FLAGS.split()]


def read(path: Path, types: data.Dictionary, learns: bool = False) -> tuple[list[Tensor], list[Tensor]]:
    """The types of the events in a file, and the waiting times before them, by sequence.

    A ValueError tells of anything but events, times that do not rise, and types unknown to `types`, unless it `learns`.
    """
    try:
        text = path.read_text(encoding="utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None
    sequences, waiting = list[Tensor](), list[Tensor]()
    for number, lines in enumerate(re.split(r"\n\s*\n", text), 1):
        where = f"sequence {number} of {path} has"
        try:
            kinds, times = zip(*map(str.split, lines.splitlines()), strict=True)
            waits = np.diff(np.array(times, float), prepend=0)
        except ValueError:
            raise ValueError(f"{where} a line that is no event: give a type and a time on each") from None
        if not ((waits > 0) & (waits < np.inf)).all():
            raise ValueError(f"{where} times that do not rise: give numbers, from above 0, each larger than the last")
        found = [types.add_symbol(kind) if learns else types.index(kind) for kind in kinds]
        if min(found) < types.nspecial:
            kind = kinds[found.index(min(found))]
            raise ValueError(f"{where} a type of event, {kind}, that train.txt lacks or fairseq reserves: rename it")
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


@dataclass
class EventSequencesConfig(FairseqDataclass):
    """Flags of the task."""

    data: str = field(default=MISSING, metadata={"help": "folder that prepare.sh has made, OUT/bin"})
    tokens_per_sample: int = field(default=2048, metadata={"help": "events in the longest sequence, at most"})


@register_task("event_sequences", dataclass=EventSequencesConfig)
class EventSequencesTask(FairseqTask):
    """Learns which event comes next and when, from sequences of up to `--tokens-per-sample` events."""

    source_dictionary = target_dictionary = None  # fairseq asks for them, where there is text

    def __init__(self, cfg: Any, **options: Any) -> None:
        super().__init__(cfg, **options)
        with one_sentence():
            if not Path(cfg.data, "dict.txt").is_file():
                raise ValueError(f"{cfg.data} has no dict.txt: name the folder that prepare.sh has made, OUT/bin")
        self.dictionary = self.load_dictionary(f"{cfg.data}/dict.txt")

    def load_dataset(self, split: str, **options: Any) -> None:
        with one_sentence():
            types, waits = read(Path(self.cfg.data, f"{split}.txt"), self.dictionary)
            sizes = np.array([len(x) for x in types])
            if (longest := sizes.max()) > self.cfg.tokens_per_sample:
                raise ValueError(f"a sequence of {split}.txt has {longest} events: cut it or raise --tokens-per-sample")
        padded = {
            "src_tokens": data.RightPadDataset(data.ListDataset(types, sizes), pad_idx=self.dictionary.pad()),
            "waits": data.RightPadDataset(data.ListDataset(waits, sizes), pad_idx=1.0),  # float64, also with --fp16
        }
        sample = {"id": data.IdDataset(), "net_input": padded}
        self.datasets[split] = data.SortDataset(data.NestedDictionaryDataset(sample, [sizes]), [sizes])


class EventDecoder(TransformerDecoderBase):
    """fairseq's Transformer decoder over events, whose times take the place of positions."""

    def __init__(self, config: TransformerConfig, types: data.Dictionary) -> None:
        super().__init__(config, types, Embedding(len(types), config.decoder.embed_dim, types.pad()), True)
        outputs = (len(types) - types.nspecial) * (1 + 3 * COMPONENTS)
        self.bos, self.output_projection = types.bos(), nn.Linear(self.embed_dim, outputs)
        self.wait_projection = nn.Linear(1, self.embed_dim)

    def forward(self, src_tokens: Tensor, waits: Tensor) -> tuple[Tensor, Tensor]:
        """Predicts each event from those before it: logits of types, and parameters of a mixture of times for each.

        From types (B, n), padded on the right, and the waits before events, to (B, n, K) and (B, n, K, 3, M).
        """
        earlier = F.pad(src_tokens[:, :-1], (1, 0), value=self.bos)
        times, log_waits = (F.pad(x[:, :-1], (1, 0))[..., None] for x in (waits.cumsum(1), waits.log()))
        angles = times * torch.logspace(1, -3, self.embed_dim // 2).to(times)  # 10 to 0.001 radians per unit of time
        x = self.embed_scale * self.embed_tokens(earlier)
        x = x + torch.cat([angles.sin(), angles.cos()], 2).to(x) + self.wait_projection(log_waits.to(x))
        x = self.dropout_module(x).transpose(0, 1)
        for layer in self.layers:  # without a padding mask: padding comes last, where no event sees it
            x, *_ = layer(x, self_attn_mask=self.buffered_future_mask(x))
        x = x if self.layer_norm is None else self.layer_norm(x)
        out = self.output_projection(x.transpose(0, 1)).float().unflatten(2, (-1, 1 + 3 * COMPONENTS))
        return out[..., 0], out[..., 1:].unflatten(3, (3, COMPONENTS))


@register_model("event_transformer", dataclass=make_dataclass("EventFlags", CHOSEN, bases=(FairseqDataclass,)))
class EventTransformer(FairseqLanguageModel):
    """A causal Transformer of events, with those flags of fairseq's `transformer_lm` that have an effect on it."""

    @classmethod
    def build_model(cls, args: Any, task: FairseqTask) -> "EventTransformer":
        with one_sentence():
            if not isinstance(task, EventSequencesTask) or args.decoder_embed_dim % 2:
                raise ValueError("give --task event_sequences, and an even number with --decoder-embed-dim")
        config = TransformerConfig.from_namespace(args)
        config.decoder.input_dim = config.decoder.output_dim = config.decoder.embed_dim
        config.max_target_positions, config.no_token_positional_embeddings = task.cfg.tokens_per_sample, True
        return cls(EventDecoder(config, task.dictionary))


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
        logits, parameters, waits = logits[there], parameters[there], sample["net_input"]["waits"][there]
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
        for name in (x for x in ("loss", "correct", "squared") if x in logging_outputs[0]):
            metrics.log_scalar(name, sum(float(own[name]) for own in logging_outputs) / events, events, round=5)
