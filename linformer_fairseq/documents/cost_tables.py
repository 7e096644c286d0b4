"""The report's tables of time and memory."""

from linformer_fairseq.cli.tables import UNKNOWN, table
from linformer_fairseq.recipe.merging import Found

from .costs import TRAINING, TRANSLATION
from .found import cost_rows, label


def costs(found: Found) -> list[str]:
    """Returns the section on time and memory; nothing where they have not been measured."""
    training, translation = cost_rows(found, TRAINING), cost_rows(found, TRANSLATION)
    if not training:
        return []
    asked, machines = found["costs"]["asked"], found["costs"]["machines"]
    parts = [
        "## Time and memory",
        "Of the trained models, on random tokens: all documents have the same length and are translated into as many "
        "tokens, by fairseq's SequenceGenerator. Models of this package keep one copy of what the hypotheses of a "
        "document share; so does the Transformer with all attention fused, so that its translation tells what that "
        f"alone gains. Training in {asked['precision']}, translation in {asked['translation_precision']}; "
        f"{'; '.join(machines)}; threads: {asked['threads']}. Brackets hold multiples of the Transformer's in the same "
        "run; those of training are of the one with torch's fused attention in cross-attention too, where fairseq's "
        "own has an explicit softmax. The models take turns in training; each translates once.",
        "Training, target tokens per second:",
        _cost_table(found, training, "tokens_per_second", 1.0, ",.0f"),
        "Peak memory of a training step in MB, as torch allocates it beyond weights and Adam's moments:",
        _cost_table(found, training, "peak_bytes", 1e-6, ",.0f"),
    ]
    if translation:
        counts = [f"{next(iter(rows.values()))['documents']} × {length:,}" for length, rows in translation.items()]
        parts += [
            f"Translation with beam {asked['beam']}, seconds ({', '.join(counts)} tokens):",
            _cost_table(found, translation, "seconds", 1.0, ",.1f"),
            "Peak memory of translation in MB beyond the model, of the process or, on a GPU, as torch allocates it:",
            _cost_table(found, translation, "peak_bytes", 1e-6, ",.0f"),
        ]
    return parts


def _cost_table(found: Found, rows: dict[int, dict[str, Found]], name: str, unit: float, form: str) -> str:
    """Returns a table of a cost, with a column for each length."""

    def cell(own: Found | None) -> str:
        if own is None:
            return UNKNOWN
        if own[name] is None:
            return own["note"] or UNKNOWN
        base = own["base"].get(name)
        return f"{own[name] * unit:{form}}" + (f" ({own[name] / base:.2f})" if base else "")

    arms = dict.fromkeys(arm for own in rows.values() for arm in own)
    lines = [[label(found, arm), *(cell(own.get(arm)) for own in rows.values())] for arm in arms]
    return table(["Model", *(f"{length:,} tokens" for length in rows)], lines)
