"""Translating the test set with a trained model, and scoring the translation."""

from collections.abc import Callable
from pathlib import Path

from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from sacremoses import MosesDetokenizer

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.files import write_json
from linformer_fairseq.cli.progress import say

from . import logs, texts
from .fairseq_command import run_fairseq
from .scores import score
from .settings import Model, Settings
from .steps import build_folder

FOLDER = "test"


def evaluate(model: Model, settings: Settings, out: Path, lock: int) -> None:
    """Perplexity on valid and BLEU on test of a model's best checkpoint, in `test/` of its folder."""
    folder = out / "models" / model.slug
    build_folder(
        folder / FOLDER,
        f"Translating the test set with {model.name}",
        lambda to: _evaluate(model, settings, out, folder / "checkpoints" / "checkpoint_best.pt", to, lock),
    )


def _evaluate(model: Model, settings: Settings, out: Path, checkpoint: Path, to: Path, lock: int) -> None:
    common = [
        *(str(out / "bin"), "--task", "translation", "--path", str(checkpoint)),
        *("--max-tokens", str(settings.max_tokens), "--required-batch-size-multiple", "1", "--num-workers", "0"),
        *(part for flag, longest in settings.longest.items() for part in (flag, str(longest))),
        *settings.device_flags,
        *plain_encoder(),
    ]
    references = texts.read_lines(out / "raw" / f"test.{settings.target_lang}")
    # The error for a failed command names this log, so it lies where a failed attempt leaves it.
    validate_log, generate_log = to / "validate.log", to / "generate.log"
    run_fairseq(
        "validate",
        [*common, "--valid-subset", "valid", "--log-format", "json"],
        log=validate_log,
        threads=settings.threads,
        lock=lock,
        what=model.name,
    )
    run_fairseq(
        "generate",
        [
            *common,
            *("--gen-subset", "test", "--source-lang", settings.source_lang),
            *("--target-lang", settings.target_lang, "--beam", str(settings.beam)),
            *("--lenpen", str(settings.lenpen), "--remove-bpe", "--log-format", "json"),
        ],
        log=generate_log,
        threads=settings.threads,
        lock=lock,
        on_line=_progress(model, len(references)),
        what=model.name,
    )
    translation = logs.read_translation(generate_log.read_text(encoding="utf-8"))
    tokenised = in_order(translation.hypotheses, len(references), model.name)
    detokenizer = MosesDetokenizer(settings.target_lang)
    detokenised = [detokenizer.detokenize(line.split()) for line in tokenised]
    texts.write_lines(to / "hypotheses.tok", tokenised)
    texts.write_lines(to / "hypotheses.txt", detokenised)
    scores = score(detokenised, references, settings.target_lang)
    scores |= {
        "perplexity": logs.read_perplexity(validate_log.read_text(encoding="utf-8")),
        "seconds": translation.seconds,
        "sentences_per_second": translation.sentences_per_second,
        "tokens_per_second": translation.tokens_per_second,
    }
    write_json(to / "scores.json", scores)
    say(
        f"  {model.name}: perplexity {scores['perplexity']:.2f}, sacreBLEU {scores['bleu']:.2f} ({scores['signature']})"
    )


def _progress(model: Model, sentences: int) -> Callable[[str], None]:
    """Says after every tenth of the test set how far fairseq-generate has come."""
    done = 0

    def on_line(line: str) -> None:
        nonlocal done
        if line.startswith("H-"):
            done += 1
            if 10 * done // sentences > 10 * (done - 1) // sentences:
                say(f"  {model.name}: {done:,} of {sentences:,} sentences translated")

    return on_line


def plain_encoder() -> list[str]:
    """Keep fairseq 0.12.2 from computing a loaded Transformer's encoder with torch's fused kernel.

    The kernel refuses left-padded batches ("Mask Type should be defined"), and times of a fused baseline would
    not compare. The one flag that closes the path without changing the result asks for checkpointed activations,
    which mean nothing where there are no gradients.
    """
    has_fused_path = "_load_from_state_dict" in vars(TransformerEncoderLayerBase)
    return ["--model-overrides", "{'checkpoint_activations': True}"] if has_fused_path else []


def in_order(hypotheses: dict[int, str], expected: int, name: str) -> list[str]:
    """The hypotheses in the order of the test set; one that is missing is an error, never a lower score."""
    if sorted(hypotheses) != list(range(expected)):
        raise UserError(
            f"{name} gave {len(hypotheses)} translations for {expected} test sentences, so there is no score: "
            "run the same command again."
        )
    return [hypotheses[i] for i in range(expected)]
