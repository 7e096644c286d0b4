"""Saves models of fairseq's `examples/linformer` with random weights, and what they say of some tokens.

python -m tests.models.example_checkpoints FOLDER '{"NAME": {"FLAG": VALUE, ...}, ...}'

Its model has the name of this package's, so that a process can only know one of them.
"""

import json
import sys
from argparse import Namespace
from pathlib import Path

import fairseq
import torch
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask
from fairseq.utils import import_user_module

EXAMPLE = Path(fairseq.__file__).parent / "examples" / "linformer" / "linformer_src"
"""The folder that `--user-dir` takes."""


@torch.no_grad()
def save(flags: dict[str, object], path: Path) -> None:
    words = Dictionary()
    for word in range(12):
        words.add_symbol(f"w{word}")
    args = Namespace(arch="linformer_roberta", **flags)
    ARCH_CONFIG_REGISTRY[args.arch](args)
    model = ARCH_MODEL_REGISTRY[args.arch].build_model(args, MaskedLMTask(MaskedLMConfig(), words)).eval()
    torch.manual_seed(3)
    for name, parameter in model.named_parameters():
        if "layer_norm" not in name:
            torch.nn.init.normal_(parameter, std=0.4)
    tokens = torch.randint(4, len(words), (2, 20))
    torch.save({"model": model.state_dict(), "tokens": tokens, "logits": model(tokens)[0]}, path)


if __name__ == "__main__":
    import_user_module(Namespace(user_dir=str(EXAMPLE)))
    for name, flags in json.loads(sys.argv[2]).items():
        save(flags, Path(sys.argv[1], f"{name}.pt"))
