"""The study as Markdown, from what results.json holds."""

import shlex
from pathlib import Path

from linformer_fairseq.cli.files import write_text
from linformer_fairseq.cli.progress import say
from linformer_fairseq.recipe.merging import RESULTS, Found

from . import plots
from .results import read_results
from .tables import label, models, quality, sets, trainings, uneven


def write_report(out: Path) -> None:
    """Writes report.md and the picture of the results.json in a folder.

    Raises:
        UserError: there is none, or it holds something else.
    """
    found = read_results(out / RESULTS)
    pictures = plots.write_plots(found, out)
    write_text(out / "report.md", report_text(found, pictures))
    say(f"The report is in {out / 'report.md'}.")


def report_text(found: Found, pictures: dict[str, str]) -> str:
    """Returns the whole report; `pictures` are files by what they show."""
    parts = [
        "# Classification: pretrained models with each kind of attention, fine-tuned",
        _introduction(found),
        *quality(found),
        *sets(found),
        *trainings(found),
        *models(found),
    ]
    if pictures:
        parts += ["## Plots", *(f"![{what}]({file})" for what, file in pictures.items())]
    return "\n\n".join([*parts, *_commands(found)]) + "\n"


def _introduction(found: Found) -> str:
    settings = found["settings"]
    seeds = sorted({row["seed"] for row in found["trainings"]})
    fewer = ", some models with fewer of them, and those without a deviation with one" if uneven(found) else ""
    of_seeds = (
        f"seeds {', '.join(map(str, seeds))}{fewer}"
        if len(seeds) > 1
        else f"one seed ({seeds[0]}): another seed alone moves accuracy, too"
    )
    tuned = {name.removeprefix("fine-tuning "): value for name, value in settings.items()}
    longer = "are cut to their beginning" if tuned["truncate"] else "there are none"
    unless = " (unless a table says otherwise)" if any("k = " in arm["label"] for arm in found["arms"].values()) else ""
    return (
        f"Pretrained masked language models with k = {settings['pretraining k']}{unless} take texts of up to n = "
        f"{settings['pretraining length']:,} tokens; longer ones {longer}. All are fine-tuned with the same settings "
        f"for {tuned['epochs']} epoch{'s' * (tuned['epochs'] > 1)} of {tuned['batch_size']} texts an update, in "
        f"{tuned['precision']}, with Adam, a learning rate of up to {tuned['lr']:g} that falls linearly to 0, dropout "
        f"{tuned['dropout']:g} and weight decay {tuned['weight_decay']:g}, with {of_seeds}. No model has dropout of "
        f"attention probabilities, as some kinds have none. {'; '.join(found['machines'])}."
    )


def _commands(found: Found) -> list[str]:
    parts = ["## Commands", *(f"    {command}" for command in found["commands"])]
    first: dict[str, Found] = {}
    for row in found["trainings"]:
        first.setdefault(row["arm"], row)
    parts += ["From the study's folder, this fine-tunes the same models:"]
    parts += [f"{label(found, arm)}:\n\n    {shlex.join(row['command'])}" for arm, row in first.items()]
    return parts
