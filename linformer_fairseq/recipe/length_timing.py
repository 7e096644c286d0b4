"""Time of a forward pass against sentence length, at a constant number of tokens in a batch.

Times do not depend on what a model has learnt: the models have random weights, and positions for the longest sentence.
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from fairseq import options, tasks
from fairseq.models.transformer import TransformerModelBase

from linformer_fairseq.benchmark.forward import ENCODER, WHOLE, forward_call, random_tokens, shapes
from linformer_fairseq.benchmark.memory import release
from linformer_fairseq.benchmark.timing import interleaved
from linformer_fairseq.cli.files import read_json, write_json
from linformer_fairseq.cli.machine import describe_machine
from linformer_fairseq.cli.progress import say

from .settings import POSITION_FLAGS, Model, Settings
from .train import training_arguments

FILE_NAME = "lengths.json"
WARM_UP = 1


@dataclass(frozen=True)
class Lengths:
    """Sentence lengths to time the models at."""

    tokens: int
    """Source tokens in a batch, whatever the length of the sentences."""
    lengths: list[int]
    """Lengths of sentences in tokens; those beyond `tokens` are left out."""
    repeats: int


def measure_lengths(wanted: Lengths, models: list[Model], settings: Settings, out: Path, threads: int) -> bool:
    """Adds to `out/lengths.json` the seconds per batch of every model at every length that is not there yet.

    Returns:
        Whether there was any such length.
    """
    path = out / FILE_NAME
    precision = settings.training.inference_precision
    device = torch.device("cpu" if settings.training.on_cpu else "cuda")
    asked = {
        **dataclasses.asdict(wanted),
        "models": [model.name for model in models],
        "threads": threads,
        "precision": precision,
        "machine": describe_machine(),
    }
    before = read_json(path) if path.exists() else None
    rows = before["rows"] if before and before["asked"] == asked else []
    done = {row["length"] for row in rows}
    batches = shapes(wanted.tokens, wanted.lengths)
    missing = [(length, sentences) for length, sentences in batches if length not in done]
    if not missing:
        say("Timing the models at several lengths: already done")
        return False
    say(f"Timing the models at several lengths, {wanted.tokens:,} tokens per batch ...")
    torch.set_num_threads(threads)
    longest = max(length for length, _ in batches)
    built = {model: _build(model, settings, out, longest) for model in models}
    for net in built.values():
        net.to(device=device, dtype=torch.float16 if precision == "fp16" else torch.float32)
    for length, sentences in missing:
        rows = [*rows, *_rows(length, sentences, built, wanted.repeats, device)]
        write_json(path, {"asked": asked, "rows": rows})
        say(f"  {length:,} tokens per sentence, {sentences} at a time: done")
    return True


def _rows(
    length: int, sentences: int, built: dict[Model, TransformerModelBase], repeats: int, device: torch.device
) -> list[dict[str, Any]]:
    """Returns the times of all models at one length, of encoder and whole model, as lengths.json has them."""
    tokens = random_tokens(next(iter(built.values())).encoder.dictionary, sentences, length, device)
    rows = []
    for part in (ENCODER, WHOLE):
        calls = {model: forward_call(part, net, tokens) for model, net in built.items()}
        with torch.no_grad():
            timings = interleaved(calls, repeats, WARM_UP, device)
        for model in built:
            row = {"model": model.name, "part": part, "length": length, "sentences": sentences}
            spread = timings.spreads.get(model)
            row["seconds"] = spread.median if spread else None
            row["quartiles"] = [spread.lower, spread.upper] if spread else None
            row["note"] = timings.notes.get(model, "")
            rows.append(row)
        release(device)
    return rows


def _build(model: Model, settings: Settings, out: Path, longest: int) -> TransformerModelBase:
    """Returns a model with random weights, ready for inference as fairseq-generate makes it."""
    positions = [part for flag in POSITION_FLAGS for part in (flag, str(longest))]
    arguments = [*training_arguments(model, settings, out, out, freq=1), *positions]
    args = options.parse_args_and_arch(options.get_training_parser(), input_args=arguments)
    built = tasks.setup_task(args).build_model(args)
    built.eval()
    built.make_generation_fast_(need_attn=False)
    return built
