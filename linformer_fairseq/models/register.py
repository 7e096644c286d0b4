"""Registers fairseq's models once more, with another attention."""

import logging
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping
from dataclasses import field, fields, make_dataclass
from typing import Any, Optional

from fairseq import utils
from fairseq.checkpoint_utils import prune_state_dict
from fairseq.dataclass import FairseqDataclass
from fairseq.models import (
    ARCH_CONFIG_REGISTRY,
    ARCH_MODEL_INV_REGISTRY,
    ARCH_MODEL_REGISTRY,
    MODEL_DATACLASS_REGISTRY,
    MODEL_REGISTRY,
    BaseFairseqModel,
    FairseqEncoderDecoderModel,
    FairseqMultiModel,
    register_model,
    register_model_architecture,
)
from fairseq.tasks import FairseqTask
from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from linformer_fairseq.models.config import (
    PREFIXES,
    AttentionConfig,
    add_flags,
    default_flags,
    one_sentence,
    unrecorded_in,
)
from linformer_fairseq.models.inference import drops_ragged_batches, is_command, is_interactive
from linformer_fairseq.models.loading import with_own_weights
from linformer_fairseq.models.resume import check_resumed, is_training, resumed_from, settings_of
from linformer_fairseq.models.swap import SwappedDecoder, leave_out_weights, places_of, swap
from linformer_fairseq.modules.registry import WHEN_REGISTERED, flag_of

logger = logging.getLogger(__name__)

WITHOUT_ATTENTION = {"fconv", "fconv_lm", "fconv_self_att", "hf_gpt2", "lightconv_lm", "lstm", "lstm_lm", "s2t_berard"}
WITHOUT_ATTENTION |= {"tacotron_2", "wav2vec"}
"""The models of fairseq's that have nothing to replace."""


