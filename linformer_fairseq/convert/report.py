"""Reports how far a conversion moved a model's outputs."""

from linformer_fairseq.cli.files import write_text
from linformer_fairseq.cli.machine import describe_machine
from linformer_fairseq.cli.tables import table
from linformer_fairseq.length_buckets import Bucket

from .arguments import Conversion
from .compare import Comparison, OutputDrift
from .reach import Reach

NAMES = ("converted", "fitted")
"""The models that are compared with the trained one; the second exists with --fit."""
PICTURE = "conversion.png"
"""The plot beside report.md."""


def exact_texts(source: Reach | None, target: Reach) -> str:
    """Returns a sentence about the texts whose outputs do not move; nothing where other kinds than two levels are."""
    if target.exact is None or (source is not None and source.exact is None):
        return ""
    texts = "texts" if source is None else "targets"
    sources = "" if source is None else f" with sources of up to {source.exact:,} tokens"
    return f"The first {target.exact:,} tokens of {texts}{sources} get the same outputs as before, but for rounding."


def span(bucket: Bucket) -> str:
    """Returns a range of lengths or positions in words, without a unit."""
    if bucket.longest is None:
        return f"from {bucket.shortest} on"
    return str(bucket.longest) if bucket.shortest == bucket.longest else f"{bucket.shortest} to {bucket.longest}"


def summary(comparison: Comparison, on_text: bool) -> str:
    """Returns a table with a row for each range of source lengths, if any, and one for each range of positions.

    Args:
        on_text: whether the models were compared on text: perplexities on random tokens would say nothing.
    """
    of_sources, of_positions = comparison.sources, comparison.positions
    tables = [_table("Position", [span(drift.bucket) for drift in of_positions[0]], of_positions, on_text)]
    if of_sources[0]:
        tables.insert(0, _table("Source", [str(drift.bucket) for drift in of_sources[0]], of_sources, on_text))
    return "\n\n".join(tables)


def _table(title: str, labels: list[str], drifts: list[list[OutputDrift]], on_text: bool) -> str:
    """Returns a table whose first column is given by its title and its labels."""
    headers = [title, "Texts", *(["Perplexity"] if on_text else [])]
    for name in NAMES[: len(drifts)]:
        own = ["perplexity"] if on_text else []
        own += ["divergence", "farthest", "same best"]
        headers += [f"{name}: {own[0]}", *own[1:]]
    rows = []
    for label, *models in zip(labels, *drifts, strict=True):
        row = [label, f"{models[0].sentences:,}"]
        if on_text:
            row.append(f"{models[0].perplexities()[0]:.2f}")
        for drift in models:
            if on_text:
                row.append(f"{drift.perplexities()[1]:.2f}")
            row += [
                f"{max(0.0, drift.divergence) / drift.tokens:.4f}",  # rounding can make it negative
                f"{drift.farthest:.3g}",
                f"{drift.agreements / drift.tokens:.1%}",
            ]
        rows.append(row)
    return table(headers, rows)


def write_report(asked: Conversion, name: str, exact: str, comparison: Comparison) -> None:
    """Writes report.md into the folder of the report.

    Args:
        name: what the model is called.
        exact: the sentence about texts whose outputs do not move.
    """
    on_text = asked.data is not None
    number = f"{asked.texts} text{'s' if asked.texts > 1 else ''}"
    texts = f"`{asked.subset}` of `{asked.data}`" if on_text else f"random tokens, {number} of each length"
    measures = (
        "the mean KL divergence of the new predictions from the old, and the farthest that the log-probability of a "
        "reference token has moved, in nats; and the share of tokens with the same best prediction."
    )
    if on_text:
        measures = (
            "For every reference token, given the tokens before it: the perplexity of the trained model and of the "
            f"converted one, without any training after the conversion; {measures}"
        )
    else:
        measures = (
            f"For every random token, given the tokens before it: {measures} Text is unlike random tokens: `--data` "
            "compares on it."
        )
    parts = [
        f"# A converted {name}",
        f"`{asked.checkpoint}` on {texts}. {describe_machine()}.",
        f"    {asked.command}",
        *([exact] if exact else []),
        summary(comparison, on_text),
        measures,
        f"![{'Perplexity' if on_text else 'Divergence'} by length and position]({PICTURE})",
    ]
    write_text(asked.report / "report.md", "\n\n".join(parts) + "\n")
