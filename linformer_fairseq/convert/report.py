"""What a conversion moved, as a table and a picture."""

import math

from matplotlib import pyplot as plt

from linformer_fairseq.benchmark.report import table
from linformer_fairseq.cli.figures import BASELINE_STYLE, save
from linformer_fairseq.cli.files import write_text
from linformer_fairseq.cli.machine import describe_machine

from .arguments import Conversion
from .compare import Moved

NAMES = ("converted", "fitted")
"""Of the models that are compared with the trained one."""
PICTURE = "conversion.png"


def summary(moved: list[Moved]) -> str:
    """A row a bucket of source lengths."""
    names = NAMES[: moved[0].models]
    headers = ["Source", "Sentences", "Perplexity"]
    for name in names:
        headers += [f"{name}: perplexity", "divergence", "farthest", "same best"]
    rows = []
    for own in moved:
        row = [str(own.bucket), f"{own.sentences:,}", _perplexity(own.loss, own)]
        for i in range(len(names)):
            row += [
                _perplexity(own.losses[i], own),
                f"{own.divergences[i] / own.tokens:.4f}",
                f"{own.farthest[i]:.3g}",
                f"{own.agreements[i] / own.tokens:.1%}",
            ]
        rows.append(row)
    return table(headers, rows)


def write_report(asked: Conversion, moved: list[Moved]) -> None:
    """report.md and its picture."""
    asked.report.mkdir(parents=True, exist_ok=True)
    _plot(asked, moved)
    parts = [
        "# A Transformer as a Linformer",
        f"`{asked.checkpoint}` on `{asked.subset}` of `{asked.data}`. {describe_machine()}.",
        f"    {asked.command}",
        summary(moved),
        "Of every reference token, given the ones before it: the perplexity of the model as it was trained and as it "
        "was converted, without any training after that; the mean KL divergence of the new predictions from the old, "
        "and the farthest that a reference token's log-probability has moved, in nats; and for how many tokens the "
        "best prediction is the same.",
        f"![Perplexity by length]({PICTURE})",
    ]
    write_text(asked.report / "report.md", "\n\n".join(parts) + "\n")


def _plot(asked: Conversion, moved: list[Moved]) -> None:
    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    places = range(len(moved))
    axes.plot(places, [math.exp(own.loss / own.tokens) for own in moved], label="as trained", **BASELINE_STYLE)
    for i, name in enumerate(NAMES[: moved[0].models]):
        values = [math.exp(own.losses[i] / own.tokens) for own in moved]
        axes.plot(places, values, marker="o", label=f"{name}, k = {asked.flags['linformer_k']}")
    axes.set_xticks(list(places), [str(own.bucket) for own in moved])
    axes.set(xlabel="length of the source", ylabel="perplexity")
    axes.grid(alpha=0.3)
    axes.legend()
    save(figure, asked.report / PICTURE)


def _perplexity(loss: float, own: Moved) -> str:
    return f"{math.exp(loss / own.tokens):.2f}"
