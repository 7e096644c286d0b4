"""The study as Markdown, from what results.json holds."""

import shlex
from pathlib import Path

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.files import write_text
from linformer_fairseq.cli.progress import say
from linformer_fairseq.cli.tables import UNKNOWN, table
from linformer_fairseq.recipe.merging import RESULTS, Found

from . import plots
from .arms import ARMS, FUSED, START, for_length
from .base_tables import beside_bases
from .cells import number
from .cost_tables import costs
from .found import label
from .glossary_tables import glossary
from .merge import read_results
from .score_tables import by_length, by_position, completeness, quality
from .sets import GLOSSARIES


def write_report(out: Path) -> None:
    """Writes report.md and the pictures of the results.json in a folder.

    Raises:
        UserError: there is none, or it holds something else.
    """
    path = out / RESULTS
    if not path.is_file():
        raise UserError(f"{path} is missing: run the study without --report-only first.")
    found = read_results(path)
    pictures = plots.write_plots(found, out)
    write_text(out / "report.md", report_text(found, pictures))
    say(f"The report is in {out / 'report.md'}.")


def report_text(found: Found, pictures: dict[str, str]) -> str:
    """Returns the whole report; `pictures` are files by what they show."""
    parts = [
        "# Documents: quality and cost of each kind of attention",
        _introduction(found),
        *quality(found),
        *by_length(found),
        *by_position(found),
        *completeness(found),
        *glossary(found),
        *beside_bases(found),
        *costs(found),
        *_trainings(found),
        *_flags(found),
    ]
    if pictures:
        parts += ["## Plots", *(f"![{what}]({file})" for what, file in pictures.items())]
    return "\n\n".join([*parts, *_commands(found)]) + "\n"


def _introduction(found: Found) -> str:
    corpus, sets, machines = found["corpus"], found["documents"], "; ".join(found["machines"])
    seeds = sorted({row["seed"] for row in found["rows"]})
    several = [label(found, arm) for arm, own in _seeds(found).items() if len(own) > 1]
    resolutions = ", ".join(map(str, found["resolutions"]))
    which = f"the mean of its last {found['average']} saves" if found["average"] else "its best save"
    told = (
        f"Seeds {', '.join(map(str, seeds))} for {', '.join(several)}; one for the others."
        if several
        else (
            f"One seed ({seeds[0]}) for every model: another seed alone moves BLEU by as much as many of these "
            "differences."
        )
    )
    made = corpus.get(GLOSSARIES, {}).get("train")
    among = f", those of {made:,} documents with glossaries among them" if made else ""
    return (
        f"{found['text']}: {corpus['train']:,} sentence pairs to train on{among}; documents to translate: "
        f"{', '.join(f'{count:,} in the {name} set' for name, count in sets.items())}. {machines}.\n\n"
        f"A Transformer is trained on {', '.join(map(str, found['start']['resolutions']))} sentences at a time "
        f"({found['start']['updates']:,} updates of up to {found['start']['max_tokens']:,} tokens). From there every "
        f"model goes on for {found['updates']:,} updates of up to {found['max_tokens']:,} tokens with examples of "
        f"{resolutions} sentences and of whole documents, up to {found['longest_example']:,} tokens, in "
        f"{found['precision']}. Linformer and two levels have k = {found['k']}, and two levels attend to texts of "
        f"fewer than {found['exact_below']:,} tokens in full.{_beyond_training(found)} Each model translates with "
        f"{which} and beam {found['beam']}, into as many sentences as the source has.\n\n"
        f"{told} Differences from the Transformer are over the seeds that both models have. 95 % intervals are from a "
        "paired bootstrap over documents (Koehn, 2004): they do not cover the variation between seeds, and they are "
        "too narrow for a handful of documents."
    )


def _beyond_training(found: Found) -> str:
    """Returns what to know of models on texts that are longer than those that they were trained on."""
    longest, trained = found["lengths"][-1], found["longest_example"]
    changed = [own for arm in found["arms"] if (own := for_length(ARMS[arm], longest, trained, found["k"]))]
    if not changed:
        return ""
    return (
        f" Longer texts than in training have more windows rather than wider ones, k = {changed[0]['linformer_k']} in "
        f"encoder and cross-attention at {longest:,} tokens."
    )


def _seeds(found: Found) -> dict[str, set[int]]:
    seeds: dict[str, set[int]] = {}
    for row in found["rows"]:
        seeds.setdefault(row["arm"], set()).add(row["seed"])
    return seeds


def _trainings(found: Found) -> list[str]:
    lines = []
    for row in found["trainings"]:
        if "updates" in row:
            speed = row["tokens"] / row["seconds"] if row["seconds"] and row["tokens"] else None
            curve = row["validation_curve"]
            lines.append(
                [
                    label(found, row["arm"]),
                    str(row["seed"]),
                    f"{row['parameters']:,}",
                    f"{row['updates']:,}",
                    f"{min(value for _, value in curve):.2f}" if curve else UNKNOWN,
                    number(speed, ",.0f"),
                ]
            )
    headers = ["Model", "Seed", "Parameters", "Updates", "Perplexity", "Tokens/s"]
    jobs = max((row.get("jobs", 1) for row in found["trainings"]), default=1)
    shared = f" Up to {jobs} trainings ran at a time and shared the machine." if jobs > 1 else ""
    return [
        "## Training",
        table(headers, lines),
        "Perplexity is the lowest on what the training validates on, sentences or documents. Tokens/s are target "
        f"tokens in updates, of the mixture of short and long examples.{shared}",
    ]


def _flags(found: Found) -> list[str]:
    lines = [
        [own["label"], own["what"], f"`{own['flags']}`" if own["flags"] else UNKNOWN] for own in found["arms"].values()
    ]
    others = {row["arm"] for row in (*found["trainings"], *(found.get("costs") or {"rows": ()})["rows"])}
    lines += [[own.label, own.what, UNKNOWN] for own in (START, FUSED) if own.name in others]
    return ["## Models", table(["Model", "What it is", "Flags"], lines)]


def _commands(found: Found) -> list[str]:
    lines = "\n".join(found["commands"])
    parts = ["## Commands", f"```\n{lines}\n```", "From its folder, this trains the same models:"]
    first: dict[str, Found] = {}
    for row in found["trainings"]:
        if "command" in row:
            first.setdefault(row["arm"], row)
    parts += [f"{label(found, arm)}:\n\n```\n{shlex.join(row['command'])}\n```" for arm, row in first.items()]
    return parts
