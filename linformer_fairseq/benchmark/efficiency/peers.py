"""Attention modules of other packages, each as its own package computes it.

All are whole self-attention with its linear layers, without causal mask, dropout and padding mask. Longformer and
fairseq's Linformer have all four biases of `LinformerMultiheadAttention`; the others have none for queries, keys and
values. A new peer is an entry of `PEERS` here, and its package in setup.py and constraints.txt.
"""

import sys
from collections.abc import Callable
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, NamedTuple

import fairseq
import torch
from torch import Tensor, nn

from linformer_fairseq.modules import LinformerMultiheadAttention
from linformer_fairseq.modules.peers.longformer import WINDOW, attend_locally, longformer_attention
from linformer_fairseq.modules.peers.nystromformer import nystrom_attention
from linformer_fairseq.modules.peers.packages import NotInstalledError, package
from linformer_fairseq.modules.peers.reformer import BUCKET_SIZE, HASHES, lsh_attention

__all__ = ["PEERS", "NotInstalledError", "Peer", "SelfAttention", "Sizes"]


class Sizes(NamedTuple):
    """Sizes of self-attention over sentences that are all equally long."""

    dim: int
    """C, the model width."""
    heads: int
    length: int
    """n, tokens of a sentence; a module that has positions has this many."""
    k: int
    """Slots, for a module that has them."""


class Peer(NamedTuple):
    """An attention module that is measured, and the package that it comes from."""

    name: str
    """As tables show it."""
    package: str
    """What pip installs."""
    takes_k: bool
    """Whether there is one for each k."""
    make: Callable[[Sizes], nn.Module]
    time_first: bool = False
    """Whether input and output are (n, B, C), not (B, n, C)."""
    adopt: Callable[[nn.Module, LinformerMultiheadAttention], None] | None = None
    """Gives a module the weights of ours, with which both compute the same; None where nothing corresponds to them.

    Biases of ours that the module has no place for have to be zero.
    """

    def build(self, sizes: Sizes) -> nn.Module:
        """Returns the module, in float32 on the CPU; it maps an input of `sizes.length` tokens to the output.

        Raises:
            NotInstalledError: its package cannot be imported.
            ValueError: it cannot have these sizes.
        """
        if self.takes_k and sizes.k > sizes.length:
            raise ValueError(f"k = {sizes.k} is larger than the length of {sizes.length:,} tokens")
        with package(self.package):
            return self.make(sizes)


class SelfAttention(nn.Module):
    """An attention with the signature of fairseq's, called with one input as query, key and value."""

    def __init__(self, attention: nn.Module, need_weights: bool = False) -> None:
        super().__init__()
        self.attention = attention
        self.need_weights = need_weights

    def forward(self, x: Tensor) -> Tensor:
        """Maps x (n, B, C) to the output of the same shape."""
        return self.attention(x, x, x, need_weights=self.need_weights)[0]


def _linformer(sizes: Sizes) -> nn.Module:
    """Returns a Linformer whose heads share E and F, after the linear layers of keys and values; explicit softmax."""
    from linformer import LinformerSelfAttention

    return LinformerSelfAttention(sizes.dim, sizes.length, k=sizes.k, heads=sizes.heads)


@torch.no_grad()
def _adopt_linformer(module: nn.Module, ours: LinformerMultiheadAttention) -> None:
    for name in ("q", "k", "v", "out"):
        _copy(getattr(module, f"to_{name}"), getattr(ours, f"{name}_proj"))
    module.proj_k.copy_(ours.key_projection.weight.t())
    module.proj_v.copy_(ours.value_projection.weight.t())


def _linformer_pytorch(sizes: Sizes) -> nn.Module:
    """Returns a Linformer whose heads run one by one, with their own linear layers; the shared E and F have biases."""
    from linformer_pytorch import MHAttention

    return MHAttention(
        sizes.length,
        sizes.dim // sizes.heads,
        sizes.dim,
        sizes.k,
        sizes.heads,
        dropout=0.0,
        checkpoint_level="C0",
        parameter_sharing="headwise",
        E_proj=None,
        F_proj=None,
        full_attention=False,
        causal_mask=None,
    )


@torch.no_grad()
def _adopt_linformer_pytorch(module: nn.Module, ours: LinformerMultiheadAttention) -> None:
    for heads, linear in ((module.to_q, ours.q_proj), (module.to_k, ours.k_proj), (module.to_v, ours.v_proj)):
        for theirs, weight in zip(heads, linear.weight.chunk(len(heads)), strict=True):
            theirs.weight.copy_(weight)
    _copy(module.w_o, ours.out_proj)
    shared = module.heads[0]
    for theirs, projection in ((shared.E, ours.key_projection), (shared.F, ours.value_projection)):
        theirs.weight.copy_(projection.weight)
        theirs.bias.zero_()


def _module_of_fairseq(path: str) -> Any:
    """Returns a module of fairseq's examples without importing its package, which would register its model under the
    name of ours."""
    file = Path(fairseq.__file__).parent / path
    spec = spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None or not file.is_file():
        raise ModuleNotFoundError(f"{file} is missing")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _fairseq_linformer(sizes: Sizes) -> nn.Module:
    """Returns a Linformer whose heads share E and F, before the linear layers; its explicit softmax is in float32."""
    attention = _module_of_fairseq("examples/linformer/linformer_src/modules/multihead_linear_attention.py")
    if sizes.length % sizes.k:
        raise ValueError(
            f"fairseq's Linformer takes a k that divides the length, not k = {sizes.k} for {sizes.length:,} tokens"
        )
    return SelfAttention(
        attention.MultiheadLinearAttention(
            sizes.dim,
            sizes.heads,
            self_attention=True,
            compressed=sizes.length // sizes.k,
            max_seq_len=sizes.length,
            shared_kv_compressed=0,
            freeze_compress=0,
        )
    )


