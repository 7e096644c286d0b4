"""The figures published by the study that this recipe completes."""

from typing import NamedTuple


class Published(NamedTuple):
    """A model of the study on newstest2014."""

    model: str
    bleu: float
    """As the study gives it, without a signature."""
    sacrebleu: float
    """Of the translations that it published, scored with sacreBLEU."""
    seconds_per_batch: float
    """In training, on its own GPU."""


PUBLISHED = (
    Published("Transformer", 29.92, 18.68, 0.221),
    Published("Linformer k=32", 30.08, 14.15, 0.205),
    Published("Linformer k=64", 27.74, 15.18, 0.209),
)
