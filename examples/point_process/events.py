"""The task, the model and the criterion of event sequences."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.data import (
    Dictionary,
    IdDataset,
    ListDataset,
    NestedDictionaryDataset,
    NumelDataset,
    NumSamplesDataset,
    RightPadDataset,
    SortDataset,
    data_utils,
)
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

COMPONENTS = 8
"""How many log-normals are mixed."""
FASTEST, SLOWEST = 10.0, 1e-3
"""The angular frequencies between which times are encoded, per unit of time."""


@register_task("event_sequences", dataclass=LanguageModelingConfig)
class EventSequencesTask(LanguageModelingTask):
    """Learns what kind of event comes next and when, from sequences of up to `--tokens-per-sample` events."""

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> None:
        with np.load(Path(self.args.data, f"{split}.npz")) as found:
            sizes, types, waits = found["sizes"], found["types"], found["waits"]
        with one_sentence():
            if max(sizes) > self.args.tokens_per_sample:
                raise ValueError(
                    f"{split} has a sequence of {max(sizes)} events, and the model takes {self.args.tokens_per_sample}: "
                    "give a larger --tokens-per-sample, or cut the sequence"
                )
        with data_utils.numpy_seed(self.args.seed):
            shuffled = np.random.permutation(len(sizes))
        kinds, times = (ListDataset(torch.from_numpy(x).split(sizes.tolist()), sizes) for x in (types, waits))
        fields = {
            "id": IdDataset(),
            "net_input": {
                "src_tokens": RightPadDataset(kinds, pad_idx=self.dictionary.pad()),
                "waits": RightPadDataset(times, pad_idx=1.0),  # float64, which fairseq leaves alone with --fp16
            },
            "nsentences": NumSamplesDataset(),
            "ntokens": NumelDataset(kinds, reduce=True),
        }
        self.datasets[split] = SortDataset(NestedDictionaryDataset(fields, sizes=[sizes]), [shuffled, sizes])


class EventDecoder(TransformerDecoder):
    """fairseq's Transformer decoder over events, whose position is their time.

    Before each event it has seen those that came earlier: their types, times and waiting times. For each type of the
    next event it gives a mixture of log-normals of the waiting time, as well as the logit of that type.
    """

    def build_output_projection(self, args: Any, dictionary: Dictionary, embed_tokens: nn.Embedding) -> None:
        self.bos, self.nspecial = dictionary.bos(), dictionary.nspecial
        self.wait_projection = nn.Linear(1, self.embed_dim)
        self.output_projection = nn.Linear(self.embed_dim, (len(dictionary) - self.nspecial) * (1 + 3 * COMPONENTS))

    def forward(self, src_tokens: Tensor, waits: Tensor) -> tuple[Tensor, Tensor]:
        """Predicts every event from those before it.

        Args:
            src_tokens: the types of events, (B, n), padded on the right.
            waits: how long after the one before each event comes, or after the start, (B, n).

        Returns:
            The logits of the types, (B, n, K), and the weights, locations and scales of log-normals, (B, n, K, 3, M),
            the first and the last in logarithms.
        """
        before = F.pad(src_tokens[:, :-1], (1, 0), value=self.bos)
        times, log_waits = (F.pad(x[:, :-1], (1, 0)) for x in (waits.cumsum(1), waits.log()))
        steps = torch.linspace(math.log(FASTEST), math.log(SLOWEST), self.embed_dim // 2).to(times)
        angles = times[..., None] * steps.exp()
        x = self.embed_scale * self.embed_tokens(before)
        x = x + torch.cat([angles.sin(), angles.cos()], 2).to(x) + self.wait_projection(log_waits[..., None].to(x))
        x = self.dropout_module(x).transpose(0, 1)
        padding = src_tokens.eq(self.padding_idx)
        for layer in self.layers:
            mask = self.buffered_future_mask(x)
            x, *_ = layer(x, self_attn_mask=mask, self_attn_padding_mask=padding if padding.any() else None)
        x = x if self.layer_norm is None else self.layer_norm(x)
        out = self.output_projection(x.transpose(0, 1)).float()
        out = out.unflatten(2, (-1, 1 + 3 * COMPONENTS))
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
    """The mixture of log-normals with these parameters, (..., 3, M) (Shchur et al., 2020).

    Its likelihood is exact, where the integral of an intensity would have to be estimated.
    """
    weights, means, log_scales = parameters.unbind(-2)
    of_components = LogNormal(means, log_scales.clamp(-5, 1).exp(), validate_args=False)
    return MixtureSameFamily(Categorical(logits=weights, validate_args=False), of_components, validate_args=False)


@register_criterion("event_sequences", dataclass=FairseqDataclass)
class EventLikelihood(FairseqCriterion):
    """The negative log-likelihood of types and waiting times, in nats per event."""

    def forward(
        self, model: nn.Module, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        types, waits = sample["net_input"]["src_tokens"], sample["net_input"]["waits"]
        logits, parameters = model(**sample["net_input"])
        real = types.ne(self.task.dictionary.pad())
        logits, parameters, types, waits = logits[real], parameters[real], types[real], waits[real].float()
        types = types - self.task.dictionary.nspecial
        of_type = F.cross_entropy(logits, types, reduction="sum")
        own = parameters[torch.arange(len(types), device=types.device), types]
        of_time = -waiting_time(own).log_prob(waits).sum()
        loss, events = of_type + of_time, len(types)
        logged: dict[str, Any] = {"loss": loss.data, "type_loss": of_type.data, "ntokens": events, "sample_size": events}
        if not model.training:
            logged["correct"] = logits.argmax(1).eq(types).sum()
            expected = (logits.softmax(1) * waiting_time(parameters).mean).sum(1)
            logged["squared"] = (expected - waits).square().sum()
        return loss, events, logged

    @classmethod
    def reduce_metrics(cls, logging_outputs: Sequence[Mapping[str, Any]]) -> None:
        events = sum(own["sample_size"] for own in logging_outputs)
        found = {"loss": "loss", "type_loss": "type_loss", "correct": "type_accuracy", "squared": "time_mse"}
        for key, name in found.items():
            if key in logging_outputs[0]:
                total = sum(float(own[key]) for own in logging_outputs)
                metrics.log_scalar(name, total / events, events, round=5)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        return True