class SwappedModel(BaseFairseqModel):
    """A model of fairseq's whose attention is replaced once it has been built.

    All flags of fairseq's model keep their meaning; `--linformer-...` choose the attention. The architectures
    `linformer_...` are Linformer as published (Wang et al., 2020), `two_level_...` attend in two levels, and `full_...`
    have full attention in fused kernels, unless flags say otherwise.
    """

    exact_below = 0
    """The length below which texts get full attention everywhere; 0 where none do."""
    has_told = False
    """Whether the log has it."""
    unrecorded: Mapping[str, Any] = {}
    """Values of the flags in use that the model's settings lack, as those of old checkpoints do."""

    @classmethod
    def hub_models(cls) -> dict[str, Any]:
        return {}

    @classmethod
    def add_args(cls, parser: ArgumentParser) -> None:
        super().add_args(parser)
        if not _has_dataclass(cls):  # otherwise fairseq has added them
            add_flags(parser)

    @classmethod
    def build_model(cls, args: Any, task: FairseqTask) -> "SwappedModel":
        if not _has_dataclass(cls):
            args = plain_namespace(args, resolve=True)
        settings = getattr(task, "cfg", None) or getattr(task, "args", None)
        with one_sentence():
            if utils.eval_bool(str(getattr(settings, "left_pad_target", False))):
                raise ValueError("--left-pad-target is not supported: leave it out, targets are padded on the right")
            cls.complete(args)
        model = super().build_model(args, task)
        model.__class__ = cls  # some of fairseq's models always build their own class
        config = AttentionConfig.from_namespace(args)
        with one_sentence():
            places = swap(model, config, args)
        config.linformer_attention = ",".join(places)
        if all("linformer_exact_below" in {x.name for x in config.kind_of(place).fields} for place in places):
            model.exact_below = config.linformer_exact_below
        model.unrecorded = {name: value for name, value in unrecorded_in(args).items() if name in config.used_options}
        for decoder in (x for x in model.modules() if isinstance(x, SwappedDecoder)):
            decoder.trains_alignments = bool(getattr(settings, "load_alignments", False))
        return model

    @classmethod
    def complete(cls, args: Any) -> None:
        """Changes what else the flags have to say before fairseq builds the model."""

    def adopt(self, state_dict: dict[str, Tensor]) -> dict[str, Tensor]:
        """Changes a checkpoint's state to what this model calls its weights, before they are looked at."""
        return state_dict

    def load_state_dict(
        self,
        state_dict: dict[str, Tensor],
        strict: bool = True,
        model_cfg: Namespace | DictConfig | None = None,
        args: Namespace | None = None,
    ) -> Any:
        """fairseq's, in which weights of attention that the checkpoint does not have start fresh, and a training does
        not go on with another attention."""
        if isinstance(self, FairseqMultiModel):  # it may have fewer pairs of languages than its checkpoint
            pairs = tuple(f"models.{pair}." for pair in self.models)
            state_dict = {name: weight for name, weight in state_dict.items() if name.startswith(pairs)}
        with one_sentence():
            if model_cfg and (checkpoint := resumed_from(model_cfg)) and (settings := settings_of(checkpoint)):
                check_resumed(checkpoint, settings, plain_namespace(model_cfg), places_of(self))
            state_dict = self.adopt(state_dict)
            # fairseq's `--encoder-layers-to-keep` comes first
            state_dict = with_own_weights(prune_state_dict(state_dict, model_cfg), self.state_dict())
        old = {} if args is None else {"args": args}  # not all models take this argument
        return super().load_state_dict(state_dict, strict, model_cfg, **old)

    def train(self, mode: bool = True) -> Any:
        """torch's, after a line in the log about what k has no effect on; only a training calls it so.

        A training whose settings lack a flag is refused, as the model would be of the first version for ever.
        """
        if mode and self.unrecorded and is_training():
            name, first = next(iter(self.unrecorded.items()))
            newest = getattr(AttentionConfig.with_kinds(), name)
            with one_sentence():
                raise ValueError(
                    f"the model's configuration does not have {name}: give {flag_of(name)} {newest}, or {first} as in "
                    "the first models"
                )
        if mode and self.exact_below and not self.has_told:
            self.has_told = True
            logger.info(
                f"two levels: texts of fewer than {self.exact_below} tokens get full attention, so that --linformer-k "
                "has no effect on them there (to have two levels then too, give --linformer-exact-below 0)"
            )
        return super().train(mode)

    def make_generation_fast_(self, **options: Any) -> None:
        """fairseq's, which has every layer compute attention weights where alignments are printed: one is enough."""
        super().make_generation_fast_(**options)
        leave_out_weights(self)

    def prepare_for_inference_(self, cfg: DictConfig) -> None:
        """fairseq's. The hub lets each call choose whether it reads attention weights, so that there they are kept."""
        super().prepare_for_inference_(cfg)
        for decoder in (x for x in self.modules() if isinstance(x, SwappedDecoder)):
            if is_command(cfg):
                decoder.ends_in_one_sentence = True  # `--match-source-len` goes beyond the longest target
            else:
                decoder.needs_weights = True
        multiple = cfg.dataset.required_batch_size_multiple
        keeps_all = is_interactive(cfg) or cfg.task._name == "document_translation"
        if not isinstance(self, FairseqEncoderDecoderModel) or not is_command(cfg) or keeps_all:
            return
        if multiple > 1 and drops_ragged_batches():
            logger.warning(
                f"the last sentences are left out where their batch is no multiple of {multiple}: give "
                "--required-batch-size-multiple 1 to translate all"
            )


