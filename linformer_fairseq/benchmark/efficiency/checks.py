"""Nothing is timed before it computes what it should."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.progress import say
from linformer_fairseq.modules.ops import naive

from .contenders import CONTENDERS, FULL, OURS, TWO_LEVELS
from .peers import NotInstalledError, Peer
from .sizes import Sizes

TOLERANCE = 1e-5
"""In float64; some packages compute their softmax in float32 nevertheless."""
SIZES = (Sizes(32, 4, 24, 4), Sizes(32, 4, 24, 12), Sizes(32, 4, 6, 6), Sizes(8, 1, 400, 20))
"""One for each order of products that ours takes where k <= n: linear layers folded into the slots; slots as they are;
scores projected, without slots; two levels in tiles."""
FULL_NAMES = tuple(contender.name for contender in FULL)
BIASES = ("q_proj.bias", "k_proj.bias", "v_proj.bias")


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
    expected_ours = _with_gradient(_Formula(OURS, ours.attention), True, x)
    for contender in contenders:
        module = contender.build(sizes).double().eval()
        expected = expected_ours
        if contender.adopt:
            contender.adopt(module, ours.attention)
        elif contender.name == OURS:
            module.load_state_dict(ours.state_dict())
        else:
            expected = _with_gradient(_Formula(contender.name, getattr(module, "attention", module)), True, x)
        _compare(contender.name, module, contender.time_first, x, expected)


class _Formula(nn.Module):
    """What the attention of a contender should compute, by its formula."""

    def __init__(self, name: str, attention: nn.Module) -> None:
        super().__init__()
        self.name, self.attention = name, attention

    def forward(self, x: Tensor) -> Tensor:
        """(n, B, C)."""
        return naive.multihead(self.attention, x, x, x, [len(x)] * x.size(1), self._head)[0]

    def _head(self, query: Tensor, key: Tensor, value: Tensor, number: int) -> naive.Result:
        if self.name in FULL_NAMES:
            return naive.full_attention(query, key, value)
        attention = self.attention
        if self.name == TWO_LEVELS:
            return naive.two_level_attention(query, key, value, attention.projected_dim, attention.open_slots)
        matrices = (x.weight[:, : len(key)] for x in (attention.key_projection, attention.value_projection))
        return naive.linformer_attention(query, key, value, *matrices)


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
    """Returns the output (n, B, C), and the gradient of its squares' sum."""
    x = x.detach().requires_grad_()
    out = _call(module, time_first, x)
    return out.detach(), torch.autograd.grad(out.square().sum(), x)[0]


def _call(module: nn.Module, time_first: bool, x: Tensor) -> Tensor:
    return module(x) if time_first else module(x.transpose(0, 1)).transpose(0, 1)
