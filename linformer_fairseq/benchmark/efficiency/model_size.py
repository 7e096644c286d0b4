"""Parameters of whole models against N, the positions that they are built for."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from fairseq.tasks.translation import TranslationTask

from linformer_fairseq.cli.progress import say
from linformer_fairseq.models.config import SHARINGS
from linformer_fairseq.models.loading import projection_weights

from ..running import Running
from .whole_models import DEFAULTS, Contender, linformer, transformer
from .whole_settings import ModelSizeSettings

WITHOUT_PARAMETERS = "mean-pool"
"""A kind of projection, for all that have none."""


@dataclass(frozen=True)
class ModelSizeRow:
    """One model for one N."""

    model: str
    positions: int
    """N of sources and of targets."""
    k: int | None
    sharing: str | None
    projection: str | None
    """These three are None for fairseq's Transformer."""
    parameters: int | None
    """fairseq's sinusoidal positions are none."""
    projection_parameters: int | None
    """Of these those of E and F, each counted once where it is shared."""
    bytes: int | None
    """Of the parameters, in the type of the run."""
    note: str = ""
    """Why nothing was counted."""

    def facts(self) -> dict[str, Any]:
        """The row as results.json has it."""
        return asdict(self)


def measure(settings: ModelSizeSettings, running: Running) -> list[ModelSizeRow]:
    """Every model for every N."""
    say("model sizes ...")
    task = settings.model.task()
    return [
        _row(contender, positions, settings, running, task)
        for positions in settings.positions
        for contender in _contenders(settings)
    ]


def _contenders(settings: ModelSizeSettings) -> Iterator[Contender]:
    yield transformer()
    for k in settings.ks:
        yield linformer(k)
    for sharing in SHARINGS:
        if sharing != DEFAULTS.linformer_sharing:
            yield linformer(settings.sharing_k, sharing=sharing)
    yield linformer(settings.sharing_k, projection=WITHOUT_PARAMETERS)


def _row(
    contender: Contender, positions: int, settings: ModelSizeSettings, running: Running, task: TranslationTask
) -> ModelSizeRow:
    flags = contender.flags
    k = int(flags["linformer_k"]) if flags else None
    kind = (contender.name, positions, k, flags.get("linformer_sharing"), flags.get("linformer_projection"))
    if k is not None and k > positions:
        return ModelSizeRow(*kind, None, None, None, f"left out: k = {k} is more than N = {positions}")
    with torch.device("meta"):  # parameters without memory
        model = contender.build(settings.model, task, positions)
    parameters = dict(model.named_parameters())  # each one once
    total, own = (sum(x.numel() for x in some.values()) for some in (parameters, projection_weights(parameters)))
    return ModelSizeRow(*kind, total, own, total * running.torch_dtype.itemsize)
