"""Optimizers; importing them registers them with fairseq."""

from linformer_fairseq.optim.fused_adam import FusedAdam

__all__ = ["FusedAdam"]
