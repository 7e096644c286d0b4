"""Parameters of whole models against N, the positions that they are built for."""

from dataclasses import dataclass, fields

import torch

from linformer_fairseq.cli.progress import say
from linformer_fairseq.models.config import LinformerConfig
from linformer_fairseq.models.loading import projection_weights
from linformer_fairseq.modules import KINDS
from linformer_fairseq.modules.linformer_attention import SHARINGS

from ..models import Flags, build, contenders, linformer_flags, own_k
from ..rows import Row
from ..run_options import RunOptions
from .settings import EfficiencySettings

DEFAULTS = LinformerConfig()
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
    """These three are None for fairseq's Transformer, and sharing is where there are no E and F."""
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
    task, models = settings.model.task(), _models(settings)
    rows = []
    for positions in settings.positions:
        for name, flags in models.items():
            k = own_k(flags) if flags else None
            kind = (name, positions, k, *_sharing_and_projection(flags))
            if k is not None and k > positions:
                note = f"left out: k = {k} is more than N = {positions}"
                rows.append(ModelSizeRow(*kind, None, None, None, note))
                continue
            with torch.device("meta"):  # parameters without memory
                model = build(flags, settings.model, task, positions)
            parameters = dict(model.named_parameters())  # each one once
            counts = [sum(x.numel() for x in some.values()) for some in (parameters, projection_weights(parameters))]
            rows.append(ModelSizeRow(*kind, *counts, counts[0] * options.torch_dtype.itemsize))
    return rows


def _sharing_and_projection(flags: Flags) -> tuple[str | None, str | None]:
    if not flags:
        return None, None
    values = {**vars(DEFAULTS), **flags}
    projection = values["linformer_projection"]
    shares = any(option.name == "linformer_sharing" for option in fields(KINDS[projection].options))
    return values["linformer_sharing"] if shares else None, projection


def _models(settings: EfficiencySettings) -> dict[str, Flags]:
    """Returns the Transformer, two levels, a Linformer for each k, and further ones with other sharings or without
    parameters."""
    models, k = contenders(settings.model_k), settings.largest_model_k
    for sharing in SHARINGS:
        if sharing != DEFAULTS.linformer_sharing:
            models[f"Linformer, k = {k}, sharing {sharing}"] = linformer_flags(k, sharing=sharing)
    models[f"Linformer, k = {k}, {WITHOUT_PARAMETERS}"] = linformer_flags(k, projection=WITHOUT_PARAMETERS)
    return models
