"""Attention of other packages as kinds of an encoder's self-attention: `--user-dir examples/peers`."""

from peers import longformer, nystromformer, performer, reformer

__all__ = ["longformer", "nystromformer", "performer", "reformer"]
