#!/usr/bin/env python
"""Writes the configuration files of the main architectures for `fairseq-hydra-train`.

scripts/hydra_config.py
"""

from pathlib import Path
from typing import Any

import yaml

import linformer_fairseq
from linformer_fairseq.models.config import PREFIXES, default_flags
from linformer_fairseq.modules import KINDS

FOLDER = Path(linformer_fairseq.__file__).parent / "config" / "model"
BIG = ("transformer_vaswani_wmt_en_de_big", "transformer_wmt_en_de_big")
TRANSFORMERS = ("transformer", "transformer_tiny", "transformer_iwslt_de_en", "transformer_wmt_en_de", *BIG)
MASKED_LANGUAGE_MODELS = ("roberta", "roberta_tiny", "roberta_base", "roberta_large")
MAX_POSITIONS = 512
"""N of a masked language model, as in fairseq's own configuration files of `roberta`."""

_HEADER = """# @package _group_
# fairseq-hydra-train --config-dir linformer_fairseq/config model={arch} {advice}
# Every other flag of the architecture is added with a plus: +model.{example}=3
"""
_FOOTER = "base_layers: 0  # read from here by fairseq's trainer\n"


def configurations() -> dict[str, str]:
    """The text of every configuration file by the name of its architecture."""
    files = {}
    for prefix, kind in PREFIXES.items():
        for arch in TRANSFORMERS:
            files[prefix + arch] = _text(prefix + arch, kind, "common.user_dir=linformer_fairseq", "encoder_layers")
        for arch in MASKED_LANGUAGE_MODELS:
            advice, longest = "task=masked_lm criterion=masked_lm", {"max_positions": MAX_POSITIONS}
            files[prefix + arch] = _text(prefix + arch, kind, advice, "encoder_layers", longest)
        # by whose name fairseq builds it with a dataclass, from which all other flags come
        own = {"_name": "linformer_transformer_lm"}
        files[f"{prefix}transformer_lm"] = _text(
            f"{prefix}transformer_lm", kind, "task=language_modeling", "decoder_layers", own
        )
    return files


def main() -> None:
    """Writes every file anew, and removes those of architectures that no longer exist."""
    files = configurations()
    for path in FOLDER.glob("*.yaml"):
        if path.stem not in files:
            path.unlink()
    for arch, text in files.items():
        (FOLDER / f"{arch}.yaml").write_text(text, encoding="utf-8")


def _text(arch: str, kind: str, advice: str, example: str, own: dict[str, Any] | None = None) -> str:
    """The text of an architecture's file, with flags of its own."""
    # left out, so that the architecture fills them in for the kind that the command line chooses
    of_kinds = {option for kind in KINDS.values() for option in kind.defaults} - {"linformer_attention"}
    flags = {name: value for name, value in default_flags(kind).items() if name not in of_kinds}
    values = {**flags, "linformer_k": int(flags["linformer_k"])}
    body = yaml.safe_dump({"_name": arch, **(own or {}), **values}, sort_keys=False)
    return _HEADER.format(arch=arch, advice=advice, example=example) + body + _FOOTER


if __name__ == "__main__":
    main()
