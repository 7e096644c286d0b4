"""What the benchmark of efficiency writes: a report, tables as CSV, and pictures."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from linformer_fairseq.cli.files import write_text

from ..report import heading
from ..running import Running
from ..targets import Target, target_table
from . import module_plots, module_tables, whole_plots, whole_tables
from .inference import InferenceRow
from .model_size import ModelSizeRow
from .module_grid import SLOW_RUNS, ModuleRow
from .settings import PARTS, EfficiencySettings
from .store import Store
from .targets import compare
from .training import TrainingRow
from .versions import versions

TABLE = "{}.csv"
TABLES = tuple(map(TABLE.format, PARTS))
PICTURES = (*module_plots.FILES.values(), whole_plots.SIZES_FILE, whole_plots.INFERENCE_FILE)


@dataclass
class Results:
    """All that was measured."""

    modules: list[ModuleRow] = field(default_factory=list)
    equal: list[ModuleRow] = field(default_factory=list)
    sizes: list[ModelSizeRow] = field(default_factory=list)
    inference: list[InferenceRow] = field(default_factory=list)
    training: list[TrainingRow] = field(default_factory=list)


def write(results: Results, settings: EfficiencySettings, running: Running, store: Store) -> None:
    """Writes results.json once more, a CSV file for each part, the pictures, and report.md."""
    targets = compare(results.modules, results.equal, results.training)
    store.write(command=running.command, targets=[target.facts() for target in targets])
    for name in (*TABLES, *PICTURES):  # an earlier report may have had more parts
        (running.out / name).unlink(missing_ok=True)
    for name in PARTS:
        if rows := getattr(results, name):
            write_text(running.out / TABLE.format(name), _csv([row.facts() for row in rows]))
    if results.modules:
        module_plots.draw(results.modules, settings, running.out)
    if results.sizes:
        whole_plots.sizes(results.sizes, running.out)
    if results.inference:
        whole_plots.inference(results.inference, running.out)
    write_text(running.out / "report.md", text(results, targets, settings, running))


def text(results: Results, targets: list[Target], settings: EfficiencySettings, running: Running) -> str:
    """The report as Markdown."""
    parts = [
        *heading("Efficiency of Linformer attention", running),
        f"Attention modules that take longer than {settings.slow:g} s run {SLOW_RUNS} times; what would take longer "
        f"than {settings.time_limit:g} s (a whole model: {settings.whole_time_limit:g} s) is left out.",
        "Other packages: "
        + ", ".join(f"{name} {number or 'not installed'}" for name, number in versions().items())
        + ".",
        "## Targets",
        target_table(targets),
        *module_tables.grid(results.modules, settings),
        *module_tables.equal(results.equal),
        *whole_tables.sizes(results.sizes),
        *whole_tables.inference(results.inference, settings),
        *whole_tables.training(results.training, settings),
        *module_tables.left_out([*results.modules, *results.equal]),
    ]
    return "\n\n".join(parts) + "\n"


def _csv(facts: Sequence[dict[str, Any]]) -> str:
    """A line a row; what a fact consists of has columns of its own."""
    flat = [_flat(row) for row in facts]
    columns = list(dict.fromkeys(name for row in flat for name in row))
    written = io.StringIO()
    writer = csv.DictWriter(written, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return written.getvalue()


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    flat = {}
    for name, value in row.items():
        if isinstance(value, dict):
            flat |= {f"{name}_{part}": number for part, number in value.items()}
        elif value is not None or name not in ("time", "tokens_per_second"):
            flat[name] = value
    return flat
