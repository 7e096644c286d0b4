"""What is counted without memory, against models that have it."""

import dataclasses

import pytest

from linformer_fairseq.benchmark.efficiency.model_size import ModelSizeRow, measure
from linformer_fairseq.benchmark.efficiency.whole_models import linformer, transformer
from linformer_fairseq.benchmark.efficiency.whole_settings import ModelSizeSettings
from linformer_fairseq.benchmark.models import TRANSFORMER, ModelSizes
from linformer_fairseq.benchmark.running import Running
from linformer_fairseq.models.layers import FAST_PATH_PARAMETERS

K = 4
NAMES = {
    TRANSFORMER: transformer(),
    "Linformer, k = 2": linformer(2),
    "Linformer, k = 4": linformer(K),
    "Linformer, k = 4, sharing none": linformer(K, sharing="none"),
    "Linformer, k = 4, sharing key-value": linformer(K, sharing="key-value"),
    "Linformer, k = 4, sharing layerwise": linformer(K, sharing="layerwise"),
    "Linformer, k = 4, mean-pool": linformer(K, projection="mean-pool"),
}


@pytest.fixture
def sizes(sizes: ModelSizes) -> ModelSizes:
    return dataclasses.replace(sizes, layers=3)  # in which layerwise sharing differs from others


@pytest.fixture
def settings(sizes: ModelSizes) -> ModelSizeSettings:
    return ModelSizeSettings(sizes, positions=(3, 8, 32), ks=(2, K), sharing_k=K)


def by_name(rows: list[ModelSizeRow], positions: int) -> dict[str, ModelSizeRow]:
    return {row.model: row for row in rows if row.positions == positions}


def test_every_model_for_every_n_in_order(settings: ModelSizeSettings, running: Running) -> None:
    rows = measure(settings, running)
    assert [(row.positions, row.model) for row in rows] == [(n, name) for n in (3, 8, 32) for name in NAMES]
    assert [(row.k, row.sharing, row.projection) for row in rows[:4]] == [
        (None, None, None),
        (2, "headwise", "linear"),
        (K, "headwise", "linear"),
        (K, "none", "linear"),
    ]
    assert all(row.facts()["model"] == row.model for row in rows)


def test_a_linformer_is_the_papers_unless_it_is_named_otherwise() -> None:
    """Whatever the models' defaults are."""
    flags = linformer(K, "encoder,cross,decoder").flags
    assert (flags["linformer_projection"], flags["linformer_window"]) == ("linear", 0)


def test_k_beyond_n_is_noted(settings: ModelSizeSettings, running: Running) -> None:
    for row in measure(settings, running):
        impossible = row.k == K and row.positions == 3
        assert (row.note == "left out: k = 4 is more than N = 3") == impossible
        assert (row.parameters is None) == (row.projection_parameters is None) == (row.bytes is None) == impossible


@pytest.mark.parametrize("name", NAMES)
def test_counts_are_those_of_a_real_model(
    name: str, settings: ModelSizeSettings, running: Running, sizes: ModelSizes
) -> None:
    model = NAMES[name].build(sizes, sizes.task(), 8)
    assert not any(x.is_meta for x in model.parameters())
    row = by_name(measure(settings, running), 8)[name]
    assert row.parameters == sum(x.numel() for x in model.parameters())
    assert row.bytes == sum(x.nbytes for x in model.parameters())


def test_projections_by_formula(settings: ModelSizeSettings, running: Running, sizes: ModelSizes) -> None:
    for n in (8, 32):
        rows = by_name(measure(settings, running), n)
        attentions = 2 * sizes.layers  # self-attention of the encoder, cross-attention
        assert [row.projection_parameters for row in rows.values()] == [
            matrices * n
            for matrices in (
                0,
                2 * attentions * 2,
                2 * attentions * K,
                2 * attentions * sizes.heads * K,
                attentions * K,
                2 * K,
                0,
            )
        ]
        baseline = transformer().build(sizes, sizes.task(), n)
        # fairseq 0.12.2 keeps copies of its encoder's weights, which ours does without
        copies = sum(x.numel() for name, x in baseline.named_parameters() if name.endswith(FAST_PATH_PARAMETERS))
        without = rows.pop(TRANSFORMER).parameters - copies
        assert all(row.parameters - row.projection_parameters == without for row in rows.values())


def test_bytes_follow_the_type(settings: ModelSizeSettings, running: Running) -> None:
    halves = measure(settings, dataclasses.replace(running, dtype="bfloat16"))
    for whole, half in zip(measure(settings, running), halves, strict=True):
        assert half.parameters == whole.parameters
        assert half.note or whole.bytes == 2 * half.bytes


def test_no_memory_is_needed(settings: ModelSizeSettings, running: Running) -> None:
    rows = by_name(measure(dataclasses.replace(settings, positions=(2**40,)), running), 2**40)
    assert rows["Linformer, k = 4"].bytes > 2**40
