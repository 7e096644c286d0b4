"""A convolution over the values stands beside the attention of an encoder, whatever its kind."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from linformer_fairseq.modules import KINDS, BaseAttention
from linformer_fairseq.modules.value_convolution import ValueConvolution
from tests.reference import (
    assert_checkpointing_changes_nothing,
    assert_same_gradients,
    make_attention,
    padding_mask,
)

every_kind = pytest.mark.parametrize("kind", KINDS)


def without_convolution(attention: BaseAttention, x: Tensor, mask: Tensor) -> Tensor:
    """Returns what the attention alone gives."""
    convolution, attention.value_convolution = attention.value_convolution, None
    out, _ = attention(x, x, x, key_padding_mask=mask, need_weights=False)
    attention.value_convolution = convolution
    return out


def naive_convolution(attention: BaseAttention, x: Tensor, lengths: list[int]) -> Tensor:
    """Returns what is added to the output (n, B, C), token by token and head by head."""
    kernels = attention.value_convolution.weight[:, 0, :, 0]
    heads, reach = attention.num_heads, kernels.size(1) // 2
    out = torch.zeros_like(x)
    for sentence, length in enumerate(lengths):
        values = (x[:, sentence] @ attention.v_proj.weight.t()).unflatten(1, (heads, -1))
        for token in range(len(x)):
            near = range(max(0, token - reach), min(length, token + reach + 1))
            summed = [sum(kernels[h, i - token + reach] * values[i, h] for i in near) for h in range(heads)]
            summed = [own if near else torch.zeros(values.size(2)).to(x) for own in summed]
            out[token, sentence] = torch.cat(summed) @ attention.out_proj.weight.t()
    return out


@given(width=st.sampled_from([1, 3, 31, 33, 35, 67]), length=st.integers(0, 140))
def test_blocks_equal_a_sum_over_tokens(width: int, length: int) -> None:
    """Shorter and longer kernels than a block, and any number of blocks."""
    convolution = ValueConvolution(2, width).double()
    torch.nn.init.normal_(convolution.weight)
    values = torch.randn(length, 1, 2, 3, dtype=torch.float64)
    expected = torch.zeros_like(values)
    for shift in range(-(width // 2), width // 2 + 1):
        kernels = convolution.weight[:, 0, shift + width // 2]
        to, of = (slice(max(0, i), max(0, length + min(0, i))) for i in (-shift, shift))
        expected[to] += kernels * values[of]
    torch.testing.assert_close(convolution(values), expected)


@every_kind
@given(
    width=st.sampled_from([1, 3, 5, 33]),
    num_heads=st.sampled_from([1, 2, 4]),
    lengths=st.lists(st.integers(1, 16), min_size=1, max_size=3),
    exact_below=st.sampled_from([0, 12]),
)
def test_values_and_gradients_equal_the_naive_reference(
    kind: str, width: int, num_heads: int, lengths: list[int], exact_below: int
) -> None:
    """In full attention and in two levels, which a batch may need both of."""
    attention = make_attention(kind, n=16, num_heads=num_heads, value_convolution=width, exact_below=exact_below)
    mask = padding_mask(lengths)
    x = torch.randn(max(lengths), len(lengths), 8, dtype=torch.float64, requires_grad=True)
    expected = without_convolution(attention, x, mask) + naive_convolution(attention, x, lengths)
    for need_weights in (False, True):
        out, weights = attention(x, x, x, key_padding_mask=mask, need_weights=need_weights)
        assert (weights is not None) == need_weights
        torch.testing.assert_close(out, expected, rtol=1e-9, atol=1e-9)
        assert_same_gradients(out, expected, [x, *attention.parameters()], rtol=1e-8, atol=1e-8)


@every_kind
def test_padding_beyond_the_longest_sentence_is_convolved_too(kind: str) -> None:
    attention, lengths = make_attention(kind, n=16, value_convolution=5), [16, 9]
    mask = padding_mask([*lengths, 19])[:2]
    x = torch.randn(19, 2, 8, dtype=torch.float64)
    out, _ = attention(x, x, x, key_padding_mask=mask, need_weights=False)
    torch.testing.assert_close(out, without_convolution(attention, x, mask) + naive_convolution(attention, x, lengths))


def test_layers_that_are_not_plain_are_called() -> None:
    """The hooks make each of them another layer, as quantisation or an adapter does."""
    attention, other = (make_attention("two-level", value_convolution=5) for _ in range(2))
    other.load_state_dict(attention.state_dict())
    for name in ("v_proj", "out_proj"):
        getattr(attention, name).register_forward_hook(lambda layer, inputs, out: 2 * out - layer.bias)
        with torch.no_grad():
            getattr(other, name).weight.mul_(2)
    x = torch.randn(9, 2, 8, dtype=torch.float64)
    torch.testing.assert_close(attention(x, x, x)[0], other(x, x, x)[0])
    quantised = torch.ao.quantization.quantize_dynamic(other.float(), {torch.nn.Linear})
    assert quantised(x.float(), x.float(), x.float())[0].isfinite().all()


def test_quantisation_noise() -> None:
    attention = make_attention("two-level", value_convolution=5, q_noise=0.5, qn_block_size=4).train()
    x = torch.randn(9, 2, 8, dtype=torch.float64, requires_grad=True)
    outs = [attention(x, x, x)[0] for _ in range(2)]
    assert not torch.equal(*outs)
    for gradient in torch.autograd.grad(outs[0].sum(), [x, *attention.parameters()]):
        assert gradient.isfinite().all()


@every_kind
def test_activations_may_be_checkpointed(kind: str) -> None:
    assert_checkpointing_changes_nothing(make_attention(kind, value_convolution=5, exact_below=0).train(), [9, 5])


def test_padding_matters_neither_forwards_nor_backwards() -> None:
    attention = make_attention(value_convolution=5)
    mask = padding_mask([7, 4])
    x = torch.randn(7, 2, 8, dtype=torch.float64)
    dirty = x.masked_fill(mask.t()[..., None], torch.nan)
    results = []
    for value in (x, dirty):
        out, _ = attention(x, value, value, key_padding_mask=mask)
        results.append((out, torch.autograd.grad(out[:4].sum(), attention.value_convolution.weight)))
    torch.testing.assert_close(*results, rtol=0, atol=0)


@every_kind
def test_it_starts_as_the_attention_without_it(kind: str) -> None:
    attention = make_attention(kind, value_convolution=33, random=False)
    mask = padding_mask([9, 5])
    x = torch.randn(9, 2, 8, dtype=torch.float64)
    out, _ = attention(x, x, x, key_padding_mask=mask, need_weights=False)
    torch.testing.assert_close(out, without_convolution(attention, x, mask), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("width", [2, -1])
def test_a_kernel_without_a_middle_is_refused(width: int) -> None:
    with pytest.raises(ValueError, match=f"--linformer-value-convolution must be an odd number .*, not {width}"):
        ValueConvolution(2, width)


@pytest.mark.parametrize("place", [{"encoder_decoder_attention": True}, {"causal": True}])
def test_it_is_for_encoders(place: dict[str, bool]) -> None:
    with pytest.raises(ValueError, match="value_convolution is for the self-attention of an encoder"):
        make_attention("two-level", value_convolution=3, **place)
