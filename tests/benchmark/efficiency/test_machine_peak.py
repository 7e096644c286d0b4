"""Operations are those of our module, and of the product of two matrices."""

import dataclasses
from collections.abc import Iterator

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from linformer_fairseq.benchmark.efficiency.contenders import CONTENDERS, OURS
from linformer_fairseq.benchmark.efficiency.machine_peak import SquareProduct, linformer_operations
from linformer_fairseq.benchmark.efficiency.peers import Sizes
from linformer_fairseq.benchmark.run_options import RunOptions


@pytest.fixture
def _products_one_by_one() -> Iterator[None]:
    """Attention by its two products, which are counted; torch's counter does not know its kernel for processors."""
    before = torch.backends.cuda.flash_sdp_enabled()
    torch.backends.cuda.enable_flash_sdp(False)
    yield
    torch.backends.cuda.enable_flash_sdp(before)


@pytest.mark.usefixtures("_products_one_by_one")
@pytest.mark.parametrize(
    ("sizes", "sentences"), [(Sizes(16, 2, 24, 6), 3), (Sizes(32, 1, 5, 1), 2), (Sizes(16, 4, 24, 24), 1)]
)
def test_our_module_takes_as_many_operations(sizes: Sizes, sentences: int) -> None:
    module = next(contender for contender in CONTENDERS if contender.name == OURS).build(sizes).eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        module(torch.randn(sizes.length, sentences, sizes.dim))
    assert linformer_operations(sizes, sentences) == counter.get_total_flops()


def test_operations_of_a_square_product(options: RunOptions) -> None:
    product = SquareProduct(dataclasses.replace(options, dtype="bfloat16"))
    with FlopCounterMode(display=False) as counter:
        assert product(0).dtype == torch.bfloat16
    assert product.operations == counter.get_total_flops()
