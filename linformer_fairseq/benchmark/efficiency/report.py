"""What the benchmark of efficiency writes: a report, tables as CSV, and pictures."""

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.files import read_json, write_text

from ..options import fields_of
from ..report import heading
from ..rows import Row, restore
from ..run_options import RunOptions
from . import module_report, whole_report
from .inference import InferenceRow
from .model_size import ModelSizeRow
from .module_grid import SLOW_RUNS, ModuleRow
from .settings import CAUSAL, CROSS, EQUAL, INFERENCE, MODULES, PARTS, SIZES, TRAINING, EfficiencySettings
from .store import FILE_NAME as RESULTS_NAME
from .training import TrainingRow

FILE_NAME = "report.md"
TABLE = "{}.csv"
ROWS: dict[str, type[Row]] = {
    MODULES: ModuleRow,
    CROSS: ModuleRow,
    CAUSAL: ModuleRow,
    EQUAL: ModuleRow,
    SIZES: ModelSizeRow,
    INFERENCE: InferenceRow,
    TRAINING: TrainingRow,
}
"""The rows of each part."""
SECTIONS: dict[str, Callable[[Sequence[Any], EfficiencySettings, Path], list[str]]] = {
    MODULES: module_report.grid,
    CROSS: module_report.cross,
    CAUSAL: module_report.causal,
    EQUAL: module_report.equal,
    SIZES: whole_report.sizes,
    INFERENCE: whole_report.inference,
    TRAINING: whole_report.training,
}
"""What each part adds to the report, beside the pictures that it draws into the folder."""
PICTURES = (*module_report.PICTURES, whole_report.SIZES_FILE, whole_report.INFERENCE_FILE)


def write(folder: Path, parts: Sequence[str]) -> None:
    """Writes a CSV file for each part, the pictures, and report.md, all from the results.json of a folder.

    Raises:
        UserError: there is none.
    """
    path = folder / RESULTS_NAME
    if not path.exists():
        raise UserError(f"{path} is not there: run the benchmark without --report-only.")
    stored = read_json(path)
    asked = stored["asked"]
    options = RunOptions(command=stored["command"], out=folder, **fields_of(RunOptions, asked))
    sizes = {name: tuple(x) if isinstance(x, list) else x for name, x in fields_of(EfficiencySettings, asked).items()}
    settings = EfficiencySettings(parts=tuple(parts), report_only=True, **sizes)
    rows: dict[str, list[Any]] = {part: [] for part in PARTS}
    for name, block in stored["blocks"].items():
        part = name.partition(",")[0]
        if part in parts:
            rows[part] += [restore(ROWS[part], facts) for facts in block]
    for name in (*map(TABLE.format, PARTS), *PICTURES):  # an earlier report may have had more parts
        (folder / name).unlink(missing_ok=True)
    packages = ", ".join(f"{name} {number or 'not installed'}" for name, number in asked["packages"].items())
    text = [
        *heading("Efficiency of Linformer attention", options),
        f"Attention modules that take longer than {settings.slow:g} s run {SLOW_RUNS} times; what takes longer than "
        f"{settings.time_limit:g} s (a whole model or its training step: {settings.whole_time_limit:g} s) is left out.",
        f"Other packages: {packages}.",
    ]
    for part in PARTS:
        if rows[part]:
            write_text(folder / TABLE.format(part), _csv([row.facts() for row in rows[part]]))
            text += SECTIONS[part](rows[part], settings, folder)
    text += module_report.left_out({part: rows[part] for part in (MODULES, EQUAL, CROSS, CAUSAL)})
    write_text(folder / FILE_NAME, "\n\n".join(text) + "\n")


def _csv(facts: Sequence[dict[str, Any]]) -> str:
    """Returns a line for each row; the parts of a spread have columns of their own."""
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
        elif value is not None or name not in ("time", "tokens_per_second", "saved_bytes"):
            flat[name] = value
    return flat
