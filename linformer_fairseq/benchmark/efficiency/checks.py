"""Nothing is timed before it computes what it should."""

from collections.abc import Callable, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.progress import say
from linformer_fairseq.modules import CausalTwoLevelAttention, TwoLevelAttention
from linformer_fairseq.modules.ops import naive

from .contenders import CAUSAL_CONTENDERS, CONTENDERS, CROSS_CONTENDERS, FULL, OURS, TWO_LEVELS
from .peers import NotInstalledError, Peer, Sizes
from .settings import CAUSAL, CROSS, MODULES

TOLERANCE = 1e-5
"""In float64; some packages compute their softmax in float32 nevertheless."""
SIZES = (Sizes(32, 4, 24, 4), Sizes(32, 4, 24, 12), Sizes(32, 4, 6, 6), Sizes(8, 1, 1000, 20))
"""One for each order of products that ours takes where k <= n: linear layers folded into the slots; slots as they are;
scores projected, without slots; and one in which two levels leave windows closed."""
CHECKED = {MODULES: CONTENDERS, CROSS: CROSS_CONTENDERS, CAUSAL: CAUSAL_CONTENDERS}
FULL_NAMES = tuple(contender.name for contender in FULL)
BIASES = ("q_proj.bias", "k_proj.bias", "v_proj.bias")
Attention = Callable[[Tensor], Tensor]
"""Self-attention from its input (n, B, C) to its output (n, B, C)."""


def check(contenders: Mapping[str, Sequence[Peer]] = CHECKED) -> None:
    """Compares full attention, ours and the Linformers of other packages with the formulas.

    Values, gradients of the input, and values where no gradient is asked for must be the same. The other packages'
    Linformers have our weights.

    Args:
        contenders: those of every part that measures modules.

    Raises:
        UserError: one of them computes something else.
    """
    for part, own in contenders.items():
        there = []
        for contender in own:
            if contender.name in (*FULL_NAMES, OURS, TWO_LEVELS) or contender.adopt:
                try:
                    contender.build(SIZES[0])
                except NotInstalledError as error:
                    say(f"  {error}")
                else:
                    there.append(contender)
        for sizes in SIZES:
            _check(part, sizes, there)


def _check(part: str, sizes: Sizes, contenders: Sequence[Peer]) -> None:
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
            formula = _formula(part, OURS, ours.attention)
        else:
            formula = _formula(part, contender.name, getattr(module, "attention", module))
        name = contender.name if part == MODULES else f"{part}, {contender.name}"
        _compare(name, module if contender.time_first else _transposed(module), formula, x)


def _formula(part: str, name: str, attention: nn.Module) -> Attention:
    """Returns what the attention of a contender should compute."""

    def head(query: Tensor, key: Tensor, value: Tensor, number: int) -> naive.Result:
        if name in FULL_NAMES:
            return _full(query, key, value, part == CAUSAL)
        if isinstance(attention, CausalTwoLevelAttention):
            return naive.causal_two_level_attention(query, key, value, *attention.sizes, attention.exact)
        if isinstance(attention, TwoLevelAttention):
            choosing = None if part == CROSS else len(query)
            return naive.two_level_attention(query, key, value, attention.rule.sizes(len(key)), choosing)
        matrices = (x.weight[:, : len(key)] for x in (attention.key_projection, attention.value_projection))
        formula = naive.causal_linformer_attention if part == CAUSAL else naive.linformer_attention
        return formula(query, key, value, *matrices)

    return lambda x: naive.multihead(attention, x, x, x, [len(x)] * x.size(1), head)[0]


def _full(query: Tensor, key: Tensor, value: Tensor, causal: bool) -> naive.Result:
    """Returns full attention, of each token to those up to its own if it is causal."""
    if not causal:
        return naive.full_attention(query, key, value)
    lengths = range(1, len(key) + 1)
    rows = [naive.full_attention(query[n - 1 : n], key[:n], value[:n]) for n in lengths]
    return torch.cat([out for out, _ in rows]), torch.cat([F.pad(own, (0, len(key) - own.size(1))) for _, own in rows])


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