@torch.no_grad()
def _adopt_fairseq_linformer(module: nn.Module, ours: LinformerMultiheadAttention) -> None:
    theirs = module.attention
    for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
        _copy(getattr(theirs, name), getattr(ours, name))
    theirs.compress_k.weight.copy_(ours.key_projection.weight)
    theirs.compress_v.weight.copy_(ours.value_projection.weight)


def _performer(sizes: Sizes) -> nn.Module:
    """Returns FAVOR+ with the softmax kernel and the package's number of random features, d ln d.

    The features stay as drawn: new ones every 1,000 training steps are up to the package's whole model.
    """
    from performer_pytorch import SelfAttention

    return SelfAttention(sizes.dim, heads=sizes.heads, dim_head=sizes.dim // sizes.heads)


class _Nystromformer(nn.Module):
    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, x: Tensor) -> Tensor:
        """Maps x (B, n, C) to the output of the same shape."""
        # its pseudo-inverse takes an identity matrix of the default type, which fails below float32
        usual = torch.get_default_dtype()
        torch.set_default_dtype(x.dtype)
        try:
            return self.attention(x)
        finally:
            torch.set_default_dtype(usual)


def _nystromformer(landmarks: int, sizes: Sizes) -> nn.Module:
    """Returns it with the package's residual convolution over values (33 tokens) and 6 steps of the pseudo-inverse.

    The pseudo-inverse starts from a number that is taken over the whole batch, so that sentences depend on each other
    a little. The package pads lengths that are no multiples of the landmarks with tokens of zero, which take part.
    """
    return _Nystromformer(nystrom_attention(sizes.dim, sizes.heads, landmarks))


class _Longformer(nn.Module):
    def __init__(self, attention: nn.Module, dense: nn.Linear) -> None:
        super().__init__()
        self.attention = attention
        self.dense = dense

    def forward(self, x: Tensor) -> Tensor:
        """Maps x (B, n, C) to the output of the same shape."""
        return self.dense(attend_locally(self.attention, x, x.new_zeros(x.shape[:2], dtype=torch.bool)))


def _longformer(sizes: Sizes) -> nn.Module:
    """Returns a sliding window of 128 tokens to either side without global attention; the softmax is in float32.

    The output layer comes without the residual and the norm that the package puts behind it, and the linear layers of
    global attention are left out.
    """
    attention = longformer_attention(sizes.dim, sizes.heads, WINDOW)
    _check_multiple("Longformer", sizes, WINDOW)
    return _Longformer(attention, nn.Linear(sizes.dim, sizes.dim))


def _reformer(sizes: Sizes) -> nn.Module:
    """Returns LSH attention with the package's buckets of 64 tokens and 8 rounds of hashing.

    Queries and keys have one linear layer together, so that there are three in all. Every call hashes at random.
    """
    attention: nn.Module = lsh_attention(sizes.dim, sizes.heads, BUCKET_SIZE, HASHES)
    _check_multiple("Reformer", sizes, 2 * BUCKET_SIZE)
    return attention


def _local(sizes: Sizes) -> nn.Module:
    """Returns attention to windows of 256 tokens: a token's own and its two neighbours; no rotary embeddings, no norm.

    The package pads an incomplete window with tokens of zero, which take part. The output layer has no bias.
    """
    from local_attention import LocalMHA

    return LocalMHA(
        dim=sizes.dim,
        window_size=WINDOW,
        dim_head=sizes.dim // sizes.heads,
        heads=sizes.heads,
        look_backward=1,
        look_forward=1,
        # True would compute the same scores and mask those of tokens more than a window away
        exact_windowsize=False,
        use_rotary_pos_emb=False,
    )


def _check_multiple(name: str, sizes: Sizes, factor: int) -> None:
    if sizes.length % factor:
        raise ValueError(f"{name} takes multiples of {factor} tokens, not {sizes.length:,}")


def _copy(theirs: nn.Linear, ours: nn.Linear) -> None:
    theirs.weight.copy_(ours.weight)
    if theirs.bias is not None:
        theirs.bias.copy_(ours.bias)


PEERS = (
    Peer("Linformer (linformer)", "linformer", True, _linformer, adopt=_adopt_linformer),
    Peer(
        "Linformer (linformer-pytorch)",
        "linformer-pytorch",
        True,
        _linformer_pytorch,
        adopt=_adopt_linformer_pytorch,
    ),
    Peer(
        "Linformer (fairseq/examples)",
        "fairseq-fixed" if sys.version_info >= (3, 11) else "fairseq",
        True,
        _fairseq_linformer,
        time_first=True,
        adopt=_adopt_fairseq_linformer,
    ),
    Peer("Performer (performer-pytorch)", "performer-pytorch", False, _performer),
    Peer("Nyströmformer-64 (nystrom-attention)", "nystrom-attention", False, partial(_nystromformer, 64)),
    Peer("Nyströmformer-32 (nystrom-attention)", "nystrom-attention", False, partial(_nystromformer, 32)),
    Peer("Longformer-257 (transformers)", "transformers", False, _longformer),
    Peer("Reformer (reformer-pytorch)", "reformer-pytorch", False, _reformer),
    Peer("local attention (local-attention)", "local-attention", False, _local),
)
