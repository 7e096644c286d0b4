"""What is run, on what, and what is left out; no time itself is tested."""

import dataclasses
from collections.abc import Callable

import pytest
import torch

from linformer_fairseq.benchmark import memory
from linformer_fairseq.benchmark.efficiency import inference
from linformer_fairseq.benchmark.efficiency.inference import InferenceRow, measure
from linformer_fairseq.benchmark.efficiency.whole_models import contenders
from linformer_fairseq.benchmark.efficiency.whole_settings import InferenceSettings
from linformer_fairseq.benchmark.forward import ENCODER, WHOLE, WITHOUT_WEIGHTS, forward, forward_call, shapes
from linformer_fairseq.benchmark.models import TRANSFORMER, ModelSizes
from linformer_fairseq.benchmark.running import Running

MODELS = [TRANSFORMER, "Linformer, k = 4", "Linformer, k = 8 (encoder, cross, decoder)"]
PARTS = (ENCODER, WITHOUT_WEIGHTS, WHOLE)


@pytest.fixture
def settings(sizes: ModelSizes) -> InferenceSettings:
    return InferenceSettings(
        sizes, ks=(4,), all_linear_k=8, tokens=64, lengths=(16, 32, 128), parts=PARTS, time_limit=60.0
    )


def measured(settings: InferenceSettings, running: Running) -> list[InferenceRow]:
    rows: list[InferenceRow] = []
    for length, _ in shapes(settings.tokens, settings.lengths):
        rows += measure(length, settings, running, rows)
    return rows


def wanted(*lengths: int) -> list[tuple[int, str, str]]:
    return [(n, part, name) for n in lengths for part in PARTS for name in MODELS[: 2 if part == ENCODER else 3]]


def test_every_part_of_every_model_at_every_length(settings: InferenceSettings, running: Running) -> None:
    rows = measured(settings, running)
    assert [(row.length, row.part, row.model) for row in rows] == wanted(16, 32)
    for row in rows:
        assert row.length * row.sentences == 64
        assert not row.note
        assert row.time.median > 0
        assert row.peak_bytes > 0
        facts = row.facts()
        assert facts["tokens_per_second"] == 64 / facts["time"]["median_seconds"]


def test_no_all_linear_model_unless_wanted(settings: InferenceSettings, running: Running) -> None:
    rows = measured(dataclasses.replace(settings, all_linear_k=None, parts=(WITHOUT_WEIGHTS,)), running)
    assert [row.model for row in rows] == MODELS[:2] * 2


def test_all_models_get_the_same_tokens(
    settings: InferenceSettings, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple] = []

    def recording(part: str, model: torch.nn.Module, tokens: torch.Tensor) -> Callable[[int], object]:
        def call(run: int) -> object:
            given.append((tuple(tokens.shape), part, model.training, torch.is_grad_enabled(), tokens.data_ptr()))
            return forward(part, model, tokens)

        return call

    monkeypatch.setattr(inference, "forward_call", recording)
    measured(settings, running)
    assert len(given) == (running.runs + 1) * len(wanted(16, 32))  # the runs, and one whose memory is listed
    assert {each[:4] for each in given} == {(shape, p, False, False) for shape in ((4, 16), (2, 32)) for p in PARTS}
    assert len({(each[0], each[4]) for each in given}) == 2


def test_later_lengths_that_would_take_too_long_are_left_out(settings: InferenceSettings, running: Running) -> None:
    rows = measured(dataclasses.replace(settings, lengths=(8, 16, 32), time_limit=0.0), running)
    assert [(row.length, row.part, row.model) for row in rows] == wanted(8, 16, 32)
    for row in rows:
        assert row.note.startswith("left out: a run could take up to ") == (row.length == 32)
        assert (row.time is None) == (row.peak_bytes is None) == (row.length == 32)
    assert rows[-1].facts()["tokens_per_second"] is None


def test_what_would_not_fit_is_left_out(
    settings: InferenceSettings, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inference, "free_bytes", lambda device: 1)
    rows = measured(dataclasses.replace(settings, lengths=(8, 16, 32)), running)
    assert [(row.length, row.part, row.model) for row in rows] == wanted(8, 16, 32)
    for row in rows:
        assert row.note.startswith("left out: could take up to ") == (row.length == 32)


def test_model_that_fails_does_not_stop_the_others(
    settings: InferenceSettings, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(part: str, model: torch.nn.Module, tokens: torch.Tensor) -> Callable[[int], object]:
        def call(run: int) -> object:
            raise MemoryError

        return call if type(model).__name__ == "TransformerModel" else forward_call(part, model, tokens)

    monkeypatch.setattr(inference, "forward_call", fails)
    for row in measured(settings, running):
        assert row.note == ("did not fit into memory" if row.model == TRANSFORMER else "")
        assert (row.time is None) == (row.model == TRANSFORMER)


def test_memory_that_cannot_be_listed_leaves_the_time(
    settings: InferenceSettings, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(call: object, device: torch.device) -> int:
        raise MemoryError

    monkeypatch.setattr(memory, "peak_bytes", fails)
    assert all(row.time and row.peak_bytes is None and not row.note for row in measured(settings, running))


@torch.no_grad()
def test_shared_mask_changes_no_output(settings: InferenceSettings, running: Running) -> None:
    models = inference._build(settings, running)
    tokens = torch.randint(4, 20, (2, 16))
    before = [forward(WITHOUT_WEIGHTS, model, tokens)[0] for model in models.values()]
    for model in models.values():
        model.decoder._future_mask = torch.empty(0)
    inference._share_future_mask(models, 16, running)
    after = [forward(WITHOUT_WEIGHTS, model, tokens)[0] for model in models.values()]
    assert all(torch.equal(x, y) for x, y in zip(before, after, strict=True))
    assert len({model.decoder._future_mask.data_ptr() for model in models.values()}) == 1


@torch.no_grad()
@pytest.mark.parametrize("number", range(3))
def test_parts(number: int, sizes: ModelSizes) -> None:
    model = contenders((4,), 8)[number].build(sizes, sizes.task(), 16).eval()
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


def test_shapes() -> None:
    assert shapes(1024, (256, 1024, 2048)) == [(256, 4), (1024, 1)]


def test_a_row_without_a_time() -> None:
    facts = InferenceRow("a", ENCODER, 4, 2, None, None, "too large").facts()
    assert facts["time"] is None
    assert facts["tokens_per_second"] is None
