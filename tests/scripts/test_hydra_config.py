"""The configuration files of `fairseq-hydra-train` are those that the flags' dataclasses give."""

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, BaseFairseqModel
from fairseq.tasks import FairseqTask
from omegaconf import OmegaConf

from linformer_fairseq.modules import KINDS, KeyClusterAttention
from tests.fairseq_commands import ROOT
from tests.models.toy import ROBERTA_SIZES, SIZES, toy_args, toy_masked_lm_task, toy_roberta_args, toy_task

FOLDER = ROOT / "linformer_fairseq" / "config" / "model"


@pytest.fixture(scope="module")
def script(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("hydra_config")


def test_configuration_files_are_not_stale(script: ModuleType) -> None:
    """If this fails, run `scripts/hydra_config.py`."""
    assert {path.stem: path.read_text(encoding="utf-8") for path in FOLDER.iterdir()} == script.configurations()


def test_files_are_written_anew(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "FOLDER", tmp_path)
    for name in ("gone.yaml", "linformer_transformer.yaml"):
        (tmp_path / name).write_text("other")
    script.main()
    assert {path.stem: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()} == script.configurations()


def built_as_told(args: Namespace, sizes: dict[str, object], task: FairseqTask) -> BaseFairseqModel:
    """Builds a model from its configuration file, asserting that this has the flags of the command line, `args`."""
    flags = vars(args)
    arch, kinds = flags.pop("arch"), {name: kind for name, kind in flags.items() if name.endswith("_projection")}
    config = OmegaConf.create({**OmegaConf.load(FOLDER / f"{arch}.yaml"), **sizes, **kinds})
    ARCH_CONFIG_REGISTRY[arch](config)
    flags["linformer_k"] = 64
    assert {name: config[name] for name in flags} == flags
    return ARCH_MODEL_REGISTRY[arch].build_model(config, task)


@pytest.mark.parametrize("arch", ["linformer_transformer", "two_level_transformer"])
@pytest.mark.parametrize("kind", ["linear", "two-level"])
def test_a_configuration_is_the_architecture(arch: str, kind: str) -> None:
    """With fairseq's own defaults filled in, and either kind chosen, it builds the same model as the command line."""
    kinds = {"linformer_projection": kind, "linformer_cross_projection": "key-clusters"}
    model = built_as_told(toy_args(arch, **kinds), SIZES, toy_task())
    assert {type(layer.self_attn) for layer in model.encoder.layers} == {KINDS[kind].attention}
    assert {type(layer.encoder_attn) for layer in model.decoder.layers} == {KeyClusterAttention}


@pytest.mark.parametrize("arch", ["linformer_roberta_large", "two_level_roberta"])
@pytest.mark.parametrize("kind", ["linear", "two-level"])
def test_a_configuration_is_the_architecture_of_a_masked_language_model(arch: str, kind: str) -> None:
    model = built_as_told(toy_roberta_args(arch, linformer_projection=kind), ROBERTA_SIZES, toy_masked_lm_task())
    assert {type(layer.self_attn) for layer in model.encoder.sentence_encoder.layers} == {KINDS[kind].attention}
    assert model.max_positions() == 64
