"""Attention in two levels: to the tokens of some windows one by one, and to the means of all others."""
