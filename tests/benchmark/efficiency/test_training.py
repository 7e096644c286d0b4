"""The steps against fairseq's own, and the batches that they are made on; no time itself is tested."""

import copy
import dataclasses

import numpy as np
import pytest
import torch
from fairseq import options, utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.trainer import Trainer as FairseqTrainer

from linformer_fairseq.benchmark import models
from linformer_fairseq.benchmark.efficiency import training
from linformer_fairseq.benchmark.efficiency.batches import Sample, equally_long, wmt_like, wmt_like_words
from linformer_fairseq.benchmark.efficiency.settings import EfficiencySettings
from linformer_fairseq.benchmark.efficiency.trainer import LABEL_SMOOTHING, LEARNING_RATE, Trainer
from linformer_fairseq.benchmark.efficiency.training import WMT_LIKE, TrainingRow
from linformer_fairseq.benchmark.models import FUSED, TRANSFORMER, TWO_LEVELS, ModelSizes, contenders, dictionary
from linformer_fairseq.benchmark.run_options import RunOptions
from linformer_fairseq.benchmark.timing import Timings, too_long
from linformer_fairseq.models.layers import FAST_PATH_PARAMETERS

CPU = torch.device("cpu")
WORDS = dictionary(20)
MODELS = [TRANSFORMER, TWO_LEVELS, "Linformer, k = 4", "Linformer, k = 8", FUSED]
every_model = pytest.mark.parametrize("number", range(4))


@pytest.fixture
def settings(settings: EfficiencySettings) -> EfficiencySettings:
    return dataclasses.replace(settings, max_tokens=64, batches=3, training_lengths=(16, 32, 128))


def measured(settings: EfficiencySettings, options: RunOptions) -> list[TrainingRow]:
    rows: list[TrainingRow] = []
    for length in training.kinds(settings):
        rows += training.measure(length, settings, options, rows)
    return rows


def some_batch() -> Sample:
    """With padding on both sides."""
    return wmt_like(200, 1, WORDS, 1, CPU, sentences=50).samples[0]


def build(number: int, sizes: ModelSizes, precision: torch.dtype = torch.float32) -> Trainer:
    """fairseq's Transformer, two levels, a Linformer, and one that projects the decoder's self-attention too."""
    task = sizes.task()
    flags = list(contenders((4,), 8).values())[number]
    return Trainer(models.build(flags, sizes, task, 256), task, precision)


def test_words_are_as_of_wmt() -> None:
    source, target = wmt_like_words(4096, seed=3)
    for side in (source, target):
        assert len(side) == 20_000
        assert 28 < side.mean() < 30
        assert side.min() >= 1
        assert 150 < side.max() <= 250
        assert np.median(side) < 26
    assert np.corrcoef(source, target)[0, 1] > 0.9


def test_batches_depend_on_the_seed_alone() -> None:
    one, same, other = (wmt_like(64, 3, WORDS, seed, CPU, sentences=100) for seed in (1, 1, 2))
    assert [x["target"].tolist() for x in one.samples] == [x["target"].tolist() for x in same.samples]
    assert [x["target"].tolist() for x in one.samples] != [x["target"].tolist() for x in other.samples]


def test_wmt_like_batches_are_fairseqs() -> None:
    batches = wmt_like(200, 5, WORDS, 1, CPU, sentences=100)
    assert len(batches.samples) == 5
    source_tokens = target_tokens = positions = 0
    widths = []
    for sample in batches.samples:
        source, target = sample["net_input"]["src_tokens"], sample["target"]
        shifted = sample["net_input"]["prev_output_tokens"]
        assert max(source.numel(), target.numel()) <= 200
        assert len(source) == len(target) == sample["nsentences"]
        assert source[:, -1].eq(WORDS.eos()).all(), "padding on the left"
        assert target[:, 0].ne(WORDS.pad()).all(), "padding on the right"
        assert shifted[:, 0].eq(WORDS.eos()).all()
        assert target.eq(WORDS.eos()).sum() == len(target)
        source_tokens += int(source.ne(WORDS.pad()).sum())
        target_tokens += int(target.ne(WORDS.pad()).sum())
        positions += source.numel() + target.numel()
        widths.append(source.size(1))
    assert widths == sorted(widths)
    assert widths[0] < 20 < 40 < widths[-1], "spread over the lengths"
    assert (batches.source_tokens, batches.target_tokens) == (source_tokens, target_tokens)
    assert batches.padding == pytest.approx(1 - (source_tokens + target_tokens) / positions)
    assert 0 < batches.padding < 0.3
    assert batches.longest == max(widths[-1], *(x["target"].size(1) for x in batches.samples))
    assert batches.sentences == sum(len(x["target"]) for x in batches.samples)


def test_no_more_batches_than_there_are() -> None:
    assert wmt_like(1000, 1000, WORDS, 1, CPU, sentences=100).sentences == 100


def test_equally_long_batch_has_no_padding() -> None:
    batches = equally_long(16, 64, WORDS, 1, CPU)
    assert [x["net_input"]["src_tokens"].shape for x in batches.samples] == [(4, 16)]
    assert [x["target"].shape for x in batches.samples] == [(4, 16)]
    assert batches.padding == 0
    assert batches.source_tokens == batches.target_tokens == 64
    assert batches.longest == 16


