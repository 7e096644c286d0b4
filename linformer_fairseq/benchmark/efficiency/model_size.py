"""Parameters of whole models against N, the positions that they are built for."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from fairseq.tasks.translation import TranslationTask

from linformer_fairseq.cli.progress import say
from linformer_fairseq.models.loading import projection_weights
from linformer_fairseq.modules.linformer_attention import SHARINGS

from ..rows import Row
from ..run_options import RunOptions
from .settings import EfficiencySettings
from .whole_models import DEFAULTS, Contender, linformer, transformer

WITHOUT_PARAMETERS = "mean-pool"
"""A kind of projection that stands for all that have no parameters."""


@dataclass(frozen=True)
class ModelSizeRow(Row):
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
    """Those of E and F among them; what is shared counts once."""
    bytes: int | None
    """Bytes of the parameters, in the type of the run."""
    note: str = ""
    """Why nothing was counted."""


def measure(settings: EfficiencySettings, options: RunOptions) -> list[ModelSizeRow]:
    """Counts the parameters of every model for every N."""
    say("model sizes ...")
    task = settings.model.task()
    return [
        _row(contender, positions, settings, options, task)
        for positions in settings.positions
        for contender in _contenders(settings)
    ]


def _contenders(settings: EfficiencySettings) -> Iterator[Contender]:
    """Yields the Transformer, a Linformer for each k, and further ones with other sharings or without parameters."""
    yield transformer()
    for k in settings.model_k:
        yield linformer(k)
    for sharing in SHARINGS:
        if sharing != DEFAULTS.linformer_sharing:
            yield linformer(settings.largest_model_k, sharing=sharing)
    yield linformer(settings.largest_model_k, projection=WITHOUT_PARAMETERS)


def _row(
    contender: Contender, positions: int, settings: EfficiencySettings, options: RunOptions, task: TranslationTask
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
    return ModelSizeRow(*kind, total, own, total * options.torch_dtype.itemsize)
