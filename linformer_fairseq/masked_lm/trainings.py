"""The trainings of a study, and how fairseq-train is called for each."""

from dataclasses import dataclass, replace
from pathlib import Path

from linformer_fairseq.models.architectures import PRESETS
from linformer_fairseq.models.encoder_config import EncoderAttentionConfig
from linformer_fairseq.modules.registry import DEFAULT_KIND
from linformer_fairseq.recipe.course import CHECKPOINTS, Course
from linformer_fairseq.recipe.flags import check_unchanged, parse_training, refusing

from .arguments import Settings, Study, TrainingSettings
from .arms import EVERY_LENGTH, LINFORMER, SEVERAL_SEEDS, Arm
from .text import BIN

SHARING = "headwise"
"""That of Linformer where it is not compared."""
MASKED = 0.15
"""The share of tokens that are predicted, fairseq's default."""
LOG_INTERVAL = 50


@dataclass(frozen=True)
class Training:
    """A model of the study."""

    arm: Arm
    length: int
    """n, tokens of a block."""
    k: int
    """0 where the attention has none."""
    sharing: str
    """Empty where there is nothing to share."""
    seed: int
    out: Path
    """The study's folder."""

    @property
    def slug(self) -> str:
        """The model's name in paths, whatever its seed."""
        parts = (self.arm.name, f"n{self.length}", f"k{self.k}" if self.k else "", self.other_sharing)
        return "-".join(filter(None, parts))

    @property
    def other_sharing(self) -> str:
        """The sharing where it is not the usual one, and empty otherwise."""
        return self.sharing if self.sharing != SHARING else ""

    @property
    def folder(self) -> Path:
        return self.out / "runs" / self.slug / f"seed-{self.seed}"

    @property
    def name(self) -> str:
        """What the user is told that it is."""
        k = f"k = {self.k}" if self.k else ""
        parts = (self.arm.label, f"n = {self.length:,}", k, self.other_sharing, f"seed {self.seed}")
        return ", ".join(filter(None, parts))

    @property
    def checkpoint(self) -> Path:
        """The one that is validated, converted and fine-tuned."""
        return self.folder / CHECKPOINTS / "checkpoint_best.pt"

    def flags(self, settings: Settings) -> list[str]:
        """Returns the flags of its attention."""
        return self.arm.attention_flags(self.k, self.sharing, settings.convolution)


def training_of(arm: Arm, study: Study, length: int, seed: int, k: int | None = None, sharing: str = "") -> Training:
    """Returns a training of an arm, with `k` and the sharing only where they mean anything to it."""
    is_linformer = arm.name == LINFORMER
    return Training(
        arm, length, (k or study.k) if arm.uses_k else 0, (sharing or SHARING) * is_linformer, seed, study.out
    )


def planned(study: Study) -> list[Training]:
    """Returns all trainings of a study, each once, those of the first seed before the others."""
    found: dict[Training, None] = {}

    def add(arm: Arm, length: int, seed: int, k: int | None = None, sharing: str = "") -> None:
        found[training_of(arm, study, length, seed, k, sharing)] = None

    first, seeds = study.lengths[0], study.seeds
    for arm in study.arms:
        add(arm, first, seeds[0])
    for arm in study.arms:
        for length in study.lengths[1:]:
            if arm.name in EVERY_LENGTH:
                add(arm, length, seeds[0])
        if arm.name == LINFORMER:
            for length in study.lengths[:2]:
                for k in study.ks:
                    add(arm, length, seeds[0], k)
            for sharing in study.sharings:
                add(arm, first, seeds[0], sharing=sharing)
    for seed in seeds[1:]:
        for arm in study.arms:
            if arm.name in SEVERAL_SEEDS:
                add(arm, first, seed)
    return list(found)


def course(settings: Settings, updates: int | None = None) -> Course:
    """Returns how long a training is, and where and in which precision it runs."""
    return Course(0, updates or settings.updates, settings.precision, settings.on_cpu)


def model_arguments(own: Training, settings: Settings) -> list[str]:
    """Returns the arguments that make fairseq-train build a model; all others are the same for every model."""
    flags = own.flags(settings)
    prefixes = {kind: prefix for prefix, kind in PRESETS.items()}
    prefix = prefixes.get(flags[1], prefixes[DEFAULT_KIND]) if flags else ""  # the kind is said first
    return ["--arch", prefix + settings.arch, *settings.size_flags, *flags]


def training_arguments(own: Training, settings: Settings, folder: Path, updates: int) -> list[str]:
    """Returns the arguments of fairseq-train.

    Args:
        folder: of the model, where its checkpoints go.
        updates: of this training.
    """
    every = str(min(settings.validate_updates, updates))
    length, warmup = str(own.length), str(round(settings.warmup_updates * updates / settings.updates))
    return [
        str(own.out / BIN),
        *("--task", "masked_lm", "--criterion", "masked_lm", "--mask-prob", str(MASKED)),
        *("--sample-break-mode", "none", "--tokens-per-sample", length, "--max-positions", length),
        *model_arguments(own, settings),
        *("--warmup-updates", warmup, "--max-update", str(updates), "--max-tokens", str(settings.max_tokens)),
        *("--validate-interval-updates", every, "--save-interval-updates", every, "--keep-interval-updates", "1"),
        *common_arguments(settings, updates, own.seed, folder),
    ]


def common_arguments(settings: TrainingSettings, updates: int, seed: int, folder: Path) -> list[str]:
    """Returns the last arguments of fairseq-train, which pretraining and fine-tuning share.

    Args:
        updates: after which the learning rate is 0.
        folder: of the model, where its checkpoints go.
    """
    return [
        *("--dropout", str(settings.dropout), "--attention-dropout", "0"),
        *("--optimizer", "adam", "--adam-betas", "(0.9, 0.98)", "--adam-eps", "1e-6"),
        *("--weight-decay", str(settings.weight_decay), "--clip-norm", "1.0"),
        *("--lr", str(settings.lr), "--lr-scheduler", "polynomial_decay", "--total-num-update", str(updates)),
        *("--update-freq", "1", "--required-batch-size-multiple", "1", "--num-workers", "0"),
        *("--no-epoch-checkpoints", "--seed", str(seed), "--save-dir", str(folder / CHECKPOINTS)),
        *("--log-format", "json", "--log-interval", str(LOG_INTERVAL)),
        *(["--cpu"] if settings.on_cpu and "--cpu" not in settings.train_args else []),
        *settings.train_args,
    ]


def check_flags(own: Training, settings: Settings) -> None:
    """Refuses flags that fairseq-train, or the attention, would refuse hours later.

    Raises:
        UserError: naming the model.
    """
    with refusing(own.name):
        args = parse_training(training_arguments(own, settings, own.folder, settings.updates))
        without = training_arguments(own, replace(settings, train_args=()), own.folder, settings.updates)
        check_unchanged(args, without, settings.train_args, "what follows --")
        if own.flags(settings):
            config = EncoderAttentionConfig.from_namespace(args)
            heads = args.encoder_attention_heads
            build = config.attention("encoder", args.encoder_layers, heads, own.length)[0]
            build(args.encoder_embed_dim, heads, self_attention=True)  # may miss a package
