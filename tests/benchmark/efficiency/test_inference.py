"""What is run, on what, and what is left out; no time itself is tested."""

import dataclasses
from collections.abc import Callable

import pytest
import torch
from fairseq.models.transformer import TransformerDecoderBase

from linformer_fairseq.benchmark import memory
from linformer_fairseq.benchmark.efficiency import inference
from linformer_fairseq.benchmark.efficiency.inference import PARTS, InferenceRow, measure
from linformer_fairseq.benchmark.efficiency.settings import EfficiencySettings
from linformer_fairseq.benchmark.forward import ENCODER, WHOLE, WITHOUT_WEIGHTS, forward, forward_call, shapes
from linformer_fairseq.benchmark.models import TRANSFORMER, TWO_LEVELS, ModelSizes, build, contenders
from linformer_fairseq.benchmark.run_options import RunOptions
from linformer_fairseq.benchmark.timing import too_long

MODELS = [TRANSFORMER, TWO_LEVELS, "Linformer, k = 8", "Linformer, k = 8 (encoder, cross, decoder)"]


@pytest.fixture
def settings(settings: EfficiencySettings) -> EfficiencySettings:
    return dataclasses.replace(settings, model_k=(8,), inference_tokens=64, inference_lengths=(16, 32, 128))


def measured(settings: EfficiencySettings, options: RunOptions) -> list[InferenceRow]:
    rows: list[InferenceRow] = []
    for length, _ in shapes(settings.inference_tokens, settings.inference_lengths):
        rows += measure(length, settings, options, rows)
    return rows


def wanted(*lengths: int) -> list[tuple[int, str, str]]:
    return [(n, part, name) for n in lengths for part in PARTS for name in MODELS[: 3 if part == ENCODER else 4]]


def test_every_part_of_every_model_on_the_same_tokens(
    settings: EfficiencySettings, options: RunOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple] = []

    def recording(part: str, model: torch.nn.Module, tokens: torch.Tensor) -> Callable[[int], object]:
        def call(run: int) -> object:
            given.append((tuple(tokens.shape), part, model.training, torch.is_grad_enabled(), tokens.data_ptr()))
            return forward(part, model, tokens)

        return call

    monkeypatch.setattr(inference, "forward_call", recording)
    rows = measured(settings, options)
    assert [(row.length, row.part, row.model) for row in rows] == wanted(16, 32)
    for row in rows:
        assert row.length * row.sentences == 64
        assert not row.note
        assert row.time.median > 0
        assert row.peak_bytes > 0
        facts = row.facts()
        assert facts["tokens_per_second"] == 64 / facts["time"]["median_seconds"]
    assert len(given) == (options.runs + 1) * len(rows)  # the runs, and one whose memory is listed
    assert {each[:4] for each in given} == {(shape, p, False, False) for shape in ((4, 16), (2, 32)) for p in PARTS}
    assert len({(each[0], each[4]) for each in given}) == 2


def test_what_takes_too_long_is_left_out_there_and_at_longer_lengths(
    settings: EfficiencySettings, options: RunOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def counting(part: str, model: torch.nn.Module, tokens: torch.Tensor) -> Callable[[int], object]:
        return lambda run: calls.append(tokens.size(1))

    monkeypatch.setattr(inference, "forward_call", counting)
    rows = measured(dataclasses.replace(settings, whole_time_limit=0.0), options)
    assert [(row.length, row.part, row.model) for row in rows] == wanted(16, 32)
    assert {row.note for row in rows} == {too_long(0.0)}
    assert not any(row.time or row.peak_bytes or row.facts()["tokens_per_second"] for row in rows)
    assert calls == [16] * len(MODELS), "the encoders, and the model whose encoder is that of another one"


def test_model_or_mask_that_does_not_fit_does_not_stop_the_others(
    settings: EfficiencySettings, options: RunOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*arguments: object) -> None:
        raise MemoryError

    def failing_call(part: str, model: torch.nn.Module, tokens: torch.Tensor) -> Callable[[int], object]:
        return fails if type(model).__name__ == "TransformerModel" else forward_call(part, model, tokens)

    monkeypatch.setattr(inference, "forward_call", failing_call)
    monkeypatch.setattr(TransformerDecoderBase, "buffered_future_mask", fails)
    monkeypatch.setattr(memory, "peak_bytes", fails)
    for row in measured(dataclasses.replace(settings, inference_lengths=(16,)), options):
        needs_mask = row.part != ENCODER and row.model in (TRANSFORMER, "Linformer, k = 8")
        assert row.note == ("did not fit into memory" if row.model == TRANSFORMER or needs_mask else "")
        assert (row.time is None) == bool(row.note)
        assert row.peak_bytes is None


@torch.no_grad()
def test_shared_mask_changes_no_output(settings: EfficiencySettings, options: RunOptions) -> None:
    models = inference._build(settings, options)
    tokens = torch.randint(4, 20, (2, 16))
    before = [forward(WITHOUT_WEIGHTS, model, tokens)[0] for model in models.values()]
    for model in models.values():
        model.decoder._future_mask = torch.empty(0)
    inference._share_future_mask(models, 16, options)
    after = [forward(WITHOUT_WEIGHTS, model, tokens)[0] for model in models.values()]
    assert all(torch.equal(x, y) for x, y in zip(before, after, strict=True))
    assert len({model.decoder._future_mask.data_ptr() for model in models.values()}) == 1


@torch.no_grad()
@pytest.mark.parametrize("number", range(4))
def test_parts(number: int, sizes: ModelSizes) -> None:
    flags = list(contenders((4,), 8).values())[number]
    model = build(flags, sizes, sizes.task(), 64).eval()
    tokens = torch.randint(4, 20, (2, 8))
    assert forward(ENCODER, model, tokens)["encoder_out"][0].shape == (8, 2, 16)
    logits, extra = forward(WHOLE, model, tokens)
    assert logits.shape == (2, 8, 24)
    assert extra["attn"][0].shape == (2, 8, 8)
    fewer, extra = forward(WITHOUT_WEIGHTS, model, tokens)
    assert extra["attn"] == [None]
    torch.testing.assert_close(fewer, logits)
    with pytest.raises(ValueError, match="decoder alone"):
        forward("decoder alone", model, tokens)
