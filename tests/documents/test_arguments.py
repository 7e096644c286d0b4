"""What a command line of the study asks for."""

import re
from pathlib import Path

import pytest

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.documents.arguments import build_parser, parse
from linformer_fairseq.documents.translate import FREE, Way, ways, ways_of


def test_several_seeds_for_the_main_models_and_one_for_the_others(tmp_path: Path) -> None:
    study = parse(["--out", str(tmp_path), "--seeds", "3,5"])
    seeds: dict[str, list[int]] = {}
    for training in study.trainings:
        seeds.setdefault(training.variant.name, []).append(training.seed)
    several = (
        "transformer",
        "two-level",
        "two-level-all",
        "transformer-convolution",
        "two-level-convolution",
        "sentences",
    )
    for name in several:
        assert seeds.pop(name) == [3, 5]
    assert set(map(tuple, seeds.values())) == {(3,)}
    assert set(study.starts) == {3, 5}
    for training in study.trainings:
        flags = training.settings.training.train_args
        assert flags[-2] == "--finetune-from-model"
        assert Path(flags[-1]).is_relative_to(study.starts[training.seed].folder)
        assert training.settings.training.longest == {"--max-source-positions": 4096, "--max-target-positions": 4096}
    start = study.starts[3].settings.training
    assert (start.updates, study.starts[3].seed, study.trainings[0].settings.training.updates) == (6000, 3, 3000)
    assert start.max_tokens == study.trainings[0].settings.training.max_tokens == 4096
    other = parse(["--out", str(tmp_path), "--start-max-tokens", "8192"])
    tokens = (other.starts[1].settings.training.max_tokens, other.trainings[0].settings.training.max_tokens)
    assert tokens == (8192, 4096)


def test_seeds_are_each_once_and_starts_are_used(tmp_path: Path) -> None:
    study = parse(["--out", str(tmp_path), "--seeds", "5,3,5", "--arms", "linformer"])
    assert [training.seed for training in study.trainings] == [3]
    assert set(study.starts) == {study.first_seed} == {3}


def test_ways_to_translate(tmp_path: Path) -> None:
    study = parse(["--out", str(tmp_path)])
    found = ways(study)
    assert Way("valid", 2048) in found
    assert [way.longest for way in found if way.set_name == "test" and way.mode != FREE] == [512, 1024, 2048]
    assert [way.longest for way in found if way.set_name == "long"] == [2048, 4096]
    assert Way("test", 2048, FREE) in found
    between = ways(parse(["--out", str(tmp_path), "--max-subwords", "1500"]))
    assert [way.longest for way in between if way.set_name == "test" and way.mode != FREE] == [512, 1024, 1500]
    assert [way.longest for way in between if way.set_name == "long"] == [1500, 2048, 4096]
    decided = parse(["--out", str(tmp_path), "--no-test"])
    assert ways(decided) == [Way("valid", 2048)]
    by_name = {training.variant.name: training for training in study.trainings}
    sets = dict.fromkeys(("valid", "test", "long", "glossary"))
    by_sentence = ways_of(by_name["sentences"], study, sets)
    assert {way.mode for way in by_sentence} == {"forced"}
    assert [way.set_name for way in by_sentence] == ["valid", "test", "long", "glossary"]
    assert ways_of(by_name["transformer"], study, {"valid": None}) == [Way("valid", 2048)]


def test_help_has_every_option_with_its_default() -> None:
    text = build_parser().format_help()
    told = set(re.findall(r"^  (?:-k K, )?(--[a-z-]+)", text, re.MULTILINE))
    assert {"--data", "--glossary", "--made-train", "--training-files", "--lr", "--jobs", "--seeds", "--k"} <= told
    text = " ".join(text.split())
    for default in (
        "training documents of the synthetic corpus (default: 200)",
        "highest learning rate (default: 0.0005)",
    ):
        assert default in text
    assert "(default: ())" not in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--arms", "transformer,nothing"], "'nothing' is not a model of the study: choose from transformer,"),
        (["--arms", "converted"], "converted is made of the Transformer: name transformer, too, among --arms"),
        (["--glosary", "5"], "unrecognized arguments: --glosary 5"),
        (["--source-lang", "de"], "--source-lang and --target-lang are both de"),
        (["--source-lang", "../en"], "'../en' is not a language code such as en"),
        (["--heads", "3"], "--dim 256 is not divisible by --heads 3"),
        (["--arch", "lstm"], "lstm is not a translation Transformer of fairseq's that has a Linformer"),
        (["--average", "9"], "--average 9 asks for more checkpoints than --keep-checkpoints 3 keeps"),
        (["--updates", "1000"], "--average 3 asks for more checkpoints than the 2 that --updates 1000 gives"),
        (
            ["--training-files", "a,b"],
            "--training-files is for documents in the folder that --data names: leave it out",
        ),
        (["--data", ".", "--made-train", "9"], "--made-train is for made documents: leave it out"),
        (
            ["--", "--max-target-positions", "100"],
            "--max-target-positions 100 is less than the last of --lengths, 4096",
        ),
        (["--max-subwords", "8192"], "--max-subwords 8192 must be from 1 to the last of --lengths, 4096"),
        (["--max-subwords", "0"], "--max-subwords 0 must be from 1"),
        (
            ["--start-updates", "1000"],
            "--average 3 asks for more checkpoints than the 2 that --start-updates 1000 gives",
        ),
        (["--data", ".", "--glossary", "5", "--source-lang", "fr"], "--glossary makes documents in English and German"),
        (["--max-tokens", "1024"], "--max-subwords 2048 is more than --max-tokens 1024"),
        (["--start-max-tokens", "1024"], "--max-subwords 2048 is more than --start-max-tokens 1024"),
        (["--data", "nowhere"], "nowhere is not a folder"),
        (["--source-lang", "fr"], "The synthetic corpus of documents is in de and en only"),
        (
            ["--report-only", "--merge", "other.json"],
            "--report-only writes the report of what is stored: leave out --merge",
        ),
        (["train"], "unrecognized arguments: train"),
    ],
)
def test_refusals(tmp_path: Path, arguments: list[str], said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)) as refused:
        parse(["--out", str(tmp_path), *arguments])
    assert re.fullmatch(r"[^\n]+\.", str(refused.value))
