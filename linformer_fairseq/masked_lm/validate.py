"""Perplexity on the validation text."""

from pathlib import Path

from linformer_fairseq.cli.files import read_json, write_json
from linformer_fairseq.cli.processes import run_command
from linformer_fairseq.recipe import logs
from linformer_fairseq.recipe.fairseq_command import command_line
from linformer_fairseq.trained import override_flags

from .arguments import Settings

MASKS_SEED = 1
"""Of the tokens that are masked, which are the same for all models of a length."""


def perplexity(checkpoint: Path, data: Path, settings: Settings, threads: int, name: str, to: Path) -> float:
    """Returns a model's perplexity at the masked tokens of the validation text, as fairseq-validate finds it.

    Args:
        data: the binary data.
        name: of the model, for an error.
        to: a file that keeps the result; what it has is not computed again.
    """
    if not to.exists():
        log = to.with_suffix(".log")
        log.unlink(missing_ok=True)
        arguments = [
            str(data),
            *("--path", str(checkpoint), "--task", "masked_lm", "--valid-subset", "valid"),
            *("--max-tokens", str(settings.max_tokens), "--required-batch-size-multiple", "1", "--num-workers", "0"),
            *("--seed", str(MASKS_SEED), "--log-format", "json", *override_flags({"seed": MASKS_SEED})),
            *(["--cpu"] if settings.on_cpu else []),
        ]
        run_command(command_line("validate", arguments), "fairseq-validate", log, threads, what=name)
        write_json(to, {"perplexity": logs.read_perplexity(log.read_text(encoding="utf-8"))})
    return float(read_json(to)["perplexity"])
