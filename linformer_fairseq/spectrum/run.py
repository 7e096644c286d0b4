"""Runs the analysis step by step."""

import torch

from linformer_fairseq.cli.files import write_json, write_text
from linformer_fairseq.cli.progress import say
from linformer_fairseq.length_buckets import buckets
from linformer_fairseq.trained import load_split, load_trained

from .arguments import Arguments
from .measure import measure
from .plots import spectra
from .report import report_text, results, suggested_flags

PICTURE = "spectrum.png"


def run(arguments: Arguments) -> None:
    """Measures the spectra of a model, and writes report.md, results.json and the picture."""
    torch.set_num_threads(arguments.threads)
    trained = load_trained(arguments.checkpoint, arguments.data)
    split = load_split(trained, arguments.subset)
    chosen = split.sample(arguments.sentences or len(split.indices), arguments.seed)
    found = measure(trained, split.sentences, chosen, buckets(arguments.lengths), arguments.energy, arguments.device)
    arguments.out.mkdir(parents=True, exist_ok=True)
    spectra(found, arguments.rank, arguments.out / PICTURE)
    write_json(arguments.out / "results.json", results(arguments, found))
    write_text(arguments.out / "report.md", report_text(arguments, found, PICTURE))
    say(f"The report is in {arguments.out / 'report.md'}. It suggests {suggested_flags(found)}")
