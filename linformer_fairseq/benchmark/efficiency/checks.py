"""Nothing is timed before it computes what it should."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.progress import say
from linformer_fairseq.modules.ops import naive

from .contenders import CONTENDERS, FULL, OURS, TWO_LEVELS
from .peers import NotInstalledError, Peer, Sizes

TOLERANCE = 1e-5
"""In float64; some packages compute their softmax in float32 nevertheless."""
SIZES = (Sizes(32, 4, 24, 4), Sizes(32, 4, 24, 12), Sizes(32, 4, 6, 6), Sizes(8, 1, 400, 20))
"""One for each order of products that ours takes where k <= n: linear layers folded into the slots; slots as they are;
scores projected, without slots; two levels in tiles."""
FULL_NAMES = tuple(contender.name for contender in FULL)
BIASES = ("q_proj.bias", "k_proj.bias", "v_proj.bias")
Attention = Callable[[Tensor], Tensor]
"""Self-attention from its input (n, B, C) to its output (n, B, C)."""


def check(contenders: Sequence[Peer] = CONTENDERS) -> None:
    """Compares full attention, ours and the Linformers of other packages with the formulas.

    Values, gradients of the input, and values where no gradient is asked for must be the same. The other packages'
    Linformers have our weights.

    Raises:
        UserError: one of them computes something else.
    """
    there = []
    for contender in contenders:
        if contender.name in (*FULL_NAMES, OURS, TWO_LEVELS) or contender.adopt:
            try:
                contender.build(SIZES[0])
            except NotInstalledError as error:
                say(f"  {error}")
            else:
                there.append(contender)
    for sizes in SIZES:
        _check(sizes, there)


def _check(sizes: Sizes, contenders: Sequence[Peer]) -> None:
    torch.manual_seed(0)
    x = torch.randn(sizes.length, 2, sizes.dim, dtype=torch.float64)
    ours = next(contender for contender in contenders if contender.name == OURS).build(sizes).double().eval()
    with torch.no_grad():
        for name in BIASES:  # most packages have no place for them
            ours.attention.get_parameter(name).zero_()
    for contender in contenders:
        module = contender.build(sizes).double().eval()
        if contender.adopt:
            contender.adopt(module, ours.attention)
            formula = _formula(OURS, ours.attention)
        else:
            formula = _formula(contender.name, getattr(module, "attention", module))
        _compare(contender.name, module if contender.time_first else _transposed(module), formula, x)


def _formula(name: str, attention: nn.Module) -> Attention:
    """Returns what the attention of a contender should compute."""

    def head(query: Tensor, key: Tensor, value: Tensor, number: int) -> naive.Result:
        if name in FULL_NAMES:
            return naive.full_attention(query, key, value)
        if name == TWO_LEVELS:
            return naive.two_level_attention(query, key, value, attention.projected_dim, attention.open_slots)
        matrices = (x.weight[:, : len(key)] for x in (attention.key_projection, attention.value_projection))
        return naive.linformer_attention(query, key, value, *matrices)

    return lambda x: naive.multihead(attention, x, x, x, [len(x)] * x.size(1), head)[0]


def _transposed(module: nn.Module) -> Attention:
    """Returns a module that takes and returns (B, n, C) as one of (n, B, C)."""
    return lambda x: module(x.transpose(0, 1)).transpose(0, 1)


def _compare(name: str, attention: Attention, formula: Attention, x: Tensor) -> None:
    (out, gradient), (expected, expected_gradient) = _with_gradient(attention, x), _with_gradient(formula, x)
    with torch.no_grad():
        alone = attention(x)
    for what, one, other in (
        ("output", out, expected),
        ("gradient", gradient, expected_gradient),
        ("output without a gradient", alone, expected),
    ):
        if not torch.allclose(one, other, TOLERANCE, TOLERANCE):
            difference = (one - other).abs().max().item()
            raise UserError(f"{name}: its {what} is wrong by {difference:.2g}. Nothing was timed; please report this.")


def _with_gradient(attention: Attention, x: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the output, and the gradient of its squares' sum."""
    x = x.detach().requires_grad_()
    out = attention(x)
    return out.detach(), torch.autograd.grad(out.square().sum(), x)[0]