@every_model
def test_a_step_is_fairseqs(number: int, sizes: ModelSizes) -> None:
    """Bit by bit, dropout and all."""
    sample, ours = some_batch(), build(number, sizes)
    flags = (
        "data --arch transformer --cpu --seed 5 --lr-scheduler fixed --optimizer adam "
        f"--lr {LEARNING_RATE} --criterion label_smoothed_cross_entropy --label-smoothing {LABEL_SMOOTHING}"
    ).split()
    parser = options.get_training_parser()
    args = options.parse_args_and_arch(parser, [*flags, "--adam-betas", "(0.9, 0.98)"])
    config = convert_namespace_to_omegaconf(args)
    task = sizes.task()
    theirs = FairseqTrainer(config, task, copy.deepcopy(ours.model), task.build_criterion(config.criterion))
    before = {name: x.detach().clone() for name, x in ours.model.named_parameters()}
    for update in range(3):
        theirs.train_step([copy.deepcopy(sample)])
        utils.set_torch_seed(5 + update)
        ours.step(sample)
    for name, weight in theirs.model.named_parameters():
        assert torch.equal(ours.model.get_parameter(name), weight), name
        # the one drops out of a softmax, and fairseq 0.12.2 has copies of its encoder's weights that it never trains
        if not name.endswith(("k_proj.bias", *FAST_PATH_PARAMETERS)):
            assert not torch.equal(weight, before[name]), name


@pytest.mark.parametrize("precision", [torch.float16, torch.bfloat16])
def test_mixed_precision_lowers_the_loss_and_changes_nothing_else(precision: torch.dtype, sizes: ModelSizes) -> None:
    sample, trainer, other = some_batch(), build(1, sizes, precision), build(1, sizes)
    kept = copy.deepcopy((sample, other.model.state_dict()))
    losses = [trainer.step(sample).item() for _ in range(20)]
    assert losses[-1] < losses[0]
    assert all(x.dtype == torch.float32 for x in trainer.model.parameters())
    # fairseq's positions have a tensor that is never filled, and whatever it holds may be no number
    torch.testing.assert_close((sample, other.model.state_dict()), kept, rtol=0, atol=0, equal_nan=True)


def test_infinite_gradients_are_noticed(sizes: ModelSizes) -> None:
    trainer = build(0, sizes)
    trainer.model.decoder.layers[0].fc1.weight.data.fill_(torch.inf)
    with pytest.raises(FloatingPointError, match="finite"):
        trainer.step(some_batch())


def test_every_model_on_every_kind_of_batches(settings: EfficiencySettings, options: RunOptions) -> None:
    rows = measured(settings, dataclasses.replace(options, dtype="float16"))
    kinds = [(None, WMT_LIKE), (16, "16 tokens"), (32, "32 tokens")]
    assert [(row.length, row.kind, row.model) for row in rows] == [(n, k, m) for n, k in kinds for m in MODELS]
    for row in rows:
        assert row.batches == (3 if row.length is None else 1)
        assert row.precision == "float32", "on a processor"
        assert row.time.median > 0
        assert row.peak_bytes > 0
        assert not row.note
        facts = row.facts()
        assert facts["kind"] == row.kind
        assert facts["tokens_per_second"]["median"] == row.target_tokens / facts["time"]["median_seconds"]
        speed = row.tokens_per_second
        assert speed.lower <= speed.median <= speed.upper
        if row.length:
            assert row.target_tokens == row.sentences * row.length == 64
    facts = {(row.kind, row.batches, row.sentences, row.source_tokens, row.target_tokens, row.padding) for row in rows}
    assert len(facts) == 3, "the same batches for all models"


def test_a_run_is_a_pass_over_all_batches_in_turn(
    settings: EfficiencySettings, options: RunOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a clock of our own: every step takes as many seconds as there were steps before."""
    order: list[tuple[int, int]] = []

    class Recording(Trainer):
        def step(self, sample: Sample) -> torch.Tensor:
            order.append((id(self), id(sample)))
            return super().step(sample)

    def counted(calls: dict, runs: int, *limits: object) -> Timings:
        timed = right(calls, runs, *limits).seconds
        return Timings({name: [float(run) for run in range(len(times))] for name, times in timed.items()}, {})

    right = training.take_turns
    monkeypatch.setattr(training, "take_turns", counted)
    monkeypatch.setattr(training, "Trainer", Recording)
    for row in measured(dataclasses.replace(settings, training_lengths=()), options):
        assert row.time.median == np.median([3 + 4 + 5, 6 + 7 + 8])  # without the warm-up, 0 + 1 + 2
    trainers, samples = (list(dict.fromkeys(ids)) for ids in zip(*order, strict=True))
    assert (len(trainers), len(samples)) == (len(MODELS), 3)
    steps = options.runs * len(MODELS) * 3
    assert order[:steps] == [
        (trainer, sample) for _ in range(options.runs) for sample in samples for trainer in trainers
    ]
    assert [trainer for trainer, _ in order[steps:]] == trainers, "and a step whose memory is listed"


def test_what_takes_too_long_or_does_not_fit_is_left_out(
    settings: EfficiencySettings, options: RunOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[int] = []

    class Failing(Trainer):
        def step(self, sample: Sample) -> torch.Tensor:
            if type(self.model).__name__ == "TransformerModel":
                raise MemoryError
            steps.append(sample["target"].size(1))
            return super().step(sample)

    monkeypatch.setattr(training, "Trainer", Failing)
    settings = dataclasses.replace(settings, whole_time_limit=0.0, training_lengths=(16, 32))
    rows = measured(settings, options)
    assert len(rows) == 3 * len(MODELS)
    for row in rows:
        assert row.note == ("did not fit into memory" if row.model == TRANSFORMER else too_long(0.0))
        assert row.time is row.peak_bytes is row.tokens_per_second is row.facts()["tokens_per_second"] is None
    assert len(steps) == len(MODELS) - 1, "ours, at the first lengths alone"
