"""Entropy of attention maps."""

import math

import pytest
import torch

from linformer_fairseq.quality.entropy import mean_entropy, row_entropy
from linformer_fairseq.spectrum.attention_maps import find_attentions, recorded_maps
from tests.models.toy import net_input, toy_model, toy_task


def test_known_entropies() -> None:
    """Negative weights count by their size."""
    maps = torch.tensor([[0.25, 0.25, 0.25, 0.25], [1.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0], [2.0, -2.0, 0.0, 0.0]])
    torch.testing.assert_close(row_entropy(maps), torch.tensor([math.log(4), 0.0, math.log(2), math.log(2)]))


def test_mean_over_all_rows_of_a_place() -> None:
    """Of sentences of several lengths, every row of every map counts the same."""
    task, model = toy_task(), toy_model("transformer")
    samples = [{"net_input": net_input(task, [source], target)} for source, target in ((3, 5), (9, 2))]
    attentions = find_attentions(model)
    rows: dict[str, list[float]] = {"encoder": [], "cross": [], "decoder": []}
    with torch.no_grad(), recorded_maps(attentions) as maps:
        for sample in samples:
            model(**sample["net_input"])
            for attention in attentions:
                rows[attention.place] += row_entropy(maps[attention]).flatten().tolist()
    assert {place: len(own) for place, own in rows.items()} == {
        place: 2 * 2 * count for place, count in (("encoder", 12), ("cross", 7), ("decoder", 7))
    }
    found = mean_entropy(model, samples)
    assert found == pytest.approx({place: sum(own) / len(own) for place, own in rows.items()}, rel=1e-5)
    assert len({round(value, 3) for value in found.values()}) == 3
