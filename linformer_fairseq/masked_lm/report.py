"""The study as Markdown, from what results.json holds."""

import shlex
from pathlib import Path

from linformer_fairseq.cli.files import write_text
from linformer_fairseq.cli.progress import say
from linformer_fairseq.cli.tables import UNKNOWN, table
from linformer_fairseq.recipe.logs import best_update
from linformer_fairseq.recipe.merging import RESULTS, Found

from . import plots
from .arms import BASELINE
from .results import SPECTRUM, read_results
from .tables import by_k, by_kind, by_length, by_sharing, costs, swapped
from .trainings import MASKED


def write_report(out: Path) -> None:
    """Writes report.md and the pictures of the results.json in a folder.

    Raises:
        UserError: there is none, or it holds something else.
    """
    found = read_results(out / RESULTS)
    pictures = plots.write_plots(found, out)
    write_text(out / "report.md", report_text(found, pictures, out))
    say(f"The report is in {out / 'report.md'}.")


def report_text(found: Found, pictures: dict[str, str], out: Path) -> str:
    """Returns the whole report.

    Args:
        pictures: files by what they show.
        out: the report's folder, where pictures of spectra may be.
    """
    parts = [
        "# Masked language models: quality and cost of each kind of attention",
        _introduction(found),
        *by_kind(found),
        *by_k(found),
        *by_sharing(found),
        *by_length(found),
        *swapped(found),
        *_spectra(found, out),
        *costs(found),
        *_models(found),
    ]
    if pictures:
        parts += ["## Plots", *(f"![{what}]({file})" for what, file in pictures.items())]
    return "\n\n".join([*parts, *_trainings(found), *_commands(found)]) + "\n"


def _introduction(found: Found) -> str:
    train, valid, settings = found["corpus"]["train"], found["corpus"]["valid"], found["settings"]
    seeds = sorted({row["seed"] for row in found["trainings"]})
    told = (
        f"Seeds {', '.join(map(str, seeds))} for the models whose deviation is given, one for the others: perplexity "
        "also varies with the seed."
        if len(seeds) > 1
        else f"One seed ({seeds[0]}) for every model, so that small differences tell nothing: perplexity also varies "
        "with the seed."
    )
    sizes = " ".join(settings["size_flags"])
    width = settings["convolution"]
    beside = ""
    if width:
        beside = (
            f" Every model has a convolution over the values of {width} tokens beside its attention (Nyströmformer, "
            "where it is trained from the start, its package's)."
        )
    return (
        f"{_files(train)} to train on ({train['tokens']:,} tokens of {settings['vocabulary']:,} subwords), "
        f"{_files(valid)} to validate on ({valid['tokens']:,} tokens). {'; '.join(found['machines'])}.\n\n"
        f"Encoders of `--arch {settings['arch']}{f' {sizes}' if sizes else ''}`, trained for {settings['updates']:,} "
        f"updates of {settings['max_tokens']:,} tokens in {settings['precision']}, on blocks of n tokens without "
        f"regard to paragraphs: Adam, a learning rate of up to {settings['lr']:g} that rises for "
        f"{settings['warmup_updates']:,} updates and falls linearly to 0, dropout {settings['dropout']:g} but for "
        f"attention probabilities, which some kinds do not have, weight decay {settings['weight_decay']:g}. "
        f"{MASKED:.0%} of the tokens are to be predicted; perplexity is that of these tokens in the validation text, "
        "which are the same for all models of a length, with the best checkpoint of each training. Two levels are used "
        f"at every length here; by default texts of fewer than {found['exact_below']:,} tokens get full attention."
        f"{beside}\n\n"
        f"{told}"
    )


def _files(split: Found) -> str:
    count = len(split["files"])
    return f"{count} text{'s' * (count > 1)}"


def _spectra(found: Found, out: Path) -> list[str]:
    """Returns the section on the rank of the Transformer's attention maps; nothing where it was not analysed."""
    if not found["spectra"]:
        return []
    rows = [
        [
            f"{row['length']:,}",
            f"{row['rank']}",
            f"{row['cumulative']:.1%}",
            f"{row['lowest']:.1%}",
            f"{row['mean_rank']:.1f}",
            f"{row['highest_rank']:.1f}",
        ]
        for row in found["spectra"]
    ]
    energy = found["spectra"][0]["energy"]
    headers = [
        "Tokens",
        "Rank",
        "Cumulative singular values at that rank",
        "Lowest head",
        f"Rank for {energy:.0%} of the energy",
        "Highest head",
    ]
    pictures = [
        f"![Cumulative singular values, {row['length']:,} tokens]({picture})"
        for row in found["spectra"]
        if (out / (picture := f"{SPECTRUM}/n{row['length']}/spectrum.png")).exists()
    ]
    return [
        "## The rank of the Transformer's attention",
        "Means over layers, heads and blocks of the validation text (Wang et al., 2020, Figure 1). The cumulative "
        "singular values are the share that the largest have in the sum of all. The energy is the sum of squares.",
        table(headers, rows),
        *pictures,
    ]


def _models(found: Found) -> list[str]:
    rows = [
        [arm["label"], arm["what"], f"`{arm['flags']}`" if arm["flags"] else UNKNOWN] for arm in found["arms"].values()
    ]
    return ["## Models", table(["Model", "What it is", "Flags"], rows)]


def _trainings(found: Found) -> list[str]:
    rows = [
        [
            found["arms"][row["arm"]]["label"],
            f"{row['length']:,}",
            str(row["k"] or UNKNOWN),
            row["sharing"] or UNKNOWN,
            str(row["seed"]),
            f"{row['parameters']:,}",
            f"{row['perplexity']:.2f}",
            f"{best_update(row['curve'], lowest=True):,}",
            f"{row['seconds'] / 60:,.0f}" if row["seconds"] else UNKNOWN,
            f"{row['jobs']} × {row['threads']}",
        ]
        for row in found["trainings"]
    ]
    headers = ["Model", "n", "k", "Sharing", "Seed", "Parameters", "Perplexity", "Best", "Minutes", "Jobs × threads"]
    text = "Best is the update whose checkpoint counts. Minutes are those of training, without validation and saving."
    return ["## Trainings", text, table(headers, rows)]


def _commands(found: Found) -> list[str]:
    parts = ["## Commands", *(f"    {command}" for command in found["commands"])]
    first = next((row for row in found["trainings"] if row["arm"] == BASELINE), None)
    if first:
        parts += ["The Transformer's training, in the study's folder:", f"    {shlex.join(first['command'])}"]
    return parts
