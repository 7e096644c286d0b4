"""Reports how far a conversion moved a model's outputs."""

from linformer_fairseq.cli.files import write_text
from linformer_fairseq.cli.machine import describe_machine
from linformer_fairseq.cli.tables import table

from .arguments import Conversion
from .compare import OutputDrift

NAMES = ("converted", "fitted")
"""The models that are compared with the trained one; the second exists with --fit."""
PICTURE = "conversion.png"
"""The plot beside report.md."""


def summary(drifts: list[list[OutputDrift]]) -> str:
    """Returns a table with a row for each bucket of source lengths."""
    headers = ["Source", "Sentences", "Perplexity"]
    for name in NAMES[: len(drifts)]:
        headers += [f"{name}: perplexity", "divergence", "farthest", "same best"]
    rows = []
    for models in zip(*drifts, strict=True):
        row = [str(models[0].bucket), f"{models[0].sentences:,}", f"{models[0].perplexities()[0]:.2f}"]
        for own in models:
            row += [
                f"{own.perplexities()[1]:.2f}",
                f"{own.divergence / own.tokens:.4f}",
                f"{own.farthest:.3g}",
                f"{own.agreements / own.tokens:.1%}",
            ]
        rows.append(row)
    return table(headers, rows)


def write_report(asked: Conversion, drifts: list[list[OutputDrift]]) -> None:
    """Writes report.md into the folder of the report."""
    parts = [
        "# A converted Transformer",
        f"`{asked.checkpoint}` on `{asked.subset}` of `{asked.data}`. {describe_machine()}.",
        f"    {asked.command}",
        summary(drifts),
        "For every reference token, given the tokens before it: the perplexity of the trained model and of the "
        "converted one, without any training after the conversion; the mean KL divergence of the new predictions from "
        "the old, and the farthest that the log-probability of a reference token has moved, in nats; and the share of "
        "tokens with the same best prediction.",
        f"![Perplexity by length]({PICTURE})",
    ]
    write_text(asked.report / "report.md", "\n\n".join(parts) + "\n")
