"""Writes the configuration files of the architectures for `fairseq-hydra-train`.

python -m linformer_fairseq.models.hydra_config
"""

from pathlib import Path
from typing import Any

import yaml

from linformer_fairseq.models.architectures import prefixed
from linformer_fairseq.models.config import LanguageModelAttentionConfig, default_flags, flag_defaults
from linformer_fairseq.models.encoder_config import encoder_default_flags
from linformer_fairseq.models.linformer_roberta import ROBERTA_ARCHITECTURES
from linformer_fairseq.models.linformer_transformer import ARCHITECTURES
from linformer_fairseq.modules import KINDS

FOLDER = Path(__file__).parents[1] / "config" / "model"
LANGUAGE_MODEL = "linformer_transformer_lm"
LANGUAGE_MODELS = prefixed(["transformer_lm"])
"""The kind of attention of the language models that have a configuration file."""
MAX_POSITIONS = 512
"""N of a masked language model, as in fairseq's own configuration files of `roberta`."""

_HEADER = """# @package _group_
# fairseq-hydra-train --config-dir linformer_fairseq/config model={arch} {advice}
# Every other flag of the architecture is added with a plus: +model.{example}=3
"""
_FOOTER = "base_layers: 0  # read from here by fairseq's trainer\n"


def configurations() -> dict[str, str]:
    """The text of every configuration file by the name of its architecture."""
    # left out, so that the architecture fills them in for the kind that the command line chooses
    of_kinds = {option for kind in KINDS.values() for option in kind.defaults}
    files = {}
    for arch, kind in ARCHITECTURES.items():
        flags = {name: value for name, value in default_flags(kind).items() if name not in of_kinds}
        files[arch] = _text(arch, flags, "common.user_dir=linformer_fairseq", "encoder_layers")
    for arch, kind in LANGUAGE_MODELS.items():
        flags = {**flag_defaults(LanguageModelAttentionConfig), "linformer_projection": kind}
        files[arch] = _text(arch, flags, "task=language_modeling", "decoder_layers", name=LANGUAGE_MODEL)
    for arch, kind in ROBERTA_ARCHITECTURES.items():
        flags = {name: value for name, value in encoder_default_flags(kind).items() if name not in of_kinds}
        flags = {"max_positions": MAX_POSITIONS, **flags}
        files[arch] = _text(arch, flags, "task=masked_lm criterion=masked_lm", "encoder_layers")
    return files


def main() -> None:
    """Writes every file anew, and removes those of architectures that no longer exist."""
    files = configurations()
    for path in FOLDER.glob("*.yaml"):
        if path.stem not in files:
            path.unlink()
    for arch, text in files.items():
        (FOLDER / f"{arch}.yaml").write_text(text, encoding="utf-8")


def _text(arch: str, flags: dict[str, Any], advice: str, example: str, name: str = "") -> str:
    """The text of an architecture's file; `name` is the model's by which fairseq builds it, where it is another."""
    values = {
        name: int(value) if isinstance(value, str) and value.isdecimal() else value for name, value in flags.items()
    }
    body = yaml.safe_dump({"_name": name or arch, **values}, sort_keys=False)
    return _HEADER.format(arch=arch, advice=advice, example=example) + body + _FOOTER


if __name__ == "__main__":
    main()
