"""How far a conversion moved a model's outputs, as a table and a picture."""

from matplotlib import pyplot as plt

from linformer_fairseq.cli.figures import BASELINE_STYLE, save
from linformer_fairseq.cli.files import write_text
from linformer_fairseq.cli.machine import describe_machine
from linformer_fairseq.cli.tables import table

from .arguments import Conversion
from .compare import OutputDrift

NAMES = ("converted", "fitted")
"""The models that are compared with the trained one; the second is there with --fit."""
PICTURE = "conversion.png"


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
    """Writes report.md and its picture."""
    asked.report.mkdir(parents=True, exist_ok=True)
    _plot(asked, drifts)
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


def _plot(asked: Conversion, drifts: list[list[OutputDrift]]) -> None:
    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    buckets = [str(own.bucket) for own in drifts[0]]
    axes.plot(buckets, [own.perplexities()[0] for own in drifts[0]], label="as trained", **BASELINE_STYLE)
    for name, of_model in zip(NAMES, drifts, strict=False):
        label = f"{name}, k = {asked.config.linformer_k}"
        axes.plot(buckets, [own.perplexities()[1] for own in of_model], marker="o", label=label)
    axes.set(xlabel="length of the source", ylabel="perplexity")
    axes.grid(alpha=0.3)
    axes.legend()
    save(figure, asked.report / PICTURE)
