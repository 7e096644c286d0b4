"""How the models are fine-tuned."""

from dataclasses import replace
from pathlib import Path

import pytest

from linformer_fairseq.classification.arguments import Settings, parse
from linformer_fairseq.classification.pretrained import Pretrained, find_pretrained
from linformer_fairseq.classification.sets import read_sets
from linformer_fairseq.classification.trainings import FineTuning, check_flags, planned, store_start, training_arguments
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.recipe.flags import parse_training
from tests.classification.made import pretend, pretraining, write_set


@pytest.fixture
def pretrained(tmp_path: Path) -> Pretrained:
    study = pretraining(
        tmp_path, tmp_path / "pretrained", "--arms", "transformer,linformer,performer", "--seeds", "1,2"
    )
    return find_pretrained(pretend(study), [], None, None)


def settings(*given: str) -> Settings:
    return parse(["--pretrained", "p", "--data", "d", "--out", "o", *given]).settings


def trainings(pretrained: Pretrained, folder: Path, *seeds: int) -> list[FineTuning]:
    sets = read_sets(write_set(folder / "weather"), [])
    return planned(sets, pretrained, seeds, folder / "out")


def test_every_model_with_every_seed(pretrained: Pretrained, tmp_path: Path) -> None:
    found = [(own.model, own.seed, own.start.seed) for own in trainings(pretrained, tmp_path, 2, 3)]
    first = [("transformer", 2, 2), ("linformer", 2, 2), ("performer", 2, 1)]
    assert found == [*first, ("transformer", 3, 1), ("linformer", 3, 1), ("performer", 3, 1)]


def test_all_models_are_trained_alike(pretrained: Pretrained, tmp_path: Path) -> None:
    own = settings("--epochs", "3", "--batch-size", "5", "--warmup", "0.2")
    parsed = [parse_training(training_arguments(one, pretrained, own)) for one in trainings(pretrained, tmp_path, 1)]
    transformer, linformer, performer = parsed
    for args in parsed:
        assert (args.num_classes, args.max_positions, args.encoder_layers, args.encoder_embed_dim) == (2, 32, 1, 16)
        assert (args.total_num_update, args.warmup_updates, args.max_epoch) == ("15", 3, 3)  # 24 texts: 5 updates
        assert (args.init_token, args.separator_token, args.attention_dropout) == (0, 2, 0.0)
        assert (args.best_checkpoint_metric, args.maximize_best_checkpoint_metric) == ("accuracy", True)
    assert [args.arch for args in parsed] == ["roberta_tiny", "linformer_roberta_tiny", "linformer_roberta_tiny"]
    assert (linformer.linformer_k, performer.linformer_projection) == ("8", "performer")
    assert transformer.finetune_from_model == str(pretrained.models["transformer"][0].checkpoint)


def test_a_fine_tuning_keeps_the_model_that_it_has_begun_with(pretrained: Pretrained, tmp_path: Path) -> None:
    own = trainings(pretrained, tmp_path, 3)[0]
    store_start(own)
    later = trainings(replace(pretrained, models={"transformer": pretrained.models["transformer"][1:]}), tmp_path, 3)
    assert later[0].start.seed == 2  # there is no checkpoint yet
    own.checkpoint.parent.mkdir()
    own.checkpoint.touch()
    later = trainings(replace(pretrained, models={"transformer": pretrained.models["transformer"][1:]}), tmp_path, 3)
    assert later[0].start.seed == 1
    own.start.checkpoint.write_text("trained anew")
    with pytest.raises(
        UserError, match=r"has begun with another .*: put the former one back, remove this folder to beg"
    ):
        trainings(pretrained, tmp_path, 3)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--num-classes", "3"], "--num-classes is set by the study, so leave it out of what follows --"),
        (["--fp16"], "--fp16 is set by the study"),
        (["--no-such"], "unrecognized arguments: --no-such"),
        (["--update-freq", "2"], "--update-freq is set by the study"),
        (
            ["--activation-fn", "relu"],
            "--activation-fn is relu here, but was gelu in its pretraining, so give it after",
        ),
    ],
)
def test_flags_that_are_refused(pretrained: Pretrained, tmp_path: Path, given: list[str], said: str) -> None:
    own = trainings(pretrained, tmp_path, 1)[0]
    with pytest.raises(UserError, match=f"Transformer, weather, seed 1 cannot be trained: {said}"):
        check_flags(own, pretrained, settings("--", *given))


def test_flags_that_are_taken(pretrained: Pretrained, tmp_path: Path) -> None:
    for own in trainings(pretrained, tmp_path, 1)[:2]:  # that of a package may not be installed
        check_flags(own, pretrained, settings("--", "--cpu", "--pooler-dropout", "0.1"))


def test_the_flags_of_the_pretraining_are_needed_here_too(tmp_path: Path) -> None:
    more = ("--arms", "linformer", "--", "--activation-fn", "relu")
    pretrained = find_pretrained(pretend(pretraining(tmp_path, tmp_path / "pretrained", *more)), [], None, None)
    (own,) = trainings(pretrained, tmp_path, 1)
    with pytest.raises(UserError, match="--activation-fn is gelu here, but was relu in its pretraining"):
        check_flags(own, pretrained, settings())
    check_flags(own, pretrained, settings("--", "--activation-fn", "relu"))