def register_with_attention(name: str, model: type[SwappedModel] | None = None) -> None:
    """Registers a model of fairseq's, or of another plugin, once more as `linformer_NAME`, with the flags of the
    attention, and each of its architectures with every prefix of `PREFIXES`.

    Args:
        name: by which the model is registered.
        model: the class of the new model, where it does more than `SwappedModel`.
    """
    base = MODEL_REGISTRY[name]
    if model is None:
        told = {"__module__": __name__, "__doc__": SwappedModel.__doc__}
        model = type(f"Linformer{base.__name__}", (SwappedModel, base), told)
    register_model(f"linformer_{name}", dataclass=_dataclass_with_flags(name))(model)
    for arch in ARCH_MODEL_INV_REGISTRY.get(name, []):
        for prefix, kind in PREFIXES.items():
            fill_in = _with_defaults(kind, ARCH_CONFIG_REGISTRY[arch])
            if prefix + arch in ARCH_MODEL_REGISTRY:  # as that of a dataclass is by now, with no defaults of its own
                ARCH_CONFIG_REGISTRY[prefix + arch] = fill_in
            else:
                register_model_architecture(f"linformer_{name}", prefix + arch)(fill_in)


def _dataclass_with_flags(name: str) -> type[FairseqDataclass] | None:
    """A model's dataclass with the flags of the attention; None where the model has none."""
    if (known := MODEL_DATACLASS_REGISTRY.get(name)) is None:
        return None
    flags = []
    for flag in (flag for flag in fields(AttentionConfig.with_kinds()) if flag.name != "_name"):
        # where a checkpoint has no value, fairseq fills in the default of a dataclass: None, to tell it from a value;
        # its parser knows Optional[int], but not int | None
        is_recorded = "unrecorded" not in flag.metadata
        type_, default = (flag.type, flag.default) if is_recorded else (Optional[flag.type], None)  # noqa: UP045
        flags.append((flag.name, type_, field(default=default, metadata=flag.metadata)))
    return make_dataclass(f"Linformer{known.__name__}", flags, bases=(known,))


def _renew_dataclasses() -> None:
    """Gives models with a dataclass the options of a kind that is registered after them, as those of a `--user-dir`."""
    for name, model in MODEL_REGISTRY.items():
        renewed = _dataclass_with_flags(name.removeprefix("linformer_")) if issubclass(model, SwappedModel) else None
        if renewed is not None:
            MODEL_DATACLASS_REGISTRY[name] = renewed
            setattr(model, "__dataclass", renewed)
            ConfigStore.instance().store(name, renewed(_name=name), group="model", provider="fairseq")


WHEN_REGISTERED.append(_renew_dataclasses)


def register_all() -> None:
    """Registers all of fairseq's own models that have attention and are not registered yet."""
    for name, model in list(MODEL_REGISTRY.items()):
        is_known = name in WITHOUT_ATTENTION or f"linformer_{name}" in MODEL_REGISTRY
        if model.__module__.startswith("fairseq.models.") and not is_known and ARCH_MODEL_INV_REGISTRY.get(name):
            register_with_attention(name)


def _has_dataclass(model: type[BaseFairseqModel]) -> bool:
    """Whether fairseq knows the flags of a model from a dataclass."""
    return getattr(model, "__dataclass", None) is not None


def plain_namespace(args: Namespace | DictConfig, resolve: bool = False) -> Namespace:
    """The arguments as `fairseq-train` has them, where `fairseq-hydra-train` gives a configuration."""
    if not isinstance(args, DictConfig):
        return args
    values: Any = OmegaConf.to_container(args, resolve=resolve)
    return Namespace(**values)


def _with_defaults(kind: str, architecture: Callable[[Any], None]) -> Callable[[Namespace | DictConfig], None]:
    """fairseq's architecture with defaults of every flag of the attention, so that a checkpoint records them."""

    def fill_in(args: Namespace | DictConfig) -> None:
        # fairseq's function asks for attributes that may be missing, which old OmegaConf answers with None
        flat = plain_namespace(args)
        config = AttentionConfig.from_namespace(flat, kind)
        unrecorded = unrecorded_in(flat)
        for name in (name for name in default_flags(kind) if name not in unrecorded):
            setattr(flat, name, getattr(config, name))
        architecture(flat)
        if flat is not args:
            args.update(vars(flat))

    return fill_in
