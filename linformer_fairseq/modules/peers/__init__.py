"""Attention of other packages as kinds of the encoder's self-attention; importing this registers them.

The packages are heavy and need not be installed: each is imported when its attention is built.
"""

from linformer_fairseq.modules.peers.longformer import LongformerAttention
from linformer_fairseq.modules.peers.nystromformer import NystromformerAttention
from linformer_fairseq.modules.peers.performer import PerformerAttention
from linformer_fairseq.modules.peers.reformer import ReformerAttention

__all__ = ["LongformerAttention", "NystromformerAttention", "PerformerAttention", "ReformerAttention"]
