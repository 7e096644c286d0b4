"""The benchmark of efficiency: check, measure part by part, report."""

import dataclasses
from dataclasses import asdict

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.progress import say

from ..running import Running
from . import inference, model_size, module_grid, training
from .checks import check
from .machine_peak import matrix_product_peak
from .module_grid import ModuleRow, Shape
from .report import Results, write
from .settings import EQUAL, INFERENCE, MODULES, SIZES, TRAINING, EfficiencySettings
from .store import Store

FILE_NAME = "results.json"


def run(running: Running, settings: EfficiencySettings) -> None:
    """Measures what is asked for and not measured yet, and writes it to the output folder."""
    if INFERENCE in settings.parts and settings.inference_lengths[0] > settings.inference_tokens:
        raise UserError(
            f"none of --inference-lengths fits into --inference-tokens {settings.inference_tokens}: raise the latter."
        )
    running.prepare()
    say("checking that the contenders compute what they should ...")
    check()
    facts = {name: value for name, value in running.facts().items() if name != "command"}
    sizes = {name: value for name, value in asdict(settings).items() if name != "parts"}
    # as JSON gives them back
    sizes = {name: list(value) if isinstance(value, tuple) else value for name, value in sizes.items()}
    store = Store(running.out / FILE_NAME, {**facts, **sizes})
    whole = dataclasses.replace(running, repeats=settings.whole_repeats, warm_up=min(1, running.warm_up))
    results = Results(peak=store.value("matrix product", lambda: matrix_product_peak(running)))
    if MODULES in settings.parts:
        for shape in module_grid.shapes(settings):
            results.modules += _measure(MODULES, shape, results.modules, settings, running, store)
    if EQUAL in settings.parts:
        for shape in module_grid.equal_shapes(settings):
            results.equal += _measure(EQUAL, shape, [], settings, running, store)
    if SIZES in settings.parts:
        results.sizes += store.rows(
            SIZES, model_size.ModelSizeRow, lambda: model_size.measure(settings.model_size, running)
        )
    if INFERENCE in settings.parts:
        results.inference += store.rows(
            INFERENCE, inference.InferenceRow, lambda: inference.measure(settings.inference, whole)
        )
    if TRAINING in settings.parts:
        results.training += store.rows(
            TRAINING, training.TrainingRow, lambda: training.measure(settings.training, whole)
        )
    write(results, settings, running, store)
    say(f"{running.out / 'report.md'} is written")


def _measure(
    part: str,
    shape: Shape,
    before: list[ModuleRow],
    settings: EfficiencySettings,
    running: Running,
    store: Store,
) -> list[ModuleRow]:
    return store.rows(
        f"{part}, {shape.length} tokens",
        ModuleRow,
        lambda: module_grid.measure(shape, settings, running, before),
    )
