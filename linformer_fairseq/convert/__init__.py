"""Turns a trained Transformer into a model with another kind of attention."""
