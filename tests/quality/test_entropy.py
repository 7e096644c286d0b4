"""Entropy of attention maps."""

import math

import pytest
import torch

from linformer_fairseq.quality.entropy import mean_entropy, row_entropy
from linformer_fairseq.spectrum.attention_maps import find_attentions
from tests.models.toy import net_input, toy_model, toy_task


def test_known_entropies() -> None:
    """Negative weights count by their size."""
    maps = torch.tensor([[0.25, 0.25, 0.25, 0.25], [1.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0], [2.0, -2.0, 0.0, 0.0]])
    torch.testing.assert_close(row_entropy(maps), torch.tensor([math.log(4), 0.0, math.log(2), math.log(2)]))


def test_every_row_of_a_place_counts_the_same() -> None:
    """Queries of zeros attend to all tokens alike, a decoder's to those up to their own."""
    task, model = toy_task(), toy_model("transformer")
    for attention in find_attentions(model):
        attention.module.q_proj.weight.data.zero_()
        attention.module.q_proj.bias.data.zero_()
    samples = [{"net_input": net_input(task, [source], target)} for source, target in ((3, 5), (9, 2))]
    assert mean_entropy(model, samples) == pytest.approx(
        {
            "encoder": (3 * math.log(3) + 9 * math.log(9)) / 12,
            "cross": (5 * math.log(3) + 2 * math.log(9)) / 7,
            "decoder": sum(map(math.log, (1, 2, 3, 4, 5, 1, 2))) / 7,
        },
        rel=1e-5,
    )
