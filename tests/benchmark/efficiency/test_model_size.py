"""What is counted without memory, against models that have it."""

import dataclasses

import pytest

from linformer_fairseq.benchmark.efficiency.model_size import ModelSizeRow, measure
from linformer_fairseq.benchmark.efficiency.settings import EfficiencySettings
from linformer_fairseq.benchmark.models import TRANSFORMER, TWO_LEVEL_FLAGS, TWO_LEVELS, build, linformer_flags
from linformer_fairseq.benchmark.run_options import RunOptions
from linformer_fairseq.models.layers import FAST_PATH_PARAMETERS

K = 4
OWN_K = 64  # the default of the architecture
FLAGS = {
    TRANSFORMER: {},
    TWO_LEVELS: TWO_LEVEL_FLAGS,
    "Linformer, k = 2": linformer_flags(2),
    "Linformer, k = 4": linformer_flags(K),
    "Linformer, k = 4, sharing none": linformer_flags(K, sharing="none"),
    "Linformer, k = 4, sharing key-value": linformer_flags(K, sharing="key-value"),
    "Linformer, k = 4, sharing layerwise": linformer_flags(K, sharing="layerwise"),
    "Linformer, k = 4, mean-pool": linformer_flags(K, projection="mean-pool"),
}


@pytest.fixture
def settings(settings: EfficiencySettings) -> EfficiencySettings:
    # three layers, in which layerwise sharing differs from others
    return dataclasses.replace(settings, layers=3, positions=(3, 64), model_k=(2, K))


def by_name(rows: list[ModelSizeRow], positions: int) -> dict[str, ModelSizeRow]:
    return {row.model: row for row in rows if row.positions == positions}


def test_counts_are_those_of_real_models(settings: EfficiencySettings, options: RunOptions) -> None:
    rows = measure(settings, options)
    assert [(row.positions, row.model) for row in rows] == [(n, name) for n in (3, 64) for name in FLAGS]
    assert [(row.k, row.sharing, row.projection) for row in rows[:5]] == [
        (None, None, None),
        (OWN_K, None, "two-level"),
        (2, "headwise", "linear"),
        (K, "headwise", "linear"),
        (K, "none", "linear"),
    ]
    for row in rows:
        impossible = row.k in (K, OWN_K) and row.positions == 3
        assert row.note == (f"left out: k = {row.k} is more than N = 3" if impossible else "")
        assert (row.parameters is None) == (row.projection_parameters is None) == (row.bytes is None) == impossible
        assert row.facts()["model"] == row.model
    for name, row in by_name(rows, 64).items():
        model = build(FLAGS[name], settings.model, settings.model.task(), 64)
        assert not any(x.is_meta for x in model.parameters())
        assert row.parameters == sum(x.numel() for x in model.parameters())
        assert row.bytes == sum(x.nbytes for x in model.parameters())


def test_projections_by_formula(settings: EfficiencySettings, options: RunOptions) -> None:
    n, attentions = 64, 2 * settings.layers  # self-attention of the encoder, cross-attention
    rows = by_name(measure(settings, options), n)
    assert [row.projection_parameters for row in rows.values()] == [
        0,
        0,
        2 * attentions * 2 * n,
        2 * attentions * K * n,
        2 * attentions * settings.heads * K * n,
        attentions * K * n,
        2 * K * n,
        0,
    ]
    baseline = build({}, settings.model, settings.model.task(), n)
    # fairseq 0.12.2 keeps copies of its encoder's weights, which ours does without
    copies = sum(x.numel() for name, x in baseline.named_parameters() if name.endswith(FAST_PATH_PARAMETERS))
    without = rows.pop(TRANSFORMER).parameters - copies
    # E and F that are shared by all layers are counted once
    assert all(row.parameters - row.projection_parameters == without for row in rows.values())


def test_bytes_follow_the_type_and_take_no_memory(settings: EfficiencySettings, options: RunOptions) -> None:
    settings = dataclasses.replace(settings, positions=(2**40,))
    whole, half = (
        by_name(measure(settings, dataclasses.replace(options, dtype=dtype)), 2**40)["Linformer, k = 4"]
        for dtype in ("float32", "bfloat16")
    )
    assert half.parameters == whole.parameters
    assert whole.bytes == 2 * half.bytes > 2**41
