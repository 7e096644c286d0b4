"""Reports how far a conversion moved a model's outputs."""

from linformer_fairseq.cli.files import write_text
from linformer_fairseq.cli.machine import describe_machine
from linformer_fairseq.cli.tables import table
from linformer_fairseq.length_buckets import Bucket

from .arguments import Conversion
from .compare import Comparison, OutputDrift
from .families import Family
from .reach import Reach

NAMES = ("converted", "fitted")
"""The models that are compared with the trained one; the second exists with --fit."""
PICTURE = "conversion.png"
"""The plot beside report.md."""


def exact_texts(source: Reach | None, target: Reach | None) -> str:
    """Returns a sentence about the texts whose outputs do not move; nothing where other kinds than two levels are."""
    if any(reach is not None and reach.exact is None for reach in (source, target)):
        return ""
    up_to = "" if source is None else f" of up to {source.exact:,} tokens"
    if target is None:
        texts = f"Texts{up_to}"
    else:
        texts = f"The first {target.exact:,} tokens of {f'targets with sources{up_to}' if up_to else 'texts'}"
    return f"{texts} get the same outputs as before, but for rounding."


def span(bucket: Bucket) -> str:
    """Returns a range of lengths or positions in words, without a unit."""
    if bucket.longest is None:
        return f"from {bucket.shortest} on"
    return str(bucket.longest) if bucket.shortest == bucket.longest else f"{bucket.shortest} to {bucket.longest}"


def summary(comparison: Comparison, on_text: bool) -> str:
    """Returns a table with a row for each range of lengths, and one for each range of positions, where there are any.

    Args:
        on_text: whether the models were compared on text: perplexities on random tokens would say nothing.
    """
    of_sources, of_positions = comparison.sources, comparison.positions
    tables = []
    if of_sources[0]:
        title = "Source" if of_positions[0] else "Length"
        tables.append(_table(title, [str(drift.bucket) for drift in of_sources[0]], of_sources, on_text))
    if of_positions[0]:
        tables.append(_table("Position", [span(drift.bucket) for drift in of_positions[0]], of_positions, on_text))
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


def write_report(asked: Conversion, family: Family, exact: str, comparison: Comparison) -> None:
    """Writes report.md into the folder of the report.

    Args:
        family: of the model.
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
            f"For every {family.predicted}, given {family.context}: the perplexity of the trained model and of the "
            f"converted one, without any training after the conversion; {measures}"
        )
    else:
        measures = (
            f"For every random token, given {family.context}: {measures} Text is unlike random tokens: `--data` "
            "compares on it."
        )
    ranges = " and ".join(
        name for name, drifts in (("length", comparison.sources), ("position", comparison.positions)) if drifts[0]
    )
    parts = [
        f"# A converted {family.name}",
        f"`{asked.checkpoint}` on {texts}. {describe_machine()}.",
        f"    {asked.command}",
        *([exact] if exact else []),
        summary(comparison, on_text),
        measures,
        f"![{'Perplexity' if on_text else 'Divergence'} by {ranges}]({PICTURE})",
    ]
    write_text(asked.report / "report.md", "\n\n".join(parts) + "\n")
