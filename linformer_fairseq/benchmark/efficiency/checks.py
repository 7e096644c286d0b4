"""Nothing is timed before it computes what it should."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.progress import say
from linformer_fairseq.modules import LinformerMultiheadAttention

from .contenders import CONTENDERS, EAGER, FULL, FUSED, OURS, OWN, TWO_LEVELS
from .peers import NotInstalledError, Peer
from .sizes import Sizes

TOLERANCE = 1e-5
"""In float64; some packages compute their softmax in float32 nevertheless."""
SIZES = tuple(Sizes(dim=32, heads=4, length=length, k=k) for length, k in ((24, 4), (24, 12), (6, 6), (400, 20)))
"""One for each order of products that ours takes where k <= n: linear layers folded into the slots; slots as they are;
scores projected, without slots; two levels in tiles."""
FULL_NAMES = tuple(contender.name for contender in FULL)
OWN_NAMES = tuple(contender.name for contender in OWN)
BIASES = ("q_proj.bias", "k_proj.bias", "v_proj.bias")


def check(contenders: Sequence[Peer] = CONTENDERS) -> None:
    """Full attention in all its forms, our Linformers, and those of other packages with our weights must compute what
    the formulas say, values and gradients of the input, and the same values where no gradient is asked for.

    Raises:
        UserError: one of them does not.
    """
    there = []
    for contender in contenders:
        if contender.name in (*FULL_NAMES, *OWN_NAMES) or contender.adopt:
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
    built = {contender.name: contender for contender in contenders}
    eager = built[EAGER].build(sizes).double().eval()
    for name in FULL_NAMES:
        module = built[name].build(sizes).double().eval()
        weights = {key.removeprefix("attention."): value for key, value in eager.state_dict().items()}
        (module if name == FUSED else module.attention).load_state_dict(weights)
        _compare(name, module, built[name].time_first, x, _full(eager.attention, x))
    two_levels = built[TWO_LEVELS].build(sizes).double().eval()
    _compare(TWO_LEVELS, two_levels, True, x, _two_levels(two_levels.attention, x))
    ours = built[OURS].build(sizes).double().eval()
    with torch.no_grad():
        for name, parameter in ours.attention.named_parameters():
            if name in BIASES:  # most packages have no place for them
                parameter.zero_()
    expected = _linformer(ours.attention, x)
    _compare(OURS, ours, True, x, expected)
    for contender in contenders:
        if contender.adopt is not None:
            module = contender.build(sizes).double().eval()
            contender.adopt(module, ours.attention)
            _compare(contender.name, module, contender.time_first, x, expected)


def _compare(name: str, module: nn.Module, time_first: bool, x: Tensor, expected: tuple[Tensor, Tensor]) -> None:
    out, gradient = _with_gradient(module, time_first, x)
    with torch.no_grad():
        alone = _call(module, time_first, x)
    for what, one, other in (
        ("output", out, expected[0]),
        ("gradient", gradient, expected[1]),
        ("output without a gradient", alone, expected[0]),
    ):
        if not torch.allclose(one, other, TOLERANCE, TOLERANCE):
            difference = (one - other).abs().max().item()
            raise UserError(f"{name}: its {what} is wrong by {difference:.2g}; nothing was timed, please report this.")


def _with_gradient(module: nn.Module, time_first: bool, x: Tensor) -> tuple[Tensor, Tensor]:
    """The output (n, B, C), and the gradient of its squares' sum."""
    x = x.detach().requires_grad_()
    out = _call(module, time_first, x)
    return out.detach(), torch.autograd.grad(out.square().sum(), x)[0]


def _call(module: nn.Module, time_first: bool, x: Tensor) -> Tensor:
    return module(x) if time_first else module(x.transpose(0, 1)).transpose(0, 1)


def _full(attention: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    return _with_gradient(_Formula(attention), True, x)


def _linformer(attention: LinformerMultiheadAttention, x: Tensor) -> tuple[Tensor, Tensor]:
    def slots(projection: nn.Module) -> Tensor:
        return projection.weight[:, : len(x)]

    keys, values = slots(attention.key_projection), slots(attention.value_projection)
    return _with_gradient(_Formula(attention, lambda x: keys @ x, lambda x: values @ x), True, x)


def _two_levels(attention: LinformerMultiheadAttention, x: Tensor) -> tuple[Tensor, Tensor]:
    k, opened = attention.key_projection.projected_dim, attention.key_projection.open_slots
    tokens = _windows(len(x), k**2).to(x.dtype)
    tokens = tokens / tokens.sum(1, keepdim=True)  # each by itself up to k²
    windows = _windows(len(tokens), k)
    sizes = windows.sum(1).to(x.dtype)
    means = windows / sizes[:, None]

    def head(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = _scores(q, k)
        of_slots = scores @ means.t() + sizes.log()
        is_open = torch.zeros_like(of_slots).scatter(1, of_slots.topk(min(opened, len(windows))).indices, 1.0)
        of_slots = of_slots.masked_fill(is_open > 0, -torch.inf)
        of_tokens = scores.masked_fill(is_open @ windows.to(x.dtype) == 0, -torch.inf)
        return torch.softmax(torch.cat([of_slots, of_tokens], 1), 1) @ torch.cat([means @ v, v])

    return _with_gradient(_Formula(attention, lambda x: tokens @ x, lambda x: tokens @ x, head), True, x)


def _windows(n: int, slots: int) -> Tensor:
    """(s, n), which of s <= `slots` windows every token is in."""
    slots = min(slots, n)
    return torch.arange(n) * slots // n == torch.arange(slots)[:, None]


def _as_it_is(x: Tensor) -> Tensor:
    return x


def _scores(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.t() * q.size(1) ** -0.5


def _softmax_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(_scores(q, k), dim=-1) @ v


class _Formula(nn.Module):
    """Attention sentence by sentence and head by head, softmax(Q K̄ᵀ / √d) V̄ for one; K̄ and V̄ come of E X and F X,
    given as functions of X."""

    def __init__(
        self,
        attention: nn.Module,
        keys: Callable[[Tensor], Tensor] = _as_it_is,
        values: Callable[[Tensor], Tensor] = _as_it_is,
        head: Callable[[Tensor, Tensor, Tensor], Tensor] = _softmax_attention,
    ) -> None:
        super().__init__()
        self.attention, self.keys, self.values, self.head = attention, keys, values, head

    def forward(self, x: Tensor) -> Tensor:
        """(n, B, C)."""
        attention, outputs = self.attention, []
        for sentence in x.unbind(1):
            q = attention.q_proj(sentence)
            k = attention.k_proj(self.keys(sentence))
            v = attention.v_proj(self.values(sentence))
            chunks = (y.chunk(attention.num_heads, dim=1) for y in (q, k, v))
            heads = [self.head(*of_head) for of_head in zip(*chunks, strict=True)]
            outputs.append(attention.out_proj(torch.cat(heads, dim=1)))
        return torch.stack(outputs, dim=1)
