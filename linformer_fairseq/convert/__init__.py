"""Turning a trained Transformer into a model with linear attention."""
