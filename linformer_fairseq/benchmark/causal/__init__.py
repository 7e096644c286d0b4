"""Causal attention: a step of beam search with whole models, and forward and backward of the attention alone."""
