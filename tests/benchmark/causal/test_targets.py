"""Targets are computed from the rows, and only where there are rows."""

from linformer_fairseq.benchmark.causal.decoding import DecodingRow
from linformer_fairseq.benchmark.causal.models import LINFORMERS, TRANSFORMER
from linformer_fairseq.benchmark.causal.product import EAGER_MODULE, FUSED, FUSED_MODULE, MODULE, PRODUCT, TrainingRow
from linformer_fairseq.benchmark.causal.targets import compare
from linformer_fairseq.benchmark.timing import Spread

OURS = next(iter(LINFORMERS))


def step(model: str, position: int, seconds: float, size: int = 1000, beam: int = 4) -> DecodingRow:
    return DecodingRow(model, beam, position, 8, Spread(seconds, seconds, seconds), size, size)


def training(name: str, length: int, seconds: float, peak: int = 1000) -> TrainingRow:
    return TrainingRow(name, length, None, Spread(seconds, seconds, seconds), peak)


def outcome(decoding: list[DecodingRow], rows: list[TrainingRow]) -> dict[str, tuple[float, bool]]:
    """With rows of decoding that are side by side in both ways."""
    return {target.what: (round(target.measured, 6), target.met) for target in compare(decoding, decoding, rows)}


def test_nothing_measured_gives_no_targets() -> None:
    assert compare([], [], []) == []
    assert compare([step(OURS, 5, 1.0)], [step(OURS, 5, 1.0)], [training(PRODUCT, 5, 1.0)]) == []


def test_decoding() -> None:
    rows = [step(OURS, 64, 1.0), step(OURS, 1024, 1.1), step(TRANSFORMER, 64, 0.9), step(TRANSFORMER, 1024, 4.4)]
    assert outcome(rows, []) == {
        f"{OURS}, beam 4: position 1,024 / 64, time of a step": (1.1, True),
        f"{OURS}, beam 4: largest / smallest state": (1.0, True),
        f"fairseq / {OURS}, beam 4, position 64: time of a step": (0.9, False),
        f"fairseq / {OURS}, beam 4, position 1,024: time of a step": (4.0, True),
    }


def test_state_that_grows_is_told() -> None:
    found = outcome([step(OURS, 8, 1.0), step(OURS, 16, 1.2, size=1001)], [])
    assert [met for _, met in found.values()] == [False, False]


def test_rows_without_a_time_are_passed_over() -> None:
    rows = [step(OURS, 64, 1.0), DecodingRow(TRANSFORMER, 4, 64, 8, None, None, None, "did not fit into memory")]
    assert outcome(rows, []) == {}


def test_training() -> None:
    rows = [
        training(PRODUCT, 2048, 1.0),
        training(PRODUCT, 8192, 4.5),
        training(FUSED, 2048, 1.0),
        training(FUSED, 8192, 18.0),
        training(MODULE, 2048, 2.0, peak=100),
        training(FUSED_MODULE, 2048, 9.0, peak=900),
        training(EAGER_MODULE, 2048, 10.0, peak=1000),
    ]
    assert outcome([], rows) == {
        f"{PRODUCT}: 8,192 / 2,048 tokens, time": (4.5, True),
        f"{FUSED} / {PRODUCT}, 8,192 tokens: time": (4.0, True),
        f"{FUSED} / {PRODUCT}, 2,048 tokens: time": (1.0, False),
        f"{FUSED_MODULE} / {MODULE}, 2,048 tokens: time": (4.5, False),
        f"{MODULE} / {FUSED_MODULE}, 2,048 tokens: peak memory": (0.111111, False),
        f"{EAGER_MODULE} / {MODULE}, 2,048 tokens: time": (5.0, True),
        f"{MODULE} / {EAGER_MODULE}, 2,048 tokens: peak memory": (0.1, True),
    }
